package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// UntilSignal is a context that SIGINT and SIGTERM end, so that a command can remove a half-written file, and end well.
func UntilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// small is how large a credential, a key or a checkpoint may be.
const small = 64 << 10

// ReadSmall reads a credential, a key or a checkpoint; - is in. A mistyped name may be that of a whole export.
func ReadSmall(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, small+1))
	if err == nil && len(content) > small {
		err = fmt.Errorf("%s is too large to be one", name)
	}
	return content, err
}

// WriteFile puts a file in place as a whole: a program that sees it sees all of it.
func WriteFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
