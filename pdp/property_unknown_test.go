package pdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
)

// possibleWorld is a bundle, and a generator of questions of it.
type possibleWorld struct {
	fmt.Stringer
	bundle *Bundle
	ask    func() asked
	// pointers are places that can be unknown, and values can stand there.
	pointers []string
	values   []any
	fitting  map[string]any // by place
}

// TestPropertyUnknown asks generated bundles whether an allow is possible, and holds the answers to decisions with real
// values. If any value is permitted, it is possible. If it is possible and no value is found, a policy reads the
// unknown. The values of the request there make no difference.
func TestPropertyUnknown(t *testing.T) {
	t.Parallel()
	for name, makes := range map[string]func(*testing.T, *generator) possibleWorld{
		"obliged": possibleOfObliged, "wordy": possibleOfWordy, "typed": possibleOfTyped,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := tally{}
			eachSeed(t, 150, func(t *testing.T, g *generator) {
				g.prefixed = g.seed%3 == 1
				w := makes(t, g)
				for range 8 {
					a := w.ask()
					unknown := some(g, oneOf(g, 6, 12, 20), w.pointers...)
					if diff := w.differs(t, g, a, unknown, seen); diff != "" {
						t.Fatalf("seed %d: %s\nunknown %v\n%s%s", g.seed, diff, unknown, w, a)
					}
				}
			})
			for what, percent := range map[string]int{"possible": 8, "found": 5, "denied although read": 5} {
				seen.atLeast(t, what, percent)
			}
			if 100*seen["not found"] > 35*seen["possible"] {
				t.Errorf("of %d possible ones, no value was found for %d", seen["possible"], seen["not found"])
			}
		})
	}
}

// TestPropertyUnknownInABatch: items that share what they inherit, and do not know this or that of it, have the answers
// that they have alone.
func TestPropertyUnknownInABatch(t *testing.T) {
	t.Parallel()
	seen := tally{}
	for _, makes := range []func(*testing.T, *generator) possibleWorld{possibleOfObliged, possibleOfWordy, possibleOfTyped} {
		eachSeed(t, 60, func(t *testing.T, g *generator) {
			g.prefixed = g.seed%3 == 1
			w := makes(t, g)
			for range 3 {
				if diff := w.batchDiffers(t, g, w.ask(), w.ask(), seen); diff != "" {
					t.Fatalf("seed %d: %s\n%s", g.seed, diff, w)
				}
			}
		})
	}
	seen.atLeast(t, "possible", 15)
	seen.atLeast(t, "impossible", 15)
	seen.atLeast(t, "decided", 15)
}

// batchDiffers asks about one request many times, and about parts of another beside it.
func (w possibleWorld) batchDiffers(t *testing.T, g *generator, a, b asked, seen tally) string {
	t.Helper()
	members, others := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal([]byte(a.body()), &members), json.Unmarshal([]byte(b.body()), &others)); err != nil {
		t.Fatal(err)
	}
	options := func() any { return map[string]any{"unknown": some(g, oneOf(g, 0, 6, 20), w.pointers...)} }
	var items []any
	for range 12 {
		item := map[string]any{}
		for _, name := range []string{"subject", "action", "resource", "context"} {
			if g.chance(20) {
				item[name] = others[name]
			}
		}
		if g.chance(60) {
			item["options"] = oneOf[any](g, options(), options(), options(), map[string]any{})
		}
		items = append(items, item)
	}
	members["evaluations"], members["options"] = json.RawMessage(jsonText(items)), json.RawMessage(jsonText(options()))
	batch, err := evaluation.DecodeBatch([]byte(jsonText(members)), a.tenant, evaluation.DefaultLimits())
	must(t, err)
	p := Of(w.bundle, Options{Now: func() time.Time { return propertyTime }})
	all, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: batch, Explain: true})
	must(t, err)
	for n, item := range batch.Items {
		got := all.Items[n]
		want, err := p.Evaluate(t.Context(), Call{Request: item.Request, Explain: true})
		if err != nil || got.Malformed != nil {
			if err == nil || got.Malformed == nil {
				return fmt.Sprintf("item %d of %s: in the batch %v, and alone %v", n, jsonText(members), got.Malformed, err)
			}
			continue
		}
		seen.count("possible", got.Possible == evaluation.Possible)
		seen.count("impossible", got.Possible == evaluation.Impossible)
		seen.count("decided", got.Possible == evaluation.Decided)
		got.ID, want.ID, got.Mismatch, want.Mismatch = "", "", nil, nil
		got.Explain.Mismatch, want.Explain.Mismatch = nil, nil // their pointers are into the batch
		if !reflect.DeepEqual(got, want) {
			return whereDiffers(fmt.Sprintf("item %d of %s", n, jsonText(members)), fmt.Sprintf("%+v %+v", want, want.Explain), fmt.Sprintf("%+v %+v", got, got.Explain))
		}
	}
	return ""
}

// possibleOfObliged has indexes, parents, obligations and a tenant.
func possibleOfObliged(t *testing.T, g *generator) possibleWorld {
	o := g.obliged(8)
	for n := range 4 {
		o.policies = append(o.policies, g.curious(fmt.Sprintf("x%d", n)))
	}
	return possibleWorld{
		Stringer: o, bundle: o.load(t),
		ask: func() asked {
			a := g.question(o.world)
			if g.chance(50) {
				a = a.with(inContext, "arguments", oneOf(g, `{"amount":5,"to":"bob"}`, `{"to":"eve"}`, `{}`, `"x"`, `{"amount":0.5,"to":"bob"}`))
			}
			return a
		},
		pointers: []string{
			"/context", "/context/arguments", "/context/arguments", "/context/arguments/amount", "/context/arguments/to", "/context/pdp/approved",
			"/context/n", "/context/s", "/context/flag", "/context/groups/0", "/subject/properties/roles", "/subject/properties/n",
			"/resource/properties/folders", "/resource/properties", "/resource/properties/opt", "/action/properties/x",
		},
		values: []any{
			1, 5, 2, 200, "a", "b", "bob", "eve", true, false, []any{"g0"}, []any{"g1", "g2"}, []any{"f0"}, []any{"g3", "g4", "h9"}, []any{"f1", "f2", "f3"},
			map[string]any{"amount": 5, "to": "bob"}, map[string]any{"amount": 200, "to": "eve"}, map[string]any{"n": 1}, map[string]any{"opt": 1}, []any{}, map[string]any{},
			map[string]any{"folders": []any{"f0", "f1"}, "n": 1}, map[string]any{"flag": true, "n": 1, "s": "a", "arguments": map[string]any{"amount": 5, "to": "bob"}},
		},
	}
}

// curious makes a policy that reads arguments, and whether there is an approval.
func (g *generator) curious(id string) policyText {
	condition := func() string {
		return oneOf(g, "context.arguments.amount < 100", `context.arguments.to == "bob"`, `context has arguments && context.arguments has amount`,
			`context.arguments has "to" && context.arguments.to like "e*"`, "context.pdp.approved", "!context.pdp.approved", "context has arguments",
			"context.arguments has other", `context.arguments == {"to": "eve"}`, "context.n == 1", "context.action has x", "principal.n < 2", `resource.opt == 1`,
			`(if context.pdp.approved then context.flag else context.arguments.amount > 3)`)
	}
	join := oneOf(g, " && ", " || ")
	obligation := oneOf(g, "", "", `@obligation("approval_required") `, `@obligation("log") `)
	effect := oneOf(g, "permit", "permit", "forbid")
	if effect == "forbid" {
		obligation = ""
	}
	return policyText{id: id, text: fmt.Sprintf("%s@id(%q) %s (principal, action, resource) %s { %s%s%s };", obligation, id,
		effect, oneOf(g, "when", "when", "unless"), condition(), join, condition())}
}

// possibleOfWordy has conditions with every operator.
func possibleOfWordy(t *testing.T, g *generator) possibleWorld {
	w := g.wordy()
	values := []any{}
	for _, v := range usableValues {
		values = append(values, v)
	}
	return possibleWorld{
		Stringer: w, bundle: w.load(t), ask: func() asked {
			a, _ := g.unusable()
			if a.resource == a.subject && g.chance(50) { // a record that the subject may send, too
				a = a.with(inResource, "r", oneOf(g, `{"n":1}`, `{"n":1,"s":"a"}`)).with(inSubject, "r", oneOf(g, "", "", `{"s":"a"}`))
			}
			return a
		},
		pointers: []string{
			"/context/n", "/context/s", "/context/b", "/context/l", "/context/l/0", "/context/r", "/context/r/n", "/context/r/r/s", "/context", "/action/properties",
			"/action/properties/n", "/subject/properties/n", "/subject/properties/s", "/subject/properties/r/n", "/resource/properties/b", "/resource/properties/r",
			"/resource/properties", "/context/m n", "/subject/properties/owner", "/subject/properties/l/0", "/subject/properties", "/context/r/r", "/resource/properties/r/r/s", "/context/l/0/n",
		},
		values: values,
	}
}

const possibleSchema = `
entity Group; entity Color enum ["red", "green"];
entity User in [Group, Color] = { level: Long, groups?: Set<String>, color: String, profile?: { city: String, zip?: Long } };
entity Doc = { owner?: User, size: Long, labels: { impact: String, area?: String } };
action read, write appliesTo { principal: User, resource: [Doc, User], context: {
  arguments: { amount: Long, to?: String, list?: Set<Long> }, note?: String, more?: { deep: { a: Long, b?: Bool } }, by: User, day: datetime } };
`

// possibleOfTyped has a schema, with required and optional members.
func possibleOfTyped(t *testing.T, g *generator) possibleWorld {
	condition := func() string {
		return oneOf(g, "context.arguments.amount < 100", `context.arguments has "to" && context.arguments.to == "bob"`, "context has note", `context.by == User::"u0"`,
			"context.by.level > 3", "principal.level > 3", `principal in Group::"g0"`, `principal in Color::"red"`, `principal has profile && principal.profile.city == "a"`,
			`resource is Doc && resource.labels.impact == "low"`, `resource is Doc && resource has owner && resource.owner.level > 1`, "context.pdp.approved",
			"context has more && context.more.deep.a == 1", "context has more && context.more.deep has b && context.more.deep.b", `context.arguments has list && context.arguments.list.contains(1)`,
			`context.day > datetime("2026-01-01")`, `principal has groups && principal.groups.contains("g0")`, `resource is Doc && resource.labels has area`)
	}
	var text strings.Builder
	for n := range 4 {
		effect := oneOf(g, "permit", "permit", "forbid")
		if n == 0 {
			effect = "permit"
		}
		fmt.Fprintf(&text, "@id(\"p%d\") %s (principal%s, action, resource) when { %s%s(%s) };\n", n, effect,
			oneOf(g, "", "", ` in Group::"g0"`, ` in Color::"green"`), condition(), oneOf(g, " && ", " || "), condition())
	}
	files := fstest.MapFS{
		"p.cedar": {Data: []byte(text.String())}, "schema.cedarschema": {Data: []byte(possibleSchema)},
		"bundle.yaml": {Data: []byte("allow_trivial: true\nparents: {User: {groups: Group, color: Color}}\n" +
			oneOf(g, "", "unknown_entities: evaluate\n") + oneOf(g, "", "unknown_properties: reject\n") + oneOf(g, "", "attributes: {User: request, Doc: store}\n"))},
		"entities/e.json": {Data: []byte(`[{"uid":{"type":"User","id":"u0"},"attrs":{"level":5,"color":"red"},"parents":[{"type":"Group","id":"g0"}]},
			{"uid":{"type":"Group","id":"g0"},"attrs":{},"parents":[]},{"uid":{"type":"Doc","id":"d0"},"attrs":{"size":1,"labels":{"impact":"low"}},"parents":[]}]`)},
	}
	b, problems := Load(FS(files))
	if problems.Refuse() {
		t.Fatalf("%s\n%s", problems.Error(), text.String())
	}
	return possibleWorld{
		Stringer: textFiles{files}, bundle: b, ask: g.typedQuestion,
		pointers: []string{
			"/context/arguments", "/context/arguments/amount", "/context/arguments/to", "/context/arguments/list/0", "/context/note", "/context/more", "/context/more/deep/a",
			"/context/more/deep/b", "/context/by", "/context/by/id", "/context/day", "/context/odd", "/context/pdp/approved", "/subject/properties/level", "/subject/properties/groups",
			"/subject/properties/color", "/subject/properties/profile/city", "/subject/properties", "/resource/properties/owner", "/resource/properties/labels/impact", "/resource/properties",
		},
		values: []any{
			1, 5, 200, "low", "high", "a", "bob", "u0", "red", "green", "2026-05-05", true, []any{"g0"}, []any{1}, []any{},
			map[string]any{"amount": 1, "to": "bob", "list": []any{1}}, map[string]any{"amount": 200}, map[string]any{"deep": map[string]any{"a": 1, "b": true}},
			map[string]any{"type": "User", "id": "u0"}, map[string]any{"city": "a"}, map[string]any{"impact": "low", "area": "x"},
			map[string]any{"level": 5, "color": "red", "groups": []any{"g0"}, "profile": map[string]any{"city": "a"}}, map[string]any{"level": 5, "color": "green"},
			map[string]any{"size": 1, "labels": map[string]any{"impact": "low", "area": "x"}, "owner": "u0"},
		},
		fitting: map[string]any{
			"/context/arguments": map[string]any{"amount": 1, "to": "bob", "list": []any{1}}, "/context/arguments/amount": 1, "/context/by": "u0", "/context/day": "2026-05-05",
			"/context/by/id": "u0", "/context/odd": nil, "/context/note": "n", "/context/more/deep/b": true, "/context/arguments/to": "bob", "/context/arguments/list/0": 1,
			"/subject/properties/profile/city": "a", "/subject/properties/groups": []any{"g0"}, "/resource/properties/owner": "u0",
			"/context/more/deep/a": 1, "/subject/properties/level": 5, "/subject/properties/color": "red", "/resource/properties/labels/impact": "low",
			"/subject/properties": map[string]any{"level": 5, "color": "red"}, "/resource/properties": map[string]any{"size": 1, "labels": map[string]any{"impact": "low"}},
		},
	}
}

type textFiles struct{ fstest.MapFS }

func (f textFiles) String() string {
	var b strings.Builder
	for _, name := range []string{"p.cedar", "bundle.yaml"} {
		b.WriteString(string(f.MapFS[name].Data))
	}
	return b.String()
}

// typedQuestion makes a request that fits the schema, but for missing or wrong members.
func (g *generator) typedQuestion() asked {
	a := asked{action: oneOf(g, "read", "write"), subject: [2]string{"User", oneOf(g, "u0", "u1")}, resource: [2]string{"Doc", oneOf(g, "d0", "d1")}}
	put := func(at place, name string, percent int, of ...string) {
		if g.chance(percent) {
			a = a.with(at, name, oneOf(g, of...))
		}
	}
	put(inContext, "arguments", 75, `{"amount":5}`, `{"amount":500,"to":"bob","list":[2]}`, `{"to":"x"}`, `{"amount":"x"}`)
	put(inContext, "note", 40, `"n"`, `"n"`, "7")
	put(inContext, "more", 40, `{"deep":{"a":1}}`, `{"deep":{"b":true}}`, `{}`)
	put(inContext, "by", 85, `"u0"`, `{"type":"User","id":"u1"}`)
	put(inContext, "day", 85, `"2026-02-02"`)
	put(inContext, "odd", 10, "1")
	put(inSubject, "level", 85, "1", "7")
	put(inSubject, "color", 85, `"red"`, `"green"`, `"green"`, `"blue"`)
	put(inSubject, "groups", 40, `["g0"]`, "[]")
	put(inSubject, "profile", 30, `{"city":"b"}`, `{"zip":1}`)
	put(inResource, "size", 90, "3")
	put(inResource, "labels", 85, `{"impact":"low"}`, `{"impact":"high","area":"y"}`)
	put(inResource, "owner", 30, `"u0"`, `"u1"`)
	if g.chance(10) { // one entity is both
		a.resource, a.members[inResource] = a.subject, map[string]string{}
	}
	return a
}

// differs holds one answer to the decisions with values.
func (w possibleWorld) differs(t *testing.T, g *generator, a asked, unknown []string, seen tally) string {
	t.Helper()
	p := Of(w.bundle, Options{NewID: func() string { return "id" }})
	call := a.with(inContext, "supported_obligations", jsonText(obligations.Types())).call(t)
	var err error
	asks := call
	if asks.Request.Unknown, err = evaluation.UnknownAt(unknown...); err != nil {
		t.Fatal(err)
	}
	got, err := p.Evaluate(context.Background(), asks)
	if err != nil {
		asks = asks.withAll(unknown, evaluation.Value{})
		if _, err := p.Evaluate(context.Background(), asks); err == nil {
			return "refused, and not without what is there"
		}
		got = evaluation.Decision{} // as the item of a batch
	}
	if len(got.Obligations)+len(got.Required) > 0 || got.Approval != nil || got.Access != nil || got.ReasonUser != "" {
		return fmt.Sprintf("the answer says too much: %+v", got)
	}
	again := asks.withAll(unknown, value(oneOf(g, w.values...)))
	if other, err := p.Evaluate(context.Background(), again); err == nil && outcome(other) != outcome(got) {
		return whereDiffers("what the request has there makes a difference", outcome(got), outcome(other))
	}
	found := w.found(g, p, call, unknown)
	reads := w.reads(call, unknown)
	possible := got.Possible == evaluation.Possible
	seen.count("possible", possible)
	seen.count("found", found)
	seen.count("denied although read", !possible && reads)
	seen.count("not found", possible && !found)
	switch {
	case got.Allow:
		return "what is possible is an allow: " + outcome(got)
	case found && !possible:
		return "impossible, although a value is permitted: " + outcome(got)
	case possible && !found && !reads:
		return "possible, although no value is permitted, and no policy reads what is unknown"
	}
	return ""
}

func value(v any) evaluation.Value {
	o, err := evaluation.NewObject(map[string]any{"v": v})
	if err != nil {
		panic(err)
	}
	made, _ := o.Get("v")
	return made
}

// isAt is the value at a place of a request, and whether there is one.
func isAt(r evaluation.Request, at string) (evaluation.Value, bool) {
	v := evaluation.Object{}.With("subject", evaluation.Object{}.With("properties", r.Subject.Properties.Value()).Value()).
		With("action", evaluation.Object{}.With("properties", r.Action.Properties.Value()).Value()).
		With("resource", evaluation.Object{}.With("properties", r.Resource.Properties.Value()).Value()).
		With("context", r.Context.Value()).Value()
	for _, name := range evaluation.Tokens(at) {
		next, ok := v.Object().Get(name)
		if n, err := strconv.Atoi(name); err == nil && v.Kind() == evaluation.Array {
			for m, e := range v.Elements {
				if m == n {
					next, ok = e, true
				}
			}
		}
		if !ok {
			return v, false
		}
		v = next
	}
	return v, true
}

// withAll puts one value at all places where there is one.
func (c Call) withAll(unknown []string, v evaluation.Value) Call {
	for _, at := range unknown {
		_, is := isAt(c.Request, at)
		above, _ := isAt(c.Request, at[:strings.LastIndexByte(at, '/')])
		if is && (above.Kind() != evaluation.Array || v.Kind() != evaluation.Null) { // no element is absent
			c.Request = putAt(c.Request, at, v)
		}
	}
	return c
}

// found looks for values that are permitted.
func (w possibleWorld) found(g *generator, p *PDP, call Call, unknown []string) bool {
	for try := range 100 + len(w.values) {
		one := call
		for n, at := range unknown {
			switch {
			case at == "/context/pdp/approved":
				if try%2 == 1 {
					one.Approved = "an approval"
				}
			case try < 100 && (try%4 == 0 || g.chance(30)):
				one = one.withAll(unknown[n:n+1], evaluation.Value{})
			default:
				v, fits := w.fitting[at]
				switch other, is := isAt(call.Request, elsewhere(at)); {
				case try >= 100 && n == 0: // each value once, at the first place
					v = w.values[try-100]
				case is && g.chance(20):
					v = other
				case !fits || g.chance(25):
					v = oneOf(g, w.values...)
				}
				if _, is := one.Request.Context.Get("by"); at == "/context/by/id" && !is { // a required member above a place may be there
					one.Request = putAt(one.Request, "/context/by/type", value("User"))
				}
				one.Request = putAt(one.Request, at, value(v))
			}
		}
		if _, ok := one.Request.Context.Get("supported_obligations"); !ok {
			one.Registered, one.Obligations = true, obligations.Types()
		}
		if d, err := p.Evaluate(context.Background(), one); err == nil && d.Allow {
			return true
		}
	}
	return false
}

// elsewhere is the place at which the resource sends the value that the subject sends at this one, or the other way round.
func elsewhere(at string) string {
	if rest, ok := strings.CutPrefix(at, "/subject/"); ok {
		return "/resource/" + rest
	}
	rest, _ := strings.CutPrefix(at, "/resource/")
	return "/subject/" + rest
}

// giveParents are the properties that give parents in any of the worlds.
var giveParents = map[string]bool{"roles": true, "folders": true, "groups": true, "color": true}

// reads reports whether a policy that can apply reads what is at an unknown place, what is around it or in it, or whether
// it or something beside it is there; or asks for parents that it may give.
func (w possibleWorld) reads(call Call, unknown []string) bool {
	in := inquire(w.bundle, &call)
	v := viewOf(w.bundle, call)
	q, err := in.Question(v)
	return err != nil || slices.ContainsFunc(unknown, func(at string) bool {
		names := evaluation.Tokens(at)
		root := map[string]string{"subject": "principal", "resource": "resource"}[names[0]]
		switch names = names[1:]; {
		case root != "":
			names = names[1:]
		case strings.HasPrefix(at, "/action"):
			root, names = "context", append([]string{"action"}, names[1:]...)
		default:
			root = "context"
		}
		for _, p := range v.Policies {
			gives := root != "context" && (len(names) == 0 || giveParents[names[0]])
			if gives && strings.Contains(string(p.Cedar.MarshalCedar()), " in ") {
				return true
			}
			for _, d := range p.Obliges {
				if text, _ := d.Properties.MarshalJSON(); root == "context" && len(names) > 0 && strings.Contains(string(text), "${context."+names[0]+"}") {
					return true
				}
			}
			if (gives || q.Reason != "" || q.Up.Considers(p)) && readsAt(p, root, names) {
				return true
			}
		}
		return false
	})
}

// readsAt is the same for one policy.
func readsAt(p *bundle.Policy, root string, names []string) bool {
	if root == "context" && p.Facts.Whole {
		return true
	}
	if slices.ContainsFunc(p.Terms(), readsFromNoPath) { // then the names alone are known
		if len(names) == 0 {
			return true
		}
		_, read := p.Facts.ReadNames[names[0]]
		_, tested := p.Facts.HasNames[names[0]]
		return read || tested
	}
	return slices.ContainsFunc(p.Facts.Reads, func(path bundle.AttributePath) bool {
		if path.Root != root { // through a reference, or one entity is both
			return root != "context" && (len(names) == 0 || slices.Contains(path.Names, names[0]))
		}
		common := 0
		for common < min(len(names), len(path.Names)) && names[common] == path.Names[common] {
			common++
		}
		beside := path.Has && common > 0 && common == len(path.Names)-1
		return common == len(names) || common == len(path.Names) || beside || root != "context" && slices.Contains(path.Names[1:], names[0])
	})
}

// readsFromNoPath reports whether a term reads an attribute of something that is no path.
func readsFromNoPath(t *bundle.Term) bool {
	return t.Op == bundle.OpRead || slices.ContainsFunc(t.Args, readsFromNoPath)
}
