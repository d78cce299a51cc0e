package decisionlog

import (
	"policy-service/evaluation"
)

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
