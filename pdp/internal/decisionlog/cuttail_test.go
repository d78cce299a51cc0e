package decisionlog

import (
	"io"
	"testing"

	"go.etcd.io/bbolt"
)

// A checkpoint that covers records which are not there is the evidence that the end of the
// log was cut off. What is read of the files alone must not pass over it to an older one
// that fits what is left.
func TestACutEndShowsInAnExportOfTheFiles(t *testing.T) {
	t.Parallel()
	data := memory(t)
	l := mustOpen(t, data, Options{})
	for _, ids := range [][]Entry{{entry("a")}, {entry("b"), entry("c")}} {
		mustAppend(t, l, ids...)
		if _, err := l.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	size := l.Size()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(segmentPath(data, 1), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		for n := size - 2; n < size; n++ {
			for _, bucket := range []string{BucketRecords, BucketHashes} {
				if err := tx.Bucket([]byte(bucket)).Delete(number(n)); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Read(data, func(s *Snapshot) error {
		done, err := WriteExport(t.Context(), s, io.Discard, ExportOptions{})
		if err == nil && (done.Size != int64(size) || done.Uncovered >= 0) {
			t.Errorf("an export without its last 2 of %d records: %+v", size, done)
		}
		return nil
	}); err != nil {
		t.Log(err) // a refusal shows it as well
	}
}
