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
	// inboxLooked and inboxBytes bound the work of one page: a page may be short, and then the next one goes on.
	// inboxAtOnce is how many approval requests are read at once.
	inboxLooked = 250
	inboxBytes  = 1 << 20
	inboxAtOnce = 25
)

// ErrNoTurn is returned if there was no time to make a page.
var ErrNoTurn = errors.New("there was no time to make a page")

// Query picks the approval requests of an [Inbox]. An empty member picks all.
type Query struct {
	approval.Filter
	Template, Subject, Resource, Action string
	// Voted is which ones: those that the caller has voted on, or those that the caller has not, or whose vote has passed; nil:
	// both.
	Voted *bool
	// Cursor is the Next of the page before, and Limit how many approval requests a page has.
	Cursor string
	Limit  int
}

// Inbox is a page of the approval requests that an approver may decide about, or has voted on.
type Inbox struct {
	Items []evaluation.ApprovalView `json:"items"`
	// Next is where the next page begins, "" if there is none.
	Next string `json:"next"`
}

// Inbox makes a page for an approver. Each time an approval request was looked at, goOn says whether there is time for
// more. If there is none the page ends, unless it would be where it began: then the error is [ErrNoTurn].
func (b *Broker) Inbox(
	ctx context.Context, caller auth.Caller, q Query, goOn func(context.Context) error,
) (page Inbox, err error) {
	v := b.approver(caller)
	page = Inbox{Items: []evaluation.ApprovalView{}, Next: q.Cursor}
	switch now := b.options.Store.Now(); {
	case q.Voted == nil:
	case *q.Voted:
		q.Picks = v.voted
	default:
		q.Picks = func(a approval.Approval) bool {
			if a.Status == approval.Pending {
				a.Votes = slices.DeleteFunc(slices.Clone(a.Votes), func(vote approval.Vote) bool { return vote.Passed(now) })
			}
			return !v.voted(a)
		}
	}
	bytes := 0
	var hidden error // by a tenant that is unavailable
	defer func() {
		if err == nil && len(page.Items) == 0 && page.Next == "" {
			err = hidden // not that nothing waits
		}
	}()
	for looked := 0; looked < inboxLooked; {
		most := min(inboxAtOnce, inboxLooked-looked)
		some, next, err := b.Store.List(ctx, q.Filter, page.Next, most)
		if err != nil {
			return page, err
		}
		looked += max(inboxAtOnce, len(some)) // if little was found, much was looked at
		for n, a := range some {
			var s standing
			if q.picks(a) && (q.Picks == nil || q.Picks(a)) {
				switch s, err = v.standing(ctx, a); {
				case errors.Is(err, pdp.ErrTenantUnavailable):
					s, hidden = standing{}, err
				case err != nil:
					return page, err
				}
			}
			var view evaluation.ApprovalView
			mine := s.decides || s.voted
			if mine {
				view = v.linked(ctx, a)
			}
			if err := goOn(ctx); err != nil { // what was said after the end counts for nothing
				if page.Next == q.Cursor {
					return page, fmt.Errorf("%w: %w", ErrNoTurn, err)
				}
				return page, nil
			}
			if mine {
				page.Items = append(page.Items, view)
				bytes += len(a.Shown) + len(a.Said)
			}
			if page.Next = a.ID; n == len(some)-1 {
				page.Next = next
			}
			if len(page.Items) == q.Limit || bytes >= inboxBytes {
				return page, nil
			}
		}
		if page.Next = next; next == "" {
			break
		}
	}
	return page, nil
}

func (q *Query) picks(a approval.Approval) bool {
	entity := func(want string, e evaluation.Ref) bool {
		return want == "" || want == e.ID || want == e.Type+"/"+e.ID
	}
	return (q.Template == "" || q.Template == a.Terms.Template) && (q.Action == "" || q.Action == a.Action) &&
		entity(q.Subject, a.Subject) && entity(q.Resource, a.Resource)
}
