package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/auth"
)

// A cursor is the JSON of [cursor], sealed with its binding: a caller in a tenant, and the person. A member may be added to the
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
	tasks, at, err := follow(ctx, b, since{caller, tenant, "", after, limit, inboxBytes}, goOn, b.told)
	return evaluation.TaskList{Tasks: tasks, Cursor: at.cursor, More: at.more}, err
}

// since is a question for the tasks of a caller that changed, for a person or "": how many an answer has, and of which size.
type since struct {
	caller, tenant, person, after string
	limit, bytes                  int
}

// reached is where an answer ends. With more there is more to be had at once.
type reached struct {
	cursor string
	more   bool
}

// follow reads the tasks that changed, and takes from each what read says.
func follow[T any](
	ctx context.Context, b *Broker, q since, goOn func(context.Context) error,
	read func(context.Context, approval.Followed) (item T, size int, err error),
) (items []T, end reached, err error) {
	now := b.options.Store.Now().Unix()
	at, given, err := b.position(q, now)
	if err != nil {
		return nil, end, err
	}
	found, last, more, err := b.Store.Follow(q.tenant, q.caller, at, q.limit)
	if errors.Is(err, approval.ErrPosition) {
		err = fmt.Errorf("%w: %w", ErrBeginAgain, err)
	}
	if err != nil {
		return nil, end, err
	}
	items = []T{}
	bytes, whole := 0, !more
	for n, one := range found {
		item, size, err := read(ctx, one)
		if errors.Is(err, approval.ErrUnrecorded) { // the changes behind it wait, too
			last, more, whole = at, false, false
			break
		}
		if err != nil && (n == 0 || !errors.Is(err, ctx.Err())) {
			return nil, end, err
		}
		if err == nil {
			err = goOn(ctx)
		}
		if err != nil { // the time is up
			if n == 0 {
				return nil, end, fmt.Errorf("%w: %w", ErrNoTurn, err)
			}
			last, more = at, true
			break
		}
		items, at = append(items, item), one.At
		if bytes += size; bytes >= q.bytes && n < len(found)-1 {
			last, more = at, true
			break
		}
	}
	if whole && !more {
		given = now
	}
	end.more = more
	end.cursor, err = b.cursorOf(q, last, given)
	return items, end, err
}

// toTellBytes bounds an answer of [Broker.ToTell]: a gateway keeps one for each person that reads slowly.
const toTellBytes = 1 << 18

// ToTell are approval requests that a gateway may show a person.
type ToTell struct {
	Seen   []Seen
	Cursor string
	More   bool
}

// ToTell lists the approval requests that a gateway's own tasks wait for, as far as the person for whom it asks may decide
// about them by its forms. A cursor (after), goOn and the errors are those of [Broker.Tasks]; of requests that other
// programs filed there is nothing in it.
func (b *Broker) ToTell(
	ctx context.Context, person auth.Caller, tenant, after string, limit int, goOn func(context.Context) error,
) (list ToTell, err error) {
	v := b.approver(person)
	all, at, err := follow(ctx, b, since{person.Way.Gateway, tenant, person.Name, after, limit, toTellBytes}, goOn, v.decidable)
	known := map[string]bool{}
	for _, seen := range all {
		for _, one := range seen {
			if !known[one.Approval.ID] { // several tasks may wait for it
				known[one.Approval.ID] = true
				list.Seen = append(list.Seen, one)
			}
		}
	}
	list.Cursor, list.More = at.cursor, at.more
	return list, err
}

// decidable are those approval requests of a task about which the caller may decide now, and has not voted. One that fails
// is left out: it would keep all others from the person.
func (v *approver) decidable(ctx context.Context, of approval.Followed) (seen []Seen, size int, err error) {
	all, err := v.Store.Of(ctx, of.Task)
	if errors.Is(err, approval.ErrNotFound) { // they ended long ago
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, v.leaveOut(ctx, err, "task", of.ID)
	}
	if of.At.Waiting == "" && slices.ContainsFunc(all, isUnrecorded) {
		return nil, 0, approval.ErrUnrecorded
	}
	for _, a := range all {
		if a.Status != approval.Pending || a.Unrecorded {
			continue
		}
		s, err := v.standing(ctx, a)
		if err != nil {
			if err := v.leaveOut(ctx, err, "approval", a.ID); err != nil {
				return nil, 0, err
			}
			continue
		}
		one := Seen{Approval: a, by: v, standing: s}
		if one.refusal(ActApprove) == nil {
			seen = append(seen, one)
			size += len(a.Shown) + len(a.Said)
		}
	}
	return seen, size, nil
}

// ofAll are errors that are not about one approval request: another time each may be shown.
var ofAll = []error{
	context.Canceled, context.DeadlineExceeded, pdp.ErrNoBundle, pdp.ErrTenantUnavailable,
	approval.ErrUnrecorded, approval.ErrUnavailable, approval.ErrClosed, approval.ErrShort,
}

// leaveOut logs the error of one task or approval request, and returns any other.
func (b *Broker) leaveOut(ctx context.Context, err error, what, id string) error {
	if ctx.Err() != nil || slices.ContainsFunc(ofAll, func(one error) bool { return errors.Is(err, one) }) {
		return err
	}
	b.options.Logger.ErrorContext(ctx, "an approval request cannot be listed", what, id, "error", err)
	return nil
}

func isUnrecorded(a approval.Approval) bool { return a.Unrecorded }

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
	if one.At.Waiting == "" && slices.ContainsFunc(f.approvals, isUnrecorded) {
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
func (b *Broker) position(q since, now int64) (at approval.Position, given int64, err error) {
	if q.after == "" {
		at, err = b.Store.Start(q.tenant, q.caller)
		return at, now, err
	}
	var c cursor
	text, ok := b.options.Sealer.Open(q.after, q.binding())
	if !ok || json.Unmarshal(text, &c) != nil {
		return at, 0, ErrCursor
	}
	if now-c.Given >= int64(approval.FollowedFor.Seconds()) {
		return at, 0, ErrBeginAgain
	}
	return c.Position, c.Given, nil
}

func (b *Broker) cursorOf(q since, at approval.Position, given int64) (string, error) {
	text, err := marshal(cursor{at, given})
	if err != nil {
		return "", err
	}
	return b.options.Sealer.Seal(text, q.binding()), nil
}

// binding is what a cursor opens with: one for a person is no cursor of tasks, nor one for another person.
func (q since) binding() []byte {
	b := fmt.Appendf(nil, "tasks %d:%s%d:%s", len(q.tenant), q.tenant, len(q.caller), q.caller)
	if q.person != "" {
		b = fmt.Appendf(b, " notifications %d:%s", len(q.person), q.person)
	}
	return b
}
