package flow

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// A server of the legacy era asks while its answer is under way, and a client of the modern one answers by a new request.
// Between the two the answer is held, in this process alone: a gateway beside this one does not have it.

// held is an answer of a server that waits.
type held struct {
	principal string
	server    string
	relay     *relay
	asked     rpc.ID         // the server's
	method    string         // of what the server asks
	key       string         // by which the client answers
	asks      jsontext.Value // the result that asks the client
	until     time.Time
}

// answer is what a client brings for it, nil if that is none.
func (h *held) answer(answers rpc.Object) jsontext.Value {
	if v := answers.Get(h.key); v.Kind() == '{' {
		return v
	}
	return nil
}

// holding are all that wait.
type holding struct {
	mu  sync.Mutex
	all map[string]*held
}

// mostHeld is how many answers of one server may wait, in all and for one principal.
const (
	mostHeld     = 1000
	mostHeldEach = 8
)

// put keeps an answer by an id. It is not ok if too many wait.
func (h *holding) put(id string, one *held, now time.Time) (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, each := 0, 0
	for id, other := range h.all {
		switch {
		case now.After(other.until):
			delete(h.all, id)
			other.relay.close()
		case other.server != one.server:
		case other.principal == one.principal:
			each++
			all++
		default:
			all++
		}
	}
	if all >= mostHeld || each >= mostHeldEach {
		return false
	}
	if h.all == nil {
		h.all = map[string]*held{}
	}
	h.all[id] = one
	return true
}

// take is what waits by that id. It is taken once, by who brings an answer: for others it goes on waiting.
func (h *holding) take(id, principal string, answers rpc.Object) *held {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.all[id]
	if one == nil || one.principal != principal {
		return nil
	}
	if one.answer(answers) != nil {
		delete(h.all, id)
	}
	return one
}

// end gives up what waits, or what waits for longer than until now.
func (h *holding) end(old func(*held) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, one := range h.all {
		if old(one) {
			delete(h.all, id)
			one.relay.close()
		}
	}
}

// hold is the response that asks the client what the server has asked. The server's answer goes on when the client brings
// it. It is nil if that cannot be.
func (r *relay) hold(shown rpc.Message, asked rpc.ID) *rpc.Message {
	x := r.exchange
	result, err := x.wait(r, shown, asked)
	if err != nil {
		x.g.o.Logger.Warn("a client cannot be asked", "server", x.link.Server.Name, "why", err)
		x.link.NotPassed(context.Background(), r.session, rpc.Message{ID: asked, Method: shown.Method}, era.Modern, &link.Unasked{Why: "the client cannot be asked now"})
		return nil
	}
	waits := rpc.Answer(rpc.ID{}, result)
	return &waits
}

var errTooMany = errors.New("too many answers wait for their clients")

// wait holds an answer, and gives the result that asks for what it waits for.
func (x exchange) wait(r *relay, shown rpc.Message, asked rpc.ID) (jsontext.Value, error) {
	key, err := x.g.o.Ring.Seal(seal.RequestID, x.binding(), asked.Text())
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	state, err := x.sealState(sealedState{Held: id})
	if err != nil {
		return nil, err
	}
	requests := rpc.Object{}.With(key, people.InputRequest(era.Asked(shown, era.Modern, "")))
	asks := rpc.Object{}.With("resultType", rpc.String("input_required")).
		With("inputRequests", requests.Value()).With("requestState", rpc.String(state)).Value()
	now := x.g.o.Now()
	if !x.g.held.put(id, &held{principal: x.Who.Key, server: x.link.Server.Name, relay: r, asked: asked, method: shown.Method, key: key, asks: asks, until: now.Add(people.StateLife)}, now) {
		return nil, errTooMany
	}
	return asks, nil
}

// goOn gives the server the answer that it waits for, and relays what comes then. A client that brings none is asked again, if
// its approval has a round left.
func (x exchange) goOn(ctx context.Context, h *held, params rpc.Object) (relayed, error) {
	given := h.answer(params.GetObject("inputResponses"))
	if given == nil {
		if refused := x.noRound(); refused != nil {
			h.relay.cancels(ctx, rpc.Message{ID: h.asked, Method: h.method})
			x.g.held.end(func(one *held) bool { return one == h })
			return relayed{permit: x.permit}, refused
		}
		again := relayed{rpc.Answer(rpc.ID{}, h.asks), x.permit, true}
		if goesOn(x.permit).Continues == nil {
			return again, nil
		}
		state, err := x.sealState(sealedState{Held: x.brought.state.Held}) // one round of the approval is over with each time
		if err != nil {
			return again, answer.Internal(err)
		}
		asks, err := rpc.ParseObject(h.asks)
		again.Result = asks.With("requestState", rpc.String(state)).Value()
		return again, err
	}
	h.relay.exchange, h.relay.token.theirs = x, x.progressToken()
	if err := h.relay.session.Notify(ctx, rpc.Answer(h.asked, given)); err != nil {
		h.relay.close()
		return relayed{permit: x.permit}, err
	}
	defer context.AfterFunc(ctx, h.relay.cancel)()
	return h.relay.run(ctx)
}
