package authzenclient

import (
	"bytes"
	"context"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// EvaluateBatch sends a batch: many requests at once. There is always one Decision per
// request, in order: what the PDP did not decide, because a semantic stopped it
// or it refused the item, is a deny that says so. An answer with the wrong
// number of items denies all: it is not known which is missing.
//
// The zero semantic is [evaluation.ExecuteAll].
func (c *Client) EvaluateBatch(ctx context.Context, semantic evaluation.Semantic, requests ...evaluation.Request) []Decision {
	if len(requests) == 0 {
		return []Decision{} // an empty batch would be one request
	}
	body, err := c.encodeBatch(semantic, requests)
	a := asking{body: body, repeat: repeatOf(requests...), adopts: make([]bool, len(requests))}
	for n := range requests {
		a.adopts[n] = evaluation.Adopts(requests[n].Context)
	}
	all := c.decideAll(ctx, len(requests), semantic, a, err)
	for n := range all {
		if all[n] = all[n].to("batch", &requests[n]); all[n].err != nil {
			all[n].err.Spent = presents(requests[n]) && all[n].err.lost()
		}
		c.tellUndecided(ctx, all[n].err)
	}
	return all
}

// decideAll asks a batch of so many requests, where err is nil.
func (c *Client) decideAll(ctx context.Context, n int, semantic evaluation.Semantic, a asking, err *Error) []Decision {
	decisions, id := make([]Decision, n), ""
	if err == nil {
		a.op, a.url = "batch", c.endpoint.Load().evaluations
		id, err = c.ask(ctx, a, func(r reply) *Error {
			return readBatch(decisions, a.adopts, r, semantic)
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
	Semantic evaluation.Semantic `json:"evaluations_semantic,omitzero"`
	Unknown  jsontext.Value      `json:"unknown,omitzero"`
}

func optionsOf(semantic evaluation.Semantic) (*batchOptions, *Error) {
	switch semantic {
	case "", evaluation.ExecuteAll:
		return nil, nil
	case evaluation.DenyOnFirstDeny, evaluation.PermitOnFirstPermit:
		return &batchOptions{Semantic: semantic}, nil
	}
	return nil, notAsked("there is no such semantic")
}

// batchParts are subject, action, resource, context and options of a request, as JSON. One that is nil is left out.
type batchParts [5]jsontext.Value

func partsOf(q *evaluation.Request) (p batchParts, err *Error) {
	p = batchParts{q.Subject.AppendJSON(nil), q.Action.AppendJSON(nil), q.Resource.AppendJSON(nil)}
	if q.Context.Len() > 0 {
		p[3] = q.Context.AppendJSON(nil)
	}
	if q.Unknown != nil {
		p[4], err = encode(q.Unknown.Pointers())
	}
	return p, err
}

// share takes the common parts out of all items, and returns them.
func share(items []batchParts) (shared batchParts) {
	first := items[0]
	for part := range first {
		differs := func(p batchParts) bool { return !bytes.Equal(p[part], first[part]) }
		if len(items) == 1 || slices.ContainsFunc(items, differs) {
			continue
		}
		shared[part] = first[part]
		for n := range items {
			items[n][part] = nil
		}
	}
	return shared
}

// batchItem is an item as it is sent. A part that it leaves out stands beside the items.
type batchItem struct {
	Subject  jsontext.Value `json:"subject,omitzero"`
	Action   jsontext.Value `json:"action,omitzero"`
	Resource jsontext.Value `json:"resource,omitzero"`
	Context  jsontext.Value `json:"context,omitzero"`
	Options  *batchOptions  `json:"options,omitzero"`
}

func (p batchParts) item(options *batchOptions) batchItem {
	if p[4] != nil {
		options = &batchOptions{Unknown: p[4]}
	}
	return batchItem{p[0], p[1], p[2], p[3], options}
}

// encodeBatch writes the common parts of all requests once, beside the evaluations.
func (c *Client) encodeBatch(semantic evaluation.Semantic, requests []evaluation.Request) ([]byte, *Error) {
	options, err := optionsOf(semantic)
	if err != nil {
		return nil, err
	}
	parts, items := make([]batchParts, len(requests)), make([]batchItem, len(requests))
	for n := range requests {
		if err = sendable(c.tenant, requests[n]); err == nil {
			parts[n], err = partsOf(&requests[n])
		}
		if err != nil {
			return nil, err
		}
	}
	shared := share(parts).item(options)
	if options != nil {
		shared.Options.Semantic = options.Semantic
	}
	for n := range parts {
		items[n] = parts[n].item(nil)
	}
	return encode(struct {
		batchItem   `json:",inline"`
		Evaluations []batchItem `json:"evaluations"`
	}{shared, items})
}

// readBatch fills in the decisions. The member decision beside evaluations means
// nothing, as AuthZEN says, and an answer without evaluations is none. Obligations
// beside them mean something, and it is not known of which item.
func readBatch(decisions []Decision, adopts []bool, r reply, semantic evaluation.Semantic) *Error {
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
	if err := ofAll(r.body, top.Context, "the batch", slices.Contains(adopts, true)); err != nil {
		return err
	}
	last := len(items) - 1
	for n, item := range items {
		d := read(item, adopts[n]).without(r.secrets)
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
