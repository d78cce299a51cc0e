package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// sampleNow is a sample of the log as of now, which the stranger has verified.
func sampleNow(t *testing.T, l *decisionlog.Log, tenants []string, o SampleOptions) Sample {
	t.Helper()
	sample, err := Choose(t.Context(), snapshotNow(t, l).For(tenants), o)
	if err != nil {
		t.Fatal(err)
	}
	keys := snapshotNow(t, l).Head.Keys
	if err := judgeExport(sample.Files["records.ndjson"], keys...); err != nil {
		t.Fatal(err)
	}
	var written SampleSummary
	if err := json.Unmarshal(sample.Files["sample.json"], &written); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(sample.Summary, written); diff != "" {
		t.Fatal(diff)
	}
	return sample
}

// best chooses as the specification says it: by sorting all there is.
func best(t *testing.T, l *decisionlog.Log, o SampleOptions) (ids []string, population int64) {
	t.Helper()
	type scored struct{ score, id string }
	var all []scored
	for rec, err := range l.Records(t.Context(), 0, l.Size()) {
		if err != nil {
			t.Fatal(err)
		}
		var s record.Recorded
		if rec.Line == nil || json.Unmarshal(rec.Line, &s) != nil || s.Kind != format.KindDecision ||
			!o.From.IsZero() && s.Time.Before(o.From) || !o.To.IsZero() && !s.Time.Before(o.To) {
			continue
		}
		leaf := tlog.RecordHash(rec.Line)
		sum := sha256.Sum256(slices.Concat([]byte(o.Seed), []byte{0}, leaf[:]))
		all = append(all, scored{hex.EncodeToString(sum[:]), s.ID})
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Compare(a.score, b.score) })
	for _, s := range all[:min(o.N, len(all))] {
		ids = append(ids, s.id)
	}
	slices.Sort(ids)
	return ids, int64(len(all))
}

func chosenIDs(s Sample) (ids []string) {
	for _, c := range s.Summary.Chosen {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

// Two runs with one seed over the same time choose the same, whatever was recorded
// meanwhile, and what they choose is what sorting all decisions by score gives.
func TestSampleIsReproducible(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	fill := func(clock string, from, to int) {
		d.set(clock)
		for i := from; i < to; i++ {
			mustAppend(t, d.log, entryOf(fmt.Sprintf("r-%03d", i), i%2 == 0))
		}
	}
	fill("2026-03-02 11:00", 0, 40)
	fill("2026-03-03 11:00", 40, 120)
	ends := at(t, "2026-03-04 00:00")
	// So many that no two choices are the same by chance: what is chosen depends on salts.
	options := []SampleOptions{
		{N: 60, Seed: "s", To: ends}, {N: 60, Seed: "t", To: ends}, {N: 1, Seed: "s", To: ends}, {N: 120, Seed: "s", To: ends}, {N: 1000, Seed: "s", To: ends},
		{N: 60, Seed: "s", From: at(t, "2026-03-03 00:00"), To: ends}, {N: 60, Seed: "s", To: at(t, "2026-03-03 00:00")},
	}
	var before []Sample
	for _, o := range options {
		before = append(before, sampleNow(t, d.log, nil, o))
	}
	fill("2026-03-05 11:00", 120, 200)
	differ := map[string]bool{}
	for i, o := range options {
		want, population := best(t, d.log, o)
		for _, got := range []Sample{before[i], sampleNow(t, d.log, nil, o)} {
			if diff := gocmp.Diff(want, chosenIDs(got)); diff != "" || got.Summary.Population != population {
				t.Errorf("%+v: of %d, want of %d: %s", o, got.Summary.Population, population, diff)
			}
		}
		differ[strings.Join(want, " ")] = true
	}
	if len(differ) != len(options)-1 { // 120 of 120, and 1000 of 120, are the same
		t.Errorf("seed, number and time make %d choices only", len(differ))
	}
	if all := sampleNow(t, d.log, nil, SampleOptions{N: 1000, Seed: "s"}); len(all.Summary.Chosen) != 200 {
		t.Errorf("without an end: %d", len(all.Summary.Chosen))
	}
}

// A sample holds the receipts of what it holds, whenever they came, and no others.
func TestSampleHoldsReceipts(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), decisionlog.Options{})
	for i := range 60 {
		id := fmt.Sprintf("r-%02d", i)
		mustAppend(t, l, owing(id, "default", "log-1", "redact-1"))
		mustAppend(t, l, receiptFor(id, "default", evaluation.Discharged, "log-1"))
	}
	for i := range 60 {
		mustAppend(t, l, receiptFor(fmt.Sprintf("r-%02d", i), "default", evaluation.NotDischarged, "redact-1"))
	}
	sample := sampleNow(t, l, nil, SampleOptions{N: 10, Seed: "s"})
	of := map[uint64]string{}
	last := uint64(0)
	for line := range bytes.Lines(sample.Files["records.ndjson"]) {
		var s record.Recorded
		if bytes.HasPrefix(line, []byte(format.ExportPrefix)) {
			continue
		}
		if err := json.Unmarshal(line, &s); err != nil || s.Sequence <= last {
			t.Fatalf("%d after %d: %v", s.Sequence, last, err)
		}
		last = s.Sequence
		if s.Kind == format.KindReceipt {
			of[s.Sequence] = s.Receipt().Decision
		}
	}
	for _, c := range sample.Summary.Chosen {
		if len(c.Receipts) != 2 {
			t.Errorf("%s has the receipts %v", c.ID, c.Receipts)
		}
		for _, sequence := range c.Receipts {
			if of[sequence] != c.ID {
				t.Errorf("receipt %d is of %q, want %s", sequence, of[sequence], c.ID)
			}
		}
	}
	if len(of) != 20 {
		t.Errorf("%d receipts", len(of))
	}
}

// The bundles of a sample are those that its decisions name, and one that was
// altered since keeps the sample from being made.
func TestSampleHoldsBundles(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := mustOpen(t, data, decisionlog.Options{})
	store, err := segment.OpenBundles(data)
	if err != nil {
		t.Fatal(err)
	}
	var digests []string
	for _, text := range []string{"one", "two"} {
		digest, err := store.Put(map[string][]byte{"a b.cedar": []byte(text), "entities/x.json": []byte("[]")})
		if err != nil {
			t.Fatal(err)
		}
		e := entryOf(text, true)
		e.Decision.Bundle = digest
		mustAppend(t, l, e)
		digests = append(digests, digest)
	}
	none := entryOf("none", true)
	none.Decision.Bundle = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	mustAppend(t, l, none)
	sample := sampleNow(t, l, nil, SampleOptions{N: 3, Seed: "s"})
	if len(sample.Summary.Bundles) != 3 {
		t.Fatalf("%+v", sample.Summary.Bundles)
	}
	for _, b := range sample.Summary.Bundles {
		i := slices.Index(digests, b.Digest)
		if i < 0 {
			if b != (SampleBundle{Digest: none.Decision.Bundle}) {
				t.Errorf("%+v", b)
			}
			continue
		}
		list := sample.Files[b.Dir+".list"]
		if sum := sha256.Sum256(list); b.Dir != "bundles/"+hex.EncodeToString(sum[:]) || !b.Kept || !b.Whole || b.Files != 2 {
			t.Errorf("%+v: %s", b, list)
		}
		if got := string(sample.Files[b.Dir+"/a b.cedar"]); got != []string{"one", "two"}[i] {
			t.Errorf("%s: %q", b.Digest, got)
		}
	}
	if err := os.WriteFile(filepath.Join(data, segment.BundlesDir, hex.EncodeToString(sha(t, "two"))), []byte("permit all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Choose(t.Context(), snapshotNow(t, l), SampleOptions{N: 3, Seed: "s"}); err == nil || !strings.Contains(err.Error(), "altered") {
		t.Errorf("with an altered policy: %v", err)
	}
}

func sha(t *testing.T, text string) []byte {
	t.Helper()
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// A caller of one tenant gets a sample without a byte of another's.
func TestSampleOfSomeTenants(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := mustOpen(t, data, decisionlog.Options{})
	store, err := segment.OpenBundles(data)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := store.Put(map[string][]byte{"a.cedar": []byte("root"), "tenants/acme/a.cedar": []byte("for acme"),
		"tenants/hidden/a.cedar": []byte("secret"), "MANIFEST": []byte("tenants/hidden/a.cedar")})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		for _, tenant := range []string{"acme", "hidden", "default"} {
			id := fmt.Sprintf("%s-%d", tenant, i)
			e := owing(id, tenant, "log-1")
			e.Decision.Bundle = bundle
			mustAppend(t, l, e, receiptFor(id, tenant, evaluation.Discharged, "log-1"))
		}
	}
	if err := l.Redact(t.Context(), "", "hidden-3", "hidden reason"); err != nil {
		t.Fatal(err)
	}
	sample := sampleNow(t, l, []string{"acme"}, SampleOptions{N: 20, Seed: "s"})
	if sample.Summary.Population != 30 || sample.Summary.Gone != nil || len(sample.Summary.Chosen) != 20 {
		t.Errorf("%+v", sample.Summary)
	}
	for name, content := range sample.Files {
		for _, word := range []string{"hidden", "secret", "default", "MANIFEST", "segment"} {
			if strings.Contains(name, word) || bytes.Contains(content, []byte(word)) && name != "README.md" {
				t.Errorf("%s holds %s", name, word)
			}
		}
	}
	if bytes.Contains(sample.Files["README.md"], []byte("hidden")) {
		t.Errorf("%s", sample.Files["README.md"])
	}
	b := sample.Summary.Bundles[0]
	if got := slices.Sorted(maps.Keys(sample.Files)); b.Whole || b.Files != 2 || !slices.Contains(got, b.Dir+"/tenants/acme/a.cedar") {
		t.Errorf("%+v: %q", b, got)
	}
}

// What is gone of the time of a sample is counted, as well as anybody can still know.
func TestSampleCountsWhatIsGone(t *testing.T) {
	t.Parallel()
	d := datedLog(t, "2026-03-02 10:00")
	for n, clock := range []string{"2026-03-02 10:00", "2026-03-03 10:00", "2026-03-04 10:00", "2026-03-05 10:00", "2026-03-06 10:00"} {
		d.set(clock)
		for i := range 3 {
			mustAppend(t, d.log, entryOf(fmt.Sprintf("r-%d-%d", n, i), true))
		}
	}
	for _, id := range []string{"r-1-0", "r-2-1", "r-3-2"} { // at an edge, in the middle, at the other edge
		d.ok(d.log.Redact(t.Context(), "", id, "on request"))
	}
	sample := sampleNow(t, d.log, nil, SampleOptions{N: 3, Seed: "s", From: at(t, "2026-03-03 00:00"), To: at(t, "2026-03-06 00:00")})
	if got := sample.Summary; got.Population != 6 || *got.Gone != (SampleGone{Redacted: GoneOf{Inside: 1, Perhaps: 2}}) {
		t.Errorf("%d, %+v", got.Population, got.Gone)
	}
	if _, err := d.log.Retain(t.Context(), decisionlog.Retention{Age: time.Hour}, at(t, "2026-03-20 10:00")); err != nil {
		t.Fatal(err)
	}
	_, err := Choose(t.Context(), snapshotNow(t, d.log), SampleOptions{N: 3, Seed: "s", To: at(t, "2026-03-06 00:00")})
	if !errors.Is(err, ErrNoPopulation) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestSampleRefuses(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), decisionlog.Options{})
	mustAppend(t, l, entryOf("a", true))
	for _, o := range []SampleOptions{
		{N: 0, Seed: "s"}, {N: -1, Seed: "s"}, {N: SampleMost + 1, Seed: "s"}, {N: 1}, {N: 1, Seed: "a\nb"}, {N: 1, Seed: "a\x00b"}, {N: 1, Seed: "\u202e"},
		{N: 1, Seed: "\xff"}, {N: 1, Seed: strings.Repeat("s", 257)}, {N: 1, Seed: "s", From: time.Unix(2, 0), To: time.Unix(1, 0)},
	} {
		if _, err := Choose(t.Context(), snapshotNow(t, l), o); err == nil {
			t.Errorf("%+v was sampled", o)
		}
	}
	mustAppend(t, l, record.Entry{Kind: format.KindReceipt, Details: jsontext.Value(`{"decision":"a","obligations":"none"}`)}) // a receipt that is none
	if got := sampleNow(t, l, nil, SampleOptions{N: 1, Seed: "s"}); len(got.Summary.Chosen[0].Receipts) != 0 {
		t.Errorf("%+v", got.Summary.Chosen)
	}
}

// What is held of a sample is bounded, whatever the size of its records; what a better
// one takes the place of is not held any more.
func TestASampleIsBounded(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), decisionlog.Options{})
	mustAppend(t, l, entryOf("a-1", true), entryOf("a-2", true), entryOf("a-3", true))
	p := picking{options: SampleOptions{N: 1, Seed: "s"}, byID: map[string]*picked{}}
	p.gaps.found = p.countGap
	look := func() error {
		for record, err := range l.Records(t.Context(), 1, 4) {
			if err == nil {
				err = p.look(record)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := look(); err != nil || p.held != len(p.best[0].Line) {
		t.Fatalf("%d bytes are held: %v", p.held, err)
	}
	p.options.N, p.held = 100, sampleHold
	if err := look(); !errors.Is(err, ErrSampleTooLarge) {
		t.Errorf("more than can be held: %v", err)
	}
}

// aBatch are the entries of a batch whose 30 items inherit its context, but every fifth.
func aBatch() []record.Entry {
	entries := []record.Entry{{ID: "b1", Kind: format.KindBatch, Tenant: "acme", Caller: "key:pep", Request: &record.Request{Context: jsontext.Value(`{"purpose":"secret-of-b1"}`)}}}
	for i := range 30 {
		e := entryOf(fmt.Sprintf("b1.%d", i), i%2 == 0)
		e.Tenant = "acme"
		if i%5 != 0 {
			e.Inherits, e.Request.Context = []string{"context"}, nil
		}
		entries = append(entries, e)
	}
	return entries
}

// A decision that is chosen comes with the record of its batch, and says what is gone with
// that.
func TestSampledItemsOfABatchComeWithItsRecord(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), decisionlog.Options{})
	mustAppend(t, l, aBatch()...)
	choose := func() (s Sample, ids []string) {
		s = sampleNow(t, l, nil, SampleOptions{N: 25, Seed: "s"})
		for line := range bytes.Lines(s.Files["records.ndjson"]) {
			if !bytes.HasPrefix(line, []byte(format.ExportPrefix)) {
				r, err := record.Parse(line)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, r.ID)
			}
		}
		return s, ids
	}
	s, ids := choose()
	if len(ids) != 26 || ids[0] != "b1" || len(s.Summary.Chosen) != 25 || s.Summary.Population != 30 {
		t.Errorf("%d are chosen, with %v", len(s.Summary.Chosen), ids)
	}
	for _, c := range s.Summary.Chosen {
		if c.Gone != nil {
			t.Errorf("%+v", c)
		}
	}
	if readme := string(s.Files["README.md"]); strings.Contains(readme, "inherited_gone") {
		t.Error("nothing is gone, and the README says so")
	}
	if err := l.Redact(t.Context(), "", "b1", "on request"); err != nil {
		t.Fatal(err)
	}
	s, ids = choose()
	gone := 0
	for _, c := range s.Summary.Chosen {
		gone += len(c.Gone)
	}
	if len(ids) != 25 || gone == 0 || !strings.Contains(string(s.Files["README.md"]), "inherited_gone") {
		t.Errorf("redacted: %v, %d members are gone", ids, gone)
	}
}

// A batch's record is no decision: reports and statistics count none for it. Beside no
// server they are the same, of the files.
func TestARecordOfABatchIsNoDecision(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := mustOpen(t, data, decisionlog.Options{})
	mustAppend(t, l, aBatch()...)
	count := func(s *segment.Snapshot) error {
		st, err := Count(t.Context(), s)
		if err != nil {
			return err
		}
		r, err := Make(t.Context(), s, Options{})
		if err != nil {
			return err
		}
		if st.Allowed+st.Denied != 30 || st.Kinds[format.KindBatch] != 1 || r.Population.Allowed+r.Population.Denied != 30 || r.Population.Kinds[format.KindBatch] != 1 {
			t.Errorf("got %+v, %+v", st, r.Population)
		}
		if st.Disk == 0 || len(st.Segments) == 0 {
			t.Errorf("got %+v", st)
		}
		return nil
	}
	if err := count(snapshotNow(t, l)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := segment.Read(data, count); err != nil {
		t.Fatal(err)
	}
}
