package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// How the stub is made wrong. What is wrong is in faults_test.go.

// fault is a PDP that is wrong in one way, and the case that must say so.
type fault struct {
	wrong, caught string
	pdp           http.Handler
}

// A suite that has never failed proves nothing.
func TestFaultsAreCaught(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(faults()) < 30 {
		t.Errorf("only %d faults", len(faults()))
	}
	for _, f := range faults() {
		t.Run(f.wrong, func(t *testing.T) {
			n := slices.IndexFunc(all, func(c Case) bool { return c.ID == f.caught })
			if n < 0 {
				t.Fatalf("no case is called %s", f.caught)
			}
			report := judgeStub(t, f.pdp, all[n:n+1])
			want := Failed
			if all[n].Advisory {
				want = Advised
			}
			if got := report.Results[0]; got.Outcome != want || got.Failure == "" {
				t.Errorf("case %s %s, want %s: %s", got.ID, got.Outcome, want, all[n].Title)
			}
		})
	}
}

// after changes answers of the right stub.
func after(change func(r *http.Request, a *httptest.ResponseRecorder)) http.Handler {
	return wrap(&stub{}, change)
}

func wrap(pdp http.Handler, change func(r *http.Request, a *httptest.ResponseRecorder)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(asked))
		a := httptest.NewRecorder()
		pdp.ServeHTTP(a, r)
		r.Body = io.NopCloser(bytes.NewReader(asked)) // for change to look at
		change(r, a)
		for name, values := range a.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body.Bytes())
	})
}

// before changes requests on their way to the right stub.
func before(change func(r *http.Request, body []byte) []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		body = change(r, body)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		(&stub{}).ServeHTTP(w, r)
	})
}

// asking changes the JSON of requests.
func asking(change func(r *http.Request, o object)) http.Handler {
	return before(func(r *http.Request, body []byte) []byte {
		var o object
		if json.Unmarshal(body, &o) != nil {
			return body
		}
		change(r, o)
		changed, _ := json.Marshal(o)
		return changed
	})
}

// answering changes the JSON of answers that are 200.
func answering(change func(o object)) http.Handler {
	return after(func(_ *http.Request, a *httptest.ResponseRecorder) { edited(a, change) })
}

// describing changes the metadata.
func describing(change func(o object)) http.Handler {
	return after(func(r *http.Request, a *httptest.ResponseRecorder) {
		if strings.HasSuffix(r.URL.Path, "/authzen-configuration") {
			edited(a, change)
		}
	})
}

func edited(a *httptest.ResponseRecorder, change func(o object)) {
	var o object
	if a.Code != 200 || json.Unmarshal(a.Body.Bytes(), &o) != nil {
		return
	}
	change(o)
	text, _ := json.Marshal(o)
	replace(a, a.Code, string(text))
}

func replace(a *httptest.ResponseRecorder, status int, body string) {
	a.Code = status
	a.Body.Reset()
	a.Body.WriteString(body)
}

// turned answers one status with another.
func turned(from, to int) http.Handler {
	return after(func(_ *http.Request, a *httptest.ResponseRecorder) {
		if a.Code == from {
			a.Code = to
		}
	})
}

// without takes a header off every answer.
func without(name string) http.Handler {
	return after(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Del(name) })
}

// refusing answers 400 to what it does not like.
func refusing(dislike func(r *http.Request, o object) bool) http.Handler {
	return after(func(r *http.Request, a *httptest.ResponseRecorder) {
		var o object
		_ = json.NewDecoder(r.Body).Decode(&o)
		if dislike(r, o) {
			a.Header().Set("Content-Type", "application/problem+json")
			replace(a, 400, `{"status":400}`)
		}
	})
}

// results changes each result of a search.
func results(change func(all []any) any) http.Handler {
	return answering(func(o object) {
		if all, ok := o["results"].([]any); ok {
			o["results"] = change(all)
		}
	})
}
