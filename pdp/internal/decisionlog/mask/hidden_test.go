package mask_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/pdptest/night"
)

var typeNames = map[evaluation.Kind]string{
	evaluation.Bool: "bool", evaluation.Number: "number", evaluation.String: "string", evaluation.Array: "array", evaluation.Map: "object",
}

var unescape, escape = strings.NewReplacer("~1", "/", "~0", "~"), strings.NewReplacer("~", "~0", "/", "~1")

// wholeOf is a request as one value, so that pointers lead into it.
func wholeOf(t testing.TB, r evaluation.Request) evaluation.Value {
	t.Helper()
	members := map[string]any{"context": r.Context}
	for name, o := range map[string]evaluation.Object{"subject": r.Subject.Properties, "action": r.Action.Properties, "resource": r.Resource.Properties} {
		members[name] = map[string]any{"properties": o}
	}
	return object(t, members).Value()
}

func valueAt(v evaluation.Value, pointer string) (evaluation.Value, bool) {
	for _, segment := range strings.Split(pointer, "/")[1:] {
		segment = unescape.Replace(segment)
		if v.Kind() != evaluation.Array {
			member, ok := v.Object().Get(segment)
			if !ok {
				return v, false
			}
			v = member
			continue
		}
		index, err := strconv.Atoi(segment)
		if err != nil || index >= v.Len() {
			return v, false
		}
		for n, e := range v.Elements {
			if n == index {
				v = e
				break
			}
		}
	}
	return v, true
}

// unlisted is a place where two requests differ and that no place of a list hides, or "".
func unlisted(sent, got evaluation.Value, at string, listed map[string]evaluation.Hidden) string {
	h, is := listed[at]
	if sent.Equal(got) || is && !h.Part {
		return ""
	}
	if sent.Kind() != got.Kind() {
		return at
	}
	inner := func(segment string, sent, got evaluation.Value) string {
		return unlisted(sent, got, at+"/"+escape.Replace(segment), listed)
	}
	switch sent.Kind() {
	case evaluation.Array:
		if sent.Len() != got.Len() {
			return at
		}
		for n, e := range sent.Elements {
			masked, _ := valueAt(got, "/"+strconv.Itoa(n))
			if place := inner(strconv.Itoa(n), e, masked); place != "" {
				return place
			}
		}
		return ""
	case evaluation.Map:
		for name, member := range sent.Object().Members {
			masked, has := got.Object().Get(name)
			if is && (!has || strings.Contains(name, mask.Prefix)) {
				continue // the entry says that such members are not what was sent
			}
			if place := inner(name, member, masked); place != "" {
				return place
			}
		}
		for name := range got.Object().Members {
			if _, has := sent.Object().Get(name); !has && !is {
				return at
			}
		}
		return ""
	}
	if is {
		return ""
	}
	return at
}

// checkHidden checks that a list hides all that differs, and is right about what was sent.
func checkHidden(t *testing.T, sent evaluation.Value, k *mask.Masking) {
	t.Helper()
	masked, all := wholeOf(t, k.Request), k.Hidden
	listed := map[string]evaluation.Hidden{}
	for _, h := range all {
		if _, twice := listed[h.At]; twice {
			t.Errorf("%s is listed twice", h.At)
		}
		listed[h.At] = h
	}
	if place := unlisted(sent, masked, "", listed); place != "" {
		t.Errorf("%s differs and is not listed: %+v", place, all)
	}
	bytes := 0
	for _, h := range all {
		bytes += len(h.At)
		was, ok := valueAt(sent, h.At)
		if !ok || typeNames[was.Kind()] != h.Type || h.Part && h.Type != "string" && h.Type != "object" || h.Part && h.Removed {
			t.Errorf("%+v is listed, and what was sent is a %s (%v)", h, typeNames[was.Kind()], ok)
		}
		is, has := valueAt(masked, h.At)
		if was.Equal(is) && has {
			t.Errorf("%+v is listed, and is what was sent", h)
		}
		if gone := !has || is.Kind() == evaluation.Null; h.Removed != gone {
			t.Errorf("%+v is listed, and that it is gone is %v", h, gone)
		}
		for other, above := range listed {
			if !above.Part && strings.HasPrefix(h.At, other+"/") {
				t.Errorf("%s is listed below %s", h.At, other)
			}
		}
	}
	if len(all) > 64 || bytes > 8<<10 {
		t.Errorf("%d places in %d bytes are listed", len(all), bytes)
	}
}

// TestPropertyHiddenPlaces: whatever is masked is listed, with the type that was sent, and nothing else is.
func TestPropertyHiddenPlaces(t *testing.T) {
	t.Parallel()
	m := masker(t, "/context/x/*", "/subject/properties/*/a", "/context/y/0", "/*/properties/ab")
	kinds := map[string]int{}
	for seed := range uint64(night.Cases(4_000)) {
		g := rand.New(rand.NewPCG(seed, 5))
		some := func() evaluation.Object {
			return object(t, map[string]any{
				"x": generated(g, 3), "token": generated(g, 2), "y": []any{generated(g, 1), g.IntN(2) == 0, nil, g.IntN(1e9)},
				"z": map[string]any{"cookie": g.IntN(2) == 0, "note": `{"password": ` + strconv.Quote(fmt.Sprint(g.IntN(1e9))) + `}`},
			})
		}
		r := evaluation.Request{Context: some(), Subject: evaluation.Entity{Properties: some()}, Action: evaluation.Action{Properties: some()}, Resource: evaluation.Entity{Properties: some()}}
		k := m.Apply(r)
		checkHidden(t, wholeOf(t, r), k)
		if t.Failed() {
			text, _ := r.MarshalJSON()
			t.Fatalf("seed %d: %s", seed, text)
		}
		for _, h := range k.Hidden {
			h.At = ""
			kinds[fmt.Sprint(h)]++
		}
	}
	least := 10
	if testing.Short() {
		least = 8
	}
	if t.Log(kinds); len(kinds) < least {
		t.Errorf("only %v", kinds)
	}
}

// TestHiddenPlaces: what the list says of each way to be masked.
func TestHiddenPlaces(t *testing.T) {
	t.Parallel()
	m := masker(t, "/context/a/*", "/context/list/1")
	for sent, want := range map[string]string{
		`{"x":1}`:                                        "",
		`{"token":"s"}`:                                  "token string",
		`{"token":12345678901}`:                          "token number",
		`{"api_key":{"a":1}}`:                            "api_key object",
		`{"tokens":["a","b"]}`:                           "tokens array",
		`{"token":true}`:                                 "token bool",
		`{"a":{"b~/c":1}}`:                               "a/b~0~1c number",
		`{"list":[null,5,"x"]}`:                          "list/1 number",
		`{"list":[null,null,"x"]}`:                       "",
		`{"note":"{\"password\":"}`:                      "note string",
		`{"token":"hunter22","note":"is hunter22 ok"}`:   "note string part; token string",
		`{"token":"hunter22","note":"hunter22"}`:         "note string; token string",
		`{"token":12345678,"n":12345678,"s":"12345678"}`: "n number; s string; token number",
		`{"note":"{\"password\":1}"}`:                    "note string part",
		`{"o":{"my hunter22":{"token":1},"token":2},"token":"hunter22"}`: "o object part; o/token number; token string",
		`{"hunter22 ok":1,"token":"hunter22"}`:                           " object part; token string",
		`{"o":{"{\"token\":1}":{"token":1},"{\"token\": 1}":2}}`:         "o object part", // both come to have one name
		`{"note":"masked:A","list":[1,"x"]}`:                             "list/1 string",
	} {
		k := m.Apply(request(t, sent))
		var got []string
		for _, h := range k.Hidden {
			text := strings.TrimPrefix(strings.TrimPrefix(h.At, "/context"), "/") + " " + h.Type
			if h.Part {
				text += " part"
			}
			got = append(got, text)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: got %q, want %q", sent, got, want)
		}
		checkHidden(t, wholeOf(t, request(t, sent)), k)
	}
}

// TestATextThatLooksLikeAMaskIsTold: nothing is masked, and the list is there and empty, so that a record tells it from
// one that has no list.
func TestATextThatLooksLikeAMaskIsTold(t *testing.T) {
	t.Parallel()
	m := masker(t)
	for sent, want := range map[string]bool{
		`{"note":"mask"}`: false, `{"note":"x masked:abc"}`: true, `{"masked:":1}`: true, `{"a":[{"b":"masked:"}]}`: true,
		`{"note":"{\"a\":\"masked:1\"}"}`: true,
	} {
		if got := m.Apply(request(t, sent)).Hidden; len(got) > 0 || (got != nil) != want {
			t.Errorf("%s: got %#v, want a list: %v", sent, got, want)
		}
	}
	// Of a batch, the request that holds it tells it.
	g := m.Gather()
	own, shared := request(t, `{"note":"masked:"}`), request(t, `{"token":1}`)
	g.Add(own)
	g.Add(shared)
	k := g.Apply(shared)
	if got, of := k.With(own).Hidden, k.Hidden; got == nil || len(got) > 0 || len(of) != 1 {
		t.Errorf("got %#v, and of what is shared %v", got, of)
	}
}

// TestHiddenPlacesAreBounded: a request may have thousands of masked values, and half a megabyte of names above them.
func TestHiddenPlacesAreBounded(t *testing.T) {
	t.Parallel()
	m := masker(t, "/context/many/*", "/context/deep/*/*/*", "/*/properties/*/token/*")
	long := strings.Repeat("n", 3000)
	wide := func(n int, v any) map[string]any {
		all := map[string]any{}
		for i := range n {
			all[fmt.Sprint("m", i)] = v
		}
		return all
	}
	flags := slices.Repeat([]any{true}, 4000)
	for name, c := range map[string]struct {
		context map[string]any
		places  int
	}{
		"an array":             {map[string]any{"many": flags, "token": 1}, 2},
		"as many as may be":    {map[string]any{"many": flags[:64]}, 64},
		"one more":             {map[string]any{"many": flags[:65]}, 1},
		"objects in an object": {map[string]any{"deep": wide(60, wide(4, wide(2, "x"))), "token": 1}, 2},
		"a long name":          {map[string]any{"a": map[string]any{long: wide(40, map[string]any{"token": 1})}, "token": 1}, 2},
		"long names":           {map[string]any{long: map[string]any{long: map[string]any{"token": 1}}}, 1},
	} {
		r := evaluation.Request{Context: object(t, c.context)}
		k := m.Apply(r)
		if checkHidden(t, wholeOf(t, r), k); len(k.Hidden) != c.places {
			t.Errorf("%s: got %d places, want %d: %.300v", name, len(k.Hidden), c.places, k.Hidden)
		}
	}
	of := func() evaluation.Object {
		return object(t, map[string]any{long: map[string]any{long: map[string]any{"token": 1}}, "token": 1})
	}
	worst := evaluation.Request{Context: of(), Subject: evaluation.Entity{Properties: of()}, Action: evaluation.Action{Properties: of()}, Resource: evaluation.Entity{Properties: of()}}
	var places []string
	for _, h := range m.Apply(worst).Hidden {
		places = append(places, h.At+" "+h.Type)
	}
	if want := []string{"/subject/properties object", "/action/properties object", "/resource/properties object", "/context object"}; !slices.Equal(places, want) {
		t.Errorf("got %q", places)
	}
	g := m.Gather()
	r := evaluation.Request{Context: object(t, map[string]any{"many": flags[:40]})}
	g.Add(r)
	if got := g.Apply(evaluation.Request{}).With(r).Hidden; len(got) != 1 || got[0].At != "/context/many" {
		t.Errorf("an item of a batch has room for %v", got)
	}
}

// TestNothingMaskedCostsNothing: to mask a request without a secret, and to list what is hidden, allocates nothing
// besides what it takes to read its secrets.
func TestNothingMaskedCostsNothing(t *testing.T) {
	night.Measures(t)
	m := masker(t, "/context/arguments/*/pin")
	r := request(t, `{"arguments":{"title":"Server outage","body":"The server is down."},"workflow_id":"wf-abc"}`)
	read := testing.AllocsPerRun(100, func() { m.Gather().Add(r) })
	all := testing.AllocsPerRun(100, func() {
		if k := m.Apply(r); k.Hidden != nil {
			t.Error("something is hidden")
		}
	})
	if all != read+1 { // the Masking itself
		t.Errorf("%v allocations, and %v to read the secrets", all, read)
	}
}
