package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal is a context that SIGINT and SIGTERM end, so that a command can remove a half-written file, and end well.
func UntilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// small is how large a credential, a key or a checkpoint may be.
const small = 64 << 10

// Open opens a file; - is in, which Close leaves open.
func Open(name string, in io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(in), nil
	}
	return os.Open(name)
}

// ReadSmall reads a credential, a key or a checkpoint; - is in. A mistyped name may be that of a whole export.
func ReadSmall(name string, in io.Reader) ([]byte, error) { return Read(name, in, small) }

// Read reads a file of at most so many bytes; - is in.
func Read(name string, in io.Reader, most int64) ([]byte, error) {
	f, err := Open(name, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%s is too large to be one", name)
	}
	return content, err
}
