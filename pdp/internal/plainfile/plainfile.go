// Package plainfile opens regular files, and refuses everything else without waiting. To open a FIFO is to wait until
// another process writes to it, which may be for ever; and anybody who can write to a directory can put a FIFO in the
// place of a file. Start with [Read], or with [Open].
//
// [Replace] and [Publish] write a file as a whole: Replace one that must outlive a crash and that only its owner may
// read, Publish one that other users read; [Rewrite] one that is somebody else's. The package does not look at the owners and modes of files that it opens.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Open opens a regular file for reading.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// OpenFile is [os.OpenFile] for regular files.
func OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	// Some devices act when they are opened, so the name is looked at first. The opened file is looked at again below,
	// because the name may have become another file's meanwhile.
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, notPlain(name, info)
	}
	f, err := os.OpenFile(name, flag|NoWait, mode)
	if errors.Is(err, syscall.ENXIO) { // a FIFO that is opened for writing, or a socket
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNotPlain}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notPlain(name, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// NoWait is the flag that keeps an open from waiting.
const NoWait = syscall.O_NONBLOCK

var errNotPlain = errors.New("it is not a regular file; put one there")

func notPlain(name string, info fs.FileInfo) error {
	err := fmt.Errorf("it is a %s, not a regular file; put one there", TypeName(info.Mode()))
	return &fs.PathError{Op: "open", Path: name, Err: err}
}

// Read reads a regular file. A file of more than limit bytes is an error.
func Read(name string, limit int64) ([]byte, error) { return read(name, limit, false) }

// ReadPrivate is [Read] for a file with a secret. It refuses a file that every user of the machine has any
// permission for.
func ReadPrivate(name string, limit int64) ([]byte, error) { return read(name, limit, true) }

func read(name string, limit int64, private bool) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// The group may: a Kubernetes volume with an fsGroup gives every file to it.
	if private && info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf(
			"%s is open to every user of this machine: chmod 600 it, and rotate it if anybody may have read it", name)
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return content, err
}

// Replace puts a file with this content, which only its owner can read, in the place of another one. A reader, or a
// restart after a crash, finds either the old file or the new one, and never a part. After Replace it is the new one.
func Replace(name string, content []byte) error {
	if err := replace(name, 0o600, content); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// Publish is [Replace] for a file that every user can read. After a crash the old file may be there again. In return,
// Publish needs no permission to read the directory.
func Publish(name string, content []byte) error { return replace(name, 0o644, content) }

// Rewrite is [Publish] for a file that exists and that this process may write to. The file keeps its permissions. A
// link to it stays one.
func Rewrite(name string, content []byte) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	f, err := OpenFile(name, os.O_WRONLY, 0) // a file that nobody may write to is not replaced either
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return replace(name, info.Mode().Perm(), content)
}

// Create is [Publish] where there is no file yet. If there is one, it stays, and the error is [fs.ErrExist].
func Create(name string, content []byte) error {
	return written(name, 0o644, writes(content), func(made string) error { return Place(made, name) })
}

// Place gives a file, of any type, a name that no file has yet. If there is one, it stays, and the error is [fs.ErrExist].
// The caller removes the name of before.
func Place(made, name string) error {
	err := os.Link(made, name)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, there := os.Lstat(name); !errors.Is(there, fs.ErrNotExist) {
		return err
	}
	return os.Rename(made, name) // some file systems have no second names
}

// Remove removes a file, if there is one.
func Remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Stream is [Replace] for a file that is too large to be held: only its owner may read it, and it has its name once all of
// it is on disk.
func Stream(name string, write func(io.Writer) error) error {
	err := written(name, 0o600, write, func(made string) error { return os.Rename(made, name) })
	if err == nil {
		err = SyncDir(filepath.Dir(name))
	}
	return err
}

func replace(name string, mode fs.FileMode, content []byte) error {
	return written(name, mode, writes(content), func(made string) error { return os.Rename(made, name) })
}

func writes(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}

// written makes a file beside another one, and has it put into place.
func written(name string, mode fs.FileMode, write func(io.Writer) error, place func(made string) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // after a success it is gone already
	if mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = write(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return place(f.Name())
}

// Rename renames a file so that it has the new name also after a crash.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir makes what was created or renamed in a directory durable. Without that, a crash may undo it.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// TypeName is the word for a type of file: file, directory, FIFO and so on.
func TypeName(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeNamedPipe != 0:
		return "FIFO"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
