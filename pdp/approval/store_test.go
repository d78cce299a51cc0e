package approval_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/approval"
	"policy-service/pdp/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// record is what a store puts its steps on, and a caller its decisions.
type record struct {
	mu    sync.Mutex
	steps map[string][]approval.Step // of each approval
	ids   map[string]bool
	// decisions are those that used an approval, or went on from a use.
	decisions map[string]approval.Step
	log       []approval.Step // all steps, in order
	now       time.Time
	n         int
	errors    []error
	// fails refuses, half takes a record and says that it failed, unknown knows nothing.
	fails, half, unknown bool
}

var errRecord = errors.New("the record cannot be written")

func newRecord() *record {
	return &record{ids: map[string]bool{}, steps: map[string][]approval.Step{}, decisions: map[string]approval.Step{}, now: start}
}

func (r *record) put(_ context.Context, s approval.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails && !r.half {
		return errRecord
	}
	if r.ids[s.ID] {
		return fmt.Errorf("step %s was recorded before", s.ID)
	}
	r.ids[s.ID] = true
	r.steps[s.Approval.ID] = append(r.steps[s.Approval.ID], s)
	r.log = append(r.log, s)
	if r.fails {
		return errRecord
	}
	return nil
}

// decide puts a decision on record.
func (r *record) decide(id string) func(context.Context) error {
	return func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.fails || r.half {
			r.ids[id] = true
		}
		if r.fails {
			return errRecord
		}
		return nil
	}
}

// vouchFor is decide of a decision that uses an approval, or that is a round of a use: the record vouches for it.
func (r *record) vouchFor(id, approved string, round evaluation.Continuation) func(context.Context) error {
	return func(ctx context.Context) error {
		err := r.decide(id)(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ids[id] {
			r.decisions[id] = approval.Step{ID: id, At: r.now, Decision: id, Continues: round, Approval: approval.Approval{ID: approved}}
		}
		return err
	}
}

// decideBy is vouchFor, and who asks for what the record has of the approval finds it, too.
func (r *record) decideBy(id, approved string, round evaluation.Continuation) func(context.Context) error {
	return func(ctx context.Context) error {
		err := r.vouchFor(id, approved, round)(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		if step, is := r.decisions[id]; is {
			r.log = append(r.log, step)
		}
		return err
	}
}

func (r *record) has(id string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unknown {
		return false, errRecord
	}
	return r.ids[id], nil
}

func (r *record) set(fails, half, unknown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails, r.half, r.unknown = fails, half, unknown
}

func (r *record) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *record) time() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *record) id() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	return fmt.Sprintf("id-%08d", r.n)
}

// names are the names of the steps of an approval on record.
func (r *record) names(id string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps[id] {
		out = append(out, s.Name)
	}
	return out
}

func (r *record) options() approval.Options {
	return approval.Options{Now: r.time, NewID: r.id, Key: key, Record: r.put, Recorded: r.has, Attest: r.attest, Steps: r.since, Size: r.size,
		Limits:  approval.Limits{NewPerMinutePerSubject: 1_000_000},
		OnError: func(err error) { r.mu.Lock(); defer r.mu.Unlock(); r.errors = append(r.errors, err) }}
}

// copy is the record as it is now, for one file that goes its own way.
func (r *record) copy() *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	other := newRecord()
	other.ids, other.steps, other.log, other.now, other.n = maps.Clone(r.ids), maps.Clone(r.steps), slices.Clip(r.log), r.now, r.n
	other.decisions = maps.Clone(r.decisions)
	return other
}

var key = []byte("thirty-two bytes that nobody has")

func (r *record) size() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.log))
}

func (r *record) attest(_ context.Context, id string) (s approval.Step, found bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Backward(r.log) { // what is asked for is new as a rule
		if s.ID == id {
			return s, true, nil
		}
	}
	s, found = r.decisions[id]
	return s, found, nil
}

func (r *record) since(_ context.Context, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]approval.Step{}
	for _, s := range r.log[min(from, uint64(len(r.log))):] {
		if ids[s.Approval.ID] {
			out[s.Approval.ID] = append(out[s.Approval.ID], s)
		}
	}
	return out, nil
}

func mustOpen(t testing.TB, data string, o approval.Options) *approval.Store {
	t.Helper()
	if os.Getenv(inTrouble) != "" && o.Engine == nil {
		one := ledgertest.Cluster{Below: approval.Engine(data), Conflicts: 3, Late: 50 * time.Microsecond, Alone: true}
		o.Engine = one.Process()
	}
	if os.Getenv(onEtcd) != "" && o.Engine == nil {
		o.Engine = etcdtest.Engine(t, data, approval.Known)
	}
	s, err := approval.Open(data, o)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// placed: how much of the log an approval knows of is no part of what it is.
var placed = cmpopts.IgnoreFields(approval.Approval{}, "After", "Revision")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quick is a directory in memory where there is one with room: what is not about disks need not
// wait for them.
func quick(t testing.TB) string {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil || uint64(s.Bavail)*uint64(s.Bsize) < 1<<30 {
		return t.TempDir()
	}
	if dir, err := os.MkdirTemp("/dev/shm", "approvals"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

// digest is what a question with that name is bound to.
func digest(name string) [32]byte { return sha256.Sum256([]byte(name)) }

func question(name string, change ...func(*approval.ApprovalRequest)) approval.ApprovalRequest {
	q := approval.ApprovalRequest{
		Digest: digest(name), Tenant: "acme", Caller: "key:gateway", Decision: "decision of " + name, Bundle: "h1:abc",
		Obligation: "approval_required",
		Terms: obligations.Terms{Template: "writes", Quorum: 1, Uses: 1, Timeout: time.Hour, ValidFor: 10 * time.Minute, Rounds: 10, RoundsWithin: 15 * time.Minute,
			Material: obligations.DefaultMaterial},
		Subject: evaluation.Ref{Type: "user", ID: "alice"}, Resource: evaluation.Ref{Type: "tool", ID: "tickets:create_ticket"}, Action: "tool.invoke",
		Actors: evaluation.Actors{Agent: &evaluation.Ref{ID: "bot"}, Chain: []evaluation.Ref{{Type: "agent", ID: "planner"}}},
		Shown:  []byte(`{"subject":{"type":"user","id":"alice"},"context":{"purpose":"line"}}`),
	}
	for _, f := range change {
		f(&q)
	}
	return q
}

func all(approval.Vote) bool { return true }
func equal(a, b string) bool { return a == b }
func by(name string) approval.Vote {
	return approval.Vote{Statement: approval.Statement{By: name}, Caller: "key:" + name, Kind: approval.Approve}
}

func mustFile(t testing.TB, s *approval.Store, q approval.ApprovalRequest) approval.Approval {
	t.Helper()
	a, err := s.File(t.Context(), q)
	must(t, err)
	return a
}

func mustDecide(t testing.TB, s *approval.Store, id string, v approval.Vote) approval.Approval {
	t.Helper()
	a, err := s.Decide(t.Context(), id, 0, v, all, equal)
	must(t, err)
	return a
}

// TestLife goes the whole way, with a restart after each step.
func TestLife(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), t.TempDir()
	var s *approval.Store
	again := func() {
		if s != nil {
			must(t, s.Close())
		}
		s = mustOpen(t, data, r.options())
	}
	again()
	q := question("a")
	a := mustFile(t, s, q)
	again()
	if joined := mustFile(t, s, q); joined.ID != a.ID || s.Pending() != 1 {
		t.Errorf("the same question is another: %+v", joined)
	}
	got, found, _ := s.Get(t.Context(), a.ID)
	if diff := cmp.Diff(a, got, placed); diff != "" || !found || got.Status != approval.Pending || !got.ExpiresAt.Equal(start.Add(time.Hour)) {
		t.Errorf("what was filed is not what is there: %s", diff)
	}
	isLive(t, "one that nobody approved can be spent", s, q.Digest, "", false)
	r.pass(time.Minute)
	a = mustDecide(t, s, a.ID, by("User::\"mia\""))
	again()
	live, is, _ := s.Live(q.Digest, a.ID)
	if diff := cmp.Diff(a, live, placed); diff != "" || !is || !live.ExpiresAt.Equal(start.Add(11*time.Minute)) {
		t.Errorf("what was approved cannot be spent: %v %s", is, diff)
	}
	if _, is, _ := s.Live(q.Digest, "another"); is {
		t.Error("it can be spent by another id")
	}
	r.refuses(t, "it can be spent on what it is not bound to", s, a.ID, digest("b"), "d")
	spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d"))
	if !spent || err != nil {
		t.Fatal(spent, err)
	}
	again()
	r.refuses(t, "it can be spent twice", s, a.ID, q.Digest, "e")
	if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.UsedUp || !slices.Equal(got.Used, []string{"d"}) || got.Unrecorded {
		t.Errorf("it is %+v", got)
	}
	if want := []string{"filed", "approve", "approved", "used", "used_up"}; !slices.Equal(r.names(a.ID), want) {
		t.Errorf("on record is %v, want %v", r.names(a.ID), want)
	}
	if other := mustFile(t, s, q); other.ID == a.ID {
		t.Error("what is used up is asked for again, and is not filed")
	}
}
