package server_test

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

const (
	evaluationPath = "/access/v1/evaluation"
	authorizePath  = "/v1/authorize"
	readQuestion   = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`
	nativeQuestion = `{"tenant_id":"default","actor":{"actor_id":"alice","actor_type":"user"},"action":"read","resource":{"type":"doc","id":"plan"}}`
)

// asCaller answers for authentication: the header says what the caller is.
type asCaller struct{}

func (asCaller) Authenticate(r *http.Request) (auth.Caller, error) {
	name, permissions, _ := strings.Cut(r.Header.Get("Authorization"), ":")
	if name == "" {
		return auth.Caller{}, &auth.Refusal{Kind: auth.ErrUnauthenticated}
	}
	c := auth.Caller{Name: "key:" + name, Tenants: []string{"default"}}
	for _, p := range strings.Fields(permissions) {
		c.Permissions = append(c.Permissions, auth.Permission(p))
	}
	return c, nil
}

// Each case is wrong in two ways; the answer is about the earlier one.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Program.Authenticator = asCaller{} })
	large := strings.Repeat(" ", 1<<20+1)
	const decider, stranger = "pep:decide", "pep:search"
	for _, test := range []struct {
		name, method, path, body, caller, contentType string
		want                                          int
	}{
		{"method before size", "PUT", evaluationPath, large, decider, "application/json", 405},
		{"size before credentials", "POST", evaluationPath, large, "", "application/json", 413},
		{"credentials before tenant", "POST", "/tenants/nosuch" + evaluationPath, readQuestion, "", "application/json", 401},
		{"tenant before permission", "POST", "/tenants/nosuch" + evaluationPath, readQuestion, stranger, "application/json", 404},
		{"a tenant of others before permission", "POST", "/tenants/acme" + evaluationPath, readQuestion, stranger, "application/json", 404},
		{"permission before content type", "POST", evaluationPath, readQuestion, stranger, "text/plain", 403},
		{"content type before body", "POST", evaluationPath, "{", decider, "text/plain", 400},
		{"body", "POST", evaluationPath, "{", decider, "application/json", 400},
		{"nothing wrong", "POST", evaluationPath, readQuestion, decider, "application/json", 200},
		{"native: method before size", "PUT", authorizePath, large, decider, "application/json", 405},
		{"native: size before credentials", "POST", authorizePath, large, "", "application/json", 413},
		{"native: credentials before permission", "POST", authorizePath, nativeQuestion, "", "text/plain", 401},
		{"native: permission before content type", "POST", authorizePath, nativeQuestion, stranger, "text/plain", 403},
		{"native: body before tenant", "POST", authorizePath, `{"tenant_id":"nosuch"}`, decider, "application/json", 400},
		{"native: a tenant of others", "POST", authorizePath, strings.Replace(nativeQuestion, "default", "acme", 1), decider, "application/json", 403},
		{"native: nothing wrong", "POST", authorizePath, nativeQuestion, decider, "application/json", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := s.Do(test.method, test.path, test.body, "Authorization", test.caller, "Content-Type", test.contentType, "X-Request-ID", test.name)
			replied(t, got, test.want)
			if id := got.Header.Get("X-Request-ID"); id != test.name {
				t.Errorf("X-Request-ID %q came back as %q", test.name, id)
			}
		})
	}
}

func TestUnknownAndForeignTenantsHaveOneAnswer(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Program.Authenticator = asCaller{} })
	answers := make(map[string]bool)
	for _, tenant := range []string{"nosuch", "acme", "default", ".illegal", "%2e%2e"} {
		got := s.Post("/tenants/"+tenant+evaluationPath, readQuestion, "Authorization", "pep:decide")
		answers[got.Body] = true
		if got.Status != 404 {
			t.Errorf("%s: got %d, want 404", tenant, got.Status)
		}
	}
	for _, tenant := range []string{"nosuch", "acme", "", "..", strings.Repeat("x", 64)} {
		got := s.Post(authorizePath, strings.Replace(nativeQuestion, "default", tenant, 1), "Authorization", "pep:decide")
		answers[got.Body] = true
		if got.Status != 403 {
			t.Errorf("%s: got %d, want 403", tenant, got.Status)
		}
	}
	if len(answers) != 2 {
		t.Errorf("got %d different bodies, want one for each shape: %v", len(answers), answers)
	}
}

// TestNoBatchIsAnsweredAsOneRequestInSilence: whoever sends items to the endpoint of one request is told that nobody read them. AuthZEN has
// unknown members ignored, so the request beside the items is answered.
func TestNoBatchIsAnsweredAsOneRequestInSilence(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	question := strings.TrimSuffix(readQuestion, "}")
	for more, ignored := range map[string]bool{`}`: false, `,"evaluations":null}`: false, `,"evaluations":[]}`: false, `,"evaluations":{}}`: false, `,"evaluations":[{}]}`: true, `,"evaluations":[7]}`: true} {
		got, explained := s.Post(evaluationPath, question+more), s.Post(evaluationPath, question+more, "X-Explain", "true")
		if got.Body != `{"decision":true}` || (got.Header.Get("Warning") != "") != ignored || strings.Contains(explained.Body, `"ignored":"/evaluations"`) != ignored {
			t.Errorf("%s: %s %q %s", more, got.Body, got.Header.Get("Warning"), explained.Body)
		}
		if got := s.Post(batchPath, question+more); got.Header.Get("Warning") != "" {
			t.Errorf("a batch: %s: %s", more, got.Body)
		}
	}
}
