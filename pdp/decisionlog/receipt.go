package decisionlog

import (
	"github.com/go-json-experiment/json"
)

// KindReceipt is the kind of record that says what a PEP did about the obligations
// of a decision. Its details are a [Receipt].
const KindReceipt = "receipt"

// Receipt is what a PEP reports of the obligations of one decision. It says what
// the PEP says, and changes no decision.
type Receipt struct {
	// Decision is the id of the decision.
	Decision    string       `json:"decision"`
	Obligations []ReceiptFor `json:"obligations"`
}

// ReceiptFor says what became of one obligation.
type ReceiptFor struct {
	ID     string        `json:"id"`
	Status ReceiptStatus `json:"status"`
	Detail string        `json:"detail,omitempty"`
}

// ReceiptStatus is [StatusDischarged] or [StatusFailed].
type ReceiptStatus string

// What may become of an obligation.
const (
	StatusDischarged ReceiptStatus = "discharged"
	StatusFailed     ReceiptStatus = "failed"
)

// Entry is the receipt as it goes on record.
func (r Receipt) Entry(tenant, caller string) Entry {
	return Entry{Kind: KindReceipt, Tenant: tenant, Caller: caller, Details: details(r)}
}

// receipt is the receipt that a record is, or an empty one.
func (s *seen) receipt() (r Receipt) {
	if s.Kind != KindReceipt || json.Unmarshal(s.Details, &r) != nil {
		return Receipt{}
	}
	return r
}
