package verify

import (
	"errors"
	"io"

	"golang.org/x/mod/sumdb/tlog"
)

// consistency verifies the one line that says a log continues another.
func (x *exported) consistency() error {
	b := &x.begin
	if _, err := x.lines.next(); !errors.Is(err, io.EOF) {
		return problem(Altered, -1, "something follows the proof")
	}
	if len(x.log.keys.given) == 0 {
		return problem(Usage, -1, "a proof of consistency has no key in it: give the log's")
	}
	older, err := x.signature(b.Old, nil)
	if err != nil {
		return err
	}
	x.log.keys.given = append(x.log.keys.given, x.rotated(b.Old)...)
	newer, err := x.signature(b.New, nil)
	if err != nil {
		return err
	}
	if older.origin != newer.origin || b.Origin != newer.origin {
		return problem(Altered, -1, "its checkpoints are of two logs")
	}
	if err := continues(older, newer, b.Hashes); err != nil {
		return err
	}
	x.signed, x.log.report.checkpoints = newer, 2
	x.log.sign(newer)
	x.log.report.Key = x.log.keys.inForce.text
	x.log.holds(newer.text)
	if err := x.log.quorum(); err != nil {
		return err
	}
	x.log.report.proved("the log of %d records is that of %d with more at its end", newer.size, older.size)
	x.log.witnessed()
	x.log.report.doubt("anything about what the records say: they are not here")
	return x.related()
}

// continues checks that the tree of one checkpoint is the beginning of another's.
func continues(older, newer checkpoint, proof []tlog.Hash) error {
	switch {
	case older.size > newer.size:
		return problem(Truncated, newer.size, "the old checkpoint covers %d records and the new one %d", older.size, newer.size)
	case older.size == newer.size && older.root != newer.root:
		return problem(Forked, -1, "two checkpoints of %d records are not of the same ones", older.size)
	case older.size == 0 || older.size == newer.size:
		return nil
	}
	if err := tlog.CheckTree(proof, newer.size, newer.root, older.size, older.root); err != nil {
		return problem(Forked, -1, "nothing proves that the log of %d records is that of %d with more at its end", newer.size, older.size)
	}
	return nil
}

// rotated are the keys that a checkpoint signs in, once it is known to be good.
func (x *exported) rotated(text string) []key {
	k := keyring{inForce: x.log.keys.inForce}
	if _, err := k.open(text); err != nil {
		return nil
	}
	return k.past
}

// related holds the checkpoint from outside against the one signed here, as far as that
// is possible without the leaves between them.
func (x *exported) related() error {
	if x.log.outside == nil {
		x.log.doubts()
		return nil
	}
	outside, _, err := x.log.keys.any(x.log.outside.text)
	if err != nil {
		return err
	}
	switch {
	case outside.size == x.signed.size && outside.root != x.signed.root:
		return problem(Forked, -1, "two checkpoints of %d records are not of the same ones", outside.size)
	case outside.size != x.signed.size:
		x.log.report.doubt("that the checkpoint given, of %d records, is of another history: that takes a proof of consistency", outside.size)
	}
	return nil
}
