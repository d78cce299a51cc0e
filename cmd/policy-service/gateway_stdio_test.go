package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	text := fmt.Sprintf("resource: http://127.0.0.1:8181/mcp\nidentity: {static: {sub: alice}}\nupstreams: {wiki: {command: [%q], env: {WIKI: x}}}\n", server)
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
