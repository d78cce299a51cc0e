package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// dated is a log whose clock is the test's.
type dated struct {
	*testing.T
	log  *decisionlog.Log
	data string
	now  atomic.Int64
}

func datedLog(t *testing.T, start string) *dated {
	d := &dated{T: t, data: t.TempDir()}
	d.set(start)
	d.open()
	return d
}

func (d *dated) open() {
	d.Helper()
	d.log = mustOpen(d, d.data, decisionlog.Options{
		// No checkpoint and no segment but those that are asked for.
		Checkpoints: decisionlog.Checkpoints{Every: time.Hour, Idle: time.Hour}, SegmentAge: 10_000 * time.Hour, Kinds: []string{format.KindApproval},
		Now: func() time.Time { return time.Unix(0, d.now.Load()).UTC() },
	})
	// A log that was opened signs a checkpoint by itself, soon. This is that one, or the
	// same once more: the clock does not go on before.
	_, err := d.log.Checkpoint(d.Context())
	d.ok(err)
}

// set sets the clock: "2026-01-02 15:04".
func (d *dated) set(clock string) {
	d.Helper()
	d.now.Store(at(d, clock).UnixNano())
}

func at(tb testing.TB, clock string) time.Time {
	tb.Helper()
	moment, err := time.Parse("2006-01-02 15:04", clock)
	if err != nil {
		tb.Fatal(err)
	}
	return moment
}

// heartbeat signs a checkpoint, as the log does by itself.
func (d *dated) heartbeat(clock string) {
	d.Helper()
	d.set(clock)
	if _, err := d.log.Checkpoint(d.Context()); err != nil {
		d.Fatal(err)
	}
}

func (d *dated) admin(event, details string) {
	d.Helper()
	mustAppend(d, d.log, record.Entry{Kind: format.KindAdmin, Event: event, Details: jsontext.Value(details)})
}

func (d *dated) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// report is that of a time, "" being without a bound.
func (d *dated) report(from, to string, tenants ...string) Report {
	d.Helper()
	var o Options
	if from != "" {
		o.From = at(d, from)
	}
	if to != "" {
		o.To = at(d, to)
	}
	s, err := d.log.Snapshot()
	d.ok(err)
	r, err := Make(d.Context(), s.For(tenants), o)
	d.ok(err)
	return r
}

// denied is a decision with a reason, or with policies that forbade or erred.
func denied(id, reason string, change func(*record.Decision)) record.Entry {
	e := entryOf(id, false)
	e.Decision.Reason, e.Decision.Determining = reason, nil
	if change != nil {
		change(e.Decision)
	}
	return e
}

// A week of a service, and everything that an auditor asks about it.
func TestReport(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	d.admin("start", `{"version":"v1","pid":1}`)
	d.admin("bundle_loaded", `{"bundle":"h1:one","files":3}`)
	mustAppend(d, d.log, entryOf("early", true))
	d.heartbeat("2026-03-02 11:00")

	d.set("2026-03-03 10:00") // the report begins on this day
	allow := owing("a1", "default", "log-1", "notification-1")
	allow.Decision.Bundle = "h1:one"
	mustAppend(d, d.log, allow, denied("d1", "policy_error", func(of *record.Decision) {
		of.Errors = []evaluation.PolicyError{{Policy: "p9", Kind: evaluation.Overflow}, {Policy: "p8", Kind: "type"}}
	}), denied("d2", "", func(of *record.Decision) { of.Determining = []string{"f1"} }), denied("d3", "", nil))
	malformed := denied("d4", "", nil)
	malformed.Details = jsontext.Value(`{"malformed":{"pointer":"/x","detail":"y"}}`)
	mustAppend(d, d.log, malformed, denied("d5", "policy_error", func(of *record.Decision) {
		of.Errors = []evaluation.PolicyError{{Policy: "p9", Kind: evaluation.Overflow}}
	}))
	d.set("2026-03-03 09:00") // the clock steps back
	mustAppend(d, d.log, entryOf("b1", true))
	waiting, used := owing("b2", "default", "approval_required-1"), entryOf("b3", true)
	used.Decision.Discharged = []evaluation.Met{{ID: "approval_required-1", Type: "approval_required", Approval: "a"}}
	mustAppend(d, d.log, waiting, used)
	d.heartbeat("2026-03-03 12:00")

	d.heartbeat("2026-03-04 01:00") // a silent day
	d.heartbeat("2026-03-04 02:00")
	d.set("2026-03-06 10:00") // and one on which nobody was there
	d.admin("bundle_refused", `{"in_force":"h1:one","count":2,"problems":["a.cedar:1:1: no","b"]}`)
	d.admin("bundle_loaded", `{"bundle":"h1:two","files":4}`)
	two := entryOf("two", true)
	two.Decision.Bundle = "h1:two"
	mustAppend(d, d.log, two)
	d.admin(format.EventDropped, `{"dropped":3,"dropped_first":"2026-03-06T09:00:00.000000000Z","dropped_last":"2026-03-06T09:30:00.000000000Z"}`)
	d.admin(format.EventResumed, `{"failed_at":"2026-03-06T09:40:00.000000000Z","resumed_at":"2026-03-06T09:50:00.000000000Z","error":"disk_full","refused":7}`)
	d.admin(format.EventLoss, `{"file":"journal.1","offset":8192,"reason":"r","frames":[[4,5]],"lost":2,"kept":9,"files":["journal.1.lost-x"]}`)
	d.set("2026-03-06 11:00")
	d.ok(d.log.Redact(t.Context(), "", "d2", "erasure request 17"))
	key, err := d.log.RotateKey(t.Context(), "")
	d.ok(err)
	for _, change := range []string{"changed", "gone", "changed"} {
		d.admin(format.EventToolDrift, `{"server":"jira","tool":"`+change+`","change":"`+change+`"}`)
	}
	d.admin("stop", "")
	d.set("2026-03-07 10:00") // after the time of the report: receipts count all the same
	mustAppend(d, d.log, receiptFor("a1", "default", evaluation.Discharged, "log-1"), owing("late", "default", "log-1"))
	d.heartbeat("2026-03-07 11:00")

	r := d.report("2026-03-03 00:00", "2026-03-07 00:00")
	lost := int64(2)
	at := func(clock string) Instant { // the sequence is looked at below
		return Instant{Time: at(t, clock)}
	}
	if r.Size != int64(d.log.Size()) || !strings.Contains(r.Checkpoint, fmt.Sprintf("\n%d\n", r.Size)) {
		t.Errorf("%d records:\n%s", r.Size, r.Checkpoint)
	}
	// 9 decisions but one that was redacted, and another bundle's one; the admin records are the log's own, too.
	if p := r.Population; p.Kinds[format.KindDecision] != 9 || p.Allowed != 4 || p.Waiting != 1 || p.Denied != 4 || !p.First.Equal(at("2026-03-03 10:00").Time) || !p.Last.Equal(at("2026-03-06 11:00").Time) {
		t.Errorf("%+v", p)
	}
	sequences := map[string]uint64{}
	for rec, err := range d.log.Records(t.Context(), 0, d.log.Size()) {
		d.ok(err)
		var s record.Recorded
		if rec.Line == nil {
			continue
		}
		d.ok(json.Unmarshal(rec.Line, &s))
		sequences[s.Event+s.ID[:min(2, len(s.ID))]], sequences[s.Event] = s.Sequence, s.Sequence
	}
	moment := func(name, clock string) Instant {
		m := at(clock)
		m.Sequence = sequences[name]
		return m
	}
	for name, c := range map[string]struct{ got, want any }{
		"denies": {r.Denies, map[string]int64{"policy_error": 2, DenyNoPermit: 1, DenyMalformed: 1}},
		"errors": {r.Errors, []ErringPolicy{{"p8", 1, map[string]int64{"type": 1}}, {"p9", 2, map[string]int64{"overflow": 2}}}},
		"bundles": {r.Bundles, []BundleInForce{
			{Digest: "h1:one", Loaded: at("2026-03-02 10:00").Time, Sequence: 2, Files: 3, Decisions: 1, First: at("2026-03-03 10:00").Time, Last: at("2026-03-03 10:00").Time},
			{Digest: "h1:two", Loaded: at("2026-03-06 10:00").Time, Sequence: sequences["bundle_loaded"], Files: 4, Decisions: 1, First: at("2026-03-06 10:00").Time, Last: at("2026-03-06 10:00").Time}}},
		"obligations": {r.Obligations, map[string]Obligations{"log": {Owed: 1, Discharged: 1}, "notification": {Owed: 1, Unreported: 1}, "approval_required": {Owed: 1, Unreported: 1}}},
		"tool drift":  {r.ToolDrift, map[string]int64{"changed": 2, "gone": 1}},
		"redactions":  {r.Redactions, []Redaction{{At: moment(format.EventRedacted, "2026-03-06 11:00"), Of: 6, ID: "d2", Tenant: "default", Reason: "erasure request 17"}}},
		"clock":       {r.ClockBehind, []ClockBehind{{First: moment("b1", "2026-03-03 10:00"), Records: 3}}},
		"days": {r.Days, Days{First: "2026-03-03", Last: "2026-03-06", WithDecisions: 2, Quiet: []QuietDay{
			{Day: "2026-03-04", Proved: true, Checkpoints: 2}, {Day: "2026-03-05"}}}},
		"gaps":    {r.Service.Gaps, []DatedGap{{Gap: Gap{First: 6, Next: 7, Why: format.WhyRedacted}, After: at("2026-03-03 10:00").Time, Before: at("2026-03-03 10:00").Time}}},
		"runs":    {r.Service.Runs, []Run{{At: moment("stop", "2026-03-06 11:00"), Event: "stop"}}},
		"refused": {r.Service.Refused, []RefusedBundle{{At: moment("bundle_refused", "2026-03-06 10:00"), InForce: "h1:one", Count: 2, Problems: []string{"a.cedar:1:1: no", "b"}}}},
		"losses": {r.Service.Losses, []Loss{
			{At: moment(format.EventDropped, "2026-03-06 10:00"), Dropped: 3, First: at("2026-03-06 09:00").Time, Last: at("2026-03-06 09:30").Time},
			{At: moment(format.EventResumed, "2026-03-06 10:00"), Refused: 7, Failed: at("2026-03-06 09:40").Time, Resumed: at("2026-03-06 09:50").Time, Error: "disk_full"},
			{At: moment(format.EventLoss, "2026-03-06 10:00"), Damage: &Damage{File: "journal.1", Offset: 8192, Lost: &lost, Kept: 9}}}},
		"retention": {r.Service.Retention, []RetentionRun{}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if st, err := Count(t.Context(), snapshotNow(t, d.log)); err != nil || st.Waiting != 1 || st.Allowed != 6 || st.Denied != 4 {
		t.Errorf("%+v, %v", st, err)
	}
	if keys := r.Service.Keys; len(keys) != 1 || keys[0].New != key || keys[0].Old == key {
		t.Errorf("%+v", keys)
	}
}

// What retention dropped is a gap, a day that may be of it is no quiet day that
// anybody could vouch for, and the heartbeats of then are still there.
func TestReportAfterRetention(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	mustAppend(d, d.log, entryOf("r1", true))
	d.heartbeat("2026-03-03 10:00")
	d.set("2026-03-04 10:00")
	d.ok(d.log.Rotate(t.Context()))
	d.heartbeat("2026-03-05 10:00")
	d.set("2026-03-06 10:00")
	done, err := d.log.Retain(t.Context(), decisionlog.Retention{Age: time.Hour}, at(t, "2026-03-06 10:00"))
	d.ok(err)
	if done.Records != 2 {
		t.Fatalf("%+v", done)
	}
	d.heartbeat("2026-03-06 11:00")
	for from, want := range map[string][]QuietDay{
		"": {{Day: "2026-03-02", Proved: true, Checkpoints: 1, Gone: true}, {Day: "2026-03-03", Proved: true, Checkpoints: 1, Gone: true}, {Day: "2026-03-04", Gone: true},
			{Day: "2026-03-05", Proved: true, Checkpoints: 1}, {Day: "2026-03-06", Proved: true, Checkpoints: 2}},
		"2026-03-05 00:00": {{Day: "2026-03-05", Proved: true, Checkpoints: 1}, {Day: "2026-03-06", Proved: true, Checkpoints: 2}},
	} {
		r := d.report(from, "")
		if diff := cmp.Diff(want, r.Days.Quiet); diff != "" {
			t.Errorf("from %q: %s", from, diff)
		}
		if from == "" && (len(r.Service.Gaps) != 1 || r.Service.Gaps[0].Why != format.WhyRetired || r.Service.Gaps[0].Next != 2 || !r.Service.Gaps[0].After.IsZero()) ||
			from != "" && len(r.Service.Gaps) != 0 {
			t.Errorf("from %q: %+v", from, r.Service.Gaps)
		}
		if runs := r.Service.Retention; len(runs) != 1 || runs[0].Below != 2 || runs[0].Reason != "age" {
			t.Errorf("from %q: %+v", from, runs)
		}
	}
}

// TestReportOfExportsOverARetention: what retention dropped, and an older export has, is no gap. What was gone in that
// one already is, with its times and its reason.
func TestReportOfExportsOverARetention(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	exported := func() []byte {
		var out bytes.Buffer
		_, err := export.Log{Snapshot: snapshotNow(t, d.log)}.Export(t.Context(), &out, export.Options{})
		d.ok(err)
		return out.Bytes()
	}
	var sequences []uint64
	for n, day := range []string{"2026-03-02 11:00", "2026-03-03 10:00", "2026-03-04 10:00"} {
		d.set(day)
		sequences = append(sequences, mustAppend(d, d.log, entryOf(fmt.Sprint("r", n), true)))
	}
	second := sequences[1]
	d.ok(d.log.Redact(t.Context(), "", "r1", "asked for"))
	d.heartbeat("2026-03-05 10:00")
	older := exported()
	d.ok(d.log.Rotate(t.Context()))
	d.set("2026-03-08 10:00")
	mustAppend(d, d.log, entryOf("r3", true))
	_, err := d.log.Retain(t.Context(), decisionlog.Retention{Age: time.Hour}, at(t, "2026-03-08 10:00"))
	d.ok(err)
	d.heartbeat("2026-03-08 11:00")
	newer := exported()
	if got := reportOfMerge(t, newer).Service.Gaps; len(got) != 1 || got[0].First != 0 || got[0].Next <= second || got[0].Why != format.WhyRetired {
		t.Errorf("of the newer one: %+v", got)
	}
	want := []DatedGap{{Gap: Gap{First: second, Next: second + 1, Why: format.WhyRedacted}, After: at(t, "2026-03-02 11:00"), Before: at(t, "2026-03-04 10:00")}}
	both := reportOfMerge(t, older, newer)
	if diff := cmp.Diff(want, both.Service.Gaps); diff != "" || both.Population.Allowed != 3 {
		t.Errorf("of both, %d allowed: %s", both.Population.Allowed, diff)
	}
}

// reportOfMerge is the report of a merge.
func reportOfMerge(t *testing.T, exports ...[]byte) Report {
	t.Helper()
	var inputs []export.Input
	for n, one := range exports {
		inputs = append(inputs, export.Input{Name: fmt.Sprint(n), Reader: bytes.NewReader(one)})
	}
	var out bytes.Buffer
	_, err := export.Merge(&out, inputs)
	if err != nil {
		t.Fatal(err)
	}
	in, err := export.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := OfExport(in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReportFindsTheCrash(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	mustAppend(d, d.log, entryOf("r1", true))
	crashed := t.TempDir() // the files of a log that nobody closed
	d.ok(os.CopyFS(crashed, os.DirFS(d.data)))
	d.ok(os.Chmod(filepath.Join(crashed, format.KeyFile), 0o600))
	d.data = crashed
	d.open()
	d.heartbeat("2026-03-02 11:00")
	runs := d.report("", "").Service.Runs
	if len(runs) != 2 || runs[0].Event != format.EventCreated || runs[1].Event != format.EventCrash {
		t.Errorf("%+v", runs)
	}
}

// TestReportNamesWhatNoServiceWrote: a report says which records had no MAC, as long as a segment names them, and which
// decisions were made while no service ran.
func TestReportNamesWhatNoServiceWrote(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	decided := func(id string) {
		e := entryOf(id, true)
		e.Decision.Bundle = "h1:one"
		mustAppend(d, d.log, e)
	}
	decided("before") // record 1
	d.admin("start", "")
	decided("while")
	d.admin("unsigned_tail", `{"from":1,"to":1,"cause":"wrong"}`)
	d.admin("segment_opened", `{"segment":2,"unsigned_tails":[{"from":0,"to":0,"cause":"missing"},{"from":1,"to":1,"cause":"wrong"}]}`)
	d.admin("stop", "")
	d.set("2026-03-03 10:00")
	decided("after") // record 7
	d.heartbeat("2026-03-03 11:00")
	for from, first := range map[string]Instant{"": {"", 1, at(t, "2026-03-02 10:00")}, "2026-03-03 00:00": {"", 7, at(t, "2026-03-03 10:00")}} {
		r := d.report(from, "").Service
		if o := r.OutsideStart; o == nil || o.First != first {
			t.Errorf("from %q: %+v, want the first at %v", from, o, first)
		}
		want := []UnsignedTail{
			{Instant{"", 4, at(t, "2026-03-02 10:00")}, record.UnsignedTail{From: 1, To: 1, Cause: "wrong"}},
			{Instant{"", 5, at(t, "2026-03-02 10:00")}, record.UnsignedTail{Cause: "missing"}},
		}
		if from != "" {
			want = []UnsignedTail{}
		}
		if diff := cmp.Diff(want, r.UnsignedTails); diff != "" {
			t.Errorf("from %q: %s", from, diff)
		}
	}
}

// A caller of one tenant learns nothing of another, and nothing that is of all of them.
func TestReportOfSomeTenants(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	d.admin("start", "")
	d.admin("bundle_loaded", `{"bundle":"h1:one","files":3}`)
	mustAppend(d, d.log, owing("a", "acme", "log-1"), owing("b", "other", "redact-1"), denied("x", "unknown_type", nil))
	other := denied("y", "schema_mismatch", func(of *record.Decision) {
		of.Bundle, of.Errors = "h1:other", []evaluation.PolicyError{{Policy: "p-other", Kind: "type"}}
	})
	other.Tenant = "other"
	mustAppend(d, d.log, other)
	d.ok(d.log.Redact(t.Context(), "", "b", "of other"))
	d.set("2026-03-03 10:00")
	mustAppend(d, d.log, owing("late", "other", "redact-1"))
	d.heartbeat("2026-03-03 11:00")
	r := d.report("", "", "acme")
	r.Checkpoint = "" // a signature may spell any of the words
	text, err := json.Marshal(r)
	d.ok(err)
	for _, hidden := range []string{"other", "unknown_type", "schema_mismatch", "redact-1", `"redact"`, "h1:one", "admin", `"service"`, "checkpoints", "gone"} {
		if strings.Contains(string(text), hidden) {
			t.Errorf("it says %s: %s", hidden, text)
		}
	}
	if r.Population.Records != 1 || r.Obligations["log"].Unreported != 1 || r.Service != nil || r.Size != int64(d.log.Size()) {
		t.Errorf("%s", text)
	}
	if diff := cmp.Diff([]QuietDay{{Day: "2026-03-03", Proved: true}}, r.Days.Quiet); diff != "" {
		t.Error(diff)
	}
}

// A span of no time, and a log that ends before it.
func TestReportOfNothing(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	mustAppend(d, d.log, entryOf("r1", true))
	d.heartbeat("2026-03-02 11:00")
	for _, span := range [][2]string{{"2026-03-03 00:00", ""}, {"", "2026-03-02 00:00"}} {
		r := d.report(span[0], span[1])
		if r.Population.Records != 0 || r.Days.First != "" || len(r.Days.Quiet) != 0 {
			t.Errorf("%v: %+v", span, r)
		}
	}
	s, err := d.log.Snapshot()
	d.ok(err)
	if _, err := Make(t.Context(), s, Options{From: at(t, "2026-03-03 00:00"), To: at(t, "2026-03-02 00:00")}); err == nil {
		t.Error("a time that ends before it begins was reported")
	}
}

// How long people take to decide, by the form in which they were asked.
func TestReportOfApprovals(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	step := func(clock, tenant, event, details string) {
		d.Helper()
		d.set(clock)
		mustAppend(d, d.log, record.Entry{Kind: format.KindApproval, Tenant: tenant, Event: event, Details: jsontext.Value(`{"filed_at":"2026-03-02T10:00:00Z"` + details + `}`)})
	}
	step("2026-03-02 10:00", "acme", "filed", "")
	step("2026-03-02 10:00", "acme", "filed", `,"asked":"authzen"`)
	step("2026-03-02 10:01", "acme", "approve", "")
	step("2026-03-02 10:01", "acme", "approved", "")
	step("2026-03-02 10:02", "acme", "used", "")
	step("2026-03-02 10:02", "acme", "used_up", "")
	step("2026-03-02 10:03", "acme", "denied", "")
	step("2026-03-02 10:04", "acme", "cancelled", `,"asked":"authzen"`)
	step("2026-03-02 10:05", "other", "expired", "")
	step("2026-03-02 10:30", "other", "approved", "")
	d.heartbeat("2026-03-02 11:00")
	step("2026-03-03 10:00", "acme", "approved", "")
	d.heartbeat("2026-03-03 11:00")
	number := func(n float64) *float64 { return &n }
	for _, c := range []struct {
		from, to string
		tenants  []string
		want     map[string]approval.Tally
	}{
		{"", "2026-03-03 00:00", nil, map[string]approval.Tally{
			"native": {Filed: 1, Approved: 2, Denied: 1, Expired: 1, Used: 1, Median: number(180), Longest: number(1800)}, "authzen": {Filed: 1, Cancelled: 1}}},
		{"", "2026-03-03 00:00", []string{"acme"}, map[string]approval.Tally{
			"native": {Filed: 1, Approved: 1, Denied: 1, Used: 1, Median: number(60), Longest: number(180)}, "authzen": {Filed: 1, Cancelled: 1}}},
		{"2026-03-03 00:00", "", nil, map[string]approval.Tally{"native": {Approved: 1, Median: number(86400), Longest: number(86400)}}},
		{"2026-03-04 00:00", "", nil, map[string]approval.Tally{}},
	} {
		if diff := cmp.Diff(c.want, d.report(c.from, c.to, c.tenants...).Approvals); diff != "" {
			t.Errorf("from %q to %q, %v: %s", c.from, c.to, c.tenants, diff)
		}
	}
}
