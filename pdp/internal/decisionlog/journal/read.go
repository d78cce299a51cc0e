package journal

import (
	"cmp"
	"crypto/hmac"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/internal/plainfile"
)

// Damage is the error of a journal that has lost answered frames, or may have.
type Damage struct {
	File   string // where it begins
	Offset int64
	Reason string
	// Missing are the numbers of the frames that cannot be read, from the first to the second of each pair. It is
	// empty if none is known of, but there may be some.
	Missing [][2]uint64
	// Records is how many records are lost, -1 if that is unknown.
	Records int64
}

// Error says where the damage is, and counts the loss.
func (d *Damage) Error() string {
	text := fmt.Sprintf("the journal is damaged: %s at byte %d: %s", d.File, d.Offset, d.Reason)
	for i, m := range d.Missing {
		sep := ","
		if i == 0 {
			sep = "; missing are frames"
		}
		text += fmt.Sprintf("%s %d to %d", sep, m[0], m[1])
	}
	if d.Records < 0 {
		return text + "; the number of lost records is unknown"
	}
	return text + fmt.Sprintf("; %d records are lost", d.Records)
}

// Read looks for the frames after the one with this number, which was the last that was filled, and returns them in
// order. It changes nothing. The log must keep writers away. If the error is a [*Damage], the frames are those that can
// be read all the same.
//
// With a key no frame counts that was not written with it. Without one nothing says who wrote the frames.
func Read(dir string, id ID, after uint64, key *Key) ([]Frame, error) {
	var files [2]*scanned
	for which, path := range Paths(dir) {
		s, err := scan(path, which, id, auth{key, after})
		if err != nil {
			return nil, fmt.Errorf("reading the journal: %w", err)
		}
		files[which] = s
	}
	return pendingIn(files[0], files[1], after)
}

// Records is how many records frames have.
func Records(frames []Frame) (n uint64) {
	for _, f := range frames {
		for _, c := range f.Calls {
			n += uint64(len(c.Records))
		}
	}
	return n
}

// pendingIn returns the frames after this one of two files.
func pendingIn(first, second *scanned, after uint64) (frames []Frame, err error) {
	if second.header.round < first.header.round {
		first, second = second, first
	}
	all := slices.Clone(first.frames)
	for _, f := range second.frames { // which come after those of the first: otherwise they were put there
		if len(first.frames) == 0 || f.number > first.frames[len(first.frames)-1].number {
			all = append(all, f)
		}
	}
	for _, f := range all {
		if f.whole && f.number > after {
			frames = append(frames, Frame{Number: f.number, First: f.first, Calls: f.calls})
		}
	}
	if d := judge(first, second, all, after); d != nil {
		return frames, d
	}
	return frames, nil
}

// judge returns the damage of a journal, nil if there is none.
func judge(first, second *scanned, all []found, after uint64) *Damage {
	g := gaps{first, second, all}
	d := g.damage(after)
	for _, s := range []*scanned{first, second} {
		if s.bad == nil || !s.unknown && (s == first && len(second.frames) > 0 || s.goesOn(s.bad.Offset)) {
			continue // there is a later frame, so the numbers show what is missing
		}
		if d == nil {
			d = s.bad
		} else if s.unknown { // which says more about why frames are missing
			d.File, d.Offset, d.Reason = s.bad.File, s.bad.Offset, s.bad.Reason
		}
		d.Records = -1
	}
	return d
}

// gaps looks for frames that are missing.
type gaps struct {
	first, second *scanned // by round
	all           []found  // of both, by number
}

// damage returns what is missing of the frames after this one that were durable.
func (g *gaps) damage(after uint64) (d *Damage) {
	synced, at := max(g.first.header.frames, g.second.header.frames), after
	gap := func(to uint64) { // from at+1
		if d == nil {
			d = &Damage{Reason: "a frame that was durable is not there as it was written"}
			d.File, d.Offset = g.place(at + 1)
		}
		d.Missing = append(d.Missing, [2]uint64{at + 1, to})
		from, known := g.records(at)
		until, knownToo := g.records(to)
		if d.Records >= 0 && known && knownToo && until > from {
			d.Records += int64(until - from)
		} else {
			d.Records = -1
		}
	}
	for _, f := range g.all {
		synced = max(synced, f.number-1)
		if !f.whole || f.number <= after {
			continue
		}
		if f.number > at+1 {
			gap(f.number - 1)
		}
		at = f.number
	}
	if synced > at {
		gap(synced)
	}
	return d
}

// records returns how many records the frames up to this one have, if anything says so.
func (g *gaps) records(number uint64) (n uint64, known bool) {
	i, is := g.find(number)
	switch {
	case number == 0:
		return 0, true
	case is:
		return g.all[i].first + uint64(g.all[i].records), true
	case i < len(g.all) && g.all[i].number == number+1:
		return g.all[i].first, true
	case number == g.first.header.frames:
		return g.first.header.records, true
	case number == g.second.header.frames:
		return g.second.header.records, true
	}
	return 0, false
}

// place returns where a missing frame begins, or should: at its own head, else behind the frame before it, else at the
// beginning of a file.
func (g *gaps) place(number uint64) (file string, offset int64) {
	i, is := g.find(number)
	switch {
	case is: // its head is whole
		return g.all[i].file.name(), g.all[i].offset
	// no earlier frame is left, and the next one begins its file, or there is none
	case i == 0 && (len(g.all) == 0 || g.all[0].offset == framesAt):
		return g.first.name(), framesAt
	// the next frame is in the same file or begins its own, or there is none: so behind the frame before
	case i > 0 && (i == len(g.all) || g.all[i].file == g.all[i-1].file || g.all[i].offset == framesAt):
		return g.all[i-1].file.name(), g.all[i-1].end()
	}
	// the next frame is not the first of its file, so what is missing began there
	return g.all[i].file.name(), framesAt
}

func (g *gaps) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(g.all, number, func(f found, n uint64) int { return cmp.Compare(f.number, n) })
}

// scanned is a file that was read.
type scanned struct {
	path    string
	header  header
	bytes   []byte  // zeros where they cannot be read
	frames  []found // whose head is whole; by number and offset
	bad     *Damage // the last part that cannot be read
	unknown bool    // it has no header, so nothing in it can be read, and it is unknown which file is later
}

// goesOn reports if there is a frame behind this offset.
func (s *scanned) goesOn(offset int64) bool {
	return len(s.frames) > 0 && s.frames[len(s.frames)-1].offset > offset
}

func (s *scanned) name() string { return filepath.Base(s.path) }

// auth says which frames must have been written with the key: those that are not filled. Others may have been written
// with a key of before.
type auth struct {
	key   *Key // nil is any
	after uint64
}

func (a auth) of(number uint64) *Key {
	if number <= a.after {
		return nil
	}
	return a.key
}

// found is a frame in a file.
type found struct {
	head
	file  *scanned
	whole bool
	calls []Call
}

// scan reads a file. What is wrong with what it finds is no error.
func scan(path string, which int, id ID, by auth) (*scanned, error) {
	s := &scanned{path: path}
	f, err := openRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.unknown = true
		s.lost(0, "the file is missing")
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := s.read(f, info.Size(), which, id, by); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// read reads a file.
func (s *scanned) read(f io.ReaderAt, size int64, which int, id ID, by auth) error {
	s.load(f, min(size, framesAt))
	if err := s.readHeader(which, id); err != nil {
		return err
	}
	if s.header.round == 0 {
		s.unknown = true
		s.lost(0, "the file does not say that it belongs to this journal")
		return nil
	}
	if size < s.header.size {
		s.lost(size, fmt.Sprintf("the file ends here, and had %d bytes", s.header.size))
	}
	s.load(f, min(size, s.header.size))
	s.readFrames(by)
	return nil
}

// pieceSize is how much is read at once.
const pieceSize = 16 * block

// load reads on, up to an offset. A block that cannot be read is lost.
func (s *scanned) load(f io.ReaderAt, to int64) {
	from := int64(len(s.bytes))
	s.bytes = append(s.bytes, make([]byte, to-from)...)
	for piece := range slices.Chunk(s.bytes[from:], pieceSize) {
		if _, err := f.ReadAt(piece, from); err != nil {
			at := from
			for one := range slices.Chunk(piece, block) {
				if _, err := f.ReadAt(one, at); err != nil {
					clear(one)
					s.lost(at, err.Error())
				}
				at += block
			}
		}
		from += int64(len(piece))
	}
}

// lost notes a part of the file that cannot be read. The last one counts: what is later may hide more.
func (s *scanned) lost(offset int64, reason string) {
	if s.bad == nil || s.bad.Offset < offset {
		s.bad = &Damage{File: s.name(), Offset: offset, Reason: reason, Records: -1}
	}
}

// openRegular opens a file for reading that is no symbolic link.
func openRegular(path string) (*os.File, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(named, opened) {
		err = fmt.Errorf("%s is a symbolic link; put the file there", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// readHeader takes the header that counts. Without one the round stays 0.
func (s *scanned) readHeader(which int, id ID) error {
	for b := range slices.Chunk(s.bytes, block) {
		if len(b) < block {
			continue
		}
		h, whole, err := decodeHeader(b)
		if err != nil {
			return err
		}
		if whole && h.id == id && int(h.which) == which && h.round > s.header.round {
			s.header = h
		}
	}
	return nil
}

// readFrames looks for frames at the beginning of each block.
func (s *scanned) readFrames(by auth) {
	seed, number := s.header.seed(), s.header.frames
	for at := int64(framesAt); at+block <= int64(len(s.bytes)); {
		h, is := decodeHead(s.bytes[at:], &s.header, seed)
		if !is || h.offset != at || h.number <= number || h.end() > s.header.size {
			at += block
			continue
		}
		calls, err := s.content(h, by.of(h.number))
		if errors.Is(err, errMAC) {
			s.lost(at, err.Error())
			at += block
			continue
		}
		s.frames = append(s.frames, found{h, s, err == nil, calls})
		number, at = h.number, h.end()
	}
}

// errMAC: the checksums of a frame are good, and it was not written with the key.
var errMAC = errors.New("a frame was written without the log.key that is in force")

// content reads the calls of a frame. The bodies of their records are parts of the file's bytes.
func (s *scanned) content(h head, key *Key) ([]Call, error) {
	if h.end() > int64(len(s.bytes)) {
		return nil, errEncoded
	}
	frame := s.bytes[h.offset:h.end()]
	content := frame[headSize:][:h.length]
	if crc32.Update(s.header.seed(), castagnoli, content) != h.content {
		return nil, errEncoded
	}
	if key != nil && !hmac.Equal(key.mac().of(nil, &s.header.id, frame, content), frame[summedSize:headSize]) {
		return nil, errMAC
	}
	return decodeCalls(content, h.calls, h.records)
}

// Aside are the names that [MoveAside] gives the two files at a time.
func Aside(dir string, at time.Time) [2]string {
	names := Paths(dir)
	for i := range names {
		names[i] += asideMark + at.UTC().Format("20060102T150405.000000000Z")
	}
	return names
}

// asideMark stands in the name of a file that was moved aside.
const asideMark = ".lost-"

// MoveAside gives both files other names, which say when, and returns those. A file that is missing is passed over, so
// that what was cut short can be done again.
func MoveAside(dir string, at time.Time) (moved []string, err error) {
	aside := Aside(dir, at)
	for i, path := range Paths(dir) {
		to := aside[i]
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return moved, cmp.Or(err, fmt.Errorf("moving the journal aside: there is %s", to))
		}
		if err := os.Rename(path, to); err != nil {
			return moved, fmt.Errorf("moving the journal aside: %w", err)
		}
		moved = append(moved, to)
	}
	return moved, plainfile.SyncDir(dir)
}

// RemoveAside removes the files that were moved aside: they hold records.
func RemoveAside(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		for _, path := range Paths(dir) {
			if strings.HasPrefix(e.Name(), filepath.Base(path)+asideMark) {
				err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
			}
		}
	}
	return errors.Join(err, plainfile.SyncDir(dir))
}
