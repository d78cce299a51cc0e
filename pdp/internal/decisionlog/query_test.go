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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/night"
)

// randomEntry draws from few values, so that filters find some of them; slashes
// and long ids are among them.
func randomEntry(r *rand.Rand) record.Entry {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	entity := func() jsontext.Value {
		id := pick("a", "b", "c/d", "d", "x/c/d", string(bytes.Repeat([]byte("long"), 100)), "ü\\u0000")
		return jsontext.Value(fmt.Sprintf(`{"type":"%s","id":"%s"}`, pick("user", "doc", "x"), id))
	}
	e := record.Entry{Kind: format.KindDecision, Tenant: pick("default", "acme", "a"), Caller: "key:pep",
		Request: &record.Request{Subject: entity(), Action: jsontext.Value(`{"name":"` + pick("read", "write", "a") + `"}`), Resource: entity(),
			Context: jsontext.Value(fmt.Sprintf(`{"note":%q}`, bytes.Repeat([]byte("n"), r.IntN(300))))},
		Decision: &record.Decision{Allow: r.IntN(2) == 0, Determining: []string{pick("p1", "p2"), pick("p2", "p3")}}}
	if r.IntN(5) == 0 {
		e.Decision.Overruled, e.Decision.Determining = e.Decision.Determining, nil
	}
	if e.Decision.Allow && r.IntN(2) == 0 {
		properties, err := evaluation.NewObject(map[string]any{"type": format.ApprovalRequired})
		if err != nil {
			panic(err)
		}
		e.Decision.Obligations = []evaluation.Obligation{{ID: "o", Type: pick("log", format.ApprovalRequired), Properties: properties}}
	}
	if r.IntN(3) == 0 {
		e.Decision.Capability = &record.Capability{ID: pick("cap_1", "cap_2"), Held: true}
	}
	switch r.IntN(10) {
	case 0:
		e.Kind, e.Search, e.Decision = format.KindSearch, &record.Search{Query: "subject"}, nil
	case 1:
		return record.Entry{Kind: format.KindAdmin, Event: pick("start", "stop"), Tenant: pick("", "acme")}
	case 2:
		return record.Receipt{Decision: pick("one", "two")}.Entry("acme", "key:pep")
	case 3: // the names in it are nobody's
		shared := jsontext.Value(`{"properties":{"id":"` + pick("a", "b") + `","name":"read","type":"user"}}`)
		return record.Entry{Kind: format.KindBatch, Tenant: e.Tenant, Caller: e.Caller, Request: &record.Request{Subject: shared, Action: shared, Resource: shared, Context: e.Request.Context}}
	case 4:
		e.Inherits, e.Request.Context = []string{pick(record.InheritsSubject, record.InheritsAction, record.InheritsResource), record.InheritsContext}, nil
	}
	return e
}

func randomFilter(r *rand.Rand, begun time.Time) (f record.Filter) {
	set := func(to *string, from ...string) {
		if r.IntN(4) == 0 {
			*to = from[r.IntN(len(from))]
		}
	}
	set(&f.Tenant, "default", "acme", "nobody")
	set(&f.Kind, format.KindDecision, format.KindSearch, format.KindBatch, format.KindAdmin, format.KindReceipt)
	set(&f.Decision, record.Allow, record.Waiting, record.Deny)
	set(&f.Subject, "a", "user/a", "c/d", "x/c/d", "doc/x/c/d", "x/x/c/d", string(bytes.Repeat([]byte("long"), 100)), "ü\x00", "/", "nobody")
	set(&f.Resource, "b", "doc/b", "d", "x/d")
	set(&f.Action, "read", "a")
	set(&f.Policy, "p1", "p3")
	set(&f.Event, "start", format.EventSegment, format.EventRedacted)
	set(&f.Of, "one", "three")
	set(&f.Capability, "cap_1", "cap_3")
	set(&f.Text, "nnnnnn", "LONGLONG", "x/C", "note", "\x00\x00", "decision")
	switch r.IntN(4) {
	case 0:
		f.Tenants = []string{"acme", "a"}
	case 1:
		f.From = begun.Add(time.Duration(r.IntN(40)) * time.Second)
	case 2:
		f.To = begun.Add(time.Duration(1+r.IntN(40)) * time.Second)
	}
	return f
}

// pages asks for all pages, from one end to the other.
func pagesOf(t *testing.T, l *Log, q Query) (all [][]byte) {
	t.Helper()
	for n := 0; ; n++ {
		page, err := l.Query(t.Context(), q)
		must(t, err)
		if len(page.Lines) > q.Limit || q.Enough == nil && page.More && len(page.Lines) < q.Limit {
			t.Fatalf("a page of %d has %d, more: %v", q.Limit, len(page.Lines), page.More)
		}
		if all = append(all, page.Lines...); !page.More {
			return all
		}
		q.Cursor = page.Next
	}
}

func scanned(t *testing.T, l *Log, f record.Filter) (all [][]byte) {
	t.Helper()
	for r, err := range l.Records(t.Context(), 0, l.Size()) {
		must(t, err)
		if r.Line == nil {
			continue
		}
		passes, err := f.Matches(r.Line)
		must(t, err)
		if passes {
			all = append(all, r.Line)
		}
	}
	return all
}

// indexedLog has small segments and a clock that goes a second with each reading.
func indexedLog(t *testing.T, data string, begun time.Time, index bool) *Log {
	t.Helper()
	var mu sync.Mutex
	now := begun
	return mustOpen(t, data, Options{Index: index, SegmentBytes: 96 << 10, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(20 * time.Millisecond)
		return now
	}, On: Hooks{Failure: func(err error) { t.Errorf("the index: %v", err) }}})
}

// settled waits until all that is there is indexed.
func settled(t testing.TB, l *Log) {
	t.Helper()
	until(t, "all is indexed", func() bool {
		all := l.Layout()
		last := all[len(all)-1]
		_, upTo := l.index.Candidates(last, [][]string{{index.Term(index.TermKind, format.KindAdmin)}})
		done := upTo == last.End
		for _, s := range all[:len(all)-1] {
			_, err := os.Stat(filepath.Join(l.data, filepath.FromSlash(index.Dir), fmt.Sprintf(format.SegmentName, s.Number)))
			done = done && err == nil
		}
		return done
	})
}

// Each query returns exactly what a scan with its filter returns, with an index that
// is there, one that is half there, and none; in both orders; whatever is appended,
// sealed, redacted and dropped meanwhile.
func TestQueryIsAScan(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	calls, filters := 100, night.Cases(60) // a round, and each time it is asked
	if testing.Short() {
		calls = 40
	}
	data := memory(t)
	l := indexedLog(t, data, begun, true)
	defer func() { _ = l.Close() }()
	same := func() {
		t.Helper()
		for range filters {
			f, limit := randomFilter(r, begun), 1+r.IntN(40)
			var enough func() bool
			if r.IntN(4) == 0 {
				enough = func() bool { return r.IntN(3) == 0 }
			}
			if f.Check() != nil {
				continue
			}
			var want, oldest, newest [][]byte
			for size := ^uint64(0); size != l.Size(); { // by itself it begins a segment, with a record
				size = l.Size()
				want = scanned(t, l, f)
				oldest = pagesOf(t, l, Query{Filter: f, Limit: limit, Enough: enough})
				newest = pagesOf(t, l, Query{Filter: f, Limit: limit, Newest: true, Cursor: End, Enough: enough})
			}
			if !slices.EqualFunc(oldest, want, bytes.Equal) {
				t.Fatalf("%+v, oldest first: %d records, want %d", f, len(oldest), len(want))
			}
			slices.Reverse(want)
			if !slices.EqualFunc(newest, want, bytes.Equal) {
				t.Fatalf("%+v, newest first: %d records, want %d", f, len(newest), len(want))
			}
		}
	}
	for round := range 6 {
		for range calls {
			entries := make([]record.Entry, 1+r.IntN(5))
			for i := range entries {
				entries[i] = randomEntry(r)
			}
			mustAppend(t, l, entries...)
		}
		same() // while it is being indexed
		settled(t, l)
		same()
		switch round {
		case 1: // some go one by one
			for range 5 {
				rec, err := l.Get(uint64(r.IntN(int(l.Size()))))
				if err != nil {
					continue
				}
				var s record.Recorded
				if err := json.Unmarshal(rec.Line, &s); err != nil || s.Kind == format.KindAdmin {
					continue
				}
				must(t, l.Redact(t.Context(), "", s.ID, "asked to"))
			}
		case 2: // files that are damaged, and one that is of another segment
			for len(l.Segments()) < 6 { // however many the log has sealed by now
				must(t, l.Rotate(t.Context()))
			}
			settled(t, l)
			damageIndex(t, l, r)
		case 3: // some go together
			if _, err := l.Retain(t.Context(), Retention{Bytes: int64(calls) * 3 << 10}, time.Now()); err != nil {
				t.Fatal(err)
			}
		case 4: // no index at all, and one that is made at the start
			must(t, l.Close())
			l = indexedLog(t, data, begun.Add(time.Hour), false)
			same()
			must(t, l.Close())
			must(t, os.RemoveAll(filepath.Join(data, filepath.FromSlash(index.Dir))))
			l = indexedLog(t, data, begun.Add(2*time.Hour), true)
		}
		same()
	}
}

// damageIndex leaves hardly a file as it was.
func damageIndex(t *testing.T, l *Log, r *rand.Rand) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(l.data, filepath.FromSlash(index.Dir), "*.db"))
	if err != nil || len(names) < 4 {
		t.Fatal(len(names), err)
	}
	for i, name := range names {
		content, err := os.ReadFile(name)
		must(t, err)
		switch i % 5 {
		case 0:
			content = content[:len(content)/2/4096*4096]
		case 1:
			content = nil
		case 2:
			if content, err = os.ReadFile(names[0]); err != nil {
				t.Fatal(err)
			}
		case 3:
			content[16+r.IntN(32)] ^= 0xff // both of bbolt's meta pages
			content[4096+16+r.IntN(32)] ^= 0xff
		}
		must(t, errors.Join(os.Remove(name), os.WriteFile(name, content, 0o600)))
	}
}

// A cursor is of use whatever is appended meanwhile: nothing is skipped or repeated,
// and from old to new the last page leads on to what comes.
func TestCursorsUnderAppends(t *testing.T) {
	t.Parallel()
	l := indexedLog(t, memory(t), time.Now(), true)
	defer func() { _ = l.Close() }()
	const callers, each = 8, 150
	var writing sync.WaitGroup
	for caller := range callers {
		writing.Go(func() {
			for n := range each {
				e := entry(fmt.Sprintf("%d-%d", caller, n))
				if err := l.Append(t.Context(), []record.Entry{e}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	q := Query{Filter: record.Filter{Kind: format.KindDecision}, Limit: 7}
	var seen []int64
	for len(seen) < callers*each {
		page, err := l.Query(t.Context(), q)
		must(t, err)
		for _, line := range page.Lines {
			var s struct {
				Sequence int64 `json:"sequence"`
			}
			must(t, json.Unmarshal(line, &s))
			seen = append(seen, s.Sequence)
		}
		if q.Cursor = page.Next; !page.More && len(seen) < callers*each {
			must(t, l.Beyond(t.Context(), page.Next))
		}
		// Backwards from wherever it ends now, each comes once, too.
		if len(seen)%50 < 7 {
			back := pagesOf(t, l, Query{Filter: q.Filter, Limit: 100, Newest: true, Cursor: End})
			if len(back) < len(seen) {
				t.Fatalf("%d records from the end, after %d from the beginning", len(back), len(seen))
			}
		}
	}
	writing.Wait()
	if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != callers*each {
		t.Errorf("%d records, in order: %v", len(seen), slices.IsSorted(seen))
	}
	if _, err := l.Query(t.Context(), Query{Cursor: l.Size() + 1, Limit: 1}); !errors.Is(err, ErrNoSuchCursor) {
		t.Errorf("a cursor from elsewhere: %v", err)
	}
}

// What is redacted or dropped is in no file of the index either, also not in the one
// that is made anew.
func TestTheIndexKeepsNothing(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2", "a-3")
	k.ok(k.log.Rotate(t.Context()))
	settled(t, k.log)
	if k.inIndex("subject-of-a-2") != 1 {
		t.Fatal("it was never there")
	}
	k.ok(k.log.Redact(t.Context(), "", "a-2", "on request"))
	for range 2 {
		if files := k.holds("subject-of-a-2"); files != nil {
			t.Errorf("it is in %v", files)
		}
		settled(t, k.log)
	}
	if k.inIndex("subject-of-a-1") != 1 {
		t.Error("what stays has no index")
	}
	k.retireAll()
	for range 2 {
		if files := k.holds("subject-of-a-"); files != nil {
			t.Errorf("it is in %v", files)
		}
		settled(t, k.log)
	}
}

// What is in memory of a segment when content of it goes, as where the index lags
// behind, is not what its file is made of.
func TestTheIndexIsMadeOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	data := memory(t)
	k := keep(t, data)
	k.log = mustOpen(t, data, Options{})
	x := k.log.index
	follow := func() { // as the index does by itself
		all := k.log.Layout()
		s := all[len(all)-1]
		_, err := x.Add(t.Context(), s, s.First, s.End)
		k.ok(err)
	}
	k.append("a-1", "a-2")
	follow()
	k.ok(k.log.Redact(t.Context(), "", "a-2", "on request"))
	follow()
	if files := k.holds("subject-of-a-2"); files != nil {
		t.Errorf("it is in %v", files)
	}
	k.ok(x.Fill(t.Context()))
	if k.inIndex("subject-of-a-1") != 1 || k.inIndex("subject-of-a-2") != 0 {
		t.Error("it is not made again of what is left")
	}
	k.append("b-1") // and what it reads while content goes
	all := k.log.Layout()
	s := all[len(all)-1]
	k.ok(k.log.Rotate(t.Context()))
	k.ok(x.Without(s.Number, func() error {
		_, err := x.Add(t.Context(), s, s.First, k.log.Layout()[len(all)-1].End)
		return err
	}))
	follow()
	if k.inIndex("subject-of-b-1") != 0 {
		t.Error("it is made of what may be gone")
	}
}

// inIndex is how many files of the index hold a text, of those that are complete.
func (k *kept) inIndex(text string) (n int) {
	k.Helper()
	for _, name := range k.holds(text) {
		if filepath.Base(filepath.Dir(name)) == "index" && filepath.Base(name)[0] != '.' {
			n++
		}
	}
	return n
}

func (k *kept) retireAll() {
	k.Helper()
	_, err := k.log.Retain(k.Context(), Retention{Bytes: 1}, time.Now())
	k.ok(err)
}

// Who asks while the segments cannot be filled, as on a disk that hangs, waits no longer than its context says.
func TestAQueryWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	held, release := make(chan struct{}), make(chan struct{})
	l := mustOpen(t, memory(t), Options{Checkpoints: Checkpoints{Records: 1}, On: Hooks{Checkpoint: func([]byte) {
		if hangs.CompareAndSwap(true, false) {
			close(held)
			<-release
		}
	}}})
	hangs.Store(true)
	said := make(chan error)
	go func() { said <- l.Append(t.Context(), []record.Entry{{Kind: format.KindAdmin, Event: "said"}}) }()
	<-held // the writer
	must(t, l.Append(t.Context(), []record.Entry{entry("answered")}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Query(ctx, Query{Limit: 1}); !errors.Is(err, segment.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := <-said; err != nil {
		t.Error(err)
	}
	if _, err := l.ByID("answered"); err != nil {
		t.Error(err)
	}
}
