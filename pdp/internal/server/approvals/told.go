package approvals

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/keyedmutex"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/mcp/wire"
)

// notificationsPath is below the path of the gateway's own tasks: of others it lists nothing.
const notificationsPath = broker.RequestsPath + "/notifications"

// toTell is the answer to GET /access/v1/requests/notifications.
type toTell struct {
	Items  []wire.Message `json:"items"`
	Cursor string         `json:"cursor"`
	More   bool           `json:"more,omitzero"`
}

// notifications answers GET /access/v1/requests/notifications: what the tasks of a gateway wait for, as messages for a
// person who may decide about it by a form of this gateway. Each goes on record before it is answered. Without a cursor
// the list begins with all that waits, and with one it has what changed since.
func (a *Approvals) notifications(c echo.Context, r door.Admitted) error {
	if r.Caller.Way.Gateway == "" {
		return door.NewProblem(http.StatusForbidden,
			"this is for a gateway and the person whose token it brings in Approver-Token; approvers list theirs at /v1/approvals")
	}
	limit, err := door.PageLimit(r.Given["limit"])
	if err != nil {
		return err
	}
	ctx, cancel := a.Door.Within(c)
	defer cancel()
	list, err := a.toTell(ctx, r, limit)
	if err != nil {
		return err
	}
	got := toTell{Items: []wire.Message{}, Cursor: list.Cursor, More: list.More}
	offers, err := a.offer(ctx, r.Caller, a.readable(ctx, list.Seen))
	if err != nil {
		return err
	}
	for _, one := range offers {
		got.Items = append(got.Items, one.call.Notification())
	}
	answer := answerOf(got, true)
	answer.fresh = true
	return answer.write(c, http.StatusOK)
}

// toTell makes the list when it is the gateway's turn. Pages of a console have other places. The list ends with half of the
// time of the request, because what is on it is put on record with the rest.
func (a *Approvals) toTell(ctx context.Context, r door.Admitted, limit int) (broker.ToTell, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Door.Options.Load.RequestTime/2)
	defer cancel()
	turn := door.Shift{Gate: &a.waiting.told, Caller: r.Caller.Way.Gateway}
	if err := turn.Begin(ctx); err != nil {
		return broker.ToTell{}, fmt.Errorf("%w: %w", broker.ErrNoTurn, err)
	}
	defer turn.End()
	return a.Broker.ToTell(ctx, r.Caller, r.Tenant, r.Given["after"], limit, turn.GoOn)
}

// offer is an approval request that a person may be offered, and the call that waits for it.
type offer struct {
	broker.Seen
	call wire.Call
}

// readable are the approval requests that can be shown. Nothing else is offered, and none keeps the others from the person.
func (a *Approvals) readable(ctx context.Context, all []broker.Seen) (offers []offer) {
	for _, one := range all {
		call, err := toolCallOf(one.Approval)
		if err != nil {
			a.Door.Options.Log.ErrorContext(ctx, "an approval request cannot be shown", "approval", one.Approval.ID, "error", err)
			continue
		}
		offers = append(offers, offer{one, call})
	}
	return offers
}

// offersAtOnce is how many offers of a list are put on record at once. Each waits for the disk.
const offersAtOnce = 16

// offer puts on record that a person is offered approval requests, and returns those that they can still answer.
func (a *Approvals) offer(ctx context.Context, person auth.Caller, all []offer) (offers []offer, err error) {
	var recording errgroup.Group
	recording.SetLimit(offersAtOnce)
	over := make([]bool, len(all))
	fresh := 0
	defer func() { a.Door.Charge(person, fresh-1) }() // as if they were fetched one by one
	for n := range all {
		key := keyOf(all[n].Approval.ID, person)
		if _, known := a.offered.Get(key); known {
			continue
		}
		if err := a.Door.Options.Room(&person); err != nil {
			return nil, errors.Join(err, recording.Wait())
		}
		fresh++
		recording.Go(func() error {
			release, err := a.offered.recording.Lock(ctx, string(key[:]))
			if err != nil {
				return err
			}
			defer release()
			if _, known := a.offered.Get(key); known { // another gateway asked for the same person meanwhile
				return nil
			}
			err = all[n].Offer(ctx)
			switch state := (*approval.StateError)(nil); {
			case errors.As(err, &state), errors.Is(err, approval.ErrVoted), errors.Is(err, approval.ErrNotFound):
				over[n] = true
				return nil
			case err == nil:
				a.offered.Put(key, struct{}{}, mostOffered)
			}
			return err
		})
	}
	if err := recording.Wait(); err != nil {
		return nil, err
	}
	for n, one := range all {
		if !over[n] {
			offers = append(offers, one)
		}
	}
	return offers, nil
}

// offered has the offers that were put on record last: a client that begins its list again and again fills no log.
type offered struct {
	recent.Texts[struct{}]
	recording keyedmutex.Mutex // by key
}

// mostOffered is how many offers are known at least.
const mostOffered = 1 << 14

// keyOf is a digest of an approval request that a person was offered by a way. The client in a way is the gateway's own word,
// of any length.
func keyOf(approval string, person auth.Caller) recent.Digest {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q", approval, person.Name, person.Way))
}
