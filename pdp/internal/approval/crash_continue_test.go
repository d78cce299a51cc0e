package approval_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// A process is killed in each state that a round of an approved call goes through. The next one finds the round there
// again, or answered, and never answers it a second time.

// crashAt is set in the environment of this test binary where it is to stop in a state of a round, and be killed there.
const crashAt = "APPROVAL_CRASH_AT"

// The states, in their order.
const (
	beforeReserve = "before it is reserved"
	reserved      = "after it is reserved, before its decision is on record"
	onRecordOnly  = "after its decision is on record, before it is settled"
	outboxOnly    = "after it is settled, before its step is on record"
	unanswered    = "after its step is on record, before the answer"
)

const (
	spendingDecision, roundDecision = "the use", "the round"
	olderFile                       = "older.db" // approvals.db as it was before the round
)

// goOnUntil has a call approved and made, asks for its first round, and waits in a state of that to be killed.
func goOnUntil(data, state string) {
	stop := func(is string) {
		if is == state {
			fmt.Println("READY")
			select {}
		}
	}
	fail := func(err error) {
		if err != nil {
			fmt.Println("ERROR", err)
			os.Exit(1)
		}
	}
	l, err := decisionlog.Open(data, decisionlog.Options{Kinds: []string{kind}})
	fail(err)
	o := logged(l)
	record := o.Record
	o.Record = func(ctx context.Context, step approval.Step) error {
		if step.Name == approval.StepContinued {
			stop(outboxOnly)
		}
		return record(ctx, step)
	}
	s, err := approval.Open(data, o)
	fail(err)
	ctx, q := context.Background(), crashQuestion()
	a, err := s.File(ctx, q)
	fail(err)
	_, err = s.Decide(ctx, a.ID, 0, by("mia"), all, equal)
	fail(err)
	_, err = spend(ctx, s, a.ID, q.Digest, spendingDecision, allow(l, spendingDecision, a.ID))
	fail(err)
	older, err := os.ReadFile(filepath.Join(data, approval.FileName))
	fail(err)
	fail(os.WriteFile(filepath.Join(data, olderFile), older, 0o600))
	stop(beforeReserve)
	round, err := s.Continue(ctx, a.ID, q.Digest, firstRound, roundDecision)
	fail(err)
	stop(reserved)
	fail(goesOn(l, roundDecision, a.ID, firstRound)(ctx))
	stop(onRecordOnly)
	fail(round.Spent(ctx))
	stop(unanswered)
	fail(fmt.Errorf("there is no state %q", state))
}

var firstRound = evaluation.Continuation{Decision: spendingDecision, Round: 1}

func crashQuestion() approval.ApprovalRequest {
	return question("crash", func(q *approval.ApprovalRequest) {
		q.Terms.Timeout, q.Terms.ValidFor = 24*time.Hour, 24*time.Hour // by the real clock, on a disk however slow
	})
}

// goesOn records a decision that is a round of a call.
func goesOn(l *decisionlog.Log, decision, id string, round evaluation.Continuation) func(context.Context) error {
	return func(ctx context.Context) error {
		met := evaluation.Met{ID: "approval_required", Type: "approval_required", Approval: id, Continues: round}
		err := l.Append(ctx, []record.Entry{{ID: decision, Kind: format.KindDecision, Tenant: "acme",
			Decision: &record.Decision{Allow: true, Discharged: []evaluation.Met{met}}}})
		return err
	}
}

func TestCrashInEveryStateOfARound(t *testing.T) {
	for _, state := range []string{beforeReserve, reserved, onRecordOnly, outboxOnly, unanswered} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, older file %v", state, lost), func(t *testing.T) {
				data := quick(t)
				killedIn(t, data, state)
				if lost { // and somebody puts a copy of the file back that knows nothing of the round
					must(t, os.Rename(filepath.Join(data, olderFile), filepath.Join(data, approval.FileName)))
				}
				l, s, err := openBoth(data)
				must(t, err)
				answered := state != beforeReserve && state != reserved
				id := checkRound(t, l, s, answered)
				must(t, s.Close())
				must(t, l.Close())
				_, rounds, steps := readLog(t, data)
				if len(rounds) != 1 || rounds[fmt.Sprint(id, " ", spendingDecision, " ", 1)] != 1 {
					t.Errorf("the rounds on record are %v", rounds)
				}
				want := []string{approval.StepFiled, approval.StepApprove, approval.StepApproved, approval.StepUsed, approval.StepUsedUp}
				switch {
				case lost && state == unanswered: // the step was there
					want = append(want, approval.StepContinued, approval.StepCaughtUp)
				case lost && answered:
					want = append(want, approval.StepCaughtUp)
				case !lost && state == reserved:
					want = append(want, approval.StepReleased, approval.StepContinued)
				default:
					want = append(want, approval.StepContinued)
				}
				for _, names := range steps {
					if !slices.Equal(names, want) {
						t.Errorf("on record is %v, and not %v", names, want)
					}
				}
				if len(steps) != 1 {
					t.Errorf("%d approvals are on record", len(steps))
				}
			})
		}
	}
}

// checkRound asks for the round again, as a second process does: once if nobody was answered, and never else.
func checkRound(t *testing.T, l *decisionlog.Log, s *approval.Store, answered bool) (id string) {
	t.Helper()
	page, _, err := s.List(t.Context(), approval.Filter{}, "", 10)
	must(t, err)
	if len(page) != 1 || page[0].Status != approval.UsedUp || !slices.Equal(page[0].Used, []string{spendingDecision}) {
		t.Fatalf("it is %+v", page)
	}
	id = page[0].ID
	digest := crashQuestion().Digest
	for n := range 2 {
		d := fmt.Sprint("again ", n)
		got, err := goOn(t.Context(), s, id, digest, firstRound, d, goesOn(l, d, id, firstRound))
		must(t, err)
		if got != (n == 0 && !answered) {
			t.Errorf("asked for again the %d. time, it is answered: %v", n+1, got)
		}
	}
	second := evaluation.Continuation{Decision: spendingDecision, Round: 2}
	if _, can, _ := s.Continuable(id, digest, second); !can {
		t.Error("the next round cannot be had")
	}
	return id
}

// killedIn runs the child until it is in a state, and kills it.
func killedIn(t *testing.T, data, state string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+data, crashAt+"="+state)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || strings.TrimSpace(line) != "READY" {
		t.Fatalf("%s: %q, %v", state, line, err)
	}
}
