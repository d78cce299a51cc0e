package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"policy-service/pdp/decisionlog"
)

// digest is a segment file's, as records name it.
type digest struct {
	text string
	err  error
	end  int64 // of the segment: the first record behind it
}

// digestOf computes a file's digest while it is read for its records: there are two
// things to do with each byte, and more than one processor.
func digestOf(f io.ReaderAt, size int64) <-chan digest {
	ready := make(chan digest, 1)
	go func() {
		text, err := fileDigest(io.NewSectionReader(f, 0, size))
		ready <- digest{text: text, err: err}
	}()
	return ready
}

func fileDigest(r io.Reader) (string, error) {
	block, all := make([]byte, decisionlog.DigestBlock), sha256.New()
	for {
		n, err := io.ReadFull(r, block)
		if n > 0 {
			sum := sha256.Sum256(block[:n])
			_, _ = all.Write(sum[:])
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return decisionlog.DigestPrefix + hex.EncodeToString(all.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// digests holds each sealed file against what signed records say it is. The file that
// any of them names is accepted: between the record of a redaction and the new file in
// its place, a crash leaves the file that was. A file that none of them names is no
// finding, because its digest is recorded some time after it was sealed: it is said.
func (c *checker) digests(dir string, names []string, digests map[int64]<-chan digest) error {
	known := map[int64][]string{}
	for _, f := range c.told.files {
		known[f.Segment] = append(known[f.Segment], f.Digest)
	}
	for i, name := range names {
		ready, read := digests[int64(i+1)]
		if !read {
			continue
		}
		is, said := <-ready, known[int64(i+1)]
		if len(said) == 0 {
			if c.lacksDigest(is.end) {
				c.report.Files.Undigested = append(c.report.Files.Undigested, name)
			}
			continue
		}
		if is.err != nil {
			return inFile(is.err, filepath.Join(dir, name))
		}
		if err := c.judge(is.text, said); err != nil {
			return inFile(err, filepath.Join(dir, name))
		}
		c.report.Files.Digested++
	}
	if some := c.report.Files.Undigested; len(some) > 0 {
		c.report.doubt("changes to %s that touch no record, no hash and no checkpoint: no signed record has the digest yet; start the server, and it records it",
			strings.Join(some, ", "))
	}
	return nil
}

// lacksDigest reports whether some record that was read should have the digest of the
// segment that ends before a record. That of the last one read stands behind it. That of a
// retired one may have been in a record that was retired later.
func (c *checker) lacksDigest(end int64) bool { return end < c.tree.size && end > c.told.below }

func (c *checker) judge(is string, said []string) error {
	switch last := len(said) - 1; {
	case said[last] == is:
		return nil
	case slices.Contains(said, is):
		c.report.doubt("content that was recorded as redacted or retired is still there: start the server, and it removes it")
		return nil
	}
	return problem(Altered, -1, "the file is none that a record names: its digest is %s, and the last one recorded %s", is, said[len(said)-1])
}
