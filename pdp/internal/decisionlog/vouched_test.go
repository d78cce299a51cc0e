package decisionlog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// TestWhatTheTreeVouchesFor alters one byte of a log at a time: a record, or a hash, of an old segment and of the newest. What
// is older than the newest record of all keys hides nothing; what is behind it hides all but that record.
func TestWhatTheTreeVouchesFor(t *testing.T) {
	t.Parallel()
	whole := t.TempDir()
	log, err := decisionlog.Open(whole, decisionlog.Options{})
	event := func(name string, keys uint64) uint64 {
		if err == nil {
			err = log.Append(t.Context(), []record.Entry{{ID: fmt.Sprint(name, keys), Kind: format.KindAdmin, Event: name, Keys: keys}})
		}
		return log.Size() - 1
	}
	all1 := event(format.EventAPIKeys, 1)
	err = errors.Join(err, log.Rotate(t.Context()))
	before := event("before", 0)
	all2 := event(format.EventAPIKeys, 2)
	behind := event("behind", 0)
	changed := event(format.EventAPIKeyRevoked, 3)
	event("after", 0)
	must(t, errors.Join(err, log.Close()))
	// flip alters the last byte but one of a value.
	flip := func(segment int, bucket string, sequence uint64) func(data string) {
		return func(data string) {
			name := filepath.Join(data, fmt.Sprintf("log/%08d.db", segment))
			_ = os.Chmod(name, 0o600)
			db, err := bbolt.Open(name, 0o600, nil)
			if err == nil {
				err = db.Update(func(tx *bbolt.Tx) error {
					b, k := tx.Bucket([]byte(bucket)), binary.BigEndian.AppendUint64(nil, sequence)
					v := slices.Clone(b.Get(k))
					v[len(v)-5] ^= 1
					return b.Put(k, v)
				})
				err = errors.Join(err, db.Close())
			}
			must(t, err)
		}
	}
	const records, hashes = format.BucketRecords, format.BucketHashes
	for name, c := range map[string]struct {
		do              func(data string)
		visited         []uint64
		altered, hidden bool
	}{
		"nothing":                         {func(string) {}, []uint64{all2, changed}, false, false},
		"a record of an old segment":      {flip(1, records, all1), []uint64{all2, changed}, false, false},
		"a hash of an old segment":        {flip(1, hashes, all1), []uint64{all2, changed}, false, false},
		"a record before":                 {flip(2, records, before), []uint64{all2, changed}, true, false},
		"the record of all keys":          {flip(2, records, all2), []uint64{all1}, true, true},
		"the hash of that":                {flip(2, hashes, all2), []uint64{all2}, true, true},
		"a record behind":                 {flip(2, records, behind), []uint64{all2}, true, true},
		"the record of a change":          {flip(2, records, changed), []uint64{all2}, true, true},
		"that, and one of an old segment": {func(data string) { flip(2, records, all2)(data); flip(1, records, all1)(data) }, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			must(t, os.CopyFS(data, os.DirFS(whole)))
			_ = os.Chmod(filepath.Join(data, format.KeyFile), 0o600)
			c.do(data)
			look := func(of interface {
				Size() uint64
			}, vouched func(visit func(*record.Recorded, bool) error) (segment.Vouched, error)) {
				var visited []uint64
				v, err := vouched(func(r *record.Recorded, vouched bool) error {
					if vouched {
						visited = append(visited, r.Sequence)
					}
					return nil
				})
				if err != nil || !slices.Equal(visited, c.visited) || (v.Altered != nil) != c.altered || v.Hidden != c.hidden {
					t.Errorf("%T vouches for %v, want %v; %+v, %v", of, visited, c.visited, v, err)
				}
				if v.Keys != 3 {
					t.Errorf("%T: the number is %d", of, v.Keys)
				}
			}
			reader, err := segment.OpenReader(data)
			must(t, err)
			look(reader, func(visit func(*record.Recorded, bool) error) (segment.Vouched, error) {
				return reader.Vouched(t.Context(), visit, format.EventAPIKeys, format.EventAPIKeyRevoked)
			})
			must(t, reader.Close())
			log, err := decisionlog.Open(data, decisionlog.Options{})
			if err != nil {
				return // the last record is read by each start
			}
			look(log, func(visit func(*record.Recorded, bool) error) (segment.Vouched, error) {
				return log.Vouched(t.Context(), visit, format.EventAPIKeys, format.EventAPIKeyRevoked)
			})
			must(t, log.Close())
		})
	}
}
