package engine

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// Who fulfils a request for a tool does by their own rights what somebody else asked for. So nobody
// fulfils their own request: by a second name they would get what the first may not have. No policy
// can permit it, and none has to forbid it.

// fulfilAction is the action of whoever does what the one in context.requester asked for.
const fulfilAction = "tool.fulfil"

// denyOwn denies to fulfil one's own request. What the policies deny by themselves keeps what they
// say.
func denyOwn(d *evaluation.Decision) {
	if d.Allow {
		d.Deny(evaluation.OwnRequest)
	}
	d.Reason = evaluation.OwnRequest
}

// fulfilsOwn reports whether the subject, or the agent that acts for it, is the requester, by the
// rule by which nobody approves their own request. If it cannot be said who they are, they are one
// (fail safe). A requester who is not known may be anybody else.
func (in *Inquiry) fulfilsOwn(s *bundle.Store) bool {
	r := in.Request
	if r.Action.Name != fulfilAction {
		return false
	}
	if open := in.isUnknown; r.Unknown != nil {
		if open(evaluation.RequesterMember) {
			return false
		}
		r.Context = r.Context.Without(open)
	}
	actors, ok := r.Actors()
	if !ok || actors.Requester == nil {
		return true
	}
	typ, ok := in.Bundle.Config.EntityType(actors.Requester.Type)
	fulfiller := Reviewed{
		Subject: r.Subject.Ref(),
		Actors:  evaluation.Actors{Agent: actors.Agent},
	}
	return !ok || ownRequest(in.Bundle, s, types.NewEntityUID(typ, types.String(actors.Requester.ID)), &fulfiller)
}

// isUnknown reports whether the value of a member of the context is not known, or not as a whole.
func (in *Inquiry) isUnknown(member string) bool {
	within := func(at string) bool { return concernsMember(at, member) }
	hidden := func(h evaluation.Hidden) bool { return within(h.At) }
	return slices.ContainsFunc(in.Request.Unknown.Pointers(), within) || slices.ContainsFunc(in.Hidden, hidden)
}

// unknownActor is the place of an actor that nobody can tell, or "". The agent may be unknown because
// the question comes before it: then it may be one that is known.
func (in *Inquiry) unknownActor() string {
	actors, ok := in.Request.Actors()
	switch {
	case ok:
		return in.Bundle.Config.UnknownActor(actors)
	case in.isUnknown(agentMember):
		return ""
	}
	return "/context/" + agentMember
}

const agentMember = "agent"

// saysWhose reports whether a masked value may decide whose request is fulfilled.
func (in *Inquiry) saysWhose(tokens []string) bool {
	return in.Request.Action.Name == fulfilAction && tokens[0] == "context" && (len(tokens) == 1 || evaluation.NamesActors(tokens[1]))
}

// concernsMember reports whether a place has to do with a member of the context: it lies in the
// member, or holds it.
func concernsMember(at, member string) bool {
	of := "/context/" + member
	return at == "" || at == "/context" || at == of || strings.HasPrefix(at, of+"/")
}
