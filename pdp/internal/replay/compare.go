package replay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// Class says how an answer changes.
type Class string

// The classes, from the one that matters most.
const (
	Widened  Class = "widened"  // a deny is an allow
	Weaker   Class = "weaker"   // an allow lost an obligation, or its approval asks for less
	Narrowed Class = "narrowed" // an allow is a deny, or waits though it was approved
	Stronger Class = "stronger" // an allow got an obligation, or its approval asks for more
	Other    Class = "otherwise"
	Same     Class = "same"
	Unknown  Class = "unknown" // it depends on a value that a mask hides
	Lost     Class = "lost"    // a vote that may not be cast any more; see [Votes]
)

// Classes are those of changes, in that order.
var Classes = []Class{Widened, Weaker, Narrowed, Stronger, Other}

// allows reports whether an answer lets the caller go on, perhaps after an approval.
func allows(answer string) bool {
	return answer == record.Allow || answer == record.Waiting || answer == record.Possible
}

// classOf compares two outcomes. spent says that the first used an approval.
func classOf(was, is Outcome, spent, hidden bool) Class {
	switch {
	case !allows(was.Answer) && allows(is.Answer):
		return Widened
	case allows(was.Answer) && !allows(is.Answer), spent && is.Answer == record.Waiting:
		return Narrowed
	case spent && is.Answer == record.Allow && !is.approved:
		return Weaker
	case allows(was.Answer):
		if class := ofObligations(was.Obligations, is.Obligations, hidden); class != Same {
			return class
		}
	}
	if changed(was, is, hidden) != "" {
		return Other
	}
	return Same
}

// ofObligations compares the obligations of two allows.
func ofObligations(was, is []Obligation, hidden bool) Class {
	lost, got, other := false, false, false
	find := func(in []Obligation, one Obligation) int {
		return slices.IndexFunc(in, func(o Obligation) bool { return o.ID == one.ID && o.Type == one.Type })
	}
	for _, one := range was {
		n := find(is, one)
		if n < 0 {
			lost = true
			continue
		}
		switch change := ofProperties(one, is[n], hidden); change {
		case Weaker:
			lost = true
		case Stronger:
			got = true
		case Other:
			other = true
		}
	}
	for _, one := range is {
		got = got || find(was, one) < 0
	}
	switch {
	case lost:
		return Weaker
	case got:
		return Stronger
	case other:
		return Other
	}
	return Same
}

// stepUp is the type of an obligation that has the person prove more of who they are.
const stepUp = "step-up"

// ofProperties compares what one obligation demands. Where it is not known which of the two demands more, it is weaker.
func ofProperties(was, is Obligation, hidden bool) Class {
	if alike(was.Properties, is.Properties, hidden) {
		return Same
	}
	switch was.Type {
	case stepUp:
		return Weaker
	case obligations.ApprovalRequired:
		a, ok := termsOf(was)
		b, ok2 := termsOf(is)
		if !ok || !ok2 {
			return Weaker
		}
		return ofTerms(a, b)
	}
	return Other
}

func termsOf(o Obligation) (obligations.Terms, bool) {
	properties, err := evaluation.ParseObject(o.Properties, evaluation.DefaultLimits())
	if err != nil {
		return obligations.Terms{}, false
	}
	return obligations.TermsOf(evaluation.Obligation{ID: o.ID, Type: o.Type, Properties: properties})
}

// ofTerms compares two approvals.
func ofTerms(was, is obligations.Terms) Class {
	flag := func(on bool) int64 {
		if on {
			return 1
		}
		return 0
	}
	// each is more if the approval is easier to come by, or goes further
	lighter := [][2]int64{
		{-int64(was.Quorum), -int64(is.Quorum)}, {int64(was.Uses), int64(is.Uses)}, {int64(was.ValidFor), int64(is.ValidFor)},
		{int64(was.Timeout), int64(is.Timeout)}, {int64(was.Rounds), int64(is.Rounds)}, {int64(was.RoundsWithin), int64(is.RoundsWithin)},
		{flag(was.Delegable), flag(is.Delegable)}, {flag(was.SameClient), flag(is.SameClient)}, {-flag(was.Review), -flag(is.Review)},
	}
	less := was.Template != is.Template
	more := false
	for _, two := range lighter {
		less, more = less || two[1] > two[0], more || two[1] < two[0]
	}
	for _, member := range was.Material {
		less = less || !slices.Contains(is.Material, member)
	}
	for _, member := range is.Material {
		more = more || !slices.Contains(was.Material, member)
	}
	switch {
	case less:
		return Weaker
	case more:
		return Stronger
	}
	return Other // its message
}

// Compared says which answers a candidate would change.
type Compared struct {
	Records   int64 `json:"records"`
	Decisions int64 `json:"decisions"`
	// Distinct is how many different questions the decisions were.
	Distinct int64           `json:"distinct"`
	Same     int64           `json:"same"`
	Changed  map[Class]int64 `json:"changed"`
	// Unknown is how many depend on a value that a mask hides, and HiddenBy names these values.
	Unknown    int64               `json:"unknown"`
	HiddenBy   []Dependence        `json:"hidden_by"`
	Incomplete map[string]int64    `json:"incomplete"`
	Examples   map[string][]string `json:"examples"`
	Groups     []*Group            `json:"groups"`
	Votes      Votes               `json:"votes"`
}

// Change is one question, and the answers to it.
type Change struct {
	Recorded *record.Recorded
	Class    Class
	Was, Is  Outcome
	Unknown  *pdp.Unknown
	// Lacks is why it cannot be judged: see [LacksContent] and the others.
	Lacks string
	// Vote is in place of the answers if the record is that of a vote; then the class is Lost, or Same.
	Vote *Vote

	distinct uint64
	leaf     [sha256.Size]byte
}

// answers are those to one question of both bundles.
type answers struct {
	was, is Outcome
	need    *pdp.Unknown
	lacks   string
	// untouched: no policy that differs between the bundles has a part in either.
	untouched bool
}

// mostRemembered is how many different questions are remembered with their answers.
const mostRemembered = 200_000

// comparison compares with one candidate.
type comparison struct {
	base, candidate *pdp.Bundle // base is nil if the answers on record are
	apart           apart
	then            *bundles
	o               *Options
	limits          evaluation.Limits

	mu    sync.Mutex
	known map[[16]byte]answers
}

// Compare asks each question of a log again, of a candidate and of the base; nil is the answers on record. Each change is also given
// to a function, in the order of the log; nil is none.
func Compare(ctx context.Context, from Source, base, candidate *Side, o Options, each func(*Change)) (Compared, error) {
	made := Compared{
		Changed: map[Class]int64{}, Incomplete: map[string]int64{}, Examples: map[string][]string{}, Groups: []*Group{}, Votes: Votes{By: []*LostVotes{}},
	}
	o.votes = true
	c := &comparison{candidate: candidate.Bundle, then: newBundles(from), o: &o, limits: o.limits(), known: map[[16]byte]answers{}}
	if base != nil {
		c.base, c.apart = base.Bundle, apartOf(base, candidate)
	}
	tally := newTally(&made)
	var err error
	made.Records, err = walk(ctx, from, &o, c.judge, func(one *Change) {
		if tally.add(one); each != nil && one.Class != Same {
			each(one)
		}
	})
	tally.finish()
	return made, err
}

func (c *comparison) judge(ctx context.Context, q question) (one *Change, err error) {
	one = &Change{Recorded: q.Recorded, Lacks: q.lacks, Class: Same, leaf: q.leaf}
	switch {
	case q.lacks != "":
	case isVote(q.Recorded):
		if one.Vote, err = c.vote(ctx, q.Recorded); err == nil && one.Vote.lost() {
			one.Class = Lost
		}
	default:
		err = c.compare(ctx, one)
	}
	return one, err
}

func (c *comparison) compare(ctx context.Context, one *Change) (err error) {
	q := one.Recorded
	key := c.keyOf(q)
	one.distinct = binary.BigEndian.Uint64(key[:])
	c.mu.Lock()
	made, known := c.known[key]
	c.mu.Unlock()
	if !known {
		if made, err = c.ask(ctx, q); err != nil {
			return fmt.Errorf("record %d: %w", q.Sequence, err)
		}
		c.mu.Lock()
		if len(c.known) < mostRemembered {
			c.known[key] = made
		}
		c.mu.Unlock()
	}
	one.Was, one.Is, one.Unknown, one.Lacks = made.was, made.is, made.need, made.lacks
	if one.Unknown != nil {
		one.Class = Unknown
	}
	if one.Lacks != "" || one.Unknown != nil || made.untouched {
		return nil
	}
	if c.recorded(q) {
		one.Was = onRecord(q)
	}
	one.Class = classOf(one.Was, one.Is, one.Was.approved, len(q.Masked) > 0 && c.recorded(q))
	return nil
}

// recorded reports whether the answer on record is that of the base.
func (c *comparison) recorded(q *record.Recorded) bool {
	return c.base == nil || c.base.Digest() == q.Bundle && len(q.Details) == 0
}

// keyOf is the same for two questions to which the answers are the same.
func (c *comparison) keyOf(q *record.Recorded) (key [16]byte) {
	now := ""
	if c.candidate.SeesNow(q.Tenant) || c.base != nil && c.base.SeesNow(q.Tenant) || len(q.Discharged) > 0 {
		now = cmp.Or(q.Now, q.Time).String()
	}
	text, _ := json.Marshal(struct {
		Tenant, Caller, Shape, Now, Bundle, Reason string
		Declared, Unknown                          []string
		Registered, Asks, Approved                 bool
		Adopted                                    *bool
		Masked                                     []evaluation.Hidden
		Discharged                                 []evaluation.Met
		Capability                                 *record.Capability
		Mismatch                                   []string
		Details                                    bool
	}{
		q.Tenant, q.Caller, q.Shape, now, q.Bundle, q.Reason, q.Declared, q.Unknown, q.Declared != nil, q.Unknown != nil, q.Approved,
		q.Adopted, q.Masked, q.Discharged, q.Capability, q.Mismatch, len(q.Details) > 0,
	})
	sum := sha256.New()
	sum.Write(text)
	sum.Write(q.Asked)
	return [16]byte(sum.Sum(nil)[:16])
}

// ask asks both bundles.
func (c *comparison) ask(ctx context.Context, q *record.Recorded) (made answers, err error) {
	if made.untouched = c.apart.none; made.untouched {
		return made, nil
	}
	made, err = c.askBoth(ctx, q)
	if made.need != nil && err == nil {
		if made.untouched, err = c.apart.untouched(ctx, q, c.limits); made.untouched {
			made.need = nil
		}
	}
	return made, err
}

func (c *comparison) askBoth(ctx context.Context, q *record.Recorded) (made answers, err error) {
	bound, lacks, err := c.boundThen(ctx, q)
	if made.lacks = lacks; err != nil || lacks != "" {
		return made, unknownOr(err, &made)
	}
	if !c.recorded(q) {
		if made.was, err = c.by(ctx, c.baseOf(q), q, bound, &made); err != nil || made.lacks != "" {
			return made, unknownOr(err, &made)
		}
	}
	made.is, err = c.by(ctx, c.candidate, q, bound, &made)
	return made, unknownOr(err, &made)
}

// unknownOr keeps an answer that depends on a hidden value, which is no failure.
func unknownOr(err error, made *answers) error {
	if errors.As(err, &made.need) {
		return nil
	}
	return err
}

// boundThen is the binding of the approval that a decision used, by the policies of then; nil if it used none.
func (c *comparison) boundThen(ctx context.Context, q *record.Recorded) (bound []byte, lacks string, err error) {
	if len(q.Discharged) == 0 && !q.Approved {
		return nil, "", nil
	}
	b, lacks, err := c.then.of(q)
	if err != nil || lacks != "" {
		return nil, lacks, err
	}
	bound, err = BoundBy(ctx, q, b, c.limits)
	if errors.Is(err, errNoCall) {
		return nil, LacksRequest, nil
	}
	return bound, "", err
}

// errNoCall: no call can be made of a record.
var errNoCall = errors.New("the request cannot be made of the record")

// BoundBy is the binding of the approval that a decision used, by the bundle that decided; nil if it used none.
func BoundBy(ctx context.Context, q *record.Recorded, b *pdp.Bundle, limits evaluation.Limits) ([]byte, error) {
	if len(q.Discharged) == 0 && !q.Approved {
		return nil, nil
	}
	call, err := recorder.CallOf(q, b, limits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCall, err)
	}
	bound, err := pdp.Of(b, pdp.Options{}).Binding(ctx, call)
	if bound == nil && err == nil {
		bound = []byte{} // equal to that of no approval
	}
	return bound, err
}

// baseOf is the base, with the tenant of a question also if that has no files of its own there: nothing but its records says then that
// it was there.
func (c *comparison) baseOf(q *record.Recorded) *pdp.Bundle {
	if c.base.HasTenant(q.Tenant) {
		return c.base
	}
	b, lacks, err := c.then.of(&record.Recorded{Bundle: c.base.Digest(), Tenant: q.Tenant})
	if err != nil || lacks != "" {
		return c.base
	}
	return b
}

func (c *comparison) by(ctx context.Context, b *pdp.Bundle, q *record.Recorded, bound []byte, made *answers) (Outcome, error) {
	call, err := recorder.CallOf(q, b, c.limits)
	switch {
	case err != nil && len(q.Details) > 0:
		return Outcome{Answer: Refused}, nil // it was no request
	case err != nil:
		made.lacks = LacksRequest
		return Outcome{}, nil
	}
	call.Bound = bound
	return ask(ctx, b, call)
}

// Group is the changes with one cause.
type Group struct {
	Class Class   `json:"class"`
	From  Outcome `json:"from"`
	To    Outcome `json:"to"`
	// Cause are the policies that make the difference; see [Compared.Causes].
	Cause     []Cause `json:"cause"`
	Decisions int64   `json:"decisions"`
	Distinct  int64   `json:"distinct"`
	Subjects  []Count `json:"subjects"`
	Resources []Count `json:"resources"`
	Actions   []Count `json:"actions"`
	Tenants   []Count `json:"tenants"`
	First     string  `json:"first"`
	Last      string  `json:"last"`
	// Examples are the ids of the oldest change, of the newest, and of the one whose leaf hash is the smallest: no reader chooses it.
	Examples []string `json:"examples"`

	example  *Change
	smallest [sha256.Size]byte
	chosen   string
	distinct map[uint64]bool
	counts   [4]map[string]int64
}

// Count is a name, and how many decisions have it.
type Count struct {
	Name      string `json:"name"`
	Decisions int64  `json:"decisions"`
}

// The bounds of what a group counts.
const (
	mostNamed   = 10_000 // different names
	mostListed  = 3
	mostInGroup = 1 << 20 // different questions
)

// tally counts changes by group.
type tally struct {
	to       *Compared
	paths    map[string]*Dependence
	groups   map[string]*Group
	distinct map[uint64]struct{}
	lost     map[string]*LostVotes
}

func newTally(to *Compared) *tally {
	return &tally{to: to, paths: map[string]*Dependence{}, groups: map[string]*Group{}, distinct: map[uint64]struct{}{}, lost: map[string]*LostVotes{}}
}

func (t *tally) add(one *Change) {
	if one.Vote != nil {
		t.vote(one)
		return
	}
	if one.Recorded.ID != "" {
		t.to.Decisions++
	}
	switch {
	case one.Lacks != "":
		lacking(t.to.Incomplete, t.to.Examples, one.Lacks, one.Recorded.ID)
		return
	case one.Unknown != nil:
		t.to.Unknown++
		depends(t.paths, one.Unknown)
	case one.Class == Same:
		t.to.Same++
	default:
		t.to.Changed[one.Class]++
		t.group(one)
	}
	t.distinct[one.distinct] = struct{}{}
}

// group adds a change to those with the same cause.
func (t *tally) group(one *Change) {
	from, to := brief(one.Was), brief(one.Is)
	text, _ := json.Marshal([]any{one.Class, from, to})
	g, found := t.groups[string(text)]
	at := one.Recorded.Time.UTC().Format(format.TimeLayout)
	if !found {
		g = &Group{Class: one.Class, From: from, To: to, First: at, example: one, smallest: one.leaf, chosen: one.Recorded.ID, distinct: map[uint64]bool{}}
		for n := range g.counts {
			g.counts[n] = map[string]int64{}
		}
		g.Examples = []string{one.Recorded.ID}
		t.groups[string(text)] = g
	}
	g.Decisions++
	g.Last = at
	if slices.Compare(one.leaf[:], g.smallest[:]) < 0 {
		g.smallest, g.chosen = one.leaf, one.Recorded.ID
	}
	g.Examples = []string{g.Examples[0], one.Recorded.ID}
	if len(g.distinct) < mostInGroup {
		g.distinct[one.distinct] = true
	}
	names := one.Recorded.Names
	for n, name := range []string{
		names.Subject.Type + "/" + names.Subject.ID, names.Resource.Type + "/" + names.Resource.ID, names.Action.Name, one.Recorded.Tenant,
	} {
		if _, known := g.counts[n][name]; known || len(g.counts[n]) < mostNamed {
			g.counts[n][name]++
		}
	}
}

// brief is an outcome without the properties of its obligations: a group has many.
func brief(o Outcome) Outcome {
	o.Obligations = slices.Clone(o.Obligations)
	for n := range o.Obligations {
		o.Obligations[n].Properties = nil
	}
	o.ReasonUser, o.Errors, o.LeftOut = "", nil, nil
	return o
}

// finish puts the groups in order: the class that matters most first, and in it the largest.
func (t *tally) finish() {
	t.to.Distinct = int64(len(t.distinct))
	for _, g := range t.groups {
		g.Distinct = int64(len(g.distinct))
		for n, list := range []*[]Count{&g.Subjects, &g.Resources, &g.Actions, &g.Tenants} {
			*list = []Count{}
			for name, count := range g.counts[n] {
				*list = append(*list, Count{name, count})
			}
			slices.SortFunc(*list, func(a, b Count) int {
				return cmp.Or(cmp.Compare(b.Decisions, a.Decisions), strings.Compare(a.Name, b.Name))
			})
			*list = (*list)[:min(mostListed, len(*list))]
		}
		g.Examples = compact(append(g.Examples, g.chosen))
		t.to.Groups = append(t.to.Groups, g)
	}
	slices.SortFunc(t.to.Groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(slices.Index(Classes, a.Class), slices.Index(Classes, b.Class)), cmp.Compare(b.Decisions, a.Decisions),
			strings.Compare(a.First, b.First), strings.Compare(a.Examples[0], b.Examples[0]))
	})
	t.to.HiddenBy = sorted(t.paths)
	t.to.Votes.finish()
}

// compact takes out ids that are there twice, in any place.
func compact(ids []string) (all []string) {
	for _, id := range ids {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}
