//go:build unix

package decisionlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/journal"
)

// unfilled is a log whose segment gets nothing of what is answered, until goOn: only the journal has it.
func unfilled(t *testing.T, data string, o Options) (l *Log, goOn func()) {
	t.Helper()
	stands, step := make(chan struct{}), o.On.Step
	o.On.Step = func(at string) {
		if at == StepFill {
			<-stands
		}
		if step != nil {
			step(at)
		}
	}
	o.Checkpoints = Checkpoints{Every: time.Hour, Idle: time.Hour}
	l = mustOpen(t, data, o)
	goOn = sync.OnceFunc(func() { close(stands) })
	t.Cleanup(goOn) // before it is closed
	return l, goOn
}

// appended appends calls of two records each.
func appended(t *testing.T, l *Log, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := l.Append(t.Context(), []Entry{entry(id + ".0"), entry(id + ".1")}); err != nil {
			t.Fatal(err)
		}
	}
}

// asKilled is a copy of a data directory to which nobody writes at the moment: what a process leaves that is killed.
func asKilled(t *testing.T, data string) (dir string) {
	t.Helper()
	dir = filepath.Join(memory(t), "data")
	if err := errors.Join(os.CopyFS(dir, os.DirFS(data)), os.Chmod(filepath.Join(dir, "log.key"), 0o600)); err != nil {
		t.Error(err) // a step may be another goroutine's
	}
	return dir
}

// crashed is a directory in which six calls are in the journal alone, with its clock going back between them, and the
// lines of the log that was not killed.
func crashed(t *testing.T, start time.Time) (data string, lines [][]byte) {
	t.Helper()
	whole := memory(t)
	var clock atomic.Int64 // how far it went on
	l, goOn := unfilled(t, whole, Options{Now: func() time.Time { return start.Add(time.Duration(clock.Load())) }})
	clock.Store(int64(time.Minute))
	appended(t, l, "a", "b", "c")
	clock.Store(-int64(time.Hour))
	appended(t, l, "d", "e", "f")
	data = asKilled(t, whole)
	goOn()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lines = verify(t, whole)
	if len(lines) != 13 || !bytes.Contains(lines[12], []byte("clock_behind")) || bytes.Contains(lines[6], []byte("clock_behind")) {
		t.Fatalf("%d records:\n%s", len(lines), bytes.Join(lines, []byte("\n")))
	}
	return data, lines
}

var crashStart = time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)

// TestReplayIsCutShort ends a replay at each of its steps. Whatever step that is, the next one ends with the same bytes
// as a log that was not killed. The clock went back before it: no time does.
func TestReplayIsCutShort(t *testing.T) {
	t.Parallel()
	data, lines := crashed(t, crashStart)
	var steps, left []string
	starts := true
	come := func(step string) {
		if starts {
			steps, left = append(steps, step), append(left, asKilled(t, data))
		}
	}
	at := func() time.Time { return crashStart } // or its segment is old enough to be sealed
	first := mustOpen(t, data, Options{Now: at, Journal: journal.Options{Step: come}, On: Hooks{Step: come}, Checkpoints: Checkpoints{Idle: time.Hour}})
	starts = false
	for n, step := range steps {
		l := mustOpen(t, left[n], Options{Now: func() time.Time { return crashStart.Add(-2 * time.Hour) }})
		appended(t, l, "after")
		if err := errors.Join(l.Close(), JudgeDirectory(left[n])); err != nil {
			t.Fatalf("%d %s: %v", n, step, err)
		}
		got := verify(t, left[n]) // no time is before another
		if !bytes.Equal(bytes.Join(got[:len(lines)], []byte("\n")), bytes.Join(lines, []byte("\n"))) {
			t.Fatalf("%d %s:\n%s\nwant\n%s", n, step, bytes.Join(got, []byte("\n")), bytes.Join(lines, []byte("\n")))
		}
		crashes := 0
		for _, line := range got[len(lines):] {
			if bytes.Contains(line, []byte(EventCrash)) {
				crashes++
			}
			if !bytes.Contains(line, []byte("clock_behind")) && n == 0 {
				t.Errorf("it does not say that the clock is behind: %s", line)
			}
		}
		if crashes == 0 || crashes > 2 || len(got) != len(lines)+crashes+2 {
			t.Errorf("%d %s: %d crashes are on record, and %d records", n, step, crashes, len(got))
		}
	}
	if all := strings.Join(steps, " "); !strings.HasPrefix(all, "replay fill filled commit committed replayed commit committed create ") ||
		!strings.HasSuffix(all, " created commit committed") {
		t.Error(all)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTwoStartsDuringReplay: who starts while another process replays is refused. If that is killed, the next one begins
// again.
func TestTwoStartsDuringReplay(t *testing.T) {
	if data := os.Getenv("DECISIONLOG_REPLAY"); data != "" {
		_, err := Open(data, Options{On: Hooks{Step: func(step string) {
			if step == StepFill {
				fmt.Println(step)
				select {}
			}
		}}})
		fmt.Println("nobody killed it:", err)
		os.Exit(1)
	}
	data, lines := crashed(t, crashStart)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTwoStartsDuringReplay$")
	cmd.Env = append(os.Environ(), "DECISIONLOG_REPLAY="+data)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if said != StepFill+"\n" {
		t.Errorf("%q, %v", said, err)
	}
	if l, err := Open(data, Options{LockTimeout: time.Millisecond}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one: %v, %v", l, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := mustOpen(t, data, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	got := verify(t, data)
	if !bytes.Equal(bytes.Join(got[:len(lines)], nil), bytes.Join(lines, nil)) || !bytes.Contains(got[len(lines)], []byte(`"replayed":12`)) {
		t.Errorf("got\n%s\nwant\n%s", bytes.Join(got, []byte("\n")), bytes.Join(lines, []byte("\n")))
	}
}

// TestCrashOfTheJournalAlone: the segment of a log that was stopped in good order has nothing new, so it does not tell
// that there was a crash.
func TestCrashOfTheJournalAlone(t *testing.T) {
	t.Parallel()
	data := memory(t)
	if err := mustOpen(t, data, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	l, _ := unfilled(t, data, Options{})
	appended(t, l, "a")
	data = asKilled(t, data)
	if err := mustOpen(t, data, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	lines := verify(t, data)
	if last := lines[len(lines)-1]; len(lines) != 4 || !bytes.Contains(last, []byte(EventCrash)) || !bytes.Contains(last, []byte(`"replayed":2`)) {
		t.Errorf("%d records, and the last one is %s", len(lines), last)
	}
}

// standing is what the log says of its frames.
func standing(l *Log) (s Status) {
	l.writer.frames.standing(l.Size, &s)
	return s
}

// TestRotationWithFramesPending: what was answered before a rotation is in the segment that is sealed. A call that comes
// while no journal counts is answered once the next segment says which one does.
func TestRotationWithFramesPending(t *testing.T) {
	t.Parallel()
	data, left := memory(t), ""
	late := make(chan error, 1)
	var l *Log
	l, goOn := unfilled(t, data, Options{On: Hooks{Step: func(step string) {
		if step != StepSealed {
			return
		}
		go func() { late <- l.Append(t.Context(), []Entry{entry("late.0"), entry("late.1")}) }()
		for standing(l).Queued == 0 {
			runtime.Gosched()
		}
		left = asKilled(t, data)
		if len(late) > 0 {
			t.Error("it was answered while no journal counted")
		}
	}}})
	appended(t, l, "a", "b", "c")
	if n := standing(l).Unfilled; n != 6 {
		t.Fatalf("%d records are pending", n)
	}
	rotated := make(chan error)
	go func() { rotated <- l.Rotate(t.Context()) }()
	goOn()
	if err := errors.Join(<-rotated, <-late); err != nil {
		t.Fatal(err)
	}
	sealed := l.Segments()[0]
	for id, want := range map[string]bool{"a.0": true, "b.0": true, "c.1": true, "late.0": false} {
		if n := sequenceOf(t, l, id); n < sealed.First+sealed.Records != want {
			t.Errorf("%s is record %d, and the sealed segment has %d", id, n, sealed.Records)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	verify(t, data)
	if err := mustOpen(t, left, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	got := bytes.Join(verify(t, left), nil)
	for id, want := range map[string]int{"a.0": 1, "b.0": 1, "c.1": 1, "late.0": 0} {
		if n := bytes.Count(got, []byte(`"id":"`+id+`"`)); n != want {
			t.Errorf("killed then, %s is there %d times", id, n)
		}
	}
}

// TestFillThatSeemedToFail: a transaction is durable, and the writer takes it to have failed. What it had is on record
// once, and counts once toward what its caller may put there.
func TestFillThatSeemedToFail(t *testing.T) {
	t.Parallel()
	data, fails := memory(t), true
	l := mustOpen(t, data, Options{On: Hooks{Step: func(step string) {
		if step == StepFilled && fails {
			fails = false
			panic("it seemed to fail")
		}
	}}})
	appended(t, l, "a")
	if err := l.Flush(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	if err := l.Close(); err != nil { // which opens it once more
		t.Fatal(err)
	}
	got := bytes.Join(verify(t, data), nil)
	for _, id := range []string{"a.0", "a.1"} {
		if n := bytes.Count(got, []byte(`"id":"`+id+`"`)); n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	if left := l.writer.accounts.coming; left != 0 {
		t.Errorf("%d bytes are still on their way", left)
	}
}
