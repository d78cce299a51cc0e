// Package plainfile opens files that may be anything by the time they are opened: [Read]
// and [Open] take a regular file, and refuse the rest without waiting. Opening a FIFO
// waits for somebody to write to it, which may be never, and whoever may write to a
// directory may put one in the place of any file in it.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file for reading.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// OpenFile is [os.OpenFile] for regular files.
func OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	// Looking first keeps devices from being opened, of which some do things then.
	// What counts is what was opened: the name may be another file's by then.
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

// NoWait is what the flags of an open need so that it waits for nobody.
const NoWait = syscall.O_NONBLOCK

var errNotPlain = errors.New("it is not a regular file; put one there")

func notPlain(name string, info fs.FileInfo) error {
	return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("it is a %s, not a regular file; put one there", TypeName(info.Mode()))}
}

// Read reads a regular file of at most so many bytes.
func Read(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return ReadAll(f, limit)
}

// ReadAll reads what is left of a file that [Open] opened, where it is not more than limit.
func ReadAll(f *os.File, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), limit)
	}
	return content, err
}

// TypeName says what a file is that may not be regular.
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
