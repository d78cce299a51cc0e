package desk_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/desk"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/port"
)

func TestMain(m *testing.M) { mcptest.Main(m) }

// patience is how long anything may take before a test fails instead of hanging.
const patience = time.Minute

// office is a real PDP, with a proxy before it that sees all that is asked of it.
type office struct {
	t     *testing.T
	data  string
	key   map[string]string
	clock *clock.Clock
	addr  string // of the PDP, the same after each start
	url   string // of the proxy

	server *pdptest.Server // nil while it is away

	mu     sync.Mutex
	before func(http.ResponseWriter, *http.Request) bool // answers in place of the PDP, if it says so
	asked  map[string]int
	open   map[string]int  // how many are asked now, as the clients see it
	most   map[string]int  // how many were asked at a time
	waits  int             // how many watches wait for changes
	begins int             // how many watches began
	passes context.Context // of what passes the proxy
	cuts   context.CancelFunc
}

// askedFor is how long people are asked.
const askedFor = 24 * time.Hour

var officeFiles = map[string]string{
	"a.cedar": `@id("ask") @obligation("ask") permit(principal, action == Action::"push", resource);
@id("both") @obligation("both") permit(principal, action == Action::"merge", resource);
@id("mia") permit(principal in group::"leads", action == Action::"approval.decide", resource is Approval);`,
	"obligations.yaml": `ask: {type: approval_required, properties: {template: owner, timeout: 24h, valid_for: 24h}}
both: {type: approval_required, properties: {template: owner, timeout: 24h, valid_for: 24h, quorum: 2}}`,
	"tenants/acme/a.cedar": `@id("acme") permit(principal, action == Action::"read", resource);`,
	"entities/e.json":      `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"group","id":"leads"}]},{"uid":{"type":"user","id":"ann"},"attrs":{},"parents":[{"type":"group","id":"leads"}]}]`,
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{t: t, data: mcptest.QuickDir(t), key: map[string]string{}, clock: clock.At(time.Now()), asked: map[string]int{}, open: map[string]int{}, most: map[string]int{}}
	o.passes, o.cuts = context.WithCancel(context.Background())
	t.Cleanup(func() { o.cut() })
	apiKeys, err := keys.Open(o.data)
	o.must(err)
	for name, permissions := range map[string][]auth.Permission{"gateway": {auth.Decide, auth.Request}, "mia": {auth.Approve}, "ann": {auth.Approve}} {
		spec := keys.Spec{Name: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}}
		if name != "gateway" {
			spec.Principal, err = auth.ParsePrincipal(`user::"` + name + `"`)
			o.must(err)
		}
		o.key[name], err = apiKeys.Add(spec)
		o.must(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	o.must(err)
	o.url = "http://" + front.Addr().String()
	o.addr = port.Free(t)
	o.start()
	proxy := &http.Server{Handler: o.proxy()}
	go func() { _ = proxy.Serve(front) }()
	t.Cleanup(func() { _ = proxy.Close() })
	return o
}

func (o *office) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// proxy passes all to the PDP, and counts by method and path.
func (o *office) proxy() http.Handler {
	target, err := url.Parse("http://" + o.addr)
	o.must(err)
	p := httputil.NewSingleHostReverseProxy(target)
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	o.t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := kindOf(r)
		o.mu.Lock()
		o.asked[kind]++
		waits := 0
		if kind == "watch" && r.URL.Query().Get("wait") != "" {
			waits = 1
		}
		if o.waits += waits; kind == "watch" && r.URL.Query().Get("after") == "" {
			o.begins++
		}
		before, passes := o.before, o.passes
		o.mu.Unlock()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		unbind := context.AfterFunc(passes, cancel)
		defer unbind()
		r = r.WithContext(ctx)
		defer func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.waits -= waits
		}()
		if before == nil || !before(w, r) {
			p.ServeHTTP(w, r)
		}
	})
}

// counting counts the questions at a time, each from the question until its answer was read.
type counting struct {
	o    *office
	next http.RoundTripper
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := kindOf(r)
	c.add(kind, 1)
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		c.add(kind, -1)
		return nil, err
	}
	answer.Body = mcptest.Body{ReadCloser: answer.Body, Closed: sync.OnceFunc(func() { c.add(kind, -1) })}
	return answer, nil
}

func (c counting) add(kind string, n int) {
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	c.o.open[kind] += n
	c.o.most[kind] = max(c.o.most[kind], c.o.open[kind])
}

// kindOf is the kind of a question: to "watch", to "look", or something else.
func kindOf(r *http.Request) string {
	switch path := strings.TrimPrefix(r.URL.Path, "/tenants/acme"); {
	case r.Method == http.MethodGet && path == "/access/v1/requests":
		return "watch"
	case r.Method == http.MethodGet && strings.HasPrefix(path, "/access/v1/requests/") && !strings.HasSuffix(path, "/schema"):
		return "look"
	}
	return r.Method + " " + r.URL.Path
}

// answers has something answer in place of the PDP; nil is nothing.
func (o *office) answers(f func(http.ResponseWriter, *http.Request) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = f
}

// cut cuts off all that is asked now.
func (o *office) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cuts()
	o.passes, o.cuts = context.WithCancel(context.Background())
}

// count is how often something was asked, how often it is now, and how often at a time.
func (o *office) count(kind string) (asked, open, most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[kind], o.open[kind], o.most[kind]
}

// start starts the PDP, at its address and on its data.
func (o *office) start() {
	o.t.Helper()
	o.server = pdptest.Start(o.t, pdptest.Bundle(officeFiles), func(c *server.Config) {
		c.Listen, c.Data, c.PublicURL, c.Program.PDP.Now, c.Program.PDP.NewID = o.addr, o.data, o.url, o.clock.Now, nil
		a := &c.Approvals
		a.MaxPendingPerSubject, a.MaxPendingPerCaller, a.NewPerMinutePerSubject, a.NewPerMinutePerCaller = 5000, 5000, 5000, 5000
	})
}

// stop stops it: questions find no server.
func (o *office) stop() {
	o.t.Helper()
	o.must(o.server.Stop(context.Background()))
	o.server = nil
}

func (o *office) client(options ...authzenclient.Option) *authzenclient.Client {
	o.t.Helper()
	transport := &http.Transport{}
	o.t.Cleanup(transport.CloseIdleConnections)
	c, err := authzenclient.New(o.url, append([]authzenclient.Option{
		authzenclient.WithKey(o.key["gateway"]), authzenclient.WithRetries(0), authzenclient.WithHTTPClient(&http.Client{Transport: counting{o, transport}}),
		authzenclient.WithTimeout(time.Minute),
	}, options...)...)
	o.must(err)
	return c
}

func (o *office) desk() *desk.Desk {
	d := desk.New(desk.Options{Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	o.t.Cleanup(d.Close)
	return d
}

// asks has people asked for a push, and joins an equal request.
func (o *office) asks(c *authzenclient.Client, n int) approvals.Standing {
	o.t.Helper()
	return o.asksOf(c, "push", n, approvals.JoinEqual())
}

// asksOf makes a task of its own, unless an option joins it to another.
func (o *office) asksOf(c *authzenclient.Client, action string, n int, options ...approvals.Option) approvals.Standing {
	o.t.Helper()
	asked := evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: "noah"}, Action: evaluation.Action{Name: action}, Resource: evaluation.Entity{Type: "repo", ID: fmt.Sprint(n)}}
	s, err := approvals.Ask(o.t.Context(), c, c.Enforce(o.t.Context(), asked, nil), options...)
	o.must(err)
	if !s.Pending() {
		o.t.Fatal(s)
	}
	return s
}

// watched waits until the PDP is asked to wait for changes.
func (o *office) watched() {
	o.t.Helper()
	mcptest.Until(o.t, "there is a watch", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.waits > 0
	})
}

// begun is how often a watch has begun.
func (o *office) begun() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.begins
}

// says has mia say approve or deny.
func (o *office) says(what string, about approvals.Standing) {
	o.t.Helper()
	o.saysAs("mia", what, about)
}

func (o *office) saysAs(who, what string, about approvals.Standing) {
	o.t.Helper()
	path := "/v1/approvals/" + about.Approvals()[0] + "/decision"
	if got := o.server.Post(path, `{"decision":"`+what+`","reason":"because"}`, "Authorization", "Bearer "+o.key[who]); got.Status != http.StatusOK {
		o.t.Errorf("%s says %s: %d %s", who, what, got.Status, got.Body)
	}
}

// decided waits until people are not waited for any more, as they have decided in one way.
func decided(t *testing.T, f *desk.Follower, status string) approvals.Standing {
	t.Helper()
	select {
	case <-f.Decided():
	case <-time.After(patience):
		t.Fatal("it is not decided")
	}
	s := f.Standing()
	if s.Status() != status || s.Approved() != (status == "approved") {
		t.Errorf("%v, and it should be %s", s, status)
	}
	return s
}

func pending(t *testing.T, f *desk.Follower) {
	t.Helper()
	select {
	case <-f.Decided():
		t.Fatalf("it is decided: %v", f.Standing())
	default:
	}
	if s := f.Standing(); !s.Pending() || s.Approved() {
		t.Fatalf("it is %v", s)
	}
}
