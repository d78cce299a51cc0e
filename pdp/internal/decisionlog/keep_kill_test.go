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

	"policy-service/pdp/pdptest/night"
)

// A process that redacts and retires is killed at any moment. The log it leaves
// verifies, and what it said was gone is gone.
func TestRemovalsAreKilled(t *testing.T) {
	if data := os.Getenv("DECISIONLOG_KILLED"); data != "" {
		removeForEver(data)
	}
	data := memory(t)
	for round := range night.Cases(30) {
		gone := killedRemoving(t, data, 1+rand.IntN(12), time.Duration(rand.IntN(20))*time.Millisecond)
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
		for content, files := range k.holding(gone...) {
			t.Errorf("round %d: the %s is in %v", round, content, files)
		}
		if left := k.left(); left != nil {
			t.Errorf("round %d: left behind: %v", round, left)
		}
	}
}

// killedRemoving runs the process until it has redacted so many, and returns their content.
func killedRemoving(t *testing.T, data string, many int, after time.Duration) (gone []string) {
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
		id, ok := strings.CutPrefix(lines.Text(), "gone ")
		if !ok {
			t.Error(lines.Text())
		}
		if gone = append(gone, "content-of-"+id+`"`); len(gone) == many {
			defer time.AfterFunc(after, cancel).Stop()
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
