package clients_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/server"
	"policy-service/pdp/pdptest/lies"
	"policy-service/policies"
)

// front stands before a client: a real server behind a proxy that watches, or a PDP that lies.
type front struct {
	*httptest.Server
	t      *testing.T
	real   *pdptest.Server
	person string            // the approver
	key    map[string]string // by name: pep, searcher, and the person
	proxy  *httputil.ReverseProxy
	before http.HandlerFunc // the lie that answers in the place of the server; nil for the server itself
	strips string           // a member that is deleted from each question

	mu       sync.Mutex
	asked    int      // the questions
	bodies   []string // of the questions
	strays   int      // requests to places where no client has to go
	receipts []string
	filed    func(*front) // the act of people once they are asked
}

// openFront starts a front of a real server, with an approver.
func openFront(t *testing.T, source pdp.Source, principal string) *front {
	t.Helper()
	who, err := auth.ParsePrincipal(principal)
	f := &front{t: t, key: map[string]string{}, person: who.ID}
	f.must(err)
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	data := t.TempDir()
	keys, err := auth.OpenKeys(data)
	f.must(err)
	for name, permissions := range map[string][]auth.Permission{
		"pep": {auth.Decide, auth.Search, auth.Request, auth.Capability}, "searcher": {auth.Search}, f.person: {auth.Approve},
	} {
		spec := auth.KeySpec{Name: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}}
		if name == f.person {
			spec.Principal = who
		}
		f.key[name], err = keys.Add(spec)
		f.must(err)
	}
	f.real = pdptest.Start(t, source, func(c *server.Config) {
		c.Data, c.PublicURL, c.Program.PDP.Now, c.Program.PDP.NewID = data, f.URL, time.Now, nil
		c.Capabilities.Nonce = "required"
	})
	to, err := url.Parse(f.real.URL)
	f.must(err)
	f.proxy = httputil.NewSingleHostReverseProxy(to)
	f.proxy.ModifyResponse = f.watch
	return f
}

func (f *front) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// serve counts the questions, and answers.
func (f *front) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if f.strips != "" {
		body = lies.Without(body, f.strips)
		r.ContentLength = int64(len(body))
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	f.mu.Lock()
	switch before := f.before; {
	case strings.HasSuffix(r.URL.Path, "/obligations"):
		f.receipts = append(f.receipts, receiptsOf(body)...)
	case strings.Contains(r.URL.Path, "/access/v1/evaluation") || strings.Contains(r.URL.Path, "/access/v1/search"):
		f.asked, f.bodies = f.asked+1, append(f.bodies, string(body))
	case before != nil:
		f.strays++
	}
	before := f.before
	f.mu.Unlock()
	switch {
	case before == nil:
		f.proxy.ServeHTTP(w, r)
	case strings.HasSuffix(r.URL.Path, "/busy/obligations"):
		w.WriteHeader(http.StatusTooManyRequests)
	case strings.HasSuffix(r.URL.Path, "/obligations"):
		w.WriteHeader(http.StatusNoContent)
	default:
		if w.Header()["X-Request-Id"] == nil {
			w.Header().Set("X-Request-ID", r.Header.Get("X-Request-ID"))
		}
		before(w, r)
	}
}

// watch has people act as soon as they are asked, before the client gets to know that it may wait.
func (f *front) watch(r *http.Response) error {
	ends := func(path string) bool { return strings.HasSuffix(r.Request.URL.Path, path) }
	asks := r.Request.Method == http.MethodPost && (ends("/access/v1/requests") || ends("/v1/capabilities") || ends("/renew"))
	f.mu.Lock()
	filed := f.filed
	f.mu.Unlock()
	if asks && filed != nil && (r.StatusCode == http.StatusAccepted || r.StatusCode == http.StatusCreated) {
		filed(f)
	}
	return nil
}

func receiptsOf(body []byte) (all []string) {
	var said struct {
		Obligations []struct{ ID, Status string } `json:"obligations"`
	}
	if json.Unmarshal(body, &said) != nil {
		return []string{"not JSON"}
	}
	for _, o := range said.Obligations {
		all = append(all, o.ID+" "+o.Status)
	}
	return all
}

// approvals are the ids of those in a status.
func (f *front) approvals(status string) (ids []string) {
	f.t.Helper()
	answer := f.real.Get("/v1/approvals?status="+status, "Authorization", "Bearer "+f.key[f.person])
	var page struct {
		Items []struct{ ID string } `json:"items"`
	}
	if err := json.Unmarshal([]byte(answer.Body), &page); err != nil {
		f.t.Errorf("%v: %d %s", err, answer.Status, answer.Body)
	}
	for _, i := range page.Items {
		ids = append(ids, i.ID)
	}
	return ids
}

// starter is a front of the policies that the pages begin with, where Frank may approve.
func starter(t *testing.T) *front {
	t.Helper()
	return openFront(t, pdp.FS(policies.Starter()), `User::"frank"`)
}

// agents is a front of the policies of pdp/capability/AGENT.md, by which agents are granted capabilities.
func agents(t *testing.T) *front {
	t.Helper()
	return openFront(t, pdptest.Bundle(map[string]string{"a.cedar": `
@id("capability-suffices") permit (principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("capability-granted") permit (principal == agent::"agent-a", action == Action::"capability.grant", resource == tool::"agent-b:restart");
`}), `User::"frank"`)
}

// env is the environment of the programs of the pages.
func (f *front) env() []string { return []string{"PDP_URL=" + f.URL, "PDP_KEY=" + f.key["pep"]} }

// people sets the act of people, from now on, as soon as they are asked.
func (f *front) people(do func(*front)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filed = do
}

// decides is the act of a person that decides about all that waits.
func decides(how string) func(*front) {
	return func(f *front) {
		f.t.Helper()
		for _, id := range f.approvals("pending") {
			f.ruling(id, "decision", `{"decision":"`+how+`","reason":"because"}`)
		}
	}
}

// revokes takes back all that was approved.
func revokes(f *front) {
	f.t.Helper()
	for _, id := range f.approvals("approved") {
		f.ruling(id, "revoke", `{"reason":"changed my mind"}`)
	}
}

func (f *front) ruling(id, act, body string) {
	f.t.Helper()
	if answer := f.real.Post("/v1/approvals/"+id+"/"+act, body, "Authorization", "Bearer "+f.key[f.person]); answer.Status != http.StatusOK {
		f.t.Errorf("%s of %s: %d %s", act, id, answer.Status, answer.Body)
	}
}

// owed are the types of obligations, each with an example of its properties.
var owed = map[string]string{
	"approval_required": `{}`, "custom": `{"x": 1}`, "log": `{}`, "notification": `{to: "#ops", body: "${principal.id}"}`, "redact": `{fields: ["/a"]}`,
	"session_termination": `{subject: "${principal.id}"}`, "step-up": `{acr_value: "gold"}`,
}

// bundle is that of the table, with more files, given as name and content.
func bundle(more ...string) pdp.Source {
	policies := `@id("read") permit(principal, action == Action::"read", resource) unless { resource has draft && resource.draft };
@id("kept") @reason_user("Documents are kept.") forbid(principal, action == Action::"delete", resource);
@id("told") @obligation("kept") forbid(principal, action == Action::"drop", resource);
@id("two") @obligation("notification,redact") permit(principal, action == Action::"both", resource);
@id("ask") @obligation("ask") permit(principal, action == Action::"push", resource);
@id("held") permit(principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("grants") permit(principal == agent::"bot", action == Action::"capability.grant", resource == tool::"b:go");
@id("people") @obligation("ask") permit(principal == agent::"bot", action == Action::"capability.grant", resource == tool::"b:risky");
@id("leads") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);
`
	defined := "ask: {type: approval_required, properties: {template: lead, timeout: 10m, valid_for: 5m}}\nkept: {type: notification, on: deny, properties: {to: x, body: y}}\n"
	for name, properties := range owed {
		policies += fmt.Sprintf("@id(%q) @obligation(%q) permit(principal, action == Action::%q, resource);\n", "do-"+name, name, "do."+name)
		defined += fmt.Sprintf("%s: {type: %s, properties: %s}\n", name, name, properties)
	}
	var things []string
	for n := range 7 {
		things = append(things, fmt.Sprintf(`{"uid":{"type":"doc","id":"d%d"},"attrs":{"draft":%v},"parents":[]}`, n, n%3 == 0))
	}
	for _, person := range []string{"mia", "alice"} {
		things = append(things, `{"uid":{"type":"user","id":"`+person+`"},"attrs":{},"parents":[]}`)
	}
	files := map[string]string{"a.cedar": policies, "obligations.yaml": defined, "entities/e.json": "[" + strings.Join(things, ",") + "]",
		"tenants/acme/closed.cedar": `@id("closed") @reason_user("Acme is closed.") forbid(principal, action, resource);`}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return pdptest.Bundle(files)
}

func newHolder(t *testing.T) *capability.Holder {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := capability.NewHolder(key)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The answers of a PDP that lies.

// says answers with a status and a body, and with headers, given as name and value.
func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// cut ends the connection after a part of an answer; after nothing where the part is empty.
func cut(part string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if part != "" {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// hangs answers only after the client has given up.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// one after the other; the last answer comes from then on.
func inTurn(answers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		answer := answers[min(n, len(answers)-1)]
		n++
		mu.Unlock()
		answer(w, r)
	}
}

// post returns the status and the body of the answer.
func post(t testing.TB, client *http.Client, url string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n+1 < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, text)
}

// setLie has a front answer by itself from now on, and with nil by the server.
func (f *front) setLie(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = answer
}
