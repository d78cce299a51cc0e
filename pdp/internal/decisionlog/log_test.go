package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// must ends a test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, data string, o Options) *Log {
	t.Helper()
	l, err := Open(data, o)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustAppend(t testing.TB, l *Log, entries ...record.Entry) uint64 {
	t.Helper()
	entries = slices.Clone(entries)
	for i := range entries {
		if entries[i].ID == "" {
			entries[i].ID = uuid.Must(uuid.NewV7()).String()
		}
	}
	must(t, l.Append(t.Context(), entries))
	return sequenceOf(t, l, entries[0].ID)
}

// sequenceOf is where in the log a record stands.
func sequenceOf(t testing.TB, l *Log, id string) uint64 {
	t.Helper()
	r, err := l.ByID(id)
	if err != nil {
		t.Error(err)
	}
	return r.Sequence
}

func entry(id string) record.Entry {
	return record.Entry{
		ID: id, Kind: format.KindDecision, Tenant: "default", Caller: "key:gateway", RequestID: "r-" + id,
		Now: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Request: &record.Request{
			Subject:  jsontext.Value(`{"type":"user","id":"alice"}`),
			Action:   jsontext.Value(`{"name":"tool.invoke"}`),
			Resource: jsontext.Value(`{"type":"tool","id":"tickets:create_ticket","properties":{"impact":"write"}}`),
			Context:  jsontext.Value("{\"purpose\" : \"two\\nlines\",\n\"n\":1.0}"),
		},
		Decision: &record.Decision{Allow: true, Determining: []string{"tools/allow"}, Bundle: "h1:abc"},
	}
}

// idOf is the id of the record in a line.
func idOf(line []byte) string {
	_, id, _ := bytes.Cut(line, []byte(`"id":"`))
	id, _, _ = bytes.Cut(id, []byte(`"`))
	return string(id)
}

// verify reads the whole log as a stranger would and checks all that can be:
// leaves, tree, checkpoints, times.
func verify(t testing.TB, data string) (lines [][]byte) {
	t.Helper()
	lines = verifyRemoved(t, data)
	if n := slices.IndexFunc(lines, func(line []byte) bool { return line == nil }); n >= 0 {
		t.Fatalf("record %d is gone", n)
	}
	return lines
}

// verifyRemoved is verify of a log some of whose content may be gone: then the line is nil.
func verifyRemoved(t testing.TB, data string) (lines [][]byte) {
	t.Helper()
	r, err := segment.OpenReader(data)
	must(t, err)
	defer func() { _ = r.Close() }()
	var e segment.Edge
	roots := map[uint64]tlog.Hash{}
	last := ""
	for record, err := range r.Records(t.Context(), 0, r.Size()) {
		must(t, err)
		if bytes.Contains(record.Line, []byte(format.EventUnsigned)) {
			t.Errorf("nobody but the writer wrote, and it says otherwise: %s", record.Line)
		}
		var line struct {
			Sequence uint64
			Time     string
		}
		if record.Line == nil {
			line.Sequence, line.Time = e.Size, last
		} else if err := json.Unmarshal(record.Line, &line, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		} else if tlog.RecordHash(record.Line) != record.Leaf {
			t.Fatalf("record %d: %s", e.Size, record.Line)
		}
		if line.Sequence != e.Size || record.Sequence != e.Size || line.Time < last {
			t.Fatalf("record %d: %s", e.Size, record.Line)
		}
		last = line.Time
		want, err := tlog.StoredHashesForRecordHash(int64(e.Size), record.Leaf, segment.HashFunc(e.Hash))
		if stored := e.AddLeaf(nil, record.Leaf); err != nil || !bytes.Equal(stored, segment.JoinHashes(want)) {
			t.Fatalf("%x are stored with record %d, want %x: %v", stored, line.Sequence, want, err)
		}
		roots[e.Size], _ = e.Root()
		lines = append(lines, record.Line)
	}
	if root, err := tlog.TreeHash(int64(r.Size()), r); err != nil || root != roots[r.Size()] {
		t.Fatalf("the stored tree has another root: %v", err)
	}
	keys, err := segment.VerifierKeys(data)
	must(t, err)
	inForce := keys[0]
	for c, err := range r.Checkpoints(t.Context(), 0, r.Size()) {
		must(t, err)
		v, err := note.NewVerifier(inForce)
		must(t, err)
		if _, err := segment.ParseCheckpoint(c.Note, note.VerifierList(v)); err != nil || c.Root != roots[c.Size] {
			t.Fatalf("%v\n%s", err, c.Note)
		}
		if c.NextKey != "" {
			inForce = c.NextKey
		}
	}
	return lines
}

func TestLine(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 7, time.UTC) }})
	e := entry("one")
	e.Decision.Errors = []evaluation.PolicyError{{Policy: "p", Position: "a:1:2", Kind: evaluation.Overflow}}
	e.Decision.Obligations = []evaluation.Obligation{{ID: "log", Type: "log"}}
	e.Decision.LeftOut = []evaluation.LeftOut{{ID: "o", Reason: evaluation.ObligationUnfilled}}
	e.Decision.Discharged = []evaluation.Met{{ID: "a", Type: "approval_required", Approval: "x"}}
	e.RequestID = "bad \xff utf"
	first := mustAppend(t, l, e, record.Entry{ID: "two", Kind: format.KindSearch, Tenant: "t", Search: &record.Search{Query: evaluation.ActionSearch, Found: []string{"a"}, Examined: 3}})
	want := []string{
		`{"sequence":2,"id":"one","time":"2026-01-02T03:04:05.000000007Z","now":"2026-01-02T03:04:05.000000006Z","tenant":"default","kind":"decision","caller":"key:gateway","request_id":"bad ` + "\uFFFD" + ` utf",` +
			`"request":{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket","properties":{"impact":"write"}},"context":{"purpose":"two\nlines","n":1.0}},` +
			`"decision":true,"determining":["tools/allow"],"errors":[{"policy":"p","position":"a:1:2","kind":"overflow"}],"obligations":[{"id":"log","type":"log","properties":{}}],` +
			`"left_out":[{"id":"o","reason":"obligation_unfilled"}],"discharged":[{"id":"a","type":"approval_required","approval":"x"}],"bundle":"h1:abc","salt":"`,
		`{"sequence":3,"id":"two","time":"2026-01-02T03:04:05.000000007Z","tenant":"t","kind":"search","query":"action","found":["a"],"examined":3,"salt":"`,
	}
	if first == 1 { // the log was created in this test: sequence 0 is its own
		want[0], want[1] = strings.Replace(want[0], ":2,", ":1,", 1), strings.Replace(want[1], ":3,", ":2,", 1)
	}
	for i, w := range want {
		r, err := l.Get(first + uint64(i))
		if err != nil || !strings.HasPrefix(string(r.Line), w) || len(r.Line) != len(w)+24 {
			t.Errorf("%v\n got %s\nwant %s", err, r.Line, w)
		}
	}
	if r, err := l.ByID("two"); err != nil || r.Sequence != first+1 {
		t.Errorf("by id: %d, %v", r.Sequence, err)
	}
	for _, bad := range []record.Entry{{Kind: "other"}, {Kind: format.KindDecision}, {Kind: format.KindAdmin, Details: jsontext.Value("{")}, {Kind: format.KindAdmin, Event: strings.Repeat("x", format.MaxLine)}} {
		if err := l.Append(t.Context(), []record.Entry{bad}); err == nil {
			t.Errorf("%.40v was recorded", bad)
		}
	}
	must(t, l.Close())
	verify(t, data)
}

func TestConcurrentAppendsShareCommits(t *testing.T) {
	t.Parallel()
	const callers = 16
	data := memory(t)
	shared := 0 // by how many calls, at most; the writer's until the log is closed
	begun := time.Now()
	l := mustOpen(t, data, Options{SegmentBytes: 1 << 20, On: Hooks{Commit: func(c Commit) { shared = max(shared, c.Calls) }},
		Now: func() time.Time { return begun.Add(time.Since(begun)) }}) // which nobody sets back
	// The writer is kept until all of them wait: else the disk decides whether they ever do.
	kept, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.writer.runHeld(context.Background(), func() error { close(kept); <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-kept
	for g := range callers {
		wg.Go(func() {
			for i := range 30 {
				id := fmt.Sprintf("%d-%d", g, i)
				if err := l.Append(context.Background(), []record.Entry{entry(id + ".0"), entry(id + ".1")}); err != nil {
					t.Error(err)
					return
				}
				if r, err := l.Get(sequenceOf(t, l, id+".0") + 1); err != nil || !bytes.Contains(r.Line, []byte(`"id":"`+id+`.1"`)) {
					t.Errorf("%s: %v", r.Line, err)
				}
			}
		})
	}
	queued(t, l, callers)
	close(release)
	wg.Wait()
	must(t, l.Close())
	if shared != callers {
		t.Errorf("%d calls of %d that waited share a commit", shared, callers)
	}
	for _, line := range verify(t, data) {
		if bytes.Contains(line, []byte("clock_behind")) {
			t.Fatalf("the clock did not go back: %s", line)
		}
	}
}

func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	data := memory(t)
	var offset atomic.Int64 // the log also reads the clock in the background
	now := func() time.Time {
		return time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Add(time.Duration(offset.Load()))
	}
	l := mustOpen(t, data, Options{Now: now})
	mustAppend(t, l, entry("a"))
	must(t, l.Close())
	offset.Add(int64(-time.Hour)) // also while it was closed
	l = mustOpen(t, data, Options{Now: now})
	first := mustAppend(t, l, entry("b"))
	if r, _ := l.Get(first); !bytes.Contains(r.Line, []byte(`"time":"2026-01-02T00:00:00.000000000Z","clock_behind":true`)) {
		t.Errorf("%s", r.Line)
	}
	offset.Add(int64(2 * time.Hour))
	first = mustAppend(t, l, entry("c"))
	if r, _ := l.Get(first); !bytes.Contains(r.Line, []byte(`"time":"2026-01-02T01:00:00.000000000Z","now"`)) {
		t.Errorf("%s", r.Line)
	}
	must(t, l.Close())
	verify(t, data)
}

func TestRotateKey(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{Origin: "pdp.example/log"})
	old := l.writer.key.Public
	public, err := l.RotateKey(t.Context(), "")
	if err != nil || public == old {
		t.Fatal(public, err)
	}
	c, err := l.LastCheckpoint()
	if err != nil || c.NextKey != public || c.Origin != "pdp.example/log" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, key := range []string{old, public} {
		v, _ := note.NewVerifier(key)
		if _, err := segment.ParseCheckpoint(c.Note, note.VerifierList(v)); err != nil {
			t.Errorf("%s did not sign it: %v", key, err)
		}
	}
	mustAppend(t, l, entry("a"))
	must(t, l.Close())
	// As after a crash before the new key took the old one's place.
	must(t, os.Rename(filepath.Join(data, format.KeyFile), filepath.Join(data, format.NextKeyFile)))
	l = mustOpen(t, data, Options{})
	if l.writer.key.Public != public {
		t.Errorf("the key is %s", l.writer.key.Public)
	}
	must(t, l.Close())
	verify(t, data)
	if info, err := os.Stat(filepath.Join(data, format.KeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// While writing fails the newest checkpoint may be one that cannot be read. A snapshot ends with one that can.
func TestCheckpointsWhileWritingFails(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{})
	mustAppend(t, l, entryOf("", true))
	must(t, l.Rotate(t.Context()))
	if err := l.writer.runHeld(t.Context(), func() error { _ = l.writer.fail(record.ErrDamaged); return nil }); err != nil {
		t.Fatal(err)
	}
	if c, err := l.LastCheckpoint(); !errors.Is(err, segment.ErrUnavailable) {
		t.Errorf("the newest: %+v, %v", c, err)
	}
	if s, err := l.Snapshot(); err != nil || s.Head.Size != 2 {
		t.Errorf("the snapshot: %+v, %v", s, err)
	}
}

// An id leads to the first record that has it, in whatever order ids come: in one transaction, in several, and after a
// restart.
func TestAnIDLeadsToItsFirstRecord(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	first := map[string]uint64{}
	for sequence, round := l.Size(), 0; round < 60; round++ {
		entries := make([]record.Entry, 1+r.IntN(20))
		for n := range entries {
			entries[n] = entry(fmt.Sprintf("%03d", r.IntN(400)))
			if _, is := first[entries[n].ID]; !is {
				first[entries[n].ID] = sequence
			}
			sequence++
		}
		must(t, l.Append(t.Context(), entries))
		if round == 30 {
			must(t, l.Close())
			l = mustOpen(t, data, Options{})
			sequence = l.Size()
		}
	}
	for id, want := range first {
		if got := sequenceOf(t, l, id); got != want {
			t.Errorf("%s leads to record %d, want %d", id, got, want)
		}
	}
}

// TestOpenAgainAfterCreateFailed: a log whose first transaction failed is not left locked in the process.
func TestOpenAgainAfterCreateFailed(t *testing.T) {
	t.Parallel()
	data := memory(t)
	fails := Hooks{Step: func(step string) {
		if step == StepCommit {
			panic("the disk failed")
		}
	}}
	if l, err := Open(data, Options{On: fails}); err == nil {
		_ = l.Close()
		t.Fatal("the first transaction did not fail")
	}
	l := mustOpen(t, data, Options{LockTimeout: time.Millisecond})
	mustAppend(t, l, entry("first"))
}
