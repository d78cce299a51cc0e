package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz/sdkpep"
)

// sample is the offer without --offer: the tools of the binding's figures.
//
//go:embed offer.json
var sample []byte

// offer has the tools of the server, as MCP lists them.
type offer struct {
	Tools             []jsontext.Value        `json:"tools"`
	Resources         []*mcp.Resource         `json:"resources"`
	ResourceTemplates []*mcp.ResourceTemplate `json:"resourceTemplates"`
	Prompts           []*mcp.Prompt           `json:"prompts"`

	definitions map[string]evaluation.Object
	tools       []*mcp.Tool
}

// readOffer reads a file; "" is the sample.
func readOffer(file string) (o *offer, err error) {
	text := sample
	if file != "" {
		if text, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	o = &offer{definitions: map[string]evaluation.Object{}}
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("%s is not what a server can offer: %w", file, err)
	}
	for n, definition := range o.Tools {
		var shown struct {
			Name        string         `json:"name"`
			Description string         `json:"description"`
			InputSchema jsontext.Value `json:"inputSchema"`
		}
		if err := json.Unmarshal(definition, &shown); err != nil || shown.Name == "" {
			return nil, fmt.Errorf("%s: tool %d has no name, or is no tool", file, n)
		}
		if o.definitions[shown.Name], err = sdkpep.Definition(definition); err != nil {
			return nil, fmt.Errorf("%s: the tool %s: %w", file, shown.Name, err)
		}
		o.tools = append(o.tools, &mcp.Tool{Name: shown.Name, Description: shown.Description, InputSchema: shown.InputSchema})
	}
	return o, nil
}

// definition is the declaration of a tool, also of members that the SDK does not list.
func (o *offer) definition(name string) (evaluation.Object, bool) {
	d, ok := o.definitions[name]
	return d, ok
}

// server executes whatever it is asked to, which is the PEP's business.
func (o *offer) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "coaz-example", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"short", "long"}}}, nil
		},
	})
	for _, t := range o.tools {
		server.AddTool(t, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ran " + r.Params.Name}}}, nil
		})
	}
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: "a note"}}}, nil
	}
	for _, r := range o.Resources {
		server.AddResource(r, read)
	}
	for _, t := range o.ResourceTemplates {
		server.AddResourceTemplate(t, read)
	}
	for _, p := range o.Prompts {
		server.AddPrompt(p, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "summarise " + r.Params.Arguments["style"]}}}}, nil
		})
	}
	return server
}
