package capability

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"time"

	"policy-service/evaluation"
)

type Constraint struct{ kind string }

func ParseConstraint(v evaluation.Value) (Constraint, error) { panic("soon") }
func (c Constraint) Holds(v evaluation.Value) bool           { panic("soon") }
func (c Constraint) Kind() string                            { panic("soon") }
func (c Constraint) ScalarExact() (evaluation.Value, bool)   { panic("soon") }
func (c Constraint) Value() evaluation.Value                 { panic("soon") }
func (c Constraint) MarshalJSON() ([]byte, error)            { panic("soon") }

type Arguments map[string]Constraint

type Layer struct {
	Tools     []string
	Arguments Arguments
}

func (l Layer) Admits(tool string, arguments evaluation.Object) *Refusal { panic("soon") }

const (
	TypeToken   = "cap+jwt"
	TypeProof   = "cap-proof+jwt"
	TypeRequest = "cap-request+jwt"
)

type Token struct {
	Issuer, Audience, ID         string
	Holder                       evaluation.Ref
	IssuedAt, NotBefore, Expires time.Time
	Key                          Key
	Layers                       []Layer
	MaxUses                      int
	Verify                       string
	Parent                       string
	Depth, MaxDepth              int
	Grantor                      *evaluation.Ref
}

func (t Token) Claims() ([]byte, error)         { panic("soon") }
func ParseClaims(text []byte) (Token, *Refusal) { panic("soon") }
func (t Token) CheckCall(c Call, audiences []string, now time.Time, age, skew time.Duration) (Proof, *Refusal) {
	panic("soon")
}

type Proof struct {
	Capability, Audience, Tool string
	Arguments                  string
	IssuedAt                   time.Time
	ID, Nonce                  string
	Algorithm, Signature       string
}

func HashArguments(arguments evaluation.Object) (string, *Refusal) { panic("soon") }
func ParseProof(text string, key Key) (Proof, *Refusal)            { panic("soon") }
func (p Proof) Text() string                                       { panic("soon") }
func (p Proof) SignedText() string                                 { panic("soon") }
func (p Proof) VerifiedBy(key Key) bool                            { panic("soon") }

type Ask struct {
	Tenant                string
	Holder                evaluation.Ref
	Properties            evaluation.Object // of the holder
	Audience              string
	Tools                 []string
	Duration              time.Duration
	ValidFrom, ValidUntil time.Time
	MaxUses               int
	Arguments             Arguments
	Reason                string
	Key                   Key
	Proof                 string
	ApprovalID            string
}

func DecodeAsk(body []byte, limits evaluation.Limits) (Ask, error) { panic("soon") }
func (a Ask) MarshalJSON() ([]byte, error)                         { panic("soon") }
func (a Ask) Digest() string                                       { panic("soon") }
func (a Ask) CheckProof(issuer string, now time.Time, age, skew time.Duration) (jti string, iat time.Time, r *Refusal) {
	panic("soon")
}

type Holder struct {
	signer crypto.Signer
	key    Key
}

type Claim struct {
	Capability, Audience, Tool string
	Arguments                  evaluation.Object
	IssuedAt                   time.Time
	ID, Nonce                  string
}

func NewHolder(signer crypto.Signer) (*Holder, error)                     { panic("soon") }
func (h *Holder) Key() Key                                                { return h.key }
func (h *Holder) Prove(c Claim) (string, error)                           { panic("soon") }
func (h *Holder) Request(a *Ask, issuer string, at time.Time) (err error) { panic("soon") }

type Keys interface {
	Key(ctx context.Context, kid string) (key ed25519.PublicKey, found bool, err error)
}

type Options struct {
	Issuer         string
	Audience       []string
	Servers        []string
	Keys           Keys
	Now            func() time.Time
	ProofAge, Skew time.Duration
}

type Verifier struct{ o Options }

type Call struct {
	Token, Proof string
	Holder       evaluation.Ref
	Tool         string
	Arguments    evaluation.Object
}

type Checked struct {
	Token Token
	Proof Proof
}

func NewVerifier(o Options) (*Verifier, error)                         { panic("soon") }
func (v *Verifier) Check(ctx context.Context, c Call) (Checked, error) { panic("soon") }
