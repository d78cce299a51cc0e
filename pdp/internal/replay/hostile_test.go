package replay_test

import (
	"maps"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/replay"
)

// against compares two bundles by a log that the first one wrote.
func against(t *testing.T, base, candidate map[string]string, ask func(*archive)) (got replay.Compared) {
	t.Helper()
	a := open(t)
	a.load(base, true)
	ask(a)
	a.sources(func(_ string, from func() replay.Source) {
		made, err := replay.Compare(t.Context(), from(), sideOf(t, base), sideOf(t, candidate), replay.Options{}, nil)
		must(t, err)
		got = made
	})
	return got
}

// with are files with another one, or with more of it.
func with(files map[string]string, name, text string) map[string]string {
	files = maps.Clone(files)
	files[name] += text
	return files
}

// An answer that may be another one is never called the same: not by a policy that may apply or err by a hidden value, nor by one that
// sees that an approval or a capability is there.
func TestSameIsCertain(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"a.cedar": `@id("read") permit(principal, action == Action::"read", resource) when { context.arguments.token == "masked" || resource.id == "open" };
@id("buy") @obligation("boss") permit(principal, action == Action::"buy", resource) when { !context.pdp.approved || context.arguments.token != "b" };
@id("held") permit(principal, action == Action::"hold", resource) when { context.pdp.capability.held };
@id("edited") permit(principal, action == Action::"other", resource);`,
		"obligations.yaml":   "boss: {type: approval_required, on: allow, properties: {template: boss, quorum: 1, message: buys}}\n",
		"entities/docs.json": `[{"uid":{"type":"doc","id":"open"},"attrs":{"id":"open"},"parents":[]}]`,
	}
	ask := func(action string) func(*archive) {
		return func(a *archive) {
			a.asks("default", `{"subject":{"type":"user","id":"mia"},"action":{"name":"`+action+`"},"resource":{"type":"doc","id":"open"},"context":{"n":1,"arguments":{"token":"a"},"supported_obligations":["approval_required"]}}`)
		}
	}
	// Another policy is edited, too, so that there is a permit among those that differ.
	next := func(more string) map[string]string {
		files := with(base, "b.cedar", more)
		files["a.cedar"] = strings.Replace(files["a.cedar"], `"other"`, `"others"`, 1)
		return files
	}
	for name, c := range map[string]struct {
		more string
		ask  func(*archive)
	}{
		"a forbid that may apply":             {`@id("no") forbid(principal, action, resource) when { context.arguments.token == "b" };`, ask("read")},
		"a forbid that may err":               {`@id("no") forbid(principal, action, resource) when { context.arguments.token like "b*" && context.none == 1 };`, ask("read")},
		"a permit that may err":               {`@id("yes") @obligation("boss") permit(principal, action, resource) when { context.arguments.token like "b*" && context.none == 1 };`, ask("read")},
		"a forbid where a capability is held": {`@id("no") forbid(principal, action, resource) when { context.pdp.capability.held && context.arguments.token == "a" };`, ask("hold")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := against(t, base, next(c.more), c.ask)
			if got.Same != 0 || got.Decisions != 1 {
				t.Errorf("got %d of %d the same, %v, %d unknown", got.Same, got.Decisions, got.Changed, got.Unknown)
			}
		})
	}
	login := with(base, "c.cedar", `@id("login") permit(principal, action == Action::"login", resource) when { context.arguments.token == "a" };`)
	edited := maps.Clone(login)
	edited["a.cedar"] = next("")["a.cedar"]
	if got := against(t, login, edited, ask("login")); got.Same != 1 {
		t.Errorf("what no edited policy has a part in: got %v, %d unknown", got.Changed, got.Unknown)
	}
	t.Run("a forbid of what is approved", func(t *testing.T) {
		t.Parallel()
		got := against(t, base, next(`@id("no") forbid(principal, action, resource) when { context.pdp.approved && context.arguments.token == "a" };`), func(a *archive) {
			a.flip = func(r *pdp.Record) {
				r.Approved, r.Decision.Obligations = true, nil
				r.Decision.Met = []evaluation.Met{{ID: "boss", Approval: "one"}}
			}
			ask("buy")(a)
		})
		if got.Same != 0 || got.Decisions != 1 {
			t.Errorf("got %d of %d the same, %v, %d unknown", got.Same, got.Decisions, got.Changed, got.Unknown)
		}
	})
}

// A bundle without a tenant is another one, and so is one with other files of a tenant, whatever its name.
func TestOtherFilesOfATenant(t *testing.T) {
	t.Parallel()
	base := policies(1)
	base["tenants/none/empty.cedar"] = "// nothing of its own\n"
	base["tenants/tests/obligations.yaml"] = "more: {type: notification, on: allow, properties: {to: a, body: a}}\n"
	base["tenants/tests/t.cedar"] = `@id("more") @obligation("more") permit(principal, action == Action::"more", resource);`
	without := maps.Clone(base)
	delete(without, "tenants/none/empty.cedar")
	other := maps.Clone(base)
	other["tenants/tests/obligations.yaml"] = "more: {type: step-up, on: allow, properties: {acr_value: a}}\n"
	for name, candidate := range map[string]map[string]string{"without a tenant": without, "another obligation": other} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := against(t, base, candidate, func(a *archive) {
				a.asks("none", `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"resource":{"type":"doc","id":"open"},"context":{"level":9}}`)
				a.asks("tests", `{"subject":{"type":"user","id":"mia"},"action":{"name":"more"},"resource":{"type":"doc","id":"open"},"context":{"supported_obligations":["notification","step-up"]}}`)
			})
			if got.Same != 1 || got.Decisions != 2 {
				t.Errorf("got %d of %d the same, %v", got.Same, got.Decisions, got.Changed)
			}
		})
	}
}

// An obligation that demands less is weaker, also where a mask hides something else, or a text of the obligation.
func TestOtherPropertiesBesideMasks(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"a.cedar": `@id("write") @obligation("up") permit(principal, action == Action::"write", resource);
@id("buy") @obligation("boss") permit(principal, action == Action::"buy", resource);`,
		"obligations.yaml": "up: {type: step-up, on: allow, properties: {acr_value: high, amr_values: [secretsecret]}}\n" +
			"boss: {type: approval_required, on: allow, properties: {template: boss, quorum: 2, message: buys secretsecret}}\n",
	}
	other := maps.Clone(base)
	other["obligations.yaml"] = "up: {type: step-up, on: allow, properties: {acr_value: low, amr_values: [secretsecret]}}\n" +
		"boss: {type: approval_required, on: allow, properties: {template: boss, quorum: 1, message: buys secretsecret}}\n"
	for _, token := range []string{"a", "secretsecret"} {
		for _, action := range []string{"write", "buy"} {
			ask := func(a *archive) {
				a.asks("default", `{"subject":{"type":"user","id":"mia"},"action":{"name":"`+action+`"},"resource":{"type":"doc","id":"open"},"context":{"arguments":{"token":"`+token+`"},"supported_obligations":["approval_required","step-up"]}}`)
			}
			if got := against(t, base, other, ask); got.Changed[replay.Weaker] != 1 {
				t.Errorf("%s, %s: got %d of %d the same, %v", action, token, got.Same, got.Decisions, got.Changed)
			}
			if got := against(t, base, with(base, "README", "x"), ask); got.Same != 1 {
				t.Errorf("%s, %s, as it was: got %v, %d unknown", action, token, got.Changed, got.Unknown)
			}
		}
	}
}

// A record that says that what was no request was allowed is not one that its policies give.
func TestRecheckAllowOfNoRequest(t *testing.T) {
	t.Parallel()
	a := open(t)
	a.load(policies(1), true)
	a.flip = func(r *pdp.Record) { r.Decision.Allow = r.Decision.Allow || r.Decision.Malformed != nil }
	a.batch("default", `{"subject":{"type":"user","id":"mia"},"action":{"name":"read"},"evaluations":[{"resource":{"type":"doc","id":"open"},"context":{"pdp":{}}}]}`)
	if got := a.recheck(); got.Decisions != 1 || got.Same != 0 {
		t.Errorf("got %+v", got)
	}
}

// What went by an approval, and would go without one, lost an obligation.
func TestApprovalThatIsAskedForNoMore(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"a.cedar":          `@id("buy") @obligation("boss") permit(principal, action == Action::"buy", resource);`,
		"obligations.yaml": "boss: {type: approval_required, on: allow, properties: {template: boss, quorum: 2, message: buys}}\n",
	}
	without := maps.Clone(base)
	without["a.cedar"] = strings.Replace(without["a.cedar"], `@obligation("boss") `, "", 1)
	fewer := maps.Clone(base)
	fewer["obligations.yaml"] = strings.Replace(fewer["obligations.yaml"], "quorum: 2", "quorum: 1", 1)
	for name, c := range map[string]struct {
		files map[string]string
		want  replay.Class
	}{"as it was": {with(base, "README", "x"), replay.Same}, "no approval": {without, replay.Weaker}, "another approval": {fewer, replay.Narrowed}} {
		got := against(t, base, c.files, func(a *archive) {
			a.flip = func(r *pdp.Record) {
				r.Approved, r.Decision.Obligations = true, nil
				r.Decision.Met = []evaluation.Met{{ID: "boss", Type: "approval_required", Approval: "one"}}
			}
			a.asks("default", `{"subject":{"type":"user","id":"mia"},"action":{"name":"buy"},"resource":{"type":"doc","id":"open"},"context":{"supported_obligations":["approval_required"]}}`)
		})
		if c.want == replay.Same && got.Same != 1 || c.want != replay.Same && got.Changed[c.want] != 1 {
			t.Errorf("%s: got %v, %d the same", name, got.Changed, got.Same)
		}
	}
}
