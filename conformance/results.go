package conformance

import (
	"errors"
	"fmt"
	"slices"
)

// judgeResults holds the results of a search, of all its pages together, to
// what is wanted of them.
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

// includes finds each of what is wanted in another of the results.
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
