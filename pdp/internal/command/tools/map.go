package tools

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/mcp"
)

// Map shows the questions of the gateway about a message.
type Map struct {
	Config     cli.Given `placeholder:"FILE" env:"MCP_GATEWAY_CONFIG" help:"The configuration file of the gateway."`
	Claims     cli.Given `placeholder:"FILE" help:"The claims of a token, as a JSON object. Nothing about them is verified. identity.static needs none."`
	Definition cli.Given `placeholder:"FILE" help:"The definition of the tool that is called, as its server lists it, in JSON. The tools are those of lock.file unless given."`
	Server     cli.Given `placeholder:"NAME" help:"The upstream whose tool --definition is, if there are several."`
	Policies   cli.Given `placeholder:"DIR" help:"The bundle that decides. pdp.embedded.policies unless given."`
	Defaults   bool      `help:"Print the mappings that are built in, by method, and nothing else."`
	Message    string    `arg:"" optional:"" help:"A file with one JSON-RPC request, as a client sends it. - is standard input."`
}

// Help ends the command's help.
func (Map) Help() string {
	return "The command prints JSON: questions (each with the author of its mapping, and the API and the body that the PDP gets), verdict if " +
		"there are policies to decide, and missing_approval if the request waits for a person. It forwards nothing, does nothing that the " +
		"policies oblige to, asks no PDP, and writes no record.\n\n" +
		"Exit codes: 0 if the request is allowed, or no question is asked; 1 if it is denied, or no question can be made; 2 if it cannot run."
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
	case c.Message == "-" && c.Claims == "-":
		return errors.New("the message and the claims are both standard input; write one of them into a file")
	}
	settings, err := configIn(c.Config)
	if err != nil {
		return err
	}
	asked, err := c.asked(settings, s)
	if err != nil {
		return err
	}
	x, err := mcp.Explain(context.Background(), settings, asked)
	if err != nil {
		return err
	}
	out := explained(x)
	if dir := cmp.Or(string(c.Policies), embedded(settings)); len(x.Questions) > 0 && dir != "" {
		bundle, err := bundledir.Load(dir, s)
		if err != nil {
			return err
		}
		if err := out.decide(bundle, x); err != nil {
			return err
		}
	}
	text, err := json.Marshal(out, json.Deterministic(true), jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true))
	if err != nil {
		return fmt.Errorf("cannot write the answer as JSON: %w; try another message", err)
	}
	s.Print("%s", cli.Lines(text))
	if x.Refused != nil || out.Verdict != nil && !out.Verdict.Decision {
		return cli.No
	}
	return nil
}

// embedded is the bundle of a PDP in the gateway's process, "" without one.
func embedded(c mcp.Config) string {
	if c.PDP.Embedded == nil {
		return ""
	}
	return c.PDP.Embedded.Policies
}

// asked is the message, for whom it is, and the tools.
func (c Map) asked(settings mcp.Config, s cli.Streams) (a mcp.Asked, err error) {
	if a.Message, err = read(c.Message, s.In); err != nil {
		return a, fmt.Errorf("cannot read the message: %w; try a file with one request, or - for standard input", err)
	}
	if c.Claims != "" {
		text, err := read(string(c.Claims), s.In)
		if err != nil {
			return a, fmt.Errorf("cannot read the claims: %w; try a file with a JSON object", err)
		}
		if a.Claims, err = evaluation.ParseWithNulls(text, evaluation.DefaultLimits()); err != nil {
			return a, fmt.Errorf("%s: the claims are no JSON object that every reader reads alike: %w; write the payload of a token, and not the token", c.Claims, err)
		}
	} else if settings.Identity.Static == nil {
		return a, errors.New("tokens name the person of a request; give --claims FILE with the claims of one, as a JSON object")
	}
	if c.Definition != "" {
		a.Tools, err = c.definition(settings, s)
	}
	return a, err
}

// definition is the one tool of --definition.
func (c Map) definition(settings mcp.Config, s cli.Streams) ([]mcp.Tool, error) {
	text, err := read(string(c.Definition), s.In)
	if err != nil {
		return nil, fmt.Errorf("cannot read the definition: %w; try a file with one tool, as tools/list has it", err)
	}
	t := mcp.Tool{Server: string(c.Server), Definition: jsontext.Value(text)}
	if _, err := evaluation.ParseWithNulls(t.Definition, evaluation.DefaultLimits()); err != nil {
		return nil, fmt.Errorf("%s: the definition is no JSON object that every reader reads alike: %w; write one tool, as tools/list has it", c.Definition, err)
	}
	if t.Server == "" {
		if len(settings.Upstreams) > 1 {
			return nil, errors.New("--definition: there are several upstreams; say whose tool it is by --server NAME")
		}
		for name := range settings.Upstreams {
			t.Server = name
		}
	}
	if _, known := settings.Upstreams[t.Server]; !known {
		return nil, fmt.Errorf("--server: there is no upstream %q; write a name of upstreams in the configuration", t.Server)
	}
	return []mcp.Tool{t}, nil
}

// read reads a text without the blanks that editors leave around it; - is in.
func read(name string, in io.Reader) ([]byte, error) {
	text, err := cli.Read(name, in, largest)
	return bytes.TrimSpace(text), err
}
