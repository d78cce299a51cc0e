//go:build !linux

package upstream

import (
	"os"
	"syscall"
)

// ownGroup starts a child as the first of a process group of its own. If the gateway dies, the child learns it by the end
// of its standard input alone.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for a child, and ends the rest of its group.
func (p *process) reap(child *os.Process) (*os.ProcessState, error) {
	state, err := child.Wait()
	p.signal(syscall.SIGKILL)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	return state, err
}

// inheritNothing has no way here.
func inheritNothing() {}
