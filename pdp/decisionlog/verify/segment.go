package verify

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/boltfile/pages"
	"policy-service/pdp/decisionlog"
)

// A segment is one file being read: three buckets side by side, in the order of their
// keys, which is that of the log.
type segment struct {
	*checker
	hashes, records, checkpoints *cursor
}

// segmentFile reads one segment, and begins to compute its file's digest beside it.
func (c *checker) segmentFile(name string, number int64, last bool, digests map[int64]<-chan digest) error {
	f, err := os.Open(name)
	if err != nil {
		return inFile(err, name)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return inFile(problem(Unreadable, -1, "it is no file"), name)
	}
	if !last {
		ready := digestOf(f, info.Size())
		digests[number] = ready
		// The file must stay open until it is read; a digest is a value, kept in the channel.
		defer func() {
			d := <-ready
			d.end = c.tree.size
			kept := make(chan digest, 1)
			kept <- d
			digests[number] = kept
		}()
	}
	b, err := pages.Open(f, info.Size())
	if err != nil {
		return inFile(err, name)
	}
	c.report.Files.Read++
	return inFile(c.segment(b, number, last), name)
}

func (c *checker) segment(b *pages.File, number int64, last bool) (err error) {
	s := segment{checker: c}
	for _, open := range []struct {
		cursor **cursor
		name   string
	}{{&s.hashes, decisionlog.BucketHashes}, {&s.records, decisionlog.BucketRecords}, {&s.checkpoints, decisionlog.BucketCheckpoints}} {
		if *open.cursor, err = bucket(b, open.name); err != nil {
			return err
		}
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

// meta checks what a segment says of itself against what the segments before it are.
func (c *checker) meta(b *pages.File, number int64) error {
	meta, err := bucket(b, decisionlog.BucketMeta)
	values := map[string][]byte{}
	for ; err == nil && meta.has; err = meta.next() {
		values[string(meta.peek.Key)] = meta.peek.Value
	}
	if err != nil {
		return err
	}
	if format := string(values[decisionlog.MetaFormat]); format != strconv.Itoa(decisionlog.FormatVersion) {
		return problem(Unreadable, -1, "its format is %.20q, and this verifies format %d", format, decisionlog.FormatVersion)
	}
	if n, ok := integer(values[decisionlog.MetaSegment]); !ok || n != number {
		return problem(Altered, -1, "it says it is segment %d", n)
	}
	first, ok := integer(values[decisionlog.MetaFirst])
	switch {
	case !ok || first < c.tree.size:
		return problem(Altered, -1, "it begins with record %d, and the segments before it end with %d", first, c.tree.size-1)
	case first > c.tree.size:
		return problem(Missing, c.tree.size, "it and all up to record %d are in no segment", first-1)
	case !sameHashes(values[decisionlog.MetaEdge], c.tree.roots):
		return problem(Altered, -1, "its edge is not that of the records before it")
	}
	return nil
}

// one takes the next leaf, with its record where there is one.
func (s *segment) one() error {
	sequence := s.tree.size
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
	if !sameHashes(s.hashes.peek.Value, s.tree.made) {
		return problem(Altered, sequence, "the hashes stored with it are not those of the tree")
	}
	return s.hashes.next()
}

// content takes a record, or what is left of it, and its leaf.
func (s *segment) content(sequence int64, leaf tlog.Hash) error {
	n, ok := integer(s.records.peek.Key)
	if !s.records.has || ok && n > sequence {
		return s.missing(leaf)
	}
	if !ok || n < sequence || s.records.peek.IsBucket {
		return problem(Altered, sequence, "a record stands before it that has no hash")
	}
	line := s.records.peek.Value
	if tlog.RecordHash(line) != leaf {
		return problem(Altered, sequence, "it is not the record that its hash was made of")
	}
	if err := s.record(line); err != nil {
		p := asProblem(err)
		if p.Code == Missing && s.records.next() == nil && s.records.has {
			s.inOtherOrder(p, s.records.peek.Value)
		}
		return p
	}
	s.leaf(leaf)
	return s.records.next()
}

// checkpointsHere takes the checkpoints of the tree as it is now.
func (s *segment) checkpointsHere() error {
	for s.checkpoints.has && len(s.checkpoints.peek.Key) == 16 {
		size, ok := integer(s.checkpoints.peek.Key[:8])
		if ok && size > s.tree.size {
			return nil
		}
		if !ok || size < s.tree.size {
			break
		}
		if err := s.checkpoint(string(bytes.Clone(s.checkpoints.peek.Value))); err != nil {
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

// leftOver says what it means that a bucket goes on where the hashes end.
func (s *segment) leftOver() error {
	if s.records.has {
		return problem(Altered, s.tree.size, "it has no hash")
	}
	if !s.checkpoints.has {
		return nil
	}
	size, _ := integer(s.checkpoints.peek.Key[:8])
	// Whether the end is missing, or something before it, the next segment tells.
	s.cut = problem(Truncated, s.tree.size, "it and all up to record %d are not there, which a checkpoint covers", size-1)
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
