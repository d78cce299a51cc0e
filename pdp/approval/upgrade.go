package approval

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"

	"policy-service/pdp/ledger"
)

// Look reads what is in a data directory as [Open] would, and changes nothing: how many
// approvals wait for a person, and the open ones. The error is why Open would fail. For a
// file of format 1 it is [ErrOld].
func Look(data string, key []byte) (pending int, open []Approval, err error) {
	err = ledger.Examine(form(data, key), func(tx *ledger.Tx) {
		switch tx.Format() {
		case 0:
		case FormatVersion, formatSealed:
			open = ledger.OpenItems[Approval](tx)
			pending = int(readQueue(tx, open).pending.Load())
			for range ledger.Outbox[Step](tx) { // Open reads it, too
			}
		default:
			tx.Fail(ErrOld)
		}
	})
	return pending, open, err
}

// Upgraded says what became of the open approvals of a file of format 1, by their ids.
type Upgraded struct {
	Kept    []string `json:"kept"`
	Dropped []string `json:"dropped"`
}

// Upgraded is nil if the file had this format when it was opened, or was new.
func (s *Store) Upgraded() *Upgraded { return s.upgraded }

// Old reads the open approvals of a file of format 1, and reports whether it has that format.
// It changes nothing. It does not read a file that a process has open.
func Old(data string) (open []Approval, is bool, err error) {
	err = ledger.Examine(form(data, nil), func(tx *ledger.Tx) {
		if is = older(tx) == formatChecked; is {
			_, open, _, _ = readOld(tx)
		}
	})
	if errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return open, is, err
}

// Unkeyed is how many open approvals a file has, for a caller that has no key to read it
// with. If a process has the file open, which may still have the key, the error is [ErrLocked].
func Unkeyed(data string) (open int, err error) {
	err = ledger.Examine(form(data, nil), func(tx *ledger.Tx) {
		for range tx.Scan(ledger.BucketDue, nil) {
			open++
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return open, err
}

// checked reads a value of format 1, which has a checksum in the place of the MAC.
func checked(bucket string, key, value []byte) (text []byte, err error) {
	table := crc32.MakeTable(crc32.Castagnoli)
	crc := crc32.Update(crc32.Update(0, table, []byte(bucket)), table, key)
	if len(value) < 4 || binary.BigEndian.Uint32(value) != crc32.Update(crc, table, value[4:]) {
		return nil, ErrDamaged
	}
	return value[4:], nil
}

// older is the number of an older format that a file has, and 0 for any other file.
func older(tx *ledger.Tx) int {
	has := func(format int, unseal func(string, []byte, []byte) ([]byte, error)) bool {
		version := 0
		err := tx.Try(func(tx *ledger.Tx) {
			tx.Unseal = unseal
			tx.Get(ledger.BucketMeta, []byte(ledger.KeyFormat), &version)
		})
		return err == nil && version == format
	}
	switch {
	case has(formatChecked, checked):
		return formatChecked
	case has(formatSealed, tx.Unseal):
		return formatSealed
	}
	return 0
}

// readOld reads what is taken from a file of format 1.
func readOld(tx *ledger.Tx) (all, open []Approval, tasks []Task, untold map[string][]Event) {
	untold = map[string][]Event{}
	err := tx.Try(func(tx *ledger.Tx) {
		tx.Unseal = checked
		for key, read := range tx.Scan(bucketApprovals, nil) {
			var a Approval
			if read(&a); a.ID != string(key) {
				tx.Fail(ErrDamaged)
			}
			if all = append(all, a); a.open() {
				open = append(open, a)
			}
		}
		tasks = readTasks(tx)
		for key, read := range tx.Scan(bucketUntold, nil) {
			var events []Event
			read(&events)
			untold[string(key)] = events
		}
	})
	tx.Fail(err)
	return all, open, tasks, untold
}

// Upgrade implements [ledger.Rules]. A file of format 2 was written with the key, and all that it
// has still means the same: its tasks only become known by their callers. A file of format 1 is
// taken once, and written anew with what is kept. An open approval is made again from the steps
// that the log has of it. It is dropped if the log has none, because anybody who could write to the
// file could write anything. An approval that ended is no reason to allow anything, and is taken as
// it is.
func (r rules) Upgrade(c *change) {
	if older(c.Tx) == formatSealed {
		c.Extend()
		for _, t := range readTasks(c.Tx) {
			r.number(c, &t)
			t.entries(c.Put)
		}
		return
	}
	if r.options.Old == nil {
		c.Fail(ErrOld)
		return
	}
	before, open, tasks, untold := readOld(c.Tx)
	steps, err := r.options.Old(context.Background(), open)
	if err != nil {
		c.Fail(err)
		return
	}
	c.Begin()
	result, kept := &Upgraded{}, map[string]bool{}
	for _, a := range before {
		if a.open() {
			known, is := steps[a.ID]
			if !is {
				result.Dropped = append(result.Dropped, a.ID)
				continue
			}
			a = r.again(a, known)
			result.Kept = append(result.Kept, a.ID)
		}
		r.save(c, Approval{}, &a)
		kept[a.ID] = true
		if events := untold[a.ID]; len(events) > 0 && !r.options.Silent {
			c.Put(bucketUntold, []byte(a.ID), events)
		} else {
			c.Delete(bucketUntold, []byte(a.ID)) // nobody is told of an upgrade
		}
	}
	for _, t := range tasks {
		if !slices.ContainsFunc(t.Items, func(id string) bool { return !kept[id] }) {
			r.number(c, &t)
			t.entries(c.Put)
		}
	}
	r.upgraded = result
}

// readTasks reads all tasks.
func readTasks(tx *ledger.Tx) (tasks []Task) {
	for _, read := range tx.Scan(bucketTasks, nil) {
		var t Task
		if read(&t) {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// again makes an open approval of format 1 from its steps. Of a reservation only the log
// can say what became of it; it is asked after that.
func (s *Store) again(a Approval, steps []Step) Approval {
	begun := Approval{
		ApprovalRequest: a.ApprovalRequest,
		ID:              a.ID,
		Status:          Pending,
		FiledAt:         a.FiledAt,
		ExpiresAt:       a.FiledAt.Add(a.Terms.Timeout),
		Reserved:        a.Reserved,
		Upgraded:        true,
	}
	to, _ := begun.since(steps, s.now(), func(*Step) bool { return true })
	for n := range to.Votes {
		v := &to.Votes[n]
		for _, d := range to.Votes[:n] {
			if d.Kind == Delegate && d.To == v.By {
				v.From = d.By // nobody noted why they may speak
			}
		}
	}
	return to
}
