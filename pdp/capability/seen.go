package capability

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"policy-service/evaluation"
)

// ErrFull: no more proofs can be remembered now, of this holder, of its tenant, or of all. None is forgotten early for
// another.
var ErrFull = errors.New("too many proofs are remembered: try again in a minute")

// SeenOptions bound what a [Seen] remembers. What is zero has the default.
type SeenOptions struct {
	Now       func() time.Time
	Most      int // proofs: 1,000,000
	PerTenant int // half of them
	PerHolder int // of a holder in a tenant: a twentieth of them
}

// Seen remembers the proofs that were taken, so that each is taken once, and those that may be taken once more. It keeps
// nothing over a restart: see [Nonces].
type Seen struct {
	o      SeenOptions
	shards [64]shard
	shares shares

	mu   sync.Mutex // guards what follows
	kept map[string][]kept
}

// shard has the proofs whose keys begin alike.
type shard struct {
	mu    sync.Mutex // guards what follows; locked before that of the shares
	of    map[[sha256.Size]byte]seen
	swept int64
}

// seen is one proof. Few bytes matter here.
type seen struct {
	until  uint32 // seconds since 1970: until then it is remembered
	holder uint32 // index in shares
}

// shares count the proofs of each holder and of each tenant.
type shares struct {
	mu      sync.Mutex // guards what follows
	all     int
	tenants map[string]int
	holders map[holder]uint32
	counts  []share
	free    []uint32 // indexes of counts that nobody has
}

type share struct {
	holder
	n int
}

// NewSeen makes a Seen that remembers nothing yet.
func NewSeen(o SeenOptions) *Seen {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Most == 0 {
		o.Most = 1_000_000
	}
	if o.PerTenant == 0 {
		o.PerTenant = max(1, o.Most/2)
	}
	if o.PerHolder == 0 {
		o.PerHolder = max(1, o.Most/20)
	}
	s := &Seen{o: o, kept: map[string][]kept{}}
	s.shares.tenants, s.shares.holders = map[string]int{}, map[holder]uint32{}
	for n := range s.shards {
		s.shards[n].of = map[[sha256.Size]byte]seen{}
	}
	return s
}

// First reports whether a proof, by its id and the thumbprint of the key that made it, was not taken before. Then it is from
// now on, and remembered until a moment. If it cannot be, the error is [ErrFull], and it was not taken.
func (s *Seen) First(tenant string, of evaluation.Ref, jkt, jti string, until time.Time) (bool, error) {
	key := sha256.Sum256([]byte(jkt + "\x00" + jti)) // no thumbprint has a zero byte
	h := &s.shards[key[0]%uint8(len(s.shards))]
	first, err := s.first(h, key, holder{tenant, of}, until)
	if errors.Is(err, ErrFull) { // what is over in other shards still counts
		for n := range s.shards {
			s.shards[n].mu.Lock()
			s.sweep(&s.shards[n], s.o.Now())
			s.shards[n].mu.Unlock()
		}
		first, err = s.first(h, key, holder{tenant, of}, until)
	}
	return first, err
}

func (s *Seen) first(h *shard, key [sha256.Size]byte, of holder, until time.Time) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := s.o.Now()
	s.sweep(h, now)
	if _, is := h.of[key]; is || now.After(until) { // it may have been taken, and be forgotten
		return false, nil
	}
	index, ok := s.shares.take(of, &s.o)
	if !ok {
		return false, ErrFull
	}
	h.of[key] = seen{uint32(min(until.Add(time.Second-1).Unix(), math.MaxUint32)), index}
	return true, nil
}

// sweep forgets what is over in a shard, whose lock is held. It goes through all of it, so it is done once a second at most.
func (s *Seen) sweep(h *shard, at time.Time) {
	now := at.Unix()
	if now == h.swept {
		return
	}
	h.swept = now
	for key, one := range h.of {
		if int64(one.until) < now {
			delete(h.of, key)
			s.shares.give(one.holder)
		}
	}
}

// take takes a place for a proof of a holder.
func (s *shares) take(of holder, most *SeenOptions) (index uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, known := s.holders[of]
	if s.all >= most.Most || s.tenants[of.tenant] >= most.PerTenant || known && s.counts[index].n >= most.PerHolder {
		return 0, false
	}
	if n := len(s.free); !known && n > 0 {
		index, s.free = s.free[n-1], s.free[:n-1]
	} else if !known {
		index, s.counts = uint32(len(s.counts)), append(s.counts, share{})
	}
	if !known {
		s.holders[of], s.counts[index] = index, share{holder: of}
	}
	s.counts[index].n++
	s.tenants[of.tenant]++
	s.all++
	return index, true
}

// give gives a place back.
func (s *shares) give(index uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &s.counts[index]
	one.n--
	s.all--
	if s.tenants[one.tenant]--; s.tenants[one.tenant] == 0 {
		delete(s.tenants, one.tenant)
	}
	if one.n == 0 {
		delete(s.holders, one.holder)
		s.free, *one = append(s.free, index), share{}
	}
}

// Count is how many proofs are remembered.
func (s *Seen) Count() int {
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	return s.shares.all
}

// kept is a proof that may be taken once more with its question.
type kept struct {
	digest [sha256.Size]byte
	until  time.Time
}

// Of one approval the last of those that wait with it are kept, and of one holder the last of those that wait for one that is
// yet to be asked for, and of so many approvals and holders. Who comes without is asked for another proof.
const (
	keptPerApproval = 8
	keptPerHolder   = 256
	mostKept        = 100_000
)

func keptDigest(proof, question [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(append(proof[:], question[:]...))
}

// Keep notes that a question waits for an approval, which was asked with a proof that was taken. Once the same question with
// that approval brings the very same proof, [Seen.Take] takes it, whatever its age.
func (s *Seen) Keep(proof, question [sha256.Size]byte, approval string, until time.Time) {
	s.keep(proof, question, approval, keptPerApproval, until)
}

// KeepOffered is Keep for an approval that a holder is yet to ask for: any that the question brings.
func (s *Seen) KeepOffered(proof, question [sha256.Size]byte, tenant string, of evaluation.Ref, until time.Time) {
	s.keep(proof, question, offered(tenant, of), keptPerHolder, until)
}

// offered is in the place of an approval's id. No id begins with a quote.
func offered(tenant string, of evaluation.Ref) string {
	return fmt.Sprintf("%q %q %q", tenant, of.Type, of.ID)
}

func (s *Seen) keep(proof, question [sha256.Size]byte, approval string, most int, until time.Time) {
	digest, now := keptDigest(proof, question), s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= mostKept {
		s.forgetKept(now)
	}
	of, there := s.kept[approval]
	if !there && len(s.kept) >= mostKept {
		return
	}
	of = append(without(of, digest), kept{digest, until})
	s.kept[approval] = of[max(0, len(of)-most):]
}

// TakeOffered is Take of what KeepOffered kept.
func (s *Seen) TakeOffered(proof, question [sha256.Size]byte, tenant string, of evaluation.Ref) bool {
	return s.Take(proof, question, offered(tenant, of))
}

// Take reports whether Keep kept exactly this, and its time is not up. Each Keep is taken once.
func (s *Seen) Take(proof, question [sha256.Size]byte, approval string) bool {
	digest, now := keptDigest(proof, question), s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	is := slices.ContainsFunc(s.kept[approval], func(k kept) bool { return k.digest == digest && now.Before(k.until) })
	if left := without(s.kept[approval], digest); len(left) > 0 {
		s.kept[approval] = left
	} else {
		delete(s.kept, approval)
	}
	return is
}

func without(of []kept, digest [sha256.Size]byte) []kept {
	return slices.DeleteFunc(of, func(k kept) bool { return k.digest == digest })
}

// forgetKept forgets those whose time is up.
func (s *Seen) forgetKept(now time.Time) {
	for approval, of := range s.kept {
		if !slices.ContainsFunc(of, func(k kept) bool { return now.Before(k.until) }) {
			delete(s.kept, approval)
		}
	}
}
