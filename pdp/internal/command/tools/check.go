package tools

import (
	"errors"
	"fmt"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/server/config"
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
	in, err := c.read()
	if err != nil {
		return err
	}
	if in.sound {
		for _, rule := range rules {
			rule(in)
		}
	}
	problems, warnings := bundledir.Print(in.found.Sorted(), s)
	s.Print("%s: %s, %s", in.read(), cli.Plural(problems, "problem"), cli.Plural(warnings, "warning"))
	if problems > 0 {
		return cli.No
	}
	return nil
}

// rules are the checks, each of one kind of mistake. A rule passes if its part of the input is not there.
var rules = []func(*input){(*input).servers, (*input).definitions, (*input).names, (*input).mappings, (*input).access, (*input).policies, (*input).sessions, (*input).people}

// input has the files that the rules hold against each other, and the problems that they find.
type input struct {
	file, lockFile, dir string

	config  mcp.Config
	origins config.Origins
	sound   bool // the configuration has no mistakes
	locked  *tools
	bundle  *pdp.Bundle

	found  pdp.Problems
	absent map[string]pdp.Problems // by a server that is neither in the lock nor in the configuration
}

// read reads all files. A malformed file is a problem, and no error.
func (c Check) read() (*input, error) {
	in := &input{file: string(c.Config), lockFile: string(c.Lock), dir: string(c.Policies), absent: map[string]pdp.Problems{}}
	var mistakes config.Mistakes
	var err error
	in.origins, err = mcp.Form.Read(config.Given{File: in.file}, &in.config)
	if err != nil && !errors.As(err, &mistakes) {
		return nil, err
	}
	mcp.Form.SetDefaults(&in.config)
	in.sound = len(mistakes) == 0
	for _, m := range mistakes {
		in.mistake(m)
	}
	if e := in.config.PDP.Embedded; in.dir == "" && e != nil {
		in.dir = e.Policies
	}
	if in.lockFile == "" {
		in.lockFile = in.config.Lock.File
	}
	if err := in.readLock(); err != nil {
		return nil, err
	}
	return in, in.readPolicies()
}

func (in *input) readLock() error {
	if in.lockFile == "" {
		in.warn(in.file, "nothing is locked, so mappings and policies are held against no tools", "write a lock with policy-service mcp lock, and name it by lock.file or --lock")
		return nil
	}
	f, err := lock.Read(in.lockFile)
	var wrong *lock.Error
	switch {
	case errors.As(err, &wrong):
		in.mistake(wrong.Error())
		return nil
	case err != nil:
		return fmt.Errorf("cannot read the lock: %w; write one with policy-service mcp lock --config %s, or take the lock out of the configuration", err, cli.Shell(in.file))
	}
	in.locked = newTools(f)
	return nil
}

func (in *input) readPolicies() error {
	if in.dir == "" {
		return nil
	}
	if err := bundledir.Exists(in.dir); err != nil {
		return err
	}
	bundle, problems := pdp.Load(pdp.Dir(in.dir))
	in.bundle = bundle
	in.found = append(in.found, bundledir.Placed(in.dir, problems.Only(pdp.SeverityError))...)
	return nil
}

// read says which files were read, and how much is in them.
func (in *input) read() string {
	text := in.file
	if in.locked != nil {
		text += ", " + cli.Plural(len(in.locked.all), "locked tool")
	}
	if in.bundle == nil {
		return text
	}
	if n := len(in.bundle.Policies()); n != 1 {
		return text + fmt.Sprintf(", %d policies", n)
	}
	return text + ", 1 policy"
}
