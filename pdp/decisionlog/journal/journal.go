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
	"sync"
	"sync/atomic"

	"policy-service/pdp/plainfile"
)

// The errors of a journal. After any other error of [Journal.Write], [Journal.Recycle] or [Journal.Erase] the journal has
// failed: each of these returns that error from then on, and nothing is written any more.
var (
	// ErrFull: the frame has no room before frames are filled. Nothing was written, and the journal is as it was.
	ErrFull = errors.New("the journal is full")
	// ErrTooLarge: the files, as large as they are, could not hold the frame if they were empty, so it must go on
	// record without the journal. Nothing was written. If the frame is not too large for files of Options.Size,
	// the next Recycle tries to make room for another one like it.
	ErrTooLarge = errors.New("too large for the journal")
	// ErrBusy: another Write is going on.
	ErrBusy = errors.New("the journal is being written")
	// ErrPending: there are frames that are not filled.
	ErrPending = errors.New("the journal has what the log has not")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("the journal is closed")
)

// Options are what a journal takes from outside. The zero value is ready to use.
type Options struct {
	// Size is the largest size of each of the two files: DefaultSize unless set, at least MinSize and at most MaxSize.
	Size int64
	// Key authenticates the frames.
	Key Key
	// OpenFile takes the place of [plainfile.OpenFile], for a test whose disk fails.
	OpenFile func(name string, flag int, mode fs.FileMode) (File, error)
	// Step is called at each of the steps below, by whoever takes it. It is for tests that end the process there.
	Step func(step string)
}

// Limit is how large each of the two files can become.
func (o *Options) Limit() int64 { return cmp.Or(o.Size, DefaultSize) }

// File is what the journal asks of a file it writes to.
type File interface {
	io.WriterAt
	io.Closer
	// Sync makes what was written durable, and the size of the file if it has changed.
	Sync() error
	Truncate(size int64) error
}

// The steps.
const (
	StepCreate       = "create"        // before a file is made
	StepCreated      = "created"       // both files are durable
	StepWrite        = "write"         // before a frame is written
	StepWritten      = "written"       // before it is synced
	StepSynced       = "synced"        // it is durable, and Write is about to return
	StepGrow         = "grow"          // before a piece of zeros is written behind the end of a file
	StepGrown        = "grown"         // the file is longer
	StepBegin        = "begin"         // before one of the two headers of a round is written
	StepBegunWritten = "begun-written" // before it is synced
	StepBegun        = "begun"         // it is durable
	StepSwitch       = "switch"        // before the first frame goes into the other file
	StepErase        = "erase"         // before a piece of a file is overwritten with zeros
	StepErased       = "erased"        // no file holds what was filled
)

// Steps are all of the steps.
func Steps() []string {
	return []string{StepCreate, StepCreated, StepWrite, StepWritten, StepSynced, StepGrow, StepGrown, StepBegin,
		StepBegunWritten, StepBegun, StepSwitch, StepErase, StepErased}
}

// Journal is a journal that is written to. Its methods may be called at the same time, except that there must be one
// Write at a time.
type Journal struct {
	dir     string
	id      ID
	options Options
	files   [2]*file

	writing atomic.Bool  // there is a Write
	hurry   atomic.Bool  // a Write waits for the other file
	turned  atomic.Bool  // a Write went on in the other file, and nobody asked yet
	want    atomic.Int64 // a frame was too large, and needs a file of this size

	frames  sync.Mutex // guards the current file, and the buffer
	other   sync.Mutex // guards the other file; taken after frames
	current int        // which file is the current one; guarded by frames and other: whoever has one may read it
	buffer  []byte
	mac     mac // guarded by frames

	mu    sync.Mutex // guards what follows; taken last
	state state
}

// state is how far the journal has come.
type state struct {
	round   uint64 // of the file that was begun last
	last    uint64 // number of the last frame that is durable
	records uint64 // how many records the frames up to it have
	filled  uint64 // number of the last frame that is filled
	err     error  // why the journal has failed
}

// file is one of the two files.
type file struct {
	File
	header header
	seed   uint32
	at     int64  // where the next frame goes
	last   uint64 // number of the last frame in it, of this round or, until it is begun, of the one before
	begun  bool   // both headers of a new round are durable, and it has no frame yet
	// From clean to dirty there may be bytes of frames, of any round.
	clean, dirty int64
}

// zeros are written where files are made, made longer, or erased.
var zeros [256 << 10]byte

// Create makes both files anew, with a new id. What journal there was counts no more: all of it must be filled. If there
// is an error, there is no journal.
func Create(dir string, o Options) (*Journal, error) {
	o.Size = o.Limit()
	if o.Size < MinSize || o.Size > MaxSize {
		return nil, fmt.Errorf("a file of the journal must have %d to %d bytes", MinSize, MaxSize)
	}
	o.Size = o.Size / block * block
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
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	defer func() {
		if err != nil {
			j.discard()
		}
	}()
	size := max(MinSize, min(firstSize, j.share()))
	for i, path := range paths {
		j.options.Step(StepCreate)
		f, err := j.options.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		j.files[i] = &file{File: f}
		if err = writeZeros(f, 0, size, func() {}); err != nil {
			return err
		}
		if err = j.begin(i, size); err != nil {
			return err
		}
	}
	j.files[0].begun = false
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

// Write makes a frame of calls durable, and returns its number. Each element is one call or several, one after the other,
// as [AppendCall] makes them. There must be one Write at a time. If the error is not one of this package's, the frame may
// be durable or not, and the journal has failed.
func (j *Journal) Write(calls [][]byte) (number uint64, err error) {
	if !j.writing.CompareAndSwap(false, true) {
		return 0, ErrBusy
	}
	defer j.writing.Store(false)
	j.frames.Lock()
	defer j.frames.Unlock()
	s := j.now()
	if s.err != nil {
		return 0, s.err
	}
	h := head{number: s.last + 1, first: s.records}
	size := int64(0)
	for _, c := range calls {
		size += int64(len(c))
		if framesAt+extent(size) > j.options.Size {
			return 0, ErrTooLarge
		}
		more, records, err := count(c)
		if err != nil {
			return 0, err
		}
		h.calls, h.records = h.calls+more, h.records+records
	}
	if h.calls == 0 {
		return 0, errEncoded
	}
	h.length = uint32(size)
	f, err := j.room(extent(size))
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
	j.mu.Lock()
	j.state.last, j.state.records = h.number, h.first+uint64(h.records)
	j.mu.Unlock()
	return h.number, nil
}

// keptBuffer is the largest buffer that is kept for the next frame.
const keptBuffer = 1 << 20

// frame makes the bytes of a frame, in the journal's buffer.
func (j *Journal) frame(f *file, h *head, calls [][]byte) []byte {
	size := int(extent(int64(h.length)))
	b := j.buffer
	if cap(b) < size {
		if size > keptBuffer {
			b = make([]byte, 0, size)
		} else {
			b = make([]byte, 0, min(keptBuffer, max(size, 2*cap(b), 16*block)))
			j.buffer = b
		}
	}
	b = b[:headSize]
	for _, c := range calls {
		b = append(b, c...)
	}
	end := len(b)
	b = b[:size]
	clear(b[end:])
	h.content = crc32.Update(f.seed, castagnoli, b[headSize:end])
	h.put(b, &f.header.mark, f.seed)
	j.mac.of(b[summedSize:summedSize], &j.id, b, b[headSize:end])
	return b
}

// Rekey authenticates all frames from now on with another key. The frames before must be filled.
func (j *Journal) Rekey(key Key) {
	j.frames.Lock()
	defer j.frames.Unlock()
	j.mac = key.mac()
}

// room returns the file that a frame goes into which takes so many bytes of it.
func (j *Journal) room(size int64) (*file, error) {
	if f := j.files[j.current]; f.at+size <= f.header.size {
		return f, nil
	}
	j.hurry.Store(true)
	j.other.Lock()
	j.hurry.Store(false)
	defer j.other.Unlock()
	s := j.now()
	if s.err != nil {
		return nil, s.err
	}
	next := 1 - j.current
	f := j.files[next]
	if framesAt+size > f.header.size {
		j.want.Store(framesAt + size)
		return nil, ErrTooLarge
	}
	if f.last > s.filled {
		return nil, ErrFull
	}
	if !f.begun {
		if err := j.begin(next, f.header.size); err != nil {
			return nil, j.fail(err)
		}
	}
	j.options.Step(StepSwitch)
	f.begun, j.current = false, next
	j.turned.Store(true)
	return f, nil
}

// Turned reports, once each time, that Write went on in the other file. The one before is full: if the log is filled now,
// Recycle begins it again, and has time to make it longer, before Write needs it.
func (j *Journal) Turned() bool { return j.turned.Load() && j.turned.Swap(false) }

// Filled says that the log has all frames up to this one, durably, and says itself that it has. A file is used again
// once all of its frames are filled.
func (j *Journal) Filled(number uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.filled = max(j.state.filled, min(number, j.state.last))
}

// now is how far the journal has come.
func (j *Journal) now() state {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

// fail ends the journal. It returns why the journal failed first.
func (j *Journal) fail(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state.err == nil {
		j.state.err = fmt.Errorf("writing the journal: %w", err)
	}
	return j.state.err
}

// Close closes the files. What is not filled stays in them.
func (j *Journal) Close() error {
	j.frames.Lock()
	defer j.frames.Unlock()
	j.other.Lock()
	defer j.other.Unlock()
	j.mu.Lock()
	closed := errors.Is(j.state.err, ErrClosed)
	j.state.err = ErrClosed
	j.mu.Unlock()
	if closed {
		return nil
	}
	return errors.Join(j.files[0].Close(), j.files[1].Close())
}
