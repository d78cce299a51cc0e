package verify

import (
	"cmp"
	"fmt"
)

// finish judges the rest at the end: content that is gone, the key, and
// the checkpoint from outside.
func (c *checker) finish() error {
	c.report.Unsigned = c.tree.size - c.report.Size
	c.report.Key = c.keys.inForce.text
	c.unnamed()
	if c.cut != nil {
		return c.cut
	}
	if c.report.checkpoints == 0 {
		return problem(Missing, -1, "there is no checkpoint: nothing says what the log was")
	}
	if err := c.explain(); err != nil {
		return err
	}
	if !c.keys.trusted {
		return problem(OtherKey, -1, "the log is signed by %s, which the key given did not sign in", c.keys.inForce.text)
	}
	if err := c.compare(); err != nil {
		return err
	}
	c.holds(c.report.Checkpoint)
	if err := c.quorum(); err != nil {
		return err
	}
	c.conclude()
	return nil
}

// explain finds for each record without content the signed record that says why.
func (c *checker) explain() error {
	c.report.Retired = c.gone.cut(0, c.signed.below)
	for _, sequence := range c.signed.redacted {
		c.report.Redacted += c.gone.cut(sequence, sequence+1)
	}
	if len(c.gone) == 0 {
		return nil
	}
	first := c.gone[0]
	why := "no record says it was redacted or retired"
	unsigned := c.unsigned
	if n := c.gone.cut(0, unsigned.below); n > 0 {
		why = "only a record that no checkpoint covers says it was retired: start the server, and it signs"
	}
	for _, sequence := range unsigned.redacted {
		if sequence == first.first {
			why = "only a record that no checkpoint covers says it was redacted: start the server, and it signs"
		}
	}
	return problem(Missing, first.first, "its content is not there, and %s", why)
}

// conclude reports the proofs, and the possibilities that are not excluded.
func (c *checker) conclude() {
	r := &c.report
	r.proved("each of the %d records that the last checkpoint covers is what was signed, in this order, and none is missing between them", r.Size)
	if r.Redacted+r.Retired > 0 {
		r.proved("the content of %d redacted and %d retired records is gone by a recorded decision; their hashes are what they were", r.Redacted, r.Retired)
	}
	if r.Withdrawn > 0 {
		first := r.WithdrawnFirst[0]
		r.proved("allows that were never answered, by records of their own log: %d; the first is record %d, of decision %q, whose use of %q went to others",
			r.Withdrawn, first.Record, first.Decision, cmp.Or(first.Approval, first.Capability))
	}
	if c.outside != nil {
		r.proved("the log continues the checkpoint given, of %d records", c.outside.size)
	}
	c.witnessed()
	c.doubts()
}

// doubts are said of every log that was read to its end.
func (c *checker) doubts() {
	r := &c.report
	if r.Live {
		r.doubt("anything about what a server wrote since its last sealed segment: it was not to be read beside it")
	}
	r.NotExcluded = append(append(r.NotExcluded, r.findings()...), c.suspects...)
	r.doubtUnknown()
	switch {
	case c.outside == nil:
		r.doubt("records cut off the end, or the whole put back to an older copy: give a checkpoint that was kept elsewhere")
	case r.Size > c.outside.size:
		r.doubt("records behind record %d, which the checkpoint given does not cover, cut off the end, or signed anew by whoever holds the key", c.outside.size-1)
	}
	switch {
	case c.outside == nil && !r.KeyGiven:
		r.doubt("another log signed by another key: the key was taken from what it is to prove; give the log's key")
	case c.outside == nil && !c.asksWitnesses():
		r.doubt("the log signed anew by whoever holds, or stole, its private key: give a checkpoint that was kept elsewhere")
	}
}

func (r *Report) proved(format string, args ...any) {
	r.Proved = append(r.Proved, fmt.Sprintf(format, args...))
}

func (r *Report) doubt(format string, args ...any) {
	r.NotExcluded = append(r.NotExcluded, fmt.Sprintf(format, args...))
}
