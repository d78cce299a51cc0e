package upstream

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup starts a child as the first of a process group of its own. The child is killed if the gateway dies: the kernel
// does that if the thread that started it ends, so that thread must live as long.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for a child, and ends the rest of its group. Until the child has been waited for, its id, which is the
// group's too, belongs to no other process: so the group is ended before.
func (p *process) reap(child *os.Process) (*os.ProcessState, error) {
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.signal(syscall.SIGKILL)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	state, err := child.Wait()
	if os.Getpid() == 1 { // as in a container: a process without its parent becomes our child, and no other process waits for it
		for {
			if _, err := unix.Wait4(-p.pid, nil, 0, nil); err != nil && err != unix.EINTR {
				break // there is none, or no more
			}
		}
	}
	return state, err
}

// inheritNothing keeps the files that this process inherited itself, beside its standard streams, from all children. What it opened
// it keeps from them anyway.
func inheritNothing() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // kernels before 5.11 cannot
}
