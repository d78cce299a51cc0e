package approval_test

import (
	"context"
	"crypto/sha256"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// record is what a store puts its steps on, and a caller its decisions.
type stepLog struct {
	*ledgertest.Records[approval.Step]
	steps map[string][]approval.Step // of each approval
	// decisions are those that used an approval, or went on from a use.
	decisions map[string]approval.Step
}

var errRecord = ledgertest.ErrRecord

func newRecord() *stepLog {
	r := &stepLog{steps: map[string][]approval.Step{}, decisions: map[string]approval.Step{}}
	r.Records = ledgertest.NewRecords(start, r.onRecord)
	return r
}

func (r *stepLog) onRecord(s approval.Step) (approval.Step, error) {
	r.steps[s.Approval.ID] = append(r.steps[s.Approval.ID], s)
	return s, nil
}

// decide puts a decision on record.
func (r *stepLog) decide(id string) func(context.Context) error {
	return func(context.Context) error { return r.Decide(id) }
}

// vouchFor is decide of a decision that uses an approval, or that is a round of a use: the record vouches for it.
func (r *stepLog) vouchFor(id, approved string, round evaluation.Continuation) func(context.Context) error {
	return func(ctx context.Context) error {
		err := r.decide(id)(ctx)
		r.Mu.Lock()
		defer r.Mu.Unlock()
		if r.IDs[id] {
			r.decisions[id] = approval.Step{ID: id, At: r.Now, Decision: id, Continues: round, Approval: approval.Approval{ID: approved}}
		}
		return err
	}
}

// decideBy is vouchFor, and who asks for what the record has of the approval finds it, too.
func (r *stepLog) decideBy(id, approved string, round evaluation.Continuation) func(context.Context) error {
	return func(ctx context.Context) error {
		err := r.vouchFor(id, approved, round)(ctx)
		r.Mu.Lock()
		defer r.Mu.Unlock()
		if step, is := r.decisions[id]; is {
			r.Steps = append(r.Steps, step)
		}
		return err
	}
}

// names are the names of the steps of an approval on record.
func (r *stepLog) names(id string) (out []string) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, s := range r.steps[id] {
		out = append(out, s.Name)
	}
	return out
}

func (r *stepLog) options() approval.Options {
	return approval.Options{Now: r.Time, NewID: r.NewID, Key: key, Record: r.Put, Recorded: r.Has, Withdraw: r.Withdraw, Attest: r.attest, Steps: r.Since, Size: r.Size,
		Limits:  approval.Limits{NewPerMinutePerSubject: 1_000_000},
		OnError: r.OnError}
}

// copy is the record as it is now, for one file that goes its own way.
func (r *stepLog) copy() *stepLog {
	r.Mu.Lock()
	other := &stepLog{steps: maps.Clone(r.steps), decisions: maps.Clone(r.decisions)}
	r.Mu.Unlock()
	other.Records = r.Copy(other.onRecord)
	return other
}

var key = []byte("thirty-two bytes that nobody has")

func (r *stepLog) attest(ctx context.Context, id string) (s approval.Step, found bool, err error) {
	if s, found, err = r.Attest(ctx, id); found {
		return s, found, err
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	s, found = r.decisions[id]
	return s, found, nil
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
var placed = cmpopts.IgnoreFields(approval.Approval{}, "After", "Written", "Revision")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quick is a directory in memory where there is one with room.
func quick(t testing.TB) string { return ledgertest.Dir(t, "approvals") }

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
	r.Pass(time.Minute)
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
