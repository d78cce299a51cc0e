// Package gateway has the commands of people who run the gateway in front of MCP servers: mcp-gateway itself, its doctor,
// and the commands about its configuration.
//
// The work of the gateway is in package mcp. Here are its flags and signals, the address it listens on, its
// telemetry, and the PDP that it may have in its own process. Read serve.go first.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/process"
	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/mcp"
)

// Command is the gateway, with the commands about it.
type Command struct {
	Serve  Serve  `cmd:"" default:"withargs" help:"Stand in front of an MCP server. The word serve may be left out."`
	Config Config `cmd:"" help:"Check, print and describe the configuration of the gateway."`
	Doctor Doctor `cmd:"" help:"Find what would go wrong with a gateway before it does, and say what to do."`
}

// Serve stands in front of an MCP server.
type Serve struct {
	configFlags `embed:""`
	Stdio       bool             `help:"Serve the one client at standard input and output, instead of listening. The log goes to standard error."`
	AddrFile    process.AddrFile `placeholder:"FILE" help:"Write host:port to this file as soon as the gateway answers requests."`
}

// Help ends the command's help.
func (Serve) Help() string {
	return "SIGTERM and SIGINT end the gateway. At SIGHUP the gateway takes log.level and log.access anew, and the PDP in " +
		"its process reads its bundle again; everything else in the configuration counts from the start. Certificates, keys and credentials in files are read again by themselves."
}

// Run serves until SIGTERM or SIGINT, and over the standard streams until the client is gone.
func (c Serve) Run(s cli.Streams) error {
	told, _, err := c.read()
	if err != nil {
		return err
	}
	if err := stdioNeeds(told); c.Stdio && err != nil {
		return err
	}
	log := logging.New(s.Err, told.Log)
	defer log.Close()
	process.LimitMemory(log.Logger)
	supervisor := process.TakeSupervisor(log.Logger)
	ctx, hup, stop := process.Signals()
	defer stop()

	if err := c.AddrFile.Clear(); err != nil {
		return err
	}
	checkpoints := s.Out
	if c.Stdio {
		checkpoints = nil // standard output is the client's
	}
	run, err := start(ctx, told, log.Logger, checkpoints)
	if err != nil {
		return refused(told, err, s)
	}
	run.relog = func() {
		if now, _, err := c.read(); err != nil {
			log.Error("configuration refused; the log stays as it was", "error", err)
		} else {
			log.Set(now.Log)
		}
	}
	process.LeaveRoom()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if c.Stdio {
		err = overStdio(ctx, run, hup, s)
	} else {
		err = c.overHTTP(ctx, run, hup, supervisor)
	}
	stop()
	supervisor.Stopping()
	ended, cancel := context.WithTimeout(context.Background(), process.Drain)
	defer cancel()
	return errors.Join(err, run.undo(ended))
}

// overStdio serves until the client closes its end, or a signal ends ctx.
func overStdio(ctx context.Context, run *running, hup <-chan os.Signal, s cli.Streams) error {
	done := make(chan error, 1)
	// A read of standard input cannot be ended from here: the process ends, and with it the read.
	go func() { done <- run.gateway.ServeStdio(ctx, s.In, s.Out) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			return err
		case <-hup:
			run.reload(ctx)
		}
	}
}

// overHTTP serves until a signal ends ctx, or serving ends by itself.
func (c Serve) overHTTP(ctx context.Context, run *running, hup <-chan os.Signal, supervisor process.Supervisor) error {
	addr, err := run.listen(ctx)
	if err != nil {
		return err
	}
	if err := c.AddrFile.Write(addr); err != nil {
		return err
	}
	defer c.AddrFile.Remove(addr)
	supervisor.Ready()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-run.failed:
			return fmt.Errorf("serving ended: %w; start it again", err)
		case <-hup:
			run.reload(ctx)
		}
	}
}

// stdioNeeds is an error if a configuration is not for the standard streams.
func stdioNeeds(told mcp.Config) error {
	if told.Identity.Static == nil {
		return errors.New("over standard input nobody brings a token; write identity: {static: {sub: NAME}}, or leave --stdio out")
	}
	return nil
}
