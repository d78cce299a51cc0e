package conformance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What goes wrong is told with the exchange, and a credential never is; nor does
// an answer get at the reader's terminal.
func TestReport(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("\x1b]0;owned\x07"))
	}))
	defer server.Close()
	header := http.Header{"Authorization": {"Bearer psk_secret"}}
	report, err := Run(t.Context(), Target{URL: server.URL, Header: header, Plans: []string{"basic-core", "authentication"}})
	if err != nil {
		t.Fatal(err)
	}
	marshalled, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	shown := text(t, report)
	for _, s := range []string{shown, string(marshalled)} {
		if strings.Contains(s, "psk_secret") || strings.Contains(s, "\x1b") {
			t.Errorf("the report says too much: %.300s", s)
		}
		if !strings.Contains(s, "c-2-2-1") || !strings.Contains(s, "/access/v1/evaluation") {
			t.Errorf("the report says too little: %.300s", s)
		}
	}
	if report.OK() || report.Count(Failed) == 0 {
		t.Error("nothing failed")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	if _, err := Run(t.Context(), Target{URL: "http://127.0.0.1:1"}); err == nil { // no test is given that port
		t.Error("a PDP that is not there got a report")
	}
}

// A PDP whose metadata names endpoints elsewhere must not be handed a credential
// to send there, nor a request.
func TestEndpointsElsewhereAreNotAsked(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked elsewhere") }))
	defer elsewhere.Close()
	report := judgeStub(t, describing(func(o object) {
		for name := range o {
			if strings.HasSuffix(name, "_endpoint") {
				o[name] = elsewhere.URL + "/access/v1/evaluation"
			}
		}
	}), mustCases(t, "basic-core"))
	if !report.OK() {
		t.Error(text(t, report))
	}
}

// Endpoints may have any path, as long as the metadata says so.
func TestEndpointsAreDiscovered(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	right := &stub{}
	mux.Handle("/", describing(func(o object) {
		for name, v := range o {
			o[name] = strings.Replace(v.(string), "/access/v1/", "/api/", 1)
		}
	}))
	mux.HandleFunc("/access/", http.NotFound)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.Replace(r.URL.Path, "/api/", "/access/v1/", 1)
		right.ServeHTTP(w, r)
	})
	if report := judgeStub(t, mux, mustCases(t, "basic-core", "search-core")); !report.OK() {
		t.Error(text(t, report))
	}
}

// A PDP without metadata is judged by the default paths, and one without pages by
// what it gives at once.
func TestWhatIsOptional(t *testing.T) {
	t.Parallel()
	pdp := wrap(asking(func(_ *http.Request, o object) { delete(o, "page") }), func(r *http.Request, a *httptest.ResponseRecorder) {
		if strings.Contains(r.URL.Path, "well-known") {
			a.Header().Del("Content-Type")
			replace(a, 404, "")
		}
	})
	report := judgeStub(t, pdp, mustCases(t, "basic-core", "batch-core", "search-core", "search", "headers"))
	if !report.OK() {
		t.Error(text(t, report))
	}
	pages := judgeStub(t, pdp, mustCases(t, "pages"))
	for _, r := range pages.Results {
		if r.Outcome == Failed {
			t.Errorf("%s fails a PDP that has no pages: %s", r.ID, r.Failure)
		}
	}
}

// A PDP that wants a credential, and three that do not do it right.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	door := func(shut http.HandlerFunc) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.Header.Get("Authorization") == "Bearer right" {
				(&stub{}).ServeHTTP(w, r)
				return
			}
			shut(w, r)
		})
	}
	for name, test := range map[string]struct {
		shut   http.HandlerFunc
		caught string
		want   Outcome
	}{
		"right": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, 401, "", "who are you")
		}, "", Passed},
		"open":        {(&stub{}).ServeHTTP, "evaluation-no-credential", Failed},
		"403 for 401": {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "", "no") }, "batch-wrong-credential", Failed},
		"deny for 401": {func(w http.ResponseWriter, _ *http.Request) {
			send(w, 200, "application/json", object{"decision": false})
		}, "single-no-credential", Failed},
		"without a scheme": {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 401, "", "no") }, "evaluation-no-credential-challenge", Advised},
	} {
		server := httptest.NewServer(door(test.shut))
		report, err := judgeAll(t.Context(), Target{URL: server.URL, Header: http.Header{"Authorization": {"Bearer right"}}, Timeout: time.Minute}, mustCases(t, "authentication"))
		server.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if (test.want == Passed || r.ID == test.caught) && r.Outcome != test.want {
				t.Errorf("%s: case %s %s, want %s: %s", name, r.ID, r.Outcome, test.want, r.Failure)
			}
		}
	}
}

func mustCases(t *testing.T, plans ...string) []Case {
	t.Helper()
	cases, err := Cases(plans...)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}
