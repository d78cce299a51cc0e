package filter_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/filter"
	"policy-service/pdp/pdptest/database"
)

// world is a generated bundle, the tables that it maps, their rows and one question about them.
type world struct {
	seed     uint64
	dialect  filter.Dialect
	files    map[string]string // all but the policies
	policies []*rule
	create   []string
	rows     [][]tuple // each with its elements in other tables
	table    *database.Table
	question string
	tenant   string
	// What a judge must know who has neither our bundle nor our engine.
	subject, context []database.Field
	rules            parentRules
}

// tuple is what is inserted into a table.
type tuple struct{ into, values string }

// inserts returns the statements that insert all rows.
func (w *world) inserts() (statements []string) {
	values := map[string][]string{}
	for _, r := range w.rows {
		for _, t := range r {
			values[t.into] = append(values[t.into], t.values)
		}
	}
	for _, into := range slices.Sorted(maps.Keys(values)) {
		statements = append(statements, "INSERT INTO "+into+" VALUES "+strings.Join(values[into], ", "))
	}
	return statements
}

// in returns the files of the bundle, with one operator of its policies negated, or none.
func (w *world) in(negated *expr) map[string]string {
	all := maps.Clone(w.files)
	for _, r := range w.policies {
		name := "p.cedar"
		if r.ofTenant {
			name = "tenants/" + w.tenant + "/p.cedar"
		}
		all[name] += r.with(negated).String()
	}
	return all
}

// String returns all of the world, as one would write it down to have it again.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s, tenant %s\n", w.seed, w.dialect, w.tenant)
	all := w.in(nil)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "--- %s\n%s\n", name, all[name])
	}
	fmt.Fprintf(&b, "--- the question\n%s\n--- the rows\n", w.question)
	for _, statement := range slices.Concat(w.create, w.inserts()) {
		b.WriteString(statement + ";\n")
	}
	return b.String()
}

// dice are a stream of choices. Each kind of choice has one of its own, so that a new kind changes none of the others.
type dice struct{ *rand.Rand }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func oneOf[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// kind is a type of Cedar that a column can have values of: one of these, or that of an entity.
type kind string

const (
	ofBool     kind = "Bool"
	ofLong     kind = "Long"
	ofText     kind = "String"
	ofTime     kind = "datetime"
	ofUser     kind = "user"
	ofTeam     kind = "team"
	ofFolder   kind = "folder"
	ofKind     kind = "kind" // which is enumerated
	ofDocument kind = "document"
)

func (k kind) isEntity() bool { return k[0] >= 'a' && k != ofTime }

// member is an attribute, or a member of a record.
type member struct {
	name     string
	kind     kind
	set      bool
	optional bool
	members  []*member // of a record
	// Where the mapped type has it.
	path          []*member // from the resource to the member
	column        string
	typ           string // in filters.yaml
	stored        string // the type that the table has
	rows          *database.Rows
	notNull       bool // of the column, or of the elements of rows
	noNullElement bool
}

// declare returns the member as a schema has it.
func (m *member) declare() string {
	typ := string(m.kind)
	switch {
	case m.members != nil:
		typ = declareAll(m.members)
	case m.set:
		typ = "Set<" + typ + ">"
	}
	name := strconv.Quote(m.name)
	if m.optional {
		name += "?"
	}
	return name + ": " + typ
}

func declareAll(members []*member) string {
	texts := make([]string, len(members))
	for n, m := range members {
		texts[n] = m.declare()
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// value is one of Cedar: a bool, an int64 (of a datetime, its milliseconds), a string (of an entity, its id), or a []value.
type value any

// generator makes a world from a seed.
type generator struct {
	*world
	shapes, values, choices, exprs, fills, misfits, asks dice

	pools    map[kind][]value // of which all values are taken
	evaluate bool             // unknown_entities: evaluate
	tenants  bool
	strict   bool
	actions  []string
	document []*member
	leaves   []*member // of document, without records
	user     []*member // that a principal has
	context  []*member
	ids      *member         // the id of a row
	styles   map[kind]string // the type of columns with ids of a type
	parents  []parentRule
	stored   map[kind][]string // the ids of stored entities
	base     string            // the table, of which the mapping may name a view
	wire     string            // what requests call the mapped type
	prefix   string            // of types in policies
	time     string            // the type of columns with datetimes
	// enumerated is set if the mapped type is. Such entities have no attributes.
	enumerated bool
}

// parentRule is one of bundle.yaml.
type parentRule struct {
	of        kind
	attribute string
	parent    kind
}

func newWorld(seed uint64, dialect filter.Dialect) *world {
	stream := func(n uint64) dice {
		if dialect == filter.SQLite {
			n += 1000
		}
		return dice{rand.New(rand.NewPCG(seed, n))}
	}
	g := &generator{
		world:  &world{seed: seed, dialect: dialect, files: map[string]string{}, tenant: "default"},
		shapes: stream(1), values: stream(2), choices: stream(3), exprs: stream(4), fills: stream(5), misfits: stream(6), asks: stream(7),
	}
	g.pick()
	g.shape()
	g.bundle()
	g.tables()
	g.store()
	g.ask()
	for range 24 {
		g.insert()
	}
	g.write()
	g.subject, g.world.context, g.rules = fieldsOf(g.user, nil), fieldsOf(g.context, nil), parentRules{}
	for _, r := range g.parents {
		if g.rules[string(r.of)] == nil {
			g.rules[string(r.of)] = map[string]string{}
		}
		g.rules[string(r.of)][r.attribute] = string(r.parent)
	}
	return g.world
}

// fieldsOf describes attributes.
func fieldsOf(members []*member, before []string) (fields []database.Field) {
	for _, m := range members {
		path := append(slices.Clone(before), m.name)
		if m.members != nil {
			fields = append(fields, fieldsOf(m.members, path)...)
			continue
		}
		f := database.Field{Path: path, Kind: fieldKind(m.kind), Entity: string(m.kind)}
		if m.set {
			f.Kind, f.Element = "set", f.Kind
		}
		fields = append(fields, f)
	}
	return fields
}

// clusters are values that are near to each other.
var clusters = [][]string{
	{"a", "A", "a ", "ab", "", "á", "á"},
	{"x", "X", "xy", " x", "x\u00a0"},
	{"'", `"`, "''", "`", "a'b"},
	{"a%b", "a_b", "aXb", "a*b", "a?b", "ab"},
	{"a[b", "a]b", "[a]", `a\b`, "a!b", "a!%b"},
	{"*", "%", "_", "?", "[", "]", `\`, "!", "!!"},
	{"007", "7", "07", "7 ", "-7"},
	{"100", "1e2", "100.0", "0100"},
	{"x\ny", "x\ty", "x y", "xy"},
	{"a", "a\x00b", "a\x00"},
	{"NULL", "null", "{a,b}", "{}", "$1", "?1", "?"},
	{"ß", "SS", "ss", "ẞ", "ſ"},
	{"İ", "i", "ı", "I"},
	{"😀", "😁", "\ufffd", "\U0010ffff"},
	{strings.Repeat("long ", 60), strings.Repeat("long ", 59) + "long"},
	{"--", "/*", "*/", ";", "');"},
}

var uuids = []string{
	"a0000000-0000-4000-8000-00000000000b", "a0000000-0000-4000-8000-00000000000c", "ffffffff-ffff-ffff-ffff-ffffffffffff", "00000000-0000-0000-0000-000000000000",
}

// strays are texts that look like a uuid that a column may have, or like one of a number.
var strays = map[string][]string{
	"uuid":   {"A0000000-0000-4000-8000-00000000000B", "{a0000000-0000-4000-8000-00000000000b}", "a000000000004000800000000000000b", "x"},
	"bigint": {"007", "+7", "7 ", "7.0", "", "x", "9223372036854775808"},
}

const (
	mostLong, leastLong = 1<<63 - 1, -1 << 63
	firstTime, lastTime = -62135596800000, 253402300799999
	someTime            = 1767225600123 // 2026-01-01T00:00:00.123Z
)

// pick takes a few values of each type for all that follows: so that it happens that they are equal.
func (g *generator) pick() {
	d := g.values
	texts := func(most int) (all []value) {
		var from []string
		for range 2 {
			from = append(from, oneOf(d, clusters...)...)
		}
		d.Shuffle(len(from), func(a, b int) { from[a], from[b] = from[b], from[a] })
		for _, text := range from[:min(most, len(from))] {
			all = append(all, text)
		}
		return all
	}
	longs := [][]value{
		{int64(7), int64(8), int64(6), int64(-7)}, {int64(0), int64(1), int64(-1)}, {int64(mostLong), int64(mostLong - 1), int64(7)}, {int64(leastLong), int64(leastLong + 1), int64(7)},
		{int64(9007199254740992), int64(9007199254740993), int64(9007199254740994)},
	}
	times := [][]value{
		{int64(someTime), int64(someTime + 1), int64(someTime - 1)}, {int64(0), int64(-1), int64(1)}, {int64(firstTime), int64(firstTime + 1), int64(someTime)},
		{int64(lastTime), int64(lastTime - 1), int64(someTime)}, {now.UnixMilli(), now.UnixMilli() - 1, now.UnixMilli() + 1},
	}
	g.pools = map[kind][]value{
		ofBool: {true, false},
		ofLong: append(slices.Clone(oneOf(d, longs[:2]...)), oneOf(d, longs...)...),
		ofText: texts(6),
		ofTime: append(slices.Clone(oneOf(d, times...)), oneOf(d, times...)[:2]...),
	}
	if d.chance(20) {
		g.pools[ofText] = append(g.pools[ofText], uuids[0], strays["uuid"][0])
	}
	g.styles = map[kind]string{ofKind: "text", ofTeam: oneOf(d, "text", "text", "uuid"), ofFolder: oneOf(d, "text", "text", "uuid")}
	for _, k := range []kind{ofUser, ofDocument} {
		g.styles[k] = oneOf(d, "text", "text", "uuid", "bigint")
	}
	g.enumerated = d.chance(4)
	for _, k := range []kind{ofUser, ofTeam, ofFolder, ofKind, ofDocument} {
		ids := texts(4)
		if k == ofDocument {
			ids = append(texts(7), "d1", "d2", "d3", "d4", "d5")
		}
		switch g.styles[k] {
		case "uuid":
			ids = nil
			for _, id := range uuids {
				ids = append(ids, id)
			}
			if k == ofDocument {
				for n := range 8 {
					ids = append(ids, uuids[0][:35]+strconv.Itoa(n))
				}
			}
		case "bigint":
			ids = []value{"7", "8", "-7", "0", strconv.Itoa(mostLong)}
			if k == ofDocument {
				for n := range 8 {
					ids = append(ids, strconv.Itoa(100+n))
				}
			}
		}
		if g.isEnumerated(k) {
			ids = slices.DeleteFunc(ids, func(v value) bool { return strings.ContainsAny(v.(string), "\x00") })
			if k == ofKind {
				ids = append(ids, "k")
			}
		}
		unique := map[value]bool{}
		g.pools[k] = slices.DeleteFunc(ids, func(id value) bool {
			seen := unique[id]
			unique[id] = true
			return seen
		})
	}
}

// one takes a value of a type.
func (g *generator) one(d dice, k kind) value { return oneOf(d, g.pools[k]...) }

// known takes a value of a type as requests and policies have it: sometimes one that no column can have.
func (g *generator) known(d dice, k kind) value {
	if more := strays[g.styles[k]]; k.isEntity() && more != nil && !g.isEnumerated(k) && d.chance(15) {
		return oneOf(d, more...)
	}
	return g.one(d, k)
}

func (g *generator) isEnumerated(k kind) bool {
	return k == ofKind || k == ofDocument && g.enumerated
}

// shape chooses the types of what there is.
func (g *generator) shape() {
	d := g.shapes
	g.evaluate, g.strict, g.tenants = d.chance(55), d.chance(35), d.chance(20)
	if g.time = "millis"; g.dialect == filter.Postgres && d.chance(75) {
		g.time = "timestamptz"
	}
	if d.chance(8) {
		g.prefix = "App::"
	}
	optional := func(percent int) bool { return d.chance(percent) }
	one := func(name string, k kind) *member {
		percent := 55
		if g.evaluate {
			percent = 25
		}
		return &member{name: name, kind: k, optional: optional(percent)}
	}
	set := func(name string, k kind) *member {
		m := one(name, k)
		m.set = true
		return m
	}
	odd := "s"
	if d.chance(20) {
		odd = oneOf(d, "two words", "größe", "S")
	}
	all := []*member{
		one("n", ofLong), one("m", ofLong), one(odd, ofText), one("t", ofText), one("b", ofBool), one("c", ofBool), one("at", ofTime), one("until", ofTime),
		one("owner", ofUser), one("editor", ofUser), one("team", ofTeam), one("folder", ofFolder), one("kind", ofKind), one("twin", ofDocument),
		set("tags", ofText), set("words", ofText), set("users", ofUser), set("teams", ofTeam), set("nums", ofLong), set("kinds", ofKind), set("folders", ofFolder),
	}
	d.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	g.document = all[:5+d.IntN(6)]
	if d.chance(45) {
		label := &member{name: "label", optional: d.chance(60), members: []*member{
			{name: "category", kind: ofText, optional: d.chance(30)}, {name: "note", kind: ofText, optional: true},
			{name: "size", kind: ofLong, optional: d.chance(50)}, {name: "by", kind: ofUser, optional: d.chance(50)},
		}}
		d.Shuffle(4, func(a, b int) { label.members[a], label.members[b] = label.members[b], label.members[a] })
		label.members = label.members[:1+d.IntN(4)]
		if d.chance(40) {
			label.members = append(label.members, &member{name: "deep", optional: d.chance(60), members: []*member{
				{name: "x", kind: ofText, optional: d.chance(30)}, {name: "y", kind: ofBool, optional: d.chance(50)}, {name: "words", kind: ofText, set: true, optional: d.chance(50)},
			}[:1+d.IntN(3)]})
		}
		g.document = append(g.document, label)
	}
	if g.enumerated {
		g.document = nil
	}
	g.user = []*member{
		one("vip", ofBool), one("d", ofText), one("n", ofLong), one("at", ofTime), set("words", ofText), set("nums", ofLong), one("team", ofTeam), set("teams", ofTeam), set("pals", ofUser), one("pinned", ofDocument),
		set("pins", ofDocument), one("kind", ofKind), {name: "rec", optional: d.chance(50), members: []*member{{name: "x", kind: ofText}, {name: "y", kind: ofLong, optional: true}}},
	}
	g.context = []*member{one("on", ofBool), one("s", ofText), one("n", ofLong), one("who", ofUser), set("words", ofText), set("whos", ofUser)}
	g.wire = "document"
	if d.chance(10) {
		g.wire = "my-doc"
	}
	g.actions = []string{"read", "edit"}
	// What gives parents.
	for _, m := range g.document {
		if (m.name == "folder" || m.name == "folders" || m.name == "team" || m.name == "kind" || m.name == "kinds") && d.chance(50) {
			g.parents = append(g.parents, parentRule{ofDocument, m.name, m.kind})
		}
		if m.kind == ofText && m.name == "t" && !m.set && d.chance(30) {
			g.parents = append(g.parents, parentRule{ofDocument, m.name, ofFolder})
		}
	}
	if d.chance(40) {
		g.parents = append(g.parents, parentRule{ofUser, "teams", ofTeam})
	}
}

// cedar writes a value in a policy.
func (g *generator) cedar(k kind, v value) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		if k == ofTime {
			return `datetime("` + types.NewDatetimeFromMillis(v).String() + `")`
		}
		return strconv.FormatInt(v, 10)
	case string:
		text := string(types.String(v).MarshalCedar())
		if k.isEntity() {
			return g.prefix + string(k) + "::" + text
		}
		return text
	}
	panic(v)
}

// sent is a value as a request has it.
func sent(k kind, v value) any {
	switch v := v.(type) {
	case int64:
		if k == ofTime {
			return types.NewDatetimeFromMillis(v).String()
		}
	case []value:
		all := []any{}
		for _, one := range v {
			all = append(all, sent(k, one))
		}
		return all
	}
	return v
}

// kept is a value as an entity in the store has it.
func (g *generator) kept(k kind, v value) any {
	if all, is := v.([]value); is {
		kept := []any{}
		for _, one := range all {
			kept = append(kept, g.kept(k, one))
		}
		return kept
	}
	if id, is := v.(string); is && k.isEntity() {
		return map[string]any{"__entity": map[string]any{"type": g.prefix + string(k), "id": id}}
	}
	return sent(k, v)
}

// valueOf takes a value, or a set of some.
func (g *generator) valueOf(d dice, m *member) value {
	if !m.set {
		return g.known(d, m.kind)
	}
	all := []value{}
	for range oneOf(d, 0, 1, 1, 2, 2, 3) {
		all = append(all, g.known(d, m.kind))
	}
	return all
}

// object makes the attributes of something, without some that may be missing.
func (g *generator) object(d dice, members []*member, missing func(*member) bool, form func(kind, value) any) map[string]any {
	all := map[string]any{}
	for _, m := range members {
		switch {
		case missing(m):
		case m.members != nil:
			all[m.name] = g.object(d, m.members, func(m *member) bool { return m.optional && d.chance(30) }, form)
		default:
			all[m.name] = form(m.kind, g.valueOf(d, m))
		}
	}
	return all
}

// store makes the entities of the bundle: some of those that can be named.
func (g *generator) store() {
	d := g.values
	g.stored = map[kind][]string{}
	var all []any
	entity := func(k kind, id string, attributes map[string]any, parents ...any) {
		g.stored[k] = append(g.stored[k], id)
		if parents == nil {
			parents = []any{}
		}
		all = append(all, map[string]any{"uid": map[string]any{"type": g.prefix + string(k), "id": id}, "attrs": attributes, "parents": parents})
	}
	for _, k := range []kind{ofTeam, ofFolder} {
		var above []any
		for _, id := range g.pools[k] {
			if d.chance(15) {
				continue
			}
			var parents []any
			for _, p := range above {
				if d.chance(40) {
					parents = append(parents, p)
				}
			}
			entity(k, id.(string), map[string]any{}, parents...)
			above = append(above, map[string]any{"type": g.prefix + string(k), "id": id})
		}
	}
	percent := 75
	if g.evaluate {
		percent = 50
	}
	for _, id := range append(slices.Clone(g.pools[ofUser]), "u1") {
		if !d.chance(percent) || slices.Contains(g.stored[ofUser], id.(string)) {
			continue
		}
		var parents []any
		for _, team := range g.stored[ofTeam] {
			if d.chance(35) {
				parents = append(parents, map[string]any{"type": g.prefix + string(ofTeam), "id": team})
			}
		}
		entity(ofUser, id.(string), g.object(d, g.user, func(m *member) bool { return m.optional && d.chance(50) }, g.kept), parents...)
	}
	write := func(name string) {
		text, err := json.Marshal(all)
		if err != nil {
			panic(err)
		}
		g.files[name], all = string(text), []any{}
	}
	write("entities/all.json")
	if g.tenants && !slices.ContainsFunc(g.parents, func(r parentRule) bool { return r.of == ofUser }) {
		for _, id := range g.pools[ofUser] {
			if !slices.Contains(g.stored[ofUser], id.(string)) && d.chance(60) {
				entity(ofUser, id.(string), g.object(d, g.user, func(m *member) bool { return m.optional && d.chance(50) }, g.kept))
			}
		}
		write("tenants/acme/entities/more.json")
	}
}

// ask makes the question.
func (g *generator) ask() {
	d := g.asks
	id := g.known(d, ofUser)
	if stored := g.stored[ofUser]; len(stored) > 0 && d.chance(50) {
		id = oneOf(d, stored...)
	}
	isStored := slices.Contains(g.stored[ofUser], id.(string))
	missing := func(m *member) bool {
		return (m.optional || isStored || g.evaluate && m.name != "teams") && d.chance(40)
	}
	subject := map[string]any{"type": ofUser, "id": id, "properties": g.object(d, g.user, missing, sent)}
	question := map[string]any{
		"subject": subject, "action": map[string]any{"name": oneOf(d, g.actions...)}, "resource": map[string]any{"type": g.wire},
		"context": g.object(d, g.context, func(m *member) bool { return m.optional && d.chance(40) }, sent),
	}
	text, err := json.Marshal(question)
	if err != nil {
		panic(err)
	}
	g.question = string(text)
}

// bundle writes all files of the bundle but filters.yaml, entities and policies.
func (g *generator) bundle() {
	d := g.shapes
	enum := func(k kind) string {
		ids := make([]string, len(g.pools[k]))
		for n, id := range g.pools[k] {
			ids[n] = string(types.String(id.(string)).MarshalCedar())
		}
		return "enum [" + strings.Join(ids, ", ") + "]"
	}
	document := "in [folder, team, kind] = " + declareAll(g.document)
	if g.enumerated {
		document = enum(ofDocument)
	}
	schema := fmt.Sprintf(`entity team in [team];
entity folder in [folder];
entity kind %s;
entity user in [team] = %s;
entity document %s;
action any;
action read, edit in [any] appliesTo {principal: [user], resource: [document], context: %s};
`, enum(ofKind), declareAll(g.user), document, declareAll(g.context))
	config := ""
	if namespace, ok := strings.CutSuffix(g.prefix, "::"); ok {
		schema = "namespace " + namespace + " {\n" + schema + "}\n"
		config = "namespace: " + namespace + "\n"
	}
	g.files["schema.cedarschema"] = schema
	g.files["obligations.yaml"] = "second_look: {type: log, properties: {level: info}}\n"
	if g.evaluate {
		config += "unknown_entities: evaluate\n"
	}
	if d.chance(25) {
		config += "forbid_errors: ignore\n"
	}
	if mode := oneOf(d, "", "", "", "store", "request"); mode != "" {
		config += "attributes: {user: " + mode + "}\n"
	}
	if d.chance(15) {
		config += "unknown_properties: reject\n"
	}
	if d.chance(3) {
		config += "known: [user]\n"
	}
	if g.wire != "document" {
		config += "types: {" + g.wire + ": document}\n"
	}
	by := map[kind][]string{}
	for _, r := range g.parents {
		by[r.of] = append(by[r.of], r.attribute+": "+string(r.parent))
	}
	if len(by) > 0 {
		config += "parents:\n"
		for _, k := range slices.Sorted(maps.Keys(by)) {
			wire := string(k)
			if k == ofDocument {
				wire = g.wire
			}
			config += "  " + wire + ": {" + strings.Join(by[k], ", ") + "}\n"
		}
	}
	if config != "" {
		g.files["bundle.yaml"] = config
	}
	if g.tenants {
		g.tenant = oneOf(d, "acme", "default")
		g.files["tenants/acme/more.cedar"] = "forbid(principal, action, resource) when { context.pdp.tenant != \"acme\" };\n"
	}
}

// oddNames are names that SQL can have if they are quoted, and that no two engines take for the same.
var oddNames = []string{
	"select", "Order", "user", "GROUP", "value", "key", "id", "json_each", "from", "x", "_", "a1", "where", "NULL", "default", "tag", "type", "atom", "doc", "parent", "row", "d", "one",
	strings.Repeat("n", 63), "unnest", "any", "date_trunc", "cardinality", "OWNER", "tenant", "limit", "exists", "text", "uuid", "case", "end", "collate", "glob", "typeof",
}

// tables gives each attribute a column or a table, and writes filters.yaml.
func (g *generator) tables() {
	d := g.shapes
	names := slices.Clone(oddNames)
	d.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
	taken := map[string]bool{"rowkey": true}
	next := func() string {
		for n, name := range names {
			if !taken[strings.ToLower(name)] {
				names = slices.Delete(names, n, n+1)
				taken[strings.ToLower(name)] = true
				return name
			}
		}
		panic("no names are left")
	}
	name, quoted := oneOf(d, "docs", "Documents", "table", "DOCS", "order"), ""
	if quoted = quote(name); d.chance(25) {
		schema := "main"
		if g.dialect == filter.Postgres {
			schema = oneOf(d, "app", "Select")
			g.create = append(g.create, `CREATE SCHEMA "`+schema+`"`)
		}
		name, quoted = schema+"."+name, quote(schema)+"."+quoted
	}
	t := &database.Table{Name: quoted, Key: "rowkey"}
	g.table = t
	columns := []string{"rowkey bigint"}
	yaml := fmt.Sprintf("%s:\n  table: %s\n", g.wire, name)
	if g.tenants || d.chance(15) {
		t.Tenant = next()
		columns = append(columns, quote(t.Tenant)+" text")
		yaml += "  tenant: " + strconv.Quote(t.Tenant) + "\n"
	}
	id := &member{name: "id", kind: ofDocument, column: next(), typ: g.styles[ofDocument]}
	id.stored = g.storedType(id)
	columns = append(columns, quote(id.column)+" "+id.stored)
	t.ID = database.Field{Column: id.column, Type: id.typ}
	yaml += fmt.Sprintf("  id: {column: %q, type: %s}\n  actions: [read, edit]\n", id.column, id.typ)
	if !g.enumerated {
		yaml += "  columns:\n"
	}
	var notNull []string
	var walk func(members, before []*member)
	walk = func(members, before []*member) {
		for _, m := range members {
			m.path = append(slices.Clone(before), m)
			if m.members != nil {
				if !m.optional {
					t.RequiredRecords = append(t.RequiredRecords, pathOf(m.path))
				}
				walk(m.members, m.path)
				continue
			}
			g.leaves = append(g.leaves, m)
			f := database.Field{Path: pathOf(m.path), Kind: fieldKind(m.kind), Entity: string(m.kind)}
			path := strings.Join(f.Path, ".")
			g.column(m)
			if m.set {
				f.Kind, f.Element = "set", f.Kind
			}
			if m.rows != nil {
				f.Rows = m.rows
				m.rows.Table = quote(m.rows.Table)
				null := ""
				if m.noNullElement = d.chance(40); m.noNullElement {
					notNull, null = append(notNull, path+"[]"), " NOT NULL"
				}
				// The other table has columns of the names of the row's.
				key, value := oneOf(d, "id", "key", id.column), oneOf(d, "value", "tag", "json", "text")
				if strings.EqualFold(key, value) {
					key = "k"
				}
				m.rows.Key, m.rows.Value = key, value
				g.create = append(g.create, fmt.Sprintf("CREATE TABLE %s (%s %s, %s %s%s)", m.rows.Table, quote(key), id.stored, quote(value), m.stored, null))
				yaml += fmt.Sprintf("    %q: {table: %s, key: %q, value: %q, type: %s}\n", path, strings.Trim(m.rows.Table, `"`), key, value, m.rows.Type)
			} else {
				m.column = next()
				f.Column, f.Type = m.column, m.typ
				null := ""
				if m.notNull = d.chance(25) && !(len(m.path) > 1 && m.path[0].optional); m.notNull {
					notNull, null = append(notNull, path), " NOT NULL"
				}
				if m.set && d.chance(40) {
					m.noNullElement = true
					notNull = append(notNull, path+"[]")
				}
				columns = append(columns, quote(m.column)+" "+m.stored+null)
				yaml += fmt.Sprintf("    %q: {column: %q, type: %q}\n", path, m.column, m.typ)
			}
			t.Fields = append(t.Fields, f)
		}
	}
	walk(g.document, nil)
	d.Shuffle(len(columns), func(a, b int) { columns[a], columns[b] = columns[b], columns[a] })
	if g.dialect == filter.Postgres {
		g.create = slices.Insert(g.create, 0, "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
			"CREATE DOMAIN named AS varchar(400)", "CREATE DOMAIN folded AS text COLLATE nocase")
	}
	g.base = quoted
	if d.chance(10) {
		g.base = `"base"`
	}
	g.create = append(g.create, "CREATE TABLE "+g.base+" ("+strings.Join(columns, ", ")+")")
	if g.base != quoted {
		g.create = append(g.create, "CREATE VIEW "+quoted+" AS SELECT * FROM "+g.base)
	}
	if len(notNull) > 0 {
		names, _ := json.Marshal(notNull)
		yaml += "  not_null: " + string(names) + "\n"
	}
	if g.strict {
		yaml += "  strict: true\n"
	}
	g.files["filters.yaml"] = yaml
	g.ids = id
}

func quote(name string) string { return `"` + name + `"` }

func pathOf(members []*member) (names []string) {
	for _, m := range members {
		names = append(names, m.name)
	}
	return names
}

func fieldKind(k kind) string {
	if k.isEntity() {
		return "entity"
	}
	return strings.ToLower(string(k))
}

// column chooses where a leaf has its values: in a column of a type, or in rows of another table.
func (g *generator) column(m *member) {
	d := g.shapes
	switch m.kind {
	case ofBool:
		m.typ = "boolean"
	case ofLong:
		m.typ = "bigint"
	case ofTime:
		m.typ = g.time
	case ofText:
		if m.typ = "text"; d.chance(8) && !slices.ContainsFunc(g.parents, func(r parentRule) bool { return r.attribute == m.name }) {
			m.typ = "uuid"
		}
	default:
		if m.typ = g.styles[m.kind]; d.chance(25) {
			m.typ = "text"
		}
	}
	if m.set {
		if g.dialect == filter.SQLite || m.typ == "bigint" || d.chance(45) {
			m.rows = &database.Rows{Table: strings.ToLower(strings.Join(pathOf(m.path), "_")) + "_of", Type: m.typ}
		} else {
			m.typ += "[]"
		}
	}
	m.stored = g.storedType(m)
}

// storedType returns the type that a table has for a column of a type in filters.yaml: without strict it may be another one.
func (g *generator) storedType(m *member) string {
	d := g.shapes
	if g.dialect == filter.SQLite {
		stored := map[string]string{"bigint": "integer", "millis": "bigint", "boolean": "boolean", "text": "text", "uuid": "text"}[m.typ]
		if !g.strict && d.chance(40) {
			if stored == "text" {
				return oneOf(d, "text COLLATE NOCASE", "text COLLATE RTRIM", "varchar(3)", "")
			}
			return ""
		}
		return stored
	}
	others := map[string][]string{"text": {"citext", "varchar", "char(8)", "name", "named", "folded", `text COLLATE "C"`, "text COLLATE nocase"}, "text[]": {"text[] COLLATE nocase"}}[m.typ]
	switch {
	case m.typ == "millis":
		return "bigint"
	case !g.strict && others != nil && d.chance(40):
		return oneOf(d, others...)
	}
	return m.typ
}

// cell takes a value that a column can have.
func (g *generator) cell(m *member) value {
	typ := strings.TrimSuffix(m.typ, "[]")
	fits := func(v value) bool {
		text, is := v.(string)
		if !is {
			return true
		}
		_, notNumber := strconv.ParseInt(text, 10, 64)
		switch {
		case typ == "uuid" && g.dialect == filter.Postgres:
			return slices.Contains(uuids, text) || strings.HasPrefix(text, uuids[0][:35])
		case typ == "bigint":
			return notNumber == nil && !strings.HasPrefix(text, "0") && !strings.HasPrefix(text, "+") || text == "0"
		}
		return !strings.Contains(text, "\x00")
	}
	for range 20 {
		if v := g.known(g.fills, m.kind); fits(v) && (!g.isEnumerated(m.kind) || slices.Contains(g.pools[m.kind], v)) {
			return v
		}
	}
	switch typ {
	case "uuid":
		return uuids[0]
	case "bigint":
		return "7"
	}
	return "k"
}

// written writes a value in SQL.
func (g *generator) written(m *member, v value) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case raw:
		return string(v)
	case bool:
		if g.dialect == filter.SQLite {
			return map[bool]string{false: "0", true: "1"}[v]
		}
		return strconv.FormatBool(v)
	case int64:
		if m.typ == "timestamptz" {
			micros := oneOf(g.fills, 0, 0, 1, 456, 999)
			return fmt.Sprintf("'%s.%03d%03d+00'", types.NewDatetimeFromMillis(v).Time().UTC().Format("2006-01-02 15:04:05"), (v%1000+1000)%1000, micros)
		}
		return strconv.FormatInt(v, 10)
	case string:
		if m.kind.isEntity() && strings.HasPrefix(m.typ, "bigint") {
			return v
		}
		text := "'" + strings.ReplaceAll(v, "'", "''") + "'"
		if m.stored == "char(8)" {
			text += "::char(8)"
		}
		return text
	}
	panic(v)
}

// insert makes a row.
func (g *generator) insert() {
	d := g.fills
	columns, values := []string{"rowkey"}, []string{strconv.Itoa(len(g.rows))}
	put := func(column, value string) {
		columns, values = append(columns, quote(column)), append(values, value)
	}
	if g.table.Tenant != "" {
		switch roll := d.IntN(100); {
		case roll < 3:
			put(g.table.Tenant, "NULL")
		case roll < 8:
			put(g.table.Tenant, oneOf(d, "'acme'", "'default'", "'DEFAULT'", "'acme '"))
		default:
			put(g.table.Tenant, "'"+g.tenant+"'")
		}
	}
	var inserts []tuple
	misfit := -1
	if g.misfits.chance(map[filter.Dialect]int{filter.Postgres: 12, filter.SQLite: 8}[g.dialect]) {
		misfit = g.misfits.IntN(len(g.leaves) + 1)
	}
	id := g.written(g.ids, g.cell(g.ids))
	if misfit == len(g.leaves) {
		id = g.misfit(g.ids)
	}
	put(g.ids.column, id)
	absent := map[*member]bool{} // records
	for n, m := range g.leaves {
		null := d.chance(18)
		for _, record := range m.path[:len(m.path)-1] {
			is, decided := absent[record]
			if !decided {
				is = record.optional && d.chance(25)
				absent[record] = is
			}
			null = null || is
		}
		inRecord := len(m.path) > 1
		switch {
		case m.notNull:
			null = false
		case !m.optional && inRecord:
			null = slices.ContainsFunc(m.path[:len(m.path)-1], func(of *member) bool { return absent[of] })
		case !m.optional && (!g.evaluate || slices.ContainsFunc(g.parents, func(r parentRule) bool { return r.of == ofDocument && r.attribute == m.name })):
			null = false
		}
		switch {
		case m.set:
			var elements []string
			for range oneOf(d, 0, 1, 1, 2, 2, 3) {
				elements = append(elements, g.written(m, g.cell(m)))
			}
			if misfit == n && !m.noNullElement {
				elements = append(elements, "NULL")
			}
			if m.rows != nil {
				if misfit == n && g.dialect == filter.SQLite && g.misfits.chance(50) {
					elements = append(elements, g.misfit(m))
				}
				if null = null && d.chance(40); null { // or else the record is there
					elements = nil
				}
				for _, e := range elements {
					inserts = append(inserts, tuple{m.rows.Table, "(" + id + ", " + e + ")"})
				}
				continue
			}
			array := "ARRAY[" + strings.Join(elements, ", ") + "]::" + strings.Fields(m.stored)[0]
			switch {
			case misfit == n && (!m.noNullElement || !g.strict) && g.misfits.chance(40):
				one := g.written(m, g.cell(m))
				array = fmt.Sprintf("ARRAY[[%s], [%s]]::%s", one, one, strings.Fields(m.stored)[0])
			case misfit == n && g.misfits.chance(5) && m.typ == "text[]" && !g.isEnumerated(m.kind) && !(g.strict && m.noNullElement):
				array = fmt.Sprintf("array_fill('x'::text, ARRAY[%d])", bundle.MostElements+g.misfits.IntN(2))
			case null:
				array = "NULL"
			}
			put(m.column, array)
		case misfit == n:
			put(m.column, g.misfit(m))
		case null:
			put(m.column, "NULL")
		default:
			put(m.column, g.written(m, g.cell(m)))
		}
	}
	g.rows = append(g.rows, append(inserts, tuple{g.base + " (" + strings.Join(columns, ", ") + ")", "(" + strings.Join(values, ", ") + ")"}))
}

// misfit writes a value that no decision takes, if a column can have one.
func (g *generator) misfit(m *member) string {
	d := g.misfits
	var may []string
	if !m.notNull && (m.rows == nil || !m.noNullElement) && !(m == g.ids && g.strict) {
		may = append(may, "NULL")
	}
	if g.isEnumerated(m.kind) && m.typ == "text" {
		may = append(may, "'none'", "'K'")
	}
	switch {
	case m.typ == "timestamptz":
		may = append(may, "'infinity'", "'-infinity'", "'10000-01-01 00:00:00+00'", "'0001-12-31 23:59:59.9999+00 BC'")
	case m.typ == "millis":
		may = append(may, strconv.Itoa(lastTime+1), strconv.Itoa(firstTime-1))
	}
	if g.dialect == filter.SQLite {
		text := m.typ == "text" || m.typ == "uuid"
		switch {
		case text:
			may = append(may, "'a' || char(0) || 'b'", "char(0)")
		case m.typ == "boolean":
			may = append(may, "2", "-1")
		}
		switch {
		case g.strict:
		case text:
			may = append(may, "x'6162'", "x''")
		default:
			may = append(may, "'x'", "1.5", "x'37'")
		}
	}
	if len(may) == 0 {
		return g.written(m, g.cell(m))
	}
	return oneOf(d, may...)
}
