package authzenclient

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// DecideBody is [Client.Decide] of a request that another program wrote, as the body that AuthZEN
// has for it. It is sent as it is, null members included, with nothing but the declaration
// added. A body with evaluations is not sent: see [Client.DecideBatchBody]. People cannot be
// asked about what it denies.
func (c *Client) DecideBody(ctx context.Context, body []byte, types []string) Undischarged {
	q, err := written(body)
	var text []byte
	switch {
	case err != nil:
	case q.Evaluations != nil:
		err = notAsked("the body has evaluations, which are a batch; use DecideBatchBody")
	case link.Present(q.Options):
		err = onlyPossible()
	}
	if err == nil {
		text, err = q.declaring(types)
	}
	if err != nil {
		return Undischarged{decision: denied("evaluate", err)}
	}
	return Undischarged{decision: c.decide(ctx, asking{op: "evaluate", url: c.endpoint.Load().evaluation, body: text, repeat: q.repeat()})}
}

// DecideBatchBody is [Client.DecideBatch] of a batch that another program wrote, with what its
// evaluations share beside them, as [Client.DecideBody] is of one request. There is one result
// per evaluation, in order; a body without evaluations, or with options of its own, is not
// sent, and the one result says so.
func (c *Client) DecideBatchBody(ctx context.Context, semantic evaluation.Semantic, body []byte, types []string) []Undischarged {
	text, n, repeat, err := batchBody(semantic, body, types)
	all := make([]Undischarged, n)
	for i, d := range c.decideAll(ctx, n, semantic, asking{body: text, repeat: repeat}, err) {
		all[i].decision = d
	}
	return all
}

func batchBody(semantic evaluation.Semantic, body []byte, types []string) (text []byte, n int, repeat repeatable, err *Error) {
	options, err := optionsOf(semantic)
	if err != nil {
		return nil, 1, never, err
	}
	q, err := written(body)
	var items []jsontext.Value
	switch {
	case err != nil:
		return nil, 1, never, err
	case q.Evaluations.Kind() != '[' || json.Unmarshal(q.Evaluations, &items) != nil || len(items) == 0:
		return nil, 1, never, notAsked("the body has no evaluations") // without any, it would be one request
	case q.Options != nil:
		return nil, 1, never, notAsked("the body has options of its own; give the semantic")
	}
	repeat = q.repeat()
	for i := range items {
		item, failure := written(items[i])
		if failure == nil && link.Present(item.Options) {
			failure = onlyPossible()
		}
		if failure == nil && link.Present(item.Context) { // it replaces the shared context; null does not
			repeat = min(repeat, item.repeat())
			items[i], failure = item.declaring(types)
		}
		if failure != nil {
			return nil, len(items), never, failure
		}
	}
	if q.Evaluations, err = encode(items); err == nil && options != nil {
		q.Options, err = encode(options)
	}
	if err == nil {
		text, err = q.declaring(types)
	}
	return text, len(items), repeat, err
}

// asWritten is a request, or one of a batch, or the batch, with its members as they were written.
type asWritten struct {
	Subject     jsontext.Value `json:"subject,omitzero"`
	Action      jsontext.Value `json:"action,omitzero"`
	Resource    jsontext.Value `json:"resource,omitzero"`
	Context     jsontext.Value `json:"context,omitzero"`
	Evaluations jsontext.Value `json:"evaluations,omitzero"`
	Options     jsontext.Value `json:"options,omitzero"`
	Others      jsontext.Value `json:",embed"`
}

// written reads a body, and refuses one that two readers could see differently.
func written(body []byte) (q asWritten, err *Error) {
	if json.Unmarshal(body, &q) != nil || jsontext.Value(body).Kind() != '{' {
		return q, notAsked("the body is not one JSON object without ambiguities")
	}
	return q, nil
}

// declaring is the body with the types of obligations in its context.
func (q asWritten) declaring(types []string) ([]byte, *Error) {
	declared, err := declare(evaluation.Request{}, types)
	if err != nil {
		return nil, err
	}
	members := map[string]jsontext.Value{}
	if link.Present(q.Context) && json.Unmarshal(q.Context, &members) != nil {
		return nil, notAsked("the context in the body is not an object")
	}
	for name, v := range declared.Context.Members {
		if members[name], err = encode(v); err != nil {
			return nil, err
		}
	}
	text, failure := json.Marshal(members, json.Deterministic(true))
	if failure != nil {
		return nil, notAsked("the context in the body cannot be encoded")
	}
	q.Context = text
	return encode(q)
}

// repeat is the failures after which the request may be sent again: one that presents an approval may use it up.
func (q asWritten) repeat() repeatable {
	var context map[string]jsontext.Value
	_ = json.Unmarshal(q.Context, &context) // a value that is no object presents nothing
	if _, ok := context[approvalMember]; ok {
		return unsent
	}
	if _, ok := context[approvalIDMember]; ok {
		return unsent
	}
	return unanswered
}
