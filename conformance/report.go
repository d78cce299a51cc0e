package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Outcome is that of a case.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	// Advised is a case of a SHOULD that did not hold: worth knowing, no failure.
	Advised Outcome = "advised"
	// Skipped is a case that could not be asked: it needs a credential, say.
	Skipped Outcome = "skipped"
)

// Result is the outcome of a case, and where it did not pass, why: the request
// and the answer of the step that failed, without their headers, since one of
// those is the credential.
type Result struct {
	ID       string  `json:"id"`
	Plan     string  `json:"plan"`
	Title    string  `json:"title"`
	Outcome  Outcome `json:"outcome"`
	Step     int     `json:"step,omitempty"`
	Failure  string  `json:"failure,omitempty"`
	Asked    string  `json:"asked,omitempty"`
	Answered string  `json:"answered,omitempty"`
}

// Report has the results of a run.
type Report struct {
	URL     string   `json:"url"`
	Results []Result `json:"results"`
}

// Count counts the cases of one outcome.
func (r Report) Count(o Outcome) int { return r.count("", o) }

func (r Report) count(plan string, o Outcome) (n int) {
	for _, one := range r.Results {
		if one.Outcome == o && (plan == "" || one.Plan == plan) {
			n++
		}
	}
	return n
}

// OK reports whether no case failed.
func (r Report) OK() bool { return r.Count(Failed) == 0 }

// WriteText writes the report for people: a line for each plan, and in full the
// cases that did not pass.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, plan := range r.plans() {
		fmt.Fprintln(&b, r.planLine(plan))
	}
	for _, one := range r.Results {
		if one.Outcome == Failed || one.Outcome == Advised {
			fmt.Fprintf(&b, "\n%s %s: %s\n  %s\n", one.Outcome, one.ID, one.Title, one.Failure)
			fmt.Fprintf(&b, "  > %s\n  < %s\n", printable(one.Asked), printable(one.Answered))
		}
	}
	fmt.Fprintf(&b, "\n%s: %d passed, %d failed, %d advised, %d skipped\n", r.URL, r.Count(Passed), r.Count(Failed), r.Count(Advised), r.Count(Skipped))
	_, err := io.WriteString(w, b.String())
	return err
}

// plans are the names of the plans that were asked, in that order.
func (r Report) plans() (names []string) {
	for _, one := range r.Results {
		if !slices.Contains(names, one.Plan) {
			names = append(names, one.Plan)
		}
	}
	return names
}

func (r Report) planLine(plan string) string {
	var parts []string
	for _, o := range []Outcome{Passed, Failed, Advised, Skipped} {
		if n := r.count(plan, o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return fmt.Sprintf("%-18s %s", plan, strings.Join(parts, ", "))
}

// printable takes away what an answer could do to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, s)
}
