package server_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/server"
)

// The files that commit 5f3b7dc made; testdata/of-5f3b7dc/make.sh says how, and what is in them.
var (
	of5f3b7dc = filepath.Join("testdata", "of-5f3b7dc")
	bundleOf  = pdp.Dir(filepath.Join(of5f3b7dc, "bundle"))
)

// made5f3b7dc is what that commit was asked, and what it answered.
type made5f3b7dc struct {
	Keys       map[string]string          `json:"keys"`
	Now        time.Time                  `json:"now"`
	Digest     string                     `json:"digest"`
	Checkpoint string                     `json:"checkpoint"`
	Exchanges  map[string]exchange5f3b7dc `json:"exchanges"`
}

type exchange5f3b7dc struct {
	Who      string            `json:"who"`
	Method   string            `json:"method"`
	Path     string            `json:"path"`
	Header   map[string]string `json:"header"`
	Body     string            `json:"body"`
	Status   int               `json:"status"`
	Answer   string            `json:"answer"`
	Decision string            `json:"decision"`
}

// approval is the id of the approval request that was filed with a native answer.
func (e exchange5f3b7dc) approval(t *testing.T) string {
	t.Helper()
	var a told
	must(t, json.Unmarshal([]byte(e.Answer), &a))
	if a.Approval == nil {
		t.Fatalf("no approval was asked for: %s", e.Answer)
	}
	return a.Approval.ID
}

func read5f3b7dc(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(of5f3b7dc, name))
	must(t, err)
	must(t, json.Unmarshal(text, into))
}

// TestDataOf5f3b7dc: a data directory of that commit opens, verifies, is read as it was, and goes on.
func TestDataOf5f3b7dc(t *testing.T) {
	t.Parallel()
	var made made5f3b7dc
	read5f3b7dc(t, "made.json", &made)
	c := &counter{t: t, data: t.TempDir(), Clock: clock.At(made.Now.Add(time.Minute)), key: map[string]string{}}
	for name, key := range made.Keys {
		c.key[name] = "Bearer " + key
	}
	unpack(t, filepath.Join(of5f3b7dc, "data.tar.gz"), c.data)
	verified := func(when string, report verify.Report) {
		t.Helper()
		if !report.Verified() {
			t.Errorf("%s: %+v", when, report)
		}
	}
	kept := verify.Options{Checkpoint: made.Checkpoint}
	verified("before it is opened", verify.Directory(c.data, kept))
	old, err := os.ReadFile(filepath.Join(of5f3b7dc, "export.ndjson"))
	must(t, err)
	verified("the old export", verify.Export(bytes.NewReader(old), kept))

	c.open(bundleOf, func(config *server.Config) { config.PublicURL = "https://pdp.example.com" })
	t.Run("is read as it was", func(t *testing.T) { reads5f3b7dc(t, c, made) })
	t.Run("approvals", func(t *testing.T) { approves5f3b7dc(t, c, made) })
	t.Run("access requests", func(t *testing.T) { requests5f3b7dc(t, c, made) })
	t.Run("the log goes on", func(t *testing.T) { goesOn5f3b7dc(t, c, made, string(old)) })

	must(t, c.Stop(t.Context()))
	verified("after it went on", verify.Directory(c.data, kept))
}

// reads5f3b7dc: records, receipts and approval requests are found as they were, byte for byte, and what was gone is gone.
func reads5f3b7dc(t *testing.T, c *counter, made made5f3b7dc) {
	compared := 0
	for name, e := range made.Exchanges {
		if !strings.HasPrefix(e.Path, "/v1/decisions/") || e.Method != "GET" {
			continue
		}
		compared++
		status, text := c.do(e.Who, e.Method, e.Path, "")
		if status != e.Status || text != e.Answer {
			t.Errorf("%s: got %d %s\nwas %d %s", name, status, text, e.Status, e.Answer)
		}
	}
	if compared != 8 {
		t.Errorf("%d records are compared, want 8", compared)
	}
	// The first start made each of them again from the log, which counts as a change. What AuthZEN's profile asked for
	// it drops: the log of then does not hold on which terms.
	version := regexp.MustCompile(`"version":\d+,`)
	waiting := made.Exchanges["waiting"]
	_, text := c.do(waiting.Who, "GET", waiting.Path, "")
	now, _, _ := strings.Cut(version.ReplaceAllString(text, ""), `],"next"`)
	if now = strings.ReplaceAll(now, `"via":"api",`, ""); strings.Contains(now, `"via"`) { // no vote of then said how it came
		t.Errorf("a vote came by another way: %s", now)
	}
	now = strings.ReplaceAll(now, `"rounds":0,`, "") // no approver of then was promised any
	was := version.ReplaceAllString(waiting.Answer, "")
	if rest, same := strings.CutPrefix(was, now); !same || strings.Count(rest, `"via":"authzen"`) != 1 || strings.Count(now, `"expires_at"`) != 2 {
		t.Errorf("approval requests: got %s\nwas %s", now, was)
	}
}

// approves5f3b7dc: what was approved is spent once, what was not goes on as far as it was.
func approves5f3b7dc(t *testing.T, c *counter, made made5f3b7dc) {
	again := func(name string) told {
		t.Helper()
		body := made.Exchanges[name].Body
		return c.asks("pep", strings.TrimSuffix(body, "}}")+`,"justification":"approved"}}`, "X-Approval", "none")
	}
	spendOnce := func(name string) {
		t.Helper()
		if got := again(name); !got.may() {
			t.Errorf("%s is approved, and does not go through: %+v", name, got)
		}
		if got := again(name); got.may() {
			t.Errorf("%s goes through twice", name)
		}
	}
	spendOnce("approved")
	for _, name := range []string{"spent", "denied", "pending", "one of two"} {
		if got := again(name); got.may() {
			t.Errorf("%s goes through", name)
		}
	}
	if got, _ := c.sees("frank", made.Exchanges["denied"].approval(t)); got.Status != "denied" {
		t.Errorf("what was denied is %+v", got)
	}
	c.says("alice", made.Exchanges["pending"].approval(t), "decision", yes, http.StatusOK)
	spendOnce("pending")
	if got := c.says("frank", made.Exchanges["one of two"].approval(t), "decision", yes, http.StatusOK); got.Status != "approved" {
		t.Errorf("the second of two approves, and it is %+v", got)
	}
	spendOnce("one of two")
}

// requests5f3b7dc: what AuthZEN's profile for access requests had asked for must be asked for again, and that can be
// done with the denial of then.
func requests5f3b7dc(t *testing.T, c *counter, made made5f3b7dc) {
	p := c.program("asker")
	for _, name := range []string{"task that waits", "task that is granted", "offered"} {
		before := made.Exchanges[name+", submitted"]
		if before.Status != 0 {
			task := p.told(before.Status, before.Answer)
			p.looks(task.Task.ID).refused(t, name, http.StatusNotFound, "unknown_task")
		}
		var denied answer
		must(t, json.Unmarshal([]byte(made.Exchanges[name].Answer), &denied))
		question := strings.TrimSuffix(strings.TrimPrefix(made.Exchanges[name].Body, "{"), "}")
		asked := p.submits(question + "," + denied.denial())
		if asked.status != http.StatusAccepted {
			t.Errorf("%s: a request by an old denial: %d %s", name, asked.status, asked.text)
			continue
		}
		items, _ := c.inbox("alice", "?limit=200")
		c.says("alice", items[len(items)-1].ID, "decision", yes, http.StatusOK)
		looked := p.looks(asked.Task.ID)
		if looked.Result == nil {
			t.Errorf("%s was approved, and has no result: %s", name, looked.text)
			continue
		}
		presenting := strings.TrimSuffix(question, "}") + "," + presents(looked.Result) + "}"
		if a := p.evaluates(presenting); !a.Decision {
			t.Errorf("%s was approved, and does not go through: %s", name, a.text)
		}
		if a := p.evaluates(presenting); a.Decision {
			t.Errorf("%s goes through twice", name)
		}
	}
}

// goesOn5f3b7dc: what may be done to old records can still be done, and new ones follow them.
func goesOn5f3b7dc(t *testing.T, c *counter, made made5f3b7dc, old string) {
	const done = `{"obligations":[{"id":"tell-operations","status":"discharged"}]}`
	for name, want := range map[string]int{"unreported": http.StatusNoContent, "notified": http.StatusConflict} {
		if status, text := c.do("pep", "POST", "/v1/decisions/"+made.Exchanges[name].Decision+"/obligations", done); status != want {
			t.Errorf("a receipt of what was %s: got %d %s, want %d", name, status, text, want)
		}
	}
	redacted := made.Exchanges["after 75 minutes"].Decision
	if status, text := c.do("admin", "POST", "/v1/decisions/"+redacted+"/redaction", `{"reason":"erasure-request-18"}`); status != http.StatusNoContent {
		t.Errorf("redacting an old record: %d %s", status, text)
	}
	if status, text := c.do("admin", "POST", "/v1/log/keys", ""); status != http.StatusOK {
		t.Errorf("rotating the key: %d %s", status, text)
	}
	if status, text := c.do("pep", "POST", evaluationPath, made.Exchanges["notified"].Body); status != http.StatusOK || text != made.Exchanges["notified"].Answer {
		t.Errorf("an old question: %d %s", status, text)
	}
	_, keys := c.do("auditor", "GET", "/v1/log/keys", "")
	kept := verify.Options{Key: keys, Checkpoint: made.Checkpoint}
	_, grown := c.do("auditor", "POST", "/v1/log/consistency", made.Checkpoint)
	if report := verify.Export(strings.NewReader(grown), kept); !report.Verified() {
		t.Errorf("today's log does not continue the old one: %+v", report)
	}
	_, export := c.do("auditor", "GET", "/v1/log/export", "")
	if report := verify.Export(strings.NewReader(export), kept); !report.Verified() {
		t.Errorf("today's export: %+v", report)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(export) {
		lines[line] = true
	}
	for line := range strings.Lines(old) {
		var record struct {
			ID   string `json:"id"`
			Kind string `json:"kind"`
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Kind != "" && record.ID != redacted && !lines[line] {
			t.Errorf("today's export lacks %s", line)
		}
	}
}

// TestBundleOf5f3b7dc: a bundle of that commit has the digest it had, and answers as it did.
func TestBundleOf5f3b7dc(t *testing.T) {
	t.Parallel()
	var made made5f3b7dc
	read5f3b7dc(t, "made.json", &made)
	loaded, err := pdp.New(bundleOf, pdp.Options{})
	must(t, err)
	if got := loaded.Bundle().Digest(); got != made.Digest {
		t.Errorf("the digest is %s, and was %s", got, made.Digest)
	}
	var all []exchange5f3b7dc
	read5f3b7dc(t, "answers.json", &all)
	if len(all) < 40 {
		t.Fatalf("there are %d answers", len(all))
	}
	s := pdptest.Start(t, bundleOf, func(c *server.Config) {
		c.Program.PDP.Now = func() time.Time { return time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC) }
	})
	dropped := regexp.MustCompile(`,"dropped":\[[^]]*\]`) // which explanations did not have yet
	for n, e := range all {
		var header []string
		for name, value := range e.Header {
			header = append(header, name, value)
		}
		if got := s.Post(e.Path, e.Body, header...); got.Status != e.Status || dropped.ReplaceAllString(got.Body, "") != e.Answer {
			t.Errorf("%d: %s %s %v\ngot %d %s\nwas %d %s", n, e.Path, e.Body, e.Header, got.Status, got.Body, e.Status, e.Answer)
		}
	}
}
