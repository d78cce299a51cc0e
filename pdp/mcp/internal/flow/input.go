package flow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/seal"
)

// A server may want to know something of its client before it answers: of the person, of the client's model, of its
// directories. In the legacy era it sends a request; in the modern era it answers that it needs input, and the client
// sends its request again with the answers. Both are shown to clients of both eras, as far as the operator lets them.

// inputs is what a server of the modern era wants to know before it answers.
type inputs struct {
	result   rpc.Object
	requests []input
}

type input struct {
	key     string // the server's
	request rpc.Message
}

// inputRequired is what the server asks for, nil if the response is none that asks.
func (x exchange) inputRequired(came relayed) (*inputs, *answer.Answer) {
	result, err := came.ResultObject()
	if err != nil || result.GetString("resultType") != "input_required" {
		return nil, nil
	}
	if result.Get("requestState") == nil && result.Get("inputRequests") == nil {
		return nil, answer.Ambiguous("the server asks for input, and for none")
	}
	in := &inputs{result: result}
	if came.waits { // it is our own, and shown already
		return in, nil
	}
	requests := result.Get("inputRequests")
	if requests == nil {
		return in, nil
	}
	o, err := rpc.ParseObject(requests)
	if err != nil || o.Len() > link.MostInputs {
		return nil, answer.Ambiguous("what the server asks for cannot be read")
	}
	for key, v := range o.Members {
		r, err := rpc.ParseObject(v)
		if err != nil {
			return nil, answer.Ambiguous("what the server asks for cannot be read")
		}
		shown, no := link.Shown(x.link.Server, rpc.Message{Method: r.GetString("method"), Params: r.Get("params")}, x.Client.Capabilities)
		if no != nil {
			return nil, x.unasked(r.GetString("method"), no)
		}
		if x.g.ours(x.binding(), key) {
			return nil, answer.Ambiguous("the server asks by a name that is ours")
		}
		in.requests = append(in.requests, input{key, shown})
	}
	return in, nil
}

// pages is an error that has a person open pages, as the client is shown it.
func (x exchange) pages(v jsontext.Value) (jsontext.Value, *answer.Answer) {
	var no *link.Unasked
	pages, ok := era.ShowPages(v, func(m rpc.Message) (rpc.Message, bool) {
		if m, no = link.Shown(x.link.Server, m, x.Client.Capabilities); no != nil {
			return m, false
		}
		id, err := x.g.o.Ring.Seal(seal.RequestID, x.binding(), nil)
		return era.Asked(m, era.Legacy, id), err == nil
	})
	switch {
	case no != nil:
		return nil, x.unasked(era.Elicit, no)
	case !ok || x.Client.Era == era.Modern:
		return nil, answer.Ambiguous("the server has a person open a page, and does not say which")
	}
	return pages, nil
}

// sealedState is what the requestState of a client holds.
type sealedState struct {
	// Theirs is the server's own, nil if it gave none.
	Theirs jsontext.Value `json:"theirs,omitzero"`
	// Held names a request of this process that waits.
	Held string `json:"held,omitzero"`
	// Continues is set if the permit rests on an approval, whose use is spent.
	Continues *authzenclient.Continuation `json:"continues,omitzero"`
}

// binding is what states and keys of this request are bound to: they are good for no other request, of no other principal.
func (x exchange) binding() []byte {
	sum := sha256.New()
	parts := []string{x.Who.Key, x.operation().Server, x.Request.Method, x.Params.GetString("name"), x.Params.GetString("uri")}
	if x.fulfils != nil {
		parts = append(parts, x.fulfils.id)
	}
	for _, part := range parts {
		sum.Write([]byte(base64.RawURLEncoding.EncodeToString([]byte(part)) + "."))
	}
	sum.Write(ask.Canonical(x.Params))
	return sum.Sum(nil)
}

// passOn is the response that asks a client of the modern era for what the server asks for. The state is sealed: it is
// good for this request of this principal alone. The keys are the server's, as clients expect them, and none of ours: ours
// are sealed, so that no answer to a server passes for an answer to the gateway.
func (x exchange) passOn(in inputs) *answer.Answer {
	result := in.result
	if len(in.requests) > 0 {
		requests := rpc.Collect(func(yield func(string, jsontext.Value) bool) {
			for _, i := range in.requests {
				if !yield(i.key, people.InputRequest(era.Asked(i.request, era.Modern, ""))) {
					return
				}
			}
		})
		result = result.With("inputRequests", requests.Value())
	}
	theirs, continues := result.Get("requestState"), goesOn(x.permit).Continues
	if theirs != nil || continues != nil {
		state, err := x.sealState(sealedState{Theirs: theirs})
		if err != nil {
			return answer.Internal(err)
		}
		result = result.With("requestState", rpc.String(state))
	}
	return answer.Of(rpc.Answer(rpc.ID{}, result.Value()))
}

// sealState seals a state with what the request goes on by.
func (x exchange) sealState(s sealedState) (string, error) {
	s.Continues = goesOn(x.permit).Continues
	return seal.SealJSON(x.g.o.Ring, seal.RequestState, x.binding(), s, x.g.o.Now().Add(people.StateLife))
}

// brought is what a client brings with a request that it sends again.
type brought struct {
	// answers are what it answers, as far as somebody may have asked.
	answers rpc.Object
	// server is set if it brings something for the server, and state is what was sealed for that.
	server bool
	state  sealedState
	// people is set if it was told that people are asked.
	people *people.SealedApproval
}

// bring opens the state and the answers that a client sends with its request, before the PDP or a server is asked. It refuses a
// state of another request or principal, which stays good for its owner.
func bring(x exchange) (*brought, *answer.Answer) {
	answers, state := x.Params.Get("inputResponses"), x.Params.Get("requestState")
	if x.Client.Era != era.Modern || x.link == nil || answers == nil && state == nil {
		return nil, nil
	}
	b, err := &brought{}, error(nil)
	if b.answers, err = rpc.ParseObject(answers); answers != nil && err != nil || b.answers.Len() > 4*link.MostInputs {
		return b, answer.Invalid("inputResponses is not an object, or too large")
	}
	if state != nil {
		text, binding := x.Params.GetString("requestState"), x.binding()
		if people, _, ok := seal.OpenJSON[people.SealedApproval](x.g.o.Ring, seal.Approval, binding, text); ok {
			b.people = &people
			return b, nil
		}
		var ok bool
		if b.state, _, ok = seal.OpenJSON[sealedState](x.g.o.Ring, seal.RequestState, binding, text); !ok {
			return b, answer.Invalid("requestState is not of this request, or it has ended; send the request without it")
		}
	}
	b.server = true
	return b, nil
}

// answered is what of people's word the state of a server's request brings.
func (b *brought) answered() ask.Answered {
	if b == nil {
		return ask.Answered{}
	}
	return ask.Answered{Continues: b.state.Continues}
}

// forServer reports whether something is brought for the server.
func (b *brought) forServer() bool { return b != nil && b.server }

// goesOn is what a request brings that is decided about again, because its server asks for input.
func goesOn(p *ask.Permit) (a ask.Answered) {
	if k, ok := p.Continuation(); ok {
		a.Continues = &k
	}
	return a
}

// resumed are the params with what the client brings for the server in the server's own terms. Only who was asked can
// bring something.
func (x exchange) resumed() (params rpc.Object, h *held, refused *answer.Answer) {
	params = x.Params.Without(func(name string) bool { return name == "inputResponses" || name == "requestState" })
	if !x.brought.forServer() {
		return params, nil, nil
	}
	state, answers := x.brought.state, x.brought.answers
	if state.Held != "" {
		if h = x.g.held.take(state.Held, x.Who.Key, answers); h == nil {
			return params, nil, answer.Invalid("the request that this continues is no more; send it without requestState")
		}
	}
	if state.Theirs != nil {
		params = params.With("requestState", state.Theirs)
	}
	if x.Params.Get("inputResponses") == nil || !x.link.Server.Asks.Any() { // who may ask nothing is answered nothing
		return params, h, nil
	}
	binding := x.binding()
	theirs := answers.Map(func(key string, v jsontext.Value) jsontext.Value {
		if x.g.ours(binding, key) && h == nil {
			return nil
		}
		return x.g.answered(v)
	})
	return params.With("inputResponses", theirs.Value()), h, nil
}

// ours reports whether a name by which a client answers was made by this gateway, or by one with the same keys.
func (g *Flow) ours(binding []byte, key string) bool {
	_, relayed := g.o.Ring.Open(seal.RequestID, binding, key)
	_, approving := g.o.Ring.Open(seal.Approval, binding, key)
	return relayed || approving
}

// asks asks a client of the legacy era, and gives its answer as a server gets it.
func (x *Call) asks(ctx context.Context, shown rpc.Message) rpc.Message {
	m := x.Session.Ask(ctx, shown, x.Reply.Interim)
	m.Result = x.g.answered(m.Result)
	return m
}

// gather asks a client of the legacy era, and gives the params with what it answers.
func (x *Call) gather(ctx context.Context, in inputs, params rpc.Object) (rpc.Object, error) {
	var answers rpc.Object
	for _, i := range in.requests {
		answer := x.asks(ctx, i.request)
		if answer.Result == nil {
			return params, errors.New("the client did not answer what the server asks for")
		}
		answers = answers.With(i.key, answer.Result)
	}
	params = params.Without(func(name string) bool { return name == "inputResponses" || name == "requestState" })
	if answers.Len() > 0 {
		params = params.With("inputResponses", answers.Value())
	}
	if state := in.result.Get("requestState"); state != nil {
		params = params.With("requestState", state)
	}
	return params, nil
}

// unasked refuses the request of a client whose server answers with a request that does not reach the client.
func (x Target) unasked(method string, no *link.Unasked) *answer.Answer {
	x.link.NoteUnasked(method, no)
	r := ask.Refusal{Kind: answer.RequestRefused, Code: rpc.InternalError, Message: "the server asks for something first: " + no.Why, Why: no.Why}
	var data rpc.Object
	if x.Client.Era == era.Modern {
		r.Code, r.Status, data = era.MissingCapability, answer.StatusOf(era.MissingCapability), link.Missing(method)
	}
	r.Data = data.With("type", rpc.String(string(answer.RequestRefused))).Value()
	return answer.Refuse(&r)
}

// noRound refuses a call whose server asks for something first, if people have approved the call and nothing that comes after
// it. They are not asked again: what the server asks does not reach the client.
func (x exchange) noRound() *answer.Answer {
	obligation, is := x.permit.LastRound()
	if !is {
		return nil
	}
	why := "the approval of this call has no follow-up question left (rounds"
	if obligation != "" {
		why += " of the obligation " + strconv.Quote(obligation)
	}
	why += ")"
	return answer.New(answer.RequestRefused, rpc.InternalError, "the server asks for something first, and "+why+", so the call has ended; the server may have begun it", why)
}

// cancels answers a request of the server's in the place of a client: the person gives no answer.
func (r *relay) cancels(ctx context.Context, m rpc.Message) {
	answer := rpc.Failure(m.ID, rpc.Error{Code: rpc.InternalError, Message: "the call has ended: its approval has no follow-up question left"})
	if m.Method == era.Elicit {
		answer = rpc.Answer(m.ID, people.Cancels().Value())
	}
	if err := r.session.Notify(ctx, answer); err != nil {
		r.exchange.g.o.Logger.Warn("the answer to a request of the server did not reach it", "server", r.exchange.link.Server.Name, "why", err)
	}
}

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
