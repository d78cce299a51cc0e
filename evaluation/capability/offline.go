package capability

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Status finds out whether a token still counts.
type Status interface {
	// Of is the state of the token that has a place in a status list. An error means that this cannot be known now.
	Of(ctx context.Context, at Listed) (State, error)
}

// OfflineOptions are those of an [OfflineVerifier].
type OfflineOptions struct {
	// Options must have an Audience: without a name, a proof for this verifier would be one for others, too.
	Options
	Status Status
	Seen   Seen // a [Memory] if it is nil
	// Alone says that no other process verifies for one of the Audience, or that all of them have one Seen that outlives
	// them. Otherwise each proof needs a nonce of this verifier: else each of them would take it once.
	Alone bool
	// Before is for a verifier that is Alone with a Memory: the latest that the clock showed to the one that ran before it, or
	// the present time if there was none. That one forgot its proofs, and its clock may have been ahead. Keep the time once a
	// second.
	Before time.Time
	// Elapsed is that of the Memory: the machine's if it is nil.
	Elapsed func() time.Duration
}

// OfflineVerifier verifies the calls that go by a gateway that asks no service about them. It may be used by several
// goroutines.
type OfflineVerifier struct {
	verifier *Verifier
	status   Status
	seen     Seen
	nonces   *Nonces
}

// NewOfflineVerifier refuses options with which it would check less than they seem to say.
func NewOfflineVerifier(o OfflineOptions) (*OfflineVerifier, error) {
	v, err := NewVerifier(o.Options)
	switch {
	case err != nil:
		return nil, err
	case len(o.Audience) == 0:
		return nil, errors.New("a verifier without a name would take the proofs for others; set Audience to the name of this one")
	case o.Status == nil:
		return nil, errors.New("a verifier without status lists would take what was revoked; set Status to those of the service")
	case o.Alone && o.Seen == nil && o.Before.IsZero():
		return nil, errors.New("a verifier that forgets its proofs at a restart might take one again if the clock was ahead before; " +
			"set Before to the last time of its clock, or leave Alone out")
	}
	nonces := NewNonces(NonceOptions{Now: v.o.Now, Before: o.Before, Age: v.o.ProofAge, Skew: v.o.Skew, Always: !o.Alone})
	if o.Seen == nil {
		o.Seen = NewMemory(MemoryOptions{
			Now: v.o.Now, Elapsed: o.Elapsed, Life: v.o.ProofAge + v.o.Skew, Forgot: nonces.Forgot, PerTenant: mostSeen,
		})
	}
	return &OfflineVerifier{v, o.Status, o.Seen, nonces}, nil
}

// Verify is [Verifier.Check], and all that it leaves to the service: the token was not revoked or suspended, and the proof
// was not taken before. It is taken by this, whatever becomes of the call. The error is a [*Refusal], or wraps one, or says
// that a key could not be looked up: the call must not go on.
//
// No policy is asked about the call: policies are in what was granted, and in what was suspended since. A token whose uses
// are counted is refused, as is any that was not granted for this.
func (v *OfflineVerifier) Verify(ctx context.Context, c Call) (Checked, error) {
	checked, err := v.verifier.Check(ctx, c)
	if err == nil {
		err = v.take(ctx, &checked)
	}
	if err != nil {
		return Checked{}, err
	}
	return checked, nil
}

var stateCodes = map[State]Code{StateInvalid: Revoked, StateSuspended: Suspended}

func (v *OfflineVerifier) take(ctx context.Context, c *Checked) error {
	t, p := &c.Token, &c.Proof
	if t.Verify != Offline {
		return &Refusal{Code: OnlineOnly}
	}
	state, err := v.status.Of(ctx, t.Status)
	switch code := stateCodes[state]; {
	case err != nil:
		return fmt.Errorf("%w: %w", &Refusal{Code: StatusStale}, err)
	case code != "":
		return &Refusal{Code: code, Audience: t.Audience, Tool: p.Tool}
	case state != StateValid:
		return &Refusal{Code: StatusStale}
	}
	o := &v.verifier.o
	now, jkt := o.Now(), t.Key.Thumbprint()
	if refusal := t.counts(now, o.Skew); refusal != nil { // to find out the state may have taken a while
		return refusal
	}
	if refusal := v.nonces.Refuse(*p, t.Issuer, jkt, now); refusal != nil {
		refusal.Audience = p.Audience
		return refusal
	}
	if v.nonces.o.Always {
		c.Nonce = v.nonces.New(t.Issuer, jkt, now)
	}
	first, err := v.seen.First(ctx, t.Issuer, t.Holder, ProofKey(jkt, p.ID), p.IssuedAt.Add(o.ProofAge+o.Skew))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", &Refusal{Code: Unavailable}, err)
	case !first:
		return &Refusal{Code: ProofReplayed, Audience: p.Audience}
	}
	if refusal := v.nonces.Refuse(*p, t.Issuer, jkt, now); refusal != nil { // it was forgotten meanwhile
		refusal.Audience = p.Audience
		return refusal
	}
	return nil
}
