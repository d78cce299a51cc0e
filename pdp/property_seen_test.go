package pdp

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
)

// TestPropertySeen holds the answers about what policies can see to the answers about all that a request has: they are
// the same, with all that they say.
func TestPropertySeen(t *testing.T) {
	t.Parallel()
	for name, makes := range seenWorlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := tally{}
			eachSeed(t, 150, func(t *testing.T, g *generator) {
				g.prefixed = g.seed%3 == 1
				w := makes(t, g)
				all := seeingAllOf(w.bundle)
				for range 12 {
					call := g.anyCall(t, w)
					seen.count("not all is seen", seesLess(w.bundle, call))
					if diff := seenDiffers(t, w.bundle, all, call, seen); diff != "" {
						t.Fatalf("seed %d: %s\n%s%+v", g.seed, diff, w, call)
					}
				}
			})
			seen.atLeast(t, "allowed", 2)
			if name != "typed" { // with a schema all of it is converted, and little errs
				seen.atLeast(t, "not all is seen", 40)
				seen.atLeast(t, "errors", 5)
			}
		})
	}
}

// TestPropertySeenFaults shows that TestPropertySeen finds out if too little is converted.
func TestPropertySeenFaults(t *testing.T) {
	t.Parallel()
	for name, makes := range seenWorlds {
		if name == "typed" { // then everything is converted
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100) {
				g := newGenerator(seed)
				w := makes(t, g)
				all := seeingAllOf(w.bundle)
				for _, v := range w.bundle.Views {
					v.Seen = new(bundle.Sight)
				}
				for range 12 {
					if seenDiffers(t, w.bundle, all, g.anyCall(t, w), tally{}) != "" {
						return
					}
				}
			}
			t.Error("no generated request shows that nothing is converted")
		})
	}
}

var seenWorlds = map[string]func(*testing.T, *generator) possibleWorld{
	"few": func(t *testing.T, g *generator) possibleWorld {
		w := g.world(1 + g.IntN(4))
		return possibleWorld{Stringer: w, bundle: w.load(t), ask: func() asked { return g.question(w) }, pointers: []string{"/context/n", "/subject/properties/opt"}}
	},
	"obliged": possibleOfObliged, "wordy": possibleOfWordy, "typed": possibleOfTyped,
}

// anyCall makes a call of any kind.
func (g *generator) anyCall(t *testing.T, w possibleWorld) Call {
	call := w.ask().by(t, g.declaration())
	call.Explain = g.chance(70)
	if g.chance(20) {
		call = call.native()
	}
	switch g.IntN(6) {
	case 0:
		call.Hidden = g.hide(call.Request)
	case 1:
		var err error
		if call.Request.Unknown, err = evaluation.UnknownAt(some(g, 12, w.pointers...)...); err != nil {
			t.Fatal(err)
		}
	}
	return call
}

// seenDiffers says in what the answers of two bundles differ: to a call, and to a search and a batch about the same.
func seenDiffers(t *testing.T, b, all *Bundle, call Call, seen tally) string {
	t.Helper()
	options := Options{NewID: func() string { return "id" }, Now: func() time.Time { return propertyTime }}
	p, full := Of(b, options), Of(all, options)
	got, err1 := p.Evaluate(t.Context(), call)
	want, err2 := full.Evaluate(t.Context(), call)
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err1, err2) {
		return whereDiffers("decisions", answerText(want, err2), answerText(got, err1))
	}
	seen.count("allowed", got.Allow)
	seen.count("errors", len(got.Errors) > 0)
	if len(call.Hidden) > 0 {
		return ""
	}
	other := call.Request
	other.Resource.Properties, other.Context = evaluation.Object{}, other.Context.Without(func(name string) bool { return name == "s" })
	batch := BatchCall{Batch: evaluation.Batch{Items: []evaluation.Item{{Request: call.Request}, {Request: other}, {Request: call.Request}}}, Explain: true}
	gots, err1 := p.EvaluateBatch(t.Context(), batch)
	wants, err2 := full.EvaluateBatch(t.Context(), batch)
	if !reflect.DeepEqual(gots, wants) || !reflect.DeepEqual(err1, err2) {
		return whereDiffers("batches", answerText(wants, err2), answerText(gots, err1))
	}
	search := SearchCall{Search: evaluation.Search{Kind: evaluation.ResourceSearch, Request: call.Request}, Limit: 10}
	found, err1 := p.Search(t.Context(), search)
	wanted, err2 := full.Search(t.Context(), search)
	if !reflect.DeepEqual(found, wanted) || !reflect.DeepEqual(err1, err2) {
		return whereDiffers("searches", answerText(wanted, err2), answerText(found, err1))
	}
	return ""
}

func answerText(answer any, err error) string {
	text, bad := json.Marshal(answer)
	return fmt.Sprintf("%s %v%v", text, err, bad)
}

// seesLess reports whether the policies are asked about less than the request has.
func seesLess(b *Bundle, call Call) bool {
	v := viewOf(b, call)
	in := inquire(b, &call)
	q, err := in.Question(v)
	all, _ := questionOf(b, v, call)
	return err == nil && (q.Context.Len() < all.Context.Len() || q.Entities.Principal.Attributes.Len() < all.Entities.Principal.Attributes.Len())
}

// seeingAllOf is a bundle whose policies are asked about everything.
func seeingAllOf(b *Bundle) *Bundle {
	all := *b
	all.Views = maps.Clone(b.Views)
	for tenant, v := range all.Views {
		all.Views[tenant] = seeingAll(v)
	}
	return &all
}

// Whatever way a policy has to look at a value, it is asked about the value. Each permit here applies if, and only if,
// the value is there as it was sent.
func TestWhatAPolicyLooksAtIsConverted(t *testing.T) {
	t.Parallel()
	const none = "permit (principal, action, resource)"
	for condition, with := range map[string]string{
		`context.a == 1`: none, `context has a`: none, `context.r.x == "y"`: none, `context has r.x`: none, `context["m n"] == true`: none,
		`context == {a: 1, l: ["u"], "m n": true, r: {x: "y"}, action: {how: "fast"}, pdp: context.pdp}`: none,
		`(if principal == resource then {a: 2} else context).a == 1`:                                     none,
		`[context].contains(context) && context has a`:                                                   none,
		`{c: context}.c.a == 1`: none, `context.l.contains("u")`: none, `context.action.how == "fast"`: none, `context.action == {how: "fast"}`: none,
		`context.pdp.tenant == "default"`: none, `context.pdp == {now: datetime("2026-03-04T10:00:00Z"), tenant: "default", caller: "", approved: false,` +
			` subject: {type: "User", id: "u"}, resource: {type: "Doc", id: "d"}, capability: {held: false, id: "", depth: 0}}`: none,
		`context.pdp has approved`: none, `context.pdp.resource.id == "d"`: none, `context.pdp.resource == {type: "Doc", id: "d"}`: none,
		`(if principal == resource then context.r else context.pdp) has capability.held`: none,
		`principal.level == 3`: none, `principal has level`: none, `principal["level"] == 3`: none, `User::"u".level == 3`: none,
		`resource.owner.level == 3`: none, `(if principal == resource then resource else principal).level == 3`: none,
		`[{of: principal}].contains({of: principal}) && {of: principal}.of.level == 3`: none, `resource.owner has level`: none,
		`resource.colour like "r*"`: none, `resource has colour && principal.kept == 1`: none, `principal.getTag("t") == "x" && principal.level == 3`: none,
		`principal in Team::"red"`: none,
	} {
		b := bundleOfFiles(t, map[string]string{
			"bundle.yaml": "parents: {User: {team: Team}}\n",
			"p.cedar":     with + " when { " + condition + " };",
			"entities/e.json": `[{"uid":{"type":"User","id":"u"},"attrs":{"kept":1,"more":2},"parents":[],"tags":{"t":"x"}},
				{"uid":{"type":"Doc","id":"d"},"attrs":{"owner":{"__entity":{"type":"User","id":"u"}}},"parents":[]}]`,
		})
		r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"User","id":"u","properties":{"level":3,"team":"red","unread":[1]}},"action":{"name":"read","properties":{"how":"fast"}},
			"resource":{"type":"Doc","id":"d","properties":{"colour":"red"}},"context":{"a":1,"l":["u"],"m n":true,"r":{"x":"y"}}}`), "", evaluation.DefaultLimits())
		must(t, err)
		d, err := decideBy(t.Context(), b, Call{Request: r, Now: propertyTime})
		if err != nil || !d.Allow {
			t.Errorf("%s: %v %+v", condition, err, d)
		}
	}
}

// What no policy of a tenant can see is not converted, and says all the same whether it is unusable.
func TestWhatNoPolicySeesIsNotConverted(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"p.cedar":              `permit (principal, action, resource) when { context.a == 1 && principal.level > 0 && context.pdp.tenant != "" };`,
		"tenants/acme/q.cedar": `@obligation("say") permit (principal, action, resource) when { resource has colour };`,
		"tenants/acme/obligations.yaml": `say: {type: log, on: both, properties: {text: "${context.told}"}}
`,
		"entities/e.json": `[{"uid":{"type":"User","id":"u"},"attrs":{"kept":1,"more":2},"parents":[]}]`,
	}
	b := bundleOfFiles(t, files)
	for tenant, want := range map[string][3]string{
		evaluation.DefaultTenant: {"[a pdp]", "[level]", "[]"},
		"acme":                   {"[a pdp told]", "[level]", "[colour]"},
	} {
		r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"User","id":"u","properties":{"level":3,"other":[0.5]}},"action":{"name":"read","properties":{"x":0.5}},
			"resource":{"type":"Doc","id":"d","properties":{"colour":"red","size":3}},"context":{"a":1,"b":2,"c":1e99,"told":"it"}}`), tenant, evaluation.DefaultLimits())
		must(t, err)
		call := Call{Request: r, Now: propertyTime}
		in := inquire(b, &call)
		q, err := in.Question(viewOf(b, call))
		must(t, err)
		got := [3]string{
			fmt.Sprint(slices.Sorted(q.Context.Keys())), fmt.Sprint(slices.Sorted(q.Entities.Principal.Attributes.Keys())),
			fmt.Sprint(slices.Sorted(q.Entities.Resource.Attributes.Keys())),
		}
		pdp, _ := q.Context.Get("pdp")
		if got != want || pdp.String() != fmt.Sprintf(`{"tenant":%q}`, tenant) {
			t.Errorf("%s: converted are %q and %s of context.pdp, want %q", tenant, got, pdp, want)
		}
		for _, path := range []bundle.AttributePath{
			{Root: "context", Names: []string{"action", "x"}}, {Root: "context", Names: []string{"c"}}, {Root: "principal", Names: []string{"other"}},
		} {
			if _, counts := q.Unusable.Meets(path); counts || !reads(q, path) {
				t.Errorf("%s: %s is not unusable", tenant, path)
			}
		}
		if one := (bundle.AttributePath{Root: "resource", Names: []string{"size"}}); reads(q, one) {
			t.Errorf("%s: %s is unusable", tenant, one)
		}
	}
}
