package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/auth"
)

const (
	// decidersAsked bounds about how many people the policies are asked, and mostDeciders how many are named.
	decidersAsked = 1000
	mostDeciders  = 20
)

// Deciders finds other people who may decide, by the way by which the caller would: holders of API keys, people who were named
// by a delegation, and entities of the bundle. It is for people who may decide or have voted. The program that asked
// learns no names, and More says whether any person may decide, by any way. After each person, goOn says whether there is
// time for more.
func (s *Seen) Deciders(ctx context.Context, goOn func(context.Context) error) (d evaluation.Deciders, err error) {
	d.Items = []string{}
	if err := s.sharesView(); err != nil {
		if !s.asked {
			return d, err
		}
		d.More, err = s.decidable(ctx)
		return d, err
	}
	if s.Approval.Status != approval.Pending {
		return d, nil
	}
	people, more, err := s.candidates(ctx)
	if err != nil {
		return d, err
	}
	d.More = more
	known := []auth.Principal{s.by.caller.Principal}
	for n, who := range people {
		may, err := s.mayToo(ctx, who, known)
		if err != nil {
			return d, err
		}
		if may && len(d.Items) == mostDeciders {
			d.More = true
			break
		}
		if may {
			known, d.Items = append(known, who.person), append(d.Items, who.person.String())
		}
		if err := goOn(ctx); err != nil {
			if len(d.Items) == 0 {
				return d, fmt.Errorf("%w: %w", ErrNoTurn, err)
			}
			d.More = d.More || n < len(people)-1
			break
		}
	}
	slices.Sort(d.Items)
	return d, nil
}

// decidable reports whether any person may decide, or just has: the program may not know of it yet. Whom a delegation names, no
// policy has to.
func (s *Seen) decidable(ctx context.Context) (bool, error) {
	if a := s.Approval; a.Status != approval.Pending || len(a.Votes) > 0 {
		return true, nil
	}
	return s.by.options.PDP().Decidable(ctx, s.Approval.Tenant, reviewed(s.Approval))
}

// sharesView refuses callers that see the approval request and are no deciders of it.
func (s *Seen) sharesView() error {
	if s.decides || s.voted {
		return nil
	}
	return s.mayDecide()
}

// mayToo reports whether a person may decide, and is not among the known ones.
func (s *Seen) mayToo(ctx context.Context, who voter, known []auth.Principal) (bool, error) {
	is := func(other auth.Principal) bool { return s.same(other.String(), who.person.String()) }
	if slices.ContainsFunc(known, is) {
		return false, nil
	}
	by := approval.Statement{By: who.person.String()}
	vote := approval.Vote{Statement: by, Caller: who.caller, Kind: approval.Approve}
	if s.by.Store.MayVote(s.Approval, vote, s.same) != nil {
		return false, nil
	}
	may, err := s.by.may(ctx, s.Approval, who)
	return may.decides, err
}

// candidates are the people about whom the policies are asked, and whether there are more. Those of whom it is known that
// they can vote come first. The holder of a key votes by it.
func (s *Seen) candidates(ctx context.Context) (people []voter, more bool, err error) {
	way, seen := s.by.caller.Way, map[auth.Principal]bool{}
	add := func(person auth.Principal, caller string) {
		switch {
		case seen[person] && caller == "":
		case len(people) == decidersAsked:
			more = true
		default:
			seen[person], people = true, append(people, voter{person, caller, way})
		}
	}
	keys, types := s.by.options.Approvers(s.Approval.Tenant)
	for _, key := range keys {
		add(key.Principal, key.Name)
	}
	for _, vote := range s.Approval.Votes {
		if to, err := auth.ParsePrincipal(vote.To); err == nil && vote.Kind == approval.Delegate {
			add(to, "")
		}
	}
	for _, typ := range types {
		ids, others, err := s.entities(ctx, typ)
		if err != nil {
			return nil, false, err
		}
		more = more || others
		for _, id := range ids {
			add(auth.Principal{Type: typ, ID: id}, "")
		}
	}
	return people, more, nil
}

// entities are those of a type in the bundle whom the policies may let decide, and whether there are more.
func (s *Seen) entities(ctx context.Context, typ string) (ids []string, more bool, err error) {
	r, err := s.by.reviewer(s.Approval.Tenant, voter{person: auth.Principal{Type: typ}, way: s.by.caller.Way})
	if errors.Is(err, pdp.ErrUnknownTenant) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	ids, more, err = r.Candidates(ctx, reviewed(s.Approval), decidersAsked)
	if malformed := (*evaluation.Error)(nil); errors.As(err, &malformed) { // no person can have this name
		return nil, false, nil
	}
	return ids, more, err
}

// Previous is the newest approval request before this one that was for the same, was approved or denied by people, and
// that the caller as a person may see. It is for people who may decide or have voted.
func (s *Seen) Previous(ctx context.Context) (v evaluation.ApprovalView, found bool, err error) {
	if err := s.sharesView(); err != nil {
		return v, false, err
	}
	before, found, err := s.by.Store.Previous(ctx, s.Approval, func(one approval.Approval) (bool, error) {
		is, err := s.by.standing(ctx, one)
		return is.decides || is.voted, err
	})
	if err != nil || !found {
		return v, false, err
	}
	return s.ViewOf(ctx, before), true, nil
}
