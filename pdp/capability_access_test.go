package pdp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
)

// requiring are declarations of the tools of o that allow good the tool a with a capability, and not without.
var requiring = map[string]string{
	"allowlist":     "mode: allowlist\nrules: [{agent: good, tools: a}]\n",
	"everybody":     "mode: allowlist\nrules: [{agent: '*', tools: '*'}]\n",
	"denylist":      "mode: denylist\nrules: [{agent: bad, tools: a}]\n",
	"open":          "mode: open\n",
	"hybrid, deny":  "mode: hybrid\ndefault: deny\nrules: [{agent: good, tools: '*', effect: allow}]\n",
	"hybrid, allow": "mode: hybrid\ndefault: allow\nrules: [{agent: bad, tools: '*', effect: deny}]\n",
}

// asked is the decision about a question of good for the tool o:a.
func asked(t *testing.T, b *pdp.Bundle, tenant, action, context string, held bool) evaluation.Decision {
	t.Helper()
	body := fmt.Sprintf(`{"subject":{"type":"agent","id":"good","properties":{"capability":{"held":true}}},"action":{"name":%q},"resource":{"type":"tool","id":"o:a"},"context":%s}`, action, context)
	request, err := evaluation.Decode([]byte(body), tenant, evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	call := pdp.Call{Request: request, Now: time.Unix(1_800_000_000, 0)}
	if held {
		call.Capability = evaluation.Capability{Held: true, ID: "cap_1"}
	}
	d, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Where a capability is required, no permit by hand, no tenant and no member of a request makes up for one; nor does an
// action below tool.invoke, which a schema may have for each tool. Who asks for a capability needs none.
func TestAccessNobodyGetsRoundACapability(t *testing.T) {
	t.Parallel()
	const (
		permits = `@id("hand") permit (principal, action, resource);`
		schema  = `entity agent; entity tool in [tool]; action "tool.invoke", "capability.grant" appliesTo { principal: [agent], resource: [tool] };
			action "o.a" in ["tool.invoke"] appliesTo { principal: [agent], resource: [tool] };`
		below = `[{"uid":{"type":"Action","id":"o.a"},"attrs":{},"parents":[{"type":"Action","id":"tool.invoke"}]}]`
	)
	for mode, declaration := range requiring {
		for how, more := range map[string]map[string]string{
			"in the file":       {"access/o.yaml": declaration + "capability: required\n", "entities/e.json": below},
			"by default":        {"bundle.yaml": "allow_trivial: true\naccess: {capability: required}\n", "access/o.yaml": declaration, "entities/e.json": below},
			"beside a schema":   {"access/o.yaml": declaration + "capability: required\n", "schema.cedarschema": schema},
			"a tenant has none": {"access/o.yaml": declaration + "capability: required\n", "tenants/t/access/o.yaml": declaration + "capability: none\n", "entities/e.json": below},
			"of a tenant":       {"bundle.yaml": "allow_trivial: true\naccess: {capability: required}\n", "tenants/t/access/o.yaml": declaration, "entities/e.json": below},
		} {
			files := map[string]string{"bundle.yaml": "allow_trivial: true\n", "all.cedar": permits, "tenants/t/all.cedar": strings.Replace(permits, "hand", "theirs", 1)}
			for name, text := range more {
				files[name] = text
			}
			b := loadFiles(t, files)
			for _, action := range []string{"tool.invoke", "o.a", "capability.grant"} {
				for _, context := range []string{`{}`, `{"held":true,"arguments":{"capability":{"held":true}}}`} {
					for _, held := range []bool{true, false} {
						want := held || action == "capability.grant"
						if d := asked(t, b, "t", action, context, held); d.Allow != want {
							t.Errorf("%s, %s: %s, held %t: %s", mode, how, action, held, outcomeOf(d))
						}
					}
				}
			}
		}
	}
}

// A file says for itself what bundle.yaml says for all, also that there is none. What is observed is on record, and allowed.
func TestAccessCapabilityOfTheBundle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bundle, file string
		allow        bool
		observed     bool
	}{
		{"", "", true, false},
		{"", "observe", true, true},
		{"", "required", false, false},
		{"observe", "", true, true},
		{"required", "", false, false},
		{"required", "none", true, false},
		{"required", "observe", true, true},
		{"observe", "none", true, false},
		{"none", "required", false, false},
	} {
		for mode, text := range requiring {
			files := map[string]string{"bundle.yaml": "allow_trivial: true\n", "access/o.yaml": text, "tenants/t/access/p.yaml": "mode: open\n"}
			if c.bundle != "" {
				files["bundle.yaml"] += "access: {capability: " + c.bundle + "}\n"
			}
			if c.file != "" {
				files["access/o.yaml"] += "capability: " + c.file + "\n"
			}
			b := loadFiles(t, files)
			d := asked(t, b, "t", "tool.invoke", "{}", false)
			if observed := slices.Contains(d.Determining, "access.o.observe"); d.Allow != c.allow || observed != c.observed {
				t.Errorf("%s: bundle %q, file %q: %s", mode, c.bundle, c.file, outcomeOf(d))
			}
			for _, action := range []string{"tool.invoke", "capability.grant"} {
				if d := asked(t, b, "t", action, "{}", true); !d.Allow || slices.Contains(d.Determining, "access.o.observe") {
					t.Errorf("%s: bundle %q, file %q: with one, %s: %s", mode, c.bundle, c.file, action, outcomeOf(d))
				}
			}
		}
	}
}

// An edit of the default changes what was made of all files, also of those that stay as they are.
func TestAccessCapabilityOfTheBundleChanges(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"bundle.yaml":             {Data: []byte("access: {capability: none}\n")},
		"access/p.yaml":           {Data: []byte("mode: open\n")},
		"tenants/t/access/o.yaml": {Data: []byte(requiring["allowlist"])},
	}
	p, err := pdp.New(pdp.FS(files), pdp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, say := range []string{"none", "required", "none", "observe"} {
		files["bundle.yaml"] = &fstest.MapFile{Data: []byte("access: {capability: " + say + "}\n")}
		if err := p.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"o:a", "p:a"} {
			tenant := map[string]string{"o:a": "t", "p:a": "default"}[tool]
			d, err := p.Evaluate(t.Context(), pdp.Call{Request: evaluation.Request{
				Tenant: tenant, Subject: evaluation.Entity{Type: "agent", ID: "good"},
				Action: evaluation.Action{Name: "tool.invoke"}, Resource: evaluation.Entity{Type: "tool", ID: tool},
			}})
			if err != nil || d.Allow != (say != "required") {
				t.Errorf("%s, %s: %v, %s", say, tool, err, outcomeOf(d))
			}
		}
	}
}

// A schema that declares the first members of context.pdp alone cannot have a capability. The problem says what to declare.
func TestAccessCapabilityNeedsItsFact(t *testing.T) {
	t.Parallel()
	_, problems := pdp.Load(pdptest.Bundle(map[string]string{
		"access/o.yaml": "mode: open\ncapability: required\n",
		"schema.cedarschema": `entity agent; entity tool; action "tool.invoke" appliesTo { principal: [agent], resource: [tool],
			context: { pdp: { now: datetime, tenant: String, caller: String, approved: Bool } } };`,
	}))
	if said := problems.Error(); !problems.Refuse() || !strings.Contains(said, "access/o.yaml:1:") || !strings.Contains(said, "capability: {held: Bool, id: String, depth: Long}") {
		t.Errorf("it says %s", said)
	}
}
