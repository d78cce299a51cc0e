package console

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/console/page"
)

// actor is somebody who acts, or for whom somebody acts, and where the request says so: a JSON Pointer.
type actor struct{ name, pointer string }

// actors are the one who acts, and those it acts for. If an agent is named, it acts for the subject.
func actors(a inbox.Asked) (by actor, others []actor) {
	by = actor{named(a.Subject), "/subject/id"}
	if agent, ok := a.Context["agent"]; ok {
		at := "/context/agent"
		if agent.Kind() == '{' {
			at += "/id"
		}
		by, others = actor{reference(agent), at}, append(others, by)
	}
	var chain []jsontext.Value
	if json.Unmarshal(a.Context["on_behalf_of"], &chain) == nil {
		for n, one := range chain {
			others = append(others, actor{reference(one), fmt.Sprintf("/context/on_behalf_of/%d/id", n)})
		}
	}
	return by, others
}

// named is an entity in one word.
func named(e inbox.Entity) string { return e.Type + "/" + e.ID }

// reference is the word for an entity of a context, and the JSON itself if it is none.
func reference(v jsontext.Value) string {
	if word, ok := entity(v); ok {
		return word
	}
	return string(v)
}

// entity is the word for an entity of the form {"type", "id"} and nothing else, or for an id that is a string. An id
// with a slash would pass for a type and an id.
func entity(v jsontext.Value) (word string, ok bool) {
	var e struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	if json.Unmarshal(v, &e, json.RejectUnknownMembers(true)) == nil && e.Type != "" {
		return e.Type + "/" + e.ID, true
	}
	return word, json.Unmarshal(v, &word) == nil && word != "" && !strings.Contains(word, "/")
}

// without is the context of a question but for its arguments and for the actors, where those are shown whole elsewhere.
func without(context map[string]jsontext.Value) jsontext.Value {
	rest := maps.Clone(context)
	delete(rest, "arguments")
	if _, ok := entity(context["agent"]); ok {
		delete(rest, "agent")
	}
	var chain []jsontext.Value
	shown := json.Unmarshal(context["on_behalf_of"], &chain) == nil
	for _, one := range chain {
		_, ok := entity(one)
		shown = shown && ok
	}
	if shown {
		delete(rest, "on_behalf_of")
	}
	if len(rest) == 0 {
		return nil
	}
	object, err := json.Marshal(rest, json.Deterministic(true))
	if err != nil {
		return jsontext.Value(err.Error()) // which is shown as what it is: no JSON
	}
	return object
}

// linkOf is the address of the page of an approval request, and none if that has no id.
func (v *visit) linkOf(id string) page.Href {
	known := page.IDOf(id)
	if known.None() {
		return ""
	}
	return page.Href(v.link(approvalsPath + "/" + known.String()))
}

// moment is a time on this page.
func (v *visit) moment(at time.Time) page.Moment { return page.MomentOf(at, v.console.options.Now()) }
