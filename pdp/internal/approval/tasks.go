package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
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
	items := slices.Compact(slices.Sorted(slices.Values(t.Items)))
	wanted, ctx := t, context.Background()
	release, err := s.ledger.Lock(ctx, "tasks of "+owner{t.Tenant, evaluation.Ref{ID: t.Caller}}.hash()) // no id has a space
	if err != nil {
		return Task{}, err
	}
	defer release()
	err = s.ledger.Again(ctx, func() error {
		var of []Approval
		t = wanted
		t.CreatedAt = s.now()
		err := s.ledger.View(func(tx *ledger.Tx) {
			if _, known := taskOf(tx, t.Key, t.Body); known {
				return
			}
			for _, id := range items {
				a, found := readState(tx, id)
				if !found {
					tx.Fail(ErrNotFound)
				}
				t.Until = s.keptUntil(&a, t.Until)
				of = append(of, a)
			}
		})
		if err == nil {
			_, err = s.ledger.Update(func(c *change) { s.begin(c, &t, of) })
		}
		return err
	})
	return t, err
}

// keptUntil is how long a task is kept that follows an approval, and is kept so long for others.
func (s *Store) keptUntil(a *Approval, others time.Time) time.Time {
	ends := a.EndedAt
	if a.open() {
		ends = a.ExpiresAt.Add(a.Terms.ValidFor)
	}
	if until := ends.Add(max(s.options.Retain, leastKept)); until.After(others) {
		return until
	}
	return others
}

// begin writes a task that follows approvals, or finds the one with its key.
func (s *Store) begin(c *change, t *Task, of []Approval) {
	if known, found := taskOf(c, t.Key, t.Body); found || c.Err() != nil {
		*t = known
		return
	}
	for _, a := range of {
		following := followers(c, a.ID)
		if len(following) >= mostFollowers {
			c.Fail(&LimitError{RetryAfter: laterOn})
		}
		at, _ := slices.BinarySearch(following, t.ID)
		c.Put(prefixFollowers+a.ID, slices.Insert(following, at, t.ID))
		c.Tell(a)
	}
	t.entries(c.Put)
}

// entries are a task, and every index that has it but the lists of followers.
func (t Task) entries(do func(key string, value any)) {
	do(prefixTasks+t.ID, t)
	do(ledger.TimeKey(prefixTaskEnds, t.Until, t.ID), true)
	do(prefixTaskKeys+hex.EncodeToString(t.Key[:]), t.ID)
	do(changesOf(t.Tenant, t.Caller)+changedTask+t.ID, true)
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
			a, found := read(tx, id)
			if !found {
				tx.Fail(ErrNotFound)
			}
			all = append(all, s.shown(tx, a, now))
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
	for _, id := range followers(tx, approval) {
		if t, found := readTask(tx, id); found {
			all = append(all, t)
		}
	}
	return all
}

// forgetTasks removes the tasks whose time is up. One whose end is not on record yet stays until
// its program can receive it.
func (s *Store) forgetTasks(ctx context.Context) error {
	return s.ledger.Past(ctx, prefixTaskEnds, s.now(), func(ctx context.Context, id string) error {
		var t Task
		stays := false
		err := s.ledger.View(func(tx *ledger.Tx) {
			found := false
			t, found = readTask(tx, id)
			stays = !found || slices.ContainsFunc(t.Items, func(id string) bool { return s.ledger.Unrecorded(tx, id) })
		})
		if err != nil || stays {
			return err
		}
		return s.forgetTask(ctx, t)
	})
}

func (s *Store) forgetTask(ctx context.Context, t Task) error {
	for items := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(t.Items))), unfollowedAtOnce) {
		if err := s.ledger.Change(ctx, func(c *change) { t.unfollow(c, items) }); err != nil {
			return err
		}
	}
	return s.ledger.Change(ctx, func(c *change) {
		if known, _ := taskOf(c, t.Key, t.Body); known.ID == t.ID { // or another one has the key by now
			t.entries(func(key string, _ any) { c.Delete(key) })
		}
	})
}

// unfollowedAtOnce is how many approvals a task ceases to follow in one change.
const unfollowedAtOnce = 25

// unfollow takes a task from the lists of followers of some approvals.
func (t *Task) unfollow(c *change, items []string) {
	for _, id := range items {
		left := slices.DeleteFunc(followers(c, id), func(one string) bool { return one == t.ID })
		if len(left) > 0 {
			c.Put(prefixFollowers+id, left)
			continue
		}
		c.Delete(prefixFollowers + id)
		c.Delete(changesOf(t.Tenant, t.Caller) + changedApproval + id)
	}
}

// followers are the ids of the tasks that follow an approval, in their order.
func followers(from ledger.Reader, approval string) (tasks []string) {
	from.Get(prefixFollowers+approval, &tasks)
	return tasks
}

func readTask(from ledger.Reader, id string) (t Task, found bool) {
	found = from.Get(prefixTasks+id, &t) > 0
	return t, found
}

func taskOf(from ledger.Reader, key, body [32]byte) (t Task, found bool) {
	var id string
	if from.Get(prefixTaskKeys+hex.EncodeToString(key[:]), &id) == 0 {
		return t, false
	}
	if t, found = readTask(from, id); found && t.Body != body {
		from.Fail(ErrOtherBody)
		return Task{}, false
	}
	return t, found
}
