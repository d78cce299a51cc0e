package authzenclient

import (
	"context"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A PDP can publish, as a JSON Schema, what it wants to be told with an approval
// request. This client can say why (business_justification) and nothing else, and must
// not send what is incomplete. So it reads of the schema what that takes, and takes for
// more than it can say whatever it does not understand there.

// wants is the schema of an object, as far as it is understood.
type wants struct {
	Type       string                    `json:"type"`
	Required   []string                  `json:"required"`
	Properties map[string]jsontext.Value `json:"properties"`
	annotations
}

// why is the schema of the justification.
type why struct {
	Type     string `json:"type"`
	Shortest int    `json:"minLength"`
	Longest  *int   `json:"maxLength"`
	annotations
}

// annotations demand nothing.
type annotations struct {
	Schema      jsontext.Value `json:"$schema"`
	ID          jsontext.Value `json:"$id"`
	Comment     jsontext.Value `json:"$comment"`
	Title       jsontext.Value `json:"title"`
	Description jsontext.Value `json:"description"`
	Examples    jsontext.Value `json:"examples"`
}

// fills refuses to ask for an approval without what the PDP wants to know.
func (c tasks) fills(ctx context.Context, h Handle, url string) *Error {
	if err := c.reachable(url); err != nil {
		return err
	}
	a := asking{op: "request", url: url, method: http.MethodGet, repeat: unanswered, breaker: &breaker{}, schema: true}
	_, err := c.ask(ctx, a, func(r reply) *Error {
		if !h.fills(r.body) {
			return notAsked("the PDP wants more with an approval request than this client can say; ask for it by another program, or say it in the request's context")
		}
		return nil
	})
	return err
}

func (h Handle) fills(schema []byte) bool {
	var root, context wants
	if !understood(schema, &root, &root.Type, "object") {
		return false
	}
	for _, name := range root.Required {
		if !slices.Contains([]string{"subject", "action", "resource", "context", "denial"}, name) {
			return false
		}
	}
	text, restricted := root.Properties["context"]
	if !restricted {
		return true
	}
	if !understood(text, &context, &context.Type, "object") {
		return false
	}
	for _, name := range context.Required {
		if _, there := h.request.Context.Get(name); !there && (name != justified || h.kept.Justification == "") {
			return false
		}
	}
	text, restricted = context.Properties[justified]
	return h.kept.Justification == "" || !restricted || fits(h.kept.Justification, text)
}

func fits(justification string, schema []byte) bool {
	var w why
	n := utf8.RuneCountInString(justification)
	return understood(schema, &w, &w.Type, "string") && n >= w.Shortest && (w.Longest == nil || n <= *w.Longest)
}

// understood reads a schema. It is not ok where anything in it is not known, or it is of
// another type than this one.
func understood(schema []byte, into any, typ *string, want string) bool {
	return json.Unmarshal(schema, into, json.RejectUnknownMembers(true)) == nil && (*typ == "" || *typ == want)
}
