package export

import (
	"bufio"
	"io"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// readHashes counts how often each hash is read.
type readHashes struct {
	tlog.HashReader
	read map[int64]int
}

func (r readHashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	for _, index := range indexes {
		r.read[index]++
	}
	return r.HashReader.ReadHashes(indexes)
}

// TestProofsReadEachHashOnce: the hashes of a proof may stand in more segments than stay open, and to open one takes long.
func TestProofsReadEachHashOnce(t *testing.T) {
	t.Parallel()
	l := fillLog(t, 1000)
	s, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	out, err := Log{s}.writer(newLines(bufio.NewWriter(io.Discard), 0), Options{Proofs: true})
	if err != nil {
		t.Fatal(err)
	}
	export := out.(*ndjson)
	cached, ok := export.hashes.(*cachedHashes)
	if !ok {
		t.Fatalf("the hashes are read from %T", export.hashes)
	}
	counted := readHashes{cached.from, map[int64]int{}}
	cached.from = counted
	if err := export.begin(s.Head); err != nil {
		t.Fatal(err)
	}
	for r, err := range s.Records(t.Context(), 0, uint64(s.Head.Size)) {
		if err == nil {
			err = export.record(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for index, times := range counted.read {
		if times > 1 {
			t.Errorf("hash %d was read %d times", index, times)
		}
	}
	if len(counted.read) < 1000 {
		t.Errorf("%d hashes were read", len(counted.read))
	}
}
