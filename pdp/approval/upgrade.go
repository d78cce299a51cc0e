package approval

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
)

// Upgraded says what became of the open approvals of a file of format 1, by their ids.
type Upgraded struct {
	Kept    []string `json:"kept"`
	Dropped []string `json:"dropped"`
}

// Upgraded is nil where the file had this format when it was opened, or was new.
func (s *Store) Upgraded() *Upgraded { return s.upgraded }

// Begun reports whether there was no file, or nothing in it, when it was opened.
func (s *Store) Begun() bool { return s.begun }

// Old are the open approvals of a file of format 1; is says whether it has that format.
// It changes nothing. Of a file that a process has open it says nothing.
func Old(data string) (open []Approval, is bool, err error) {
	err = examine(data, func(tx *bbolt.Tx) error {
		if is = tx.Bucket([]byte(bucketMeta)) != nil && isOld(values{Tx: tx}); !is {
			return nil
		}
		before, err := readOld(tx)
		open = before.open()
		return err
	})
	if errors.Is(err, ErrLocked) {
		return nil, false, nil
	}
	return open, is, err
}

// Unkeyed is how many open approvals a file has, for who has no key to read it with. It is
// [ErrLocked] where a process has it open, who may have the key still.
func Unkeyed(data string) (open int, err error) {
	err = examine(data, func(tx *bbolt.Tx) error {
		if due := tx.Bucket([]byte(bucketDue)); due != nil {
			open = due.Stats().KeyN
		}
		return nil
	})
	return open, err
}

// examine reads a file, if there is one.
func examine(data string, f func(*bbolt.Tx) error) error {
	path := filepath.Join(data, FileName)
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	db, err := boltfile.Open(path, ErrDamaged, boltfile.ToExamine, bbolt.Options{Timeout: lookTimeout})
	if errors.Is(err, boltfile.ErrLocked) {
		return ErrLocked
	}
	if err == nil {
		err = errors.Join(guard(func() error { return db.View(f) }), boltfile.Close(db, ErrDamaged))
	}
	if err != nil {
		return fmt.Errorf("opening the approvals: %s: %w", path, err)
	}
	return nil
}

// oldValue reads a value of format 1, which has a checksum where others have a MAC.
func oldValue(bucket string, key, value []byte, into any) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	crc := crc32.Update(crc32.Update(0, table, []byte(bucket)), table, key)
	if len(value) < 4 || binary.BigEndian.Uint32(value) != crc32.Update(crc, table, value[4:]) {
		return ErrDamaged
	}
	return unmarshal(bucket, key, value[4:], into)
}

// isOld reports whether a file is of format 1.
func isOld(tx values) bool {
	version := 0
	value := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyFormat))
	return oldValue(bucketMeta, []byte(keyFormat), value, &version) == nil && version == 1
}

// old is what is taken from a file of format 1.
type old struct {
	approvals []Approval
	tasks     []Task
	untold    map[string][]Event
}

// open are the approvals that wait, or can be used.
func (o old) open() (open []Approval) {
	for _, a := range o.approvals {
		if a.open() {
			open = append(open, a)
		}
	}
	return open
}

// upgrade takes a file of format 1, once, in one transaction. An open approval is made
// again from the steps that the log has of it, and dropped where the log has none: who
// could write to the file could write whatever they liked. One that ended is no reason to
// allow anything, and is taken as it is.
func (s *Store) upgrade(db *bbolt.DB) error {
	if s.options.Old == nil {
		return ErrOld
	}
	var before old
	if err := db.View(func(tx *bbolt.Tx) (err error) { before, err = readOld(tx); return err }); err != nil {
		return err
	}
	steps, err := s.options.Old(context.Background(), before.open())
	if err != nil {
		return err
	}
	result := &Upgraded{}
	err = db.Update(func(tx *bbolt.Tx) error { return s.rewrite(s.values(tx), before, steps, result) })
	if err == nil {
		s.upgraded = result
	}
	return err
}

func readOld(tx *bbolt.Tx) (o old, err error) {
	o.untold = map[string][]Event{}
	err = errors.Join(
		tx.Bucket([]byte(bucketApprovals)).ForEach(func(k, v []byte) error {
			var a Approval
			err := oldValue(bucketApprovals, k, v, &a)
			if a.ID != string(k) {
				err = errors.Join(err, ErrDamaged)
			}
			o.approvals = append(o.approvals, a)
			return err
		}),
		tx.Bucket([]byte(bucketTasks)).ForEach(func(k, v []byte) error {
			var t Task
			err := oldValue(bucketTasks, k, v, &t)
			o.tasks = append(o.tasks, t)
			return err
		}),
		tx.Bucket([]byte(bucketUntold)).ForEach(func(k, v []byte) error {
			var events []Event
			err := oldValue(bucketUntold, k, v, &events)
			o.untold[string(k)] = events
			return err
		}))
	return o, err
}

// rewrite writes the file anew, with what is kept.
func (s *Store) rewrite(tx values, before old, steps map[string][]Step, result *Upgraded) error {
	for _, name := range buckets {
		if err := tx.DeleteBucket([]byte(name)); err != nil {
			return err
		}
	}
	if err := create(tx); err != nil {
		return err
	}
	c := &change{tx: tx, size: s.options.Size(), silent: true}
	kept := map[string]bool{}
	do := writes{c: c}
	for _, a := range before.approvals {
		if a.open() {
			known, is := steps[a.ID]
			if !is {
				result.Dropped = append(result.Dropped, a.ID)
				continue
			}
			a = s.again(a, known)
			result.Kept = append(result.Kept, a.ID)
		}
		if err := c.save(nil, &a); err != nil {
			return err
		}
		kept[a.ID] = true
		if events := before.untold[a.ID]; len(events) > 0 && !s.options.Silent {
			do.put(bucketUntold, []byte(a.ID), events)
		}
	}
	for _, t := range before.tasks {
		if !slices.ContainsFunc(t.Items, func(id string) bool { return !kept[id] }) {
			do.task(t)
		}
	}
	return do.err
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
