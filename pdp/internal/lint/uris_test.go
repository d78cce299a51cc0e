package lint_test

import (
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// TestCheckURIsThatClimb: a directory of URIs is no fence, unless other patterns are one.
func TestCheckURIsThatClimb(t *testing.T) {
	t.Parallel()
	const (
		docs  = `context.pdp.resource.id like "file:///docs/*"`
		fence = `context.pdp.resource.id like "*/.*" || context.pdp.resource.id like "*%*" || context.pdp.resource.id like "*\\*"`
		here  = `uri_climbs policy.cedar@"file:///docs/*"`
	)
	only := func(conditions string) string {
		return `@id("p") permit (principal is User, action == Action::"read", resource is Doc) ` + conditions + ";"
	}
	forbid := func(condition string) string {
		return "\n" + `@id("f") forbid (principal, action, resource is Doc) when { ` + condition + ` };`
	}
	like := func(pattern string) string { return only(`when { context.pdp.resource.id like "` + pattern + `" }`) }
	for _, c := range []lintCase{
		{"a permit", named(only(`when { `+docs+` }`), ""), here},
		{"a forbid", named(strings.Replace(only(`when { `+docs+` }`), "permit", "forbid", 1)+"\n"+`@id("b") permit (principal is User, action, resource is Doc);`, ""), here},
		{"one of several", named(only(`when { resource == Doc::"a" || principal == User::"u" && `+docs+` }`), ""), here},
		{"not beside it", named(only(`unless { `+docs+` }`), ""), here},
		{"a directory of a host", named(like("https://example.com/a/*"), ""), "uri_climbs policy.cedar@\"https://example.com/a/*\""},
		{"without a host", named(like("mem:/a/*"), ""), "uri_climbs policy.cedar@\"mem:/a/*\""},
		{"a fence in the policy", named(only(`when { `+docs+` && !(`+fence+`) }`), ""), ""},
		{"a fence in an unless", named(only(`when { `+docs+` } unless { `+fence+` }`), ""), ""},
		{"a forbid is a fence", named(only(`when { `+docs+` }`)+forbid(fence), ""), ""},
		{"the root's forbid is one", named(strings.TrimSpace(forbid(fence)), "", "tenants/t/t.cedar", only(`when { `+docs+` }`)), ""},
		{"another tenant's is none", named(only(`when { `+docs+` }`), "", "tenants/t/t.cedar", strings.TrimSpace(forbid(fence))), here},
		{"not for escaped dots", named(only(`when { `+docs+` }`)+forbid(`context.pdp.resource.id like "*/.*" || context.pdp.resource.id like "*\\*"`), ""), here},
		{"not for backslashes", named(only(`when { `+docs+` }`)+forbid(`context.pdp.resource.id like "*/.*" || context.pdp.resource.id like "*%*"`), ""), here},
		{"a pattern for all is no fence", named(only(`when { `+docs+` && context.pdp.resource.id like "*/*s*" }`), ""), here},
		{"all of a host", named(like("https://example.com/*"), ""), ""},
		{"all files", named(like("file:///*"), ""), ""},
		{"the tools of a server", named(like("files:*"), ""), ""},
		{"tools with a slash", named(like("files:docs/*"), ""), ""},
		{"a name", named(like("file:///docs/a*"), ""), ""},
		{"the principal", named(only(`when { context.pdp.subject.id like "file:///docs/*" }`), ""), ""},
	} {
		c.run(t)
	}
}

// TestTheFenceThatCheckSuggestsHolds: what the warning says is so, and what it says to write helps.
func TestTheFenceThatCheckSuggestsHolds(t *testing.T) {
	t.Parallel()
	policy := `@id("p") permit (principal is User, action == Action::"read", resource is Doc) when { context.pdp.resource.id like "file:///docs/*" };`
	_, problems := pdp.Check(pdp.FS(named(policy, "")), lintNow)
	if len(problems) != 1 {
		t.Fatal(problems)
	}
	fence, _, _ := strings.Cut(problems[0].Try, ";")
	fence = strings.Replace(fence, "…", "(principal, action, resource is Doc)", 1) + ";"
	if _, problems := pdp.Check(pdp.FS(named(policy+"\n@id(\"f\") "+fence, "")), lintNow); len(problems) != 0 {
		t.Error(problems)
	}
	for _, uri := range []string{"file:///docs/../x", "file:///docs/a/..", "file:///docs/%2e%2e/x", "file:///docs/.%2E/x", `file:///docs/..\x`, `file:///docs/a\..\..\x`} {
		for text, allowed := range map[string]bool{policy: true, policy + fence: false} {
			b, problems := pdp.Load(pdp.FS(named(text, "")))
			if b == nil {
				t.Fatal(problems.Error())
			}
			d, err := pdp.Of(b, pdp.Options{}).Evaluate(t.Context(), pdp.Call{Now: lintNow, Request: evaluation.Request{
				Tenant: "default", Subject: evaluation.Entity{Type: "User", ID: "u"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "Doc", ID: uri},
			}})
			if err != nil || d.Allow != allowed {
				t.Errorf("%s: %v, %v\n%s", uri, d.Allow, err, text)
			}
		}
	}
}
