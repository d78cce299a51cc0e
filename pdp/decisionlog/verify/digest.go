package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"

	"policy-service/pdp/decisionlog"
)

// digest is the digest of a segment's file, as records give it.
type digest struct {
	text string
	err  error
	end  int64 // of the segment: the first record after it
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

// checkDigests compares each sealed file with the digests that signed records give of it. Any of
// them will do: if a crash comes between the record of a redaction and the new file, the old file
// is still there. A file without a digest is no finding, because its digest is recorded some time
// after it was sealed, but the report names it.
func (d *directory) checkDigests() error {
	c, known := d.log, map[int64][]string{}
	for _, f := range c.signed.files {
		known[f.Segment] = append(known[f.Segment], f.Digest)
	}
	for n, name := range d.names {
		is, recorded := d.digests[n], known[int64(n+1)]
		switch {
		case is == nil: // it was not read
		case len(recorded) > 0:
			err := is.err
			if err == nil {
				err = c.judge(is.text, recorded)
			}
			if err != nil {
				return inFile(err, d.file(n))
			}
			c.report.Files.Digested++
		case c.lacksDigest(is.end):
			c.report.Files.Undigested = append(c.report.Files.Undigested, name)
		}
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
func (c *checker) lacksDigest(end int64) bool { return end < c.tree.size && end > c.signed.below }

func (c *checker) judge(is string, recorded []string) error {
	last := recorded[len(recorded)-1]
	switch {
	case is == last:
		return nil
	case slices.Contains(recorded, is):
		c.report.doubt("content that was recorded as redacted or retired is still there: start the server, and it removes it")
		return nil
	}
	return problem(Altered, -1, "the file is none that a record names: its digest is %s, and the last one recorded %s", is, last)
}
