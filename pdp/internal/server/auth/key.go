package auth

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"strings"

	"policy-service/evaluation"
)

// An API key is psk_<id>_<secret>: the id is lower-case letters and digits and
// finds the key, the secret is 256 random bits in 43 characters of base64url.
// The prefix is for people and for scanners of repositories.
const (
	// KeyPrefix begins every API key.
	KeyPrefix = "psk_"
	// MaxKeyID bounds the id in a key, in bytes.
	MaxKeyID = 32

	secretLength = 43
)

// KeyID returns the id in a key, or "" if the text has not the form of a key.
func KeyID(key string) string {
	rest, ok := strings.CutPrefix(key, KeyPrefix)
	id, secret, found := strings.Cut(rest, "_")
	if !ok || !found || len(secret) != secretLength || !IsKeyID(id) {
		return ""
	}
	return id
}

// IsKeyID reports whether a text has the form of the id of a key.
func IsKeyID(id string) bool {
	for i := range len(id) {
		if c := id[i]; (c < 'a' || 'z' < c) && (c < '0' || '9' < c) {
			return false
		}
	}
	return 0 < len(id) && len(id) <= MaxKeyID
}

// KeyHash returns what is stored of a key of legal form: nobody can guess 256 random bits, so a plain hash
// keeps them. It allocates nothing.
func KeyHash(key string) [sha256.Size]byte {
	var text [len(KeyPrefix) + MaxKeyID + 1 + secretLength]byte
	return sha256.Sum256(text[:copy(text[:], key)])
}

// CheckHolder checks the permissions, the principal and the way of a key.
func (g Grant) CheckHolder(p Principal, via evaluation.Via) error {
	if err := g.check(); err != nil {
		return err
	}
	switch {
	case g.relays() && g.approves():
		return errors.New("a key that relays what people say says nothing itself; give it relay or approve, and make another key for the other")
	case g.relays() && g.Forwards:
		return errors.New("a key with the permission relay is a gateway's or a console's, which enforces the answers itself; leave relays out, and make another key for a caller that forwards requests")
	case via != "" && via != evaluation.ViaConsole:
		return errors.New("there is no such way for a key to relay votes by; try console, or leave it out for the form of a gateway")
	case via != "" && !g.relays():
		return errors.New("via says by which way votes come that a key relays, and this one relays none; add the permission relay, or leave via out")
	}
	if p != (Principal{}) {
		return p.check()
	}
	if g.approves() {
		return errors.New(`the permission approve needs somebody who approves; add who the holder is to policies, such as --principal 'User::"mia"'`)
	}
	return nil
}

// KeyCaller returns the holder of an API key of that name.
func (g Grant) KeyCaller(name string, p Principal, via evaluation.Via) Caller {
	caller := g.caller(keyCaller + name)
	caller.Principal = p
	if g.relays() {
		caller.Relays = cmp.Or(via, evaluation.ViaForm)
	}
	return caller
}
