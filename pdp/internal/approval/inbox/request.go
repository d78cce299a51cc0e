package inbox

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Request is an approval request. JSON is all of it as the server wrote it, but on one line.
type Request struct {
	JSON jsontext.Value
	evaluation.ApprovalView
	// Request is the question that waits for approval. It is empty after a redaction.
	Request Asked
}

// Said is a vote or another ruling about a request.
type Said = evaluation.ApprovalVote

// InFlight is a use that may be on record or not.
type InFlight = evaluation.InFlight

// Asked is the question that waits for approval, in AuthZEN's form.
type Asked struct {
	Subject  Entity `json:"subject"`
	Resource Entity `json:"resource"`
	Action   struct {
		Name       string         `json:"name"`
		Properties jsontext.Value `json:"properties"`
	} `json:"action"`
	Context map[string]jsontext.Value `json:"context"`
}

// Entity is a subject or a resource, with the properties that the question had.
type Entity struct {
	Type       string         `json:"type"`
	ID         string         `json:"id"`
	Properties jsontext.Value `json:"properties"`
}

// ServerSays is the text of a tool's server for approvers, "" if there is none. It is not vouched for.
func (a Asked) ServerSays() string {
	var properties struct {
		Hint jsontext.Value `json:"approval_hint"`
	}
	var hint struct {
		Message jsontext.Value `json:"message"`
	}
	var message string
	if json.Unmarshal(a.Resource.Properties, &properties) != nil || json.Unmarshal(properties.Hint, &hint) != nil ||
		json.Unmarshal(hint.Message, &message) != nil || strings.TrimSpace(message) == "" {
		return ""
	}
	return message
}

// Purpose is why, in the words of the asker: the justification, or else the purpose in the context; "" if neither is
// there. Where is the member of the context that it is, "" if it is none.
func (r *Request) Purpose() (text, where string) {
	var said map[string]jsontext.Value
	if json.Unmarshal(r.Justification, &said) == nil && json.Unmarshal(said["justification"], &text) == nil && text != "" {
		return text, ""
	}
	if len(said) > 0 {
		return cmp.Or(string(said["justification"]), string(r.Justification)), ""
	}
	if json.Unmarshal(r.Request.Context["purpose"], &text) == nil && text != "" {
		return text, "purpose"
	}
	return "", ""
}

// UnmarshalJSON keeps the text of the request beside its members.
func (r *Request) UnmarshalJSON(b []byte) error {
	r.JSON = jsontext.Value(b).Clone()
	if err := r.JSON.Compact(); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &r.ApprovalView); err != nil || len(r.ApprovalView.Request) == 0 {
		return err
	}
	return json.Unmarshal(r.ApprovalView.Request, &r.Request)
}

// Actor is a person or program that acts, or for whom another one acts, as a question names them.
type Actor struct {
	// Name is type/id, or the id if the question says no type. It is "" if the value is no name.
	Name string
	// JSON is the value, if it is more than the name, or no name; nil if the name is all of it.
	JSON jsontext.Value
	// Pointer is where the question says it: a JSON Pointer.
	Pointer string
}

// Actors are the actor, and those it acts for. If an agent is named, it acts for the subject.
func (a Asked) Actors() (by Actor, others []Actor) {
	by = Actor{Name: a.Subject.Type + "/" + a.Subject.ID, Pointer: "/subject/id"}
	if agent, ok := a.Context["agent"]; ok {
		by, others = ActorOf(agent, "/context/agent"), append(others, by)
	}
	behind, _ := Behind(a.Context)
	return by, append(others, behind...)
}

// Behind are those for whom the actor acts, as a context names them: in a list, or one. It reports false if it names
// none, or not so that it can be read.
func Behind(context map[string]jsontext.Value) (all []Actor, ok bool) {
	const at = "/context/on_behalf_of"
	v := context["on_behalf_of"]
	if v.Kind() == '{' {
		return []Actor{ActorOf(v, at)}, true
	}
	var chain []jsontext.Value
	if json.Unmarshal(v, &chain) != nil {
		return nil, false
	}
	for n, one := range chain {
		all = append(all, ActorOf(one, fmt.Sprintf("%s/%d", at, n)))
	}
	return all, true
}

// Requester is the requester that the question names, if it names one.
func (a Asked) Requester() (who Actor, named bool) {
	v, named := a.Context["requester"]
	if named {
		who = ActorOf(v, "/context/requester")
	}
	return who, named
}

// ActorOf reads the value of a context at a pointer: {"type", "id"}, or an id that is a string or the only one of a list.
// An id with a slash would pass for a type and an id, and is no name.
func ActorOf(v jsontext.Value, pointer string) Actor {
	if v.Kind() == '{' {
		pointer += "/id"
	}
	a := Actor{JSON: v, Pointer: pointer}
	var e struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	var id string
	switch {
	case json.Unmarshal(v, &e) == nil && e.Type != "":
		a.Name = e.Type + "/" + e.ID
		if json.Unmarshal(v, &e, json.RejectUnknownMembers(true)) == nil {
			a.JSON = nil
		}
	case json.Unmarshal(only(v), &id) == nil && id != "" && !strings.Contains(id, "/"):
		a.Name, a.JSON = id, nil
	}
	return a
}

// only is the element of a list of one; of anything else it is that.
func only(v jsontext.Value) jsontext.Value {
	var list []jsontext.Value
	if json.Unmarshal(v, &list) == nil && len(list) == 1 {
		return list[0]
	}
	return v
}
