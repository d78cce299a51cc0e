package ask

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
)

// A call may show a capability, with a proof that its holder made. The gateway checks both first, so that the PDP does not hear
// of bad ones. That permits nothing: the PDP alone judges the others, marks their proofs and counts their uses.

var unknownCapability = mustKnow("/context/pdp/capability")

func (op *Operation) shows() bool { return op.Shows != evaluation.CapabilityShown{} }

// files reports whether a request for a tool is not yet fulfilled. Its capability is spent with the fulfilment alone.
func (op *Operation) files() bool { return op.Method == toolsRequest && !op.Fulfilled }

// takesCapability reports whether the PDP takes a capability with a question: one of ours about the call of a tool.
func (q question) takesCapability() bool {
	return q.source.Author == BuiltIn && len(q.requests) == 1 &&
		slices.Contains([]string{string(ToolInvoke), toolRequest}, q.requests[0].Action.Name)
}

// checkShown returns the id of the capability that an operation shows, "" if it shows none. It refuses one that is not good, and
// an operation that shows none and has to. If that is not known here, the PDP alone judges.
func (a *Asker) checkShown(ctx context.Context, w refuser, op *Operation, last question) (id string, refusal *Refusal) {
	switch {
	case !op.shows() && OfTool(op.Method) && op.Requester == nil && a.o.CapabilityRequired[op.Server]:
		return "", w.capability(&capability.Refusal{Code: capability.Missing}, op.Tool)
	case !op.shows():
		return "", nil
	case !last.takesCapability():
		return "", w.capability(&capability.Refusal{Code: capability.NotAsked}, op.Tool)
	}
	v := a.o.Verifiers[cmp.Or(op.Principal.Tenant, evaluation.DefaultTenant)]
	if v == nil {
		return CapabilityID(op.Shows.Token), nil
	}
	r := last.requests[0]
	arguments, _ := r.Context.Get("arguments")
	checked, err := v.Check(ctx, capability.Call{
		Token: op.Shows.Token, Proof: op.Shows.Proof, Holder: r.Subject.Ref(), Tool: r.Resource.ID, Arguments: arguments.Object(),
		Channel: capability.Channel{Session: op.Shows.Session},
	})
	var refused *capability.Refusal
	switch {
	case err == nil:
		return checked.Token.ID, nil
	case !errors.As(err, &refused):
		a.o.Logger.WarnContext(ctx, "a capability is checked by the PDP alone", slog.Group("", "server", op.Server), "why", err)
		return CapabilityID(op.Shows.Token), nil
	case refused.Code == capability.OnlineOnly, // it is shown by its id
		refused.Code == capability.ProofWrongAudience,                        // the PDP may know this gateway by a name of its own
		refused.Code == capability.ProofStale && op.Answered.Standing != nil: // it has waited for people
		return CapabilityID(op.Shows.Token), nil
	}
	refusal = w.capability(refused, op.Tool)
	if t, wrong := capability.ParseToken(op.Shows.Token); refused.Code == capability.BadSignature && wrong == nil && t.Issuer != v.Issuer() {
		refusal.Why += "; its issuer is not " + v.Issuer() + ": pdp.url has to be the public_url of the PDP"
	}
	return "", refusal
}

// CapabilityID is the id of a capability that is shown by its token, or by the id itself. The token is not checked.
func CapabilityID(shown string) string {
	if token, refusal := capability.ParseToken(shown); refusal == nil {
		return token.ID
	}
	return shown
}

// mayFile reports whether a request for a tool may be permitted with the capability that it shows.
func (p Plan) mayFile(ctx context.Context, w refuser) (bool, *Refusal) {
	if refusal := p.of.o.Admit(ctx, 1); refusal != nil {
		return false, refusal
	}
	r := p.questions[len(p.questions)-1].requests[0]
	r.Unknown = unknownCapability
	d := p.pdp.Evaluate(ctx, r)
	return d.Possible(), w.failure(d.Err())
}

func (op *Operation) options() []authzenclient.AskOption {
	if !op.shows() {
		return nil
	}
	return []authzenclient.AskOption{authzenclient.ShowCapability(op.Shows)}
}

// ofCapability is the refusal of a call that the PDP denies for want of a capability, nil if it does not.
func (w refuser) ofCapability(op *Operation, d authzenclient.Decision) *Refusal {
	r := &capability.Refusal{Code: capability.Missing}
	switch said := capabilityOf(d); evaluation.Reason(d.Reason()) {
	case evaluation.CapabilityRequired:
	case evaluation.CapabilityInvalid:
		r = &capability.Refusal{Code: capability.Code(said.Reason), Argument: said.Argument, Nonce: said.Nonce, Audience: said.Audience}
		if r.Code == capability.ProofInvalid { // the PDP does not say that it is one of DPoP
			_, wrong := capability.ParseProof(op.Shows.Proof, capability.Key{})
			r.Hint = wrong.Hint
		}
	default:
		return nil
	}
	if !r.Code.Known() {
		return nil
	}
	return w.capability(r, op.Tool)
}

func capabilityOf(d authzenclient.Decision) evaluation.CapabilityAnswer {
	var said struct {
		Capability evaluation.CapabilityAnswer `json:"capability"`
	}
	if len(d.Context()) == 0 || json.Unmarshal(d.Context(), &said) != nil {
		return evaluation.CapabilityAnswer{}
	}
	return said.Capability
}

// Capability is the id of the capability with which the PDP has permitted the call, "" if the call shows none.
func (p *Permit) Capability() string { return p.capability }

// Nonce is the one that the next proof of the client needs, "" if it needs none.
func (p *Permit) Nonce() string {
	if p.capability == "" { // most calls show none, and the PDP's words about them are not read
		return ""
	}
	return capabilityOf(p.last().Decision()).Nonce
}

// capability refuses a call for want of a capability that is good. The tool is nil if it is not known yet.
func (w refuser) capability(r *capability.Refusal, t *Tool) *Refusal {
	d := data{
		Reason: r.Text(), Code: r.Code, Suggestion: r.Suggestion(), NextAction: r.NextAction(), Argument: r.Argument, Nonce: r.Nonce,
	}
	if t != nil {
		d.Audience, d.Tool, d.ID = t.Server, t.Shown, t.Server+":"+t.Name
	}
	if r.Code == capability.ProofWrongAudience { // the PDP may know the gateway by other names
		d.Audience = cmp.Or(r.Audience, d.Audience)
	}
	refusal := w.refuse(Denied, capability.RPCCode, capability.RPCMessage, d, r.Error())
	refusal.Shown = r
	refusal.Words = capability.RPCMessage + ": " + r.Text() + ". " + r.Suggestion()
	if t != nil {
		refusal.Blocked = capability.BlockedReason(t.Name, t.Server)
	}
	return refusal
}

// RefuseUnasked refuses an operation about which the PDP cannot be asked.
func (a *Asker) RefuseUnasked(op Operation, err error) *Refusal {
	return a.refuser(&op).unavailable(0, err.Error())
}

// RefuseShown refuses an operation whose capability cannot be read.
func (a *Asker) RefuseShown(op Operation, r *capability.Refusal) *Refusal {
	return a.refuser(&op).capability(r, op.Tool)
}
