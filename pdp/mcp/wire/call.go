package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// ApprovalRequest is an approval request as people are shown it.
type ApprovalRequest struct {
	ID string
	// Decision is the id of the decision that waits.
	Decision string
	Tenant   string
	Subject  evaluation.Ref
	Action   string
	Resource evaluation.Ref
	// The Agent acts for the subject, on behalf of those in the Chain. An Agent that is known by its id alone has no type.
	Actors evaluation.Actors
	// Message is the text of the author of the policies for the people who decide.
	Message string
	// Uses is how often the request may be done once it is approved. Rounds is how many follow-up questions belong to each time,
	// and RoundsWithin how long after it they may come.
	Uses         int
	Rounds       int
	RoundsWithin time.Duration
	// Review has approvers shown each argument, and Delegable lets them name another person in their place.
	Review    bool
	Delegable bool
	ExpiresAt time.Time
	// Request is the masked request, and Unbound names the parts that may differ when it is done.
	Request jsontext.Value
	Unbound []string
}

// Call is an approval request as the call of a tool, with the arguments that approvers are shown.
type Call struct {
	of        ApprovalRequest
	arguments evaluation.Object
	// given are the arguments in the form in which they came, and besides are all other properties that were sent.
	given   evaluation.Value
	besides evaluation.Object
	// server is the text of the tool's server about approvals of it.
	server string
}

// ReadCall reads an approval request as the call of a tool. The request was within the limits of the form in which it
// was asked, and may be beyond those limits as it is shown: a native request is shown in another form. So only its own
// size limits it here.
func ReadCall(r ApprovalRequest) (Call, error) {
	n := len(r.Request)
	shown, err := evaluation.ParseObject(r.Request, evaluation.Limits{Body: n, Depth: n, Values: n})
	if err != nil { // not wrapped: an error of a body would blame the message that arrived now
		return Call{}, fmt.Errorf("the request of an approval cannot be read: %v", err)
	}
	about, _ := shown.Get("context")
	given, _ := about.Object().Get("arguments")
	besides := evaluation.Object{}
	for _, part := range []string{"action", "resource", "subject"} {
		one, _ := shown.Get(part)
		if sent, _ := one.Object().Get("properties"); sent.Len() > 0 {
			besides = besides.With(part, sent)
		}
	}
	resource, _ := besides.Get("resource")
	named := func(name string) bool { // in the sentence
		return evaluation.NamesActors(name) && (r.Actors.Requester != nil || name != evaluation.RequesterMember)
	}
	rest := about.Object().Without(func(name string) bool { return name == "arguments" || named(name) })
	if rest.Len() > 0 {
		besides = besides.With("context", rest.Value())
	}
	server := evaluation.HintOf(resource.Object()).Message
	return Call{of: r, arguments: given.Object(), given: given, besides: besides, server: server}, nil
}

// caller is the agent, or the subject if no agent acts for it.
func (c *Call) caller() evaluation.Ref {
	if c.of.Actors.Agent != nil {
		return *c.of.Actors.Agent
	}
	return c.of.Subject
}

func (c *Call) requester() string { return fullID(c.caller()) }

func (c *Call) reason() string {
	return cmp.Or(c.of.Message, "a person must approve this call")
}

// Changed reports whether the arguments that a person reviewed differ from those that were shown.
func (c *Call) Changed(reviewed evaluation.Object) bool {
	_, changed := Suggested(c.arguments, reviewed)
	return changed
}

// Suggested returns the arguments as a reviewer left them, and whether they changed. A form that has a field of one argument
// has those of all that hasField reports: if one does not come back, the person took it out.
func Suggested(arguments, reviewed evaluation.Object) (suggested evaluation.Object, changed bool) {
	suggested = arguments
	back := map[string]bool{}
	for name, value := range reviewed.Members {
		if name == "arguments" {
			if !equal(value, arguments.Value()) {
				suggested, changed = value.Object(), true
			}
			continue
		}
		argument, ofForm := strings.CutPrefix(name, evaluation.ArgumentPrefix)
		was, known := arguments.Get(argument)
		switch {
		case !known && !ofForm: // no argument of the call
			continue
		case !known, !equal(value, was) && !equal(value, fieldValue(was)):
			suggested, changed = suggested.With(argument, meant(value, was)), true
		}
		if ofForm && known {
			back[argument] = true
		}
	}
	if len(back) == 0 {
		return suggested, changed
	}
	kept := suggested.Without(func(name string) bool {
		was, shown := arguments.Get(name)
		return shown && !back[name] && hasField(name, was)
	})
	return kept, changed || kept.Len() < suggested.Len()
}

// Unmasked is a form as it was filled in, in which masked arguments are as they were: the person has not seen them.
func Unmasked(filled, arguments evaluation.Object) evaluation.Object {
	asItWas := func(m evaluation.Member) (evaluation.Member, bool) {
		if was, ok := arguments.Get(strings.TrimPrefix(m.Name, evaluation.ArgumentPrefix)); ok && m.Value.Contains(evaluation.MaskPrefix) {
			m.Value = was
		}
		return m, true
	}
	if all, ok := filled.Get("arguments"); ok && all.Kind() == evaluation.Map {
		filled = filled.With("arguments", all.Object().Rewrite(asItWas).Value())
	}
	return filled.Rewrite(asItWas)
}

// meant is the value that a person wrote into a field: that of the text, if the field showed another value as text.
func meant(value, was evaluation.Value) evaluation.Value {
	if value.Kind() != evaluation.String || was.Kind() == evaluation.String || fieldValue(was).Kind() != evaluation.String {
		return value
	}
	o, err := evaluation.ParseWithNulls([]byte(`{"v":`+value.Text()+`}`), evaluation.DefaultLimits())
	if v, ok := o.Get("v"); err == nil && ok && o.Len() == 1 {
		return v
	}
	return value
}

// equal reports whether two values are the same, however they are written.
func equal(v, w evaluation.Value) bool {
	one, ok1 := v.AppendCanonical(nil)
	other, ok2 := w.AppendCanonical(nil)
	return ok1 && ok2 && bytes.Equal(one, other)
}
