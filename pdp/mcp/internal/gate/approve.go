package gate

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
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/people"
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

// approving is a call while people decide about it.
type approving struct {
	x      exchange
	wanted *ask.Wanted
	// follower hears what people say, once they were asked.
	follower *people.Follower
	// approval is the id by which a form is shown and answered, "" if there is not just one.
	approval string
	// told is how often the client was told that people are waited for.
	told int
	// patience is for how long they are waited for, 0 if they are not.
	patience time.Duration
	// question is what the client's person is asked on the stream of the call, nil if that is not so.
	question *question
	// state is what the call was sent again with, nil if it was not, and answered is set if the client's person has answered then.
	state    *sealedApproval
	answered bool
	// reaction is what has come of what the client has answered.
	reaction reaction
	// leaves gives back what it holds.
	leaves func()
}

// leave implements [waiting].
func (a *approving) leave() { a.leaves() }

// decide has the PDP decide about a request, and people if it says that they can: [visit.waiting] is set then. A call that waits
// for them is in nobody's way.
func (v *visit) decide(ctx context.Context) (refused *Answer) {
	if v.x.brought != nil && v.x.brought.people != nil { // people were asked before
		return v.approve(ctx, nil)
	}
	v.x, refused = v.x.decideKnown(ctx, v.x.brought.answered())
	if refused == nil || refused.refusal.Wanted == nil || v.x.brought.forServer() { // people are asked about a whole call, and not about what goes on
		return refused
	}
	return v.approve(ctx, refused.refusal.Wanted)
}

// approve has people decide, whom nobody has asked yet where something is wanted of them.
func (v *visit) approve(ctx context.Context, wanted *ask.Wanted) *Answer {
	done, refused := takePlace(v.g, v.who)
	if refused != nil {
		return refused
	}
	a := &approving{x: v.x, wanted: wanted}
	a.leaves = sync.OnceFunc(func() {
		a.stop()
		done()
	})
	v.release()
	v.waiting = a
	if wanted == nil {
		a.state = v.x.brought.people
		return a.again(ctx, a.state)
	}
	return a.begin(ctx)
}

// takePlace takes a place among those who wait, before anybody is asked.
func takePlace(g *Gateway, who principal) (done func(), refused *Answer) {
	const again = 5 * time.Second
	own, ok := g.o.Rates.Hold(personOf(who), Waiting)
	if !ok {
		return nil, limited(again)
	}
	all, ok := g.o.Rates.Hold("", AllWaiting)
	if !ok {
		own()
		return nil, limited(again)
	}
	return func() {
		own()
		all()
	}, nil
}

// begin has people asked.
func (a *approving) begin(ctx context.Context) *Answer {
	way, shown, refused := a.file(ctx)
	switch {
	case a.follower == nil: // nobody was asked
		return refused
	case refused != nil:
		a.reaction.refused = refused
	case way == ByWait:
		a.waits()
	case way == "":
	case a.x.client.era == era.Modern:
		return a.show(way, shown)
	default:
		a.askLegacy(way, shown)
	}
	return nil
}

// file has people asked, and finds the first way that there is for this client and for who is behind its token, "" if there is
// none.
func (a *approving) file(ctx context.Context) (way string, shown *rpc.Message, refused *Answer) {
	standing, no := a.wanted.Ask(ctx)
	if no != nil {
		return "", nil, refuse(no)
	}
	a.follow(standing)
	for _, one := range a.x.g.o.Approvals.Channels {
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
		return way, nil, refuse(a.wanted.Undecidable(standing))
	}
	return way, nil, nil
}

// decidable reports whether somebody may decide about what was filed. If the PDP does not say, somebody may: then the call
// waits, and nothing more comes of it.
func (a *approving) decidable(ctx context.Context) bool {
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
func (a *approving) follow(s approvals.Standing) {
	if ids := s.Approvals(); len(ids) == 1 {
		a.approval = ids[0]
	}
	a.follower = a.x.g.desk.Follow(a.wanted.PDP(), s)
}

func (a *approving) stop() {
	if a.question != nil {
		a.question.stop()
	}
	if a.follower != nil {
		a.follower.Stop()
	}
}

// pending reports whether people are waited for still.
func (a *approving) pending() bool {
	select {
	case <-a.follower.Decided():
		return false
	default:
		return true
	}
}

func (a *approving) note(what, way string) {
	a.x.g.o.Logger.Info(what, "way", way, "approval", a.approval, "task", a.follower.Standing().Task().ID(), "status", a.follower.Standing().Status(), "principal", a.x.who.Key)
}

// form is what the person behind the token is shown in a way. It is not ok if that way is none for them, or for their client:
// the PDP says for whom it is.
func (a *approving) form(ctx context.Context, way string) (shown rpc.Message, ok bool, refused *Answer) {
	var mode rpc.Object
	name := ""
	if way == ByURL {
		name, mode = "url", mode.With("mode", rpc.String("url"))
	}
	person, err := approver(a.x.who)
	if err != nil || a.approval == "" || !era.Takes(a.x.client.capabilities, rpc.Message{Method: era.Elicit, Params: mode.Value()}) {
		return shown, false, nil
	}
	text, err := approvals.Form(ctx, a.wanted.PDP(), a.approval, person, name)
	var e *authzenclient.Error
	switch {
	case errors.As(err, &e) && e.Kind == authzenclient.Refused:
		a.note("the person behind the token is not asked: "+e.Error(), way)
		return shown, false, nil
	case err != nil:
		return shown, false, refuse(a.wanted.Failed(err))
	}
	shown, fault := rpc.Parse(text, rpc.DefaultLimits())
	if fault != nil || shown.Method != era.Elicit {
		return shown, false, refuse(a.wanted.Failed(errors.New("the form is no message of MCP that asks a person")))
	}
	shown.ID = rpc.ID{}
	return shown, true, nil
}

// reaction is what comes of what a client has answered, or of what it has not. The zero reaction is that what has become of
// the approval counts, and nothing besides: if people are waited for still, the call is to be sent again.
type reaction struct {
	// over is set if the client does not wait any longer, and gone if it cannot be reached.
	over, gone bool
	// suggested are the arguments that a person would rather have, nil if they have changed none: nothing was approved.
	suggested jsontext.Value
	// refused is set if the answer was none, or could not be brought to the PDP.
	refused *Answer
}

// waits reports whether there is something to wait for.
func (r *reaction) waits() bool { return !r.over && !r.gone && r.suggested == nil && r.refused == nil }

// word is what a client has answered, and what came of bringing it to the PDP. The zero word is that it has answered
// something that could not be brought just now.
type word struct {
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

// respond brings the PDP what the client of somebody has answered to a form: who has sent the answer says it, whoever has
// sent the call.
func respond(ctx context.Context, pdp *authzenclient.Client, who *identity.Principal, approval string, answer rpc.Object) word {
	w := word{answer: answer}
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

// reacted is what comes of an answer.
func (a *approving) reacted(ctx context.Context, w word) (r reaction) {
	var e *authzenclient.Error
	switch {
	case w.err == nil:
		if r.over = cancelled(w.answer); w.status != "" && w.status != "pending" {
			a.follower.Look(ctx) // the watch may be late
		}
	case !errors.As(w.err, &e) || e.Kind != authzenclient.Refused:
		r.refused = refuse(a.wanted.Failed(w.err))
	case e.Status == http.StatusConflict:
		r = a.contradicted(ctx, w.answer)
	case e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge, e.Status == http.StatusUnprocessableEntity:
		r.refused = invalid("the answer to the form cannot be read; nothing was approved")
	default: // what somebody says who has no say is nothing: others decide
		a.note("an answer does not count: "+e.Error(), ByForm)
		r.over = declined(w.answer)
	}
	return r
}

// contradicted is what comes of an answer that the PDP did not take, as things are: because people have decided meanwhile, or
// this one has before, or because it is about other arguments.
func (a *approving) contradicted(ctx context.Context, answer rpc.Object) (r reaction) {
	now, err := approvals.Look(ctx, a.wanted.PDP(), a.follower.Standing().Task())
	if err != nil {
		return reaction{refused: refuse(a.wanted.Failed(err))}
	}
	if declined(answer) {
		return reaction{over: now.Pending() || now.Approved()}
	}
	if !now.Pending() {
		return r
	}
	arguments, err := evaluation.ParseWithNulls(argumentsOf(a.x.params), evaluation.DefaultLimits())
	reviewed, err2 := evaluation.ParseWithNulls(answer.GetObject("content").Value(), evaluation.DefaultLimits())
	if err != nil || err2 != nil {
		return r
	}
	if suggested, changed := wire.Suggested(arguments, wire.Unmasked(reviewed, arguments)); changed {
		r.suggested, _ = suggested.Value().MarshalJSON()
	}
	return r
}

// waits has people be waited for as long as a request is held.
func (a *approving) waits() {
	a.patience = a.x.g.o.Approvals.Wait
	a.tell()
}

// wait waits until people are not waited for any more, for as long as it has patience.
func (a *approving) wait(ctx context.Context) {
	enough := time.NewTimer(a.patience)
	defer enough.Stop()
	tick := time.NewTicker(tellsEach)
	defer tick.Stop()
	for a.patience > 0 && a.reaction.waits() {
		select {
		case w := <-a.question.answers():
			a.hears(ctx, w, enough)
		case <-a.follower.Decided():
			return
		case <-enough.C:
			return
		case <-a.x.g.drain.ctx.Done(): // another gateway goes on, where also what is shown can be answered
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			a.tell()
		}
	}
}

// tellsEach is how often a client hears that people are waited for.
const tellsEach = 5 * time.Second

// tell tells the client that people are waited for, if it wants to hear of progress.
func (a *approving) tell() {
	if a.x.progressToken() == nil || !a.follower.Standing().Pending() {
		return
	}
	message := "a person must approve this call"
	if a.approval != "" {
		message += "; the request for approval is " + a.approval
	}
	tellProgress(a.x.Call, a.told, message)
	a.told++
}

// tellProgress tells a client that wants to hear of progress how far its request is, before its server has it: told is how often
// it was told before. That grows, and leaves room for what the server says of its own progress.
func tellProgress(x *Call, told int, message string) {
	token := x.progressToken()
	if token == nil {
		return
	}
	progress := strconv.AppendFloat(nil, float64(told)/1000, 'f', -1, 64)
	params := rpc.Object{}.With("progressToken", token).With("progress", progress).With("message", rpc.String(message))
	_ = x.reply.Interim(rpc.Message{Method: "notifications/progress", Params: params.Value()})
}

// conclude is the end of a wait: the call goes on with a new permit, or its response is made.
func (a *approving) conclude(ctx context.Context) (exchange, *Answer) {
	defer a.leave()
	if end := a.outcome(ctx); end != nil {
		return a.x, end
	}
	a.note("people have approved a call", "")
	x, standing := a.x, a.follower.Standing()
	now, refused := x.find(ctx) // while people were waited for the tool may have become another
	switch {
	case refused != nil:
		return x, refused
	case now.tool.Digest != x.tool.Digest: // what they have approved stays good for the tool as it was
		return x, invalid("the tool is not the one that people were asked about any more; send the call again")
	}
	x.Target = now
	return x.ask(ctx, ask.Answered{Standing: &standing})
}

// outcome is the response if the call does not go on.
func (a *approving) outcome(ctx context.Context) *Answer {
	if end := a.round(ctx); end != nil {
		return end
	}
	a.question.ends(ctx, a)
	standing, r := a.follower.Standing(), &a.reaction
	switch {
	case r.suggested != nil:
		a.cancel(ctx)
		return a.changed(r.suggested)
	case r.gone, ctx.Err() != nil: // also where the PDP could not be asked because of that
		a.left(ctx)
		return refuse(a.wanted.Required(standing))
	case r.refused != nil:
		return r.refused
	case !standing.Pending() && !standing.Approved():
		return refuse(a.wanted.Denied(standing))
	case standing.Pending(), r.over:
		return refuse(a.wanted.Required(standing))
	}
	return nil
}

// left takes back what people are asked if the client has gone, where the operator wants that. A client whose token has
// expired may come again with another, and one that this gateway lets go may come to another gateway.
func (a *approving) left(ctx context.Context) {
	expired := errors.Is(context.Cause(ctx), identity.ErrExpired)
	if a.x.g.o.Approvals.OnDisconnect == CancelTask && !expired && a.x.g.drain.ctx.Err() == nil {
		a.cancel(ctx)
	}
}

// cancel takes back what people are asked, unless somebody else waits for them, too.
func (a *approving) cancel(ctx context.Context) {
	a.follower.Stop() // of those who leave at once, one at least is alone then
	if !a.follower.Alone() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := approvals.Cancel(ctx, a.wanted.PDP(), a.follower.Standing().Task()); err != nil {
		a.note("what people are asked was not taken back: "+err.Error(), "")
	}
}

// changed is the result of a call that a person would rather have with other arguments: another call, which is decided anew.
// What a tool promises of its structured content is true of errors, too, and clients see to it: there the text alone says it.
func (a *approving) changed(suggested jsontext.Value) *Answer {
	a.note("a person would have a call changed", ByForm)
	result := toolError("Nothing was approved, and nothing was done: the person who reviewed this call changed its arguments. " +
		"If you agree, call the tool again with these: " + string(suggested))
	if definition, err := rpc.ParseObject(a.x.tool.Definition); err == nil && definition.Get("outputSchema") == nil {
		said := rpc.Object{}.With("type", rpc.String("arguments_changed")).With("suggested", suggested)
		result = result.With("structuredContent", said.Value())
	}
	return &Answer{Message: a.x.says(result.Value()), Status: http.StatusOK, Outcome: outcomeRefused}
}
