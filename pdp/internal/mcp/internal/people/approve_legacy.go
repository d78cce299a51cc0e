package people

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// A client of the legacy era gets the question as a request on the stream of its call, and answers with a message of its own.
// Over HTTP that message may reach another gateway with the same keys. The id of the request contains everything needed to
// send the answer to the PDP, and the waiting call gets the outcome from the PDP. The PDP keeps no answer such as "the person
// would rather not say". Such an answer reaches only a call that waits in the same process. Elsewhere the call waits as long
// as the client wants, StateLife at the most.

// sealedQuestion is sealed in the id of a request that asks a person. It is bound to the session, so another client cannot
// answer with it. The tenant is that of the principal, which stays the same for the whole session.
type sealedQuestion struct {
	Approval string `json:"a"`
	// Page is set if the person was sent to a page. Opening the page says nothing about the person's decision.
	Page bool `json:"p,omitzero"`
}

// question is such a request on the stream of a call, which receives the client's answers.
type question struct {
	id     string
	sealed sealedQuestion
	// received is set if the call has received an answer of the client, and accepted if the PDP has accepted it.
	received, accepted bool

	answers chan formAnswer
	over    chan struct{} // closed when the call has stopped waiting
	stop    func()
	// answered is set as soon as the client has answered. The call may see the effect at the PDP before it receives the
	// answer.
	answered atomic.Bool
}

// deliver passes the client's answer to the waiting call. It is not ok if the call waits no longer.
func (q *question) deliver(ctx context.Context, w formAnswer) (ok bool) {
	if q == nil {
		return false
	}
	select {
	case q.answers <- w:
		return true
	case <-q.over:
	case <-ctx.Done():
	}
	return false
}

// register registers a question of the gateway for answers of the client, until its stop is called.
func (s *Conversation) register(q *question, id rpc.ID) {
	q.answers, q.over = make(chan formAnswer), make(chan struct{})
	q.stop = sync.OnceFunc(func() {
		close(q.over)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.questions, id)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions[id] = q
}

func (a *Approval) askLegacy(way string, shown *rpc.Message) {
	s := a.Session
	q := &question{sealed: sealedQuestion{Approval: a.approval, Page: way == ByURL}}
	var err error
	if q.id, err = seal.SealJSON(a.o.Ring, seal.Approval, []byte(s.ID), q.sealed, a.o.Now().Add(StateLife)); err != nil {
		a.effect.refused = answer.Internal(err)
		return
	}
	*shown = era.Asked(*shown, era.Legacy, q.id)
	shown.ID = rpc.StringID(q.id)
	s.register(q, shown.ID)
	a.question, a.patience = q, StateLife
	a.effect.gone = a.Reply.Interim(*shown) != nil
}

// receive handles an answer of the client. From the first one on, other people have the usual time to decide.
func (a *Approval) receive(ctx context.Context, w formAnswer, enough *time.Timer) {
	q := a.question
	if q.accepted { // a request has one answer: of two that contradict each other the PDP has the first
		return
	}
	if a.effect = a.effectOf(ctx, w); !a.effect.continues() {
		return
	}
	q.accepted = w.err == nil && w.answer.Len() > 0
	if !q.received {
		q.received = true
		enough.Reset(a.o.Approvals.Wait)
	}
}

// close stops waiting for answers. If people have decided, it has the client remove the form or page that it still shows.
func (q *question) close(ctx context.Context, a *Approval) {
	if q == nil {
		return
	}
	q.stop()
	if !a.effect.continues() || a.follower.Standing().Pending() || ctx.Err() != nil {
		return
	}
	m := rpc.Message{Method: "notifications/cancelled", Params: rpc.Object{}.With("requestId", rpc.String(q.id)).With("reason", rpc.String("it is decided")).Value()}
	switch answered := q.answered.Load(); {
	case answered && !q.sealed.Page:
		return
	case answered:
		m = rpc.Message{Method: "notifications/elicitation/complete", Params: rpc.Object{}.With("elicitationId", rpc.String(q.id)).Value()}
	}
	_ = a.Reply.Interim(m)
}

// Question opens the id of a request in this session. It is ours if the gateway has asked a person with it.
func (g *People) Question(s *Conversation, id rpc.ID) (q sealedQuestion, ours bool) {
	text, ok := id.Unquoted()
	if !ok {
		return q, false
	}
	q, _, ours = seal.OpenJSON[sealedQuestion](g.o.Ring, seal.Approval, []byte(s.ID), text)
	return q, ours
}

// SubmitAnswer sends the PDP a client's answer for its person, and passes it to the waiting call in this process. The status
// is "accepted" even if the PDP refuses the answer: the response to the call reports that. If the answer reached neither the
// PDP nor a call, the client must send it again after a while. It counts once.
func (g *People) SubmitAnswer(ctx context.Context, s *Conversation, q sealedQuestion, who *identity.Principal, m rpc.Message) (status int, after time.Duration) {
	s.mu.Lock()
	waiter := s.questions[m.ID] // nil if none waits in this process
	s.mu.Unlock()
	if waiter != nil {
		waiter.answered.Store(true)
	}
	release, after, ok := g.o.Rates.Admit(who.Account(), who.Key, "")
	if !ok {
		waiter.deliver(ctx, formAnswer{})
		return http.StatusTooManyRequests, after
	}
	defer release()
	ctx, leave, ok := g.doors.Enter(context.WithoutCancel(ctx)) // an answer counts even if its client disconnects
	if !ok {
		return http.StatusServiceUnavailable, time.Second
	}
	defer leave()
	w := q.read(m)
	if !q.Page && !g.decides() { // another gateway, which uses forms, has shown it
		w.answer = Cancels()
	}
	if !q.Page {
		if w.err = ask.ErrAway; g.o.Asker.PDP(who) != nil { // the PDP was configured when people were asked
			w = submit(ctx, g.o.Asker.PDP(who), who, q.Approval, w.answer)
		}
	}
	g.o.Logger.Info("the client of a person who was asked has answered", "approval", q.Approval, "principal", who.Key, "taken", w.err == nil)
	if waiter.deliver(ctx, w) {
		return http.StatusAccepted, 0
	}
	var e *authzenclient.Error
	if errors.As(w.err, &e) && e.Kind != authzenclient.Refused {
		return http.StatusServiceUnavailable, e.RetryAfter
	}
	return http.StatusAccepted, 0
}

// read reads the answer in a response. A client that cannot show a question, or was not allowed to open a page, has not asked
// its person.
func (q sealedQuestion) read(m rpc.Message) (w formAnswer) {
	w.answer, _ = rpc.ParseObject(m.Result) // the PDP refuses an answer that is no object
	if m.Error != nil || q.Page && w.answer.GetString("action") != "accept" {
		w.answer = Cancels()
	}
	return w
}

// Cancels returns the answer of a client whose person has not answered.
func Cancels() rpc.Object { return rpc.Object{}.With("action", rpc.String("cancel")) }
