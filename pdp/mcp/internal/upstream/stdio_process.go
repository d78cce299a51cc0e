package upstream

import (
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
	in       *os.File
	out, err *os.File
	// ended is closed if the child is no more and has been waited for. How is written before.
	ended chan struct{}
	how   string

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
	attr := &os.ProcAttr{Dir: o.Dir, Env: []string{}, Sys: ownGroup()} // a nil Env would be ours
	for name, value := range o.Env {
		attr.Env = append(attr.Env, name+"="+value)
	}
	p := &process{ended: make(chan struct{})}
	for _, ours := range []**os.File{&p.in, &p.out, &p.err} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(attr.Files, p.in, p.out, p.err))
			return nil, err
		}
		theirs := w
		if *ours = r; len(attr.Files) == 0 {
			*ours, theirs = w, r
		}
		attr.Files = append(attr.Files, theirs)
	}
	started := make(chan error)
	go p.keep(path, o.Command, attr, started)
	err = <-started
	closeAll(attr.Files)
	if err != nil {
		closeAll([]*os.File{p.in, p.out, p.err})
		return nil, err
	}
	return p, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// keep starts the child and is there until it has been waited for.
func (p *process) keep(path string, argv []string, attr *os.ProcAttr, started chan<- error) {
	runtime.LockOSThread() // see ownGroup
	defer runtime.UnlockOSThread()
	child, err := os.StartProcess(path, argv, attr)
	if err != nil {
		started <- err
		return
	}
	p.pid = child.Pid
	started <- nil
	state, err := p.reap(child)
	if p.how = "it ended"; err == nil {
		p.how = state.String()
	}
	close(p.ended)
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
	if p.endsWithin(grace) {
		return
	}
	p.signal(syscall.SIGTERM)
	if !p.endsWithin(grace) {
		p.kill()
	}
}

func (p *process) endsWithin(grace time.Duration) bool {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// kill ends the child at once.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
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
