package capability_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// The world of these tests: one service, one gateway, two agents, and a clock that stands.
const (
	issuer  = "https://pdp.example.com/tenants/tenant-xyz"
	gateway = "https://gw1.example.com"
	tool    = "agent-b:dangerous_operation"
	start   = 1763650000
)

var (
	now     = time.Unix(start+300, 0).UTC()
	service = seeded(1)
	agent   = newHolder(seeded(2))
	thief   = newHolder(seeded(3))
	agentEC = newHolder(repeatable{scalar(4)})
)

func seeded(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
}

func scalar(b byte) *ecdsa.PrivateKey {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{b}, 32))
	if err != nil {
		panic(err)
	}
	return key
}

// repeatable makes the same signature each time (RFC 6979).
type repeatable struct{ *ecdsa.PrivateKey }

func (k repeatable) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return k.PrivateKey.Sign(nil, digest, opts)
}

func newHolder(signer crypto.Signer) *capability.Holder {
	h, err := capability.NewHolder(signer)
	if err != nil {
		panic(err)
	}
	return h
}

func kidOf(key ed25519.PrivateKey) string { return newHolder(key).Key().Thumbprint() }

// keys are the service's, by their ids.
type keys map[string]ed25519.PublicKey

var errNoAnswer = errors.New("the service does not answer")

func (k keys) Key(_ context.Context, kid string) (ed25519.PublicKey, bool, error) {
	if kid == "unreachable" {
		return nil, false, errNoAnswer
	}
	key, found := k[kid]
	return key, found, nil
}

var published = keys{kidOf(service): service.Public().(ed25519.PublicKey)}

// parsed is arguments as a gateway reads them.
func parsed(text string) evaluation.Object {
	limits := evaluation.DefaultLimits()
	o, err := evaluation.ParseWithNulls([]byte(text), limits)
	if err != nil {
		panic(err)
	}
	return o
}

func value(text string) evaluation.Value {
	v, _ := parsed(`{"v":` + text + `}`).Lookup("v")
	return v
}

func constraint(text string) capability.Constraint {
	c, err := capability.ParseConstraint(value(text))
	if err != nil {
		panic(err)
	}
	return c
}

// granted is a token for the agent, as a change leaves it.
func granted(change func(*capability.Token)) capability.Token {
	t := capability.Token{
		Issuer: issuer, Audience: "agent-b", ID: "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e",
		Holder: evaluation.Ref{Type: "agent", ID: "agent-a"}, Key: agent.Key(),
		IssuedAt: time.Unix(start, 0).UTC(), NotBefore: time.Unix(start, 0).UTC(), Expires: time.Unix(start+3600, 0).UTC(),
		Layers: []capability.Layer{{
			Tools:     []string{tool, "agent-b:read_file"},
			Arguments: capability.Arguments{"target": constraint(`"staging"`), "*": constraint(`{"constraint_type":"wildcard"}`)},
		}},
		Verify: capability.Online,
	}
	if change != nil {
		change(&t)
	}
	return t
}

// signed is a token as the service signs it, with the library that it does that with.
func signed(t capability.Token) string {
	claims, err := t.Claims()
	if err != nil {
		panic(err)
	}
	return signedBy(service, kidOf(service), capability.TypeToken, string(claims))
}

func signedBy(key ed25519.PrivateKey, kid, typ, payload string) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: kid}},
		new(jose.SignerOptions).WithType(jose.ContentType(typ)))
	if err != nil {
		panic(err)
	}
	s, err := signer.Sign([]byte(payload))
	if err != nil {
		panic(err)
	}
	text, err := s.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

func b64(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// raw signs whatever header and payload.
func raw(key ed25519.PrivateKey, header, payload string) string {
	text := b64(header) + "." + b64(payload)
	return text + "." + b64(string(ed25519.Sign(key, []byte(text))))
}

// segments are those of a JWS, decoded.
func segments(jws string) (header, payload, signature string) {
	all := strings.Split(jws, ".")
	for n := range all {
		b, err := base64.RawURLEncoding.DecodeString(all[n])
		if err != nil {
			panic(err)
		}
		all[n] = string(b)
	}
	return all[0], all[1], all[2]
}

// claim is what the agent proves of a call.
func claim(arguments string) capability.Claim {
	return capability.Claim{
		Capability: granted(nil).ID, Audience: gateway, Tool: tool, Arguments: parsed(arguments), IssuedAt: now, ID: "proof-0123456789abcdef",
	}
}

func proved(h *capability.Holder, c capability.Claim) string {
	text, err := h.Prove(c)
	if err != nil {
		panic(err)
	}
	return text
}

func verifier(change func(*capability.Options)) *capability.Verifier {
	o := capability.Options{
		Issuer: issuer, Audience: []string{gateway}, Servers: []string{"agent-b"}, Keys: published,
		Now: func() time.Time { return now },
	}
	if change != nil {
		change(&o)
	}
	v, err := capability.NewVerifier(o)
	if err != nil {
		panic(err)
	}
	return v
}

// codeOf is the code of a refusal, "" of none.
func codeOf(t testing.TB, err error) capability.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	var r *capability.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("%v is no refusal", err)
	}
	return r.Code
}
