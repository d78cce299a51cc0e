package identity_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/pdptest/clock"
)

func TestMetadata(t *testing.T) {
	issuers := []identity.Issuer{
		{Issuer: "https://two.example/realm", Algorithms: []string{"ES256"}, Tenant: "two"},
		{Issuer: "https://one.example", Algorithms: []string{"ES256"}},
	}
	for id, paths := range map[string][]string{
		"https://mcp.example.com/mcp":        {"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"},
		"https://mcp.example.com/a/b.c/":     {"/.well-known/oauth-protected-resource/a/b.c/", "/.well-known/oauth-protected-resource"},
		"https://mcp.example.com":            {"/.well-known/oauth-protected-resource"},
		"https://mcp.example.com/":           {"/.well-known/oauth-protected-resource"},
		"https://mcp.example.com:8443/mcp":   {"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"},
		"http://[::1]:8181/mcp":              {"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"},
		"http://localhost:8181/.x/-y/~z/_/1": {"/.well-known/oauth-protected-resource/.x/-y/~z/_/1", "/.well-known/oauth-protected-resource"},
	} {
		i, err := identity.New(identity.Options{Resource: id, Name: "Tickets", Issuers: issuers, Scopes: []string{"mcp:tools", "x"}})
		if err != nil {
			t.Fatal(err)
		}
		want := `{"resource":"` + id + `","authorization_servers":["https://one.example","https://two.example/realm"],"bearer_methods_supported":["header"],` +
			`"scopes_supported":["mcp:tools","x"],"resource_name":"Tickets"}`
		if got := string(i.Metadata()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := i.MetadataPaths(); !slices.Equal(got, paths) {
			t.Errorf("%s: got %q, want %q", id, got, paths)
		}
		if i.Fixed() != nil {
			t.Errorf("got %+v", i.Fixed())
		}
	}
}

// The SDK finds from a refusal where to get a token.
func TestTheSDKFollowsAChallenge(t *testing.T) {
	p := newProvider(t, clock.New())
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	id := server.URL + "/mcp"
	hidden := identity.Issuer{Issuer: "no address", Algorithms: []string{"ES256"}, JWKSFile: writeKeys(t, p), Tenant: "other"}
	i, err := identity.New(identity.Options{Resource: id, Issuers: []identity.Issuer{p.issuer(), hidden}, Scopes: []string{"a", "b"}, Now: p.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		_, challenge := i.Authenticate(r)
		w.Header().Set("WWW-Authenticate", challenge.Header)
		w.WriteHeader(challenge.Status)
	})
	for _, path := range i.MetadataPaths() {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(i.Metadata())
		})
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, id, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	w, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Body.Close()
	challenges, err := oauthex.ParseWWWAuthenticate(w.Header.Values("WWW-Authenticate"))
	if err != nil || len(challenges) != 1 || challenges[0].Params["scope"] != "a b" || challenges[0].Params["error"] != "" {
		t.Fatalf("got %+v, %v", challenges, err)
	}
	for _, address := range []string{challenges[0].Params["resource_metadata"], server.URL + "/.well-known/oauth-protected-resource"} {
		document, err := oauthex.GetProtectedResourceMetadata(t.Context(), address, id, server.Client())
		if err != nil || !slices.Equal(document.AuthorizationServers, []string{p.URL}) || !slices.Equal(document.ScopesSupported, []string{"a", "b"}) {
			t.Errorf("%s: got %+v, %v", address, document, err)
		}
	}
}
