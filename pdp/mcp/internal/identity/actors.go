package identity

import (
	"errors"
	"slices"

	"policy-service/evaluation"
)

// actMember is RFC 8693's claim for who acts, in which it occurs again for who acted before.
const actMember = "act"

// OnBehalfOf are all who stand behind a question whose subject is the agent, or the user if there is no agent: the person
// first, then the actors of the claim act, the last one first. It fails if the claim has another form than RFC 8693
// gives it: then nobody can say who acts.
func (p *Principal) OnBehalfOf() (chain []Entity, err error) {
	subject := p.User
	if p.Agent != (Entity{}) {
		subject = p.Agent
	}
	add := func(e Entity) {
		if e != subject && e != (Entity{}) && !slices.Contains(chain, e) {
			chain = append(chain, e)
		}
	}
	add(p.names.person)
	add(p.User)
	for claims := p.Claims; ; {
		act, given := claims.Get(actMember)
		if !given {
			return chain, nil
		}
		name, ok := p.actor(act)
		if !ok {
			return nil, errors.New("the token's claim act is no chain of actors that this gateway can read: each has sub, perhaps the token's own iss, perhaps act, and nothing else")
		}
		if e := p.names.actor(name); p.names.person == (Entity{}) || name != p.Subject {
			add(e)
		}
		claims = act.Object()
	}
}

// actor is the name of an actor. One that another issuer names would have the name of somebody else here.
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

// actor is the entity of an actor. It is a client to policies.
func (n names) actor(name string) Entity {
	if n.agent == "" {
		n.agent = "agent"
	}
	return Entity{n.agent, n.prefix + name}
}
