// Package broker is where decisions, people and approvals meet. A [Broker] is the [pdp.Approvals] of a PDP whose
// decisions are on record: it finds, reserves, files and offers approvals.
//
// [OpenKey] reads the key of approvals, and [Open] opens their store and holds it to the decision log. Each step of an
// approval is a record there, and the file of approvals alone is no reason to allow anything.
//
// A caller meets an approval request in one of three ways. [Broker.See] finds one that the caller may see, and a [Seen]
// takes the ruling of the caller: an approver approves, denies, delegates or revokes, and the program that asked
// cancels. [Broker.Inbox] lists those that an approver may decide about. By [Broker.Submit] a program asks for an
// approval of a request that was denied, as AuthZEN's profile for access requests says, [Broker.Follow] has the state of
// that task, and [Broker.Tasks] the changes among all tasks of the program. Both tokens of the profile are made and
// verified here: the binding token names the denial that an approval can be asked for after, and the state token names the
// approved request.
//
// [Broker.Run] sends approval requests to other systems, and tasks to the programs that asked.
//
// The package serves nothing and knows no HTTP. It refuses by errors of its own and of the store, and the server makes
// problems of them. The caller, the masks and the URL of the issuer are given to it.
package broker

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/signing"
)

// Options are the parts of a [Broker]. All must be there, but for Webhooks and Callbacks.
type Options struct {
	// Data is the data directory.
	Data string
	// Store are the key that [OpenKey] read, the clock, InForce and the bounds of the store. [Open] sets the rest.
	Store approval.Options
	Log   *decisionlog.Log
	// Keys sign the tokens.
	Keys *signing.Keys
	// Sealer seals the cursors of programs that follow their tasks.
	Sealer Sealer
	// PDP is the PDP whose approvals these are. It is made after the Broker.
	PDP func() *pdp.PDP
	// Mask is the masker of the configuration that answers a request.
	Mask func(context.Context) *mask.Masker
	// KeyOf has the keys that the log of another origin has had, as `log key` prints them. It is needed if others write to the
	// same approvals.
	KeyOf func(origin string) ([]string, error)
	// IssuerURL is the URL by which a tenant's decisions are asked for, "" if it is not known. Tokens are by it and
	// for it.
	IssuerURL func(tenant string) string
	// ConsoleURL is the address of the console, with which links begin; "" if there is none.
	ConsoleURL func() string
	// Approvers are the callers that may approve in a tenant, as [auth.Authenticator.Approvers] says.
	Approvers func(tenant string) (keys []auth.Caller, types []string)
	// Persons are the values of context.person for the holder of a credential, as [auth.Authenticator.Persons] says.
	Persons func(caller string, entity auth.Principal) []string
	// Count counts a step that is on record, and Refused an approval request that a limit refused.
	Count   func(step string)
	Refused func(*approval.LimitError)
	// Webhooks receive messages about every approval request, and Callbacks about the tasks of the programs that ask.
	Webhooks  []webhook.Config
	Callbacks []CallbackConfig
	Logger    *slog.Logger
}

// Broker implements [pdp.Approvals].
type Broker struct {
	Store     *approval.Store
	options   Options
	callbacks map[callbackOf]*webhook.Sender
	teller    teller
	known     knownIDs
}

// Open opens the store of approvals. Its caller closes the Store.
func Open(options Options) (*Broker, error) {
	b := &Broker{options: options}
	o := &b.options.Store
	steps := b.steps()
	o.Record, o.Recorded, o.Attest, o.Steps = b.record, options.Log.Has, steps.Attest, steps.Since
	o.Withdraw = func(ctx context.Context, w approval.Withdrawal) error {
		return options.Log.Withdraw(ctx, w.Tenant, w.Caller, record.Withdrawn{Decision: w.Decision, Approval: w.Item})
	}
	o.Prove = func(ctx context.Context, id string) (p approval.Proof, found bool, err error) {
		p.Line, p.Proof, found, err = steps.Prove(ctx, id)
		return p, found, err
	}
	o.Verify = func(p approval.Proof) (approval.Step, error) { return steps.Verify(p.Line, p.Proof, p.Origin) }
	o.Size, o.SamePerson, o.OnError = options.Log.Size, b.samePerson, b.failed
	o.Silent = len(options.Webhooks)+len(options.Callbacks) == 0
	var err error
	b.Store, err = approval.Open(options.Data, *o)
	switch {
	case errors.Is(err, approval.ErrNewer), errors.Is(err, approval.ErrLocked), errors.Is(err, approval.ErrDamaged):
		return nil, fmt.Errorf("cannot open the approvals: %w", err)
	case err != nil:
		return nil, fmt.Errorf("cannot open the approvals: %w; "+
			"see that the disk has room, and that the data directory belongs to the user that serve runs as", err)
	}
	if err = b.openWebhooks(); err != nil {
		return nil, errors.Join(err, b.Store.Close())
	}
	return b, nil
}

// Run expires approval requests and sends messages to other systems, until its context ends.
func (b *Broker) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { b.Store.Run(ctx) })
	b.Redo(ctx) // before any message is sent
	b.teller.run(ctx)
	all.Wait()
}

func (b *Broker) failed(err error) {
	b.options.Logger.Error("approvals wait for something that failed; it is tried again", "error", err)
}

// marshal writes v with members in a fixed order.
func marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

// digest is the digest that an approval is bound to.
func (b *Broker) digest(w pdp.ApprovalRequest) [sha256.Size]byte {
	mac := hmac.New(sha256.New, b.options.Store.Key)
	_, _ = mac.Write(w.Binding) // never fails
	return [sha256.Size]byte(mac.Sum(nil))
}

// Reserve implements [pdp.Approvals].
func (b *Broker) Reserve(ctx context.Context, w pdp.ApprovalRequest, id string) (pdp.Reservation, error) {
	use, err := b.reserve(context.WithoutCancel(ctx), w, id) // the caller may go away: a use is on record or not taken
	if use == nil {
		return nil, err // and no reservation that only looks like one
	}
	return reservation{use, b.Store}, err
}

// reservation implements [pdp.Reservation].
type reservation struct {
	*approval.Reservation
	store *approval.Store
}

// Again implements [pdp.Reservation].
func (r reservation) Again(_ context.Context, decision string) (bool, error) {
	return r.store.ReserveAgain(r.Reservation, decision)
}

func (b *Broker) reserve(ctx context.Context, w pdp.ApprovalRequest, id string) (*approval.Reservation, error) {
	if w.Continues.Round > 0 {
		return b.Store.Continue(ctx, id, b.digest(w), w.Continues, w.Decision)
	}
	return b.Store.Reserve(ctx, id, b.digest(w), w.Decision)
}

// File implements [pdp.Approvals].
func (b *Broker) File(ctx context.Context, w pdp.ApprovalRequest) (*evaluation.Approval, error) {
	digest := b.digest(w)
	known, ok, err := b.Store.Get(ctx, w.Presented)
	if err != nil {
		return nil, err
	}
	if ok && known.Digest == digest && known.Status.Final() {
		return b.answerFor(known), nil // presenting an approval that has ended files no new request: the answer is its status
	}
	q, err := b.approvalRequest(ctx, w, digest)
	if err != nil {
		return nil, err
	}
	filed, err := b.Store.File(context.WithoutCancel(ctx), q)
	var limit *approval.LimitError
	switch {
	case errors.As(err, &limit):
		b.options.Refused(limit)
		return &evaluation.Approval{
			Status:     "refused",
			RetryAfter: max(1, int(math.Ceil(limit.RetryAfter.Seconds()))),
		}, nil
	case errors.Is(err, approval.ErrTooLarge): // no person could be shown it
		return nil, nil
	case err != nil:
		return nil, err
	}
	return b.answerFor(filed), nil
}

// answerFor is the answer to the caller that asked for an approval.
func (b *Broker) answerFor(one approval.Approval) *evaluation.Approval {
	return &evaluation.Approval{
		ID:        one.ID,
		Status:    string(one.Status),
		ExpiresAt: one.ExpiresAt,
		StatusURL: b.options.IssuerURL(evaluation.DefaultTenant) + "/v1/approvals/" + one.ID,
	}
}

// approvalRequest is the approval request that people are shown, without secrets. The approval is bound to digest.
func (b *Broker) approvalRequest(
	ctx context.Context, w pdp.ApprovalRequest, digest [sha256.Size]byte,
) (q approval.ApprovalRequest, err error) {
	r := w.Call.Request
	masked := b.options.Mask(ctx).Apply(r, w.Obligation.Properties)
	drawn := masked.ForPeople(r)
	q = approval.ApprovalRequest{
		Digest:     digest,
		Tenant:     r.Tenant,
		Caller:     w.Call.Asker.Name,
		Principal:  w.Call.Asker.Principal,
		Decision:   w.Decision,
		Bundle:     w.Bundle,
		Obligation: w.Obligation.ID,
		Terms:      w.Terms,
		OfTenant:   w.OfTenant,
		Members:    w.Members,
		Subject:    r.Subject.Ref(),
		Resource:   r.Resource.Ref(),
		Action:     r.Action.Name,
		Person:     r.Person(),
		Actors:     w.Actors,
	}
	q.Terms.Message = masked.Text(q.Terms.Message)
	if hint := evaluation.HintOf(r.Resource.Properties); hint.Timeout > 0 { // which is not vouched for: it only shortens
		q.Terms.Timeout = min(q.Terms.Timeout, hint.Timeout)
	}
	why, said := masked.Request.Context.Get("justification")
	if q.Shown, err = asShownOf(masked); err != nil {
		return q, err
	}
	if q.Drawn, err = asShownOf(drawn); err != nil || bytes.Equal(q.Drawn, q.Shown) {
		q.Drawn = nil
	}
	if err == nil && said && why.Text() != "approved" {
		q.Said, err = evaluation.Object{}.With("justification", why).MarshalJSON()
	}
	return q, err
}

// asShownOf is a masked request without the protocol members, which are no part of the approval and would look as if they
// were.
func asShownOf(masked *mask.Masking) (jsontext.Value, error) {
	asked := masked.Request
	asked.Context = asked.Context.Without(evaluation.Protocol)
	return asked.MarshalJSON()
}
