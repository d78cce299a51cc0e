package decisionlog

import (
	"bytes"
	"context"
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

	"go.etcd.io/bbolt"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

// What is known of an entry says by the same terms how it is found as its line does, or nothing: then its line is read.
func TestTermsOfEntries(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	known, cases := map[string]int{}, night.Cases(15_000)
	for n := range cases {
		e := []record.Entry{someEntry(r, strange), someEntry(r, valid), randomEntry(r)}[n%3]
		p, err := prepare(&e, e.ID, Options{}.withDefaults().Kinds)
		if err != nil {
			continue
		}
		p.finish(uint64(n), time.Unix(1e9, 0).UTC(), n%3 == 0)
		if _, err := record.Parse(p.line); err != nil {
			continue // a clock reading of another age
		}
		if want := termsOfLine(p.line); len(p.terms) > 0 && !bytes.Equal(p.terms, want) {
			t.Fatalf("%s:\ngot  %q\nwant %q", p.line, p.terms, want)
		}
		if len(p.terms) > 0 {
			known[e.Kind]++
		}
	}
	for _, kind := range []string{format.KindDecision, format.KindSearch, format.KindBatch, format.KindAdmin, format.KindReceipt} {
		if known[kind] < cases/250 {
			t.Errorf("only %d of kind %s are known", known[kind], kind)
		}
	}
}

// A line is found by every term of a filter that it passes, and a line that is none by the term of all queries.
func TestTermsOfLines(t *testing.T) {
	t.Parallel()
	for _, line := range []string{``, `{`, `[]`, `{"kind":"a"`, `{"tenant":1}`, `{"kind":"a","kind":"a"}`} {
		if terms := termsOfLine([]byte(line)); !bytes.Equal(terms, index.Odd()) {
			t.Errorf("%s: %q", line, terms)
		}
	}
	const decided = `"determining":["P%d"],"capability":{"id":"C%d","held":true,"depth":0},"discharged":[{"id":"o","type":"t","approval":"A%d"}]`
	var questions, want []string
	for n := range 4 { // lists of the record are not those of its questions, nor are the lists of a question those of another
		questions = append(questions, fmt.Sprintf(`{"n":%d,`+decided+`}`, n, n, n, n))
		want = append(want, fmt.Sprint(string(index.TermPolicy), "P", n), fmt.Sprint(string(index.TermCapability), "C", n), fmt.Sprint(string(index.TermApproval), "A", n))
	}
	line := fmt.Sprintf(`{"sequence":1,"id":"b","tenant":"t","kind":"possible","items":[%s],`+decided+`}`, strings.Join(questions[1:], ","), 0, 0, 0)
	if terms := split(termsOfLine([]byte(line))); slices.ContainsFunc(want, func(term string) bool { return !slices.Contains(terms, term) }) {
		t.Errorf("%s has %q, not all of %q", line, terms, want)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	passed, cases := 0, night.Cases(20_000)
	for n := range cases {
		e, f := randomEntry(r), randomFilter(r, time.Unix(1e9, 0))
		p, err := prepare(&e, e.ID, Options{}.withDefaults().Kinds)
		must(t, err)
		p.finish(uint64(n), time.Unix(1e9+int64(r.IntN(40)), 0).UTC(), false)
		passes, err := f.Matches(p.line)
		must(t, err)
		if passes {
			passed++
		}
		for _, any := range termsOfFilter(f) {
			if terms := split(termsOfLine(p.line)); passes && !slices.ContainsFunc(any, func(term string) bool { return slices.Contains(terms, term) }) {
				t.Fatalf("%s passes %+v, and has no term of %q", p.line, f, any)
			}
		}
	}
	if passed < cases/40 { // a twentieth is the mean
		t.Errorf("only %d lines pass", passed)
	}
}

// split are the terms of a record; none is longer than 127 bytes, or it is one with a length of two bytes.
func split(terms index.Terms) (all []string) {
	for len(terms) > 0 {
		length, width := int(terms[0]), 1
		if length > 127 {
			length, width = length&127|int(terms[1])<<7, 2
		}
		all, terms = append(all, string(terms[width:width+length])), terms[width+length:]
	}
	return all
}

// countedLog is a log of which the lines are counted that its index reads. The index does not begin before it is let go.
type countedLog struct {
	*Log
	read        atomic.Int64
	begun, free chan struct{}
	once        sync.Once
}

func (c *countedLog) Terms(from, to uint64) ([]index.Record, error) {
	some, err := c.Log.Terms(from, to)
	c.read.Add(int64(len(some)))
	return some, err
}

func (c *countedLog) Beyond(ctx context.Context, size uint64) error {
	c.once.Do(func() { close(c.begun) })
	select {
	case <-c.free:
		return c.Log.Beyond(ctx, size)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow gives the log an index that counts, and waits for it to begin.
func follow(t *testing.T, l *Log) *countedLog {
	t.Helper()
	c := &countedLog{Log: l, begun: make(chan struct{}), free: make(chan struct{})}
	l.index = index.New(l.data, c, index.Options{RetryEvery: time.Millisecond, OnError: func(err error) { t.Error(err) }})
	l.writer.told.index = l.index
	l.index.Start()
	<-c.begun
	return c
}

// known is a decision that is found without its line.
func known(id string, policies ...string) record.Entry {
	return record.Entry{ID: id, Kind: format.KindDecision, Tenant: "acme", Decision: &record.Decision{Determining: policies},
		Request: &record.Request{Asked: &evaluation.Request{Subject: evaluation.Entity{Type: "user", ID: "subject-of-" + id}, Resource: evaluation.Entity{Type: "doc", ID: "plan"}}}}
}

// sameAsLines checks that the index of each segment, be it in memory or in a file, is that of its lines.
func sameAsLines(t *testing.T, l *Log) {
	t.Helper()
	settled(t, l)
	for _, s := range l.Layout() {
		want := map[string][]uint32{}
		for from := s.First; from < s.End; {
			some, err := l.Terms(from, s.End)
			if err != nil || len(some) == 0 {
				t.Fatal(len(some), err)
			}
			for _, r := range some {
				for _, term := range split(r.Terms) {
					want[term] = append(want[term], uint32(r.Sequence-s.First))
				}
			}
			from = some[len(some)-1].Sequence + 1
		}
		looked := 0
		for term, list := range want { // of many, any 200
			if looked++; looked > 200 {
				break
			}
			got, upTo := l.index.Candidates(s, [][]string{{term}})
			if list = slices.Compact(list); !slices.Equal(got, list) || upTo != s.End {
				t.Fatalf("segment %d, %q: %v up to %d, want %v up to %d", s.Number, term, got, upTo, list, s.End)
			}
		}
	}
}

// indexFiles are the terms of all sealed segments, as the files of the index have them.
func indexFiles(t *testing.T, l *Log) map[string]string {
	t.Helper()
	settled(t, l)
	all := map[string]string{}
	names, err := filepath.Glob(filepath.Join(l.data, filepath.FromSlash(index.Dir), "*.db"))
	must(t, err)
	for _, name := range names {
		db, err := bbolt.Open(name, 0o600, &bbolt.Options{ReadOnly: true})
		must(t, err)
		err = db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("terms")).ForEach(func(term, list []byte) error {
				all[filepath.Base(name)+" "+string(term)] = fmt.Sprintf("%x", list)
				return nil
			})
		})
		must(t, db.Close())
		must(t, err)
	}
	return all
}

// The index that was told of records is, term by term, the one that is made of their lines: of all kinds, with batches,
// while the clock goes back, in many segments and after redactions.
func TestTheIndexIsThatOfTheLines(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var clock atomic.Int64
	clock.Store(1e9)
	l := mustOpen(t, memory(t), Options{SegmentBytes: 256 << 10, Now: func() time.Time { return time.Unix(clock.Load(), 0) }})
	close(follow(t, l).free)
	var writing sync.WaitGroup
	for caller := range 4 {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(caller)))
			for n := range 150 {
				clock.Add(int64(r.IntN(5)) - 2)
				var entries []record.Entry
				for i := range 1 + r.IntN(4) {
					e := someEntry(r, valid)
					if r.IntN(20) == 0 {
						e = someEntry(r, strange) // of some of them only the line tells
					}
					e.ID, e.Now = fmt.Sprintf("%d-%d-%d", caller, n, i), time.Time{}
					if e.Request != nil && e.Request.Asked == nil {
						e.Request = nil
					}
					if r.IntN(5) == 0 {
						asking(r, &e, valid)
					}
					if !refused(e) {
						entries = append(entries, e)
					}
				}
				if err := l.Append(t.Context(), entries); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	must(t, l.Rotate(t.Context()))
	removed := 0
	same := func() {
		t.Helper()
		told := indexFiles(t, l)
		// By one step: the log makes missing files meanwhile.
		must(t, os.Rename(filepath.Join(l.data, filepath.FromSlash(index.Dir)), fmt.Sprint(l.data, "-index-", removed)))
		removed++
		must(t, l.index.Fill(t.Context()))
		read := indexFiles(t, l)
		for term, list := range read {
			if told[term] != list {
				t.Fatalf("%q: it was told %s, and has read %s", term, told[term], list)
			}
		}
		if len(told) != len(read) || len(read) < 100 {
			t.Errorf("it was told %d terms, and has read %d", len(told), len(read))
		}
	}
	same()
	redacted := 0
	for n := range 20 {
		if l.Redact(t.Context(), "", fmt.Sprintf("0-%d-0", 5*n), "asked to") == nil { // else it is not there, or the log's
			redacted++
		}
	}
	if same(); redacted < 3 {
		t.Errorf("only %d were redacted", redacted)
	}
}

// The index reads no line of a record that it was told the terms of.
func TestTheIndexReadsNoLineThatItIsToldOf(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{})
	c, before := follow(t, l), l.Size()
	close(c.free)
	for n := range 200 {
		e := known(fmt.Sprint(n), "p", "q")
		if n%50 == 0 {
			e.Tenant = "\xff" // only the line tells how it is found
		}
		mustAppend(t, l, e, known(fmt.Sprint(n, "b")))
	}
	settled(t, l)
	if read := c.read.Load(); read != int64(before)+4 {
		t.Errorf("%d lines were read, of %d that were there and 4 besides", read, before)
	}
	sameAsLines(t, l)
}

// An index that is behind reads what it was not told, or has no room for, and has each record once: after a restart, and
// after the process was killed while the index was at work.
func TestTheIndexCatchesUp(t *testing.T) {
	t.Parallel()
	data := memory(t)
	policies := make([]string, 1000)
	for i := range policies {
		policies[i] = fmt.Sprintf("policy-%0200d", i)
	}
	for round := range 4 {
		l, err := Open(data, Options{SegmentBytes: 2 << 20})
		must(t, err)
		c := follow(t, l)
		if round%2 == 0 {
			close(c.free)
		}
		for n := range 40 {
			id := fmt.Sprintf("%d-%d", round, n)
			e := known(id, "p")
			if round == 1 { // more than the index has room for
				e = known(id, policies...)
			}
			mustAppend(t, l, e, record.Entry{Kind: format.KindDecision, Decision: &record.Decision{Determining: []string{"\xff"}}})
		}
		if round%2 != 0 {
			close(c.free)
		}
		if round < 3 {
			sameAsLines(t, l)
		}
		if round%2 == 0 {
			crash(l)
			l.index.Stop()
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, data, Options{})
	close(follow(t, l).free)
	sameAsLines(t, l)
}

// What the index was told, and what is redacted before it is at work, is in no file of it.
func TestTheIndexForgetsWhatIsGone(t *testing.T) {
	t.Parallel()
	data := memory(t)
	k := keep(t, data)
	k.log = mustOpen(t, data, Options{})
	c := follow(t, k.log)
	mustAppend(t, k.log, known("a-1"), known("a-2"))
	k.ok(k.log.Redact(t.Context(), "", "a-2", "on request"))
	close(c.free)
	settled(t, k.log)
	if k.inIndex("subject-of-a-1") != 1 || k.inIndex("subject-of-a-2") != 0 {
		t.Errorf("a-1 is in %d files, a-2 in %d", k.inIndex("subject-of-a-1"), k.inIndex("subject-of-a-2"))
	}
}
