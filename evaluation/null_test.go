package evaluation_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// argumentsOf are the arguments of a call, as its record has them and as policies see them.
func argumentsOf(t *testing.T, q evaluation.Request) (written, seen string) {
	t.Helper()
	v, _ := q.Context.Get("arguments")
	text, _ := v.MarshalJSON()
	return string(text), seenBy(v)
}

// seenBy is a value as who goes by Get, Members, Elements and Len sees it.
func seenBy(v evaluation.Value) string {
	var parts []string
	for n, e := range v.Elements {
		parts = append(parts, fmt.Sprint(n, ":", seenBy(e)))
	}
	for name, m := range v.Object().Members {
		if got, ok := v.Object().Get(name); !ok || !got.Equal(m) {
			parts = append(parts, "not got")
		}
		parts = append(parts, name+":"+seenBy(m))
	}
	if v.Kind() == evaluation.Map {
		if _, ok := v.Object().Get("null"); ok || v.Len() != len(parts) || v.Object().Len() != len(parts) {
			parts = append(parts, "null is seen")
		}
	}
	if v.Kind() >= evaluation.Array {
		return "(" + strings.Join(parts, " ") + ")"
	}
	return v.Text()
}

// TestNullBelowArguments: there null stays, in every body that has a context, and nobody sees it who asks policies.
func TestNullBelowArguments(t *testing.T) {
	t.Parallel()
	const (
		sent = `{"null":null,"n":1,"in":{"null":null,"deep":[{"null":null},null]}}`
		want = `{"in":{"deep":[{"null":null},null],"null":null},"n":1,"null":null}`
		see  = `(in:(deep:(0:() 1:)) n:1)`
	)
	context := `{"null":null,"arguments":` + sent + `,"other":{"null":null},"list":[{"null":null}]}`
	const rest = `"subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d","id":"1","properties":{"null":null,"arguments":{"null":null}}}`
	limits := evaluation.DefaultLimits()
	requests := map[string]evaluation.Request{}
	read := func(name string, q evaluation.Request, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		requests[name] = q
	}
	authzen, err := evaluation.DecodeAuthZEN([]byte(`{`+rest+`,"context":`+context+`}`), "", limits)
	read("AuthZEN", authzen, err)
	native, err := evaluation.DecodeNative([]byte(`{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"u","null":null},"action":"r","resource":{"type":"d","id":"1","labels":{"null":null}},"context":`+context+`}`), limits)
	read("native", native, err)
	batch, err := evaluation.DecodeBatch([]byte(`{`+rest+`,"context":`+context+`,"evaluations":[{},{"context":`+context+`}]}`), "", limits)
	read("inherited", batch.Items[0].Request, err)
	read("an item's own", batch.Items[1].Request, err)
	search, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(`{`+rest+`,"context":`+context+`}`), "", limits)
	read("a search", search.Request, err)
	filters, err := evaluation.DecodeFilter([]byte(`{"subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d"},"dialect":"sqlite","context":`+context+`,"filters":[{},{"context":`+context+`}]}`), "", "", limits)
	read("shared by filters", filters.Questions[0].Request, err)
	read("a filter's own", filters.Questions[1].Request, err)
	submission, err := evaluation.DecodeSubmission([]byte(`{`+rest+`,"context":`+context+`,"denial":{"expires_at":"2026-01-02T03:04:05Z"}}`), "", limits)
	read("a submission", submission.Items[0].Request, err)
	whole, err := evaluation.ParseObject([]byte(context), limits)
	read("a context alone", evaluation.Request{Context: whole}, err)
	made, err := evaluation.NewObject(map[string]any{"arguments": map[string]any{
		"null": nil, "n": 1, "in": map[string]any{"null": nil, "deep": []any{map[string]any{"null": nil}, nil}},
	}})
	read("made of Go values", evaluation.Request{Context: made}, err)
	for name, q := range requests {
		if written, seen := argumentsOf(t, q); written != want || seen != see {
			t.Errorf("%s: written %s, seen %s", name, written, seen)
		}
		text, err := q.MarshalJSON()
		if err != nil || strings.Count(string(text), "null") != strings.Count(want, "null") {
			t.Errorf("%s: null elsewhere: %s, %v", name, text, err)
		}
	}
}

// TestNullStaysThroughChanges: what makes another object of one keeps the null members that it does not replace.
func TestNullStaysThroughChanges(t *testing.T) {
	t.Parallel()
	context, err := evaluation.ParseObject([]byte(`{"arguments":{"a":null,"b":1,"c":null}}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	v, _ := context.Get("arguments")
	o := v.Object()
	one, _ := o.Get("b")
	more, err := evaluation.NewObject(map[string]any{"arguments": map[string]any{"a": 2, "d": nil, "e": 3}})
	if err != nil {
		t.Fatal(err)
	}
	others, _ := more.Get("arguments")
	renamed := o.Rewrite(func(m evaluation.Member) (evaluation.Member, bool) {
		m.Name = "x" + m.Name
		return m, m.Name != "xc"
	})
	put, _ := v.Put([]string{"a"}, one)
	for want, got := range map[string]evaluation.Object{
		`{"a":1,"b":1,"c":null}`:                           o.With("a", one),
		`{"a":null,"c":null}`:                              o.With("b", evaluation.Value{}),
		`{"a":null,"b":1}`:                                 o.Without(func(name string) bool { return name == "c" }),
		`{"a":null,"b":1,"c":null,"d":null,"e":3}`:         o.Beside(others.Object()),
		`{"xa":null,"xb":1}`:                               renamed,
		`{"a":1,"b":1,"c":null,"put":"into what is null"}`: put.Object().With("put", mustText(t, "into what is null")),
	} {
		if text, err := got.MarshalJSON(); err != nil || string(text) != want || got.Size() != len(want) {
			t.Errorf("%s of %d bytes, %v\nand not %s", text, got.Size(), err, want)
		}
	}
	if absent := o.Without(func(name string) bool { return name == "a" }); absent.Value().Equal(v) {
		t.Error("null and absent are equal")
	}
}

func mustText(t *testing.T, s string) evaluation.Value {
	t.Helper()
	v, err := evaluation.Text(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestParseWithNulls: null stays wherever it stands, and nothing else is read otherwise than in a body.
func TestParseWithNulls(t *testing.T) {
	t.Parallel()
	const text = `{"z":null,"b":{"null":null,"a":[null,{"c":null}]},"a":1.0}`
	o, err := evaluation.ParseWithNulls([]byte(text), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := o.MarshalJSON(); err != nil || string(got) != `{"a":1.0,"b":{"a":[null,{"c":null}],"null":null},"z":null}` {
		t.Errorf("%s, %v", got, err)
	}
	var all, seen []string
	for name := range o.All {
		all = append(all, name)
	}
	for name := range o.Members {
		seen = append(seen, name)
	}
	if fmt.Sprint(all, seen, o.Len()) != "[a b z] [a b] 2" {
		t.Error(all, seen, o.Len())
	}
	for name, want := range map[string][2]bool{"a": {true, true}, "z": {true, false}, "y": {false, false}} {
		v, there := o.Lookup(name)
		_, got := o.Get(name)
		if there != want[0] || got != want[1] || (v.Kind() == evaluation.Null) != (name != "a") {
			t.Errorf("%s: %v, looked up: %t, got: %t", name, v.Kind(), there, got)
		}
	}
	small := evaluation.Limits{Body: 64, Depth: 3, Values: 8}
	for bad, detail := range map[string]string{
		`{"a":null,"a":1}`:              "occurs twice",
		`{"a":1,"\u0061":null}`:         "occurs twice",
		`{"a":null,"a":null}`:           "occurs twice",
		`{"x":{"__entity":null}}`:       "may not have this name",
		`{"x":[{"__extn":1}]}`:          "may not have this name",
		`{"a":null} null`:               "follows",
		`{"a":"\ud800"}`:                "not valid JSON",
		"{\"a\":\"\xff\"}":              "not valid JSON",
		"{\"a\xc0\xaf\":null}":          "not valid JSON",
		`{"a":nul}`:                     "not valid JSON",
		`{"a":NaN}`:                     "not valid JSON",
		`{"a":01}`:                      "not valid JSON",
		`null`:                          "not a JSON object",
		`[null]`:                        "not a JSON object",
		"\ufeff{}":                      "not valid JSON",
		`{"a":{"b":{"c":{}}}}`:          "more than 3 deep",
		`{"a":[[[null]]]}`:              "more than 3 deep",
		`{"a":[0,0,0,0,0,0,null,null]}`: "more than 8 values",
		`{"a":null,"b":null,"c":null,"d":null,"e":null,"f":null,"g":null,"h":null}`: "more than 64 bytes",
		`{"a":{"b":0,"c":0,"d":0,"e":0},"f":0,"g":0,"h":0,"i":0}`:                   "more than 8 values",
	} {
		o, err := evaluation.ParseWithNulls([]byte(bad), small)
		if err == nil || !strings.Contains(err.Error(), detail) || o.Value().Len() != 0 {
			t.Errorf("%q: %v, want %s", bad, err, detail)
		}
	}
}
