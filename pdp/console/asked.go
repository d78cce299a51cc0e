package console

import (
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/console/page"
)

// named is an entity in one word.
func named(e inbox.Entity) string { return e.Type + "/" + e.ID }

// word is an actor by name, and the JSON itself if that says more.
func word(a inbox.Actor) string {
	if a.JSON != nil {
		return string(a.JSON)
	}
	return a.Name
}

// without is the context of a question but for its arguments and for the actors, where those are shown whole elsewhere.
func without(context map[string]jsontext.Value) jsontext.Value {
	rest := maps.Clone(context)
	delete(rest, "arguments")
	if agent, ok := context["agent"]; ok && inbox.ActorOf(agent, "").JSON == nil {
		delete(rest, "agent")
	}
	if requester, ok := context["requester"]; ok && inbox.ActorOf(requester, "").JSON == nil {
		delete(rest, "requester")
	}
	chain, shown := inbox.Behind(context)
	if shown && !slices.ContainsFunc(chain, func(one inbox.Actor) bool { return one.JSON != nil }) {
		delete(rest, "on_behalf_of")
	}
	if len(rest) == 0 {
		return nil
	}
	object, err := json.Marshal(rest, json.Deterministic(true))
	if err != nil {
		return jsontext.Value(err.Error()) // which is shown as text
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
