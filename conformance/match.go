package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"policy-service/conformance/internal/casefile"
)

// missing is the type of absent, the value of a member that is not there.
type missing struct{}

var absent = missing{}

// at finds a value by JSON Pointer.
func at(value any, pointer string) any {
	for _, token := range tokens(pointer) {
		switch v := value.(type) {
		case map[string]any:
			inner, ok := v[token]
			if !ok {
				return absent
			}
			value = inner
		case []any:
			n, err := strconv.Atoi(token)
			if err != nil || n < 0 || n >= len(v) {
				return absent
			}
			value = v[n]
		default:
			return absent
		}
	}
	return value
}

// matcher compares the demands of a case with an answer. In what is wanted,
// "$string" and the other kinds of isKind stand for any value of that kind, and a
// member whose name ends in "*" may be missing.
type matcher struct {
	// secure is set where the PDP is asked over TLS: then a $url is https. A PDP
	// that is judged over plain HTTP, on the developer's own machine, may name
	// itself so.
	secure bool
	values map[string]string
}

func (m matcher) equal(want, got any) bool {
	return reflect.DeepEqual(plain(want), got)
}

// plain makes a value from YAML as it would be from JSON.
func plain(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var same any
	_ = json.Unmarshal(text, &same) // it was marshalled a line above
	return same
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// has says where got lacks something that is wanted, or has it otherwise.
func (m matcher) has(pointer string, want, got any) error {
	switch w := plain(want).(type) {
	case map[string]any:
		return m.hasMembers(pointer, w, got)
	case []any:
		elements, ok := got.([]any)
		if !ok || len(elements) != len(w) {
			return fmt.Errorf("%s is not an array of %d", where(pointer), len(w))
		}
		for n := range w {
			if err := m.has(pointer+"/"+strconv.Itoa(n), w[n], elements[n]); err != nil {
				return err
			}
		}
		return nil
	case string:
		return m.hasText(pointer, w, got)
	default:
		if !reflect.DeepEqual(w, got) {
			return fmt.Errorf("%s is not %s", where(pointer), show(w))
		}
		return nil
	}
}

func (m matcher) hasMembers(pointer string, want map[string]any, got any) error {
	object, ok := got.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not an object", where(pointer))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		bare := strings.TrimSuffix(name, "*")
		value, there := object[bare]
		if !there && bare != name {
			continue
		}
		if !there {
			return fmt.Errorf("%s/%s is missing", pointer, bare)
		}
		if err := m.has(pointer+"/"+bare, want[name], value); err != nil {
			return err
		}
	}
	return nil
}

func (m matcher) hasText(pointer, want string, got any) error {
	if kind, ok := strings.CutPrefix(want, "$"); ok {
		if !m.isKind(kind, got) {
			return fmt.Errorf("%s is not what it should be: %s", where(pointer), kind)
		}
		return nil
	}
	want, err := casefile.Fill(want, m.values)
	if err != nil {
		return err
	}
	if want != got {
		return fmt.Errorf("%s is not %s", where(pointer), casefile.Quote(want))
	}
	return nil
}

func (m matcher) isKind(kind string, v any) (ok bool) {
	switch kind {
	case "string":
		_, ok = v.(string)
	case "nonempty":
		s, isString := v.(string)
		ok = isString && s != ""
	case "boolean":
		_, ok = v.(bool)
	case "number":
		_, ok = v.(float64)
	case "object":
		_, ok = v.(map[string]any)
	case "array":
		_, ok = v.([]any)
	case "strings":
		all, isArray := v.([]any)
		ok = isArray && !slices.ContainsFunc(all, func(e any) bool { _, is := e.(string); return !is })
	case "filled":
		all, isArray := v.([]any)
		ok = isArray && len(all) > 0
	case "url":
		s, _ := v.(string)
		u, err := url.Parse(s)
		ok = err == nil && u.Host != "" && u.RawQuery == "" && u.Fragment == "" && (u.Scheme == "https" || u.Scheme == "http" && !m.secure)
	}
	return ok
}

func where(pointer string) string {
	if pointer == "" {
		return "the body"
	}
	return pointer
}

// judgeResults holds the results of a search, of all its pages together, to
// the demands on them.
func (w Want) judgeResults(results []any) error {
	var m matcher
	if w.AtMost != nil && w.Results == nil && len(results) > *w.AtMost {
		return fmt.Errorf("%d results, want at most %d", len(results), *w.AtMost)
	}
	for n, r := range results {
		if w.Each == nil {
			break
		}
		if err := m.has(fmt.Sprintf("/results/%d", n), w.Each, r); err != nil {
			return err
		}
	}
	if w.Ordered != nil {
		if err := m.has("/results", w.Ordered, results); err != nil {
			return err
		}
	}
	for _, want := range w.Excludes {
		if m.index(want, results) >= 0 {
			return fmt.Errorf("the results hold %s", show(want))
		}
	}
	if w.Results != nil && len(results) != len(w.Results) {
		return fmt.Errorf("%d results, want %d: %s", len(results), len(w.Results), show(w.Results))
	}
	return m.includes(append(slices.Clone(w.Includes), w.Results...), results)
}

// includes finds each wanted one in another of the results.
func (m matcher) includes(want, results []any) error {
	left := slices.Clone(results)
	for _, one := range want {
		n := m.index(one, left)
		if n < 0 {
			return errors.New("the results lack " + show(one))
		}
		left = slices.Delete(left, n, n+1)
	}
	return nil
}

func (m matcher) index(want any, results []any) int {
	return slices.IndexFunc(results, func(r any) bool { return m.has("", want, r) == nil })
}
