package capability_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation/capability"
)

// held has constraints with the values that they admit and refuse. It is in the vectors.
var held = []struct {
	Constraint string   `json:"constraint"`
	Holds      []string `json:"holds"`
	Refuses    []string `json:"refuses"`
}{
	{`"staging"`, []string{`"staging"`, `"\u0073taging"`}, []string{`"Staging"`, `"staging "`, `["staging"]`, `null`, `1`}},
	{`1`, []string{`1`, `1.0`, `10e-1`, `1E0`}, []string{`"1"`, `true`, `1.1`, `-1`, `[1]`}},
	{`0`, []string{`0`, `-0`, `0.0`, `0e5`}, []string{`""`, `false`, `null`, `1e-300`}},
	{`null`, []string{`null`}, []string{`0`, `""`, `false`, `{}`, `[]`}},
	{`true`, []string{`true`}, []string{`"true"`, `1`, `false`}},
	{`[1,{"b":null,"a":2}]`, []string{`[1.0,{"a":2,"b":null}]`}, []string{`[{"b":null,"a":2},1]`, `[1,{"a":2}]`, `[1]`, `[1,{"a":2,"b":null,"c":null}]`}},
	{`{"a":{"b":[]}}`, []string{`{"a":{"b":[]}}`}, []string{`{"a":{"b":{}}}`, `{"a":{}}`, `{}`}},
	{`{"constraint_type":"exact","value":{"constraint_type":"wildcard"}}`, []string{`{"constraint_type":"wildcard"}`}, []string{`1`, `{}`}},
	{`{"constraint_type":"exact","value":100000000000000000000}`, []string{`1e20`, `100000000000000000000.0`}, []string{`100000000000000000001`, `1e21`}},
	{`{"constraint_type":"one_of","values":["a",1,null,[2]]}`, []string{`"a"`, `1.0`, `null`, `[2.0]`}, []string{`"b"`, `2`, `[]`, `{}`, `"null"`}},
	{`{"constraint_type":"range","min":1,"max":10}`, []string{`1`, `10`, `5.5`, `1e1`}, []string{`0.9999999999999999999999`, `10.0000000000000000001`, `"5"`, `null`, `[5]`, `1e2`}},
	{`{"constraint_type":"range","min":1,"max":10,"min_inclusive":false,"max_inclusive":false}`, []string{`1.0000000000000000001`, `9.99`}, []string{`1`, `10`, `1.0`, `100e-1`}},
	{`{"constraint_type":"range","min":-2.5}`, []string{`-2.5`, `-2.49`, `0`, `1e999`}, []string{`-2.51`, `-3`, `-1e999`}},
	{`{"constraint_type":"range","max":9007199254740992}`, []string{`9007199254740992`, `-1`, `9007199254740991`}, []string{`9007199254740993`, `9007199254740992.1`}},
	{`{"constraint_type":"range","min":0,"max":0,"max_inclusive":true}`, []string{`0`, `-0.0`, `0e9`}, []string{`1e-400`, `-1e-400`}},
	{`{"constraint_type":"prefix","value":"reports/"}`, []string{`"reports/"`, `"reports/../a"`}, []string{`"report"`, `"Reports/"`, `["reports/"]`, `null`, `""`}},
	{`{"constraint_type":"wildcard"}`, []string{`null`, `1`, `"a"`, `{"a":null}`, `[]`}, nil},
}

func TestConstraint(t *testing.T) {
	t.Parallel()
	for _, one := range held {
		c := constraint(one.Constraint)
		text, err := c.MarshalJSON()
		if again := constraint(string(text)); err != nil || !again.Value().Equal(c.Value()) {
			t.Errorf("%s is written as %s, which is another one", one.Constraint, text)
		}
		for _, v := range one.Holds {
			if !c.Holds(value(v)) {
				t.Errorf("%s does not hold of %s", one.Constraint, v)
			}
		}
		for _, v := range one.Refuses {
			if c.Holds(value(v)) {
				t.Errorf("%s holds of %s", one.Constraint, v)
			}
		}
	}
	if (capability.Constraint{}).Holds(value("null")) {
		t.Error("the zero constraint holds")
	}
}

func TestConstraintsThatAreNone(t *testing.T) {
	t.Parallel()
	for text, at := range map[string]string{
		`{"constraint_type":"regex","value":"."}`:                                    "/constraint_type",
		`{"constraint_type":"Exact","value":1}`:                                      "/constraint_type",
		`{"constraint_type":null}`:                                                   "/constraint_type",
		`{"constraint_type":["exact"],"value":1}`:                                    "/constraint_type",
		`{"constraint_type":"exact"}`:                                                "/value",
		`{"constraint_type":"exact","value":1,"more":null}`:                          "/more",
		`{"constraint_type":"exact","value":[[[[[]]]]]}`:                             "/value",
		`[[[{"a":{}}]]]`:                                                             "",
		`{"constraint_type":"prefix","value":""}`:                                    "/value",
		`{"constraint_type":"prefix","value":5}`:                                     "/value",
		`{"constraint_type":"prefix"}`:                                               "/value",
		`{"constraint_type":"one_of","values":[]}`:                                   "/values",
		`{"constraint_type":"one_of","values":"a"}`:                                  "/values",
		`{"constraint_type":"one_of","values":[1,[[[[[]]]]]]}`:                       "/values/1",
		`{"constraint_type":"one_of","values":[` + strings.Repeat("1,", 128) + `1]}`: "/values",
		`{"constraint_type":"range"}`:                                                "",
		`{"constraint_type":"range","min":2,"max":1}`:                                "",
		`{"constraint_type":"range","min":"1"}`:                                      "/min",
		`{"constraint_type":"range","max":null}`:                                     "/max",
		`{"constraint_type":"range","max":1e9999999999999999}`:                       "/max",
		`{"constraint_type":"range","min":1,"min_inclusive":"yes"}`:                  "/min_inclusive",
		`{"constraint_type":"range","min":1,"max_inclusive":true}`:                   "/max_inclusive",
		`{"constraint_type":"wildcard","value":1}`:                                   "/value",
	} {
		_, err := capability.ParseConstraint(value(text))
		if err == nil || at != "" && !strings.HasPrefix(err.Error(), at+": ") {
			t.Errorf("%s: %v, want it at %q", text, err, at)
		}
	}
}

// TestScalarExact: policies are told of the values that are pinned.
func TestScalarExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"a"`: `"a"`, `1.50`: `1.50`, `true`: `true`, `null`: "", `[1]`: "", `{"a":1}`: "",
		`{"constraint_type":"wildcard"}`: "", `{"constraint_type":"one_of","values":["a"]}`: "",
	} {
		got := ""
		if v, ok := constraint(text).ScalarExact(); ok {
			b, _ := v.MarshalJSON()
			got = string(b)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestConstraintProperty holds constraints and layers to a second opinion, which reads JSON with another library and
// compares with math/big.
func TestConstraintProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	admitted, held := 0, 0
	for range 20_000 {
		c, v := randomConstraint(random), randomValue(random, 2)
		got, want := constraint(c).Holds(value(v)), opinion(read(c), read(v))
		if got != want {
			t.Fatalf("%s of %s: got %v, want %v", c, v, got, want)
		}
		if got {
			held++
		}
		arguments, constraints := randomObject(random, randomValue), randomObject(random, func(random *rand.Rand, _ int) string { return randomConstraint(random) })
		if random.IntN(2) == 0 {
			constraints = strings.Replace(constraints, "{", `{"*":{"constraint_type":"wildcard"},`, 1)
			constraints = strings.Replace(constraints, ",}", "}", 1)
		}
		layer := capability.Layer{Tools: []string{"a:t"}, Arguments: capability.Arguments{}}
		for name, c := range read(constraints).(map[string]any) {
			text, _ := json.Marshal(c)
			layer.Arguments[name] = constraint(string(text))
		}
		refusal := layer.Admits("a:t", parsed(arguments))
		if want := admits(read(constraints).(map[string]any), read(arguments).(map[string]any)); (refusal == nil) != want {
			t.Fatalf("%s of %s: got %v, want %v", constraints, arguments, refusal, want)
		}
		if refusal == nil {
			admitted++
		}
	}
	if held < 1000 || admitted < 300 {
		t.Errorf("of 20,000, %d held and %d were admitted: that tells too little", held, admitted)
	}
}

var (
	numbers = []string{"0", "-0", "1", "1.0", "1e0", "10e-1", "2", "-1", "-1.5", "0.1", "0.10000000000000000001", "9007199254740992", "9007199254740993",
		"9.007199254740993e15", "1e20", "100000000000000000000", "1e300", "123456789012345678901234567890.5", "-1e-30"}
	scalars = []string{`""`, `"a"`, `"ab"`, `"a/b"`, `"1"`, `"\u0061"`, "null", "true", "false"}
)

func randomValue(random *rand.Rand, depth int) string {
	switch n := random.IntN(10); {
	case n < 4:
		return numbers[random.IntN(len(numbers))]
	case n < 8 || depth == 0:
		return scalars[random.IntN(len(scalars))]
	case n == 8:
		var all []string
		for range random.IntN(3) {
			all = append(all, randomValue(random, depth-1))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	return randomObject(random, func(random *rand.Rand, _ int) string { return randomValue(random, depth-1) })
}

func randomObject(random *rand.Rand, member func(*rand.Rand, int) string) string {
	var all []string
	for _, name := range []string{"x", "y"} {
		if random.IntN(2) == 0 {
			all = append(all, `"`+name+`":`+member(random, 1))
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return "{" + strings.Join(all, ",") + "}"
}

func randomConstraint(random *rand.Rand) string {
	switch random.IntN(6) {
	case 0:
		return `{"constraint_type":"exact","value":` + randomValue(random, 2) + `}`
	case 1:
		return `{"constraint_type":"one_of","values":[` + randomValue(random, 1) + "," + randomValue(random, 1) + "," + randomValue(random, 1) + `]}`
	case 2:
		least, most := numbers[random.IntN(len(numbers))], numbers[random.IntN(len(numbers))]
		if rational(least).Cmp(rational(most)) > 0 {
			least, most = most, least
		}
		inclusive := []string{"", `,"min_inclusive":false`, `,"max_inclusive":false`, `,"min_inclusive":true,"max_inclusive":false`}[random.IntN(4)]
		return `{"constraint_type":"range","min":` + least + `,"max":` + most + inclusive + `}`
	case 3:
		return `{"constraint_type":"prefix","value":"a"}`
	case 4:
		return `{"constraint_type":"wildcard"}`
	}
	return randomValue(random, 2)
}

func read(text string) (v any) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(text + ": " + err.Error())
	}
	return v
}

func rational(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	return r
}

// opinion is the second one of whether a constraint holds of a value.
func opinion(c, v any) bool {
	o, _ := c.(map[string]any)
	switch o["constraint_type"] {
	case "exact":
		return equal(o["value"], v)
	case "one_of":
		return slices.ContainsFunc(o["values"].([]any), func(one any) bool { return equal(one, v) })
	case "prefix":
		s, ok := v.(string)
		return ok && strings.Index(s, o["value"].(string)) == 0
	case "wildcard":
		return true
	case "range":
		n, ok := v.(json.Number)
		if !ok {
			return false
		}
		low, high := rational(n.String()).Cmp(rational(o["min"].(json.Number).String())), rational(n.String()).Cmp(rational(o["max"].(json.Number).String()))
		return (low > 0 || low == 0 && o["min_inclusive"] != false) && (high < 0 || high == 0 && o["max_inclusive"] != false)
	}
	return equal(c, v)
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		n, ok := b.(json.Number)
		return ok && rational(a.String()).Cmp(rational(n.String())) == 0
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, equal)
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok || len(a) != len(m) {
			return false
		}
		for name := range a {
			if other, there := m[name]; !there || !equal(a[name], other) {
				return false
			}
		}
		return true
	}
	return a == b
}

// admits is the second opinion of a layer's arguments.
func admits(constraints, arguments map[string]any) bool {
	_, open := constraints["*"]
	for name, c := range constraints {
		if v, there := arguments[name]; name != "*" && (!there || !opinion(c, v)) {
			return false
		}
	}
	for name := range arguments {
		if _, named := constraints[name]; !named && !open {
			return false
		}
	}
	return true
}
