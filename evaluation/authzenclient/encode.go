package authzenclient

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
)

// sendable refuses a request that cannot be sent by a client of a tenant. The tenant is in the
// URL, so one for another one must not go there.
func sendable(tenant string, q evaluation.Request) *Error {
	if q.Tenant != "" && q.Tenant != cmp.Or(tenant, evaluation.DefaultTenant) {
		return notAsked("the request is for another tenant than the client; ask by ForTenant")
	}
	return exact(q)
}

// encodeAuthZEN makes a request the body of a question, as JSON unless it can be handed over.
func (c *Client) encodeAuthZEN(q evaluation.Request, a *asking) *Error {
	if err := sendable(c.tenant, q); err != nil {
		return err
	}
	if c.handsOver {
		if handed, ok := evaluation.HandOver(q); ok {
			a.handed = handed
			return nil
		}
	}
	body, err := q.MarshalJSON() // as [json.Marshal] would have it, which would read it all again
	if err != nil {
		return notAsked("the request cannot be encoded")
	}
	a.body = body
	return nil
}

// exact refuses names that encoding would change: a question about one
// entity must not be answered about another.
func exact(q evaluation.Request) *Error {
	names := []string{q.Subject.Type, q.Subject.ID, q.Action.Name, q.Resource.Type, q.Resource.ID}
	if !utf8.ValidString(strings.Join(names, " ")) {
		return notAsked("a type, an id or the action's name is not valid UTF-8")
	}
	return nil
}

func encode(v any) ([]byte, *Error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, notAsked("the request cannot be encoded")
	}
	return body, nil
}
