package ledger

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
)

// A value is JSON after the 32 bytes of its HMAC-SHA256. The MAC is taken of the bucket's name, the key and the JSON,
// with the length of each of the first two before it (2 bytes, big-endian). So a program that can write to the file and has no
// key makes no value, and moves none to another place.

// Tx is a transaction that reads one consistent state. The first value that cannot be read is the error of the whole
// transaction, and after it nothing is found: so its author need not look after each value.
type Tx struct {
	bolt *bbolt.Tx
	form *Form
	err  error
}

// in runs a function in a transaction of bbolt.
func (f *Form) in(do func(*Tx)) func(*bbolt.Tx) error {
	return func(bolt *bbolt.Tx) error {
		tx := &Tx{bolt: bolt, form: f}
		do(tx)
		return tx.err
	}
}

// Fail has the whole transaction fail, unless the error is nil, or it has failed before.
func (tx *Tx) Fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// Err is why the transaction fails.
func (tx *Tx) Err() error { return tx.err }

// Try reads without having the whole transaction fail.
func (tx *Tx) Try(read func(*Tx)) error {
	other := *tx
	read(&other)
	return other.err
}

// Get reads a value, and reports whether there is one.
func (tx *Tx) Get(bucket string, key []byte, into any, options ...json.Options) bool {
	if b := tx.bolt.Bucket([]byte(bucket)); b != nil && tx.err == nil {
		if value := b.Get(key); value != nil {
			return tx.read(bucket, key, value, into, options...)
		}
	}
	return false
}

// GetItem reads an item, and reports whether there is one.
func GetItem[I Item](tx *Tx, id string) (item I, found bool) {
	found = tx.Get(tx.form.Items, []byte(id), &item)
	if is := item.Standing().ID; found && is != id {
		tx.Fail(fmt.Errorf("%w: %q in %s says that it is %q", tx.form.Errors.Damaged, id, tx.form.Items, is))
	}
	return item, found && tx.err == nil
}

// OpenItems reads the open items of a file, in the order of their ids.
func OpenItems[I Item](tx *Tx) []I { return openOf[I](tx, tx.listed()) }

func openOf[I Item](tx *Tx, ids []string) []I {
	open := make([]I, 0, len(ids))
	for _, id := range ids {
		if item, found := GetItem[I](tx, id); found && item.Standing().Open {
			open = append(open, item)
		}
	}
	return open
}

// listed are the ids of the items that the file lists as open, in their order.
func (tx *Tx) listed() (ids []string) {
	for key, read := range tx.Scan(BucketDue, nil) {
		_, id := readTimeKey(key)
		ids = append(ids, id)
		read(new(bool))
	}
	slices.Sort(ids)
	return ids
}

// Last is the last number that [Change.Next] gave for a bucket, 0 for none.
func (tx *Tx) Last(bucket string) uint64 {
	if b := tx.bolt.Bucket([]byte(bucket)); b != nil {
		return b.Sequence()
	}
	return 0
}

// Scan yields the keys of a bucket in their order: those after a key, or all if that is nil. With each key comes a
// function that reads its value, as Get does, until the loop goes on.
func (tx *Tx) Scan(bucket string, after []byte) iter.Seq2[[]byte, func(into any) bool] {
	return func(yield func([]byte, func(any) bool) bool) {
		b := tx.bolt.Bucket([]byte(bucket))
		if b == nil {
			return
		}
		c := b.Cursor()
		key, value := c.Seek(after)
		if len(after) > 0 && bytes.Equal(key, after) {
			key, value = c.Next()
		}
		read := func(into any) bool { return tx.read(bucket, key, value, into) }
		for key != nil && tx.err == nil && yield(key, read) {
			key, value = c.Next()
		}
	}
}

// read reads a value, and reports whether it was written with the key. What it makes shares nothing with the file.
func (tx *Tx) read(bucket string, key, value []byte, into any, options ...json.Options) bool {
	text, err := tx.form.unseal(bucket, key, value)
	if err == nil {
		options = append([]json.Options{tx.form.Unmarshal}, options...)
		if err = json.Unmarshal(bytes.Clone(text), into, options...); err != nil {
			err = fmt.Errorf("%w: %q in %s: %w", tx.form.Errors.Damaged, key, bucket, err)
		}
	}
	tx.Fail(err)
	return err == nil
}

// begin makes the buckets of a new file.
func (tx *Tx) begin() {
	for _, name := range tx.form.buckets() {
		if _, err := tx.bolt.CreateBucket([]byte(name)); err != nil {
			tx.Fail(err)
		}
	}
	tx.put(BucketMeta, []byte(KeyFormat), tx.form.Version)
}

func (tx *Tx) put(bucket string, key []byte, v any) {
	text, err := json.Marshal(v, tx.form.Marshal)
	if err != nil {
		tx.Fail(fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	if tx.err == nil {
		tx.err = tx.bolt.Bucket([]byte(bucket)).Put(key, append(tx.form.sum(bucket, key, text), text...))
	}
}

func (f *Form) sum(bucket string, key, text []byte) []byte {
	mac := hmac.New(sha256.New, f.Key)
	for _, part := range [][]byte{[]byte(bucket), key} {
		_, _ = mac.Write(binary.BigEndian.AppendUint16(nil, uint16(len(part)))) // never fails; bbolt bounds a key to 32 KiB
		_, _ = mac.Write(part)
	}
	_, _ = mac.Write(text)
	return mac.Sum(nil)
}

func (f *Form) unseal(bucket string, key, value []byte) (text []byte, err error) {
	if len(value) < sha256.Size || !hmac.Equal(value[:sha256.Size], f.sum(bucket, key, value[sha256.Size:])) {
		return nil, fmt.Errorf("%w: %q in %s was not written with the key of %s that is here",
			f.Errors.Damaged, key, bucket, f.Items)
	}
	return value[sha256.Size:], nil
}

// TimeKey is a key of a bucket that is in the order of time.
func TimeKey(at time.Time, id string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano())), id...)
}

// readTimeKey reads what TimeKey wrote.
func readTimeKey(key []byte) (at time.Time, id string) {
	if len(key) < 8 {
		return at, ""
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(key))).UTC(), string(key[8:])
}

// Change is a transaction that writes. The first write that cannot be done is the error of the whole change, too.
type Change[S Step] struct {
	*Tx
	// Size is how many records the log has: what goes on record of this change stands there or later.
	Size  uint64
	steps []*entry[S]
	saved []Standing
	news  []Notice
	then  []func()
}

// Put writes a value.
func (c *Change[S]) Put(bucket string, key []byte, v any) { c.put(bucket, key, v) }

// Delete removes a value, if it is there.
func (c *Change[S]) Delete(bucket string, key []byte) {
	if c.err == nil {
		c.err = c.bolt.Bucket([]byte(bucket)).Delete(key)
	}
}

// Save writes an item, and every index of the ledger that has it. Was is how the item stood before, the zero value of a
// new one.
func (c *Change[S]) Save(was Standing, item Item) {
	is := item.Standing()
	c.Put(c.form.Items, []byte(is.ID), item)
	if was.Open {
		c.Delete(BucketDue, TimeKey(was.Ends, is.ID))
	}
	ends := bucketEnded
	if is.Open {
		ends = BucketDue
	}
	c.Put(ends, TimeKey(is.Ends, is.ID), true)
	c.Delete(bucketReserved, []byte(is.ID))
	if len(is.Reserved) > 0 {
		c.Put(bucketReserved, []byte(is.ID), true)
	}
	c.saved = append(c.saved, is)
}

// Forget removes an item that ended.
func (c *Change[S]) Forget(item Item) {
	is := item.Standing()
	c.Delete(c.form.Items, []byte(is.ID))
	c.Delete(bucketEnded, TimeKey(is.Ends, is.ID))
	c.saved = append(c.saved, is)
}

// Step puts a step into the outbox.
func (c *Change[S]) Step(step S) {
	number, err := c.bolt.Bucket([]byte(bucketOutbox)).NextSequence()
	c.Fail(err)
	c.steps = append(c.steps, &entry[S]{Entry: step.Entry(), number: number, step: &step})
	c.Put(bucketOutbox, numberKey(number), step)
}

// Next is the next number of a bucket, and at least so much. No number comes twice.
func (c *Change[S]) Next(bucket string, least uint64) (number uint64) {
	if c.err == nil {
		b := c.bolt.Bucket([]byte(bucket))
		number = max(b.Sequence()+1, least)
		c.err = b.SetSequence(number)
	}
	return number
}

// Tell makes news of an item that the change does not save, because something was done that has to do with it.
func (c *Change[S]) Tell(item Item) { c.news = append(c.news, item.Standing().notice()) }

// Then has a function run when the change is durable, before the next change begins.
func (c *Change[S]) Then(f func()) { c.then = append(c.then, f) }

// Erase has the file written anew by [Ledger.Erase], or at the next opening, so that no page of it has the bytes of what
// the change takes away.
func (c *Change[S]) Erase() { c.Put(BucketMeta, []byte(keyErase), true) }

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
