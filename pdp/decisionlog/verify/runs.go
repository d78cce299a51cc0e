package verify

import (
	"fmt"
	"slices"

	"policy-service/pdp/internal/decisionlog/format"
)

// Unnamed are decisions that no other record accounts for.
type Unnamed struct {
	Decisions int64 `json:"decisions"`
	First     int64 `json:"first"` // the sequence of the first of them
}

func (u *Unnamed) add(sequence int64) *Unnamed {
	if u == nil {
		u = &Unnamed{First: sequence}
	}
	u.Decisions++
	return u
}

// Tail are records that no checkpoint and no MAC covered when a start found them.
type Tail struct {
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	Cause string `json:"cause"` // missing or wrong
}

// name adds tails that are not there yet.
func (r *Report) name(tails ...Tail) {
	for _, t := range tails {
		if !slices.Contains(r.UnsignedTails, t) {
			r.UnsignedTails = append(r.UnsignedTails, t)
		}
	}
}

// Withdrawn is an allow that was never answered, as others had its use of an approval or a capability. The record says so.
type Withdrawn struct {
	Record     int64  `json:"record"`
	Decision   string `json:"decision"`
	Approval   string `json:"approval,omitempty"`
	Capability string `json:"capability,omitempty"`
}

// mostWithdrawn is how many withdrawals are named.
const mostWithdrawn = 100

func (r *Report) withdraw(one *record) {
	if r.Withdrawn++; len(r.WithdrawnFirst) < mostWithdrawn {
		w := one.details.Withdrawn
		w.Record = one.sequence
		r.WithdrawnFirst = append(r.WithdrawnFirst, w)
	}
}

// runs are the starts and stops of the service, and the bundles that it loaded. A decision without a start is not the service's.
type runs struct {
	starts   int64
	running  bool // or it is not known, because content is gone
	bundles  map[string]bool
	gone     bool // content that may have been the loading of a bundle
	outside  *Unnamed
	unloaded *Unnamed
}

// lost takes a record without content.
func (r *runs) lost() { r.running, r.gone = true, true }

func (r *runs) take(one *record) {
	switch one.event {
	case format.EventStart:
		r.starts, r.running = r.starts+1, true
	case format.EventStop, format.EventCrash:
		r.running = false
	case format.EventBundleLoaded:
		if len(r.bundles) < maxSpans {
			r.bundles[one.loaded.Bundle] = true
		} else {
			r.gone = true
		}
	}
	if len(one.bundle) == 0 {
		return
	}
	if !r.running {
		r.outside = r.outside.add(one.sequence)
	}
	if !r.gone && !r.bundles[string(one.bundle)] {
		r.unloaded = r.unloaded.add(one.sequence)
	}
}

// unnamed reports the decisions that the records do not account for. A log without any start, or without any bundle, is of
// a program that records none.
func (c *checker) unnamed() {
	if c.runs.starts > 0 {
		c.report.OutsideStart = c.runs.outside
	}
	if len(c.runs.bundles) > 0 {
		c.report.UnknownBundle = c.runs.unloaded
	}
}

// findings are sentences about records that nothing proves to be the service's.
func (r *Report) findings() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, t := range r.UnsignedTails {
		say("records %d to %d are somebody else's: a start found them without a checkpoint and without a MAC (%s), and signed them as such", t.From, t.To, t.Cause)
	}
	if u := r.OutsideStart; u != nil {
		say("%d decisions, the first of them record %d, are somebody else's: no start of the service is on record before them, or a stop or a crash is", u.Decisions, u.First)
	}
	if u := r.UnknownBundle; u != nil {
		say("%d decisions, the first of them record %d, are somebody else's: no record before them says that their bundle was loaded", u.Decisions, u.First)
	}
	if r.Unsigned > 0 {
		say("the last %d records are covered by no checkpoint: anybody could have written or changed them", r.Unsigned)
	}
	return all
}

// strict is the problem of a log of which something is not proved to be the service's.
func (c *checker) strict() error {
	all := c.report.findings()
	switch {
	case !c.options.Strict:
	case len(all) > 0:
		return problem(Unsigned, -1, "not excluded: %s", all[0])
	case len(c.suspects) > 0:
		return problem(Unwitnessed, -1, "not excluded: %s", c.suspects[0])
	}
	return nil
}
