//go:build unix

package decisionlog

import (
	"bufio"
	"bytes"
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
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/night"
)

// TestCrashAtEachStep kills a process at each step of the log and of its journal, when it comes there first, and at a
// random later time. What it had answered is on record once, and the log verifies before and after the next start. In the
// gate a process is killed once at each step, and make soak does this a thousand times.
// It takes more than a second: 26 processes, one after the other, of which each log is verified.
func TestCrashAtEachStep(t *testing.T) {
	if plan := os.Getenv(killedPlan); plan != "" {
		appendUntilStep(os.Getenv(killedData), plan)
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
	killed = runUntilKilled(l.T, "TestCrashAtEachStep", l.data, step+" "+strconv.Itoa(n), func(what, text string, _ func()) bool {
		switch what {
		case "answered":
			l.answered[text+".0"], l.answered[text+".1"] = true, true
		case "checkpoint":
			note, err := base64.StdEncoding.DecodeString(text)
			must(l, err)
			l.checkpoint = string(note)
		default:
			return false
		}
		return true
	})
	if l.checkpoint != "" { // else the log may not even be there
		l.judge(l.checkpoint)
	}
	return killed
}

// The process that is killed runs a test with these variables: a directory, and what to do there.
const (
	killedData = "DECISIONLOG_DATA"
	killedPlan = "DECISIONLOG_PLAN"
)

// runUntilKilled runs a test in a process of its own, and reports whether that was killed. hear gets each line of it, also
// those from before it was killed, and what kills it. It reports whether it expects the line.
func runUntilKilled(t *testing.T, test, data, plan string, hear func(what, text string, kill func()) bool) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), killedData+"="+data, killedPlan+"="+plan)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if what, text, _ := strings.Cut(lines.Text(), " "); !hear(what, text, func() { _ = cmd.Process.Kill() }) {
			t.Error(lines.Text())
		}
	}
	var exit *exec.ExitError
	if err = cmd.Wait(); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	must(t, err)
	return false
}

// judge verifies what is there, with a checkpoint or without one.
func (l *lives) judge(checkpoint string) {
	l.Helper()
	must(l, JudgeKept(l.data, checkpoint))
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
	must(l, mustOpen(l, l.data, Options{On: Hooks{Checkpoint: func(note []byte) { l.checkpoint = string(note) }}}).Close())
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
func callOf(id string, n int) []record.Entry {
	first, second := entry(id+".0"), entry(id+".1")
	size := 0
	switch n % 6 {
	case 1, 3:
		size = 28 << 10
	case 4:
		size = callBytes
	case 5:
		second = record.Entry{ID: id + ".1", Kind: format.KindAdmin, Event: "data_read"}
	}
	first.Request.Context = jsontext.Value(`"` + strings.Repeat("x", size) + `"`)
	return []record.Entry{first, second}
}

// TestRemovalsAreKilled kills a process that redacts and retires, at any moment. The log it leaves verifies, and what it
// said was gone is gone.
func TestRemovalsAreKilled(t *testing.T) {
	if os.Getenv(killedPlan) != "" {
		removeForEver(os.Getenv(killedData))
	}
	data := memory(t)
	for round := range night.Cases(30) {
		many, after := 1+rand.IntN(12), time.Duration(rand.IntN(20))*time.Millisecond
		var gone []string
		killed := runUntilKilled(t, "TestRemovalsAreKilled", data, "remove", func(what, id string, kill func()) bool {
			if gone = append(gone, "content-of-"+id+`"`); len(gone) == many {
				time.AfterFunc(after, kill)
			}
			return what == "gone"
		})
		must(t, JudgeDirectory(data))
		must(t, mustOpen(t, data, Options{}).Close())
		must(t, JudgeDirectory(data))
		k := &kept{T: t, data: data}
		files, left := k.holding(gone...), k.left()
		if !killed || len(files) > 0 || left != nil {
			t.Fatalf("round %d: killed %v, content is in %v, left behind: %v", round, killed, files, left)
		}
	}
}

// removeForEver is the process that is killed.
func removeForEver(data string) {
	l, err := Open(data, Options{})
	if err == nil {
		_, err = l.Checkpoint(context.Background()) // without one nothing says what the log was
	}
	for i := 0; err == nil; i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		err = l.Append(context.Background(), []record.Entry{entryOf(id, true), entryOf(id+"-b", false)})
		if err == nil && i%2 == 0 {
			if err = l.Redact(context.Background(), "", id, "on request"); err == nil {
				fmt.Println("gone " + id)
			}
		}
		if err == nil && i%5 == 4 {
			_, err = l.Retain(context.Background(), Retention{Bytes: 1 << 20}, time.Now())
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// TestTwoStartsDuringReplay: who starts while another process replays is refused. If that is killed, the next one begins
// again.
func TestTwoStartsDuringReplay(t *testing.T) {
	if os.Getenv(killedPlan) != "" {
		_, err := Open(os.Getenv(killedData), Options{On: Hooks{Step: func(step string) {
			if step == StepFill {
				fmt.Println(step)
				select {}
			}
		}}})
		fmt.Println("nobody killed it:", err)
		os.Exit(1)
	}
	k := keep(t, "")
	k.crashed()
	runUntilKilled(t, "TestTwoStartsDuringReplay", k.data, "replay", func(what, _ string, kill func()) bool {
		if l, err := Open(k.data, Options{LockTimeout: time.Millisecond}); !errors.Is(err, segment.ErrLocked) {
			t.Errorf("a second one: %v, %v", l, err)
		}
		kill()
		return what == StepFill
	})
	must(t, mustOpen(t, k.data, Options{}).Close())
	lines := verify(t, k.data)
	if k.onRecord(lines, k.answered); len(lines) < 14 || !bytes.Contains(lines[13], []byte(`"replayed":12`)) {
		t.Errorf("got\n%s", bytes.Join(lines, []byte("\n")))
	}
}

// TestCrashOfTheJournalAlone: the segment of a log that was stopped in good order has nothing new, so it does not tell
// that there was a crash.
func TestCrashOfTheJournalAlone(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.reopen()
	k.hooks.hold()
	k.ok(k.pend("a", "a+"))
	data := asKilled(t, k.data)
	k.ok(mustOpen(t, data, Options{}).Close())
	lines := verify(t, data)
	if last := lines[len(lines)-1]; len(lines) != 4 || !bytes.Contains(last, []byte(format.EventCrash)) || !bytes.Contains(last, []byte(`"replayed":2`)) {
		t.Errorf("%d records, and the last one is %s", len(lines), last)
	}
}
