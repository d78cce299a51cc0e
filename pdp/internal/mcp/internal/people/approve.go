package people

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/desk"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// A call may need an approval. The gateway asks people while the call waits, through the channels that the operator has
// named. The PDP decides by their answers: a client's answer is never a permit, and a call goes on only with what the PDP
// permits after the approval.

// Approvals configure how people are asked.
type Approvals struct {
	// Channels are tried in their order.
	Channels []string
	// Wait is the longest time for which a request waits for people.
	Wait time.Duration
	// OnDisconnect says whether the task at the PDP is kept or cancelled when the client disconnects.
	OnDisconnect string
}

// The channels to people, and the values of OnDisconnect.
const (
	ByForm = "form" // in the client: a form of the PDP for the person behind the token
	ByURL  = "url"  // in the client: a page of the PDP's console
	ByWait = "wait" // elsewhere: the PDP notifies the approvers

	KeepAsking = "keep"
	CancelTask = "cancel"
)

// Keys of the bounds on waiting calls: of one person, and of all together under the key "".
const (
	Waiting    = "waiting"
	AllWaiting = "waiting for all"
)

// Approval is a call that waits for people to decide about it.
type Approval struct {
	Case
	wanted *ask.Wanted
	// follower follows the task at the PDP, once it is filed.
	follower *desk.Follower
	// approval is the id by which a form is shown and answered, "" if there is not exactly one.
	approval string
	// unheard is set if the PDP does not let the person of the client decide.
	unheard bool
	// patience is the time to wait for people, 0 to not wait.
	patience time.Duration
	// question is the question to the client's person on the stream of the call, nil if there is none.
	question *question
	// state is the state with which the call was sent again, nil if it was not. Answered is set if that message has an answer
	// of the client's person.
	state    *SealedApproval
	answered bool
	effect   effect
	// Leave releases its place and stops what it has started.
	Leave func()
}

// NewApproval takes a place among the calls that wait for people.
func NewApproval(c Case, wanted *ask.Wanted) (*Approval, *answer.Answer) {
	done, refused := c.takePlace(c.Who)
	if refused != nil {
		return nil, refused
	}
	a := &Approval{Case: c, wanted: wanted}
	a.Leave = sync.OnceFunc(func() {
		a.stop()
		done()
	})
	return a, nil
}

// takePlace takes a place among those that wait, before people are asked.
func (g *People) takePlace(who *identity.Principal) (done func(), refused *answer.Answer) {
	own, ok := g.o.Rates.Hold(who.Account(), Waiting)
	if !ok {
		return nil, answer.Limited("", again)
	}
	all, ok := g.o.Rates.Hold("", AllWaiting)
	if !ok {
		own()
		return nil, answer.Limited("", again)
	}
	return func() {
		own()
		all()
	}, nil
}

// Begin asks people.
func (a *Approval) Begin(ctx context.Context) *answer.Answer {
	way, shown, refused := a.file(ctx)
	switch {
	case a.follower == nil: // people were not asked
		return refused
	case refused != nil:
		a.effect.refused = refused
	case way == ByWait:
		a.startWait()
	case way == "":
	case a.Client.Era == era.Modern:
		return a.show(way, shown)
	default:
		a.askLegacy(way, shown)
	}
	return nil
}

// file files the task at the PDP. It returns the first channel that works for this client and the person behind its token, ""
// if none does.
func (a *Approval) file(ctx context.Context) (way string, shown *rpc.Message, refused *answer.Answer) {
	standing, no := a.wanted.Ask(ctx)
	if no != nil {
		return "", nil, answer.Refuse(no)
	}
	a.follow(standing)
	for _, one := range a.o.Approvals.Channels {
		if one == ByWait || !standing.Pending() {
			way = ByWait
			break
		}
		shown, ok, refused := a.form(ctx, one)
		switch {
		case refused != nil:
			return one, nil, refused
		case ok:
			a.note("a person is asked", one)
			return one, &shown, nil
		}
	}
	if standing.Pending() {
		if why := a.undecidable(ctx); why != "" {
			return way, nil, answer.Refuse(a.wanted.Undecidable(standing, why))
		}
	}
	return way, nil, nil
}

// undecidable returns why no person can decide about the filed task, for which no form is shown, or "" if somebody may.
func (a *Approval) undecidable(ctx context.Context) (why string) {
	const alone = "the PDP in the gateway's process hears only the person of this client, "
	forms := slices.Contains(a.o.Approvals.Channels, ByForm)
	switch {
	case a.o.Alone && !forms:
		return alone + "and approvals.channels has no form"
	case a.o.Alone && a.unheard:
		return alone + "whose approval does not count"
	case a.o.Alone && !era.Takes(a.Client.Capabilities, rpc.Message{Method: era.Elicit}) && !a.Client.SpeaksMCPx():
		return alone + "and the client shows no forms"
	case !a.decidable(ctx):
		return "no policy lets anybody decide"
	}
	return ""
}

// decidable reports whether any person may decide about the filed task. If the PDP does not answer, it is true: then the call
// waits, without further effect.
func (a *Approval) decidable(ctx context.Context) bool {
	if a.approval == "" {
		return true
	}
	may, err := approvals.Decidable(ctx, a.wanted.PDP(), a.approval)
	if err != nil {
		a.note("the PDP does not say whether somebody may decide: "+err.Error(), ByWait)
	}
	return may || err != nil
}

// follow follows the task at the PDP until stop is called.
func (a *Approval) follow(s approvals.Standing) {
	if ids := s.Approvals(); len(ids) == 1 {
		a.approval = ids[0]
	}
	a.follower = a.desk.Follow(a.wanted.PDP(), s)
}

func (a *Approval) stop() {
	if a.question != nil {
		a.question.stop()
	}
	if a.follower != nil {
		a.follower.Stop()
	}
}

func (a *Approval) note(what, way string) {
	a.o.Logger.Info(what, "way", way, "approval", a.approval, "task", a.follower.Standing().Task().ID(), "status", a.follower.Standing().Status(), "principal", a.Who.Key)
}

// form returns the form or page of a channel for the person behind the token. It is not ok if the channel does not work for
// this client, or if the PDP refuses to ask this person.
func (a *Approval) form(ctx context.Context, way string) (shown rpc.Message, ok bool, refused *answer.Answer) {
	var mode rpc.Object
	name := ""
	if way == ByURL {
		name, mode = "url", mode.With("mode", rpc.String("url"))
	}
	person, err := approver(a.Who)
	if err != nil || a.approval == "" || !era.Takes(a.Client.Capabilities, rpc.Message{Method: era.Elicit, Params: mode.Value()}) {
		return shown, false, nil
	}
	text, err := approvals.Form(ctx, a.wanted.PDP(), a.approval, person, name)
	var e *authzenclient.Error
	switch {
	case errors.As(err, &e) && e.Kind == authzenclient.Refused:
		a.note("the person behind the token is not asked: "+e.Error(), way)
		a.unheard = a.unheard || way == ByForm && (e.Status == http.StatusForbidden || e.Status == http.StatusNotFound)
		return shown, false, nil
	case err != nil:
		return shown, false, answer.Refuse(a.wanted.Failed(err))
	}
	shown, fault := rpc.Parse(text)
	if fault != nil || shown.Method != era.Elicit {
		return shown, false, answer.Refuse(a.wanted.Failed(errors.New("the form is no message of MCP that asks a person")))
	}
	shown.ID = rpc.ID{}
	if a.LooksLikeAnother() {
		params, _ := shown.ParamsObject() // without a message, no client shows it
		careful := "Careful: the name of this tool looks like that of another tool of its server: " + strconv.QuoteToASCII(a.Tool.Name)
		shown.Params = params.With("message", rpc.String(careful+"\n"+params.GetString("message"))).Value()
	}
	return shown, true, nil
}

// effect is the effect on the call of a client's answer, or of a missing answer. With the zero effect the state of the
// approval decides: if people have yet to decide, the call must be sent again.
type effect struct {
	// over is set if the client does not wait any longer, and gone if it cannot be reached.
	over, gone bool
	// suggested are the arguments that a person has proposed instead, nil if there are none. With them nothing was approved.
	suggested jsontext.Value
	// refused is set if the answer was invalid, or could not be sent to the PDP.
	refused *answer.Answer
}

func (r *effect) continues() bool {
	return !r.over && !r.gone && r.suggested == nil && r.refused == nil
}

// formAnswer is a client's answer to a form, and the PDP's response to it. The zero formAnswer is an answer that could not be
// sent just now.
type formAnswer struct {
	answer rpc.Object
	// status is the state of the approval after the answer, by the PDP, "" if the PDP gives none.
	status string
	err    error
}

// approver returns a principal as a voter for the PDP: the person, with the client that the token was issued to. The PDP
// decides whether a vote through that client counts.
func approver(who *identity.Principal) (approvals.Person, error) {
	person, err := approvals.PersonWith(who.Token)
	return person.WithClient(who.Agent.Type, who.Agent.ID), err
}

// submit sends the PDP a client's answer to a form. The vote is that of the principal who sent the answer, not of the caller.
func submit(ctx context.Context, pdp *authzenclient.Client, who *identity.Principal, approval string, answer rpc.Object) formAnswer {
	w := formAnswer{answer: answer}
	if cancelled(answer) { // the person has not answered
		return w
	}
	var person approvals.Person
	if person, w.err = approver(who); w.err == nil {
		said := answer.Without(func(name string) bool { return name != "action" && name != "content" })
		w.status, w.err = approvals.Respond(ctx, pdp, approval, person, said.Value())
	}
	return w
}

// cancelled reports whether an answer says that the person has not answered.
func cancelled(answer rpc.Object) bool { return answer.GetString("action") == "cancel" }

// declined reports whether an answer is anything but a yes. The client that sends it does not go on, whatever others decide.
func declined(answer rpc.Object) bool {
	return answer.Len() > 0 && answer.GetString("action") != "accept"
}

func (a *Approval) effectOf(ctx context.Context, w formAnswer) (r effect) {
	var e *authzenclient.Error
	switch {
	case w.err == nil:
		if r.over = cancelled(w.answer); w.status != "" && w.status != "pending" {
			_, _ = a.follower.Look(ctx) // the watch may be late
		}
	case !errors.As(w.err, &e) || e.Kind != authzenclient.Refused:
		r.refused = answer.Refuse(a.wanted.Failed(w.err))
	case e.Status == http.StatusConflict:
		r = a.effectOfConflict(ctx, w.answer)
	case e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge, e.Status == http.StatusUnprocessableEntity:
		r.refused = answer.Invalid("the answer to the form cannot be read; nothing was approved")
	default: // the answer of a person without a vote has no effect: others decide
		a.note("an answer does not count: "+e.Error(), ByForm)
		r.over = declined(w.answer)
	}
	return r
}

// effectOfConflict returns the effect of an answer that the PDP refused as a conflict. People have decided meanwhile, this
// person has answered before, or the answer is about other arguments.
func (a *Approval) effectOfConflict(ctx context.Context, said rpc.Object) (r effect) {
	now, err := a.follower.Look(ctx) // the watch may be late
	if err != nil {
		return effect{refused: answer.Refuse(a.wanted.Failed(err))}
	}
	if declined(said) {
		return effect{over: now.Pending() || now.Approved()}
	}
	if !now.Pending() {
		return r
	}
	arguments, err := evaluation.ParseWithNulls(ask.Arguments(a.Params), evaluation.DefaultLimits())
	reviewed, err2 := evaluation.ParseWithNulls(said.GetObject("content").Value(), evaluation.DefaultLimits())
	if err != nil || err2 != nil {
		return r
	}
	if suggested, changed := wire.Suggested(arguments, wire.Unmasked(reviewed, arguments)); changed {
		r.suggested, _ = suggested.Value().MarshalJSON()
	}
	return r
}

// startWait waits for people as long as a request may wait.
func (a *Approval) startWait() {
	a.patience = a.o.Approvals.Wait
	a.reportProgress()
}

// Wait waits until people have decided, or until patience ends.
func (a *Approval) Wait(ctx context.Context) {
	enough := time.NewTimer(a.patience)
	defer enough.Stop()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	var answers chan formAnswer
	if a.question != nil {
		answers = a.question.answers
	}
	for a.patience > 0 && a.effect.continues() {
		select {
		case w := <-answers:
			a.receive(ctx, w, enough)
		case <-a.follower.Decided():
			return
		case <-enough.C:
			return
		case <-a.doors.Draining.Done(): // another gateway continues, and takes answers to forms shown here
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			a.reportProgress()
		}
	}
}

const progressInterval = 5 * time.Second

// reportProgress notifies a client that wants progress that the call waits for people.
func (a *Approval) reportProgress() {
	if !a.follower.Standing().Pending() {
		return
	}
	message := "a person must approve this call"
	if a.approval != "" {
		message += "; the request for approval is " + a.approval
	}
	a.report(message)
}

// Conclude ends the wait. It returns the approval for the PDP's next decision, or the response.
func (a *Approval) Conclude(ctx context.Context) (ask.Answered, *answer.Answer) {
	if end := a.outcome(ctx); end != nil {
		return ask.Answered{}, end
	}
	a.note("people have approved a call", "")
	standing := a.follower.Standing()
	return ask.Answered{Standing: &standing}, nil
}

func (a *Approval) outcome(ctx context.Context) *answer.Answer {
	if end := a.round(ctx); end != nil {
		return end
	}
	a.question.close(ctx, a)
	standing, r := a.follower.Standing(), &a.effect
	switch {
	case r.suggested != nil:
		a.cancel(ctx)
		return a.changed(r.suggested)
	case r.gone, ctx.Err() != nil: // also if that kept the PDP from answering
		// A client with an expired token may return with another token, and a client of a draining gateway may go to another gateway.
		if a.o.Approvals.OnDisconnect == CancelTask && !errors.Is(context.Cause(ctx), identity.ErrExpired) && a.doors.Draining.Err() == nil {
			a.cancel(ctx)
		}
		return answer.Refuse(a.wanted.Required(standing))
	case r.refused != nil:
		return r.refused
	case !standing.Pending() && !standing.Approved():
		return answer.Refuse(a.wanted.Denied(standing))
	case standing.Pending(), r.over:
		return answer.Refuse(a.wanted.Required(standing))
	}
	return nil
}

// cancel cancels the task, unless another call waits for it, too.
func (a *Approval) cancel(ctx context.Context) {
	a.follower.Stop() // of calls that leave at once, at least one is alone then
	if !a.follower.Alone() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelFor)
	defer cancel()
	if err := approvals.Cancel(ctx, a.wanted.PDP(), a.follower.Standing().Task()); err != nil {
		a.note("what people are asked was not taken back: "+err.Error(), "")
	}
}

const cancelFor = 5 * time.Second

// changed is the result of a call for which a person has proposed other arguments. A call with those is another call, with a
// decision of its own. A tool's outputSchema holds for errors, too, and clients check it: with one, the result has only text.
func (a *Approval) changed(suggested jsontext.Value) *answer.Answer {
	a.note("a person would have a call changed", ByForm)
	result := answer.ToolError("Nothing was approved, and nothing was done: the person who reviewed this call changed its arguments. " +
		"If you agree, call the tool again with these: " + string(suggested))
	if definition, err := rpc.ParseObject(a.Tool.Definition); err == nil && definition.Get("outputSchema") == nil {
		said := rpc.Object{}.With("type", rpc.String("arguments_changed")).With("suggested", suggested)
		result = result.With("structuredContent", said.Value())
	}
	return &answer.Answer{Message: a.Client.Result(a.Method, result.Value()), Status: http.StatusOK, Outcome: answer.Refused}
}
