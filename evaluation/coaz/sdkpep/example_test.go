package sdkpep_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/evaluation/coaz/sdkpep"
	"policy-service/pdp/pdptest"
)

// The part that README.md shows begins here.

// handler is an MCP server that asks the PDP before it does anything.
func handler(pdpURL string, verify auth.TokenVerifier) (http.Handler, error) {
	binding, err := coaz.New(coaz.Options{Resource: "https://mcp.example.com"})
	if err != nil {
		return nil, err
	}
	pdp, err := authzenclient.New(pdpURL)
	if err != nil {
		return nil, err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "customers", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "get_customer", InputSchema: map[string]any{
		"type": "object",
		"x-authzen-mapping": map[string]any{"evaluation": map[string]any{
			"subject":  map[string]any{"type": "identity", "id": "$token.sub"},
			"action":   map[string]any{"name": "get_customer"},
			"resource": map[string]any{"type": "customer", "id": "$params.arguments.id"},
			"context":  map[string]any{"agent": "$token.?client_id"},
		}},
	}}, getCustomer)
	server.AddReceivingMiddleware(sdkpep.Middleware(binding, pdp, nil))
	mcpHandler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	return auth.RequireBearerToken(verify, nil)(sdkpep.Strict(mcpHandler, 0)), nil
}

// verified is what a verifier returns for a token whose signature, issuer, audience and expiry it has validated.
func verified(payload []byte, info auth.TokenInfo) (*auth.TokenInfo, error) {
	claims, err := evaluation.ParseWithNulls(payload, evaluation.DefaultLimits())
	if err != nil {
		return nil, auth.ErrInvalidToken
	}
	return sdkpep.WithClaims(info, claims), nil
}

// The part that README.md shows ends here.

func getCustomer(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Ada"}}}, nil
}

// TestREADME runs what the page shows, and holds the page to it.
func TestREADME(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, pdptest.Bundle(bundle))
	verifier := func(ctx context.Context, token string, r *http.Request) (*auth.TokenInfo, error) {
		info, err := verify(ctx, token, r)
		if err != nil {
			return nil, err
		}
		return verified([]byte(`{"sub":"`+token+`","aud":"`+resource+`","client_id":"agent"}`), auth.TokenInfo{Expiration: info.Expiration, UserID: token})
	}
	h, err := handler(pdp.URL, verifier)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	s := &stage{t: t, url: front.URL}
	c, err := s.client("alice")
	if err != nil {
		t.Fatal(err)
	}
	for id, permitted := range map[string]bool{"c": true, "kept": false} {
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_customer", Arguments: map[string]any{"id": id}})
		if (err == nil) != permitted || !permitted && code(err) != -32001 {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := verified([]byte(`{"sub":"a","sub":"b"}`), auth.TokenInfo{}); err == nil {
		t.Error("two subjects are one")
	}

	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(source), "shows begins here.\n\n")
	shown, _, _ = strings.Cut(shown, "\n// The part that README.md shows ends")
	if !strings.Contains(string(page), "```go\n"+shown+"```\n") || strings.Count(string(page), "```go") != 1 {
		t.Errorf("README.md does not show\n%s", shown)
	}
}
