package tools

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/mcp/toolschema"
	"policy-service/pdp/internal/plainfile"
)

// Schema writes a Cedar schema of the questions of a gateway about tools.
type Schema struct {
	Config    cli.Given `required:"" placeholder:"FILE" env:"MCP_GATEWAY_CONFIG" help:"The configuration file of the gateway."`
	Lock      cli.Given `placeholder:"FILE" help:"The lock that has the tools. The configuration's lock.file unless given; without one, the servers are asked."`
	Whole     bool      `help:"Write a schema that loads alone, with all that the gateway asks about. So it is for a bundle that has no other schema, if the file lies in one. Otherwise it is a part, for tools.cedarschema beside a schema.cedarschema of yours."`
	Said      []string  `placeholder:"NAME" help:"Members that clients say in _meta, in io.policy-service/context, and policies read, each a text. Others are dropped before policies see them."`
	Output    cli.Given `short:"o" xor:"to" placeholder:"FILE" help:"The file to write. Standard output unless given."`
	Check     cli.Given `xor:"to" placeholder:"FILE" help:"Write nothing, and say if this file is other than what would be written."`
	TokenFile cli.Given `placeholder:"FILE" help:"The access token of a client of the gateway, for upstreams whose credentials are exchanged for it. - is standard input."`
}

// Help ends the command's help.
func (Schema) Help() string {
	return "The gateway asks by the actions of this schema with ask: tool. What a tool's inputSchema says and Cedar cannot is left out, and " +
		"named on standard error: policies do not see such an argument.\n\n" +
		"Exit codes: 0 if it is written, or the file of --check is as it would be; 1 if that is not; 2 if it cannot run, or an upstream cannot " +
		"be asked."
}

// Run makes the schema, and writes or compares it.
func (c Schema) Run(s cli.Streams) error {
	settings, err := configIn(c.Config)
	if err != nil {
		return err
	}
	known, err := c.known(settings, s)
	if err != nil {
		return err
	}
	if file := cmp.Or(string(c.Output), string(c.Check)); !c.Whole {
		switch bundle, schemas := beside(file); {
		case schemas:
		case bundle:
			c.Whole = true
			s.Tell("%s is the only schema of its bundle, so it has all that the gateway asks about, as by --whole", file)
		default:
			s.Tell("the schema is a part, and a bundle without another schema does not load with it; write it into the bundle by -o FILE, which has what is missing then, or give --whole")
		}
	}
	made, err := toolschema.Generate(behind(settings, known), c.options(settings))
	if err != nil {
		return err
	}
	for _, n := range made.Notes {
		s.Tell("%s", n)
	}
	if settings.Ask != mcp.AskTool {
		s.Tell("%s has ask: %s, which asks about all tools by one action; with ask: tool it asks by those of this schema", c.Config, settings.Ask)
	}
	switch {
	case c.Check != "":
		return c.compare(s, made.Text)
	case c.Output != "":
		if err := plainfile.Publish(string(c.Output), []byte(made.Text)); err != nil {
			return fmt.Errorf("cannot write the schema: %w; name a file that can be written", err)
		}
		return nil
	}
	_, err = s.Out.Write([]byte(made.Text))
	return err
}

// beside reports whether the directory of a file is a bundle, and whether there are other schemas in it. Bundles have their
// schemas beside their policies, and not below.
func beside(file string) (bundle, schemas bool) {
	if file == "" {
		return false, false
	}
	entries, _ := os.ReadDir(filepath.Dir(file)) // to write into one that cannot be read is an error later
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, ".cedarschema") || strings.HasSuffix(name, ".cedarschema.json"):
			schemas = schemas || name != filepath.Base(file)
		case filepath.Ext(name) == ".cedar", slices.Contains([]string{"bundle.yaml", "obligations.yaml", "filters.yaml", "MANIFEST", "access", "entities", "tenants"}, name):
			bundle = true
		}
	}
	return bundle, schemas
}

func (c Schema) compare(s cli.Streams, text string) error {
	kept, err := plainfile.Read(string(c.Check), 1<<20)
	if err != nil {
		return fmt.Errorf("--check: %w; write the file with -o", err)
	}
	if !bytes.Equal(kept, []byte(text)) {
		s.Tell("%s is not the schema of these tools; write it again with -o %s, and see with policy-service check what policies make of it", c.Check, c.Check)
		return cli.No
	}
	return nil
}

// known are the tools: those that are locked, or those that the servers have now.
func (c Schema) known(settings mcp.Config, s cli.Streams) (lock.File, error) {
	if file := cmp.Or(string(c.Lock), settings.Lock.File); file != "" {
		f, err := lock.Read(file)
		if err == nil || c.Lock != "" || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	token, err := tokenIn(c.TokenFile, s.In)
	if err != nil {
		return lock.File{}, err
	}
	found, away, err := survey(s, settings, token)
	return found, cmp.Or(err, away)
}

// behind are the tools that can be called through the gateway.
func behind(settings mcp.Config, known lock.File) (all []toolschema.Tool) {
	for server, u := range settings.Upstreams {
		for name, t := range known.Servers[server].Tools {
			if !u.Tools[name].Hidden {
				all = append(all, toolschema.Tool{Server: server, Name: name, Definition: t.Definition()})
			}
		}
	}
	return all
}

// options are the parts of questions besides the arguments.
func (c Schema) options(settings mcp.Config) toolschema.Options {
	o := toolschema.Options{Whole: c.Whole, Properties: settings.Identity.Properties, Said: c.Said}
	for _, i := range settings.Identity.Issuers {
		o.People = append(o.People, cmp.Or(i.SubjectType, "user"))
		o.Agents = append(o.Agents, cmp.Or(i.AgentType, "agent"))
	}
	for _, u := range settings.Upstreams {
		o.Labels = slices.AppendSeq(o.Labels, maps.Keys(u.Labels))
		for _, t := range u.Tools {
			o.Labels = slices.AppendSeq(o.Labels, maps.Keys(t.Labels))
		}
	}
	return o
}
