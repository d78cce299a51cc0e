package sdkpep_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/oauth2"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/evaluation/coaz/sdkpep"
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

// Alice calls the tool of the server above. A policy of the PDP forbids her the customer "kept".
func Example() {
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		// Validate the token here. In this example it is the name of its subject.
		info := auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}
		return verified([]byte(`{"sub":"`+token+`","aud":"https://mcp.example.com","client_id":"agent"}`), info)
	}
	h, err := handler(os.Getenv("PDP_URL"), verify)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(h)
	defer server.Close()

	ctx := context.Background()
	alice := oauth2.NewClient(ctx, oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "alice"}))
	transport := &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: alice, DisableStandaloneSSE: true}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = session.Close() }()
	for _, id := range []string{"ada", "kept"} {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "get_customer", Arguments: map[string]any{"id": id}})
		if err != nil {
			fmt.Println(id, "is refused:", err)
			continue
		}
		fmt.Println(id, "is", result.Content[0].(*mcp.TextContent).Text)
	}
	// Output:
	// ada is Ada
	// kept is refused: calling "tools/call": Access denied: Keep this customer.
}
