package ask

import (
	"context"
	"maps"
	"slices"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
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
	if refusal := plan.answerable(w, op.Answered); refusal != nil {
		return nil, refusal
	}
	if len(plan.questions) == 0 {
		return &Permit{}, nil
	}
	p := &Permit{pdp: plan.pdp, refuse: w, method: resultOf(op.Method)}
	handlers := a.handlers(p)
	asked, denied := plan.ask(ctx, handlers.Types(), op.Answered)
	p.decided = authzenclient.DischargeAll(ctx, handlers, asked...)
	if p.decided.Permitted() {
		return p, nil
	}
	plan.pdp.ReportAll(ctx, &p.decided)
	return nil, a.refusalOf(ctx, w, &op, plan, denied, p.decided.First())
}

// answerable refuses an approval that cannot be for the last question, before the PDP is asked.
func (p Plan) answerable(w refuser, by Answered) *Refusal {
	if !by.given() {
		return nil
	}
	switch _, ok := p.last(); {
	case !ok:
		return w.denial("", "people cannot have been asked about the request")
	case by.Standing != nil && by.Continues != nil:
		return w.denial("", "the request brings people's word twice")
	}
	return nil
}

// ask asks one question after the other until one is denied, the last with people's word if there is some. Denied is the
// place of that question, and behind the last one if there is none.
func (p Plan) ask(ctx context.Context, types []string, by Answered) (all []authzenclient.Undischarged, denied int) {
	for n, q := range p.questions {
		said := Answered{}
		if n == len(p.questions)-1 {
			said = by
		}
		answers := q.ask(ctx, p.pdp, types, said)
		all = append(all, answers...)
		if slices.ContainsFunc(answers, authzenclient.Undischarged.Denied) {
			return all, n // nothing more can come of it
		}
	}
	return all, len(p.questions)
}

// questions are all questions about a request, in order: those that the tool declares first, and the trusted ones last.
// If one cannot be made, none is asked.
func (a *Asker) questions(ctx context.Context, w refuser, op *Operation) ([]question, *Refusal) {
	params := &parameters{members: op.Params}
	var all []question
	var err error
	if OfTool(op.Method) {
		if refusal := callable(w, op, params); refusal != nil {
			return nil, refusal
		}
	}
	declares := op.Method == toolsCall && op.Tool.declared != nil
	if declares {
		if all, err = a.declaredQuestions(ctx, op, params); err != nil {
			return nil, w.unmapped(err)
		}
	}
	if op.Requester != nil {
		r, err := a.aboutTool(op, params, toolFulfil, nil)
		if err != nil {
			return nil, w.unmapped(err)
		}
		all = append(all, question{source: Source{Author: BuiltIn}, requests: []evaluation.Request{r}})
	}
	if declares && a.o.Declared == Instead {
		return all, nil
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

// handlers discharge obligations of the PDP. Redact is promised only where a result has data that it could be done to.
func (a *Asker) handlers(p *Permit) obligations.Handlers {
	all := make(obligations.Handlers, len(a.o.Handlers)+1)
	maps.Copy(all, a.o.Handlers)
	if parts[p.method] != nil {
		all[redact] = p.promise
	}
	return all
}

// refusalOf says why the answers to questions are no permit: question denied of the plan is the one that was denied.
func (a *Asker) refusalOf(ctx context.Context, w refuser, op *Operation, plan Plan, denied int, e authzenclient.Enforcement) *Refusal {
	last, ok := plan.last()
	trusted := denied == plan.Len()-1 // a server's own question cannot be approved
	if trusted && op.Answered.given() {
		return w.unused(op.Answered, e)
	}
	if r := w.failure(e.Err()); r != nil {
		return r
	}
	d := e.Decision()
	switch {
	case trusted && d.Reason() != string(evaluation.ApprovalRequired):
		return w.suggests(d.ReasonUser(), a.instead(ctx, *op, e), e.String())
	case !trusted, !last.whole:
		return w.denial(d.ReasonUser(), e.String())
	}
	wanted := a.wanted(w, plan.pdp, op, last)
	wanted.denied, wanted.of.Reason = &e, d.ReasonUser()
	r := w.approval(wanted.of, "Nobody was asked: ask for approval", askForApproval, e.String())
	if next, _ := approvals.Next(e); ok && next == evaluation.NextRequest {
		r.Wanted = wanted
	}
	return r
}

// instead suggests to a client that speaks MCPx a way around a denied call: to request it, if that may be permitted. It is ""
// if there is none.
func (a *Asker) instead(ctx context.Context, op Operation, e authzenclient.Enforcement) string {
	if op.MCPx && op.Method == toolsCall && e.Err() == nil && e.Decision().Reason() == "" && a.MayRequest(ctx, op) {
		return callRequest
	}
	return ""
}
