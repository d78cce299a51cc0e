package report

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/pdptest/night"
)

func decidedFor(tenant, subject string, allow bool, d record.Decision) record.Entry {
	d.Allow = allow
	return record.Entry{Kind: format.KindDecision, Tenant: tenant, Caller: "key:pep", Decision: &d,
		Request: &record.Request{Subject: jsontext.Value(fmt.Sprintf(`{"type":"user","id":%q}`, subject)), Action: jsontext.Value(`{"name":"read"}`), Resource: jsontext.Value(`{"type":"doc","id":"d"}`)}}
}

func topOf(t *testing.T, l *decisionlog.Log, tenants []string, by string, n int) Top {
	t.Helper()
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Make(t.Context(), s.For(tenants), Options{By: by, Top: n})
	if err != nil {
		t.Fatal(err)
	}
	return *r.Top
}

// Each decision counts once for its subject, and once for each policy that had to do with it.
func TestTop(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), decisionlog.Options{})
	type decision = record.Decision
	erred := func(policies ...string) (all []evaluation.PolicyError) {
		for _, p := range policies {
			all = append(all, evaluation.PolicyError{Policy: p})
		}
		return all
	}
	mustAppend(t, l,
		decidedFor("acme", "zoe", true, decision{Determining: []string{"p1", "p2"}}),
		decidedFor("acme", "zoe", false, decision{Overruled: []string{"p1"}, Reason: "r"}),
		decidedFor("globex", "zoe", false, decision{Errors: erred("p3", "p3")}),
		decidedFor("globex", "amy", true, decision{Determining: []string{"p1"}, Errors: erred("p3"), Obligations: []evaluation.Obligation{{ID: "o", Type: "approval_required"}}}),
		decidedFor("globex", "bob", false, decision{Determining: []string{"never"}}),
		decidedFor("globex", strings.Repeat("ü", 300), true, decision{Determining: []string{"p2"}}),
	)
	long := short("user/" + strings.Repeat("ü", 300))
	for _, c := range []struct {
		tenants []string
		by      string
		n       int
		want    Top
	}{
		{nil, BySubject, 3, Top{By: BySubject, Others: 2, Rows: []TopRow{{Tenant: "acme", Name: "user/zoe", Decisions: 2, Allowed: 1, Denied: 1},
			{Tenant: "globex", Name: "user/amy", Decisions: 1, Waiting: 1, Errors: 1}, {Tenant: "globex", Name: "user/bob", Decisions: 1, Denied: 1}}}},
		{[]string{"globex"}, BySubject, 9, Top{By: BySubject, Rows: []TopRow{{Tenant: "globex", Name: "user/amy", Decisions: 1, Waiting: 1, Errors: 1},
			{Tenant: "globex", Name: "user/bob", Decisions: 1, Denied: 1}, {Tenant: "globex", Name: "user/zoe", Decisions: 1, Denied: 1, Errors: 1}, {Tenant: "globex", Name: long, Decisions: 1, Allowed: 1}}}},
		{nil, ByPolicy, 9, Top{By: ByPolicy, Rows: []TopRow{{Name: "p1", Decisions: 3, Allowed: 1, Waiting: 1, Denied: 1}, {Name: "p2", Decisions: 2, Allowed: 2},
			{Name: "p3", Decisions: 2, Errors: 2}, {Name: "", Decisions: 1, Denied: 1, Errors: 1}, {Name: "never", Decisions: 1, Denied: 1}}}},
	} {
		if got := topOf(t, l, c.tenants, c.by, c.n); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s of %v:\ngot  %+v\nwant %+v", c.by, c.tenants, got, c.want)
		}
	}
	s, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	want := Top{By: ByPolicy, Rows: []TopRow{{Name: "", Decisions: 1, Denied: 1, Errors: 1}, {Name: "never", Decisions: 1, Denied: 1}, {Name: "p1", Decisions: 1, Denied: 1}}}
	r, err := Make(t.Context(), s, Options{By: ByPolicy, Top: 3, Decision: record.Deny})
	if err != nil || r.Top == nil || !reflect.DeepEqual(r.Top.Rows[:min(3, len(r.Top.Rows))], want.Rows) {
		t.Errorf("of the denies: got %+v, %v, want %+v", r.Top, err, want)
	}
	for _, o := range []Options{{Decision: record.Deny}, {By: ByPolicy, Top: 1, Decision: "no"}, {By: "tenant", Top: 1}, {By: ByPolicy}, {By: ByPolicy, Top: TopMost + 1}} {
		if o.Check() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// However many names there are, few are held, and the bounds that a row and the whole give are true.
func TestTopIsBoundedAndHonest(t *testing.T) {
	t.Parallel()
	for range night.Cases(200) {
		r, real := rand.New(rand.NewPCG(rand.Uint64(), 0)), map[string]int64{}
		top := newTopping(BySubject, "", 16)
		for range 2000 {
			name := fmt.Sprint("s", r.IntN(200))
			if r.IntN(3) == 0 {
				name = fmt.Sprint("often", r.IntN(3))
			}
			real["user/"+name]++
			top.decided(&record.Recorded{Names: record.RequestNames{Subject: evaluation.Ref{Type: "user", ID: name}}})
			if len(top.rows) > 16 {
				t.Fatalf("%d names are held", len(top.rows))
			}
		}
		got := top.top(3)
		for _, row := range top.rows {
			if n := real[row.Name]; row.Decisions > n || n > row.most() {
				t.Fatalf("%s has %d: %+v", row.Name, n, row)
			}
		}
		for name, n := range real {
			if top.rows[[2]string{"", name}] == nil && n > got.Missed {
				t.Fatalf("%s has %d, and is not there; missed %d", name, n, got.Missed)
			}
		}
		if !slices.IsSortedFunc(got.Rows, func(a, b TopRow) int { return int(b.Decisions - a.Decisions) }) || got.Missed > 2000/8 {
			t.Fatalf("%+v", got)
		}
	}
}
