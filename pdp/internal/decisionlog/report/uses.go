package report

import (
	"cmp"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Use is a decision that was to use an approval or a capability.
type Use struct {
	At         Instant `json:"at"`
	Decision   string  `json:"decision"`
	Approval   string  `json:"approval,omitzero"`
	Capability string  `json:"capability,omitzero"`
}

// uses follow decisions from their records to the steps that settle their uses, and to their withdrawals. Like [ledger] they
// are in two halves, of which the older one is given up: a log that never settles anything takes no more than its share.
type uses struct {
	young, older map[string]*use // by decision
	most         int
	gone         bool // records without content, or that a filter left out, may have settled something
}

// usesMost is how many uses are followed at most, in some 50 MB.
const usesMost = 1 << 18

// use is a decision that is not settled yet.
type use struct {
	Use
	items   []string // of which no step names the decision yet
	allowed bool
	held    bool // it is counted among the calls of a capability
}

func newUses(most int) *uses { return &uses{young: map[string]*use{}, most: most} }

// decided takes in a decision, if it has a use.
func (u *uses) decided(s *record.Recorded, at Instant) {
	one := use{Use: Use{At: at, Decision: s.ID}, allowed: s.Answer() == record.Allow}
	for _, met := range s.Discharged {
		if met.Approval != "" {
			one.Approval, one.items = met.Approval, append(one.items, met.Approval)
		}
	}
	if c := s.Capability; c != nil {
		if one.held = c.Held; c.Used || c.Grants {
			one.Capability, one.items = c.ID, append(one.items, c.ID)
		}
	}
	if len(one.items) == 0 {
		return
	}
	if u.young[s.ID] = &one; len(u.young) >= u.most/2 {
		u.young, u.older = map[string]*use{}, u.young
	}
}

// settles are the steps that count a use. A release of a decision that is on record is another process's, and settles nothing.
var settles = []string{approval.StepUsed, approval.StepContinued, approval.StepCaughtUp, "granted", "renewed"}

// ended takes away the use of an item, and reports whether that was the last one.
func (one *use) ended(item string) bool {
	one.items = slices.DeleteFunc(one.items, func(is string) bool { return is == item })
	return len(one.items) == 0
}

// look takes in a step, or a withdrawal. It returns the use of a decision that is withdrawn, or nil.
func (u *uses) look(s *record.Recorded) (*use, error) {
	step := s.Kind == format.KindApproval || s.Kind == format.KindCapability
	withdrawn := s.Kind == format.KindAdmin && s.Event == format.EventWithdrawn
	if !withdrawn && !(step && slices.Contains(settles, s.Event)) {
		return nil, nil
	}
	var of struct {
		record.Withdrawn `json:",inline"`
		UsedBy           string `json:"used_by"`
	}
	if err := json.Unmarshal(s.Details, &of); err != nil {
		return nil, err
	}
	if s.Event == approval.StepCaughtUp { // the log had them before the state did
		for _, half := range []map[string]*use{u.young, u.older} {
			maps.DeleteFunc(half, func(_ string, one *use) bool { return one.ended(cmp.Or(of.Approval, of.Capability)) })
		}
		return nil, nil
	}
	decision := of.Decision
	if s.Kind == format.KindApproval { // its decision is the one that waited
		decision = of.UsedBy
	}
	one := cmp.Or(u.young[decision], u.older[decision])
	if one == nil {
		return nil, nil
	}
	if !one.ended(cmp.Or(of.Approval, of.Capability)) && !withdrawn {
		return nil, nil
	}
	delete(u.young, decision)
	delete(u.older, decision)
	if !withdrawn {
		return nil, nil
	}
	one.Approval, one.Capability = of.Approval, of.Capability
	return one, nil
}

// left returns the allows of which no record says what became of their uses, if all records are there.
func (u *uses) left() (all []Use) {
	for _, half := range []map[string]*use{u.older, u.young} {
		for _, decision := range slices.Sorted(maps.Keys(half)) {
			if one := half[decision]; one.allowed && !u.gone {
				all = append(all, one.Use)
			}
		}
	}
	return all
}

// withdrawal takes in a record that may be a withdrawal, or the end of a use.
func (p *reporting) withdrawal(s *record.Recorded) error {
	one, err := p.uses.look(s)
	if one == nil || err != nil {
		return err
	}
	p.report.Withdrawn = append(p.report.Withdrawn, one.Use)
	if one.allowed {
		p.report.Population.Allowed--
		p.report.Population.Withdrawn++
	}
	if one.allowed && one.held {
		p.report.Capabilities.Calls--
	}
	return nil
}
