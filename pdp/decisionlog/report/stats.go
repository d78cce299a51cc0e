package report

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/decisionlog"
)

// Statistics count the log's records.
type Statistics struct {
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
	// Tenants are there where the records of some were counted only: of what is of
	// all tenants together nothing is said then, and WholeLog is nil.
	Tenants []string         `json:"tenants,omitzero"`
	Kinds   map[string]int64 `json:"kinds"`
	Allowed int64            `json:"allowed"`
	Waiting int64            `json:"waiting"` // for an approval, and not among Allowed
	// Possible and Impossible are the answers to questions with unknown places, which are neither allows nor denies.
	Possible   int64            `json:"possible,omitzero"`
	Impossible int64            `json:"impossible,omitzero"`
	Denied     int64            `json:"denied"`
	Reasons    map[string]int64 `json:"reasons"`
	// Obligations are those of the decisions that are counted.
	Obligations Obligations `json:"obligations"`
	First       time.Time   `json:"first,omitzero"`
	Last        time.Time   `json:"last,omitzero"`
	// Bytes is the size of the records.
	Bytes int64 `json:"bytes"`
	*WholeLog
}

// WholeLog is the part of [Statistics] that is of all tenants together.
type WholeLog struct {
	Redacted int64 `json:"redacted"`
	Retired  int64 `json:"retired"`
	// Dropped and Refused were never recorded, as far as the log says so itself.
	Dropped int64 `json:"dropped"`
	Refused int64 `json:"refused"`
	// Lost were on record, as far as the log says how many, in a journal that was damaged.
	Lost int64 `json:"lost,omitempty"`
	// Disk is the size of the files.
	Disk     int64         `json:"disk"`
	Segments []SegmentInfo `json:"segments"`
	// Gaps are where records have no content any more.
	Gaps      []Gap `json:"gaps"`
	Live      bool  `json:"live,omitempty"`
	Uncovered int64 `json:"uncovered,omitempty"`
	// Unfilled stands in the journal only: see [decisionlog.Head].
	Unfilled *decisionlog.Unfilled `json:"journal_only,omitempty"`
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
func Count(ctx context.Context, s *decisionlog.Snapshot) (Statistics, error) {
	st := Statistics{
		Origin:  s.Head.Origin,
		Size:    s.Head.Size,
		Tenants: s.Tenants,
		Kinds:   map[string]int64{},
		Reasons: map[string]int64{},
	}
	if s.Tenants == nil {
		st.WholeLog = wholeOf(s)
	}
	owed, missing := newLedger(owedMost), gaps{found: st.addGap}
	err := each(ctx, s, func(l decisionlog.Record) error { return st.add(l, &missing, owed) })
	if err != nil {
		return st, err
	}
	missing.reached(time.Time{})
	st.Obligations = owed.sum()
	return st, nil
}

func wholeOf(s *decisionlog.Snapshot) *WholeLog {
	w := &WholeLog{Live: s.Head.Live, Uncovered: s.Head.Uncovered, Unfilled: s.Head.Unfilled}
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

func (st *Statistics) add(l decisionlog.Record, missing *gaps, owed *ledger) error {
	s, err := missing.read(l)
	if s == nil || err != nil {
		return err
	}
	st.Bytes += int64(len(l.Line)) + 1
	st.Kinds[s.Kind]++
	if s.Reason != "" {
		st.Reasons[s.Reason]++
	}
	switch s.Answer() {
	case decisionlog.Allow:
		st.Allowed++
	case decisionlog.Waiting:
		st.Waiting++
	case decisionlog.Deny:
		st.Denied++
	}
	switch s.Kind {
	case decisionlog.KindPossible:
		possible, impossible, err := s.Counts()
		if err != nil {
			return err
		}
		st.Possible, st.Impossible = st.Possible+possible, st.Impossible+impossible
	case decisionlog.KindDecision:
		owed.decided(s)
	case decisionlog.KindReceipt:
		owed.received(s.Receipt())
	}
	if st.WholeLog != nil && isLoss(s.Event) {
		var lost Loss
		if err := json.Unmarshal(s.Details, &lost); err != nil {
			return err
		}
		st.Dropped, st.Refused = st.Dropped+lost.Dropped, st.Refused+lost.Refused
		if lost.Damage != nil && lost.Lost != nil {
			st.Lost += *lost.Lost
		}
	}
	st.First, st.Last = cmp.Or(st.First, s.Time), s.Time
	return nil
}

// isLoss reports whether the details of an event are those of a [Loss].
func isLoss(event string) bool {
	return event == decisionlog.EventDropped || event == decisionlog.EventResumed || event == decisionlog.EventLoss
}

func (st *Statistics) addGap(g DatedGap) {
	count := &st.Redacted
	if g.Why == decisionlog.WhyRetired {
		count = &st.Retired
	}
	*count += int64(g.Next - g.First)
	st.Gaps = append(st.Gaps, g.Gap)
}
