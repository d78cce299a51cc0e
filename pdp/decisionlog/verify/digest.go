package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path/filepath"

	"policy-service/pdp/decisionlog"
)

// digest is a segment file's, as records name it.
type digest struct {
	text string
	err  error
}

// digestOf computes a file's digest while it is read for its records: there are two
// things to do with each byte, and more than one processor.
func digestOf(f io.ReaderAt, size int64) <-chan digest {
	ready := make(chan digest, 1)
	go func() {
		text, err := fileDigest(io.NewSectionReader(f, 0, size))
		ready <- digest{text, err}
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
// its place, a crash leaves the file that was.
func (c *checker) digests(dir string, names []string, digests map[int64]<-chan digest) error {
	known := map[int64][]string{}
	for _, f := range c.told.files {
		known[f.Segment] = append(known[f.Segment], f.Digest)
	}
	for i, name := range names {
		ready, read := digests[int64(i+1)]
		said := known[int64(i+1)]
		if !read || len(said) == 0 {
			continue
		}
		is := <-ready
		if is.err != nil {
			return inFile(is.err, filepath.Join(dir, name))
		}
		if err := c.judge(is.text, said); err != nil {
			return inFile(err, filepath.Join(dir, name))
		}
		c.report.Digests++
	}
	return nil
}

func (c *checker) judge(is string, said []string) error {
	for i, one := range said {
		if one != is {
			continue
		}
		if i < len(said)-1 {
			c.report.doubt("content that was recorded as redacted or retired is still there: start the server, and it removes it")
		}
		return nil
	}
	return problem(Altered, -1, "the file is none that a record names: its digest is %s, and the last one recorded %s", is, said[len(said)-1])
}
