package ledger

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// A value is JSON after the 32 bytes of its HMAC-SHA256. The MAC is taken of the key, with its length before it (2 bytes,
// big-endian), and the JSON. So a program that can write to the engine and has no key makes no value, and moves none to
// another place.
//
// Where an engine has versions, the MAC of a value that was read before it was written is also taken of the version that it
// gets, and from the second on of the revision of the first: see place. So that program puts no older value back either. A
// first value can be put again after the key was deleted, and so can a value that is written without reading: no owner may
// have one of these grant anything.

// The keys that every ledger has. KIND is that of its items, by which several ledgers keep theirs in one engine. TIME is 16
// hexadecimal digits of nanoseconds since 1970.
//
//	KIND/ID                → the item
//	i/d/KIND/TIME/ID       → true, of each open item, by Ends
//	i/e/KIND/TIME/ID       → true, of each item that ended
//	r/KIND/ORIGIN/DECISION → the id of the item that has the reservation
//	o/KIND/ID/REVISION     → the steps of a change that may not be on record yet, by the revision before (outboxed)
//
// And where other processes write, too:
//
//	p/KIND/ID/RECORD       → a record that the item counts by, with its proof (Proof)
//	l/KIND/ORIGIN          → up to where the log of an origin is known (known)
//	j/WORK                 → which process does it for all (claim)
const (
	KeyFormat      = "g" // the number of the format, and the names of openings (general)
	prefixDue      = "i/d/"
	prefixEnded    = "i/e/"
	prefixReserved = "r/"
	prefixOutbox   = "o/"
	prefixProofs   = "p/"
	prefixOrigins  = "l/"
	prefixClaims   = "j/"
)

// Form is how values are written.
type Form struct {
	Items string // what items are called
	Kind  string // begins the keys of items: a letter or two, which no other kind begins with
	// Key seals values. A value that was not written with it counts for nothing.
	Key []byte
	// Version is the number of the format. A program refuses a number that it does not know.
	Version   int
	Marshal   json.Options
	Unmarshal json.Options
	Errors    Errors

	macs *sync.Pool // of hash.Hash with the key
}

// DeriveKey derives the key of one use from the key of an owner. Two uses have two.
func DeriveKey(key []byte, use string) []byte {
	derived, err := hkdf.Key(sha256.New, key, nil, use, sha256.Size)
	if err != nil {
		panic(err) // of the length alone, which is constant
	}
	return derived
}

// ready makes what the form needs for sealing.
func (f *Form) ready() {
	f.macs = &sync.Pool{New: func() any { return hmac.New(sha256.New, f.Key) }}
}

// general is the value of KeyFormat. It has the same members in every format: an older program reads the number by them.
type general struct {
	Format int      `json:"format"`
	Names  []naming `json:"names,omitzero"`
}

// Reader reads values.
type Reader interface {
	// Get reads a value, and returns its revision; 0 if there is none.
	Get(key string, into any) (revision uint64)
	// Fail has all fail, unless the error is nil, or it has failed before. Err is why it does.
	Fail(err error)
	Err() error
}

// Tx reads one consistent state. The first value that cannot be read is the error of the whole, and after it nothing is
// found: so its author need not look after each value.
type Tx struct {
	state State
	form  *Form
	err   error
}

// in runs a function on a state.
func (f *Form) in(do func(*Tx)) func(State) error {
	return func(s State) error {
		tx := &Tx{state: s, form: f}
		do(tx)
		return tx.err
	}
}

// Fail implements [Reader].
func (tx *Tx) Fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// Err implements [Reader].
func (tx *Tx) Err() error { return tx.err }

// Revision is that of the last change.
func (tx *Tx) Revision() uint64 { return tx.state.Revision() }

// Get implements [Reader].
func (tx *Tx) Get(key string, into any) (revision uint64) {
	if tx.err != nil {
		return 0
	}
	return tx.get(key, into).Revision
}

func (tx *Tx) get(key string, into any) Meta {
	value, meta, err := tx.state.Get(key)
	if tx.Fail(err); err != nil || meta.Revision == 0 || !tx.read(key, value, meta, into) {
		return Meta{}
	}
	return meta
}

// Scan yields the keys with a prefix, without it and in their order, from one on. With each key comes a function that
// reads its value, as Get does, until the loop goes on.
func (tx *Tx) Scan(prefix, from string) iter.Seq2[string, func(into any) bool] {
	return tx.scan(prefix, prefix+from, end(prefix), false)
}

// After is the first key that may come after another.
func After(key string) string { return key + "\x00" }

// Back yields as Scan does, and backward: the last key before one comes first.
func (tx *Tx) Back(prefix, before string) iter.Seq2[string, func(into any) bool] {
	return tx.scan(prefix, prefix, prefix+before, true)
}

// end is behind all keys with a prefix, which ends with a slash.
func end(prefix string) string { return prefix[:len(prefix)-1] + "0" }

func (tx *Tx) scan(prefix, from, to string, backward bool) iter.Seq2[string, func(into any) bool] {
	return func(yield func(string, func(any) bool) bool) {
		if tx.err != nil {
			return
		}
		tx.Fail(tx.state.Range(from, to, backward, func(key string, value []byte, meta Meta) bool {
			return yield(key[len(prefix):], func(into any) bool { return tx.read(key, value, meta, into) }) && tx.err == nil
		}))
	}
}

// Since yields the keys with a prefix c/WHOSE/, without it, that have a later revision, and that revision.
func (tx *Tx) Since(prefix string, revision uint64) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		if tx.err != nil {
			return
		}
		tx.Fail(tx.state.Since(prefix, revision, func(key string, revision uint64) bool {
			return yield(key[len(prefix):], revision) && tx.err == nil
		}))
	}
}

// read reads a value, and reports whether it was written with the key. What it makes shares nothing with the engine.
func (tx *Tx) read(key string, value []byte, meta Meta, into any) bool {
	text, err := tx.form.unseal(key, value, meta)
	if err == nil {
		if err = json.Unmarshal(bytes.Clone(text), into, tx.form.Unmarshal); err != nil {
			err = fmt.Errorf("%w: %q: %w", tx.form.Errors.Damaged, key, err)
		}
	}
	tx.Fail(err)
	return err == nil
}

// Format is the number of the format, and 0 if nothing was written yet. If this program does not know how to read the
// values, all fails.
func (tx *Tx) Format() int {
	var is general
	if tx.Get(KeyFormat, &is) == 0 {
		if tx.err != nil {
			tx.err = fmt.Errorf("%w: it does not say what its format is: %w", tx.form.Errors.Damaged, tx.err)
		}
		for key := range tx.scan("", "", "~", false) {
			tx.Fail(fmt.Errorf("%w: it has %q, and does not say what its format is", tx.form.Errors.Damaged, key))
		}
		return 0
	}
	if is.Format > tx.form.Version {
		tx.Fail(fmt.Errorf("its format is %d, and this version reads %d: %w; run that version, or restore what was backed up before the upgrade",
			is.Format, tx.form.Version, ErrNewer))
	} else if is.Format < tx.form.Version {
		tx.Fail(fmt.Errorf("its format is %d, and this version reads %d alone; run the version that wrote it", is.Format, tx.form.Version))
	}
	return is.Format
}

// place is the part of a MAC that says where a value stands among those of its key. That of a value that was written without
// reading is zero.
type place struct{ version, created uint64 }

// placeOf is the place of a value as it is stored.
func placeOf(meta Meta) place {
	if meta.Version == 1 { // its writer could not know the revision
		meta.Created = 0
	}
	return place{meta.Version, meta.Created}
}

// after is the place of the value that comes after another one, or after none.
func (m Meta) after() place {
	if m.Version == 0 {
		return place{version: 1}
	}
	return place{m.Version + 1, m.Created}
}

// seal makes a value of what is to be written.
func (f *Form) seal(key string, v any, at place) ([]byte, error) {
	text, err := json.Marshal(v, f.Marshal)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return append(f.sum(key, text, at), text...), nil
}

func (f *Form) sum(key string, text []byte, at place) []byte {
	mac := f.macs.Get().(hash.Hash)
	defer f.macs.Put(mac)
	mac.Reset()
	before := append(binary.BigEndian.AppendUint16(nil, uint16(len(key))), key...) // engines bound a key to 32 KiB
	if at != (place{}) {
		before = append(before, 0) // JSON does not begin so
		before = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(before, at.version), at.created)
	}
	_, _ = mac.Write(before) // never fails
	_, _ = mac.Write(text)
	return mac.Sum(nil)
}

func (f *Form) unseal(key string, value []byte, meta Meta) (text []byte, err error) {
	if len(value) >= sha256.Size {
		text = value[sha256.Size:]
		for _, at := range []place{placeOf(meta), {}} {
			if hmac.Equal(value[:sha256.Size], f.sum(key, text, at)) {
				return text, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %q was not written with the key of %s that is here, or is older than it should be",
		f.Errors.Damaged, key, f.Items)
}

// TimeKey is a key with a prefix by which keys are in the order of time.
func TimeKey(prefix string, at time.Time, id string) string {
	return fmt.Sprintf("%s%016x/%s", prefix, uint64(at.UnixNano()), id)
}

// readTimeKey reads what TimeKey wrote behind the prefix.
func readTimeKey(key string) (at time.Time, id string) {
	if len(key) < 17 {
		return at, ""
	}
	ns, _ := strconv.ParseUint(key[:16], 16, 64)
	return time.Unix(0, int64(ns)).UTC(), key[17:]
}

// Item is the key of an item.
func (f *Form) Item(id string) string { return f.Kind + "/" + id }

// of begins the keys of this kind with a prefix.
func (f *Form) of(prefix string) string { return prefix + f.Kind + "/" }

// due is the key of an item in the order of time, "" of one that is not there.
func (f *Form) due(s Standing) string {
	switch {
	case s.ID == "":
		return ""
	case s.Open:
		return TimeKey(f.of(prefixDue), s.Ends, s.ID)
	}
	return TimeKey(f.of(prefixEnded), s.Ends, s.ID)
}

// reserved is the key of a reservation. An origin may have slashes, and none of another is found with it.
func (f *Form) reserved(origin, decision string) string {
	return f.of(prefixReserved) + url.PathEscape(origin) + "/" + decision
}

// openItems reads the open items, in the order of their ids.
func (o *Options[I, S]) openItems(tx *Tx) (open []I) {
	var ids []string
	for key, read := range tx.Scan(o.Form.of(prefixDue), "") {
		if _, id := readTimeKey(key); read(new(bool)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if item, found := o.Rules.State(tx, id); found && item.Standing().Open {
			open = append(open, item)
		}
	}
	return open
}

// Change reads and writes. What it reads must be the same when the change is made, and what it writes is written then.
// It has no way to read a range: nothing would say that the range is the same then. The first error is that of the
// whole change, as with [Tx].
type Change[S Step] struct {
	// Size is how many records the log has: what goes on record of this change stands there or later. Origin is its name.
	Size   uint64
	Origin string
	tx     *Tx
	t      Transaction
	read   map[string]Meta
	brief  func(S) S
	entry  *entry[S]
	news   []Notice
}

// Fail implements [Reader].
func (c *Change[S]) Fail(err error) { c.tx.Fail(err) }

// Err implements [Reader].
func (c *Change[S]) Err() error { return c.tx.err }

// Get implements [Reader]. A key is read before it is written.
func (c *Change[S]) Get(key string, into any) (revision uint64) {
	if _, written := c.t.Puts[key]; written {
		c.Fail(fmt.Errorf("%w: %q is read after it was written", ErrInvalid, key))
	}
	meta := Meta{}
	if c.tx.err == nil {
		meta = c.tx.get(key, into)
	}
	c.read[key], c.t.If[key] = meta, meta.Revision
	return meta.Revision
}

// Put writes a value.
func (c *Change[S]) Put(key string, v any) {
	at := place{}
	if meta, is := c.read[key]; is && c.tx.state.Versions() {
		at = meta.after()
	}
	value, err := c.tx.form.seal(key, v, at)
	c.Fail(err)
	c.t.Puts[key] = value
}

// Delete removes a value, if it is there.
func (c *Change[S]) Delete(key string) { c.t.Puts[key] = nil }

// Save writes an item, and every index of the ledger that has it, if nobody wrote it since it was read. Was is how it
// stood then, the zero value of a new one.
func (c *Change[S]) Save(was Standing, item Item) {
	is := item.Standing()
	form, key := c.tx.form, c.tx.form.Item(is.ID)
	stored, meta, err := c.tx.state.Get(key)
	if err == nil && meta.Revision != was.Revision {
		err = ErrConflict
	}
	c.Fail(err)
	c.read[key], c.t.If[key] = meta, was.Revision
	c.Put(key, item)
	c.Fail(c.leaveRoom(key, len(stored)))
	before, now := form.due(was), form.due(is)
	if before != now && before != "" {
		c.Delete(before)
	}
	if before != now {
		c.Put(now, true)
	}
	gone := slices.DeleteFunc(slices.Clone(was.Reserved), func(r Reserved) bool { return slices.Contains(is.Reserved, r) })
	for _, r := range gone[:min(settledAtOnce, len(gone))] { // see settle for any others
		c.Delete(form.reserved(r.Origin, r.Decision))
	}
	for _, r := range is.Reserved {
		if !slices.Contains(was.Reserved, r) {
			c.Put(form.reserved(r.Origin, r.Decision), is.ID)
		}
	}
	for n, record := range slices.Sorted(maps.Keys(was.By)) { // see dropProofs for any others
		if _, stays := is.By[record]; !stays && n < settledAtOnce {
			c.Delete(form.proof(is.ID, record))
		}
	}
	c.Tell(item)
}

// leaveRoom refuses an item that has grown so large that its end would not fit in a change any more. Was is its size before.
func (c *Change[S]) leaveRoom(key string, was int) error {
	const most, little = MostBytes * 3 / 4, 1 << 10
	size := len(c.t.Puts[key])
	if size <= most || size <= was+little {
		return nil
	}
	return fmt.Errorf("%w: %q has %d bytes, and %d are the most", ErrTooMuch, key, size, most)
}

// Forget removes an item that ended.
func (c *Change[S]) Forget(item Item) {
	is := item.Standing()
	form, key := c.tx.form, c.tx.form.Item(is.ID)
	c.t.If[key] = is.Revision
	c.Delete(key)
	c.Delete(form.due(is))
	c.Tell(item)
}

// Step puts a step into the outbox. All steps of a change are of one item.
func (c *Change[S]) Step(step S) {
	if c.entry == nil {
		key := fmt.Sprintf("%s%s/%016x", c.tx.form.of(prefixOutbox), step.Entry().Item, c.tx.Revision())
		c.entry = &entry[S]{key: key, outboxed: outboxed[S]{Origin: c.Origin}}
	}
	c.entry.Steps = append(c.entry.Steps, step)
}

// putSteps writes the steps. Each is written in brief.
func (c *Change[S]) putSteps() {
	if c.entry == nil {
		return
	}
	o := outboxed[S]{Origin: c.Origin}
	for _, step := range c.entry.Steps {
		o.Steps = append(o.Steps, c.brief(step))
	}
	c.Put(c.entry.key, o)
}

// Tell makes news of an item, because something was done that has to do with it.
func (c *Change[S]) Tell(item Item) { c.news = append(c.news, item.Standing().notice()) }

// Erase has [Ledger.Erase], or the next opening, leave no byte of what the change takes away.
func (c *Change[S]) Erase() { c.t.Erase = true }
