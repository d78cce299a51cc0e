package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/decisionlog/verify"
)

// wikiServer is an MCP server as people have them: a program with two tools, over its standard streams.
func wikiServer() {
	s := sdk.NewServer(&sdk.Implementation{Name: "wiki", Version: "1"}, nil)
	for _, name := range []string{"search_pages", "delete_pages"} {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: name}, func(_ context.Context, _ *sdk.CallToolRequest, in struct {
			Query string `json:"query"`
		}) (*sdk.CallToolResult, any, error) {
			secrets := []string{}
			for _, v := range os.Environ() {
				secrets = append(secrets, strings.SplitN(v, "=", 2)[0])
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s %s %v", name, in.Query, secrets)}}}, nil, nil
		})
	}
	_ = s.Run(context.Background(), &sdk.StdioTransport{})
}

// TestGatewayOverStdio is the gateway as a desktop client starts it: in front of a program, with a PDP of its own.
func TestGatewayOverStdio(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := exec.LookPath("wiki-mcp-server")
	must(t, err)
	file := filepath.Join(dir, "desktop.yaml")
	text := fmt.Sprintf("resource: http://127.0.0.1:8181/mcp\npdp: {timeout: 1m}\nidentity: {static: {sub: alice}}\nupstreams: {wiki: {command: [%q], env: {WIKI: x}}}\n", server)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	bundle := filepath.Join(dir, "bundle")
	policies := `@id("session") permit (principal, action, resource) unless { action == Action::"tool.invoke" };
@id("search") permit (principal == user::"alice", action == Action::"tool.invoke", resource == tool::"wiki:search_pages");`
	must(t, errors.Join(os.Mkdir(bundle, 0o700), os.WriteFile(filepath.Join(bundle, "wiki.cedar"), []byte(policies), 0o600)))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	data := filepath.Join(dir, "data")
	gateway := exec.CommandContext(ctx, "policy-service", "mcp-gateway", "--config", file, "--stdio", "--pdp-policies", bundle, "--pdp-data", data)
	gateway.Env = append(os.Environ(), "HUNTER2=x")
	var log strings.Builder
	gateway.Stderr = &log
	client := sdk.NewClient(&sdk.Implementation{Name: "desktop", Version: "1"}, nil)
	session, err := client.Connect(ctx, &sdk.CommandTransport{Command: gateway, TerminateDuration: patience}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	tools, err := session.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "search_pages" {
		t.Errorf("got %+v, %v", tools, err)
	}
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "search_pages", Arguments: map[string]any{"query": "cats"}})
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	if got := result.Content[0].(*sdk.TextContent).Text; got != "search_pages cats [WIKI]" {
		t.Errorf("got %q", got)
	}
	var refused *jsonrpc.Error
	if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "delete_pages", Arguments: map[string]any{"query": "cats"}}); !errors.As(err, &refused) || refused.Code != -32001 {
		t.Errorf("what nobody permits: %v", err)
	}
	if err := session.Close(); err != nil {
		t.Errorf("%v\n%s", err, &log)
	}
	if report := verify.Directory(data, verify.Options{}); !report.Verified() {
		t.Errorf("%+v", report)
	}
	shown, err := exec.CommandContext(ctx, "policy-service", "log", "tail", "--data", data, "--action", "tool.invoke").Output()
	if err != nil || !strings.Contains(string(shown), "wiki:search_pages") || !strings.Contains(string(shown), "wiki:delete_pages") {
		t.Errorf("%v\n%s", err, shown)
	}
}

// pasted is one server of the JSON that the page has people paste into a client.
type pasted struct {
	Command string
	Args    []string
	URL     string
}

// pastes are those of the page, in its order.
func pastes(t *testing.T, p page) (all []pasted) {
	t.Helper()
	for _, b := range p.blocks {
		if b.tag != "json" {
			continue
		}
		var file struct{ MCPServers map[string]pasted }
		must(t, json.Unmarshal([]byte(strings.Join(b.lines, "\n")), &file))
		for _, server := range file.MCPServers {
			all = append(all, server)
		}
	}
	return all
}

// A desktop is where somebody has a client with windows: one configuration, and one bundle.
type desktop struct {
	t            *testing.T
	config, data string
	paste        pasted
}

// newDesktop has a gateway in front of the wiki, which asks the PDP that pdp names. In it, DATA and BUNDLE are directories.
func newDesktop(t *testing.T, paste pasted, pdp string) *desktop {
	t.Helper()
	server, err := exec.LookPath("wiki-mcp-server")
	must(t, err)
	dir := t.TempDir()
	d := &desktop{t: t, config: filepath.Join(dir, "own.yaml"), data: filepath.Join(dir, "data"), paste: paste}
	text := fmt.Sprintf("listen: 127.0.0.1:0\nresource: http://127.0.0.1:8211/mcp\npdp: %s\nidentity: {static: {sub: alice}}\nupstreams: {wiki: {command: [%q]}}\n",
		strings.NewReplacer("DATA", d.data, "BUNDLE", openBundle(t)).Replace(pdp), server)
	must(t, os.WriteFile(d.config, []byte(text), 0o600))
	return d
}

func openBundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "wiki.cedar"), []byte(`permit (principal == user::"alice", action, resource);`), 0o600))
	return dir
}

// window is the program that a client starts for one window: the pasted one, with the paths of this machine.
func (d *desktop) window(log *strings.Builder) *exec.Cmd {
	d.t.Helper()
	args := slices.Clone(d.paste.Args)
	at := slices.Index(args, "--config")
	if filepath.Base(d.paste.Command) != "policy-service" || at < 0 || !slices.Contains(args, "--stdio") {
		d.t.Fatalf("no gateway of one client: %+v", d.paste)
	}
	args[at+1] = d.config
	c := exec.CommandContext(d.t.Context(), "policy-service", args...)
	c.Stderr = log
	return c
}

// searches connects as a window does, and calls the tool.
func searches(t *testing.T, transport sdk.Transport) (*sdk.ClientSession, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "desktop", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		return nil, err
	}
	_, err = session.CallTool(ctx, &sdk.CallToolParams{Name: "search_pages", Arguments: map[string]any{"query": "cats"}})
	return session, err
}

// TestTwoWindows has two windows of a client, as pdp/mcp/README.md says for each row of its table.
func TestTwoWindows(t *testing.T) {
	t.Parallel()
	p := readPage(t, "pdp/mcp/README.md")
	all := pastes(t, p)
	if len(all) != 2 || all[0].Command == "" || !strings.Contains(p.text, "\n> resource: "+all[1].URL+"\n") {
		t.Fatalf("the page has a command, and the address of its gateway, to paste: %+v", all)
	}
	both := func(t *testing.T, open func() sdk.Transport) {
		t.Helper()
		var sessions []*sdk.ClientSession
		for range 2 {
			session, err := searches(t, open())
			must(t, err)
			sessions = append(sessions, session)
		}
		for _, session := range sessions {
			must(t, session.Close())
		}
	}
	recorded := func(t *testing.T, data string, want int) {
		t.Helper()
		shown, err := exec.CommandContext(t.Context(), "policy-service", "log", "tail", "--data", data, "--action", "tool.invoke", "--decision", "allow").Output()
		if got := strings.Count(string(shown), "wiki:search_pages"); err != nil || got != want {
			t.Errorf("%d calls are on record, and %d were made: %v\n%s", got, want, err, shown)
		}
	}
	t.Run("command and url of a PDP", func(t *testing.T) {
		data := filepath.Join(t.TempDir(), "data")
		server, addr := serveIn(t, "--policies", openBundle(t), "--data", data)
		d := newDesktop(t, all[0], fmt.Sprintf("{url: %q, timeout: 1m}", "http://"+addr))
		both(t, func() sdk.Transport {
			return &sdk.CommandTransport{Command: d.window(&strings.Builder{}), TerminateDuration: patience}
		})
		stop(t, server)
		recorded(t, data, 2)
	})
	t.Run("command and a PDP inside, with data", func(t *testing.T) {
		d := newDesktop(t, all[0], `{embedded: {policies: "BUNDLE", data: "DATA"}, timeout: 1m}`)
		first, err := searches(t, &sdk.CommandTransport{Command: d.window(&strings.Builder{}), TerminateDuration: patience})
		must(t, err)
		var log strings.Builder
		second := d.window(&log)
		if err := second.Run(); err == nil || second.ProcessState.ExitCode() != 2 || !strings.Contains(log.String(), "is in use by another process") || !strings.Contains(log.String(), "pdp.url") {
			t.Errorf("the second window: %v\n%s", err, &log)
		}
		must(t, first.Close())
		again, err := searches(t, &sdk.CommandTransport{Command: d.window(&strings.Builder{}), TerminateDuration: patience})
		must(t, err)
		must(t, again.Close())
		recorded(t, d.data, 2)
	})
	t.Run("command and a PDP inside, without data", func(t *testing.T) {
		d := newDesktop(t, all[0], `{embedded: {policies: "BUNDLE"}, timeout: 1m}`)
		both(t, func() sdk.Transport {
			return &sdk.CommandTransport{Command: d.window(&strings.Builder{}), TerminateDuration: patience}
		})
	})
	t.Run("url", func(t *testing.T) {
		d := newDesktop(t, all[1], `{embedded: {policies: "BUNDLE", data: "DATA"}, timeout: 1m}`)
		file := filepath.Join(t.TempDir(), "addr")
		gateway := exec.CommandContext(t.Context(), "policy-service", "mcp-gateway", "--config", d.config, "--addr-file", file)
		gateway.Stderr = &bytes.Buffer{}
		must(t, gateway.Start())
		addr := awaitAddr(t, gateway, file, gateway.Stderr)
		both(t, func() sdk.Transport { return &sdk.StreamableClientTransport{Endpoint: "http://" + addr + "/mcp"} })
		stop(t, gateway)
		recorded(t, d.data, 2)
	})
}
