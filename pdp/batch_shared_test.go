package pdp

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/pdptest/night"
)

func decodeBatch(t *testing.T, defaults string, items ...string) evaluation.Batch {
	t.Helper()
	batch, err := evaluation.DecodeBatch([]byte(`{`+defaults+`,"evaluations":[`+strings.Join(items, ",")+`]}`), "", evaluation.DefaultLimits())
	must(t, err)
	return batch
}

// bundleFrom is the bundle of a source.
func bundleFrom(t testing.TB, from Source) *Bundle {
	t.Helper()
	b, problems := Load(from)
	if problems.Refuse() {
		t.Fatal(problems)
	}
	return b
}

func bundleOfFiles(t *testing.T, files map[string]string) *Bundle {
	t.Helper()
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return bundleFrom(t, FS(all))
}

// allocated is how many bytes f allocates: work that no other work on the machine hides.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestWhatItemsShareIsConvertedOnce: a hundred items cost little more than two, whatever is
// wrong with what they inherit, and whichever actions take turns.
func TestWhatItemsShareIsConvertedOnce(t *testing.T) {
	night.Measures(t)
	plain := bundleOfFiles(t, map[string]string{"p.cedar": `permit(principal is user, action, resource) when { context.k1 == 1 };`})
	strict := bundleOfFiles(t, map[string]string{
		"bundle.yaml":        "unknown_properties: reject\n",
		"schema.cedarschema": `entity user, doc { list?: Set<String> }; action "r" appliesTo { principal: user, resource: [doc, user], context: { list?: Set<String> } };`,
		"p.cedar":            `permit(principal is user, action, resource is doc);`,
	})
	var members, texts []string
	for n := range 4000 {
		members, texts = append(members, fmt.Sprintf(`"k%d":%d`, n, n)), append(texts, fmt.Sprintf(`"t%d"`, n))
	}
	many, list := strings.Join(members, ","), `"list":[`+strings.Join(texts, ",")+`]`
	ask := func(subject, resource, context string) string {
		return `"subject":{"type":"user","id":"a","properties":{` + subject + `}},"action":{"name":"r"},"resource":{` + resource + `},"context":{` + context + `}`
	}
	doc := `"type":"doc","id":"1"`
	for name, c := range map[string]struct {
		bundle         *Bundle
		defaults, item string
	}{
		"values":                         {plain, ask("", doc, many), `{}`},
		"a value that is unusable":       {plain, ask("", doc, many+`,"x":0.5`), `{}`},
		"a property that is":             {plain, ask(many+`,"x":0.5`, doc, ""), `{}`},
		"many that are":                  {plain, ask("", doc, strings.ReplaceAll(many, `":`, `":0.`)), `{}`},
		"actions that take turns":        {plain, ask("", doc, many+`,"x":0.5`), `{"action":{"name":"w"}}`},
		"resources that take turns":      {plain, ask("", doc+`,"properties":{`+many+`,"x":0.5}`, ""), `{"resource":{"id":"2"}}`},
		"subjects that take turns":       {plain, ask(many+`,"x":0.5`, doc, ""), `{"subject":{"id":"a","properties":{"k1":1}}}`},
		"contexts that take turns":       {plain, ask("", doc, many+`,"x":0.5`), `{"context":{"k1":0.5}}`},
		"one entity":                     {plain, ask(many, `"type":"user","id":"a","properties":{"k1":1}`, ""), `{}`},
		"one entity that is unusable":    {plain, ask(many+`,"x":0.5`, `"type":"user","id":"a","properties":{"k1":1}`, ""), `{}`},
		"what is refused":                {strict, ask("", doc, list+`,"x":1`), `{}`},
		"a property that is refused":     {strict, ask(list+`,"x":1`, doc, ""), `{}`},
		"what does not fit":              {strict, ask("", doc, strings.Replace(list, `"t3999"`, `7`, 1)), `{}`},
		"a reserved name in another one": {plain, ask("", doc, many), `{},{"context":{"__entity":1}}`},
		"a reserved name in it":          {plain, ask("", doc, many+`,"z":{"__entity":1}`), `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := Of(c.bundle, Options{})
			cost := func(items int) int {
				text := slices.Repeat([]string{`{}`, c.item}, items/2)
				return allocated(func() {
					got, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: decodeBatch(t, c.defaults, text...)})
					if err != nil || len(got.Items) < items {
						t.Fatalf("%d answers, %v", len(got.Items), err)
					}
				})
			}
			cost(2)
			few, all := cost(2), cost(102)
			t.Logf("2 items allocate %d bytes, 102 items %d", few, all)
			if each := (all - few) / 100; each > 100_000 {
				t.Errorf("2 items allocate %d bytes, 102 items %d: %d each", few, all, each)
			}
		})
	}
}

// What does not fit of what items share is described once, and of the candidates of a search not at all.
func TestMisfitsAreDescribedOnce(t *testing.T) { // not in parallel, because it counts allocations
	var members, users []string
	for n := range 500 {
		members = append(members, fmt.Sprintf(`"k%d": Long`, n))
		users = append(users, fmt.Sprintf(`{"uid":{"type":"user","id":"u%d"},"attrs":{},"parents":[]}`, n))
	}
	p := Of(bundleOfFiles(t, map[string]string{
		"schema.cedarschema": `entity user, doc; action "r" appliesTo { principal: user, resource: doc, context: { ` + strings.Join(members, ",") + ` } };`,
		"p.cedar":            `permit(principal is user, action, resource is doc);`,
		"entities/e.json":    "[" + strings.Join(users, ",") + "]",
	}), Options{})
	const about = `"action":{"name":"r"},"resource":{"type":"doc","id":"1"}`
	batch := func(items int) float64 {
		return testing.AllocsPerRun(1, func() {
			call := BatchCall{Batch: decodeBatch(t, `"subject":{"type":"user","id":"a"},`+about, slices.Repeat([]string{`{}`}, items)...)}
			got, err := p.EvaluateBatch(t.Context(), call)
			if must(t, err); len(got.Items) != items || len(got.Items[items-1].Mismatch) != 16 {
				t.Fatalf("%d answers", len(got.Items))
			}
		})
	}
	if one := (batch(200) - batch(100)) / 100; one > 100 {
		t.Errorf("an item allocates %.0f times", one)
	}
	search := SearchCall{Limit: 500, Search: evaluation.Search{Kind: evaluation.SubjectSearch, Request: decodeBatch(t, `"subject":{"type":"user","id":"a"},`+about, `{}`).Items[0].Request}}
	if all := testing.AllocsPerRun(1, func() {
		got, err := p.Search(t.Context(), search)
		if must(t, err); got.Examined != 500 || len(got.Found) > 0 {
			t.Fatalf("got %+v", got)
		}
	}); all > 500*20 {
		t.Errorf("500 candidates allocate %.0f times", all)
	}
}

// What items share and cannot share as it is, because of what each has of its own, is
// converted for some of them and not for a thousand.
//
// It takes 1.5 s: to convert as much as may be takes about a second.
func TestWhatABatchConvertsIsBounded(t *testing.T) {
	t.Parallel()
	plain := bundleOfFiles(t, map[string]string{"p.cedar": `permit(principal is user, action, resource) when { context.k1 == 1 };`})
	many := `{"k1":1,"text":"` + strings.Repeat("x", 100_000) + `"}`
	var members []string
	for n := range 8000 {
		members = append(members, fmt.Sprintf(`"k%d":%d`, n, n))
	}
	const what = `permit(principal is user, action, resource) when { context.pdp.resource.id like "x:*" `
	asksWhat, asksAll := bundleOfFiles(t, map[string]string{"p.cedar": what + "};"}), bundleOfFiles(t, map[string]string{"p.cedar": what + "&& context != {} };"})
	about := `"subject":{"type":"user","id":"a"},"action":{"name":"r"},"context":{` + strings.Join(members, ",") + `}`
	var resources []string
	for n := range 1000 {
		resources = append(resources, fmt.Sprintf(`{"resource":{"type":"doc","id":"%d"}}`, n))
	}
	if _, err := Of(asksWhat, Options{}).EvaluateBatch(t.Context(), BatchCall{Batch: decodeBatch(t, about, resources...)}); err != nil {
		t.Errorf("a context of which no policy sees more than what it is about: %v", err)
	}
	for name, c := range map[string]struct {
		bundle         *Bundle
		defaults, item string
	}{
		"a context beside properties of the action": {plain, `"subject":{"type":"user","id":"a"},"resource":{"type":"doc","id":"1"},"context":` + many, `{"action":{"name":"r","properties":{"a":%d}}}`},
		"a subject that is the resource":            {plain, `"subject":{"type":"user","id":"a","properties":` + many + `},"action":{"name":"r"}`, `{"resource":{"type":"user","id":"a","properties":{"z":%d}}}`},
		"a context that says what it is about":      {asksAll, about, `{"resource":{"type":"doc","id":"%d"}}`},
	} {
		var items []string
		for n := range 1000 {
			items = append(items, fmt.Sprintf(c.item, n))
		}
		p := Of(c.bundle, Options{})
		if got, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: decodeBatch(t, c.defaults, items[:50]...)}); err != nil || len(got.Items) != 50 {
			t.Errorf("%s: fifty items: %v", name, err)
		}
		var bad *evaluation.Error
		if got, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: decodeBatch(t, c.defaults, items...)}); !errors.As(err, &bad) || !bad.TooLarge || got.Items != nil {
			t.Errorf("%s: a thousand items: %d answers, %v", name, len(got.Items), err)
		}
	}
}

// manyExplained returns a function that asks so many items for explanations, half of which are no requests.
func manyExplained(t *testing.T) func(items int) BatchDecision {
	var policies strings.Builder
	for n := range 300 {
		fmt.Fprintf(&policies, "@id(\"policy-%d\") permit(principal is user, action, resource) when { principal.level > %d && resource.open && context.a.b };\n", n, n)
	}
	p := Of(bundleOfFiles(t, map[string]string{"p.cedar": policies.String()}), Options{NewID: func() string { return "1" }})
	return func(items int) BatchDecision {
		batch := decodeBatch(t, `"subject":{"type":"user","id":"a","properties":{"level":7}},"action":{"name":"r"},"resource":{"type":"doc","id":"1"}`,
			slices.Repeat([]string{`{}`, `{"resource":{"id":7}}`}, items/2)...)
		d, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: batch, Explain: true})
		must(t, err)
		return d
	}
}

// TestExplanationsOfABatchAreBounded: they take a megabyte of the answer at most, the first items have theirs, the others none.
func TestExplanationsOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	ask := manyExplained(t)
	d := ask(1000)
	size, explained, omitted := 0, 0, 0
	for n, item := range d.Items {
		switch {
		case n%2 == 1:
			if item.Explain != nil {
				t.Errorf("item %d, which is no request, has an explanation", n)
			}
		case item.Explain.Omitted:
			omitted++
			if len(item.Explain.Policies) > 0 {
				t.Errorf("item %d has an explanation all the same", n)
			}
		case omitted > 0:
			t.Errorf("item %d has an explanation after one had none", n)
		default:
			text, err := json.Marshal(item.Explain)
			must(t, err)
			size, explained = size+len(text), explained+1
		}
	}
	if size > 1<<20 || size < 1<<19 || explained == 0 || omitted == 0 {
		t.Errorf("%d explanations come to %d bytes, %d are omitted", explained, size, omitted)
	}
	text, err := evaluation.Answers(d.Items)
	if err != nil || len(text) > 1<<20+200*len(d.Items) || strings.Count(string(text), `"explain":{"omitted":true}`) != omitted {
		t.Errorf("the answer has %d bytes, %v", len(text), err)
	}
	again, err := evaluation.Answers(ask(1000).Items)
	if err != nil || string(again) != string(text) {
		t.Error("asked again it is another answer")
	}
}

// TestExplanationsThatAreOmittedAreNotMade: one that is made takes a megabyte.
func TestExplanationsThatAreOmittedAreNotMade(t *testing.T) {
	night.Measures(t)
	ask, made := manyExplained(t), 0
	for _, item := range ask(1000).Items {
		if item.Explain != nil && !item.Explain.Omitted {
			made++
		}
	}
	few, all := allocated(func() { ask(4 * made) }), allocated(func() { ask(1000) })
	if each := (all - few) / (1000 - 4*made); each > 100_000 {
		t.Errorf("%d items allocate %d bytes, 1000 items %d", 4*made, few, all)
	}
}

// TestPropertyInherited holds items that inherit in every way to requests by themselves:
// the parts that are kept of the items before must be those that would have been found again.
func TestPropertyInherited(t *testing.T) {
	t.Parallel()
	allows, errs, inherited := 0, 0, map[evaluation.Inherited]bool{}
	eachSeed(t, 80, func(t *testing.T, g *generator) {
		g.prefixed = g.seed%2 == 1
		w := g.world(24)
		p := Of(w.load(t), Options{NewID: func() string { return "id" }})
		parts := func() map[string]json.RawMessage {
			text, err := g.question(w).call(t).Request.MarshalJSON()
			must(t, err)
			var all map[string]json.RawMessage
			if err := json.Unmarshal(text, &all); err != nil {
				t.Fatal(err)
			}
			return all
		}
		defaults := parts()
		if g.chance(30) {
			defaults["resource"] = defaults["subject"]
		}
		pool := []map[string]json.RawMessage{defaults, parts(), parts()}
		items := make([]map[string]json.RawMessage, 40)
		for n := range items {
			items[n] = map[string]json.RawMessage{}
			for _, member := range []string{"subject", "action", "resource", "context"} {
				if own, ok := oneOf(g, pool...)[member]; ok && g.chance(40) {
					items[n][member] = own
				}
			}
		}
		body := map[string]any{"evaluations": items}
		for member, value := range defaults {
			body[member] = value
		}
		text, err := json.Marshal(body)
		must(t, err)
		batch, err := evaluation.DecodeBatch(text, g.question(w).call(t).Request.Tenant, evaluation.DefaultLimits())
		must(t, err)
		now := time.Unix(0, 0)
		got, err := p.EvaluateBatch(t.Context(), BatchCall{Batch: batch, Now: now})
		must(t, err)
		for n, item := range batch.Items {
			want := evaluation.Decision{Bundle: p.Bundle().Digest(), Malformed: item.Err}
			if item.Err == nil {
				inherited[item.Inherits()] = true
				want, err = p.Evaluate(t.Context(), Call{Request: item.Request, Now: now})
			}
			var malformed *evaluation.Error
			if errors.As(err, &malformed) {
				want = evaluation.Decision{Bundle: p.Bundle().Digest(), Malformed: item.InBody(malformed)}
				errs, err = errs+1, nil
			} else if err != nil {
				t.Fatal(err)
			}
			for m := range want.Mismatch {
				want.Mismatch[m].Pointer = item.Pointer(want.Mismatch[m].Pointer)
			}
			engine.SortMismatch(want.Mismatch)
			want.ID = got.Items[n].ID
			if diff := cmp.Diff(want, got.Items[n]); diff != "" {
				t.Fatalf("seed %d, item %d: by itself (-) and in a batch (+)\n%s\n%s\n%s", g.seed, n, diff, text, w)
			}
			if want.Allow {
				allows++
			}
		}
	})
	if !fewSeeds() && (allows < night.Cases(100) || errs < night.Cases(10) || len(inherited) < 8) {
		t.Errorf("%d allows, %d malformed items, %d ways to inherit: the generator shows little", allows, errs, len(inherited))
	}
}
