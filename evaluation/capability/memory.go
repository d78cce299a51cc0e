package capability

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"sync"
	"time"

	"policy-service/evaluation"
)

// ErrFull: no more proofs can be remembered now, of this holder, of its tenant, or of all. None is forgotten early for
// another.
var ErrFull = errors.New("too many proofs are remembered: try again in a minute")

const mostSeen = 1_000_000

// MemoryOptions bound a [Memory]. A zero member has the default.
type MemoryOptions struct {
	Now func() time.Time
	// Elapsed is the time that passed since some moment, by a clock that nobody sets: the machine's monotonic one.
	Elapsed func() time.Duration
	// Life is how long a proof is remembered at least, by Elapsed.
	Life time.Duration
	// Forgot is called with the latest end of the proofs that are being forgotten, before one of them can be taken again.
	Forgot    func(end time.Time)
	Most      int // proofs: 1,000,000
	PerTenant int // half of them
	PerHolder int // of a holder in a tenant: a twentieth of them
}

// Seen remembers the proofs that were taken, so that each is taken once.
type Seen interface {
	// First takes a proof, by its [ProofKey], and reports whether it was not taken before. The proof must be remembered
	// until the clock shows a moment, and no less long than that takes a clock that nobody sets: a clock that is ahead for
	// a while must not have it forgotten. Who holds the capability, and in which tenant, is for bounds. With an error the
	// proof was not taken.
	First(ctx context.Context, tenant string, holder evaluation.Ref, key [sha256.Size]byte, until time.Time) (bool, error)
}

// ProofKey is the key of a proof in a memory, of the thumbprint of the key that made it and its id.
func ProofKey(jkt, jti string) [sha256.Size]byte {
	return sha256.Sum256([]byte(jkt + "\x00" + jti)) // no thumbprint has a zero byte
}

// Memory is a [Seen] of one process. It forgets a proof when both clocks are past its life, and all of them at a restart: then
// [Nonces] are needed.
type Memory struct {
	o      MemoryOptions
	shards [64]shard
	shares shares
}

// shard has the proofs whose keys begin alike.
type shard struct {
	mu    sync.Mutex // guards the following; locked before that of the shares
	of    map[[sha256.Size]byte]seen
	swept int64
}

// seen is one proof. Few bytes matter here.
type seen struct {
	until  uint32 // seconds since 1970, and
	past   uint32 // seconds of Elapsed: until then it is remembered
	holder uint32 // index in shares
}

// shares count the proofs of each holder and of each tenant.
type shares struct {
	mu      sync.Mutex // guards the following
	all     int
	tenants map[string]int
	holders map[ofTenant]uint32
	counts  []share
	free    []uint32 // unused indexes of counts
}

type share struct {
	ofTenant
	n int
}

// ofTenant is a holder in a tenant.
type ofTenant struct {
	tenant string
	evaluation.Ref
}

// NewMemory makes a Memory that remembers nothing yet.
func NewMemory(o MemoryOptions) *Memory {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elapsed == nil {
		began := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(began) }
	}
	if o.Forgot == nil {
		o.Forgot = func(time.Time) {}
	}
	if o.Most == 0 {
		o.Most = mostSeen
	}
	if o.PerTenant == 0 {
		o.PerTenant = max(1, o.Most/2)
	}
	if o.PerHolder == 0 {
		o.PerHolder = max(1, o.Most/20)
	}
	s := &Memory{o: o}
	s.shares.tenants, s.shares.holders = map[string]int{}, map[ofTenant]uint32{}
	for n := range s.shards {
		s.shards[n].of = map[[sha256.Size]byte]seen{}
	}
	return s
}

// First implements [Seen]. If a proof cannot be remembered, the error is [ErrFull].
func (s *Memory) First(
	_ context.Context, tenant string, holder evaluation.Ref, key [sha256.Size]byte, until time.Time,
) (bool, error) {
	of := ofTenant{tenant, holder}
	h := &s.shards[key[0]%uint8(len(s.shards))]
	first, err := s.first(h, key, of, until)
	if errors.Is(err, ErrFull) { // expired proofs in other shards still count
		for n := range s.shards {
			s.shards[n].mu.Lock()
			s.sweep(&s.shards[n], s.o.Now())
			s.shards[n].mu.Unlock()
		}
		first, err = s.first(h, key, of, until)
	}
	return first, err
}

func (s *Memory) first(h *shard, key [sha256.Size]byte, of ofTenant, until time.Time) (bool, error) {
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
	past := s.o.Elapsed() + max(s.o.Life, until.Sub(now))
	h.of[key] = seen{uint32(min(until.Add(time.Second-1).Unix(), math.MaxUint32)), uint32((past + time.Second - 1) / time.Second), index}
	return true, nil
}

// sweep forgets the expired proofs of a shard, whose lock is held. It goes through all of it, so it is done once a second at most.
func (s *Memory) sweep(h *shard, at time.Time) {
	now, elapsed, last := at.Unix(), uint32(s.o.Elapsed()/time.Second), uint32(0)
	if now == h.swept {
		return
	}
	h.swept = now
	for key, one := range h.of {
		if int64(one.until) < now && one.past < elapsed {
			delete(h.of, key)
			s.shares.give(one.holder)
			last = max(last, one.until)
		}
	}
	if last > 0 {
		s.o.Forgot(time.Unix(int64(last), 0))
	}
}

// take takes a place for a proof of a holder.
func (s *shares) take(of ofTenant, most *MemoryOptions) (index uint32, ok bool) {
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
		s.holders[of], s.counts[index] = index, share{ofTenant: of}
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
		delete(s.holders, one.ofTenant)
		s.free, *one = append(s.free, index), share{}
	}
}

// Count is how many proofs are remembered.
func (s *Memory) Count() int {
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	return s.shares.all
}
