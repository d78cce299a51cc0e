package pdp

import (
	"errors"

	"context"
	"iter"
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

// request is the question as cedar-go takes it.
func (q *question) request() cedar.Request {
	return cedar.Request{
		Principal: q.uids[principalVar],
		Action:    q.uids[actionVar],
		Resource:  q.uids[resourceVar],
		Context:   q.context,
	}
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

// What keeps an inquiry from having a verdict, besides an [*evaluation.Error] and the end of
// its context.
var (
	errNoBundle      = errors.New("no bundle is loaded")
	errUnknownTenant = errors.New("no such tenant")
)

// verdict is what the policies say, before it counts what the PEP can do.
type verdict struct {
	decision evaluation.Decision
	question *question
	view     *view
}

// judge puts the request to the policies. What they say is a function of call and bundle,
// and nothing else; if ctx ends before all were asked there is no verdict.
func (in *inquiry) judge(ctx context.Context) (w verdict, err error) {
	if in.bundle == nil {
		return w, errNoBundle
	}
	if w.view, err = in.view(); err != nil {
		return w, err
	}
	if w.question, err = in.question(w.view); err != nil {
		return w, err
	}
	w.decision = evaluation.Decision{Bundle: in.bundle.Digest(), Reason: w.question.reason}
	if w.question.reason != "" {
		return w, nil
	}
	if err := authorize(ctx, in.bundle, w.view, w.question, &w.decision); err != nil {
		return w, err
	}
	oblige(w.view, w.question, &w.decision)
	return w, nil
}

// answer is the decision that a verdict of an inquiry comes to: a deny if the PEP has not said that it can
// do what is owed, and explained if that was asked for.
func (w *verdict) answer(ctx context.Context, in *inquiry) (d evaluation.Decision, err error) {
	d = w.decision
	if in.tells && (w.question.reason != "" || len(w.question.unusable) > 0) {
		d.Mismatch = in.mismatch(w.view)
	}
	if w.question.reason != "" {
		if in.explain {
			d.Explain = &evaluation.Explanation{Policies: []evaluation.PolicyExplanation{}, Mismatch: d.Mismatch}
		}
		return d, nil
	}
	in.declare(&d)
	if in.explain {
		d.Explain, err = explain(ctx, w.view, w.question, &d)
	}
	return d, err
}

// view is the bundle as the request's tenant sees it.
func (in *inquiry) view() (*view, error) {
	if r := &in.request; r.Tenant == "" && r.Shape == evaluation.AuthZEN {
		r.Tenant = evaluation.DefaultTenant // a native request must name its own
	}
	v, ok := in.bundle.views[in.request.Tenant]
	switch {
	case !ok:
		return nil, errUnknownTenant
	case in.review != noReview:
		reviewed := *v
		reviewed.review = in.review
		return &reviewed, nil
	}
	return v, nil
}

// question maps the request onto Cedar. The error is an [*evaluation.Error].
func (in *inquiry) question(v *view) (*question, error) {
	b, r, q := in.bundle, &in.request, &question{}
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
	if err := in.askEntities(v, q); err != nil {
		return nil, err
	}
	context, err := in.contextOf(q.uids[actionVar])
	if err != nil {
		return nil, err
	}
	q.context, q.contextOrigins = context.record, context.origins
	q.add(context.piece)
	if b.schema != nil && q.reason != evaluation.SchemaMismatch && !in.fits(q) {
		q.refuse(evaluation.SchemaMismatch)
	}
	slices.Sort(q.unusable)
	if q.reason == "" {
		in.lineages(q)
	}
	return q, nil
}

// contextPiece is the context of a request in Cedar's terms.
type contextPiece struct {
	piece
	origins
	record types.Record
}

func (in *inquiry) makeContext(action types.EntityUID) (contextPiece, error) {
	b, r := in.bundle, &in.request
	declared := b.schema.contextOf(action)
	m := newMerger(b, make(types.RecordMap, r.Context.Len()+2), declared)
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
		"now":      types.NewDatetime(in.now),
		"tenant":   types.String(r.Tenant),
		"caller":   types.String(in.asker.Name),
		"approved": types.Boolean(in.approved),
	})
	return contextPiece{m.piece(), m.origins, types.NewRecord(m.members)}, nil
}

// authorize puts the question to the policies and settles what their answers mean.
// Its error is that of a ctx that ended before the last of them was asked.
func authorize(ctx context.Context, b *Bundle, v *view, q *question, d *evaluation.Decision) error {
	s := scratches.Get().(*scratch)
	defer release(s)
	given, counted := policiesFor(v, q, s)

	result, diagnostic := cedar.Authorize(policiesUntil{ctx, given}, q.entities, q.request())
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
		blocked = blocked || p.forbids() || obligesAllow(p)
	}
	for _, e := range diagnostic.Errors {
		p := v.byID[string(e.PolicyID)]
		kind := errorKind(e.Message)
		if reads(p, q.unusable) {
			kind = evaluation.UnusableValue
		}
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.id, Position: p.position, Kind: kind})
		blocked = blocked || (p.forbids() || obligesAllow(p)) && (kind == evaluation.UnusableValue || !b.config.ignoreForbidErrors)
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

// policiesFor are the policies to put to cedar-go, and those that count as
// errored because an unusable value stands where they would look.
func policiesFor(v *view, q *question, s *scratch) (given, counted policyList) {
	ls := &q.up
	if v.index == nil { // as if there were no index, to compare with
		for _, p := range v.policies {
			if passesOver(v, p) {
				continue
			}
			if ls.considers(p) && countsAsErrored(p, q.unusable) {
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
		case passesOver(v, p), !ls.considers(p):
		case countsAsErrored(p, q.unusable):
			counted = append(counted, p)
		default:
			s.given = append(s.given, p)
		}
	}
	return s.given, counted
}

// passesOver reports whether a policy is a permit that does not count. Forbids always do.
func passesOver(v *view, p *policy) bool {
	return v.review == reviewOfRoot && p.ofTenant() && !p.forbids()
}

// countsAsErrored reports whether a policy asks of an unusable member in a way
// that would not err in Cedar: by has, or by the whole context.
func countsAsErrored(p *policy, unusable []string) bool {
	return len(unusable) > 0 && (p.facts.whole || anyIn(unusable, p.facts.hasNames))
}

// reads reports whether a policy accesses a member that is unusable.
func reads(p *policy, unusable []string) bool { return anyIn(unusable, p.facts.readNames) }

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

func release(s *scratch) {
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

// policiesUntil are policies that are asked one after the other until ctx ends.
// Whoever asks looks at ctx afterwards: an answer from some of them is none.
type policiesUntil struct {
	ctx context.Context
	policyList
}

// All implements cedar.PolicyIterator.
func (l policiesUntil) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for id, p := range l.policyList.All() {
			if l.ctx.Err() != nil || !yield(id, p) {
				return
			}
		}
	}
}
