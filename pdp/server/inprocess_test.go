package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
)

// inProcess is a caller for all tenants, as a program in the same process is.
type inProcess struct{}

func (inProcess) Authenticate(*http.Request) (auth.Caller, error) {
	return auth.Caller{Name: "key:program", AllTenants: true, Permissions: []auth.Permission{auth.Decide, auth.Search}}, nil
}

func startInProcess(t testing.TB, change func(*server.Config)) *server.Server {
	t.Helper()
	config := server.Config{Data: t.TempDir(), Program: server.Program{
		Source: pdp.Dir("../../policies/starter"), InProcess: true, Authenticator: inProcess{},
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
		if l.Kind == decisionlog.KindDecision {
			recorded++
		}
	}
	if recorded != 2 {
		t.Errorf("%d decisions are on record, want 2", recorded)
	}
}

// direct are requests of all kinds, as members of a body of AuthZEN: some are answered, some refused, some too odd or too
// large to be taken as they are.
var direct = []string{
	ofProcess,
	`{"subject":{"type":"user","id":"nobody"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"wiki:search_pages"}}`,
	`{"subject":{"type":"user","id":""},"action":{"name":""},"resource":{"type":"","id":"é\u0000"}}`,
	about(`"arguments":{"title":null,"n":[1,null]},"purpose":null`),
	about(`"supported_obligations":["log","redact"],"arguments":{"query":"` + strings.Repeat("x", 1000) + `"}`),
	about(`"arguments":{"query":"` + strings.Repeat("x", 20_000) + `"}`),
	about(`"arguments":{"query":"` + strings.Repeat("x", 1<<20) + `"}`),
	about(`"supported_obligations":[1]`),
	about(`"pdp":{"approved":true}`),
	about(`"action":"other"`),
	about(`"person":"mia"`),
	about(`"approval":{"id":"none"}`),
	about(`"approval":{"id":""}`),
	about(`"arguments":` + strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)),
	about(`"arguments":{"a":[[[1]]]}`),
}

func about(context string) string {
	return ofProcess[:len(ofProcess)-1] + `,"context":{` + context + "}}"
}

// as is a body as a request that was never text: what decoding would refuse is in it.
func as(t testing.TB, body string) (q evaluation.Request) {
	t.Helper()
	l := evaluation.DefaultLimits()
	l.Body, l.Depth, l.ArrayDepth = 8*l.Body, 99, 99
	all, err := evaluation.ParseWithNulls([]byte(body), l)
	must(t, err)
	part := func(name string) evaluation.Object { v, _ := all.Get(name); return v.Object() }
	text := func(name, member string) string { v, _ := part(name).Get(member); return v.Text() }
	q.Subject = evaluation.Entity{Type: text("subject", "type"), ID: text("subject", "id")}
	q.Action.Name = text("action", "name")
	q.Resource = evaluation.Entity{Type: text("resource", "type"), ID: text("resource", "id")}
	q.Context = part("context")
	return q
}

// A request that comes without its text is answered, refused, counted and recorded as its text is, byte for byte.
func TestInProcessWithoutText(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := startInProcess(t, func(c *server.Config) { c.Data = data })
	by := s.Transport().(authzenclient.Direct)
	said := func(answer *http.Response, err error) string {
		must(t, err)
		answer.Header.Del("X-Decision-Id")
		return fmt.Sprint(answer.StatusCode, answer.Header, bodyOf(t, answer))
	}
	ask := func(at string, q evaluation.Request) (asText, asItIs string) {
		text, err := q.MarshalJSON()
		must(t, err)
		r, err := http.NewRequest(http.MethodPost, "http://pdp.invalid"+at, bytes.NewReader(text))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-Id", "one")
		asText = said(by.RoundTrip(r))
		r.Body, r.ContentLength = nil, 0
		return asText, said(by.RoundTripRequest(r, q))
	}
	statuses := map[string]int{}
	for _, body := range direct {
		for _, at := range []string{"/access/v1/evaluation", "/tenants/nobody/access/v1/evaluation", "/v1/authorize", "/access/v1/evaluations"} {
			asText, asItIs := ask(at, as(t, body))
			if asText != asItIs {
				t.Errorf("%s %.99s\nis answered by %s\nand without its text by %s", at, body, asText, asItIs)
			}
			statuses[asText[:3]]++
		}
	}
	for _, status := range []string{"200", "400", "404", "413"} {
		if statuses[status] == 0 {
			t.Errorf("none is answered by %s", status)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, s.Stop(ctx))
	var records []line
	for _, l := range lines(t, data) {
		if l.Kind == decisionlog.KindDecision {
			l.Sequence, l.ID = 0, ""
			records = append(records, l)
		}
	}
	for n := 0; n+1 < len(records); n += 2 {
		if diff := cmp.Diff(records[n], records[n+1]); diff != "" {
			t.Errorf("on record stands of the request without its text: %s", diff)
		}
	}
	if len(records) < 10 || len(records)%2 > 0 {
		t.Errorf("%d decisions are on record", len(records))
	}
}

// A client in the process says the same of each answer, whether it writes the text of its requests or not.
func TestClientInProcess(t *testing.T) {
	t.Parallel()
	s := startInProcess(t, func(c *server.Config) { c.Data = "" })
	client := func(by http.RoundTripper) *authzenclient.Client {
		c, err := authzenclient.New("http://localhost", authzenclient.WithHTTPClient(&http.Client{Transport: by}))
		must(t, err)
		return c
	}
	asItIs, asText := client(s.Transport()), client(struct{ http.RoundTripper }{s.Transport()})
	permitted := 0
	for _, body := range direct {
		q := as(t, body)
		said := func(c *authzenclient.Client) string {
			d := c.Evaluate(t.Context(), q)
			if d.Permitted() {
				permitted++
			}
			return fmt.Sprint(d.Permitted(), d, d.Reason(), d.ReasonUser(), string(d.Context()), d.Obligations(), d.Err())
		}
		if text, request := said(asText), said(asItIs); text != request {
			t.Errorf("%.99s\nis %s\nand without its text %s", body, text, request)
		}
	}
	if permitted == 0 || permitted == 2*len(direct) {
		t.Errorf("of %d requests %d are permitted", 2*len(direct), permitted)
	}
}

// What need not be written is not: that is what it is for.
func TestInProcessWithoutTextCostsLess(t *testing.T) {
	night.Measures(t)
	s := startInProcess(t, func(c *server.Config) { c.Data = "" })
	by, many := s.Transport().(authzenclient.Direct), `"first":""`
	for n := range 100 { // each name and each text is more to read
		many += fmt.Sprintf(`,"name-%d":"text-%d"`, n, n)
	}
	q := as(t, about(`"arguments":{`+many+`}`))
	ask := func(send func(*http.Request) (*http.Response, error)) uint64 {
		const times = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			r, err := http.NewRequest(http.MethodPost, "http://pdp.invalid/access/v1/evaluation", nil)
			must(t, err)
			r.Header.Set("Content-Type", "application/json")
			if answer, err := send(r); err != nil || answer.StatusCode != http.StatusOK {
				t.Fatal(answer, err)
			}
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / times
	}
	asItIs := ask(func(r *http.Request) (*http.Response, error) { return by.RoundTripRequest(r, q) })
	asText := ask(func(r *http.Request) (*http.Response, error) {
		text, err := q.MarshalJSON()
		must(t, err)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		return by.RoundTrip(r)
	})
	if asItIs+4<<10 > asText { // to write it, and the values read of it: the room it is read into is borrowed
		t.Errorf("%d bytes allocated without the text, %d with it", asItIs, asText)
	}
}

// Nobody who could be anybody gets in by a connection.
func TestTransportOfAServerThatListens(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, pdp.Dir("../../policies/starter"))
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

// What a client in the process pays for an answer that stands on record, with the text of the question and without it.
func BenchmarkClientInProcess(b *testing.B) {
	s := startInProcess(b, func(c *server.Config) { c.DecisionLog.Mode = decisionlog.BestEffort })
	q := as(b, about(`"arguments":{"query":"`+strings.Repeat("x", 1000)+`"}`))
	for name, by := range map[string]http.RoundTripper{"text": struct{ http.RoundTripper }{s.Transport()}, "request": s.Transport()} {
		client, err := authzenclient.New("http://localhost", authzenclient.WithHTTPClient(&http.Client{Transport: by}))
		must(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := client.Decide(b.Context(), q, []string{"log", "redact"}); d.Denied() {
					b.Fatal(d)
				}
			}
		})
	}
}
