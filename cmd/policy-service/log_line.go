package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/visible"
)

// logLine is what people are shown of a record. A line holds more, and later ones hold more still: members that are not
// here are passed over.
type logLine struct {
	Sequence    int64     `json:"sequence"`
	ID          string    `json:"id"`
	Time        time.Time `json:"time"`
	Kind        string    `json:"kind"`
	Tenant      string    `json:"tenant"`
	Decision    *bool     `json:"decision"`
	Reason      string    `json:"reason"`
	Determining []string  `json:"determining"`
	Errors      []struct {
		Policy string `json:"policy"`
	} `json:"errors"`
	Request  logRequest `json:"request"`
	Query    string     `json:"query"`
	Found    []string   `json:"found"`
	Examined int        `json:"examined"`

	Event   string         `json:"event"`
	Details jsontext.Value `json:"details"`
}

type logRequest struct {
	Subject  logEntity `json:"subject"`
	Resource logEntity `json:"resource"`
	Action   struct {
		Name string `json:"name"`
	} `json:"action"`
}

func (r logRequest) String() string {
	return fmt.Sprintf("%s %s %s", r.Subject, cmp.Or(r.Action.Name, "*"), r.Resource)
}

type logEntity struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// String is * for what a search looked for.
func (e logEntity) String() string {
	if e.Type == "" {
		return "*"
	}
	return e.Type + "/" + e.ID
}

func parseLogLine(line []byte) (l logLine, err error) {
	err = json.Unmarshal(line, &l)
	return l, err
}

// policies are those that the answer came from, and those that erred.
func (l logLine) policies() []string {
	all := append([]string(nil), l.Determining...)
	for _, e := range l.Errors {
		all = append(all, e.Policy)
	}
	return all
}

// String is the record in one line, without what could act on a terminal: ids are whatever a caller sent.
func (l logLine) String() string {
	words := []string{fmt.Sprintf("%6d", l.Sequence), l.ID, l.Time.UTC().Format("2006-01-02T15:04:05.000Z")}
	switch {
	case l.Event != "":
		words = append(words, l.Event, string(l.Details))
	case l.Kind == decisionlog.KindBatch: // what its items inherit: it asks nothing itself
		words = append(words, l.Kind, cmp.Or(l.Tenant, "-"))
	default:
		words = append(words, fmt.Sprintf("%-6s", l.outcome()), cmp.Or(l.Tenant, "-"), l.Request.String())
	}
	if l.Reason != "" {
		words = append(words, l.Reason)
	}
	if policies := l.policies(); len(policies) > 0 {
		words = append(words, "["+strings.Join(policies, " ")+"]")
	}
	return visible.Text(strings.TrimRight(strings.Join(words, "  "), " "))
}

// outcome is what came of a question.
func (l logLine) outcome() string {
	switch {
	case l.Query != "":
		return fmt.Sprintf("%s search: %d of %d", l.Query, len(l.Found), l.Examined)
	case l.Decision == nil:
		return l.Kind
	case *l.Decision:
		return "allow"
	}
	return "deny"
}
