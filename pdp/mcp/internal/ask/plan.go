package ask

import (
	"context"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
)

// Author wrote the mapping of a question.
type Author string

// The authors.
const (
	Operator        Author = "operator" // a mapping in the configuration
	BuiltIn         Author = "built-in" // our own question
	BindingDefault  Author = "binding"  // a default of the COAZ binding
	DeclaredMapping Author = "declared" // the server, with its tool
)

// Source is the origin of a question. Mapping is nil if the question is ours.
type Source struct {
	Author  Author
	Mapping *coaz.Mapping
}

// standard is the source of questions about a method for which only the binding has a mapping, or we have.
func (a *Asker) standard(method string) Source {
	if m, verdict := a.binding.Default(method); verdict == coaz.Mapped {
		return Source{BindingDefault, m}
	}
	return Source{Author: BuiltIn}
}

// Plan is the list of questions that [Asker.Ask] asks about a request, in its order.
type Plan struct {
	of        *Asker
	method    string
	pdp       *authzenclient.Client
	questions []question
}

// Plan makes the questions about a request, and asks none. There are none if the request goes on without.
func (a *Asker) Plan(ctx context.Context, op Operation) (Plan, *Refusal) {
	w := a.refuser(&op)
	if asks, refusal := a.asks(w, &op); !asks {
		return Plan{}, refusal
	}
	pdp, refusal := a.client(&op)
	if refusal != nil {
		return Plan{}, refusal
	}
	p := Plan{of: a, method: op.Method, pdp: pdp}
	p.questions, refusal = a.questions(ctx, w, &op)
	return p, refusal
}

// Len is how many messages the PDP gets, at the most.
func (p Plan) Len() int { return len(p.questions) }

// Source is the origin of question n.
func (p Plan) Source(n int) Source { return p.questions[n].source }

// Whole reports whether question n is our own and all of a call is in it, so that people can approve the very call.
func (p Plan) Whole(n int) bool {
	_, ok := p.last()
	return ok && n == len(p.questions)-1
}

// last is the question that is asked last. It is ok if people can be asked about it.
func (p Plan) last() (q question, ok bool) {
	if len(p.questions) == 0 {
		return q, false
	}
	q = p.questions[len(p.questions)-1]
	return q, q.approvable()
}

// Pose asks question n as [Asker.Ask] does, and does nothing about the answers.
func (p Plan) Pose(ctx context.Context, n int) []authzenclient.Undischarged {
	return p.questions[n].ask(ctx, p.pdp, p.of.handlers(&Permit{method: resultOf(p.method)}).Types(), Answered{})
}
