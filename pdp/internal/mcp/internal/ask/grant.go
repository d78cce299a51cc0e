package ask

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
)

// An agent asks the PDP for capabilities through the gateway. The holder is the actor in our own questions about its calls:
// a capability of another would be of no use, and nothing in a message names one.

// issuer is the issuer of capabilities of one PDP and tenant.
type issuer struct {
	mu     sync.Mutex
	name   string
	unused bool // no policy looks at capabilities
	err    error
	until  time.Time
}

// issuerFor is how long the metadata of the PDP is believed.
const issuerFor = time.Minute

// Issuer returns the name by which the PDP signs capabilities for a principal, and for which the proof of a request is made. It
// is "" if the PDP has none, or if calls are not asked about by our own question, which alone takes one.
func (a *Asker) Issuer(ctx context.Context, who *identity.Principal) (string, error) {
	name, _, err := a.capabilities(ctx, who)
	return name, err
}

// capabilities returns what the metadata of the PDP says about capabilities, as [approvals.CapabilityIssuer] does.
func (a *Asker) capabilities(ctx context.Context, who *identity.Principal) (issuer string, unused bool, err error) {
	pdp := a.PDP(who)
	if pdp == nil || a.o.Strict || a.o.Ask != ToolInvoke {
		return "", false, nil
	}
	i := a.issuers[pdp]
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := a.o.Now(); !now.Before(i.until) {
		i.name, i.unused, i.err = approvals.CapabilityIssuer(context.WithoutCancel(ctx), pdp)
		if i.until = now.Add(issuerFor); i.err != nil {
			i.until = now.Add(again)
		}
	}
	return i.name, i.unused, i.err
}

// TakesCapability reports whether the trusted question about calls of a tool is ours, so that it can show a capability.
func (a *Asker) TakesCapability(t *Tool) bool {
	return t.operator == nil && (t.declared == nil || a.o.Declared != Instead)
}

// FilterWithout reports which tools of a list that [Asker.Filter] keeps the client may call with some arguments, and without a
// capability. The PDP is not asked while it says that no policy looks at capabilities: its answers would be those to Filter. If
// that has changed since, a tool that needs one is listed for a while as if it did not, and its call is refused with what to do.
func (a *Asker) FilterWithout(ctx context.Context, op Operation, items []Item) (keep []bool, refusal *Refusal) {
	if _, unused, err := a.capabilities(ctx, op.Principal); unused && err == nil {
		return slices.Repeat([]bool{true}, len(items)), nil
	}
	return a.filter(ctx, op, toolsCall, items, unknownOfBareCall)
}

// CapabilityAsk is a request for a capability, as its client makes it.
type CapabilityAsk struct {
	Issuer, Audience string
	Tools            []string // ids
	Renews           string   // the id of the capability, "" for a new one
	ApprovalID       string
	Session          string         // in which alone it is to count, "" for any
	Terms            rpc.Object     // its other members, as they came
	Key              jsontext.Value // nil for none
	Proof            string
	// Keeps is the key that the gateway keeps for the principal, nil if the client has one.
	Keeps *capability.Holder
	// Names are the names for clients of tools by their ids.
	Names func(ids []string) []string
}

// Unlike the other clocks of a proof, these are the PDP's to judge: a proof is held here against all but its age.
const anyAge = 10 * 365 * 24 * time.Hour

// Capability asks the PDP, and people if the PDP says that they must approve it, for a capability.
func (a *Asker) Capability(ctx context.Context, op Operation, r CapabilityAsk) (approvals.Grant, *Refusal) {
	w := a.refuser(&op)
	pdp, refusal := a.client(&op)
	if refusal != nil {
		return approvals.Grant{}, refusal
	}
	asked, refusal := a.askOf(w, &op, r)
	if refusal == nil && r.Renews != "" {
		_, err := approvals.CapabilityOf(ctx, pdp, ownerOf(op.Principal), r.Renews)
		refusal = w.notAsked(err)
	}
	if refusal == nil && r.ApprovalID != "" {
		refusal = w.waits(ctx, pdp, &asked, op.Principal.Person, r)
	}
	if refusal != nil {
		return approvals.Grant{}, refusal
	}
	g, err := approvals.AskCapability(ctx, pdp, r.Renews, nil, asked)
	switch {
	case err != nil:
		return g, w.notAsked(err)
	case g.Waits():
		return g, w.grantWaits(&asked, r, *g.Approval)
	case !g.Granted:
		return g, w.notGranted(g, r)
	}
	if err := a.owedOf(ctx, g); err != nil { // its obligations come first
		_, gone := approvals.ReturnCapability(context.WithoutCancel(ctx), pdp, ownerOf(op.Principal), g.ID, "the gateway could not do what is owed for it")
		return approvals.Grant{}, w.denial("", errors.Join(err, gone).Error())
	}
	return g, nil
}

func (a *Asker) askOf(w refuser, op *Operation, r CapabilityAsk) (asked capability.Ask, refusal *Refusal) {
	who, err := a.speaks(op.Principal)
	if err != nil {
		return asked, w.unmapped(err)
	}
	about := evaluation.Object{}
	for name, v := range who.context.Members { // without null
		about = about.With(name, v)
	}
	key := r.Key
	if r.Keeps != nil {
		about = about.With(capability.HolderKeyMember, text(capability.KeptByGateway))
		key = jsonOf(r.Keeps.Key())
	}
	if key == nil {
		return asked, w.proofWanted(&capability.Refusal{Code: capability.ProofMissing, Audience: r.Issuer})
	}
	o := r.Terms.
		With("tenant_id", rpc.String(cmp.Or(op.Principal.Tenant, evaluation.DefaultTenant))).
		With("holder", jsonOf(map[string]any{"type": who.subject.Type, "id": who.subject.ID, "properties": who.subject.Properties})).
		With("audience", rpc.String(r.Audience)).
		With("tools", jsonOf(r.Tools)).
		With("key", key).
		With("context", jsonOf(about)).
		WithText("proof", r.Proof)
	if r.Session != "" {
		o = o.With("channel", jsonOf(map[string]string{"session": r.Session}))
	}
	if asked, err = capability.DecodeAsk(o.Value(), evaluation.DefaultLimits()); err != nil {
		return asked, w.invalid(err.Error())
	}
	if r.Keeps != nil {
		if err := r.Keeps.Request(&asked, r.Issuer, a.o.Now()); err != nil {
			return asked, w.invalid(err.Error())
		}
	}
	if _, _, bad := asked.CheckProof(r.Issuer, a.o.Now(), anyAge, anyAge); bad != nil {
		return asked, w.proofWanted(bad)
	}
	return asked, nil
}

func jsonOf(v any) jsontext.Value {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // of names and values that were read before: there are none such
	}
	return text
}

// waits returns the refusal of a request that people were asked about before, and have not approved, or nil if the PDP is to
// be asked again. An approval request for another person, with the same holder, is as one that does not exist.
func (w refuser) waits(ctx context.Context, pdp *authzenclient.Client, asked *capability.Ask, person string, r CapabilityAsk) *Refusal {
	v, err := approvals.CapabilityApproval(ctx, pdp, r.ApprovalID)
	var e *authzenclient.Error
	var of struct {
		Subject evaluation.Ref `json:"subject"`
	}
	switch {
	case errors.As(err, &e) && e.Kind == authzenclient.Refused && e.Status == http.StatusNotFound,
		err == nil && (v.Tenant != asked.Tenant || json.Unmarshal(v.Request, &of) != nil || of.Subject != asked.Holder || v.Person != person):
		return w.invalid("approval_id names no approval request of yours; leave it out to ask people anew")
	case err != nil:
		return w.notAsked(err)
	}
	w.call = true // a person's no has its codes
	switch v.Status {
	case "pending":
		w.call = false
		return w.grantWaits(asked, r, evaluation.Approval{ID: v.ID, ExpiresAt: v.ExpiresAt})
	case "denied":
		why := "a person said no"
		for _, vote := range v.Said {
			why = cmp.Or(line(vote.Reason, mostReason), why)
		}
		return w.over(v.ID, why, "the approval request is denied")
	case "expired":
		return w.over(v.ID, "nobody decided in time", "the approval request has expired")
	case "cancelled", "revoked":
		return w.over(v.ID, "the approval does not count any more", "the approval request is "+v.Status)
	}
	return nil
}

// grantWaits refuses a request for now: people are asked, and have not decided.
func (w refuser) grantWaits(asked *capability.Ask, r CapabilityAsk, by evaluation.Approval) *Refusal {
	wanted := authorization{
		ID: by.ID, Tool: strings.Join(r.Names(r.Tools), ", "), Arguments: Arguments(r.Terms), Requester: asked.Holder.ID,
		Reason: "a person must approve this capability", Expires: by.ExpiresAt.UTC(),
	}
	next := "Send the same request again with approval_id: it is granted once the approval request " + by.ID + " is approved"
	if !wanted.Expires.IsZero() {
		next += ", which can be until " + wanted.Expires.Format(time.RFC3339)
	}
	return w.asks(data{Type: "authorization_required", Reason: wanted.Reason, Suggestion: "send the request again", Approval: by.ID, Request: &wanted}, next, "people must approve it")
}

func (w refuser) notGranted(g approvals.Grant, r CapabilityAsk) *Refusal {
	reason := line(g.ReasonUser, mostReason)
	message := "Access denied"
	if reason != "" {
		message += ": " + reason
	}
	d := data{Type: authorizationDenied, Reason: reason, Refused: r.Names(g.Refused)}
	if slices.Contains(g.Needs, "channel") {
		d.Suggestion = `ask with "channel": "session"`
	}
	return w.refuse(Denied, coaz.Denied.Code(w.dialect), message, d, "the capability is not granted "+g.Reason)
}

// proofWanted refuses a request whose proof does not count. It says for whom a proof has to be.
func (w refuser) proofWanted(r *capability.Refusal) *Refusal {
	r.Hint = "Send the request with the holder's public key as key, and with a fresh proof by it, for that issuer, as proof"
	d := data{Type: "proof_required", Code: r.Code, Reason: r.Text(), Suggestion: r.Suggestion(), Audience: r.Audience}
	return w.refuse(invalidParams, rpc.InvalidParams, r.Text()+": "+r.Suggestion(), d, r.Error())
}

const invalidParams Kind = "invalid_params"

func (w refuser) invalid(why string) *Refusal {
	why = line(why, mostReason)
	return w.refuse(invalidParams, rpc.InvalidParams, why, data{Type: string(invalidParams)}, why)
}

// notAsked refuses since the PDP does not do what is asked about capabilities. It is nil without an error.
func (w refuser) notAsked(err error) *Refusal {
	var e *authzenclient.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return w.failed(err)
	}
	refused := e.Kind == authzenclient.Refused
	switch {
	case e.Status == http.StatusTooManyRequests:
		d := data{Type: string(RateLimited), RetryAfter: seconds(cmp.Or(e.RetryAfter, again)), Suggestion: retryAfter}
		return w.refuse(RateLimited, coaz.Denied.Code(w.dialect), "too many requests", d, e.Error())
	case refused && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden):
		const message = "this gateway may not ask for capabilities: say so to who operates it"
		return w.refuse(Unavailable, coaz.Unreachable.Code(w.dialect), message, data{}, "the credential of pdp.key_file lacks the permission capability, which policy-service keys add --permission gives: "+e.Error())
	case refused && e.Status == http.StatusNotFound:
		return w.invalid("there is no such capability of yours")
	case refused && slices.Contains([]int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, e.Status):
		return w.invalid(e.Detail)
	}
	return w.failed(err)
}

func (a *Asker) owedOf(ctx context.Context, g approvals.Grant) error {
	owed, err := g.Obligations()
	if err != nil {
		return err
	}
	for _, o := range owed {
		do := a.o.Handlers[o.Type]
		if do == nil {
			return errors.New("nothing here discharges the obligation " + line(o.Type, mostReason))
		}
		if err := do(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Validate asks what a capability is worth that a principal would show with the call of a tool, by its id.
func (a *Asker) Validate(ctx context.Context, op Operation, shows evaluation.CapabilityShown, tool string, arguments jsontext.Value) (jsontext.Value, *Refusal) {
	w := a.refuser(&op)
	pdp, refusal := a.client(&op)
	if refusal != nil {
		return nil, refusal
	}
	who, err := a.speaks(op.Principal)
	if err != nil {
		return nil, w.unmapped(err)
	}
	said, err := who.object(arguments)
	if err != nil {
		return nil, w.unmapped(err)
	}
	shown := evaluation.Object{}.With("token", text(shows.Token))
	if shows.Proof != "" {
		shown = shown.With("proof", text(shows.Proof))
	}
	if shows.Session != "" {
		shown = shown.With("channel", evaluation.Object{}.With("session", text(shows.Session)).Value())
	}
	said = said.With("capability", shown.Value())
	q := evaluation.Request{Subject: who.subject, Action: evaluation.Action{Name: string(ToolInvoke)}, Resource: evaluation.Entity{Type: "tool", ID: tool}, Context: said}
	worth, err := approvals.ValidateCapability(ctx, pdp, cmp.Or(op.Principal.Tenant, evaluation.DefaultTenant), q)
	return worth, w.notAsked(err)
}

// ownerOf says which capabilities are a principal's.
func ownerOf(p *identity.Principal) approvals.CapabilityOwner {
	return approvals.CapabilityOwner{Tenant: cmp.Or(p.Tenant, evaluation.DefaultTenant), Holder: p.Participant(), Person: p.Person}
}

// Capabilities returns those of a principal that count.
func (a *Asker) Capabilities(ctx context.Context, op Operation) ([]approvals.CapabilityState, *Refusal) {
	pdp, refusal := a.client(&op)
	if refusal != nil {
		return nil, refusal
	}
	all, err := approvals.Capabilities(ctx, pdp, ownerOf(op.Principal))
	return all, a.refuser(&op).notAsked(err)
}

// Return ends a capability of a principal. One of another, or of none, is the same.
func (a *Asker) Return(ctx context.Context, op Operation, id, reason string) (approvals.CapabilityState, *Refusal) {
	pdp, refusal := a.client(&op)
	if refusal != nil {
		return approvals.CapabilityState{}, refusal
	}
	state, err := approvals.ReturnCapability(ctx, pdp, ownerOf(op.Principal), id, reason)
	return state, a.refuser(&op).notAsked(err)
}
