package verify

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/decisionlog/format"
)

// A segment is one file being read: three buckets side by side, in the order of their
// keys, which is that of the log.
type segment struct {
	log                          *checker
	hashes, records, checkpoints *cursor
}

// readSegment reads one segment, and computes the digest of its file at the same time: there are
// two things to do with each byte, and more than one processor.
func (d *directory) readSegment(n int) error {
	f, err := os.Open(d.file(n))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return problem(Unreadable, -1, "it is no file")
	}
	last := n+1 == len(d.names)
	if !last {
		var computing sync.WaitGroup
		of := &digest{}
		computing.Go(func() { of.text, of.err = fileDigest(io.NewSectionReader(f, 0, info.Size())) })
		defer computing.Wait() // the file must stay open until it is read
		d.digests[n] = of
	}
	b, err := pages.Open(f, info.Size())
	if err != nil {
		return err
	}
	d.log.report.Read++
	return d.log.segment(b, int64(n+1), last)
}

func (c *checker) segment(b *pages.File, number int64, last bool) (err error) {
	s := segment{log: c}
	if s.hashes, err = bucket(b, format.BucketHashes); err != nil {
		return err
	}
	if s.records, err = bucket(b, format.BucketRecords); err != nil {
		return err
	}
	if s.checkpoints, err = bucket(b, format.BucketCheckpoints); err != nil {
		return err
	}
	if last && !s.hashes.has && !s.records.has {
		return nil // prepared ahead, and never written to
	}
	if c.cut != nil && s.hashes.has {
		c.cut.Code = Missing
		return c.cut
	}
	if err := c.meta(b, number); err != nil {
		return err
	}
	for err == nil && s.hashes.has {
		if err = s.checkpointsHere(); err == nil {
			err = s.one()
		}
	}
	if err == nil {
		err = s.checkpointsHere()
	}
	if err == nil {
		err = s.leftOver()
	}
	return err
}

// meta compares a segment's meta bucket with the segments before it.
func (c *checker) meta(b *pages.File, number int64) error {
	meta, _, err := b.Bucket(format.BucketMeta)
	if err != nil {
		return err
	}
	values, err := meta.Values(format.MetaFormat, format.MetaSegment, format.MetaFirst, format.MetaEdge)
	if err != nil {
		return err
	}
	switch version := string(values[format.MetaFormat]); version {
	case strconv.Itoa(format.Version), strconv.Itoa(format.VersionJournaled):
	default:
		return problem(Unreadable, -1, "its format is %.20q, and this verifies formats %d and %d: a newer version made it, or it is damaged; verify it with the newer version", version, format.Version, format.VersionJournaled)
	}
	if n, ok := integer(values[format.MetaSegment]); !ok || n != number {
		return problem(Altered, -1, "it says it is segment %d", n)
	}
	first, ok := integer(values[format.MetaFirst])
	switch {
	case !ok || first < c.tree.size:
		return problem(Altered, -1, "it begins with record %d, and the segments before it end with %d", first, c.tree.size-1)
	case first > c.tree.size:
		return problem(Missing, c.tree.size, "it and all up to record %d are in no segment", first-1)
	case !sameHashes(values[format.MetaEdge], c.tree.roots):
		return problem(Altered, -1, "its edge is not that of the records before it")
	}
	return c.nameUnknown(b, meta, number)
}

// one takes the next leaf, with its record where there is one.
func (s *segment) one() error {
	sequence := s.log.tree.size
	n, ok := integer(s.hashes.peek.Key)
	switch stored := s.hashes.peek.Value; {
	case ok && n > sequence:
		return problem(Missing, sequence, "neither it nor its hash is there")
	case !ok || n < sequence || len(stored) < tlog.HashSize || s.hashes.peek.IsBucket:
		return problem(Altered, sequence, "its hashes are none")
	}
	leaf := tlog.Hash(s.hashes.peek.Value[:tlog.HashSize])
	if err := s.content(sequence, leaf); err != nil {
		return err
	}
	if !sameHashes(s.hashes.peek.Value, s.log.tree.made) {
		return problem(Altered, sequence, "the hashes stored with it are not those of the tree")
	}
	return s.hashes.next()
}

// content takes a record, if it is there, and its leaf.
func (s *segment) content(sequence int64, leaf tlog.Hash) error {
	n, ok := integer(s.records.peek.Key)
	if !s.records.has || ok && n > sequence {
		return s.log.missing(leaf)
	}
	if !ok || n < sequence || s.records.peek.IsBucket {
		return problem(Altered, sequence, "a record stands before it that has no hash")
	}
	line := s.records.peek.Value
	if tlog.RecordHash(line) != leaf {
		return problem(Altered, sequence, "it is not the record that its hash was made of")
	}
	if err := s.log.record(line); err != nil {
		p := asProblem(err)
		if p.Code == Missing && s.records.next() == nil && s.records.has {
			s.log.inOtherOrder(p, s.records.peek.Value)
		}
		return p
	}
	s.log.leaf(leaf)
	return s.records.next()
}

// checkpointsHere takes the checkpoints of the tree as it is now.
func (s *segment) checkpointsHere() error {
	for s.checkpoints.has && len(s.checkpoints.peek.Key) == 16 {
		size, ok := integer(s.checkpoints.peek.Key[:8])
		if ok && size > s.log.tree.size {
			return nil
		}
		if !ok || size < s.log.tree.size {
			break
		}
		if err := s.log.checkpoint(string(bytes.Clone(s.checkpoints.peek.Value))); err != nil {
			return err
		}
		if err := s.checkpoints.next(); err != nil {
			return err
		}
	}
	if s.checkpoints.has {
		return problem(Altered, -1, "a checkpoint stands where none belongs")
	}
	return nil
}

// leftOver returns the problem of a record without a hash. A checkpoint beyond the hashes is
// noted in log.cut.
func (s *segment) leftOver() error {
	if s.records.has {
		return problem(Altered, s.log.tree.size, "it has no hash")
	}
	if !s.checkpoints.has {
		return nil
	}
	size, _ := integer(s.checkpoints.peek.Key[:8])
	// It is not returned here: if a later segment has hashes, records are missing before its
	// own, and otherwise the end is.
	s.log.cut = problem(Truncated, s.log.tree.size, "it and all up to record %d are not there, which a checkpoint covers", size-1)
	return nil
}

// integer reads a key of the log's buckets.
func integer(key []byte) (n int64, ok bool) {
	if len(key) != 8 {
		return 0, false
	}
	u := binary.BigEndian.Uint64(key)
	return int64(u), u < 1<<62
}

// A cursor goes through one bucket, and looks one element ahead.
type cursor struct {
	*pages.Cursor
	peek pages.Element
	has  bool
}

// bucket begins to read a bucket of the file's top, and stands on its first element. A
// bucket that is not there reads as an empty one.
func bucket(f *pages.File, name string) (*cursor, error) {
	b, _, err := f.Bucket(name)
	if err != nil {
		return nil, err
	}
	c := &cursor{Cursor: b.Cursor()}
	return c, c.next()
}

// next goes to the next element, into peek.
func (c *cursor) next() (err error) {
	c.peek, c.has, err = c.Next()
	return err
}
