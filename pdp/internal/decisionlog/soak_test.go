package decisionlog_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

// TestSoakDisk writes several times what retention allows for: the disk in use stays bounded, and the log verifies.
func TestSoakDisk(t *testing.T) {
	night.Soaks(t)
	const (
		records, kept = 400_000, 48 << 20
		segment       = 8 << 20
		batch         = 200
		hashes        = 100 // what stays of each record that was dropped
	)
	// Besides what retention keeps: the segment that is written to, the one that is prepared, and what was written
	// since retention looked.
	const bound = kept + 4*segment
	data := t.TempDir()
	l, err := decisionlog.Open(data, decisionlog.Options{SegmentBytes: segment})
	must(t, err)
	var retired, most int64
	for n := 0; n < records; n += batch {
		must(t, l.Append(t.Context(), soakEntries(n, batch)))
		if n%(20*batch) != 0 {
			continue
		}
		sealed(t, l, segment*3/2)
		done, err := l.Retain(t.Context(), decisionlog.Retention{Bytes: kept}, time.Now())
		must(t, err)
		retired += int64(done.Records)
		used := diskUse(t, filepath.Join(data, format.LogDir, "*"))
		most = max(most, used)
		if allowed := bound + hashes*retired; used > allowed {
			t.Fatalf("%d bytes on disk after %d records, more than %d", used, n, allowed)
		}
	}
	must(t, l.Close())
	if retired < records/2 {
		t.Errorf("%d records were retired of %d: nothing was tried", retired, records)
	}
	if report := verify.Directory(data, verify.Options{}); !report.Verified() {
		t.Errorf("%v: %v", report.Code, report.Problem)
	}
	t.Logf("%d records, %d retired, %d bytes on disk at most", records, retired, most)
}

func soakEntries(first, n int) []record.Entry {
	entries := make([]record.Entry, n)
	for i := range entries {
		entries[i] = record.Entry{
			ID: fmt.Sprint(first + i), Kind: format.KindDecision, Tenant: "default",
			Request:  &record.Request{Context: jsontext.Value(fmt.Sprintf(`{"n":%d,"text":"%0400d"}`, first+i, i))},
			Decision: &record.Decision{Determining: []string{"a"}, Bundle: "h1:abc"},
		}
	}
	return entries
}

// sealed waits until the segment that is written to is no larger than that. The log seals
// one that is full by itself, beside the appends, and on a slow disk many of these come first.
func sealed(t *testing.T, l *decisionlog.Log, size int64) {
	t.Helper()
	for {
		records, segments := l.Size(), l.Segments()
		if diskUse(t, segments[len(segments)-1].Path) <= size {
			return
		}
		if err := l.Beyond(t.Context(), records); err != nil { // the next segment begins with a record
			t.Fatal(err)
		}
	}
}

func diskUse(t *testing.T, pattern string) (bytes int64) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must(t, err)
	for _, name := range files {
		// By blocks, as du counts: what a file has in reserve at its end is on no disk.
		var info syscall.Stat_t
		if err := syscall.Stat(name, &info); err == nil { // gone where the log has replaced it meanwhile
			bytes += info.Blocks * 512
		}
	}
	return bytes
}
