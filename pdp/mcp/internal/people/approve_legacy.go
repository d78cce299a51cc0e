package people

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// A client of the legacy era is asked by a request, on the stream of its call, and answers by a message of its own.
// Over HTTP that may come to another gateway with the same keys: it finds in the id of the request all that it needs to
// bring the answer to the PDP, and the waiting call gets the outcome from the PDP. An answer that the PDP does not
// keep, such as that the person would rather not say, reaches only a call that waits in the same process; elsewhere the
// wait lasts as long as the client wants, and StateLife at the most.

// sealedQuestion is what the id of a request holds by which a person is asked. It is bound to the session: what another client
// answers by it is an answer to nothing. The tenant is the principal's, who is the same as long as the session is.
type sealedQuestion struct {
	Approval string `json:"a"`
	// Page is set if the person was sent to a page. Whether it was opened says nothing of what they think of the call.
	Page bool `json:"p,omitzero"`
}

// openQuestion waits for what a client answers to such a request.
type openQuestion struct {
	answers chan formAnswer
	over    chan struct{} // closed when nobody waits any longer
	// answered is set as soon as an answer is there: what comes of it at the PDP may be known before its word is.
	answered atomic.Bool
}

// markAnswered notes that the client has answered.
func (q *openQuestion) markAnswered() {
	if q != nil {
		q.answered.Store(true)
	}
}

// deliver hands the client's answer to the waiting call. It is not ok if the call waits no longer.
func (q *openQuestion) deliver(ctx context.Context, w formAnswer) (ok bool) {
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

// register has a request of ours wait for answers of the client, until stop is called.
func (s *Conversation) register(id rpc.ID) (q *openQuestion, stop func()) {
	q = &openQuestion{answers: make(chan formAnswer), over: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions[id] = q
	return q, sync.OnceFunc(func() {
		close(q.over)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.questions, id)
	})
}

// openQuestion is who waits for answers to a request of that id, nil if nobody does in this process.
func (s *Conversation) openQuestion(id rpc.ID) *openQuestion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.questions[id]
}

// question is what a person is asked on the stream of a call.
type question struct {
	id     string
	sealed sealedQuestion
	open   *openQuestion
	stop   func()
	// received is set if a word of the client was heard, and taken if the PDP has that answer.
	received, accepted bool
}

// answers are what the client answers. Nothing comes if nobody is asked.
func (q *question) answers() <-chan formAnswer {
	if q == nil {
		return nil
	}
	return q.open.answers
}

// askLegacy shows the client's person a form or a page.
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
	q.open, q.stop = s.register(shown.ID)
	a.question, a.patience = q, StateLife
	a.effect.gone = a.Reply.Interim(*shown) != nil
}

// receive takes what the client has answered. Whoever else must decide has as long from then on as in every other way.
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

// close has nobody answer any longer, and the client take away what it still shows, if people are not waited for any more.
func (q *question) close(ctx context.Context, a *Approval) {
	if q == nil {
		return
	}
	q.stop()
	if !a.effect.continues() || a.pending() || ctx.Err() != nil {
		return
	}
	m := rpc.Message{Method: "notifications/cancelled", Params: rpc.Object{}.With("requestId", rpc.String(q.id)).With("reason", rpc.String("it is decided")).Value()}
	switch answered := q.open.answered.Load(); {
	case answered && !q.sealed.Page:
		return
	case answered:
		m = rpc.Message{Method: "notifications/elicitation/complete", Params: rpc.Object{}.With("elicitationId", rpc.String(q.id)).Value()}
	}
	_ = a.Reply.Interim(m)
}

// Question is what a person was asked by a request of that id, in this session.
func (g *People) Question(s *Conversation, id rpc.ID) (q sealedQuestion, ours bool) {
	text, ok := id.Unquoted()
	if !ok {
		return q, false
	}
	q, _, ours = seal.OpenJSON[sealedQuestion](g.o.Ring, seal.Approval, []byte(s.ID), text)
	return q, ours
}

// SubmitAnswer brings the PDP what a client has answered for its person, and tells it to whoever waits for it in this process. It is
// accepted whatever the PDP thinks of it, which the response to the call says. If it has reached nobody, it is to be sent again
// after a while: whatever was taken of it is taken once.
func (g *People) SubmitAnswer(ctx context.Context, s *Conversation, q sealedQuestion, who *identity.Principal, m rpc.Message) (status int, after time.Duration) {
	waiter := s.openQuestion(m.ID)
	waiter.markAnswered()
	release, after, ok := g.o.Rates.Admit(who.Key, "")
	if !ok {
		waiter.deliver(ctx, formAnswer{})
		return http.StatusTooManyRequests, after
	}
	defer release()
	ctx, leave, ok := g.doors.Enter(context.WithoutCancel(ctx)) // what a person has said does not depend on whether the client stays
	if !ok {
		return http.StatusServiceUnavailable, time.Second
	}
	defer leave()
	w := q.read(m)
	if !q.Page && !g.decides() { // it was shown by a gateway that shows forms
		w.answer = Cancels()
	}
	if !q.Page {
		if w.err = ask.ErrAway; g.o.Asker.PDP(who) != nil { // it has been there when people were asked
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

// read is what a response says. A client that cannot ask anybody, or was not let open a page, has not asked.
func (q sealedQuestion) read(m rpc.Message) (w formAnswer) {
	w.answer, _ = rpc.ParseObject(m.Result) // of what is no object the PDP says that it is no answer
	if m.Error != nil || q.Page && w.answer.GetString("action") != "accept" {
		w.answer = Cancels()
	}
	return w
}

// Cancels is the answer that nobody has answered.
func Cancels() rpc.Object { return rpc.Object{}.With("action", rpc.String("cancel")) }
