package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// kept is a log under test, and the lines it is to have, as they were first seen.
type kept struct {
	*testing.T
	data    string
	options Options
	disk    *faults // has the journal
	log     *Log
	lines   [][]byte
	gone    map[int64]string // sequence → why
	going   map[int64]string // what the removal that was prepared has gone
	// answered says of each id that was asked for whether that was answered, first has the lines of these.
	answered map[string]bool
	first    map[string][]byte
	hooks    hooks
}

func keepLog(t *testing.T) *kept {
	k := keep(t, memory(t))
	k.open()
	return k
}

// keep returns a log that is not open yet.
func keep(t *testing.T, data string) *kept {
	k := &kept{T: t, data: data, disk: newFaults(), gone: map[int64]string{}, going: map[int64]string{}}
	k.answered, k.first = map[string]bool{}, map[string][]byte{}
	k.options = k.disk.options(Options{Checkpoints: Checkpoints{Every: time.Hour, Idle: time.Hour}, Index: true})
	k.options.Journal.Step, k.options.On.Step = k.hooks.come, k.hooks.come
	k.options.On.Checkpoint = func(note []byte) { k.hooks.signed.Store(new(string(note))) }
	t.Cleanup(func() {
		k.hooks.goOn()
		if k.log != nil {
			k.ok(k.log.Close())
		}
	})
	return k
}

// hooks are called at each step of a log and of its journal.
type hooks struct {
	mu     sync.Mutex
	stands chan struct{}          // while it is there, the segment gets nothing of what is answered
	meet   func(step string)      // nil does nothing
	signed atomic.Pointer[string] // the newest checkpoint
}

func (h *hooks) come(step string) {
	h.mu.Lock()
	stands, meet := h.stands, h.meet
	h.mu.Unlock()
	if step == StepFill && stands != nil {
		<-stands
	}
	if meet != nil {
		meet(step)
	}
}

// set calls a function at each step from now on.
func (h *hooks) set(meet func(step string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.meet = meet
}

// hold keeps what is answered in the journal alone, until goOn.
func (h *hooks) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stands = make(chan struct{})
}

func (h *hooks) goOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stands != nil {
		close(h.stands)
		h.stands = nil
	}
}

// holds reports whether the writer fills nothing.
func (h *hooks) holds() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stands != nil
}

func (k *kept) open() {
	k.Helper()
	k.ok(k.start(k.Context()))
	k.look()
}

func (k *kept) start(context.Context) error {
	l, err := Open(k.data, k.options)
	if err == nil {
		k.log = l
	}
	return err
}

func (k *kept) reopen() {
	k.Helper()
	k.ok(k.log.Close())
	k.ok(JudgeDirectory(k.data))
	k.open()
}

func (k *kept) ok(err error) {
	k.Helper()
	must(k, err)
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
	var entries []record.Entry
	for _, id := range ids {
		entries = append(entries, entryOf(id, len(id)%2 == 0))
	}
	k.ok(k.ask(entries...))
	k.look()
}

func entryOf(id string, allow bool) record.Entry {
	tenant := "default"
	if strings.HasSuffix(id, "7") {
		tenant = "acme"
	}
	return record.Entry{ID: id, Kind: format.KindDecision, Tenant: tenant, Caller: "key:pep",
		Request: &record.Request{
			Subject:  jsontext.Value(fmt.Sprintf(`{"type":"user","id":"subject-of-%s"}`, id)),
			Action:   jsontext.Value(`{"name":"read"}`),
			Resource: jsontext.Value(`{"type":"doc","id":"plan"}`),
			Context:  jsontext.Value(fmt.Sprintf(`{"note":"content-of-%s"}`, id)),
		},
		Decision: &record.Decision{Allow: allow, Determining: []string{"p1"}}}
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
			if !strings.HasPrefix(file.Replaces, format.DigestPrefix) || len(known) > 0 && !slices.Contains(known, file.Replaces) {
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
	record.Recorded
	Salt string `json:"salt"`
}

func (k *kept) seen(line []byte) (s seenSalt) {
	k.Helper()
	k.ok(json.Unmarshal(line, &s))
	return s
}

func snapshotNow(tb testing.TB, l *Log) *segment.Snapshot {
	tb.Helper()
	if _, err := l.Checkpoint(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	s, err := l.Snapshot()
	must(tb, err)
	return s
}

// redaction is the removal of records that stand in one segment, which is sealed now.
func (k *kept) redaction(ids ...string) *removal {
	k.Helper()
	var all []redacted
	for _, id := range ids {
		one, err := k.log.findRedactable(k.Context(), id)
		k.ok(err)
		all = append(all, one)
		k.going[int64(one.sequence)] = format.WhyRedacted
	}
	k.look()
	return k.log.redaction("", "on request", all)
}

// retirement is the removal of so many segments, which are all that are sealed.
func (k *kept) retirement(many int) *removal {
	k.Helper()
	segments, reason, err := k.log.removals.findExpired(Retention{Age: time.Hour}, time.Now().Add(2*time.Hour))
	k.ok(err)
	if len(segments) != many || reason != "age" {
		k.Fatalf("%d segments, %q", len(segments), reason)
	}
	for i := range segments[many-1].First + segments[many-1].Records {
		k.going[int64(i)] = format.WhyRetired
	}
	k.look()
	return k.log.retirement(segments, reason)
}

// left are files of removals that nobody finished.
func (k *kept) left() []string {
	left, err := filepath.Glob(filepath.Join(k.data, format.LogDir, "*"+segment.NextSuffix))
	k.ok(err)
	return left
}
