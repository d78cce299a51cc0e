package approval

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
)

// Position is a cursor in the changes of a caller's tasks: changes after it are still to be delivered. [Store.Start]
// gives the first one.
type Position struct {
	// File is the name that the values had then, and Number the revision of the last delivered change.
	File   string `json:"file"`
	Number uint64 `json:"number"`
	// Within is the last delivered task of that change, if others of it are still to be delivered.
	Within string `json:"within,omitzero"`
	// Waiting is set while pending tasks are delivered. It is the last of them: the id of an approval, a zero byte, and
	// the id of a task that follows it.
	Waiting string `json:"waiting,omitzero"`
}

// Followed is a task, and the position after it.
type Followed struct {
	Task
	At Position
}

// ErrPosition: the changes since this position are unknown. Another file is in its place, or an older
// copy of it.
var ErrPosition = errors.New("the position is not one of this file")

// FollowedFor is how long a follower that had everything can still get every change since: until then
// no task is forgotten that has changed since.
const FollowedFor = leastKept / 2

// Start is the first position for following the tasks of a caller in a tenant. From there come first the tasks that
// wait for a person, and then the changes since.
func (s *Store) Start(tenant, caller string) (at Position, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) {
		at = Position{File: s.ledger.Name() + s.generation(), Number: s.allTold(tx, tenant, caller), Waiting: begins}
	})
	return at, err
}

// Follow finds the undelivered changes of the tasks of a caller in a tenant: no more than most, of each task only the last
// change, and the task as it is now. End is the position after all of it, and more says that there is more. It may find
// nothing and have more.
//
// A task changes when it begins, and when an approval of it gets another state, or another vote, after which others may
// decide about it than before. A change that is not on record yet is found, too: a caller must look whether it
// is ([Store.Of]), and stop before it if it is not.
func (s *Store) Follow(tenant, caller string, from Position, most int) (found []Followed, end Position, more bool, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) {
		name, ours := strings.CutSuffix(from.File, s.generation())
		if !ours || !s.ledger.Knows(name, from.Number) {
			tx.Fail(ErrPosition)
			return
		}
		from.File = s.ledger.Name() + s.generation()
		if end = from; from.Waiting != "" {
			found, end, more = waitingTasks(tx, tenant, caller, from, most)
		}
		if !more {
			var changed []Followed
			changed, end, more = changedTasks(tx, changesOf(tenant, caller), end, most-len(found))
			found = append(found, changed...)
		}
	})
	if err != nil {
		return nil, from, false, err
	}
	return found, end, more, nil
}

// generation ends the name of what others write, too: a copy of that has the name, and revisions of its own.
func (s *Store) generation() string {
	if s.options.Generation == 0 {
		return ""
	}
	return "/" + strconv.FormatUint(s.options.Generation, 10)
}

// allTold is the revision up to which all changes of a caller's tasks are on record. A later change is delivered once it is
// on record.
func (s *Store) allTold(tx *ledger.Tx, tenant, caller string) uint64 {
	last := tx.Revision()
	for _, n := range s.ledger.UnrecordedItems(tx) {
		if n.Tenant != tenant || n.Caller != caller {
			continue
		}
		for _, t := range tasksOf(tx, n.ID) {
			last = min(last, lastChange(tx, changesOf(tenant, caller), &t)-1)
		}
	}
	return last
}

// waitingTasks are the tasks of a caller that wait for a person. A task stands under the first of its approvals that is
// pending.
func waitingTasks(tx *ledger.Tx, tenant, caller string, from Position, most int) (found []Followed, end Position, more bool) {
	first, after, _ := strings.Cut(from.Waiting, "\x00")
	looks := most * examinedPerItem
	end = from
	whose := owner{tenant, evaluation.Ref{ID: caller}}
	for id := range tx.Scan(prefixAsked+whose.hash()+"/", first) {
		if looks--; looks < 0 {
			return found, end, true
		}
		for _, task := range followers(tx, id) {
			if id == first && task <= after {
				continue
			}
			t, is := readTask(tx, task)
			if !is || waitsBefore(tx, t, id) {
				continue
			}
			if len(found) == most {
				return found, end, true
			}
			end.Waiting = id + "\x00" + task
			found = append(found, Followed{t, end})
		}
		end.Waiting = id + "\x00" + behindIDs
	}
	end.Waiting = ""
	return found, end, false
}

// begins stands in a Waiting for the beginning, and [behindIDs] for a task that would be the last one of an approval.
const begins = "\x00"

// waitsBefore reports whether another approval of a task is pending that comes before one.
func waitsBefore(tx *ledger.Tx, t Task, approval string) bool {
	return slices.ContainsFunc(t.Items, func(id string) bool {
		return id < approval && tx.Get(prefixPending+url.PathEscape(t.Tenant)+"/"+id, &waiting{}) > 0
	})
}

// The keys of changes, of one caller in a tenant: of an approval that tasks follow, and of a task.
const (
	changedApproval = "a:"
	changedTask     = "t:"
)

func changesOf(tenant, caller string) string {
	return ledger.PrefixChanges + owner{tenant, evaluation.Ref{ID: caller}}.hash() + "/"
}

// changedTasks are the tasks of a caller that have changed, in the order of their last changes.
func changedTasks(tx *ledger.Tx, of string, from Position, most int) (found []Followed, end Position, more bool) {
	looks := most * examinedPerItem
	end = from
	after := from.Number
	if from.Within != "" { // there are others of the same change
		after--
	}
	for key, revision := range tx.Since(of, after) {
		if looks--; looks < 0 {
			return found, end, true
		}
		for _, id := range tasksOfChange(tx, key) {
			if revision == from.Number && id <= from.Within {
				continue
			}
			t, is := readTask(tx, id)
			if !is {
				tx.Fail(fmt.Errorf("%w: %q is followed by %q, and that is no task", ErrDamaged, key, id))
			}
			if lastChange(tx, of, &t) != revision {
				continue // it comes later
			}
			if len(found) == most {
				return found, end, true
			}
			end.Number, end.Within = revision, id
			found = append(found, Followed{t, end})
		}
		end.Number, end.Within = revision, ""
	}
	return found, end, false
}

// tasksOfChange are the tasks that changed with a key.
func tasksOfChange(tx *ledger.Tx, key string) []string {
	if id, is := strings.CutPrefix(key, changedTask); is {
		return []string{id}
	}
	return followers(tx, strings.TrimPrefix(key, changedApproval))
}

// lastChange is the revision of the last change of a task.
func lastChange(tx *ledger.Tx, of string, t *Task) uint64 {
	last := tx.Get(of+changedTask+t.ID, new(bool))
	for _, id := range t.Items {
		last = max(last, tx.Get(of+changedApproval+id, new(bool)))
	}
	return last
}

// tellTasks notes that the tasks have changed that follow an approval.
func tellTasks(c *change, a *Approval) {
	if len(followers(c, a.ID)) > 0 {
		c.Put(changesOf(a.Tenant, a.Caller)+changedApproval+a.ID, true)
	}
}
