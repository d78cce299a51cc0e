package authzenclient

import (
	"time"

	"policy-service/obligations"
)

// Enforcement is a decision after its obligations. Only this package can make
// one that permits; the zero Enforcement is a deny.
type Enforcement struct {
	decision   Decision
	report     obligations.Report
	unreported *Error
	until      time.Time // the end of the approval that it rests on
	ended      bool      // that was over when the obligations were discharged
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
	return e.until
}

// Decision is what the PDP said. It permits nothing that e does not, and with
// obligations it never permits.
func (e Enforcement) Decision() Decision {
	d := e.decision
	d.permit = d.permit && e.Permitted()
	return d
}

// Report says what became of each obligation.
func (e Enforcement) Report() obligations.Report { return e.report }

// ReceiptErr says why the PDP could not be told what became of the obligations: always
// an [*Error]. It is nil where it was told, where there is nothing to tell, and where it
// does not take receipts. It has no part in what e permits.
func (e Enforcement) ReceiptErr() error {
	if e.unreported == nil {
		return nil
	}
	return e.unreported
}

// Err says why there is no answer, or what of it was not done: always an
// [*Error]. It is nil for a permit, and for a deny that was enforced in full.
func (e Enforcement) Err() error {
	if e.decision.err != nil && !e.decision.conditional() {
		return e.decision.err
	}
	undone := e.report.Err()
	switch {
	case undone == nil && e.ended:
		return &Error{Op: "enforce", Kind: NotApproved, Detail: "the approval ended before all obligations were discharged"}
	case undone == nil:
		return nil
	}
	kind := Obligated
	if e.decision.permit { // it obliged to nothing: only the context can have ended
		kind = Cancelled
	}
	return &Error{Op: "enforce", Kind: kind, Detail: printable(undone.Error()), cause: undone}
}

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
