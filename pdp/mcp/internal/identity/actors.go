package identity

import (
	"cmp"
	"errors"
	"slices"

	"policy-service/evaluation"
)

// actMember is RFC 8693's claim for the actor, in which it occurs again for the actor before.
const actMember = "act"

// OnBehalfOf are all entities behind a question whose subject is the agent, or the user if there is no agent: the actors of
// the claim act, the last one first, and then the person. If the configuration takes an actor for the subject, that actor is
// there as both, and the person behind is the last. It fails if the claim has another form than RFC 8693 gives it: then the
// actor is not known.
func (p *Principal) OnBehalfOf() ([]Entity, error) {
	actors, err := p.actors()
	if err != nil {
		return nil, err
	}
	subject := p.User
	if p.Agent != (Entity{}) {
		subject = p.Agent
	}
	var chain []Entity
	for _, e := range append(actors, p.User, p.bySub) {
		if e != subject && e != (Entity{}) && !slices.Contains(chain, e) {
			chain = append(chain, e)
		}
	}
	return chain, nil
}

// actors are the actors of the claim act, the last one first, as entities of the type that clients have.
func (p *Principal) actors() (all []Entity, err error) {
	typ := cmp.Or(p.agentType, p.Agent.Type, "agent")
	act, given := p.Claims.Get(actMember)
	for given {
		name, ok := p.actor(act)
		if !ok {
			return nil, errors.New("the token's claim act is no chain of actors that this gateway can read: each has sub, perhaps the token's own iss, perhaps act, and nothing else")
		}
		all = append(all, Entity{typ, p.idPrefix + name})
		act, given = act.Object().Get(actMember)
	}
	return all, nil
}

// actor is the name of an actor. One that another issuer names would have the name of another one here.
func (p *Principal) actor(act evaluation.Value) (string, bool) {
	for member, v := range act.Object().All {
		switch member {
		case "sub", actMember:
		case "iss":
			if v.Text() != p.Issuer {
				return "", false
			}
		default:
			return "", false
		}
	}
	return textOf(evaluation.ClaimPath{"sub"}, act.Object())
}
