package capability

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Nonces have a holder make a proof anew, for this process alone. A process knows no proof that another one took, or it
// itself before a restart: so it takes no proof that could have been shown there, but one with a nonce that it gave.
// Nothing of them is kept. Those of [NewSharedNonces] are of several processes that know the proofs of one another.
type Nonces struct {
	key    []byte
	since  time.Time // proofs from before need one
	always bool
}

// NonceLife is how long a nonce is taken.
const NonceLife = 5 * time.Minute

// NewNonces makes those of a process that began now. Skew is how far the clocks of holders may be ahead. Always has every
// proof need a nonce, because other processes take proofs for the same audience.
func NewNonces(now time.Time, skew time.Duration, always bool) *Nonces {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails: it ends the program instead
	return NewSharedNonces(key, now, skew, always)
}

// NewSharedNonces makes those of a process that takes the nonces of all others with the same key. Each must know which proofs
// the others took. When that is forgotten, the key must be another one.
func NewSharedNonces(key []byte, now time.Time, skew time.Duration, always bool) *Nonces {
	return &Nonces{key: key, since: now.Add(skew), always: always}
}

// Required reports whether a proof that says it was made at a moment needs a nonce. A clock that is ahead may have said the
// last of these moments just before the process began.
func (n *Nonces) Required(made time.Time) bool { return n.always || !made.After(n.since) }

// New makes a nonce for proofs by a key in a tenant.
func (n *Nonces) New(tenant, jkt string, now time.Time) string {
	return n.nonce(tenant, jkt, now.Add(NonceLife).Unix())
}

func (n *Nonces) nonce(tenant, jkt string, until int64) string {
	mac := hmac.New(sha256.New, n.key)
	_, _ = fmt.Fprintf(mac, "%d:%d:%s%s", until, len(tenant), tenant, jkt) // never fails
	return fmt.Sprintf("v1.%d.%s", until, base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
}

// Verify reports whether a nonce was made with the key of this process for a holder's key in a tenant, and its time is not up.
func (n *Nonces) Verify(nonce, tenant, jkt string, now time.Time) bool {
	_, rest, _ := strings.Cut(nonce, ".")
	text, _, _ := strings.Cut(rest, ".")
	until, err := strconv.ParseInt(text, 10, 64)
	want := n.nonce(tenant, jkt, until)
	return err == nil && hmac.Equal([]byte(nonce), []byte(want)) && now.Unix() < until
}
