package approval

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
)

// Task is what a program follows that asked for one approval or for several at once.
type Task struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	Caller string `json:"caller"`
	// Items are the ids of the approvals, in the order in which they were asked for. Bulk
	// says that they were asked for as several, be it one.
	Items []string `json:"items"`
	Bulk  bool     `json:"bulk,omitzero"`
	// Key is what the program's own name of the asking is known by, Body what the asking
	// said. Where there was no such name, Begin gives one to what is asked.
	Key  [32]byte `json:"key,omitzero"`
	Body [32]byte `json:"body"`
	// Callback is where the program wants to be told, "" for nowhere; CallbackState is
	// given back with it, and Events are those it wants to hear of, nil for all.
	Callback      string    `json:"callback,omitzero"`
	CallbackState string    `json:"callback_state,omitzero"`
	Events        []string  `json:"events,omitzero"`
	CreatedAt     time.Time `json:"created_at"`
	// Until is when it is forgotten.
	Until time.Time `json:"until"`
}

// ErrOtherBody: another asking has the same key.
var ErrOtherBody = errors.New("the key was used for another request")

// leastKept is how long a task is kept after its approvals ended, so that who comes late
// finds it and asks for no other.
const leastKept = 24 * time.Hour

// Known is the task of a key, where there is one. With another body it is [ErrOtherBody].
func (s *Store) Known(key, body [32]byte) (t Task, known bool, err error) {
	err = s.view(func(tx values) (err error) {
		t, known, err = taskOf(tx, key, body)
		return err
	})
	return t, known, err
}

// mostFollowers is how many tasks may follow one approval. Asking once more costs its
// program nothing, is on no record, and would be kept for as long as the approval is.
const mostFollowers = 100

// Begin keeps a task, or finds the one with its key. Its items must be there. Where too
// many follow one of them already it is a [LimitError].
func (s *Store) Begin(t Task) (Task, error) {
	if t.Key == ([32]byte{}) {
		if err := t.nameItself(); err != nil {
			return Task{}, err
		}
	}
	t.CreatedAt = s.now()
	for _, id := range t.Items {
		a, err := s.read(id)
		if err != nil {
			return Task{}, err
		}
		ends := a.EndedAt
		if a.open() {
			ends = a.ExpiresAt.Add(a.Terms.ValidFor)
		}
		if until := ends.Add(max(s.options.Retain, leastKept)); until.After(t.Until) {
			t.Until = until
		}
	}
	err := s.update(func(c *change) error {
		known, found, err := taskOf(c.tx, t.Key, t.Body)
		if found || err != nil {
			t = known
			return err
		}
		for _, id := range t.Items {
			if len(followers(c.tx, id)) >= mostFollowers {
				return &LimitError{RetryAfter: laterOn}
			}
		}
		do := writes{c: c}
		do.task(t)
		return do.err
	})
	return t, err
}

// task writes a task, and every index that has it.
func (s *writes) task(t Task) {
	s.put(bucketTasks, []byte(t.ID), t)
	s.put(bucketTaskEnds, timeKey(t.Until, t.ID), true)
	s.put(bucketTaskKeys, t.Key[:], t.ID)
	for _, id := range t.Items {
		s.put(bucketFollowers, follower(id, t.ID), true)
	}
}

// nameItself gives a task without a key one that the same asking would have again.
func (t *Task) nameItself() error {
	same := *t
	same.ID, same.Body = "", [32]byte{} // as the items are bound to what was said
	text, err := json.Marshal(same, json.Deterministic(true))
	t.Key = sha256.Sum256(text)
	t.Body = t.Key
	return err
}

// Task is a task by its id.
func (s *Store) Task(id string) (t Task, found bool, err error) {
	err = s.view(func(tx values) (err error) {
		t, found, err = readTask(tx, id)
		return err
	})
	return t, found, err
}

// Of are the approvals of a task as they are now. One that cannot be put on record now
// says so. Where one is forgotten it is [ErrNotFound].
func (s *Store) Of(ctx context.Context, t Task) (all []Approval, err error) {
	now := s.now()
	err = s.view(func(tx values) error {
		for _, id := range t.Items {
			a, found, err := read(tx, id)
			if err == nil && !found {
				err = ErrNotFound
			}
			if err != nil {
				return err
			}
			all = append(all, s.shown(a, now))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for n := range all {
		a, err := s.told(ctx, all[n])
		switch {
		case err == nil:
			all[n] = a
		case !errors.Is(err, ErrUnrecorded):
			return nil, err
		}
	}
	return all, nil
}

// TasksOf are the tasks that an approval is part of.
func (s *Store) TasksOf(approval string) (all []Task, err error) {
	err = s.view(func(tx values) error {
		for _, id := range followers(tx, approval) {
			t, found, err := readTask(tx, id)
			if err != nil {
				return err
			}
			if found {
				all = append(all, t)
			}
		}
		return nil
	})
	return all, err
}

// forgetTasks removes those whose time is up.
func (s *Store) forgetTasks(ctx context.Context) error {
	return s.past(ctx, bucketTaskEnds, s.now(), func(_ context.Context, id string) error {
		return s.update(func(c *change) error {
			t, found, err := readTask(c.tx, id)
			if err != nil || !found {
				return err
			}
			do := writes{c: c}
			do.remove(bucketTasks, []byte(id))
			do.remove(bucketTaskEnds, timeKey(t.Until, id))
			do.remove(bucketTaskKeys, t.Key[:])
			for _, approval := range t.Items {
				do.remove(bucketFollowers, follower(approval, id))
			}
			return do.err
		})
	})
}

// follower is the key of a task that follows an approval; neither id has a zero byte.
func follower(approval, task string) []byte { return []byte(approval + "\x00" + task) }

// followers are the ids of the tasks that follow an approval.
func followers(tx values, approval string) (tasks []string) {
	c, prefix := tx.Bucket([]byte(bucketFollowers)).Cursor(), follower(approval, "")
	for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = c.Next() {
		tasks = append(tasks, string(key[len(prefix):]))
	}
	return tasks
}

func readTask(tx values, id string) (t Task, found bool, err error) {
	if found, err = get(tx, bucketTasks, []byte(id), &t); found && err == nil && t.ID != id {
		err = fmt.Errorf("%w: %q in %s says that it is %q", ErrDamaged, id, bucketTasks, t.ID)
	}
	return t, found && err == nil, err
}

func taskOf(tx values, key, body [32]byte) (t Task, found bool, err error) {
	var id string
	if found, err = get(tx, bucketTaskKeys, key[:], &id); err != nil || !found {
		return t, false, err
	}
	if t, found, err = readTask(tx, id); found && t.Body != body {
		return Task{}, false, ErrOtherBody
	}
	return t, found, err
}
