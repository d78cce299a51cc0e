package engine

import (
	"context"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// A request with unknown places ([evaluation.Unknown]) asks what is possible. Each policy is asked by itself what it
// can come to. The answer is an allow unless
//
//   - the request fits no question, whatever the values are: its type, its entity or what is known of it;
//   - a forbid applies with all values, or errs with all of them where an error denies;
//   - no permit can apply;
//   - the obligations of the permits that apply with all values exclude each other or cannot be filled. Whether the PEP
//     declares them makes no difference: it may do so when it asks for the decision.
//
// So no answer is a deny that some values would make an allow. It can be an allow that no values make, because policies
// exclude it together, or because a policy does more with a value than is looked into.

// judgeUnknown is [Inquiry.Judge] for such a request.
func (in *Inquiry) judgeUnknown(ctx context.Context, w *Verdict) error {
	v := w.view
	in.keepUnknown()
	u := &unknowns{in: *in}
	s := settling{in: &u.in, v: v}
	s.settleAll()
	q, err := u.in.Question(v)
	in.Converted, in.Renewed = u.in.Converted, u.in.Renewed
	if err != nil {
		return err
	}
	u.q, u.spots, q.unknown = q, s.spots, u
	w.question, w.Decision.Bundle, w.Decision.Reason = q, in.Bundle.Digest(), q.Reason
	if q.Reason != "" {
		return nil
	}
	u.find()
	u.known = explainer{q: q, request: q.request(), open: u.opens}
	if err := u.authorize(ctx, v, &w.Decision); err != nil {
		return err
	}
	in.denyOwn(v.Store, &w.Decision)
	return nil
}

// authorize asks the policies that read nothing unknown as ever, and each of the others by itself.
func (u *unknowns) authorize(ctx context.Context, v *bundle.View, d *evaluation.Decision) error {
	s := scratches.Get().(*bundle.Scratch)
	defer release(s)
	given, counted := PoliciesFor(v, u.q, s)
	read, known, err := u.divide(ctx, v, given)
	if err != nil {
		return err
	}
	if err := put(ctx, u.in.Bundle, v, u.q, known, counted, d); err != nil {
		return err
	}
	o := outlook{u: u, v: v, d: d}
	o.begin()
	for _, p := range read {
		if err := ctx.Err(); err != nil {
			return err
		}
		o.take(p)
	}
	o.decide()
	return nil
}

// divide finds the policies that read what is unknown, in order of their ids, and the others among the given ones.
func (u *unknowns) divide(ctx context.Context, v *bundle.View, given bundle.PolicyList) (read, known bundle.PolicyList, err error) {
	reads := func(p *bundle.Policy) bool {
		counted := CountsAsErrored(p, u.q.Unusable) && u.q.Up.Considers(p) // whatever the unknown values are
		return u.touches(p) && !counted && !passesOver(v, p)
	}
	all := given
	if u.rise() { // the index knows only some of the ancestors
		all = v.Policies
	}
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if reads(p) {
			read = append(read, p)
		} else if !u.rise() {
			known = append(known, p)
		}
	}
	if u.rise() {
		known = slices.DeleteFunc(given, reads)
	}
	return read, known, nil
}

// verdicts are what a policy can come to, or enough of it.
func (u *unknowns) verdicts(p *bundle.Policy, enough func(verdicts) bool) verdicts {
	all := u.considered(p)
	if !all.may(satisfied) {
		return all
	}
	if CountsAsErrored(p, u.q.Unusable) {
		return all.then(satisfied, errored)
	}
	return all.then(satisfied, u.known.verdicts(u.clauses(p), enough))
}

// outlook is what can become of a request.
type outlook struct {
	u *unknowns
	v *bundle.View
	d *evaluation.Decision
	// forbids and permits apply with all values; others can apply.
	forbids, permits []string
	others           []*bundle.Policy
	blocked          bool // an error denies, with all values
}

// begin takes in the policies that read nothing unknown.
func (o *outlook) begin() {
	for _, id := range slices.Concat(o.d.Determining, o.d.Overruled) {
		if o.v.ByID[id].Forbids() {
			o.forbids = append(o.forbids, id)
		} else {
			o.permits = append(o.permits, id)
		}
	}
	for _, e := range o.d.Errors {
		o.blocked = o.blocked || blocks(o.u.in.Bundle, o.v.ByID[e.Policy], e.Kind)
	}
}

// take takes in a policy that reads what is unknown.
func (o *outlook) take(p *bundle.Policy) {
	var enough func(verdicts) bool
	if p.Forbids() {
		enough = func(all verdicts) bool { return all.may(notSatisfied) }
	}
	all := o.u.verdicts(p, enough)
	errs := all.may(errored)
	switch {
	case p.Forbids() && all.may(notSatisfied): // it may not apply
	case p.Forbids() && !errs:
		o.forbids = append(o.forbids, p.Id)
	case !p.Forbids() && all == satisfied:
		o.permits = append(o.permits, p.Id)
	case !p.Forbids() && all.may(satisfied):
		o.others = append(o.others, p)
	case errs && !all.may(notSatisfied): // whether it errs or, as a forbid, applies, it denies
		kind := o.u.errorOf(p)
		if o.blocked = o.blocked || blocks(o.u.in.Bundle, p, kind); all == errored {
			o.d.Errors = append(o.d.Errors, evaluation.PolicyError{Policy: p.Id, Position: p.Position, Kind: kind})
		}
	}
}

// errorOf is how a policy errs with the values that the question has.
func (u *unknowns) errorOf(p *bundle.Policy) evaluation.ErrorKind {
	if CountsAsErrored(p, u.q.Unusable) || Reads(p, u.q.Unusable) {
		return evaluation.UnusableValue
	}
	return u.known.errorOf(p.Cedar)
}

// decide makes the decision.
func (o *outlook) decide() {
	d := o.d
	slices.SortFunc(d.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	d.Allow, d.Reason, d.ReasonUser, d.Determining, d.Overruled = false, "", "", nil, nil
	switch {
	case len(o.forbids) > 0:
		d.Determining = o.forbids
	case len(o.permits) > 0:
		d.Allow, d.Determining = true, o.permits
		o.oblige(o.permits)
	default:
		o.anyOther()
	}
	slices.Sort(d.Determining)
	if d.Allow && o.blocked {
		d.Deny(evaluation.ErroredPolicy)
	}
	d.Obligations, d.Met = nil, nil // they are owed by whom the decision itself allows
}

// anyOther allows if any of the policies that can apply can do so by itself.
func (o *outlook) anyOther() {
	var refused evaluation.Decision
	for _, p := range o.others {
		alone := outlook{u: o.u, v: o.v, d: &evaluation.Decision{Allow: true, Determining: []string{p.Id}}}
		if alone.oblige(alone.d.Determining); alone.d.Allow {
			o.d.Allow, o.d.Determining = true, append(o.d.Determining, p.Id)
		} else if refused.Reason == "" {
			refused = *alone.d
		}
	}
	if !o.d.Allow {
		o.d.Reason, o.d.Overruled, o.d.LeftOut = refused.Reason, refused.Overruled, refused.LeftOut
	}
}

// oblige denies if the obligations of permits exclude each other or cannot be filled. Those into which an unknown value
// is filled can say anything, also the same as another.
func (o *outlook) oblige(permits []string) {
	var owed []obligations.Owed
	for _, id := range permits {
		for _, d := range o.v.ByID[id].Obliges {
			if !o.u.fills(d) {
				owed = append(owed, obligations.Owed{Definition: d, Policy: id})
			}
		}
	}
	if len(owed) > 0 {
		applyObligations(o.d, obligations.Resolve(true, owed, o.u.q.variable))
	}
}

// Hangs says on which masked places the decision may hang, if a record asked what is possible and masks hide a part of
// it. Beside them are the policies that read them. The decision was made as if nobody had known the values. So if they
// fit, a deny is a deny with each of them, and an allow is one if nothing looks at them.
func (w *Verdict) Hangs() (paths, policies []string) {
	u := w.question.unknown
	if w.question.Reason == evaluation.UnknownType { // then no value was looked at
		return nil, nil
	}
	if w.beside != nil {
		paths, policies = w.beside.Hangs()
	}
	for _, h := range u.in.Hidden {
		own := *u
		own.spots = slices.DeleteFunc(slices.Clone(u.spots), func(s spot) bool { return s.mask != h.At })
		whatever := w.Decision.Reason == "" || w.Decision.Reason == evaluation.OwnRequest || w.question.Reason != ""
		denied := !w.Decision.Allow && whatever // with each of the values
		if u.in.saysWhose(h) && !u.covers(h.At) {
			paths = append(paths, h.At)
			continue
		}
		if u.covers(h.At) || denied && h.Fit == evaluation.Fits {
			continue
		}
		tokens := evaluation.Tokens(h.At)
		context := len(tokens) > 0 && tokens[0] == "context"
		if properties := len(tokens) > 1 && tokens[1] == "properties"; !context && !properties { // nobody knows what it hides
			paths = append(paths, h.At)
			continue
		}
		if len(own.spots) == 0 { // no policy sees it
			continue
		}
		readers := own.readers(w, h.Fit)
		if len(readers) == 0 && (h.Fit == evaluation.Fits || u.in.Bundle.Schema == nil) {
			continue
		}
		paths, policies = append(paths, h.At), append(policies, readers...)
	}
	slices.Sort(paths)
	slices.Sort(policies)
	return slices.Compact(paths), slices.Compact(policies)
}

// covers reports whether a place is within one that was unknown when the question was asked.
func (u *unknowns) covers(at string) bool {
	return slices.ContainsFunc(u.in.Request.Unknown.Pointers(), func(pointer string) bool {
		return at == pointer || strings.HasPrefix(at, pointer+"/")
	})
}

// readers are the policies to which the value of a masked place may make a difference. A value that does not fit makes
// one to whatever names its member.
func (u *unknowns) readers(w *Verdict, fit evaluation.Fit) (ids []string) {
	determining := slices.Concat(w.Decision.Determining, w.Decision.Overruled)
	for _, p := range w.view.Policies {
		reads := u.touches
		if fit != evaluation.Fits {
			reads = u.concerns
		}
		fills := slices.Contains(determining, p.Id) && slices.ContainsFunc(p.Obliges, u.fills)
		if fills || (u.rise() || u.q.Up.Considers(p)) && reads(p) {
			ids = append(ids, p.Id)
		}
	}
	return ids
}
