package ask

import (
	"context"
	"fmt"
	"slices"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/coaz"
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

// ask asks, with people's word if it is about this question: see [Plan.answerable]. It declares the obligations that can be
// discharged.
func (q question) ask(ctx context.Context, pdp *authzenclient.Client, types []string, by Answered) []authzenclient.Undischarged {
	switch {
	case len(q.requests) == 0:
		return make([]authzenclient.Undischarged, 1) // no answer is a deny
	case by.Continues != nil:
		return []authzenclient.Undischarged{pdp.Continue(ctx, *by.Continues, q.requests[0], types)}
	case by.Standing != nil:
		return []authzenclient.Undischarged{approvals.Use(ctx, pdp, *by.Standing, q.requests[0], types)}
	case len(q.requests) == 1:
		return []authzenclient.Undischarged{pdp.Decide(ctx, q.requests[0], types)}
	}
	return pdp.DecideBatch(ctx, evaluation.DenyOnFirstDeny, types, q.requests...)
}

// asWritten are the questions of a mapping.
func asWritten(from Source, asked coaz.Questions) []question {
	all := make([]question, len(asked.Envelopes))
	for n, e := range asked.Envelopes {
		all[n] = question{source: from, mapped: true, requests: e.Requests}
	}
	return all
}

// declaredMember says in a question that a server wrote it, and is the digest of the tool's definition. No client can say it.
const declaredMember = "declared"

// declaredQuestions are those of the called tool's own mapping.
func (a *Asker) declaredQuestions(ctx context.Context, op *Operation, params *parameters) ([]question, error) {
	own, err := params.named(op.Tool.Name)
	if err != nil {
		return nil, err
	}
	m := op.Tool.declared
	asked, err := m.Questions(coaz.Operation{Method: op.Method, Params: own, Token: op.Principal.Claims})
	if err != nil {
		return nil, err
	}
	for _, w := range asked.Warnings {
		a.o.Logger.WarnContext(ctx, w.Detail, "server", op.Tool.Server, "tool", op.Tool.Name, "mapping", m.Digest(), "at", w.Pointer)
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
func (a *Asker) trusted(op *Operation, params *parameters, who *speaker) ([]question, error) {
	if m := a.operatorMapping(op); m != nil {
		return a.operatorQuestions(op, params, m)
	}
	if a.o.Ask == COAZ {
		return a.bindingQuestions(op, params)
	}
	if OfTool(op.Method) { // people are asked about calls alone
		r, err := a.aboutTool(op, params, a.action(op), who)
		return []question{{source: Source{Author: BuiltIn}, whole: op.Method == toolsCall, requests: []evaluation.Request{r}}}, err
	}
	s, err := a.speaker(op.Principal, params, who)
	if err != nil {
		return nil, err
	}
	requests, err := a.defaults(op, params)
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

// action is the action of our own question about a tool.
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

func (a *Asker) operatorQuestions(op *Operation, params *parameters, m *coaz.Mapping) ([]question, error) {
	all, err := params.whole()
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
func (a *Asker) bindingQuestions(op *Operation, params *parameters) ([]question, error) {
	all, err := params.whole()
	if err != nil {
		return nil, err
	}
	if m, verdict := a.binding.Default(op.Method); a.o.Strict && verdict == coaz.Mapped {
		asked, err := m.Questions(coaz.Operation{Method: op.Method, Params: all, Token: admitted(op.Principal.Claims)})
		return asWritten(Source{BindingDefault, m}, asked), err
	}
	requests, err := a.defaults(op, params)
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
