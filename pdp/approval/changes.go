package approval

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/ledger"
)

// Position is a cursor in the changes of a caller's tasks: changes after it are still to be delivered. [Store.Start]
// gives the first one.
type Position struct {
	// File is the name that the file had then, and Number that of the last delivered change.
	File   string `json:"file"`
	Number uint64 `json:"number"`
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
	whose := owner{tenant, evaluation.Ref{ID: caller}}
	err = s.ledger.View(func(tx *ledger.Tx) { at = Position{s.name(), s.allTold(tx, whose), begins} })
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
	whose := owner{tenant, evaluation.Ref{ID: caller}}
	err = s.ledger.View(func(tx *ledger.Tx) {
		if !s.knows(from) {
			tx.Fail(ErrPosition)
			return
		}
		from.File = s.name()
		if end = from; from.Waiting != "" {
			found, end, more = s.waitingTasks(tx, whose, from, most)
		}
		if !more {
			var changed []Followed
			changed, end, more = changedTasks(tx, whose, end, most-len(found))
			found = append(found, changed...)
		}
	})
	if err != nil {
		return nil, from, false, err
	}
	return found, end, more, nil
}

// allTold is the number up to which all changes of a caller's tasks are on record. A later change is delivered once it is on record.
func (s *Store) allTold(tx *ledger.Tx, whose owner) uint64 {
	last := tx.Last(bucketChanged)
	theirs := func(n Notice) bool { return n.Tenant == whose.tenant && n.Caller == whose.subject.ID }
	for _, id := range s.ledger.UnrecordedItems(theirs) {
		for _, t := range tasksOf(tx, id) {
			last = min(last, t.Changed-1)
		}
	}
	return last
}

// waitingTasks are the tasks of a caller that wait for a person. A task stands under the first of its approvals that is
// pending.
func (s *Store) waitingTasks(tx *ledger.Tx, whose owner, from Position, most int) (found []Followed, end Position, more bool) {
	first, _, _ := strings.Cut(from.Waiting, "\x00")
	looks := most * examinedPerItem
	end = from
	for n, id := range s.queue.Load().askedBy(whose, first, looks+1) {
		if n == looks {
			return found, end, true
		}
		for _, task := range followers(tx, id, []byte(end.Waiting)) {
			t, is := readTask(tx, task)
			if !is || waitsBefore(tx, t, id) {
				continue
			}
			if len(found) == most {
				return found, end, true
			}
			end.Waiting = string(follower(id, task))
			found = append(found, Followed{t, end})
		}
		end.Waiting = string(follower(id, behindTasks))
	}
	end.Waiting = ""
	return found, end, false
}

// begins and behindTasks stand in a Waiting for the beginning, and for a task that would be the last one of an approval.
const (
	begins      = "\x00"
	behindTasks = "~"
)

// waitsBefore reports whether another approval of a task is pending that comes before one.
func waitsBefore(tx *ledger.Tx, t Task, approval string) bool {
	return slices.ContainsFunc(t.Items, func(id string) bool {
		return id < approval && tx.Get(bucketPending, []byte(id), &waiting{})
	})
}

// changedTasks are the tasks of a caller that have changed, in the order of their changes.
func changedTasks(tx *ledger.Tx, whose owner, from Position, most int) (found []Followed, end Position, more bool) {
	end = from
	of := whose.taskOwner()
	for key, read := range tx.Scan(bucketChanged, changedKey(of, from.Number)) {
		number, is := bytes.CutPrefix(key, of)
		if !is {
			break
		}
		if len(found) == most {
			return found, end, true
		}
		var id string
		if !read(&id) {
			break
		}
		t, is := readTask(tx, id)
		if !is {
			tx.Fail(fmt.Errorf("%w: %q in %s is no task", ErrDamaged, id, bucketChanged))
		}
		end.Number = binary.BigEndian.Uint64(number)
		found = append(found, Followed{t, end})
	}
	return found, end, false
}

// changeTasks notes that the tasks have changed that follow an approval.
func (s *Store) changeTasks(c *change, approval string) {
	for _, t := range tasksOf(c.Tx, approval) {
		c.Delete(bucketChanged, t.changedKey())
		s.number(c, &t)
		c.Put(bucketTasks, []byte(t.ID), t)
		c.Put(bucketChanged, t.changedKey(), t.ID)
	}
}

// number gives a task the number of a change.
func (s *Store) number(c *change, t *Task) { t.Changed = c.Next(bucketChanged, c.Size<<20) }

func (t Task) changedKey() []byte {
	whose := owner{t.Tenant, evaluation.Ref{ID: t.Caller}}
	return changedKey(whose.taskOwner(), t.Changed)
}

func changedKey(of []byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(slices.Clone(of), number)
}

// taskOwner is a caller in a tenant as the keys of its tasks begin.
func (o owner) taskOwner() []byte {
	of := sha256.Sum256([]byte(strconv.Itoa(len(o.tenant)) + ":" + o.tenant + o.subject.ID))
	return of[:]
}

// naming is a name of the file: it gets one whenever it is opened. Last is the number of the last change under that name,
// once it has another one.
type naming struct {
	Name string `json:"name"`
	Last uint64 `json:"last,omitzero"`
}

// mostNames is how many names a file has at most. Positions of the names before are good no more.
const mostNames = 100

// nameFile gives the file its next name.
func (s *Store) nameFile() error {
	var names []naming
	err := s.ledger.Update(func(c *change) {
		c.Get(ledger.BucketMeta, []byte(keyNames), &names)
		if n := len(names); n > 0 {
			names[n-1].Last = c.Last(bucketChanged)
		}
		names = append(names, naming{Name: rand.Text()})
		names = names[max(0, len(names)-mostNames):]
		c.Put(ledger.BucketMeta, []byte(keyNames), names)
	})
	s.names = names
	return err
}

// name is the name that the file has now.
func (s *Store) name() string { return s.names[len(s.names)-1].Name }

// knows reports whether the file has had all changes up to a position. An older copy does not know the names that the file
// got since it was made, and says of the name that it has that no later change has come under that.
func (s *Store) knows(at Position) bool {
	n := slices.IndexFunc(s.names, func(one naming) bool { return one.Name == at.File })
	return n >= 0 && (n == len(s.names)-1 || at.Number <= s.names[n].Last)
}
