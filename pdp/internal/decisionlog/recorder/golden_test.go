package recorder_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// The goldens have the bytes of records, exports and proofs, and what readers make of them. Clock, ids, keys and salts are
// fixed, so that any change of a byte is a change of the format, of a mask or of a hash. cryptotest fixes keys and salts
// for the whole process, so these tests must not be parallel.

var update = flag.Bool("update", false, "write the goldens")

// never is longer than any test runs.
const never = 1_000_000 * time.Hour

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// compareGolden compares a text with a file of testdata/golden, and reports the first lines that differ: after a record has changed,
// the checkpoint of the log is another one, too.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	is, want := strings.Split(got, "\n"), strings.Split(string(must(os.ReadFile(path))), "\n")
	if len(is) != len(want) {
		t.Errorf("%s: %d lines, want %d", path, len(is), len(want))
	}
	different := 0
	for n := 0; n < min(len(is), len(want)) && different < 3; n++ {
		if is[n] != want[n] {
			t.Errorf("%s:%d\ngot  %s\nwant %s", path, n+1, is[n], want[n])
			different++
		}
	}
}

// book is a log on disk and the recorder that writes it.
type book struct {
	t     *testing.T
	data  string
	log   *decisionlog.Log
	mask  *mask.Masker
	clock atomic.Int64
	ids   atomic.Int64
	seed  uint64
}

func openBook(t *testing.T, name, data string, seed uint64) *book {
	t.Helper()
	b := &book{t: t, data: data, seed: seed << 32}
	b.clock.Store(time.Date(2026, 11, 30, 9, 0, 0, 123_456_789, time.UTC).UnixNano())
	b.mask = must(mask.New(bytes.Repeat([]byte{7}, mask.KeySize), []string{"/context/arguments/*/pin", "/subject/properties/badge", "/context/list/1"}))
	b.nextStep()
	b.log = must(decisionlog.Open(data, decisionlog.Options{
		Origin:      "policy-service/" + name,
		Kinds:       []string{format.KindApproval, format.KindCapability},
		Now:         func() time.Time { return time.Unix(0, b.clock.Load()) },
		NewID:       func() string { return fmt.Sprintf("own-%d", b.ids.Add(1)) },
		SegmentAge:  never,
		Checkpoints: decisionlog.Checkpoints{Records: 1 << 30, Bytes: 1 << 40, Every: never, Idle: never},
	}))
	t.Cleanup(func() { _ = b.log.Close() })
	return b
}

func (b *book) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// nextStep moves the clock and sets the seed of salts and keys, so that a step does not depend on how much randomness the
// steps before it read.
func (b *book) nextStep() {
	b.seed++
	b.clock.Add(int64(time.Second))
	cryptotest.SetGlobalRandom(b.t, b.seed)
}

func (b *book) now() time.Time { return time.Unix(0, b.clock.Load()).UTC() }

func (b *book) record(records ...pdp.Record) {
	b.t.Helper()
	b.nextStep()
	r := recorder.Recorder{
		Log:   b.log,
		Mask:  func(context.Context) *mask.Masker { return b.mask },
		GoOn:  func(context.Context) error { return nil },
		Waits: func(context.Context) {},
	}
	b.ok(r.Record(b.t.Context(), records))
}

func (b *book) append(entries ...record.Entry) {
	b.t.Helper()
	b.nextStep()
	b.ok(b.log.Append(b.t.Context(), entries))
}

// Append implements [recorder.Log] for events, whose ids are random and begin with the time of the machine.
func (b *book) Append(ctx context.Context, entries []record.Entry) error {
	for n := range entries {
		entries[n].ID = fmt.Sprintf("event-%d", b.ids.Add(1))
	}
	return b.log.Append(ctx, entries)
}

// batch records the items of a body. If there are fewer answers than items, the last answer is repeated.
func (b *book) batch(id, body string, answers ...evaluation.Decision) {
	b.t.Helper()
	batch := must(evaluation.DecodeBatch([]byte(body), "acme", evaluation.DefaultLimits()))
	records := make([]pdp.Record, len(batch.Items))
	for n, item := range batch.Items {
		d := answers[min(n, len(answers)-1)]
		d.ID, d.Malformed = fmt.Sprint(id, ".", n), item.Err
		records[n] = pdp.Record{
			ID: d.ID, Bundle: d.Bundle, Time: b.now(), Call: pdp.Call{Request: item.Request, Asker: evaluation.Asker{Name: "key:pep", Registered: true}},
			Item: pdp.Item{Batch: id, Size: batch.Size, Inherits: item.Inherits()}, Decision: d,
		}
	}
	b.record(records...)
}

// snapshot makes a checkpoint and returns the log up to it.
func (b *book) snapshot() export.Log {
	b.t.Helper()
	b.nextStep()
	_ = must(b.log.Checkpoint(b.t.Context()))
	return export.Log{Snapshot: must(b.log.Snapshot())}
}

// exportVerified returns an export. Verify must accept it, unless it is a table: then what Export returns stands below it.
func (b *book) exportVerified(l export.Log, o export.Options) string {
	b.t.Helper()
	var out strings.Builder
	done := must(l.Export(b.t.Context(), &out, o))
	if o.Format == "csv" {
		return out.String() + fmt.Sprintf("%+v\n", done)
	}
	if r := verify.Export(strings.NewReader(out.String()), verify.Options{}); !r.Verified() {
		b.t.Errorf("an export is not verified: %v", r.Problem)
	}
	return out.String()
}

// TestGolden writes every kind of record, and compares all that is read, exported and proved with the goldens.
func TestGolden(t *testing.T) {
	b := openBook(t, "golden", t.TempDir(), 1)
	first := writeEveryKind(b)
	l := b.snapshot()
	compareGolden(t, "log.ndjson", b.exportVerified(l, export.Options{}))
	compareGolden(t, "proofs.ndjson", b.exportVerified(l, export.Options{Proofs: true, Bundles: true}))
	compareGolden(t, "tenant.ndjson", b.exportVerified(export.Log{Snapshot: l.For([]string{"zeta"})}, export.Options{Filter: record.Filter{Text: "Zoë"}}))
	compareGolden(t, "item.ndjson", b.exportVerified(l, export.Options{Filter: record.Filter{Resource: "doc/b1"}}))
	compareGolden(t, "table.csv", b.exportVerified(l, export.Options{Format: "csv", BOM: true}))

	out := &strings.Builder{}
	for _, id := range []string{"d-proof", "b.1", "p.0"} {
		writeHeading(out, "prove "+id)
		b.ok(l.Prove(t.Context(), out, id))
		record := must(l.Find(id))
		text := must(l.Proof(record, id)).Text()
		writeSection(out, "proof "+id, "%s%+v", text, verify.Proof(record.Line, text, verify.Options{}).Code)
	}
	writeHeading(out, "consistency")
	b.ok(l.Consistency(t.Context(), out, first))
	compareGolden(t, "proofs.txt", out.String())
	compareGolden(t, "reads.txt", b.readVouched())
	compareGolden(t, "records.txt", b.readRecords())
	compareGolden(t, "queries.txt", b.queryPages())

	large := openBook(t, "large", t.TempDir(), 2)
	writeManyRecords(large)
	whole := large.snapshot()
	compareGolden(t, "large.ndjson", large.exportVerified(whole, export.Options{Filter: record.Filter{Kind: format.KindPossible}}))
	out = &strings.Builder{}
	for _, tile := range []tlog.Tile{{H: 8, L: 0, N: 0, W: 256}, {H: 8, L: 0, N: 1, W: 40}, {H: 8, L: 1, N: 0, W: 1}} {
		hashes := must(large.log.Tile(tile))
		writeSection(out, tile.Path(), "%s", strings.Join(regexp.MustCompile(`.{44}`).FindAllString(base64.StdEncoding.EncodeToString(hashes), -1), "\n"))
	}
	compareGolden(t, "tiles.txt", out.String())

	admin := export.Options{Filter: record.Filter{Kind: format.KindAdmin}}
	merged := &bytes.Buffer{}
	_ = must(export.Merge(merged, []export.Input{{Name: "l", Reader: strings.NewReader(large.exportVerified(whole, admin))}, {Name: "g", Reader: strings.NewReader(b.exportVerified(l, admin))}}))
	compareGolden(t, "merged.ndjson", merged.String())

	b.ok(b.log.KeepWitnessed(first))
	compareGolden(t, "witnessed.ndjson", b.exportVerified(l, export.Options{Filter: record.Filter{Event: format.EventStart}}))
	b.nextStep()
	b.ok(b.log.Close())
	out = &strings.Builder{}
	writeJSON(out, "directory", verify.Directory(b.data, verify.Options{}))
	writeJSON(out, "merge", verify.Export(bytes.NewReader(merged.Bytes()), verify.Options{Strict: true}))
	cursor := must(export.Tail(t.Context(), b.data, export.TailOptions{After: -1, Filter: record.Filter{Decision: record.Deny}, Inherited: func(id string, r record.Record) error {
		writeSection(out, "inherited from "+id, "%d %s", r.Sequence, r.Leaf)
		return nil
	}}, func(sequence int64, _ []byte) error { writeSection(out, "tail", "%d", sequence); return nil }))
	writeSection(out, "cursor", "%d", cursor)
	compareGolden(t, "verify.txt", out.String())
}

// TestGoldenCrash opens copies of a log that was not closed, one of them without the MAC of its segment, and compares the
// records with the goldens.
func TestGoldenCrash(t *testing.T) {
	b := openBook(t, "crashed", t.TempDir(), 3)
	b.record(pdp.Record{ID: "d", Call: pdp.Call{Request: requestWith(`{}`)}, Decision: evaluation.Decision{Allow: true}})
	_ = must(b.log.ByID("d")) // it is in the segment, and not in the journal alone
	for n, name := range []string{"crashed.ndjson", "unsigned.ndjson"} {
		data := t.TempDir()
		b.ok(os.CopyFS(data, os.DirFS(b.data)))
		b.ok(os.Chmod(filepath.Join(data, format.KeyFile), 0o600))
		if name == "unsigned.ndjson" {
			db := must(bbolt.Open(filepath.Join(data, format.LogDir, fmt.Sprintf(format.SegmentName, 1)), 0o600, nil))
			b.ok(db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte(format.BucketMeta)).Delete([]byte(format.MetaHead))
			}))
			b.ok(db.Close())
		}
		again := openBook(t, "crashed", data, uint64(10+n))
		again.nextStep()
		b.ok(again.log.Rotate(t.Context()))
		compareGolden(t, name, again.exportVerified(again.snapshot(), export.Options{}))
	}
}

// volatile matches what depends on the order of transactions in a segment file: the size and digests of the file, and
// all hashes and signatures of records that name these.
var volatile = regexp.MustCompile(`(size"+:)\d+(,"+digest"+:"+sha256:)|[0-9a-f]{64}|[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{88,}=*`)

// TestGoldenRemoved removes content by redaction and retention, and compares what is left with the golden, in which ?
// replaces volatile parts.
func TestGoldenRemoved(t *testing.T) {
	b := openBook(t, "removed", t.TempDir(), 5)
	items := `{"subject":{"type":"user","id":"a","properties":{"level":3}},"action":{"name":"read"},"evaluations":[{"resource":{"type":"doc","id":"1"}},{"resource":{"type":"doc","id":"2"}},{"resource":{"type":"doc","id":"3"}}]}`
	b.batch("old", items, evaluation.Decision{Allow: true})
	_ = b.snapshot()
	b.nextStep()
	b.ok(b.log.Rotate(t.Context()))
	b.clock.Add(int64(time.Hour))
	b.batch("b", items, evaluation.Decision{Allow: true})
	b.nextStep()
	b.ok(b.log.Redact(t.Context(), "key:admin", "b.1", "asked \"by\" <its> subject"))
	b.nextStep()
	_ = must(b.log.RedactAll(t.Context(), "", "and these", "b.1", "b.2", "b"))
	b.nextStep()
	retired := must(b.log.Retain(t.Context(), decisionlog.Retention{Age: 30 * time.Minute}, b.now()))
	l := b.snapshot()
	out := &strings.Builder{}
	for _, id := range []string{"b", "b.1", "b.2"} {
		r, err := l.ByID(id)
		writeSection(out, id, "%s %s %v", r.Leaf, r.Gone, err)
	}
	writeSection(out, "retired", "%d", retired.Records)
	item := must(b.log.Recorded(must(l.ByID("b.0")).Line))
	writeSection(out, "b.0", "%s lacks %v", item.Asked, item.Gone)
	replaced := func(text string) string { return volatile.ReplaceAllString(text, "$1?$2") }
	for _, o := range []export.Options{{}, {Format: "csv"}} {
		writeSection(out, "export "+o.Format, "%s", replaced(b.exportVerified(l, o)))
	}
	b.nextStep()
	b.ok(b.log.Close())
	text := &strings.Builder{}
	writeJSON(text, "verify", verify.Directory(b.data, verify.Options{}))
	compareGolden(t, "removed.txt", out.String()+replaced(text.String()))
}

func writeHeading(out *strings.Builder, name string) { fmt.Fprintf(out, "== %s\n", name) }

func writeSection(out *strings.Builder, name, format string, values ...any) {
	writeHeading(out, name)
	fmt.Fprintf(out, format+"\n", values...)
}

func writeJSON(out *strings.Builder, name string, v any) {
	writeSection(out, name, "%s", must(json.Marshal(v, json.Deterministic(true))))
}

// readVouched returns the checkpoints, and what the log says of records that it vouches for.
func (b *book) readVouched() string {
	b.t.Helper()
	ctx, out := b.t.Context(), &strings.Builder{}
	for c, err := range b.log.Checkpoints(ctx, 0, b.log.Size()+1) {
		b.ok(err)
		writeSection(out, "checkpoint", "%s%d %s %s %q", c.Note, c.Size, c.Root, c.Time, c.NextKey)
	}
	writeSection(out, "signed", "%s", must(b.log.Signed()).Note)
	for _, id := range []string{"d-full", "approval-2"} {
		r := must(b.log.Attest(ctx, id))
		writeSection(out, "attest "+id, "%d %s %s", r.Sequence, r.Leaf, tlog.RecordHash(r.Line))
	}
	for _, id := range []string{"ap-1", "cap-0", "cap-1"} {
		b.ok(b.log.Naming(ctx, 0, map[string]bool{id: true}, func(r record.Record) error { writeSection(out, "naming "+id, "%d", r.Sequence); return nil }))
	}
	b.ok(b.log.Events(ctx, func(r *record.Recorded) error {
		writeSection(out, "event", "%d %s", r.Sequence, r.Event)
		return nil
	},
		format.EventStart, format.EventAPIKeys, format.EventKeyRotated))
	v := must(b.log.Vouched(ctx, func(r *record.Recorded, vouched bool) error {
		writeSection(out, "vouched", "%d %s %t", r.Sequence, r.Event, vouched)
		return nil
	}, format.EventAPIKeys, format.EventStart))
	writeSection(out, "vouched", "%+v", v)
	record := must(b.log.ByID("d-full")).Line
	writeSection(out, "mask after", "%s", b.mask.After("was it hunter22hunter, or tiger333tiger?", record))
	people := requestWith(secrets)
	writeSection(out, "mask for people", "%s", must(b.mask.Apply(people).ForPeople(people).Request.MarshalJSON()))
	return out.String()
}

// readRecords returns each record as readers have it: resolved, with its request, its call and its questions.
func (b *book) readRecords() string {
	b.t.Helper()
	out := &strings.Builder{}
	loaded, problems := pdp.Load(pdp.FS(fstest.MapFS{"p.cedar": {Data: []byte(policies["p.cedar"])}, "bundle.yaml": {Data: []byte(policies["bundle.yaml"])}}))
	if problems.Refuse() {
		b.t.Fatal(problems)
	}
	asked := func(r *record.Recorded) {
		request, hidden, err := r.Request(evaluation.DefaultLimits())
		if err == nil {
			writeSection(out, "request", "%s %v %v %+v", must(request.MarshalJSON()), request.Shape, request.Unknown.Pointers(), hidden)
		} else if len(r.Asked) > 0 {
			writeSection(out, "request", "%v", err)
		}
		if call, err := recorder.CallOf(r, loaded, evaluation.DefaultLimits()); err == nil {
			writeSection(out, "call", "%+v %s %+v %q %+v %q %+v", call.Asker, call.Now.UTC(), call.Hidden, call.Approved, call.Capability, call.NoCapability, call.Continued)
		}
	}
	for record, err := range b.log.Records(b.t.Context(), 0, b.log.Size()) {
		b.ok(err)
		r := must(b.log.Recorded(record.Line))
		possible, impossible, err := r.Counts()
		b.ok(err)
		writeSection(out, fmt.Sprintf("record %d", r.Sequence), "%s\nleaf %s, asked %s, answer %q, batch %q %d, approvals %v, bundle %s, %d possible, %d impossible, receipt %+v",
			must(json.Marshal(r, json.Deterministic(true))), record.Leaf, r.Asked, r.Answer(), r.BatchID(), r.Batch.Sequence, r.Approvals(), must(r.NamedBundle()), possible, impossible, r.Receipt())
		asked(&r)
		if r.Items == nil {
			continue
		}
		plain, resolved := must(r.Questions()), must(r.ResolvedQuestions())
		for n := range resolved {
			one := must(r.Question(resolved[n].ID))
			writeSection(out, "question "+one.ID, "%s\nmasked %v of %v, asked %s", must(json.Marshal(one, json.Deterministic(true))), plain[n].Masked, resolved[n].Masked, one.Asked)
			asked(&one)
		}
	}
	return out.String()
}

// queryPages returns the sequences on a page of each filter.
func (b *book) queryPages() string {
	b.t.Helper()
	out := &strings.Builder{}
	for _, q := range []decisionlog.Query{
		{Limit: 20}, {Newest: true, Cursor: decisionlog.End, Limit: 20}, {Cursor: 9, Limit: 5},
		{Filter: record.Filter{Tenants: []string{"zeta"}}}, {Filter: record.Filter{Tenant: "zeta"}},
		{Filter: record.Filter{From: b.now().Add(-9 * time.Second), To: b.now().Add(-2 * time.Second)}},
		{Filter: record.Filter{Kind: format.KindPossible}}, {Filter: record.Filter{Decision: record.Deny}},
		{Filter: record.Filter{Decision: record.Allow}}, {Filter: record.Filter{Decision: record.Waiting}},
		{Filter: record.Filter{Decision: record.Possible}}, {Filter: record.Filter{Decision: record.Impossible}},
		{Filter: record.Filter{Subject: "user/alice"}}, {Filter: record.Filter{Subject: "bot"}}, {Filter: record.Filter{Resource: "doc/b1"}},
		{Filter: record.Filter{Action: "write"}}, {Filter: record.Filter{Policy: "p2"}}, {Filter: record.Filter{Event: format.EventAPIKeys}},
		{Filter: record.Filter{Of: "d-full"}}, {Filter: record.Filter{Approval: "ap-1"}}, {Filter: record.Filter{Capability: "cap-0"}},
		{Filter: record.Filter{Text: "zoë"}}, {Filter: record.Filter{Text: "inherited text"}}, {Filter: record.Filter{Text: "hunter22"}}, {Filter: record.Filter{Text: "masked:"}},
	} {
		if q.Limit == 0 {
			q.Limit = 100
		}
		page := must(b.log.Query(b.t.Context(), q))
		var sequences []uint64
		for _, line := range page.Lines {
			sequences = append(sequences, must(record.Parse(line)).Sequence)
		}
		name := must(json.Marshal(q.Filter, json.Deterministic(true)))
		writeSection(out, fmt.Sprintf("%s newest %t from %d", name, q.Newest, q.Cursor), "%v, next %d, more %t, examined %d", sequences, page.Next, page.More, page.Examined)
	}
	return out.String()
}
