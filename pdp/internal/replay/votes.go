package replay

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Votes says which votes on record the candidate would not let their people cast. Who stands in for another is not asked about: the
// vote by which the other named them is.
type Votes struct {
	Cast int64 `json:"cast"`
	Lost int64 `json:"lost"`
	// Unknown is how many have no request on record, or one in which a mask hides a name.
	Unknown int64        `json:"unknown"`
	By      []*LostVotes `json:"by"`
}

// LostVotes are votes of one person that have one cause.
type LostVotes struct {
	By       string `json:"by"`
	Tenant   string `json:"tenant"`
	Template string `json:"template"`
	Votes    int64  `json:"votes"`
	// Own says that the candidate takes the request for their own.
	Own   bool    `json:"own,omitzero"`
	Cause []Cause `json:"cause"`
	First string  `json:"first"`
	Last  string  `json:"last"`
	// Examples are the ids of the records of the oldest and of the newest.
	Examples []string `json:"examples"`

	was, is pdp.Review
}

// Vote is a vote on record, and whether it may be cast.
type Vote struct {
	By, Template string

	was, is pdp.Review
	unknown bool
}

// lost reports whether only the candidate refuses the vote.
func (v *Vote) lost() bool { return !v.unknown && v.was.May && !v.is.May }

// recordedVote are the details of the record of a vote, as far as they matter here.
type recordedVote struct {
	By         string         `json:"by"`
	From       string         `json:"from"`
	Via        evaluation.Via `json:"via"`
	Gateway    string         `json:"gateway"`
	Client     evaluation.Ref `json:"client"`
	Approval   string         `json:"approval"`
	Template   string         `json:"template"`
	Requester  string         `json:"requester"`
	Person     string         `json:"person"`
	OfTenant   bool           `json:"of_tenant"`
	SameClient bool           `json:"same_client"`

	NamesHidden bool `json:"names_hidden"`
}

// isVote reports whether a record is that of a vote.
func isVote(r *record.Recorded) bool {
	return r.Kind == format.KindApproval && slices.Contains([]string{"approve", "deny", "delegate"}, r.Event)
}

// vote asks both bundles whether the person of a vote may cast it.
func (c *comparison) vote(ctx context.Context, q *record.Recorded) (*Vote, error) {
	var said recordedVote
	if json.Unmarshal(q.Details, &said) != nil {
		return &Vote{unknown: true}, nil
	}
	person, err := pdp.ParseEntity(said.By)
	if err != nil {
		return &Vote{unknown: true}, nil
	}
	v := &Vote{By: said.By, Template: said.Template}
	if said.From != "" {
		return v, nil
	}
	about, known := c.reviewed(q, &said)
	if v.unknown = !known; v.unknown {
		return v, nil
	}
	who := pdp.Approver{
		Entity: person, Caller: q.Caller,
		Way: evaluation.Way{Via: said.Via, Gateway: said.Gateway, Client: said.Client},
	}
	if v.was.May = true; c.base != nil {
		v.was, err = mayVote(ctx, c.baseOf(q), q, who, about)
	}
	if err == nil {
		v.is, err = mayVote(ctx, c.candidate, q, who, about)
	}
	return v, err
}

// reviewed is what the vote was about, if the record has all of it.
func (c *comparison) reviewed(q *record.Recorded, said *recordedVote) (about pdp.Reviewed, known bool) {
	request, _, err := q.Request(c.limits)
	if err != nil || said.NamesHidden {
		return about, false
	}
	about = pdp.Reviewed{
		ID: said.Approval, Template: said.Template, Action: request.Action.Name,
		Subject: request.Subject.Ref(), Resource: request.Resource.Ref(),
		Asker: said.Requester, Person: said.Person, OfTenant: said.OfTenant, SameClient: said.SameClient,
	}
	about.Actors, known = request.Actors()
	return about, known
}

func mayVote(ctx context.Context, b *pdp.Bundle, q *record.Recorded, who pdp.Approver, about pdp.Reviewed) (pdp.Review, error) {
	at := cmp.Or(q.Now, q.Time)
	r, err := pdp.Of(b, pdp.Options{Now: func() time.Time { return at }}).Reviewer(q.Tenant, who)
	var review pdp.Review
	if err == nil {
		review, err = r.Review(ctx, about)
	}
	if refuses(err) {
		return pdp.Review{}, nil
	}
	return review, err
}

// vote counts a vote.
func (t *tally) vote(one *Change) {
	v, all := one.Vote, &t.to.Votes
	all.Cast++
	if v.unknown {
		all.Unknown++
	}
	if !v.lost() {
		return
	}
	all.Lost++
	at := one.Recorded.Time.UTC().Format(format.TimeLayout)
	key, _ := json.Marshal([]any{v.By, one.Recorded.Tenant, v.Template, v.is.Own, v.was.Determining, v.is.Determining})
	l, found := t.lost[string(key)]
	if !found {
		l = &LostVotes{
			By: v.By, Tenant: one.Recorded.Tenant, Template: v.Template, Own: v.is.Own, First: at, Examples: []string{one.Recorded.ID},
			Cause: []Cause{}, was: v.was, is: v.is,
		}
		all.By, t.lost[string(key)] = append(all.By, l), l
	}
	l.Votes++
	l.Last, l.Examples = at, compact([]string{l.Examples[0], one.Recorded.ID})
}

// finish puts those who lost the most votes first.
func (all *Votes) finish() {
	slices.SortStableFunc(all.By, func(a, b *LostVotes) int {
		return cmp.Or(cmp.Compare(b.Votes, a.Votes), strings.Compare(a.By, b.By), strings.Compare(a.First, b.First))
	})
}

// cause says which policies refuse the votes, or permit them no more.
func (l *LostVotes) cause(base, candidate *Side, changes map[policyKey]PolicyChange) {
	f := finder{base: base, candidate: candidate, changes: changes, tenant: l.Tenant}
	switch {
	case l.Own:
	case len(l.is.Determining) > 0:
		l.Cause = f.all(l.is.Determining, candidate, func(effect string) Does {
			if effect == "forbid" {
				return Forbids
			}
			return ObligesNow // nobody could meet an obligation of a vote
		})
	default:
		l.Cause = append(l.Cause, f.all(l.was.Determining, base, noMore)...)
	}
}
