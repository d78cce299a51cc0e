package capability

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"policy-service/evaluation"
	"policy-service/evaluation/recent"
)

// Key is the public key of a holder: Ed25519, or ECDSA with P-256. The zero Key is none, and verifies nothing.
type Key struct {
	algorithm string
	ed25519   ed25519.PublicKey
	p256      *ecdsa.PublicKey
}

// The algorithms of JOSE that the keys sign with.
const EdDSA, ES256 = "EdDSA", "ES256"

// base64url is that of JOSE. Strict refuses unused bits at the end, which would give one token many texts.
var base64url = base64.RawURLEncoding.Strict()

// NewKey takes a public key of the standard library.
func NewKey(public crypto.PublicKey) (k Key, err error) {
	switch public := public.(type) {
	case ed25519.PublicKey:
		k.ed25519 = public
	case *ecdsa.PublicKey:
		if public != nil && public.Curve == elliptic.P256() {
			k.p256 = public
		}
	}
	text, err := k.MarshalJSON()
	if err != nil {
		return Key{}, errors.New("a holder's key is neither of Ed25519 nor of P-256; make an Ed25519 key")
	}
	return ParseKey(text) // which copies it, and finds what is no point
}

// ParseKey reads a public JSON Web Key (RFC 7517). Its members that say nothing about the key are passed over.
func ParseKey(text []byte) (Key, error) {
	o, err := evaluation.ParseObject(text, wide)
	if err != nil {
		return Key{}, err
	}
	return keyOf(o)
}

func keyOf(o evaluation.Object) (Key, error) {
	member := func(name string) string {
		if v, _ := o.Get(name); v.Kind() == evaluation.String {
			return v.Text()
		}
		return "" // a number of 43 digits would be base64, too
	}
	for _, private := range []string{"d", "k", "p", "q", "dp", "dq", "qi", "oth"} {
		if _, there := o.Lookup(private); there {
			return Key{}, errors.New("the key is private or symmetric; send the public half alone, and make a new key: this one was shown")
		}
	}
	if use, there := o.Get("use"); there && use.Text() != "sig" {
		return Key{}, errors.New("the key is not for signatures; send one whose use is sig")
	}
	coordinate := func(name string) []byte {
		if b, err := base64url.DecodeString(member(name)); err == nil && len(b) == 32 {
			return b
		}
		return nil
	}
	var key Key
	switch x, y := coordinate("x"), coordinate("y"); {
	case member("kty") == "OKP" && member("crv") == "Ed25519":
		if x == nil || !isPoint(x) {
			return Key{}, errors.New("x is no point of Ed25519 that can be a key; send the key as your library writes it")
		}
		key = Key{algorithm: EdDSA, ed25519: x}
	case member("kty") == "EC" && member("crv") == "P-256":
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if err != nil {
			return Key{}, errors.New("x and y are no point of P-256; send the key as your library writes it")
		}
		key = Key{algorithm: ES256, p256: public}
	default:
		return Key{}, errors.New("the key is of another kind than Ed25519 (kty OKP) and P-256 (kty EC); make an Ed25519 key")
	}
	if alg, there := o.Get("alg"); there && alg.Text() != key.Algorithm() {
		return Key{}, fmt.Errorf("alg does not fit the key, which signs with %s", key.Algorithm())
	}
	return key, nil
}

// points are those that were found to be good: a holder has one key, and many tokens.
var points recent.Texts[bool]

func isPoint(b []byte) bool {
	key := recent.Digest(sha256.Sum256(b))
	if good, known := points.Get(key); known {
		return good
	}
	good := onEdwards25519(b)
	if good {
		points.Put(key, good, mostRecent)
	}
	return good
}

// onEdwards25519 reports whether 32 bytes are the y of a point on the curve, whose order is not small: with a key of
// small order, signatures can be made without its private half. A point is on the curve if x² = (y²-1)/(dy²+1) has a
// solution. It is of small order if y is 0 or x is (orders 1, 2 and 4), or if x² = -y² (order 8).
func onEdwards25519(b []byte) bool {
	b = slices.Clone(b)
	slices.Reverse(b)
	b[0] &= 0x7f // the sign of x
	one, p := big.NewInt(1), edwards25519.p
	y := new(big.Int).SetBytes(b)
	if y.Sign() == 0 || y.Cmp(p) >= 0 {
		return false
	}
	y2 := new(big.Int).Mul(y, y)
	u := new(big.Int).Sub(y2, one)
	v := new(big.Int).Mul(edwards25519.d, y2)
	v.Add(v, one).Mod(v, p)
	eight := new(big.Int).Mul(v, y2)
	if eight.Add(eight, u).Mod(eight, p).Sign() == 0 {
		return false
	}
	return big.Jacobi(u.Mul(u, v).Mod(u, p), p) == 1 // 0 is x = 0
}

// edwards25519 is the field of the curve and its constant d = -121665/121666 (RFC 8032, section 5.1).
var edwards25519 = func() (c struct{ p, d *big.Int }) {
	c.p = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	c.d = new(big.Int).ModInverse(big.NewInt(121666), c.p)
	c.d.Mul(c.d, big.NewInt(-121665)).Mod(c.d, c.p)
	return c
}()

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.algorithm == "" }

// Algorithm is the only one that the key signs with.
func (k Key) Algorithm() string { return k.algorithm }

// Thumbprint is that of RFC 7638, with SHA-256, in base64url.
func (k Key) Thumbprint() string {
	text, err := k.MarshalJSON()
	if err != nil {
		return ""
	}
	return digest(text)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return base64url.EncodeToString(sum[:])
}

// MarshalJSON writes the required members alone, in the order in which the thumbprint has them.
func (k Key) MarshalJSON() ([]byte, error) {
	switch {
	case k.ed25519 != nil:
		return fmt.Appendf(nil, `{"crv":"Ed25519","kty":"OKP","x":"%s"}`, base64url.EncodeToString(k.ed25519)), nil
	case k.p256 != nil:
		point, err := k.p256.Bytes()
		if err != nil {
			return nil, err
		}
		x, y := base64url.EncodeToString(point[1:33]), base64url.EncodeToString(point[33:])
		return fmt.Appendf(nil, `{"crv":"P-256","kty":"EC","x":"%s","y":"%s"}`, x, y), nil
	}
	return nil, errors.New("there is no key to write; make one with NewKey or ParseKey")
}

// UnmarshalJSON is [ParseKey].
func (k *Key) UnmarshalJSON(text []byte) (err error) {
	*k, err = ParseKey(text)
	return err
}

// verifies reports whether a signature in the form of JOSE is by the key. Of one by P-256 anybody can make a second
// one, so that a proof counts once by its id, and not by its text.
func (k Key) verifies(signed string, signature []byte) bool {
	switch {
	case len(signature) != 64:
		return false
	case k.ed25519 != nil:
		return ed25519.Verify(k.ed25519, []byte(signed), signature)
	case k.p256 != nil:
		sum := sha256.Sum256([]byte(signed))
		r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
		return ecdsa.Verify(k.p256, sum[:], r, s)
	}
	return false
}
