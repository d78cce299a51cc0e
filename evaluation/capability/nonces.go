package capability

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Nonces require a fresh proof where the proof that is shown may have been taken and forgotten:
//
//   - An earlier process took it, or another one that shares nothing with this one. Any nonce of this process is newer.
//   - This process took it while the clock was ahead, and the clock was put right since. A nonce is newer if it was made since
//     the clock was last put back.
//
// Nothing of a nonce is kept.
type Nonces struct {
	o     NonceOptions
	key   []byte
	since time.Time // a proof made until then may be of an earlier process

	mu   sync.Mutex // guards what follows
	own  []byte     // the key of nonces made since the clock was last put back
	last time.Time  // the last reading of the clock
	mark time.Time  // a proof that ends until then may have been taken here
	top  time.Time  // the latest setting of the clock since it was last put back by more than a proof's life
}

// NonceOptions say when a nonce is needed.
type NonceOptions struct {
	// Key makes the nonces of several processes, each of which knows the proofs that the others took for twice the life of a
	// proof and the skew, whatever their clocks show. When that is forgotten, the key must be another one. Without a Key the
	// nonces are those of this process alone.
	Key []byte
	Now func() time.Time
	// Elapsed is that of the [MemoryOptions].
	Elapsed func() time.Duration
	// Before is the latest that the clock showed to an earlier process, and Shown the latest that the clock of any of the
	// processes with the Key did.
	Before time.Time
	Shown  func() time.Time
	// Age is how old a proof may be, and Skew how far the clock of its holder may be ahead.
	Age, Skew time.Duration
	// Always has every proof need a nonce, because other processes take proofs for the same audience.
	Always bool
}

// NonceLife is how long a nonce is taken.
const NonceLife = 5 * time.Minute

// NewNonces makes the nonces of a process that begins now.
func NewNonces(o NonceOptions) *Nonces {
	if o.Elapsed == nil {
		began := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(began) }
	}
	n := &Nonces{o: o, key: o.Key, own: newNonceKey(), since: later(o.Now(), o.Before).Add(o.Skew), last: o.Before}
	n.top = n.setting(o.Now())
	if o.Key == nil {
		n.key = n.own
	}
	return n
}

func newNonceKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails: it ends the program instead
	return key
}

// later returns the later of two times as clocks show them: a monotonic reading is never put back.
func later(a, b time.Time) time.Time {
	if a, b = a.Round(0), b.Round(0); a.Before(b) {
		return b
	}
	return a
}

// setting returns what the clock would have shown when Elapsed was 0. It changes exactly if somebody sets the clock.
func (n *Nonces) setting(now time.Time) time.Time { return now.Round(0).Add(-n.o.Elapsed()) }

// Forgot notes that a proof with this end is not remembered any more, nor are others that ended before.
func (n *Nonces) Forgot(end time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mark, n.last = later(n.mark, end), later(n.last, end) // the clock has shown it
}

// read reads the clock, and reports whether a proof that was made at a moment may have been taken here and forgotten. Own is the
// key of the nonces that were made since.
func (n *Nonces) read(made time.Time) (may bool, own []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, life := n.o.Now().Round(0), n.o.Age+n.o.Skew
	if now.Before(n.last) {
		n.own = newNonceKey()
	}
	if n.last = now; n.o.Shown != nil { // what the others remember goes by no clock that can be set
		if high := later(n.o.Before, n.o.Shown()); high.Sub(now) > life {
			n.mark = later(n.mark, high.Add(life+5*n.o.Skew)) // the clocks of two that take proofs differ by four times the skew at most
		}
		// Shown passes by itself while no proof is read here, so compare the settings too: they keep a step back.
		set := n.setting(now)
		if n.top = later(n.top, set); n.top.Sub(set) > life {
			n.mark = later(n.mark, now.Add(n.top.Sub(set)+life+5*n.o.Skew))
			n.own, n.top = newNonceKey(), set
		}
	}
	return !made.Add(life).After(n.mark), n.own
}

// Refuse returns a refusal, with a nonce, if a proof by a key in a tenant needs a nonce and does not have it.
func (n *Nonces) Refuse(p Proof, tenant, jkt string, now time.Time) *Refusal {
	may, own := n.read(p.IssuedAt)
	if !may && !n.o.Always && p.IssuedAt.After(n.since) {
		return nil
	}
	_, rest, _ := strings.Cut(p.Nonce, ".")
	text, _, _ := strings.Cut(rest, ".")
	until, err := strconv.ParseInt(text, 10, 64)
	by := func(key []byte) bool { return hmac.Equal([]byte(p.Nonce), []byte(nonce(key, tenant, jkt, until))) }
	if err == nil && now.Unix() < until && (by(own) || !may && by(n.key)) {
		return nil
	}
	return &Refusal{Code: NonceRequired, Nonce: n.New(tenant, jkt, now)}
}

// New makes a nonce for proofs by a key in a tenant.
func (n *Nonces) New(tenant, jkt string, now time.Time) string {
	key := n.key
	if may, own := n.read(now.Add(-n.o.Age)); may {
		key = own
	}
	return nonce(key, tenant, jkt, now.Add(NonceLife).Unix())
}

func nonce(key []byte, tenant, jkt string, until int64) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%d:%d:%s%s", until, len(tenant), tenant, jkt) // never fails
	return fmt.Sprintf("v1.%d.%s", until, base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
}
