package people

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/desk"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// A call may need people. They are asked while it waits, in the ways that the operator has named. What they say the PDP says:
// nothing that a client answers is a permit, and only what the PDP permits once they have approved it goes on.

// Approvals say how people are asked.
type Approvals struct {
	// Channels are the ways, in the order in which they are tried.
	Channels []string
	// Wait is how long a request is held for people at most.
	Wait time.Duration
	// OnDisconnect is what becomes of what people were asked if the client goes away.
	OnDisconnect string
}

// The ways to ask people, and what becomes of what they were asked if the client goes away.
const (
	ByForm = "form" // in the client, what the PDP has the person behind the token fill in
	ByURL  = "url"  // in the client, a page of the PDP's console
	ByWait = "wait" // elsewhere: whoever decides hears of it by the PDP

	KeepAsking = "keep"
	CancelTask = "cancel"
)

// What of those who wait there is a bounded number of: of one person, and of all together by the one key "".
const (
	Waiting    = "waiting"
	AllWaiting = "waiting for all"
)

// Approval is a call while people decide about it.
type Approval struct {
	Case
	wanted *ask.Wanted
	// follower hears what people say, once they were asked.
	follower *desk.Follower
	// approval is the id by which a form is shown and answered, "" if there is not just one.
	approval string
	// reports is how often the client was told that people are waited for.
	reports int
	// patience is for how long they are waited for, 0 if they are not.
	patience time.Duration
	// question is what the client's person is asked on the stream of the call, nil if that is not so.
	question *question
	// state is what the call was sent again with, nil if it was not, and answered is set if the client's person has answered then.
	state    *SealedApproval
	answered bool
	// effect is what has come of what the client has answered.
	effect effect
	// Leave gives back what it holds.
	Leave func()
}

// NewApproval takes a place among those who wait for people.
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

// takePlace takes a place among those who wait, before anybody is asked.
func (g *People) takePlace(who *identity.Principal) (done func(), refused *answer.Answer) {
	const again = 5 * time.Second
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

// Begin has people asked.
func (a *Approval) Begin(ctx context.Context) *answer.Answer {
	way, shown, refused := a.file(ctx)
	switch {
	case a.follower == nil: // nobody was asked
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

// file has people asked, and finds the first way that there is for this client and for who is behind its token, "" if there is
// none.
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
	if standing.Pending() && !a.decidable(ctx) {
		return way, nil, answer.Refuse(a.wanted.Undecidable(standing))
	}
	return way, nil, nil
}

// decidable reports whether somebody may decide about what was filed. If the PDP does not say, somebody may: then the call
// waits, and nothing more comes of it.
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

// follow hears from now on what people say, until stop is called.
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

// pending reports whether people are waited for still.
func (a *Approval) pending() bool {
	select {
	case <-a.follower.Decided():
		return false
	default:
		return true
	}
}

func (a *Approval) note(what, way string) {
	a.o.Logger.Info(what, "way", way, "approval", a.approval, "task", a.follower.Standing().Task().ID(), "status", a.follower.Standing().Status(), "principal", a.Who.Key)
}

// form is what the person behind the token is shown in a way. It is not ok if that way is none for them, or for their client:
// the PDP says for whom it is.
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
		return shown, false, nil
	case err != nil:
		return shown, false, answer.Refuse(a.wanted.Failed(err))
	}
	shown, fault := rpc.Parse(text, rpc.DefaultLimits())
	if fault != nil || shown.Method != era.Elicit {
		return shown, false, answer.Refuse(a.wanted.Failed(errors.New("the form is no message of MCP that asks a person")))
	}
	shown.ID = rpc.ID{}
	return shown, true, nil
}

// effect is what comes of what a client has answered, or of what it has not. The zero reaction is that what has become of
// the approval counts, and nothing besides: if people are waited for still, the call is to be sent again.
type effect struct {
	// over is set if the client does not wait any longer, and gone if it cannot be reached.
	over, gone bool
	// suggested are the arguments that a person would rather have, nil if they have changed none: nothing was approved.
	suggested jsontext.Value
	// refused is set if the answer was none, or could not be brought to the PDP.
	refused *answer.Answer
}

// continues reports whether there is something to wait for.
func (r *effect) continues() bool {
	return !r.over && !r.gone && r.suggested == nil && r.refused == nil
}

// formAnswer is what a client has answered, and what came of bringing it to the PDP. The zero word is that it has answered
// something that could not be brought just now.
type formAnswer struct {
	answer rpc.Object
	// status is what has become of the approval by it, as the PDP says, "" if it says nothing.
	status string
	err    error
}

// approver is a principal as the PDP knows voters: the person, by the client that the token was given to. Whether a vote
// through that client counts the PDP says.
func approver(who *identity.Principal) (approvals.Person, error) {
	person, err := approvals.PersonWith(who.Token)
	return person.WithClient(who.Agent.Type, who.Agent.ID), err
}

// submit brings the PDP what the client of somebody has answered to a form: who has sent the answer says it, whoever has
// sent the call.
func submit(ctx context.Context, pdp *authzenclient.Client, who *identity.Principal, approval string, answer rpc.Object) formAnswer {
	w := formAnswer{answer: answer}
	if cancelled(answer) { // nobody has said anything
		return w
	}
	var person approvals.Person
	if person, w.err = approver(who); w.err == nil {
		said := answer.Without(func(name string) bool { return name != "action" && name != "content" })
		w.status, w.err = approvals.Respond(ctx, pdp, approval, person, said.Value())
	}
	return w
}

// cancelled reports whether an answer says that nobody has answered.
func cancelled(answer rpc.Object) bool { return answer.GetString("action") == "cancel" }

// declined reports whether an answer is anything but a yes. The client that gives it does not go on, whatever others say.
func declined(answer rpc.Object) bool {
	return answer.Len() > 0 && answer.GetString("action") != "accept"
}

// effectOf is what comes of an answer.
func (a *Approval) effectOf(ctx context.Context, w formAnswer) (r effect) {
	var e *authzenclient.Error
	switch {
	case w.err == nil:
		if r.over = cancelled(w.answer); w.status != "" && w.status != "pending" {
			a.follower.Look(ctx) // the watch may be late
		}
	case !errors.As(w.err, &e) || e.Kind != authzenclient.Refused:
		r.refused = answer.Refuse(a.wanted.Failed(w.err))
	case e.Status == http.StatusConflict:
		r = a.effectOfConflict(ctx, w.answer)
	case e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge, e.Status == http.StatusUnprocessableEntity:
		r.refused = answer.Invalid("the answer to the form cannot be read; nothing was approved")
	default: // what somebody says who has no say is nothing: others decide
		a.note("an answer does not count: "+e.Error(), ByForm)
		r.over = declined(w.answer)
	}
	return r
}

// effectOfConflict is what comes of an answer that the PDP did not take, as things are: because people have decided meanwhile, or
// this one has before, or because it is about other arguments.
func (a *Approval) effectOfConflict(ctx context.Context, said rpc.Object) (r effect) {
	now, err := approvals.Look(ctx, a.wanted.PDP(), a.follower.Standing().Task())
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

// continues has people be waited for as long as a request is held.
func (a *Approval) startWait() {
	a.patience = a.o.Approvals.Wait
	a.reportProgress()
}

// Wait waits until people are not waited for any more, for as long as it has patience.
func (a *Approval) Wait(ctx context.Context) {
	enough := time.NewTimer(a.patience)
	defer enough.Stop()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for a.patience > 0 && a.effect.continues() {
		select {
		case w := <-a.question.answers():
			a.receive(ctx, w, enough)
		case <-a.follower.Decided():
			return
		case <-enough.C:
			return
		case <-a.doors.Draining.Done(): // another gateway goes on, where also what is shown can be answered
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			a.reportProgress()
		}
	}
}

// progressInterval is how often a client hears that people are waited for.
const progressInterval = 5 * time.Second

// deliver tells the client that people are waited for, if it wants to hear of progress.
func (a *Approval) reportProgress() {
	if !a.follower.Standing().Pending() {
		return
	}
	message := "a person must approve this call"
	if a.approval != "" {
		message += "; the request for approval is " + a.approval
	}
	sendProgress(a.Params, a.Reply, a.reports, message)
	a.reports++
}

// sendProgress tells a client that wants to hear of progress how far its request is, before its server has it: told is how often
// it was told before. That grows, and leaves room for what the server says of its own progress.
func sendProgress(asked rpc.Object, back reply.Reply, told int, message string) {
	token := asked.GetObject("_meta").Get("progressToken")
	if token == nil {
		return
	}
	progress := strconv.AppendFloat(nil, float64(told)/1000, 'f', -1, 64)
	params := rpc.Object{}.With("progressToken", token).With("progress", progress).With("message", rpc.String(message))
	_ = back.Interim(rpc.Message{Method: "notifications/progress", Params: params.Value()})
}

// Conclude is the end of a wait: what the PDP is asked again with, or the response.
func (a *Approval) Conclude(ctx context.Context) (ask.Answered, *answer.Answer) {
	if end := a.outcome(ctx); end != nil {
		return ask.Answered{}, end
	}
	a.note("people have approved a call", "")
	standing := a.follower.Standing()
	return ask.Answered{Standing: &standing}, nil
}

// outcome is the response if the call does not go on.
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
	case r.gone, ctx.Err() != nil: // also where the PDP could not be asked because of that
		a.clientLeft(ctx)
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

// clientLeft takes back what people are asked if the client has gone, where the operator wants that. A client whose token has
// expired may come again with another, and one that this gateway lets go may come to another gateway.
func (a *Approval) clientLeft(ctx context.Context) {
	expired := errors.Is(context.Cause(ctx), identity.ErrExpired)
	if a.o.Approvals.OnDisconnect == CancelTask && !expired && a.doors.Draining.Err() == nil {
		a.cancel(ctx)
	}
}

// cancel takes back what people are asked, unless somebody else waits for them, too.
func (a *Approval) cancel(ctx context.Context) {
	a.follower.Stop() // of those who leave at once, one at least is alone then
	if !a.follower.Alone() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelFor)
	defer cancel()
	if err := approvals.Cancel(ctx, a.wanted.PDP(), a.follower.Standing().Task()); err != nil {
		a.note("what people are asked was not taken back: "+err.Error(), "")
	}
}

// cancelFor is how long it may take to take back what people are asked.
const cancelFor = 5 * time.Second

// changed is the result of a call that a person would rather have with other arguments: another call, which is decided anew.
// What a tool promises of its structured content is true of errors, too, and clients see to it: there the text alone says it.
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
