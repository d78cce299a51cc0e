package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
	"policy-service/pdp"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/evidence"
)

// Answer is the answer to a request for a capability.
type Answer struct {
	ID string `json:"id"` // of the capability
	// Token is the capability. It can be had once more only by the approval that it was granted by.
	Token     string    `json:"token"`
	Encrypted bool      `json:"encrypted,omitzero"` // the token, to the key of the request
	Tools     []string  `json:"tools"`
	Audience  string    `json:"audience"`
	ValidFrom time.Time `json:"valid_from"`
	Expires   time.Time `json:"expires"`
	ExpiresIn int       `json:"expires_in"` // in seconds
	MaxUses   int       `json:"max_uses,omitzero"`
	Verify    string    `json:"verify"`
	// Narrowed are the members of the request of which less was granted.
	Narrowed []string `json:"narrowed,omitzero"`
	// Obligations are owed for the grant, each once.
	Obligations []Owed `json:"obligations,omitzero"`
}

// Owed is an obligation in the form of an answer.
type Owed struct {
	ID         string            `json:"id"`
	Type       string            `json:"type"`
	Properties evaluation.Object `json:"properties"`
}

// Denied says why no capability was granted, if that is no error.
type Denied struct {
	// Approval is what people were asked, if only that is missing.
	Approval   *evaluation.Approval `json:"approval,omitzero"`
	Reason     evaluation.Reason    `json:"reason,omitzero"`
	ReasonUser string               `json:"reason_user,omitzero"`
	Refused    []string             `json:"refused,omitzero"` // the tools that may not be granted
	// Needs are members of the request without which the policies grant nothing.
	Needs []string `json:"needs,omitzero"`
}

// ErrNoIssuer says that tokens cannot be signed, because their issuer has no URL.
var ErrNoIssuer = errors.New("the service does not know its own URL, by which tokens are: set public_url")

// ErrHandedOn says that a capability is not renewed: its parent's holder hands it on anew.
var ErrHandedOn = errors.New("the capability was handed on: have its parent handed on once more")

// Request is a request for a capability.
type Request struct {
	capability.Ask
	// Renews is the capability that is to be renewed by it, nil if another one is to be granted.
	Renews *store.Capability
	// Behind are those on whose behalf the holder asks, and Person is that of [evaluation.Request.Person], if a token says so.
	// Where a capability is renewed, they are those that it was granted for; where one is handed on, they are among them.
	Behind []evaluation.Ref
	Person string
	// Parent is the capability that is to be handed on by it, nil if none is.
	Parent *store.Capability
	// MayLackProof is set if the caller may have a capability bound to a key without a proof of the key.
	MayLackProof bool
}

// mostUnproved is the longest lifetime of a capability for a key of which there was no proof: its holder is away.
const mostUnproved = 90 * 24 * time.Hour

// unproved stands behind the digest of a request without a proof. An approval of it is none of a request with one, which
// may be granted for less time.
const unproved = " unproved"

// Ask decides whether a capability may be granted, and grants it, or renews one. A proof in the request is by the key that it is
// to be bound to. Decision is the id of the answer on record, "" if there is none, as when the same answer is given again.
// An error can be a [*capability.Refusal], an [*evaluation.Error], a [*store.LimitError], [ErrNoIssuer], or one of the PDP or
// of the store.
func (b *Broker) Ask(ctx context.Context, asker evaluation.Asker, r Request) (decision string, granted *Answer, denied *Denied, err error) {
	a := &r.Ask
	if err := r.renewable(); err != nil {
		return "", nil, nil, err
	}
	asks := a.Holder
	if p := r.Parent; p != nil {
		asks, a.Parent, a.Giver = p.Holder, p.ID, p.Token.Key
	}
	defer func() {
		if granted != nil && err == nil && !a.EncryptTo.IsZero() {
			granted.Token, err = a.EncryptTo.Seal(granted.Token)
			granted.Encrypted = true
		}
	}()
	issuer, now := b.options.IssuerURL(a.Tenant), b.now()
	if issuer == "" {
		return "", nil, nil, ErrNoIssuer
	}
	person, own := r.countsFor(asker), ""
	if r.Parent != nil && asker.Principal != (evaluation.Ref{}) { // it may be another person of the holder, without the key
		own = evaluation.PersonOfCaller(asker.Name)
	}
	if err := b.Store.Admit(a.Tenant, store.OwnerOf(cmp.Or(own, person), asks)); err != nil { // before anything of it is on record
		return "", nil, nil, err
	}
	if err := b.asked(ctx, &r, asker.Name, issuer, now); err != nil {
		return "", nil, nil, err
	}
	if p := r.Parent; p != nil && p.State != store.Active { // who has no proof by its key does not hear that
		return "", nil, nil, &store.StateError{State: p.State}
	}
	digest := a.Digest()
	if a.Proof == "" {
		digest += unproved
	}
	if again, err := b.again(ctx, &r, person, digest); again != nil || err != nil {
		return "", again, nil, err
	}
	if err := r.behindBefore(); err != nil {
		return "", nil, nil, err
	}
	w, err := b.want(a, issuer, now)
	if err == nil && r.Parent != nil {
		err = w.handOn(r.Parent)
	}
	if err != nil {
		return "", nil, nil, err
	}
	w.digest, w.behind, w.person, w.countsFor, w.mask = evidence.Of(digest), r.Behind, r.Person, person, b.options.Mask(ctx)
	if w.key, err = evidence.NewKey(b.options.Store.Key, a.Tenant); err != nil {
		return "", nil, nil, err
	}
	call, err := w.call(asker, now)
	if err != nil {
		return "", nil, nil, err
	}
	keep := b.Store.Grant
	if r.Renews != nil {
		w.token.ID = r.Renews.ID
		keep = func(ctx context.Context, n store.New, decision string) (*store.Reservation, error) {
			return b.Store.Renew(ctx, n.Token.ID, n, decision)
		}
	}
	decidedBy := ""
	prepare := func(ctx context.Context, d *pdp.GrantDecision) (pdp.Reservation, error) {
		w.narrow(d.Terms)
		w.end(d.Until)
		d.Capability, decidedBy = w.token.ID, d.Bundle
		if p := r.Parent; p != nil {
			d.Ancestors = append([]string{p.ID}, p.Ancestors...)
		}
		return b.keep(w, r.Renews, func() (*store.Reservation, error) { return keep(ctx, w.new(asker, d, digest), d.Items[0].ID) })
	}
	defer func() { // it may be granted all the same, by policies of before the last sweep
		if err != nil && decidedBy != "" && decidedBy != b.options.PDP().Bundle().Digest() {
			b.PoliciesChanged()
		}
	}()
	d, err := b.options.PDP().Grant(ctx, call, prepare)
	switch {
	case err != nil:
		return "", nil, nil, err
	case !d.Allow:
		return d.ID, nil, deniedBy(&d, a.Tools), nil
	}
	if b.options.PDP().Bundle().Digest() != d.Bundle { // a sweep may not have seen it
		c, _, err := b.Store.Get(ctx, d.Capability)
		if err == nil {
			err = b.recheck(ctx, c)
		}
		if err != nil {
			return "", nil, nil, err
		}
	}
	c, err := b.Store.Usable(ctx, d.Capability)
	if err == nil && c.Decision != d.Items[0].ID { // it is on record, and what it granted is not stored yet
		err = store.ErrUnavailable
	}
	if err != nil {
		return "", nil, nil, err
	}
	if granted, err = b.answer(&c, w.narrowed); err == nil {
		granted.Obligations = owed(&d)
	}
	return d.ID, granted, nil, err
}

// countsFor returns the person by whom limits count what is granted, "" if they count by its holder: the person of the capability
// that is renewed or handed on, the first one that the request names, or the holder of the asker's own token. That an asker
// without a principal has a token says nothing of those for whom it asks.
func (r *Request) countsFor(asker evaluation.Asker) string {
	if of := cmp.Or(r.Renews, r.Parent); of != nil {
		return of.Person
	}
	own := evaluation.Request{Context: r.Context}
	person, _, _ := strings.Cut(cmp.Or(r.Person, own.Person()), " ")
	if person == "" && asker.Principal != (evaluation.Ref{}) {
		person = evaluation.PersonOfCaller(asker.Name)
	}
	return person
}

// mostPlaces is how often a place in a status list is looked for that another request takes meanwhile.
const mostPlaces = 5

// keep has the store keep what is granted, with a place in a status list if it is for offline. One that is renewed keeps its
// place.
func (b *Broker) keep(w *wanted, renews *store.Capability, keep func() (*store.Reservation, error)) (use *store.Reservation, err error) {
	for range mostPlaces {
		if w.token.Verify == capability.Offline {
			if w.token.Status, err = b.place(w.ask.Tenant, renews); err != nil {
				return nil, err
			}
		}
		if use, err = keep(); !errors.Is(err, store.ErrTaken) {
			return use, err
		}
	}
	return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// owed are the obligations of all answers, without those that the service met itself.
func owed(d *pdp.GrantDecision) (all []Owed) {
	for n := range d.Items {
		for _, o := range d.Items[n].Obligations {
			same := func(other Owed) bool {
				return other.Type == o.Type && other.Properties.Value().Equal(o.Properties.Value())
			}
			if o.Type != obligations.CapabilityTerms && !slices.ContainsFunc(all, same) {
				all = append(all, Owed{o.ID, o.Type, o.Properties})
			}
		}
	}
	return all
}

// asked checks the proof of a request. It is taken once. After a restart, or after the clock was put back by more than its life,
// it may be taken again: then it gives its sender what it gave before, a token for the same key, within the same limits.
func (b *Broker) asked(ctx context.Context, a *Request, caller, issuer string, now time.Time) error {
	if a.Proof == "" && a.MayLackProof {
		return nil
	}
	if err := b.clock(); err != nil {
		return err
	}
	terms := b.options.Terms
	jti, iat, refusal := a.CheckProof(issuer, now, terms.ProofAge, terms.Skew)
	if refusal != nil {
		if refusal.Code == capability.ProofMissing {
			refusal.Hint = "Sign the request with its key, and send that as proof"
			if a.Renews == nil && a.Parent == nil {
				refusal.Hint += "; only a credential that has the permission capability.admin, too, may leave it out"
			}
		}
		return refusal
	}
	return b.mark(ctx, b.asks, a.Tenant, evaluation.Ref{ID: caller}, a.Signer().Thumbprint(), jti, iat)
}

// renewable says why the capability that a request is to renew cannot be renewed by it.
func (r *Request) renewable() error {
	if r.Renews == nil {
		return nil
	}
	switch c := r.Renews; {
	case c.Tenant != r.Tenant:
		return store.ErrNotFound
	case c.State != store.Active:
		return &store.StateError{State: c.State}
	case len(c.Ancestors) > 0:
		return ErrHandedOn
	case c.Renewals >= store.MostRenewals:
		return store.ErrRenewals
	case !c.MayHaveUses(r.MaxUses):
		return evaluation.Malformed("more than the capability has, or no more than were used", "give as many as it has", "max_uses")
	}
	return r.SameAs(r.Renews.Token)
}

// behindBefore has a request that renews a capability, or hands one on, ask on behalf of those that it was granted for. One that
// hands it on may name others besides.
func (r *Request) behindBefore() error {
	of := cmp.Or(r.Renews, r.Parent)
	if of == nil {
		return nil
	}
	before, err := questions(of)
	if err != nil || len(before.Questions) == 0 {
		return err
	}
	actors, _ := before.Questions[0].Actors() // it was decoded, and names no agent
	r.Behind, r.Person = actors.Chain, before.Questions[0].Person()
	if r.Parent == nil {
		return nil
	}
	return r.behindBesides()
}

// behindBesides adds those whom the context of the request names.
func (r *Request) behindBesides() error {
	own := evaluation.Request{Context: r.Context}
	named, _ := own.Actors() // it was checked
	for _, one := range named.Chain {
		if !slices.Contains(r.Behind, one) {
			r.Behind = append(r.Behind, one)
		}
	}
	persons := strings.Fields(r.Person) // the first one is the one that limits of approvals count by
	for one := range strings.FieldsSeq(own.Person()) {
		if !slices.Contains(persons, one) {
			persons = append(persons, one)
		}
	}
	if len(persons) > evaluation.MostPersons {
		return evaluation.Malformed("more than two persons, with those for whom the capability was granted", "name none", "context", "person")
	}
	r.Person = strings.Join(persons, " ")
	return nil
}

// Is reports whether a holder is the one that policies know by a type and an id.
func (b *Broker) Is(holder evaluation.Ref, typ, id string) bool {
	return b.options.PDP().SameEntity(holder, typ, id)
}

// Ref is how requests name an entity that policies know by a type and an id.
func (b *Broker) Ref(typ, id string) (of evaluation.Ref, known bool) {
	return b.options.PDP().Ref(typ, id)
}

// again returns the answer to a request of a person, or of none, that was granted before by the same approval, and whose answer
// may have been lost.
func (b *Broker) again(ctx context.Context, a *Request, person, digest string) (*Answer, error) {
	if a.ApprovalID == "" {
		return nil, nil
	}
	c, found, err := b.Store.Granted(ctx, a.Tenant, a.ApprovalID, digest)
	if err != nil || !found || c.State != store.Active || c.Holder != a.Holder || c.Person != person || c.JKT != a.Key.Thumbprint() {
		return nil, err
	}
	if a.Renews != nil && (c.ID != a.Renews.ID || c.Renewals == 0) { // the approval granted it, and renewed nothing
		return nil, nil
	}
	if c, err = b.Store.Usable(ctx, c.ID); err != nil {
		return nil, err
	}
	return b.answer(&c, nil)
}

// answer signs the token of a capability.
func (b *Broker) answer(c *store.Capability, narrowed []string) (*Answer, error) {
	claims, err := c.Token.Claims()
	if err != nil {
		return nil, err
	}
	signed, err := b.options.Keys.Sign(claims, capability.TypeToken)
	t := &c.Token
	return &Answer{
		ID:        t.ID,
		Token:     signed,
		Tools:     t.Tools(),
		Audience:  t.Audience,
		ValidFrom: t.NotBefore.UTC(),
		Expires:   t.Expires.UTC(),
		ExpiresIn: int(t.Expires.Sub(t.NotBefore) / time.Second),
		MaxUses:   t.MaxUses,
		Verify:    t.Verify,
		Narrowed:  narrowed,
	}, err
}

func deniedBy(d *pdp.GrantDecision, tools []string) *Denied {
	out := &Denied{Approval: d.Approval, Needs: d.Needs}
	for n := range d.Items {
		item := &d.Items[n]
		if item.Allow {
			continue
		}
		if len(out.Refused) == 0 {
			out.Reason, out.ReasonUser = item.Reason, item.ReasonUser
		}
		out.Refused = append(out.Refused, tools[n])
	}
	if len(out.Refused) == 0 && d.Approval == nil { // it waits, and nobody was asked
		out.Reason = evaluation.ApprovalRequired
	}
	return out
}
