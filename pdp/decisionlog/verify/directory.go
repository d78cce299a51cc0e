package verify

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"policy-service/pdp/internal/decisionlog/format"
)

// directory is the log of a data directory, while it is read.
type directory struct {
	log     *checker
	path    string
	names   []string // of the segments, in order
	digests map[int]*digest
}

// readDirectory verifies all segments of a data directory, in order.
func (c *checker) readDirectory(data string) error {
	d := directory{log: c, path: filepath.Join(data, format.LogDir), digests: map[int]*digest{}}
	var err error
	if d.names, err = segments(d.path); err != nil {
		return err
	}
	first, err := firstKey(data)
	if err == nil {
		err = c.keys.start(first)
	}
	if err != nil {
		return err
	}
	c.evidence(data)
	sealed := d.sealed()
	if err := d.read(0, sealed); err != nil {
		return err
	}
	if err := d.readActive(data, sealed); err != nil {
		return err
	}
	if err := c.finish(); err != nil {
		return err
	}
	return d.checkDigests()
}

// read reads the segments of a range of names.
func (d *directory) read(from, to int) error {
	for n := from; n < to; n++ {
		if err := inFile(d.readSegment(n), d.file(n)); err != nil {
			return err
		}
	}
	return nil
}

func (d *directory) file(n int) string { return filepath.Join(d.path, d.names[n]) }

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
		if want := fmt.Sprintf(format.SegmentName, i+1); name != want {
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

// sealed is how many segments can be read even if a server is running. A server writes only to
// the last one, or to the last but one if it has prepared another one after it.
func (d *directory) sealed() int {
	n := len(d.names)
	for n > 0 && n > len(d.names)-2 {
		info, err := os.Stat(d.file(n - 1))
		if err != nil || info.Mode().Perm()&0o222 == 0 {
			break
		}
		n--
	}
	return n
}

// readActive reads the segments that may be written to, if no server is running. It holds the
// lock only meanwhile, because a server that starts does not wait long for the lock.
func (d *directory) readActive(data string, sealed int) error {
	unlock, free, err := lockShared(filepath.Join(data, filepath.FromSlash(format.LockFile)))
	if err != nil {
		return err
	}
	if !free {
		d.log.report.Live, d.log.held = true, true
		return nil
	}
	defer unlock()
	return d.read(sealed, len(d.names))
}

// firstKey is the log's oldest public key.
func firstKey(data string) (string, error) {
	name := filepath.Join(data, format.PublicKeyFile)
	f, err := os.Open(name)
	if err != nil {
		return "", inFile(problem(Missing, -1, "the log's public keys are not there: %v", err), name)
	}
	defer func() { _ = f.Close() }()
	line, err := newLines(bufio.NewReader(f), format.MaxCheckpointBytes).next()
	if err != nil {
		return "", inFile(err, name)
	}
	return string(line), nil
}

// inFile adds to a problem the file that it is in.
func inFile(err error, name string) error {
	if err == nil {
		return nil
	}
	p := asProblem(err)
	p.File = cmp.Or(p.File, name)
	return p
}
