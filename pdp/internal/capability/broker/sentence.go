package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/visible"
)

// sentence is what people read about the request. It begins with what has no bound, because a list may show no more than
// its beginning. No name in it can pass for words of ours.
func (w *wanted) sentence() string {
	a, b := w.ask, new(strings.Builder)
	if open := w.openEnded(); len(open) > 0 {
		fmt.Fprintf(b, "Open-ended in %s: ", listed(open))
	}
	if w.giver != nil {
		fmt.Fprintf(b, "%s hands on to %s that ", visible.Word(w.giver.ID), visible.Word(a.Holder.ID))
	}
	fmt.Fprintf(b, "%s may call %s of %s ", visible.Word(a.Holder.ID), listed(bare(a)), visible.Word(a.Audience))
	if !a.ValidFrom.IsZero() {
		fmt.Fprintf(b, "from %s ", a.ValidFrom.UTC().Format(time.RFC3339))
	}
	if !a.ValidUntil.IsZero() {
		fmt.Fprintf(b, "until %s, ", a.ValidUntil.UTC().Format(time.RFC3339))
	}
	switch life := span(w.token.Expires.Sub(w.token.NotBefore)); {
	case a.ValidUntil.IsZero():
		fmt.Fprintf(b, "for %s, ", life)
	case slices.Contains(w.narrowed, "duration"):
		fmt.Fprintf(b, "for %s at most, ", life)
	}
	switch {
	case w.token.MaxUses == 1:
		b.WriteString("once, ")
	case w.token.MaxUses > 0:
		fmt.Fprintf(b, "%d times, ", w.token.MaxUses)
	default:
		b.WriteString("any number of times, ")
	}
	switch {
	case a.Arguments == nil:
		b.WriteString("with any arguments")
	case len(a.Arguments) == 0:
		b.WriteString("without arguments")
	default:
		fmt.Fprintf(b, "where %s", listed(w.conditions()))
	}
	if w.token.Verify == capability.Offline {
		b.WriteString("; gateways may take it without asking the service")
	}
	fmt.Fprintf(b, "; held by key %s", a.Key.Thumbprint())
	if kept, _ := a.Context.Get(capability.HolderKeyMember); kept.Text() == capability.KeptByGateway {
		b.WriteString(", which the gateway keeps")
	}
	if more := w.token.MaxDepth - w.token.Depth; more > 0 {
		fmt.Fprintf(b, ", who may hand it on, %d deep", more)
	}
	if w.token.Session != "" {
		b.WriteString(", in one session alone")
	}
	if a.Proof == "" {
		b.WriteString(", of which no proof was shown")
	}
	return b.String()
}

// openEnded is what a request sets no bound to.
func (w *wanted) openEnded() (all []string) {
	a := w.ask
	if slices.Contains(a.Tools, a.Audience+everyTool) {
		all = append(all, "tools")
	}
	if w.token.MaxUses == 0 {
		all = append(all, "uses")
	}
	if a.Arguments == nil {
		all = append(all, "arguments")
	}
	for _, name := range slices.Sorted(maps.Keys(a.Arguments)) {
		switch {
		case name == "*":
			all = append(all, "other arguments")
		case a.Arguments[name].Kind() == wildcard:
			all = append(all, "argument "+visible.Word(name))
		}
	}
	return all
}

// wildcard is the kind of a constraint that admits any value.
const wildcard = "wildcard"

// everyTool stands behind a server for all of its tools.
const everyTool = ":*"

// listed is some words as a list in a sentence.
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// span is a length of time in words.
func span(d time.Duration) string {
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}} {
		if d%unit.of == 0 {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// bare are the names of the tools at their server.
func bare(a *capability.Ask) (names []string) {
	for _, tool := range a.Tools {
		if tool == a.Audience+everyTool {
			names = append(names, "all tools")
		} else {
			names = append(names, visible.Word(strings.TrimPrefix(tool, a.Audience+":")))
		}
	}
	return names
}

// conditions are the constraints in words. Values that masks hide are left out.
func (w *wanted) conditions() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(w.ask.Arguments)) {
		c := w.ask.Arguments[name]
		value, one := c.ScalarExact()
		switch {
		case name == "*":
			all = append(all, "other arguments are any")
		case c.Kind() == wildcard:
			all = append(all, visible.Word(name)+" is any")
		case one && !w.hidden(name):
			text, _ := value.MarshalJSON()
			all = append(all, visible.Word(name)+" = "+string(text))
		default:
			all = append(all, visible.Word(name)+" is bound ("+c.Kind()+")")
		}
	}
	return all
}
