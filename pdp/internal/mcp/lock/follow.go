package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Followed is a file whose changes count without a restart.
type Followed struct {
	path string
	o    FollowOptions

	mu      sync.Mutex // guards the rest
	current *File
	looked  time.Time   // when the last look began
	seen    fs.FileInfo // of the file that was read last, whatever came of it,
	read    time.Time   // which was then
	err     error
}

// FollowOptions say how a file is followed.
type FollowOptions struct {
	// Check is an error for a readable file that must not count. It may be nil.
	Check func(File) error
	// MayBeMissing is whether nothing is locked, rather than nothing works, while there has been no file.
	MayBeMissing bool
	Now          func() time.Time
	Logger       *slog.Logger
}

// A changed file counts after fileEvery. A file written within the grain of the clock of some file system may have been
// written again since, without a trace.
const (
	fileEvery = time.Second
	grain     = 2 * time.Second
)

// Follow reads a file, and reads it again when it has changed. While a changed one cannot be used, the one before stays.
func Follow(path string, o FollowOptions) (*Followed, error) {
	f := &Followed{path: path, o: o}
	if f.look(); f.err == nil {
		return f, nil
	}
	if o.MayBeMissing && errors.Is(f.err, fs.ErrNotExist) {
		o.Logger.Warn("there is no lock yet: no tool is as it is locked", "file", path)
		f.current = &File{}
		return f, nil
	}
	return nil, f.err
}

// Current is the lock file, the same as long as the file does not change. A caller waits while another looks at the file:
// else the parts of one message could be judged by two locks.
func (f *Followed) Current() *File {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := f.o.Now().Sub(f.looked); age < 0 || age >= fileEvery {
		f.look()
	}
	return f.current
}

// Err is why the file as it is now does not count; nil if it does.
func (f *Followed) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.o.MayBeMissing && errors.Is(f.err, fs.ErrNotExist) && len(f.current.Servers) == 0 {
		return nil
	}
	return f.err
}

// look reads the file if it is another than it was. Its caller has the lock, or f alone.
func (f *Followed) look() {
	f.looked = f.o.Now()
	now, err := os.Stat(f.path)
	if err == nil && f.isRead(now) {
		return
	}
	before := f.err
	var read File
	if f.seen, f.read = now, time.Now(); err == nil {
		read, err = Read(f.path)
	}
	if err == nil && f.o.Check != nil {
		err = f.o.Check(read)
	}
	if f.err = err; err == nil {
		if f.current == nil || len(Compare(*f.current, read)) > 0 {
			f.current = &read
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		f.err = missing(f.path)
	}
	switch {
	case f.current == nil: // the start, which its caller ends
	case f.err != nil && (before == nil || before.Error() != f.err.Error()):
		f.o.Logger.Error("the lock of tools cannot be used; what was locked before stays locked", "error", f.err)
	case f.err == nil && before != nil:
		f.o.Logger.Info("the lock of tools can be used again")
	}
}

// missing is the path of a file that is not there.
type missing string

func (m missing) Error() string {
	return fmt.Sprintf("there is no %s; write it with: policy-service mcp lock --accept", string(m))
}

func (missing) Is(target error) bool { return target == fs.ErrNotExist }

// isRead reports whether a file is surely the one that was read.
func (f *Followed) isRead(now fs.FileInfo) bool {
	return f.seen != nil && os.SameFile(f.seen, now) && f.seen.Size() == now.Size() && f.seen.ModTime().Equal(now.ModTime()) &&
		f.read.Sub(now.ModTime()) > grain
}
