package ask

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/coaz"
	"policy-service/obligations"
	"policy-service/pdp/internal/rpc"
)

// Ask has the PDP decide about a request. Either result is nil. With a permit the request may be forwarded as it was given:
// [Permit.Done] is to be called when all is over.
func (a *Asker) Ask(ctx context.Context, op Operation) (*Permit, *Refusal) {
	w := a.refuser(&op)
	plan, refusal := a.Plan(ctx, op)
	if refusal != nil {
		return nil, refusal
	}
	if _, ok := plan.last(); op.Answered.given() && !ok {
		return nil, w.denial("", "people cannot have been asked about the request")
	}
	if op.Answered.Standing != nil && op.Answered.Continues != nil {
		return nil, w.denial("", "the request brings people's word twice")
	}
	if len(plan.questions) == 0 {
		return &Permit{}, nil
	}
	requests := 0
	for _, q := range plan.questions {
		requests += len(q.requests)
	}
	if refusal := a.o.Admit(ctx, requests); refusal != nil {
		return nil, refusal
	}
	shown, refusal := a.checkShown(ctx, w, &op, plan.questions[len(plan.questions)-1])
	if refusal != nil {
		return nil, refusal
	}
	if op.shows() && op.files() {
		if may, refusal := plan.mayFile(ctx, w); may || refusal != nil {
			return &Permit{}, refusal
		}
		op.Shows, shown = evaluation.CapabilityShown{}, "" // it is denied in any case
	}
	p := &Permit{pdp: plan.pdp, refuse: w, method: op.Method, capability: shown}
	handlers := a.handlers(p)
	asked, denied := plan.ask(ctx, handlers.Types(), op.Answered, op.options()...)
	p.decided = authzenclient.DischargeAll(ctx, handlers, asked...)
	if p.decided.Permitted() {
		return p, nil
	}
	plan.pdp.ReportAll(ctx, &p.decided)
	return nil, a.refusalOf(ctx, w, &op, plan, denied, p.decided.First())
}

// ask asks one question after the other until one is denied, the last with people's word if there is some, and with what the
// call shows. Denied is the place of that question, and behind the last one if there is none.
func (p Plan) ask(
	ctx context.Context, types []string, by Answered, shows ...authzenclient.AskOption,
) (all []authzenclient.Undischarged, denied int) {
	for n, q := range p.questions {
		said, shown := Answered{}, []authzenclient.AskOption(nil)
		if n == len(p.questions)-1 {
			said, shown = by, shows
		}
		answers := q.ask(ctx, p.pdp, types, said, shown...)
		if all == nil {
			all = answers // mostly there is no other question
		} else {
			all = append(all, answers...)
		}
		if slices.ContainsFunc(answers, authzenclient.Undischarged.Denied) {
			return all, n // nothing more can come of it
		}
	}
	return all, len(p.questions)
}

// questions are all questions about a request, in order: those that the tool declares first, and the trusted ones last.
// If one cannot be made, none is asked.
func (a *Asker) questions(ctx context.Context, op *Operation) (all []question, err error) {
	declares := op.Method == toolsCall && op.Tool.declared != nil
	if declares {
		if all, err = a.declaredQuestions(ctx, op); err != nil {
			return nil, err
		}
	}
	if op.Requester != nil {
		r, err := a.aboutTool(op, toolFulfil, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, question{source: Source{Author: BuiltIn}, requests: []evaluation.Request{r}})
	}
	if declares && a.o.Declared == Instead {
		return all, nil
	}
	more, err := a.trusted(op, nil)
	return append(all, more...), err
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
	if trusted && plan.questions[denied].takesCapability() {
		if r := w.ofCapability(op, e.Decision()); r != nil {
			return r
		}
	}
	if trusted && op.Answered.given() {
		return w.unused(op.Answered, e)
	}
	if r := w.failure(e.Err()); r != nil {
		return r
	}
	d := e.Decision()
	said, why := told(e)
	switch {
	case trusted && d.Reason() != string(evaluation.ApprovalRequired):
		said.Suggestion = a.instead(ctx, *op, e)
		return w.says(said, why)
	case !trusted, !last.whole:
		return w.says(said, why)
	}
	wanted := a.wanted(w, plan.pdp, op, last)
	wanted.denied, wanted.of.Reason = &e, d.ReasonUser()
	r := w.approval(wanted.of, "Nobody was asked: ask for approval", askForApproval, e.String())
	if next, _ := approvals.Next(e); ok && next == evaluation.NextRequest {
		r.Wanted = wanted
	}
	return r
}

// instead suggests to a client that speaks MCPx a way around a denied call: to request it with the same arguments, if the PDP
// may permit that. It is "" if there is none, or if the PDP cannot be asked: nothing else depends on it.
func (a *Asker) instead(ctx context.Context, op Operation, e authzenclient.Enforcement) string {
	if !op.MCPx || op.Method != toolsCall || op.Requester != nil || !a.Requests() || e.Err() != nil || e.Decision().Reason() != "" {
		return ""
	}
	op.Method = toolsRequest
	if may, _ := a.possible(ctx, op, toolRequest, unknownOfTheCall); !may {
		return ""
	}
	return callRequest
}

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
	switch {
	case op.Method == complete && !isReference(op.Params.GetObject("ref")):
		return Plan{}, w.refuse(Unmapped, rpc.InvalidParams, "ref must have the type ref/prompt and a name, or the type ref/resource and a uri, and not both", data{}, "ref names no prompt and no resource, or both")
	case !OfTool(op.Method):
	case op.Tool == nil || op.Params.GetString("name") != op.Tool.Shown:
		return Plan{}, UnknownTool()
	case op.Params.Get("task") != nil:
		return Plan{}, w.refuse(Unmapped, rpc.InvalidParams, "tasks are not offered: leave params.task out", data{}, "the call wants to be a task")
	}
	questions, err := a.questions(ctx, &op)
	if err != nil {
		return Plan{}, w.unmapped(err)
	}
	return Plan{of: a, method: op.Method, pdp: pdp, questions: questions}, nil
}

// isReference reports whether a reference names a prompt or a resource, and not both: some servers go by the type, and others by
// the member.
func isReference(ref rpc.Object) bool {
	name, uri := ref.Get("name"), ref.Get("uri")
	switch ref.GetString("type") {
	case "ref/prompt":
		return name.Kind() == '"' && uri == nil
	case "ref/resource":
		return uri.Kind() == '"' && name == nil
	}
	return false
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
	return p.questions[n].ask(ctx, p.pdp, p.of.handlers(&Permit{method: p.method}).Types(), Answered{})
}

// Permit is the PDP's yes to one request, and what it owes. [Asker.Ask] makes one. The zero Permit is of a message that
// needs no question, and owes nothing.
type Permit struct {
	pdp        *authzenclient.Client
	refuse     refuser
	method     string
	capability string // the id of the one that the call shows
	decided    authzenclient.Enforcements
	owed       []evaluation.Obligation // to take fields out of the result
	fields     []pointer
	over       sync.Once
}

// promise is the handler of the obligation redact. It reads the fields and notes them; [Permit.Result] takes them out
// of the result.
func (p *Permit) promise(_ context.Context, o evaluation.Obligation) error {
	fields, err := fieldsOf(o)
	if err == nil {
		p.owed, p.fields = append(p.owed, o), append(p.fields, fields...)
	}
	return err
}

// Passes reports whether messages of the upstream before its result may go on to the client. While something is to be taken out of
// the result nothing does: not even a number of its progress, which may be the very one.
func (p *Permit) Passes() bool { return len(p.owed) == 0 }

var errWithheld = errors.New("the result is of a form from which nothing can be taken out")

// Result is the response as it leaves: m without its redacted values, or m itself if there are none. If that cannot be done
// nothing leaves, and it is on record that it was not done.
func (p *Permit) Result(m rpc.Message) (rpc.Message, *Refusal) {
	if len(p.owed) == 0 {
		return m, nil
	}
	redacted, ok := redactResponse(p.method, m, p.fields)
	if ok {
		return redacted, nil
	}
	for _, o := range p.owed {
		p.decided.Break(o, errWithheld)
	}
	return rpc.Message{}, p.refuse.withheld(errWithheld.Error())
}

// Continuation is the value that a repetition of the request brings in [Answered.Continues], if an upstream asks for input
// before it is done. It is not ok where the permit rests on no approval, or on one that has no round left.
func (p *Permit) Continuation() (k authzenclient.Continuation, ok bool) {
	return p.last().Continuation()
}

// LastRound reports whether the permit rests on an approval that has no round left, and names the obligation that this met.
func (p *Permit) LastRound() (obligation string, is bool) { return p.last().LastRound() }

// last is the answer to the last question, which alone people's word is about; the zero value if nothing was asked.
func (p *Permit) last() (e authzenclient.Enforcement) {
	if all := p.decided.All(); len(all) > 0 {
		e = all[len(all)-1]
	}
	return e
}

// Done reports to the PDP how its obligations were discharged. It is called once, when the result has left or was withheld,
// or when there will be none. It waits for the PDP two seconds at the most, also where ctx has ended.
func (p *Permit) Done(ctx context.Context) {
	p.over.Do(func() {
		if p.pdp != nil {
			p.pdp.ReportAll(ctx, &p.decided)
		}
	})
}
