package evaluation

import (
	"fmt"
	"strconv"
)

// Receipt is a PEP's report of the outcome of one obligation of a decision.
type Receipt struct {
	// ID is the obligation's. Where the native answer names a type and no id, the
	// type stands for it.
	ID     string        `json:"id"`
	Status ReceiptStatus `json:"status"`
	// Detail says more, to readers of the log. It must hold no secret.
	Detail string `json:"detail,omitempty"`
}

// ReceiptStatus is [Discharged] or [NotDischarged].
type ReceiptStatus string

// The outcomes of an obligation.
const (
	Discharged    ReceiptStatus = "discharged"
	NotDischarged ReceiptStatus = "failed"
)

// MostReceipts is how many receipts one report may have.
const MostReceipts = 4096

// DecodeReceipts reads the body of a report on the obligations of a decision.
// Whether the decision has them is not known here.
func DecodeReceipts(body []byte, limits Limits) ([]Receipt, error) {
	return decode(body, limits, func(r *reader, o Object) []Receipt {
		items, ok := r.member(o, []string{"obligations"}, true, Array, "an array")
		r.want(!ok || items.Len() > 0, "empty; there is nothing to record", "obligations")
		r.want(items.Len() <= MostReceipts, fmt.Sprintf("the array has more than %d elements", MostReceipts), "obligations", strconv.Itoa(MostReceipts))
		receipts := make([]Receipt, 0, items.Len())
		for n, v := range items.Elements {
			receipts = append(receipts, r.receipt(v, limits, "obligations", strconv.Itoa(n)))
		}
		return receipts
	})
}

func (r *reader) receipt(v Value, limits Limits, at ...string) (receipt Receipt) {
	r.want(v.Kind() == Map, "not an object", at...)
	o := v.Object()
	receipt.ID = r.text(o, append(at, "id")...)
	receipt.Status = ReceiptStatus(r.text(o, append(at, "status")...))
	r.want(receipt.Status == Discharged || receipt.Status == NotDischarged, "neither discharged nor failed", append(at, "status")...)
	if detail, ok := r.member(o, append(at, "detail"), false, String, "a string"); ok {
		receipt.Detail = detail.Text()
		r.want(len(receipt.Detail) <= limits.Detail, fmt.Sprintf("more than %d bytes", limits.Detail), append(at, "detail")...)
	}
	return receipt
}
