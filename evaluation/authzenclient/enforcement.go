package authzenclient

import (
	"slices"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
	"policy-service/obligations"
)

// Enforcement is a decision after its obligations. Only this package can make
// one that permits; the zero Enforcement is a deny.
type Enforcement struct {
	of         Undischarged
	report     obligations.Report
	ended      bool // the approval was over when the obligations were discharged
	reported   bool // the PDP has the receipts
	unreported *Error
}

// Permitted reports whether the PDP allows and all that it obliges to was
// discharged. Whatever follows from a decision is to be asked here.
func (e Enforcement) Permitted() bool { return e.report.Permitted() && !e.ended }

// ApprovedUntil is when the approval ends that a permit rests on: nothing may rest on e
// after that, and no credential that is issued by it may live longer. It is zero where e
// rests on none.
func (e Enforcement) ApprovedUntil() time.Time {
	if !e.Permitted() {
		return time.Time{}
	}
	return e.of.by.until
}

// Decision is the PDP's answer. It permits nothing that e does not, and with
// obligations it never permits.
func (e Enforcement) Decision() Decision {
	d := e.of.decision
	d.permit = d.permit && e.Permitted()
	return d
}

// Report has the outcome of each obligation.
func (e Enforcement) Report() obligations.Report { return e.report }

// Break takes a handler's promise back: the act that it promised was not done, as where a result
// that was to be redacted could not be. From then on e is a deny, and [Client.Report] says
// that the obligation was not discharged.
func (e *Enforcement) Break(o evaluation.Obligation, why error) {
	e.report = e.report.Break(o, why)
}

// ReceiptErr is the reason why a receipt could not be sent: always an [*Error]. It is nil
// if it was sent, if there is none, and if the PDP does not take receipts. It has no part in
// the permit.
func (e Enforcement) ReceiptErr() error {
	if e.unreported == nil {
		return nil
	}
	return e.unreported
}

// Err says why there is no answer, or which obligation was not discharged: always an
// [*Error]. It is nil for a permit, and for a deny that was enforced in full.
func (e Enforcement) Err() error {
	if err := e.of.Err(); err != nil {
		return err
	}
	undone := e.report.Err()
	switch {
	case undone == nil && e.ended:
		return &Error{Op: "enforce", Kind: NotApproved, Detail: "the approval ended before all obligations were discharged"}
	case undone == nil:
		return nil
	}
	kind := Obligated
	if len(e.report.Outcomes()) == 0 { // it obliged to nothing: only the context can have ended
		kind = Cancelled
	}
	return &Error{Op: "enforce", Kind: kind, Detail: link.Printable(undone.Error()), Cause: undone}
}

// Question is the request as the PDP was asked it; zero where it was not asked.
func (e Enforcement) Question() evaluation.Request { return e.of.question }

// String is for logs.
func (e Enforcement) String() string {
	if e.Permitted() {
		return "permit"
	}
	if err := e.Err(); err != nil {
		return "deny: " + err.Error()
	}
	return e.Decision().String()
}

// Deny is e as a deny, for the reason err.
func (e Enforcement) Deny(err *Error) Enforcement {
	e.of, e.ended = e.of.Deny(err), true
	return e
}

// Enforcements are several decisions after their obligations, which are one permit together
// or none: see [DischargeAll]. Those of nothing are a deny.
type Enforcements struct{ all []Enforcement }

// Permitted reports whether there is a decision, and each permits.
func (e Enforcements) Permitted() bool {
	return len(e.all) > 0 && !slices.ContainsFunc(e.all, func(one Enforcement) bool { return !one.Permitted() })
}

// All are the decisions one by one, in the order in which they were given.
func (e Enforcements) All() []Enforcement { return slices.Clone(e.all) }

// First is the one for which the act is denied, or the last where each permits.
func (e Enforcements) First() Enforcement {
	denies := func(one Enforcement) bool { return !one.Permitted() }
	byItself := func(one Enforcement) bool {
		err := one.of.decision.err
		return denies(one) && (err == nil || err.Kind != Skipped)
	}
	at := slices.IndexFunc(e.all, byItself)
	if at < 0 {
		at = slices.IndexFunc(e.all, denies)
	}
	switch {
	case at >= 0:
		return e.all[at]
	case len(e.all) > 0:
		return e.all[len(e.all)-1]
	}
	return Enforcement{}
}

// Break is [Enforcement.Break] for each decision that obliges to o, and for all where none does.
func (e *Enforcements) Break(o evaluation.Obligation, why error) {
	owes := func(one Enforcement) bool { return one.report.Owes(o) }
	known := slices.ContainsFunc(e.all, owes)
	e.all = slices.Clone(e.all)
	for n := range e.all {
		if !known || owes(e.all[n]) {
			e.all[n].Break(o, why)
		}
	}
}
