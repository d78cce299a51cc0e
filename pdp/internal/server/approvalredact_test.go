package server_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// secretWord is what somebody wrote into a question, a reason or a justification, and nobody masked.
const secretWord = "Xyzzy4711"

// holding are the files of the data directory that have a text.
func (c *counter) holding(text string) (names []string) {
	c.t.Helper()
	must(c.t, filepath.WalkDir(c.data, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // another took its place meanwhile
			return nil
		}
		if bytes.Contains(content, []byte(text)) {
			names = append(names, strings.TrimPrefix(name, c.data))
		}
		return err
	}))
	return names
}

func (c *counter) redacts(id, more string, want int) string {
	c.t.Helper()
	status, text := c.do("operator", "POST", "/v1/approvals/"+id+"/redaction", `{"reason":"erasure 17"`+more+`}`)
	if status != want {
		c.t.Errorf("got %d %s, want %d", status, text, want)
	}
	return text
}

// nowhere wants the word to be shown and kept nowhere, and the log to verify.
func (c *counter) nowhere() {
	c.t.Helper()
	for who, paths := range map[string][]string{
		"mia":      {"/v1/approvals?status=used_up", "/v1/approvals?status=revoked", "/v1/approvals?status=denied", "/v1/approvals"},
		"operator": {"/v1/decisions?limit=1000", "/v1/log/export"},
	} {
		for _, path := range paths {
			if status, text := c.do(who, "GET", path, ""); status != http.StatusOK || strings.Contains(text, secretWord) {
				c.t.Errorf("%s: got %d %s", path, status, text)
			}
		}
	}
	must(c.t, c.Stop(c.t.Context()))
	if names := c.holding(secretWord); len(names) > 0 {
		c.t.Errorf("it stands in %v", names)
	}
	if report := verify.Directory(c.data, verify.Options{}); !report.Verified() || report.Code != 0 || report.Redacted == 0 {
		c.t.Errorf("got %+v", report)
	}
}

// TestRedactionLeavesTheWordsNowhere: not in a file of the data directory, not in an answer, and not in what other systems
// are yet to be told. What was decided stays decided.
func TestRedactionLeavesTheWordsNowhere(t *testing.T) {
	t.Parallel()
	e := listen(t)
	e.down.Store(true)
	told := e.listed("key:asker", "/mine", "127.0.0.1")
	c := openDesk(t, told, func(config *server.Config) {
		config.Approvals.Webhooks = []webhook.Config{{URL: e.URL + "/hook", SecretFile: e.secret, Allow: []string{"127.0.0.1"}}}
	})
	c.Client = ownClient()
	p := c.program("asker")
	question := wants("push", `"arguments":{"branch":"`+secretWord+`"}`)
	denied := p.denied(question)
	asked := p.submits(question + "," + e.callback("/mine", "") + denied.denial())
	id := asked.Task.Approvals[0].ID
	for !strings.Contains(e.hears().text, secretWord) {
	}
	c.redacts(id, "", http.StatusConflict)
	c.reply("mia", "POST", "/v1/approvals/"+id+"/decision", `{"decision":"approve","reason":"`+secretWord+` is fine"}`).is(t, "the answer", http.StatusOK)
	c.redacts(id, "", http.StatusConflict)
	used := strings.Replace(question, `"context":{`, `"context":{"approval_id":"`+id+`",`, 1)
	if got := p.evaluates(used); !got.Decision {
		t.Fatalf("got %s", got.text)
	}
	before, err := os.ReadFile(filepath.Join(c.data, approval.FileName))
	must(t, err)
	if !bytes.Contains(before, []byte(secretWord)) {
		t.Fatal("the file of approvals has another form than this test knows")
	}
	for name, body := range map[string]string{"no reason": `{}`, "no text": `{"reason":7}`} {
		c.reply("operator", "POST", "/v1/approvals/"+id+"/redaction", body).is(t, name, http.StatusBadRequest)
	}
	if got := c.redacts(id, "", http.StatusOK); !strings.Contains(got, `"elsewhere":["exports`) || strings.Contains(got, `"records":0`) {
		t.Errorf("got %s", got)
	}
	for len(e.heard) > 0 { // sent before
		<-e.heard
	}
	e.down.Store(false)
	hook := map[string]bool{}
	for !hook[id+"-filed"] || !hook[id+"-completed"] || !hook[asked.Task.ID] {
		call := e.hears()
		if hook[call.id] = true; strings.Contains(call.text, secretWord) {
			t.Errorf("a system is told %s", call.text)
		}
	}
	s, status := c.sees("mia", id)
	if status != http.StatusOK || s.Status != "used_up" || len(s.Said) != 1 || s.Message != "" {
		t.Errorf("who voted sees %d %+v", status, s)
	}
	for _, path := range []string{"", "/why", "/previous"} {
		if status, text := c.do("mia", "GET", "/v1/approvals/"+id+path, ""); status != http.StatusOK || strings.Contains(text, secretWord) {
			t.Errorf("%s: got %d %s", path, status, text)
		}
	}
	if got := p.looks(asked.Task.ID); got.Task.Status != "approved" || strings.Contains(got.text, secretWord) {
		t.Errorf("the program sees %s", got.text)
	}
	if got := p.evaluates(used); got.Decision {
		t.Error("what was used up is used again")
	}
	has(t, c.redacts(id, "", http.StatusOK), `"records":0`)
	if status, text := c.do("operator", "GET", "/v1/decisions?approval="+id, ""); status != http.StatusOK || strings.Count(text, `"kind"`) != 1 || !strings.Contains(text, `"event":"redacted"`) {
		t.Errorf("on record is %d %s", status, text)
	}
	// The last question is another record, which the answer names as a place where the words may stand.
	_, others := c.do("operator", "GET", "/v1/decisions?kind=decision&limit=1000", "")
	var page struct {
		Items []recorded `json:"items"`
	}
	must(t, json.Unmarshal([]byte(others), &page))
	for _, one := range page.Items {
		c.reply("operator", "POST", "/v1/decisions/"+one.ID+"/redaction", `{"reason":"erasure 17"}`).is(t, "the answer", http.StatusNoContent)
	}
	c.nowhere()
}

// denied has a question with the word denied with the word.
func (c *counter) denied() (id string) {
	c.t.Helper()
	id = c.asks("pep", tool("push", `"arguments":{"branch":"`+secretWord+`"}`)).Approval.ID
	c.says("mia", id, "decision", `{"decision":"deny","reason":"`+secretWord+`"}`, http.StatusOK)
	return id
}

// TestRedactionThatWasInterruptedIsCompleted by the next start: the file of approvals has it, and the log does not.
func TestRedactionThatWasInterruptedIsCompleted(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.denied()
	stays := filepath.Join(c.data, format.LogDir, "00000001.db.1.next") // where a new file would stand
	must(t, os.Mkdir(stays, 0o700))
	has(t, c.redacts(id, "", http.StatusServiceUnavailable), "not all of its records")
	if names := c.holding(secretWord); len(names) == 0 || slices.Contains(names, "/"+approval.FileName) {
		t.Errorf("it stands in %v", names)
	}
	c.restart(func() { must(t, os.Remove(stays)) })
	c.comes("the records to be redacted", func() bool { return len(c.holding(secretWord)) == 0 })
	c.reply("mia", "GET", "/v1/approvals/"+id, "").is(t, "the answer", http.StatusOK, `"status":"denied"`, `"redacted_at"`)
	c.nowhere()
}

// TestOlderApprovalsBringNothingBackThatWasRedacted: the log knows that it was.
func TestOlderApprovalsBringNothingBackThatWasRedacted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"pending": `,"end":true`, "denied": ""} {
		t.Run(name, func(t *testing.T) {
			c := openCounter(t)
			id := c.denied()
			if name == "pending" {
				id = c.asks("pep", tool("push", `"arguments":{"branch":"`+secretWord+`2"}`)).Approval.ID
			}
			must(t, c.Stop(t.Context()))
			older := c.file(approval.FileName)
			c.open(pdptest.Bundle(approvalFiles()))
			c.redacts(id, end, http.StatusOK)
			for range 2 {
				c.restart(func() { c.write(approval.FileName, older) })
				c.comes("the older copy to be redacted", func() bool {
					status, text := c.do("pep", "GET", "/v1/approvals/"+id, "")
					return status == http.StatusOK && strings.Contains(text, "redacted_at") && !strings.Contains(text, secretWord)
				})
			}
			if name == "denied" {
				c.nowhere()
			}
		})
	}
}

// TestRedactionEndsWhatWaitsOrCanBeUsed where that is asked for, and not by the way.
func TestRedactionEndsWhatWaitsOrCanBeUsed(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	for status, vote := range map[string]bool{"cancelled": false, "revoked": true} {
		question := tool("push", `"arguments":{"branch":"`+secretWord+status+`"}`)
		id := c.asks("pep", question).Approval.ID
		if vote {
			c.says("mia", id, "decision", yes, http.StatusOK)
		}
		c.redacts(id, "", http.StatusConflict)
		c.redacts(id, `,"end":true`, http.StatusOK)
		if s, _ := c.sees("pep", id); s.Status != status {
			t.Errorf("it is %+v, want %s", s, status)
		}
		c.asks("pep", strings.Replace(question, `"context":{`, `"context":{"approval_id":"`+id+`",`, 1), "X-Approval", "none").isStopped(t, "what was "+status+" is used")
	}
	c.nobodyIsAsked(t)
}

// TestRedactionIsForWhoAdministersTheLogOfTheTenant: no other learns that there is such an approval request.
func TestRedactionIsForWhoAdministersTheLogOfTheTenant(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	c.restart(func() { c.grant("acme-operator", []string{"acme"}, "", auth.LogAdmin, auth.LogRead) })
	id := c.approved()
	for who, want := range map[string]int{"pep": 403, "mia": 403, "auditor": 403, "acme-operator": 404} {
		c.reply(who, "POST", "/v1/approvals/"+id+"/redaction", `{"reason":"r","end":true}`).is(t, who, want)
	}
	for _, none := range []string{"none", "%20", "..", ""} {
		if status, text := c.do("operator", "POST", "/v1/approvals/"+none+"/redaction", `{"reason":"r","end":true}`); status == http.StatusOK {
			t.Errorf("%q: got %s", none, text)
		}
	}
	if s, _ := c.sees("mia", id); s.Status != "approved" || s.Message == "" {
		t.Errorf("it is %+v", s)
	}
	if steps, _ := c.log(); !slices.Contains(steps, "approved") {
		t.Errorf("on record is %v", steps)
	}
}
