package pdp

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// obligedWorld is a world whose policies name obligations.
type obligedWorld struct {
	world
	root, tenant []owing // what the two obligations.yaml define
	permissive   bool
	names        map[string][]string // by policy, what it names
}

// owing is an obligation before it is text.
type owing struct {
	name, typ, on string
	properties    string // JSON, members in order, no spaces
}

// obliged makes a world of about that many policies, half of which name
// obligations.
func (g *generator) obliged(policies int) obligedWorld {
	o := obligedWorld{world: g.world(policies), permissive: g.chance(15)}
	for n := range 2 + g.IntN(4) { // so that several policies determine a decision
		o.policies = append(o.policies, g.wide(fmt.Sprintf("w%d", n)))
	}
	return g.obliging(o)
}

// obliging has half of the policies of a world name obligations.
func (g *generator) obliging(o obligedWorld) obligedWorld {
	o.names = map[string][]string{}
	if o.permissive {
		o.config += "undeclared_obligations: allow\n"
	}
	o.root = append(g.definitions("o"), owing{name: "log", typ: "log", on: "both", properties: "{}"}, owing{name: "approval_required", typ: "approval_required", on: "allow", properties: "{}"})
	if len(o.world.tenant) > 0 {
		o.tenant = g.definitions("t")
	}
	for n, p := range o.policies {
		o.policies[n] = g.oblige(&o, p, o.root)
	}
	for n, p := range o.world.tenant {
		o.world.tenant[n] = g.oblige(&o, p, slices.Concat(o.root, o.tenant))
	}
	return o
}

// wide makes a policy that many requests satisfy.
func (g *generator) wide(id string) policyText {
	return policyText{id: id, text: fmt.Sprintf("@id(%q) %s (%s, action, %s)%s;", id, oneOf(g, "permit", "permit", "permit", "permit", "permit", "forbid"),
		oneOf(g, "principal", "principal is User"), oneOf(g, "resource", "resource is Doc", "resource is Folder", "resource is User"),
		oneOf(g, "", "", " when { context has s }", ` unless { action == Action::"peek" }`))}
}

func (g *generator) definitions(prefix string) []owing {
	var all []owing
	for n := range 9 {
		typ := oneOf(g, "log", "custom", "custom", "redact", "notification", "step-up", "session_termination", "approval_required")
		on := oneOf(g, "both", "both", "both", "allow", "deny")
		all = append(all, owing{prefix + strconv.Itoa(n), typ, on, g.propertiesOf(typ)})
	}
	return all
}

// propertiesOf picks of a few, so that equal and different ones come together.
func (g *generator) propertiesOf(typ string) string {
	text := func() string {
		return oneOf(g, `"a"`, `"a"`, `"b"`, `"${principal.id}"`, `"${resource.id}"`, `"u0"`, `"${action.name}"`, `"${context.s}"`, `"<${context.n}>"`, `"${context.flag}${context.opt}"`, `"${context.groups}"`)
	}
	switch typ {
	case "step-up":
		return `{"acr_value":` + oneOf(g, `"a"`, `"a"`, text()) + `}`
	case "notification":
		return `{"body":` + text() + `,"to":"x"}`
	case "session_termination":
		return `{"subject":` + text() + `}`
	case "redact":
		return `{"fields":[` + text() + `]}`
	case "approval_required":
		return oneOf(g, `{}`, `{}`, `{"message":`+text()+`}`)
	}
	return oneOf(g, `{}`, `{"x":`+text()+`}`, `{"x":{"y":[`+text()+`,1]}}`)
}

func (g *generator) oblige(o *obligedWorld, p policyText, of []owing) policyText {
	if !g.chance(50) {
		return p
	}
	answer := "allow"
	if strings.HasPrefix(p.text, "@id("+strconv.Quote(p.id)+") forbid") {
		answer = "deny"
	}
	possible := slices.DeleteFunc(slices.Clone(of), func(d owing) bool { return d.on != "both" && d.on != answer })
	var names []string
	for range 1 + g.IntN(2) {
		if name := oneOf(g, possible...).name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	o.names[p.id] = names
	p.text = "@obligation(" + strconv.Quote(strings.Join(names, oneOf(g, ",", ", "))) + ") " + p.text
	return p
}

func definitionsText(all []owing) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%s: {type: %s, on: %s, properties: %s}\n", d.name, d.typ, d.on, d.properties)
	}
	return b.String()
}

func (o obligedWorld) source() Source {
	files := o.world.source().Fsys.(fstest.MapFS)
	files["obligations.yaml"] = &fstest.MapFile{Data: []byte(definitionsText(o.root))}
	if len(o.tenant) > 0 {
		files["tenants/acme/obligations.yaml"] = &fstest.MapFile{Data: []byte(definitionsText(o.tenant))}
	}
	return FS(files)
}

func (o obligedWorld) load(t *testing.T) *Bundle {
	t.Helper()
	b, problems := Load(o.source())
	if problems.Refuse() {
		t.Fatalf("the generator made a bundle that does not load:\n%s\n%s", problems.Error(), o)
	}
	return b
}

func (o obligedWorld) String() string {
	return o.world.String() + "--- obligations.yaml\n" + definitionsText(o.root) + "--- tenants/acme/obligations.yaml\n" + definitionsText(o.tenant)
}

// plain is the same world with no obligation in it.
func (o obligedWorld) plain() world {
	w := o.world
	without := regexp.MustCompile(`^@obligation\("[^"]*"\) `)
	strip := func(policies []policyText) []policyText {
		policies = slices.Clone(policies)
		for n := range policies {
			policies[n].text = without.ReplaceAllString(policies[n].text, "")
		}
		return policies
	}
	w.policies, w.tenant = strip(w.policies), strip(w.tenant)
	return w
}

// smaller takes out whatever is not needed to make it fail.
func (o obligedWorld) smaller(fails func(*Bundle, obligedWorld) bool) obligedWorld {
	still := func(o obligedWorld) bool {
		b, problems := Load(o.source())
		return !problems.Refuse() && fails(b, o)
	}
	o.policies = fewest(o.policies, func(l []policyText) bool { v := o; v.policies = l; return still(v) })
	o.world.tenant = fewest(o.world.tenant, func(l []policyText) bool { v := o; v.world.tenant = l; return still(v) })
	o.entities = fewest(o.entities, func(l []string) bool { v := o; v.entities = l; return still(v) })
	o.root = fewest(o.root, func(l []owing) bool { v := o; v.root = l; return still(v) })
	o.tenant = fewest(o.tenant, func(l []owing) bool { v := o; v.tenant = l; return still(v) })
	return o
}

// declaration is what a PEP declares, and where: a nil list is none. By October's draft it may adopt that, and may be one that
// forwards the question of another PEP.
type declaration struct {
	registered, requested     []string
	october, adopts, forwards bool
}

func (g *generator) declaration() declaration {
	one := func() []string {
		switch g.IntN(4) {
		case 0:
			return nil
		case 1:
			return append([]string{"unheard-of"}, obligations.Types()...)
		}
		types := slices.DeleteFunc(obligations.Types(), func(typ string) bool { return typ == obligations.CapabilityTerms }) // no PEP meets it
		return append([]string{}, some(g, 75, types...)...)
	}
	d := declaration{registered: one(), requested: one(), october: g.drafts.IntN(8) == 0}
	d.adopts, d.forwards = d.october && g.drafts.IntN(4) > 0, g.drafts.IntN(8) == 0
	return d
}

func (d declaration) with(typ string) declaration {
	if d.registered != nil {
		d.registered = append(slices.Clone(d.registered), typ)
	}
	if d.requested != nil || d.registered == nil {
		d.requested = append(slices.Clone(d.requested), typ)
	}
	return d
}

func (d declaration) has(typ string) bool {
	switch {
	case d.october:
		wire := "custom"
		if slices.Contains([]string{"notification", "session_termination", "step-up"}, typ) {
			wire = typ
		}
		return d.adopts && !d.forwards && slices.Contains(d.requested, wire) && (d.registered == nil || slices.Contains(d.registered, typ)) &&
			(typ != obligations.ApprovalRequired || slices.Contains(d.requested, typ))
	case d.registered == nil:
		return slices.Contains(d.requested, typ)
	case d.requested == nil:
		return slices.Contains(d.registered, typ)
	}
	return slices.Contains(d.registered, typ) && slices.Contains(d.requested, typ)
}

// by puts a question the way a PEP does that declares this.
func (a asked) by(t *testing.T, d declaration) Call {
	t.Helper()
	if d.requested != nil {
		a = a.with(inContext, "supported_obligations", jsonText(d.requested))
	}
	if d.adopts {
		a = a.with(inContext, "supported_mandatory_extensions", `["x","obligations"]`)
	} else if d.october {
		a = a.with(inContext, "supported_mandatory_extensions", `["x"]`)
	}
	call := a.call(t)
	call.Registered, call.Obligations, call.Forwards = d.registered != nil, d.registered, d.forwards
	return call
}

// native is the same call in the other shape, which names its tenant.
func (c Call) native() Call {
	c.Request.Shape = evaluation.Native
	if c.Request.Tenant == "" {
		c.Request.Tenant = evaluation.DefaultTenant
	}
	return c
}
