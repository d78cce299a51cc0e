package pdp

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// TestPropertyBatch holds the items of a batch to requests by themselves, where
// they share their subjects, resources, actions and contexts in every way: what
// is taken over from the item before must be what would have been found again.
func TestPropertyBatch(t *testing.T) {
	t.Parallel()
	allows, errs := 0, 0
	eachSeed(t, 80, func(t *testing.T, g *generator) {
		w := g.world(24)
		p := Of(w.load(t), Options{NewID: func() string { return "id" }})
		var pool []Call
		for range 4 {
			pool = append(pool, g.question(w).call(t))
		}
		var batch evaluation.Batch
		for range 40 {
			r := oneOf(g, pool...).Request
			r.Tenant = pool[0].Request.Tenant // a batch is of one tenant
			r.Subject, r.Resource = oneOf(g, pool...).Request.Subject, oneOf(g, pool...).Request.Resource
			if g.chance(20) {
				r.Resource = r.Subject
			}
			r.Action = evaluation.Action{Name: oneOf(g, pool...).Request.Action.Name, Properties: oneOf(g, pool...).Request.Action.Properties}
			batch.Items = append(batch.Items, evaluation.Item{Request: r})
		}
		now := time.Unix(0, 0)
		got, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: batch, Now: now, Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		for n, item := range batch.Items {
			want, err := p.Evaluate(t.Context(), Call{Request: item.Request, Now: now, Explain: true})
			var malformed *evaluation.Error
			if errors.As(err, &malformed) {
				want = evaluation.Decision{Bundle: p.Bundle().Digest(), Malformed: malformed}
				errs++
			} else if err != nil {
				t.Fatal(err)
			}
			if want.ID = got.Items[n].ID; !strings.HasPrefix(want.ID, "id.") {
				t.Errorf("item %d has the id %q", n, want.ID)
			}
			if diff := cmp.Diff(want, got.Items[n]); diff != "" {
				t.Fatalf("seed %d, item %d: by itself (-) and in a batch (+)\n%s\n%s", g.seed, n, diff, w)
			}
			if want.Allow {
				allows++
			}
		}
	})
	if allows < night.Cases(100) || errs < night.Cases(10) {
		t.Errorf("%d allows, %d malformed items: the generator shows little", allows, errs)
	}
}

// The context holds what the action of the item carries, also where the context
// that was sent is the same for all.
func TestBatchActionOfEachItem(t *testing.T) {
	t.Parallel()
	b, problems := Load(FS(fstest.MapFS{"p.cedar": {Data: []byte(`permit(principal is user, action, resource) when { context.action.soft };`)}}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	batch, err := evaluation.DecodeBatch([]byte(`{"subject":{"type":"user","id":"s"},"resource":{"type":"doc","id":"1"},"context":{"a":1},"evaluations":[`+
		`{"action":{"name":"d","properties":{"soft":true}}},{"action":{"name":"d","properties":{"soft":false}}},{"action":{"name":"d"}},{"action":{"name":"d","properties":{"soft":true}}}]}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Of(b, Options{}).EvaluateBatch(t.Context(), BatchCall{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []bool{true, false, false, true} {
		if got.Items[n].Allow != want {
			t.Errorf("item %d: allow %t, want %t", n, got.Items[n].Allow, want)
		}
	}
}

// What stands above a resource can depend on the subject of the item: on what it
// sends, where the subject itself stands above the resource.
func TestBatchAncestorsOfEachItem(t *testing.T) {
	t.Parallel()
	b, problems := Load(FS(fstest.MapFS{
		"bundle.yaml":     {Data: []byte("parents: {user: {roles: role}}")},
		"p.cedar":         {Data: []byte(`permit(principal, action, resource in role::"x");`)},
		"entities/e.json": {Data: []byte(`[{"uid":{"type":"doc","id":"1"},"attrs":{},"parents":[{"type":"user","id":"s"}]}]`)},
	}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	subjects := `[{"subject":{"type":"user","id":"t"}},{"subject":{"type":"user","id":"s","properties":{"roles":["x"]}}},{"subject":{"type":"user","id":"t"}},{"subject":{"type":"user","id":"s"}}]`
	batch, err := evaluation.DecodeBatch([]byte(`{"action":{"name":"a"},"resource":{"type":"doc","id":"1"},"evaluations":`+subjects+`}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Of(b, Options{}).EvaluateBatch(t.Context(), BatchCall{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []bool{false, true, false, false} {
		if got.Items[n].Allow != want {
			t.Errorf("item %d: allow %t, want %t", n, got.Items[n].Allow, want)
		}
	}
}

// What is wrong with an item is said where it stands in the body, also where it took a
// bundle to find it.
func TestBatchPointers(t *testing.T) {
	t.Parallel()
	b, problems := Load(FS(fstest.MapFS{
		"bundle.yaml": {Data: []byte("parents: {user: {groups: group}}\nunknown_properties: reject")},
		"schema.cedarschema": {Data: []byte(`entity group; entity user in [group] { groups?: Set<String>, a?: Long }; entity doc { a?: Long };
action "x" appliesTo { principal: user, resource: [doc, user], context: { action: { a?: Long }, a?: Long } };`)},
		"p.cedar": {Data: []byte(`permit(principal is user, action, resource is doc);`)},
	}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	p := Of(b, Options{})
	for pointer, c := range map[string]struct{ member, bad string }{
		"/subject/properties/groups": {"subject", `{"type":"user","id":"s","properties":{"groups":[1]}}`},
		"/subject/properties/b":      {"subject", `{"type":"user","id":"s","properties":{"b":1}}`},
		"/resource/properties/b":     {"resource", `{"type":"doc","id":"1","properties":{"b":1}}`},
		"/resource/properties/a":     {"resource", `{"type":"user","id":"s","properties":{"a":2}}`}, // the subject sends 1
		"/action/properties/b":       {"action", `{"name":"x","properties":{"b":1}}`},
		"/context/b":                 {"context", `{"b":1}`},
	} {
		for _, own := range []bool{false, true} {
			members := map[string]string{
				"subject": `{"type":"user","id":"s","properties":{"a":1}}`, "action": `{"name":"x"}`, "resource": `{"type":"doc","id":"1"}`, "context": `{}`,
			}
			item, want := "", pointer
			if own {
				item, want = `"`+c.member+`":`+c.bad, "/evaluations/1"+pointer
			} else {
				members[c.member] = c.bad
			}
			body := `{"evaluations":[{},{` + item + `}]`
			for name, value := range members {
				body += `,"` + name + `":` + value
			}
			batch, err := evaluation.DecodeBatch([]byte(body+"}"), "", evaluation.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: batch})
			if err != nil {
				t.Fatal(err)
			}
			if bad := got.Items[1].Malformed; bad == nil || bad.Pointer != want {
				t.Errorf("%s}: %v, want it at %s", body, bad, want)
			}
			if bad := got.Items[0].Malformed; (bad == nil) != own || bad != nil && bad.Pointer != pointer {
				t.Errorf("%s}: item 0: %v", body, bad)
			}
		}
	}
}
