package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
)

// A cursor is the JSON of [cursor], sealed with its binding: a caller in a tenant. A member may be added to the
// JSON: a cursor lives half a day, so none is older than a release.

// cursor is where a program is that follows its tasks.
type cursor struct {
	approval.Position `json:",inline"`
	// Given is the last time at which the program had all changes.
	Given int64 `json:"given"`
}

// The errors of a cursor.
var (
	// ErrCursor: it is no cursor of this caller in this tenant.
	ErrCursor = errors.New("the cursor is none of this caller's")
	// ErrBeginAgain: it was one, and the changes since are not known any more.
	ErrBeginAgain = errors.New("the cursor is too old, or of another file")
)

// Sealer seals texts that callers are given and send back.
type Sealer interface {
	// Seal makes a token of a text. The token opens with the same binding only.
	Seal(text, binding []byte) (token string)
	Open(token string, binding []byte) (text []byte, ok bool)
}

// taskBytes is the size of a task in an answer without its items, at least.
const taskBytes = 1 << 10

// Tasks lists the tasks of a caller in a tenant: without a cursor (after) those that wait, and with one those that changed
// since. Each time a task was looked at, goOn says whether there is time for more. If there is none the
// list ends, unless it would be where it began: then the error is [ErrNoTurn].
func (b *Broker) Tasks(
	ctx context.Context, caller, tenant, after string, limit int, goOn func(context.Context) error,
) (list evaluation.TaskList, err error) {
	now := b.options.Store.Now().Unix()
	at, given, err := b.position(caller, tenant, after, now)
	if err != nil {
		return list, err
	}
	found, end, more, err := b.Store.Follow(tenant, caller, at, limit)
	if errors.Is(err, approval.ErrPosition) {
		err = fmt.Errorf("%w: %w", ErrBeginAgain, err)
	}
	if err != nil {
		return list, err
	}
	list.Tasks = []evaluation.TaskAnswer{}
	bytes, whole := 0, !more
	for n, one := range found {
		answer, size, err := b.told(ctx, one)
		if errors.Is(err, approval.ErrUnrecorded) { // the changes behind it wait, too
			end, more, whole = at, false, false
			break
		}
		if err != nil {
			return list, err
		}
		if err := goOn(ctx); err != nil {
			if n == 0 {
				return list, fmt.Errorf("%w: %w", ErrNoTurn, err)
			}
			end, more = at, true
			break
		}
		list.Tasks, at = append(list.Tasks, answer), one.At
		if bytes += size; bytes >= inboxBytes && n < len(found)-1 {
			end, more = at, true
			break
		}
	}
	if whole && !more {
		given = now
	}
	list.More = more
	list.Cursor, err = b.cursorOf(caller, tenant, end, given)
	return list, err
}

// told is the answer about a task that has changed, and about its size. If the change is not on record yet, the
// error is [approval.ErrUnrecorded].
func (b *Broker) told(ctx context.Context, one approval.Followed) (answer evaluation.TaskAnswer, size int, err error) {
	f, err := b.Follow(ctx, one.Task)
	if refusal := (*AccessError)(nil); errors.As(err, &refusal) { // its approvals ended long ago
		return evaluation.TaskAnswer{Task: evaluation.TaskHandle{
			ID:             one.ID,
			Status:         string(approval.Expired),
			StatusEndpoint: b.statusEndpoint(one.Task),
		}}, taskBytes, nil
	}
	if err != nil {
		return answer, 0, err
	}
	unrecorded := func(a approval.Approval) bool { return a.Unrecorded }
	if one.At.Waiting == "" && slices.ContainsFunc(f.approvals, unrecorded) {
		return answer, 0, approval.ErrUnrecorded
	}
	if size = taskBytes; f.Bulk {
		for _, a := range f.approvals {
			size += len(a.Shown)
		}
	}
	answer, err = b.answer(f)
	return answer, size, err
}

// position reads a cursor, "" for the beginning, and the time at which the program had all changes.
func (b *Broker) position(caller, tenant, after string, now int64) (at approval.Position, given int64, err error) {
	if after == "" {
		at, err = b.Store.Start(tenant, caller)
		return at, now, err
	}
	var c cursor
	text, ok := b.options.Sealer.Open(after, cursorBinding(caller, tenant))
	if !ok || json.Unmarshal(text, &c) != nil {
		return at, 0, ErrCursor
	}
	if now-c.Given >= int64(approval.FollowedFor.Seconds()) {
		return at, 0, ErrBeginAgain
	}
	return c.Position, c.Given, nil
}

func (b *Broker) cursorOf(caller, tenant string, at approval.Position, given int64) (string, error) {
	text, err := marshal(cursor{at, given})
	if err != nil {
		return "", err
	}
	return b.options.Sealer.Seal(text, cursorBinding(caller, tenant)), nil
}

func cursorBinding(caller, tenant string) []byte {
	return fmt.Appendf(nil, "tasks %d:%s%d:%s", len(tenant), tenant, len(caller), caller)
}
