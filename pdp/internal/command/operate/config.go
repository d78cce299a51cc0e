package operate

import (
	"errors"
	"os"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/process"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/config"
	"policy-service/schemas"
)

// Config is about the configuration of serve.
type Config struct {
	Check  configCheckCommand  `cmd:"" help:"List every mistake in a configuration file."`
	Print  configPrintCommand  `cmd:"" help:"Print the configuration that serve would have, and the origin of each value."`
	Schema configSchemaCommand `cmd:"" help:"Print the JSON Schema of the configuration file, or of a file of a bundle, for editors."`
}

type configCheckCommand struct {
	File string `arg:"" help:"The configuration file."`
}

// Help ends the command's help.
func (configCheckCommand) Help() string {
	return "The command reads the file. It does not read flags or environment variables.\n\n" +
		"Exit codes: 0 if there are no mistakes (there may be warnings), 1 if there are mistakes, 2 if it cannot read the file."
}

// Run prints every mistake. A mistake that a flag or a variable may still mend is a warning.
func (c configCheckCommand) Run(s cli.Streams) error {
	told, from, err := process.CheckConfig(server.ConfigForm, c.File, s)
	if err != nil {
		return err
	}
	told.Program.Checkpoints = s.Out
	process.PrintWarnings(told.Findings(), c.File, from, s)
	return nil
}

type configPrintCommand struct {
	configFlags `embed:""`
}

// Help ends the command's help.
func (configPrintCommand) Help() string {
	return "The command takes the flags of serve. It prints a configuration file that says the same. " +
		"A comment beside each value names its origin: default, file:line:column, a variable or a flag."
}

// Run prints the configuration that serve would have.
func (c configPrintCommand) Run(s cli.Streams) error {
	told, from, err := c.read()
	if err != nil {
		return err
	}
	told.Program.Checkpoints = s.Out
	if _, err := server.New(told); err != nil {
		return err
	}
	return process.PrintConfig(server.ConfigForm, told, from, s)
}

type configSchemaCommand struct {
	Of string `enum:"config,access,bundle,obligations,tests" default:"config" help:"The kind of file: config, access, bundle, obligations or tests. The default is config."`
}

// Help ends the command's help.
func (configSchemaCommand) Help() string {
	return "config is the configuration of serve. The others are the YAML files of a bundle: access/*.yaml, bundle.yaml, " +
		"obligations.yaml and tests/*.yaml."
}

// Run prints the schema.
func (c configSchemaCommand) Run(s cli.Streams) error {
	kinds := map[string][]byte{
		"config":      server.ConfigForm.Schema(),
		"access":      schemas.Access,
		"bundle":      schemas.Bundle,
		"obligations": schemas.Obligations,
		"tests":       schemas.Tests,
	}
	_, err := s.Out.Write(kinds[c.Of])
	return err
}

// configFlags are the flags of serve that configure it. A flag with a key sets that key of the configuration, and wins
// over the file and the environment. Its help is that of the key.
type configFlags struct {
	Config    cli.Given `placeholder:"FILE" env:"POLICY_SERVICE_CONFIG" help:"The configuration file, in YAML. Environment variables win over the file, and flags win over both."`
	Policies  cli.Given `key:"policies" placeholder:"DIR"`
	Data      cli.Given `key:"data" placeholder:"DIR"`
	Listen    cli.Given `key:"listen" placeholder:"ADDR"`
	PublicURL cli.Given `key:"public_url" name:"public-url" placeholder:"URL"`
	TLSCert   cli.Given `key:"tls.cert_file" name:"tls-cert" placeholder:"FILE"`
	TLSKey    cli.Given `key:"tls.key_file" name:"tls-key" placeholder:"FILE"`
	ClientCA  cli.Given `key:"tls.client_ca_file" name:"client-ca" placeholder:"FILE"`
	LogMode   cli.Given `key:"decision_log.mode" name:"log-mode" placeholder:"MODE"`

	MaxConcurrent cli.Given `key:"max_concurrent" name:"max-concurrent" placeholder:"N"`
	AdminListen   cli.Given `key:"admin_listen" name:"admin-listen" placeholder:"ADDR"`
}

var errNoPolicies = errors.New("there is no bundle to answer from; " +
	"add --policies DIR, or policies in the configuration")

// read is the configuration of file, environment and flags.
func (c configFlags) read() (told server.Config, from config.Origins, err error) {
	given := config.Given{
		File:    string(c.Config),
		Environ: os.Environ(),
		Flags:   process.Flags(c, "key"),
	}
	from, err = server.ConfigForm.Read(given, &told)
	if err == nil && told.Policies == "" {
		err = errNoPolicies
	}
	return told, from, err
}

// HelpOfKeys gives each flag that sets a key the help of that key.
var HelpOfKeys = process.HelpOfKeys("key", server.ConfigForm.Keys())
