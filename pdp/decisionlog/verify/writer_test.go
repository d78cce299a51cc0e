package verify_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
)

// A writer writes a log as the comment in package decisionlog specifies it, and as few
// would: so that the tests hold verify against the specification, whatever the real
// writer does, and can write what it never would.
type writer struct {
	t       testing.TB
	seed    string // of keys and salts: a fuzzer's processes must all write the same log
	data    string
	origin  string
	signer  note.Signer
	keys    []string
	lines   [][]byte
	gone    map[int]string
	of      map[int]int // items that inherit → the record of their batch
	stored  []tlog.Hash
	segment int
	first   int
	db      *bbolt.DB
	clock   time.Time
	signed  []byte // the last checkpoint
}

func newWriter(t testing.TB, data string) *writer { return newSeeded(t, data, "") }

func newSeeded(t testing.TB, data, seed string) *writer {
	w := &writer{t: t, seed: seed, data: data, origin: "log.example/1", gone: map[int]string{}, of: map[int]int{}, clock: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	w.must(os.MkdirAll(filepath.Join(data, format.LogDir), 0o700))
	w.signer = w.key()
	w.open()
	w.admin(format.EventCreated, map[string]any{"format": 1, "origin": w.origin, "key": w.keys[0]})
	return w
}

func (w *writer) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// key makes a key, and puts it on the list.
func (w *writer) key() note.Signer {
	seed := sha256.Sum256(fmt.Append(nil, w.seed, len(w.keys)))
	public, err := note.NewEd25519VerifierKey(w.origin, ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
	w.must(err)
	private := "PRIVATE+KEY+" + w.origin + "+" + strings.Split(public, "+")[1] + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, seed[:]...))
	w.keys = append(w.keys, public)
	var list string
	for _, k := range w.keys {
		list += k + "\n"
	}
	w.must(os.WriteFile(filepath.Join(w.data, format.PublicKeyFile), []byte(list), 0o600))
	s, err := note.NewSigner(private)
	w.must(err)
	return s
}

func (w *writer) path(segment int) string {
	return filepath.Join(w.data, format.LogDir, fmt.Sprintf(format.SegmentName, segment))
}

func (w *writer) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	all := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		all[i] = w.stored[index]
	}
	return all, nil
}

// open begins a segment.
func (w *writer) open() {
	w.segment++
	w.first = len(w.lines)
	w.db = w.bolt(w.path(w.segment))
	w.meta(w.db, w.segment, w.first)
}

func (w *writer) bolt(name string) *bbolt.DB {
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true})
	w.must(err)
	return db
}

func (w *writer) meta(db *bbolt.DB, segment, first int) {
	put(w, db, format.BucketMeta, format.MetaFormat, []byte("1"))
	put(w, db, format.BucketMeta, format.MetaSegment, number(segment))
	put(w, db, format.BucketMeta, format.MetaFirst, number(first))
	put(w, db, format.BucketMeta, format.MetaEdge, w.edge(first))
}

// edge is by another way than verify's: the subtrees' places in the list of stored hashes.
func (w *writer) edge(size int) (edge []byte) {
	for at := 0; at < size; {
		level := bits.Len(uint(size-at)) - 1
		h := w.stored[tlog.StoredHashIndex(level, int64(at>>level))]
		edge = append(edge, h[:]...)
		at += 1 << level
	}
	return edge
}

func put[K string | []byte](w *writer, db *bbolt.DB, bucket string, key K, value []byte) {
	w.must(db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), value)
	}))
}

func number(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func (w *writer) line(kind, more string) []byte {
	return w.named(fmt.Sprintf("0190-%d", len(w.lines)), kind, more)
}

func (w *writer) named(id, kind, more string) []byte {
	w.clock = w.clock.Add(time.Millisecond)
	n := len(w.lines)
	salt := sha256.Sum256(fmt.Append(nil, w.seed, "salt", n))
	return fmt.Appendf(nil, `{"sequence":%d,"id":%q,"time":%q,"kind":%q,%s,"salt":%q}`, n, id,
		w.clock.Format(format.TimeLayout), kind, more, base64.RawURLEncoding.EncodeToString(salt[:16]))
}

// records appends so many decisions, in one transaction.
func (w *writer) records(n int) {
	var lines [][]byte
	for range n {
		line := w.line(format.KindDecision, `"tenant":"default","caller":"gateway","request_id":"0190a7b2-1c1d-7000-8000-000000000000",`+
			`"request":{"subject":{"type":"user","id":"alice","properties":{"department":"sales"}},"action":{"name":"tool.invoke"},`+
			`"resource":{"type":"tool","id":"tickets:create_ticket"},"context":{"arguments":{"title":"a ticket","n":12}}},"decision":true,`+
			`"determining":["permit-tools"],"bundle":"h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="`)
		lines = append(lines, line)
		w.keep(line)
	}
	w.commit(lines)
}

// batch appends the record of a batch and n items, in one transaction, every other of
// which inherits from it.
func (w *writer) batch(n int) {
	first := len(w.lines)
	id := fmt.Sprintf("0190-b%d", first)
	w.keep(w.named(id, format.KindBatch, `"tenant":"default","request":{"context":{"x":1}}`))
	for i := range n {
		more := `"request":{"subject":{"type":"user","id":"alice"}},"decision":true`
		if i%2 == 0 {
			more = inheriting
			w.of[len(w.lines)] = first
		}
		w.keep(w.named(fmt.Sprintf("%s.%d", id, i), format.KindDecision, more))
	}
	w.commit(w.lines[first:])
}

func (w *writer) admin(event string, details any) {
	text, err := json.Marshal(details)
	w.must(err)
	line := w.line(format.KindAdmin, fmt.Sprintf(`"event":%q,"details":%s`, event, text))
	w.keep(line)
	w.commit([][]byte{line})
}

func (w *writer) keep(line []byte) {
	hashes, err := tlog.StoredHashes(int64(len(w.lines)), line, w)
	w.must(err)
	w.stored, w.lines = append(w.stored, hashes...), append(w.lines, line)
}

// commit stores the last lines.
func (w *writer) commit(lines [][]byte) {
	w.must(w.db.Update(func(tx *bbolt.Tx) error {
		for i, line := range lines {
			n := len(w.lines) - len(lines) + i
			if err := w.store(tx, n, line); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (w *writer) store(tx *bbolt.Tx, n int, line []byte) error {
	records, err := tx.CreateBucketIfNotExists([]byte(format.BucketRecords))
	if err != nil {
		return err
	}
	hashes, err := tx.CreateBucketIfNotExists([]byte(format.BucketHashes))
	if err != nil {
		return err
	}
	records.FillPercent, hashes.FillPercent = 1, 1
	if line != nil {
		if err := records.Put(number(n), line); err != nil {
			return err
		}
	}
	return hashes.Put(number(n), w.hashes(n))
}

func (w *writer) hashes(n int) (all []byte) {
	from, to := tlog.StoredHashCount(int64(n)), tlog.StoredHashCount(int64(n+1))
	for _, h := range w.stored[from:to] {
		all = append(all, h[:]...)
	}
	return all
}

// checkpoint signs what there is, with more signers where a key is signed in.
func (w *writer) checkpoint(more ...note.Signer) []byte {
	w.clock = w.clock.Add(time.Millisecond)
	root, err := tlog.TreeHash(int64(len(w.lines)), w)
	w.must(err)
	text := fmt.Sprintf("%s\n%d\n%s\ntime %s\n", w.origin, len(w.lines), root, w.clock.Format(format.TimeLayout))
	if len(more) > 0 {
		text += "next-key " + w.keys[len(w.keys)-1] + "\n"
	}
	w.signed, err = note.Sign(&note.Note{Text: text}, append([]note.Signer{w.signer}, more...)...)
	w.must(err)
	key := append(number(len(w.lines)), number(int(w.clock.UnixNano()))...)
	put(w, w.db, format.BucketCheckpoints, key, w.signed)
	return w.signed
}

func (w *writer) rotateKey() {
	old := w.keys[len(w.keys)-1]
	next := w.key()
	w.admin(format.EventKeyRotated, map[string]string{"old": old, "new": w.keys[len(w.keys)-1]})
	w.checkpoint(next)
	w.signer = next
}

// seal ends a segment and begins the next.
func (w *writer) seal() {
	w.must(w.db.Close())
	w.must(os.Chmod(w.path(w.segment), 0o400))
	w.open()
	w.admin(format.EventSegment, map[string]any{"segment": w.segment})
}

func (w *writer) file(n, first, records int) decisionlog.SegmentFile {
	content, err := os.ReadFile(w.path(n))
	w.must(err)
	digest, size, err := decisionlog.FileDigest(bytes.NewReader(content))
	w.must(err)
	return decisionlog.SegmentFile{Segment: uint64(n), File: filepath.Base(w.path(n)), First: uint64(first),
		Records: uint64(records), Size: size, Digest: digest}
}

// remove takes the content of records out of a sealed segment, with its admin record.
func (w *writer) remove(segment, first, end int, sequences []int, why string) {
	for _, n := range sequences {
		w.gone[n] = why
	}
	old := w.file(segment, first, end-first)
	w.rewrite(segment, first, end)
	file := w.file(segment, first, end-first)
	file.Replaces = old.Digest
	if why == format.WhyRedacted {
		w.admin(format.EventRedacted, map[string]any{"sequence": sequences[0], "id": "x", "reason": "asked for", "file": file})
	} else {
		w.admin(format.EventRetired, map[string]any{"below": end, "reason": "age", "files": []any{file}})
	}
}

// rewrite writes a sealed segment anew, without what is gone.
func (w *writer) rewrite(segment, first, end int) {
	name := w.path(segment)
	old := w.bolt0400(name)
	db := w.bolt(name + ".next")
	w.meta(db, segment, first)
	w.must(db.Update(func(tx *bbolt.Tx) error {
		for n := first; n < end; n++ {
			line := w.lines[n]
			if w.gone[n] != "" {
				line = nil
			}
			if err := w.store(tx, n, line); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, c := range old {
		put(w, db, format.BucketCheckpoints, c[0], c[1])
	}
	w.must(db.Close())
	w.must(os.Rename(name+".next", name))
	w.must(os.Chmod(name, 0o400))
}

// bolt0400 are the checkpoints of a sealed segment.
func (w *writer) bolt0400(name string) (all [][2][]byte) {
	db, err := bbolt.Open(name, 0o400, &bbolt.Options{ReadOnly: true})
	w.must(err)
	w.must(db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(format.BucketCheckpoints))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			all = append(all, [2][]byte{bytes.Clone(k), bytes.Clone(v)})
			return nil
		})
	}))
	w.must(db.Close())
	return all
}

// close ends the log in order.
func (w *writer) close() {
	w.checkpoint()
	w.must(w.db.Close())
}

// export writes the log up to its last checkpoint, which must be of all of it.
func (w *writer) export(filter func(n int) bool, proofs bool) []byte {
	var out bytes.Buffer
	begin := map[string]any{"export": "begin", "format": 1, "form": "log", "origin": w.origin, "size": len(w.lines),
		"checkpoint": string(w.signed), "keys": w.keys}
	if filter != nil {
		begin["filter"] = map[string]string{"tenant": "default"}
	}
	w.envelope(&out, begin)
	records := 0
	needed := map[int]bool{}
	for item, batch := range w.of {
		needed[batch] = needed[batch] || filter != nil && filter(item) && w.gone[item] == ""
	}
	for n, line := range w.lines {
		why := w.gone[n]
		if why == "" && filter != nil && !filter(n) && !needed[n] {
			why = format.WhyFiltered
		}
		if why != "" {
			w.envelope(&out, map[string]any{"export": "leaves", "first": n, "why": why, "hashes": []tlog.Hash{tlog.RecordHash(line)}})
			continue
		}
		records++
		out.Write(append(line[:len(line):len(line)], '\n'))
		if proofs {
			w.proof(&out, n)
		}
	}
	w.end(&out, records)
	return out.Bytes()
}

// prove writes one record with its proof.
func (w *writer) prove(n int) []byte {
	var out bytes.Buffer
	w.envelope(&out, map[string]any{"export": "begin", "format": 1, "form": "proof", "origin": w.origin, "size": len(w.lines),
		"checkpoint": string(w.signed), "keys": w.keys})
	out.Write(append(w.lines[n][:len(w.lines[n]):len(w.lines[n])], '\n'))
	w.proof(&out, n)
	w.end(&out, 1)
	return out.Bytes()
}

func (w *writer) proof(out *bytes.Buffer, n int) {
	proof, err := tlog.ProveRecord(int64(len(w.lines)), int64(n), w)
	w.must(err)
	w.envelope(out, map[string]any{"export": "proof", "sequence": n, "hashes": proof})
}

func (w *writer) end(out *bytes.Buffer, records int) {
	sum := sha256.Sum256(out.Bytes())
	w.envelope(out, map[string]any{"export": "end", "records": records, "size": len(w.lines), "digest": hex.EncodeToString(sum[:])})
}

// envelope writes a line that begins as envelope lines must.
func (w *writer) envelope(out *bytes.Buffer, members map[string]any) {
	word := members["export"]
	delete(members, "export")
	text, err := json.Marshal(members)
	w.must(err)
	fmt.Fprintf(out, "{\"export\":%q,%s\n", word, text[1:])
}
