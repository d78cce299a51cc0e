package authzenclient

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// searchBody is a request with a gap. It is not an [evaluation.Request], which
// has none: an empty id is an id.
type searchBody struct {
	Subject  any               `json:"subject"`
	Action   any               `json:"action,omitzero"`
	Resource any               `json:"resource"`
	Context  evaluation.Object `json:"context,omitempty"`
	Page     *pageRequest      `json:"page,omitzero"`
}

type pageRequest struct {
	Token string `json:"token,omitempty"`
	Limit int    `json:"limit,omitzero"`
}

// ask repeats the limit with the token: a changed query would be another one.
func (p pageLimits) ask(token string) *pageRequest {
	if token == "" && p.size == 0 {
		return nil
	}
	return &pageRequest{Token: token, Limit: p.size}
}

type typed struct {
	Type string `json:"type"`
}

// encodeSearch leaves out the entity or action that is sought.
func (c *Client) encodeSearch(q evaluation.Request, what gap) (searchBody, *Error) {
	if err := sendable(c.tenant, q); err != nil {
		return searchBody{}, err
	}
	if q.Unknown != nil {
		return searchBody{}, notAsked("a search cannot ask what is possible; use EvaluateBatch")
	}
	b := searchBody{Subject: q.Subject, Action: q.Action, Resource: q.Resource, Context: q.Context}
	switch what {
	case subject:
		b.Subject = typed{q.Subject.Type}
	case resource:
		b.Resource = typed{q.Resource.Type}
	case action:
		b.Action = nil
	}
	return b, nil
}

// item is a result before its obligations are discharged.
type item struct {
	Result
	decision Decision
}

// readResult reads one result. Obligations are looked for beside it, and in a
// context of its own, which is where October's draft has them. Without a context of its own it has what the page owes.
func readResult(v jsontext.Value, s sought, page Decision) (item, *Error) {
	var r struct {
		Context jsontext.Value `json:"context"`
		Type    jsontext.Value `json:"type"`
		ID      jsontext.Value `json:"id"`
		Name    jsontext.Value `json:"name"`
	}
	if v.Kind() != '{' || json.Unmarshal(v, &r) != nil {
		return item{}, odd("a result is not an object")
	}
	i := item{Result{Type: s.typ, ID: link.Text("", r.ID)}, Decision{allow: true, october: s.october}}
	if !link.Present(r.Context) {
		i.decision = page
	}
	if i.decision.qualify(v, r.Context); s.keep == nil && i.decision.err != nil {
		return item{}, i.decision.err
	}
	if s.what == action {
		if r.Name.Kind() != '"' {
			return item{}, odd("an action that was found has no name")
		}
		i.Result = Result{Name: link.Text("", r.Name)}
		return i, nil
	}
	if r.Type.Kind() != '"' || r.ID.Kind() != '"' {
		return item{}, odd("an entity that was found has no type or no id")
	}
	if link.Text("", r.Type) != s.typ {
		return item{}, odd("an entity that was found is of another type")
	}
	return i, nil
}

// page asks for one page. All of it is read before any of it is yielded.
func (c *Client) page(ctx context.Context, url string, question searchBody, token string, s sought) (found []item, next string, err *Error) {
	question.Page = c.pages.ask(token)
	body, err := encode(question)
	if err != nil {
		return nil, "", err
	}
	a := asking{op: "search", url: url, body: body, repeat: unanswered}
	_, err = c.ask(ctx, a, func(r reply) (err *Error) {
		found, next, err = readPage(r.body, s)
		return err
	})
	return found, next, err
}

func readPage(body []byte, s sought) (found []item, next string, err *Error) {
	var top struct {
		Context jsontext.Value `json:"context"`
		Results jsontext.Value `json:"results"`
		Page    jsontext.Value `json:"page"`
	}
	var items []jsontext.Value
	if json.Unmarshal(body, &top) != nil || top.Results.Kind() != '[' || json.Unmarshal(top.Results, &items) != nil {
		return nil, "", odd("the body is not one JSON object with an array of results")
	}
	page, ofPage := Decision{allow: true, october: s.october}, top.Context
	if s.october {
		if page.qualify(jsontext.Value("{}"), top.Context); page.conditional() {
			page.err = nil // each result has the obligations
		} else if page.err != nil && top.Context.Kind() == '{' { // any other context excludes only the results without their own
			return nil, "", page.err
		}
		ofPage = nil
	}
	if err := ofAll(body, ofPage, "the page", s.october); err != nil {
		return nil, "", err
	}
	for _, i := range items {
		r, err := readResult(i, s, page)
		if err != nil {
			return nil, "", err
		}
		found = append(found, r)
	}
	if s.october {
		tellApart(found)
	}
	next, err = nextToken(top.Page)
	return found, next, err
}

// nextToken reads the page member; none, or an empty token, is the end.
func nextToken(page jsontext.Value) (string, *Error) {
	if !link.Present(page) {
		return "", nil
	}
	var p struct {
		Next jsontext.Value `json:"next_token"`
	}
	if page.Kind() != '{' || json.Unmarshal(page, &p) != nil || link.Present(p.Next) && p.Next.Kind() != '"' {
		return "", odd("the page of the answer cannot be read")
	}
	return link.Text("", p.Next), nil
}
