// Package process has the parts that commands share which run until a signal: memory ([LimitMemory]), the
// file with its address ([AddrFile]), and the flags that set keys of its configuration ([Flags]).
//
// It knows no server and no gateway.
package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/plainfile"
)

// Drain is how long a stop waits for requests that came before it: longer than any decision takes, shorter than the 30
// s after which Kubernetes kills.
const Drain = 20 * time.Second

// Signals takes the signals of a process that runs until it is stopped: ctx ends with SIGTERM or SIGINT, and hup gets
// each SIGHUP to the end of the process. Call it before anything starts: without it a SIGHUP would end the process.
func Signals() (ctx context.Context, hup <-chan os.Signal, stop context.CancelFunc) {
	ctx, stop = cli.UntilSignal()
	// A limit on the size of files is an error of writing, like a full disk, and no reason to end. Neither is standard
	// output that is closed at the other end.
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGPIPE)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return ctx, hangups, stop
}

// AddrFile is a file with the address that a process listens on; "" is none.
type AddrFile string

// Clear removes a file that an earlier run left, which would be taken for the file of this run. A file without a name
// does not exist.
func (f AddrFile) Clear() error {
	if err := plainfile.Remove(string(f)); err != nil {
		return fmt.Errorf("cannot replace the address file: %w; try another --addr-file", err)
	}
	return nil
}

// Write writes the address.
func (f AddrFile) Write(addr string) error {
	if f == "" {
		return nil
	}
	if err := plainfile.Publish(string(f), []byte(addr+"\n")); err != nil {
		return fmt.Errorf("cannot write the address file: %w; try another --addr-file", err)
	}
	return nil
}

// Remove removes the file, unless the next process has already written its own.
func (f AddrFile) Remove(addr string) {
	if content, err := os.ReadFile(string(f)); err == nil && string(content) == addr+"\n" {
		_ = os.Remove(string(f))
	}
}
