package authzenclient

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// AskOption adds to one question.
type AskOption func(*shown)

// shown is what a question shows beside the request.
type shown struct{ *wallet }

// wallet is a capability with the key of its holder, or with a proof that its holder made elsewhere.
type wallet struct {
	text   string
	token  capability.Token
	holder *capability.Holder
	proof  string // that is shown, if there is no holder
	// session is that of the call, "" for what the question says.
	session string
	nonce   atomic.Pointer[string] // the last that the PDP gave
	broken  string                 // why it cannot be shown
}

const capabilityMember = "capability"

// WithCapability shows a capability with a question about the call of a tool: its token, and a fresh proof by its holder,
// over the resource's id and context.arguments. The question has to hold the arguments as the tool gets them.
//
// The session of the call, if the question says it in context.capability.channel, stays there.
//
// If the PDP wants a nonce in the proof, the question is asked once more with it. Keep the option for the calls that
// follow: it remembers the nonce. It may be used by several goroutines.
//
// A question with a capability is sent again only where no connection was made: a PDP takes a proof once.
func WithCapability(token string, holder *capability.Holder) AskOption {
	w := &wallet{text: token, holder: holder}
	said, refusal := capability.ParseToken(token)
	switch {
	case refusal != nil:
		w.broken = "what is shown is no capability token"
	case holder == nil || holder.Key().Thumbprint() != said.Key.Thumbprint():
		w.broken = "the capability is bound to another key than the holder's"
	}
	w.token = said
	return func(s *shown) { s.wallet = w }
}

// ShowCapability shows a capability with a proof that its holder made elsewhere, for a PEP that a holder calls. Both are
// shown as they came, and the PDP judges them: the token may also be the id of one. A question with them is sent again only
// where no connection was made, and a nonce that the PDP wants in the proof is for the holder: see [Decision.Context].
// The session is the one that the PEP observed, "" for none.
func ShowCapability(c evaluation.CapabilityShown) AskOption {
	return func(s *shown) { s.wallet = &wallet{text: c.Token, proof: c.Proof, session: c.Session} }
}

// question asks one question. A refusal for want of a nonce is answered once, by the question with a new proof. It returns
// the request as it was asked last.
func (c *Client) question(
	ctx context.Context, request evaluation.Request, repeat repeatable, options []AskOption,
	encode func(evaluation.Request, *asking) *Error,
) (d Decision, q evaluation.Request) {
	var s shown
	for _, option := range options {
		option(&s)
	}
	a := asking{op: "evaluate", url: c.endpoint.Load().evaluation, repeat: repeat}
	if s.wallet == nil {
		return c.encoded(ctx, a, request, encode), request
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout) // of both attempts
	defer cancel()
	a.repeat = unsent
	for attempts := 0; ; attempts++ {
		q, proof, err := s.show(request, c.clock.now())
		if err != nil {
			return denied(a.op, err), request
		}
		a.secret = secrets{s.text, proof}
		if s.session != "" {
			a.secret = append(a.secret, s.session)
		}
		d = c.encoded(ctx, a, q, encode)
		if !s.hear(d) || attempts > 0 || s.holder == nil {
			return d, q
		}
	}
}

func (c *Client) encoded(
	ctx context.Context, a asking, q evaluation.Request, encode func(evaluation.Request, *asking) *Error,
) Decision {
	if err := encode(q, &a); err != nil {
		return denied(a.op, err)
	}
	a.adopts = []bool{evaluation.Adopts(q.Context)}
	return c.decide(ctx, a)
}

// show adds the capability to a request, in place of one that is there.
func (w *wallet) show(q evaluation.Request, now time.Time) (shows evaluation.Request, proof string, failure *Error) {
	switch {
	case w.broken != "":
		return q, "", notAsked(w.broken)
	case w.holder == nil:
		q, failure = w.with(q, w.proof)
		return q, w.proof, failure
	}
	arguments, given := q.Context.Lookup("arguments")
	if given && arguments.Kind() != evaluation.Map {
		return q, "", notAsked("the arguments are no object, and no proof can be about them")
	}
	claim := capability.Claim{
		Capability: w.token.ID, Audience: w.token.Audience, Tool: q.Resource.ID, Arguments: arguments.Object(), IssuedAt: now,
	}
	if nonce := w.nonce.Load(); nonce != nil {
		claim.Nonce = *nonce
	}
	proof, err := w.holder.Prove(claim)
	if err != nil {
		return q, "", &Error{Kind: NotAsked, Detail: "the call cannot be proved: " + err.Error(), Cause: err}
	}
	q, failure = w.with(q, proof)
	return q, proof, failure
}

// with is a request that shows the capability with a proof. The channel of one that is there stays.
func (w *wallet) with(q evaluation.Request, proof string) (evaluation.Request, *Error) {
	members := map[string]any{"token": w.text, "proof": proof}
	was, _ := q.Context.Lookup(capabilityMember)
	if channel, observed := was.Object().Lookup("channel"); observed {
		members["channel"] = channel
	}
	if w.session != "" {
		members["channel"] = map[string]any{"session": w.session}
	}
	member, err := evaluation.NewObject(members)
	if err != nil {
		return q, notAsked("the capability cannot be encoded")
	}
	q.Context = q.Context.With(capabilityMember, member.Value())
	return q, nil
}

// hear takes the nonce of an answer, and reports whether the answer is a refusal for want of it.
func (w *wallet) hear(d Decision) (again bool) {
	var said struct {
		Capability evaluation.CapabilityAnswer `json:"capability"`
	}
	if len(d.context) == 0 || json.Unmarshal(d.context, &said) != nil || said.Capability.Nonce == "" {
		return false
	}
	w.nonce.Store(&said.Capability.Nonce)
	return !d.allow && said.Capability.Reason == string(capability.NonceRequired)
}
