package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/ledger"
)

// ErrRecord is the error of [Records] that fail.
var ErrRecord = errors.New("the record cannot be written")

// Records are what a store puts its steps on, and a caller its decisions. They are the clock of the store, too, and make ids.
type Records[S ledger.Step] struct {
	Mu     sync.Mutex // guards the rest
	IDs    map[string]bool
	Steps  []S // in order
	Now    time.Time
	N      int // of the last id
	Errors []error
	// Withdrawn are the decisions that were withdrawn, each of them once.
	Withdrawn []ledger.Withdrawal
	// Fails refuses, Half takes a record and says that it failed, Unknown knows nothing.
	Fails, Half, Unknown bool
	// OnRecord is what the log gives back of a step, or why it refuses the step.
	OnRecord func(S) (S, error)
}

// NewRecords are none yet.
func NewRecords[S ledger.Step](now time.Time, onRecord func(S) (S, error)) *Records[S] {
	return &Records[S]{IDs: map[string]bool{}, Now: now, OnRecord: onRecord}
}

// Put records a step.
func (r *Records[S]) Put(_ context.Context, s S) error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Fails && !r.Half {
		return ErrRecord
	}
	id := s.Entry().ID
	if r.IDs[id] {
		return fmt.Errorf("step %s was recorded before", id)
	}
	s, err := r.OnRecord(s)
	if err != nil {
		return err
	}
	r.IDs[id] = true
	r.Steps = append(r.Steps, s)
	if r.Fails {
		return ErrRecord
	}
	return nil
}

// Decide records a decision, which is found only by its id.
func (r *Records[S]) Decide(id string) error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if !r.Fails || r.Half {
		r.IDs[id] = true
	}
	if r.Fails {
		return ErrRecord
	}
	return nil
}

// Withdraw records a withdrawal.
func (r *Records[S]) Withdraw(_ context.Context, w ledger.Withdrawal) error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Fails {
		return ErrRecord
	}
	if !slices.Contains(r.Withdrawn, w) {
		r.Withdrawn = append(r.Withdrawn, w)
	}
	return nil
}

// Has reports whether there is a record.
func (r *Records[S]) Has(id string) (bool, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Unknown {
		return false, ErrRecord
	}
	return r.IDs[id], nil
}

// Attest finds a step.
func (r *Records[S]) Attest(_ context.Context, id string) (s S, found bool, err error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, s := range slices.Backward(r.Steps) { // what is asked for is new as a rule
		if s.Entry().ID == id {
			return s, true, nil
		}
	}
	return s, false, nil
}

// Since reads the steps of some items.
func (r *Records[S]) Since(_ context.Context, from uint64, ids map[string]bool) (map[string][]S, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	out := map[string][]S{}
	for _, s := range r.Steps[min(from, uint64(len(r.Steps))):] {
		if of := s.Entry().Item; ids[of] {
			out[of] = append(out[of], s)
		}
	}
	return out, nil
}

// Size is how long the log is.
func (r *Records[S]) Size() uint64 {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return uint64(len(r.Steps))
}

// Set says how the log fails.
func (r *Records[S]) Set(fails, half, unknown bool) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Fails, r.Half, r.Unknown = fails, half, unknown
}

// Pass has time pass.
func (r *Records[S]) Pass(d time.Duration) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Now = r.Now.Add(d)
}

// Time is the time.
func (r *Records[S]) Time() time.Time {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Now
}

// NewID makes an id.
func (r *Records[S]) NewID() string {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.N++
	return fmt.Sprintf("id-%08d", r.N)
}

// OnError keeps an error of the store.
func (r *Records[S]) OnError(err error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Errors = append(r.Errors, err)
}

// Copy is the log as it is now.
func (r *Records[S]) Copy(onRecord func(S) (S, error)) *Records[S] {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return &Records[S]{IDs: maps.Clone(r.IDs), Steps: slices.Clone(r.Steps), Now: r.Now, N: r.N, OnRecord: onRecord}
}

// Proofs are of the steps that logs of several origins have.
type Proofs[S ledger.Step] struct {
	steps sync.Map // by origin and id
}

// Prove proves the steps that a log attests.
func (p *Proofs[S]) Prove(
	origin string, attest func(context.Context, string) (S, bool, error),
) func(context.Context, string) (ledger.Proof, bool, error) {
	return func(ctx context.Context, id string) (ledger.Proof, bool, error) {
		step, found, err := attest(ctx, id)
		p.steps.Store(origin+" "+id, step)
		return ledger.Proof{Line: []byte(id)}, found, err
	}
}

// Verify finds the step of a proof.
func (p *Proofs[S]) Verify(of ledger.Proof) (step S, err error) {
	known, is := p.steps.Load(of.Origin + " " + string(of.Line))
	if !is {
		return step, ErrRecord
	}
	return known.(S), nil
}

// Dir is a directory in memory where there is one with room: what is not about disks need not wait for them.
func Dir(t testing.TB, name string) string {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil || uint64(s.Bavail)*uint64(s.Bsize) < 1<<30 {
		return t.TempDir()
	}
	if dir, err := os.MkdirTemp("/dev/shm", name); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}
