package auth

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// A signature that held is not checked again under the same key, and under any other
// key it is; one that did not hold always is. What is remembered is bounded.
func TestSignaturesAreRemembered(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []jose.SignatureAlgorithm{jose.EdDSA, jose.RS256, jose.ES256} {
		var s signatures
		key, other := newSigner(t, "1", algorithm).private.Public(), newStranger(t, algorithm).private.Public()
		verified := 0
		ask := func(key any, token string, holds bool) bool {
			return s.by(key, sha256.Sum256([]byte(token)), func() bool { verified++; return holds })
		}
		if !ask(key, "token", true) || !ask(key, "token", false) || verified != 1 {
			t.Errorf("%s: verified %d times, want once", algorithm, verified)
		}
		if ask(other, "token", false) || ask(key, "token ", false) || verified != 3 {
			t.Errorf("%s: another key, or another token, passed", algorithm)
		}
		for range 2 {
			if ask(key, "bad", false) {
				t.Errorf("%s: a signature that does not hold passed", algorithm)
			}
		}
		if verified != 5 {
			t.Errorf("%s: a signature that does not hold was remembered", algorithm)
		}
		for n := range 3 * maxSignatures {
			ask(key, fmt.Sprint(n), true)
		}
		if verified = 0; ask(key, "token", false) || verified != 1 {
			t.Errorf("%s: what was long ago is remembered", algorithm)
		}
	}
}
