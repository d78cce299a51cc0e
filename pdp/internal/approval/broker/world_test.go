package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/server/auth"
)

// world is a broker with all that it stands between: a PDP, its log, and people.
type world struct {
	*testing.T
	*broker.Broker
	options broker.Options
	pdp     *pdp.PDP
	log     *decisionlog.Log
	limited atomic.Int32 // approval requests that a limit refused
	n       atomic.Int32
}

// Mia and ida decide about all that is asked for, and zed about nothing.
const policies = `
@id("ask") @obligation("ask") permit(principal is agent, action == Action::"do", resource);
@id("people") permit(principal, action == Action::"approval.decide", resource is Approval) when { principal in team::"leads" };
`

func open(t *testing.T, with ...func(*broker.Options)) *world {
	t.Helper()
	w, data, files := &world{T: t}, t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"a.cedar":          policies,
		"obligations.yaml": "ask: {type: approval_required, properties: {template: owner, message: \"${principal.id} wants ${resource.id}\", timeout: 1h, valid_for: 10m, delegable: true, rounds: 2}}\n",
		"entities/e.json": `[{"uid":{"type":"team","id":"leads"},"attrs":{},"parents":[]},
			{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},
			{"uid":{"type":"user","id":"ida"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}]`,
	} {
		w.must(os.MkdirAll(filepath.Dir(filepath.Join(files, name)), 0o700))
		w.must(os.WriteFile(filepath.Join(files, name), []byte(text), 0o600))
	}
	masker, err := mask.New(bytes.Repeat([]byte{1}, mask.KeySize), nil)
	w.must(err)
	masks := func(context.Context) *mask.Masker { return masker }
	w.log, err = decisionlog.Open(data, decisionlog.Options{Kinds: []string{format.KindApproval}})
	w.must(err)
	t.Cleanup(func() { w.must(w.log.Close()) })
	key, err := broker.OpenKey(data)
	w.must(err)
	logger := slog.New(slog.DiscardHandler)
	w.options = broker.Options{
		Data: data, Log: w.log, Logger: logger, Mask: masks,
		Store: approval.Options{
			Key: key, Now: time.Now, InForce: func(string, string, string) bool { return true },
			Limits: approval.Limits{MaxPendingPerSubject: 2},
		},
		PDP:        func() *pdp.PDP { return w.pdp },
		IssuerURL:  func(string) string { return "https://pdp.example" },
		ConsoleURL: func() string { return "" },
		Approvers: func(string) ([]auth.Caller, []string) {
			return []auth.Caller{person("mia"), person("ida"), person("zed")}, []string{"user"}
		},
		Persons: (&auth.Authenticator{}).Persons,
		Count:   func(string) {}, Refused: func(*approval.LimitError) { w.limited.Add(1) },
	}
	for _, set := range with {
		set(&w.options)
	}
	w.Broker, err = broker.Open(w.options)
	w.must(err)
	t.Cleanup(func() { w.must(w.Store.Close()) })
	nothing := func(context.Context) error { return nil }
	w.pdp, err = pdp.New(pdp.Dir(files), pdp.Options{
		Approvals: w.Broker, NewID: func() string { return fmt.Sprint("d", w.n.Add(1)) },
		Recorder: &recorder.Recorder{Log: w.log, Mask: masks, GoOn: nothing, Waits: func(context.Context) {}},
	})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// person is a person with an API key of their own.
func person(name string, more ...auth.Permission) auth.Caller {
	return auth.Caller{
		Name: "key:" + name, Tenants: []string{"default"}, Permissions: append([]auth.Permission{auth.Approve}, more...),
		Principal: auth.Principal{Type: "user", ID: name}, Way: evaluation.Way{Via: evaluation.ViaAPI},
	}
}

// asks has the gateway ask if an agent may do something with a resource, with an approval or "".
func (w *world) asks(agent, resource, approval string) evaluation.Decision {
	w.Helper()
	context := map[string]any{"token": "hunter22"}
	if approval != "" {
		context["approval_id"] = approval
	}
	o, err := evaluation.NewObject(context)
	w.must(err)
	d, err := w.pdp.Evaluate(w.Context(), pdp.Call{
		Request: evaluation.Request{
			Shape: evaluation.Native, Tenant: "default", Subject: evaluation.Entity{Type: "agent", ID: agent},
			Action: evaluation.Action{Name: "do"}, Resource: evaluation.Entity{Type: "doc", ID: resource}, Context: o,
		},
		Asker: evaluation.Asker{Name: "key:gateway"}, Approvals: pdp.SpendOrFile,
	})
	w.must(err)
	return d
}

// TestOneApproval is the whole way: an agent asks, a person approves, and the agent may do it once.
func TestOneApproval(t *testing.T) {
	t.Parallel()
	w := open(t)
	d := w.asks("bot", "plan", "")
	if d.Approval == nil || d.Approval.Status != "pending" || d.Approval.StatusURL != "https://pdp.example/v1/approvals/"+d.Approval.ID {
		t.Fatalf("got %+v", d)
	}
	if again := w.asks("bot", "plan", ""); again.Approval == nil || again.Approval.ID != d.Approval.ID {
		t.Errorf("asked again it is %+v", again.Approval)
	}
	seen, err := w.See(t.Context(), person("mia"), d.Approval.ID)
	w.must(err)
	if text := string(seen.Approval.Shown); bytes.Contains(seen.Approval.Shown, []byte("hunter22")) || seen.Approval.Terms.Message != "bot wants plan" {
		t.Errorf("people are shown %s and %q", text, seen.Approval.Terms.Message)
	}
	a, err := seen.Decide(t.Context(), evaluation.Ruling{Decision: "approve", Reason: "fine: hunter22"})
	w.must(err)
	if a.Status != approval.Approved || len(a.Votes) != 1 || a.Votes[0].By != `user::"mia"` {
		t.Fatalf("it is %+v", a)
	}
	if other := w.asks("bot", "another", a.ID); other.Allow && other.Approval == nil {
		t.Errorf("it counts for another request: %+v", other)
	}
	if d = w.asks("bot", "plan", a.ID); !d.Allow || d.Approval != nil {
		t.Fatalf("with the approval: %+v", d)
	}
	if d = w.asks("bot", "plan", a.ID); d.Allow && d.Approval == nil {
		t.Errorf("the approval counts twice: %+v", d)
	}
	var steps []string
	w.must(w.log.Flush(t.Context()))
	for rec, err := range w.log.Records(t.Context(), 0, w.log.Size()) {
		w.must(err)
		if bytes.Contains(rec.Line, []byte("hunter22")) {
			t.Errorf("a secret is on record: %s", rec.Line)
		}
		if r, err := record.Parse(rec.Line); err == nil && r.Kind == format.KindApproval && bytes.Contains(rec.Line, []byte(a.ID)) {
			steps = append(steps, r.Event)
		}
	}
	want := []string{approval.StepFiled, approval.StepApprove, approval.StepApproved, approval.StepUsed, approval.StepUsedUp}
	if !slices.Equal(steps, want) {
		t.Errorf("on record are %q, want %q", steps, want)
	}
}

// TestWhoMayDecide: an approval request exists for those who decide about it and for the program that asked, and each
// may do what is theirs to do.
func TestWhoMayDecide(t *testing.T) {
	t.Parallel()
	w := open(t)
	id := w.asks("bot", "plan", "").Approval.ID
	elsewhere, powerless := person("mia"), person("ida")
	elsewhere.Tenants, powerless.Permissions = []string{"acme"}, []auth.Permission{auth.Decide}
	program := auth.Caller{Name: "key:gateway", Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}}
	for name, c := range map[string]struct {
		caller auth.Caller
		may    []broker.Act // nil: it does not exist
	}{
		"who decides":               {person("mia"), []broker.Act{broker.ActApprove, broker.ActDeny, broker.ActDelegate}},
		"whom no policy lets":       {person("zed"), nil},
		"of another tenant":         {elsewhere, nil},
		"without the permission":    {powerless, nil},
		"the program that asked":    {program, []broker.Act{broker.ActCancel}},
		"another program":           {auth.Caller{Name: "key:other", Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}}, nil},
		"a caller without anything": {auth.Caller{}, nil},
	} {
		seen, err := w.See(t.Context(), c.caller, id)
		if c.may == nil {
			if !errors.Is(err, approval.ErrNotFound) {
				t.Errorf("%s: got %+v, %v", name, seen.Approval, err)
			}
			continue
		}
		w.must(err)
		var may []broker.Act
		for act, reason := range seen.Acts() {
			if reason == nil {
				may = append(may, act)
			}
		}
		if !slices.Equal(may, c.may) {
			t.Errorf("%s: may %q", name, may)
		}
	}
	if _, err := w.See(t.Context(), person("mia"), "none"); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	seen, err := w.See(t.Context(), program, id)
	w.must(err)
	var lacks *broker.LacksError
	if _, err := seen.Decide(t.Context(), evaluation.Ruling{Decision: "approve"}); !errors.As(err, &lacks) || lacks.Permission != auth.Approve {
		t.Errorf("the program approves: %v", err)
	}
	if a, err := seen.Cancel(t.Context(), evaluation.Ruling{}); err != nil || a.Status != approval.Cancelled {
		t.Errorf("it cancels: %+v, %v", a, err)
	}
}

// TestDeciders are those who may decide and have not: neither the caller nor whom no policy lets.
func TestDeciders(t *testing.T) {
	t.Parallel()
	w := open(t)
	id := w.asks("bot", "plan", "").Approval.ID
	seen, err := w.See(t.Context(), person("mia"), id)
	w.must(err)
	d, err := seen.Deciders(t.Context(), func(context.Context) error { return nil })
	if err != nil || d.More || !slices.Equal(d.Items, []string{`user::"ida"`}) {
		t.Errorf("got %+v, %v", d, err)
	}
	busy := errors.New("others come first")
	if d, err := seen.Deciders(t.Context(), func(context.Context) error { return busy }); err == nil && !d.More {
		t.Errorf("without a turn: %+v", d)
	}
	if why := seen.Why(); len(why.Policies) != 1 || why.Policies[0].ID != "ask" || why.ValidFor != "10m" || why.Obligation.Name != "ask" || why.Obligation.At == "" {
		t.Errorf("people are asked because of %+v", why)
	}
}

// TestALimitIsSaid: an agent with as many approval requests as it may have is refused, and told when to come again.
func TestALimitIsSaid(t *testing.T) {
	t.Parallel()
	w := open(t)
	for n := range 2 {
		w.asks("bot", fmt.Sprint(n), "")
	}
	d := w.asks("bot", "one more", "")
	if d.Allow && d.Approval == nil || d.Approval.Status != "refused" || d.Approval.RetryAfter < 1 || w.limited.Load() != 1 {
		t.Errorf("got %+v, %d refused", d.Approval, w.limited.Load())
	}
	if d := w.asks("another", "one more", ""); d.Approval == nil || d.Approval.Status != "pending" {
		t.Errorf("another agent: %+v", d.Approval)
	}
}

// TestTasksOfOthers: no program learns of a task that is not its own.
func TestTasksOfOthers(t *testing.T) {
	t.Parallel()
	w := open(t)
	id := w.asks("bot", "plan", "").Approval.ID
	task, err := w.Store.Begin(approval.Task{ID: "task", Tenant: "default", Caller: "key:gateway", Items: []string{id}})
	w.must(err)
	for _, of := range [][3]string{{"none", "key:gateway", "default"}, {task.ID, "key:other", "default"}, {task.ID, "key:gateway", "acme"}} {
		var refused *broker.AccessError
		if _, err := w.Task(of[0], of[1], of[2]); !errors.As(err, &refused) || refused.Name != evaluation.UnknownTask {
			t.Errorf("%q: got %v", of, err)
		}
	}
	found, err := w.Task(task.ID, "key:gateway", "default")
	w.must(err)
	followed, err := w.Follow(t.Context(), found)
	w.must(err)
	answer, err := w.CancelTask(t.Context(), followed, "")
	if err != nil || answer.Task.Status != string(approval.Cancelled) || answer.Task.StatusEndpoint != "https://pdp.example"+broker.RequestsPath+"/task" {
		t.Errorf("cancelled it is %+v, %v", answer.Task, err)
	}
	var refused *broker.AccessError
	if _, err := w.CancelTask(t.Context(), must(w.Follow(t.Context(), found)), ""); !errors.As(err, &refused) || refused.Name != evaluation.InvalidTaskState {
		t.Errorf("cancelled again: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
