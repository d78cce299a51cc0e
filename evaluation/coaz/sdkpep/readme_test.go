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

	"policy-service/pdp/pdptest"
)

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
