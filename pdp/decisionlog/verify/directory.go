package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"policy-service/pdp/decisionlog"
)

// directory verifies all segments of a data directory, in order.
func (c *checker) directory(data string) error {
	dir := filepath.Join(data, decisionlog.LogDir)
	names, err := segments(dir)
	if err != nil {
		return err
	}
	first, err := firstKey(data)
	if err == nil {
		err = c.keys.start(first)
	}
	if err != nil {
		return err
	}
	digests := map[int64]<-chan digest{}
	sealed := c.sealed(dir, names)
	for i, name := range names[:sealed] {
		if err := c.segmentFile(filepath.Join(dir, name), int64(i+1), i+1 == len(names), digests); err != nil {
			return err
		}
	}
	if err := c.active(data, dir, names, sealed, digests); err != nil {
		return err
	}
	if err := c.finish(); err != nil {
		return err
	}
	return c.digests(dir, names, digests)
}

// segments lists the names of the segments, of which there must be all from 1.
func segments(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem(Usage, -1, "%s is not there: give a data directory, or an exported file", dir)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // sorted, as digits sort
		if isSegment(e.Name()) {
			names = append(names, e.Name())
		}
	}
	for i, name := range names {
		if want := fmt.Sprintf(decisionlog.SegmentName, i+1); name != want {
			return nil, inFile(problem(Missing, -1, "the segment is not there"), filepath.Join(dir, want))
		}
	}
	if len(names) == 0 {
		return nil, inFile(problem(Missing, -1, "no segment is there"), dir)
	}
	return names, nil
}

func isSegment(name string) bool {
	digits, found := strings.CutSuffix(name, ".db")
	return found && len(digits) == 8 && strings.Trim(digits, "0123456789") == ""
}

// sealed is how many segments can be read whoever else is there. A server writes to the
// last one only, or to the last but one, with one prepared behind it.
func (c *checker) sealed(dir string, names []string) int {
	n := len(names)
	for n > 0 && n > len(names)-2 {
		info, err := os.Stat(filepath.Join(dir, names[n-1]))
		if err != nil || info.Mode().Perm()&0o222 == 0 {
			break
		}
		n--
	}
	return n
}

// active reads what may be written to, while nobody does. The lock is held meanwhile,
// and only then, because a server that starts does not wait long for it.
func (c *checker) active(data, dir string, names []string, sealed int, digests map[int64]<-chan digest) error {
	unlock, free, err := lockShared(filepath.Join(data, filepath.FromSlash(decisionlog.LockFile)))
	if err != nil {
		return err
	}
	if !free {
		c.report.Live = true
		return nil
	}
	defer unlock()
	for i, name := range names[sealed:] {
		n := sealed + i + 1
		if err := c.segmentFile(filepath.Join(dir, name), int64(n), n == len(names), digests); err != nil {
			return err
		}
	}
	return nil
}

// firstKey is the log's oldest public key.
func firstKey(data string) (string, error) {
	name := filepath.Join(data, decisionlog.PublicKeyFile)
	f, err := os.Open(name)
	if err != nil {
		return "", inFile(problem(Missing, -1, "the log's public keys are not there: %v", err), name)
	}
	defer func() { _ = f.Close() }()
	line, err := newLines(bufio.NewReader(f), decisionlog.MaxCheckpointBytes).next()
	if err != nil {
		return "", inFile(err, name)
	}
	return string(line), nil
}

// inFile says which file a problem is in.
func inFile(err error, name string) error {
	if err == nil {
		return nil
	}
	p := asProblem(err)
	if p.File == "" {
		p.File = name
	}
	return p
}
