package authzenclient

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// sendable refuses a request that cannot be sent by a client of a tenant. The tenant is in the
// URL, so one for another one must not go there.
func sendable(tenant string, q evaluation.Request) *Error {
	if q.Tenant != "" && q.Tenant != cmp.Or(tenant, evaluation.DefaultTenant) {
		return notAsked("the request is for another tenant than the client; make one client per tenant")
	}
	return exact(q)
}

// encodeAuthZEN writes one request.
func (c *Client) encodeAuthZEN(q evaluation.Request) ([]byte, *Error) {
	if err := sendable(c.tenant, q); err != nil {
		return nil, err
	}
	body, err := q.MarshalJSON() // as [json.Marshal] would have it, which would read it all again
	if err != nil {
		return nil, notAsked("the request cannot be encoded")
	}
	return body, nil
}

// exact refuses names that encoding would change: whoever asks about one
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

// encodeNative writes a request in the tenant/actor/resource shape. What that
// shape has no place for is an error and is not left out: without it the
// request would be another one.
func (c *Client) encodeNative(q evaluation.Request) ([]byte, *Error) {
	tenant := cmp.Or(q.Tenant, c.tenant)
	if c.tenant != "" && tenant != c.tenant {
		return nil, notAsked("the request is for another tenant than the client; make one client per tenant")
	}
	if !evaluation.IsTenantName(tenant) {
		return nil, notAsked("a native request must name its tenant: in the request, or by WithTenant")
	}
	if err := exact(q); err != nil {
		return nil, err
	}
	if q.Unknown != nil {
		return nil, notAsked("the native shape cannot ask what is possible; use Evaluate")
	}
	if q.Action.Properties.Len() > 0 {
		return nil, notAsked("the native shape has no place for properties of the action; use Evaluate")
	}
	actor, err := nativeActor(q.Subject)
	if err != nil {
		return nil, err
	}
	resource, err := nativeResourceOf(q.Resource)
	if err != nil {
		return nil, err
	}
	purpose, rest := purposeOf(q.Context)
	return encode(struct {
		Tenant   string            `json:"tenant_id"`
		Actor    jsontext.Value    `json:"actor"`
		Action   string            `json:"action"`
		Resource nativeResource    `json:"resource"`
		Purpose  string            `json:"purpose,omitzero"`
		Context  evaluation.Object `json:"context,omitempty"`
	}{tenant, actor, q.Action.Name, resource, purpose, rest})
}

func nativeActor(e evaluation.Entity) (jsontext.Value, *Error) {
	for _, name := range [...]string{"actor_type", "actor_id"} {
		if _, taken := e.Properties.Get(name); taken {
			return nil, notAsked("the native shape has no place for a property " + name + " of the subject; use Evaluate")
		}
	}
	typ, err1 := evaluation.Text(e.Type)
	id, err2 := evaluation.Text(e.ID)
	if err1 != nil || err2 != nil {
		return nil, notAsked("the subject cannot be encoded")
	}
	return encode(e.Properties.With("actor_type", typ).With("actor_id", id))
}

type nativeResource struct {
	Type   string            `json:"type"`
	ID     string            `json:"id"`
	Labels *evaluation.Value `json:"labels,omitzero"`
}

func nativeResourceOf(e evaluation.Entity) (nativeResource, *Error) {
	r := nativeResource{Type: e.Type, ID: e.ID}
	for name, v := range e.Properties.Members {
		if name != "labels" || v.Kind() != evaluation.Map {
			return r, notAsked("the native shape has no place for properties of the resource, but for labels, an object; use Evaluate")
		}
		r.Labels = &v
	}
	return r, nil
}

// purposeOf takes context.purpose to the place the native shape has for it, the
// only one that says a purpose is a string.
func purposeOf(context evaluation.Object) (string, evaluation.Object) {
	v, _ := context.Get("purpose")
	if v.Kind() != evaluation.String || v.Text() == "" {
		return "", context
	}
	return v.Text(), context.Without(func(name string) bool { return name == "purpose" })
}
