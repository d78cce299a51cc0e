package evaluation_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
)

func TestIsTenantName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"": false, "a": true, "Z9": true, "tenant-xyz": true, "a.b_c-d": true, ".a": false, "-a": false, "_a": false, "a/b": false, "a b": false, "é": false, "a\x00": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "default": true, "..": false, "a..": true,
	} {
		if got := evaluation.IsTenantName(name); got != want {
			t.Errorf("IsTenantName(%q) = %v", name, got)
		}
	}
}

func TestNewObject(t *testing.T) {
	t.Parallel()
	text, err := evaluation.Text("x")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := evaluation.NewObject(map[string]any{"k": true})
	if err != nil {
		t.Fatal(err)
	}
	o, err := evaluation.NewObject(map[string]any{
		"nil": nil, "bool": false, "string": "s", "int": -3, "int64": int64(math.MinInt64), "float": 1.5, "integral": 3.0,
		"any": []any{1, "a", nil, []string{"b"}}, "map": map[string]any{"z": 1, "a": nil}, "value": text, "object": inner,
	})
	got, _ := o.MarshalJSON()
	const want = `{"any":[1,"a",null,["b"]],"bool":false,"float":1.5,"int":-3,"int64":-9223372036854775808,"integral":3,"map":{"z":1},"object":{"k":true},"string":"s","value":"x"}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v\nand not %s", got, err, want)
	}
}

func TestNewObjectRefuses(t *testing.T) {
	t.Parallel()
	for what, members := range map[string]map[string]any{
		"NaN": {"a": math.NaN()}, "infinity": {"a": math.Inf(1)}, "invalid UTF-8": {"a": "\xff"}, "in a name": {"\xff": 1},
		"a reserved name": {"a": map[string]any{"__entity": 1}}, "a function": {"a": func() {}},
		"another type": {"a": struct{}{}}, "a number as text": {"a": json.Number("3")}, "bytes": {"a": []any{[]byte("x")}}, "a time": {"a": map[string]any{"b": time.Now()}},
		"a pointer": {"a": new(int)}, "a struct with members": {"a": []any{struct{ B int }{1}}}, "numbers": {"a": []int{1}}, "a float32": {"a": float32(1)},
	} {
		_, err := evaluation.NewObject(members)
		var e *evaluation.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := evaluation.Text("\xff"); err == nil {
		t.Error("Text takes invalid UTF-8")
	}
}

// TestObject holds that objects are values: what is made of one leaves it as it was.
func TestObject(t *testing.T) {
	t.Parallel()
	object := func(members map[string]any) evaluation.Object {
		o, err := evaluation.NewObject(members)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	text := func(o evaluation.Object) string {
		b, _ := o.MarshalJSON()
		return string(b)
	}
	o := object(map[string]any{"a": 1, "b": []any{1, 2}, "c": 3})
	one, _ := o.Get("a")
	for want, got := range map[string]evaluation.Object{
		`{"a":1,"aa":1,"b":[1,2],"c":3}`:      o.With("aa", one),
		`{"a":1,"b":[1,2],"c":1}`:             o.With("c", one),
		`{"a":1,"c":3}`:                       o.Without(func(name string) bool { return name == "b" }),
		`{}`:                                  o.Without(func(string) bool { return true }),
		`{"0":1,"a":1,"b":[1,2],"c":3,"d":4}`: o.Beside(object(map[string]any{"0": 1, "a": 2, "d": 4})),
		`{"b":[1,2],"c":3}`:                   o.With("a", evaluation.Value{}),
	} {
		if text(got) != want {
			t.Errorf("%s, and not %s", text(got), want)
		}
	}
	if text(o) != `{"a":1,"b":[1,2],"c":3}` {
		t.Errorf("it is %s now", text(o))
	}
	if _, ok := o.Get("x"); ok {
		t.Error("there is a member that was never there")
	}
	for range o.Members { // stops when told to
		break
	}
	b, _ := o.Get("b")
	for i, e := range b.Elements {
		if n, _ := e.Scaled(0); n != int64(i+1) {
			t.Errorf("element %d is %d", i, n)
		}
	}
	if !b.Equal(b) || b.Equal(one) || one.Object().Len() != 0 || b.Len() != 2 || slices.Collect(kinds(o))[1] != evaluation.Array {
		t.Error("a value is not what it is")
	}
	c := object(map[string]any{"t": true, "s": "true"})
	flag, _ := c.Get("t")
	word, _ := c.Get("s")
	if !flag.True() || word.True() || flag.Text() != "true" || word.Text() != "true" || flag.Equal(word) {
		t.Error("true and its text are confused")
	}
}

func kinds(o evaluation.Object) func(func(evaluation.Kind) bool) {
	return func(yield func(evaluation.Kind) bool) {
		for _, v := range o.Members {
			if !yield(v.Kind()) {
				return
			}
		}
	}
}

func TestContains(t *testing.T) {
	t.Parallel()
	o, err := evaluation.NewObject(map[string]any{"a": 12, "b": []any{"one text", map[string]any{"a name": true}}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"text": true, "a n": true, "12": false, "true": false, "b": true, "none": false} {
		if got := o.Value().Contains(text); got != want {
			t.Errorf("it contains %q: %v", text, got)
		}
	}
}
