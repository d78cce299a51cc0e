package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/visible"
)

// recordLine is a record as people read it, in one line.
type recordLine decisionlog.Recorded

func parseRecordLine(line []byte) (recordLine, error) {
	r, err := decisionlog.Parse(line)
	return recordLine(*r), err
}

// policiesOf are the policies that the answer came from, those whose allow it overruled, and those that failed.
func policiesOf(r decisionlog.Recorded) []string {
	all := slices.Concat(r.Determining, r.Overruled)
	for _, e := range r.Errors {
		all = append(all, e.Policy)
	}
	return all
}

// String is the record without what could act on a terminal: ids are whatever a caller sent.
func (l recordLine) String() string {
	words := []string{fmt.Sprintf("%6d", l.Sequence), visible.Text(l.ID), l.Time.UTC().Format("2006-01-02T15:04:05.000Z")}
	switch {
	case l.Event != "":
		words = append(words, visible.Text(l.Event), visible.Quoted(string(l.Details)))
	case l.Kind == decisionlog.KindBatch: // what its items inherit: it asks nothing itself
		words = append(words, visible.Text(l.Kind), visible.Text(cmp.Or(l.Tenant, "-")))
	default:
		subject, resource := cli.Entity(l.Names.Subject), cli.Entity(l.Names.Resource)
		asked := fmt.Sprintf("%s %s %s", subject, cmp.Or(l.Names.Action.Name, "*"), resource)
		words = append(words, fmt.Sprintf("%-7s", visible.Text(l.outcome())), visible.Text(cmp.Or(l.Tenant, "-")), visible.Text(asked))
	}
	if l.Reason != "" {
		words = append(words, visible.Text(l.Reason))
	}
	if policies := policiesOf(decisionlog.Recorded(l)); len(policies) > 0 {
		words = append(words, visible.Text("["+strings.Join(policies, " ")+"]"))
	}
	return strings.TrimRight(strings.Join(words, "  "), " ")
}

// outcome is the answer to a question.
func (l recordLine) outcome() string {
	if l.Query != "" {
		return fmt.Sprintf("%s search: %d of %d", l.Query, len(l.Found), l.Examined)
	}
	r := decisionlog.Recorded(l)
	return cmp.Or(r.Answer(), l.Kind)
}
