package decisionlog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// helperDir is set in the environment of this test binary where it is to write
// to a log until it is killed.
const helperDir = "DECISIONLOG_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		writeUntilKilled(dir)
		return
	}
	os.Exit(m.Run())
}

// writeUntilKilled has 64 callers append, and prints the id of each record once
// it is acknowledged.
func writeUntilKilled(data string) {
	l, err := Open(data, Options{SegmentBytes: 1 << 20, Checkpoints: Checkpoints{Records: 50}})
	if err != nil {
		fmt.Println("ERROR", err)
		os.Exit(1)
	}
	fmt.Println("OPEN", l.Size())
	var printing sync.Mutex
	for g := range 64 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), g, i)
				if err := l.Append(context.Background(), []Entry{entry(id + ".0"), entry(id + ".1")}); err != nil {
					fmt.Println("ERROR", err)
					os.Exit(1)
				}
				printing.Lock()
				fmt.Println(id + ".0\n" + id + ".1")
				printing.Unlock()
			}
		}()
	}
	select {}
}

// TestCrash kills the writer at random moments. What it had acknowledged by then
// is on record, and the log is whole.
func TestCrash(t *testing.T) {
	data := memory(t)
	acknowledged := map[string]bool{}
	rounds := 8
	switch {
	case os.Getenv("SOAK") != "":
		rounds = 100
	case testing.Short():
		rounds = 3
	}
	for range rounds {
		killed(t, data, rand.IntN(1500), acknowledged)
	}
	l := mustOpen(t, data, Options{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	crashes, found := 0, 0
	halves := map[string]int{}
	for _, line := range verify(t, data) {
		id := idOf(line)
		if acknowledged[id] {
			found++
		}
		if call, _, ok := strings.Cut(id, "."); ok {
			halves[call]++
		}
		if bytes.Contains(line, []byte(EventCrash)) {
			crashes++
		}
	}
	if found != len(acknowledged) || crashes != rounds {
		t.Errorf("%d of %d acknowledged records are there, %d of %d crashes are recorded", found, len(acknowledged), crashes, rounds)
	}
	for call, n := range halves {
		if n != 2 {
			t.Errorf("of %s there are %d records, and it had 2", call, n)
		}
	}
	t.Logf("%d acknowledged records, %d segments", len(acknowledged), len(l.Segments()))
}

// killed runs the writer and kills it after it has acknowledged so many.
func killed(t *testing.T, data string, after int, acknowledged map[string]bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+data)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ { // on after it was killed: what it had printed counts
		line := scanner.Text()
		if strings.HasPrefix(line, "ERROR") {
			t.Error(line)
		}
		if !strings.HasPrefix(line, "OPEN") && strings.HasSuffix(line, ".0") || strings.HasSuffix(line, ".1") {
			acknowledged[line] = true
		}
		if n == after {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
}
