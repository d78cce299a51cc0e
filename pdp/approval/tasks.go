package approval

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/ledger"
)

// Task is a request for one approval or several at once, which a program follows.
type Task struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	Caller string `json:"caller"`
	// Items are the ids of the approvals, in the order in which they were asked for. Bulk
	// says that the program asked in the form for several, even if it asked for one.
	Items []string `json:"items"`
	Bulk  bool     `json:"bulk,omitzero"`
	// Key is made of the program's own name for its request, and Body of the request's text. If
	// there was no such name, Begin makes a key of the request.
	Key  [32]byte `json:"key,omitzero"`
	Body [32]byte `json:"body"`
	// Callback is the address for the program's callbacks, "" for none.
	// CallbackState is given back to it, and Events are those it wants, nil for all.
	Callback      string    `json:"callback,omitzero"`
	CallbackState string    `json:"callback_state,omitzero"`
	Events        []string  `json:"events,omitzero"`
	CreatedAt     time.Time `json:"created_at"`
	// Changed is the number of its last change, among all changes of tasks.
	Changed uint64 `json:"changed,omitzero"`
	// Until is when it is forgotten.
	Until time.Time `json:"until"`
}

// ErrOtherBody: another asking has the same key.
var ErrOtherBody = errors.New("the key was used for another request")

// leastKept is how long a task is kept after its approvals ended, so that a program that
// comes late finds it and does not ask again.
const leastKept = 24 * time.Hour

// Known finds the task with a key. If its body is another one, the error is [ErrOtherBody].
func (s *Store) Known(key, body [32]byte) (t Task, known bool, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) { t, known = taskOf(tx, key, body) })
	return t, known, err
}

// mostFollowers is how many tasks may follow one approval. Asking once more costs its
// program nothing, is on no record, and would be kept for as long as the approval is.
const mostFollowers = 100

// Begin keeps a task, or finds the one with its key. Its items must be there. If too many
// tasks follow one of them already, the error is a [LimitError].
func (s *Store) Begin(t Task) (Task, error) {
	if t.Key == ([32]byte{}) {
		if err := t.nameItself(); err != nil {
			return Task{}, err
		}
	}
	t.CreatedAt = s.now()
	err := s.ledger.Update(func(c *change) {
		if known, found := taskOf(c.Tx, t.Key, t.Body); found {
			t = known
			return
		}
		for _, id := range t.Items {
			a, found := ledger.GetItem[Approval](c.Tx, id)
			if !found {
				c.Fail(ErrNotFound)
			}
			if len(followers(c.Tx, id, nil)) >= mostFollowers {
				c.Fail(&LimitError{RetryAfter: laterOn})
			}
			ends := a.EndedAt
			if a.open() {
				ends = a.ExpiresAt.Add(a.Terms.ValidFor)
			}
			if until := ends.Add(max(s.options.Retain, leastKept)); until.After(t.Until) {
				t.Until = until
			}
			c.Tell(a)
		}
		s.number(c, &t)
		t.entries(c.Put)
	})
	return t, err
}

// entries are a task in the file, and every index that has it.
func (t Task) entries(do func(bucket string, key []byte, value any)) {
	do(bucketTasks, []byte(t.ID), t)
	do(bucketTaskEnds, ledger.TimeKey(t.Until, t.ID), true)
	do(bucketTaskKeys, t.Key[:], t.ID)
	do(bucketChanged, t.changedKey(), t.ID)
	for _, id := range t.Items {
		do(bucketFollowers, follower(id, t.ID), true)
	}
}

// nameItself gives a task without a key one that the same asking would have again.
func (t *Task) nameItself() error {
	same := *t
	same.ID, same.Body = "", [32]byte{} // as the items are bound to the text
	text, err := json.Marshal(same, json.Deterministic(true))
	t.Key = sha256.Sum256(text)
	t.Body = t.Key
	return err
}

// Task is a task by its id.
func (s *Store) Task(id string) (t Task, found bool, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) { t, found = readTask(tx, id) })
	return t, found, err
}

// Of reads the approvals of a task as they are now. One that cannot be put on record now
// says so. If one was forgotten, the error is [ErrNotFound].
func (s *Store) Of(ctx context.Context, t Task) (all []Approval, err error) {
	now := s.now()
	err = s.ledger.View(func(tx *ledger.Tx) {
		for _, id := range t.Items {
			a, found := ledger.GetItem[Approval](tx, id)
			if !found {
				tx.Fail(ErrNotFound)
			}
			all = append(all, s.shown(a, now))
		}
	})
	if err != nil {
		return nil, err
	}
	for n := range all {
		if all[n], err = s.told(ctx, all[n]); err != nil && !errors.Is(err, ErrUnrecorded) {
			return nil, err
		}
	}
	return all, nil
}

// TasksOf are the tasks that an approval is part of.
func (s *Store) TasksOf(approval string) (all []Task, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) { all = tasksOf(tx, approval) })
	return all, err
}

func tasksOf(tx *ledger.Tx, approval string) (all []Task) {
	for _, id := range followers(tx, approval, nil) {
		if t, found := readTask(tx, id); found {
			all = append(all, t)
		}
	}
	return all
}

// forgetTasks removes the tasks whose time is up. One whose end is not on record yet stays until
// its program can receive it.
func (s *Store) forgetTasks(ctx context.Context) error {
	return s.ledger.Past(ctx, bucketTaskEnds, s.now(), func(_ context.Context, id string) error {
		return s.ledger.Update(func(c *change) {
			t, found := readTask(c.Tx, id)
			if found && !slices.ContainsFunc(t.Items, s.ledger.Unrecorded) {
				t.entries(func(bucket string, key []byte, _ any) { c.Delete(bucket, key) })
			}
		})
	})
}

// follower is the key of a task that follows an approval; neither id has a zero byte.
func follower(approval, task string) []byte { return []byte(approval + "\x00" + task) }

// followers are the ids of the tasks that follow an approval: those after a key, if that is a key of this approval.
func followers(tx *ledger.Tx, approval string, after []byte) (tasks []string) {
	prefix := follower(approval, "")
	if !bytes.HasPrefix(after, prefix) {
		after = prefix
	}
	for key := range tx.Scan(bucketFollowers, after) {
		task, is := bytes.CutPrefix(key, prefix)
		if !is {
			break
		}
		tasks = append(tasks, string(task))
	}
	return tasks
}

func readTask(tx *ledger.Tx, id string) (t Task, found bool) {
	found = tx.Get(bucketTasks, []byte(id), &t)
	if found && t.ID != id {
		tx.Fail(fmt.Errorf("%w: %q in %s says that it is %q", ErrDamaged, id, bucketTasks, t.ID))
	}
	return t, found && t.ID == id
}

func taskOf(tx *ledger.Tx, key, body [32]byte) (t Task, found bool) {
	var id string
	if !tx.Get(bucketTaskKeys, key[:], &id) {
		return t, false
	}
	if t, found = readTask(tx, id); found && t.Body != body {
		tx.Fail(ErrOtherBody)
		return Task{}, false
	}
	return t, found
}
