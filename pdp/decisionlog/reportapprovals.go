package decisionlog

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// The steps of approval requests that a report counts.
const (
	eventFiled     = "filed"
	eventApproved  = "approved"
	eventDenied    = "denied"
	eventExpired   = "expired"
	eventCancelled = "cancelled"
	eventUsed      = "used"
)

// NativeForm is how approval requests of the native form are counted; others have
// the name that their records give.
const NativeForm = "native"

// Approvals are the approval requests of one form, by what became of them in the
// time of the report.
type Approvals struct {
	Filed     int64 `json:"filed"`
	Approved  int64 `json:"approved"`
	Denied    int64 `json:"denied"`
	Expired   int64 `json:"expired"`
	Cancelled int64 `json:"cancelled"`
	// Used are the decisions that went by one.
	Used int64 `json:"used"`
	// Median and Longest are how long people took who approved or denied, in seconds,
	// from the filing to the record; nil where nobody did.
	Median  *float64 `json:"median_seconds,omitzero"`
	Longest *float64 `json:"longest_seconds,omitzero"`
}

// approvals count the requests of one form. What it holds grows with the answers that
// people gave.
type approvals struct {
	Approvals
	took []time.Duration
}

func (p *reporting) approval(s *Recorded) error {
	var about struct {
		Asked   string    `json:"asked"`
		FiledAt time.Time `json:"filed_at"`
	}
	if err := json.Unmarshal(s.Details, &about); err != nil {
		return err
	}
	if about.Asked == "" {
		about.Asked = NativeForm
	}
	a := p.approvals[about.Asked]
	if a == nil {
		a = &approvals{}
		p.approvals[about.Asked] = a
	}
	a.count(s.Event, s.Time.Sub(about.FiledAt))
	return nil
}

func (a *approvals) count(event string, took time.Duration) {
	switch event {
	case eventFiled:
		a.Filed++
	case eventApproved:
		a.Approved++
		a.took = append(a.took, took)
	case eventDenied:
		a.Denied++
		a.took = append(a.took, took)
	case eventExpired:
		a.Expired++
	case eventCancelled:
		a.Cancelled++
	case eventUsed:
		a.Used++
	}
}

// end is the count with its times. Of an even number the median is the lower of the two
// in the middle: one that somebody took.
func (a *approvals) end() Approvals {
	if len(a.took) > 0 {
		slices.Sort(a.took)
		median, longest := a.took[(len(a.took)-1)/2].Seconds(), a.took[len(a.took)-1].Seconds()
		a.Median, a.Longest = &median, &longest
	}
	return a.Approvals
}
