// Package command has the whole command line of policy-service in one struct, and the text of --help. Each kind of user
// has a room below, with one file for each command; cli is how all of them speak and end.
package command

import (
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"policy-service/pdp/internal/command/approve"
	"policy-service/pdp/internal/command/audit"
	"policy-service/pdp/internal/command/author"
	"policy-service/pdp/internal/command/capabilities"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/completion"
	"policy-service/pdp/internal/command/connection"
	"policy-service/pdp/internal/command/gateway"
	"policy-service/pdp/internal/command/operate"
	"policy-service/pdp/internal/command/tools"
)

// Line is the whole command line.
type Line struct {
	Serve  operate.Serve   `cmd:"" help:"Answer requests over HTTP."`
	Author author.Commands `embed:""`

	MCPGateway gateway.Command `cmd:"" name:"mcp-gateway" help:"Stand in front of an MCP server, and have every request decided."`
	MCP        tools.Command   `cmd:"" name:"mcp" help:"Look at the tools behind a gateway, and at what it asks."`

	Config      operate.Config        `cmd:"" help:"Check, print and describe the configuration."`
	Conformance operate.Conformance   `cmd:"" help:"Test whether the PDP at a URL conforms to AuthZEN."`
	Keys        operate.Keys          `cmd:"" help:"Add, renew, list and revoke API keys."`
	Signing     operate.Signing       `cmd:"" help:"Rotate the key that signs tokens."`
	Replay      audit.ReplayCommand   `cmd:"" help:"Ask a candidate for policies what recorded questions asked, and print which answers would change."`
	Diff        audit.DiffCommand     `cmd:"" help:"Print what differs between two directories of policies, and in which decisions."`
	Coverage    audit.CoverageCommand `cmd:"" help:"Print which policies had a part in recorded decisions, and which tests satisfy."`
	Log         logCommands           `cmd:"" help:"Read, prove and verify the decision log."`
	Approvals   approvalCommands      `cmd:"" help:"See the approval requests that wait for you, and decide about them."`

	Capabilities capabilities.Command `cmd:"" help:"Ask for capability tokens, prove and verify them, and take them back."`

	Cluster operate.Cluster `cmd:"" help:"Move to a cluster of replicas."`
	Backup  operate.Backup  `cmd:"" help:"Write all that a server keeps into one file."`
	Restore operate.Restore `cmd:"" help:"Make a data directory of such a file, and say what that means."`

	Doctor  operate.Doctor  `cmd:"" help:"Find what would go wrong with a server before it does, and say what to do."`
	Health  operate.Health  `cmd:"" help:"Ask a running server whether it is alive, or with --ready whether it can decide."`
	Version operate.Version `cmd:"" help:"Print the version and the commit. policy-service --version and -v do the same."`

	Completion completion.Command `cmd:"" help:"Print the completion of a shell: bash, zsh or fish."`
}

// logCommands are for auditors, but for what makes another data directory of one.
type logCommands struct {
	audit.Command `embed:""`
	Begin         operate.BeginLog `cmd:"" help:"Begin another decision log, if the one that was there is damaged or gone."`
}

// approvalCommands are for approvers, but for what is done where etcd is.
type approvalCommands struct {
	approve.Command `embed:""`
	Settle          operate.Settle `cmd:"" help:"Say that a replica of a cluster is lost with its decision log, so that the others need not wait for it."`
}

// Run runs a command line, and returns the code that the process is to exit with.
func Run(args []string, s cli.Streams) cli.ExitCode {
	parser, err := NewParser(&Line{}, s)
	if err != nil {
		return s.Fail(err)
	}
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-v") { // for those who try that first; elsewhere it is the version of an approval
		args = []string{"version"}
	}
	command, err := parser.Parse(args)
	if err != nil {
		return s.Fail(fmt.Errorf("%w; try %s", cli.Meant(err), helpFor(err)))
	}
	var code cli.ExitCode
	switch err := command.Run(s); {
	case err == nil:
		return cli.OK
	case errors.As(err, &code):
		return code
	default:
		return s.Fail(err)
	}
}

// NewParser returns what reads command lines into c. Help is written to the streams.
func NewParser(c *Line, s cli.Streams) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("policy-service"),
		kong.Description("Decides who may do what, from Cedar policies in a directory."),
		kong.Writers(s.Out, s.Err),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.PostBuild(operate.HelpOfKeys),
		kong.PostBuild(gateway.HelpOfKeys),
		kong.Vars{"permission": "log.read"}, // of log commands, unless they say another
		kong.Help(printHelp),
		kong.Resolvers(kong.ResolverFunc(connection.Resolve)),
	)
}

// helpFor names the help that is nearest to a mistake on the command line.
func helpFor(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if selected := parse.Context.Selected(); selected != nil {
			return selected.FullPath() + " --help"
		}
	}
	return "policy-service --help"
}
