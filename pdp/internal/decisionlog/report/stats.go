package report

import (
	"context"
	"path/filepath"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Statistics count the log's records.
type Statistics struct {
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
	// Tenants is set if only the records of some were counted. Then WholeLog is nil.
	Tenants []string `json:"tenants,omitzero"`
	Population
	// Bytes is the size of the records.
	Bytes int64 `json:"bytes"`
	*WholeLog
}

// WholeLog is the part of [Statistics] that is of all tenants together.
type WholeLog struct {
	Redacted int64 `json:"redacted"`
	Retired  int64 `json:"retired"`
	// Disk is the size of the files.
	Disk     int64         `json:"disk"`
	Segments []SegmentInfo `json:"segments"`
	// Gaps are where records have no content any more.
	Gaps []Gap `json:"gaps"`
	segment.Unread
}

// SegmentInfo describes one file of the log.
type SegmentInfo struct {
	Name   string `json:"name"`
	First  uint64 `json:"first"`
	Next   uint64 `json:"next"` // the first sequence that is no longer in it
	Bytes  int64  `json:"bytes"`
	Sealed bool   `json:"sealed"`
}

// Gap is a run of records whose content is not there.
type Gap struct {
	First uint64 `json:"first"`
	Next  uint64 `json:"next"`
	Why   string `json:"why"`
}

// Count reads the whole log once.
func Count(ctx context.Context, s *segment.Snapshot) (Statistics, error) {
	st := Statistics{Origin: s.Head.Origin, Size: s.Head.Size, Tenants: s.Tenants, Population: newPopulation()}
	if s.Tenants == nil {
		st.WholeLog = wholeOf(s)
	}
	missing, following := gaps{found: st.addGap}, newUses(usesMost)
	err := each(ctx, s, func(l record.Record) error {
		r, err := missing.read(l)
		if r == nil || err != nil {
			return err
		}
		st.Bytes += int64(len(l.Line)) + 1
		if r.Kind == format.KindDecision {
			following.decided(r, Instant{})
		}
		if one, err := following.look(r); err != nil {
			return err
		} else if one != nil && one.allowed {
			st.Allowed--
			st.Withdrawn++
		}
		return st.add(r)
	})
	missing.reached(time.Time{})
	return st, err
}

func wholeOf(s *segment.Snapshot) *WholeLog {
	w := &WholeLog{Unread: s.Head.Unread}
	for _, segment := range s.Segments() {
		w.Disk += segment.Size
		w.Segments = append(w.Segments, SegmentInfo{
			Name:   filepath.Base(segment.Path),
			First:  segment.First,
			Next:   segment.First + segment.Records,
			Bytes:  segment.Size,
			Sealed: segment.Sealed,
		})
	}
	return w
}

func (st *Statistics) addGap(g DatedGap) {
	count := &st.Redacted
	if g.Why == format.WhyRetired {
		count = &st.Retired
	}
	*count += int64(g.Next - g.First)
	st.Gaps = append(st.Gaps, g.Gap)
}
