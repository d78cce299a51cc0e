package conformance

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/conformance/internal/casefile"
)

// json returns the body of an answer that must be 200 and JSON. A member twice,
// or bytes that are not UTF-8, are no JSON here: two readers of one answer must
// not see two decisions.
func (a answer) json() (any, error) {
	if a.status != http.StatusOK {
		return nil, fmt.Errorf("status %d, want 200", a.status)
	}
	if err := a.hasType("application/json"); err != nil {
		return nil, err
	}
	return a.parsed()
}

func (a answer) parsed() (any, error) {
	var value any
	if err := json.Unmarshal(a.body, &value); err != nil {
		return nil, errors.New("the body is not JSON")
	}
	return value, nil
}

// hasType compares media types, whatever parameters they have.
func (a answer) hasType(want string) error {
	got := a.header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(got); err != nil || mediaType != want {
		return fmt.Errorf("Content-Type %q, want %s", got, want)
	}
	return nil
}

// check holds an answer to the demands, and captures.
func (r *running) check(ctx context.Context, w Want, a answer) error {
	if len(w.Status) == 0 {
		w.Status = statuses{http.StatusOK}
	}
	if !slices.Contains(w.Status, a.status) {
		return fmt.Errorf("status %d, want %s", a.status, strings.Trim(fmt.Sprint([]int(w.Status)), "[]"))
	}
	if err := r.checkHeaders(w, a); err != nil {
		return err
	}
	if err := r.checkBytes(w, a); err != nil {
		return err
	}
	var value any = absent
	if a.status == http.StatusOK || w.readsJSON() { // the body of an error is text for people
		var err error
		if value, err = a.parsed(); err != nil {
			return err
		}
		if err := r.checkJSON(w, value); err != nil {
			return err
		}
	}
	if w.Signed {
		if err := r.checkSigned(ctx, value); err != nil {
			return err
		}
	}
	return r.capture(w.Capture, a, value)
}

// checkBytes looks at the body before anybody reads it as JSON.
func (r *running) checkBytes(w Want, a answer) error {
	want, err := casefile.Fill(w.Bytes, r.values)
	if err != nil {
		return err
	}
	if want != "" && string(a.body) != want {
		return fmt.Errorf("the body is not exactly %s", want)
	}
	if a.status == http.StatusOK {
		if err := a.hasType("application/json"); err != nil {
			return err
		}
	}
	names, _, err := open(a.body)
	if w.First != "" && err == nil && slices.Index(names, w.First) > 0 {
		return fmt.Errorf("/%s is not the first member", w.First)
	}
	return nil
}

// readsJSON reports whether anything is wanted of the body as JSON.
func (w Want) readsJSON() bool {
	return w.Exact != nil || w.Has != nil || len(w.Lacks) > 0 || w.wantsResults()
}

func (w Want) wantsResults() bool {
	return w.Results != nil || w.Ordered != nil || w.Includes != nil || w.Excludes != nil || w.Each != nil || w.AtMost != nil
}

func (r *running) checkHeaders(w Want, a answer) error {
	for name, want := range w.Headers {
		want, err := casefile.Fill(want, r.values)
		if err != nil {
			return err
		}
		if name == "Content-Type" {
			if err := a.hasType(want); err != nil {
				return err
			}
		} else if got := a.header.Values(name); len(got) != 1 || got[0] != want {
			return fmt.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range w.Present {
		if a.header.Get(name) == "" {
			return fmt.Errorf("there is no %s", name)
		}
	}
	for _, name := range w.Absent {
		if got := a.header.Values(name); len(got) > 0 {
			return fmt.Errorf("%s is %q, want none", name, got)
		}
	}
	return nil
}

func (r *running) checkJSON(w Want, value any) error {
	m := matcher{secure: r.base.Scheme == "https", values: r.values}
	if w.Exact != nil && !m.equal(w.Exact, value) {
		return fmt.Errorf("the body is not %s", show(w.Exact))
	}
	if w.Has != nil {
		if err := m.has("", w.Has, value); err != nil {
			return err
		}
	}
	for _, pointer := range w.Lacks {
		if at(value, pointer) != absent {
			return fmt.Errorf("%s is there and should not be", pointer)
		}
	}
	if !w.wantsResults() {
		return nil
	}
	results, ok := at(value, "/results").([]any)
	if !ok {
		return errors.New("/results is not an array")
	}
	return w.judgeResults(results)
}

// capture keeps strings of the body as they are spelt inside quotes, so that a
// case can put them between its own. A member that is not there is captured as "".
func (r *running) capture(names map[string]string, a answer, value any) error {
	for name, source := range names {
		if header, ok := strings.CutPrefix(source, "header:"); ok {
			r.values[name] = a.header.Get(header)
			continue
		}
		if source == "body" {
			r.values[name] = string(a.body)
			continue
		}
		switch found := at(value, source).(type) {
		case string:
			quoted := casefile.Quote(found)
			r.values[name] = quoted[1 : len(quoted)-1]
		case missing:
			r.values[name] = ""
		default:
			return fmt.Errorf("%s is not a string", source)
		}
	}
	return nil
}
