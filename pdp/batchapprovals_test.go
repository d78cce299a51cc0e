package pdp_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// shelf keeps approvals as an embedding program might: how many uses are left of what each resource stands for. An
// approval has the name of its resource.
type shelf struct {
	pdp.Approvals // for what a batch must not call
	left          map[string]int
	others        map[string]int // uses that others make between Find and Reserve
	fails         string         // the approval of which nothing can be reserved
	leave         func()         // the caller goes away as soon as something is reserved
	record        func() error
	unsettled     string // the approval whose uses are gone by then
	recorded      []string
	settled       []string
}

func (s *shelf) Find(_ context.Context, a pdp.ApprovalRequest) (pdp.Found, error) {
	if id := a.Call.Request.Resource.ID; s.left[id] > 0 {
		return pdp.Found{ID: id}, nil
	}
	return pdp.Found{}, nil
}

func (s *shelf) Offer(_ context.Context, _ pdp.ApprovalRequest, why evaluation.Reason) (*evaluation.Access, error) {
	return &evaluation.Access{EvaluationID: "e", Reason: why}, nil
}

func (s *shelf) Reserve(_ context.Context, a pdp.ApprovalRequest, id string) (pdp.Reservation, error) {
	if id == s.fails {
		return nil, errors.New("the shelf is broken")
	}
	s.left[id] -= s.others[id]
	if s.left[id] < 1 {
		return nil, nil
	}
	s.left[id]--
	s.leave()
	return &taken{s, id, []string{a.Decision}}, nil
}

func (s *shelf) Record(ctx context.Context, records []pdp.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, r := range records {
		s.recorded = append(s.recorded, r.ID)
	}
	return s.record()
}

// taken are uses of one approval.
type taken struct {
	of        *shelf
	id        string
	decisions []string
}

func (t *taken) Again(_ context.Context, decision string) (bool, error) {
	if t.of.left[t.id] < 1 {
		return false, nil
	}
	t.of.left[t.id]--
	t.decisions = append(t.decisions, decision)
	return true, nil
}

func (t *taken) Spent(context.Context) error {
	t.settle("spent")
	if t.id == t.of.unsettled {
		return errors.New("it is gone")
	}
	return nil
}
func (t *taken) InDoubt() { t.settle("in doubt") }
func (t *taken) settle(how string) {
	t.of.settled = append(t.of.settled, t.id+" "+how+" by "+strings.Join(t.decisions, ","))
}

// Whatever happens to a batch, each reservation is settled once: as spent if all that it is for is on record, and else
// as in doubt. If others take what an item was to use, the batch is what it is without.
func TestUsesOfABatch(t *testing.T) {
	t.Parallel()
	const asks = `@id("p") @obligation("ask") permit(principal is agent, action, resource);`
	failed := errors.New("the disk is full")
	for name, test := range map[string]struct {
		semantic evaluation.Semantic
		items    string // the resource of each
		others   map[string]int
		fails    string
		leaves   bool

		unsettled string
		record    func() error
		instead   []pdp.ApprovalMode // of SpendOrOffer
		want      string             // the answers; what was settled
	}{
		"two approvals":           {items: "b a", want: "++; a spent by d.1, b spent by d.0"},
		"one use is gone by then": {items: "b a", unsettled: "a", want: "error; a spent by d.1, b spent by d.0"},
		"one, as often as it is":  {items: "c c a c c", want: "+++--; a spent by d.2, c spent by d.0,d.1"},
		"none":                    {items: "x y", want: "--; "},
		"not to be spent":         {items: "a", instead: []pdp.ApprovalMode{pdp.NotAsked}, want: "-; "},
		"never filed":             {items: "a x", instead: []pdp.ApprovalMode{pdp.SpendOrFile}, want: "+-; a spent by d.0"},
		"others were faster":      {items: "a b a", others: map[string]int{"a": 1}, want: "-+-; b spent by d.1"},
		"faster by one":           {items: "c c", others: map[string]int{"c": 1}, want: "+-; c spent by d.0"},
		"a deny ends it":          {items: "a x b", semantic: evaluation.DenyOnFirstDeny, want: "+-; a spent by d.0"},
		"faster, and it ends": {items: "a b c", semantic: evaluation.DenyOnFirstDeny, others: map[string]int{"b": 1},
			want: "+-; a spent by d.0, c in doubt by d.2"},
		"it ends in the middle of an approval": {items: "c b c", semantic: evaluation.DenyOnFirstDeny, others: map[string]int{"b": 1},
			want: "+-; c in doubt by d.0,d.2"},
		"an allow ends it":            {items: "x b a", semantic: evaluation.PermitOnFirstPermit, want: "-+; b spent by d.1"},
		"faster, and it goes on":      {items: "a x b c", semantic: evaluation.PermitOnFirstPermit, others: map[string]int{"a": 1}, want: "--+; b spent by d.2"},
		"faster, to the end":          {items: "a b", semantic: evaluation.PermitOnFirstPermit, others: map[string]int{"a": 1, "b": 1}, want: "--; "},
		"its caller goes away":        {items: "b a", leaves: true, want: "++; a spent by d.1, b spent by d.0"},
		"nothing is on record":        {items: "b a", record: func() error { return failed }, want: "error; a in doubt by d.1, b in doubt by d.0"},
		"a panic":                     {items: "b a", record: func() error { panic(failed) }, want: "error; a in doubt by d.1, b in doubt by d.0"},
		"one that cannot be reserved": {items: "b a c", fails: "b", want: "error; a in doubt by d.1"},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, problems := pdp.Load(one(asks, "obligations.yaml", askFirst).Source())
			if problems.Refuse() {
				t.Fatal(problems)
			}
			s := &shelf{left: map[string]int{"a": 1, "b": 1, "c": 2}, others: test.others, fails: test.fails, unsettled: test.unsettled, record: test.record, leave: func() {}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.leaves {
				s.leave = cancel
			}
			if s.record == nil {
				s.record = func() error { return nil }
			}
			p := pdp.Of(loaded, pdp.Options{Now: clock, Approvals: s, Recorder: s, NewID: func() string { return "d" }})
			batch := evaluation.Batch{Semantic: test.semantic}
			for id := range strings.FieldsSeq(test.items) {
				r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"agent","id":"bot"},"action":{"name":"go"},"resource":{"type":"tool","id":"`+id+`"},"context":{`+approved+`}}`), "", evaluation.DefaultLimits())
				if err != nil {
					t.Fatal(err)
				}
				batch.Items = append(batch.Items, evaluation.Item{Request: r})
			}
			mode := append(test.instead, pdp.SpendOrOffer)[0]
			got := "error"
			func() {
				defer func() { _ = recover() }()
				answer, err := p.EvaluateBatch(ctx, pdp.BatchCall{Batch: batch, Approvals: mode})
				if err != nil {
					if !errors.Is(err, pdp.ErrNotRecorded) && test.unsettled == "" || errors.Is(err, pdp.ErrUnsettled) != (test.unsettled != "") {
						t.Errorf("got %v", err)
					}
					return
				}
				got = ""
				for n, d := range answer.Items {
					if d.ID != fmt.Sprint("d.", n) || s.recorded[n] != d.ID {
						t.Errorf("item %d is %q, and on record is %v", n, d.ID, s.recorded)
					}
					got += map[bool]string{true: "+", false: "-"}[d.Allow && len(d.Met) == 1]
				}
			}()
			slices.Sort(s.settled)
			if got += "; " + strings.Join(s.settled, ", "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if left := slices.Collect(maps.Values(s.left)); slices.Min(left) < 0 {
				t.Errorf("more is used than there is: %v", s.left)
			}
		})
	}
}
