package gate

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// A client of the legacy era is asked by a request, on the stream of its call, and answers by a message of its own. Over HTTP
// that may come to another gateway with the same keys: it finds in the id of the request all that it needs to bring the answer
// to the PDP, and whoever waits hears from the PDP what came of it. What the PDP does not keep, as that the person would rather
// not say, is heard by who waits in the same process; elsewhere the wait lasts as long as the client wants, and stateLife at
// the most.

// sealedQuestion is what the id of a request holds by which a person is asked. It is bound to the session: what another client
// answers by it is an answer to nothing. The tenant is the principal's, who is the same as long as the session is.
type sealedQuestion struct {
	Approval string `json:"a"`
	// Page is set if the person was sent to a page. Whether it was opened says nothing of what they think of the call.
	Page bool `json:"p,omitzero"`
}

// asking waits for what a client answers to such a request.
type asking struct {
	words chan word
	over  chan struct{} // closed when nobody waits any longer
}

// word is what a client has answered, and what came of bringing it to the PDP. The zero word is that it has answered
// something that could not be brought just now.
type word struct {
	answer rpc.Object
	err    error
}

// tell gives the word to whoever waits for it. It is not ok if nobody does.
func (q *asking) tell(ctx context.Context, w word) (ok bool) {
	if q == nil {
		return false
	}
	select {
	case q.words <- w:
		return true
	case <-q.over:
	case <-ctx.Done():
	}
	return false
}

// asks has a request of ours wait for answers of the client, until stop is called.
func (s *session) asks(id rpc.ID) (q *asking, stop func()) {
	q = &asking{words: make(chan word), over: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.people[id] = q
	return q, func() {
		close(q.over)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.people, id)
	}
}

// asking is who waits for answers to a request of that id, nil if nobody does in this process.
func (s *session) asking(id rpc.ID) *asking {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.people[id]
}

// askLegacy shows the client's person a form or a page, and waits until nobody needs to be waited for any longer.
func (a *approving) askLegacy(ctx context.Context, way string, shown *rpc.Message) (r reaction) {
	x, s := a.x, a.x.session
	question := sealedQuestion{Approval: a.approval, Page: way == ByURL}
	id, err := seal.SealJSON(x.g.o.Ring, seal.Approval, []byte(s.id), question, x.g.o.Now().Add(stateLife))
	if err != nil {
		return reaction{refused: unsealed(err)}
	}
	*shown = era.Asked(*shown, era.Legacy, id)
	shown.ID = rpc.StringID(id)
	q, stop := s.asks(shown.ID)
	defer stop()
	if x.reply.Interim(*shown) != nil {
		a.left(ctx)
		return reaction{over: true}
	}
	enough := time.NewTimer(stateLife)
	defer enough.Stop()
	tick := time.NewTicker(tellsEach)
	defer tick.Stop()
	for heard, taken := false, false; ; {
		select {
		case w := <-q.words:
			if taken { // a request has one answer: of two that contradict each other the PDP has the first
				continue
			}
			if r = a.reacted(ctx, w.answer, w.err); !r.waits() {
				return r
			}
			taken = w.err == nil && w.answer.Len() > 0
			if !heard { // whoever else must decide has as long as in every other way
				heard = true
				enough.Reset(x.g.o.Approvals.Wait)
			}
		case <-a.follower.Decided():
			a.unask(id, question, heard)
			return r
		case <-enough.C:
			return r
		case <-x.g.drain.ctx.Done(): // what is shown can be answered at another gateway
			return r
		case <-ctx.Done():
			return r
		case <-tick.C:
			a.tell()
		}
	}
}

// unask has the client take away what it still shows, because people are not waited for any longer.
func (a *approving) unask(id string, q sealedQuestion, heard bool) {
	m := rpc.Message{Method: "notifications/cancelled", Params: rpc.Object{}.With("requestId", rpc.String(id)).With("reason", rpc.String("it is decided")).Value()}
	switch {
	case heard && !q.Page:
		return
	case heard:
		m = rpc.Message{Method: "notifications/elicitation/complete", Params: rpc.Object{}.With("elicitationId", rpc.String(id)).Value()}
	}
	_ = a.x.reply.Interim(m)
}

// takeAnswer takes what a client answers: to us, if we have asked a person, and else to a server.
func (g *Gateway) takeAnswer(w http.ResponseWriter, r *http.Request, s *session, in *incoming) {
	q, ours := g.question(s, in.message.ID)
	if !ours {
		if !s.deliver(in.message) {
			g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.InvalidRequest, "nothing waits for this answer")
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	switch status, after := g.bring(r.Context(), s, q, in); status {
	case http.StatusTooManyRequests:
		g.tooMany(w, after)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.FormatInt(seconds(after), 10))
		g.refuse(w, status, rpc.ID{}, rpc.InternalError, "the PDP did not take the answer; send it again")
	default:
		w.WriteHeader(status)
	}
}

// question is what a person was asked by a request of that id, in this session.
func (g *Gateway) question(s *session, id rpc.ID) (q sealedQuestion, ours bool) {
	text, ok := id.Unquoted()
	if !ok {
		return q, false
	}
	q, _, ours = seal.OpenJSON[sealedQuestion](g.o.Ring, seal.Approval, []byte(s.id), text)
	return q, ours
}

// bring brings the PDP what a client has answered for its person, and tells it to whoever waits for it in this process. It is
// accepted whatever the PDP thinks of it, which the response to the call says. If it has reached nobody, it is to be sent again
// after a while: whatever was taken of it is taken once.
func (g *Gateway) bring(ctx context.Context, s *session, q sealedQuestion, in *incoming) (status int, after time.Duration) {
	waiter := s.asking(in.message.ID)
	release, after, ok := g.o.Rates.Admit(in.who.Key, "")
	if !ok {
		waiter.tell(ctx, word{})
		return http.StatusTooManyRequests, after
	}
	defer release()
	ctx, leave, ok := g.enter(context.WithoutCancel(ctx)) // what a person has said does not depend on whether the client stays
	if !ok {
		return http.StatusServiceUnavailable, time.Second
	}
	defer leave()
	w := q.read(in.message)
	if !q.Page {
		if w.err = errNoPDP; g.o.Asker.PDP(in.who) != nil { // it has been there when people were asked
			w.err = respond(ctx, g.o.Asker.PDP(in.who), in.who, q.Approval, w.answer)
		}
	}
	g.o.Logger.Info("the client of a person who was asked has answered", "approval", q.Approval, "principal", in.who.Key, "taken", w.err == nil)
	if waiter.tell(ctx, w) {
		return http.StatusAccepted, 0
	}
	var e *authzenclient.Error
	if errors.As(w.err, &e) && e.Kind != authzenclient.Refused {
		return http.StatusServiceUnavailable, e.RetryAfter
	}
	return http.StatusAccepted, 0
}

// read is what a response says. A client that cannot ask anybody, or was not let open a page, has not asked.
func (q sealedQuestion) read(m rpc.Message) (w word) {
	w.answer, _ = rpc.ParseObject(m.Result) // of what is no object the PDP says that it is no answer
	if m.Error != nil || q.Page && w.answer.GetString("action") != "accept" {
		w.answer = rpc.Object{}.With("action", rpc.String("cancel"))
	}
	return w
}
