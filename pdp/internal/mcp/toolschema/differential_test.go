package toolschema_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/mcp/toolschema"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// oneCase is a tool with policies about its arguments, and calls.
type oneCase struct {
	Schema   string            `json:"schema"`
	Policies map[string]string `json:"policies"`
	Requests []any             `json:"requests"` // contexts
	input    string
	sent     []string // arguments
}

// answered is what Rust Cedar says of a case.
type answered struct {
	Failure string
	Invalid []string
	Answers []struct {
		Failure, Decision string
		Reasons, Errors   []string
	}
}

// TestRustCedar holds decisions about typed arguments to Rust Cedar, which has the same schema: tools, policies and arguments
// by chance, our PDP with the question of a gateway, and theirs with the values that the schema says they are. Whether policies
// are valid is compared as well.
func TestRustCedar(t *testing.T) {
	night.Npm(t)
	t.Parallel()
	dir := npm.Install(t, "Rust Cedar", os.DirFS("testdata/cedar"))
	const most = 250
	cases := make([]oneCase, most)
	for n := range cases {
		cases[n] = caseOf(t, uint64(n))
	}
	counted := map[string]int{}
	answers := npm.Answers[oneCase, answered](t, dir, append(cases, severalRanges(t)...))
	for n := range cases {
		compare(t, n, &cases[n], answers[n], counted)
	}
	for n, c := range severalRanges(t) {
		a := answers[most+n]
		if _, err := loaded(&c); a.Failure != "" || len(a.Invalid) != 1 || err == nil || !strings.Contains(err.Error(), "the number of arguments of isInRange is 1, not ") {
			t.Errorf("%s\nours: %v\ntheirs: %+v", c.Policies["p"], err, a)
		}
	}
	t.Log(counted)
	for name, least := range map[string]int{"invalid": most / 10, "Allow": most / 2, "Deny": most / 2, "errors": most / 50} {
		if counted[name] < least {
			t.Errorf("%d are %s: the generator makes too little of it", counted[name], name)
		}
	}
}

// severalRanges are calls that Cedar's RFC 99 gives a meaning, and one that it does not. Rust Cedar reads both, so an author may
// bring them, and its validator refuses them still. We refuse them by name.
func severalRanges(t *testing.T) (all []oneCase) {
	for _, arguments := range []string{`ip("10.0.0.0/8"), ip("11.0.0.0/8")`, ""} {
		c := oneCase{
			input:    `{"type":"object","properties":{"x":{"type":"string","format":"ipv4"}},"required":["x"]}`,
			Policies: map[string]string{"p": `@id("p") permit(principal, action == Action::"s:t", resource) when { context.arguments.x.isInRange(` + arguments + `) };`},
			Requests: []any{map[string]any{"pdp": inPDP, "arguments": map[string]any{"x": "10.1.2.3"}}},
		}
		c.Schema = generated(t, []toolschema.Tool{{Server: "s", Name: "t", Definition: definition(`{"inputSchema":` + c.input + `}`)}}, toolschema.Options{Whole: true}).Text
		all = append(all, c)
	}
	return all
}

// inPDP is the service's part of a context.
var inPDP = map[string]any{
	"now": now.Format("2006-01-02T15:04:05.000Z"), "tenant": "default", "caller": "", "approved": false,
	"subject":    map[string]any{"type": "agent", "id": "a"},
	"resource":   map[string]any{"type": "tool", "id": "s:t"},
	"capability": map[string]any{"held": false, "id": "", "depth": 0},
}

var now = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func caseOf(t *testing.T, seed uint64) oneCase {
	m := making{rand.New(rand.NewPCG(seed, 7))}
	all := m.properties(0)
	c := oneCase{input: schemaOf(all), Policies: map[string]string{}}
	d := toolschema.Tool{Server: "s", Name: "t", Definition: definition(`{"name":"t","inputSchema":` + c.input + `}`)}
	c.Schema = generated(t, []toolschema.Tool{d}, toolschema.Options{Whole: true}).Text
	required := slices.ContainsFunc(all, func(p property) bool { return p.required && !p.nullable && p.value != nil })
	for n := range 1 + m.IntN(4) {
		guarded := m.IntN(8) > 0
		condition := m.asked(all, "context.arguments", guarded)
		switch {
		case condition == "":
			condition = "context.pdp.tenant == \"default\""
		case !required && guarded:
			condition = "context has arguments && " + condition
		}
		if m.IntN(20) == 0 {
			condition = m.pick(`context.arguments.nothing == 1`, `context.pdp.tenant < 3`, condition+` && principal.name == "a"`)
		}
		id := fmt.Sprint("p", n)
		c.Policies[id] = fmt.Sprintf(`@id(%q) %s(principal, action %s, resource) when { %s };`, id, m.pick("permit", "permit", "forbid"),
			m.pick(`== Action::"s:t"`, `in Action::"s:*"`), condition)
	}
	c.Policies["z"] = `@id("z") permit(principal == agent::"nobody", action, resource);`
	for range 5 {
		sent, theirs := m.object(all)
		if !required && m.IntN(4) == 0 {
			sent = ""
		}
		c.sent = append(c.sent, sent)
		context := map[string]any{"pdp": inPDP}
		if sent != "" {
			context["arguments"] = theirs
		}
		c.Requests = append(c.Requests, context)
	}
	return c
}

func compare(t *testing.T, n int, c *oneCase, a answered, counted map[string]int) {
	t.Helper()
	told := func() string {
		_, action, _ := strings.Cut(c.Schema, `action "s:t"`)
		return fmt.Sprintf("case %d: %s\n%s\n%v", n, c.input, action, c.Policies)
	}
	if a.Failure != "" {
		t.Errorf("%s\nit cannot be read: %s", told(), a.Failure)
		return
	}
	p, err := loaded(c)
	if (err != nil) != (len(a.Invalid) > 0) {
		t.Errorf("%s\nours: %v\ntheirs: %q", told(), err, a.Invalid)
		return
	}
	if err != nil {
		counted["invalid"]++
		return
	}
	input := compiled(t, c.input)
	for i, answer := range a.Answers {
		if c.sent[i] != "" {
			fits(t, input, c.sent[i])
		}
		d := decides(t, p, c, i)
		ours := map[bool]string{true: "allow", false: "deny"}[d.Allow] + fmt.Sprint(d.Determining)
		for _, e := range d.Errors {
			ours += " " + e.Policy
		}
		slices.Sort(answer.Reasons)
		slices.Sort(answer.Errors)
		theirs := strings.ToLower(answer.Decision) + fmt.Sprint(answer.Reasons)
		for _, id := range answer.Errors {
			theirs += " " + id
		}
		if answer.Failure != "" || ours != theirs || d.Reason != "" {
			t.Errorf("%s\n%s:\nours   %s %s %v\ntheirs %s %s", told(), c.sent[i], ours, d.Reason, d.Mismatch, theirs, answer.Failure)
			return
		}
		counted[strings.ToUpper(answer.Decision[:1])+answer.Decision[1:]]++
		counted["errors"] += len(d.Errors)
	}
}

// loaded is our PDP with the schema and the policies of a case.
func loaded(c *oneCase) (*pdp.PDP, error) {
	bundle := fstest.MapFS{"tools.cedarschema": {Data: []byte(c.Schema)}, "bundle.yaml": {Data: []byte("forbid_errors: ignore\n")}}
	for id, text := range c.Policies {
		bundle[id+".cedar"] = &fstest.MapFile{Data: []byte(text)}
	}
	return pdp.New(pdp.FS(bundle), pdp.Options{})
}

// decides is what our PDP says of one call.
func decides(t *testing.T, p *pdp.PDP, c *oneCase, n int) evaluation.Decision {
	t.Helper()
	body := `{"subject":{"type":"agent","id":"a"},"action":{"name":"s:t"},"resource":{"type":"tool","id":"s:t"}`
	if c.sent[n] != "" {
		body += `,"context":{"arguments":` + c.sent[n] + `}`
	}
	q, err := evaluation.Decode([]byte(body+"}"), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", c.sent[n], err)
	}
	d, err := p.Evaluate(t.Context(), pdp.Call{Request: q, Now: now})
	must(t, err)
	return d
}

// compiled is an inputSchema as another implementation reads it.
func compiled(t *testing.T, input string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(input))
	must(t, err)
	c := jsonschema.NewCompiler()
	must(t, c.AddResource("https://example.com/", doc))
	s, err := c.Compile("https://example.com/")
	if err != nil {
		t.Fatalf("%s: %v", input, err)
	}
	return s
}

// fits fails the test if arguments are none that the tool's own schema permits.
func fits(t *testing.T, s *jsonschema.Schema, arguments string) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(arguments))
	must(t, err)
	if err := s.Validate(v); err != nil {
		t.Errorf("the generator makes arguments that are not valid: %s\n%v", arguments, err)
	}
}
