package pdp_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/toolaccess"
)

// declaredWorld is a bundle with declarations of tool access by chance, and the questions about it.
type declaredWorld struct {
	*rand.Rand
	files map[string]string
	// declarations are those of each tenant, "" being the root.
	declarations map[string][]toolaccess.Declaration
	forbidden    []func(tenant string, who worldEntity, tool string) bool // by policies written by hand
	entities     map[string]worldEntity                                   // of the root, and of the tenant, by their names in policies
	agents       []worldEntity
	tools        []string
	ends         []time.Time
	actions      []string // that declarations are about
	types        map[string]string
	namespace    string
	capability   string // of declarations that say nothing of it
	small        bool   // few agents and tools, so that rules meet
	permits      bool   // policies by hand permit everything
}

type worldEntity struct {
	Type, ID string
	parents  []string
	tenant   string // "" is the root's
}

// Owners begin as others do, and agents and tools as well. Some of the names would break policies that are made by pasting text.
var (
	worldOwners = []string{"agent", "agent-b", "agent-b.1", "Agent", "a"}
	worldAgents = []string{"agent-a", "agent-ab", "agent", "u*", `q"uote`, "new\nline", `back\slash`, "é", "e\u0301", "*"}
	worldTools  = []string{
		"read_file", "read_", "read_dir", "read", "write", "b:read_file", "-b:read_file", "Read_file", "", "read_*", "*", "**",
		`q"uote`, "new\nline", `back\`, `back\*`, "é", "e\u0301", "read_file ", "\u2028", "nul\x00", "tab\there", "😀",
	}
	worldGlobs = []string{"*", "read_*", "read*", "b:*", `q"*`, "new\n*", `back\*`, "é*", "e*", "nul\x00*", "😀*"}
	worldTypes = []string{"agent", "user", "service"}

	worldCapabilities = []string{"none", "none", "observe", "observe", "required"}
)

// strangeIDs are names that break policies that are made by pasting text, and that many programs take for one another.
var strangeIDs = []string{
	`"`, `'`, "`", `\`, `\\`, `\"`, `\n`, `"]`, `") };`, `", "b"`, "\n", "\r\n", "\t", "\x00", "a\x00b", "\x1b[2K", "\u007f", "\u0085", "\u2028", "\u200b", "\u202e", "\ufeff", "\ufffd", "\U0010ffff", "😀",
	"é", "e\u0301", "\u0130", "i", "I", "\u0131", "\u017f", "s", "\u212a", "k", "\u212b", "\u00c5", "A\u030a", " ", "a ", " a", "a", "A", "a/b", "a:b", ":", "::", `a::"b"`, "-", "null", "true", "~", "1", "01", "1.0", "0x1", "2024-01-01", "<<", "!!str", "&a", "[a]", "{a: b}", "# a", "%", "${principal.id}", "@id",
	"// a", "in", "Tool", "access.o", "o:a", "a, b",
}

// nearMisses are texts that could be taken for a name.
func nearMisses(id string) []string {
	all := []string{id + " ", " " + id, id + "\x00", id + "\n", id + id, `"` + id + `"`, `\` + id, id + `\`, strings.ToUpper(id), strings.ToLower(id), strings.ReplaceAll(id, `\`, `\\`), strings.ReplaceAll(id, "\n", `\n`)}
	if r := []rune(id); len(r) > 1 {
		all = append(all, string(r[:len(r)-1]), string(r[1:]))
	}
	return all
}

func worldPick[T any](w *declaredWorld, of []T) T { return of[w.IntN(len(of))] }

func (w *declaredWorld) chance(percent int) bool { return w.IntN(100) < percent }

// newDeclaredWorld has everything that the declarations of a bundle can meet in it, by chance.
func newDeclaredWorld(r *rand.Rand) *declaredWorld {
	w := &declaredWorld{
		Rand: r, files: map[string]string{}, declarations: map[string][]toolaccess.Declaration{}, entities: map[string]worldEntity{},
		types: map[string]string{}, actions: []string{"tool.invoke", "capability.grant"}, small: r.IntN(2) == 0, permits: r.IntN(3) > 0,
	}
	start := pdptest.Now.Add(time.Duration(w.IntN(1000)) * time.Millisecond)
	for n := range 3 {
		w.ends = append(w.ends, start.Add(time.Duration(n)*24*time.Hour))
	}
	w.makeNames()
	w.makeEntities()
	for _, tenant := range []string{"", "t"} {
		owners := slices.Clone(worldOwners)
		w.Shuffle(len(owners), func(i, j int) { owners[i], owners[j] = owners[j], owners[i] })
		for _, owner := range owners[:1+w.IntN(3)] {
			w.declare(tenant, owner)
		}
		w.byHand(tenant)
	}
	return w
}

// makeNames names the types of the bundle, and sometimes has a schema that declares them.
func (w *declaredWorld) makeNames() {
	config := "allow_trivial: true\n"
	if w.chance(40) {
		w.capability = worldPick(w, worldCapabilities)
		config += "access: {capability: " + w.capability + "}\n"
	}
	switch w.IntN(4) {
	case 0:
		w.namespace = "Acme::"
		config += "namespace: Acme\n"
	case 1:
		w.types = map[string]string{"agent": "Agent", "user": "People::User", "tool": "Tool", "role": "Role"}
		config += "types: {agent: Agent, user: 'People::User', tool: Tool, role: Role}\n"
	case 2:
		actions := `"tool.invoke", "capability.grant", "tool.see"`
		if w.chance(50) {
			w.actions, actions = w.actions[:1], `"tool.invoke", "tool.see"`
		}
		pdpMembers := ""
		if w.chance(50) {
			pdpMembers = ` pdp: { now: datetime, tenant: String, caller: String, approved: Bool, subject: { type: String, id: String },
				resource: { type: String, id: String }, capability: { held: Bool, id: String, depth: Long } } `
		}
		w.files["schema.cedarschema"] = `entity role in [role]; entity agent, user, service in [agent, user, service, role]; entity tool in [tool];
			action ` + actions + ` appliesTo { principal: [agent, user, service], resource: [tool], context: {` + pdpMembers + `} };
			action "as-tool" in ["tool.invoke"] appliesTo { principal: [agent, user, service], resource: [tool], context: {` + pdpMembers + `} };`
	}
	w.actions = append(w.actions, "as-tool") // which is below tool.invoke
	w.files["bundle.yaml"] = config
}

// name is an entity as policies of the bundle write it.
func (w *declaredWorld) name(kind, id string) string {
	return w.kind(kind) + "::" + cedarText(id)
}

// kind is a type as policies and entities have it.
func (w *declaredWorld) kind(kind string) string {
	if kind == "action" {
		kind = "Action"
	}
	return w.namespace + cmp.Or(w.types[kind], kind)
}

// cedarText writes a text as policies do.
func cedarText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r > '~':
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// makeEntities has agents in roles and below other agents, and tools below other tools, which opens nothing of those.
func (w *declaredWorld) makeEntities() {
	some := func(names []string, few, many int) []string {
		n := many
		if w.small {
			n = few
		}
		names = slices.Clone(names)
		w.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		return names[:n]
	}
	odd := func(names []string, n int) []string { // and names that could be taken for one of the odd ones
		for range n {
			id := worldPick(w, strangeIDs)
			names = append(names, id, worldPick(w, nearMisses(id)), worldPick(w, nearMisses(id)))
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	w.tools = some(odd(slices.Clone(worldTools), 6), 5, len(worldTools))
	for _, id := range some(odd(slices.Clone(worldAgents), 2), 3, len(worldAgents)) {
		for _, kind := range worldTypes {
			w.agents = append(w.agents, worldEntity{Type: kind, ID: id})
		}
	}
	in := map[string][]string{} // by tenant
	add := func(e worldEntity) {
		w.entities[w.name(e.Type, e.ID)] = e
		parents := make([]any, len(e.parents))
		for n, p := range e.parents {
			kind, id, _ := strings.Cut(p, " ")
			parents[n] = map[string]any{"type": w.kind(kind), "id": id}
		}
		text, _ := json.Marshal(map[string]any{"uid": map[string]any{"type": w.kind(e.Type), "id": e.ID}, "attrs": map[string]any{}, "parents": parents})
		in[e.tenant] = append(in[e.tenant], string(text))
	}
	if w.files["schema.cedarschema"] == "" {
		add(worldEntity{Type: "action", ID: "as-tool", parents: []string{"action tool.invoke"}})
	}
	add(worldEntity{Type: "role", ID: "staff"})
	add(worldEntity{Type: "role", ID: "rel\"ease\n*", parents: []string{"role staff"}})
	add(worldEntity{Type: "role", ID: "theirs", tenant: "t"}) // below nothing that the root names
	for n, a := range w.agents {
		if w.chance(50) {
			continue
		}
		e := worldEntity{Type: a.Type, ID: a.ID, parents: []string{worldPick(w, []string{"role staff", "role rel\"ease\n*"})}}
		if w.chance(50) {
			e.tenant, e.parents = "t", []string{"role theirs"}
		} else if n > 0 && w.chance(50) { // no cycles: later ones are below earlier ones
			above := w.agents[w.IntN(n)]
			e.parents = append(e.parents, above.Type+" "+above.ID)
		}
		add(e)
	}
	for n, name := range w.tools {
		if n == 0 || w.chance(50) {
			continue
		}
		e := worldEntity{Type: "tool", ID: worldPick(w, worldOwners) + ":" + name, parents: []string{"tool " + worldPick(w, worldOwners) + ":" + w.tools[w.IntN(n)]}}
		if w.chance(50) {
			e.tenant, e.parents = "t", nil
		}
		add(e)
	}
	for tenant, all := range in {
		w.files[below(tenant, "entities/all.json")] = "[" + strings.Join(all, ",\n") + "]\n"
	}
}

func below(tenant, name string) string {
	if tenant == "" {
		return name
	}
	return "tenants/" + tenant + "/" + name
}

// lineage are the entities above an entity, for a tenant, as policies write them.
func (w *declaredWorld) lineage(tenant string, of worldEntity) []string {
	name := w.name(of.Type, of.ID)
	all := []string{name}
	if stored, ok := w.entities[name]; ok && (stored.tenant == "" || stored.tenant == tenant) {
		for _, p := range stored.parents {
			kind, id, _ := strings.Cut(p, " ")
			all = append(all, w.lineage(tenant, worldEntity{Type: kind, ID: id})...)
		}
	}
	return all
}

// worldRule is a rule before it is written.
type worldRule struct {
	agent    any // a text, or a map
	tools    []string
	expires  time.Time
	approval bool
	effect   string
}

func (w *declaredWorld) rule(tenant, mode string) worldRule {
	a := worldPick(w, w.agents)
	r := worldRule{agent: a.ID}
	switch n := w.IntN(10); {
	case n == 0:
		r.agent = "*"
	case n < 3 || n > 4 && strings.Contains(a.ID, "*"): // which no bare name has
		r.agent = map[string]any{"type": a.Type, "id": a.ID}
	case n < 5:
		groups := []string{w.name("role", "staff"), w.name("role", "rel\"ease\n*"), w.name("role", "unknown"), w.name(a.Type, a.ID)}
		if tenant != "" {
			groups = append(groups, w.name("role", "theirs"), w.name("role", "theirs"))
		}
		r.agent = map[string]any{"in": worldPick(w, groups)}
	}
	for range 1 + w.IntN(3) {
		switch name := worldPick(w, w.tools); {
		case w.chance(25):
			r.tools = append(r.tools, worldPick(w, worldGlobs))
		case name != "" && !strings.Contains(name, "*"):
			r.tools = append(r.tools, name)
		}
	}
	slices.Sort(r.tools)
	if r.tools = slices.Compact(r.tools); len(r.tools) == 0 {
		r.tools = []string{"*"}
	}
	if w.chance(50) {
		r.expires = worldPick(w, w.ends)
	}
	if mode == "hybrid" {
		r.effect = worldPick(w, []string{"allow", "deny"})
	}
	r.approval = mode == "open" || mode != "denylist" && r.effect != "deny" && w.chance(50)
	return r
}

// hides reports if r, which denies, surely covers all of an allowing rule, which no declaration may have.
func (r worldRule) hides(other worldRule) bool {
	lasts := r.expires.IsZero() || !other.expires.IsZero() && !r.expires.Before(other.expires)
	return lasts && r.agentCovers(other) && !slices.ContainsFunc(other.tools, func(name string) bool {
		return !slices.ContainsFunc(r.tools, func(mine string) bool {
			beginning, glob := strings.CutSuffix(mine, "*")
			return mine == name || glob && strings.HasPrefix(name, beginning)
		})
	})
}

// agentCovers goes far: a rule that is perhaps covered is not declared.
func (r worldRule) agentCovers(other worldRule) bool {
	return r.agent == "*" || r.agentText() == other.agentText()
}

// agentText is the same for rules that are perhaps about the same agents.
func (r worldRule) agentText() string {
	if one, ok := r.agent.(map[string]any); ok && one["id"] != nil {
		return fmt.Sprint(one["id"])
	}
	return fmt.Sprint(r.agent)
}

// says is the same for rules that perhaps say the same: no declaration may have both.
func (r worldRule) says() string {
	tools := slices.DeleteFunc(slices.Clone(r.tools), func(name string) bool {
		return slices.ContainsFunc(r.tools, func(other string) bool {
			beginning, glob := strings.CutSuffix(other, "*")
			return glob && other != name && strings.HasPrefix(name, beginning)
		})
	})
	return fmt.Sprint(r.agentText(), tools, r.expires, r.approval, r.effect)
}

// declare adds a declaration to the bundle.
func (w *declaredWorld) declare(tenant, owner string) {
	d := map[string]any{"mode": worldPick(w, []string{"allowlist", "denylist", "open", "hybrid"})}
	mode := d["mode"].(string)
	switch {
	case mode == "hybrid":
		d["default"] = worldPick(w, []string{"allow", "deny"})
	case w.chance(50):
		d["default"] = map[string]string{"allowlist": "deny", "denylist": "allow", "open": "allow"}[mode]
	}
	file := owner + worldPick(w, []string{".yaml", ".yml"})
	if w.chance(30) {
		d["owner"], file = owner, "some-"+file
	}
	if w.chance(50) {
		d["subjects"] = worldPick(w, [][]string{{"agent"}, {"user"}, {"agent", "user"}, {"service", "user", "agent"}})
	}
	if w.chance(40) {
		d["capability"] = worldPick(w, worldCapabilities)
	}
	if w.chance(40) {
		d["approval"] = worldPick(w, []map[string]any{
			{"timeout": "10m"}, {"template": "people", "quorum": 2}, {"message": "${resource.id} for ${principal.id}: \"yes\"?\n", "valid_for": "1h", "uses": 3}, {},
		})
	}
	var rules []worldRule
	seen := map[string]bool{}
	for range w.IntN(8) {
		r := w.rule(tenant, mode)
		hidden := slices.ContainsFunc(rules, func(other worldRule) bool {
			return other.effect != r.effect && (r.effect == "deny" && r.hides(other) || other.effect == "deny" && other.hides(r))
		})
		if key := r.says(); !hidden && !seen[key] {
			seen[key] = true
			rules = append(rules, r)
		}
	}
	if len(rules) > 0 || w.chance(50) {
		d["rules"] = w.written(rules)
	}
	text := w.yaml(d)
	w.files[below(tenant, "access/"+file)] = text
	read := readDeclared(file, text)
	read.Capability = cmp.Or(read.Capability, w.capability)
	w.declarations[tenant] = append(w.declarations[tenant], read)
}

// readDeclared reads a declaration for the interpreter. It panics if it is no YAML.
func readDeclared(file, text string) toolaccess.Declaration {
	d := toolaccess.Declaration{Owner: strings.TrimSuffix(path.Base(file), path.Ext(file))}
	if err := yaml.Unmarshal([]byte(text), &d); err != nil {
		panic(err)
	}
	return d
}

// written are rules as a file has them. Times are written in one of several zones.
func (w *declaredWorld) written(rules []worldRule) []any {
	all := []any{}
	for _, r := range rules {
		one := map[string]any{"agent": r.agent, "tools": r.tools}
		if len(r.tools) == 1 && w.chance(50) {
			one["tools"] = r.tools[0]
		}
		if !r.expires.IsZero() {
			zone := worldPick(w, []*time.Location{time.UTC, time.FixedZone("", 2*60*60), time.FixedZone("", -(9*60+30)*60)})
			n := &yaml.Node{Kind: yaml.ScalarNode, Value: r.expires.In(zone).Format("2006-01-02T15:04:05.999Z07:00")}
			if w.chance(50) {
				n.Style = yaml.DoubleQuotedStyle
			}
			one["expires"] = n
		}
		if r.approval {
			one["requires_approval"] = true
		}
		if r.effect != "" {
			one["effect"] = r.effect
		}
		all = append(all, one)
	}
	return all
}

// writable puts texts in quotes that the library writes as a block which it cannot read: those with a tab in a new line.
func writable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for name, member := range v {
			all[name] = writable(member)
		}
		return all
	case []any:
		all := []any{}
		for _, item := range v {
			all = append(all, writable(item))
		}
		return all
	case []string:
		all := []any{}
		for _, item := range v {
			all = append(all, writable(item))
		}
		return all
	case string:
		if strings.Contains(v, "\n") && strings.Contains(v, "\t") {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v, Style: yaml.DoubleQuotedStyle}
		}
	}
	return v
}

// yaml writes a declaration in one of the many ways in which YAML can be written.
func (w *declaredWorld) yaml(d map[string]any) string {
	var n yaml.Node
	if err := n.Encode(writable(d)); err != nil {
		panic(err)
	}
	var vary func(n *yaml.Node)
	vary = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && w.chance(50) {
			n.Style = yaml.DoubleQuotedStyle
		}
		if n.Kind != yaml.ScalarNode && w.chance(40) {
			n.Style = yaml.FlowStyle
		}
		for _, c := range n.Content {
			vary(c)
		}
	}
	vary(&n)
	text, err := yaml.Marshal(&n)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// byHand throws policies in that are written by hand. They permit all that they can, or nothing; forbids are remembered.
func (w *declaredWorld) byHand(tenant string) {
	var b strings.Builder
	add := func(policy string) {
		fmt.Fprintf(&b, "@id(%q)\n%s\n", fmt.Sprintf("hand-%s%d", tenant, b.Len()), policy)
	}
	if w.permits && (tenant == "" || w.chance(50)) {
		add(`permit (principal, action, resource);`)
	}
	if w.permits && w.chance(50) {
		add(fmt.Sprintf(`permit (principal, action == %s, resource) when { context.pdp.resource.id like "agent*" };`, w.name("action", "tool.invoke")))
	}
	tool := func() string { return worldPick(w, worldOwners) + ":" + worldPick(w, w.tools) }
	for range w.IntN(3) {
		if !w.permits {
			break
		}
		add(fmt.Sprintf(`permit (principal, action, resource == %s);`, w.name("tool", tool())))
	}
	for range w.IntN(3) {
		a, id := worldPick(w, w.agents), tool()
		add(fmt.Sprintf(`forbid (principal == %s, action, resource == %s);`, w.name(a.Type, a.ID), w.name("tool", id)))
		w.forbidden = append(w.forbidden, func(in string, who worldEntity, tool string) bool {
			return (tenant == "" || tenant == in) && who.Type == a.Type && who.ID == a.ID && tool == id
		})
	}
	if w.chance(30) {
		of, at := worldPick(w, []string{"", "a", "agent-", "agent-a", "user:", `q"`}), worldPick(w, []string{"agent", "agent:", "agent:r", "agent-b:read", "agent-b.", "A", "agent:b:r"})
		add(fmt.Sprintf(`forbid (principal, action, resource is %s) when { context.pdp.resource.id like %s && context.pdp.subject.id like %s && context.pdp.subject.type == "agent" };`,
			w.kind("tool"), strings.TrimSuffix(cedarText(at), `"`)+`*"`, strings.TrimSuffix(cedarText(of), `"`)+`*"`))
		w.forbidden = append(w.forbidden, func(in string, who worldEntity, tool string) bool {
			return (tenant == "" || tenant == in) && who.Type == "agent" && strings.HasPrefix(who.ID, of) && strings.HasPrefix(tool, at)
		})
	}
	if w.chance(30) {
		w.files[below(tenant, "obligations.yaml")] = "note" + tenant + ": {type: custom, properties: {a: b}}\n"
	}
	if b.Len() > 0 {
		w.files[below(tenant, "hand.cedar")] = b.String()
	}
}

// answer is the expected answer of the bundle to a question about an action that declarations are about. Whatever policies by
// hand permit, they open no tool of an owner that has declared its users.
func (w *declaredWorld) answer(tenant string, who worldEntity, action, tool string, held bool, now time.Time) (allow bool, approval string) {
	if w.forbids(tenant, who, tool) {
		return false, ""
	}
	all := w.declarations[""]
	if tenant != "" {
		all = slices.Concat(all, w.declarations[tenant])
	}
	if owner, _, named := strings.Cut(tool, ":"); !named || !slices.ContainsFunc(all, func(d toolaccess.Declaration) bool { return d.Owner == owner }) {
		return w.permits, "" // there is no declaration
	}
	return toolaccess.Answer(all, toolaccess.Agent{Type: who.Type, ID: who.ID, In: w.lineage(tenant, who), Holds: held || action == "capability.grant"}, tool, now)
}

// observing are the ids of the policies that stand on record with a question that is allowed, because a capability is
// observed, and there is none.
func (w *declaredWorld) observing(tenant string, q question) (ids []string) {
	for _, in := range slices.Compact([]string{"", tenant}) {
		for _, d := range w.declarations[in] {
			name := d.Owner
			if in != "" {
				name = in + "/" + name
			}
			if d.Capability == "observe" && q.allow && !q.held && q.resource == "tool" && slices.Contains(w.actions, q.action) &&
				q.action != "capability.grant" && strings.HasPrefix(q.tool, d.Owner+":") {
				ids = append(ids, "access."+name+".observe")
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// forbids reports if a policy by hand does.
func (w *declaredWorld) forbids(tenant string, who worldEntity, tool string) bool {
	return slices.ContainsFunc(w.forbidden, func(f func(string, worldEntity, string) bool) bool { return f(tenant, who, tool) })
}

// count is how many declarations there are.
func (w *declaredWorld) count() (n int) {
	for _, all := range w.declarations {
		n += len(all)
	}
	return n
}

func (w *declaredWorld) source() pdp.Source { return pdptest.Bundle(w.files) }

// String is the bundle as its author would have written it.
func (w *declaredWorld) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		fmt.Fprintf(&b, "--- %s\n%s\n", name, w.files[name])
	}
	return b.String()
}

// loadFiles loads a bundle.
func loadFiles(t *testing.T, files map[string]string) *pdp.Bundle {
	t.Helper()
	b, problems := pdp.Load(pdptest.Bundle(files))
	if problems.Refuse() {
		t.Fatalf("it does not load:\n%s", problems.Error())
	}
	return b
}
