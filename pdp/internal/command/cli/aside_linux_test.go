package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that stepped aside has no thread that goes before others, also none that began later.
func TestStepAside(t *testing.T) {
	const inside = "STEP_ASIDE"
	if os.Getenv(inside) == "" {
		child := exec.Command(os.Args[0], "-test.run", "^TestStepAside$")
		child.Env = append(os.Environ(), inside+"=1")
		if said, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return
	}
	StepAside()
	var begun, seen sync.WaitGroup
	seen.Add(1)
	for range 8 {
		begun.Add(1)
		go func() {
			runtime.LockOSThread() // each needs a thread of its own
			begun.Done()
			seen.Wait()
		}()
	}
	begun.Wait()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 8 {
		t.Fatal(len(threads), err)
	}
	for _, one := range threads {
		id, err := strconv.Atoi(one.Name())
		if err != nil {
			t.Fatal(err)
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil || attr.Policy != unix.SCHED_IDLE {
			t.Error(fmt.Sprint("thread ", id, " has policy ", attr, err))
		}
	}
	seen.Done()
}
