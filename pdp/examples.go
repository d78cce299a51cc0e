package pdp

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// Example is one case of a bundle's tests directory: a request and the answer
// the author expects.
type Example struct {
	File         string
	Line, Column int
	Name         string
	Call         Call
	// Body is the request as JSON, the way it would be sent.
	Body []byte
	// Decision is allow, deny, possible or impossible.
	Decision    string
	Reason      *string  // nil if the case asserts nothing about it
	Determining []string // nil if the case asserts nothing about it
	Obligations []string // nil if the case asserts nothing about it
}

// Position is where the case stands, as file:line:column.
func (e *Example) Position() string { return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column) }

// Differences compares what a case expects with a decision. Lists compare exactly, in any order.
func (e *Example) Differences(d evaluation.Decision) (differs []string) {
	if got := answerTo(d); e.Decision != got {
		differs = append(differs, fmt.Sprintf("decision: expected %s, got %s", e.Decision, got))
	}
	if e.Reason != nil && *e.Reason != string(d.Reason) {
		differs = append(differs, fmt.Sprintf("reason: expected %q, got %q", *e.Reason, d.Reason))
	}
	list := func(what string, want, got []string) {
		want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
		if !slices.Equal(want, got) {
			expected := fmt.Sprintf("expected [%s], got [%s]", strings.Join(want, ", "), strings.Join(got, ", "))
			differs = append(differs, what+": "+expected)
		}
	}
	if e.Determining != nil {
		list("determining", e.Determining, d.Determining)
	}
	if e.Obligations != nil {
		var ids []string
		for _, o := range d.Obligations {
			ids = append(ids, o.ID)
		}
		list("obligations", e.Obligations, ids)
	}
	if len(differs) > 0 {
		for _, m := range d.Mismatch { // why, as a rule
			differs = append(differs, fmt.Sprintf("mismatch: %s: %s", m.Pointer, m.Detail))
		}
	}
	return differs
}

// answerTo is the word that a case has for a decision: an allow is one whatever it owes.
func answerTo(d evaluation.Decision) string {
	switch {
	case d.Possible == evaluation.Possible:
		return "possible"
	case d.Possible == evaluation.Impossible:
		return "impossible"
	case d.Allow:
		return "allow"
	}
	return "deny"
}

// Coverage are the policies that cases satisfied, whether or not they determined the decision: a permit that a forbid overrode was
// satisfied too. The zero value has none.
type Coverage struct{ satisfied map[[2]string]bool }

// Add adds the policies that a decision with an explanation satisfied.
func (c *Coverage) Add(tenant string, d evaluation.Decision) {
	if d.Explain == nil {
		return
	}
	if c.satisfied == nil {
		c.satisfied = map[[2]string]bool{}
	}
	for _, p := range d.Explain.Policies {
		if p.Verdict == evaluation.Satisfied {
			// A tenant's own policy never has the id of one above it, but two tenants may use the same.
			c.satisfied[[2]string{tenant, p.ID}] = true
			c.satisfied[[2]string{evaluation.DefaultTenant, p.ID}] = true
		}
	}
}

// Has reports whether a case satisfied a policy.
func (c *Coverage) Has(p PolicyInfo) bool { return c.satisfied[[2]string{p.Tenant, p.ID}] }

// Examples reads the cases of a source's tests directories. It returns the problems of all cases
// at once, and leaves out the cases that have a problem.
func Examples(from Source) ([]Example, Problems) {
	files := from.ReadTests()
	problems := slices.Clone(files.Problems)
	var all []Example
	for _, name := range slices.Sorted(maps.Keys(files.Content)) {
		r := exampleFile{document.Map{File: name, Problems: &problems}, source.TenantOf(name)}
		all = append(all, r.read(files.Content[name])...)
	}
	return all, problems.Sorted()
}

// exampleFile reads one file of cases.
type exampleFile struct {
	document.Map
	tenant string
}

func (f *exampleFile) read(text []byte) []Example {
	list, ok := document.Read(f.File, text, f.Problems)
	if !ok {
		return nil
	}
	var examples []Example
	f.List(list, func(n *yaml.Node) {
		if e, ok := f.example(n); ok {
			examples = append(examples, e)
		}
	})
	if list.Kind == yaml.SequenceNode && len(list.Content) == 0 {
		f.Bad(list, "no_tests", "there is no test in this file", "write one, or remove the file")
	}
	return examples
}

func (f *exampleFile) example(n *yaml.Node) (Example, bool) {
	before := len(*f.Problems)
	e := Example{File: f.File, Line: n.Line, Column: n.Column}
	tenant := f.tenant
	var name, request, decision *yaml.Node
	m := document.Map{File: f.File, Problems: f.Problems}
	m.Known = map[string]func(*yaml.Node){
		"name":        func(v *yaml.Node) { name = v; m.Text(v); e.Name = v.Value },
		"tenant":      func(v *yaml.Node) { tenant = f.tenantOfTest(v) },
		"now":         func(v *yaml.Node) { e.Call.Now = f.time(v) },
		"caller":      func(v *yaml.Node) { e.Call.Asker.Name = f.string(v) },
		"capability":  func(v *yaml.Node) { e.Call.Capability = f.capability(v) },
		"request":     func(v *yaml.Node) { request = v },
		"decision":    func(v *yaml.Node) { decision = v; e.Decision = m.OneOf(v, "allow", "deny", "possible", "impossible") },
		"reason":      func(v *yaml.Node) { s := f.string(v); e.Reason = &s },
		"determining": func(v *yaml.Node) { e.Determining = f.strings(v) },
		"obligations": func(v *yaml.Node) { e.Obligations = f.strings(v) },
	}
	m.Read(n)
	for _, required := range []struct {
		key   string
		value *yaml.Node
	}{{"name", name}, {"request", request}, {"decision", decision}} {
		if required.value == nil && n.Kind == yaml.MappingNode {
			f.Bad(n, "missing_key", "this test has no "+required.key, "add "+required.key+": to it")
		}
	}
	if request != nil {
		e.Body, e.Call.Request = f.request(request, tenant)
	}
	return e, len(*f.Problems) == before
}

// tenantOfTest returns the tenant that a test names. A test in a tenant's directory can name only that
// tenant.
func (f *exampleFile) tenantOfTest(n *yaml.Node) string {
	switch {
	case !f.Text(n):
	case !evaluation.IsTenantName(n.Value):
		f.Bad(n, "tenant_name", "this is no legal tenant name", "use default, or the name of a directory below tenants/")
	case f.tenant != "" && f.tenant != n.Value:
		f.Bad(n, "other_tenant", "this file stands in the directory of another tenant", "leave tenant: out, or move the test")
	default:
		return n.Value
	}
	return f.tenant
}

func (f *exampleFile) time(n *yaml.Node) time.Time {
	t, err := time.Parse(time.RFC3339, n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		f.Bad(n, "yaml_value", "this must be a time", "write it as 2026-01-02T03:04:05Z")
	}
	return t
}

// HeldInTest is the capability of a test that says capability: held.
var HeldInTest = evaluation.Capability{Held: true, ID: "cap_test"}

// capability reads which capability a test holds. Where it does not matter, it is called cap_test.
func (f *exampleFile) capability(n *yaml.Node) evaluation.Capability {
	held := HeldInTest
	if n.Kind != yaml.MappingNode {
		if n.Kind != yaml.ScalarNode || n.Value != "held" {
			f.Bad(n, "yaml_value", "this is no capability", "write held, or {id: cap_1, depth: 0}; without the key there is none")
		}
		return held
	}
	held.ID = ""
	m := document.Map{File: f.File, Problems: f.Problems, Known: map[string]func(*yaml.Node){
		"id": func(v *yaml.Node) { held.ID = f.string(v) },
		"depth": func(v *yaml.Node) {
			depth, err := strconv.ParseUint(v.Value, 10, 31)
			if held.Depth = int(depth); err != nil || v.ShortTag() != "!!int" {
				f.Bad(v, "yaml_value", "this must be a number, how often the capability was handed on", "write 0, 1 or more")
			}
		},
	}}
	if m.Read(n); held.ID == "" {
		f.Bad(n, "missing_key", "this capability has no id", "add id: to it, or write held")
	}
	return held
}

// string also accepts the empty string: a test may say that there is no reason.
func (f *exampleFile) string(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		f.Bad(n, "yaml_form", "this must be a string", `write it in quotes; "" is none`)
	}
	return n.Value
}

func (f *exampleFile) strings(n *yaml.Node) []string {
	list := []string{} // not nil: an empty list asserts that there is none
	f.List(n, func(item *yaml.Node) {
		if f.Text(item) {
			list = append(list, item.Value)
		}
	})
	return list
}

// request makes JSON from the YAML and decodes the JSON, so that the request of a test is read as
// the request of a caller is.
func (f *exampleFile) request(n *yaml.Node, tenant string) ([]byte, evaluation.Request) {
	body, bad := document.AppendJSON(nil, n)
	if bad != nil {
		f.Bad(bad.At, "yaml_json", bad.What, bad.Try)
		return nil, evaluation.Request{}
	}
	request, err := evaluation.Decode(body, tenant, evaluation.DefaultLimits())
	var malformed *evaluation.Error
	switch {
	case errors.As(err, &malformed):
		f.Bad(document.NodeAt(n, malformed.Pointer), "malformed_request",
			"the request is malformed: "+malformed.Detail,
			malformed.Try,
		)
	case err != nil:
		f.Bad(n, "malformed_request", "the request is malformed", "")
	case !evaluation.IsTenantName(request.Tenant):
		f.Bad(document.NodeAt(n, "/tenant_id"), "tenant_name",
			"this is no legal tenant name",
			"use default, or the name of a directory below tenants/",
		)
	}
	return body, request
}
