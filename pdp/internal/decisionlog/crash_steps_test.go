//go:build unix

package decisionlog

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/journal"
)

// TestCrashAtEachStep kills a process at each step of the log and of its journal, when it comes there first, and at a
// random later time. What it had answered is on record once, and the log verifies before and after the next start. In the
// gate a process is killed once at each step, and make soak does this a thousand times.
// It takes more than a second: 26 processes, one after the other, of which each log is verified.
func TestCrashAtEachStep(t *testing.T) {
	if plan := os.Getenv("DECISIONLOG_STEP"); plan != "" {
		appendUntilStep(os.Getenv("DECISIONLOG_DATA"), plan)
	}
	steps := slices.Concat(Steps(), journal.Steps())
	rounds := len(steps)
	switch {
	case os.Getenv("SOAK") != "":
		rounds = 1000
	case !testing.Short():
		rounds = 100
	}
	rand.Shuffle(len(steps), func(i, k int) { steps[i], steps[k] = steps[k], steps[i] })
	reached := map[string]bool{}
	var l *lives
	for round := range rounds {
		if round%3 == 0 { // the next lives are those of another log, so that there is not too much to verify each time
			l.end()
			l = &lives{T: t, data: memory(t), answered: map[string]bool{}}
		}
		step, times := steps[round%len(steps)], 1
		if round >= len(steps) {
			times += rand.IntN(30)
		}
		if step == StepReplay || step == StepReplayed {
			l.live(StepFilled, 3) // so that there is something to replay
			times = 1
		}
		if l.live(step, times) {
			reached[step] = true
		}
		if t.Failed() {
			t.Fatalf("that was round %d, which ended at %s, for the %dth time", round, step, times)
		}
	}
	l.end()
	for _, step := range steps[:min(rounds, len(steps))] {
		if !reached[step] {
			t.Errorf("no process came to %s", step)
		}
	}
}

// lives are those of the processes that have a log, one after the other.
type lives struct {
	*testing.T
	data       string
	answered   map[string]bool
	checkpoint string // the last one that was told
}

// live runs a process until it comes to a step for the nth time, where it is killed. It reports whether it came there.
func (l *lives) live(step string, n int) (killed bool) {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), os.Args[0], "-test.run=^TestCrashAtEachStep$")
	cmd.Env = append(os.Environ(), "DECISIONLOG_DATA="+l.data, "DECISIONLOG_STEP="+step+" "+strconv.Itoa(n))
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); { // on after it was killed: what it had said counts
		switch what, text, _ := strings.Cut(lines.Text(), " "); what {
		case "answered":
			l.answered[text+".0"], l.answered[text+".1"] = true, true
		case "checkpoint":
			note, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				l.Fatal(err)
			}
			l.checkpoint = string(note)
		default:
			l.Error(lines.Text())
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		killed = true
	} else if err != nil {
		l.Fatal(err)
	}
	if l.checkpoint != "" { // else the log may not even be there
		l.judge(l.checkpoint)
	}
	return killed
}

// judge verifies what is there, with a checkpoint or without one.
func (l *lives) judge(checkpoint string) {
	l.Helper()
	if err := JudgeKept(l.data, checkpoint); err != nil {
		l.Fatal(err)
	}
}

// end opens the log, and looks for what was answered.
func (l *lives) end() {
	if l == nil {
		return
	}
	l.Helper()
	if l.checkpoint != "" {
		l.judge("")
	}
	if err := mustOpen(l, l.data, Options{On: Hooks{Checkpoint: func(note []byte) { l.checkpoint = string(note) }}}).Close(); err != nil {
		l.Fatal(err)
	}
	l.judge(l.checkpoint)
	seen := map[string]int{}
	for _, line := range verify(l, l.data) {
		seen[idOf(line)]++
	}
	for id := range l.answered {
		if seen[id] == 0 {
			l.Errorf("%s was answered, and is not on record", id)
		}
	}
	for id, n := range seen {
		call, which, ours := strings.Cut(id, ".")
		if n != 1 || ours && seen[call+".0"] != seen[call+".1"] {
			l.Errorf("%s is there %d times, %s of its call", id, n, which)
		}
	}
}

// appendUntilStep is the process that is killed.
func appendUntilStep(data, plan string) {
	step, text, _ := strings.Cut(plan, " ")
	n, err := strconv.Atoi(text)
	var left atomic.Int64
	left.Store(int64(n))
	var printing sync.Mutex
	say := func(what string, text any) {
		printing.Lock()
		defer printing.Unlock()
		fmt.Println(what, text)
	}
	fail := func(err error) {
		if err != nil {
			say("error", err)
			os.Exit(1)
		}
	}
	fail(err)
	come := func(at string) {
		if at == step && left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // what comes next does not happen
		}
	}
	l, err := Open(data, Options{
		SegmentBytes: 2 << 20, Checkpoints: Checkpoints{Records: 40}, Journal: journal.Options{Size: 512 << 10, Step: come},
		On: Hooks{
			Checkpoint: func(note []byte) { say("checkpoint", base64.StdEncoding.EncodeToString(note)) },
			Step:       come,
		},
	})
	fail(err)
	var callers sync.WaitGroup
	for g := range 6 {
		callers.Go(func() {
			for i := range 25 {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), g, i)
				fail(l.Append(context.Background(), callOf(id, i)))
				say("answered", id)
				switch {
				case i%8 == g:
					fail(l.Flush(context.Background()))
				case i == 12 && g == 0:
					fail(l.Rotate(context.Background()))
				}
			}
		})
	}
	callers.Wait()
	fail(l.Close())
	os.Exit(0)
}

// callOf are two records: small ones for the journal, some that fill it soon, some that are too large for it, and some
// that do not go into it at all.
func callOf(id string, n int) []Entry {
	first, second := entry(id+".0"), entry(id+".1")
	size := 0
	switch n % 6 {
	case 1, 3:
		size = 28 << 10
	case 4:
		size = callBytes
	case 5:
		second = Entry{ID: id + ".1", Kind: KindAdmin, Event: "data_read"}
	}
	first.Request.Context = jsontext.Value(`"` + strings.Repeat("x", size) + `"`)
	return []Entry{first, second}
}
