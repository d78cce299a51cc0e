package decisionlog

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A process that redacts and retires is killed at any moment. The log it leaves
// verifies, and what it said was gone is gone.
func TestRemovalsAreKilled(t *testing.T) {
	if data := os.Getenv("DECISIONLOG_KILLED"); data != "" {
		removeForEver(data)
	}
	data := t.TempDir()
	for round := range 8 {
		gone := killedRemoving(t, data, time.Duration(20+rand.IntN(400))*time.Millisecond)
		if err := JudgeDirectory(data); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		l, err := Open(data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := JudgeDirectory(data); err != nil {
			t.Fatalf("round %d, opened again: %v", round, err)
		}
		k := &kept{T: t, data: data}
		for _, id := range gone {
			if files := k.holds("content-of-" + id + `"`); files != nil {
				t.Errorf("round %d: the content of %s is in %v", round, id, files)
			}
		}
		if left := k.left(); left != nil {
			t.Errorf("round %d: left behind: %v", round, left)
		}
	}
}

// killedRemoving runs the process for a while, and returns what it redacted.
func killedRemoving(t *testing.T, data string, after time.Duration) (gone []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRemovalsAreKilled$") // killed when ctx ends
	cmd.Env = append(os.Environ(), "DECISIONLOG_KILLED="+data)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "open" {
			defer time.AfterFunc(after, cancel).Stop()
		} else if id, ok := strings.CutPrefix(lines.Text(), "gone "); ok {
			gone = append(gone, id)
		} else {
			t.Error(lines.Text())
		}
	}
	_ = cmd.Wait() // killed
	return gone
}

// removeForEver is the process that is killed.
func removeForEver(data string) {
	l, err := Open(data, Options{})
	if err == nil {
		_, err = l.Checkpoint(context.Background()) // without one nothing says what the log was
	}
	fmt.Println("open")
	for i := 0; err == nil; i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		err = l.Append(context.Background(), []Entry{entryOf(id, true), entryOf(id+"-b", false)})
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
