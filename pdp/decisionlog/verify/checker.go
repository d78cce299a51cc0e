package verify

import (
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
)

// A checker takes the leaves of the log in order, from any source. It holds the facts that
// judge them: the edge of the tree, the last time, the keys, and the missing records.
type checker struct {
	options Options
	report  Report
	scanner *scanner
	keys    keyring
	tree    frontier
	time    string   // of the last record that has content
	outside *outside // nil if no checkpoint was given
	beside  []*outside
	// conflict is the one of them that is kept as evidence of another history, or nil.
	conflict *outside
	suspects []string // sentences about witnesses
	holding  []string // checkpoints that are of the log
	apart    bool     // records are there without those before them
	held     bool     // a server holds the directory, so its last records are not to be read
	late     error    // the first problem that any other goes before
	cut      *Problem // a checkpoint covers more than its segment has
	gone     spans    // sequences without content
	batches  batches
	runs     runs
	digests  map[int64]map[string]bool // by segment, as records give them, signed or not; nil if a filter left records out
	// Until a checkpoint covers a record, its claims may be anybody's.
	signed, unsigned claims
}

// claims are those of admin records about the log itself.
type claims struct {
	redacted []int64
	below    int64 // retention dropped every record below this sequence
	files    []segmentFile
}

// record takes a record with its content.
func (c *checker) record(line []byte) error {
	r, err := c.scanner.record(line)
	if err != nil {
		return problem(Altered, c.tree.size, "%v", err)
	}
	if r.sequence != c.tree.size {
		return c.outOfPlace(r.sequence)
	}
	if r.time < c.time {
		c.later(problem(TimeReversed, r.sequence, "it is dated %s, and the record before it %s", r.time, c.time))
	}
	c.time = r.time
	if c.batches.lacks(&r) && !c.apart {
		c.later(problem(Missing, r.sequence, "it inherits from the record of its batch, and that does not stand before it"))
	}
	if err := c.noteEvent(&r); err != nil {
		return err
	}
	if c.options.Record != nil {
		c.options.Record(r.sequence, line)
	}
	c.report.Records++
	return nil
}

// outOfPlace is the problem of a record that stands where another belongs.
func (c *checker) outOfPlace(found int64) error {
	if found > c.tree.size {
		p := problem(Missing, c.tree.size, "record %d stands in its place", found)
		p.found = found
		return p
	}
	return problem(Altered, c.tree.size, "record %d stands in its place, a second time", found)
}

// inOtherOrder makes of a record that is missing, because a later one stands in its
// place, one that only stands elsewhere, where what follows belongs before that.
func (c *checker) inOtherOrder(p *Problem, next []byte) {
	if r, err := c.scanner.record(next); err == nil && r.sequence <= p.found {
		p.Code, p.What = Altered, p.What+", and what belongs before that behind it"
	}
}

// noteEvent notes the claims of an admin record about the log.
func (c *checker) noteEvent(r *record) error {
	var files []segmentFile
	switch u := &c.unsigned; r.event {
	case format.EventSegment:
		c.report.name(r.details.UnsignedTails...)
	case format.EventRedacted:
		files, u.redacted = []segmentFile{r.details.File}, append(u.redacted, r.details.Sequence)
	case format.EventUnsigned:
		c.report.name(r.details.Tail)
	case format.EventWithdrawn:
		c.report.withdraw(r)
	case format.EventRetired:
		files, u.below = r.details.Files, max(u.below, min(r.details.Below, r.sequence))
	}
	c.unsigned.files = append(c.unsigned.files, files...)
	for _, f := range files {
		if c.digests == nil {
			break
		}
		switch known := c.digests[f.Segment]; {
		case known == nil:
			c.digests[f.Segment] = map[string]bool{f.Replaces: true, f.Digest: true}
		case known[f.Replaces]:
			known[f.Digest] = true
		default:
			return problem(Altered, r.sequence, "it replaces another file of segment %d than a record before it names", f.Segment)
		}
	}
	if len(c.signed.files)+len(c.unsigned.files)+len(c.report.UnsignedTails) > maxSpans {
		return problem(Unreadable, r.sequence, "more than %d redactions", maxSpans)
	}
	c.runs.take(r)
	return nil
}

// leaf takes a leaf's hash, of a record just taken or of one whose content is gone.
func (c *checker) leaf(hash tlog.Hash) {
	c.tree.add(hash)
	c.outside.reach(&c.tree)
	for _, o := range c.beside {
		o.reach(&c.tree)
	}
}

// missing takes a record whose content is gone.
func (c *checker) missing(hash tlog.Hash) error {
	c.batches.gone = true
	c.runs.lost()
	if !c.gone.add(c.tree.size) {
		return problem(Unreadable, c.tree.size, "more than %d gaps", maxSpans)
	}
	c.leaf(hash)
	return nil
}

// checkpoint takes a checkpoint of the log where the tree has its size.
func (c *checker) checkpoint(text string) error {
	signed, err := c.keys.open(text)
	if err != nil {
		return at(err, c.tree.size)
	}
	if signed.size != c.tree.size {
		return problem(Altered, c.tree.size, "a checkpoint of %d records stands here", signed.size)
	}
	if root := c.tree.root(); signed.root != root {
		return problem(Altered, c.report.Size, "it, or one up to record %d, is not what was signed: the checkpoint's root is %v, and that of the records %v",
			c.tree.size-1, signed.root, root)
	}
	c.report.checkpoints++
	c.sign(signed)
	return nil
}

// sign extends the report, and the signed claims, to a checkpoint that holds.
func (c *checker) sign(signed checkpoint) {
	c.report.Size, c.report.Root = signed.size, signed.root.String()
	c.report.Checkpoint, c.report.Origin = signed.text, signed.origin
	c.signed.redacted = append(c.signed.redacted, c.unsigned.redacted...)
	c.signed.files = append(c.signed.files, c.unsigned.files...)
	c.signed.below = max(c.signed.below, c.unsigned.below)
	c.unsigned = claims{}
}

// later notes a problem that counts only if there is no other: a record that was altered is
// reported as altered, even if the alteration makes the time go back.
func (c *checker) later(p *Problem) {
	if c.late == nil {
		c.late = p
	}
}

// at adds to a problem the record before it, if the problem names no record itself.
func at(err error, sequence int64) error {
	p := asProblem(err)
	if p.Sequence < 0 && sequence > 0 {
		p.Sequence = sequence - 1
	}
	return p
}
