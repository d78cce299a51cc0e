package evaluation

import "strconv"

// Ref names an entity. The Type of an agent that the request names by its id alone
// is empty: it stands for every entity with that id.
type Ref struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Actors act beside the subject of a request, or have it act for them.
type Actors struct {
	Agent *Ref  `json:"agent,omitzero"` // nil is none
	Chain []Ref `json:"chain,omitzero"`
	// Requester asked for the act of the subject; nil is none. The two are never one person where
	// the subject fulfils a request for a tool: that would be its own consent alone.
	Requester *Ref `json:"requester,omitzero"`
	// Recipient is to get what the subject hands on; nil is none.
	Recipient *Ref `json:"recipient,omitzero"`
}

// DelegateAction is the name of the action of questions whether a holder may hand a capability on. The property to of the
// action names the recipient.
const DelegateAction = "capability.delegate"

// mostChain bounds on_behalf_of, because every vote on an approval checks each entry.
const mostChain = 128

const (
	agentMember = "agent"
	chainMember = "on_behalf_of"
	// RequesterMember names the requester of the subject's act.
	RequesterMember = "requester"
)

// Actors reads context.agent, context.on_behalf_of and context.requester, and the recipient. It fails where one of
// them has another form than they have: then it is not known who is behind the request. Of a request
// that was decoded that can only be the agent, which policies may know in another form.
func (r *Request) Actors() (a Actors, ok bool) {
	if v, given := r.Context.Get(agentMember); given {
		agent, ok := agentOf(v)
		if !ok {
			return a, false
		}
		a.Agent = &agent
	}
	if v, given := r.Context.Get(RequesterMember); given {
		requester, ok := refOf(v)
		if !ok {
			return a, false
		}
		a.Requester = &requester
	}
	if to, given := r.Action.Properties.Get("to"); given && r.Action.Name == DelegateAction {
		recipient, _ := refOf(to) // one that cannot be read has no type that exists
		a.Recipient = &recipient
	}
	v, given := r.Context.Get(chainMember)
	if given {
		a.Chain, ok = chainOf(v)
	}
	return a, ok || !given
}

// NamesActors reports whether a member of the context names an actor, one that it acts for, or the requester.
func NamesActors(member string) bool {
	return member == agentMember || member == chainMember || member == RequesterMember
}

// refOf reads {"type", "id"}. It refuses an object with any other member.
func refOf(v Value) (Ref, bool) {
	typ, ok1 := v.Object().Get("type")
	id, ok2 := v.Object().Get("id")
	ok := ok1 && ok2 && v.Len() == 2 && typ.Kind() == String && id.Kind() == String && typ.Text() != ""
	return Ref{typ.Text(), id.Text()}, ok
}

// agentOf reads an agent: its id, or a list of that alone, or its type and id.
func agentOf(v Value) (Ref, bool) {
	if v.Kind() == Array && v.Len() == 1 {
		for _, one := range v.Elements {
			v = one
		}
		return Ref{ID: v.Text()}, v.Kind() == String
	}
	if v.Kind() == String {
		return Ref{ID: v.Text()}, true
	}
	return refOf(v)
}

// chainOf reads the entities that the subject acts for: a list, or one.
func chainOf(v Value) (chain []Ref, ok bool) {
	if one, ok := refOf(v); ok {
		return []Ref{one}, true
	}
	for _, e := range v.Elements {
		one, ok := refOf(e)
		if !ok {
			return nil, false
		}
		chain = append(chain, one)
	}
	return chain, v.Kind() == Array && len(chain) <= mostChain
}

// checkActors checks the members of a context that name actors. If one that cannot be read were
// ignored, the person behind the request could decide about it.
func (r *reader) checkActors(context Object) {
	const form = "an object with type and id, which are texts, and nothing else"
	if requester, given := context.Get(RequesterMember); given {
		_, ok := refOf(requester)
		r.want(ok, "not "+form, "context", RequesterMember)
	}
	chain, given := context.Get(chainMember)
	if _, one := refOf(chain); !given || one {
		return
	}
	r.want(chain.Len() <= mostChain, "more than "+strconv.Itoa(mostChain), "context", chainMember)
	if r.want(chain.Kind() == Array, "not an array of such objects, nor "+form, "context", chainMember) {
		for n, v := range chain.Elements {
			_, ok := refOf(v)
			r.want(ok, "not "+form, "context", chainMember, strconv.Itoa(n))
		}
	}
}
