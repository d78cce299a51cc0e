package ask

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
	"policy-service/pdp/mcp/internal/rpc"
)

// Ask has the PDP decide about a request. Either result is nil. With a permit the request may be forwarded as it was given:
// [Permit.Done] is to be called when all is over.
func (a *Asker) Ask(ctx context.Context, op Operation) (*Permit, *Refusal) {
	w := a.refuser(&op)
	plan, refusal := a.Plan(ctx, op)
	if refusal != nil {
		return nil, refusal
	}
	if len(plan.questions) == 0 {
		return &Permit{}, nil
	}
	p := &Permit{pdp: plan.pdp, refuse: w, method: op.Method}
	handlers := a.handlers(p)
	var all []authzenclient.Undischarged
	var last question
	for _, last = range plan.questions {
		answers := last.ask(ctx, plan.pdp, handlers.Types())
		all = append(all, answers...)
		if slices.ContainsFunc(answers, authzenclient.Undischarged.Denied) {
			break // nothing more can come of it
		}
	}
	p.decided = authzenclient.DischargeAll(ctx, handlers, all...)
	if p.decided.Permitted() {
		return p, nil
	}
	plan.pdp.ReportAll(ctx, &p.decided)
	return nil, a.refusalOf(w, &op, last, p.decided.First())
}

// questions are all that is to be asked about a request, in order: what the tool declares first, and last what is trusted.
// If one cannot be made, none is asked.
func (a *Asker) questions(ctx context.Context, w refuser, op *Operation) ([]question, *Refusal) {
	params := &parameters{members: op.Params}
	var all []question
	var err error
	if op.Method == toolsCall {
		if refusal := callable(w, op, params); refusal != nil {
			return nil, refusal
		}
		if op.Tool.declared != nil {
			if all, err = a.declaredQuestions(ctx, op, params); err != nil {
				return nil, w.unmapped(err)
			}
			if a.o.Declared == Instead {
				return all, nil
			}
		}
	}
	more, err := a.trusted(op, params, nil)
	if err != nil {
		return nil, w.unmapped(err)
	}
	return append(all, more...), nil
}

// callable refuses a call that is of another tool than the operation says, or of a kind that there is none of.
func callable(w refuser, op *Operation, params *parameters) *Refusal {
	if op.Tool == nil || params.members.GetString("name") != op.Tool.Shown {
		return UnknownTool()
	}
	if params.members.Get("task") != nil {
		return w.refuse(Unmapped, rpc.InvalidParams, "tasks are not offered: leave params.task out", data{}, "the call wants to be a task")
	}
	return nil
}

// handlers are what can be done of what the PDP obliges to. Redact is promised only where a result has data that it could be
// done to.
func (a *Asker) handlers(p *Permit) obligations.Handlers {
	all := make(obligations.Handlers, len(a.o.Handlers)+1)
	for name, h := range a.o.Handlers {
		all[name] = h
	}
	if redactable(p.method) {
		all[redact] = p.promise
	}
	return all
}

// refusalOf says why the answers to questions are no permit. Last is the question that was asked last.
func (a *Asker) refusalOf(w refuser, op *Operation, last question, e authzenclient.Enforcement) *Refusal {
	if r := w.failure(e.Err()); r != nil {
		return r
	}
	d := e.Decision()
	if d.Reason() != string(evaluation.ApprovalRequired) || !last.whole {
		return w.denial(d.ReasonUser(), e.String())
	}
	wanted := authorization{Tool: op.Tool.Shown, Arguments: op.Params.Get("arguments"), Requester: last.requests[0].Subject.ID, Reason: d.ReasonUser()}
	if wanted.Arguments == nil {
		wanted.Arguments = jsontext.Value("{}")
	}
	return w.approval(wanted, e.String())
}
