package gate

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
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
func (x exchange) inputRequired(came relayed) (*inputs, *Answer) {
	result, err := came.ResultObject()
	if err != nil || result.GetString("resultType") != "input_required" {
		return nil, nil
	}
	if result.Get("requestState") == nil && result.Get("inputRequests") == nil {
		return nil, ambiguous("the server asks for input, and for none")
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
	if err != nil || o.Len() > mostInputs {
		return nil, ambiguous("what the server asks for cannot be read")
	}
	for key, v := range o.Members {
		r, err := rpc.ParseObject(v)
		if err != nil {
			return nil, ambiguous("what the server asks for cannot be read")
		}
		shown, no := shown(x.link.server, rpc.Message{Method: r.GetString("method"), Params: r.Get("params")}, x.client.capabilities)
		if no != nil {
			return nil, x.unasked(r.GetString("method"), no)
		}
		if x.g.ours(x.binding(), key) {
			return nil, ambiguous("the server asks by a name that is ours")
		}
		in.requests = append(in.requests, input{key, shown})
	}
	return in, nil
}

// mostInputs is how many things a server may want to know at once.
const mostInputs = 16

// allow reports whether the operator lets a request of the server through.
func (r Relays) allow(method string) bool {
	switch method {
	case era.Elicit:
		return r.Elicitation
	case era.Sample:
		return r.Sampling
	case era.Roots:
		return r.Roots
	}
	return false
}

// any reports whether the server may ask anything.
func (r Relays) any() bool { return r.Elicitation || r.Sampling || r.Roots }

// shown is a request of a server as its client is shown it, or why the client is not to see it: because the operator does not
// let it through, because the client cannot answer it, or because it asks a person for what no server behind a gateway is to be
// told.
func shown(s *Server, m rpc.Message, capabilities jsontext.Value) (shown rpc.Message, no *unasked) {
	if no := s.refuses(m.Method); no != nil {
		return shown, no
	}
	if !era.Takes(capabilities, m) {
		return shown, &unasked{why: "the client does not take this request"}
	}
	params, err := m.ParamsObject()
	if err != nil && m.Params != nil {
		return shown, &unasked{why: "the params of the request cannot be read"}
	}
	if meta, err := rpc.ParseObject(params.Get("_meta")); err == nil { // ours are not theirs to write, and tokens are of one hop
		params = withMeta(params, meta.Without(func(name string) bool {
			return strings.HasPrefix(name, ownMeta) || name == "progressToken" || isOneOf(approvalMeta, name)
		}))
	}
	if m.Method == era.Elicit {
		if params, no = s.elicitation(params); no != nil {
			return shown, no
		}
	}
	shown = rpc.Message{Method: m.Method}
	if params.Len() > 0 {
		shown.Params = params.Value()
	}
	return shown, nil
}

// ownMeta begins the members of _meta that are the gateway's.
const ownMeta = era.Own

// approvalMeta are members of _meta by which clients know a form that asks for an approval. In the form of a server they
// would have it pass for one of the gateway's.
var approvalMeta = []string{"elicitationType", "originalRequest", "timeout", "priority"}

// isOneOf reports whether a name is one of some, to clients that do not tell upper from lower case.
func isOneOf(all []string, name string) bool {
	return slices.ContainsFunc(all, func(one string) bool { return strings.EqualFold(one, name) })
}

// pages is an error that has a person open pages, as the client is shown it.
func (x exchange) pages(v jsontext.Value) (jsontext.Value, *Answer) {
	var no *unasked
	pages, ok := era.ShowPages(v, func(m rpc.Message) (rpc.Message, bool) {
		if m, no = shown(x.link.server, m, x.client.capabilities); no != nil {
			return m, false
		}
		id, err := x.g.o.Ring.Seal(seal.RequestID, x.binding(), nil)
		return era.Asked(m, era.Legacy, id), err == nil
	})
	switch {
	case no != nil:
		return nil, x.unasked(era.Elicit, no)
	case !ok || x.client.era == era.Modern:
		return nil, ambiguous("the server has a person open a page, and does not say which")
	}
	return pages, nil
}

// stateLife is for how long a client may take to bring answers.
const stateLife = 15 * time.Minute

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
	parts := []string{x.who.Key, x.link.server.Name, x.request.Method, x.params.GetString("name"), x.params.GetString("uri")}
	if x.fulfils != nil {
		parts = append(parts, x.fulfils.id)
	}
	for _, part := range parts {
		sum.Write([]byte(base64.RawURLEncoding.EncodeToString([]byte(part)) + "."))
	}
	sum.Write(canonical(x.params))
	return sum.Sum(nil)
}

// canonical are the arguments of a request in a form that is the same for all that mean the same.
func canonical(params rpc.Object) []byte {
	arguments, err := evaluation.ParseWithNulls(argumentsOf(params), evaluation.DefaultLimits())
	if canonical, ok := arguments.Value().AppendCanonical(nil); err == nil && ok {
		return canonical
	}
	return argumentsOf(params)
}

// argumentsOf are the arguments of a request.
func argumentsOf(params rpc.Object) jsontext.Value {
	if v := params.Get("arguments"); v != nil {
		return v
	}
	return jsontext.Value(`{}`)
}

// passOn is the response that asks a client of the modern era for what the server asks for. The state is sealed: it is
// good for this request of this principal alone. The keys are the server's, as clients expect them, and none of ours: ours
// are sealed, so that no answer to a server passes for an answer to the gateway.
func (x exchange) passOn(in inputs) *Answer {
	result := in.result
	if len(in.requests) > 0 {
		requests := rpc.Collect(func(yield func(string, jsontext.Value) bool) {
			for _, i := range in.requests {
				if !yield(i.key, inputRequest(era.Asked(i.request, era.Modern, ""))) {
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
			return unsealed(err)
		}
		result = result.With("requestState", rpc.String(state))
	}
	return answered(rpc.Answer(rpc.ID{}, result.Value()))
}

// sealState seals a state with what the request goes on by.
func (x exchange) sealState(s sealedState) (string, error) {
	s.Continues = goesOn(x.permit).Continues
	return seal.SealJSON(x.g.o.Ring, seal.RequestState, x.binding(), s, x.g.o.Now().Add(stateLife))
}

func inputRequest(m rpc.Message) jsontext.Value {
	params := m.Params
	if params == nil { // there are clients that read them, whatever the method
		params = jsontext.Value(`{}`)
	}
	return rpc.Object{}.With("method", rpc.String(m.Method)).With("params", params).Value()
}

// brought is what a client brings with a request that it sends again.
type brought struct {
	// answers are what it answers, as far as somebody may have asked.
	answers rpc.Object
	// server is set if it brings something for the server, and state is what was sealed for that.
	server bool
	state  sealedState
	// people is set if it was told that people are asked.
	people *sealedApproval
}

// bring opens what a client brings, before anybody is asked anything: a state that is none of this request's, or of somebody
// else, is refused, and takes nothing from whose it is.
func bring(x exchange) (*brought, *Answer) {
	answers, state := x.params.Get("inputResponses"), x.params.Get("requestState")
	if x.client.era != era.Modern || x.link == nil || answers == nil && state == nil {
		return nil, nil
	}
	b, err := &brought{}, error(nil)
	if b.answers, err = rpc.ParseObject(answers); answers != nil && err != nil || b.answers.Len() > 4*mostInputs {
		return b, invalid("inputResponses is not an object, or too large")
	}
	if state != nil {
		text, binding := x.params.GetString("requestState"), x.binding()
		if people, _, ok := seal.OpenJSON[sealedApproval](x.g.o.Ring, seal.Approval, binding, text); ok {
			b.people = &people
			return b, nil
		}
		var ok bool
		if b.state, _, ok = seal.OpenJSON[sealedState](x.g.o.Ring, seal.RequestState, binding, text); !ok {
			return b, invalid("requestState is not of this request, or it has ended; send the request without it")
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
func (x exchange) resumed() (params rpc.Object, h *held, refused *Answer) {
	params = x.params.Without(func(name string) bool { return name == "inputResponses" || name == "requestState" })
	if !x.brought.forServer() {
		return params, nil, nil
	}
	state, answers := x.brought.state, x.brought.answers
	if state.Held != "" {
		if h = x.g.held.take(state.Held, x.who.Key, answers); h == nil {
			return params, nil, invalid("the request that this continues is no more; send it without requestState")
		}
	}
	if state.Theirs != nil {
		params = params.With("requestState", state.Theirs)
	}
	if x.params.Get("inputResponses") == nil || !x.link.server.Asks.any() { // who may ask nothing is answered nothing
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
func (g *Gateway) ours(binding []byte, key string) bool {
	_, relayed := g.o.Ring.Open(seal.RequestID, binding, key)
	_, approving := g.o.Ring.Open(seal.Approval, binding, key)
	return relayed || approving
}

// gather asks a client of the legacy era, and gives the params with what it answers.
func (x *Call) gather(ctx context.Context, in inputs, params rpc.Object) (rpc.Object, error) {
	var answers rpc.Object
	for _, i := range in.requests {
		answer := x.session.ask(ctx, x.g, i.request, x.reply.Interim)
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
