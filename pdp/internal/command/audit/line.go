package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/visible"
)

// recordLine is a record as people read it, in one line.
type recordLine record.Recorded

// recordLines are those of a record. Of the record of a batch of questions, a filter that asks for some of them gets those.
func recordLines(line []byte, only record.Filter) ([]recordLine, error) {
	r, err := record.Parse(line)
	asks := only.Decision + only.Subject + only.Resource + only.Action + only.Policy
	if err != nil || r.Items == nil || asks == "" {
		return []recordLine{recordLine(*r)}, err
	}
	questions, err := r.Questions()
	var lines []recordLine
	for n := range questions {
		if only.Passes(&questions[n]) {
			lines = append(lines, recordLine(questions[n]))
		}
	}
	return lines, err
}

// policiesOf are the policies that the answer came from, those whose allow it overruled, and those that failed.
func policiesOf(r record.Recorded) []string {
	all := slices.Concat(r.Determining, r.Overruled)
	for _, e := range r.Errors {
		all = append(all, e.Policy)
	}
	return all
}

// String is the record, and nothing in it acts on a terminal: callers choose ids.
func (l recordLine) String() string {
	words := []string{fmt.Sprintf("%6d", l.Sequence), visible.Text(l.ID), l.Time.UTC().Format("2006-01-02T15:04:05.000Z")}
	switch {
	case l.Event != "" && l.Kind == format.KindApproval:
		words = append(words, fmt.Sprintf("%-7s", visible.Text(l.Event)), visible.Text(cmp.Or(l.Tenant, "-")), visible.Text(l.asked()))
		words = append(words, l.step()...)
	case l.Event != "":
		words = append(words, visible.Text(l.Event), visible.Quoted(string(l.Details)))
	case l.Kind == format.KindBatch: // its items inherit from it: it asks nothing itself
		words = append(words, visible.Text(l.Kind), visible.Text(cmp.Or(l.Tenant, "-")))
	case l.Items != nil:
		words = append(words, visible.Text(l.counts()), visible.Text(cmp.Or(l.Tenant, "-")), visible.Text(l.asked()))
	default:
		words = append(words, fmt.Sprintf("%-7s", visible.Text(l.outcome())), visible.Text(cmp.Or(l.Tenant, "-")), visible.Text(l.asked()))
	}
	if l.Reason != "" {
		words = append(words, visible.Text(l.Reason))
	}
	if policies := policiesOf(record.Recorded(l)); len(policies) > 0 {
		words = append(words, visible.Text("["+strings.Join(policies, " ")+"]"))
	}
	return strings.TrimRight(strings.Join(words, "  "), " ")
}

// step names the approval request of a step, with the words of a person. The rest is in log show.
func (l recordLine) step() []string {
	var step stepRecord
	if json.Unmarshal(l.Line, &step) != nil {
		return []string{visible.Quoted(string(l.Details))}
	}
	d := &step.Details
	one := storyStep{Event: l.Event, Caller: l.Caller, Statement: d.Statement, UsedBy: d.UsedBy, Continues: d.Continues}
	words := []string{"approval " + visible.Text(d.Approval)}
	if said := one.says(&d.story); said != "" {
		words = append(words, string(cli.Cut(said, longestSaid)))
	}
	return words
}

// asked are the names in a question, or those that all questions of a batch have.
func (l recordLine) asked() string {
	return fmt.Sprintf("%s %s %s", cli.Entity(l.Names.Subject), cmp.Or(l.Names.Action.Name, "*"), cli.Entity(l.Names.Resource))
}

// counts says how much of a batch is possible.
func (l recordLine) counts() string {
	r := record.Recorded(l)
	possible, impossible, err := r.Counts()
	if err != nil {
		return l.Kind
	}
	return fmt.Sprintf("%d of %d possible", possible, possible+impossible)
}

// outcome is the answer to a question.
func (l recordLine) outcome() string {
	if l.Query != "" {
		return fmt.Sprintf("%s search: %d of %d", l.Query, len(l.Found), l.Examined)
	}
	r := record.Recorded(l)
	return cmp.Or(r.Answer(), l.Kind)
}
