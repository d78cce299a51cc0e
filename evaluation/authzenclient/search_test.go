package authzenclient_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
)

// pages is a PDP that answers with one body after the other, and remembers what it was asked.
func pages(asked *[]string, bodies ...string) []step {
	var steps []step
	for _, body := range bodies {
		steps = append(steps, func(r *http.Request) (*http.Response, error) {
			var question map[string]any
			if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
				return nil, err
			}
			page, err := json.Marshal(question["page"])
			*asked = append(*asked, string(page))
			if err != nil {
				return nil, err
			}
			return answer(200, body)(r)
		})
	}
	return steps
}

func found(ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, `,{"type":"user","id":%q}`, id)
	}
	return strings.TrimPrefix(b.String(), ",")
}

// collect ranges over a search; an error is written as a kind in brackets.
func collect(t *testing.T, c *authzenclient.Client) string {
	t.Helper()
	return gather(t, c.SearchSubjects(t.Context(), question))
}

func gather(t *testing.T, results iter.Seq2[authzenclient.Result, error]) string {
	t.Helper()
	var got []string
	for r, err := range results {
		var e *authzenclient.Error
		if err != nil && (!errors.As(err, &e) || e.Op != "search" || r != authzenclient.Result{}) {
			t.Errorf("%v beside %v", r, err)
		}
		if err != nil {
			got = append(got, "["+string(e.Kind)+"]")
			continue
		}
		got = append(got, r.ID)
	}
	return strings.Join(got, " ")
}

func TestSearchPages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bodies []string
		want   string
		asked  string
	}{
		"one page":    {[]string{`{"results":[` + found("a", "b") + `]}`}, "a b", "null"},
		"nothing":     {[]string{`{"results":[]}`}, "", "null"},
		"last page":   {[]string{`{"results":[` + found("a") + `],"page":{"next_token":"","count":1,"total":1}}`}, "a", "null"},
		"null page":   {[]string{`{"results":[],"page":null}`}, "", "null"},
		"empty page":  {[]string{`{"results":[],"page":{}}`}, "", "null"},
		"three pages": {[]string{`{"results":[` + found("a") + `],"page":{"next_token":"1"}}`, `{"results":[],"page":{"next_token":"2"}}`, `{"results":[` + found("b") + `],"page":{"next_token":""}}`}, "a b", `null {"token":"1"} {"token":"2"}`},
		"same token":  {[]string{`{"results":[` + found("a") + `],"page":{"next_token":"1"}}`}, "a a [not an answer]", `null {"token":"1"}`},
		"circle":      {[]string{`{"results":[],"page":{"next_token":"1"}}`, `{"results":[],"page":{"next_token":"2"}}`, `{"results":[],"page":{"next_token":"1"}}`}, "[not an answer]", `null {"token":"1"} {"token":"2"}`},
		"then a 400":  {[]string{`{"results":[` + found("a") + `],"page":{"next_token":"1"}}`, "400"}, "a [not an answer]", `null {"token":"1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			c, _ := scripted(t, pages(&asked, test.bodies...))
			if got := collect(t, c); got != test.want || strings.Join(asked, " ") != test.asked {
				t.Errorf("got %s, asked %v", got, asked)
			}
		})
	}
}

// None of these pages yields anything, not even what stands before the flaw.
func TestOddPages(t *testing.T) {
	t.Parallel()
	good := found("a") + ","
	for name, body := range map[string]string{
		"no results":        `{}`,
		"null":              `null`,
		"array":             `[` + found("a") + `]`,
		"null results":      `{"results":null}`,
		"object results":    `{"results":{}}`,
		"results twice":     `{"results":[],"results":[` + found("a") + `]}`,
		"cut":               `{"results":[` + found("a"),
		"trailing":          `{"results":[` + found("a") + `]}x`,
		"a string":          `{"results":[` + good + `"b"]}`,
		"a null":            `{"results":[` + good + `null]}`,
		"no id":             `{"results":[` + good + `{"type":"user"}]}`,
		"null id":           `{"results":[` + good + `{"type":"user","id":null}]}`,
		"number id":         `{"results":[` + good + `{"type":"user","id":7}]}`,
		"no type":           `{"results":[` + good + `{"id":"b"}]}`,
		"another type":      `{"results":[` + good + `{"type":"group","id":"b"}]}`,
		"id twice":          `{"results":[` + good + `{"type":"user","id":"b","id":"c"}]}`,
		"obligations":       `{"results":[` + good + `{"type":"user","id":"b","obligations":[{"id":"l","type":"log"}]}]}`,
		"odd obligations":   `{"results":[` + good + `{"type":"user","id":"b","obligations":"log"}]}`,
		"page is a string":  `{"results":[` + good + found("b") + `],"page":"x"}`,
		"token is a number": `{"results":[` + good + found("b") + `],"page":{"next_token":1}}`,
		"token is an array": `{"results":[` + good + found("b") + `],"page":{"next_token":[]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			c, _ := scripted(t, pages(&asked, body))
			if got := collect(t, c); !strings.HasPrefix(got, "[") || len(asked) != 1 {
				t.Errorf("got %s after %d pages", got, len(asked))
			}
		})
	}
}

func TestSearchEnds(t *testing.T) {
	t.Parallel()
	n := 0
	endless := func(results string) []step {
		return []step{func(r *http.Request) (*http.Response, error) {
			n++
			return answer(200, fmt.Sprintf(`{"results":[%s],"page":{"next_token":"%d"}}`, results, n))(r)
		}}
	}
	c, s := scripted(t, endless(found("a")), authzenclient.MaxPages(5, 3))
	if got := collect(t, c); got != "a a a a a [not an answer]" || s.asked.Load() != 5 {
		t.Errorf("got %s after %d pages", got, s.asked.Load())
	}
	c, s = scripted(t, endless(``), authzenclient.MaxPages(5, 3))
	if got := collect(t, c); got != "[not an answer]" || s.asked.Load() != 3 {
		t.Errorf("got %s after %d pages", got, s.asked.Load())
	}
	c, s = scripted(t, endless(found("a", "b")))
	for range c.SearchSubjects(t.Context(), question) {
		break
	}
	if s.asked.Load() != 1 {
		t.Errorf("%d pages were read for a loop that ended at once", s.asked.Load())
	}
}

func TestSearchAsks(t *testing.T) {
	t.Parallel()
	var asked []string
	s := func(r *http.Request) (*http.Response, error) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		text, err := json.Marshal(body)
		asked = append(asked, r.URL.Path+" "+string(text))
		if err != nil {
			return nil, err
		}
		return answer(200, `{"results":[{"name":"read","type":"user","id":""}]}`)(r)
	}
	c, _ := scripted(t, []step{s}, authzenclient.WithPageSize(7))
	q := question
	q.Context, _ = evaluation.NewObject(map[string]any{"x": 1})
	q.Subject.Properties, _ = evaluation.NewObject(map[string]any{"role": "r"})
	for r, err := range c.SearchSubjects(t.Context(), q) {
		if err != nil || r.Type != "user" || r.ID != "" {
			t.Error(r, err)
		}
	}
	for _, err := range c.SearchResources(t.Context(), q) {
		if err == nil {
			t.Error("a user was found among the docs")
		}
	}
	for r, err := range c.SearchActions(t.Context(), q) {
		if err != nil || r != (authzenclient.Result{Name: "read"}) {
			t.Error(r, err)
		}
	}
	want := []string{
		`/access/v1/search/subject {"action":{"name":"read"},"context":{"x":1},"page":{"limit":7},"resource":{"id":"plan","type":"doc"},"subject":{"type":"user"}}`,
		`/access/v1/search/resource {"action":{"name":"read"},"context":{"x":1},"page":{"limit":7},"resource":{"type":"doc"},"subject":{"id":"alice","properties":{"role":"r"},"type":"user"}}`,
		`/access/v1/search/action {"context":{"x":1},"page":{"limit":7},"resource":{"id":"plan","type":"doc"},"subject":{"id":"alice","properties":{"role":"r"},"type":"user"}}`,
	}
	if got := strings.Join(asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("asked\n%s", got)
	}
}
