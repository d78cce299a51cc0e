package capability

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"time"

	"policy-service/evaluation"
)

// Holder makes the proofs of whoever holds a key.
type Holder struct {
	signer crypto.Signer
	key    Key
}

// NewHolder takes a key of Ed25519 or P-256, which may be in hardware.
func NewHolder(signer crypto.Signer) (*Holder, error) {
	if signer == nil {
		return nil, errors.New("a holder needs a key to sign with; make one with ed25519.GenerateKey")
	}
	key, err := NewKey(signer.Public())
	return &Holder{signer, key}, err
}

// Key is the public key, which tokens are bound to.
func (h *Holder) Key() Key { return h.key }

// Claim says what a proof is to prove: that the holder makes this call now.
type Claim struct {
	Capability string // the id of the token
	Audience   string // the name of who verifies
	Tool       string
	Arguments  evaluation.Object // read with [evaluation.ParseWithNulls]
	IssuedAt   time.Time         // now, if it is zero
	ID         string            // a new one, if it is empty
	Nonce      string            // the one of the last answer or refusal, if there was one
}

// Prove makes the proof of one call. A second call needs a second proof.
func (h *Holder) Prove(c Claim) (string, error) {
	if c.Capability == "" || c.Audience == "" || c.Tool == "" {
		return "", errors.New("a proof needs the token's id, an audience and a tool; fill them in")
	}
	hash, refusal := HashArguments(c.Arguments)
	if refusal != nil {
		return "", refusal
	}
	p := Proof{
		Capability: c.Capability, Audience: c.Audience, Tool: c.Tool, Arguments: hash,
		IssuedAt: c.IssuedAt, ID: cmp.Or(c.ID, rand.Text()), Nonce: c.Nonce, Algorithm: h.key.Algorithm(),
	}
	if p.IssuedAt.IsZero() {
		p.IssuedAt = time.Now()
	}
	proof, err := h.sign(p.SignedText())
	if err != nil {
		return "", err
	}
	if _, refusal := ParseProof(proof, h.key); refusal != nil {
		return "", fmt.Errorf("the proof would be refused: an id has %d to %d visible ASCII characters, another member %d bytes at most, and the key has to sign by its own public half", leastID, mostID, maxURL)
	}
	return proof, nil
}

// Request adds the holder's key to what is asked for, and a proof for the service of that name that the holder has it.
func (h *Holder) Request(a *Ask, issuer string, at time.Time) error {
	asked := *a
	asked.Key = h.key
	return h.ask(a, asked, issuer, at)
}

// HandOn adds to what is asked for, of a capability of the holder, that another holder is to have it, whose Key is in it
// already; and the proof that this holder hands it on.
func (h *Holder) HandOn(a *Ask, parent, issuer string, at time.Time) error {
	asked := *a
	asked.Parent, asked.Giver = parent, h.key
	return h.ask(a, asked, issuer, at)
}

func (h *Holder) ask(a *Ask, asked Ask, issuer string, at time.Time) error {
	var err error
	payload := requestPayload(issuer, at.Unix(), rand.Text(), asked.Digest())
	if asked.Proof, err = h.sign(signedText(header(h.key.Algorithm(), TypeRequest), payload)); err != nil {
		return err
	}
	if _, err := DecodeAsk(text(asked), evaluation.DefaultLimits()); err != nil {
		return fmt.Errorf("the service would not take this request: %w", err)
	}
	if _, _, refusal := asked.CheckProof(issuer, at, 0, 0); refusal != nil {
		return errors.New("the proof would be refused; see that the key signs by its own public half")
	}
	*a = asked
	return nil
}

// sign adds the signature to what is signed.
func (h *Holder) sign(signed string) (string, error) {
	signature, err := h.signature(signed)
	if err != nil {
		return "", fmt.Errorf("the holder's key did not sign: %w", err)
	}
	return signed + "." + base64url.EncodeToString(signature), nil
}

// signature is in the form of JOSE. Signers return that of ECDSA in ASN.1.
func (h *Holder) signature(signed string) ([]byte, error) {
	if h.key.p256 == nil {
		return h.signer.Sign(rand.Reader, []byte(signed), crypto.Hash(0))
	}
	sum := sha256.Sum256([]byte(signed))
	der, err := h.signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &pair); err != nil {
		return nil, err
	}
	if pair.R.BitLen() > 256 || pair.S.BitLen() > 256 {
		return nil, errors.New("the signature is not one of P-256")
	}
	signature := make([]byte, 64)
	pair.R.FillBytes(signature[:32])
	pair.S.FillBytes(signature[32:])
	return signature, nil
}
