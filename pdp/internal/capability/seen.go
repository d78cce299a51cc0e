package capability

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// Seen remembers the proofs that were taken, so that each is taken once, and those that may be taken once more. It keeps
// nothing over a restart. A proof that may be taken once more is forgotten by the wall clock alone: that takes nothing twice.
type Seen struct {
	memory *capability.Memory
	now    func() time.Time

	mu   sync.Mutex // guards what follows
	kept map[string][]kept
	// size is how many are kept in all, and swept when those were forgotten last whose time is up.
	size  int
	swept time.Time
}

// NewSeen makes a Seen that remembers nothing yet. The clock must be given.
func NewSeen(o capability.MemoryOptions) *Seen {
	return &Seen{memory: capability.NewMemory(o), now: o.Now, kept: map[string][]kept{}}
}

// First is [capability.Memory.First], by the id of a proof and the thumbprint of the key that made it.
func (s *Seen) First(ctx context.Context, tenant string, of evaluation.Ref, jkt, jti string, until time.Time) (bool, error) {
	return s.memory.First(ctx, tenant, of, capability.ProofKey(jkt, jti), until)
}

// Count is how many proofs are remembered.
func (s *Seen) Count() int { return s.memory.Count() }

// kept is a proof that may be taken once more with its question.
type kept struct {
	digest [sha256.Size]byte
	until  time.Time
}

// Of one approval the last of those that wait with it are kept, and of one owner the last of those that wait for one that is
// yet to be asked for, and so many of all. A caller without one is asked for another proof.
const (
	keptPerApproval = 8
	keptPerOwner    = 256
	mostKept        = 100_000
	// sweepEvery is how long all are left alone that were looked through: there is no room, and others wait meanwhile.
	sweepEvery = time.Minute
)

func keptDigest(proof, question [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(append(proof[:], question[:]...))
}

// Keep notes that a question waits for an approval, which was asked with a proof that was taken. Once the same question with
// that approval brings the very same proof, [Seen.Take] takes it, whatever its age.
func (s *Seen) Keep(proof, question [sha256.Size]byte, approval string, until time.Time) {
	s.keep(proof, question, approval, keptPerApproval, until)
}

// KeepOffered is Keep for an approval that is yet to be asked for: any that the question brings. The capability is of an owner, as
// [OwnerOf] returns it.
func (s *Seen) KeepOffered(proof, question [sha256.Size]byte, tenant string, of evaluation.Ref, until time.Time) {
	s.keep(proof, question, offered(tenant, of), keptPerOwner, until)
}

// offered is in the place of an approval's id. No id begins with a quote.
func offered(tenant string, of evaluation.Ref) string {
	return fmt.Sprintf("%q %q %q", tenant, of.Type, of.ID)
}

func (s *Seen) keep(proof, question [sha256.Size]byte, approval string, most int, until time.Time) {
	digest, now := keptDigest(proof, question), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.swept); s.size >= mostKept && (age < 0 || age >= sweepEvery) {
		s.forgetKept(now)
	}
	of := without(s.kept[approval], digest)
	if len(of) >= most {
		of = of[len(of)-most+1:]
	}
	if s.put(approval, of); s.size < mostKept {
		s.put(approval, append(of, kept{digest, until}))
	}
}

// put keeps these of an approval, in the place of those that were kept. Its caller has the lock.
func (s *Seen) put(approval string, of []kept) {
	s.size += len(of) - len(s.kept[approval])
	if len(of) == 0 {
		delete(s.kept, approval)
		return
	}
	s.kept[approval] = of
}

// TakeOffered is Take of a proof that KeepOffered kept.
func (s *Seen) TakeOffered(proof, question [sha256.Size]byte, tenant string, of evaluation.Ref) bool {
	return s.Take(proof, question, offered(tenant, of))
}

// Take reports whether Keep kept exactly this, and its time is not up. Each Keep is taken once.
func (s *Seen) Take(proof, question [sha256.Size]byte, approval string) bool {
	digest, now := keptDigest(proof, question), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	is := slices.ContainsFunc(s.kept[approval], func(k kept) bool { return k.digest == digest && now.Before(k.until) })
	s.put(approval, without(s.kept[approval], digest))
	return is
}

func without(of []kept, digest [sha256.Size]byte) []kept {
	return slices.DeleteFunc(of, func(k kept) bool { return k.digest == digest })
}

// forgetKept forgets those whose time is up.
func (s *Seen) forgetKept(now time.Time) {
	s.swept = now
	for approval, of := range s.kept {
		s.put(approval, slices.DeleteFunc(of, func(k kept) bool { return !now.Before(k.until) }))
	}
}
