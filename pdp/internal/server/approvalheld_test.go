package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest"
)

// Between two starts somebody writes to the data directory. Whoever that is gets no yes
// from it.

// restart stops the server, has something done to its data directory, and starts it again.
func (c *counter) restart(meanwhile func()) {
	c.t.Helper()
	must(c.t, c.Stop(c.t.Context()))
	meanwhile()
	c.open(pdptest.Bundle(approvalFiles()))
}

// refusesToStart stops the server, has something done, and wants it not to start again.
func (c *counter) refusesToStart(meanwhile func(), why string) {
	c.t.Helper()
	must(c.t, c.Stop(c.t.Context()))
	meanwhile()
	s, err := server.New(server.Config{Program: server.Program{Source: pdptest.Bundle(approvalFiles()), PDP: pdp.Options{Now: c.Now}}, Listen: "127.0.0.1:0", Data: c.data})
	must(c.t, err)
	if err = s.Start(c.t.Context()); err == nil {
		_ = s.Stop(c.t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		c.t.Errorf("it starts, or does not say why not: %v", err)
	}
}

func (c *counter) file(name string) []byte {
	c.t.Helper()
	content, err := os.ReadFile(filepath.Join(c.data, name))
	must(c.t, err)
	return content
}

func (c *counter) write(name string, content []byte) {
	c.t.Helper()
	must(c.t, os.WriteFile(filepath.Join(c.data, name), content, 0o600))
}

// edit changes values of the file of approvals as somebody does who knows its form, and
// has no key.
func (c *counter) edit(change func(key, text string) string) {
	c.t.Helper()
	db, err := bbolt.Open(filepath.Join(c.data, approval.FileName), 0o600, nil)
	must(c.t, err)
	defer func() { must(c.t, db.Close()) }()
	must(c.t, db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("values"))
		return each(b, "", func(k, v []byte) error {
			return b.Put(k, slices.Concat(v[:sealed], []byte(change(string(k), string(v[sealed:])))))
		})
	}))
}

const asApproved = `"status":"approved"`

func pretend(key, text string) string {
	if strings.HasPrefix(key, "a/") {
		return strings.Replace(text, `"status":"pending"`, asApproved, 1)
	}
	return text
}

// TestEditedApprovalDoesNotAllow: what nobody said is said by no file.
func TestEditedApprovalDoesNotAllow(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	c.asks("pep", tool("push", push))
	c.refusesToStart(func() { c.edit(pretend) }, "not written with the key")
}

// TestSomebodyElsesApprovalsDoNotAllow: a file with its key, from a server of the
// attacker's own where everything was approved.
func TestSomebodyElsesApprovalsDoNotAllow(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	theirs := openCounter(t)
	id := theirs.approved()
	if two := theirs.asks("pep", tool("stop", push)); theirs.says("mia", two.Approval.ID, "decision", yes, 200).Status != "pending" {
		t.Fatal("one is enough for two")
	}
	must(t, theirs.Stop(t.Context()))
	for n := range 20 { // or the log ends before theirs did, and the server does not start
		c.asks("pep", tool("push", fmt.Sprintf(`"n":%d`, n)), "X-Approval", "none")
	}
	c.restart(func() {
		for _, name := range []string{approval.FileName, "approvals.key"} {
			c.write(name, theirs.file(name))
		}
	})
	if got := c.asks("pep", tool("push", again)); got.may() || got.Approval.Status != "pending" || got.Approval.ID != id {
		t.Errorf("got %+v", got)
	}
	c.says("noah", id, "decision", yes, 200).is(t, "people cannot say it here", "approved")
	c.asks("pep", tool("push", again)).passes(t, "what was approved here does not count")
}

// TestOlderApprovalsDoNotAllow: a copy of before it was used, or taken back, or lapsed.
func TestOlderApprovalsDoNotAllow(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *counter, id string){
		"used_up": func(c *counter, _ string) {
			c.asks("pep", tool("push", again)).passes(t, "what was approved does not count")
		},
		"revoked": func(c *counter, id string) { c.says("noah", id, "revoke", `{"reason":"no"}`, 200) },
	} {
		t.Run(name, func(t *testing.T) {
			c := openCounter(t)
			id := c.approved()
			must(t, c.Stop(t.Context()))
			older := c.file(approval.FileName)
			c.open(pdptest.Bundle(approvalFiles()))
			end(c, id)
			for range 2 {
				c.restart(func() { c.write(approval.FileName, older) })
				c.asks("pep", tool("push", again+`,"approval_id":"`+id+`"`), "X-Approval", "none").isStopped(t, "the answer")
				if got, status := c.sees("mia", id); status != 200 || got.Status != name {
					t.Errorf("%d: it is %+v", status, got)
				}
			}
			if steps, spent := c.log(); !slices.Contains(steps, "caught_up") || spent > 1 {
				t.Errorf("%d uses, and on record is %v", spent, steps)
			}
		})
	}
}

// doctor is what bites of the approvals while no server runs.
func (c *counter) doctor() (found string) {
	c.t.Helper()
	for _, f := range doctor.Examine(c.t.Context(), doctor.Patient{Config: server.Config{Policies: "../../../policies/starter", Data: c.data, Listen: "127.0.0.1:0", Program: server.Program{PDP: pdp.Options{Now: c.Now}}}}) {
		if f.Check == "approvals" && f.Bites {
			found += f.Message + "; " + f.Try + "\n"
		}
	}
	return found
}

// TestOlderLogKeepsServerFromStarting: else people would say again, in other places of it,
// what they said before, and a file of the time that was lost would know no better.
func TestOlderLogKeepsServerFromStarting(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	must(t, c.Stop(t.Context()))
	const segment = "log/00000001.db"
	older := c.file(segment)
	checkpoint := c.file(format.CheckpointFile)
	c.open(pdptest.Bundle(approvalFiles()))
	c.asks("pep", tool("push", push))
	c.refusesToStart(func() {
		c.write(segment, older)
		c.write(format.CheckpointFile, checkpoint)
		has(t, c.doctor(), "older copy")
	}, "older copy")
}

// TestHiddenStepKeepsServerFromStarting: who puts an older copy back and takes the step
// out of the log that tells.
func TestHiddenStepKeepsServerFromStarting(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.approved()
	must(t, c.Stop(t.Context()))
	older := c.file(approval.FileName)
	c.open(pdptest.Bundle(approvalFiles()))
	c.says("noah", id, "revoke", `{"reason":"no"}`, 200)
	c.refusesToStart(func() {
		c.write(approval.FileName, older)
		db, err := bbolt.Open(filepath.Join(c.data, "log", "00000001.db"), 0o600, nil)
		must(t, err)
		must(t, db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("records"))
			return b.ForEach(func(k, v []byte) error {
				if strings.Contains(string(v), `"event":"revoked"`) {
					return b.Delete(k)
				}
				return nil
			})
		}))
		must(t, db.Close())
	}, "missing")
}

// TestGoneStepDoesNotAllow: an approval whose vote was redacted is asked for again.
func TestGoneStepDoesNotAllow(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.approved()
	record := ""
	_, text := c.do("auditor", "GET", "/v1/log/export", "")
	for line := range strings.SplitSeq(text, "\n") {
		var r struct {
			ID    string `json:"id"`
			Kind  string `json:"kind"`
			Event string `json:"event"`
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Kind == "approval" && r.Event == "approve" {
			record = r.ID
		}
	}
	c.reply("operator", "POST", "/v1/decisions/"+record+"/redaction", `{"reason":"asked"}`).is(t, "the answer", http.StatusNoContent)
	if got := c.asks("pep", tool("push", again)); got.may() || got.Approval.ID != id || got.Approval.Status != "pending" {
		t.Errorf("got %+v", got)
	}
}

// revoke ends a key, and returns once the server knows.
func (c *counter) revoke(name string) {
	c.t.Helper()
	apiKeys, err := keys.Open(c.data)
	must(c.t, err)
	must(c.t, apiKeys.Revoke(name))
	c.until(name, func(status int) bool { return status == http.StatusUnauthorized })
}

// welcome adds a key to a running server, and returns once that knows it.
func (c *counter) welcome(name, principal string, permissions ...auth.Permission) {
	c.t.Helper()
	c.grant(name, []string{"*"}, principal, permissions...)
	c.until(name, func(status int) bool { return status != http.StatusUnauthorized })
}

func (c *counter) until(name string, is func(status int) bool) {
	c.t.Helper()
	eventually(c.t, "the server notices what became of the key "+name, func() bool {
		status, _ := c.do(name, "GET", "/v1/approvals", "")
		return is(status)
	})
}

// TestVoteOfRevokedKeyDoesNotCount: neither toward a quorum, nor once it was reached.
func TestVoteOfRevokedKeyDoesNotCount(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("pep", tool("stop", push)).Approval.ID
	c.says("noah", id, "decision", yes, 200)
	c.revoke("noah")
	if got := c.says("mia", id, "decision", yes, 200); got.Status != "pending" || len(got.Said) != 1 {
		t.Errorf("a revoked key completes a quorum: %+v", got)
	}
	c.welcome("noah-2", `user::"noah"`, auth.Approve)
	c.welcome("noah-3", `user::"noah"`, auth.Approve)
	c.says("noah-2", id, "decision", yes, 200).is(t, "the same person may not vote again", "approved")
	c.revoke("noah-2")
	if got := c.asks("pep", tool("stop", again)); got.may() || got.Approval.ID != id || got.Approval.Status != "pending" {
		t.Errorf("what a revoked key approved is used: %+v", got)
	}
	if got, _ := c.sees("mia", id); got.Status != "pending" || len(got.Said) != 1 {
		t.Errorf("it is %+v", got)
	}
	c.says("noah-3", id, "decision", yes, 200)
	c.asks("pep", tool("stop", again)).passes(t, "what was approved again does not count")
	steps, spent := c.log()
	if !slices.Contains(steps, "lapsed") || !slices.Contains(steps, "reopened") || spent != 1 {
		t.Errorf("%d uses, and on record is %v", spent, steps)
	}
}

// TestApprovalsThatCount: people and programs are told how many approve by votes that count now; once it is approved, by those
// that counted then.
func TestApprovalsThatCount(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("pep", tool("stop", push)).Approval.ID
	is := func(name, status string, approvals int) {
		t.Helper()
		listed, _ := c.inbox("zoe", "?status=all")
		for _, who := range []string{"pep", "zoe"} {
			one, _ := c.sees(who, id)
			listed = append(listed, one)
		}
		for _, got := range listed {
			if got.Status != status || got.Approvals != approvals {
				t.Errorf("%s: it is %s, and %d approve, want %s and %d", name, got.Status, got.Approvals, status, approvals)
			}
		}
	}
	until := c.Now().Add(time.Minute).Format(time.RFC3339)
	if got := c.says("mia", id, "decision", `{"decision":"approve","reason":"today","valid_until":"`+until+`"}`, 200); got.Approvals != 1 {
		t.Errorf("mia is told that %d approve", got.Approvals)
	}
	is("one of two", "pending", 1)
	mayVote := func(want int) {
		t.Helper()
		if list, _ := c.inbox("mia", "?voted=false"); len(list) != want {
			t.Errorf("mia may vote on %d, want %d", len(list), want)
		}
	}
	mayVote(0)
	c.Advance(time.Minute)
	is("a vote whose time has passed", "pending", 0)
	mayVote(1)
	c.says("noah", id, "decision", yes, 200)
	is("another vote", "pending", 1)
	c.revoke("noah")
	is("a vote by a key that is revoked", "pending", 0)
	c.says("zoe", id, "decision", yes, 200)
	c.welcome("noah-2", `user::"noah"`, auth.Approve)
	if got := c.says("noah-2", id, "decision", yes, 200); got.Approvals != 2 {
		t.Errorf("noah is told that %d approve", got.Approvals)
	}
	is("two of two", "approved", 2)
	c.asks("pep", tool("stop", again)).passes(t, "what two approve")
	c.revoke("noah-2")
	is("two of two, then", "used_up", 2)
}

// TestVoteFallsWithWhoNamedThem: a delegate has no say of their own.
func TestVoteFallsWithWhoNamedThem(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	first := c.asks("pep", tool("push", push)).Approval.ID
	c.says("noah", first, "decision", `{"decision":"delegate","to":"user::\"eve\"","reason":"away"}`, 200)
	c.says("eve", first, "decision", yes, 200)
	second := c.asks("pep", tool("push", `"arguments":{"branch":"two"}`)).Approval.ID
	c.says("noah", second, "decision", `{"decision":"delegate","to":"user::\"eve\"","reason":"away"}`, 200)
	c.revoke("noah")
	c.asks("pep", tool("push", again)).stands(t, "a delegate of a revoked key approves", "pending")
	c.says("eve", second, "decision", yes, http.StatusNotFound)
}
