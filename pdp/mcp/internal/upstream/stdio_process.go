package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child, with all that it starts in its group, and our ends of its standard streams.
type process struct {
	in, out, err *os.File
	// ended ends when the child is no more and has been waited for. Its cause is how.
	ended context.Context

	mu   sync.Mutex
	pid  int
	gone bool // the id may be another's by now
}

// startProcess starts a child with exactly this environment.
func startProcess(o *CommandOptions) (*process, error) {
	path, err := FindProgram(o.Command[0], o.Env)
	if err != nil {
		return nil, err
	}
	child := &exec.Cmd{Path: path, Args: o.Command, Dir: o.Dir, Env: []string{}, SysProcAttr: ownGroup()} // a nil Env would be ours
	for name, value := range o.Env {
		child.Env = append(child.Env, name+"="+value)
	}
	stdin, in, inErr := os.Pipe()
	out, stdout, outErr := os.Pipe()
	errs, stderr, errErr := os.Pipe()
	if err := errors.Join(inErr, outErr, errErr); err != nil {
		closeAll(stdin, stdout, stderr, in, out, errs)
		return nil, err
	}
	child.Stdin, child.Stdout, child.Stderr = stdin, stdout, stderr
	ended, end := context.WithCancelCause(context.Background())
	p := &process{in: in, out: out, err: errs, ended: ended}
	started := make(chan error)
	go p.keep(child, end, started)
	err = <-started
	closeAll(stdin, stdout, stderr)
	if err != nil {
		closeAll(in, out, errs)
		return nil, err
	}
	return p, nil
}

// closeAll closes files. It passes over nil.
func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// keep starts the child and is there until it has been waited for.
func (p *process) keep(child *exec.Cmd, end context.CancelCauseFunc, started chan<- error) {
	runtime.LockOSThread() // see ownGroup
	defer runtime.UnlockOSThread()
	if err := child.Start(); err != nil {
		end(err)
		started <- err
		return
	}
	p.pid = child.Process.Pid
	started <- nil
	how := "it ended"
	if state, err := p.reap(child.Process); err == nil {
		how = state.String()
	}
	end(errors.New(how))
}

// signal sends a signal to the whole group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = syscall.Kill(-p.pid, sig) // a process that has ended already needs none
	}
}

// stop ends the child: by the end of its input, then by SIGTERM, then by SIGKILL, each after a grace.
func (p *process) stop(grace time.Duration) {
	_ = p.in.Close()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if pause(p.ended, grace) != nil {
			return
		}
		p.signal(sig)
	}
	<-p.ended.Done()
}

// FindProgram is where a program is. A name without a slash is looked for in the PATH of the environment that the child
// will have, or in the gateway's if that has none.
func FindProgram(name string, env map[string]string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	path, ok := env["PATH"]
	if !ok {
		path = os.Getenv("PATH")
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // a program in the current directory is not meant
		}
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("no program %q is in any directory of PATH; give its whole path, or a PATH in env", name)
}
