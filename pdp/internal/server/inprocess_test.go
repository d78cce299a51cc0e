package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/pdptest"
)

// inProcess is a caller for all tenants, as a program in the same process is.
type inProcess struct{}

func (inProcess) Authenticate(*http.Request) (auth.Caller, error) {
	return auth.Caller{Name: "key:program", AllTenants: true, Permissions: []auth.Permission{auth.Decide, auth.Search}}, nil
}

func startInProcess(t testing.TB, change func(*server.Config)) *server.Server {
	t.Helper()
	config := server.Config{Data: t.TempDir(), Program: server.Program{
		Source: pdp.Dir("../../../policies/starter"), InProcess: true, Authenticator: inProcess{},
	}}
	change(&config)
	s, err := server.New(config)
	must(t, err)
	must(t, s.Start(context.Background()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

const ofProcess = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"wiki:search_pages"}}`

func askInProcess(t testing.TB, s *server.Server, path, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://pdp.invalid"+path, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.Transport().RoundTrip(r)
	must(t, err)
	return answer
}

func bodyOf(t *testing.T, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	return string(body)
}

// A body in the process has its announced length, or one that is not known. One that goes on behind its length is refused.
func TestInProcessLength(t *testing.T) {
	t.Parallel()
	s := startInProcess(t, func(*server.Config) {})
	length := int64(len(ofProcess))
	for announced, want := range map[int64]int{length: 200, 0: 200, -1: 200, length - 1: 400} {
		r, err := http.NewRequest(http.MethodPost, "http://pdp.invalid/access/v1/evaluation", io.MultiReader(strings.NewReader(ofProcess)))
		must(t, err)
		r.ContentLength = announced
		r.Header.Set("Content-Type", "application/json")
		answer, err := s.Transport().RoundTrip(r)
		must(t, err)
		if body := bodyOf(t, answer); answer.StatusCode != want || strings.Contains(body, `"decision":true`) != (want == 200) {
			t.Errorf("announced as %d bytes: got %d %s", announced, answer.StatusCode, body)
		}
	}
}

// A question in the process is a question: it is decided, refused, counted and recorded as one that came by a connection.
func TestInProcess(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := startInProcess(t, func(c *server.Config) { c.Data = data })
	if s.Addr() != "" {
		t.Errorf("it listens on %s", s.Addr())
	}
	answer := askInProcess(t, s, "/access/v1/evaluation", ofProcess)
	if body := bodyOf(t, answer); answer.StatusCode != http.StatusOK || !strings.Contains(body, `"decision":true`) {
		t.Errorf("got %d %s", answer.StatusCode, body)
	}
	if answer := askInProcess(t, s, "/access/v1/evaluation", `{"a":1,"a":2}`); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("got %d", answer.StatusCode)
	}
	if answer := askInProcess(t, s, "/tenants/nobody/access/v1/evaluation", ofProcess); answer.StatusCode != http.StatusNotFound {
		t.Errorf("got %d", answer.StatusCode)
	}
	client, err := authzenclient.New("https://pdp.invalid", authzenclient.WithHTTPClient(&http.Client{Transport: s.Transport()}))
	must(t, err)
	request, err := evaluation.Decode([]byte(ofProcess), "default", evaluation.DefaultLimits())
	must(t, err)
	if got := client.Enforce(t.Context(), request, obligations.Handlers{}); !got.Permitted() {
		t.Errorf("got %+v", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, s.Stop(ctx))
	r, err := http.NewRequest(http.MethodGet, "http://pdp.invalid/livez", nil)
	must(t, err)
	if _, err := s.Transport().RoundTrip(r); err != server.ErrNotInProcess {
		t.Errorf("after the stop: %v", err)
	}
	recorded := 0
	for _, l := range lines(t, data) {
		if l.Kind == format.KindDecision {
			recorded++
		}
	}
	if recorded != 2 {
		t.Errorf("%d decisions are on record, want 2", recorded)
	}
}

// overheard is the way to a server, with all that it answered.
type overheard struct {
	http.RoundTripper
	answers []string
	handed  int // how many bodies were handed over without JSON
}

func (o *overheard) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := r.Body.(*evaluation.Handed); ok {
		o.handed++
	}
	answer, err := o.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	header := answer.Header.Clone()
	header.Del("Date") // those two are of the connection
	header.Del("Content-Length")
	o.answers = append(o.answers, fmt.Sprintf("%d %v %s", answer.StatusCode, header, body))
	return answer, err
}

// What is handed over in the process is answered and recorded as what comes by a socket, and as JSON in the process.
func TestInProcessAsOverASocket(t *testing.T) {
	t.Parallel()
	bundle := pdptest.Bundle(map[string]string{"bundle.yaml": "allow_trivial: true\n", "a.cedar": `
@id("reads") permit (principal, action == Action::"read", resource);
@id("not-that") @reason_user("Not that one.") forbid (principal, action, resource == doc::"secret");
@id("large") forbid (principal, action, resource) when { context has arguments.n && context.arguments.n > 9 };
@id("logs") @obligation("note") permit (principal, action == Action::"note", resource);`, "obligations.yaml": "note: {type: log, properties: {level: info}}\n"})
	ask := func(action, id, context string) string {
		return `{"subject":{"type":"user","id":"alice","properties":{"roles":["a",null]}},"action":{"name":"` + action + `"},"resource":{"type":"doc","id":"` + id + `"},"context":` + context + `}`
	}
	var requests []evaluation.Request
	for _, text := range []string{
		ask("read", "1", `{}`), ask("write", "1", `{}`), ask("read", "secret", `{"arguments":{"a":null,"b":[1.50,-0,1e3],"c":"\u0000\"é"}}`),
		ask("read", "1", `{"arguments":{"n":10}}`), ask("note", "1", `{"purpose":"x"}`), ask("read", "1", `{"arguments":{"text":"`+strings.Repeat("x", 20<<10)+`"}}`),
	} {
		q, err := evaluation.DecodeAuthZEN([]byte(text), "default", evaluation.DefaultLimits())
		must(t, err)
		requests = append(requests, q)
	}
	refused, forged := requests[0], requests[0]
	refused.Context = evaluation.Object{}.With("pdp", evaluation.Object{}.Value())
	forged.Context = evaluation.Object{}.With("__entity", evaluation.Object{}.Value())
	type told struct {
		answers, decisions, records []string
		handed                      int
	}
	of := func(inside bool, options ...authzenclient.Option) (all told) {
		data := t.TempDir()
		s := pdptest.Start(t, bundle, func(c *server.Config) {
			c.Data = data
			c.Program.Authenticator, c.Program.InProcess = inProcess{}, inside
		})
		way := &overheard{RoundTripper: http.DefaultTransport}
		if inside {
			s.URL, way.RoundTripper = "http://localhost", s.Transport()
		}
		options = append(options, authzenclient.WithHTTPClient(&http.Client{Transport: way}), authzenclient.WithRequestIDs(pdptest.IDs(), true))
		client, err := authzenclient.New(s.URL, options...)
		must(t, err)
		for _, q := range append(requests, refused, forged) {
			u := client.Decide(t.Context(), q, []string{"log"})
			all.decisions = append(all.decisions, fmt.Sprint(u, u.ID(), u.RequestID(), string(u.Context()), u.Obligations(), u.Err()))
		}
		must(t, s.Stop(t.Context()))
		for _, l := range linesFrom(t, data, 0) {
			if strings.Contains(l, `"kind":"decision"`) {
				l, _, _ = strings.Cut(l, `,"salt":`) // each record has one of its own
				all.records = append(all.records, l)
			}
		}
		all.answers, all.handed = way.answers, way.handed
		return all
	}
	socket, text := of(false), of(true)
	value := of(true, authzenclient.WithSameProcess())
	if socket.handed != 0 || text.handed != 0 || value.handed != len(requests) { // but the large one, and the forged one
		t.Errorf("handed over: %d, %d, %d", socket.handed, text.handed, value.handed)
	}
	if len(socket.records) != len(requests) {
		t.Errorf("there are %d records: %q", len(socket.records), socket.records)
	}
	socket.handed, text.handed, value.handed = 0, 0, 0
	for name, got := range map[string]told{"as JSON": text, "as values": value} {
		if diff := cmp.Diff(socket, got, cmp.AllowUnexported(told{})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// fails is a caller about whom nothing can be found out in time.
type fails struct {
	how  any    // it panics with that
	gone func() // or that ends the request
}

func (f fails) Authenticate(r *http.Request) (auth.Caller, error) {
	if f.how != nil {
		panic(f.how)
	}
	f.gone()
	<-r.Context().Done()
	return inProcess{}.Authenticate(r)
}

// Whatever fails on the way of a question that is handed over, it is denied, and nothing of it is on record.
func TestInProcessFails(t *testing.T) {
	t.Parallel()
	request, err := evaluation.DecodeAuthZEN([]byte(ofProcess), "default", evaluation.DefaultLimits())
	must(t, err)
	over, end := context.WithCancel(t.Context())
	end()
	soon, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, c := range map[string]struct {
		by   door.Authenticator
		ctx  context.Context
		kind authzenclient.Kind
	}{
		"a panic":                 {fails{how: "oops"}, t.Context(), authzenclient.Unavailable},
		"an answer that is cut":   {fails{how: http.ErrAbortHandler}, t.Context(), authzenclient.Unreachable},
		"cancelled before":        {inProcess{}, over, authzenclient.Cancelled},
		"cancelled in the middle": {fails{gone: cancel}, soon, authzenclient.Cancelled},
	} {
		data := t.TempDir()
		s := startInProcess(t, func(config *server.Config) { config.Data, config.Program.Authenticator = data, c.by })
		client, err := authzenclient.New("http://localhost", authzenclient.WithHTTPClient(&http.Client{Transport: s.Transport()}),
			authzenclient.WithSameProcess(), authzenclient.WithRetries(0))
		must(t, err)
		u := client.Decide(c.ctx, request, nil)
		e, ok := errors.AsType[*authzenclient.Error](u.Err())
		if !u.Denied() || !ok || e.Kind != c.kind {
			t.Errorf("%s: %v", name, u)
		}
		must(t, s.Stop(t.Context()))
		for _, l := range lines(t, data) {
			if l.Kind == format.KindDecision {
				t.Errorf("%s: on record is %+v", name, l)
			}
		}
	}
}

// Nobody who could be anybody gets in by a connection.
func TestTransportOfAServerThatListens(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdp.Dir("../../../policies/starter"))
	r, err := http.NewRequest(http.MethodGet, s.URL+"/livez", nil)
	must(t, err)
	if _, err := s.Transport().RoundTrip(r); err != server.ErrNotInProcess {
		t.Errorf("got %v", err)
	}
}

// What does a question cost in the process, without a log and with one?
func BenchmarkInProcess(b *testing.B) {
	for name, change := range map[string]func(*server.Config){
		"no log":      func(c *server.Config) { c.Data = "" },
		"best effort": func(c *server.Config) { c.DecisionLog.Mode = decisionlog.BestEffort },
		"strict":      func(*server.Config) {},
	} {
		b.Run(name, func(b *testing.B) {
			s := startInProcess(b, change)
			b.ReportAllocs()
			for b.Loop() {
				if askInProcess(b, s, "/access/v1/evaluation", ofProcess).StatusCode != http.StatusOK {
					b.Fatal("no answer")
				}
			}
		})
	}
}

// A client in the process pays this for an answer that is on record.
func BenchmarkClientInProcess(b *testing.B) {
	s := startInProcess(b, func(c *server.Config) { c.DecisionLog.Mode = decisionlog.BestEffort })
	body := strings.TrimSuffix(ofProcess, "}") + `,"context":{"arguments":{"query":"` + strings.Repeat("x", 1000) + `"}}}`
	q, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
	must(b, err)
	client, err := authzenclient.New("http://localhost", authzenclient.WithHTTPClient(&http.Client{Transport: s.Transport()}), authzenclient.WithSameProcess())
	must(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if d := client.Decide(b.Context(), q, []string{"log", "redact"}); d.Denied() {
			b.Fatal(d)
		}
	}
}
