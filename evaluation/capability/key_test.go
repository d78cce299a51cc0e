package capability_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation/capability"
)

// TestKeys holds keys to go-jose: their text, their thumbprint and their algorithm.
func TestKeys(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]crypto.Signer{capability.EdDSA: seeded(2), capability.ES256: scalar(4)} {
		k := newHolder(key).Key()
		other := jose.JSONWebKey{Key: key.Public()}
		sum, err := other.Thumbprint(crypto.SHA256)
		if err != nil || k.Thumbprint() != base64.RawURLEncoding.EncodeToString(sum) || k.Algorithm() != name {
			t.Errorf("%s: thumbprint %s, algorithm %s, %v", name, k.Thumbprint(), k.Algorithm(), err)
		}
		text, err := other.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(text), strings.Replace(string(text), "{", `{"kid":"a","use":"sig","alg":"`+name+`","x5c":[],`, 1)} {
			again, err := capability.ParseKey([]byte(text))
			if err != nil || again.Thumbprint() != k.Thumbprint() {
				t.Errorf("%s: %v", text, err)
			}
		}
		var through struct{ Key capability.Key }
		if err := json.Unmarshal([]byte(`{"Key":`+string(text)+`}`), &through); err != nil || through.Key.Thumbprint() != k.Thumbprint() {
			t.Errorf("encoding/json: %v", err)
		}
	}
	// RFC 8037, appendix A.
	k, err := capability.ParseKey([]byte(`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`))
	if err != nil || k.Thumbprint() != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Errorf("that of the RFC: %s, %v", k.Thumbprint(), err)
	}
}

// smallOrder are all encodings of points of Ed25519 whose order divides 8, and those of them that are not canonical.
var smallOrder = []string{
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0000000000000000000000000000000000000000000000000000000000000080",
	"0000000000000000000000000000000000000000000000000000000000000000",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0100000000000000000000000000000000000000000000000000000000000080",
	"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
}

func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	ed, ec := string(marshal(agent.Key())), string(marshal(agentEC.Key()))
	bad := []string{
		``, `5`, `[]`, `{}`, `{"kty":"OKP"}`, ed + ed, `{"kty":"OKP","crv":"Ed25519","x":5}`,
		strings.Replace(ed, "{", `{"d":"AAAA",`, 1), strings.Replace(ed, "{", `{"k":"AAAA",`, 1), strings.Replace(ec, "{", `{"d":"AAAA",`, 1),
		strings.Replace(ed, "{", `{"use":"enc",`, 1), strings.Replace(ed, "{", `{"use":5,`, 1), strings.Replace(ed, "{", `{"alg":"ES256",`, 1), strings.Replace(ec, "{", `{"alg":"EdDSA",`, 1),
		strings.Replace(ed, "{", `{"kty":"OKP",`, 1),
		strings.Replace(ed, "Ed25519", "X25519", 1), strings.Replace(ed, "Ed25519", "Ed448", 1), strings.Replace(ec, "P-256", "P-384", 1), strings.Replace(ec, "P-256", "secp256k1", 1),
		strings.Replace(ed, "OKP", "EC", 1), strings.Replace(ec, "EC", "OKP", 1), strings.Replace(ed, "OKP", "oct", 1), strings.Replace(ed, "OKP", "RSA", 1), strings.Replace(ed, "OKP", "okp", 1),
		strings.Replace(ed, xOf(agent.Key()), xOf(agent.Key())[1:], 1), strings.Replace(ed, xOf(agent.Key()), xOf(agent.Key())+"=", 1), strings.Replace(ed, xOf(agent.Key()), unusedBits(xOf(agent.Key())), 1),
		strings.Replace(ec, xOf(agentEC.Key()), xOf(agent.Key()), 1), // no point of the curve
		`{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}`,
		`{"kty":"oct","k":"AAAA"}`, `{"kty":"OKP","crv":"Ed25519","x":"` + strings.Repeat("A", 1<<20) + `"}`,
	}
	for _, point := range smallOrder {
		b, err := hex.DecodeString(point)
		if err != nil {
			t.Fatal(err)
		}
		bad = append(bad, `{"kty":"OKP","crv":"Ed25519","x":"`+base64.RawURLEncoding.EncodeToString(b)+`"}`)
	}
	for _, text := range bad {
		k, err := capability.ParseKey([]byte(text))
		if err == nil || !k.IsZero() || k.Thumbprint() != "" || k.Algorithm() != "" {
			t.Errorf("%.200s: taken as %q, %v", text, k.Thumbprint(), err)
		}
		if err != nil && (strings.Contains(err.Error(), xOf(agent.Key())) || strings.Contains(err.Error(), "AAAA")) {
			t.Errorf("the error quotes the key: %v", err)
		}
	}
	if _, err := (capability.Key{}).MarshalJSON(); err == nil {
		t.Error("no key has JSON")
	}
}

// TestEveryKeyIsTaken: half of all bytes are no point, and every key that was made is one. Go's Ed25519 is the judge:
// it verifies nothing by what is no point.
func TestEveryKeyIsTaken(t *testing.T) {
	t.Parallel()
	none := 0
	for n := range 200 {
		seed := bytes.Repeat([]byte{byte(n)}, 32)
		if _, err := capability.NewKey(ed25519.NewKeyFromSeed(seed).Public()); err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
		point := slices.Clone(ed25519.NewKeyFromSeed(seed)[32:])
		point[5] ^= byte(n + 1)
		if _, err := capability.NewKey(ed25519.PublicKey(point)); err != nil {
			none++
		}
	}
	if none < 60 || none > 140 {
		t.Errorf("of 200 random points, %d are none", none)
	}
}

// broken signs with another key than its own.
type broken struct {
	crypto.Signer
	by crypto.Signer
}

func (b broken) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if b.by == nil {
		return []byte("no ASN.1"), nil
	}
	if key, ok := b.by.(ed25519.PrivateKey); ok && key == nil {
		return nil, errors.New("no answer")
	}
	return b.by.Sign(r, digest, opts)
}

func TestHolders(t *testing.T) {
	t.Parallel()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, signer := range []crypto.Signer{nil, p384, weak} {
		if _, err := capability.NewHolder(signer); err == nil || !strings.Contains(err.Error(), ";") {
			t.Errorf("%T: %v", signer, err)
		}
	}
	for _, signer := range []crypto.Signer{
		broken{seeded(2), seeded(3)}, broken{scalar(4), scalar(5)}, broken{scalar(4), nil}, broken{scalar(4), p384}, broken{seeded(2), nil}, broken{scalar(4), ed25519.PrivateKey(nil)},
	} {
		if _, err := newHolder(signer).Prove(claim(`{}`)); err == nil {
			t.Errorf("%T made a proof", signer)
		}
		a := wanted(nil)
		if err := newHolder(signer).Request(&a, issuer, now); err == nil || a.Proof != "" {
			t.Errorf("%T made the proof of a request", signer)
		}
	}
	for name, change := range map[string]func(*capability.Claim){
		"no capability": func(c *capability.Claim) { c.Capability = "" },
		"no audience":   func(c *capability.Claim) { c.Audience = "" },
		"no tool":       func(c *capability.Claim) { c.Tool = "" },
		"short id":      func(c *capability.Claim) { c.ID = "short" },
		"long nonce":    func(c *capability.Claim) { c.Nonce = strings.Repeat("n", 3000) },
		"unprovable":    func(c *capability.Claim) { c.Arguments = parsed(`{"n":1e999}`) },
	} {
		c := claim(`{}`)
		change(&c)
		if _, err := agent.Prove(c); err == nil {
			t.Errorf("%s: a proof was made", name)
		}
	}
	c := claim(`{}`)
	c.ID, c.IssuedAt = "", now.AddDate(0, 0, 0)
	if one, two := proved(agent, c), proved(agent, c); one == two {
		t.Error("two proofs have one id")
	}
}

// TestProofsOfOthers: go-jose verifies our proofs.
func TestProofsOfOthers(t *testing.T) {
	t.Parallel()
	for _, h := range []*capability.Holder{agent, agentEC} {
		text := proved(h, claim(staging))
		var public jose.JSONWebKey
		if err := public.UnmarshalJSON(marshal(h.Key())); err != nil {
			t.Fatal(err)
		}
		s, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.EdDSA, jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Verify(public); err != nil {
			t.Errorf("%s: %v", h.Key().Algorithm(), err)
		}
		p, refusal := capability.ParseProof(text, h.Key())
		if refusal != nil || p.Text() != text || !p.VerifiedBy(h.Key()) || p.VerifiedBy(thief.Key()) {
			t.Errorf("%+v, %v", p, refusal)
		}
		for _, change := range []func(*capability.Proof){
			func(p *capability.Proof) { p.Tool += "x" }, func(p *capability.Proof) { p.Nonce = "n" }, func(p *capability.Proof) { p.IssuedAt = p.IssuedAt.Add(1e9) },
			func(p *capability.Proof) { p.Algorithm = "none" }, func(p *capability.Proof) { p.Signature = p.Signature[1:] + "A" }, func(p *capability.Proof) { p.Signature = "" },
		} {
			other := p
			change(&other)
			if other.VerifiedBy(h.Key()) {
				t.Errorf("verified: %+v", other)
			}
		}
	}
}
