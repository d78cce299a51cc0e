package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a server that was started here.
type process struct {
	*exec.Cmd
	addr  string
	said  *bytes.Buffer // on standard error; read only when it has ended
	ended chan error    // holds how it ended, once it has
}

func startFloor(ctx context.Context, dir string) (*process, error) {
	return startChild(ctx, dir, floorCommand)
}

// startChild starts this binary as something else.
func startChild(ctx context.Context, dir, command string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr := filepath.Join(dir, command+".addr")
	return start(ctx, exec.Command(self, append([]string{command, addr}, args...)...), addr)
}

func startService(ctx context.Context, binary string, s *setup) (*process, error) {
	addr := s.policies + ".addr"
	args := []string{"serve", "--policies", s.policies, "--listen", "127.0.0.1:0", "--addr-file", addr}
	if s.data != "" {
		args = append(args, "--data", s.data, "--log-mode", s.log)
	}
	if s.config != "" {
		args = append(args, "--config", s.config)
	}
	return start(ctx, exec.Command(binary, args...), addr)
}

// start returns when the server answers, which its address file says. A signal for
// this program reaches only it: it ends its children itself.
func start(ctx context.Context, command *exec.Cmd, addrFile string) (*process, error) {
	p := &process{Cmd: command, said: new(bytes.Buffer), ended: make(chan error, 1)}
	p.Stderr = p.said
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("%w; try make build", err)
	}
	go func() { p.ended <- p.Wait() }()
	err := poll(ctx, patience, func() (bool, error) {
		select {
		case err := <-p.ended:
			p.ended <- nil // it is told here
			return false, fmt.Errorf("%s ended by itself: %w\n%s", p, err, p.said)
		default:
		}
		text, err := os.ReadFile(addrFile)
		p.addr = strings.TrimSpace(string(text))
		return err == nil, nil
	})
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// stop ends the process in order. It may be called again.
func (p *process) stop() error {
	_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-p.ended:
		p.ended <- nil
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", p, err, p.said)
		}
		return nil
	case <-time.After(patience):
		_ = p.Process.Kill()
		return fmt.Errorf("%s did not stop within %v", p, patience)
	}
}

// poll asks until the answer is yes.
func poll(ctx context.Context, atMost time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
