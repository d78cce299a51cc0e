package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/report"
	"policy-service/pdp/pdptest/clock"
)

// replica writes the log of a replica, with a clock of its own.
type replica struct {
	testing.TB
	*decisionlog.Log
	*clock.Clock
	data string
}

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func newReplica(t testing.TB, origin string, now time.Time) *replica {
	t.Helper()
	r := &replica{TB: t, Clock: clock.At(now), data: t.TempDir()}
	var err error
	r.Log, err = decisionlog.Open(r.data, decisionlog.Options{Origin: origin, Kinds: []string{format.KindApproval}, Now: r.Now})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replica) write(e record.Entry) {
	r.Helper()
	r.Advance(time.Second)
	e.Tenant = "default"
	if err := r.Append(r.Context(), []record.Entry{e}); err != nil {
		r.Fatal(err)
	}
}

// step writes a step of an approval request.
func (r *replica) step(id, event, status string, version int, more string) {
	r.Helper()
	details := fmt.Sprintf(`{"approval":"a1","status":%q,"version":%d,"decision":"waits","filed_at":"2026-11-28T12:00:00Z"%s,"seal":"s"}`, status, version, more)
	e := record.Entry{ID: id, Kind: format.KindApproval, Event: event, Details: jsontext.Value(details)}
	if event == "filed" {
		e.Request = &record.Request{Subject: jsontext.Value(`{"type":"agent","id":"bot"}`), Action: jsontext.Value(`{"name":"push"}`)}
	}
	r.write(e)
}

// decide writes a decision, with an obligation or by an approval.
func (r *replica) decide(id, approval string) {
	r.Helper()
	e := record.Entry{ID: id, Kind: format.KindDecision, Request: &record.Request{Subject: jsontext.Value(`{"type":"agent","id":"bot"}`)},
		Decision: &record.Decision{Allow: true}}
	if approval != "" {
		e.Decision.Discharged = []evaluation.Met{{ID: "ask", Type: "approval_required", Approval: approval}}
	}
	r.write(e)
}

// exported is the export of the log, which ends.
func (r *replica) exported() string {
	r.Helper()
	_ = r.Close()
	name := filepath.Join(r.TempDir(), "export.ndjson")
	c := exportCommand{logFlags: logFlags{Data: r.data}, Format: "ndjson", Out: cli.Given(name)}
	if _, err := run(c); err != nil {
		r.Fatal(err)
	}
	return name
}

func run(command interface{ Run(cli.Streams) error }) (string, error) {
	var out bytes.Buffer
	err := command.Run(cli.Streams{Out: &out, Err: &out})
	return out.String(), err
}

// told are the approval requests of a file.
func told(t *testing.T, file string) (all []story, text string) {
	t.Helper()
	printed, err := run(approvalsCommand{sourceFlags: sourceFlags{Export: cli.Given(file)}, JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(printed) {
		var one story
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, one)
	}
	text, err = run(approvalsCommand{sourceFlags: sourceFlags{Export: cli.Given(file)}})
	if err != nil {
		t.Fatal(err)
	}
	return all, text
}

// TestMergeTellsOneStory: what was filed at one replica, approved at another and used at a third is one approval
// request, although the clock of the second is behind. What a replica left that was lost was recorded by another one: a
// step that both logs have counts once. The log of the lost replica says which of the uses that were counted were made.
func TestMergeTellsOneStory(t *testing.T) {
	t.Parallel()
	a, b, c := newReplica(t, "pdp-a", noon), newReplica(t, "pdp-b", noon.Add(-time.Hour)), newReplica(t, "pdp-c", noon.Add(time.Minute))
	a.decide("waits", "")
	a.step("s1", "filed", "pending", 1, `,"requester":"key:gateway"`)
	b.step("s2", "approve", "pending", 2, `,"by":"User::\"mia\"","reason":"fine"`)
	b.step("s3", "approved", "approved", 2, "")
	c.decide("d1", "a1")
	c.step("s4", "used", "approved", 3, `,"used_by":"d1"`)
	b.decide("d3", "a1")
	c.decide("d2", "a1") // and then it is lost, before the use is settled
	a.Advance(time.Hour)
	a.step("s4", "used", "approved", 3, `,"used_by":"d1"`)
	a.step("s5", "used", "approved", 4, `,"used_by":"d2","lost_origin":"pdp-c"`)
	a.step("s6", "used", "used_up", 5, `,"used_by":"d3","lost_origin":"pdp-c"`)
	files := []string{c.exported(), a.exported(), b.exported()}

	merged := filepath.Join(t.TempDir(), "all.ndjson")
	if said, err := run(mergeCommand{Files: files, Out: cli.Given(merged)}); err != nil || !strings.HasPrefix(said, "merged ") || !strings.Contains(said, " of 3 exports") {
		t.Fatalf("%v: %s", err, said)
	}
	for _, order := range [][]string{{files[1], files[2], files[0]}, {files[2], files[0], files[1]}} {
		said, err := run(mergeCommand{Files: order})
		content, _ := os.ReadFile(merged)
		if head, _, _ := strings.Cut(said, "merged "); err != nil || !strings.HasPrefix(said, string(content)) {
			t.Errorf("in another order it is another file: %v, %.300s", err, head)
		}
	}
	all, text := told(t, merged)
	if len(all) != 1 {
		t.Fatalf("it tells of %d approval requests: %s", len(all), text)
	}
	var got []string
	for _, step := range all[0].Steps {
		made := ""
		if step.Made {
			made = " made"
		}
		got = append(got, step.Record+" "+step.Event+" at "+step.Origin+made)
	}
	want := []string{
		"s1 filed at pdp-a", "s2 approve at pdp-b", "s3 approved at pdp-b", "s4 used at pdp-c", "s5 used at pdp-a made", "s6 used at pdp-a",
	}
	if !slices.Equal(got, want) || all[0].Incomplete || all[0].Status != "used_up" || all[0].Request == nil {
		t.Errorf("got  %q\nwant %q\n%+v", got, want, all[0])
	}
	for _, part := range []string{
		`User::"mia" by api at pdp-b: fine`, "(counted, because the log of pdp-c was lost; it has the decision) at pdp-a",
		"(counted, because the log of pdp-c was lost; nothing here shows the decision) at pdp-a",
	} {
		if !strings.Contains(strings.ReplaceAll(text, `\\`, `\`), part) {
			t.Errorf("it does not say %s:\n%s", part, text)
		}
	}
	// Without the log of the lost one, nothing says it.
	without := filepath.Join(t.TempDir(), "all.ndjson")
	if said, err := run(mergeCommand{Files: files[1:], Out: cli.Given(without)}); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if all, _ := told(t, without); len(all) != 1 || all[0].Steps[4].Made || all[0].Steps[3].Origin != "pdp-a" {
		t.Errorf("%+v", all)
	}

	printed, err := run(reportCommand{sourceFlags: sourceFlags{Export: cli.Given(merged)}, JSON: true})
	var r report.Report
	if err == nil {
		err = json.Unmarshal([]byte(printed), &r)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	tally := r.Approvals[report.NativeForm]
	if tally.Filed != 1 || tally.Approved != 1 || tally.Used != 3 || r.Again != 1 || len(r.Logs) != 3 || r.Origin != "" || r.Population.Allowed != 4 || r.Population.Kinds["approval"] != 6 {
		t.Errorf("%+v", r)
	}
	if text, err := run(reportCommand{sourceFlags: sourceFlags{Export: cli.Given(merged)}}); err != nil || strings.Count(text, "\nlog ")+strings.Count(text[:4], "log ") != 3 ||
		!strings.Contains(text, "record 0 of pdp-b: log created") || !strings.Contains(text, "1 record in two logs") || strings.Count(text, "\ntime 2026-11-28T") != 3 {
		t.Errorf("%v: %s", err, text)
	}
	// A report of an export is that of its log, but for what only the directory knows.
	one, err := run(reportCommand{sourceFlags: sourceFlags{Export: cli.Given(files[1])}})
	here, err2 := run(reportCommand{sourceFlags: sourceFlags{logFlags: logFlags{Data: a.data}}})
	if err != nil || err2 != nil || one != here {
		t.Errorf("%v %v, got:\n%s\nwant:\n%s", err, err2, one, here)
	}
}

// TestWithdrawnInAMerge: of one use two logs have an allow, and one of them is withdrawn. Each command says so, and none counts
// it. An allow by the same approval of which no record says what became of its use is named.
func TestWithdrawnInAMerge(t *testing.T) {
	a, b := newReplica(t, "a.example.com/v1/log", noon), newReplica(t, "b.example.com/v1/log", noon.Add(time.Minute))
	a.step("s1", "filed", "pending", 1, "")
	a.step("s2", "approved", "approved", 2, "")
	a.decide("d1", "a1")
	for range 2 { // which is on record once
		if err := a.Withdraw(t.Context(), "default", "key:pep", record.Withdrawn{Decision: "d1", Approval: "a1"}); err != nil {
			t.Fatal(err)
		}
	}
	b.decide("d2", "a1")
	b.step("s3", "used", "approved", 3, `,"used_by":"d2"`)
	b.step("s4", "used_up", "used_up", 3, "")
	b.decide("d3", "a1")
	b.decide("caught up", "a2")
	b.write(record.Entry{Kind: format.KindApproval, Event: "caught_up", Details: jsontext.Value(`{"approval":"a2","status":"approved","version":3,"filed_at":"2026-11-28T12:00:00Z"}`)})
	b.decide("free", "")
	merged := filepath.Join(t.TempDir(), "merged.ndjson")
	if said, err := run(mergeCommand{Files: []string{a.exported(), b.exported()}, Out: cli.Given(merged)}); err != nil {
		t.Fatal(said, err)
	}
	printed, err := run(reportCommand{sourceFlags: sourceFlags{Export: cli.Given(merged)}, JSON: true})
	var r report.Report
	if err != nil || json.Unmarshal([]byte(printed), &r) != nil {
		t.Fatal(printed, err)
	}
	if p := r.Population; p.Allowed != 4 || p.Withdrawn != 1 {
		t.Errorf("counted are %+v", p)
	}
	if len(r.Withdrawn) != 1 || r.Withdrawn[0].Decision != "d1" || r.Withdrawn[0].Approval != "a1" || r.Withdrawn[0].At.Origin != "a.example.com/v1/log" {
		t.Errorf("withdrawn are %+v", r.Withdrawn)
	}
	if len(r.Unsettled) != 1 || r.Unsettled[0].Decision != "d3" || r.Unsettled[0].Approval != "a1" || r.Unsettled[0].At.Origin != "b.example.com/v1/log" {
		t.Errorf("unsettled are %+v", r.Unsettled)
	}
	text, err := run(reportCommand{sourceFlags: sourceFlags{Export: cli.Given(merged)}})
	if err != nil || !strings.Contains(text, "decision d1, whose use of a1 went to others") || !strings.Contains(text, "decision d3 uses a1, and no record says") {
		t.Errorf("%v:\n%s", err, text)
	}
	text, err = run(statsCommand{logFlags: logFlags{Data: a.data}})
	if err != nil || !strings.Contains(text, "0 allow") {
		t.Errorf("%v:\n%s", err, text)
	}
	file, err := os.Open(merged)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	verified := verify.Export(file, verify.Options{})
	if !verified.Verified() || verified.Withdrawn != 1 || !slices.ContainsFunc(verified.Proved, func(line string) bool {
		return strings.HasPrefix(line, "a.example.com/v1/log: allows that were never answered, by records of their own log: 1;") && strings.Contains(line, `of decision "d1", whose use of "a1"`)
	}) {
		t.Errorf("it is %+v", verified)
	}
	all, text := told(t, merged)
	if len(all) != 2 || len(all[0].Steps) != 5 || all[0].Steps[4].Event != "withdrawn" || all[0].Steps[4].UsedBy != "d1" || !strings.Contains(text, "by decision d1") {
		t.Errorf("%+v\n%s", all, text)
	}
}

// TestMergeRefuses: what does not verify is refused by file and line, and so are two histories of one log.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	a, b := newReplica(t, "pdp-a", noon), newReplica(t, "pdp-b", noon)
	a.decide("d1", "")
	b.decide("d2", "")
	good, old := b.exported(), a.exported()
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(a.data)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(copied, format.KeyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	var goesOn []string
	for n, data := range []string{a.data, copied} {
		l, err := decisionlog.Open(data, decisionlog.Options{Origin: "pdp-a", Now: func() time.Time { return noon.Add(time.Hour) }})
		if err != nil {
			t.Fatal(err)
		}
		r := &replica{TB: t, Log: l, Clock: clock.At(noon), data: data}
		for range n + 1 {
			r.write(record.Entry{Kind: format.KindDecision, Decision: &record.Decision{}})
		}
		goesOn = append(goesOn, r.exported())
	}
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	changed, damaged := filepath.Join(t.TempDir(), "changed.ndjson"), filepath.Join(t.TempDir(), "damaged.ndjson")
	for name, with := range map[string]string{changed: `"decision":false`, damaged: `"decision":fals`} {
		if err := os.WriteFile(name, bytes.Replace(content, []byte(`"decision":true`), []byte(with), 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		files []string
		want  string
	}{
		"another answer": {[]string{old, changed}, changed + ":4: the export is not the file that was written"},
		"a damaged line": {[]string{old, damaged}, damaged + ":3: record 1: it is no record"},
		"no file":        {[]string{good, filepath.Join(t.TempDir(), "none")}, "no such file"},
		"a directory":    {[]string{good, a.data}, a.data + ":0: "},
		"twice":          {[]string{good, good}, "are one export, of pdp-b; leave one of them out"},
		"two histories":  {goesOn, goesOn[1] + ":"},
		"of two heights": {[]string{old, goesOn[0]}, ""},
	} {
		out := filepath.Join(t.TempDir(), "all.ndjson")
		said, err := run(mergeCommand{Files: tt.files, Out: cli.Given(out)})
		_, missing := os.Stat(out)
		if tt.want == "" {
			if err != nil || missing != nil {
				t.Errorf("%s: %v %s", name, err, said)
			}
			continue
		}
		if err == nil || missing == nil || !strings.HasPrefix(err.Error(), "cannot merge: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, and a file: %v", name, err, missing == nil)
		}
		if name == "two histories" && !strings.Contains(err.Error(), "is of the same decision log") {
			t.Errorf("%s: %v", name, err)
		}
	}
	merged := filepath.Join(t.TempDir(), "all.ndjson")
	if _, err := run(mergeCommand{Files: []string{good, old}, Out: cli.Given(merged)}); err != nil {
		t.Fatal(err)
	}
	if _, err := run(mergeCommand{Files: []string{merged, goesOn[0]}}); err == nil || !strings.Contains(err.Error(), merged+" is a merge already") {
		t.Errorf("%v", err)
	}
	if _, err := run(reportCommand{sourceFlags: sourceFlags{Export: cli.Given(changed + "x")}}); err == nil || !strings.HasPrefix(err.Error(), "cannot report: ") {
		t.Errorf("%v", err)
	}
	var in bytes.Buffer
	in.WriteString("x\n")
	if _, err := export.NewReader(&in); err == nil {
		t.Error("what is no export is read")
	}
}
