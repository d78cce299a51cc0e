package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
)

// counter is a server where a PEP asks and people answer.
type counter struct {
	*pdptest.Server
	t   *testing.T
	key map[string]string
}

func openCounter(t *testing.T) *counter {
	t.Helper()
	c := &counter{t: t, key: map[string]string{}}
	data := t.TempDir()
	apiKeys, err := keys.Open(data)
	must(t, err)
	add := func(name string, permission auth.Permission, principal auth.Principal) {
		c.key[name], err = apiKeys.Add(keys.Spec{Name: name, Principal: principal, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{permission}}})
		must(t, err)
	}
	add("pep", auth.Decide, auth.Principal{})
	for _, who := range []string{"mia", "eve"} {
		add(who, auth.Approve, auth.Principal{Type: "user", ID: who})
	}
	c.Server = pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("ask") @obligation("ask") permit(principal, action == Action::"do", resource);
			@id("mia") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);`,
		"obligations.yaml": "ask: {type: approval_required, properties: {template: owner, delegable: true}}\n",
	}), func(config *server.Config) {
		config.Data, config.Program.PDP.NewID = data, nil
		config.Approvals = server.ApprovalsConfig{MaxPendingPerSubject: 1000, MaxPendingPerTenant: 1000, MaxPendingPerCaller: 1000, NewPerMinutePerSubject: 1000}
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asks has a PEP ask, so that people are.
func (c *counter) asks(what ...string) {
	c.t.Helper()
	for _, id := range what {
		got := c.Post("/v1/authorize", fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"do","resource":{"type":"tool","id":%q}}`, id), "Authorization", "Bearer "+c.key["pep"])
		if got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"status":"pending"`) {
			c.t.Fatalf("got %d %s", got.Status, got.Body)
		}
	}
}

func (c *counter) inbox(who, url string) *inbox.Inbox {
	c.t.Helper()
	box, err := inbox.New(url, httpclient.Options{Credential: c.key[who], Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
	must(c.t, err)
	c.t.Cleanup(box.Close)
	return box
}

// ids are the approval requests, by what is asked for.
func (c *counter) ids() map[string]string {
	c.t.Helper()
	ids := map[string]string{}
	_, err := c.inbox("mia", c.URL).Pages(c.t.Context(), inbox.Filter{}, func(r inbox.Request) error {
		ids[r.Request.Resource.ID] = r.ID
		return nil
	})
	must(c.t, err)
	return ids
}

// watched is what a watch saw, in a test that goes on when it saw something.
type watched struct {
	t     *testing.T
	saw   chan string
	ended chan error
	stop  context.CancelFunc
	mu    sync.Mutex
	said  []error
}

func watch(t *testing.T, box *inbox.Inbox) *watched {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watched{t: t, saw: make(chan string), ended: make(chan error, 1), stop: stop}
	trouble := func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.said = append(w.said, err)
	}
	go func() {
		w.ended <- box.Watch(ctx, inbox.Filter{}, trouble, func(r inbox.Request) error {
			select {
			case w.saw <- r.Request.Resource.ID:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return w
}

func (w *watched) wants(all ...string) {
	w.t.Helper()
	for _, want := range all {
		select {
		case got := <-w.saw:
			if got != want {
				w.t.Fatalf("saw %s, want %s", got, want)
			}
		case err := <-w.ended:
			w.t.Fatalf("it ended: %v", err)
		}
	}
}

func (w *watched) ends() {
	w.t.Helper()
	w.stop()
	select {
	case got := <-w.saw:
		w.t.Errorf("saw %s besides", got)
	case err := <-w.ended:
		if !errors.Is(err, context.Canceled) {
			w.t.Errorf("got %v", err)
		}
	}
}

// Each request is told once: what waits already, what comes, and what somebody has a say
// in only later, though it was there before.
func TestWatch(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	c.asks("one", "two")
	mia := watch(t, c.inbox("mia", c.URL))
	mia.wants("one", "two")
	c.asks("three", "three", "four")
	mia.wants("three", "four")

	ids, box := c.ids(), c.inbox("mia", c.URL)
	delegate := func(what string) {
		t.Helper()
		_, err := box.Decide(t.Context(), ids[what], inbox.Ruling{Decision: "delegate", To: `user::"eve"`, Reason: "r"})
		must(t, err)
	}
	delegate("two")
	eve := watch(t, c.inbox("eve", c.URL))
	eve.wants("two")
	delegate("one")
	delegate("three")
	got := []string{<-eve.saw, <-eve.saw}
	if slices.Sort(got); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("got %v", got)
	}
	mia.ends()
	eve.ends()
}

// A server that has no time, or is away, is asked again, and nothing is told twice. One
// that takes no such credential any more is not.
func TestWatchOfServerInTrouble(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	behind, err := url.Parse(c.URL)
	must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(behind)
	var answer atomic.Int64 // the status in place of the server's
	var refused atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := int(answer.Load())
		if status == 0 {
			proxy.ServeHTTP(w, r)
			return
		}
		if refused.Add(1) == 4 {
			answer.CompareAndSwap(http.StatusServiceUnavailable, 0)
		}
		w.WriteHeader(status)
	}))
	defer front.Close()
	c.asks("one")
	w := watch(t, c.inbox("mia", front.URL))
	w.wants("one")
	answer.Store(http.StatusServiceUnavailable)
	c.asks("two")
	w.wants("two")
	c.asks("three")
	w.wants("three")
	if w.mu.Lock(); len(w.said) != 1 || httpclient.StatusOf(w.said[0]) != http.StatusServiceUnavailable || refused.Load() < 4 {
		t.Errorf("got %v, refused %d times", w.said, refused.Load())
	}
	w.mu.Unlock()
	answer.Store(http.StatusUnauthorized)
	c.asks("four")
	select {
	case got := <-w.saw:
		if got != "four" { // its poll was answered before the credential was gone
			t.Errorf("saw %s", got)
		}
		err = <-w.ended
	case err = <-w.ended:
	}
	if httpclient.StatusOf(err) != http.StatusUnauthorized {
		t.Errorf("got %v", err)
	}
	if err := c.inbox("mia", front.URL).Watch(t.Context(), inbox.Filter{}, nil, nil); httpclient.StatusOf(err) != http.StatusUnauthorized {
		t.Errorf("the first time: got %v", err)
	}
}

// All pages come, and a server whose pages never end is given up.
func TestPages(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	var want []string
	for n := range 201 { // one more than a page has
		want = append(want, fmt.Sprintf("tool-%d", n))
	}
	var asking sync.WaitGroup
	for some := range slices.Chunk(want, 20) {
		asking.Go(func() { c.asks(some...) })
	}
	asking.Wait()
	var got, ids []string
	_, err := c.inbox("mia", c.URL).Pages(t.Context(), inbox.Filter{Subject: "agent/bot", Action: "do"}, func(r inbox.Request) error {
		if !strings.Contains(string(r.JSON), r.ID) || !r.Pending() || r.Version != 1 {
			t.Errorf("got %+v", r)
		}
		got, ids = append(got, r.Request.Resource.ID), append(ids, r.ID)
		return nil
	})
	must(t, err)
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) || !slices.IsSorted(ids) {
		t.Errorf("got %v in the order of %v", got, ids)
	}
	for _, answer := range []string{`{"items":[],"next":"a"}`, `{"items":{}}`, `[]`, `{"items":[{"id":7}],"next":""}`, `<html>`} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		if _, err := c.inbox("mia", s.URL).Pages(t.Context(), inbox.Filter{}, func(inbox.Request) error { return nil }); err == nil || !strings.Contains(err.Error(), "no page of requests") {
			t.Errorf("%s: got %v", answer, err)
		}
		s.Close()
	}
}

// An id is no path: nothing else is asked for, whatever stands in it.
func TestIDs(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	box := c.inbox("mia", c.URL)
	for _, id := range []string{"", "nosuch", "../v1/decisions", "..", "x/../../livez", "x?wait=1s", "%2e%2e", "\x00"} {
		_, err := box.Get(t.Context(), id, 0)
		if status := httpclient.StatusOf(err); status != http.StatusNotFound && status != http.StatusBadRequest {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

// The newest come first if they are asked for, over all pages. A page has a tag, and who has it waits for another page.
func TestNewestAndCount(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	box := c.inbox("mia", c.URL)
	none, changed, err := box.Count(t.Context(), inbox.Filter{}, 10, "", 0)
	must(t, err)
	if !changed || none.N != 0 || none.Tag == "" {
		t.Fatalf("got %+v", none)
	}
	if _, changed, err := box.Count(t.Context(), inbox.Filter{}, 10, none.Tag, 0); changed || err != nil {
		t.Errorf("changed is %t, %v", changed, err)
	}
	type page struct {
		inbox.Count
		changed bool
		err     error
	}
	got := make(chan page)
	go func() {
		p, changed, err := box.Count(t.Context(), inbox.Filter{}, 10, none.Tag, 30*time.Second)
		got <- page{p, changed, err}
	}()
	c.asks("one")
	if p := <-got; !p.changed || p.err != nil || p.N != 1 || p.Tag == none.Tag {
		t.Errorf("got %+v", p)
	}
	var want []string
	for n := range 201 { // one more than a page has
		want = append(want, fmt.Sprintf("tool-%d", n))
	}
	c.asks(want...)
	var ids []string
	last, err := box.Pages(t.Context(), inbox.Filter{Status: "all", Newest: true}, func(r inbox.Request) error {
		ids = append(ids, r.ID)
		return nil
	})
	must(t, err)
	slices.Reverse(ids)
	if len(ids) != len(want)+1 || !slices.IsSorted(ids) || last != ids[0] {
		t.Errorf("got %d, the last is %s of %v", len(ids), last, ids)
	}
}
