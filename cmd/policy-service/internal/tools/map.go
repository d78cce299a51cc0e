package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/cmd/policy-service/internal/bundledir"
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/cmd/policy-service/internal/gateway"
	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp"
	"policy-service/pdp/server/config"
)

// Map shows what the gateway asks about a message.
type Map struct {
	Config     cli.Given `placeholder:"FILE" env:"MCP_GATEWAY_CONFIG" help:"The configuration file of the gateway."`
	Claims     cli.Given `placeholder:"FILE" help:"The claims of a token, as a JSON object. Nothing about them is verified. identity.static needs none."`
	Definition cli.Given `placeholder:"FILE" xor:"tools" help:"The definition of the tool that is called, as its server lists it, in JSON. The tools are those of lock.file unless given."`
	Live       bool      `xor:"tools" help:"Ask the servers which tools they have now."`
	Server     cli.Given `placeholder:"NAME" help:"The upstream whose tool --definition is, if there are several."`
	Policies   cli.Given `placeholder:"DIR" help:"The bundle that decides. pdp.embedded.policies unless given."`
	Ask        bool      `help:"Ask the PDP at pdp.url. Then the questions and its answers are on its record."`
	Defaults   bool      `help:"Print the mappings that are built in, by method, and nothing else."`
	Message    string    `arg:"" optional:"" help:"A file with one JSON-RPC request, as a client sends it. - is standard input."`
}

// Help ends the command's help.
func (Map) Help() string {
	return "The command prints JSON: mapping, questions (each with the API and the body that the PDP gets), verdict if there are " +
		"policies to decide or a PDP to ask, and missing_approval if the request waits for a person. It forwards nothing, does nothing " +
		"that the PDP obliges to, and without --ask writes no record.\n\n" +
		"Exit codes: 0 if the request is allowed, or nobody was asked; 1 if it is denied, or no question can be made; 2 if it cannot run."
}

// largest bounds a message: it is the most that limits.max_body can be.
const largest = 16 << 20

// Run explains the message.
func (c Map) Run(s cli.Streams) error {
	switch {
	case c.Defaults:
		s.Print("%s", cli.Lines(coaz.Defaults))
		return nil
	case c.Config == "" || c.Message == "":
		return errors.New("there is no --config, or no message; give the configuration of the gateway, and a file with one request")
	case c.Ask && c.Policies != "":
		return errors.New("--ask and --policies: one of them decides; leave one out")
	case c.Message == "-" && c.Claims == "-":
		return errors.New("the message and the claims are both standard input; write one of them into a file")
	}
	var told mcp.Config
	from, err := mcp.Form.Read(config.Given{File: string(c.Config)}, &told)
	if err != nil {
		return err
	}
	mcp.Form.SetDefaults(&told)
	asked, err := c.asked(told, s)
	if err != nil {
		return err
	}
	var deps mcp.Deps
	if c.Ask {
		if told.PDP.URL == "" {
			return errors.New("--ask: the configuration has no pdp.url; leave --ask out, and the policies of pdp.embedded decide")
		}
		if deps.Transport, err = gateway.ToPDP(told.PDP); err != nil {
			return err
		}
	}
	x, err := mcp.Explain(context.Background(), told, deps, asked)
	if err != nil {
		return err
	}
	out := explained(x)
	if out.Refused != nil {
		out.Refused.At = placing{c, told, from}.of(*out.Refused, asked.Message)
	}
	return c.answer(told, x, out, s)
}

// answer prints the explanation, with the verdict if somebody decides.
func (c Map) answer(told mcp.Config, x mcp.Explanation, out *mapJSON, s cli.Streams) error {
	dir := string(c.Policies)
	if e := told.PDP.Embedded; dir == "" && e != nil && !c.Ask {
		dir = e.Policies
	}
	switch {
	case x.Refused != nil:
	case len(x.Questions) == 0:
		out.Verdict = &verdictJSON{Decision: true, Reason: "nobody is asked about this method"}
	case c.Ask:
		if err := out.byAnswers(x); err != nil {
			return err
		}
	case dir != "":
		bundle, err := bundledir.Load(dir, s)
		if err != nil {
			return err
		}
		if err := out.byPolicies(bundle, x); err != nil {
			return err
		}
	}
	if err := out.print(s); err != nil {
		return err
	}
	if x.Refused != nil || out.Verdict != nil && !out.Verdict.Decision {
		return cli.No
	}
	return nil
}

// asked is the message, and all that is said about it.
func (c Map) asked(told mcp.Config, s cli.Streams) (a mcp.Asked, err error) {
	if a.Message, err = read(c.Message, s.In); err != nil {
		return a, fmt.Errorf("cannot read the message: %w; try a file with one request, or - for standard input", err)
	}
	a.Message = bytes.TrimSpace(a.Message) // as an editor leaves it
	switch {
	case c.Claims != "":
		text, err := cli.ReadSmall(string(c.Claims), s.In)
		if err != nil {
			return a, fmt.Errorf("cannot read the claims: %w; try a file with a JSON object", err)
		}
		if a.Claims, err = evaluation.ParseWithNulls(text, evaluation.DefaultLimits()); err != nil {
			return a, fmt.Errorf("%s: the claims are no JSON object that every reader reads alike: %w; write the payload of a token, and not the token", within(string(c.Claims), text, pointerOf(err)), err)
		}
	case told.Identity.Static == nil:
		return a, errors.New("for whom the request is, tokens say; give --claims FILE with the claims of one, as a JSON object")
	}
	switch {
	case c.Definition != "":
		a.Tools, err = c.definition(told, s)
	case c.Live:
		a.Tools, err = survey(told, s)
	}
	return a, err
}

// definition is the one tool of --definition.
func (c Map) definition(told mcp.Config, s cli.Streams) ([]mcp.Tool, error) {
	text, err := read(string(c.Definition), s.In)
	if err != nil {
		return nil, fmt.Errorf("cannot read the definition: %w; try a file with one tool, as tools/list has it", err)
	}
	t := mcp.Tool{Server: string(c.Server), Definition: jsontext.Value(bytes.TrimSpace(text))}
	if _, err := evaluation.ParseWithNulls(t.Definition, evaluation.DefaultLimits()); err != nil {
		return nil, fmt.Errorf("%s: the definition is no JSON object that every reader reads alike: %w; write one tool, as tools/list has it", within(string(c.Definition), text, pointerOf(err)), err)
	}
	if t.Server == "" {
		if len(told.Upstreams) > 1 {
			return nil, errors.New("--definition: there are several upstreams; say whose tool it is by --server NAME")
		}
		for name := range told.Upstreams {
			t.Server = name
		}
	}
	if _, known := told.Upstreams[t.Server]; !known {
		return nil, fmt.Errorf("--server: there is no upstream %q; write a name of upstreams in the configuration", t.Server)
	}
	return []mcp.Tool{t}, nil
}

// survey are the tools that the servers have now.
func survey(told mcp.Config, s cli.Streams) (all []mcp.Tool, err error) {
	ctx, stop := cli.UntilSignal()
	defer stop()
	found, err := mcp.Survey(ctx, told, mcp.Deps{Logger: warnings(s.Err)}, "")
	if err != nil {
		return nil, fmt.Errorf("%w; see that the servers run, or leave --live out", err)
	}
	return mcp.Locked(found), nil
}

// read reads a file; - is in.
func read(name string, in io.Reader) ([]byte, error) {
	f, err := cli.Open(name, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err == nil && len(text) > largest {
		err = fmt.Errorf("%s is too large to be one", name)
	}
	return text, err
}
