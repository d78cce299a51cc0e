package decisionlog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/night"
)

// Whatever is done to a log, in any order, it holds what a slice in memory holds.
func TestLogIsASlice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(night.Cases(20)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			k, r, whole := keepLog(t), rand.New(rand.NewPCG(seed, 5)), map[string]string{}
			for step := range 40 {
				switch r.IntN(9) {
				case 0, 1, 2:
					var ids []string
					for i := range 1 + r.IntN(20) {
						ids = append(ids, fmt.Sprintf("%d.%d", step, i))
					}
					k.append(ids...)
				case 3:
					k.ok(k.log.Rotate(t.Context()))
				case 4:
					k.redactAny(r)
				case 5:
					k.retire(1 + r.Int64N(60<<20))
				case 6:
					k.reopen()
				case 7:
					k.check()
				case 8:
					entries, requests := aBatch(fmt.Sprintf("%d", step), "acme", r.IntN(20), r.IntN)
					err := k.log.Append(t.Context(), entries)
					k.ok(err)
					k.look()
					maps.Copy(whole, requests)
				}
			}
			k.check()
			k.readBack(whole)
			k.reopen()
			k.check()
			k.readBack(whole)
		})
	}
}

// readBack reads the items of batches that are left: each whole where the record of its
// batch is left, and else as if that had never been there.
func (k *kept) readBack(whole map[string]string) {
	k.Helper()
	ids := map[string]int64{}
	for n, line := range k.lines {
		ids[k.seen(line).ID] = int64(n)
	}
	for id, want := range whole {
		if k.gone[ids[id]] != "" {
			continue
		}
		got, err := k.log.Recorded(k.lines[ids[id]])
		k.ok(err)
		batch, _, _ := strings.Cut(id, ".")
		switch gone := k.gone[ids[batch]] != ""; {
		case len(got.Inherits) == 0:
		case !gone && (string(got.Asked) != want || got.Gone != nil):
			k.Errorf("%s: got %s, want %s", id, got.Asked, want)
		case gone && (!slices.Equal(got.Gone, got.Inherits) || got.Batch.Line != nil):
			k.Errorf("%s: the record of its batch is gone, and it says that of %v", id, got.Gone)
		}
	}
}

func (k *kept) redactAny(r *rand.Rand) {
	k.Helper()
	sequence := r.IntN(len(k.lines))
	record, err := k.log.Get(uint64(sequence))
	if why := k.gone[int64(sequence)]; (why != "") != errors.Is(err, segment.ErrGone) {
		k.Fatalf("record %d, gone %q: %v", sequence, why, err)
	}
	if err != nil {
		return
	}
	s := k.seen(record.Line)
	err = k.log.Redact(k.Context(), "", s.ID, "on request")
	if s.Kind == format.KindAdmin {
		if !errors.Is(err, ErrNotRedactable) {
			k.Fatal(err)
		}
		return
	}
	k.ok(err)
	k.gone[int64(sequence)] = format.WhyRedacted
	for secret, files := range k.holding("content-of-"+s.ID+`"`, "subject-of-"+s.ID+`"`, s.Salt, string(k.lines[sequence])) {
		k.Fatalf("%q is still in %v", secret, files)
	}
	if _, err := k.log.ByID(s.ID); !errors.Is(err, segment.ErrGone) {
		k.Errorf("by its id: %v", err)
	}
}

func (k *kept) retire(bytes int64) {
	k.Helper()
	done, err := k.log.Retain(k.Context(), Retention{Bytes: bytes}, time.Now())
	k.ok(err)
	for _, file := range done.Segments {
		for i := range file.Records {
			k.gone[int64(file.First+i)] = format.WhyRetired
		}
	}
}
