package pdp

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// Unknown is the error of [PDP.Evaluate] if the decision hangs on values that are hidden: for each of
// these places, two values that can have stood there give two decisions.
type Unknown struct {
	// Paths are the places, JSON Pointers into the request in the AuthZEN shape, in order.
	Paths []string
	// Policies are the ids of the policies that read them, in order.
	Policies []string
	// Unproved is set if the two values were not found. A policy does more with a value than to
	// compare it, or there are too many combinations of values to try.
	Unproved bool
}

// Error implements error.
func (u *Unknown) Error() string {
	text := "the decision depends on what is masked at " + quoteAll(u.Paths)
	if u.Unproved {
		text = "the decision may depend on what is masked at " + quoteAll(u.Paths)
	}
	if len(u.Policies) > 0 {
		text += "; the policies that read it: " + quoteAll(u.Policies)
	}
	return text
}

// quoteAll quotes names, because a caller chose them.
func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for n, name := range names {
		quoted[n] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// decideHidden decides a call of whose request not all values are known. It decides the request in
// every way in which it can have been asked, as far as the policies can tell these ways apart.
// The decision is the one that all of them give. What differs between them and is no part of the
// answer, such as a policy that determines it in some of them only, is left out.
func (p *PDP) decideHidden(ctx context.Context, b *Bundle, call *Call, id func() string, same *reply) error {
	in := inquire(b, call)
	if call.Request.Unknown != nil {
		return decidePossible(ctx, &in, call, id, same)
	}
	worlds, err := in.Worlds(ctx, call.Hidden, call.Approved != "")
	if err != nil {
		return err
	}
	var refused error // a request that is malformed in every way
	answers := make([]string, len(worlds.All))
	for n, world := range worlds.All {
		one := *call
		one.Request = world.Request
		var answer reply
		err := p.decide(ctx, b, &one, world.Given, id, &answer)
		var malformed *evaluation.Error
		switch {
		case errors.As(err, &malformed):
			refused, answers[n] = err, "malformed"
			continue
		case err != nil:
			return err
		}
		worlds.Answered(&answer.decision)
		unfill(&answer.decision, worlds.Filled)
		answers[n] = answerOf(&answer.decision)
		if same.decision.ID == "" {
			*same = answer
		} else {
			keepCommon(&same.decision, &answer.decision)
			same.approved = same.approved && answer.approved
		}
	}
	if paths, policies, proved := worlds.Hinges(answers); len(paths) > 0 || len(answers) == 0 {
		return &Unknown{Paths: paths, Policies: policies, Unproved: !proved}
	}
	if same.decision.Explain != nil {
		explained := func(e evaluation.PolicyExplanation) bool { return worlds.Open[e.ID] }
		same.decision.Explain.Policies = slices.DeleteFunc(same.decision.Explain.Policies, explained)
	}
	return refused
}

// decidePossible decides such a call if it asks what is possible. What a mask hides is as unknown as the rest, unless
// something looks at it: then the decision hangs on it.
func decidePossible(ctx context.Context, in *engine.Inquiry, call *Call, id func() string, answer *reply) error {
	in.WantMismatch, in.Hidden = true, call.Hidden
	var w engine.Verdict
	if err := judge(ctx, in, &w, &answer.decision); err != nil {
		return err
	}
	if paths, policies := w.Hangs(); len(paths) > 0 {
		return &Unknown{Paths: paths, Policies: policies, Unproved: true}
	}
	answer.decision.ID = id()
	return nil
}

// unfill puts the properties of an obligation back as the bundle has them if a value is filled in
// that nobody knows.
func unfill(d *evaluation.Decision, filled map[string]evaluation.Object) {
	for n := range d.Obligations {
		if properties, ok := filled[d.Obligations[n].ID]; ok {
			d.Obligations[n].Properties = properties
		}
	}
}

// answerOf is everything about a decision that its caller would see.
func answerOf(d *evaluation.Decision) string {
	type obligation struct {
		ID, Type   string
		Properties evaluation.Object
	}
	seen := struct {
		Allow       bool
		Possible    evaluation.Possibility
		Reason      evaluation.Reason
		ReasonUser  string
		Obligations []obligation
		Required    []string
		LeftOut     []evaluation.LeftOut
		Met         []evaluation.Met
	}{d.Allow, d.Possible, d.Reason, d.ReasonUser, nil, d.Required, d.LeftOut, d.Met}
	for _, o := range d.Obligations {
		seen.Obligations = append(seen.Obligations, obligation{o.ID, o.Type, o.Properties})
	}
	text, err := json.Marshal(seen, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// keepCommon leaves in a decision what it has in common with another that has the same answer.
func keepCommon(d, other *evaluation.Decision) {
	d.Determining = common(d.Determining, other.Determining)
	d.Overruled = common(d.Overruled, other.Overruled)
	d.Errors = common(d.Errors, other.Errors)
	d.Mismatch = common(d.Mismatch, other.Mismatch)
	if d.Explain != nil && other.Explain != nil {
		differs := func(e evaluation.PolicyExplanation) bool {
			same := func(o evaluation.PolicyExplanation) bool { return o.ID == e.ID && o.Verdict == e.Verdict }
			return !slices.ContainsFunc(other.Explain.Policies, same)
		}
		d.Explain.Policies = slices.DeleteFunc(d.Explain.Policies, differs)
	}
}

// common are the elements that are in both lists, in the order of the first.
func common[T comparable](a, b []T) (both []T) {
	for _, one := range a {
		if slices.Contains(b, one) {
			both = append(both, one)
		}
	}
	return both
}

// approvalOnRecord stands in the place of the approvals for a decision that went by one. It is there
// for whatever is asked, and using it changes nothing.
type approvalOnRecord string

// Find implements [Approvals].
func (a approvalOnRecord) Find(context.Context, ApprovalRequest) (Found, error) {
	return Found{ID: string(a)}, nil
}

// Reserve implements [Approvals].
func (a approvalOnRecord) Reserve(context.Context, ApprovalRequest, string) (Reservation, error) {
	return a, nil
}

// File implements [Approvals].
func (approvalOnRecord) File(context.Context, ApprovalRequest) (*evaluation.Approval, error) {
	return nil, nil
}

// Offer implements [Approvals].
func (approvalOnRecord) Offer(context.Context, ApprovalRequest, evaluation.Reason) (*evaluation.Access, error) {
	return nil, nil
}

// Again implements [Reservation].
func (approvalOnRecord) Again(context.Context, string) (bool, error) { return true, nil }

// Spent implements [Reservation].
func (approvalOnRecord) Spent(context.Context) {}

// InDoubt implements [Reservation].
func (approvalOnRecord) InDoubt() {}
