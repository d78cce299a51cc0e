package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/pdptest"
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
		if l.Kind == decisionlog.KindDecision {
			recorded++
		}
	}
	if recorded != 2 {
		t.Errorf("%d decisions are on record, want 2", recorded)
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

// A client in the process pays this for an answer that is on record.
func BenchmarkClientInProcess(b *testing.B) {
	s := startInProcess(b, func(c *server.Config) { c.DecisionLog.Mode = decisionlog.BestEffort })
	body := strings.TrimSuffix(ofProcess, "}") + `,"context":{"arguments":{"query":"` + strings.Repeat("x", 1000) + `"}}}`
	q, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
	must(b, err)
	client, err := authzenclient.New("http://localhost", authzenclient.WithHTTPClient(&http.Client{Transport: s.Transport()}))
	must(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if d := client.Decide(b.Context(), q, []string{"log", "redact"}); d.Denied() {
			b.Fatal(d)
		}
	}
}
