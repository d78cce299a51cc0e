//go:build linux

package server_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
)

// TestApprovalOfAKilledServer kills a server when it puts a decision on record that uses an approval: before the journal
// has it, when the journal alone has it, and when the segment has it and the approval's file does not. After the next
// start the approval is good for one decision in all.
func TestApprovalOfAKilledServer(t *testing.T) {
	t.Parallel()
	if kept := os.Getenv("APPROVAL_KILLED"); kept != "" {
		useUntilKilled(t, kept, os.Getenv("APPROVAL_STEP"))
	}
	for _, step := range []string{journal.StepWrite, journal.StepSynced, decisionlog.StepFill, decisionlog.StepFilled} {
		t.Run(step, func(t *testing.T) { approvalOfAKilled(t, step) })
	}
}

func approvalOfAKilled(t *testing.T, step string) {
	c := &counter{t: t, data: t.TempDir(), key: map[string]string{}, Clock: clock.At(pdptest.Now)}
	all := []string{"*"}
	c.grant("pep", all, "", auth.Decide)
	c.grant("auditor", all, "", auth.LogRead)
	c.grant("mia", all, `user::"mia"`, auth.Approve)
	kept, err := json.Marshal(map[string]any{"data": c.data, "keys": c.key})
	must(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestApprovalOfAKilledServer$")
	cmd.Env = append(os.Environ(), "APPROVAL_KILLED="+string(kept), "APPROVAL_STEP="+step)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	id := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "approved "); is {
			id = text
		} else {
			t.Log(lines.Text())
		}
	}
	if err := cmd.Wait(); id == "" || err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("it was not killed: %q, %v", id, err)
	}
	if filled := segmentsHave(t, c.data, id); filled != (step == decisionlog.StepFilled) {
		t.Fatalf("whether the segment has the decision: %t", filled)
	}

	c.open(pdptest.Bundle(approvalFiles()))
	want := 0 // how often it may be used now
	if step == journal.StepWrite {
		want = 1 // nobody can say that there ever was a decision
		eventually(t, "the use is there again", func() bool { return c.asks("pep", tool("push", again)).may() })
		want--
	}
	for range 3 {
		if c.asks("pep", tool("push", again)).may() {
			want--
		}
	}
	if want != 0 {
		t.Errorf("it was used %d times more than it may be", -want)
	}
	eventually(t, "it is used up", func() bool { s, _ := c.sees("mia", id); return s.Status == "used_up" && s.Used == 1 })
	if steps, spent := c.log(); spent != 1 {
		t.Errorf("%d decisions used it: %v", spent, steps)
	}
}

// segmentsHave reports whether the segments have a decision that used an approval.
func segmentsHave(t *testing.T, data, id string) (is bool) {
	t.Helper()
	r, err := segment.OpenReader(data)
	must(t, err)
	defer func() { must(t, r.Close()) }()
	for record, err := range r.Records(t.Context(), 0, r.Size()) {
		must(t, err)
		is = is || bytes.Contains(record.Line, []byte(`"discharged":[`)) && bytes.Contains(record.Line, []byte(id))
	}
	return is
}

// useUntilKilled is the server that is killed.
func useUntilKilled(t *testing.T, kept, step string) {
	c := &counter{t: t, Clock: clock.At(pdptest.Now)}
	var is struct {
		Data string            `json:"data"`
		Keys map[string]string `json:"keys"`
	}
	must(t, json.Unmarshal([]byte(kept), &is))
	c.data, c.key = is.Data, is.Keys
	var ready atomic.Bool
	come := func(at string) {
		if at == step && ready.Load() {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // what comes next does not happen
		}
	}
	c.open(pdptest.Bundle(approvalFiles()), func(config *server.Config) {
		server.TuneLog(config, func(o *decisionlog.Options, _ *decisionlog.Retention) { o.On.Step, o.Journal.Step = come, come })
	})
	id := c.approved()
	c.Log() // all of this is filled
	_, err := os.Stdout.WriteString("approved " + id + "\n")
	must(t, err)
	ready.Store(true)
	t.Fatalf("nobody killed it: %+v", c.asks("pep", tool("push", again)))
}
