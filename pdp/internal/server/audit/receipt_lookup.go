package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// decisionOf is the decision of an id, if the caller asked for it. A decision of another
// caller gets the same answer as none.
func (a *Audit) decisionOf(ctx context.Context, id string, caller auth.Caller) (d record.Recorded, err error) {
	if a.Mode == decisionlog.BestEffort { // the decision was answered, and its record may still wait to be written
		if err := a.Log.Flush(ctx); err != nil {
			return d, fmt.Errorf("%w: %w", ErrReceipt, err)
		}
	}
	rec, err := a.Log.ByID(id)
	switch {
	case errors.Is(err, segment.ErrNotFound), errors.Is(err, segment.ErrGone):
		return d, unknownDecision()
	case err != nil:
		return d, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	parsed, err := record.Parse(rec.Line)
	if err != nil {
		return d, fmt.Errorf("%w: record %d cannot be read", ErrReceipt, rec.Sequence)
	}
	if parsed.Kind != format.KindDecision || parsed.Caller != caller.Name || !caller.In(parsed.Tenant).Serves(parsed.Tenant) {
		return d, unknownDecision()
	}
	if d, err = a.Log.Recorded(rec.Line); err != nil {
		return d, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	return d, nil
}

func unknownDecision() *door.Problem {
	return door.NewProblem(http.StatusNotFound,
		"no such decision, or not one of yours; send the X-Decision-Id of your own answer, for item n of a batch "+
			"with .n behind it")
}

// obligationNamed is the id of the obligation that a PEP means. The PEP may give the type
// if only one obligation has it, because the native answer may say no more.
func obligationNamed(all []record.RecordedObligation, name string) (id string, ok bool) {
	found := 0
	for _, o := range all {
		if o.ID == name {
			return name, true
		}
		if o.Type == name {
			id, found = o.ID, found+1
		}
	}
	return id, found == 1
}

// receipt makes the receipt that goes on record, or says what is wrong with the request.
func (a *Audit) receipt(
	ctx context.Context, d record.Recorded, sent []evaluation.Receipt,
) (record.Receipt, error) {
	r := record.Receipt{Decision: d.ID}
	given := map[string]bool{}
	for n, one := range sent {
		at := []string{"obligations", strconv.Itoa(n), "id"}
		id, ok := obligationNamed(d.Obligations, one.ID)
		if !ok {
			return r, evaluation.Malformed("the decision has no such obligation",
				"send the id that the answer gave it", at...)
		}
		if given[id] {
			return r, evaluation.Malformed("the obligation is given twice", "send each once", at...)
		}
		given[id] = true
		// If what the decision inherits is gone, a secret in the detail can no longer be
		// recognised, and the secret may be why it is gone.
		detail := ""
		if len(d.Gone) == 0 {
			detail = a.Mask(ctx).After(one.Detail, d.Line, d.Batch.Line)
		}
		r.Obligations = append(r.Obligations, evaluation.Receipt{ID: id, Status: one.Status, Detail: detail})
	}
	return r, nil
}
