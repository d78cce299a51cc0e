package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/night"
)

// real is a log by the real writer, of many segments, with all that it does to one.
func real(t testing.TB, data string) {
	l := openReal(t, data)
	appendReal(t, l, 0, 60)
	old, err := l.Checkpoint(t.Context())
	check(t, err)
	check(t, os.WriteFile(filepath.Join(data, "kept"), old, 0o600))
	check(t, l.Rotate(t.Context()))
	appendReal(t, l, 60, 130)
	check(t, l.Redact(t.Context(), "", id(70), "asked for"))
	_, err = l.RotateKey(t.Context(), "")
	check(t, err)
	appendReal(t, l, 130, 170)
	check(t, l.Close())
	l = openReal(t, data)
	check(t, l.Redact(t.Context(), "", id(150), "asked for, too"))
	_, err = l.Retain(t.Context(), decisionlog.Retention{Bytes: 400 << 10}, time.Now())
	check(t, err)
	appendReal(t, l, 170, 200)
	check(t, l.Close())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func id(n int) string { return fmt.Sprintf("0190a7b2-1c1d-7000-8000-%012d", n) }

func openReal(t testing.TB, data string) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.Open(data, decisionlog.Options{Origin: "log.example/real", Checkpoints: decisionlog.Checkpoints{Records: 50, Idle: time.Hour}})
	check(t, err)
	return l
}

func appendReal(t testing.TB, l *decisionlog.Log, from, to int) {
	t.Helper()
	var entries []record.Entry
	for n := from; n < to; n++ {
		entries = append(entries, record.Entry{ID: id(n), Kind: format.KindDecision, Tenant: []string{"a", "b"}[n%2],
			Request: &record.Request{Subject: jsontext.Value(`{"type":"user","id":"alice"}`), Action: jsontext.Value(`{"name":"read"}`),
				Resource: jsontext.Value(`{"type":"doc","id":"1"}`)},
			Decision: &record.Decision{Allow: true, Determining: []string{"permit"}, Bundle: "h1:x"}})
	}
	err := l.Append(context.Background(), entries)
	check(t, err)
}

func keysOf(t testing.TB, data string) []string {
	t.Helper()
	keys, err := segment.VerifierKeys(data)
	check(t, err)
	return keys
}

func exportReal(t testing.TB, data string, o export.Options) []byte {
	t.Helper()
	var out bytes.Buffer
	check(t, segment.Read(data, func(s *segment.Snapshot) error {
		_, err := export.Log{Snapshot: s}.Export(t.Context(), &out, o)
		return err
	}))
	return out.Bytes()
}

// TestReal: what the real writer writes, verifies, whole and in every form of export.
func TestReal(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	real(t, data)
	keys := keysOf(t, data)
	kept, err := os.ReadFile(filepath.Join(data, "kept"))
	check(t, err)
	newest := keys[len(keys)-1]
	var size int64
	for _, o := range []verify.Options{{}, {Key: keys[0]}, {Key: newest}, {Checkpoint: string(kept)}, {Key: newest, Checkpoint: string(kept)}} {
		r, got := read(t, directory(data), o)
		if !r.Verified() || r.Unsigned != 0 || r.Redacted+r.Retired == 0 || int64(len(got)) != r.Size-r.Redacted-r.Retired {
			t.Fatalf("%v of %d, %d returned: %+v", r.Problem, r.Size, len(got), r)
		}
		size = r.Size
	}
	for _, o := range []export.Options{{}, {Proofs: true}, {Filter: record.Filter{Tenant: "a"}, Proofs: true}} {
		r, got := read(t, exportOf(exportReal(t, data, o)), verify.Options{Key: newest, Checkpoint: string(kept)})
		if !r.Verified() || r.Size != size || int64(len(got)) != r.Records || r.Records+r.Skipped+r.Redacted+r.Retired != size {
			t.Errorf("%+v: %v: %+v", o, r.Problem, r)
		}
	}
	var proof bytes.Buffer
	check(t, segment.Read(data, func(s *segment.Snapshot) error {
		return export.Log{Snapshot: s}.Prove(t.Context(), &proof, id(180))
	}))
	if r, got := read(t, exportOf(proof.Bytes()), verify.Options{Key: newest}); !r.Verified() || len(got) != 1 {
		t.Errorf("proof: %v", r.Problem)
	}
	proof.Reset()
	check(t, segment.Read(data, func(s *segment.Snapshot) error {
		return export.Log{Snapshot: s}.Consistency(t.Context(), &proof, kept)
	}))
	if r := verify.Export(&proof, verify.Options{Key: strings.Join(keys, "\n")}); !r.Verified() {
		t.Errorf("consistency: %v", r.Problem)
	}
}

// TestRedactionsOfOtherTenantsAreNotMissed: an export of one tenant verifies, though a redaction of another tenant made a
// file that a redaction of this tenant replaced.
func TestRedactionsOfOtherTenantsAreNotMissed(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := openReal(t, data)
	appendReal(t, l, 0, 60)
	check(t, l.Rotate(t.Context()))
	for _, n := range []int{10, 11, 12} { // of the tenants a, b and a
		check(t, l.Redact(t.Context(), "", id(n), "asked for"))
	}
	check(t, l.Close())
	for _, o := range []export.Options{{}, {Filter: record.Filter{Tenant: "a"}}, {Filter: record.Filter{Tenants: []string{"a"}}}} {
		if r, _ := read(t, exportOf(exportReal(t, data, o)), verify.Options{}); r.Problem != nil {
			t.Errorf("%+v: %v", o, r.Problem)
		}
	}
}

// TestLive: beside a server sealed segments verify, with what was redacted meanwhile, and
// the rest is not claimed.
func TestLive(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := openReal(t, data)
	defer func() { check(t, l.Close()) }()
	appendReal(t, l, 0, 60)
	check(t, l.Rotate(t.Context()))
	appendReal(t, l, 60, 90)
	check(t, l.Redact(t.Context(), "", id(70), "asked for"))
	appendReal(t, l, 90, 100)
	r, got := read(t, directory(data), verify.Options{})
	if !r.Verified() || !r.Live || r.Size < 90 || r.Redacted != 1 || int64(len(got)) != r.Size-1 {
		t.Errorf("%v: %+v", r.Problem, r)
	}
	newest, err := l.Checkpoint(t.Context())
	check(t, err)
	if r = verify.Directory(data, verify.Options{Checkpoint: string(newest)}); r.Code != verify.Usage {
		t.Errorf("a checkpoint of what the server holds: %v: %v", r.Code, r.Problem)
	}
	// An export says of itself that it is so, and excuses nothing by it.
	r = verify.Export(bytes.NewReader(exportReal(t, data, export.Options{})), verify.Options{Checkpoint: string(newest)})
	expect(t, "an export", r, verify.Truncated, "made beside a running server")
}

// TestCrash: what a crash leaves is what was signed, and more that is not, and says so.
func TestCrash(t *testing.T) {
	t.Parallel()
	data, crashed := t.TempDir(), t.TempDir()
	l := openReal(t, data)
	appendReal(t, l, 0, 60)
	_, err := l.Checkpoint(t.Context())
	check(t, err)
	appendReal(t, l, 60, 75)
	check(t, l.Flush(t.Context()))
	check(t, os.CopyFS(crashed, os.DirFS(data))) // nobody writes: it waits for an hour to sign
	check(t, os.Chmod(filepath.Join(crashed, format.KeyFile), 0o600))
	check(t, l.Close())
	r, got := read(t, directory(crashed), verify.Options{})
	if !r.Verified() || r.Size != 61 || r.Unsigned != 15 || int64(len(got)) != r.Size {
		t.Errorf("%v: %+v", r.Problem, r)
	}
	if !strings.Contains(strings.Join(r.NotExcluded, ""), "covered by no checkpoint") {
		t.Errorf("%q", r.NotExcluded)
	}
	check(t, openReal(t, crashed).Close())
	if r = verify.Directory(crashed, verify.Options{}); !r.Verified() || r.Unsigned != 0 {
		t.Errorf("opened again: %v: %+v", r.Problem, r)
	}
}

// TestRealTampered: whatever happens to the bytes of a real log.
func TestRealTampered(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	real(t, data)
	w := &writer{t: t, data: data}
	names, err := filepath.Glob(filepath.Join(data, format.LogDir, "*.db"))
	check(t, err)
	w.segment = len(names)
	for n := len(names); n > 0; n-- { // a last one may be prepared ahead, and empty
		if info, err := os.Stat(w.path(n)); err == nil && info.Mode().Perm()&0o200 == 0 {
			w.segment = n + 1
			break
		}
	}
	tamper(t, w, night.Cases(*rounds/10))
}
