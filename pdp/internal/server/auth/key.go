package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// An API key is psk_<id>_<secret>: the id is lower-case letters and digits and
// finds the key, the secret is 256 random bits in 43 characters of base64url.
// The prefix is for people and for scanners of repositories.
const (
	keyPrefix    = "psk_"
	secretLength = 43
	maxIDLength  = 32
)

// newKeyID has 40 random bits: enough that a clash, which is looked for, is rare.
func newKeyID() string { return strings.ToLower(rand.Text()[:8]) }

func newKey(id string) string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails: the process ends instead
	return keyPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret[:])
}

// keyID is the id in a key, "" where it has not the form of one.
func keyID(key string) string {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	id, secret, found := strings.Cut(rest, "_")
	if !ok || !found || len(secret) != secretLength || !isKeyID(id) {
		return ""
	}
	return id
}

func isKeyID(id string) bool {
	for i := range len(id) {
		if c := id[i]; (c < 'a' || 'z' < c) && (c < '0' || '9' < c) {
			return false
		}
	}
	return 0 < len(id) && len(id) <= maxIDLength
}

// keyHash is what is stored: nobody can guess 256 random bits, so a plain hash
// keeps them. It takes a key of legal form, and allocates nothing.
func keyHash(key string) [sha256.Size]byte {
	var text [len(keyPrefix) + maxIDLength + 1 + secretLength]byte
	return sha256.Sum256(text[:copy(text[:], key)])
}
