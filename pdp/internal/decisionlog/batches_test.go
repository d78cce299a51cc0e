package decisionlog

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

// batchLog is a log of batches of three tenants, single decisions and events between
// them, over three segments, in which records of batches and items were redacted.
func batchLog(t *testing.T, r *rand.Rand) (k *kept, whole map[string]string) {
	k, whole = keepLog(t), map[string]string{}
	var redacted []string
	for segment := range 3 {
		for n := range 12 {
			id := fmt.Sprintf("b%d-%d", segment, n)
			entries, requests := aBatch(id, []string{"default", "acme", "globex"}[r.IntN(3)], r.IntN(12), r.IntN)
			if r.IntN(4) == 0 { // in which nobody inherits: it has no record of its own
				entries, requests = entries[1:], map[string]string{}
				for i := range entries {
					entries[i].Inherits = nil
				}
			}
			maps.Copy(whole, requests)
			if r.IntN(2) == 0 {
				entries = append(entries, entryOf("single-"+id, true))
			}
			if len(entries) > 0 {
				mustAppend(t, k.log, entries...)
				if len(redacted) <= segment || r.IntN(36) == 0 {
					redacted = append(redacted, entries[r.IntN(min(3, len(entries)))].ID)
				}
			}
		}
		k.ok(k.log.Rotate(t.Context()))
	}
	k.look()
	for _, id := range redacted {
		record, err := k.log.ByID(id)
		k.ok(err)
		k.ok(k.log.Redact(t.Context(), "", id, "on request"))
		k.gone[int64(record.Sequence)] = format.WhyRedacted
	}
	k.look()
	return k, whole
}

// wanted is what an export with a filter has to hold, by looking at all records as often
// as it takes.
func (k *kept) wanted(f record.Filter) (lines []string) {
	k.Helper()
	var all []readItem
	for n, line := range k.lines {
		if k.gone[int64(n)] == "" {
			var i readItem
			k.ok(json.Unmarshal(line, &i))
			i.line = line
			all = append(all, i)
		}
	}
	for _, one := range all {
		passes, err := f.Matches(one.line)
		k.ok(err)
		for _, other := range all {
			its := strings.HasPrefix(other.ID, one.ID+".") && len(other.Inherits) > 0
			if one.Kind == "batch" && its && !passes {
				passes, err = f.Matches(other.line)
				k.ok(err)
			}
		}
		if passes {
			lines = append(lines, string(one.line))
		}
	}
	return lines
}

type readItem struct {
	ID, Kind string
	Inherits []string
	line     []byte
}

func batchFilter(r *rand.Rand) (f record.Filter) {
	pick := func(to *string, from ...string) {
		if r.IntN(3) == 0 {
			*to = from[r.IntN(len(from))]
		}
	}
	pick(&f.Decision, "allow", "deny")
	pick(&f.Resource, "doc-0", "doc-3", "doc/doc-7", "plan")
	pick(&f.Subject, "a", "user/a", "nobody")
	pick(&f.Tenant, "acme", "globex")
	pick(&f.Kind, format.KindDecision, format.KindBatch, format.KindAdmin)
	return f
}

// An export with a filter holds, besides what passes, the record of the batch of each
// item it holds that inherits from it, once and at its place, and no other. A stranger
// verifies it; made twice it is the same; and a table has no such rows.
func TestFilteredExportsCarryTheRecordsOfBatches(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	k, whole := batchLog(t, r)
	carried, inherited := 0, 0
	for n := range night.Cases(80) {
		f := batchFilter(r)
		if n == 0 {
			f = record.Filter{Decision: record.Allow} // items pass, and their batches do not
		}
		records, done := k.export(ExportOptions{Filter: f, Proofs: r.IntN(3) == 0})
		var got []string
		for _, line := range records {
			got = append(got, string(line))
			if passes, err := f.Matches(line); err == nil && !passes {
				carried++
			}
		}
		if want := k.wanted(f); !slices.Equal(got, want) || done.Records != int64(len(want)) {
			t.Fatalf("%+v: %d records, want %d", f, len(got), len(want))
		}
		var once, twice, table bytes.Buffer
		snapshot := snapshotNow(t, k.log)
		for _, o := range []struct {
			to     *bytes.Buffer
			format string
		}{{&once, "ndjson"}, {&twice, "ndjson"}, {&table, "csv"}} {
			_, err := WriteExport(t.Context(), snapshot, o.to, ExportOptions{Filter: f, Format: o.format})
			k.ok(err)
		}
		if !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatalf("%+v: made twice it is another", f)
		}
		if rows := strings.Count(table.String(), ",batch,"); f.Kind == format.KindDecision && rows > 0 {
			t.Errorf("%+v: a table has %d rows of batches", f, rows)
		}
		inherited += k.wholeRequests(&table, whole)
	}
	if carried == 0 || inherited == 0 {
		t.Error("no filter needed the record of a batch: this test cannot fail")
	}
	for _, tenants := range [][]string{{"acme"}, {"acme", "globex"}, {}} { // who sees some tenants only
		s := snapshotNow(t, k.log).For(tenants)
		var b bytes.Buffer
		_, err := WriteExport(t.Context(), s, &b, ExportOptions{Filter: record.Filter{Decision: "deny"}})
		k.ok(err)
		k.ok(JudgeExport(b.Bytes()))
		var got []string
		for line := range strings.Lines(b.String()) {
			if !strings.HasPrefix(line, ExportPrefix) {
				got = append(got, strings.TrimSuffix(line, "\n"))
			}
		}
		if want := k.wanted(record.Filter{Tenants: tenants, Decision: "deny"}); !slices.Equal(got, want) {
			t.Errorf("of %v: %d records, want %d", tenants, len(got), len(want))
		}
	}
}

// wholeRequests holds the requests in a table to those that were asked: each is whole, also if the record of the batch
// has no row, or names what is gone with that record. It returns how many items inherit something that is there.
func (k *kept) wholeRequests(table *bytes.Buffer, whole map[string]string) (inherited int) {
	k.Helper()
	rows, err := csv.NewReader(table).ReadAll()
	k.ok(err)
	column := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	lines := map[string][]byte{}
	for _, line := range k.lines {
		lines[idOf(line)] = line
	}
	for _, row := range rows[1:] {
		id, request := column(row, "id"), column(row, "request")
		if len(row) != len(rows[0]) || whole[id] == "" {
			continue
		}
		r, err := k.log.Recorded(lines[id])
		k.ok(err)
		rest, gone, _ := strings.Cut(request, `,"inherited_gone":`)
		switch {
		case len(r.Gone) > 0:
			list, err := json.Marshal(r.Gone)
			k.ok(err)
			if rest+"}" != string(r.Asked) || gone != string(list)+"}" {
				k.Errorf("%s: %s, want %s without %v", id, request, r.Asked, r.Gone)
			}
		case request != whole[id]:
			k.Errorf("%s: %s, want %s", id, request, whole[id])
		case len(r.Inherits) > 0:
			inherited++
		}
	}
	return inherited
}

// A followed log hands over the record of a batch before the first item that inherits
// from it, whatever the filter, or says that it is gone; never one twice in a row.
func TestTailHandsOverWhatIsInherited(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	k, whole := batchLog(t, r)
	k.append("last")
	k.ok(k.log.Close())
	defer k.open()
	given := 0
	for range 20 {
		f := batchFilter(r)
		var batch record.Record
		last, lines := "", 0
		_, err := Tail(t.Context(), k.data, TailOptions{After: int64(r.IntN(len(k.lines))) - 1, Filter: f, Inherited: func(id string, b record.Record) error {
			if id == last {
				t.Errorf("%+v: %s is handed over twice", f, id)
			}
			last, batch = id, b
			given++
			return nil
		}}, func(_ int64, line []byte) error {
			lines++
			item, err := record.Parse(line)
			k.ok(err)
			switch {
			case item.Kind == format.KindBatch:
				last, batch = item.ID, record.Record{Line: line}
			case item.BatchID() != "":
				got, err := record.Resolve(line, batch)
				k.ok(err)
				if item.BatchID() != last || batch.Line != nil && string(got.Asked) != whole[item.ID] || batch.Line == nil && len(got.Gone) == 0 {
					t.Errorf("%s after %s: got %s, want %s", item.ID, last, got.Asked, whole[item.ID])
				}
			}
			return nil
		})
		k.ok(err)
	}
	if given == 0 {
		t.Error("nothing was handed over: this test cannot fail")
	}
}

// A record that is shown or proved comes with that of its batch, and says what is gone with
// that.
func TestRecordsOfBatchesComeAlong(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	entries, whole := aBatch("b1", "acme", 30, rand.New(rand.NewPCG(1, 1)).IntN)
	mustAppend(t, k.log, entries...)
	var inherits, alone string
	for _, e := range entries[1:] {
		if len(e.Inherits) > 0 {
			inherits = e.ID
		} else {
			alone = e.ID
		}
	}
	records := func(all []byte) (ids []string) {
		k.ok(JudgeExport(all))
		for line := range bytes.Lines(all) {
			if !bytes.HasPrefix(line, []byte(ExportPrefix)) {
				item, err := record.Parse(line)
				k.ok(err)
				ids = append(ids, item.ID)
			}
		}
		return ids
	}
	prove := func(id string) []string {
		var b bytes.Buffer
		k.ok(WriteProof(t.Context(), snapshotNow(t, k.log), &b, id))
		return records(b.Bytes())
	}
	for id, want := range map[string][]string{inherits: {"b1", inherits}, alone: {alone}, "b1": {"b1"}} {
		if got := prove(id); !slices.Equal(got, want) {
			t.Errorf("%s is proved with %v, want %v", id, got, want)
		}
	}
	shown, err := snapshotNow(t, k.log).Show(t.Context(), inherits)
	k.ok(err)
	if string(shown.Record.Asked) != whole[inherits] || shown.Record.Batch.Line == nil || shown.Record.Gone != nil {
		t.Errorf("got %+v", shown)
	}
	k.ok(k.log.Redact(t.Context(), "", "b1", "on request"))
	if got := prove(inherits); !slices.Equal(got, []string{inherits}) {
		t.Errorf("redacted: proved with %v", got)
	}
	shown, err = snapshotNow(t, k.log).Show(t.Context(), inherits)
	k.ok(err)
	if shown.Record.Batch.Line != nil || len(shown.Record.Gone) == 0 || strings.Contains(string(shown.Record.Asked), "secret-of") {
		t.Errorf("redacted: got %+v", shown)
	}
	if files := k.holds("secret-of-b1"); files != nil {
		t.Errorf("the context that all inherited is still in %v", files)
	}
}

// A batch's record is no decision, and retention drops it with its items.
func TestARecordOfABatchIsNoDecision(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	entries, _ := aBatch("b1", "acme", 20, rand.New(rand.NewPCG(1, 1)).IntN)
	mustAppend(t, k.log, entries...)
	if page, err := k.log.Query(t.Context(), Query{Filter: record.Filter{Kind: format.KindBatch}, Limit: 10}); err != nil || len(page.Lines) != 1 || !bytes.Contains(page.Lines[0], []byte(`"id":"b1"`)) {
		t.Errorf("by its kind: %d, %v", len(page.Lines), err)
	}
	line := k.log.mustLine(t, "b1.19")
	k.ok(k.log.Rotate(t.Context()))
	done, err := k.log.Retain(t.Context(), Retention{Bytes: 1}, time.Now())
	k.ok(err)
	if done.Records == 0 {
		t.Fatal("nothing was dropped")
	}
	if r, err := k.log.Recorded(line); err != nil || r.Batch.Line != nil || len(r.Gone) != len(r.Inherits) {
		t.Errorf("of a line that was read before: %+v, %v", r, err)
	}
	var b bytes.Buffer
	_, err = exportOf(t.Context(), k.log, &b, ExportOptions{Filter: record.Filter{Decision: "allow"}})
	k.ok(err)
	k.ok(JudgeExport(b.Bytes()))
}

func (l *Log) mustLine(t *testing.T, id string) []byte {
	t.Helper()
	r, err := l.ByID(id)
	must(t, err)
	return r.Line
}
