package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"policy-service/pdp/internal/plainfile"
)

// TokenFile is a file with a bearer token that lets its holder do one thing; "" is none. The token is no credential: nothing
// else takes it, and with it alone nobody may ask. It is read for each request, so the token of now is the only one.
type TokenFile string

// A token is at least as long as 32 random bytes in hex are secret, and fits into a header.
const shortestToken, longestToken = 32, 4 << 10

// Check says why no token can be in the file.
func (f TokenFile) Check() error {
	if f == "" {
		return nil
	}
	_, err := f.hash()
	if err != nil {
		err = fmt.Errorf("%w; write one that the user of the service alone can read, such as the output of openssl rand -hex 32", err)
	}
	return err
}

// hash is that of the token: a comparison of hashes shows neither the token nor its length.
func (f TokenFile) hash() (hash [sha256.Size]byte, err error) {
	content, err := plainfile.ReadPrivate(string(f), longestToken)
	if err != nil {
		return hash, err
	}
	token := strings.TrimSpace(string(content))
	switch {
	case len(token) < shortestToken:
		return hash, fmt.Errorf("%s has a token of fewer than %d bytes", string(f), shortestToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return hash, errors.New(string(f) + " has characters that no header can carry")
	}
	return sha256.Sum256([]byte(token)), nil
}

// Fits reports whether a request brings the token, and no other credential in its header. If the file cannot be read, no
// request does.
func (f TokenFile) Fits(r *http.Request) (bool, error) {
	headers := r.Header["Authorization"]
	if f == "" || len(headers) != 1 {
		return false, nil
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false, nil
	}
	want, err := f.hash()
	if err != nil {
		return false, err
	}
	got := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1, nil
}
