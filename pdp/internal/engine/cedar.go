package engine

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Question is a request in Cedar's terms.
type Question struct {
	piece
	Uids     [bundle.Variables]types.EntityUID
	Up       bundle.Lineages
	Context  types.Record
	Entities *Overlay
	Unusable Unusable
	// contextOrigins says how the members of the context came to be, for explain.
	contextOrigins origins
	// unknown is set if not all values are known.
	unknown *unknowns
	masked  func(path []string) bool // of the inquiry
}

// request returns the question in the form that cedar-go takes.
func (q *Question) request() cedar.Request {
	return cedar.Request{
		Principal: q.Uids[bundle.PrincipalVar],
		Action:    q.Uids[bundle.ActionVar],
		Resource:  q.Uids[bundle.ResourceVar],
		Context:   q.Context,
	}
}

// piece is what the conversion of any part of a request can yield besides values.
type piece struct {
	// Reason is set if the question cannot be put to the policies at all.
	Reason  evaluation.Reason
	misfits mismatches // where it does not fit
}

// ReasonOrder says which one of several reasons a decision gives: the first in this list.
var ReasonOrder = []evaluation.Reason{evaluation.UnknownType, evaluation.SchemaMismatch, evaluation.UnknownEntity}

// refuse refuses the question for a reason, and notes where it does not fit.
func (p *piece) refuse(reason evaluation.Reason, at ...evaluation.Mismatch) {
	p.misfits.note(at...)
	if p.Reason == "" || slices.Index(ReasonOrder, reason) < slices.Index(ReasonOrder, p.Reason) {
		p.Reason = reason
	}
}

func (p *piece) add(more piece) {
	if more.Reason != "" {
		p.refuse(more.Reason)
	}
	p.misfits.note(more.misfits...)
}

// The errors of [Inquiry.Judge], besides an [*evaluation.Error] and the error of a context that
// ended.
var (
	ErrNoBundle          = errors.New("no bundle is loaded")
	ErrUnknownTenant     = errors.New("no such tenant")
	ErrTenantUnavailable = errors.New("the files of the tenant do not load")
)

// Verdict is the decision of the policies, before the obligations that the PEP declared are
// taken into account.
type Verdict struct {
	Decision evaluation.Decision
	question *Question
	view     *bundle.View
}

// Judge puts the request to the policies. The verdict, which is empty before, is a function of call and bundle, and of
// nothing else. If ctx ends before all policies were asked, there is no verdict.
//
// Verdicts and decisions are large, and each connection has a stack of its own. So they are made where they stay, and not
// handed from function to function: a stack of 20 KB is in no processor's cache when the next request of its connection
// comes.
func (in *Inquiry) Judge(ctx context.Context, w *Verdict) (err error) {
	if in.Bundle == nil {
		return ErrNoBundle
	}
	if w.view, err = in.view(); err != nil {
		return err
	}
	if err := in.judge(ctx, w); err != nil || !w.Decision.Allow || !in.demands(w.view) {
		return err
	}
	return in.judgeDemand(ctx, w)
}

// demands reports whether there are parents that do not count in the question. They do not count for
// approvers and holders of capabilities, unless the PDP asks about an approval that the tenant alone
// demands.
func (in *Inquiry) demands(v *bundle.View) bool {
	action := in.Request.Action.Name
	return v.Demanding != nil && !in.demanding && in.review != bundle.ReviewOfTenant &&
		(action == bundle.ApprovalAction || strings.HasPrefix(action, "capability."))
}

// judgeDemand asks a second time what was allowed, without the parents that do not count. Both
// verdicts must be an allow, and the obligations of both are owed: so such a parent can bar, and can
// open nothing.
func (in *Inquiry) judgeDemand(ctx context.Context, w *Verdict) error {
	again := in.keeps.without
	if again == nil {
		again = new(Inquiry)
		if in.keeps.up != nil {
			again.Keep()
		}
		in.keeps.without = again
	}
	keeps := again.keeps
	*again = *in
	again.keeps, again.demanding, again.Converted, again.Renewed = keeps, true, 0, 0
	first := *w
	*w = Verdict{}
	err := again.Judge(ctx, w)
	in.Converted, in.Renewed = in.Converted+again.Converted, in.Renewed+again.Renewed
	if err == nil && w.Decision.Allow {
		applyObligations(&w.Decision, w.join(&first))
	}
	return err
}

// judge puts the request to the policies of the view.
func (in *Inquiry) judge(ctx context.Context, w *Verdict) (err error) {
	if in.Request.Unknown != nil || len(in.Hidden) > 0 {
		return in.judgeUnknown(ctx, w)
	}
	if w.question, err = in.Question(w.view); err != nil {
		return err
	}
	w.Decision.Bundle, w.Decision.Reason = in.Bundle.Digest(), w.question.Reason
	if w.question.Reason != "" {
		return nil
	}
	if err := Authorize(ctx, in.Bundle, w.view, w.question, &w.Decision); err != nil {
		return err
	}
	oblige(w.view, w.question, &w.Decision)
	if in.fulfilsOwn(w.view.Store) {
		denyOwn(&w.Decision)
	}
	return nil
}

// Answer makes the decision of a verdict. The decision is a deny if the PEP did not declare the
// obligations that are owed. It is explained if the inquiry asks for an explanation. It is no allow if
// the request asks what is possible, whatever the verdict is.
func (w *Verdict) Answer(ctx context.Context, in *Inquiry, d *evaluation.Decision) (err error) {
	*d = w.Decision
	if u := w.question.unknown; u != nil {
		in = &u.in
	}
	d.Draft = in.Draft()
	d.Adopted = d.Draft == evaluation.October && in.adopts()
	d.Mismatch = slices.Clone(w.question.misfits)
	SortMismatch(d.Mismatch)
	switch {
	case w.question.Reason == "":
		if err = in.undecidedOwed(d); err != nil {
			return err
		}
		in.denyUnaskable(d)
		in.denyUndeclared(d)
		if in.Explain {
			if d.Explain, err = explain(ctx, w.view, w.question, d, in.Clauses); err == nil {
				d.Explain.Dropped = in.dropped(w.view)
			}
		}
	case in.Explain:
		d.Explain = &evaluation.Explanation{Policies: []evaluation.PolicyExplanation{}, Mismatch: d.Mismatch}
	}
	if in.Request.Unknown != nil {
		d.Allow, d.Possible = false, evaluation.PossibilityOf(d.Allow)
	}
	return err
}

// Decide puts the request to the policies, and makes the decision of their verdict.
func (in *Inquiry) Decide(ctx context.Context, w *Verdict, d *evaluation.Decision) error {
	if err := in.Judge(ctx, w); err != nil {
		return err
	}
	return w.Answer(ctx, in, d)
}

// view returns the bundle as the request's tenant sees it.
func (in *Inquiry) view() (*bundle.View, error) {
	if r := &in.Request; r.Tenant == "" && r.Shape == evaluation.AuthZEN {
		r.Tenant = evaluation.DefaultTenant // a native request must name its own
	}
	v, ok := in.Bundle.Views[in.Request.Tenant]
	switch {
	case !ok && in.Bundle.IsUnavailable(in.Request.Tenant):
		return nil, ErrTenantUnavailable
	case !ok:
		return nil, ErrUnknownTenant
	case in.review != bundle.NoReview || in.demanding:
		reviewed := *v
		if reviewed.Review = in.review; in.demanding {
			reviewed.Store = v.Demanding
		}
		return &reviewed, nil
	}
	return v, nil
}

// Question maps the request onto Cedar. The error is an [*evaluation.Error].
func (in *Inquiry) Question(v *bundle.View) (*Question, error) {
	b, q := in.Bundle, in.newQuestion()
	q.masked = in.Masked
	var ok bool
	if q.Uids, ok = in.uids(); !ok {
		q.Reason = evaluation.UnknownType
		describer{in, v}.unknownTypes(&q.misfits)
		return q, nil
	}
	if err := in.askEntities(v, q); err != nil {
		return nil, err
	}
	context, err := in.contextOf(v, q.Uids[bundle.ActionVar])
	if err != nil {
		return nil, err
	}
	q.Context, q.contextOrigins = in.wholeContext(&context), context.origins
	q.Unusable.of[bundle.ActionVar], q.Unusable.refers = context.unusable, b.Schema != nil
	q.add(context.piece)
	if b.Schema != nil {
		q.add(in.fit(v, q))
	}
	if q.Reason == "" {
		in.Lineages(q)
	}
	return q, nil
}

// uids returns the three variables of the request, as policies name them. It reports false if the
// type of the subject or of the resource is not known.
func (in *Inquiry) uids() (uids [bundle.Variables]types.EntityUID, ok bool) {
	c, r := &in.Bundle.Config, &in.Request
	principal, ok1 := c.EntityType(r.Subject.Type)
	resource, ok2 := c.EntityType(r.Resource.Type)
	return [bundle.Variables]types.EntityUID{
		bundle.PrincipalVar: {Type: principal, ID: types.String(r.Subject.ID)},
		bundle.ActionVar:    {Type: c.ActionType, ID: types.String(r.Action.Name)},
		bundle.ResourceVar:  {Type: resource, ID: types.String(r.Resource.ID)},
	}, ok1 && ok2
}

// contextPiece is the context of a request in Cedar's terms.
type contextPiece struct {
	piece
	origins
	record types.Record
	// open is set in the place of the record if policies can see in the context whom and what a question is about.
	open *openContext
}

// openContext is a context that lacks context.pdp.subject and context.pdp.resource, which differ among questions that
// share all else. Everything in it is converted.
type openContext struct {
	members, pdp types.RecordMap
	weight       int // what it costs to make the record, as so many bytes of JSON that are converted
	who          [2]evaluation.Ref
	record       types.Record // for these two
	made         bool
}

func newOpenContext(members, pdp types.RecordMap) *openContext {
	if members == nil {
		members = types.RecordMap{}
	}
	o := &openContext{members: members, pdp: pdp, weight: 64 + 8*len(members)}
	for _, v := range members {
		if text, ok := v.(types.String); ok { // it is hashed anew; a set and a record know their hashes
			o.weight += len(text) / 16
		}
	}
	return o
}

// wholeContext returns the context of the question.
func (in *Inquiry) wholeContext(c *contextPiece) types.Record {
	o, r := c.open, &in.Request
	if o == nil {
		return c.record
	}
	who := [2]evaluation.Ref{{Type: r.Subject.Type, ID: r.Subject.ID}, {Type: r.Resource.Type, ID: r.Resource.ID}}
	if !o.made || o.who != who {
		o.made, o.who = true, who
		for n, member := range []types.String{"subject", "resource"} {
			if _, seen := o.pdp[member]; seen {
				o.pdp[member] = refRecord(who[n])
			}
		}
		o.members["pdp"] = types.NewRecord(o.pdp)
		o.record = types.NewRecord(o.members) // which copies the members
		in.Renewed += o.weight
	}
	return o.record
}

func refRecord(r evaluation.Ref) types.Record {
	return types.NewRecord(types.RecordMap{"type": types.String(r.Type), "id": types.String(r.ID)})
}

// otherPDP are the members of context.pdp beside the first. Whom and what a question is about is not in them.
var otherPDP = map[string]types.Record{
	"subject":    refRecord(evaluation.Ref{}),
	"resource":   refRecord(evaluation.Ref{}),
	"capability": capabilityRecord(evaluation.Capability{}),
}

func capabilityRecord(c evaluation.Capability) types.Record {
	return types.NewRecord(types.RecordMap{
		"held": types.Boolean(c.Held), "id": types.String(c.ID), "depth": types.Long(c.Depth),
	})
}

func (in *Inquiry) makeContext(v *bundle.View, action types.EntityUID, made *contextPiece) error {
	b, r := in.Bundle, &in.Request
	declared := b.Schema.ContextOf(action)
	m := in.merger(v, "context", declared)
	m.of = bundle.ActionVar
	for name, value := range r.Context.Members {
		switch {
		case evaluation.Protocol(name):
			continue
		case name == "action", name == "pdp":
			return evaluation.Malformed("only the PDP sets this member of the context", "", "context", name)
		}
		if err := m.convertMember(name, value, "context"); err != nil {
			return err
		}
	}
	if err := m.convertMember("action", r.Action.Properties.Value(), "action", "properties"); err != nil {
		return err
	}
	if bundle.SuppliesVia(r) {
		if m.sees(evaluation.ViaMember) {
			m.put(evaluation.ViaMember, types.String(evaluation.ViaAPI))
		}
		m.supplied = append(m.supplied, evaluation.ViaMember)
	}
	made.piece, made.origins = m.piece, m.origins
	if m.sees("pdp") {
		first := declared != nil && len(declared["pdp"].Shape.Members) == bundle.FirstPDPMembers
		pdp := in.ofPDP(&m, v.SeesAllPDP && !first)
		if v.SeesWho && !first {
			made.open = newOpenContext(m.members, pdp)
			return nil
		}
		m.put("pdp", types.NewRecord(pdp))
	}
	made.record = m.record()
	return nil
}

// ofPDP returns the members of context.pdp.
func (in *Inquiry) ofPDP(m *merger, all bool) types.RecordMap {
	pdp := types.RecordMap{}
	sees := func(name string) bool { return m.typed || m.v.Seen.SeesPDP(name) }
	if sees("now") {
		pdp["now"] = types.NewDatetime(in.Now)
	}
	if sees("tenant") {
		pdp["tenant"] = types.String(in.Request.Tenant)
	}
	if sees("caller") {
		pdp["caller"] = types.String(in.Asker.Name)
	}
	if sees("approved") {
		pdp["approved"] = types.Boolean(in.Approved)
	}
	for name, v := range otherPDP {
		if all && sees(name) {
			pdp[types.String(name)] = v
		}
	}
	if in.Capability.Held {
		if _, seen := pdp["capability"]; seen {
			pdp["capability"] = capabilityRecord(in.Capability)
		}
	}
	return pdp
}

// Authorize puts the question to the policies and decides what their answers mean. If ctx ends
// before the last policy was asked, the error is that of ctx.
func Authorize(ctx context.Context, b *bundle.Bundle, v *bundle.View, q *Question, d *evaluation.Decision) error {
	s := scratches.Get().(*bundle.Scratch)
	defer release(s)
	given, counted := PoliciesFor(v, q, s)
	return put(ctx, b, v, q, given, counted, d)
}

// put is [Authorize] with these policies: those to put to cedar-go, and those that count as errored.
func put(
	ctx context.Context, b *bundle.Bundle, v *bundle.View, q *Question, given, counted bundle.PolicyList, d *evaluation.Decision,
) error {
	var result cedar.Decision
	var diagnostic cedar.Diagnostic
	if len(given) > 0 { // without policies it is a deny that nothing determines
		result, diagnostic = cedar.Authorize(policiesUntil{ctx, given}, q.Entities, q.request())
	}
	if err := ctx.Err(); err != nil { // perhaps a forbid was not asked
		return err
	}
	// This is the answer without policies that err: those that count as errored were not put
	// to cedar-go, and those that errored in cedar-go take no part in its answer.
	d.Allow = bool(result)
	for _, r := range diagnostic.Reasons {
		d.Determining = append(d.Determining, string(r.PolicyID))
	}
	blocked := false
	errored := func(p *bundle.Policy, kind evaluation.ErrorKind) {
		d.Errors = append(d.Errors, evaluation.PolicyError{Policy: p.Id, Position: p.Position, Kind: kind})
		blocked = blocked || blocks(b, p, kind)
	}
	for _, p := range counted {
		errored(p, evaluation.UnusableValue)
	}
	for _, e := range diagnostic.Errors {
		p := v.ByID[string(e.PolicyID)]
		if Reads(p, &q.Unusable) {
			errored(p, evaluation.UnusableValue)
		} else {
			errored(p, ErrorKind(e.Message))
		}
	}
	slices.SortFunc(d.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	conclude(v, d, blocked)
	return nil
}

// conclude completes a decision. If it allows and an errored policy blocks, it is denied, and then has no determining
// policies. Otherwise the first determining policy with a reason for the user gives it.
func conclude(v *bundle.View, d *evaluation.Decision, blocked bool) {
	if d.Allow && blocked {
		d.Deny(evaluation.ErroredPolicy)
	}
	for _, id := range d.Determining {
		if text := v.ByID[id].ReasonUser; text != "" {
			d.ReasonUser = text
			break
		}
	}
}

// blocks reports whether an error of a policy denies what others allow.
func blocks(b *bundle.Bundle, p *bundle.Policy, kind evaluation.ErrorKind) bool {
	counts := kind == evaluation.UnusableValue || !b.Config.IgnoreForbidErrors
	return counts && (p.Forbids() || obligesAllow(p))
}

// PoliciesFor returns the policies to put to cedar-go (given), and the policies that count as
// errored because they would look at an unusable value (counted).
func PoliciesFor(v *bundle.View, q *Question, s *bundle.Scratch) (given, counted bundle.PolicyList) {
	file := func(p *bundle.Policy) {
		switch considered := q.Up.Considers(p); {
		case passesOver(v, p), !considered && v.Index != nil:
		case considered && CountsAsErrored(p, &q.Unusable):
			counted = append(counted, p)
		default:
			s.Given = append(s.Given, p)
		}
	}
	for _, n := range v.Index.Find(&q.Up, s) {
		file(v.Policies[n])
	}
	if v.Index == nil { // tests compare the index with this
		for _, p := range v.Policies {
			file(p)
		}
	}
	return s.Given, counted
}

// passesOver reports whether a policy is a permit that does not count. A forbid always counts.
func passesOver(v *bundle.View, p *bundle.Policy) bool {
	return v.Review == bundle.ReviewOfRoot && p.OfTenant() && !p.Forbids()
}

var scratches = sync.Pool{New: func() any { return new(bundle.Scratch) }}

func release(s *bundle.Scratch) {
	clear(s.Given)
	s.Given = s.Given[:0]
	scratches.Put(s)
}

// ErrorKind classifies an error text of cedar-go's evaluator. Nothing else of the text is kept,
// because such texts quote values. Only the beginning of a text counts, because no value stands
// there.
func ErrorKind(text string) evaluation.ErrorKind {
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

// policiesUntil yields policies until ctx ends. The caller must look at ctx afterwards: an answer
// from only some of the policies is not an answer.
type policiesUntil struct {
	ctx      context.Context
	policies bundle.PolicyList
}

// All implements cedar.PolicyIterator.
func (l policiesUntil) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range l.policies {
			if l.ctx.Err() != nil || !yield(p.CedarID, p.Cedar) {
				return
			}
		}
	}
}
