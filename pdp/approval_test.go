package pdp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// desk keeps approvals as an embedding program might, by their binding.
type desk struct {
	approved map[string]int                     // uses left
	used     map[string]evaluation.Continuation // the last round of each use
	filed    []string
	recorded []evaluation.Decision
	settled  []settled
	failing  error
	under    func(context.Context) error // while a decision is recorded

	unsettled error // of each use that is on record
}

func (d *desk) Find(_ context.Context, a pdp.ApprovalRequest) (pdp.Found, error) {
	if !d.has(a) || a.Presented != "" && a.Presented != "one" {
		return pdp.Found{Why: evaluation.ApprovalUnverifiable}, d.failing
	}
	return pdp.Found{ID: "one", Until: a.Now.Add(a.Terms.ValidFor)}, d.failing
}

func (d *desk) Offer(_ context.Context, a pdp.ApprovalRequest, why evaluation.Reason) (*evaluation.Access, error) {
	return &evaluation.Access{EvaluationID: "e", Reason: why}, d.failing
}

func (d *desk) Reserve(_ context.Context, a pdp.ApprovalRequest, _ string) (pdp.Reservation, error) {
	if !d.has(a) {
		return nil, nil
	}
	if d.used == nil {
		d.used = map[string]evaluation.Continuation{}
	}
	if a.Continues.Round > 0 {
		d.used[string(a.Binding)] = a.Continues
		return d, nil
	}
	d.approved[string(a.Binding)]--
	d.used[string(a.Binding)] = evaluation.Continuation{Decision: a.Decision}
	return d, nil
}

func (d *desk) Again(context.Context, string) (bool, error) { panic("the desk has one use for each") }

// has reports whether a use is left, or the round that is asked for is the next.
func (d *desk) has(a pdp.ApprovalRequest) bool {
	if last := d.used[string(a.Binding)]; a.Continues.Round > 0 {
		return last.Decision == a.Continues.Decision && last.Round == a.Continues.Round-1
	}
	return d.approved[string(a.Binding)] > 0
}

// Spent and InDoubt note the end of a reservation.
func (d *desk) Spent(ctx context.Context) error {
	d.settled = append(d.settled, settled{"spent", ctx.Err()})
	return d.unsettled
}
func (d *desk) InDoubt() { d.settled = append(d.settled, settled{"in doubt", nil}) }

// settled is the end of a reservation, and whether the context had ended by then.
type settled struct {
	how   string
	ended error
}

func (d *desk) File(_ context.Context, a pdp.ApprovalRequest) (*evaluation.Approval, error) {
	d.filed = append(d.filed, string(a.Binding))
	return &evaluation.Approval{ID: fmt.Sprintf("a%d", len(d.filed)), Status: "pending", ExpiresAt: a.Now.Add(a.Terms.Timeout), StatusURL: "/s"}, d.failing
}

func (d *desk) Record(ctx context.Context, records []pdp.Record) error {
	if d.under != nil {
		if err := d.under(ctx); err != nil {
			return err
		}
	}
	for _, r := range records {
		d.recorded = append(d.recorded, r.Decision)
	}
	return nil
}

// deskOf is a PDP of a bundle, and the desk that has its approvals.
func deskOf(t testing.TB, b bundle) (*pdp.PDP, *desk) {
	t.Helper()
	loaded, problems := pdp.Load(b.Source())
	if problems.Refuse() {
		t.Fatalf("the bundle does not load:\n%v", problems)
	}
	d := &desk{approved: map[string]int{}}
	return pdp.Of(loaded, pdp.Options{Now: clock, Approvals: d, Recorder: d}), d
}

func filing(c *pdp.Call)   { c.Approvals = pdp.SpendOrFile }
func spending(c *pdp.Call) { c.Approvals = pdp.Spend }

// native is a request in the native shape, with members of its context.
func native(context string) string {
	return `{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"t"},"context":{` + context + `}}`
}

const (
	askFirst = "ask: {type: approval_required, properties: {template: owner, timeout: 10m}}\ntell: {type: notification, properties: {to: all, body: b}}\nalso: {type: approval_required, properties: {template: other}}\n"
	stands   = `{"allow":true,"obligations":{"approval_required":true},"obligation_details":[{"id":"ask","type":"approval_required","properties":{"template":"owner","timeout":"10m"}}]`
	asking   = stands + `,"approval":{"id":"a1","status":"pending","expires_at":"2026-01-02T03:14:05Z","status_url":"/s"}}`
	approved = `"justification":"approved"`
)

func TestAwaitingApproval(t *testing.T) {
	t.Parallel()
	const permitBots = `@id("p") @obligation("ask") permit(principal is agent, action, resource);`
	for name, test := range map[string]struct {
		policies, request string
		change            func(*pdp.Call)
		want              string // of the approved request
		spent             bool
	}{
		"approved":                  {permitBots, native(approved), filing, `{"allow":true}`, true},
		"approved, by its id":       {permitBots, native(approved + `,"approval_id":"one"`), filing, `{"allow":true}`, true},
		"approved, by another's id": {permitBots, native(approved + `,"approval_id":"two"`), filing, asking, false},
		"by its id alone":           {permitBots, native(`"approval_id":"one"`), filing, `{"allow":true}`, true},
		"by another's id alone":     {permitBots, native(`"approval_id":"two"`), filing, asking, false},
		"as AuthZEN presents it":    {permitBots, native(`"approval":{"id":"one"}`), filing, `{"allow":true}`, true},
		"not presented":             {permitBots, native(``), filing, asking, false},
		"not to be filed":           {permitBots, native(``), spending, stands + `}`, false},
		"only asked to be known":    {permitBots, native(approved), func(*pdp.Call) {}, stands + `}`, false},
		"a forbid, once approved":   {permitBots + `forbid(principal, action, resource) when { context.pdp.approved };`, native(approved), filing, `{"allow":false}`, false},
		"no permit, once approved":  {`@obligation("ask") permit(principal is agent, action, resource) unless { context.pdp.approved };`, native(approved), filing, `{"allow":false}`, false},
		"only once approved":        {permitBots + `@obligation("tell") permit(principal is agent, action, resource) when { context.pdp.approved };`, native(approved + `,"supported_obligations":["notification"]`), filing, `{"allow":true,"obligations":{"notification":true},"obligation_details":[{"id":"tell","type":"notification","properties":{"body":"b","to":"all"}}]}`, true},
		"only before":               {permitBots + `@obligation("tell") permit(principal is agent, action, resource) unless { context.pdp.approved };`, native(approved + `,"supported_obligations":["notification"]`), filing, `{"allow":true,"obligations":{"notification":true},"obligation_details":[{"id":"tell","type":"notification","properties":{"body":"b","to":"all"}}]}`, true},
		"what the PEP cannot do":    {permitBots + `@obligation("tell") permit(principal is agent, action, resource) when { context.pdp.approved };`, native(approved), filing, `{"allow":false,"reason":"obligation_unsupported","required_obligations":["notification"]}`, false},
		"another approval, then":    {permitBots + `@obligation("also") permit(principal is agent, action, resource) when { context.pdp.approved };`, native(approved), filing, `{"allow":false,"reason":"obligation_conflict"}`, false},
		"not even an allow":         {permitBots + `forbid(principal, action, resource) unless { context.pdp.approved };`, native(approved), filing, `{"allow":false}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := deskOf(t, one(test.policies, "obligations.yaml", askFirst))
			ask(t, p, strings.NewReplacer(approved, `"x":0`, `"approval_id":"one"`, `"x":0`, `"approval_id":"two"`, `"x":0`).Replace(test.request), spending)
			probe, bindings := deskOf(t, one(test.policies, "obligations.yaml", askFirst))
			ask(t, probe, test.request, filing)
			for _, binding := range bindings.filed {
				d.approved[binding] = 1
			}
			d.recorded = nil
			if got := ask(t, p, test.request, test.change); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if used := len(d.settled) == 1 && d.settled[0].how == "spent"; used != test.spent || len(d.settled) > 1 {
				t.Errorf("the reservation: %v", d.settled)
			}
			spent := len(bindings.filed) > 0 && d.approved[bindings.filed[0]] == 0
			if spent != test.spent || len(d.recorded) != 1 || (len(d.recorded[0].Met) == 1) != test.spent {
				t.Errorf("spent: %v, on record: %+v", spent, d.recorded)
			}
			if test.spent {
				if got := ask(t, p, test.request, test.change); !strings.Contains(got, "approval_required") {
					t.Errorf("again: %s", got)
				}
			}
		})
	}
}

// No error of the store of approvals becomes an answer.
func TestApprovalsFail(t *testing.T) {
	t.Parallel()
	p, d := deskOf(t, one(`@obligation("ask") permit(principal is agent, action, resource);`, "obligations.yaml", askFirst))
	d.failing = context.DeadlineExceeded
	for _, request := range []string{native(``), native(approved)} {
		r, err := evaluation.DecodeNative([]byte(request), evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Evaluate(t.Context(), pdp.Call{Request: r, Approvals: pdp.SpendOrFile}); !errors.Is(err, pdp.ErrNotRecorded) || got.Allow || len(d.recorded) > 0 {
			t.Errorf("got %+v, %v, recorded %v", got, err, d.recorded)
		}
	}
}

// Each reservation is settled exactly once, whatever happens while the decision is recorded.
func TestReservationIsSettledOnce(t *testing.T) {
	t.Parallel()
	failed := errors.New("the disk is full")
	request, err := evaluation.DecodeNative([]byte(native(approved)), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		under     func(context.Context) error
		want      settled
		unsettled error
	}{
		"recorded":              {nil, settled{how: "spent"}, nil},
		"not recorded":          {func(context.Context) error { return failed }, settled{how: "in doubt"}, nil},
		"a panic":               {func(context.Context) error { panic(failed) }, settled{how: "in doubt"}, nil},
		"the context of record": {func(ctx context.Context) error { return ctx.Err() }, settled{how: "spent"}, nil},
		"not settled":           {nil, settled{how: "spent"}, failed},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := deskOf(t, one(`@obligation("ask") permit(principal is agent, action, resource);`, "obligations.yaml", askFirst))
			d.approved[bindingOf(t, p, d, native(``))] = 1
			d.unsettled = test.unsettled
			ctx, cancel := context.WithCancel(t.Context())
			d.under = func(under context.Context) error {
				cancel() // the caller goes away
				if test.under == nil {
					return nil
				}
				return test.under(under)
			}
			func() {
				defer func() { _ = recover() }()
				got, err := p.Evaluate(ctx, pdp.Call{Request: request, Approvals: pdp.SpendOrFile})
				if spent := test.want.how == "spent" && test.unsettled == nil; got.Allow != spent || (err == nil) != spent || errors.Is(err, pdp.ErrUnsettled) != (test.unsettled != nil) {
					t.Errorf("got %+v, %v", got, err)
				}
			}()
			if len(d.settled) != 1 || d.settled[0] != test.want {
				t.Errorf("got %v, want %v once", d.settled, test.want)
			}
		})
	}
}

// The mode of a call is a rule of the PDP, of every combination of what HTTP knows.
func TestApprovalsFor(t *testing.T) {
	t.Parallel()
	for _, explain := range []bool{false, true} {
		for _, mayFile := range []bool{false, true} {
			for _, mayRequest := range []bool{false, true} {
				for shape, want := range map[evaluation.Shape]pdp.ApprovalMode{
					evaluation.Native:  map[bool]pdp.ApprovalMode{false: pdp.Spend, true: pdp.SpendOrFile}[mayFile],
					evaluation.AuthZEN: map[bool]pdp.ApprovalMode{false: pdp.Spend, true: pdp.SpendOrOffer}[mayRequest],
				} {
					if explain {
						want = pdp.NotAsked
					}
					call := pdp.Call{Request: evaluation.Request{Shape: shape}, Explain: explain}
					if got := pdp.ApprovalsFor(&call, mayFile, mayRequest); got != want {
						t.Errorf("shape %v, explain %v, may file %v, may request %v: got %v, want %v", shape, explain, mayFile, mayRequest, got, want)
					}
				}
			}
		}
	}
}

// bindingOf is the binding of an approval of a request, "" where there can be none.
func bindingOf(t *testing.T, p *pdp.PDP, d *desk, request string, change ...func(*pdp.Call)) string {
	t.Helper()
	d.filed = nil
	ask(t, p, request, append(change, filing)...)
	if len(d.filed) == 0 {
		return ""
	}
	return d.filed[0]
}

func TestBinding(t *testing.T) {
	t.Parallel()
	const policy = `@obligation("ask") permit(principal is agent, action, resource);`
	all, atAll := deskOf(t, one(policy, "obligations.yaml", askFirst, "bundle.yaml", "volatile: [trace, when, agent, on_behalf_of]"))
	some, atSome := deskOf(t, one(policy, "obligations.yaml", "ask: {type: approval_required, properties: {template: owner, material: [subject, context.arguments]}}"))
	base := native(`"arguments":{"n":7,"list":[1,2,2],"s":"ü"},"when":1`)
	change := func(pairs ...string) string {
		t.Helper()
		changed := strings.NewReplacer(pairs...).Replace(base)
		if changed == base {
			t.Fatalf("%v changes nothing", pairs)
		}
		return changed
	}
	for name, test := range map[string]struct {
		request   string
		all, some bool // whether it is the same
	}{
		"order of members":          {change(`"n":7,"list":[1,2,2]`, `"list":[1,2,2],"n":7`), true, true},
		"another way to write it":   {change(`7`, `70e-1`, `ü`, `\u00fc`), true, true},
		"null is absent":            {change(`"when":1`, `"when":1,"more":null`), true, true},
		"not in the arguments":      {change(`"n":7`, `"n":7,"more":null`), false, false},
		"nor below them":            {change(`[1,2,2]`, `[1,2,2,{"a":null}]`), false, false},
		"a string":                  {change(`7`, `"7"`), false, false},
		"another number":            {change(`7`, `8`), false, false},
		"a large number":            {change(`7`, `9007199254740993`), false, false},
		"order of elements":         {change(`[1,2,2]`, `[2,1,2]`), false, false},
		"an element less":           {change(`[1,2,2]`, `[1,2]`), false, false},
		"an array that is too deep": {change(`[1,2,2]`, `[[[1]]]`), false, false},
		"an array that is too long": {change(`[1,2,2]`, `[1`+strings.Repeat(",2", 4096)+`]`), false, false},
		"a null in a list":          {change(`[1,2,2]`, `[1,2,2,null]`), false, false},
		"another argument":          {change(`"n":7`, `"n":7,"m":7`), false, false},
		"a volatile member":         {change(`"when":1`, `"when":2`), true, true},
		"another member":            {change(`"when":1`, `"why":1`), false, true},
		"no arguments":              {change(`"arguments"`, `"argument"`), false, false},
		"a protocol member":         {change(`"when":1`, `"when":1,`+approved+`,"approval_id":"x","evaluation_id":"y","supported_obligations":[]`), true, true},
		"another subject":           {change(`"bot"`, `"bat"`), false, false},
		"another role":              {change(`"actor_id"`, `"roles":["r"],"actor_id"`), false, false},
		"another tool":              {change(`"id":"t"`, `"id":"u"`), false, false},
		"another type":              {change(`"type":"tool"`, `"type":"fool"`), false, false},
		"another label":             {change(`"id":"t"`, `"id":"t","labels":{"a":"b"}`), false, true},
		"another action":            {change(`tool.invoke`, `tool.list`), false, false},
		"a purpose":                 {change(`"action"`, `"purpose":"p","action"`), false, true},
		"who it is for":             {change(`"when":1`, `"on_behalf_of":[{"type":"user","id":"a"}]`), false, false},
		"who acts":                  {change(`"when":1`, `"agent":"a"`), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if same := bindingOf(t, all, atAll, test.request) == bindingOf(t, all, atAll, base); same != test.all {
				t.Errorf("bound to everything, the same: %v\n%s", same, test.request)
			}
			if same := bindingOf(t, some, atSome, test.request) == bindingOf(t, some, atSome, base); same != test.some {
				t.Errorf("bound to some, the same: %v\n%s", same, test.request)
			}
		})
	}
	if bindingOf(t, all, atAll, base) == bindingOf(t, all, atAll, base, func(c *pdp.Call) { c.Asker.Name = "key:other" }) {
		t.Error("another PEP could go by it")
	}
	if of := bindingOf(t, all, atAll, change(`7`, `9007199254740992`)); of == bindingOf(t, all, atAll, change(`7`, `9007199254740993`)) || of == "" {
		t.Error("two large numbers are one")
	}
	for what, value := range map[string][2]string{
		"arrays three deep": {`[[[1]]]`, `[[[2]]]`}, "fractions": {`1.5`, `1.25`}, "nulls": {`[null]`, `[null,null]`},
		"129 rows": {`[` + strings.Repeat(`{},`, 128) + `1]`, `[` + strings.Repeat(`{},`, 128) + `2]`},
	} { // policies see neither
		if of := bindingOf(t, all, atAll, change(`7`, value[0])); of == "" || of == bindingOf(t, all, atAll, change(`7`, value[1])) {
			t.Errorf("%s: an approval of one is an approval of the other", what)
		}
	}
	for _, member := range []string{`"agent":7`, `"agent":{"type":"user"}`, `"agent":{"type":"user","id":"a","x":1}`, `"agent":{"type":"__cedar::a","id":"a"}`,
		`"on_behalf_of":[{"type":"a b","id":"a"}]`, `"arguments":1e99999999999999999`} {
		if bindingOf(t, all, atAll, native(member)) != "" {
			t.Errorf("%s: nobody can say what would be approved", member)
		}
	}
	for _, member := range []string{`"agent":"a"`, `"agent":{"type":"user","id":"a"}`, `"agent":["a"]`, `"on_behalf_of":[]`, `"on_behalf_of":{"type":"user","id":"a"}`, `"on_behalf_of":[{"type":"user","id":"a"}]`} {
		if bindingOf(t, all, atAll, native(member)) == "" {
			t.Errorf("%s cannot be approved", member)
		}
	}
	for _, terms := range []string{"template: another", "template: owner, quorum: 2", "template: owner, material: [subject]"} {
		other, atOther := deskOf(t, one(policy, "obligations.yaml", "ask: {type: approval_required, properties: {"+terms+"}}"))
		if bindingOf(t, other, atOther, base) == bindingOf(t, all, atAll, base) {
			t.Errorf("%s: an approval of the one counts for the other", terms)
		}
	}
	same, atSame := deskOf(t, one(policy, "obligations.yaml", "ask: {type: approval_required, properties: {template: owner, uses: 3, valid_for: 1h}}", "bundle.yaml", "volatile: [on_behalf_of, agent, when, trace]"))
	if bindingOf(t, same, atSame, base) != bindingOf(t, all, atAll, base) {
		t.Error("how long and how often it holds is not what was approved")
	}
	fewer, atFewer := deskOf(t, one(policy, "obligations.yaml", askFirst, "bundle.yaml", "volatile: [trace]"))
	more, atMore := deskOf(t, one(policy, "obligations.yaml", askFirst, "bundle.yaml", "volatile: [trace, cost]"))
	if bindingOf(t, fewer, atFewer, base) == bindingOf(t, more, atMore, change(`"when":1`, `"when":1,"cost":9`)) {
		t.Error("what was approved without a member counts with any, once the member is volatile")
	}
}
