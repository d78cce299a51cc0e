// Package broker is where decisions and capabilities meet. A [Broker] is the [pdp.Capabilities] of a PDP whose decisions are
// on record: it checks the tokens and proofs that requests show, and reserves their uses.
//
// [Open] opens the store and holds it to the decision log: each step of a capability is a record there. [Broker.Ask] asks
// the policies, and people where they say so, whether a capability may be granted, and signs the token of one that is.
//
// A proof is taken once. It is marked after all that it must fulfil was checked, and before the policies are asked: so it is
// spent by a deny, too. One exception: a call that waits for a person comes again with the proof that it came with.
//
// The package serves nothing and knows no HTTP.
package broker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/evaluation/recent"
	"policy-service/pdp"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/evidence"
	"policy-service/pdp/internal/signing"
)

// Options are the parts of a [Broker].
type Options struct {
	// Data is the data directory.
	Data string
	// Store are the key of approvals, the clock and the bounds of the store. [Open] sets the rest.
	Store store.Options
	Log   *decisionlog.Log
	// Keys sign the tokens.
	Keys *signing.Keys
	// PDP is the PDP whose capabilities these are. It is made after the Broker.
	PDP func() *pdp.PDP
	// Mask is the masker of the configuration that answers a request.
	Mask func(context.Context) *mask.Masker
	// KeyOf has the keys that the log of another origin has had, as `log key` prints them. It is needed if others write to the
	// same capabilities.
	KeyOf func(origin string) ([]string, error)
	// IssuerURL is the URL by which a tenant's decisions are asked for, "" if it is not known. Tokens are by it.
	IssuerURL func(tenant string) string
	// ListURL is the URL of a status list.
	ListURL func(name string) string
	// NonceKey makes the nonces of all processes that write to the same capabilities; nil if there is no other process.
	NonceKey []byte
	// Clock returns why the clock here may be wrong, so that no proof is taken, and Shown the latest reading of one that was right.
	// They are there if NonceKey is.
	Clock func() error
	Shown func() time.Time
	// Elapsed is as in [capability.MemoryOptions].
	Elapsed func() time.Duration
	Terms   Terms
	Logger  *slog.Logger
}

// Terms bound how long capabilities and proofs count.
type Terms struct {
	MaxLifetime, DefaultLifetime time.Duration
	ProofAge, Skew               time.Duration
	// NonceAlways has every proof need a nonce.
	NonceAlways bool
	// StatusTTL is how long readers keep a status list before they fetch it again, in whole seconds.
	StatusTTL time.Duration
}

// Broker implements [pdp.Capabilities].
type Broker struct {
	Store   *store.Store
	options Options
	seen    *store.Seen
	asks    *store.Seen // the proofs of requests, by callers
	nonces  *capability.Nonces
	lists   statusLists
	known   recent.Texts[knownToken]
	now     func() time.Time
	changed chan struct{} // has a value after a change of policies that no sweep has begun to look at
	logged  atomic.Bool   // since the last sweep began: a capability about which the policies cannot be asked
}

// Open opens the store of capabilities. Its caller closes the Store.
func Open(options Options) (*Broker, error) {
	b := &Broker{options: options, now: options.Store.Now, changed: make(chan struct{}, 1)}
	terms := options.Terms
	b.nonces = capability.NewNonces(capability.NonceOptions{
		Key: options.NonceKey, Now: b.now, Elapsed: options.Elapsed, Before: options.Log.Before(), Shown: options.Shown,
		Age: terms.ProofAge, Skew: terms.Skew, Always: terms.NonceAlways,
	})
	memory := capability.MemoryOptions{Now: b.now, Elapsed: options.Elapsed, Life: terms.ProofAge + terms.Skew, Forgot: b.nonces.Forgot}
	b.seen = store.NewSeen(memory)
	memory.Most, memory.Forgot = 100_000, nil
	b.asks = store.NewSeen(memory)
	o := &b.options.Store
	steps := b.steps()
	o.Record, o.Recorded, o.Attest, o.Steps = b.record, options.Log.Has, steps.Attest, steps.Since
	o.Withdraw = func(ctx context.Context, w store.Withdrawal) error {
		return options.Log.Withdraw(ctx, w.Tenant, w.Caller, record.Withdrawn{Decision: w.Decision, Capability: w.Item})
	}
	o.Prove = func(ctx context.Context, id string) (p store.Proof, found bool, err error) {
		p.Line, p.Proof, found, err = steps.Prove(ctx, id)
		return p, found, err
	}
	o.Verify = func(p store.Proof) (store.Step, error) { return steps.Verify(p.Line, p.Proof, p.Origin) }
	o.Size, o.OnError = options.Log.Size, b.failed
	var err error
	if b.Store, err = store.Open(options.Data, *o); err != nil {
		return nil, fmt.Errorf("cannot open the capabilities: %w", err)
	}
	return b, nil
}

func (b *Broker) failed(err error) {
	b.options.Logger.Error("capabilities wait for something that failed; it is tried again", "error", err)
}

// longestWait is the oldest that the proof of a call that waited for a person can be.
const longestWait = 90 * 24 * time.Hour

// Check implements [pdp.Capabilities].
func (b *Broker) Check(
	ctx context.Context, p pdp.PresentedCapability,
) (held pdp.HeldCapability, more *evaluation.CapabilityAnswer, err error) {
	c, err := b.shown(ctx, p)
	token := c.Token
	if err == nil && (p.Action != toolInvoke && p.Action != toolRequest || p.Resource.Type != toolType) {
		err = &capability.Refusal{Code: capability.ToolNotCovered, Audience: token.Audience, Tool: p.Resource.ID}
	}
	var proof capability.Proof
	if err == nil {
		proof, err = b.proof(ctx, &c, p)
	}
	if err != nil {
		more, err = answerOf(err)
		return pdp.HeldCapability{Capability: evaluation.Capability{ID: token.ID, Depth: token.Depth}, Ancestors: c.Ancestors}, more, err
	}
	left, counted := c.UsesLeft()
	nonce := ""
	if b.options.Terms.NonceAlways {
		nonce = b.nonces.New(p.Tenant, c.JKT, p.Now)
	}
	return pdp.HeldCapability{
		Nonce:      nonce,
		Capability: evaluation.Capability{Held: true, ID: token.ID, Depth: token.Depth},
		Ancestors:  c.Ancestors,
		Counted:    counted,
		Left:       left,
		Expires:    token.Expires,
		Owner:      c.Owner(),
		Proof: &pdp.SpentProof{
			Key:       c.JKT,
			ID:        proof.ID,
			IssuedAt:  proof.IssuedAt.Unix(),
			Audience:  proof.Audience,
			Tool:      proof.Tool,
			Arguments: evidence.Of(proof.Arguments),
			Nonce:     proof.Nonce,
			Algorithm: proof.Algorithm,
			Signature: evidence.Of(proof.Signature),
		},
	}, nil, nil
}

// The actions and the wire type of the calls that capabilities are for: those that a holder makes, and those that a holder
// requests and another makes.
const (
	toolInvoke  = "tool.invoke"
	toolRequest = "tool.request"
	toolType    = "tool"
)

// answerOf is what an answer says of an error, if it is a refusal.
func answerOf(err error) (*evaluation.CapabilityAnswer, error) {
	r := (*capability.Refusal)(nil)
	if !errors.As(err, &r) {
		return nil, err
	}
	a := &evaluation.CapabilityAnswer{
		Reason:     string(r.Code),
		Argument:   r.Argument,
		Audience:   r.Audience,
		Nonce:      r.Nonce,
		NextAction: r.NextAction(),
	}
	if r.Tool != "" {
		a.Tools = []string{r.Tool}
	}
	return a, nil
}

// knownToken is a token that was shown before, by its text or its id: then its signature was checked with these keys, and the
// store had these claims. The token counts as both say.
type knownToken struct {
	token  capability.Token
	keys   *signing.Set
	claims string // their digest
}

// mostKnown is how many are kept of each of two generations, and mostRemembered how many bytes of claims one may have:
// read, it is up to thirty times as large.
const (
	mostKnown      = 2048
	mostRemembered = 1536
)

// shown is the capability that a request shows, by the text of a token or by its id, if it counts now. It has the token that
// is in force. The text of an older one, from before a renewal, counts no longer than both. With a refusal, the token has at
// least its id, if it is one of the tenant: the text has our signature, or the store has the id.
func (b *Broker) shown(ctx context.Context, p pdp.PresentedCapability) (c store.Capability, err error) {
	sum, keys := recent.Digest(sha256.Sum256([]byte(p.Token))), b.options.Keys.Current()
	if known, ok := b.known.Get(sum); ok && known.keys == keys && known.token.Issuer == b.options.IssuerURL(p.Tenant) {
		c, err := b.Store.UsableState(ctx, known.token.ID)
		if c.Token = known.token; err != nil || c.Digest == known.claims && c.Tenant == p.Tenant {
			return c, err
		}
	}
	if c, err = b.read(ctx, p, keys); err == nil && len(c.Claims) <= mostRemembered {
		b.known.Put(sum, knownToken{c.Token, keys, c.Digest}, mostKnown)
	}
	return c, err
}

// read is shown, of a token that was not shown before.
func (b *Broker) read(ctx context.Context, p pdp.PresentedCapability, keys *signing.Set) (c store.Capability, err error) {
	id, said := p.Token, capability.Token{}
	switch {
	case len(p.Token) > capability.MaxToken:
		return c, &capability.Refusal{Code: capability.TooLarge}
	case p.Token == "":
		return c, &capability.Refusal{Code: capability.Malformed}
	case strings.Contains(p.Token, "."):
		payload, err := keys.Verify(p.Token, capability.TypeToken)
		if err != nil {
			return c, &capability.Refusal{Code: capability.BadSignature}
		}
		var refusal *capability.Refusal
		if said, refusal = capability.ParseClaims(payload); refusal != nil {
			return c, refusal
		}
		if issuer := b.options.IssuerURL(p.Tenant); issuer == "" || said.Issuer != issuer {
			return c, &capability.Refusal{Code: capability.BadSignature}
		}
		id = said.ID
	}
	c, err = b.Store.Usable(ctx, id)
	switch {
	case c.Tenant != "" && c.Tenant != p.Tenant: // as if there was none, whatever became of it
		return store.Capability{}, &capability.Refusal{Code: capability.BadSignature}
	case c.ID == "": // there is none, or it cannot be read
		c.Token.ID = said.ID
	}
	if err != nil {
		return c, err
	}
	if said.ID != "" && said.Expires.Before(c.Token.Expires) {
		c.Token.Expires = said.Expires
	}
	if said.NotBefore.After(c.Token.NotBefore) {
		c.Token.NotBefore = said.NotBefore
	}
	return c, nil
}

// proof checks the proof of a call with a capability, and marks it if it is to be spent.
func (b *Broker) proof(ctx context.Context, c *store.Capability, p pdp.PresentedCapability) (capability.Proof, error) {
	t := c.Token
	call := capability.Call{Proof: p.Proof, Holder: p.Holder, Tool: p.Resource.ID, Arguments: p.Arguments}
	call.Channel.Session = p.Session
	if err := b.clock(); err != nil {
		return capability.Proof{}, err
	}
	terms := b.options.Terms
	proof, refusal := t.CheckCall(call, p.Audiences, p.Now, terms.ProofAge, terms.Skew)
	stale := refusal != nil && refusal.Code == capability.ProofStale
	if stale && p.Approval != "" { // the call may have waited for a person
		proof, refusal = t.CheckCall(call, p.Audiences, p.Now, longestWait, terms.Skew)
	}
	if refusal != nil {
		return proof, refusal
	}
	if !p.Spends {
		if stale {
			return proof, &capability.Refusal{Code: capability.ProofStale}
		}
		return proof, nil
	}
	if hash := proofHash(t.ID, p.Proof); p.Approval != "" &&
		(b.seen.Take(hash, p.Question, p.Approval) || b.seen.TakeOffered(hash, p.Question, p.Tenant, c.Owner())) {
		return proof, nil
	}
	if refusal := b.nonces.Refuse(proof, p.Tenant, c.JKT, p.Now); refusal != nil {
		return proof, refusal
	}
	if stale {
		return proof, &capability.Refusal{Code: capability.ProofStale}
	}
	if err := b.mark(ctx, b.seen, p.Tenant, c.Owner(), c.JKT, proof.ID, proof.IssuedAt); err != nil {
		return proof, err
	}
	if refusal := b.nonces.Refuse(proof, p.Tenant, c.JKT, p.Now); refusal != nil { // it was forgotten meanwhile
		return proof, refusal
	}
	return proof, nil
}

// clock refuses to take a proof while the clock here may be wrong.
func (b *Broker) clock() error {
	if b.options.Clock == nil {
		return nil
	}
	if err := b.options.Clock(); err != nil {
		return &capability.Refusal{Code: capability.ClockSkew}
	}
	return nil
}

// mark marks a proof as seen until it is too old. It refuses one that was seen before. Other processes know it for so long that
// none takes it whose clock differs from that of another by four times the skew, or was put back by the life of a proof.
func (b *Broker) mark(ctx context.Context, in *store.Seen, tenant string, by evaluation.Ref, jkt, id string, issued time.Time) error {
	life, use := b.options.Terms.ProofAge+b.options.Terms.Skew, "call"
	if in == b.asks {
		use = "ask"
	}
	first, err := in.First(ctx, tenant, by, jkt, id, issued.Add(life))
	if err == nil && first {
		first, err = b.Store.First(ctx, use, jkt, id, 2*(life+2*b.options.Terms.Skew))
	}
	switch {
	case errors.Is(err, capability.ErrFull):
		return &capability.Refusal{Code: capability.Unavailable}
	case err == nil && !first:
		return &capability.Refusal{Code: capability.ProofReplayed}
	}
	return err
}

// proofHash is of a proof and the token that it came with.
func proofHash(token, proof string) [sha256.Size]byte {
	return sha256.Sum256([]byte(token + "\x00" + proof))
}

// Reserve implements [pdp.Capabilities].
func (b *Broker) Reserve(
	ctx context.Context, h pdp.HeldCapability, decision string,
) (pdp.Reservation, int, *evaluation.CapabilityAnswer, error) {
	use, err := b.Store.Reserve(ctx, h.ID, decision)
	if err != nil {
		more, err := answerOf(err)
		if more != nil {
			more.ID = h.ID
		}
		return nil, 0, more, err
	}
	return use, use.Left(), nil, nil
}

// keptFor is how long a proof is kept whose approval has no end that is known.
const keptFor = time.Hour

// Keep implements [pdp.Capabilities].
func (b *Broker) Keep(_ context.Context, h pdp.HeldCapability, approval string, until time.Time) {
	if until.IsZero() {
		until = b.now().Add(keptFor)
	}
	p, hash := h.Presented, proofHash(h.ID, h.Presented.Proof)
	if approval == "" {
		b.seen.KeepOffered(hash, p.Question, p.Tenant, h.Owner, until)
		return
	}
	b.seen.Keep(hash, p.Question, approval, until)
}
