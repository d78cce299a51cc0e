package inbox

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Actor is somebody who acts, or for whom somebody acts, as a question names them.
type Actor struct {
	// Name is type/id, or the id if the question says no type. It is "" if what stands there is no name.
	Name string
	// JSON is what stands there, if that is more than the name, or another thing; nil if the name is all of it.
	JSON jsontext.Value
	// Pointer is where the question says it: a JSON Pointer.
	Pointer string
}

// Actors are the one who acts, and those it acts for. If an agent is named, it acts for the subject.
func (a Asked) Actors() (by Actor, others []Actor) {
	by = Actor{Name: a.Subject.Type + "/" + a.Subject.ID, Pointer: "/subject/id"}
	if agent, ok := a.Context["agent"]; ok {
		by, others = ActorOf(agent, "/context/agent"), append(others, by)
	}
	var chain []jsontext.Value
	if json.Unmarshal(a.Context["on_behalf_of"], &chain) == nil {
		for n, one := range chain {
			others = append(others, ActorOf(one, fmt.Sprintf("/context/on_behalf_of/%d", n)))
		}
	}
	return by, others
}

// Requester is who asked for it, if the question names somebody who did.
func (a Asked) Requester() (who Actor, named bool) {
	v, named := a.Context["requester"]
	if named {
		who = ActorOf(v, "/context/requester")
	}
	return who, named
}

// ActorOf reads what a context has at a pointer: {"type", "id"}, or an id that is a string. An id with a slash would pass
// for a type and an id, and is no name.
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
	case json.Unmarshal(v, &id) == nil && id != "" && !strings.Contains(id, "/"):
		a.Name, a.JSON = id, nil
	}
	return a
}
