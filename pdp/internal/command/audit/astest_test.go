package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/visible"
	"policy-service/pdp/pdptest/night"
)

// odd are texts that YAML, a terminal or a reader could take for something else.
var odd = []string{
	"", " ", "\t", "- a: b", "# no comment", "'", `"`, `\`, `\u0041`, "null", "yes", "1e3", "2026-01-02", "a\nb: c", "a\u0085b", "a\u2028b", "\ufeff",
	"e\u0301\u0301\u0301\u0301\u0301", "\u202eabc", "\U000e0041", "\U0001f600\U0001f3fd", "\U0001e8d0a", "\u00a0", "\u200b", "{a: b}", "*x", "!!int 3", strings.Repeat("long ", 400), "…/é/日本",
}

const oddPolicies = `
@id("read") permit(principal, action == Action::"read", resource) when { context has n && context.n < 5 };
@id("vault") permit(principal, action == Action::"open", resource) when { context has token && context.token == "sesame" };
@id("push") @obligation("ask") permit(principal, action == Action::"push", resource);
@id("tell") @obligation("tell") permit(principal, action == Action::"list", resource);
@id("held") permit(principal, action == Action::"lend", resource) when { context.pdp.capability.held && context.pdp.capability.id == "cap_2" };
@id("late") forbid(principal, action == Action::"read", resource) when { context.pdp.now > datetime("2026-11-28T12:00:30Z") };`

// TestPropertyRecordsBecomeTests: a case that lacks nothing asks what was asked, has the answer that is on record, and passes by the
// policies that decided; and a case lacks something where its answer depends on what is hidden.
func TestPropertyRecordsBecomeTests(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	files := map[string][]byte{
		"p.cedar":              []byte(oddPolicies),
		"obligations.yaml":     []byte("ask: {type: approval_required, properties: {template: owner}}\ntell: {type: notification, properties: {to: a, body: b}}\n"),
		"tenants/acme/p.cedar": []byte(`@id("acme") forbid(principal == user::"nobody", action, resource);`),
	}
	b, err := recorder.Compile(files, "")
	must(err)
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Options{})
	must(err)
	t.Cleanup(func() { _ = log.Close() })
	masker, err := mask.New(make([]byte, mask.KeySize), nil)
	must(err)
	p := pdp.Of(b, pdp.Options{Recorder: &recorder.Recorder{
		Log: log, Mask: func(context.Context) *mask.Masker { return masker },
		GoOn: func(context.Context) error { return nil }, Waits: func(context.Context) {},
	}})
	whole, lacking, masked := 0, 0, 0
	for seed := range uint64(night.Cases(300)) {
		g := rand.New(rand.NewPCG(seed, 63))
		text := func() string { return odd[g.IntN(len(odd))] }
		members := map[string]any{"n": g.IntN(9), text(): text(), "list": []any{text(), 1.5, true, map[string]any{text(): -7}}}
		switch g.IntN(4) {
		case 0:
			members["token"] = []any{"sesame", "other", 12345678901, map[string]any{"a": 1}}[g.IntN(4)]
		case 1:
			members["supported_obligations"] = [][]string{{}, {"notification"}, {"approval_required", "notification"}}[g.IntN(3)]
		}
		actions := []string{"read", "open", "lend", "list", "push"}
		draft, g2 := evaluation.July, rand.New(rand.NewPCG(seed, 64))
		switch g2.IntN(4) {
		case 0: // as an item of a batch, of which another item has the member
			draft = evaluation.October
		case 1:
			draft, members["supported_mandatory_extensions"] = evaluation.October, [][]string{{"obligations"}, {"other"}, {"obligations", "other"}}[g2.IntN(3)]
			members["supported_obligations"] = [][]string{{}, {"notification"}, {"custom", "notification"}}[g2.IntN(3)]
			if g2.IntN(2) == 0 {
				actions, members["supported_obligations"] = []string{"push"}, []string{"approval_required", "custom"}
			}
		}
		inContext, err := evaluation.NewObject(members)
		must(err)
		properties, err := evaluation.NewObject(map[string]any{"labels": map[string]any{text(): text()}})
		must(err)
		call := pdp.Call{
			Request: evaluation.Request{
				Shape: evaluation.Shape(g.IntN(2)), Draft: draft, Tenant: []string{"default", "acme"}[g.IntN(2)],
				Subject: evaluation.Entity{Type: "user", ID: "u" + text(), Properties: properties}, Action: evaluation.Action{Name: actions[g.IntN(len(actions))]},
				Resource: evaluation.Entity{Type: "doc", ID: "d" + text(), Properties: properties}, Context: inContext,
			},
			Asker: evaluation.Asker{Name: "key:" + text(), Registered: g.IntN(2) == 0, Obligations: [][]string{{"notification"}, {"approval_required", "notification"}}[g2.IntN(2)], Forwards: g2.IntN(4) == 0},
			Now:   time.Date(2026, 11, 28, 12, 0, int(seed%60), 123, time.UTC),
		}
		if !call.Registered {
			call.Obligations = nil
		}
		if g.IntN(5) == 0 {
			call.Capability = evaluation.Capability{Held: true, ID: "cap_2", Depth: 1}
		}
		if call.Request.Shape == evaluation.AuthZEN && g.IntN(6) == 0 {
			call.Request.Unknown, err = evaluation.UnknownAt("/context/n", "/context/other")
			must(err)
		}
		d, err := p.Evaluate(t.Context(), call)
		must(err)
		rec, err := log.ByID(d.ID)
		must(err)
		r, err := record.Resolve(rec.Line, record.Record{})
		must(err)
		text1, lacks, err := testOf(&r, files)
		if err != nil {
			t.Fatalf("%s: %v", rec.Line, err)
		}
		printed := visible.QuotedLines(text1)
		if printed != text1 {
			t.Fatalf("something in it cannot be seen: %q", text1)
		}
		if text2, lacks, err := testOf(&r, nil); err != nil || len(lacks) != max(1, len(r.Masked)) || !strings.HasPrefix(text2, "# ") {
			t.Fatalf("without the policies: %s\n%q, %v", text2, lacks, err)
		}
		again, err := recorder.CallOf(&r, b, evaluation.DefaultLimits())
		must(err)
		_, hangs := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), again)
		if len(lacks) > 0 || hangs != nil {
			if lacking++; len(lacks) == 0 || hangs == nil {
				t.Fatalf("%s\nlacks %q\nand %v", text1, lacks, hangs)
			}
			continue
		}
		tests, problems := pdp.Examples(pdp.FS(fstest.MapFS{"tests/a.yaml": {Data: []byte(text1)}}))
		if len(tests) != 1 || problems.Refuse() {
			t.Fatalf("%s\n%v", text1, problems)
		}
		e := tests[0]
		made, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), e.Call)
		must(err)
		if differs := e.Differences(d); len(differs) > 0 || len(e.Differences(made)) > 0 {
			t.Fatalf("%s\n%v", text1, differs)
		}
		if len(r.Masked) > 0 {
			masked++
			continue
		}
		whole++
		want, got := call.Request, e.Call.Request
		if call.Registered || draft == evaluation.October { // it is in the request
			drop := func(name string) bool {
				return name == "supported_obligations" || name == "supported_mandatory_extensions"
			}
			want.Context, got.Context = want.Context.Without(drop), got.Context.Without(drop)
		}
		wantText, _ := want.MarshalJSON()
		gotText, _ := got.MarshalJSON()
		if string(wantText) != string(gotText) || want.Shape != got.Shape || want.Tenant != got.Tenant || e.Call.Asker.Name != call.Asker.Name ||
			!e.Call.Now.Equal(call.Now) || !reflect.DeepEqual(e.Call.Capability, call.Capability) || e.Reason == nil || e.Determining == nil || e.Obligations == nil {
			t.Fatalf("%s\nasks %s\nnot  %s", text1, gotText, wantText)
		}
	}
	t.Logf("%d cases ask what was asked, %d with something hidden, and %d lack a value", whole, masked, lacking)
	if whole < night.Cases(100) || masked < night.Cases(20) || lacking < night.Cases(5) {
		t.Error(fmt.Sprint("too few of a kind: ", whole, masked, lacking))
	}
}
