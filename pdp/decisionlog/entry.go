package decisionlog

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Entry is what becomes a record: everything but its sequence, time and salt.
// What is secret in it is masked by then.
type Entry struct {
	ID                         string
	Kind                       string
	Tenant                     string
	Caller, RequestID, TraceID string
	// Payer is whose account it counts toward, where that is not Caller: the requester in
	// the details of what comes of an approval by itself.
	Payer string
	// Now is the clock reading a decision was made with; zero is none.
	Now     time.Time
	Request *Request
	// Inherits, of an item of a batch, are the members of Request that stand in the batch's
	// own record of [KindBatch]: subject, action, resource (their properties), context, and
	// supported_obligations, which a context of the item's own lacks.
	Inherits []string
	Search   *Search   // of kind search
	Decision *Decision // of kind decision, and of later kinds where they have one
	// Event and Details, a JSON object, say what happened in kind admin and later ones.
	Event   string
	Details jsontext.Value
}

// waits reports whether it must be durable before anybody goes on, in best effort too:
// what spends an approval could otherwise be done twice.
func (e *Entry) waits() bool {
	return e.Kind != KindDecision && e.Kind != KindSearch && e.Kind != KindBatch || e.Decision != nil && len(e.Decision.Discharged) > 0
}

// refusable reports whether there need be none where there is no room: nothing is answered
// then. What people decide about approvals, and what is done to the log, always has some.
func (e *Entry) refusable() bool {
	switch e.Kind {
	case KindDecision, KindSearch, KindBatch, KindReceipt:
		return true
	}
	return false
}

// Request is the masked question. Each member is a finished JSON value in the
// AuthZEN form; an empty one is left out.
type Request struct {
	Subject, Action, Resource, Context jsontext.Value
}

// Search is what was looked for, what was found, and how many were looked at.
type Search struct {
	Query    evaluation.SearchKind
	Found    []string
	Examined int
	Bundle   string // digest of the bundle that decided
}

// Decision is the answer. Obligations is a finished JSON array, masked, or empty.
type Decision struct {
	Allow              bool
	Reason, ReasonUser string
	Determining        []string
	Errors             []evaluation.PolicyError
	Obligations        jsontext.Value
	Required           []string
	LeftOut            []evaluation.LeftOut
	Discharged         []evaluation.Met // obligations that an approval has met
	Mismatch           []string         // JSON Pointers
	Bundle             string
}

// KindReceipt is the kind of record that says what a PEP did about the obligations
// of a decision. Its details are a [Receipt].
const KindReceipt = "receipt"

// Receipt is what a PEP reports of the obligations of one decision. It says what
// the PEP says, and changes no decision.
type Receipt struct {
	// Decision is the id of the decision.
	Decision    string               `json:"decision"`
	Obligations []evaluation.Receipt `json:"obligations"`
}

// Entry is the receipt as it goes on record.
func (r Receipt) Entry(tenant, caller string) Entry {
	return Entry{Kind: KindReceipt, Tenant: tenant, Caller: caller, Details: details(r)}
}
