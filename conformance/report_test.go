package conformance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
	report := newStage(t).judge(t, describing(func(o object) {
		for name := range o {
			if strings.HasSuffix(name, "_endpoint") {
				o[name] = elsewhere.URL + "/access/v1/evaluation"
			}
		}
	}), nil, mustCases(t, "basic-core"))
	if !report.OK() {
		t.Error(text(t, report))
	}
}

// Endpoints may have any path, as long as the metadata says so.
func TestEndpointsAreDiscovered(t *testing.T) {
	t.Parallel()
	moved := before(func(r *http.Request, body []byte) []byte {
		if path, ok := strings.CutPrefix(r.URL.Path, "/api/"); ok {
			r.URL.Path = "/access/v1/" + path
		} else if strings.HasPrefix(r.URL.Path, "/access/") {
			r.URL.Path = "/nowhere"
		}
		return body
	})
	named := describing(func(o object) {
		for name, v := range o {
			if url, ok := v.(string); ok {
				o[name] = strings.Replace(url, "/access/v1/", "/api/", 1)
			}
		}
	})
	if report := newStage(t).judge(t, named.and(moved), nil, mustCases(t, "basic-core", "search-core")); !report.OK() {
		t.Error(text(t, report))
	}
}

// A PDP without metadata is judged by the default paths, and one without pages by
// what it gives at once.
func TestWhatIsOptional(t *testing.T) {
	t.Parallel()
	pdp := asking(func(_ *http.Request, o object) { delete(o, "page") }).and(after(func(r *http.Request, a *httptest.ResponseRecorder) {
		if strings.Contains(r.URL.Path, "well-known") {
			a.Header().Del("Content-Type")
			replace(a, 404, "")
		}
	}))
	s := newStage(t)
	report := s.judge(t, pdp, nil, mustCases(t, "basic-core", "batch-core", "search-core", "search", "headers"))
	if !report.OK() {
		t.Error(text(t, report))
	}
	pages := s.judge(t, pdp, nil, mustCases(t, "pages"))
	for _, r := range pages.Results {
		if r.Outcome == Failed {
			t.Errorf("%s fails a PDP that has no pages: %s", r.ID, r.Failure)
		}
	}
}

// A PDP that wants a credential, and three that do not do it right.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	door := func(shut func(a *httptest.ResponseRecorder)) faulty {
		return before(func(r *http.Request, body []byte) []byte {
			r.Header.Del("Authorization") // our server knows no credentials here
			return body
		}).and(func(right http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				pdp := right
				if r.Method == http.MethodPost && r.Header.Get("Authorization") != "Bearer right" && shut != nil {
					pdp = after(func(_ *http.Request, a *httptest.ResponseRecorder) { shut(a) })(right)
				}
				pdp.ServeHTTP(w, r)
			})
		})
	}
	s := newStage(t)
	for name, test := range map[string]struct {
		shut   func(a *httptest.ResponseRecorder)
		caught string
		want   Outcome
	}{
		"right": {func(a *httptest.ResponseRecorder) {
			a.Header().Set("WWW-Authenticate", "Bearer")
			refuse(a, 401)
		}, "", Passed},
		"open":             {nil, "evaluation-no-credential", Failed},
		"403 for 401":      {func(a *httptest.ResponseRecorder) { refuse(a, 403) }, "batch-wrong-credential", Failed},
		"deny for 401":     {func(a *httptest.ResponseRecorder) { replace(a, 200, `{"decision":false}`) }, "single-no-credential", Failed},
		"without a scheme": {func(a *httptest.ResponseRecorder) { refuse(a, 401) }, "evaluation-no-credential-challenge", Advised},
	} {
		report := s.judge(t, door(test.shut), http.Header{"Authorization": {"Bearer right"}}, mustCases(t, "authentication"))
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
