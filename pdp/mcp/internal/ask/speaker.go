package ask

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
)

// Members of a request's _meta by which a client explains it.
const (
	metaPurpose = "io.policy-service/purpose"
	metaContext = "io.policy-service/context"
)

// speaker is the principal of a request, as it stands in each of our own questions.
type speaker struct {
	subject evaluation.Entity
	chain   []identity.Entity // those behind the subject
	context evaluation.Object // the members that it has in the context,
	said    rpc.Object        // and those that the client says
}

// speaker reads the principal of a request, and the words of its client. It is known, if that is not nil.
func (a *Asker) speaker(p *identity.Principal, params *parameters, known *speaker) (s speaker, err error) {
	if known != nil {
		return *known, nil
	}
	if s, err = a.speaks(p); err == nil {
		err = s.reads(params)
	}
	return s, err
}

// speaks makes a speaker of a principal.
func (a *Asker) speaks(p *identity.Principal) (s speaker, err error) {
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
	s.chain = chain
	s.context = s.context.With("on_behalf_of", chainOf(chain, entityOf(s.subject)))
	if p.Person != "" {
		s.context = s.context.With(personMember, text(p.Person))
	}
	return s, nil
}

// text is a text as it stands in a question: it was read strictly before, from a token or a definition, or is a digest in
// Base64. One that is not UTF-8 all the same stands there with marks in it: a policy never misses the member.
func text(s string) evaluation.Value {
	v, _ := evaluation.Text(strings.ToValidUTF8(s, "\uFFFD"))
	return v
}

// The most that a client may say beside a call, in bytes of JSON. It is on record with each question.
const (
	mostPurpose = 1 << 10
	mostContext = 4 << 10
)

// reads reads the words of a client in _meta.
func (s *speaker) reads(params *parameters) error {
	if params.members.Get("_meta") == nil {
		return nil
	}
	meta, err := params.members.Object("_meta")
	if err != nil {
		return wrong("/params/_meta", "not an object")
	}
	if purpose := meta.Get(metaPurpose); isPresent(purpose) {
		if purpose.Kind() != '"' {
			return wrong(inMeta(metaPurpose), "not a string")
		}
		if len(purpose) > mostPurpose {
			return wrong(inMeta(metaPurpose), fmt.Sprintf("more than %d bytes", mostPurpose))
		}
		s.said = s.said.With("purpose", purpose)
	}
	if said := meta.Get(metaContext); isPresent(said) {
		if len(said) > mostContext {
			return wrong(inMeta(metaContext), fmt.Sprintf("more than %d bytes", mostContext))
		}
		more, err := meta.Object(metaContext)
		if err != nil {
			return wrong(inMeta(metaContext), "not an object")
		}
		for name := range more.Members {
			if reserved(name) {
				return wrong(inMeta(metaContext)+"/"+name, "no client sets this member of the context")
			}
		}
		s.said = s.said.And(more)
	}
	return nil
}

func isPresent(v jsontext.Value) bool { return v != nil && v.Kind() != 'n' }

// reserved reports whether only we, or the PDP, may say a member of the context.
func reserved(name string) bool {
	switch name {
	case "arguments", "agent", "on_behalf_of", requester, "purpose", personMember, "pdp", "action", "capability", declaredMember:
		return true
	}
	return evaluation.Protocol(name)
}

// mostActors bounds how many stand behind a question.
const mostActors = 9

// object is the context of one of our own questions: the speaker's words, and the arguments of a call where there are some.
func (s speaker) object(arguments jsontext.Value) (evaluation.Object, error) {
	limits, said := boundsOf(1), s.said // the PDP's limits, one container down
	limits.Body -= s.context.Size()
	switch {
	case arguments == nil && said.Len() == 0:
		return s.context, nil
	case said.Len() == 0:
		limits.Body -= len(`,"arguments":`)
		limits.Depth--
		all, err := evaluation.ParseWithNulls(arguments, limits)
		return s.context.With("arguments", all.Value()), below("/params/arguments", err)
	case arguments != nil:
		said = said.With("arguments", arguments)
	}
	more, err := evaluation.ParseObject(said.Value(), limits)
	return s.context.Beside(more), placed(err)
}

// placed is an error in a client's words, with the place that the client knows it by.
func placed(err error) error {
	e, ok := err.(*evaluation.Error)
	if !ok {
		return err
	}
	tokens := evaluation.Tokens(e.Pointer)
	if len(tokens) == 0 || tokens[0] == "arguments" {
		return below("/params", e)
	}
	return below(inMeta(metaContext), e)
}
