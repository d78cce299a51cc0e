package pdp

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// TestPropertyBatch holds the items of a batch to requests by themselves, where
// they share their subjects, resources, actions and contexts in every way: the
// parts that are taken over from the item before must be those that would have been found again.
func TestPropertyBatch(t *testing.T) {
	t.Parallel()
	allows, errs, owed := 0, 0, 0
	eachSeed(t, 80, func(t *testing.T, g *generator) {
		o := g.obliged(24)
		p := Of(o.load(t), Options{NewID: func() string { return "id" }})
		by := g.declaration()
		var pool []Call
		for range 4 {
			by.requested = g.declaration().requested // each item's context declares for itself
			pool = append(pool, g.question(o.world).by(t, by))
		}
		batch := BatchCall{Now: propertyTime, Asker: pool[0].Asker, Explain: true}
		for range 40 {
			r := oneOf(g, pool...).Request
			r.Tenant = pool[0].Request.Tenant // a batch is of one tenant
			r.Subject, r.Resource = oneOf(g, pool...).Request.Subject, oneOf(g, pool...).Request.Resource
			if g.chance(20) {
				r.Resource = r.Subject
			}
			r.Action = evaluation.Action{Name: oneOf(g, pool...).Request.Action.Name, Properties: oneOf(g, pool...).Request.Action.Properties}
			batch.Batch.Items = append(batch.Batch.Items, evaluation.Item{Request: r})
		}
		got, err := p.EvaluateBatch(t.Context(), batch)
		must(t, err)
		for n, item := range batch.Batch.Items {
			want, err := p.Evaluate(t.Context(), Call{Request: item.Request, Now: propertyTime, Asker: batch.Asker, Explain: true})
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
			if !reflect.DeepEqual(want, got.Items[n]) {
				t.Fatalf("seed %d, item %d: by itself (-) and in a batch (+)\n%s\n%s", g.seed, n, cmp.Diff(jsonText(want), jsonText(got.Items[n])), o)
			}
			if want.Allow {
				allows++
			}
			owed += min(len(want.Obligations), 1)
		}
	})
	if allows < night.Cases(100) || errs < night.Cases(10) || owed < night.Cases(100) {
		t.Errorf("%d allows, %d malformed items, %d with obligations: the generator shows little", allows, errs, owed)
	}
}

// A request may fit and be permitted in one item, and not in the next, of another context, action, subject or resource.
func TestBatchDecidesEachItem(t *testing.T) {
	t.Parallel()
	withSchema := map[string]string{
		"schema.cedarschema": `entity user, doc, folder; action "r", "s" appliesTo { principal: user, resource: doc, context: { need: Long } }; action "w" appliesTo { principal: user, resource: folder, context: {} };`,
		"p.cedar":            `permit(principal is user, action, resource);`,
	}
	const defaults = `"subject":{"type":"user","id":"a"},"action":{"name":"r"},"resource":{"type":"doc","id":"1"},"context":{"need":1}`
	for _, c := range []struct {
		files map[string]string
		items []string
		want  []bool
	}{
		{withSchema, []string{`{}`, `{"context":{}}`, `{}`, `{"context":{}}`, `{"context":{"need":2}}`, `{"context":{}}`}, []bool{true, false, true, false, true, false}},
		{withSchema, []string{`{"context":{}}`, `{}`, `{"context":{}}`, `{"context":{"need":2}}`, `{}`}, []bool{false, true, false, true, true}},
		{withSchema, []string{`{}`, `{"action":{"name":"w"}}`, `{}`, `{"action":{"name":"w"},"resource":{"type":"folder","id":"1"}}`, `{"action":{"name":"s"}}`, `{"action":{"name":"s"},"resource":{"type":"folder","id":"1"}}`}, []bool{true, false, true, true, true, false}},
		{withSchema, []string{`{"action":{"name":"w"},"context":{}}`, `{"action":{"name":"s"},"context":{}}`, `{"action":{"name":"s"}}`, `{"action":{"name":"no"}}`}, []bool{false, false, true, false}},
		{ // the context holds the properties of the item's action
			map[string]string{"p.cedar": `permit(principal is user, action, resource) when { context.action.soft };`},
			[]string{`{"action":{"name":"d","properties":{"soft":true}}}`, `{"action":{"name":"d","properties":{"soft":false}}}`, `{"action":{"name":"d"}}`, `{"action":{"name":"d","properties":{"soft":true}}}`},
			[]bool{true, false, false, true},
		},
		{ // the subject stands above the resource
			map[string]string{
				"bundle.yaml": "parents: {user: {roles: role}}", "p.cedar": `permit(principal, action, resource in role::"x");`,
				"entities/e.json": `[{"uid":{"type":"doc","id":"1"},"attrs":{},"parents":[{"type":"user","id":"s"}]}]`,
			},
			[]string{`{"subject":{"type":"user","id":"t"}}`, `{"subject":{"type":"user","id":"s","properties":{"roles":["x"]}}}`, `{"subject":{"type":"user","id":"t"}}`, `{"subject":{"type":"user","id":"s"}}`},
			[]bool{false, true, false, false},
		},
	} {
		got, err := Of(bundleOfFiles(t, c.files), Options{}).EvaluateBatch(t.Context(), BatchCall{Batch: decodeBatch(t, defaults, c.items...)})
		must(t, err)
		for n, want := range c.want {
			if got.Items[n].Allow != want {
				t.Errorf("%s: item %d: allow %t (%s), want %t", c.items, n, got.Items[n].Allow, got.Items[n].Reason, want)
			}
		}
	}
}

// A fault of an item has its place in the body, also where it took a
// bundle to find it.
func TestBatchPointers(t *testing.T) {
	t.Parallel()
	b := bundleFrom(t, FS(fstest.MapFS{
		"bundle.yaml": {Data: []byte("parents: {user: {groups: group}}\nunknown_properties: reject")},
		"schema.cedarschema": {Data: []byte(`entity group; entity user in [group] { groups?: Set<String>, a?: Long }; entity doc { a?: Long };
action "x" appliesTo { principal: user, resource: [doc, user], context: { action: { a?: Long }, a?: Long } };`)},
		"p.cedar": {Data: []byte(`permit(principal is user, action, resource is doc);`)},
	}))
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
			must(t, err)
			got, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: batch})
			must(t, err)
			if bad := got.Items[1].Malformed; bad == nil || bad.Pointer != want {
				t.Errorf("%s}: %v, want it at %s", body, bad, want)
			}
			if bad := got.Items[0].Malformed; (bad == nil) != own || bad != nil && bad.Pointer != pointer {
				t.Errorf("%s}: item 0: %v", body, bad)
			}
		}
	}
}
