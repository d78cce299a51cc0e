package ask

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
)

// question is one message to the PDP.
type question struct {
	source Source
	// whole says that it is trusted, and that all of a call is in it, so that people can approve the very call.
	whole bool
	// mapped says that a mapping makes the requests: whom they name, and whom not, is not ours to say.
	mapped   bool
	requests []evaluation.Request
}

// approvable reports whether people can approve the call behind the question: one request that we make, which says for which
// person it is. A mapping need not write that, and then the PDP could not know the parties, and so must not decide.
func (q question) approvable() bool { return q.whole && !q.mapped && len(q.requests) == 1 }

// ask asks, with people's word if it is about this question: see [Asker.Ask]. It declares the obligations that can be
// discharged.
func (q question) ask(
	ctx context.Context, pdp *authzenclient.Client, types []string, by Answered, shows ...authzenclient.AskOption,
) []authzenclient.Undischarged {
	switch {
	case len(q.requests) == 0:
		return make([]authzenclient.Undischarged, 1) // no answer is a deny
	case by.Continues != nil:
		return []authzenclient.Undischarged{pdp.Continue(ctx, *by.Continues, q.requests[0], types, shows...)}
	case by.Standing != nil:
		return []authzenclient.Undischarged{approvals.Use(ctx, pdp, *by.Standing, q.requests[0], types, shows...)}
	case len(q.requests) == 1:
		return []authzenclient.Undischarged{pdp.Decide(ctx, q.requests[0], types, shows...)}
	}
	return pdp.DecideBatch(ctx, evaluation.DenyOnFirstDeny, types, q.requests...)
}

func asWritten(from Source, asked coaz.Questions) []question {
	all := make([]question, len(asked.Envelopes))
	for n, e := range asked.Envelopes {
		all[n] = question{source: from, mapped: true, requests: e.Requests}
	}
	return all
}

// declaredMember says in a question that a server wrote it, and is the digest of the tool's definition. No client can say it.
const declaredMember = "declared"

func (a *Asker) declaredQuestions(ctx context.Context, op *Operation) ([]question, error) {
	sent, err := op.whole()
	if err != nil {
		return nil, err
	}
	// The mapping sees what the server gets as the client sent it: else the server would be called with other params than were permitted.
	meta, _ := sent.Get("_meta")
	forwarded := meta.Object().Without(func(name string) bool { return !slices.Contains(a.o.Meta, name) || strings.HasPrefix(name, era.Own) })
	own := sent.Without(func(name string) bool { return name == "_meta" || slices.Contains(GatewayParams, name) }).With("name", text(op.Tool.Name))
	if forwarded.Len() > 0 {
		own = own.With("_meta", forwarded.Value())
	}
	m := op.Tool.declared
	asked, err := m.Questions(coaz.Operation{Method: op.Method, Params: own, Token: op.Principal.Claims})
	if err != nil {
		return nil, err
	}
	for _, w := range asked.Warnings {
		a.o.LetPass("subject_override")
		a.o.Logger.WarnContext(ctx, w.Detail, slog.Group("", "server", op.Tool.Server, "tool", op.Tool.Name, "mapping", m.Digest(), "at", w.Pointer), "principal", op.Principal.Key)
	}
	all := asWritten(Source{DeclaredMapping, m}, asked)
	if err := bounded(all, len(op.Params.Value())); err != nil || a.o.Declared == Instead {
		return all, err
	}
	for n := range all {
		all[n].requests = slices.Clone(all[n].requests)
		for i, q := range all[n].requests {
			all[n].requests[i].Context = q.Context.With(declaredMember, text(op.Tool.Digest))
		}
	}
	return all, nil
}

// Bounds of a server's mapping for one call: so many questions, of so many bytes for each that was sent. Each is on
// record, and a mapping can write the arguments into all of them.
const (
	mostDeclared     = 16
	declaredPerByte  = 4
	leastOfQuestions = 64 << 10
)

// bounded refuses questions that are too many, or too long for the request.
func bounded(all []question, sent int) error {
	many, bytes := 0, 0
	for _, q := range all {
		many += len(q.requests)
		for _, r := range q.requests {
			text, err := r.MarshalJSON()
			if err != nil {
				return err
			}
			bytes += len(text)
		}
	}
	switch most := max(leastOfQuestions, declaredPerByte*sent); {
	case many > mostDeclared:
		return fmt.Errorf("the tool's mapping asks %d questions about a call, and %d are the most", many, mostDeclared)
	case bytes > most:
		return fmt.Errorf("the questions that the tool's mapping makes of the call have %d bytes, and %d are the most", bytes, most)
	}
	return nil
}

// trusted are the questions that the operator wrote, or we, or the binding. The speaker is known already where who is not nil.
func (a *Asker) trusted(op *Operation, who *speaker) ([]question, error) {
	if m := a.operatorMapping(op); m != nil {
		return a.operatorQuestions(op, m)
	}
	if a.o.Ask == COAZ {
		return a.bindingQuestions(op)
	}
	if OfTool(op.Method) { // people are asked about calls alone
		r, err := a.aboutTool(op, a.action(op), who)
		return []question{{source: Source{Author: BuiltIn}, whole: op.Method == toolsCall, requests: []evaluation.Request{r}}}, err
	}
	s, err := a.speaker(op, who)
	if err != nil {
		return nil, err
	}
	requests, err := a.defaults(op)
	if err != nil {
		return nil, err
	}
	said, err := s.object(nil)
	if err != nil {
		return nil, err
	}
	for n := range requests {
		if requests[n], err = spokenBy(requests[n], s.subject, said); err != nil {
			return nil, err
		}
	}
	return []question{{source: a.standard(op.Method), requests: requests}}, nil
}

func (a *Asker) action(op *Operation) string {
	switch {
	case op.Method == toolsRequest:
		return toolRequest
	case a.o.Ask == ByTool:
		return op.Tool.resource.ID
	}
	return string(ToolInvoke)
}

// spokenBy is a question of the binding with our own subject. The binding's context stands beside the speaker's words.
func spokenBy(q evaluation.Request, subject evaluation.Entity, said evaluation.Object) (evaluation.Request, error) {
	own := q.Context.Without(func(name string) bool { return name == "agent" }) // the agent is the subject, or absent
	for name := range own.Members {
		if _, twice := said.Get(name); twice {
			return q, wrong(inMeta(metaContext)+"/"+name, "the method says this member of the context")
		}
	}
	q.Subject, q.Context = subject, own.Beside(said)
	return q, nil
}

func (a *Asker) operatorMapping(op *Operation) *coaz.Mapping {
	if op.Tool != nil && op.Method == toolsCall {
		return op.Tool.operator
	}
	return a.operator[op.Method]
}

func (a *Asker) operatorQuestions(op *Operation, m *coaz.Mapping) ([]question, error) {
	all, err := op.whole()
	if err != nil {
		return nil, err
	}
	inputs, err := a.inputs(op)
	if err != nil {
		return nil, err
	}
	asked, err := m.Questions(coaz.Operation{Method: op.Method, Params: all, Token: op.Principal.Claims, Inputs: inputs})
	if err != nil {
		return nil, err
	}
	questions := asWritten(Source{Operator, m}, asked)
	arguments, given := all.Get("arguments")
	if op.Method == toolsCall && given && len(questions) == 1 && len(asked.Requests) == 1 {
		inside, _ := asked.Requests[0].Context.Get("arguments")
		questions[0].whole = inside.Equal(arguments)
	}
	return questions, nil
}

// bindingQuestions are the binding's. By its letter nothing is added; otherwise the arguments of a call are, the digest of its
// tool, and for which person it is, which only the PDP sees.
func (a *Asker) bindingQuestions(op *Operation) ([]question, error) {
	all, err := op.whole()
	if err != nil {
		return nil, err
	}
	if m, verdict := a.binding.Default(op.Method); a.o.Strict && verdict == coaz.Mapped {
		asked, err := m.Questions(coaz.Operation{Method: op.Method, Params: all, Token: admitted(op.Principal.Claims)})
		return asWritten(Source{BindingDefault, m}, asked), err
	}
	requests, err := a.defaults(op)
	if err != nil {
		return nil, err
	}
	for n := range requests {
		q := &requests[n]
		if op.Method == toolsCall {
			arguments, given := all.Lookup("arguments")
			if given && arguments.Kind() != evaluation.Map {
				return nil, wrong("/params/arguments", "not an object")
			}
			if given {
				q.Context = q.Context.With("arguments", arguments)
			}
			// An approval does not cover a later definition of the tool.
			q.Resource.Properties = q.Resource.Properties.With("digest", text(op.Tool.Digest))
		}
		if op.Principal.Person != "" {
			q.Context = q.Context.With(personMember, text(op.Principal.Person))
		}
	}
	return []question{{source: a.standard(op.Method), whole: op.Method == toolsCall, requests: requests}}, nil
}

// Members of a request's _meta by which a client explains it.
const (
	metaPurpose = "io.policy-service/purpose"
	metaContext = "io.policy-service/context"
)

// speaker is the principal of a request, as it stands in each of our own questions.
type speaker struct {
	subject evaluation.Entity
	chain   []evaluation.Ref  // those behind the subject
	context evaluation.Object // the members that it has in the context,
	said    rpc.Object        // and those that the client says
}

// speaker reads the principal of an operation, and the words of its client. It is known, if that is not nil.
func (a *Asker) speaker(op *Operation, known *speaker) (s speaker, err error) {
	if known != nil {
		return *known, nil
	}
	if s, err = a.speaks(op.Principal); err == nil {
		err = s.reads(op.Params)
	}
	return s, err
}

func (a *Asker) speaks(p *identity.Principal) (s speaker, err error) {
	acts := p.Participant()
	s.subject = evaluation.Entity{Type: acts.Type, ID: acts.ID}
	chain, err := p.OnBehalfOf()
	if err != nil {
		return s, err
	}
	if len(chain) > mostActors {
		return s, errors.New("the token's claim act names too many actors")
	}
	if p.Person == "" && p.User.ID == p.Agent.ID { // the agent acts for itself
		chain = slices.DeleteFunc(chain, func(e evaluation.Ref) bool { return e == p.User })
	}
	if acts.ID == "" || acts.Type == "" {
		return s, errors.New("the token names nobody")
	}
	for _, name := range a.o.Properties {
		if v, ok := p.Claims.Get(name); ok {
			s.subject.Properties = s.subject.Properties.With(name, v)
		}
	}
	s.chain = chain
	s.context = s.context.With("on_behalf_of", chainOf(chain, acts))
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

// Said appends what a client says for policies beside a request, as it stands there.
func Said(to []byte, params rpc.Object) []byte {
	meta := params.GetObject("_meta")
	for _, name := range []string{metaPurpose, metaContext} {
		to = append(append(to, meta.Get(name)...), 0) // which no JSON has in it
	}
	return to
}

func (s *speaker) reads(params rpc.Object) error {
	if params.Get("_meta") == nil {
		return nil
	}
	meta, err := params.Object("_meta")
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
	case "arguments", "agent", "on_behalf_of", requester, "purpose", personMember, "pdp", "action", "capability", capability.HolderKeyMember, declaredMember:
		return true
	}
	return evaluation.Protocol(name)
}

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
