package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"

	"policy-service/pdp/internal/decisionlog/format"
)

// digest is the digest of a segment's file.
type digest struct {
	text string
	err  error
}

func fileDigest(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return format.DigestPrefix + hex.EncodeToString(sum.Sum(nil)), nil
}

// checkDigests compares each file that redaction or retention has written with the digests that signed records give of
// it. Any of them will do: if a crash comes between the record and the new file, the old file is still there.
func (d *directory) checkDigests() error {
	known := map[int64][]string{}
	for _, f := range d.log.signed.files {
		known[f.Segment] = append(known[f.Segment], f.Replaces, f.Digest)
	}
	for n := range d.names {
		is, recorded := d.digests[n], known[int64(n+1)]
		if is == nil || len(recorded) == 0 { // it was not read, or is as it was sealed
			continue
		}
		err := is.err
		if err == nil {
			err = d.log.judge(is.text, recorded)
		}
		if err != nil {
			return inFile(err, d.file(n))
		}
		d.log.report.Digested++
	}
	return nil
}

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
