package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Proof is a record of the log of an origin, with the proof that it is there. A process with another log goes by it, and asks
// no other process.
type Proof struct {
	Origin string `json:"origin"`
	Line   []byte `json:"line"`
	Proof  []byte `json:"proof"` // in the form of C2SP tlog-proof
}

// MostProved is how long the line of a record may be that others get. A longer one is known to its origin alone.
const MostProved = 256 << 10

// provedAtOnce is how many bytes the lines and proofs in one change have at most. They become a third longer.
const provedAtOnce = MostBytes * 5 / 8

func (f *Form) proof(id, record string) string { return f.of(prefixProofs) + id + "/" + record }

// proving are the records that an item may count by from a change on, so that others need proofs of them. Taken are those that
// another origin was to record.
type proving struct {
	item    string
	records []string
	taken   bool
}

// proving is nothing if nobody else reads the engine.
func (l *Ledger[I, S]) proving(e *entry[S]) proving {
	with := proving{item: e.of().Item}
	if l.engine.Shared() && l.options.Log.Prove != nil {
		for _, step := range e.Steps {
			with.records = append(with.records, step.Entry().Proves...)
		}
	}
	return with
}

// prove writes the proofs of those records by which an item counts, and are in the log here. It removes entries of the outbox
// with the last of them: who finds none has the proofs. What another process has taken over since is left to that one.
func (l *Ledger[I, S]) prove(ctx context.Context, with proving, entries ...string) error {
	counting := func(tx Reader) (records []string, elsewhere bool) {
		item, found := l.options.Rules.State(tx, with.item)
		if !found {
			return nil, false
		}
		is := item.Standing()
		for _, record := range with.records {
			if by := is.By[record]; by == l.options.Origin {
				records = append(records, record)
			} else if with.taken && by != "" {
				elsewhere = true
			}
		}
		return records, elsewhere
	}
	var records []string
	if err := l.View(func(tx *Tx) { records, _ = counting(tx) }); err != nil {
		return err
	}
	left := false
	write := func(proofs map[string]Proof, entries []string) error {
		return l.Change(ctx, func(c *Change[S]) {
			if len(with.records) > 0 {
				var records []string
				records, left = counting(c) // nothing is left behind of an item that has ended meanwhile
				for _, record := range records {
					if p, is := proofs[record]; is {
						c.Put(l.options.Form.proof(with.item, record), p)
					}
				}
				if left {
					return
				}
			}
			for _, key := range entries {
				c.Delete(key)
			}
		})
	}
	proofs, size := map[string]Proof{}, 0
	for _, record := range slices.Backward(records) { // so that the first needs a new checkpoint, and no other
		p, found, err := l.options.Log.Prove(ctx, record)
		if err != nil {
			return fmt.Errorf("the proof of record %s: %w", record, err)
		}
		bytes := len(p.Line) + len(p.Proof)
		if !found || len(p.Line) > MostProved || bytes > provedAtOnce {
			continue
		}
		if size += bytes; size > provedAtOnce {
			if err := write(proofs, nil); err != nil {
				return err
			}
			proofs, size = map[string]Proof{}, bytes
		}
		p.Origin = l.options.Origin
		proofs[record] = p
	}
	err := write(proofs, entries)
	if err == nil && !left {
		l.struck.removed(entries)
	}
	return err
}

// Prove writes the proofs of all records by which an item counts, and are in the log here.
func (l *Ledger[I, S]) Prove(ctx context.Context, item I) error {
	if !l.engine.Shared() || l.options.Log.Prove == nil {
		return nil
	}
	with := proving{item: item.Standing().ID}
	for record := range item.Standing().By {
		with.records = append(with.records, record)
	}
	slices.Sort(with.records)
	return l.prove(ctx, with)
}

// ErrUnproved: the record of another origin cannot be shown to be on its log. Nothing follows from that.
var ErrUnproved = errors.New("there is no proof here of a record of another origin")

// Proof reads the proof of a record of another origin that an item counts by. Its reader has to verify it.
func (l *Ledger[I, S]) Proof(id, record, origin string) (p Proof, err error) {
	found := false
	err = l.View(func(tx *Tx) { found = tx.Get(l.options.Form.proof(id, record), &p) > 0 })
	if err == nil && (!found || p.Origin != origin) {
		err = fmt.Errorf("%w: %w: record %s of %s", l.options.Form.Errors.Unavailable, ErrUnproved, record, origin)
	}
	return p, err
}

// DropProofs removes the proofs of an item that has ended.
func (l *Ledger[I, S]) DropProofs(ctx context.Context, id string) error {
	var keys []string
	prefix := l.options.Form.proof(id, "")
	err := l.View(func(tx *Tx) {
		for key := range tx.Scan(prefix, "") {
			keys = append(keys, prefix+key)
		}
	})
	for some := range slices.Chunk(keys, MostKeys/2) {
		if err == nil {
			err = l.Change(ctx, func(c *Change[S]) {
				for _, key := range some {
					c.Delete(key)
				}
				c.Erase()
			})
		}
	}
	return err
}
