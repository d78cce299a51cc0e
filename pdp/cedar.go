package pdp

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
)

// question is a request in Cedar's terms.
type question struct {
	piece
	uids     [variables]types.EntityUID
	up       lineages
	context  types.Record
	entities *overlay
	// how the members of context came to be, for explain.
	contextOrigins origins
}

// piece is what any part of a request can come to besides values.
type piece struct {
	// reason is set where the question cannot be put to the policies at all.
	reason evaluation.Reason
	// unusable are the names of top-level members that hold a value Cedar has
	// none for. They are nowhere in the question: no stand-in would be safe.
	unusable []string
}

// reasonOrder says which of several reasons is given.
var reasonOrder = []evaluation.Reason{evaluation.UnknownType, evaluation.SchemaMismatch, evaluation.UnknownEntity}

func (p *piece) refuse(reason evaluation.Reason) {
	if p.reason == "" || slices.Index(reasonOrder, reason) < slices.Index(reasonOrder, p.reason) {
		p.reason = reason
	}
}

func (p *piece) add(more piece) {
	if more.reason != "" {
		p.refuse(more.reason)
	}
	p.unusable = append(p.unusable, more.unusable...)
}

// decide is the decision as a function of call and bundle, and nothing else:
// when ctx ends before it is made, there is none. What it takes from the memo, it
// would have found again.
func (b *Bundle) decide(ctx context.Context, call Call, m *memo) (evaluation.Decision, error) {
	w, err := b.weigh(ctx, &call, m)
	if err != nil {
		return evaluation.Decision{}, err
	}
	return w.finish(ctx, &call)
}

// weighed is what the policies say, before it counts what the PEP can do.
type weighed struct {
	evaluation.Decision
	bundle *Bundle
	view   *view
	*question
	memo *memo
}

// weigh puts a call to the policies.
func (b *Bundle) weigh(ctx context.Context, call *Call, m *memo) (w weighed, err error) {
	w.bundle, w.memo = b, m
	if w.view, err = b.view(call); err != nil {
		return w, err
	}
	if call.review != noReview {
		v := *w.view
		v.review, w.view = call.review, &v
	}
	if w.question, err = b.ask(w.view, call, m); err != nil {
		return w, err
	}
	w.Decision = evaluation.Decision{Bundle: b.digest, Reason: w.reason}
	if w.reason != "" {
		return w, nil
	}
	if err := b.authorize(ctx, w.view, w.question, &w.Decision); err != nil {
		return w, err
	}
	w.view.oblige(w.question, &w.Decision)
	return w, nil
}

// finish denies where the PEP has not said that it can do what is owed, and explains.
func (w *weighed) finish(ctx context.Context, call *Call) (d evaluation.Decision, err error) {
	d = w.Decision
	if call.tell && (w.reason != "" || len(w.unusable) > 0) {
		d.Mismatch = w.bundle.mismatch(w.view, &call.Request, w.memo)
	}
	if w.reason != "" {
		if call.Explain {
			d.Explain = &evaluation.Explanation{Policies: []evaluation.PolicyExplanation{}, Mismatch: d.Mismatch}
		}
		return d, nil
	}
	w.bundle.declare(call, &d)
	if call.Explain {
		d.Explain, err = w.view.explain(ctx, w.question, &d)
	}
	return d, err
}

// view is the bundle as the request's tenant sees it.
func (b *Bundle) view(call *Call) (*view, error) {
	if call.Request.Tenant == "" && call.Request.Shape == evaluation.AuthZEN {
		call.Request.Tenant = evaluation.DefaultTenant // a native request must name its own
	}
	v, ok := b.views[call.Request.Tenant]
	if !ok {
		return nil, ErrUnknownTenant
	}
	return v, nil
}

// ask maps a request onto Cedar. The error is an [*evaluation.Error].
func (b *Bundle) ask(v *view, call *Call, m *memo) (*question, error) {
	r, q := &call.Request, &question{}
	principal, ok1 := b.config.entityType(r.Subject.Type)
	resource, ok2 := b.config.entityType(r.Resource.Type)
	if !ok1 || !ok2 {
		q.reason = evaluation.UnknownType
		return q, nil
	}
	q.uids = [variables]types.EntityUID{
		principalVar: {Type: principal, ID: types.String(r.Subject.ID)},
		actionVar:    {Type: b.config.actionType, ID: types.String(r.Action.Name)},
		resourceVar:  {Type: resource, ID: types.String(r.Resource.ID)},
	}
	if err := b.askEntities(v, r, q, m); err != nil {
		return nil, err
	}
	context, err := m.context(b, call, q.uids[actionVar])
	if err != nil {
		return nil, err
	}
	q.context, q.contextOrigins = context.record, context.origins
	q.add(context.piece)
	if b.schema != nil && q.reason != evaluation.SchemaMismatch && !m.fits(b.schema, r, q) {
		q.refuse(evaluation.SchemaMismatch)
	}
	slices.Sort(q.unusable)
	if q.reason == "" {
		m.lineages(q)
	}
	return q, nil
}

// contextPiece is the context of a request in Cedar's terms.
type contextPiece struct {
	piece
	origins
	record types.Record
}

func (b *Bundle) askContext(call *Call, action types.EntityUID) (contextPiece, error) {
	r := &call.Request
	declared := b.schema.contextOf(action)
	m := b.merger(make(types.RecordMap, r.Context.Len()+2), declared)
	for name, value := range r.Context.Members {
		switch {
		case evaluation.Protocol(name):
			continue
		case name == "action", name == "pdp":
			return contextPiece{}, evaluation.Malformed("only the PDP sets this member of the context", "", "context", name)
		}
		if err := m.take(name, value, "context"); err != nil {
			return contextPiece{}, err
		}
	}
	if err := m.take("action", r.Action.Properties.Value(), "action", "properties"); err != nil {
		return contextPiece{}, err
	}
	m.members["pdp"] = types.NewRecord(types.RecordMap{
		"now":      types.NewDatetime(call.Now),
		"tenant":   types.String(r.Tenant),
		"caller":   types.String(call.Caller),
		"approved": types.Boolean(call.approved),
	})
	return contextPiece{m.piece(), m.origins, types.NewRecord(m.members)}, nil
}

// authorize puts the question to the policies and settles what their answers mean.
// Its error is that of a ctx that ended before the last of them was asked.
func (b *Bundle) authorize(ctx context.Context, v *view, q *question, d *evaluation.Decision) error {
	s := scratches.Get().(*scratch)
	defer s.release()
	given, counted := v.candidates(q, s)

	result, diagnostic := cedar.Authorize(policiesUntil{ctx, given}, q.entities, cedar.Request{
		Principal: q.uids[principalVar], Action: q.uids[actionVar], Resource: q.uids[resourceVar], Context: q.context,
	})
	if err := ctx.Err(); err != nil { // perhaps not all were asked, a forbid not among them
		return err
	}
	// What counted as errored was not put to cedar-go, and what errored there
	// takes no part in its answer: this is the answer without either.
	d.Allow = bool(result)
	for _, r := range diagnostic.Reasons {
		d.Determining = append(d.Determining, string(r.PolicyID))
	}
	blocked := false
	for _, p := range counted {
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.id, Position: p.position, Kind: evaluation.UnusableValue})
		blocked = blocked || p.forbids() || p.obligesAllow()
	}
	for _, e := range diagnostic.Errors {
		p := v.byID[string(e.PolicyID)]
		kind := errorKind(e.Message)
		if p.reads(q.unusable) {
			kind = evaluation.UnusableValue
		}
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.id, Position: p.position, Kind: kind})
		blocked = blocked || (p.forbids() || p.obligesAllow()) && (kind == evaluation.UnusableValue || !b.config.ignoreForbidErrors)
	}
	slices.SortFunc(d.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	if d.Allow && blocked {
		d.Deny(evaluation.ErroredPolicy)
	}
	for _, id := range d.Determining {
		if text := v.byID[id].reasonUser; text != "" {
			d.ReasonUser = text
			break
		}
	}
	return nil
}

// candidates are the policies to put to cedar-go, and those that count as
// errored because an unusable value stands where they would look.
func (v *view) candidates(q *question, s *scratch) (given, counted policyList) {
	ls := &q.up
	if v.index == nil { // as if there were no index, to compare with
		for _, p := range v.policies {
			if v.passesOver(p) {
				continue
			}
			if ls.considers(p) && p.countsAsErrored(q.unusable) {
				counted = append(counted, p)
			} else {
				s.given = append(s.given, p)
			}
		}
		return s.given, counted
	}
	for _, n := range v.index.find(ls, s) {
		p := v.policies[n]
		switch {
		case v.passesOver(p), !ls.considers(p):
		case p.countsAsErrored(q.unusable):
			counted = append(counted, p)
		default:
			s.given = append(s.given, p)
		}
	}
	return s.given, counted
}

// passesOver reports whether a policy is a permit that does not count. Forbids always do.
func (v *view) passesOver(p *policy) bool {
	return v.review == reviewOfRoot && p.ofTenant() && !p.forbids()
}

// countsAsErrored reports whether a policy asks of an unusable member in a way
// that would not err in Cedar: by has, or by the whole context.
func (p *policy) countsAsErrored(unusable []string) bool {
	return len(unusable) > 0 && (p.facts.whole || anyIn(unusable, p.facts.hasNames))
}

// reads reports whether a policy accesses a member that is unusable.
func (p *policy) reads(unusable []string) bool { return anyIn(unusable, p.facts.readNames) }

// anyIn goes through the policy's names, not the sorted ones of the request: a
// request may send thousands, and would be asked about by every policy.
func anyIn(sorted []string, set map[string]struct{}) bool {
	if len(sorted) == 0 {
		return false
	}
	for name := range set {
		if contains(sorted, name) {
			return true
		}
	}
	return false
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) release() {
	clear(s.given)
	s.given = s.given[:0]
	scratches.Put(s)
}

// errorKind classifies a text of cedar-go's evaluator, of which nothing else is
// kept because such texts quote values. It looks at how texts begin, where no
// value stands.
func errorKind(text string) evaluation.ErrorKind {
	for _, k := range errorKinds {
		if strings.HasPrefix(text, k.prefix) {
			return k.kind
		}
	}
	return evaluation.OtherError
}

var errorKinds = []struct {
	prefix string
	kind   evaluation.ErrorKind
}{
	{"type error", evaluation.WrongType},
	{"integer overflow", evaluation.Overflow},
	{"overflow", evaluation.Overflow},
	{"error parsing", evaluation.ParseFailure},
	{"record does not have", evaluation.MissingAttribute},
	{"cannot access", evaluation.MissingAttribute},
	{"entity `", evaluation.MissingAttribute},
	{"`", evaluation.MissingAttribute},
}
