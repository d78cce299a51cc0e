package decisionlog

import (
	"policy-service/pdp/internal/decisionlog/record"
	"testing"
	"time"
)

// In silence retention makes no work for itself: the record of a retirement alone
// is no reason for the next.
func TestRetentionComesToAnEnd(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	k.append("a-1", "a-2")
	k.ok(k.log.Rotate(t.Context()))
	k.retire(1)
	size := k.log.Size()
	if len(k.gone) != 3 {
		t.Fatalf("%d records are gone", len(k.gone))
	}
	k.retire(1)
	if _, err := k.log.Retain(t.Context(), Retention{Age: time.Hour}, time.Now().Add(time.Hour+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if k.log.Size() != size {
		t.Errorf("%d records, and %d after retention had nothing to drop", size, k.log.Size())
	}
	k.append("b-1")
	k.ok(k.log.Rotate(t.Context()))
	k.retire(1)
	if k.gone[int64(size)] == "" || k.holds("content-of-b-1") != nil {
		t.Error("what came after is still there")
	}
	k.check()
	k.reopen()
	k.check()
}

// A limit that hashes alone exceed is no reason to drop what is new.
func TestHashesDoNotCrowdOutRecords(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	for range 3 {
		entries := make([]record.Entry, 2000)
		for i := range entries {
			entries[i] = entryOf("", true)
		}
		err := k.log.Append(t.Context(), entries)
		k.ok(err)
		k.ok(k.log.Rotate(t.Context()))
		k.retire(1)
	}
	var hashes, newest int64
	k.append("a-1")
	k.ok(k.log.Rotate(t.Context()))
	for _, s := range k.log.Segments() {
		gone, err := k.log.IsRetired(s.First)
		if k.ok(err); gone {
			hashes += s.Size
		} else {
			content, err := k.log.removals.contentSize(s)
			k.ok(err)
			newest += content
		}
	}
	k.look()
	before := len(k.gone)
	if k.retire(newest); hashes == 0 || len(k.gone) != before {
		t.Errorf("beside %d bytes of hashes %d records were dropped", hashes, len(k.gone)-before)
	}
	k.check()
}

// Each run ends a segment, whose file is large and nearly empty. That is no reason for the next run to drop records.
func TestRunsDoNotCrowdOutRecords(t *testing.T) {
	t.Parallel()
	k := keepLog(t)
	for range 12 {
		entries := make([]record.Entry, 200)
		for i := range entries {
			entries[i] = entryOf("", true)
		}
		err := k.log.Append(t.Context(), entries)
		k.ok(err)
		k.ok(k.log.Rotate(t.Context()))
		for size := uint64(0); size != k.log.Size(); { // as serve does: again after each segment that was sealed
			size = k.log.Size()
			k.retire(1 << 20)
		}
	}
	k.look()
	if n := len(k.gone); n == 0 || n > 9*210 {
		t.Errorf("%d of %d records were dropped", n, len(k.lines))
	}
	k.check()
}
