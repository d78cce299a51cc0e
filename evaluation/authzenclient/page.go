package authzenclient

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

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
	// Of what is said of a page nobody knows which results it is for.
	whole := Decision{allow: true}
	switch whole.qualify(body, top.Context); {
	case whole.conditional():
		return nil, "", &Error{Kind: Obligated, Detail: "the page as a whole carries obligations"}
	case whole.err != nil:
		return nil, "", whole.err
	}
	for _, i := range items {
		r, err := readResult(i, s)
		if err != nil {
			return nil, "", err
		}
		found = append(found, r)
	}
	next, err = nextToken(top.Page)
	return found, next, err
}

// nextToken reads the page member; none, or an empty token, is the end.
func nextToken(page jsontext.Value) (string, *Error) {
	if !present(page) {
		return "", nil
	}
	var p struct {
		Next jsontext.Value `json:"next_token"`
	}
	if page.Kind() != '{' || json.Unmarshal(page, &p) != nil || present(p.Next) && p.Next.Kind() != '"' {
		return "", odd("the page of the answer cannot be read")
	}
	return text("", p.Next), nil
}
