package main

import (
	"context"
	"log"
	"os"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// listedServer is an MCP server over its standard streams whose instructions and tools are in the file server.json of its
// directory.
func listedServer() {
	text, err := os.ReadFile("server.json")
	if err != nil {
		log.Fatal(err)
	}
	var says struct {
		Instructions string      `json:"instructions"`
		Tools        []*sdk.Tool `json:"tools"`
	}
	if err := json.Unmarshal(text, &says); err != nil {
		log.Fatal(err)
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "listed", Version: "1"}, &sdk.ServerOptions{Instructions: says.Instructions})
	for _, tool := range says.Tools {
		s.AddTool(tool, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	}
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
