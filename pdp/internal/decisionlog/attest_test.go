package decisionlog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// kindStep is a kind whose details name an approval request.
const kindStep = "approval"

func stepOf(approval, id string) record.Entry {
	return record.Entry{ID: id, Kind: kindStep, Tenant: "default", Event: "approve", Details: jsontext.Value(fmt.Sprintf(`{"approval":%q}`, approval))}
}

// TestNobodyHidesAStep: who edits a file, whatever of it, does not make the log say less
// of an approval request, or something else.
func TestNobodyHidesAStep(t *testing.T) {
	t.Parallel()
	const hidden = 6
	options := Options{Kinds: []string{kindStep}, Checkpoints: Checkpoints{Records: 4}}
	line := func(tx *bbolt.Tx) []byte {
		return tx.Bucket([]byte(format.BucketRecords)).Get(segment.EncodeNumber(hidden))
	}
	other := func(tx *bbolt.Tx) []byte { return bytes.Replace(line(tx), []byte("mine"), []byte("none"), 1) }
	put := func(tx *bbolt.Tx, bucket string, value []byte) error {
		return tx.Bucket([]byte(bucket)).Put(segment.EncodeNumber(hidden), value)
	}
	leaf := func(tx *bbolt.Tx, line []byte) error {
		stored := bytes.Clone(tx.Bucket([]byte(format.BucketHashes)).Get(segment.EncodeNumber(hidden)))
		sum := sha256.Sum256(append([]byte{0}, line...))
		copy(stored, sum[:])
		return put(tx, format.BucketHashes, stored)
	}
	for name, edit := range map[string]func(*bbolt.Tx) error{
		"nothing": func(*bbolt.Tx) error { return nil },
		"record removed": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(format.BucketRecords)).Delete(segment.EncodeNumber(hidden))
		},
		"hash removed": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(format.BucketHashes)).Delete(segment.EncodeNumber(hidden))
		},
		"record replaced": func(tx *bbolt.Tx) error { return put(tx, format.BucketRecords, other(tx)) },
		"record and its hash": func(tx *bbolt.Tx) error {
			return errors.Join(leaf(tx, other(tx)), put(tx, format.BucketRecords, other(tx)))
		},
		"a record in between": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(format.BucketRecords)).Put(append(segment.EncodeNumber(hidden-1), 0), line(tx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := memory(t)
			l := mustOpen(t, data, options)
			for n := range 12 {
				mustAppend(t, l, entry(fmt.Sprint("decision ", n)), stepOf([]string{"mine", "other"}[n%2], fmt.Sprint("step ", n)))
			}
			must(t, l.Close())
			db, err := boltfile.Open(segment.FilePath(data, 1), record.ErrDamaged, boltfile.ToWrite, bbolt.Options{})
			if err == nil {
				err = errors.Join(db.Update(edit), boltfile.Close(db, record.ErrDamaged))
			}
			must(t, err)
			var found []string
			l, err = Open(data, options)
			if err == nil {
				defer func() { _ = l.Close() }()
				err = l.Naming(t.Context(), 0, map[string]bool{"mine": true}, func(r record.Record) error {
					var s record.Recorded
					if r.Line == nil {
						return nil // what comes of it is said at the end
					}
					err := json.Unmarshal(r.Line, &s)
					found = append(found, s.ID)
					return err
				})
			}
			want := []string{"step 0", "step 2", "step 4", "step 6", "step 8", "step 10"}
			if name == "nothing" && (err != nil || !slices.Equal(found, want)) {
				t.Errorf("got %v, %v", found, err)
			}
			if name != "nothing" && !errors.Is(err, record.ErrDamaged) {
				t.Errorf("got %v, %v", found, err)
			}
		})
	}
}

// TestRedactedStepIsExplained: content that a record says was removed is no reason to
// doubt the rest; that it is gone is told, because it may have been a step.
func TestRedactedStepIsExplained(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, memory(t), Options{Kinds: []string{kindStep}})
	mustAppend(t, l, entry("gone"), stepOf("mine", "step"))
	must(t, l.Redact(t.Context(), "", "gone", "erasure request"))
	steps, gone := 0, 0
	err := l.Naming(t.Context(), 0, map[string]bool{"mine": true}, func(r record.Record) error {
		if steps++; r.Line == nil {
			steps, gone = steps-1, gone+1
		}
		return nil
	})
	if err != nil || steps != 1 || gone != 1 {
		t.Errorf("%d steps, %d gone, %v", steps, gone, err)
	}
}

// TestALineThatNamesAnApproval: a request is named by its whole id, in the one member that has it.
func TestALineThatNamesAnApproval(t *testing.T) {
	t.Parallel()
	w := &segment.Walker{IDs: map[string]bool{"mine": true}}
	parts := []string{`"approval":"mine"`, `"approval":"other"`, `"approval":"`, `"approval":`, `approval":"mine"`, `mine"`, `"appro`, ",", ""}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				line := a + b + c
				for _, of := range []string{`"approval":"`, `"capability":"`, `"capability":{"id":"`} {
					line := strings.ReplaceAll(line, `"approval":"`, of)
					if got := w.NamesItem([]byte(line)); got != (strings.Contains(line, of+`mine"`) || strings.Contains(line, `"approval":"mine"`)) {
						t.Fatalf("%s: %v", line, got)
					}
				}
			}
		}
	}
}
