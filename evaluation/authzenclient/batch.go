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
	if len(requests) == 0 {
		return []Decision{} // an empty batch would be one request
	}
	body, err := c.encodeBatch(semantic, requests)
	all := c.decideAll(ctx, len(requests), semantic, asking{body: body, repeat: repeatOf(requests...)}, err)
	for n := range all {
		all[n] = all[n].to("batch", &requests[n])
	}
	return all
}

// decideAll asks a batch of so many requests, where err is nil.
func (c *Client) decideAll(ctx context.Context, n int, semantic evaluation.Semantic, a asking, err *Error) []Decision {
	decisions, id := make([]Decision, n), ""
	if err == nil {
		a.op, a.url = "batch", c.endpoint.Load().evaluations
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

func optionsOf(semantic evaluation.Semantic) (*batchOptions, *Error) {
	switch semantic {
	case "", evaluation.ExecuteAll:
		return nil, nil
	case evaluation.DenyOnFirstDeny, evaluation.PermitOnFirstPermit:
		return &batchOptions{semantic}, nil
	}
	return nil, notAsked("there is no such semantic")
}

func (c *Client) encodeBatch(semantic evaluation.Semantic, requests []evaluation.Request) ([]byte, *Error) {
	options, err := optionsOf(semantic)
	if err != nil {
		return nil, err
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
// nothing, as AuthZEN says, and an answer without evaluations is none. Obligations
// beside them mean something, and nobody can say of which item.
func readBatch(decisions []Decision, r reply, semantic evaluation.Semantic) *Error {
	var top struct {
		Evaluations jsontext.Value `json:"evaluations"`
		Context     jsontext.Value `json:"context"`
	}
	var items []jsontext.Value
	if json.Unmarshal(r.body, &top) != nil || top.Evaluations.Kind() != '[' || json.Unmarshal(top.Evaluations, &items) != nil {
		return odd("the body is not one JSON object with an array of evaluations")
	}
	if len(items) > len(decisions) {
		return odd("there are more answers than requests")
	}
	if err := ofAll(r.body, top.Context, "the batch"); err != nil {
		return err
	}
	last := len(items) - 1
	for n, item := range items {
		d := read(item, evaluation.AuthZEN)
		if d.err != nil {
			d.err.Op, d.err.Detail = "batch", r.secrets.printable(d.err.Detail)
		}
		decisions[n] = d
		if len(items) < len(decisions) && semantic.Decides(d.allow, d.possible) != (n == last) {
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
