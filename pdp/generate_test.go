package pdp

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cedar-policy/cedar-go"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/pdptest/night"
)

// The property tests ask generated bundles generated questions. Everything that
// is generated follows from a seed, so that a failure can be had again:
//
//	PROPERTY_SEED=17 go test -run TestProperty ./pdp/    that seed alone
//	PROPERTY_RUNS=50 go test -run TestProperty ./pdp/    fifty times as many seeds
//
// A failure is printed with as few policies and entities as still show it.

// eachSeed runs a property for that many seeds, until it fails. With -short it is a tenth of them, but no fewer than 15.
func eachSeed(t *testing.T, seeds uint64, property func(t *testing.T, g *generator)) {
	t.Helper()
	first := uint64(0)
	seeds = max(uint64(night.Cases(int(seeds))), min(seeds, 15))
	if n, err := strconv.ParseUint(os.Getenv("PROPERTY_RUNS"), 10, 64); err == nil {
		seeds *= n
	}
	if n, err := strconv.ParseUint(os.Getenv("PROPERTY_SEED"), 10, 64); err == nil {
		first, seeds = n, 1
	}
	for seed := first; seed < first+seeds && !t.Failed(); seed++ {
		property(t, newGenerator(seed))
	}
}

// fewSeeds reports whether the run is for one seed: that says nothing of shares.
func fewSeeds() bool { return os.Getenv("PROPERTY_SEED") != "" }

// generator makes bundles and requests by chance.
type generator struct {
	*rand.Rand
	seed uint64
	// drafts decides about October's draft by numbers of its own.
	drafts *rand.Rand
	// prefixed has policies look at what context.pdp says of the question, and ids begin with owners.
	prefixed bool
}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 20)), seed: seed, drafts: rand.New(rand.NewPCG(seed, 21))}
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func oneOf[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// some picks each with the given chance.
func some[T any](g *generator, percent int, of ...T) []T {
	return slices.DeleteFunc(slices.Clone(of), func(T) bool { return !g.chance(percent) })
}

// list makes between least and most of what make makes.
func list(g *generator, least, most int, make func() string) []string {
	var all []string
	for range least + g.IntN(most-least+1) {
		all = append(all, make())
	}
	return all
}

// world is a generated bundle before it is loaded.
type world struct {
	config   string
	policies []policyText // of the root
	tenant   []policyText // of the tenant acme
	entities []string
}

// policyText is a policy, and what the generator knows of it.
type policyText struct {
	id, text string
	// head is a permit with the policy's scope and its leading tests, which is
	// satisfied exactly when the policy is to be considered.
	head *cedar.Policy
}

func joined(policies []policyText) string {
	var b strings.Builder
	for _, p := range policies {
		b.WriteString(p.text + "\n")
	}
	return b.String()
}

func (w world) source() Source {
	files := fstest.MapFS{
		"entities/all.json": {Data: []byte("[" + strings.Join(w.entities, ",\n") + "]\n")},
	}
	for name, text := range map[string]string{
		"bundle.yaml": w.config, "policies.cedar": joined(w.policies), "tenants/acme/policies.cedar": joined(w.tenant),
	} {
		if text != "" {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return FS(files)
}

func (w world) load(t *testing.T) *Bundle {
	t.Helper()
	b, problems := Load(w.source())
	if problems.Refuse() {
		t.Fatalf("the generator made a bundle that does not load:\n%s\n%s", problems.Error(), w)
	}
	return b
}

// String is the bundle as its author would have written it.
func (w world) String() string {
	s := "--- bundle.yaml\n" + w.config + "--- policies.cedar\n" + joined(w.policies)
	if len(w.tenant) > 0 {
		s += "--- tenants/acme/policies.cedar\n" + joined(w.tenant)
	}
	return s + "--- entities/all.json\n[" + strings.Join(w.entities, ",\n") + "]\n"
}

// smaller takes out of a world whatever is not needed to make it fail.
func (w world) smaller(fails func(*Bundle, world) bool) world {
	still := func(w world) bool {
		b, problems := Load(w.source())
		return !problems.Refuse() && fails(b, w)
	}
	w.policies = fewest(w.policies, func(l []policyText) bool { v := w; v.policies = l; return still(v) })
	w.tenant = fewest(w.tenant, func(l []policyText) bool { v := w; v.tenant = l; return still(v) })
	w.entities = fewest(w.entities, func(l []string) bool { v := w; v.entities = l; return still(v) })
	return w
}

func fewest[T any](all []T, fails func([]T) bool) []T {
	for i := len(all) - 1; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(all), i, i+1); fails(without) {
			all = without
		}
	}
	return all
}

// place is where in a request a caller can put values.
type place int

const (
	inSubject place = iota
	inResource
	inAction
	inContext
	places
)

// asked is a request before it is text.
type asked struct {
	tenant            string
	subject, resource [2]string // type, id
	action            string
	members           [places]map[string]string // JSON by name
}

// with returns the request with a member changed, or left out where raw is "".
func (a asked) with(at place, name, raw string) asked {
	members := map[string]string{}
	for n, v := range a.members[at] {
		members[n] = v
	}
	members[name] = raw
	if raw == "" {
		delete(members, name)
	}
	a.members[at] = members
	return a
}

func (a asked) object(at place) map[string]json.RawMessage {
	o := map[string]json.RawMessage{}
	for name, raw := range a.members[at] {
		o[name] = json.RawMessage(raw)
	}
	return o
}

// body is the request in the AuthZEN shape.
func (a asked) body() string {
	entity := func(e [2]string, at place) map[string]any {
		return map[string]any{"type": e[0], "id": e[1], "properties": a.object(at)}
	}
	b, err := json.Marshal(map[string]any{
		"subject": entity(a.subject, inSubject), "resource": entity(a.resource, inResource),
		"action": map[string]any{"name": a.action, "properties": a.object(inAction)}, "context": a.object(inContext),
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (a asked) String() string {
	return fmt.Sprintf("--- request (tenant %q)\n%s\n", a.tenant, a.body())
}

// propertyTime is the clock reading of every generated call.
var propertyTime = time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)

func (a asked) call(t *testing.T) Call {
	t.Helper()
	r, err := evaluation.DecodeAuthZEN([]byte(a.body()), a.tenant, evaluation.DefaultLimits())
	if err != nil {
		t.Fatalf("the generator made a body that does not decode: %v\n%s", err, a)
	}
	return Call{Request: r, Now: propertyTime}
}

// The generated world: each last entity of a type is in no store.
var (
	ids = map[string][]string{
		"User": {"u0", "u1", "u2"}, "Group": {"g0", "g1", "g2", "g3", "g4"},
		"Doc": {"d0", "d1", "d2"}, "Folder": {"f0", "f1", "f2", "f3"},
		"Action": {"read", "write", "readers", "writers", "all", "peek"},
	}
	whoTypes   = []string{"User", "User", "Group", "Group", "Group", "Doc"}
	whatTypes  = []string{"Doc", "Doc", "Folder", "Folder", "Folder", "User", "Group"}
	allActions = []string{"Action"}
)

// typeFor picks a type that a variable could be tested for.
func (g *generator) typeFor(variable string) string {
	switch variable {
	case "principal":
		return oneOf(g, whoTypes...)
	case "resource":
		return oneOf(g, whatTypes...)
	}
	return oneOf(g, allActions...)
}

func (g *generator) uidFor(variable string) string {
	typ := g.typeFor(variable)
	if typ == "Group" && g.chance(15) {
		return fmt.Sprintf(`Group::"h%d"`, g.IntN(chained))
	}
	return typ + "::" + strconv.Quote(oneOf(g, g.idsOf(typ)...))
}

// idsOf are the ids of a type. The last one is in no store.
func (g *generator) idsOf(typ string) []string {
	if g.prefixed && (typ == "User" || typ == "Doc") {
		return append([]string{"a:1", "a:b:1", "b:1", "a"}, ids[typ]...)
	}
	return ids[typ]
}

// chained is the length of the chain of groups h0, h1, …, which is more than
// a lineage keeps in a list.
const chained = bundle.ManyAncestors + 6

// world makes a bundle of about that many policies.
func (g *generator) world(policies int) world {
	w := world{config: g.config()}
	order := g.Perm(2 * policies) // so that the order of ids is not that of the files
	for i := range policies {
		w.policies = append(w.policies, g.policy(fmt.Sprintf("p%03d", order[i])))
	}
	for n := range 6 {
		if g.prefixed {
			w.policies = append(w.policies, g.byPrefix(fmt.Sprintf("q%d", n)))
		}
	}
	for i := range g.IntN(2) * policies / 4 {
		w.tenant = append(w.tenant, g.policy(fmt.Sprintf("p%03d", order[policies+i])))
	}
	w.entities = g.entities()
	return w
}

func (g *generator) config() string {
	c := "allow_trivial: true\nforbid_errors: " + oneOf(g, "deny", "ignore") + "\n"
	c += "attributes: {User: " + oneOf(g, "fill", "store", "request") + ", Doc: " + oneOf(g, "fill", "request") + "}\n"
	if g.chance(70) {
		c += "parents: {User: {roles: Group}, Doc: {folders: Folder}}\n"
	}
	return c
}

// entities makes what is stored: groups and folders that may well be in each
// other and in themselves, a long chain of them, and actions in groups two deep.
func (g *generator) entities() []string {
	var all []string
	stored := func(typ string) []string { return g.idsOf(typ)[:len(g.idsOf(typ))-1] }
	for _, id := range stored("Group") {
		all = append(all, entityText("Group", id, nil, refs("Group", some(g, 25, append(ids["Group"], "h0", "h9")...))))
	}
	for n := range chained {
		all = append(all, entityText("Group", fmt.Sprintf("h%d", n), nil, refs("Group", []string{fmt.Sprintf("h%d", n+1)})))
	}
	for _, id := range stored("Folder") {
		all = append(all, entityText("Folder", id, nil, refs("Folder", some(g, 25, ids["Folder"]...))))
	}
	for _, id := range stored("User") {
		parents := append(refs("Group", some(g, 30, ids["Group"]...)), refs("Folder", some(g, 10, ids["Folder"]...))...)
		all = append(all, entityText("User", id, g.members(50, "Group", "roles"), parents))
	}
	for _, id := range stored("Doc") {
		parents := append(refs("Folder", some(g, 40, ids["Folder"]...)), refs("Group", some(g, 10, ids["Group"]...))...)
		all = append(all, entityText("Doc", id, g.members(50, "Folder", "folders"), parents))
	}
	return append(all,
		entityText("Action", "read", nil, refs("Action", []string{"readers"})),
		entityText("Action", "readers", nil, refs("Action", []string{"all"})),
		entityText("Action", "write", nil, refs("Action", []string{"writers"})),
		entityText("Action", "writers", nil, refs("Action", []string{"all"})))
}

// members makes properties that fit what conditions read, and one that gives
// parents where the bundle says so.
func (g *generator) members(percent int, parentType, parentName string) map[string]string {
	m := map[string]string{
		"n": oneOf(g, "0", "1", "2"), "flag": oneOf(g, "true", "false"), "s": oneOf(g, `"a"`, `"b"`),
		"opt": oneOf(g, "1", `"x"`), parentName: jsonText(some(g, 35, ids[parentType]...)),
	}
	for _, name := range []string{"flag", "n", "opt", "s", parentName} {
		if !g.chance(percent) {
			delete(m, name)
		}
	}
	return m
}

type entityRef struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func refs(typ string, ids []string) []entityRef {
	all := []entityRef{}
	for _, id := range ids {
		all = append(all, entityRef{typ, id})
	}
	return all
}

func entityText(typ, id string, attributes map[string]string, parents []entityRef) string {
	attrs := map[string]json.RawMessage{}
	for name, raw := range attributes {
		attrs[name] = json.RawMessage(raw)
	}
	return jsonText(map[string]any{"uid": entityRef{typ, id}, "attrs": attrs, "parents": parents})
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// policy makes a policy whose tests of the three variables stand in its scope,
// lead its conditions, follow others there, or contradict each other.
func (g *generator) policy(id string) policyText {
	scope := strings.Join([]string{g.scope("principal"), g.scope("action"), g.scope("resource")}, ", ")
	var conditions string
	var leading []string
	leads := true
	for range g.IntN(4) {
		unless := g.chance(20)
		leads = leads && !unless
		var conjuncts []string
		for range 1 + g.IntN(3) {
			c, test := g.conjunct()
			conjuncts = append(conjuncts, c)
			if leads = leads && test; leads {
				leading = append(leading, c)
			}
		}
		keyword := "when"
		if unless {
			keyword = "unless"
		}
		conditions += "\n" + keyword + " { " + g.chain(conjuncts) + " }"
	}
	p := policyText{id: id}
	p.text = fmt.Sprintf("@id(%q) %s (%s)%s;", id, oneOf(g, "permit", "permit", "permit", "forbid"), scope, conditions)
	p.head = parsed(fmt.Sprintf("permit (%s) when { %s };", scope, strings.Join(append([]string{"true"}, leading...), " && ")))
	return p
}

// byPrefix makes a policy that the index can find by the beginning of an id alone.
func (g *generator) byPrefix(id string) policyText {
	head := fmt.Sprintf(`(principal, action, resource) when { context.pdp.%s.id like "%s*" }`, oneOf(g, "subject", "resource"), oneOf(g, prefixes...))
	text := fmt.Sprintf("@id(%q) %s %s", id, oneOf(g, "permit", "permit", "permit", "forbid"), head)
	if g.chance(50) {
		text += " when { " + g.plain() + " }"
	}
	return policyText{id: id, text: text + ";", head: parsed("permit " + head + ";")}
}

func parsed(text string) *cedar.Policy {
	var p cedar.Policy
	if err := p.UnmarshalCedar([]byte(text)); err != nil {
		panic(fmt.Sprintf("%v: %s", err, text))
	}
	return &p
}

// chain writes a && b && c, whose brackets do not change the order of evaluation.
func (g *generator) chain(conjuncts []string) string {
	if len(conjuncts) > 2 && g.chance(30) {
		return conjuncts[0] + " && (" + strings.Join(conjuncts[1:], " && ") + ")"
	}
	return strings.Join(conjuncts, " && ")
}

func (g *generator) scope(variable string) string {
	if variable == "action" {
		return variable + oneOf(g, "", " == "+g.uidFor(variable), " in "+g.uidFor(variable), " in "+g.uidSet(variable))
	}
	return variable + oneOf(g, "", "", " == "+g.uidFor(variable), " in "+g.uidFor(variable), " in "+g.uidFor(variable),
		" is "+g.typeFor(variable), " is "+g.typeFor(variable)+" in "+g.uidFor(variable))
}

func (g *generator) uidSet(variable string) string {
	return "[" + strings.Join(list(g, 0, 3, func() string { return g.uidFor(variable) }), ", ") + "]"
}

// conjunct makes one clause and reports whether it is a test that the index
// can use, which nothing but the three variables can make true or false.
func (g *generator) conjunct() (text string, test bool) {
	switch n := g.IntN(100); {
	case n < 50:
		return g.test(oneOf(g, "principal", "action", "resource")), true
	case n < 65:
		return g.erring(), false
	}
	return g.plain(), false
}

func (g *generator) test(v string) string {
	if of := pdpMembers[v]; g.prefixed && of != "" && g.chance(35) {
		return "context.pdp." + of + `.id like "` + oneOf(g, prefixes...) + `*"`
	}
	return v + oneOf(g, " == "+g.uidFor(v), " in "+g.uidFor(v), " in "+g.uidFor(v), " in "+g.uidSet(v), " in "+g.uidSet(v),
		" is "+g.typeFor(v), " is "+g.typeFor(v)+" in "+g.uidFor(v), " is "+g.typeFor(v)+" in "+g.uidSet(v))
}

// prefixes are how ids may begin. The index files a test by what goes up to the first colon.
var (
	pdpMembers = map[string]string{"principal": "subject", "resource": "resource"}
	prefixes   = []string{"a:", "a:", "a:", "b:", "a", "a", "a:b", "d", "u1", ":"}
)

// erring makes a clause that errs always, or often.
func (g *generator) erring() string {
	return oneOf(g, "principal.missing == 1", "principal in context.missing", "1", `context.s < 3`, `resource in "x"`, `context.n + "a" == 2`,
		"9223372036854775807 + context.n > 0", `ip("x").isIpv4()`, `resource in [Group::"g0", 1]`, "principal.opt > 0", "context.s like \"a*\"", `action.x`)
}

// plain makes a clause that only a look at the request decides; the first looks
// like a test and is none.
func (g *generator) plain() string {
	if g.prefixed && g.chance(20) {
		return oneOf(g, `context.pdp.resource.id like "*:1"`, `context.pdp.subject.id == context.pdp.resource.id`,
			`context.pdp.resource.type like "D*"`, `context.pdp.subject == {type: "User", id: "a:1"}`, "context.pdp.capability.held")
	}
	return oneOf(g, g.uidFor("principal")+" == principal", "true", "context.flag", "context.n == 1", "principal.n > 0", "principal has opt", "context has odd",
		"!(context has odd && context.odd == 1)", "resource has opt && resource.opt == 1", `context has s && context.s == "a"`, "principal == resource",
		"!("+g.test("principal")+")", "("+g.test("principal")+" || "+g.test("resource")+")", "(if context has flag then context.flag else "+g.test("resource")+")",
		`context == {"n": 1}`, "resource in principal", "principal has roles", `["a"].contains(context.s)`)
}

// question makes a request, sometimes with a value that Cedar has none for.
func (g *generator) question(w world) asked {
	a := asked{action: oneOf(g, "read", "write", "peek", "readers", "none")}
	if len(w.tenant) > 0 && g.chance(50) {
		a.tenant = "acme"
	}
	typ := oneOf(g, "User", "User", "User", "User", "Group", "Doc")
	a.subject = [2]string{typ, oneOf(g, g.idsOf(typ)...)}
	typ = oneOf(g, "Doc", "Doc", "Doc", "Folder", "User")
	a.resource = [2]string{typ, oneOf(g, g.idsOf(typ)...)}
	a.members[inSubject] = g.members(30, "Group", "roles")
	a.members[inResource] = g.members(30, "Folder", "folders")
	a.members[inContext] = g.members(60, "Group", "groups")
	if g.chance(12) { // one entity is both
		a.resource, a.members[inResource] = a.subject, nil
		if g.chance(50) {
			a.members[inResource] = map[string]string{"opt": "1"}
			a = a.with(inSubject, "opt", "")
		}
	}
	if g.chance(45) {
		a = a.with(oneOf(g, inSubject, inResource, inContext), oneOf(g, "opt", "opt", "n"), "1.5")
	}
	if g.chance(20) {
		a = a.with(inContext, "odd", oneOf(g, "1.5", "1", "[null]"))
	}
	return a
}
