package ask

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
)

// What a client may say about its request, in the request's _meta.
const (
	metaPurpose = "io.policy-service/purpose"
	metaContext = "io.policy-service/context"
)

// speaker is who asks, as it stands in each of our own questions.
type speaker struct {
	subject evaluation.Entity
	context []byte // the members that it has in the context, as JSON, each with a comma behind it
}

// speaker reads who a request is for, and what its client says about it.
func (a *Asker) speaker(p *identity.Principal, params *parameters) (s speaker, err error) {
	s.subject = evaluation.Entity{Type: p.User.Type, ID: p.User.ID}
	chain, err := p.OnBehalfOf()
	if err != nil {
		return s, err
	}
	if len(chain) > mostActors {
		return s, errors.New("the token's claim act names too many actors")
	}
	if p.Agent.ID != "" {
		s.subject.Type, s.subject.ID = p.Agent.Type, p.Agent.ID
		if p.Person == "" && p.User.ID == p.Agent.ID { // the agent acts for itself
			chain = slices.DeleteFunc(chain, func(e identity.Entity) bool { return e == p.User })
		}
	}
	if s.subject.ID == "" || s.subject.Type == "" {
		return s, errors.New("the token names nobody")
	}
	for _, name := range a.o.Properties {
		if v, ok := p.Claims.Get(name); ok {
			s.subject.Properties = s.subject.Properties.With(name, v)
		}
	}
	if len(chain) > 0 {
		s.context = append(s.context, `"on_behalf_of":[`...)
		for n, e := range chain {
			if n > 0 {
				s.context = append(s.context, ',')
			}
			s.context = append(append(s.context, `{"type":`...), rpc.String(e.Type)...)
			s.context = append(append(append(s.context, `,"id":`...), rpc.String(e.ID)...), '}')
		}
		s.context = append(s.context, "],"...)
	}
	if p.Person != "" {
		s.add("person", rpc.String(p.Person))
	}
	return s, s.told(params)
}

func (s *speaker) add(name string, v jsontext.Value) {
	s.context = append(append(append(append(s.context, rpc.String(name)...), ':'), v...), ',')
}

// told reads what the client says in _meta.
func (s *speaker) told(params *parameters) error {
	text := params.members.Get("_meta")
	if text == nil {
		return nil
	}
	meta, err := rpc.ParseObject(text)
	if err != nil {
		return wrong("/params/_meta", "not an object")
	}
	if purpose := meta.Get(metaPurpose); isPresent(purpose) {
		if purpose.Kind() != '"' {
			return wrong("/params/_meta/"+escaped(metaPurpose), "not a string")
		}
		s.add("purpose", purpose)
	}
	more := meta.Get(metaContext)
	if !isPresent(more) {
		return nil
	}
	at := "/params/_meta/" + escaped(metaContext)
	members, err := rpc.ParseObject(more)
	if err != nil {
		return wrong(at, "not an object")
	}
	for name, v := range members.Members {
		if reserved(name) {
			return wrong(at+"/"+name, "no client sets this member of the context")
		}
		s.add(name, v)
	}
	return nil
}

func isPresent(v jsontext.Value) bool { return v != nil && v.Kind() != 'n' }

// reserved reports whether only we, or the PDP, may say a member of the context.
func reserved(name string) bool {
	switch name {
	case "arguments", "agent", "on_behalf_of", "purpose", "person", "pdp", "action", "capability", declaredMember:
		return true
	}
	return evaluation.Protocol(name)
}

// mostActors bounds how many stand behind a question.
const mostActors = 9

// object is the context of one of our own questions: what the speaker says, and the arguments of a call where there are some.
func (s speaker) object(arguments jsontext.Value) (evaluation.Object, error) {
	text := append(make([]byte, 0, len(s.context)+len(arguments)+16), '{')
	text = append(text, s.context...)
	if arguments != nil {
		text = append(append(append(text, `"arguments":`...), arguments...), ',')
	}
	if text[len(text)-1] == ',' {
		text = text[:len(text)-1]
	}
	o, err := evaluation.ParseObject(append(text, '}'), boundsOf(1))
	return o, placed(err)
}

// placed is an error in a context with the place that the client knows it by.
func placed(err error) error {
	e, ok := err.(*evaluation.Error)
	if !ok {
		return err
	}
	tokens := evaluation.Tokens(e.Pointer)
	if len(tokens) == 0 || tokens[0] == "arguments" {
		return below("/params", e)
	}
	return below("/params/_meta/"+escaped(metaContext), e)
}
