package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"policy-service/conformance/internal/casefile"
	"policy-service/conformance/internal/wire"
)

// judge asks one case.
func (p *peer) judge(ctx context.Context, c Case) Result {
	r := Result{ID: c.ID, Plan: c.Plan, Title: c.Title, Outcome: Passed}
	if c.Needs == "credential" && p.header.Get("Authorization") == "" {
		r.Outcome = Skipped
		return r
	}
	run := &running{peer: p, values: p.values()}
	for n, s := range c.Steps {
		if s.If != "" && run.values[s.If] == "" {
			break
		}
		if err := run.step(ctx, s); err != nil {
			r.Outcome, r.Step, r.Failure = Failed, n+1, err.Error()
			r.Asked, r.Answered = run.asked, run.answered
			if c.Advisory {
				r.Outcome = Advised
			}
			break
		}
	}
	return r
}

// running is a case on its way: its captured values, and its last exchange.
type running struct {
	*peer
	values          map[string]string
	asked, answered string
}

func (r *running) step(ctx context.Context, s Step) error {
	out, err := r.request(s)
	if err != nil {
		return fmt.Errorf("the case is wrong: %w", err)
	}
	if s.Walk > 0 {
		return r.walk(ctx, s, out)
	}
	for range max(s.Repeat, 1) {
		got, err := r.exchange(ctx, out)
		if err != nil {
			return err
		}
		if err := r.check(ctx, s.Want, got); err != nil {
			return err
		}
	}
	return nil
}

// request makes the request of a step.
func (r *running) request(s Step) (request, error) {
	known, err := questions()
	if err != nil {
		return request{}, err
	}
	ask, body := s.Ask, s.Body
	if q, ok := known[ask]; ok {
		if ask = q.Ask; body == nil {
			body = &q.Body
		}
	}
	method := http.MethodPost
	if ask == "metadata" {
		method = http.MethodGet
	}
	out := request{method: cmp.Or(s.Method, method), url: r.endpoint[ask], header: map[string]string{}, anonymous: s.Anonymous}
	if out.url == "" {
		if !strings.HasPrefix(ask, "/") {
			return request{}, fmt.Errorf("no endpoint, question or path is called %q", ask)
		}
		out.url = r.origin() + ask
	}
	for name, value := range s.Header {
		if out.header[name], err = casefile.Fill(value, r.values); err != nil {
			return request{}, err
		}
	}
	text := ""
	if body != nil {
		text = string(*body)
	}
	if text, err = withEdits(text, s.Remove, s.Set); err != nil {
		return request{}, err
	}
	if out.method != http.MethodPost && s.Body == nil {
		text = ""
	}
	out.body, err = casefile.Fill(text, r.values)
	return out, err
}

// exchange sends, and keeps request and answer for the report. Headers are left out
// of it: one of them is the credential.
func (r *running) exchange(ctx context.Context, out request) (answer, error) {
	r.asked = fmt.Sprintf("%s %s %s", out.method, out.url, wire.Excerpt(out.body))
	r.answered = ""
	got, err := r.send(ctx, out)
	if err != nil {
		return got, fmt.Errorf("no answer: %w", err)
	}
	r.answered = fmt.Sprintf("%d %s %s", got.status, got.header.Get("Content-Type"), wire.Excerpt(string(got.body)))
	return got, nil
}

// walk reads the pages of a search to its end, and judges all that it found as
// one answer. A PDP without pages gives everything at once, and no token.
func (r *running) walk(ctx context.Context, s Step, out request) error {
	all, seen := []any{}, map[string]bool{}
	for range s.Walk {
		got, err := r.exchange(ctx, out)
		if err != nil {
			return err
		}
		results, token, err := page(got, len(seen) > 0, s.AtMost)
		if err != nil {
			return err
		}
		if all = append(all, results...); token == "" {
			w := s.Want
			w.AtMost = nil // it was the bound of a page
			return w.judgeResults(all)
		}
		if seen[token] {
			return errors.New("next_token is one that was given before: the pages have no end")
		}
		seen[token] = true
		next, err := withEdits(out.body, nil, edits{{"/page/token", casefile.Quote(token)}})
		if err != nil {
			return fmt.Errorf("the case is wrong: %w", err)
		}
		out.body = next
	}
	return fmt.Errorf("no end after %d pages and %d results", s.Walk, len(all))
}

// page takes a page apart. One that is asked for by a token, or that gives one,
// is a page of a paginated answer, and must be whole.
func page(a answer, follows bool, atMost *int) (results []any, token string, err error) {
	value, err := a.json()
	if err != nil {
		return nil, "", err
	}
	results, ok := at(value, "/results").([]any)
	if !ok {
		return nil, "", errors.New("/results is not an array")
	}
	next := at(value, "/page/next_token")
	token, ok = next.(string)
	if !ok && (follows || next != absent || at(value, "/page") != absent) {
		return nil, "", errors.New("/page/next_token is not a string")
	}
	if atMost != nil && (token != "" || follows) && len(results) > *atMost {
		return nil, "", fmt.Errorf("a page of %d results, want at most %d", len(results), *atMost)
	}
	return results, token, nil
}
