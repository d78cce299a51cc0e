package verify

import (
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/decisionlog"
)

// A checker takes the log's leaves in order, from whichever source, and holds what is
// needed to judge them: the tree's edge, the last time, the keys, and what is missing.
type checker struct {
	options Options
	report  Report
	scanner *scanner
	keys    keyring
	tree    frontier
	time    string // of the last record that has content
	outside *checkpoint
	// reached is the root where the tree had the size of the checkpoint from outside.
	reached *tlog.Hash
	apart   bool     // records are there without those before them
	late    error    // the first problem that any other goes before
	cut     *Problem // a checkpoint covers more than its segment has
	gone    spans    // sequences without content
	batches batches
	// What signed records say of that, and of files; and, until a checkpoint covers it,
	// what unsigned ones say: anybody could have written those.
	told, unsigned told
}

// told is what admin records say of the log itself.
type told struct {
	redacted []int64
	below    int64
	files    []segmentFile
	// named are the digests that records give of each segment. Only checker.told has them,
	// and has also those that are not signed.
	named map[int64][]string
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
	if err := c.tell(&r); err != nil {
		return err
	}
	if c.options.Record != nil {
		c.options.Record(r.sequence, line)
	}
	c.report.Records++
	return nil
}

// outOfPlace says what it means that a record stands where another belongs.
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

// tell notes what an admin record says of the log.
func (c *checker) tell(r *record) error {
	var files []segmentFile
	switch u := &c.unsigned; r.event {
	case decisionlog.EventSegment:
		if r.details.Previous.Digest != "" {
			files = []segmentFile{r.details.Previous}
		}
	case decisionlog.EventSealed:
		file := r.details.segmentFile
		if named := c.told.named[file.Segment]; len(named) > 0 && !slices.Contains(named, file.Digest) {
			return problem(Altered, r.sequence, "it gives segment %d another digest than a record before it", file.Segment)
		}
		files = []segmentFile{file}
	case decisionlog.EventRedacted:
		files, u.redacted = []segmentFile{r.details.File}, append(u.redacted, r.details.Sequence)
	case decisionlog.EventRetired:
		files, u.below = r.details.Files, max(u.below, min(r.details.Below, r.sequence))
	}
	c.unsigned.files = append(c.unsigned.files, files...)
	for _, f := range files {
		c.told.named[f.Segment] = append(c.told.named[f.Segment], f.Digest)
	}
	if len(c.told.files)+len(c.unsigned.files) > maxSpans {
		return problem(Unreadable, r.sequence, "more than %d redactions", maxSpans)
	}
	return nil
}

// leaf takes a leaf's hash, of a record just taken or of one whose content is gone.
func (c *checker) leaf(hash tlog.Hash) {
	c.tree.add(hash)
	if c.outside != nil && c.outside.size == c.tree.size {
		root := c.tree.root()
		c.reached = &root
	}
	if c.options.Progress != nil && c.tree.size%(1<<16) == 0 {
		c.options.Progress(c.tree.size)
	}
}

// missing takes a record whose content is gone.
func (c *checker) missing(hash tlog.Hash) error {
	c.batches.gone = true
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
	c.report.Checkpoints++
	c.sign(signed)
	return nil
}

// sign makes the report, and what records say, go as far as a checkpoint that holds.
func (c *checker) sign(signed checkpoint) {
	c.report.Size, c.report.Root, c.report.Checkpoint, c.report.Origin = signed.size, signed.root.String(), signed.text, signed.origin
	c.told.redacted = append(c.told.redacted, c.unsigned.redacted...)
	c.told.files = append(c.told.files, c.unsigned.files...)
	c.told.below = max(c.told.below, c.unsigned.below)
	c.unsigned = told{}
}

// later notes a problem that is one only where there is no other: what was altered is
// said to be altered, also where it makes the time go back.
func (c *checker) later(p *Problem) {
	if c.late == nil {
		c.late = p
	}
}

// at says which record a problem was met behind, where it does not say so itself.
func at(err error, sequence int64) error {
	p := asProblem(err)
	if p.Sequence < 0 && sequence > 0 {
		p.Sequence = sequence - 1
	}
	return p
}
