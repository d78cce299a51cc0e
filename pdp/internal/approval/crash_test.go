package approval_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/night"
)

// childDir is set in the environment of this test binary where it is to file, decide
// and spend until it is killed.
const childDir = "APPROVAL_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if state := os.Getenv(crashAt); state != "" {
			goOnUntil(dir, state)
		}
		spendUntilKilled(dir)
		return
	}
	os.Exit(m.Run())
}

const kind = "approval"

// logged are options with a real log, as a server has them.
func logged(l *decisionlog.Log) approval.Options {
	return approval.Options{
		Record: func(ctx context.Context, s approval.Step) error {
			details, err := json.Marshal(onRecord{s.Approval.ID, s.Approval.Status, s.Approval.Version, s.Approval.ExpiresAt, s.By, s.Seal, s.Decision, s.Continues})
			if err == nil {
				err = l.Append(ctx, []record.Entry{{ID: s.ID, Kind: kind, Tenant: s.Approval.Tenant, Caller: s.Caller, Event: s.Name, Details: details}})
			}
			return err
		},
		Recorded: func(id string) (bool, error) {
			_, err := l.ByID(id)
			if errors.Is(err, segment.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		},
		Withdraw: func(ctx context.Context, w approval.Withdrawal) error {
			return l.Withdraw(ctx, w.Tenant, w.Caller, record.Withdrawn{Decision: w.Decision, Approval: w.Item})
		},
		Attest: func(ctx context.Context, id string) (s approval.Step, found bool, err error) {
			record, err := l.Attest(ctx, id)
			if err == nil {
				s, err = stepOf(record.Line)
			}
			return s, err == nil, err
		},
		Steps: func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
			out := map[string][]approval.Step{}
			return out, l.Naming(ctx, from, ids, func(r record.Record) error {
				s, err := stepOf(r.Line)
				out[s.Approval.ID] = append(out[s.Approval.ID], s)
				return err
			})
		},
		Key: key, Size: l.Size,
		Limits: approval.Limits{MaxPendingPerSubject: 1 << 30, MaxPendingPerTenant: 1 << 30, NewPerMinutePerSubject: 1 << 30},
	}
}

// onRecord is what a record has of a step.
type onRecord struct {
	Approval  string          `json:"approval"`
	Status    approval.Status `json:"status"`
	Version   int             `json:"version"`
	ExpiresAt time.Time       `json:"expires_at"`
	By        string          `json:"by"`
	Seal      string          `json:"seal"`
	UsedBy    string          `json:"used_by"`

	Continues evaluation.Continuation `json:"continues"`
}

// stepOf reads a step, or a decision that went by an approval.
func stepOf(line []byte) (approval.Step, error) {
	var r struct {
		ID         string           `json:"id"`
		Time       time.Time        `json:"time"`
		Event      string           `json:"event"`
		Caller     string           `json:"caller"`
		Details    onRecord         `json:"details"`
		Discharged []evaluation.Met `json:"discharged"`
	}
	err := json.Unmarshal(line, &r)
	for _, d := range r.Discharged {
		return approval.Step{ID: r.ID, At: r.Time, Decision: r.ID, Continues: d.Continues, Approval: approval.Approval{ID: d.Approval}}, err
	}
	return approval.Step{ID: r.ID, At: r.Time, Name: r.Event, Caller: r.Caller, Statement: approval.Statement{By: r.Details.By}, Seal: r.Details.Seal, Decision: r.Details.UsedBy, Continues: r.Details.Continues, Approval: approval.Approval{
		ID: r.Details.Approval, Status: r.Details.Status, Version: r.Details.Version, ExpiresAt: r.Details.ExpiresAt,
	}}, err
}

// allow records a decision that was made by an approval.
func allow(l *decisionlog.Log, decision, id string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := l.Append(ctx, []record.Entry{allowed(decision, id)})
		return err
	}
}

func allowed(decision, id string) record.Entry {
	return record.Entry{ID: decision, Kind: format.KindDecision, Tenant: "acme",
		Decision: &record.Decision{Allow: true, Discharged: []evaluation.Met{{ID: "approval_required", Type: "approval_required", Approval: id}}}}
}

func openBoth(data string) (*decisionlog.Log, *approval.Store, error) {
	l, err := decisionlog.Open(data, decisionlog.Options{Kinds: []string{kind}, Checkpoints: decisionlog.Checkpoints{Records: 50}})
	if err != nil {
		return nil, nil, err
	}
	o := logged(l)
	o.OnError = func(err error) { fmt.Println("ERROR", err) }
	s, err := approval.Open(data, o)
	return l, s, err
}

// spendUntilKilled has four callers go the whole way, with two that want each use, and
// prints what was answered.
func spendUntilKilled(data string) {
	l, s, err := openBoth(data)
	if err != nil {
		fmt.Println("ERROR", err)
		os.Exit(1)
	}
	go s.Run(context.Background())
	var printing sync.Mutex
	say := func(words ...any) {
		printing.Lock()
		defer printing.Unlock()
		fmt.Println(words...)
	}
	for g := range 4 {
		go func() {
			for i := 0; ; i++ {
				if err := wholeWay(l, s, fmt.Sprintf("%d-%d-%d", os.Getpid(), g, i), i, say); err != nil {
					say("ERROR", err)
				}
			}
		}()
	}
	select {}
}

func wholeWay(l *decisionlog.Log, s *approval.Store, name string, i int, say func(...any)) error {
	ctx := context.Background()
	q := question(name, func(q *approval.ApprovalRequest) {
		q.Terms.Uses = i%2 + 1
		q.Terms.Timeout, q.Terms.ValidFor = 24*time.Hour, 24*time.Hour // by the real clock, on a disk however slow
	})
	a, err := s.File(ctx, q)
	if err != nil {
		return err
	}
	if _, err := s.Decide(ctx, a.ID, 0, by("mia"), all, equal); err != nil {
		return err
	}
	say("APPROVED", a.ID)
	if i%5 == 4 {
		if _, err := s.Revoke(ctx, a.ID, 0, by("mia")); err != nil {
			return err
		}
		say("REVOKED", a.ID)
	}
	if i%4 == 3 {
		return spendTwo(l, s, a, name, say)
	}
	var both sync.WaitGroup
	for n := range 2 {
		both.Go(func() {
			decision := fmt.Sprint(name, "-d", n)
			spent, err := spend(ctx, s, a.ID, q.Digest, decision, allow(l, decision, a.ID))
			if err != nil {
				say("ERROR", err)
			}
			if spent {
				say("ALLOWED", a.ID, decision)
				goOnTwice(l, s, a, decision, say)
			}
		})
	}
	both.Wait()
	return nil
}

// spendTwo takes both uses for two decisions that go on record together.
func spendTwo(l *decisionlog.Log, s *approval.Store, a approval.Approval, name string, say func(...any)) error {
	ctx := context.Background()
	decisions := []string{name + "-b.0", name + "-b.1"}
	use, err := s.Reserve(ctx, a.ID, a.Digest, decisions[0])
	if err != nil || use == nil { // it was revoked
		return err
	}
	if got, err := s.ReserveAgain(use, decisions[1]); err != nil || !got {
		use.InDoubt()
		return fmt.Errorf("of two uses there is one: %w", err)
	}
	var entries []record.Entry
	for _, decision := range decisions {
		entries = append(entries, allowed(decision, a.ID))
	}
	if err := l.Append(ctx, entries); err != nil {
		use.InDoubt()
		return err
	}
	if err := use.Spent(ctx); err != nil {
		return err
	}
	for _, decision := range decisions {
		say("ALLOWED", a.ID, decision)
		goOnTwice(l, s, a, decision, say)
	}
	return nil
}

// goOnTwice has two callers go on from a use, for some rounds.
func goOnTwice(l *decisionlog.Log, s *approval.Store, a approval.Approval, use string, say func(...any)) {
	for round := range 3 {
		c := evaluation.Continuation{Decision: use, Round: round + 1}
		var both sync.WaitGroup
		for n := range 2 {
			both.Go(func() {
				decision := fmt.Sprint(use, "-r", c.Round, n)
				answered, err := goOn(context.Background(), s, a.ID, a.Digest, c, decision, goesOn(l, decision, a.ID, c))
				if err != nil {
					say("ERROR", err)
				}
				if answered {
					say("CONTINUED", a.ID, c.Decision, c.Round)
				}
			})
		}
		both.Wait()
	}
}

// TestCrash kills who spends at random moments. By then no use was made twice, none was
// lost, and what counts is on record.
func TestCrash(t *testing.T) {
	data := quick(t)
	said := map[string][]string{} // what was answered, by its first word
	for range night.Cases(30) {
		killed(t, data, rand.IntN(150), said)
	}
	l, s, err := openBoth(data)
	must(t, err)
	kept := map[string]approval.Approval{}
	for after := ""; ; {
		page, next, err := s.List(t.Context(), approval.Filter{}, after, 100)
		must(t, err)
		for _, a := range page {
			kept[a.ID] = a
		}
		if after = next; next == "" {
			break
		}
	}
	usable := unspent(t, l, s, kept)
	must(t, s.Close())
	must(t, l.Close())

	uses, rounds, steps := readLog(t, data)
	for id, a := range kept {
		slices.Sort(uses[id])
		slices.Sort(a.Used)
		if len(uses[id]) > a.Terms.Uses || len(a.Reserved) > 0 || !slices.Equal(uses[id], a.Used) && !usable[id] {
			t.Errorf("%s has %d uses; used %v, reserved %v, allowed on record %v", id, a.Terms.Uses, a.Used, a.Reserved, uses[id])
		}
		checkSteps(t, a, steps[id], usable[id])
	}
	for _, id := range said["APPROVED"] {
		if a := kept[id]; a.Status != approval.Approved && a.Status != approval.UsedUp && a.Status != approval.Revoked {
			t.Errorf("%s was approved, and is %q", id, a.Status)
		}
	}
	for _, id := range said["REVOKED"] {
		if kept[id].Status != approval.Revoked {
			t.Errorf("%s was revoked, and is %q", id, kept[id].Status)
		}
	}
	for _, line := range said["ALLOWED"] {
		id, decision, _ := strings.Cut(line, " ")
		if !slices.Contains(kept[id].Used, decision) {
			t.Errorf("%s was allowed by %s, of which are used %v", decision, id, kept[id].Used)
		}
	}
	for round, n := range rounds {
		if n > 1 {
			t.Errorf("%s is on record %d times", round, n)
		}
	}
	told := map[string]bool{}
	for _, line := range said["CONTINUED"] {
		if told[line] || rounds[line] != 1 {
			t.Errorf("%s was answered twice, or is not on record: %d", line, rounds[line])
		}
		told[line] = true
	}
	t.Logf("%d approvals, %d answers, %d left to be spent, %d rounds, %d of them answered", len(kept), len(said["ALLOWED"]), len(usable), len(rounds), len(told))
	if len(told) == 0 {
		t.Error("nothing went on")
	}
}

// unspent spends each use that is left: none was lost in a crash.
func unspent(t *testing.T, l *decisionlog.Log, s *approval.Store, kept map[string]approval.Approval) map[string]bool {
	t.Helper()
	usable := map[string]bool{}
	for id, a := range kept {
		if a.Status != approval.Approved {
			continue
		}
		if _, live, _ := s.Live(a.Digest, id); !live || a.Unrecorded {
			t.Errorf("%s is approved, and not live: %+v", id, a)
		}
		for n := range a.Terms.Uses - len(a.Used) {
			d := fmt.Sprint(id, "-last", n)
			if spent, err := spend(t.Context(), s, id, a.Digest, d, allow(l, d, id)); err != nil || !spent {
				t.Errorf("a use of %s is lost: %v", id, err)
			}
		}
		usable[id] = true
	}
	return usable
}

// readLog verifies the log, and reads which decisions were made by each approval, how often each
// round of a use was, and the steps of each approval.
func readLog(t *testing.T, data string) (allowed map[string][]string, rounds map[string]int, steps map[string][]string) {
	t.Helper()
	allowed, rounds, steps = map[string][]string{}, map[string]int{}, map[string][]string{}
	seen := map[string]bool{}
	report := verify.Directory(data, verify.Options{Record: func(_ int64, line []byte) {
		var record struct {
			ID         string           `json:"id"`
			Kind       string           `json:"kind"`
			Event      string           `json:"event"`
			Details    jsontext.Value   `json:"details"`
			Discharged []evaluation.Met `json:"discharged"`
		}
		must(t, json.Unmarshal(line, &record))
		if seen[record.ID] {
			t.Errorf("record %s is there twice: %s", record.ID, line)
		}
		seen[record.ID] = true
		for _, d := range record.Discharged {
			if d.Continues.Round == 0 {
				allowed[d.Approval] = append(allowed[d.Approval], record.ID)
			} else {
				rounds[fmt.Sprint(d.Approval, " ", d.Continues.Decision, " ", d.Continues.Round)]++
			}
		}
		var step struct {
			Approval string `json:"approval"`
		}
		if record.Kind == kind {
			must(t, json.Unmarshal(record.Details, &step))
			steps[step.Approval] = append(steps[step.Approval], record.Event)
		}
	}})
	if report.Code != verify.Verified {
		t.Errorf("the log does not verify: %+v", report.Problem)
	}
	return allowed, rounds, steps
}

// checkSteps holds the steps on record against what became of an approval.
func checkSteps(t *testing.T, a approval.Approval, steps []string, spentSince bool) {
	t.Helper()
	want := []string{approval.StepFiled}
	if a.Status != approval.Pending {
		want = append(want, approval.StepApprove, approval.StepApproved)
	}
	uses := len(a.Used)
	if spentSince {
		uses = a.Terms.Uses
	}
	for range uses {
		want = append(want, approval.StepUsed)
	}
	switch {
	case a.Status == approval.Revoked:
		want = append(want, approval.StepRevoked)
	case uses == a.Terms.Uses:
		want = append(want, approval.StepUsedUp)
	}
	if n := len(slices.DeleteFunc(slices.Clone(steps), func(s string) bool { return s != approval.StepContinued })); n != a.Continued {
		t.Errorf("%s was continued %d times, and on record is %v", a.ID, a.Continued, steps)
	}
	steps = slices.DeleteFunc(slices.Clone(steps), func(s string) bool { return s == approval.StepReleased || s == approval.StepContinued })
	if !slices.Equal(steps, want) {
		t.Errorf("%s is %s, and on record is %v", a.ID, a.Status, steps)
	}
}

// killed runs the child and kills it after it has said so much.
func killed(t *testing.T, data string, after int, said map[string][]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+data)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewReader(out)
	for n := 0; ; n++ { // on after it was killed: what it had said counts
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if said[word] = append(said[word], rest); word == "ERROR" {
			t.Error(line)
		}
		if n == after {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if _, err := os.Stat(filepath.Join(data, approval.FileName)); err != nil {
		t.Error(err)
	}
}
