package evaluation

// Ref names an entity. The Type of an agent that the request names by its id alone
// is empty: it stands for every entity with that id.
type Ref struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Actors are those who act besides the subject of a request, or for whom.
type Actors struct {
	Agent *Ref // nil is none
	Chain []Ref
	// Requester asked for what the subject does now; nil is nobody. The two are never one person where
	// the subject fulfils a request for a tool: that would be nobody's consent but its own.
	Requester *Ref
}

const (
	agentMember = "agent"
	chainMember = "on_behalf_of"
	// RequesterMember says who asked for what the subject does.
	RequesterMember = "requester"
)

// Actors reads context.agent, context.on_behalf_of and context.requester. It fails where one of
// them has another form than they have: then nobody can say who is behind the request.
func (r *Request) Actors() (a Actors, ok bool) {
	if v, given := r.Context.Get(agentMember); given {
		agent, ok := refOf(v)
		if v.Kind() == String {
			agent, ok = Ref{ID: v.Text()}, true
		}
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
	v, given := r.Context.Get(chainMember)
	for _, e := range v.Elements {
		one, ok := refOf(e)
		if !ok {
			return a, false
		}
		a.Chain = append(a.Chain, one)
	}
	return a, !given || v.Kind() == Array
}

// NamesActors reports whether a member of the context says who acts, for whom, or who asked for it.
func NamesActors(member string) bool {
	return member == agentMember || member == chainMember || member == RequesterMember
}

// refOf reads {"type", "id"}, and nothing that has more to say.
func refOf(v Value) (Ref, bool) {
	typ, ok1 := v.Object().Get("type")
	id, ok2 := v.Object().Get("id")
	ok := ok1 && ok2 && v.Len() == 2 && typ.Kind() == String && id.Kind() == String && typ.Text() != ""
	return Ref{typ.Text(), id.Text()}, ok
}
