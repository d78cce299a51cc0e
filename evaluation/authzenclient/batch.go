package authzenclient

import (
	"context"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// EvaluateBatch sends a batch: many requests at once. There is always one Decision per
// request, in order: what the PDP did not decide, because a semantic stopped it
// or it refused the item, is a deny that says so. An answer with the wrong
// number of items denies all: nobody can say which is missing.
//
// The zero semantic is [evaluation.ExecuteAll].
func (c *Client) EvaluateBatch(ctx context.Context, semantic evaluation.Semantic, requests ...evaluation.Request) []Decision {
	decisions := make([]Decision, len(requests))
	if len(requests) == 0 {
		return decisions // an empty batch would be one request
	}
	body, err := c.encodeBatch(semantic, requests)
	id := ""
	if err == nil {
		a := asking{op: "batch", url: c.endpoint.Load().evaluations, body: body, repeat: repeatOf(requests...)}
		id, err = c.ask(ctx, a, func(r reply) *Error {
			return readBatch(decisions, r, semantic)
		})
	}
	for n := range decisions {
		if err != nil {
			whole := *err // each item has its own, as Op is set in it
			decisions[n] = denied("batch", &whole)
		}
		decisions[n].requestID = id
	}
	return decisions
}

type batchOptions struct {
	Semantic evaluation.Semantic `json:"evaluations_semantic"`
}

func (c *Client) encodeBatch(semantic evaluation.Semantic, requests []evaluation.Request) ([]byte, *Error) {
	var options *batchOptions
	switch semantic {
	case "", evaluation.ExecuteAll:
	case evaluation.DenyOnFirstDeny, evaluation.PermitOnFirstPermit:
		options = &batchOptions{semantic}
	default:
		return nil, notAsked("there is no such semantic")
	}
	items := make([]jsontext.Value, len(requests))
	for n, q := range requests {
		item, err := c.encodeAuthZEN(q)
		if err != nil {
			return nil, err
		}
		items[n] = item
	}
	return encode(struct {
		Evaluations []jsontext.Value `json:"evaluations"`
		Options     *batchOptions    `json:"options,omitzero"`
	}{items, options})
}

// readBatch fills in the decisions. The member decision beside evaluations means
// nothing, as AuthZEN says, and an answer without evaluations is none.
func readBatch(decisions []Decision, r reply, semantic evaluation.Semantic) *Error {
	var top struct {
		Evaluations jsontext.Value `json:"evaluations"`
	}
	var items []jsontext.Value
	if json.Unmarshal(r.body, &top) != nil || top.Evaluations.Kind() != '[' || json.Unmarshal(top.Evaluations, &items) != nil {
		return odd("the body is not one JSON object with an array of evaluations")
	}
	if len(items) > len(decisions) {
		return odd("there are more answers than requests")
	}
	last := len(items) - 1
	for n, item := range items {
		d := read(item, evaluation.AuthZEN)
		if d.err != nil {
			d.err.Op, d.err.Detail = "batch", without(d.err.Detail, r.token)
		}
		decisions[n] = d
		if len(items) < len(decisions) && semantic.Decides(d.allow) != (n == last) {
			return odd("there are fewer answers than requests, and no answer to stop at")
		}
	}
	if len(items) == 0 {
		return odd("there are no answers")
	}
	for n := range decisions {
		if r.decisionID != "" {
			decisions[n].id = itemID(r.decisionID, n)
		}
		if n > last {
			decisions[n] = denied("batch", &Error{Kind: Skipped, Detail: "an earlier item was enough"})
		}
	}
	return nil
}

// itemID names the record of an item.
func itemID(batch string, n int) string { return batch + "." + strconv.Itoa(n) }
