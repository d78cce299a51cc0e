//go:build linux

package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/memorydisk"
)

// While the log cannot be written nobody is told of a step that is not on record, in any
// form; once it can be, everybody is.
func TestUnrecordedApprovalsAreNotTold(t *testing.T) {
	for _, mode := range []decisionlog.Mode{decisionlog.Strict, decisionlog.BestEffort} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			unrecordedApprovals(t, mode)
		})
	}
}

func unrecordedApprovals(t *testing.T, mode decisionlog.Mode) {
	var dir string
	c := openDesk(t, triesAgainSoon, func(config *server.Config) { // the log alone: the approvals have room
		config.DecisionLog.Mode = mode
		dir = filepath.Join(config.Data, format.LogDir)
		must(t, os.Mkdir(dir, 0o700))
		memorydisk.Mount(t, dir, "size=24m", 0)
	})
	ask := func(what string, n int) string {
		t.Helper()
		return c.asks("pep", tool(what, fmt.Sprintf(`"arguments":{"n":%d}`, n))).Approval.ID
	}
	p, question := c.program("asker"), `"arguments":{"n":0}`
	task := p.requests(wants("push", question))
	denied := c.waiting(task)
	revoked := ask("push", 1)
	c.says("mia", revoked, "decision", yes, 200)
	steps := []struct {
		who, what, body string
		id              string
		want            approval.Status
	}{
		{"mia", "decision", yes, ask("push", 2), approval.Approved},
		{"mia", "decision", no, denied, approval.Denied},
		{"pep", "cancel", "", ask("push", 4), approval.Cancelled},
		{"mia", "revoke", "", revoked, approval.Revoked},
		{"mia", "decision", yes, ask("stop", 5), approval.Pending}, // one of two
	}
	waits := ask("push", 6)
	follows := p.follows()
	follows.lists("")
	fresh := p.follows()

	room := filled(t, dir)
	// A log that failed takes nothing until it is opened again, and that writes a record. So no step has a place once
	// that record has none. A failure alone does not show that: records share a transaction, and one may have a place
	// where many had none. Nor do two: what one opening brings into the log, or gives back, may let the next one go on. So
	// several must have left all as it was.
	var last decisionlog.Status
	alike := 0
	eventually(t, "the log's file has nothing in reserve", func() bool {
		now := c.Log().Status()
		switch {
		case now.OK || now.Size != last.Size || now.Unfilled != last.Unfilled:
			alike = 0
		case now.Err != last.Err:
			alike++
		}
		again := alike >= 5
		last = now
		if now.OK {
			_, _ = c.do("pep", "POST", evaluationPath, `{"subject":{"type":"a","id":"a"},"action":{"name":"a"},"resource":{"type":"a","id":"a"},"context":{"text":"`+strings.Repeat("x", 16<<10)+`"}}`)
		}
		return again
	})
	const unrecorded = "does not count until it is"
	for _, step := range steps {
		path := "/v1/approvals/" + step.id
		c.reply(step.who, "POST", path+"/"+step.what, step.body).is(t, string(step.want), 503, unrecorded)
		for _, form := range []string{"", "?wait=1ms", "/authorization-request", "/authorization-notification", "/elicitation"} {
			c.reply("noah", "GET", path+form, "").is(t, fmt.Sprintf("%s%s", step.want, form), 503, unrecorded)
		}
		c.reply("eve", "GET", path, "").is(t, "who may not see it", http.StatusNotFound)
	}
	for _, status := range approval.Statuses() {
		items, _ := c.inbox("noah", "?status="+string(status))
		if status == approval.Pending && len(items) == 1 && items[0].ID == waits {
			continue
		}
		if len(items) > 0 {
			t.Errorf("%s: got %+v", status, items)
		}
	}
	if got := p.looks(task.Task.ID); got.status != 200 || got.Task.Status != "pending" {
		t.Errorf("its task: got %d %s", got.status, got.text)
	}
	if got, more := follows.lists("&wait=1ms"); len(got) != 0 || more {
		t.Errorf("who follows its tasks is told %v", got)
	}
	fresh.lists("") // of nothing, as it is neither known to wait nor to have ended
	if got := p.cancels(task.Task.ID, ""); got.status != 503 || !strings.Contains(got.text, unrecorded) {
		t.Errorf("its task is cancelled: got %d %s", got.status, got.text)
	}
	if mode == decisionlog.BestEffort { // else there is no answer at all
		p.evaluates(wants("push", question+`,"approval":{"id":"`+denied+`"}`)).denies(t, "it is presented", evaluation.ApprovalPending)
	}

	waited := make(chan string)
	go func() {
		_, text := c.do("pep", "GET", "/v1/approvals/"+steps[0].id+"?wait=30s", "")
		waited <- text
	}()
	told := make(chan string)
	go func() {
		got, _ := follows.lists("&wait=30s")
		told <- stands(got)
	}()
	room()
	if got := <-told; got != "denied" {
		t.Errorf("who followed its tasks got %q", got)
	}
	if got, _ := fresh.lists("&wait=30s"); stands(got) != "denied" || got[0].Task.ID != task.Task.ID {
		t.Errorf("who began to follow them meanwhile got %v", got)
	}
	has(t, <-waited, `"status":"approved"`)
	for _, step := range steps {
		if got, status := c.sees("noah", step.id); status != 200 || got.Status != string(step.want) {
			t.Errorf("%s: got %d %+v", step.want, status, got)
		}
		items, _ := c.inbox("noah", "?status="+string(step.want))
		if n := len(items); n == 0 || step.want != approval.Pending && n > 1 {
			t.Errorf("%s: got %+v", step.want, items)
		}
	}
	p.cancels(task.Task.ID, "").refused(t, "a task that came to its end", 409, evaluation.InvalidTaskState)
	c.log()
}
