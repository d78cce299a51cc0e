package tools

import (
	"errors"
	"fmt"

	"policy-service/cmd/policy-service/internal/bundledir"
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp"
	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/server/config"
)

// Check holds configuration, lock and policies of a gateway against each other.
type Check struct {
	Config   cli.Given `required:"" placeholder:"FILE" env:"MCP_GATEWAY_CONFIG" help:"The configuration file of the gateway."`
	Policies cli.Given `placeholder:"DIR" help:"The bundle that decides. pdp.embedded.policies unless given."`
	Lock     cli.Given `placeholder:"FILE" help:"The locked tools. lock.file of the configuration unless given."`
}

// Help ends the command's help.
func (Check) Help() string {
	return "The command finds what traffic would show later: mistakes in the configuration and its mappings, names that clash, tools " +
		"and arguments that are named and that no locked tool has, a lock that was edited, and what is doubtful in what servers " +
		"declare. It reads files alone: no server and no PDP is asked. What is wrong in policies by themselves, policy-service check finds.\n\n" +
		"Exit codes: 0 if there are no problems (there may be warnings), 1 if there are, 2 if it cannot read a file."
}

// Run prints everything that is wrong or doubtful.
func (c Check) Run(s cli.Streams) error {
	k := &checker{file: string(c.Config), lockFile: string(c.Lock), dir: string(c.Policies), absent: map[string][]finding{}}
	if err := k.read(); err != nil {
		return err
	}
	if k.sound {
		k.checkLock()
		k.checkNames()
		k.checkConfig()
		k.checkAccess()
		k.checkPolicies()
		k.checkAbsent()
		k.checkPeople()
	}
	return k.print(s)
}

// checker has what is held against each other, and what was found.
type checker struct {
	file, lockFile, dir string

	told   mcp.Config
	from   config.Origins
	sound  bool // the configuration has no mistakes
	locked *tools
	bundle *pdp.Bundle
	shown  []shownName
	absent map[string][]finding // by the servers that are named, and that are not in the lock

	findings
}

// read reads all files, and finds what keeps one from being read as what it is.
func (k *checker) read() error {
	var mistakes config.Mistakes
	from, err := mcp.Form.Read(config.Given{File: k.file}, &k.told)
	if err != nil && !errors.As(err, &mistakes) {
		return err
	}
	mcp.Form.SetDefaults(&k.told)
	k.from, k.sound = from, len(mistakes) == 0
	for _, m := range mistakes {
		k.line(m, false)
	}
	if e := k.told.PDP.Embedded; k.dir == "" && e != nil {
		k.dir = e.Policies
	}
	if k.lockFile == "" {
		k.lockFile = k.told.Lock.File
	}
	if err := k.readLock(); err != nil {
		return err
	}
	return k.readPolicies()
}

func (k *checker) readLock() error {
	if k.lockFile == "" {
		return nil
	}
	f, err := lock.Read(k.lockFile)
	var wrong *lock.Error
	switch {
	case errors.As(err, &wrong):
		k.line(wrong.Error(), false)
		return nil
	case err != nil:
		return fmt.Errorf("cannot read the lock: %w; write one with policy-service mcp lock --config %s, or take the lock out of the configuration", err, cli.Shell(k.file))
	}
	k.locked = newTools(f)
	return nil
}

func (k *checker) readPolicies() error {
	if k.dir == "" {
		return nil
	}
	if err := bundledir.Exists(k.dir); err != nil {
		return err
	}
	bundle, problems := pdp.Load(pdp.Dir(k.dir))
	for _, p := range problems {
		if p.Severity == pdp.SeverityError {
			k.add(finding{file: inDir(k.dir, p.File), line: p.Line, column: p.Column, what: p.Message, try: p.Try})
		}
	}
	k.bundle = bundle
	return nil
}

// print prints what was found, and ends the command.
func (k *checker) print(s cli.Streams) error {
	k.place()
	problems, warnings := 0, 0
	for _, f := range k.sorted() {
		hue := cli.Red
		if f.warning {
			hue = cli.Yellow
			warnings++
		} else {
			problems++
		}
		s.Print("%s", s.Colour(hue, cli.Quoted(f.String())))
	}
	for _, n := range k.shown {
		s.Print("clients call %s:%s %s", n.server, n.tool, n.shown)
	}
	s.Print("%s: %s, %s", k.looked(), cli.Plural(problems, "problem"), cli.Plural(warnings, "warning"))
	if problems > 0 {
		return cli.No
	}
	return nil
}

// looked is what was looked at.
func (k *checker) looked() string {
	text := k.file
	if k.locked != nil {
		text += ", " + cli.Plural(len(k.locked.all), "locked tool")
	}
	if k.bundle != nil {
		n := len(k.bundle.Policies())
		if n == 1 {
			return text + ", 1 policy"
		}
		text += fmt.Sprintf(", %d policies", n)
	}
	return text
}
