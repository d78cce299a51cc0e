package capability_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policy-service/evaluation"
	token "policy-service/evaluation/capability"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// record is what a store puts its steps on, and a caller its decisions.
type record struct {
	*ledgertest.Records[capability.Step]                     // and the decisions that say so
	steps                                map[string][]string // the names of those of each capability
}

var errRecord = ledgertest.ErrRecord

func newRecord() *record {
	r := &record{steps: map[string][]string{}}
	r.Records = ledgertest.NewRecords(start, r.onRecord)
	return r
}

func (r *record) onRecord(s capability.Step) (capability.Step, error) {
	if s.Capability.Tenant == "" || s.Capability.JKT == "" {
		return s, fmt.Errorf("step %s does not say of what it is: %+v", s.Name, s)
	}
	r.steps[s.Capability.ID] = append(r.steps[s.Capability.ID], s.Name)
	return onRecord(s), nil
}

// onRecord is what a log gives back of a step.
func onRecord(s capability.Step) capability.Step {
	s.Capability = capability.Capability{ID: s.Capability.ID, Version: s.Capability.Version, State: s.Capability.State, After: s.Capability.After}
	return s
}

// logs has the log say of what a decision is that is on record.
func (r *record) logs(id, of string, grants bool) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.IDs[id] = true
	r.Steps = append(r.Steps, capability.Step{ID: id, At: r.Now, Decision: id, Grants: grants, Capability: capability.Capability{ID: of}})
}

func (r *record) names(id string) []string {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return slices.Clone(r.steps[id])
}

// copy is the record as it is now, for one file that goes its own way.
func (r *record) copy() *record {
	r.Mu.Lock()
	other := &record{steps: maps.Clone(r.steps)}
	r.Mu.Unlock()
	other.Records = r.Copy(other.onRecord)
	return other
}

var key = []byte("thirty-two bytes that nobody has")

func (r *record) options() capability.Options {
	return capability.Options{
		Now: r.Time, NewID: r.NewID, Key: key, Record: r.Put, Recorded: r.Has, Withdraw: r.Withdraw, Attest: r.Attest, Steps: r.Since, Size: r.Size,
		Limits:  capability.Limits{NewPerMinutePerHolder: 1_000_000},
		OnError: r.OnError,
	}
}

func mustOpen(t testing.TB, data string, o capability.Options) *capability.Store {
	t.Helper()
	if os.Getenv(onEtcd) != "" && o.Engine == nil {
		o.Engine = etcdtest.Engine(t, data, capability.Known)
	}
	s, err := capability.Open(data, o)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustLive(t testing.TB, s *capability.Store) int {
	t.Helper()
	n, err := s.Live()
	must(t, err)
	return n
}

func wantForgotten(t testing.TB, s *capability.Store) {
	t.Helper()
	if keys := s.Keys(); len(keys) > 0 {
		t.Errorf("all is forgotten but for %q", keys)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quick is a directory in memory where there is one with room.
func quick(t testing.TB) string { return ledgertest.Dir(t, "capabilities") }

// holderKey is the key of a holder with a name.
func holderKey(name string) token.Key {
	seed := sha256.Sum256([]byte(name))
	k, err := token.NewKey(ed25519.NewKeyFromSeed(seed[:]).Public())
	if err != nil {
		panic(err)
	}
	return k
}

// asked is what is granted to an agent.
func asked(s *capability.Store, now time.Time, agent string, change ...func(*capability.New)) capability.New {
	n := capability.New{
		Tenant: "acme", Caller: "key:gateway", Bundle: "h1:abc", Grant: []byte(`[{"action":"capability.grant"}]`), Ask: "ask of " + agent,
		Token: token.Token{
			Issuer: "https://pdp.example.com/tenants/acme", Audience: "agent-b", ID: s.NewID(), Holder: evaluation.Ref{Type: "agent", ID: agent},
			Key: holderKey(agent), IssuedAt: now, NotBefore: now, Expires: now.Add(time.Hour), Verify: token.Online,
			Layers: []token.Layer{{Tools: []string{"agent-b:deploy"}}},
		},
	}
	for _, f := range change {
		f(&n)
	}
	return n
}

func uses(n int) func(*capability.New)         { return func(a *capability.New) { a.Token.MaxUses = n } }
func approved(id string) func(*capability.New) { return func(a *capability.New) { a.Approval = id } }

// mustGrant grants a capability.
func (r *record) mustGrant(t testing.TB, s *capability.Store, n capability.New) capability.Capability {
	t.Helper()
	granted, err := s.Grant(t.Context(), n, "grant of "+n.Token.ID)
	must(t, err)
	must(t, r.Decide("grant of "+n.Token.ID))
	must(t, granted.Spent(t.Context()))
	return r.mustGet(t, s, n.Token.ID)
}

func (r *record) mustGet(t testing.TB, s *capability.Store, id string) capability.Capability {
	t.Helper()
	c, found, err := s.Get(t.Context(), id)
	if must(t, err); !found {
		t.Fatalf("there is no %s", id)
	}
	return c
}

// use reserves a use for a decision, has the decision recorded, and settles what became of it, as the PDP does.
func (r *record) use(ctx context.Context, s *capability.Store, id, decision string) error {
	use, err := s.Reserve(ctx, id, decision)
	if err != nil {
		return err
	}
	if err := r.Decide(decision); err != nil {
		use.InDoubt()
		return err
	}
	return use.Spent(ctx)
}

// code is that of a refusal, "" of none.
func code(err error) token.Code {
	var r *token.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func wantCode(t testing.TB, name string, err error, want token.Code) {
	t.Helper()
	if err == nil && want == "" {
		return
	}
	if got := code(err); got != want || got == "" {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

// wantState wants a state in the file, and steps on record.
func (r *record) wantState(t testing.TB, s *capability.Store, id string, want capability.State, names ...string) {
	t.Helper()
	s.Settled(id)
	c, found, err := s.Get(t.Context(), id)
	if !found || err != nil || c.State != want {
		t.Errorf("%s is %v %s, %v; want %s", id, found, c.State, err, want)
	}
	if got := r.names(id); names != nil && !slices.Equal(got, names) {
		t.Errorf("on record of %s is %v, want %v", id, got, names)
	}
}

// placed: how much of the log a capability knows of is no part of what it is, and its token is compared as claims.
var placed = cmp.Options{cmpopts.IgnoreFields(capability.Capability{}, "After", "Written", "Revision", "Token"), cmpopts.IgnoreUnexported(capability.Capability{}), cmpopts.EquateEmpty()}

// TestLife goes the whole way, with a restart after each step.
func TestLife(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), t.TempDir()
	var s *capability.Store
	again := func() {
		if s != nil {
			must(t, s.Close())
		}
		s = mustOpen(t, data, r.options())
	}
	again()
	n := asked(s, r.Now, "a", uses(2), approved("approval"))
	granting, err := s.Grant(t.Context(), n, "grant")
	must(t, err)
	if c, _, _ := s.Stored(n.Token.ID); c.State != capability.Asked {
		t.Errorf("before its decision is on record it is %s", c.State)
	}
	_, err = s.Usable(t.Context(), n.Token.ID)
	wantCode(t, "before its decision is on record", err, token.BadSignature)
	must(t, r.Decide("grant"))
	must(t, granting.Spent(t.Context()))
	again()
	c, err := s.Usable(t.Context(), n.Token.ID)
	must(t, err)
	claims, err := n.Token.Claims()
	if must(t, err); string(c.Claims) != string(claims) || c.State != capability.Active || c.Decision != "grant" || string(c.Grant) != string(n.Grant) {
		t.Errorf("it is %+v", c)
	}
	if again, err := c.Token.Claims(); string(again) != string(claims) || err != nil {
		t.Errorf("its token cannot be signed again: %s, %v", again, err)
	}
	if got, found, err := s.Granted(t.Context(), "acme", "approval", n.Ask); got.ID != c.ID || !found || err != nil {
		t.Errorf("who asks again finds %v, %v", got.ID, err)
	}
	must(t, r.use(t.Context(), s, c.ID, "d1"))
	again()
	must(t, r.use(t.Context(), s, c.ID, "d2"))
	again()
	wantCode(t, "a third use", r.use(t.Context(), s, c.ID, "d3"), token.UsedUp)
	r.wantState(t, s, c.ID, capability.UsedUp, "granted", "used", "used", "used_up")
	if got := r.mustGet(t, s, c.ID); !slices.Equal(got.Recent, []string{"d1", "d2"}) || got.Used != 2 || mustLive(t, s) != 0 {
		t.Errorf("it is %+v, and %d are live", got, mustLive(t, s))
	}
	r.Pass(30*24*time.Hour + time.Second)
	s.Work(t.Context())
	wantForgotten(t, s)
}

// TestStates: what can be done in which state, and what is on record of it.
func TestStates(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	ctx := t.Context()
	end := func(do func(context.Context, string, string, string) (capability.Capability, error)) func(string) error {
		return func(id string) error { _, err := do(ctx, id, "mia", "why"); return err }
	}
	bundle := func(do func(context.Context, string, string) (capability.Capability, error)) func(string) error {
		return func(id string) error { _, err := do(ctx, id, "h1:next"); return err }
	}
	do := map[string]func(string) error{
		"revoke": end(s.Revoke), "return": end(s.Return), "suspend": bundle(s.Suspend), "resume": bundle(s.Resume),
		"expire": func(string) error { r.Pass(time.Hour); s.Work(ctx); return nil },
		"use":    func(id string) error { return r.use(ctx, s, id, r.NewID()) },
	}
	for name, c := range map[string]struct {
		first []string
		state capability.State
		may   []string
		code  token.Code
		steps []string
	}{
		"active":    {nil, capability.Active, []string{"revoke", "return", "suspend", "use"}, "", []string{"granted"}},
		"suspended": {[]string{"suspend"}, capability.Suspended, []string{"revoke", "return", "resume"}, token.Suspended, []string{"granted", "suspended"}},
		"resumed":   {[]string{"suspend", "resume"}, capability.Active, []string{"revoke", "return", "suspend", "use"}, "", []string{"granted", "suspended", "resumed"}},
		"revoked":   {[]string{"revoke"}, capability.Revoked, nil, token.Revoked, []string{"granted", "revoked"}},
		"returned":  {[]string{"return"}, capability.Returned, nil, token.Revoked, []string{"granted", "returned"}},
		"expired":   {[]string{"expire"}, capability.Expired, nil, token.Expired, []string{"granted", "expired"}},
		"used up":   {[]string{"use"}, capability.UsedUp, nil, token.UsedUp, []string{"granted", "used", "used_up"}},
	} {
		for _, then := range []string{"revoke", "return", "suspend", "resume", "use"} {
			id := r.mustGrant(t, s, asked(s, r.Now, name, uses(1))).ID
			for _, step := range c.first {
				must(t, do[step](id))
			}
			r.wantState(t, s, id, c.state, c.steps...)
			_, err := s.Usable(ctx, id)
			wantCode(t, name, err, c.code)
			err = do[then](id)
			if may := slices.Contains(c.may, then); may != (err == nil) {
				t.Errorf("%s, then %s: %v", name, then, err)
			}
			if state := (*capability.StateError)(nil); err != nil && then != "use" && (!errors.As(err, &state) || state.State != c.state) {
				t.Errorf("%s, then %s: %v", name, then, err)
			}
			_, _ = s.Revoke(ctx, id, "", "")
		}
	}
	if _, err := s.Revoke(ctx, "cap_none", "", ""); !errors.Is(err, capability.ErrNotFound) {
		t.Error(err)
	}
	wantCode(t, "one that is not there", r.use(ctx, s, "cap_none", "d"), token.BadSignature)
}
