package replay_test

import (
	"fmt"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/replay"
)

// What the records say of each policy is what the decisions had, from a directory and from an export, by one worker and by several.
func TestCountTraffic(t *testing.T) {
	t.Parallel()
	a := open(t)
	want := map[[2]string]replay.Parts{} // by tenant and id
	decisions := int64(0)
	a.flip = func(r *pdp.Record) {
		decisions++
		add := func(id string, one replay.Parts) {
			keys := [][2]string{{r.Call.Request.Tenant, id}}
			if r.Call.Request.Tenant != evaluation.DefaultTenant {
				keys = append(keys, [2]string{evaluation.DefaultTenant, id})
			}
			for _, key := range keys {
				p := want[key]
				want[key] = replay.Parts{Determined: p.Determined + one.Determined, Overruled: p.Overruled + one.Overruled, Errors: p.Errors + one.Errors}
			}
		}
		for _, id := range r.Decision.Determining {
			add(id, replay.Parts{Determined: 1})
		}
		for _, id := range r.Decision.Overruled {
			add(id, replay.Parts{Overruled: 1})
		}
		for _, e := range r.Decision.Errors {
			add(e.Policy, replay.Parts{Errors: 1})
		}
	}
	files := policies(1)
	files["a.cedar"] += "\n" + `@id("gone") permit(principal, action == Action::"list", resource);`
	a.load(files, false)
	a.fill(0)
	a.asks("default", `{"subject":{"type":"user","id":"mia"},"action":{"name":"list"},"resource":{"type":"doc","id":"open"}}`)
	a.load(policies(1), false) // nothing is asked again, and no bundle is needed
	a.fill(1)
	for _, tenant := range []string{"default", "acme"} {
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"list"},"resource":{"type":"doc","id":"open"}}`)
		a.asks(tenant, `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"resource":{"type":"doc","id":"open"}}`) // has an error
	}
	now := sideOf(t, edited("a.cedar", `@id("token")`, `@id("never") permit(principal, action == Action::"never", resource); @id("token")`)).Bundle
	first := ""
	a.sources(func(name string, from func() replay.Source) {
		for _, workers := range []int{1, 4} {
			made, err := replay.CountTraffic(t.Context(), from(), replay.Options{Workers: workers})
			must(t, err)
			all, others := made.Of(now)
			for _, p := range all {
				if p.Parts != want[[2]string{p.Tenant, p.ID}] {
					t.Errorf("%s: %s of %s: got %+v, want %+v", name, p.ID, p.Tenant, p.Parts, want[[2]string{p.Tenant, p.ID}])
				}
			}
			if len(all) != 6 || len(others) != 1 || others[0].ID != "gone" || others[0].Parts != want[[2]string{"default", "gone"}] || others[0].Determined == 0 || made.Decisions != decisions {
				t.Errorf("%s: got %+v and %+v of %d decisions, want %d", name, all, others, made.Decisions, decisions)
			}
			if text := fmt.Sprint(all, others, made.Records, made.Incomplete); first == "" {
				first = text
			} else if text != first {
				t.Errorf("%s by %d workers: %s, and not %s", name, workers, text, first)
			}
		}
	})
	for _, key := range [][2]string{{"default", "read"}, {"default", "off"}, {"acme", "acme"}} {
		if want[key].Determined == 0 {
			t.Errorf("nothing was of %v", key)
		}
	}
	if want[[2]string{"default", "tell"}].Overruled == 0 || want[[2]string{"default", "read"}].Errors == 0 {
		t.Errorf("nothing was overruled, or erred: %v", want)
	}
}

// The tests of both are asked of both, each question once and at one time, and each change has its class and cause.
func TestCompareTests(t *testing.T) {
	t.Parallel()
	tests := func(text string) []pdp.Example {
		e, problems := pdp.Examples(sourceOf(map[string]string{"tests/t.yaml": text}))
		if problems.Refuse() {
			t.Fatal(problems)
		}
		return e
	}
	const (
		read  = "- name: reads\n  request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: open}, context: {level: 9}}\n  decision: allow\n"
		again = "- name: reads again\n  request: {resource: {id: open, type: doc}, subject: {type: user, id: a}, action: {name: read}, context: {level: 9}}\n  decision: deny\n"
		list  = "- name: lists\n  tenant: acme\n  request: {subject: {type: user, id: a}, action: {name: list}, resource: {type: doc, id: open}}\n  decision: allow\n"
		held  = "- name: reads\n  capability: held\n  request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: open}, context: {level: 9}}\n  decision: allow\n"
		fresh = "- name: fresh\n  tenant: fresh\n  request: {subject: {type: user, id: a}, action: {name: list}, resource: {type: doc, id: open}}\n  decision: allow\n"
	)
	candidate := edited("a.cedar", "context.level > 1", "context.level > 1 && context.level < 9")
	candidate["tenants/fresh/c.cedar"] = `@id("fresh") permit(principal, action == Action::"list", resource);`
	base, next := sideOf(t, policies(1)), sideOf(t, candidate)
	got, err := replay.CompareTests(t.Context(), base, next, tests(read+list), tests(again+held+fresh))
	must(t, err)
	text := ""
	for _, one := range got.Changes {
		text += fmt.Sprintln(one.Name, one.Position, one.Tenant, one.Of, one.Class, one.From.Answer, one.To.Answer, one.Cause)
	}
	want := `reads again tests/t.yaml:1:3 default both narrowed allow deny [{read  a.cedar:1:95 edited permits no more when { context.level < 9 }}]
reads tests/t.yaml:4:3 default b narrowed allow deny [{read  a.cedar:1:95 edited permits no more when { context.level < 9 }}]
fresh tests/t.yaml:8:3 fresh b widened refused allow [{fresh  tenants/fresh/c.cedar:1:1 added permits }]
`
	if text != want || got.Questions != 4 || got.Same != 1 || got.Changed[replay.Narrowed] != 2 || got.Changed[replay.Widened] != 1 {
		t.Errorf("got %+v\n%s", got, text)
	}
}
