// Package crashedlog makes no promise: it is for the tests of this module alone. It makes a decision log as a crash
// leaves it: call [Make], or [In] for a log that is there. It has records that only the journal has, and [Damage] makes
// some of them unreadable.
package crashedlog

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// ID is the id of record n of those that only the journal has, from 1.
func ID(n int) string { return fmt.Sprintf("in-the-journal-%d", n) }

// Secret stands in that record.
func Secret(n int) string { return fmt.Sprintf("content-of-%d-", n) }

// Make returns a data directory. Its log has two records, and its journal as many more as records says, each in a frame
// of its own.
func Make(t testing.TB, records int) (data string) {
	t.Helper()
	return In(t, t.TempDir(), records)
}

// In has a crash come to the log of a data directory, after so many records. It returns a copy of the directory as the crash
// leaves it.
func In(t testing.TB, live string, records int, kinds ...string) (data string) {
	t.Helper()
	var armed atomic.Bool
	stands, goOn := make(chan struct{}), make(chan struct{})
	log, err := decisionlog.Open(live, decisionlog.Options{
		Kinds:       kinds,
		Checkpoints: decisionlog.Checkpoints{Records: 1},
		On: decisionlog.Hooks{Checkpoint: func([]byte) {
			if armed.CompareAndSwap(true, false) { // the writer stands here, and fills nothing
				close(stands)
				<-goOn
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	held := make(chan error, 1)
	go func() {
		held <- log.Append(t.Context(), []record.Entry{{Kind: format.KindAdmin, Event: "held"}})
	}()
	<-stands
	for n := range records {
		if err := log.Append(t.Context(), []record.Entry{decision(n + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	data = t.TempDir()
	copyAll(t, live, data)
	close(goOn)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

func decision(n int) record.Entry {
	return record.Entry{
		ID:     ID(n),
		Kind:   format.KindDecision,
		Tenant: "default",
		Caller: "key:pep",
		Request: &record.Request{
			Subject:  jsontext.Value(`{"type":"user","id":"erin"}`),
			Action:   jsontext.Value(`{"name":"read"}`),
			Resource: jsontext.Value(fmt.Sprintf(`{"type":"doc","id":%q}`, Secret(n))),
		},
		Decision: &record.Decision{Allow: true},
	}
}

func copyAll(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Mkdir(filepath.Join(to, name), 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Damage alters a byte of the frame that record n stands in, and returns where the frame begins.
func Damage(t testing.TB, data string, n int) (offset int64) {
	t.Helper()
	const header, block = 2 * 4096, 4096 // see journal/format.go
	offset = header + block*int64(n-1)
	f, err := os.OpenFile(filepath.Join(data, format.LogDir, "journal.0"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := offset + 200
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, at); err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, at)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return offset
}
