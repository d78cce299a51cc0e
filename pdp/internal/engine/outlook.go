package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// Of a request with places that are not known, each policy is asked by itself for all verdicts that are possible. Two
// questions are answered so.
//
// What is possible ([evaluation.Unknown])? The answer is an allow unless
//
//   - the request fits no question, whatever the values are: its type, its entity or its known parts;
//   - a forbid applies with all values, or errs with all of them where an error denies;
//   - no permit can apply;
//   - the obligations of the permits that apply with all values exclude each other or cannot be filled. Whether the PEP
//     declares them makes no difference: it may do so when it asks for the decision.
//
// So no answer is a deny that some values would make an allow. It can be an allow that no values make, because policies
// exclude it together, or because a policy does more with a value than is looked into.
//
// What was decided, if a mask hides places of a request on record? The answer is the decision if all possible verdicts
// lead to it, and else an [Unknown]. So no answer is certain that another value changes. It can be an [Unknown] although
// no value changes it.

// Unknown is the error of [Inquiry.Judge] if the decision may depend on values that masks hide.
type Unknown struct {
	// Paths are the places, JSON Pointers into the request in the AuthZEN shape, in order.
	Paths []string
	// Policies are the ids of the policies that read them, in order.
	Policies []string
}

// Error implements error.
func (u *Unknown) Error() string {
	text := "the decision may depend on what is masked at " + quoteAll(u.Paths)
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

// add adds a place, and the policies that read it.
func (u *Unknown) add(at string, policies ...string) {
	u.Paths, u.Policies = append(u.Paths, at), append(u.Policies, policies...)
}

// asError is nil if the decision depends on no place.
func (u *Unknown) asError() error {
	if len(u.Paths) == 0 {
		return nil
	}
	slices.Sort(u.Paths)
	slices.Sort(u.Policies)
	u.Paths, u.Policies = slices.Compact(u.Paths), slices.Compact(u.Policies)
	return u
}

// judgeUnknown is [Inquiry.Judge] for a request with places that are not known.
func (in *Inquiry) judgeUnknown(ctx context.Context, w *Verdict) error {
	v := w.view
	in.keepUnknown()
	u := &unknowns{in: *in}
	s := settling{in: &u.in, v: v}
	s.settleAll()
	q, err := u.in.Question(v)
	in.Converted, in.Renewed, in.keeps.looked = u.in.Converted, u.in.Renewed, u.in.keeps.looked
	if err != nil {
		return err
	}
	u.q, u.places, q.unknown = q, s.places, u
	w.question, w.Decision.Bundle, w.Decision.Reason = q, in.Bundle.Digest(), q.Reason
	if q.Reason == evaluation.UnknownType { // then no value was looked at
		return nil
	}
	if q.Reason == "" {
		u.find()
		u.known = explainer{q: q, request: q.request(), open: u.opens}
	}
	if err := u.doubts(v, s.unsure); err != nil || q.Reason != "" {
		return err
	}
	own := in.fulfilsOwn(v.Store)
	if err := u.authorize(ctx, v, own, &w.Decision); err != nil {
		return err
	}
	if own {
		denyOwn(&w.Decision)
	}
	return nil
}

// doubts finds the masked places on which any answer hangs: those that are unsure, and those whose value may not fit the
// schema, unless the rest of the request does not fit it anyway.
func (u *unknowns) doubts(v *bundle.View, unsure []string) error {
	for _, p := range u.places {
		if p.misfits && u.in.Bundle.Schema != nil && u.q.Reason != evaluation.SchemaMismatch {
			unsure = append(unsure, p.hidden.At)
		}
	}
	var hangs Unknown
	for n := range u.in.Hidden {
		h := &u.in.Hidden[n]
		if !slices.Contains(unsure, h.At) {
			continue
		}
		if hangs.add(h.At); u.q.Reason == "" {
			hangs.Policies = append(hangs.Policies, idsOf(v.Policies, u.hiddenAt(h).touches)...)
		}
	}
	return hangs.asError()
}

// idsOf are the ids of the policies of a kind.
func idsOf(policies []*bundle.Policy, are func(*bundle.Policy) bool) (ids []string) {
	for _, p := range policies {
		if are(p) {
			ids = append(ids, p.Id)
		}
	}
	return ids
}

// hangOn is the error for the masked places that any of the policies reads: there is one if there are policies.
func (u *unknowns) hangOn(policies []*bundle.Policy) error {
	var hangs Unknown
	for n := range u.in.Hidden {
		own := u.hiddenAt(&u.in.Hidden[n])
		reads := func(p *bundle.Policy) bool { return own.touches(p) || slices.ContainsFunc(p.Obliges, own.fills) }
		if ids := idsOf(policies, reads); len(ids) > 0 {
			hangs.add(u.in.Hidden[n].At, ids...)
		}
	}
	if len(policies) > 0 && len(hangs.Paths) == 0 {
		for _, h := range u.in.Hidden {
			hangs.add(h.At)
		}
	}
	return hangs.asError()
}

// authorize asks the policies that read nothing unknown as ever, and each of the others by itself.
func (u *unknowns) authorize(ctx context.Context, v *bundle.View, own bool, d *evaluation.Decision) error {
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
	o := outlook{u: u, v: v, d: d, possible: u.in.Request.Unknown != nil, own: own}
	o.begin()
	for _, p := range read {
		if err := ctx.Err(); err != nil {
			return err
		}
		o.take(p)
	}
	slices.SortFunc(d.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	d.Allow, d.Reason, d.ReasonUser, d.Determining, d.Overruled = false, "", "", nil, nil
	if o.possible {
		return o.decidePossible()
	}
	return o.decide()
}

// divide finds the policies that read what is unknown, in order of their ids, and the others among the given ones.
func (u *unknowns) divide(ctx context.Context, v *bundle.View, given bundle.PolicyList) (read, known bundle.PolicyList, err error) {
	reads := func(p *bundle.Policy) bool {
		counted := CountsAsErrored(p, &u.q.Unusable) && u.q.Up.Considers(p) // whatever the unknown values are
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

// verdicts are the possible verdicts of a policy, or enough of them.
func (u *unknowns) verdicts(p *bundle.Policy, enough func(verdicts) bool) verdicts {
	all := u.considered(p)
	if !all.may(satisfied) {
		return all
	}
	if CountsAsErrored(p, &u.q.Unusable) {
		return all.then(satisfied, errored)
	}
	if all = all.then(satisfied, u.known.verdicts(u.clauses(p), enough)); CountsAsErrored(p, &u.unusable) {
		all |= errored
	}
	return all
}

// outlook is what the policies that read nothing unknown say, and what the others may say.
type outlook struct {
	u        *unknowns
	v        *bundle.View
	d        *evaluation.Decision
	possible bool // the question is what is possible
	own      bool // it is denied for who fulfils it; see own.go
	// forbids and permits apply with all values. Of the others, these may apply, or may err so that it denies.
	forbids, permits               []string
	mayForbid, mayPermit, mayBlock []*bundle.Policy
	blocked                        bool // an error denies, with all values
	barred                         bool // an error denies, or else a forbid
}

// begin takes in the policies that read nothing unknown.
func (o *outlook) begin() {
	for _, id := range slices.Concat(o.d.Determining, o.d.Overruled) {
		o.applies(o.v.ByID[id])
	}
	for _, e := range o.d.Errors {
		o.blocked = o.blocked || blocks(o.u.in.Bundle, o.v.ByID[e.Policy], e.Kind)
	}
}

// applies takes in a policy that applies with all values.
func (o *outlook) applies(p *bundle.Policy) {
	if p.Forbids() {
		o.forbids = append(o.forbids, p.Id)
	} else {
		o.permits = append(o.permits, p.Id)
	}
}

// take takes in a policy that reads what is unknown.
func (o *outlook) take(p *bundle.Policy) {
	var enough func(verdicts) bool
	if p.Forbids() && o.possible { // a forbid that may not apply makes no difference
		enough = func(all verdicts) bool { return all.may(notSatisfied) }
	}
	all := o.u.verdicts(p, enough)
	switch {
	case all == satisfied:
		o.applies(p)
	case all.may(satisfied) && p.Forbids():
		o.mayForbid = append(o.mayForbid, p)
	case all.may(satisfied):
		o.mayPermit = append(o.mayPermit, p)
	}
	if !all.may(errored) {
		return
	}
	if p.Forbids() || obligesAllow(p) {
		o.mayBlock = append(o.mayBlock, p)
	}
	if all.may(notSatisfied) || all != errored && !p.Forbids() {
		return
	}
	kind := o.u.errorOf(p)
	denies := blocks(o.u.in.Bundle, p, kind)
	o.barred = o.barred || denies
	if all == errored {
		o.blocked = o.blocked || denies
		o.d.Errors = append(o.d.Errors, evaluation.PolicyError{Policy: p.Id, Position: p.Position, Kind: kind})
	}
}

// errorOf is how a policy errs with the values that the question has.
func (u *unknowns) errorOf(p *bundle.Policy) evaluation.ErrorKind {
	if CountsAsErrored(p, &u.q.Unusable) || Reads(p, &u.q.Unusable) {
		return evaluation.UnusableValue
	}
	return u.known.errorOf(p.Cedar)
}

// decide makes the decision that all values lead to.
func (o *outlook) decide() error {
	d := o.d
	// What a policy says besides its effect is a part of the answer too.
	says := func(p *bundle.Policy) bool { return p.ReasonUser != "" || len(p.Obliges) > 0 }
	saying := func(all []*bundle.Policy) (some []*bundle.Policy) {
		return slices.DeleteFunc(slices.Clone(all), func(p *bundle.Policy) bool { return !says(p) })
	}
	permits := slices.Clone(o.mayPermit)
	for _, id := range o.permits {
		permits = append(permits, o.v.ByID[id])
	}
	var hangs []*bundle.Policy
	switch open := slices.Concat(o.mayForbid, o.mayPermit, o.mayBlock); {
	case o.own && len(o.forbids) == 0 && len(saying(permits))+len(saying(o.mayForbid)) == 0: // it is denied, whatever applies
		return nil
	case len(o.forbids) > 0:
		d.Determining, hangs = o.forbids, saying(o.mayForbid)
	case len(o.mayForbid) > 0 && len(permits) > 0:
		hangs = open
	case len(o.mayForbid) > 0: // it is denied, by a forbid or by default
		hangs = saying(o.mayForbid)
	case len(o.permits) == 0:
		hangs = o.mayPermit
	case o.blocked:
		d.Allow, d.Determining = true, o.permits
	default:
		d.Allow, d.Determining, hangs = true, o.permits, append(saying(o.mayPermit), o.mayBlock...)
	}
	slices.Sort(d.Determining)
	for _, id := range d.Determining {
		if p := o.v.ByID[id]; slices.ContainsFunc(p.Obliges, o.u.fills) {
			hangs = append(hangs, p)
		}
	}
	if err := o.u.hangOn(hangs); err != nil {
		return err
	}
	conclude(o.v, d, o.blocked)
	oblige(o.v, o.u.q, d)
	return nil
}

// decidePossible decides what is possible.
func (o *outlook) decidePossible() error {
	d := o.d
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
	if d.Allow && (o.blocked || o.barred) {
		d.Deny(evaluation.ErroredPolicy)
	}
	d.Obligations, d.Met = nil, nil // they are owed where the decision itself allows
	return o.hangsOnMasked()
}

// anyOther allows if any of the policies that can apply can do so by itself.
func (o *outlook) anyOther() {
	var refused evaluation.Decision
	for _, p := range o.mayPermit {
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

// hangsOnMasked is the error for the masked places that anything looks at, if the question is what is possible: it was
// asked by a caller that knew the values. A deny without a reason of its own is one with each value that fits.
func (o *outlook) hangsOnMasked() error {
	var hangs Unknown
	u, d := o.u, o.d
	denied := o.own || !d.Allow && d.Reason == ""
	determining := slices.Concat(d.Determining, d.Overruled)
	for n := range u.in.Hidden {
		h := &u.in.Hidden[n]
		own, fits := u.hiddenAt(h), h.Fit == evaluation.Fits
		if len(own.places) == 0 || denied && fits {
			continue
		}
		ids := idsOf(o.v.Policies, func(p *bundle.Policy) bool {
			fills := slices.Contains(determining, p.Id) && slices.ContainsFunc(p.Obliges, own.fills)
			return fills || (own.rise() || u.q.Up.Considers(p)) && (fits && own.touches(p) || !fits && own.concerns(p))
		})
		if len(ids) > 0 {
			hangs.add(h.At, ids...)
		}
	}
	return hangs.asError()
}

// undecidedOwed is the error for the masked places that decide whether an obligation can be owed: where the PEP declares
// types of obligations, and, if people are to be asked for an approval, where the request names actors.
func (in *Inquiry) undecidedOwed(d *evaluation.Decision) error {
	october := in.Draft() == evaluation.October
	if !d.Allow && !october || len(d.Obligations) == 0 {
		return nil
	}
	var hangs Unknown
	asks := d.Allow && slices.ContainsFunc(d.Obligations, owesApproval)
	missing := obligations.Missing(d.Obligations, in.declared())
	declarable := func(typ string) bool { return !in.Asker.Registered || slices.Contains(in.Asker.Obligations, typ) }
	for _, h := range in.Hidden {
		tokens := evaluation.Tokens(h.At)
		if len(tokens) == 0 || tokens[0] != "context" {
			continue
		}
		whole := len(tokens) == 1
		actor := !whole && evaluation.NamesActors(tokens[1]) && !(h.At == "/context/"+agentMember && h.Type == "string")
		declares := whole || tokens[1] == evaluation.SupportedMember && slices.ContainsFunc(missing, declarable) || tokens[1] == evaluation.ExtensionsMember && october
		if asks && (whole || actor) || declares && !in.allowsUndeclared() {
			hangs.add(h.At)
		}
	}
	return hangs.asError()
}
