package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// How our server is made wrong. What is wrong is in faults_test.go.

// object is a JSON object.
type object = map[string]any

// faulty makes a PDP wrong.
type faulty func(right http.Handler) http.Handler

// and is wrong in another way as well, which stands before it.
func (f faulty) and(more faulty) faulty {
	return func(right http.Handler) http.Handler { return more(f(right)) }
}

// fault is a PDP that is wrong in one way, and the case that must say so.
type fault struct {
	wrong, caught string
	pdp           faulty
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
	s := newStage(t)
	for _, f := range faults() {
		t.Run(f.wrong, func(t *testing.T) {
			n := slices.IndexFunc(all, func(c Case) bool { return c.ID == f.caught })
			if n < 0 {
				t.Fatalf("no case is called %s", f.caught)
			}
			report := s.judge(t, f.pdp, nil, all[n:n+1])
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

// after changes the answers.
func after(change func(r *http.Request, a *httptest.ResponseRecorder)) faulty {
	return func(right http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(asked))
			a := httptest.NewRecorder()
			right.ServeHTTP(a, r)
			r.Body = io.NopCloser(bytes.NewReader(asked)) // for change to look at
			a.Header().Del("Content-Length")
			change(r, a)
			maps.Copy(w.Header(), a.Header())
			w.WriteHeader(a.Code)
			_, _ = w.Write(a.Body.Bytes())
		})
	}
}

// before changes requests on their way.
func before(change func(r *http.Request, body []byte) []byte) faulty {
	return func(right http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			body = change(r, body)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			right.ServeHTTP(w, r)
		})
	}
}

// asking changes the JSON of requests. It is read as many readers do: the last of two members counts, and bytes that are
// no UTF-8 become others.
func asking(change func(r *http.Request, o object)) faulty {
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
func answering(change func(o object)) faulty {
	return after(func(_ *http.Request, a *httptest.ResponseRecorder) { edited(a, change) })
}

// describing changes the metadata.
func describing(change func(o object)) faulty {
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
func turned(from, to int) faulty {
	return after(func(_ *http.Request, a *httptest.ResponseRecorder) {
		if a.Code == from {
			a.Code = to
		}
	})
}

// without takes a header off every answer.
func without(name string) faulty {
	return after(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Del(name) })
}

// refusing answers 400 to what it does not like.
func refusing(dislike func(r *http.Request, o object) bool) faulty {
	return after(func(r *http.Request, a *httptest.ResponseRecorder) {
		var o object
		_ = json.NewDecoder(r.Body).Decode(&o)
		if dislike(r, o) {
			refuse(a, 400)
		}
	})
}

// results changes each result of a search.
func results(change func(all []any) any) faulty {
	return answering(func(o object) {
		if all, ok := o["results"].([]any); ok {
			o["results"] = change(all)
		}
	})
}

// refuse takes the place of an answer.
func refuse(a *httptest.ResponseRecorder, status int) {
	a.Header().Set("Content-Type", "application/problem+json")
	replace(a, status, fmt.Sprintf(`{"status":%d}`, status))
}
