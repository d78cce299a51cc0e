package journal

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"policy-service/pdp/internal/plainfile"
)

// The errors of a journal. After any other error of [Journal.Write] or [Journal.Erase] the journal has failed: each of
// these returns that error from then on, and nothing is written any more.
var (
	// ErrFull: the frame has no room before frames are filled. Nothing was written, and the journal is as it was.
	ErrFull = errors.New("the journal is full")
	// ErrTooLarge: an empty file could not hold the frame, so it must go on record without the journal. Nothing was
	// written.
	ErrTooLarge = errors.New("too large for the journal")
	// ErrPending: there are frames that are not filled.
	ErrPending = errors.New("the journal has what the log has not")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("the journal is closed")
)

// Options are what a journal takes from outside. The zero value is ready to use.
type Options struct {
	// Size is the size of each of the two files: DefaultSize unless set, at least MinSize and at most MaxSize.
	Size int64
	// Key authenticates the frames.
	Key Key
	// OpenFile takes the place of [plainfile.OpenFile], for a test whose disk fails.
	OpenFile func(name string, flag int, mode fs.FileMode) (File, error)
	// Step is called at each of the steps below, by whoever takes it. It is for tests that end the process there.
	Step func(step string)
}

// Limit is how large each of the two files is.
func (o *Options) Limit() int64 { return cmp.Or(o.Size, DefaultSize) }

// File is what the journal asks of a file it writes to.
type File interface {
	io.WriterAt
	io.Closer
	// Sync makes what was written durable, and the size of the file if it has changed.
	Sync() error
}

// The steps.
const (
	StepCreate       = "create"        // before a file is made
	StepCreated      = "created"       // both files are durable
	StepWrite        = "write"         // before a frame is written
	StepWritten      = "written"       // before it is synced
	StepSynced       = "synced"        // it is durable, and Write is about to return
	StepBegin        = "begin"         // before one of the two headers of a round is written
	StepBegunWritten = "begun-written" // before it is synced
	StepBegun        = "begun"         // it is durable
	StepSwitch       = "switch"        // before the first frame goes into the other file
	StepErase        = "erase"         // before a piece of a file is overwritten with zeros
	StepErased       = "erased"        // no file holds what was filled
)

// Steps are all of the steps.
func Steps() []string {
	return []string{StepCreate, StepCreated, StepWrite, StepWritten, StepSynced, StepBegin, StepBegunWritten, StepBegun,
		StepSwitch, StepErase, StepErased}
}

// Journal is a journal that is written to. Its methods may be called at the same time.
type Journal struct {
	dir     string
	id      ID
	options Options
	turned  atomic.Bool   // a Write went on in the other file, and Turned has not said so yet
	filled  atomic.Uint64 // number of the last frame that is filled

	mu      sync.Mutex // guards what follows
	files   [2]*file
	current int    // which file is written to
	round   uint64 // of the file that was begun last
	last    uint64 // number of the last frame that is durable
	records uint64 // how many records the frames up to it have
	err     error  // why the journal has failed
	buffer  []byte
	mac     mac
}

// file is one of the two files.
type file struct {
	File
	header header
	seed   uint32
	at     int64  // where the next frame goes
	last   uint64 // number of the last frame in it
	// From clean to dirty there may be bytes of frames, of any round.
	clean, dirty int64
}

// zeros are written where files are made, or erased.
var zeros [256 << 10]byte

// Create makes both files anew, with a new id. What journal there was counts no more: all of it must be filled. If there
// is an error, there is no journal.
func Create(dir string, o Options) (*Journal, error) {
	o.Size = o.Limit() / block * block
	if o.Size < MinSize || o.Size > MaxSize {
		return nil, fmt.Errorf("a file of the journal must have %d to %d bytes", MinSize, MaxSize)
	}
	if o.OpenFile == nil {
		o.OpenFile = openFile
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	j := &Journal{dir: dir, options: o, mac: o.Key.mac()}
	_, _ = rand.Read(j.id[:]) // which never fails
	if err := j.create(); err != nil {
		return nil, fmt.Errorf("creating the journal: %w", err)
	}
	o.Step(StepCreated)
	return j, nil
}

func (j *Journal) create() (err error) {
	paths := Paths(j.dir)
	for _, path := range paths { // which also gives its space back
		if err := plainfile.Remove(path); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			j.discard()
		}
	}()
	for i, path := range paths {
		j.options.Step(StepCreate)
		f, err := j.options.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		j.files[i] = &file{File: f}
		if err = writeZeros(f, 0, j.options.Size, func() {}); err != nil {
			return err
		}
		if err = j.begin(i); err != nil {
			return err
		}
	}
	return plainfile.SyncDir(j.dir)
}

// discard ends a journal that could not be made.
func (j *Journal) discard() {
	for i, f := range j.files {
		if f != nil {
			_ = f.Close()
			_ = os.Remove(Paths(j.dir)[i])
		}
	}
}

// openFile is [plainfile.OpenFile], with the sync that costs least.
func openFile(name string, flag int, mode fs.FileMode) (File, error) {
	f, err := plainfile.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

// diskFile is a file on a disk.
type diskFile struct{ *os.File }

// Sync is [os.File.Sync] without the times of the file.
func (f diskFile) Sync() error { return datasync(f.File) }

// writeZeros writes zeros from one offset to another, piece by piece. It calls before ahead of each.
func writeZeros(f File, from, to int64, before func()) error {
	for from < to {
		before()
		piece := zeros[:min(int64(len(zeros)), to-from)]
		if err := writeAt(f, piece, from); err != nil {
			return err
		}
		from += int64(len(piece))
	}
	return nil
}

// writeAt writes all of b, or fails.
func writeAt(f File, b []byte, at int64) error {
	n, err := f.WriteAt(b, at)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// ID is the journal's id.
func (j *Journal) ID() ID { return j.id }

// Write makes a frame of calls durable, and returns its number. The calls stand one after the other, as [AppendCall] makes
// them. If the error is not one of this package's, the frame may be durable or not, and the journal has failed.
func (j *Journal) Write(calls []byte) (number uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	size := extent(int64(len(calls)))
	switch {
	case j.err != nil:
		return 0, j.err
	case framesAt+size > j.options.Size:
		return 0, ErrTooLarge
	}
	h := head{number: j.last + 1, first: j.records, length: uint32(len(calls))}
	if h.calls, h.records, err = count(calls); err != nil {
		return 0, err
	}
	if h.calls == 0 {
		return 0, errEncoded
	}
	f, err := j.room(size)
	if err != nil {
		return 0, err
	}
	h.offset = f.at
	frame := j.frame(f, &h, calls)
	f.dirty = max(f.dirty, h.end())
	j.options.Step(StepWrite)
	if err = writeAt(f, frame, h.offset); err == nil {
		j.options.Step(StepWritten)
		err = f.Sync()
	}
	if err != nil {
		return 0, j.fail(err)
	}
	j.options.Step(StepSynced)
	f.at, f.last = h.end(), h.number
	j.last, j.records = h.number, h.first+uint64(h.records)
	return h.number, nil
}

// frame makes the bytes of a frame, in the journal's buffer.
func (j *Journal) frame(f *file, h *head, calls []byte) []byte {
	size := int(extent(int64(h.length)))
	j.buffer = slices.Grow(j.buffer[:0], size)[:size]
	b, content := j.buffer, j.buffer[headSize:][:len(calls)]
	copy(content, calls)
	clear(b[headSize+len(calls):])
	h.content = crc32.Update(f.seed, castagnoli, content)
	h.put(b, &f.header.mark, f.seed)
	j.mac.of(b[summedSize:summedSize], &j.id, b, content)
	return b
}

// Rekey authenticates all frames from now on with another key. The frames before must be filled.
func (j *Journal) Rekey(key Key) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mac = key.mac()
}

// room returns the file that a frame goes into which takes so many bytes of it.
func (j *Journal) room(size int64) (*file, error) {
	if f := j.files[j.current]; f.at+size <= j.options.Size {
		return f, nil
	}
	next := 1 - j.current
	f := j.files[next]
	if f.last > j.filled.Load() {
		return nil, ErrFull
	}
	if err := j.begin(next); err != nil {
		return nil, j.fail(err)
	}
	j.options.Step(StepSwitch)
	j.current = next
	j.turned.Store(true)
	return f, nil
}

// begin begins a new round of a file that has no pending frames.
func (j *Journal) begin(which int) error {
	f := j.files[which]
	j.round++
	h := header{which: uint32(which), id: j.id, round: j.round, frames: j.last, records: j.records, size: j.options.Size}
	_, _ = rand.Read(h.mark[:]) // which never fails
	b := h.encode()
	for i := range int64(copies) {
		j.options.Step(StepBegin)
		if err := writeAt(f, b, i*block); err != nil {
			return err
		}
		j.options.Step(StepBegunWritten)
		if err := f.Sync(); err != nil {
			return err
		}
		j.options.Step(StepBegun)
	}
	f.header, f.seed, f.at, f.last = h, h.seed(), framesAt, 0
	f.clean, f.dirty = framesAt, max(f.dirty, framesAt)
	return nil
}

// Turned reports, once each time, that Write went on in the other file. The one before is full: the log is to be filled
// now, so that Write can begin that file again when it needs it.
func (j *Journal) Turned() bool { return j.turned.Load() && j.turned.Swap(false) }

// Filled says that the log has all frames up to this one, durably, and says itself that it has. A file is used again
// once all of its frames are filled.
func (j *Journal) Filled(number uint64) { j.filled.Store(number) }

// Erase overwrites all frames in both files with zeros. All of them must be filled. Then no file has a byte of a record,
// and the journal can be written to as before.
func (j *Journal) Erase() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if filled := j.filled.Load(); filled < j.last {
		return fmt.Errorf("%w: %d frames", ErrPending, j.last-filled)
	}
	for i, f := range j.files {
		if f.clean == f.dirty {
			continue
		}
		err := writeZeros(f, f.clean, f.dirty, func() { j.options.Step(StepErase) })
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return j.fail(err)
		}
		f.clean, f.dirty = framesAt, framesAt
		if i == j.current {
			f.clean, f.dirty = f.at, f.at
		}
	}
	j.options.Step(StepErased)
	return nil
}

// fail ends the journal.
func (j *Journal) fail(err error) error {
	j.err = fmt.Errorf("writing the journal: %w", err)
	return j.err
}

// Close closes the files. What is not filled stays in them.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.err, ErrClosed) {
		return nil
	}
	j.err = ErrClosed
	return errors.Join(j.files[0].Close(), j.files[1].Close())
}
