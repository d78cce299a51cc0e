package decisionlog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/crashedlog"
)

// edited is the only segment of a log, as somebody with the disk edits it.
type edited struct {
	t      *testing.T
	data   string
	tx     *bbolt.Tx
	stored []tlog.Hash
	size   uint64
}

func edit(t *testing.T, data string, do func(*edited)) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(data, format.LogDir, "00000001.db"), 0o600, nil)
	must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		e := &edited{t: t, data: data, tx: tx}
		err := e.bucket(format.BucketHashes).ForEach(func(_, v []byte) error {
			for e.size++; len(v) > 0; v = v[tlog.HashSize:] {
				e.stored = append(e.stored, tlog.Hash(v[:tlog.HashSize]))
			}
			return nil
		})
		do(e)
		return err
	})
	must(t, errors.Join(err, db.Close()))
}

func (e *edited) bucket(name string) *bbolt.Bucket { return e.tx.Bucket([]byte(name)) }

func (e *edited) ReadHashes(indexes []int64) (all []tlog.Hash, err error) {
	for _, i := range indexes {
		all = append(all, e.stored[i])
	}
	return all, nil
}

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (e *edited) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// add adds a record like the last one.
func (e *edited) add() {
	line := e.bucket(format.BucketRecords).Get(key(e.size - 1))
	e.append([]byte(strings.Replace(string(line), fmt.Sprintf(`{"sequence":%d`, e.size-1), fmt.Sprintf(`{"sequence":%d`, e.size), 1)))
}

func (e *edited) append(line []byte) {
	hashes, err := tlog.StoredHashes(int64(e.size), line, e)
	e.ok(err)
	var value []byte
	for _, h := range hashes {
		value = append(value, h[:]...)
	}
	e.ok(errors.Join(e.bucket(format.BucketRecords).Put(key(e.size), line), e.bucket(format.BucketHashes).Put(key(e.size), value)))
	e.stored, e.size = append(e.stored, hashes...), e.size+1
}

func (e *edited) meta(name string, value []byte) {
	e.ok(e.bucket(format.BucketMeta).Delete([]byte(name)))
	if value != nil {
		e.ok(e.bucket(format.BucketMeta).Put([]byte(name), value))
	}
}

// stopped is a log of five records that was closed in good order.
func stopped(t *testing.T) (data string) {
	t.Helper()
	data = t.TempDir()
	log, err := decisionlog.Open(data, decisionlog.Options{})
	for n := range 4 {
		if err == nil {
			err = log.Append(t.Context(), []record.Entry{{ID: fmt.Sprint(n), Kind: format.KindDecision, Tenant: "t", Decision: &record.Decision{}}})
		}
	}
	if err == nil {
		err = log.Close()
	}
	must(t, err)
	return data
}

// started opens a log and closes it, and returns what verify says of it then, and how many starts after a crash are on record.
func started(t *testing.T, data string) (r verify.Report, crashes int) {
	t.Helper()
	log, err := decisionlog.Open(data, decisionlog.Options{})
	if err == nil {
		err = log.Close()
	}
	must(t, err)
	r = verify.Directory(data, verify.Options{Record: func(_ int64, line []byte) {
		if strings.Contains(string(line), `"event":"log_opened_after_crash"`) {
			crashes++
		}
	}})
	if !r.Verified() {
		t.Errorf("%+v", r.Problem)
	}
	if strict := verify.Directory(data, verify.Options{Strict: true}); (strict.Code == verify.Unsigned) != (len(r.UnsignedTails) > 0) {
		t.Errorf("strictly it is %v, and %+v are named", strict.Code, r.UnsignedTails)
	}
	for _, tail := range r.UnsignedTails {
		if says := fmt.Sprintf("records %d to %d are somebody else's", tail.From, tail.To); !strings.Contains(strings.Join(r.NotExcluded, "\n"), says) {
			t.Errorf("it does not say %q: %q", says, r.NotExcluded)
		}
	}
	return r, crashes
}

// TestNoUnsignedTailIsSignedInSilence: whatever somebody without log.key puts at the end of a segment, or takes from it
// as if it had ended so, a start says so, and says so for ever.
func TestNoUnsignedTailIsSignedInSilence(t *testing.T) {
	t.Parallel()
	tail := func(from, to int64, cause string) []verify.Tail {
		return []verify.Tail{{From: from, To: to, Cause: cause}}
	}
	cleanAt := func(n uint64) func(*edited) { return func(e *edited) { e.meta(format.MetaClean, key(n)) } }
	for name, c := range map[string]struct {
		do      []func(*edited)
		want    []verify.Tail
		crashes int
	}{
		"nothing":              {nil, nil, 0},
		"a record":             {[]func(*edited){func(e *edited) { e.add() }}, tail(5, 5, "wrong"), 1},
		"two as if all closed": {[]func(*edited){func(e *edited) { e.add(); e.add() }, cleanAt(7)}, tail(5, 6, "wrong"), 1},
		"without a head":       {[]func(*edited){func(e *edited) { e.add(); e.meta(format.MetaHead, nil) }}, tail(5, 5, "missing"), 1},
		"no head alone":        {[]func(*edited){func(e *edited) { e.meta(format.MetaHead, nil) }}, nil, 1},
		"cut to a checkpoint, as if closed there": {[]func(*edited){func(e *edited) {
			for n := uint64(1); n < e.size; n++ {
				e.ok(errors.Join(e.bucket(format.BucketRecords).Delete(key(n)), e.bucket(format.BucketHashes).Delete(key(n))))
			}
			c := e.bucket(format.BucketCheckpoints).Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				if binary.BigEndian.Uint64(k) > 1 {
					e.ok(c.Delete())
				}
			}
			e.ok(os.Remove(filepath.Join(e.data, format.CheckpointFile))) // else it is refused
		}, cleanAt(1)}, nil, 1},
	} {
		data := stopped(t)
		for _, do := range c.do {
			edit(t, data, do)
		}
		for range 2 {
			r, crashes := started(t, data)
			if !reflect.DeepEqual(r.UnsignedTails, c.want) || crashes != c.crashes {
				t.Errorf("%s: %+v and %d crashes, want %+v and %d", name, r.UnsignedTails, crashes, c.want, c.crashes)
			}
		}
		log, err := decisionlog.Open(data, decisionlog.Options{})
		if err == nil {
			err = errors.Join(log.Rotate(t.Context()), log.Close())
		}
		must(t, err)
		reader, err := segment.OpenReader(data)
		must(t, err)
		var named []verify.Tail
		err = reader.Events(t.Context(), func(r *record.Recorded) error { // of the newest segment alone
			for _, one := range r.UnsignedTails() {
				named = append(named, verify.Tail{From: int64(one.From), To: int64(one.To), Cause: one.Cause})
			}
			return nil
		}, format.EventSegment)
		if err = errors.Join(err, reader.Close()); err != nil || !reflect.DeepEqual(named, c.want) {
			t.Errorf("%s: the next segment names %+v, %v", name, named, err)
		}
	}
}

// copied is a data directory as it is at a moment.
func copied(t *testing.T, data string) string {
	to := filepath.Join(t.TempDir(), "data")
	if err := errors.Join(os.CopyFS(to, os.DirFS(data)), os.Chmod(filepath.Join(to, format.KeyFile), 0o600)); err != nil {
		t.Error(err)
	}
	return to
}

// TestNoCrashHidesAnUnsignedTail: a start that dies at any moment has signed nothing, or has named the tail.
func TestNoCrashHidesAnUnsignedTail(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 3)
	edit(t, data, func(e *edited) { e.add() })
	var left []string
	step := func(string) { left = append(left, copied(t, data)) }
	o := decisionlog.Options{Checkpoints: decisionlog.Checkpoints{Records: 1}, Journal: journal.Options{Step: step}}
	opening := true
	o.On.Step = func(at string) {
		if opening {
			step(at)
		}
	}
	log, err := decisionlog.Open(data, o)
	must(t, err)
	opening = false
	must(t, log.Close())
	for n, one := range append(left, data) {
		r, _ := started(t, one)
		if len(r.UnsignedTails) == 0 || r.UnsignedTails[0].From != 2 || r.UnsignedTails[0].To < 2 || r.UnsignedTails[0].Cause == "old" {
			t.Errorf("%d of %d: %+v", n, len(left), r.UnsignedTails)
		}
	}
}

// frames does something to each of the frames that are in the first file of a journal, by its number, and mends the checksums.
func frames(t *testing.T, data string, do func(file, head, content []byte, number uint64)) {
	t.Helper()
	name := filepath.Join(data, format.LogDir, "journal.0")
	b, err := os.ReadFile(name)
	must(t, err)
	table := crc32.MakeTable(crc32.Castagnoli)
	for at := 8192; at < len(b); at += 4096 {
		if head := b[at:][:96]; string(head[:16]) == string(b[32:48]) {
			do(b, head, b[at+96:][:binary.BigEndian.Uint32(head[48:])], binary.BigEndian.Uint64(head[32:]))
			seed := crc32.Checksum(b[16:48], table)
			content := b[at+96:][:binary.BigEndian.Uint32(head[48:])]
			binary.BigEndian.PutUint32(head[20:], crc32.Update(seed, table, content))
			binary.BigEndian.PutUint32(head[16:], crc32.Update(seed, table, head[20:64]))
		}
	}
	must(t, os.WriteFile(name, b, 0o600))
}

// TestNoFrameWithoutTheKey: with right checksums, but without log.key, no frame is altered, added, put in another's place,
// or taken from the middle. From the end, frames can be taken.
func TestNoFrameWithoutTheKey(t *testing.T) {
	t.Parallel()
	lies := func(of uint64) func(file, head, content []byte, number uint64) {
		return func(_, _, content []byte, number uint64) {
			if number == of {
				copy(content, strings.ReplaceAll(string(content), `"decision":true`, `"decision":null`))
			}
		}
	}
	for name, c := range map[string]struct {
		do   func(file, head, content []byte, number uint64)
		left int // records that were in the journal; -1 is a refusal
	}{
		"nothing":      {func(_, _, _ []byte, _ uint64) {}, 3},
		"altered":      {lies(2), -1},
		"the last one": {lies(3), -1},
		"removed": {func(_, head, _ []byte, number uint64) {
			if number == 2 {
				clear(head)
			}
		}, -1},
		"removed from the end": {func(_, head, _ []byte, number uint64) {
			if number == 3 {
				clear(head)
			}
		}, 2},
		"added": {func(file, head, content []byte, number uint64) {
			if number == 3 && file[8192+3*4096] == 0 {
				next := file[8192+3*4096:]
				copy(next[copy(next, head):], content)
				binary.BigEndian.PutUint64(next[24:], 8192+3*4096)
				binary.BigEndian.PutUint64(next[32:], 4)
			}
		}, -1},
		"the number of another": {func(_, head, _ []byte, number uint64) {
			binary.BigEndian.PutUint64(head[32:], 10+number)
		}, -1},
	} {
		data := crashedlog.Make(t, 3)
		frames(t, data, c.do)
		log, err := decisionlog.Open(data, decisionlog.Options{})
		if c.left < 0 {
			if !errors.Is(err, decisionlog.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			err = log.Close()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if all, details := events(t, data, format.EventCrash); len(all) != 3+c.left || !strings.Contains(string(details), `"cut_bytes":9437184,"cut_seconds":60`) {
			t.Errorf("%s: %q %s", name, all, details)
		}
	}
}

// TestACutEndShowsInAnExportOfTheFiles: a checkpoint that covers records which are not there is the evidence that the end of
// the log was cut off. What is read of the files alone must not pass over it to an older one that fits what is left.
func TestACutEndShowsInAnExportOfTheFiles(t *testing.T) {
	t.Parallel()
	data, size := t.TempDir(), uint64(0)
	log, err := decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	for n := range 3 {
		must(t, log.Append(t.Context(), []record.Entry{{ID: fmt.Sprint(n), Kind: format.KindDecision, Tenant: "t", Decision: &record.Decision{}}}))
		if n != 1 {
			_, err = log.Checkpoint(t.Context())
			must(t, err)
		}
	}
	must(t, log.Close())
	edit(t, data, func(e *edited) {
		size = e.size
		for n := size - 2; n < size; n++ {
			must(t, errors.Join(e.bucket(format.BucketRecords).Delete(key(n)), e.bucket(format.BucketHashes).Delete(key(n))))
		}
	})
	if err := segment.Read(data, func(s *segment.Snapshot) error {
		done, err := decisionlog.WriteExport(t.Context(), s, io.Discard, decisionlog.ExportOptions{})
		if err == nil && (done.Size != int64(size) || done.Uncovered >= 0) {
			t.Errorf("an export without its last 2 of %d records: %+v", size, done)
		}
		return nil
	}); err != nil {
		t.Log(err) // a refusal shows it as well
	}
}
