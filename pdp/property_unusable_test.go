package pdp

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// TestPropertyUnusable holds the promise of SEMANTICS.md 2: an allow with an
// unusable member is an allow for every value that member could have had. Its
// generator knows every operator of the language.
func TestPropertyUnusable(t *testing.T) {
	t.Parallel()
	seen, used := tally{}, map[string]bool{}
	property := func(t *testing.T, g *generator) {
		w := g.wordy()
		text := joined(w.policies)
		for _, op := range operators {
			used[op] = used[op] || strings.Contains(text, op)
		}
		b := w.load(t)
		for range 8 {
			a, m := g.unusable()
			if diff := m.matters(t, b, a, seen); diff != "" {
				w = w.smaller(func(b *Bundle, _ world) bool { return m.matters(t, b, a, tally{}) != "" })
				t.Fatalf("seed %d: %s\n%s%s", g.seed, m.matters(t, w.load(t), a, tally{}), w, a)
			}
		}
	}
	eachSeed(t, 1200, property)
	for _, fault := range unusableFaults { // with -short too
		property(t, newGenerator(fault.seed))
	}
	seen.atLeast(t, "unusable", 60)
	seen.atLeast(t, "allowed", 15)
	seen.atLeast(t, "allowed with a policy that names it", 5)
	seen.atLeast(t, "allowed with a policy that reads beside it", 1)
	seen.atLeast(t, "allowed, and one entity is both", 1)
	for _, op := range operators {
		if !used[op] && !fewSeeds() && !testing.Short() { // some are rare
			t.Errorf("no generated policy holds %q", op)
		}
	}
}

// unusableFaults take away, one at a time, the parts that the promise rests on.
var unusableFaults = []struct {
	name   string
	damage func(*bundle.Facts)
	seed   uint64 // the first that shows it
}{
	{"has is not noted", func(f *bundle.Facts) { unnote(f, func(p bundle.AttributePath) bool { return p.Has }) }, 101},
	{"the whole context is not noted", func(f *bundle.Facts) { f.Whole = false }, 180},
	{"errors are as good as any", func(f *bundle.Facts) { unnote(f, func(p bundle.AttributePath) bool { return !p.Has }) }, 53},
	{"what starts at no variable is not noted", func(f *bundle.Facts) { f.Unrooted = nil }, 113},
	{"a record around it is no value", func(f *bundle.Facts) { deepen(f.Reads); deepen(f.Unrooted) }, 1667},
}

// unnote takes paths out of what is noted.
func unnote(f *bundle.Facts, drop func(bundle.AttributePath) bool) {
	f.Reads, f.Unrooted = slices.DeleteFunc(slices.Clone(f.Reads), drop), slices.DeleteFunc(slices.Clone(f.Unrooted), drop)
}

// deepen makes each record that is used as a value one that is gone through alone.
func deepen(all []bundle.AttributePath) {
	for n := range all {
		if p := &all[n]; !p.Has {
			p.Names = append(slices.Clone(p.Names), "no such name")
		}
	}
}

// TestPropertyUnusableFaults: where the corpus still passed with one of the faults, it would not hold the promise.
func TestPropertyUnusableFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range unusableFaults {
		t.Run(fault.name, func(t *testing.T) {
			first := fault.seed
			if !testing.Short() {
				first = 0
			}
			for seed := first; seed <= fault.seed; seed++ {
				g := newGenerator(seed)
				b := g.wordy().load(t)
				for p := range everyPolicy(b) {
					fault.damage(&p.Facts)
				}
				for range 8 {
					a, m := g.unusable()
					if diff := m.matters(t, b, a, tally{}); diff != "" {
						if seed != fault.seed {
							t.Errorf("found by seed %d, want %d", seed, fault.seed)
						}
						return
					}
				}
			}
			t.Error("no generated request shows the fault")
		})
	}
}

// member is a member of a request: where names lead from its part.
type member struct {
	at    place
	names []string
}

// matters says for which value the member's being unusable was no deny although
// its value is. The text is empty where the promise holds. It does not ask the
// engine which members are unusable: the values that the store overrides have to hold, too.
func (m member) matters(t *testing.T, b *Bundle, a asked, seen tally) string {
	call := a.call(t)
	d, err := decideBy(context.Background(), b, call)
	if err != nil {
		return "refused: " + err.Error()
	}
	q, _ := questionOf(b, viewOf(b, call), call)
	left := q.Unusable != engine.Unusable{}
	seen.count("unusable", left)
	seen.count("allowed", d.Allow && left)
	seen.count("allowed with a policy that names it", d.Allow && left && m.isNamed(b))
	seen.count("allowed with a policy that reads beside it", d.Allow && left && len(m.names) > 1 && m.isBeside(b))
	seen.count("allowed, and one entity is both", d.Allow && left && q.Uids[bundle.PrincipalVar] == q.Uids[bundle.ResourceVar])
	if !d.Allow {
		return ""
	}
	values := append(valuesIn(call.Request), usableValues...)
	if !m.isNamed(b) { // then it hardly matters
		values = values[len(values)-3:]
	}
	for _, value := range values {
		c := m.set(call, value)
		d, err := decideBy(context.Background(), b, c)
		if text, _ := value.MarshalJSON(); err != nil || !d.Allow {
			return fmt.Sprintf("where %v is unusable, the answer is an allow; where it is %s, it is not: %v %s", m, text, err, outcome(d))
		}
	}
	return ""
}

// set gives the member a value, or takes it out where the value is null. Where
// one entity is both, a value counts only when the subject sends it.
func (m member) set(c Call, value evaluation.Value) Call {
	r := &c.Request
	if r.Subject.Type == r.Resource.Type && r.Subject.ID == r.Resource.ID && m.at <= inResource {
		r.Resource.Properties = r.Resource.Properties.With(m.names[0], evaluation.Value{})
		m.at = inSubject
	}
	for at, o := range [places]*evaluation.Object{&r.Subject.Properties, &r.Resource.Properties, &r.Action.Properties, &r.Context} {
		if place(at) == m.at {
			made, _ := o.Value().Put(m.names, value)
			*o = made.Object()
		}
	}
	return c
}

// isNamed reports whether any policy names the member, or the context as a value.
func (m member) isNamed(b *Bundle) bool {
	for p := range everyPolicy(b) {
		_, read := p.Facts.ReadNames[m.names[len(m.names)-1]]
		_, tested := p.Facts.HasNames[m.names[len(m.names)-1]]
		if read || tested || p.Facts.Whole {
			return true
		}
	}
	return false
}

// isBeside reports whether any policy reads another member of the record that the member is in.
func (m member) isBeside(b *Bundle) bool {
	names := m.names
	if m.at == inAction {
		names = append([]string{"action"}, names...)
	}
	for p := range everyPolicy(b) {
		if slices.ContainsFunc(p.Facts.Reads, func(path bundle.AttributePath) bool {
			last := len(names) - 1
			return len(path.Names) > last && slices.Equal(path.Names[:last], names[:last]) && path.Names[last] != names[last]
		}) {
			return true
		}
	}
	return false
}

// reads reports whether a path of a policy leads to what a question has left out.
func reads(q *engine.Question, path bundle.AttributePath) bool {
	reads, _ := q.Unusable.Meets(path)
	return reads
}

// usableValues are values that a member could have had: of every kind, and none
// at all.
var usableValues = func() []evaluation.Value {
	o, err := evaluation.NewObject(map[string]any{"of": []any{
		nil, "", "a", "b", "10.0.0.1", "1.5", "2026-01-01", "1h", 0, 1, -1, 2.0, math.MaxInt64, true, false, []any{}, []any{"a"}, []any{1, 2},
		[]any{map[string]any{"n": 1}}, map[string]any{}, map[string]any{"n": 1}, map[string]any{"r": map[string]any{"s": "b"}}, []any{true},
		map[string]any{"n": 1, "s": "a", "b": true, "l": []any{1, "a"}, "r": map[string]any{"n": 1}}, []any{map[string]any{}}, []any{1},
	}})
	if err != nil {
		panic(err)
	}
	all, _ := o.Get("of")
	return slices.Collect(second(all.Elements))
}()

func second[K, V any](of iter.Seq2[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		of(func(_ K, v V) bool { return yield(v) })
	}
}

// valuesIn are the usable values that the members of a request have.
func valuesIn(r evaluation.Request) []evaluation.Value {
	var all []evaluation.Value
	for _, o := range []evaluation.Object{r.Subject.Properties, r.Resource.Properties, r.Action.Properties, r.Context} {
		for _, v := range o.Members {
			if _, ok := engine.Untyped(v); ok {
				all = append(all, v)
			}
		}
	}
	return all
}

// noValues are those that Cedar has no value for.
var noValues = []string{
	"1.5", "1e400", "9223372036854775808", "[null]", `[1,[2.5]]`, `[{"n":1.5}]`, "[[[]]]", `[{"r":[{"l":[1]}]}]`,
	"[" + strings.Repeat("{},", 128) + "1]",
}

// withUnusable makes a request of one in which a member has a value that Cedar has not.
func (g *generator) withUnusable(a asked, m member) asked {
	raw := oneOf(g, noValues...)
	for n := len(m.names) - 1; n > 0; n-- {
		members := map[string]string{}
		for _, name := range some(g, 40, memberNames[:4]...) {
			members[name] = g.valueFor(name)
		}
		members[m.names[n]] = raw
		raw = objectText(members)
	}
	return a.with(m.at, m.names[0], raw)
}

func objectText(members map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		all = append(all, strconv.Quote(name)+":"+members[name])
	}
	return "{" + strings.Join(all, ",") + "}"
}

// unusableMember is a member of any part, most often one of a record in it.
func (g *generator) unusableMember() member {
	names := []string{oneOf(g, memberNames...)}
	for range oneOf(g, 0, 0, 1, 1, 2) {
		names = append([]string{"r"}, names...)
	}
	return member{place(g.IntN(int(places))), names}
}

// The members of the wordy world; the value of a name is most often of its type.
var memberNames = []string{"n", "s", "b", "l", "r", "m n"}

func (g *generator) valueFor(name string) string {
	if g.chance(10) {
		name = oneOf(g, memberNames...)
	}
	switch name {
	case "n":
		return oneOf(g, "0", "1", "2")
	case "s":
		return oneOf(g, `"a"`, `"b"`, `"10.0.0.1"`, `"1.5"`, `"2026-01-01"`, `"1h"`)
	case "b":
		return oneOf(g, "true", "false")
	case "l":
		return oneOf(g, "[]", `["a"]`, "[1]", `[1,"a"]`, `[{"n":1}]`)
	case "r":
		return oneOf(g, "{}", `{"n":1}`, `{"n":1,"s":"a","b":true,"l":[1],"r":{"n":2}}`)
	}
	return oneOf(g, "1", `"a"`)
}

// unusable makes a request, and says which of its members is unusable.
func (g *generator) unusable() (asked, member) {
	a := asked{action: oneOf(g, "read", "write"), subject: [2]string{"User", oneOf(g, "u0", "u1")}, resource: [2]string{"Doc", oneOf(g, "d0", "d1")}}
	for at := range places {
		for _, name := range some(g, oneOf(g, 0, 30, 60), memberNames...) {
			a = a.with(at, name, g.valueFor(name))
		}
	}
	if g.chance(15) { // not the one that is asked about
		m := g.unusableMember()
		a = g.withUnusable(a, member{oneOf(g, inSubject, inContext), m.names})
	}
	m := g.unusableMember()
	if !g.chance(20) {
		return g.withUnusable(a, m), m
	}
	// One entity is both, and no property is sent with two values.
	a.resource, a.members[inResource] = a.subject, nil
	if m.at == inResource { // whatever only the resource sends is unusable
		m.names = m.names[:1]
		return a.with(inSubject, m.names[0], "").with(inResource, m.names[0], g.valueFor(m.names[0])), m
	}
	return g.withUnusable(a, m), m
}

// wordy makes a bundle of few policies with conditions of every kind.
func (g *generator) wordy() world {
	w := world{config: fmt.Sprintf("allow_trivial: true\nforbid_errors: %s\nattributes: {User: %s, Doc: %s}\n",
		oneOf(g, "deny", "ignore"), oneOf(g, "fill", "store", "request"), oneOf(g, "fill", "store", "request"))}
	if g.chance(50) {
		w.policies = append(w.policies, policyText{text: `@id("any") permit (principal, action, resource);`})
	}
	for n := range 1 + g.IntN(3) {
		effect := "permit"
		if len(w.policies) > 0 {
			effect = oneOf(g, "permit", "forbid", "forbid")
		}
		w.policies = append(w.policies, policyText{text: fmt.Sprintf(`@id("p%d") %s (principal%s, action, resource) %s { %s };`,
			n, effect, oneOf(g, "", "", " is User"), oneOf(g, "when", "when", "unless"), g.boolean(3))})
	}
	w.entities = []string{entityText("Group", "g0", nil, refs("Group", nil))}
	for _, e := range [][2]string{{"User", "u0"}, {"Doc", "d0"}, {"Doc", "d1"}} {
		w.entities = append(w.entities, g.storedEntity(e[0], e[1]))
	}
	return w
}

// storedEntity makes an entity with some of the attributes, a reference to a
// user who may be the principal, and tags.
func (g *generator) storedEntity(typ, id string) string {
	attributes := map[string]string{}
	for _, name := range some(g, 30, memberNames...) {
		attributes[name] = g.valueFor(name)
	}
	attributes["owner"] = `{"__entity":{"type":"User","id":` + strconv.Quote(oneOf(g, "u0", "u1")) + `}}`
	text := entityText(typ, id, attributes, refs("Group", some(g, 50, "g0")))
	return strings.TrimSuffix(text, "}") + `,"tags":{"t":"a","n":1}}`
}

// operators are those that the generated policies must hold between them.
var operators = []string{
	" == ", " != ", " < ", " <= ", " > ", " >= ", " + ", " - ", " * ", "-(", "!(", " && ", " || ", "if ", " like ", " in ", " is ", " has ", " has r.n", "[\"m n\"]",
	".contains(", ".containsAll(", ".containsAny(", ".isEmpty()", ".hasTag(", ".getTag(", "unless", "context ==", "context !=", "[context]",
	"ip(", ".isIpv4()", ".isIpv6()", ".isLoopback()", ".isMulticast()", ".isInRange(", "decimal(", ".lessThan(", ".lessThanOrEqual(", ".greaterThan(", ".greaterThanOrEqual(",
	"datetime(", "duration(", ".offset(", ".durationSince(", ".toDate()", ".toTime()", ".toMilliseconds()", ".toSeconds()", ".toMinutes()", ".toHours()", ".toDays()",
	"context.action", "else resource).", "else resource) has ", "context has action", ".r has ", ".r.r has ", " has r.r.", "[context.r]", `["r"]`,
}

// boolean makes an expression that is true or false, if it does not err.
func (g *generator) boolean(depth int) string {
	if depth == 0 {
		has := "(" + g.holder(0) + " has " + g.name() + ")"
		return oneOf(g, "true", "false", has, has, g.holder(0)+".b")
	}
	d := depth - 1
	switch g.IntN(18) {
	case 0, 1:
		return "(" + g.boolean(d) + " && " + g.boolean(d) + ")"
	case 2, 3, 4:
		return "(" + g.boolean(d) + " || " + g.boolean(d) + ")"
	case 5:
		return "!(" + g.boolean(d) + ")"
	case 6:
		return "(if " + g.boolean(d) + " then " + g.boolean(d) + " else " + g.boolean(d) + ")"
	case 7:
		return g.equality(d)
	case 8:
		return "(" + g.long(d) + oneOf(g, " < ", " <= ", " > ", " >= ") + g.long(d) + ")"
	case 9:
		return "(" + g.text(d) + " like " + oneOf(g, `"*"`, `"a*"`, `"*.*"`) + ")"
	case 10:
		return g.onSet(d)
	case 11:
		return g.onEntity(d)
	case 12:
		return g.extension(d)
	case 13:
		return "((if " + g.boolean(d) + " then principal else resource) has " + g.name() + ")"
	case 14, 15, 16:
		return "(" + g.holder(d) + " has " + oneOf(g, g.name(), "r.n", "r.r.n", "r.s", "action", "owner.n", "action.b", "action.r.n") + ")"
	}
	return g.holder(d) + ".b"
}

func (g *generator) name() string {
	if n := oneOf(g, memberNames...); n != "m n" {
		return n
	}
	return `"m n"`
}

func (g *generator) equality(d int) string {
	op := oneOf(g, " == ", " != ")
	return "(" + oneOf(g, g.any(d)+op+g.any(d), g.long(d)+op+g.long(d), g.text(d)+op+g.text(d), "context"+op+g.record(d),
		`context`+op+`{"pdp": context.pdp, "action": context.action}`, `[context].contains(`+g.record(d)+`)`,
		`{"c": context, "n": 1}`+op+`{"c": {"pdp": context.pdp, "action": context.action}, "n": 1}`, g.holder(d)+".r"+op+g.record(d)) + ")"
}

func (g *generator) onSet(d int) string {
	return g.set(d) + oneOf(g, ".contains("+g.any(d)+")", ".containsAll("+g.set(d)+")", ".containsAny("+g.set(d)+")", ".isEmpty()")
}

func (g *generator) onEntity(d int) string {
	return "(" + g.entity(d) + oneOf(g, " in "+g.entity(d), ` in [Group::"g0", User::"u0"]`, " is User", ` is User in Group::"g0"`, " is User in "+g.entity(d),
		".hasTag("+g.text(d)+")", `.getTag("t") == `+g.text(d)) + ")"
}

func (g *generator) extension(d int) string {
	date := "datetime(" + oneOf(g, `"2026-01-01"`, g.text(d)) + ")"
	span := "duration(" + oneOf(g, `"1h"`, g.text(d)) + ")"
	return "(" + oneOf(g,
		"ip("+oneOf(g, `"10.0.0.1"`, g.text(d))+")."+oneOf(g, "isIpv4()", "isIpv6()", "isLoopback()", "isMulticast()", `isInRange(ip("10.0.0.0/8"))`),
		"decimal("+oneOf(g, `"1.5"`, g.text(d))+")."+oneOf(g, "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")+`(decimal("2.0"))`,
		date+oneOf(g, " < ", " >= ", " == ")+oneOf(g, `datetime("2026-01-01")`, "context.pdp.now", date+".offset("+span+")"),
		date+`.durationSince(datetime("2025-01-01"))`+oneOf(g, " < ", " >= ")+span,
		date+".toDate() == "+date, date+".toTime() <= "+span, span+" > "+span) + ")"
}

func (g *generator) long(d int) string {
	if d <= 0 {
		return oneOf(g, "0", "1", g.holder(0)+".n")
	}
	d--
	return "(" + oneOf(g, g.long(d)+" + "+g.long(d), g.long(d)+" - "+g.long(d), g.long(d)+" * "+g.long(d), "-("+g.long(d)+")", g.holder(d)+".n",
		g.holder(d)+".r.n", "if "+g.boolean(d)+" then "+g.long(d)+" else "+g.long(d), g.entity(d)+`.getTag("n")`,
		`duration("1h").`+oneOf(g, "toMilliseconds()", "toSeconds()", "toMinutes()", "toHours()", "toDays()")) + ")"
}

func (g *generator) text(d int) string {
	if d <= 0 {
		return oneOf(g, `"a"`, `"10.0.0.1"`, g.holder(0)+".s")
	}
	return oneOf(g, `"a"`, g.holder(d-1)+".s", g.holder(d-1)+`["m n"]`, "(if "+g.boolean(d-1)+" then "+g.text(d-1)+` else "b")`)
}

func (g *generator) set(d int) string {
	if d <= 0 {
		return oneOf(g, "[]", `["a"]`, "[1]", g.holder(0)+".l")
	}
	return oneOf(g, g.holder(d-1)+".l", "["+g.any(d-1)+", "+g.any(d-1)+"]", "["+g.any(d-1)+"]", "[context.action]", "[context]", "[context.r]", `[principal["r"], context.action]`)
}

func (g *generator) record(d int) string {
	if d <= 0 {
		return oneOf(g, "{}", `{"n": 1}`, "context.action", g.holder(0)+".r")
	}
	return oneOf(g, `{"n": `+g.any(d-1)+`}`, `{"n": `+g.long(d-1)+`, "s": `+g.text(d-1)+`, "b": `+g.boolean(d-1)+`, "l": [], "r": context.action}`,
		`{"a": context, "m n": "a"}`, "context.action", "context", g.holder(d-1)+".r", `{"r": `+g.holder(d-1)+`.r, "n": 1}`, g.holder(d-1)+".r.r")
}

func (g *generator) entity(d int) string {
	if d <= 0 {
		return oneOf(g, "principal", "resource", `User::"u0"`, `Group::"g0"`)
	}
	return oneOf(g, "principal", "resource", "resource.owner", g.holder(d-1)+".owner", "(if "+g.boolean(d-1)+" then principal else resource)")
}

// holder makes an expression that has attributes or members.
func (g *generator) holder(d int) string {
	if d <= 0 {
		return oneOf(g, "principal", "resource", "context", "context.action", "principal", "resource", "context", "context.action", "principal.r", "resource.r", "context.r", "context.r.r", "context.action.r")
	}
	return oneOf(g, "principal", "resource", "context", "context.action", "principal.r", "resource.r", "context.r", "context.r.r", "(if "+g.boolean(d-1)+" then principal else resource)",
		"(if "+g.boolean(d-1)+" then context else context.action)", "resource.owner", "resource.owner.r", g.entity(d-1), g.record(d-1), `{"c": context}.c`,
		`{"c": context.r}.c`, "(if "+g.boolean(d-1)+" then principal else resource).r", "(if "+g.boolean(d-1)+" then context.r else context.action.r)", `User::"u0".r`)
}

// any makes an expression of any type at all.
func (g *generator) any(d int) string {
	return oneOf(g, g.long(d), g.text(d), g.boolean(max(d, 0)), g.set(d), g.record(d), g.entity(d), g.holder(d), g.holder(d)+"."+oneOf(g, "n", "s", "b", "l", "r"))
}
