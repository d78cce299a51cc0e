package report

import (
	"cmp"
	"crypto/sha256"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/record"
)

// Obligations count the outcomes of the obligations that decisions came with, as
// far as their callers said so in receipts.
type Obligations struct {
	Owed       int64 `json:"owed"`
	Discharged int64 `json:"discharged"`
	Failed     int64 `json:"failed"`
	// Unreported ones are those that no receipt speaks of.
	Unreported int64 `json:"unreported"`
	// GivenUp of the unreported ones were too many to wait for: a receipt that
	// came for one of them was not counted.
	GivenUp int64 `json:"given_up,omitzero"`
}

// owedMost is how many obligations a ledger waits for at most, in some 50 MB.
const owedMost = 1 << 20

// ledger follows obligations from their decisions to their receipts, which come
// later in the log. It remembers those that nothing was said of yet, in two halves:
// when the younger one is full the older one is given up. So a PEP that never sends
// receipts takes no more than its share, and hides nothing of one that does.
type ledger struct {
	types        map[string]*Obligations
	young, older map[owed]*Obligations
	most         int
}

// owed is an obligation of a decision: a hash, as ids may be long.
type owed [16]byte

func newLedger(most int) *ledger {
	return &ledger{types: map[string]*Obligations{}, young: map[owed]*Obligations{}, most: most}
}

func owedBy(decision, id string) owed {
	sum := sha256.Sum256([]byte(decision + "\x00" + id))
	return owed(sum[:])
}

// decided takes in the obligations of a decision.
func (l *ledger) decided(s *record.Recorded) {
	for _, o := range s.Obligations {
		count := l.types[o.Type]
		if count == nil {
			count = &Obligations{}
			l.types[o.Type] = count
		}
		count.Owed++
		l.young[owedBy(s.ID, o.ID)] = count
	}
	if len(l.young) < l.most/2 {
		return
	}
	for _, count := range l.older {
		count.GivenUp++
	}
	l.young, l.older = map[owed]*Obligations{}, l.young
}

// received takes in a receipt. What it says of obligations that the ledger does not
// hold is passed over: their decision may be gone, or not of the time that is asked
// for.
func (l *ledger) received(r record.Receipt) {
	for _, of := range r.Obligations {
		name := owedBy(r.Decision, of.ID)
		count := cmp.Or(l.young[name], l.older[name])
		switch {
		case count == nil:
			continue
		case of.Status == evaluation.Discharged:
			count.Discharged++
		case of.Status == evaluation.NotDischarged:
			count.Failed++
		default:
			continue
		}
		delete(l.young, name)
		delete(l.older, name)
	}
}

// byType returns the counts by type of obligation, once all records are taken in.
func (l *ledger) byType() map[string]Obligations {
	out := map[string]Obligations{}
	for name, count := range l.types {
		count.Unreported = count.Owed - count.Discharged - count.Failed
		out[name] = *count
	}
	return out
}
