package decisionlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Whatever is done to a log, in any order, it holds what a slice in memory holds.
func TestLogIsASlice(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			k, r := keepLog(t), rand.New(rand.NewPCG(seed, 5))
			for step := range 40 {
				switch r.IntN(8) {
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
				}
			}
			k.check()
			k.reopen()
			k.check()
		})
	}
}

func (k *kept) redactAny(r *rand.Rand) {
	k.Helper()
	sequence := r.IntN(len(k.lines))
	record, err := k.log.Get(uint64(sequence))
	if why := k.gone[int64(sequence)]; (why != "") != errors.Is(err, ErrGone) {
		k.Fatalf("record %d, gone %q: %v", sequence, why, err)
	}
	if err != nil {
		return
	}
	s := k.seen(record.Line)
	err = k.log.Redact(k.Context(), s.ID, "on request")
	if s.Kind == KindAdmin {
		if !errors.Is(err, ErrNotRedactable) {
			k.Fatal(err)
		}
		return
	}
	k.ok(err)
	k.gone[int64(sequence)] = WhyRedacted
	for _, secret := range []string{"content-of-" + s.ID + `"`, "subject-of-" + s.ID + `"`, s.Salt, string(k.lines[sequence])} {
		if files := k.holds(secret); files != nil {
			k.Fatalf("%q is still in %v", secret, files)
		}
	}
	if _, err := k.log.ByID(s.ID); !errors.Is(err, ErrGone) {
		k.Errorf("by its id: %v", err)
	}
}

func (k *kept) retire(bytes int64) {
	k.Helper()
	done, err := k.log.Retain(k.Context(), Retention{Bytes: bytes}, time.Now())
	k.ok(err)
	for _, file := range done.Segments {
		for i := range file.Records {
			k.gone[int64(file.First+i)] = WhyRetired
		}
	}
}
