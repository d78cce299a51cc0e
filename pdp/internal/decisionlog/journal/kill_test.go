//go:build unix

package journal

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestKilled kills a process at each step, the first times it comes there, and later. What it had answered and not
// filled is found.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("JOURNAL_KILLED"); dir != "" {
		writeUntilKilled(dir, os.Getenv("JOURNAL_STEP"))
	}
	for _, step := range Steps() {
		times := []int{1, 2, 7}
		switch {
		case step == StepCreated:
			times = []int{1}
		case step == StepCreate: // once for each file
			times = []int{1, 2}
		}
		if testing.Short() { // at night, later times too
			times = times[:1]
		}
		for _, n := range times {
			t.Run(fmt.Sprint(step, " ", n), func(t *testing.T) { killed(t, step, n) })
		}
	}
}

func killed(t *testing.T, step string, times int) {
	dir := memory(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "JOURNAL_KILLED="+dir, "JOURNAL_STEP="+step+" "+strconv.Itoa(times))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var id ID
	answered, filled, created := uint64(0), uint64(0), false
	for lines := bufio.NewScanner(out); lines.Scan(); { // on after it was killed: what it had said counts
		what, text, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch what {
		case "id":
			created = true
			_, err = hex.Decode(id[:], []byte(text))
		case "answered":
			answered, err = strconv.ParseUint(text, 10, 64)
		case "filled":
			filled, err = strconv.ParseUint(text, 10, 64)
		default:
			t.Error(lines.Text())
		}
		must(t, err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed: %v", err)
	}
	if !created {
		if step != StepCreate && step != StepCreated && step != StepBegin && step != StepBegun && step != StepBegunWritten {
			t.Error("it was killed too early")
		}
		again, err := Create(dir, Options{}) // over what is left
		must(t, err)
		must(t, again.Close())
		return
	}
	got, err := pending(t, dir, id, filled)
	must(t, err)
	next := filled + 1
	for _, f := range got {
		if f.Number != next || len(f.Calls) != 1 || !reflect.DeepEqual(f.Calls[0], killedCall(f.Number)) {
			t.Fatalf("frame %d is not what was written", f.Number)
		}
		next++
	}
	if next != answered+1 && next != answered+2 {
		t.Errorf("%d frames were answered, and %d are there", answered, next-1)
	}
}

// killedCall is the call of a frame of the process that is killed.
func killedCall(number uint64) Call { return blocks(int(number), 1+int(number*37%90)) }

// writeUntilKilled is that process.
func writeUntilKilled(dir, when string) {
	step, n, _ := strings.Cut(when, " ")
	left, err := strconv.Atoi(n)
	var j *Journal
	if err == nil {
		j, err = Create(dir, Options{Size: 1 << 20, Step: func(s string) {
			if s == step {
				if left--; left == 0 {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}
		}})
	}
	if err == nil {
		fmt.Println("id", j.ID())
	}
	last := uint64(0)
	for err == nil && last < 1000 {
		var number uint64
		c := killedCall(last + 1)
		if number, err = j.Write(encoded(c)); err == nil {
			last = number
			fmt.Println("answered", number)
		}
		if full := errors.Is(err, ErrFull); full || last%5 == 0 {
			filled := last - last%3
			if full {
				filled = last
			}
			fmt.Println("filled", filled)
			j.Filled(filled)
			err = nil
			if filled == last {
				err = j.Erase()
			}
		}
	}
	fmt.Println("nobody killed it:", err)
	os.Exit(1)
}
