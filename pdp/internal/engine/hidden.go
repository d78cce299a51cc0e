package engine

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// A request from a record can have places where the value that was sent is not known any more. What
// the policies make of it is known all the same if every value leads to the same decision. Nobody
// can try every value. But a policy can tell values apart only by what it compares them with. So for
// each place a few values stand for all others: of any value there is, one of these is in all
// comparisons as that one. Then the request is decided once for every combination of such values;
// each combination is a [World].
//
// Some policies do more with a value than to compare it. Of such a policy each verdict is tried that
// its other parts leave open.

// The most that is tried: so many combinations, and requests of so much in all. That takes a few
// seconds at the worst.
const (
	mostWorlds = 1 << 13
	mostWeight = 64 << 20
)

// weight is what it costs to convert a value, about as many bytes.
func weight(v evaluation.Value) int {
	n := 64 + len(v.Text())
	for name, member := range v.Object().Members {
		n += len(name) + weight(member)
	}
	for _, e := range v.Elements {
		n += weight(e)
	}
	return n
}

// World is one way in which a request with hidden values can have been asked.
type World struct {
	Request evaluation.Request
	// Given has the verdicts that are tried of policies whose verdict nobody can know.
	Given Given
	at    []int // by place, then by verdict: which one this world has
}

// Given are the policies to ask in the place of others, by whether the question is put as
// approved. A nil policy never applies.
type Given [2]map[string]*bundle.Policy

// of are the policies to ask for one question.
func (g *Given) of(approved bool) map[string]*bundle.Policy {
	if approved {
		return g[1]
	}
	return g[0]
}

// Worlds are all ways in which a request with hidden values can have been asked, as far as the
// policies can tell them apart.
type Worlds struct {
	All []World
	// Filled are the obligations into which a hidden value is filled: their properties as the
	// bundle has them, by the names of the obligations.
	Filled map[string]evaluation.Object
	// Open are the policies whose verdict was tried, because nobody can know it.
	Open map[string]bool

	places []*place
	forced []forced
	alike  []alikeObligations
}

// alikeObligations are two obligations that may say the same, and so be one, with some value at a
// place.
type alikeObligations struct {
	place      *place
	one, other string
}

// Answered takes in the decision of a world. If two obligations come with it of which nobody can
// know whether they are one, the answer is unknown.
func (w *Worlds) Answered(d *evaluation.Decision) {
	comes := func(name string) bool {
		return slices.ContainsFunc(d.Obligations, func(o evaluation.Obligation) bool { return o.ID == name }) ||
			slices.ContainsFunc(d.LeftOut, func(o evaluation.LeftOut) bool { return o.ID == name })
	}
	for _, a := range w.alike {
		a.place.unknowable = a.place.unknowable || comes(a.one) && comes(a.other)
	}
}

// forced is a policy of which each possible verdict is tried, for one question.
type forced struct {
	policy   *bundle.Policy
	approved bool
	clauses  []*condition
}

// Worlds finds the ways in which the request can have been asked, if its values at the hidden
// places are not known. approved says whether it will be put as approved, too. If nobody could find
// all of them, because they are too many or depend on too much, there is none in All, and Hinges
// says why.
func (in *Inquiry) Worlds(ctx context.Context, hidden []evaluation.Hidden, approved bool) (*Worlds, error) {
	if in.Bundle == nil {
		return nil, ErrNoBundle
	}
	v, err := in.view()
	if err != nil {
		return nil, err
	}
	h := hiding{in: *in, v: v}
	h.findPlaces(hidden)
	if h.q, err = h.in.Question(v); err != nil {
		return nil, err
	}
	if h.q.Reason == evaluation.UnknownType { // then no value was looked at
		return &Worlds{All: []World{{Request: h.in.Request}}}, nil
	}
	w := &Worlds{places: h.places, Filled: map[string]evaluation.Object{}, Open: map[string]bool{}}
	if h.q.Reason == "" {
		h.readPolicies(w)
	}
	if slices.ContainsFunc(h.places, func(p *place) bool { return p.unknowable }) {
		return w, nil
	}
	for _, p := range h.places {
		p.complete(&h)
	}
	if err := h.enumerate(ctx, w, approved); err != nil {
		return nil, err
	}
	return w, nil
}

// hiding is a question with hidden places.
type hiding struct {
	in     Inquiry
	v      *bundle.View
	q      *Question // with some value at each place
	one    bool      // one entity is both subject and resource
	places []*place
	asked  []*bundle.Policy // of which each possible verdict is tried
	owed   []string         // types of obligations that the PEP may have declared in a hidden place
	// misfits are the members in one of whose places a value is tried that does not fit.
	misfits []string
}

// candidates are the policies that can matter: those that the question considers, or all of them if
// a hidden value gives parents.
func (h *hiding) candidates() bundle.PolicyList {
	if slices.ContainsFunc(h.places, func(p *place) bool { return p.parent != "" }) {
		return h.v.Policies
	}
	s := new(bundle.Scratch)
	given, counted := PoliciesFor(h.v, h.q, s)
	return slices.Concat(given, counted)
}

// readPolicies finds what the policies compare the hidden values with, and which policies do more
// with them.
func (h *hiding) readPolicies(w *Worlds) {
	candidates, demands := h.candidates(), h.in.demands(h.v)
	if demands { // some parents count in one of two verdicts
		h.unsettleParents()
	}
	uses := make([][]use, len(candidates))
	for n, p := range candidates {
		uses[n] = usesOfPolicy(p)
		if slices.ContainsFunc(p.Terms(), h.asksForOthers) {
			h.unsettleParents()
		}
		for _, u := range uses[n] {
			for _, place := range h.places {
				if h.touches(place, u) == compares {
					h.collect(place, u)
				}
			}
		}
	}
	h.readTemplates(candidates, w)
	for _, place := range h.places {
		place.findValues(h)
	}
	for n, p := range candidates {
		open := false
		for _, place := range h.places {
			for _, u := range uses[n] {
				if how := h.touches(place, u); how != untouched {
					place.readers[p.Id] = true
					if how == opens {
						place.openIn[p.Id], open = true, true
						place.unknowable = place.unknowable || demands // it may come to one thing and to another
					}
				}
			}
		}
		if open {
			h.asked, w.Open[p.Id] = append(h.asked, p), true
		}
	}
}

// asksForOthers reports whether a term asks for an entity among the ancestors of another that is
// neither in the request nor named by the policy.
func (h *hiding) asksForOthers(t *bundle.Term) bool {
	if t.Op == bundle.OpIn {
		asked, plain := operands(t.Args[len(t.Args)-1], nil)
		if slices.ContainsFunc(t.Args, h.asksForOthers) {
			return true
		}
		return !plain || slices.ContainsFunc(asked, func(t *bundle.Term) bool {
			return t.Op == bundle.OpPath && len(t.Path.Names) > 0 && (t.Path.Root != "context" || h.in.Bundle.Schema != nil)
		})
	}
	return slices.ContainsFunc(t.Args, h.asksForOthers)
}

// unsettleParents gives up the values that give parents: more ids make a difference than are known.
func (h *hiding) unsettleParents() {
	for _, p := range h.places {
		p.unknowable = p.unknowable || p.parent != ""
	}
}

// opens reports whether nobody can know what a clause with this use comes to.
func (h *hiding) opens(u use) bool {
	return slices.ContainsFunc(h.places, func(p *place) bool { return h.touches(p, u) == opens })
}

// opensCondition is the same for a condition.
func (h *hiding) opensCondition(c *condition) bool { return slices.ContainsFunc(c.uses, h.opens) }

// enumerate makes the worlds.
func (h *hiding) enumerate(ctx context.Context, w *Worlds, approved bool) error {
	for _, p := range h.asked {
		clauses := conditionsOf(p)
		w.forced = append(w.forced, forced{p, false, clauses})
		if approved {
			w.forced = append(w.forced, forced{p, true, clauses})
		}
	}
	all := 0
	for _, o := range []evaluation.Object{
		h.in.Request.Subject.Properties, h.in.Request.Action.Properties, h.in.Request.Resource.Properties, h.in.Request.Context,
	} {
		all += weight(o.Value())
	}
	most := max(1, min(mostWorlds, mostWeight/all))
	at := make([]int, len(h.places))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		request := h.in.Request
		for n, p := range h.places {
			if len(p.values) > 1 { // else the value is there already
				request = request.Put(p.At, p.values[at[n]])
			}
		}
		h.enumerateVerdicts(w, request, slices.Clone(at), most)
		if len(w.All) > most {
			w.All = nil
			return nil
		}
		if !next(at, func(n int) int { return len(h.places[n].values) }) {
			return nil
		}
	}
}

// next goes on to the next combination of indexes. It reports false after the last one. Each index is
// below its own length.
func next(at []int, length func(n int) int) bool {
	for n := range at {
		if at[n]++; at[n] < length(n) {
			return true
		}
		at[n] = 0
	}
	return false
}

// enumerateVerdicts makes the worlds of one request: one for each combination of verdicts.
func (h *hiding) enumerateVerdicts(w *Worlds, request evaluation.Request, at []int, most int) {
	possible := make([][]evaluation.Verdict, len(w.forced))
	for n, f := range w.forced {
		in := h.in
		in.Request, in.Approved = request, f.approved
		q, err := in.Question(h.v)
		if err == nil && q.Reason == "" {
			e := explainer{q: q, request: q.request(), open: h.opensCondition}
			possible[n] = e.verdicts(f.clauses, nil).list()
		}
	}
	choice := make([]int, len(possible))
	for len(w.All) <= most {
		world := World{Request: request, at: slices.Concat(at, choice)}
		for n, all := range possible {
			if len(all) < 2 { // then the policy itself says so
				continue
			}
			f, given := w.forced[n], &world.Given[0]
			if f.approved {
				given = &world.Given[1]
			}
			if *given == nil {
				*given = map[string]*bundle.Policy{}
			}
			(*given)[f.policy.Id] = withVerdict(f.policy, all[choice[n]])
		}
		w.All = append(w.All, world)
		if !next(choice, func(n int) int { return len(possible[n]) }) {
			return
		}
	}
}

// withVerdict returns a policy that has this verdict of every question, in the place of another.
func withVerdict(p *bundle.Policy, v evaluation.Verdict) *bundle.Policy {
	if v == evaluation.NotSatisfied {
		return nil
	}
	stand := *p
	stand.Cedar = standIns[standIn{p.Forbids(), v}]
	return &stand
}

type standIn struct {
	forbids bool
	verdict evaluation.Verdict
}

var standIns = map[standIn]*cedar.Policy{
	{false, evaluation.Satisfied}: mustParse(`permit (principal, action, resource);`),
	{true, evaluation.Satisfied}:  mustParse(`forbid (principal, action, resource);`),
	{false, evaluation.Errored}:   mustParse(`permit (principal, action, resource) when { 1 < true };`),
	{true, evaluation.Errored}:    mustParse(`forbid (principal, action, resource) when { 1 < true };`),
}

func mustParse(text string) *cedar.Policy {
	var p cedar.Policy
	if err := p.UnmarshalCedar([]byte(text)); err != nil {
		panic(err)
	}
	return &p
}

// Hinges says on which places the decision hangs, if the worlds have these answers: places of
// which two values give two answers while all else stays the same. Beside them are the policies
// that read them. Both are in order. There are none if all answers are the same. proved is false if
// the two values were not found, but only nobody can know that there are none.
func (w *Worlds) Hinges(answers []string) (paths, policies []string, proved bool) {
	hang, readers := map[string]bool{}, map[string]bool{}
	hangsOn := func(p *place) {
		hang[p.At] = true
		maps.Copy(readers, p.readers)
	}
	for _, p := range w.places {
		if p.unknowable {
			hangsOn(p)
		}
	}
	if len(hang) == 0 && len(w.All) > 0 && !slices.ContainsFunc(answers, func(a string) bool { return a != answers[0] }) {
		return nil, nil, true
	}
	proved = len(w.forced) == 0 && len(hang) == 0 && len(w.All) > 0
	for n := range len(w.places) + len(w.forced) {
		if len(w.All) == 0 || n < len(w.places) && len(w.places[n].values) < 2 || !w.matters(n, answers) {
			continue
		}
		if n < len(w.places) {
			hangsOn(w.places[n])
			continue
		}
		for _, p := range w.places {
			if p.openIn[w.forced[n-len(w.places)].policy.Id] {
				hangsOn(p)
			}
		}
	}
	if len(hang) == 0 { // they make a difference only together, or there are too many to try
		proved = false
		for _, p := range w.places {
			if len(p.values) > 1 || len(p.openIn) > 0 {
				hangsOn(p)
			}
		}
	}
	return slices.Sorted(maps.Keys(hang)), slices.Sorted(maps.Keys(readers)), proved
}

// matters reports whether two worlds that differ in this alone have two answers.
func (w *Worlds) matters(n int, answers []string) bool {
	first := map[string]string{}
	var key []byte
	for i, world := range w.All {
		key = key[:0]
		for m, at := range world.at {
			if m != n && (m >= len(w.places) || len(w.places[m].values) > 1) {
				key = binary.AppendUvarint(key, uint64(at))
			}
		}
		k := string(key)
		if answer, known := first[k]; known && answer != answers[i] {
			return true
		}
		first[k] = answers[i]
	}
	return false
}
