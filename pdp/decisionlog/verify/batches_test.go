package verify_test

import (
	"bytes"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
)

const inheriting = `"request":{"subject":{"type":"user","id":"alice"}},"inherits":["context"],"decision":true`

// lone appends a record that says that it inherits.
func (w *writer) lone(id string) {
	w.keep(w.named(id, format.KindDecision, inheriting))
	w.commit(w.lines[len(w.lines)-1:])
}

// An item that inherits from a record that nobody wrote is found missing, however the
// record is missing: no part of a request is left out unseen.
func TestItemWithoutTheRecordOfItsBatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		write func(w *writer) (sequence int)
		want  verify.Code
	}{
		"in order":         {func(w *writer) int { w.batch(5); w.batch(2); return 0 }, verify.Verified},
		"no record at all": {func(w *writer) int { w.lone("0190-b9.0"); return 1 }, verify.Missing},
		"of another batch": {func(w *writer) int { w.batch(3); w.lone("0190-b9.0"); return 5 }, verify.Missing},
		"of an id no item": {func(w *writer) int { w.batch(3); w.lone("0190-b1"); return 5 }, verify.Missing},
		"another between":  {func(w *writer) int { w.batch(3); w.records(1); w.lone("0190-b1.3"); return 6 }, verify.Missing},
		"a batch between":  {func(w *writer) int { w.batch(3); w.batch(1); w.lone("0190-b1.3"); return 7 }, verify.Missing},
		"in another segment": {func(w *writer) int {
			w.batch(3)
			w.checkpoint()
			w.seal()
			w.lone("0190-b1.3")
			return 6
		}, verify.Missing},
		"redacted": {func(w *writer) int {
			w.batch(3)
			w.checkpoint()
			w.seal()
			w.remove(1, 0, 5, []int{1}, format.WhyRedacted)
			return 0
		}, verify.Verified},
		"redacted with its first items": {func(w *writer) int {
			w.batch(5)
			w.checkpoint()
			w.seal()
			w.remove(1, 0, 7, []int{1, 2, 3}, format.WhyRedacted)
			file := w.file(1, 0, 7)
			file.Replaces = file.Digest
			w.admin(format.EventRedacted, map[string]any{"sequence": 2, "id": "x", "reason": "r", "file": file})
			w.admin(format.EventRedacted, map[string]any{"sequence": 3, "id": "x", "reason": "r", "file": file})
			return 0
		}, verify.Verified},
		"an item of the batch before is redacted": {func(w *writer) int {
			w.batch(3)
			w.lone("0190-b9.0")
			w.checkpoint()
			w.seal()
			w.remove(1, 0, 6, []int{3}, format.WhyRedacted)
			return 5
		}, verify.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			w := newWriter(t, data)
			sequence := test.write(w)
			w.close()
			for form, r := range map[string]verify.Report{"directory": verify.Directory(data, verify.Options{}), "export": verify.Export(bytes.NewReader(w.export(nil, false)), verify.Options{})} {
				if r.Code != test.want || r.Problem != nil && r.Problem.Sequence != int64(sequence) {
					t.Errorf("%s: %v, %v; want %v of record %d", form, r.Code, r.Problem, test.want, sequence)
				}
			}
		})
	}
}

// An export with a filter holds the record of a batch for those who inherit from it, and
// is found out where it does not; where that record is gone, nobody is to blame.
func TestFilteredExportWithoutTheRecordOfABatch(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(3)
	w.batch(4) // 4..8
	w.records(2)
	w.close()
	one := func(n int) bool { return n == 7 }
	r, got := read(t, exportOf(w.export(one, false)), verify.Options{})
	if !r.Verified() || len(got) != 2 || got[4] == "" || got[7] == "" {
		t.Errorf("with it: %+v, %v, %d records", r, r.Problem, len(got))
	}
	if r, got := read(t, exportOf(w.export(func(n int) bool { return n == 8 }, false)), verify.Options{}); !r.Verified() || len(got) != 1 {
		t.Errorf("an item that inherits nothing: %v, %d records", r.Problem, len(got))
	}
	if r, got := read(t, exportOf(w.prove(7)), verify.Options{}); !r.Verified() || len(got) != 1 {
		t.Errorf("proved alone: %v", r.Problem)
	}
	w.of = map[int]int{} // so that it is left out
	bad := w.export(one, false)
	if r, _ := read(t, exportOf(bad), verify.Options{}); r.Code != verify.Missing || r.Problem.Sequence != 7 {
		t.Errorf("without it: %v, %v", r.Code, r.Problem)
	}
	ofTenants := bytes.Replace(bad, []byte(`"filter":{"tenant":"default"}`), []byte(`"filter":{"tenants":["default"]}`), 1)
	redacted := split(bytes.Clone(bad))
	for i, line := range redacted {
		if bytes.Contains(line, []byte(`"first":4,`)) {
			redacted[i] = bytes.Replace(line, []byte(`"filtered"`), []byte(`"redacted"`), 1)
		}
	}
	for what, changed := range map[string][]byte{"of tenants": ofTenants, "redacted": join(redacted)} {
		if bytes.Equal(changed, bad) {
			t.Fatalf("%s: it is no other", what)
		}
		if r, got := read(t, exportOf(join(mend(split(changed)))), verify.Options{}); !r.Verified() || got[7] != string(w.lines[7]) {
			t.Errorf("%s: %v", what, r.Problem)
		}
	}
}
