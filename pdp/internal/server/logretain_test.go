package server_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

func TestReadRetention(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]server.RetainConfig{
		`{age: "2160h", bytes: 10737418240}`:         {Age: 2160 * time.Hour, Bytes: 10 << 30},
		`{age: 90d}`:                                 {Age: 2160 * time.Hour},
		`{age: 1d12h30m}`:                            {Age: 36*time.Hour + 30*time.Minute},
		`{age: 1h, bytes: 67108864}`:                 {Age: time.Hour, Bytes: 64 << 20},
		`{bytes: 67108864, least_age: 1m, share: 1}`: {Bytes: 64 << 20, LeastAge: time.Minute, Share: 1},
		`{}`: {},
	} {
		if c, _, err := readConfig(t, "decision_log: {retain: "+text+"}\n"); err != nil || c.DecisionLog.Retain != want {
			t.Errorf("%s: got %+v, %v", text, c.DecisionLog.Retain, err)
		}
	}
	for what, c := range map[string]server.Config{
		"is less than 1h":       {Data: "d", DecisionLog: server.DecisionLogConfig{Retain: server.RetainConfig{Age: -time.Hour}}},
		"least_age is 3h0m0s":   {Data: "d", DecisionLog: server.DecisionLogConfig{Retain: server.RetainConfig{Age: 2 * time.Hour, Bytes: 64 << 20, LeastAge: 3 * time.Hour}}},
		"is less than 67108864": {Data: "d", DecisionLog: server.DecisionLogConfig{Retain: server.RetainConfig{Bytes: 1}}},
		"add --data":            {DecisionLog: server.DecisionLogConfig{Retain: server.RetainConfig{Age: time.Hour}}},
	} {
		c.Program.Source = bundle(t)
		if _, err := server.New(c); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %s", err, what)
		}
	}
}

// note asks a question with a text that is then on record.
func note(t *testing.T, s *pdptest.Server, text string) {
	t.Helper()
	body := strings.TrimSuffix(readQuestion, "}") + `,"context":{"note":"` + text + `"}}`
	replied(t, s.Post(evaluationPath, body), 200)
}

// onDisk reports whether a text is in a file of the log.
func onDisk(t *testing.T, data, text string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(data, format.LogDir, "*"))
	must(t, err)
	for _, name := range names {
		if content, err := os.ReadFile(name); err == nil && bytes.Contains(content, []byte(text)) { // else it was replaced meanwhile
			return true
		}
	}
	return false
}

// stopped is what a stranger says of the log of a server that stopped.
func stopped(t *testing.T, s *pdptest.Server, data string) verify.Report {
	t.Helper()
	stopAndWait(t, s)
	report := verify.Directory(data, verify.Options{})
	if !report.Verified() || report.Code != 0 || report.Retired == 0 {
		t.Errorf("got %+v", report)
	}
	return report
}

func TestRetentionByAge(t *testing.T) {
	t.Parallel()
	data, begun := t.TempDir(), time.Now()
	var later atomic.Int64
	s := pdptest.Start(t, telling(), withData(data), func(c *server.Config) {
		c.DecisionLog.Retain.Age = 2 * time.Hour
		c.Program.PDP.Now = func() time.Time { return begun.Add(time.Duration(later.Load())) }
		// A segment is sealed after a record, and not before it because nobody asks: the clock is set between two.
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
			o.Checkpoints.Idle, o.Checkpoints.Every = time.Hour, time.Hour
		})
	})
	note(t, s, "asked-at-first")
	later.Store(int64(time.Hour)) // four times what a segment is open for
	note(t, s, "asked-an-hour-later")
	// The writer answers before it looks whether a segment is to be sealed. So the clock may be set in between, and what
	// was asked an hour later stands in the first segment or in the second.
	segments := func(n int) {
		eventually(t, "a segment is sealed", func() bool { return len(s.Log().Segments()) >= n })
	}
	segments(2)
	note(t, s, "asked-within-two-hours")
	if s.Recorded("segments_retired") || !onDisk(t, data, "asked-at-first") {
		t.Error("records were dropped that are not old")
	}
	later.Store(int64(3*time.Hour + time.Minute))
	note(t, s, "asked-at-last")
	segments(3)
	eventually(t, "what is old is gone", func() bool { return !onDisk(t, data, "asked-at-first") })
	if !onDisk(t, data, "asked-at-last") {
		t.Error("what is not old is gone")
	}
	later.Store(int64(6 * time.Hour))
	note(t, s, "asked-long-after")
	eventually(t, "what has become old is gone, too", func() bool {
		return !onDisk(t, data, "asked-an-hour-later") && !onDisk(t, data, "asked-within-two-hours")
	})
	if !onDisk(t, data, "asked-long-after") {
		t.Error("what is not old is gone")
	}
	stopped(t, s, data)
}

func TestRetentionBySize(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var told written.Text
	s := pdptest.Start(t, telling(), withData(data), logTo(&told), func(c *server.Config) {
		server.TuneLog(c, func(o *decisionlog.Options, keep *decisionlog.Retention) {
			o.SegmentBytes, keep.Bytes = 128<<10, 1<<20
		})
	})
	// The writer chooses when it seals a segment, and may have sealed the first with all notes until then.
	note(t, s, "note-first-"+strings.Repeat("x", 16<<10))
	for n := range 1000 {
		if note(t, s, fmt.Sprintf("note-%03d-%s", n, strings.Repeat("x", 16<<10))); n%10 == 0 && !onDisk(t, data, "note-first-") {
			break
		}
	}
	eventually(t, "the first is gone", func() bool { return !onDisk(t, data, "note-first-") })
	note(t, s, "note-last-")
	if !onDisk(t, data, "note-last-") {
		t.Error("the last is gone, too")
	}
	eventually(t, "it is told of", func() bool { return strings.Contains(told.String(), "retention dropped records") })
	stopped(t, s, data)
}

func TestRetentionThatFailsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var told written.Text
	s := pdptest.Start(t, telling(), withData(data), logTo(&told), func(c *server.Config) {
		server.TuneLog(c, func(o *decisionlog.Options, keep *decisionlog.Retention) { o.SegmentBytes, keep.Bytes = 64<<10, 1 })
	})
	must(t, os.Mkdir(filepath.Join(data, format.LogDir, "00000001.db.1.next"), 0o700)) // it cannot be finished, nor passed over
	for n := range 20 {
		note(t, s, fmt.Sprintf("note-%03d-%s", n, strings.Repeat("x", 16<<10)))
	}
	eventually(t, "it is told of", func() bool { return strings.Contains(told.String(), "retention failed") })
	note(t, s, "decided-all-the-same")
	stopAndWait(t, s)
	if report := verify.Directory(data, verify.Options{}); !report.Verified() || report.Retired != 0 {
		t.Errorf("got %+v", report)
	}
}

// Retention runs without a configured bound too, because it finishes what a redaction left.
func TestWhatARedactionLeftIsFinishedWithoutRetention(t *testing.T) {
	t.Parallel()
	c := startChanging(t)
	left := filepath.Join(c.data, format.LogDir, "00000001.db.1.next") // no record names it
	must(t, os.WriteFile(left, []byte("half a file"), 0o600))
	if err := c.take(func(c *server.Config) { c.DecisionLog.Mask = nil }); err != nil { // which wakes it
		t.Fatal(err)
	}
	eventually(t, "the new file is gone", func() bool { _, err := os.Stat(left); return os.IsNotExist(err) })
}
