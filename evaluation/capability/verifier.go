package capability

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/recent"
)

// Keys finds the keys of the service, by their ids. An error is one of finding, such as a server that does not answer;
// a key that is not, or no longer, the service's is not found.
type Keys interface {
	Key(ctx context.Context, kid string) (key ed25519.PublicKey, found bool, err error)
}

// Options of a [Verifier].
type Options struct {
	// Issuer is the iss of the tokens that count.
	Issuer string
	// Audience are the names of this verifier, one of which a proof must be for. If there is none, a proof must be for
	// the server of the tool.
	Audience []string
	// Servers are those behind this verifier, whose tools a token may be for. If there is none, any may be.
	Servers []string
	Keys    Keys
	Now     func() time.Time // [time.Now] if it is nil
	// ProofAge is how old a proof may be, [DefaultProofAge] if it is 0. Skew is how far another clock may be ahead of
	// this one, [DefaultSkew] if it is 0. They are whole seconds.
	ProofAge, Skew time.Duration
}

// How old a proof may be, and how far ahead a clock, where nothing else is said.
const (
	DefaultProofAge = time.Minute
	DefaultSkew     = 10 * time.Second

	maxProofAge, maxSkew = 5 * time.Minute, time.Minute
)

// Verifier checks the calls that go by one gateway. It may be used by several goroutines.
type Verifier struct {
	o     Options
	known recent.Texts[knownToken] // by the digests of their texts
}

// NewVerifier refuses options with which it would check less than they seem to say.
func NewVerifier(o Options) (*Verifier, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.ProofAge, o.Skew = cmp.Or(o.ProofAge, DefaultProofAge), cmp.Or(o.Skew, DefaultSkew)
	within := func(d, most time.Duration) bool { return 0 < d && d <= most && d%time.Second == 0 }
	switch {
	case o.Issuer == "":
		return nil, errors.New("a verifier without an issuer would take tokens of all tenants; set Issuer to the iss of the tenant's tokens")
	case o.Keys == nil:
		return nil, errors.New("a verifier without keys cannot verify; set Keys to those that the service publishes")
	case slices.Contains(o.Audience, ""), slices.Contains(o.Servers, ""):
		return nil, errors.New("an empty name of a verifier or server would fit what names none; leave it out of Audience and Servers")
	case !within(o.ProofAge, maxProofAge), !within(o.Skew, maxSkew):
		return nil, fmt.Errorf("ProofAge and Skew are whole numbers of seconds, up to %v and %v; leave them out for %v and %v", maxProofAge, maxSkew, DefaultProofAge, DefaultSkew)
	}
	o.Audience, o.Servers = slices.Clone(o.Audience), slices.Clone(o.Servers)
	return &Verifier{o: o}, nil
}

// Issuer is the iss of the tokens that count.
func (v *Verifier) Issuer() string { return v.o.Issuer }

// Call is a call of a tool, with what shows that it is covered.
type Call struct {
	Token, Proof string
	// Holder is who calls, by what authenticated them. If its Type is empty, the id alone counts.
	Holder evaluation.Ref
	Tool   string
	// Arguments are as they were sent, null members included: read them with [evaluation.ParseWithNulls].
	Arguments evaluation.Object
	// Channel is the connection of the call.
	Channel Channel
}

// Checked is what was found to cover a call.
type Checked struct {
	Token Token // not to be changed
	Proof Proof
	// Nonce is for the next proof, if each needs one. Only [OfflineVerifier.Verify] gives one.
	Nonce string
}

// Check reports whether a token and its proof cover a call. The error is a [*Refusal], or says that a key could not be
// looked up: then nobody knows, and the call must not go on either. That the proof was not seen before, that its nonce
// is the right one, and that the token was not revoked or used up, only the service can say.
func (v *Verifier) Check(ctx context.Context, c Call) (Checked, error) {
	t, err := v.token(ctx, c)
	if err != nil {
		return Checked{}, err
	}
	p, refusal := t.check(c, v.o.Servers, v.o.Audience, v.o.Now(), v.o.ProofAge, v.o.Skew)
	if refusal != nil { // a nil *Refusal would be an error that is not nil
		return Checked{}, refusal
	}
	return Checked{Token: t, Proof: p}, nil
}

// CheckToken reports whether a token is the service's, and counts now. Which calls it covers is not asked: see
// [Verifier.Check], which has the same errors.
func (v *Verifier) CheckToken(ctx context.Context, text string) (Token, error) {
	t, err := v.token(ctx, Call{Token: text})
	if err != nil {
		return Token{}, err
	}
	if refusal := t.counts(v.o.Now(), v.o.Skew); refusal != nil {
		return Token{}, refusal
	}
	return t, nil
}

// token reads the token of a call. Nothing that it says is believed before its signature was verified.
func (v *Verifier) token(ctx context.Context, c Call) (Token, error) {
	switch {
	case c.Token == "":
		return Token{}, &Refusal{Code: Missing, Audience: serverOf(c.Tool, v.o.Servers), Tool: c.Tool}
	case len(c.Token) > MaxToken:
		return Token{}, &Refusal{Code: TooLarge}
	case !strings.Contains(c.Token, "."): // the id of a token, which the service can look up
		return Token{}, &Refusal{Code: OnlineOnly}
	}
	sum := recent.Digest(sha256.Sum256([]byte(c.Token)))
	if k, ok := v.known.Get(sum); ok {
		public, found, err := v.o.Keys.Key(ctx, k.kid)
		if err == nil && found && public.Equal(k.key) {
			return k.token, nil
		}
	}
	s, ok := splitCompact(c.Token, MaxToken)
	kid, known := keyID(s.header, TypeToken)
	if !ok || !known {
		return Token{}, &Refusal{Code: Malformed}
	}
	key, good, err := verifiedBy(ctx, v.o.Keys, kid, s)
	if err != nil {
		return Token{}, fmt.Errorf("the key of a capability token cannot be looked up: %w", err)
	}
	if !good {
		return Token{}, &Refusal{Code: BadSignature}
	}
	t, refusal := ParseClaims(s.payload)
	if refusal != nil {
		return Token{}, refusal
	}
	if t.Issuer != v.o.Issuer {
		return Token{}, &Refusal{Code: BadSignature}
	}
	v.known.Put(sum, knownToken{t, kid, key}, mostRecent)
	return t, nil
}

// verifiedBy reports whether a key of the service signed something, and which.
func verifiedBy(ctx context.Context, keys Keys, kid string, s compact) (key ed25519.PublicKey, good bool, err error) {
	key, found, err := keys.Key(ctx, kid)
	if err != nil || !found || len(key) != ed25519.PublicKeySize {
		return nil, false, err
	}
	return key, ed25519.Verify(key, []byte(s.signed), s.signature), nil
}

// keyID is the kid of the header of something that the service signed, which has alg, kid and typ, and nothing else.
func keyID(header []byte, typ string) (string, bool) {
	o, err := evaluation.ParseWithNulls(header, wide)
	var r reader
	r.only(o, nil, "alg", "kid", "typ")
	alg, is, kid := r.text(o, maxName, false, "alg"), r.text(o, maxName, false, "typ"), r.text(o, maxName, false, "kid")
	return kid, err == nil && r.err == nil && alg == EdDSA && is == typ
}

// knownToken is a token that was verified before: by which key, so that it ends with the key.
type knownToken struct {
	token Token
	kid   string
	key   ed25519.PublicKey
}

// mostRecent is how many of them are remembered at least, and of keys.
const mostRecent = 2048

// serverOf is the one of the servers that a tool is of, "" if it is of none.
func serverOf(tool string, servers []string) string {
	for _, server := range servers {
		if strings.HasPrefix(tool, server+":") {
			return server
		}
	}
	return ""
}

// CheckCall reports whether a token that is known to be the service's, and its proof, cover a call. The token of the
// call is not read. Audiences are as in [Options]. What [Verifier.Check] leaves to the service is left to it here, too.
func (t Token) CheckCall(c Call, audiences []string, now time.Time, age, skew time.Duration) (Proof, *Refusal) {
	return t.check(c, nil, audiences, now, age, skew)
}

func (t Token) check(c Call, servers, audiences []string, now time.Time, age, skew time.Duration) (Proof, *Refusal) {
	if refusal := t.covers(c, servers, now, skew); refusal != nil {
		if refusal.NextAction() == evaluation.NextRequest {
			refusal.Audience, refusal.Tool = t.Audience, c.Tool
		}
		if refusal.Code == WrongAudience { // for which another token is needed
			refusal.Audience = serverOf(c.Tool, servers)
		}
		return Proof{}, refusal
	}
	if len(audiences) == 0 {
		audiences = []string{t.Audience}
	}
	p, refusal := t.proves(c, audiences, now, age, skew)
	if refusal != nil {
		refusal.Audience = audiences[0]
		return Proof{}, refusal
	}
	return p, nil
}

// counts reports whether it is not the token's time.
func (t Token) counts(now time.Time, skew time.Duration) *Refusal {
	switch at := now.Unix(); {
	case at+seconds(skew) < t.NotBefore.Unix():
		return &Refusal{Code: NotYetValid}
	case at >= t.Expires.Unix():
		return &Refusal{Code: Expired}
	}
	return nil
}

// covers reports what of the token does not fit a call.
func (t Token) covers(c Call, servers []string, now time.Time, skew time.Duration) *Refusal {
	if refusal := t.counts(now, skew); refusal != nil {
		return refusal
	}
	switch {
	case !strings.HasPrefix(c.Tool, t.Audience+":"), len(servers) > 0 && !slices.Contains(servers, t.Audience):
		return &Refusal{Code: WrongAudience}
	case c.Holder.ID != t.Holder.ID, c.Holder.Type != "" && c.Holder.Type != t.Holder.Type:
		return &Refusal{Code: WrongHolder}
	case len(t.Layers) == 0:
		return &Refusal{Code: ToolNotCovered}
	}
	for _, layer := range t.Layers {
		if refusal := layer.Admits(c.Tool, c.Arguments); refusal != nil {
			return refusal
		}
	}
	if t.Session != "" && c.Channel.Hash() != t.Session {
		return &Refusal{Code: ChannelMismatch}
	}
	return nil
}

// proves reads the proof of a call.
func (t Token) proves(c Call, audiences []string, now time.Time, age, skew time.Duration) (Proof, *Refusal) {
	if c.Proof == "" {
		return Proof{}, &Refusal{Code: ProofMissing}
	}
	p, refusal := ParseProof(c.Proof, t.Key)
	if refusal != nil {
		return Proof{}, refusal
	}
	hash, refusal := HashArguments(c.Arguments)
	switch {
	case !slices.Contains(audiences, p.Audience):
		return Proof{}, &Refusal{Code: ProofWrongAudience}
	case p.Capability != t.ID, p.Tool != c.Tool:
		return Proof{}, &Refusal{Code: ProofWrongCall}
	case refusal != nil:
		return Proof{}, refusal
	case p.Arguments != hash:
		return Proof{}, &Refusal{Code: ProofWrongCall}
	case !window(p.IssuedAt, now, age, skew):
		return Proof{}, &Refusal{Code: ProofStale}
	}
	return p, nil
}
