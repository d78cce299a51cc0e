package decisionlog

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"strings"
	"testing"
)

func TestExportFiltered(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	for i := range 200 {
		k.append(fmt.Sprintf("r-%d", i))
	}
	k.ok(k.log.Redact(t.Context(), "", "r-17", "on request"))
	k.gone[18] = format.WhyRedacted // after log_created
	got, done := k.export(ExportOptions{Filter: record.Filter{Tenant: "acme"}, Proofs: true})
	// 19 decisions, and the redaction of the twentieth, which is the tenant's too.
	if len(got) != 20 || done.Records != 20 || done.Redacted != 1 || done.Skipped+21 != done.Size {
		t.Errorf("%d records, %+v", len(got), done)
	}
	for _, line := range got {
		if !bytes.Contains(line, []byte(`"tenant":"acme"`)) {
			t.Errorf("%s", line)
		}
	}
}

func TestExportProofsOfAll(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	for i := range 30 {
		k.append(fmt.Sprintf("r-%d", i))
	}
	if got, _ := k.export(ExportOptions{Proofs: true}); len(got) != 31 {
		t.Errorf("%d records", len(got))
	}
}

func TestExportAsTable(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("=1+1", "b")
	var b bytes.Buffer
	_, err := exportOf(t.Context(), k.log, &b, ExportOptions{Format: "csv"})
	k.ok(err)
	rows, err := csv.NewReader(&b).ReadAll()
	k.ok(err)
	if len(rows) != 4 || rows[2][1] != "'=1+1" || rows[3][1] != "b" {
		t.Errorf("%q", rows)
	}
}

func TestExportRefuses(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	for _, o := range []ExportOptions{{Format: "xml"}, {Filter: record.Filter{Decision: "maybe"}}} {
		if _, err := exportOf(t.Context(), k.log, &bytes.Buffer{}, o); err == nil {
			t.Errorf("%+v was exported", o)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := exportOf(ctx, k.log, &bytes.Buffer{}, ExportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What is done on a data directory, beside nobody.
func TestDataDirectory(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	store, err := segment.OpenBundles(k.data)
	k.ok(err)
	digest, err := store.Put(map[string][]byte{"a.cedar": []byte("permit(principal,action,resource);")})
	k.ok(err)
	entry := entryOf("with-bundle", true)
	entry.Decision.Bundle = digest
	err = k.log.Append(t.Context(), []record.Entry{entry})
	k.ok(err)
	old, err := k.log.Checkpoint(t.Context())
	k.ok(err)
	k.append("r-7", "r-8")
	k.ok(k.log.Close())
	defer k.open() // for the clean-up to close

	var shown segment.Shown
	var b bytes.Buffer
	var proof bytes.Buffer
	k.ok(segment.Read(k.data, func(s *segment.Snapshot) (err error) {
		shown, err = s.Show(t.Context(), "with-bundle")
		k.ok(err)
		k.ok(WriteConsistency(t.Context(), s, &b, old))
		k.ok(WriteProof(t.Context(), s, &proof, "r-7"))
		if err := WriteProof(t.Context(), s, io.Discard, "nothing"); !errors.Is(err, segment.ErrNotFound) {
			t.Error(err)
		}
		return nil
	}))
	if !strings.HasPrefix(string(shown.Files["a.cedar"]), "permit") || shown.Record.Sequence != 1 {
		t.Errorf("%+v", shown)
	}
	keys, err := segment.VerifierKeys(k.data)
	k.ok(err)
	k.ok(JudgeExport(b.Bytes(), keys...))
	k.ok(JudgeExport(proof.Bytes()))
	if n := bytes.Count(proof.Bytes(), []byte("\n")); n != 4 {
		t.Errorf("%d lines:\n%s", n, &proof)
	}
	var seen []int64
	cursor, err := Tail(t.Context(), k.data, TailOptions{After: -1, Filter: record.Filter{Kind: format.KindDecision}}, func(n int64, _ []byte) error {
		seen = append(seen, n)
		return nil
	})
	k.ok(err)
	if fmt.Sprint(seen) != "[1 2 3]" || cursor != int64(k.log.Size())-1 {
		t.Errorf("%v, cursor %d of %d", seen, cursor, k.log.Size())
	}
}
