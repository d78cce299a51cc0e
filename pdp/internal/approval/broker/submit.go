package broker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/auth"
)

// askedByAuthZEN marks approvals that were asked for by AuthZEN's profile for access requests.
const askedByAuthZEN = "authzen"

// AccessError says why an access request is refused, or an act on a task.
type AccessError struct {
	// Name is the profile's name for the reason, as package evaluation has it. It is "" for the reason that has none:
	// the submission names an actor whom the denied request does not know.
	Name   string
	Detail string
	// Pointer is the JSON Pointer of the fault in the body.
	Pointer string
}

func (e *AccessError) Error() string { return e.Detail }

func refused(name, detail string) error { return &AccessError{Name: name, Detail: detail} }

// Submit takes an access request: a program asks for an approval of a request that was denied, in a tenant. Key is the
// program's own name for the request, "" if it gives none. If the same request came before by that name, Submit finds
// its task.
func (b *Broker) Submit(
	ctx context.Context, caller auth.Caller, tenant, key string, submission evaluation.Submission,
) (approval.Task, error) {
	t := approval.Task{
		Tenant: tenant,
		Caller: caller.Name,
		Body:   submission.Hash,
		Bulk:   submission.Bulk,
	}
	if key != "" {
		mac := hmac.New(sha256.New, b.options.Store.Key)
		for _, part := range []string{"idempotency", caller.Name, tenant, key} {
			_, _ = mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part)) // never fails
		}
		t.Key = [32]byte(mac.Sum(nil))
	}
	if known, found, err := b.Store.Known(t.Key, t.Body); found || err != nil {
		return known, err
	}
	if callback := submission.Callback; callback != nil {
		if b.callbacks[callbackOf{caller.Name, callback.Endpoint}] == nil {
			return t, evaluation.Malformed("this caller has no such callback",
				"the operator lists it in approvals.callbacks", "callback", "endpoint")
		}
		t.Callback, t.CallbackState, t.Events = callback.Endpoint, callback.State, callback.Events
	}
	// The whole submission is looked at before anybody is asked for anything.
	var requests []approval.ApprovalRequest
	for n, item := range submission.Items {
		q, err := b.requested(ctx, caller, submission, item)
		if refusal := (*AccessError)(nil); submission.Bulk && errors.As(err, &refusal) {
			refusal.Pointer = "/items/" + strconv.Itoa(n) + refusal.Pointer
		}
		if err != nil {
			return t, err
		}
		requests = append(requests, q)
	}
	for _, q := range requests {
		filed, err := b.Store.File(context.WithoutCancel(ctx), q)
		if err != nil {
			return t, err // the ones filed before wait, and the next submission joins them
		}
		t.Items = append(t.Items, filed.ID)
	}
	t.ID = uuid.NewString()
	return b.Store.Begin(t)
}

// requested is the approval request of an item, if the item follows a denial of ours that would be the answer now as well.
func (b *Broker) requested(
	ctx context.Context, caller auth.Caller, submission evaluation.Submission, item evaluation.SubmissionItem,
) (q approval.ApprovalRequest, err error) {
	claims, err := b.denial(item)
	if err != nil {
		return q, err
	}
	r, said := b.asDenied(item.Request, claims)
	actors, known := r.Actors()
	acts := known && (r.Subject.ID == submission.Actor || actors.Agent != nil && actors.Agent.ID == submission.Actor)
	if submission.Actor != "" && !acts {
		return q, &AccessError{
			Detail: "client.actor was not named in the request that was denied; " +
				"name the actor in the context.agent of that request, or leave client.actor out",
			Pointer: "/client/actor",
		}
	}
	w, ok, err := b.options.PDP().Requestable(ctx, pdp.Call{Request: r, Asker: caller.Asker()})
	if err != nil {
		return q, err
	}
	if !ok {
		return q, refused(evaluation.NotRequestable,
			"this is not denied for want of an approval, or no more; ask for the decision again")
	}
	w.Decision = claims.EvaluationID
	digest := b.digest(w)
	if b.offerBinding(w, digest) != claims.Binding {
		wrong := "the denial was of another request, or other policies are in force since; ask for the decision again"
		if item.Shared && len(submission.Items) > 1 {
			wrong = "one denial for several items is not supported; send each item's own"
		}
		return q, refused(evaluation.InvalidDenialBinding, wrong)
	}
	if q, err = b.approvalRequest(ctx, w, digest); err != nil {
		return q, err
	}
	q.Asked = askedByAuthZEN
	if said = b.shownBeside(ctx, r, said, submission.Said); said.Len() > 0 {
		q.Said, err = said.MarshalJSON()
	}
	return q, err
}

// shownBeside is the justification of a request, in its context and beside it, without secrets: neither its own, nor
// the request's.
func (b *Broker) shownBeside(
	ctx context.Context, r evaluation.Request, within, beside evaluation.Object,
) evaluation.Object {
	denied := r.Context
	r.Context = denied.Beside(within)
	secrets := b.options.Mask(ctx).Gather()
	secrets.Add(r, beside)
	masked := secrets.Apply(r)
	added := masked.Request.Context.Without(func(name string) bool {
		_, ok := denied.Get(name)
		return ok
	})
	return added.Beside(masked.Object(beside))
}

// denial is the content of the binding token of an item, if the token is ours, of this tenant, and fresh.
func (b *Broker) denial(item evaluation.SubmissionItem) (claims evaluation.BindingClaims, err error) {
	d, issuer := item.Denial, b.options.IssuerURL(item.Request.Tenant)
	wrong := ""
	switch {
	case !d.Given || d.BindingToken == "":
		wrong = "there is no denial.binding_token; send the one that the denial came with"
	case issuer == "" || !b.verify(d.BindingToken, bindingType, &claims) ||
		claims.Issuer != issuer || claims.Audience != issuer+RequestsPath:
		wrong = "denial.binding_token is none of ours; send the one that the denial came with, byte for byte"
	case d.EvaluationID != "" && d.EvaluationID != claims.EvaluationID, !d.ExpiresAt.Equal(claims.DenialExpiresAt):
		wrong = "the denial is of another evaluation than its binding_token, or has another expires_at; " +
			"send both as they came"
	}
	if wrong != "" {
		return claims, refused(evaluation.InvalidDenialBinding, wrong)
	}
	if now := b.options.Store.Now(); !now.Before(claims.DenialExpiresAt) || now.Unix() >= claims.Expires {
		return claims, refused(evaluation.ExpiredDenial, "the denial is too old; ask for the decision again")
	}
	return claims, nil
}

// asDenied is a submitted request as it was when it was denied, with the members that were added since. The obligations that the
// program can meet, and the capability that it shows, decide whether one is missing, so they are part of the request.
func (b *Broker) asDenied(
	r evaluation.Request, claims evaluation.BindingClaims,
) (evaluation.Request, evaluation.Object) {
	bundle := b.options.PDP().Bundle()
	ours := func(name string) bool {
		return slices.Contains(claims.Members, name) || bundle.Volatile(name) ||
			name == evaluation.SupportedMember || name == evaluation.ExtensionsMember ||
			name == "capability" || evaluation.BindsAlways(name)
	}
	said := r.Context.Without(func(name string) bool { return ours(name) || evaluation.Protocol(name) })
	r.Context = r.Context.Without(func(name string) bool { return !ours(name) })
	if claims.October {
		r.Draft = evaluation.October
	}
	return r, said
}
