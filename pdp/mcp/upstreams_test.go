package mcp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// secretFile writes a file that only its owner can read.
func secretFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// callTool calls a tool as a client of the modern era does. It returns what the gateway answers.
func callTool(t *testing.T, at, authorization string) string {
	t.Helper()
	return send(t, at, toolCall, "Authorization", authorization)
}

const oneTool = `[{"name":"run","inputSchema":{"type":"object"}}]`

// shown is what a recorder was shown as Authorization, each once.
func shown(r *mcptest.Recorder) (all []string) {
	for _, g := range r.Got() {
		all = append(all, g.Header.Values("Authorization")...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestUpstreamIsShownAHeaderFile(t *testing.T) {
	t.Parallel()
	upstream := mcptest.NewRecorder(t, mcptest.Answers{Tools: oneTool})
	file := secretFile(t, "Bearer upstream-secret\n")
	at, authorization := through(t, passage{name: "up", upstream: upstream.URL, change: func(c *mcp.Config) {
		u := c.Upstreams["up"]
		u.Auth.HeaderFile = file
		c.Upstreams["up"] = u
	}})
	if got := callTool(t, at, authorization); !strings.Contains(got, `"ran"`) {
		t.Fatal(got)
	}
	if got := shown(upstream); !slices.Equal(got, []string{"Bearer upstream-secret"}) {
		t.Errorf("it was shown %q", got)
	}
	before := len(upstream.Got())
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := callTool(t, at, authorization); !strings.Contains(got, "-32603") || strings.Contains(got, file) {
		t.Errorf("without a credential: %s", got)
	}
	if n := len(upstream.Got()); n != before {
		t.Errorf("without a credential %d requests were sent", n-before)
	}
}

// tokenServer exchanges each token for one that says whose it is, and gives the gateway one of its own.
func tokenServer(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		given := "own"
		if strings.HasSuffix(r.PostFormValue("grant_type"), ":token-exchange") {
			given = "exchanged-" + fmt.Sprint(len(r.PostFormValue("subject_token")) > 100)
		}
		if id != "gateway" || secret != "client-secret" || r.PostFormValue("resource") != "https://up.example.com/mcp" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":300,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`, given)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestUpstreamIsShownTokensMadeForIt(t *testing.T) {
	t.Parallel()
	tokens := tokenServer(t)
	endpoint := mcp.TokenEndpoint{
		TokenURL: tokens.URL, Resource: "https://up.example.com/mcp", ClientID: "gateway", ClientSecretFile: secretFile(t, "client-secret"), AllowNetworks: []string{"127.0.0.0/8"},
	}
	for want, auth := range map[string]mcp.UpstreamAuth{
		"Bearer exchanged-true": {TokenExchange: &endpoint},
		"Bearer own":            {ClientCredentials: &endpoint},
	} {
		t.Run(want, func(t *testing.T) {
			upstream := mcptest.NewRecorder(t, mcptest.Answers{Tools: oneTool})
			var issuer *mcptest.Issuer
			at, _ := through(t, passage{name: "up", upstream: upstream.URL, change: func(c *mcp.Config) {
				u := c.Upstreams["up"]
				u.Auth = auth
				c.Upstreams["up"] = u
				issuer = mcptest.NewIssuer(t, c.Resource, time.Now)
				c.Identity = mcp.IdentityConfig{SubjectClaim: "sub", AgentClaim: "client_id", Issuers: []mcp.IssuerConfig{{
					Issuer: issuer.URL, Algorithms: []string{"ES256"}, JWKSFile: issuer.KeysFile(t),
				}}}
			}})
			token := issuer.Token(t, nil)
			if got := callTool(t, at, "Bearer "+token); !strings.Contains(got, `"ran"`) {
				t.Fatal(got)
			}
			if got := shown(upstream); !slices.Equal(got, []string{want}) {
				t.Errorf("it was shown %q", got)
			}
			for part := range strings.SplitSeq(token, ".") {
				if where := upstream.Saw(part); where != "" {
					t.Errorf("a part of the client's token stands in %s", where)
				}
			}
		})
	}
}

// TestUpstreamProgramGetsItsVariables has a program write down what it was started with.
func TestUpstreamProgramGetsItsVariables(t *testing.T) {
	t.Setenv("GATEWAY_SECRET", "hunter2")
	written := filepath.Join(t.TempDir(), "environment")
	at, authorization := through(t, passage{
		name: "up", command: []string{"/bin/sh", "-c", `/usr/bin/env > "$OUT"`}, env: map[string]string{"OUT": written},
		change: func(c *mcp.Config) {
			u := c.Upstreams["up"]
			u.EnvFiles = map[string]string{"API_KEY": secretFile(t, "a secret\n")}
			c.Upstreams["up"] = u
		},
	})
	if got := callTool(t, at, authorization); !strings.Contains(got, "-32603") {
		t.Errorf("it answered %s", got)
	}
	got, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got), "API_KEY=a secret\n") || strings.Contains(string(got), "hunter2") {
		t.Errorf("the program was started with %s", got)
	}
}

func TestUpstreamProgramNeedsItsFiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"/nowhere", secretFile(t, ""), secretFile(t, "\n")} {
		c := mcp.Config{
			Listen: "127.0.0.1:0", Resource: "http://127.0.0.1/mcp", PDP: mcp.PDPConfig{URL: "http://127.0.0.1:1"},
			Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}},
			Upstreams: map[string]mcp.UpstreamConfig{"up": {Command: []string{"/bin/true"}, EnvFiles: map[string]string{"API_KEY": file}}},
		}
		if _, err := mcp.New(t.Context(), c, mcp.Deps{}); err == nil || !strings.Contains(err.Error(), "env_files.API_KEY") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
