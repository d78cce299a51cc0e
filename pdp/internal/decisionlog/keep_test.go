package decisionlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// kept is a log under test, and the lines it is to have, as they were first seen.
type kept struct {
	*testing.T
	data  string
	log   *Log
	lines [][]byte
	gone  map[int64]string // sequence → why
	// pended are the ids of what was appended without looking for it.
	pended map[string]bool
}

func keepLog(t *testing.T) *kept {
	k := &kept{T: t, data: memory(t), gone: map[int64]string{}, pended: map[string]bool{}}
	k.open()
	t.Cleanup(func() { k.ok(k.log.Close()) })
	return k
}

func (k *kept) open() {
	k.Helper()
	l, err := Open(k.data, Options{Checkpoints: Checkpoints{Every: time.Hour, Idle: time.Hour}, Index: true})
	k.ok(err)
	k.log = l
	k.look()
}

func (k *kept) reopen() {
	k.Helper()
	k.ok(k.log.Close())
	k.ok(JudgeDirectory(k.data))
	k.open()
}

func (k *kept) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

// look takes in what is new.
func (k *kept) look() {
	k.Helper()
	k.ok(k.log.Flush(k.Context()))
	for r, err := range k.log.Records(k.Context(), uint64(len(k.lines)), k.log.Size()) {
		k.ok(err)
		k.lines = append(k.lines, bytes.Clone(r.Line))
	}
}

// append records decisions, each with a secret of its own.
func (k *kept) append(ids ...string) {
	k.Helper()
	var entries []Entry
	for _, id := range ids {
		entries = append(entries, entryOf(id, len(id)%2 == 0))
	}
	err := k.log.Append(k.Context(), entries)
	k.ok(err)
	k.look()
}

func entryOf(id string, allow bool) Entry {
	tenant := "default"
	if strings.HasSuffix(id, "7") {
		tenant = "acme"
	}
	return Entry{ID: id, Kind: KindDecision, Tenant: tenant, Caller: "key:pep",
		Request: &Request{
			Subject:  jsontext.Value(fmt.Sprintf(`{"type":"user","id":"subject-of-%s"}`, id)),
			Action:   jsontext.Value(`{"name":"read"}`),
			Resource: jsontext.Value(`{"type":"doc","id":"plan"}`),
			Context:  jsontext.Value(fmt.Sprintf(`{"note":"content-of-%s"}`, id)),
		},
		Decision: &Decision{Allow: allow, Determining: []string{"p1"}}}
}

// check compares the log with the lines it is to have.
func (k *kept) check() {
	k.Helper()
	k.look()
	var want [][]byte
	for i, line := range k.lines {
		if k.gone[int64(i)] == "" {
			want = append(want, line)
		}
	}
	files := map[uint64][]string{}
	for i, line := range k.lines {
		for _, file := range newFiles(line) {
			known := files[file.Segment]
			if !strings.HasPrefix(file.Replaces, DigestPrefix) || len(known) > 0 && !slices.Contains(known, file.Replaces) {
				k.Errorf("record %d replaces the file %s of segment %d, and %s are on record", i, file.Replaces, file.Segment, known)
			}
			files[file.Segment] = append(known, file.Replaces, file.Digest)
		}
	}
	if len(k.log.Segments()) > 1 { // else there is nothing that can be read beside the writer
		k.ok(JudgeDirectory(k.data))
	}
	got, _ := k.export(ExportOptions{})
	if len(got) != len(want) {
		k.Fatalf("%d records are exported, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			k.Fatalf("record line %d:\n%s\nwant\n%s", i, got[i], want[i])
		}
	}
}

// holds reports which files of the data directory hold a string.
func (k *kept) holds(secret string) []string { return k.holding(secret)[secret] }

// holding reports for each string which files of the data directory hold it.
func (k *kept) holding(secrets ...string) map[string][]string {
	k.Helper()
	var content bytes.Buffer // of one file after the other: they are long, and mostly zeros
	files := map[string][]string{}
	k.ok(filepath.WalkDir(k.data, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) { // an index that was being written has its name now, or is given up
			return nil
		}
		k.ok(err)
		content.Reset()
		_, err = content.ReadFrom(f)
		_ = f.Close()
		for _, secret := range secrets {
			if bytes.Contains(content.Bytes(), []byte(secret)) {
				files[secret] = append(files[secret], path)
			}
		}
		return err
	}))
	return files
}

type seenSalt struct {
	Recorded
	Salt string `json:"salt"`
}

func (k *kept) seen(line []byte) (s seenSalt) {
	k.Helper()
	k.ok(json.Unmarshal(line, &s))
	return s
}

func snapshotNow(tb testing.TB, l *Log) *Snapshot {
	tb.Helper()
	if _, err := l.Checkpoint(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	s, err := l.Snapshot()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
