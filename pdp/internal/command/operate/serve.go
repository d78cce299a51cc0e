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
	"os"

	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/process"
	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/server"
)

// Serve answers requests over HTTP.
type Serve struct {
	configFlags `embed:""`
	AddrFile    process.AddrFile `placeholder:"FILE" help:"Write host:port, or unix:PATH, to this file as soon as the server answers requests."`
}

// Run serves until SIGTERM or SIGINT.
func (c Serve) Run(s cli.Streams) error {
	read := func() (server.Config, error) {
		config, _, err := c.read()
		config.Program.Checkpoints = s.Out
		return config, err
	}
	config, err := read()
	if err != nil {
		return err
	}
	if err := bundledir.Exists(config.Policies); err != nil {
		return err
	}
	log := logging.New(s.Err, config.Log)
	defer log.Close()
	config.Program.Logger, config.Program.Relog = log.Logger, log.Set
	process.LimitMemory(log.Logger)
	supervisor := process.TakeSupervisor(log.Logger)
	ctx, hup, stop := process.Signals()
	defer stop()

	srv, err := server.New(config)
	if err != nil {
		return err
	}
	if err := c.start(ctx, srv, config.Policies, s); err == nil {
		supervisor.Ready()
	} else if ctx.Err() == nil {
		return err // if ctx has ended, a signal came before the start was done, which is no error
	}
	process.LeaveRoom()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, even if a new configuration is being recorded
	err = wait(ctx, srv, hup, read)
	stop()
	supervisor.Stopping()

	ctx, cancel := context.WithTimeout(context.Background(), process.Drain)
	defer cancel()
	c.AddrFile.Remove(srv.Addr())
	return errors.Join(err, srv.Stop(ctx))
}

func (c Serve) start(ctx context.Context, srv *server.Server, policies string, s cli.Streams) error {
	if err := c.AddrFile.Clear(); err != nil {
		return err
	}
	if err := srv.Start(ctx); err != nil {
		return bundledir.Refused(policies, err, s)
	}
	if err := c.AddrFile.Write(srv.Addr()); err != nil {
		return errors.Join(err, srv.Stop(ctx))
	}
	return nil
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
