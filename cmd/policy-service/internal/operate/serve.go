// Package operate has the commands of people who run the service: serve, config, keys, conformance, doctor, health and
// version. Each command does its work in this process, or asks a running server over HTTP.
//
// What a server does is not here: package server has that. Here are its flags, its signals and its memory. Read
// serve.go first.
package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"policy-service/cmd/policy-service/internal/bundledir"
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/plainfile"
	"policy-service/pdp/server"
)

// Drain is how long a stop waits for requests that came before it: longer than any decision takes, shorter than the 30
// s after which Kubernetes kills.
const Drain = 20 * time.Second

// Serve answers requests over HTTP.
type Serve struct {
	configFlags `embed:""`
	AddrFile    string `placeholder:"FILE" help:"Write host:port to this file as soon as the server answers requests."`
}

// Run serves until SIGTERM or SIGINT.
func (c Serve) Run(s cli.Streams) error {
	read := func() (server.Config, error) {
		config, _, err := c.read()
		config.Program.Checkpoints, config.Program.Logger = s.Out, logger(s.Err)
		return config, err
	}
	config, err := read()
	if err != nil {
		return err
	}
	if err := bundledir.Exists(config.Policies); err != nil {
		return err
	}
	limitMemory(config.Program.Logger)
	untouched := reserve()
	defer runtime.KeepAlive(untouched)
	ctx, stop := cli.UntilSignal()
	defer stop()
	// A limit on the size of files is an error of writing, like a full disk, and no reason to end. Neither is standard
	// output that is closed at the other end.
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGPIPE)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before the start: without it a SIGHUP ends the process
	defer signal.Stop(hup)

	srv, err := server.New(config)
	if err != nil {
		return err
	}
	if err := c.start(ctx, srv, config.Policies, s); err != nil && ctx.Err() == nil {
		return err // if ctx has ended, a signal came before the start was done, which is no error
	}
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, even if a new configuration is being recorded
	err = wait(ctx, srv, hup, read)
	stop()

	ctx, cancel := context.WithTimeout(context.Background(), Drain)
	defer cancel()
	c.removeAddr(srv.Addr())
	return errors.Join(err, srv.Stop(ctx))
}

func (c Serve) start(ctx context.Context, srv *server.Server, policies string, s cli.Streams) error {
	// A file that an earlier run left would be taken for the file of this run. A file without a name does not exist.
	if err := os.Remove(c.AddrFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot replace the address file: %w; try another --addr-file", err)
	}
	if err := srv.Start(ctx); err != nil {
		return bundledir.Refused(policies, err, s)
	}
	if c.AddrFile != "" {
		if err := plainfile.Publish(c.AddrFile, []byte(srv.Addr()+"\n")); err != nil {
			return errors.Join(fmt.Errorf("cannot write the address file: %w; try another --addr-file", err), srv.Stop(ctx))
		}
	}
	return nil
}

// removeAddr removes the address file, unless the next server has already written its own.
func (c Serve) removeAddr(addr string) {
	if content, err := os.ReadFile(c.AddrFile); err == nil && string(content) == addr+"\n" {
		_ = os.Remove(c.AddrFile)
	}
}

// wait serves until a signal ends ctx, or serving ends by itself. At SIGHUP the server reads again everything that can
// change without a restart.
func wait(ctx context.Context, srv *server.Server, hup <-chan os.Signal, read func() (server.Config, error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-srv.Failed():
			return fmt.Errorf("serving ended: %w; start it again", err)
		case <-hup:
			_ = srv.Reconfigure(ctx, read) // the server logs the outcome of both
			_ = srv.Reload(ctx)
		}
	}
}

// logger writes one line for each event, which people and programs can read.
func logger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}
