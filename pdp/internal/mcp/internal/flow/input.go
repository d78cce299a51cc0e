package flow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
)

// A server may ask its client for input before it answers: for input of the person, of the client's model, or about its
// directories. In the legacy era the server sends a request. In the modern era it answers that it needs input, and the client
// sends its request again with the answers. Clients of both eras get both, as far as the operator permits.

// inputs is the input that a server of the modern era asks for before it answers.
type inputs struct {
	result   rpc.Object
	requests []input
}

type input struct {
	key     string // the server's
	request rpc.Message
}

// inputRequired returns the input that the server asks for, nil if the response asks for none.
func (x exchange) inputRequired(came relayed) (*inputs, *answer.Answer) {
	result, err := came.ResultObject()
	if err != nil || result.GetString("resultType") != "input_required" {
		return nil, nil
	}
	if result.Get("requestState") == nil && result.Get("inputRequests") == nil {
		return nil, answer.Ambiguous("the server asks for input, and for none")
	}
	in := &inputs{result: result}
	if came.waits { // the gateway made this response, and has checked its question
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
			return nil, x.refuseUnasked(r.GetString("method"), no)
		}
		if x.g.isGatewayKey(x.binding(), key) {
			return nil, answer.Ambiguous("the server asks by a name that is ours")
		}
		in.requests = append(in.requests, input{key, shown})
	}
	return in, nil
}

// showPages returns an error that makes a person open pages, in the form for the client.
func (x exchange) showPages(v jsontext.Value) (jsontext.Value, *answer.Answer) {
	if x.link == nil { // the answer is of several servers, and none of them may ask in the name of all
		return nil, answer.Ambiguous("one of several servers has a person open a page")
	}
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
		return nil, x.refuseUnasked(era.Elicit, no)
	case !ok || x.Client.Era == era.Modern:
		return nil, answer.Ambiguous("the server has a person open a page, and does not say which")
	}
	return pages, nil
}

type sealedState struct {
	// Theirs is the server's own requestState, nil if the server gave none.
	Theirs jsontext.Value `json:"theirs,omitzero"`
	// Asked are the keys of the requests that the client got with this state. With it a server gets no other answers.
	Asked []string `json:"asked,omitzero"`
	// Held names a held answer of this process: no other gateway has it.
	Held string `json:"held,omitzero"`
	// Continues is set if the permit rests on an approval that is already spent.
	Continues *authzenclient.Continuation `json:"continues,omitzero"`
}

// binding binds states and keys to this request: they are valid for no other request, and for no other principal.
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

// requireInput is the response that asks a client of the modern era for the input that the server asks for. The state is
// sealed: it is valid for this request of this principal alone. The keys are the server's, as clients expect, and none is a key
// of the gateway: those are sealed, so that no answer to a server can pass for an answer to the gateway.
func (x exchange) requireInput(in inputs) *answer.Answer {
	result := in.result
	var asked []string
	if len(in.requests) > 0 {
		requests := rpc.Collect(func(yield func(string, jsontext.Value) bool) {
			for _, i := range in.requests {
				asked = append(asked, i.key)
				if !yield(i.key, people.InputRequest(era.Asked(i.request, era.Modern, ""))) {
					return
				}
			}
		})
		result = result.With("inputRequests", requests.Value())
	}
	serverState, continues := result.Get("requestState"), continuationOf(x.permit).Continues
	if serverState != nil || continues != nil {
		state, err := x.sealState(sealedState{Theirs: serverState, Asked: asked})
		if err != nil {
			return answer.Internal(err)
		}
		result = result.With("requestState", rpc.String(state))
	}
	return answer.Of(withNonce(x.permit, rpc.Answer(rpc.ID{}, result.Value())))
}

// sealState seals a state, with the approval on which the request continues.
func (x exchange) sealState(s sealedState) (string, error) {
	s.Continues = continuationOf(x.permit).Continues
	return seal.SealJSON(x.g.o.Ring, seal.RequestState, x.binding(), s, x.g.o.Now().Add(people.StateLife))
}

// followUp is the answers and the state of a request that a client sends again, zero if it brings none.
type followUp struct {
	// answers are the client's inputResponses, up to the largest number that could have been asked for.
	answers rpc.Object
	// server is set if the answers are for the server. state is then the server's sealed state.
	server bool
	state  sealedState
	// people is set if an earlier response said that people are asked.
	people *people.SealedApproval
}

// readFollowUp opens the state and the answers of a request, before the PDP or a server is asked. It refuses a state of another
// request or principal. That state stays valid for its owner.
func readFollowUp(x exchange) (b followUp, refused *answer.Answer) {
	answers, state := x.Params.Get("inputResponses"), x.Params.Get("requestState")
	if x.Client.Era != era.Modern || x.link == nil || answers == nil && state == nil {
		return b, nil
	}
	var err error
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

// continuationOf is the approval on which the PDP decides again, because the server asks for input.
func continuationOf(p *ask.Permit) (a ask.Answered) {
	if k, ok := p.Continuation(); ok {
		a.Continues = &k
	}
	return a
}

// resumedParams returns the params with the client's answers and state in the form of the server. It forwards answers to what was
// asked. Without a state that is not known: then it forwards answers to what the server may ask.
func (x exchange) resumedParams() (params rpc.Object, h *heldAnswer, refused *answer.Answer) {
	params = x.Params.Without(func(name string) bool { return name == "inputResponses" || name == "requestState" })
	if !x.followUp.server {
		return params, nil, nil
	}
	state, answers := x.followUp.state, x.followUp.answers
	if state.Held != "" {
		if h = x.g.held.take(state.Held, x.Who.Key, answers); h == nil {
			return params, nil, answer.Invalid("the request that this continues is no more; send it without requestState")
		}
	}
	if state.Theirs != nil {
		params = params.With("requestState", state.Theirs)
	}
	binding := x.binding()
	forwarded := answers.Map(func(key string, v jsontext.Value) jsontext.Value {
		switch {
		case slices.Contains(state.Asked, key):
		case len(state.Asked) > 0, x.g.isGatewayKey(binding, key), !x.link.Server.MayHave(v):
			return nil
		}
		return x.g.serverAnswer(v)
	})
	if forwarded.Len() > 0 {
		params = params.With("inputResponses", forwarded.Value())
	}
	return params, h, nil
}

// isGatewayKey reports whether a key was made by this gateway, or by another one with the same sealing keys.
func (g *Flow) isGatewayKey(binding []byte, key string) bool {
	_, relayed := g.o.Ring.Open(seal.RequestID, binding, key)
	_, approving := g.o.Ring.Open(seal.Approval, binding, key)
	return relayed || approving
}

// askClient asks a client of the legacy era, and returns its answer in the form for a server.
func (x *Call) askClient(ctx context.Context, shown rpc.Message) rpc.Message {
	m := x.Session.Ask(ctx, shown, x.Reply.Interim)
	m.Result = x.g.serverAnswer(m.Result)
	return m
}

// gather asks a client of the legacy era, and returns the params with its answers.
func (x *Call) gather(ctx context.Context, in inputs, params rpc.Object) (rpc.Object, error) {
	var answers rpc.Object
	for _, i := range in.requests {
		answer := x.askClient(ctx, i.request)
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

// refuseUnasked refuses a request whose server asks for input, if that question may not reach the client.
func (x Target) refuseUnasked(method string, no *link.Unasked) *answer.Answer {
	x.link.NoteUnasked(method, no)
	r := ask.Refusal{Kind: answer.RequestRefused, Code: rpc.InternalError, Message: "the server asks for something first: " + no.Why, Why: no.Why}
	var data rpc.Object
	if x.Client.Era == era.Modern {
		r.Code, r.Status, data = era.MissingCapability, answer.StatusOf(era.MissingCapability), link.Missing(method)
	}
	r.Data = data.With("type", rpc.String(string(answer.RequestRefused))).Value()
	return answer.Refuse(&r)
}

// noRoundLeft refuses a call whose server asks for input, if people have approved the call but no further round. People are not
// asked again, because the server's question does not reach the client.
func (x exchange) noRoundLeft() *answer.Answer {
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

// cancelRequest answers a request of the server in place of a client: the person gives no answer.
func (r *relay) cancelRequest(ctx context.Context, m rpc.Message) {
	answer := rpc.Failure(m.ID, rpc.Error{Code: rpc.InternalError, Message: "the call has ended: its approval has no follow-up question left"})
	if m.Method == era.Elicit {
		answer = rpc.Answer(m.ID, people.Cancels().Value())
	}
	if err := r.session.Notify(ctx, answer); err != nil {
		r.exchange.g.o.Logger.Warn("the answer to a request of the server did not reach it", slog.Group("", "server", r.exchange.link.Server.Name), "why", err)
	}
}

// A server of the legacy era asks before its answer ends, and a client of the modern era answers with a new request. Between
// the two the gateway holds the server's answer, in this process alone: another gateway beside this one does not have it.

// heldAnswer is an answer of a server that waits for its client.
type heldAnswer struct {
	principal string // who gets it
	account   string // by whom it counts
	server    string
	relay     *relay
	asked     rpc.ID         // the server's
	method    string         // of the server's request
	key       string         // under which the client answers
	question  jsontext.Value // the result that asks the client
	until     time.Time
	forget    func() bool // keeps it from being given up when its link is closed
}

func (h *heldAnswer) answer(answers rpc.Object) jsontext.Value {
	if v := answers.Get(h.key); v.Kind() == '{' {
		return v
	}
	return nil
}

type heldAnswers struct {
	mu  sync.Mutex
	all map[string]*heldAnswer
}

// mostHeld is how many answers of one server may be held. mostHeldEach is how many of those one person may have, by all clients.
const (
	mostHeld     = 1000
	mostHeldEach = 8
)

// put holds an answer under an id. It is not ok if too many are held. Those that are over do not count, and end here: a server
// that is slow to end a session holds up the sweep of all.
func (h *heldAnswers) put(id string, one *heldAnswer, now time.Time) (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, each := 0, 0
	for id, other := range h.all {
		switch {
		case now.After(other.until):
			h.drop(id).relay.close()
		case other.server != one.server:
		case other.account == one.account:
			each++
			all++
		default:
			all++
		}
	}
	if all >= mostHeld || each >= mostHeldEach {
		return false
	}
	h.all[id] = one
	// Its link may be closed already. Nobody but the client of the link can bring the answer.
	one.forget = one.relay.link.AfterClose(func() { h.end(func(other *heldAnswer) bool { return other == one }) })
	return true
}

// drop removes a held answer and returns it. The caller holds the lock.
func (h *heldAnswers) drop(id string) *heldAnswer {
	one := h.all[id]
	one.forget()
	delete(h.all, id)
	return one
}

// take returns the held answer with that id. Only its principal gets it. It stays held until the principal brings an answer.
func (h *heldAnswers) take(id, principal string, answers rpc.Object) *heldAnswer {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.all[id]
	if one == nil || one.principal != principal {
		return nil
	}
	if one.answer(answers) != nil {
		h.drop(id)
	}
	return one
}

// end gives up the held answers that old selects.
func (h *heldAnswers) end(old func(*heldAnswer) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, one := range h.all {
		if old(one) {
			h.drop(id).relay.close()
		}
	}
}

// hold returns the response that asks the client the server's question. The server's answer goes on when the client answers. It
// is nil if the answer cannot be held.
func (r *relay) hold(shown rpc.Message, asked rpc.ID) *rpc.Message {
	x := r.exchange
	result, err := x.wait(r, shown, asked)
	if err != nil {
		x.g.o.Logger.Warn("a client cannot be asked", slog.Group("", "server", x.link.Server.Name), "why", err)
		x.link.NotPassed(context.Background(), r.session, rpc.Message{ID: asked, Method: shown.Method}, era.Modern, &link.Unasked{Why: "the client cannot be asked now"})
		return nil
	}
	waits := rpc.Answer(rpc.ID{}, result)
	return &waits
}

// wait holds an answer, and returns the result that asks the client.
func (x exchange) wait(r *relay, shown rpc.Message, asked rpc.ID) (jsontext.Value, error) {
	key, err := x.g.o.Ring.Seal(seal.RequestID, x.binding(), asked.Text())
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	state, err := x.sealState(sealedState{Held: id, Asked: []string{key}})
	if err != nil {
		return nil, err
	}
	requests := rpc.Object{}.With(key, people.InputRequest(era.Asked(shown, era.Modern, "")))
	question := rpc.Object{}.With("resultType", rpc.String("input_required")).
		With("inputRequests", requests.Value()).With("requestState", rpc.String(state)).Value()
	now := x.g.o.Now()
	if !x.g.held.put(id, &heldAnswer{
		principal: x.Who.Key, account: x.Who.Account(), server: x.link.Server.Name, relay: r, asked: asked, method: shown.Method, key: key, question: question,
		until: now.Add(people.StateLife),
	}, now) {
		return nil, errors.New("too many answers wait for their clients")
	}
	return question, nil
}

// resumeHeld sends the client's answer to the server, and relays the rest of the server's answer. A client that brings no
// answer is asked again, if its approval has a round left.
func (x exchange) resumeHeld(ctx context.Context, h *heldAnswer, params rpc.Object) (relayed, error) {
	given := h.answer(params.GetObject("inputResponses"))
	if given == nil {
		if refused := x.noRoundLeft(); refused != nil {
			h.relay.cancelRequest(ctx, rpc.Message{ID: h.asked, Method: h.method})
			x.g.held.end(func(one *heldAnswer) bool { return one == h })
			return relayed{permit: x.permit}, refused
		}
		again := relayed{rpc.Answer(rpc.ID{}, h.question), x.permit, true}
		if continuationOf(x.permit).Continues == nil {
			return again, nil
		}
		state, err := x.sealState(x.followUp.state) // each time ends one round of the approval
		if err != nil {
			return again, answer.Internal(err)
		}
		question, err := rpc.ParseObject(h.question)
		again.Result = question.With("requestState", rpc.String(state)).Value()
		return again, err
	}
	h.relay.exchange, h.relay.token.client = x, x.progressToken()
	if err := h.relay.session.Notify(ctx, rpc.Answer(h.asked, given)); err != nil {
		h.relay.close()
		return relayed{permit: x.permit}, err
	}
	defer context.AfterFunc(ctx, h.relay.cancel)()
	return h.relay.run(ctx)
}
