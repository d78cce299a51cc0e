package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
)

// recordedDecision is what of a decision's record matters to its receipts.
type recordedDecision struct {
	said  [][]byte // of it on record; whole says that nothing it inherits is gone
	whole bool

	Sequence    uint64 `json:"sequence"`
	ID          string `json:"id"`
	Kind        string `json:"kind"`
	Tenant      string `json:"tenant"`
	Caller      string `json:"caller"`
	Obligations []struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	} `json:"obligations"`
}

// decisionOf is the decision of an id, where the caller asked for it. Whether there is
// another's, nobody learns.
func (s *Server) decisionOf(ctx context.Context, id string, caller Caller) (d recordedDecision, err error) {
	if s.config.DecisionLog.Mode == decisionlog.BestEffort { // it was answered, and may still wait to be written
		if err := s.decisions.Flush(ctx); err != nil {
			return d, fmt.Errorf("%w: %w", errReceipt, err)
		}
	}
	record, err := s.decisions.ByID(id)
	switch {
	case errors.Is(err, decisionlog.ErrNotFound), errors.Is(err, decisionlog.ErrGone):
		return d, unknownDecision()
	case err != nil:
		return d, fmt.Errorf("%w: %w", errReceipt, err)
	}
	if err := json.Unmarshal(record.Line, &d); err != nil {
		return d, fmt.Errorf("%w: record %d cannot be read", errReceipt, record.Sequence)
	}
	if d.Kind != decisionlog.KindDecision || d.Caller != caller.Name || !caller.Serves(d.Tenant) {
		return d, unknownDecision()
	}
	if d.said, d.whole, err = s.said(record.Line); err != nil {
		return d, fmt.Errorf("%w: %w", errReceipt, err)
	}
	return d, nil
}

func unknownDecision() *door.Problem {
	return door.NewProblem(http.StatusNotFound, "no such decision, or not one of yours; send the X-Decision-Id of your own answer, for item n of a batch with .n behind it")
}

// named is the id of the obligation that a PEP means: by id, or by type where that says
// which, because the native answer may say no more.
func (d recordedDecision) named(name string) (id string, ok bool) {
	found := 0
	for _, o := range d.Obligations {
		if o.ID == name {
			return name, true
		}
		if o.Type == name {
			id, found = o.ID, found+1
		}
	}
	return id, found == 1
}

func (d recordedDecision) typeOf(id string) string {
	for _, o := range d.Obligations {
		if o.ID == id {
			return o.Type
		}
	}
	return ""
}

// receipt is what goes on record, or what is wrong with what was sent.
func (s *Server) receipt(ctx context.Context, d recordedDecision, sent []evaluation.Receipt) (decisionlog.Receipt, error) {
	r := decisionlog.Receipt{Decision: d.ID}
	given := map[string]bool{}
	for n, one := range sent {
		at := []string{"obligations", strconv.Itoa(n), "id"}
		id, ok := d.named(one.ID)
		if !ok {
			return r, evaluation.Malformed("the decision has no such obligation", "send the id that the answer gave it", at...)
		}
		if given[id] {
			return r, evaluation.Malformed("the obligation is given twice", "send each once", at...)
		}
		given[id] = true
		detail := "" // where a secret in it could not be told any more, which may be why that is gone
		if d.whole {
			detail = s.pinned(ctx).mask.After(one.Detail, d.said...)
		}
		r.Obligations = append(r.Obligations, evaluation.Receipt{ID: id, Status: one.Status, Detail: detail})
	}
	return r, nil
}
