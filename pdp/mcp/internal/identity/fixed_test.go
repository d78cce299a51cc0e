package identity_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
)

func fixed(t *testing.T, members map[string]any) (*identity.Identity, error) {
	t.Helper()
	static, err := evaluation.NewObject(members)
	if err != nil {
		t.Fatal(err)
	}
	return identity.New(identity.Options{Resource: "http://127.0.0.1:8181/mcp", Static: static, StaticToken: "known", Private: true, DefaultTenant: "acme"})
}

func TestAFixedIdentity(t *testing.T) {
	i, err := fixed(t, map[string]any{"iss": "https://one.example", "sub": "alice", "client_id": "desktop", "act": map[string]any{"sub": "bot"}})
	if err != nil {
		t.Fatal(err)
	}
	p := i.Fixed()
	if p == nil || p.Issuer != "https://one.example" || p.Subject != "alice" || p.Client != "desktop" || p.Tenant != "acme" || p.Key == "" || p.Token != "known" || !p.Expires.IsZero() {
		t.Fatalf("got %+v", p)
	}
	if p.User != (identity.Entity{Type: "user", ID: "alice"}) || p.Agent != (identity.Entity{Type: "agent", ID: "desktop"}) || p.Person != evaluation.PersonOf("https://one.example", "alice") {
		t.Errorf("got %+v", p)
	}
	if chain, err := p.OnBehalfOf(); err != nil || !slices.Equal(chain, []identity.Entity{{Type: "agent", ID: "bot"}, {Type: "user", ID: "alice"}}) {
		t.Errorf("got %v, %v", chain, err)
	}
	if i.Metadata() != nil || i.MetadataPaths() != nil {
		t.Errorf("got %s, %q", i.Metadata(), i.MetadataPaths())
	}
	ctx, cancel := p.Context(t.Context())
	if _, ends := ctx.Deadline(); ends || ctx.Err() != nil {
		t.Error("it ends by itself")
	}
	if cancel(); ctx.Err() == nil {
		t.Error("it does not end")
	}
}

func TestFixedIdentitiesThatAreRefused(t *testing.T) {
	for _, members := range []map[string]any{
		{"client_id": "desktop"}, {"sub": ""}, {"sub": 7}, {"sub": "a", "client_id": 7}, {"sub": "a", "iss": 7}, {"sub": "a", "iss": ""}, {"sub": "a", "iss": "a#b"}, {"sub": "a\nb"},
	} {
		if i, err := fixed(t, members); err == nil || !strings.HasPrefix(err.Error(), "identity.static: ") || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%v: got %+v, %v", members, i, err)
		}
	}
}

// A request from another machine is not the fixed person.
func TestAFixedIdentityIsForThisMachine(t *testing.T) {
	i, err := fixed(t, map[string]any{"sub": "alice"})
	if err != nil {
		t.Fatal(err)
	}
	if p := i.Fixed(); p.Person != "" || p.Agent != (identity.Entity{}) || p.User.ID != "alice" { // no issuer names it
		t.Errorf("got %+v", p)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, challenge := i.Authenticate(r)
		if (p == nil) == (challenge == nil) {
			t.Errorf("got %v and %v; want exactly one of them", p, challenge)
		}
		if challenge != nil {
			forwarded := r.Host == r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
			if challenge.Header != "" || strings.Contains(challenge.Detail, "a proxy") != forwarded {
				t.Errorf("got %+v", challenge)
			}
			w.WriteHeader(challenge.Status)
		}
	}))
	t.Cleanup(server.Close)
	for name, test := range map[string]struct {
		host, header string
		want         int
	}{
		"this machine":       {"", "", http.StatusOK},
		"localhost":          {"localhost:1", "", http.StatusOK},
		"with a token":       {"", "Authorization", http.StatusOK},
		"rebound":            {"evil.example", "", http.StatusForbidden},
		"a proxy":            {"", "X-Forwarded-For", http.StatusForbidden},
		"another proxy":      {"", "Via", http.StatusForbidden},
		"a standard's proxy": {"", "Forwarded", http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = test.host
		if test.header != "" {
			r.Header.Set(test.header, "x")
		}
		w, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = w.Body.Close(); w.StatusCode != test.want {
			t.Errorf("%s: got %d", name, w.StatusCode)
		}
	}
}
