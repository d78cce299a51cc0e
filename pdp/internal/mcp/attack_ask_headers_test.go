package mcp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/mcptest"
)

// wiretap stands between a gateway and its PDP, or a server, and keeps what goes there.
type wiretap struct {
	URL string

	t     testing.TB
	proxy http.Handler // to the PDP
	mu    sync.Mutex
	sent  []tapped
	// instead answers in place of the PDP, and reports whether it did; nil never does.
	instead func(w http.ResponseWriter, r *http.Request, body []byte) bool
}

// tapped is one request to the PDP.
type tapped struct {
	verb, path string
	header     http.Header
	body       string
}

// of reports whether it was about an approval that a person decides.
func (q tapped) ofPerson() bool {
	return strings.HasPrefix(q.path, "/v1/approvals/") && (strings.HasSuffix(q.path, "/elicitation") || strings.HasSuffix(q.path, "/response"))
}

func newWiretap(t testing.TB) *wiretap {
	t.Helper()
	tap := &wiretap{t: t}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		tap.mu.Lock()
		tap.sent = append(tap.sent, tapped{r.Method, r.URL.Path, r.Header.Clone(), string(body)})
		instead := tap.instead
		tap.mu.Unlock()
		if instead == nil || !instead(w, r, body) {
			tap.proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	tap.URL = s.URL
	return tap
}

// before stands before a PDP.
func (tap *wiretap) before(pdp string) string {
	to, err := url.Parse(pdp)
	orFail(tap.t, err)
	tap.proxy = mcptest.Proxy(to)
	return tap.URL
}

// beforeServer stands before an MCP server.
func (tap *wiretap) beforeServer(url string) string {
	return tap.before(strings.TrimSuffix(url, mcp.Endpoint)) + mcp.Endpoint
}

// serve has a PDP say that it is where the wiretap is.
func (tap *wiretap) serve(c *pdpserver.Config) { c.PublicURL = tap.URL }

// all is what was sent so far.
func (tap *wiretap) all() []tapped {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	return slices.Clone(tap.sent)
}

// questions are the bodies of questions about calls.
func (tap *wiretap) questions() (all []string) {
	for _, q := range tap.all() {
		if strings.HasSuffix(q.path, "/evaluation") && strings.Contains(q.body, `"tool.invoke"`) {
			all = append(all, q.body)
		}
	}
	return all
}

// answers has somebody answer in place of the PDP.
func (tap *wiretap) answers(instead func(w http.ResponseWriter, r *http.Request, body []byte) bool) {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	tap.instead = instead
}

// silent has the PDP not answer some of what it is asked.
func (tap *wiretap) silent(about func(r *http.Request, body []byte) bool) {
	tap.answers(func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		is := about(r, body)
		if is {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return is
	})
}

// posing are headers by which somebody may try to be somebody else to the PDP.
func posing(token string) []string {
	return []string{
		"Approver-Token", token, "X-Approver-Token", token, "X-Forwarded-User", "bob", "X-User", "bob", "X-Remote-User", "bob", "X-Request-ID", "approved",
		"X-Forwarded-Authorization", "Bearer " + token, "Proxy-Authorization", "Bearer " + token, "Cookie", "session=" + token, "Idempotency-Key", "k",
		"X-Approval-ID", "a", "X-Decision-Id", "d", "X-Policy-Service-Person", "bob", "+approver-token", token,
	}
}

// What only the gateway or the PDP may say of a request, no client says: it is refused, or means nothing. Nobody is asked
// anything by it.
func TestAskAttackMeta(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		approval := `{"id":"01a2027b-51d6-7c2e-9a34-0d6f1b7e5c88","approved_until":"2099-01-01T00:00:00Z"}`
		tap := newWiretap(t)
		s := newSiege(t, camp{before: tap.before})
		v := s.visitor(era, nil)
		call := func(meta string) echo {
			v.meta = meta
			defer func() { v.meta = "" }()
			return v.call("look", `{"a":1}`)
		}
		call("").runs(t)
		before := len(s.executed())
		for _, name := range []string{"approval", "person"} { // TestDeclaredNarrows of ask has all names
			for _, value := range []string{approval, `"bob"`, `null`} {
				if got := call(`,"io.policy-service/context":{"` + name + `":` + value + `}`); got.ran() || got.code() != -32602 {
					t.Errorf("%s: %s: %s", name, value, got)
				}
			}
			// A name that is spelled otherwise is another, and is read by nobody as the first.
			for _, other := range []string{strings.ToUpper(name), name + " ", "x." + name, "/context/" + name} {
				if got := call(`,"io.policy-service/context":{"` + other + `":"bob"}`); got.fault != nil && got.code() != -32602 {
					t.Errorf("%s: %s", other, got)
				}
			}
		}
		if q, ran := tap.questions(), s.executed()[before:]; len(q) != len(ran)+1 {
			t.Errorf("the PDP was asked %d times, and %d calls ran", len(q), len(ran))
		}
		asked := tap.questions()[0]
		for _, meta := range []string{
			`,"io.policy-service/approval":` + approval, `,"io.policy-service/approval_id":"a"`, `,"io.policy-service/person":"bob"`, `,"approval":` + approval,
			`,"context.approval":` + approval, `,"context":{"approval":` + approval + `}`, `,"Approver-Token":"t"`, `,"io.policy-service/continues":{"decision":"d","round":1}`,
			`,"elicitationType":"tool_approval"`, `,"requestState":"s"`,
		} {
			n := len(tap.questions())
			call(meta).runs(t, meta)
			if q := tap.questions()[n:]; len(q) != 1 || q[0] != asked {
				t.Errorf("%s: the PDP is asked %q", meta, q)
			}
		}
		for _, g := range s.rec.Got() {
			var params struct {
				Meta map[string]jsontext.Value `json:"_meta"`
			}
			_ = json.Unmarshal(g.Params, &params)
			for name := range params.Meta {
				if strings.HasPrefix(name, "io.policy-service/") || strings.Contains(strings.ToLower(name), "approv") {
					t.Errorf("the server gets %s: %s", name, g.Params)
				}
			}
		}
	})
}
