package index

import (
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
)

// An index whose numbers cannot be read is that of no segment, also not of the one that begins at 0.
func TestIndexOfNothing(t *testing.T) {
	t.Parallel()
	name, segment := filepath.Join(t.TempDir(), "index.db"), Segment{Number: 1, End: 2}
	p := newPostings(segment.Number, segment.First)
	p.next = segment.End
	if err := writeIndex(t.Context(), name, p); err != nil {
		t.Fatal(err)
	}
	look := func() error {
		return boltfile.Look(name, errDamaged, time.Second, func(f *pages.File) error {
			_, err := readLists(f, segment, [][]string{{"k:decision"}})
			return err
		})
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(name, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Put([]byte(metaFirst), []byte("0")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := look(); !errors.Is(err, errDamaged) {
		t.Errorf("it passes for an index: %v", err)
	}
}

func TestReadList(t *testing.T) {
	t.Parallel()
	stored := func(differences ...uint64) (b []byte) {
		for _, d := range differences {
			b = binary.AppendUvarint(b, d)
		}
		return b
	}
	if list, err := readList(stored(0, 5, 4), 10); err != nil || !slices.Equal(list, []uint32{0, 5, 9}) {
		t.Error(list, err)
	}
	for name, b := range map[string][]byte{
		"beyond the limit": stored(10),
		"its sum beyond":   stored(5, 5),
		"an overflow":      stored(5, math.MaxUint64-3),
		"cut short":        {0x80},
	} {
		if list, err := readList(b, 10); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
}
