package rpc_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

func TestObject(t *testing.T) {
	text := []byte(` { "a" : 1.0 , "\u0062" : [ 1 , 2 ] , "c":{"d":"é\u00e9"} } `)
	before := bytes.Clone(text)
	o, err := rpc.ParseObject(text)
	mcptest.Must(t, err)
	for _, c := range []struct {
		what      string
		got, want string
	}{
		{"as it is", string(o.Value()), `{"a":1.0,"\u0062":[ 1 , 2 ],"c":{"d":"é\u00e9"}}`},
		{"a", string(o.Get("a")), `1.0`},
		{"b", string(o.Get("b")), `[ 1 , 2 ]`},
		{"none", string(o.Get("x")), ``},
		{"changed", string(o.With("b", []byte(`2`)).Value()), `{"a":1.0,"\u0062":2,"c":{"d":"é\u00e9"}}`},
		{"added", string(o.With("x\n", []byte(`2`)).Value()), `{"a":1.0,"\u0062":[ 1 , 2 ],"c":{"d":"é\u00e9"},"x\n":2}`},
		{"without", string(o.Without(func(n string) bool { return n != "c" }).Value()), `{"c":{"d":"é\u00e9"}}`},
		{"without none", string(o.Without(func(string) bool { return false }).Value()), string(o.Value())},
		{"mapped", string(o.Map(func(n string, v jsontext.Value) jsontext.Value {
			return map[string]jsontext.Value{"a": nil, "b": v, "c": []byte(`0`)}[n]
		}).Value()), `{"\u0062":[ 1 , 2 ],"c":0}`},
		{"inner", o.GetObject("c").GetString("d"), "éé"},
		{"inner of none", string(o.GetObject("a").Value()), `{}`},
		{"no string", o.GetString("a"), ""},
		{"zero", string(rpc.Object{}.Value()), `{}`},
		{"zero with", string(rpc.Object{}.With("a", []byte(`1`)).Value()), `{"a":1}`},
		{"collected", string(rpc.Collect(o.Members).Value()), `{"a":1.0,"b":[ 1 , 2 ],"c":{"d":"é\u00e9"}}`},
		{"unchanged", string(text), string(before)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	for _, bad := range []string{``, `1`, `[]`, `"a"`, `{`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{"a":1}x`, `{"a":1}{}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`} {
		if o, err := rpc.ParseObject([]byte(bad)); err == nil || o.Len() != 0 {
			t.Errorf("%s is an object", bad)
		}
	}
}

func TestArrays(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                 `[]`,
		" [ 1.0 , {\"a\" : 1} ,[ ], \"x\"] ": `[1.0,{"a" : 1},[ ],"x"]`,
	} {
		all, err := rpc.Elements([]byte(text))
		if got := string(rpc.Array(all)); err != nil || got != want {
			t.Errorf("%s became %s (%v)", text, got, err)
		}
	}
	for _, bad := range []string{``, `{}`, `[`, `[1`, `[1,]`, `[1 2]`, `[]x`, `[][]`, `[{"a":1,"a":2}]`, "[\"\xff\"]"} {
		if all, err := rpc.Elements([]byte(bad)); err == nil || all != nil {
			t.Errorf("%s is an array", bad)
		}
	}
}

// Two objects that come of one share nothing that either could change.
func TestObjectsAreApart(t *testing.T) {
	for _, members := range []int{1, 100} {
		o := rpc.Object{}
		for i := range members {
			o = o.With(fmt.Sprint(i), []byte(`0`))
		}
		want := string(o.Value())
		a, b := o.With("a", []byte(`1`)), o.With("b", []byte(`2`))
		_ = a.With("0", []byte(`3`))
		if a.Get("b") != nil || b.Get("a") != nil || string(a.Get("a")) != `1` || string(a.Get("0")) != `0` || string(o.Value()) != want {
			t.Errorf("with %d members: %s, %s, %s", members, o.Value(), a.Value(), b.Value())
		}
	}
}

func TestObjectIsAsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 3))
	o, model := rpc.Object{}, map[string]string{}
	for range 5000 {
		name, v := fmt.Sprint(r.IntN(60)), fmt.Sprint(r.IntN(1000))
		if r.IntN(3) == 0 {
			o = o.Without(func(n string) bool { return n == name })
			delete(model, name)
		} else {
			o = o.With(name, []byte(v))
			model[name] = v
		}
		again, err := rpc.ParseObject(o.Value())
		if err != nil || string(again.Value()) != string(o.Value()) || o.Len() != len(model) || string(o.Get(name)) != model[name] {
			t.Fatalf("%s %v, want %v", o.Value(), err, model)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(model)) {
		if string(o.Get(name)) != model[name] {
			t.Errorf("%s is %s, want %s", name, o.Get(name), model[name])
		}
	}
}

// A sender who chooses the members chooses no quadratic work.
func TestManyMembers(t *testing.T) {
	const n = 100_000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":%d,`, i, i)
	}
	begun := time.Now()
	o, err := rpc.ParseObject([]byte(`{` + b.String() + `"x":0}`))
	mcptest.Must(t, err)
	found := 0
	for i := range n {
		if o.Get(fmt.Sprint("m", i)) != nil {
			found++
		}
	}
	all := rpc.Collect(func(yield func(string, jsontext.Value) bool) {
		o.Map(func(_ string, v jsontext.Value) jsontext.Value { return v }).Members(yield)
	})
	if took := time.Since(begun); found != n || all.Len() != n+1 || took > time.Minute {
		t.Errorf("%d found, %d collected, %s", found, all.Len(), took)
	}
}

func TestErrorValue(t *testing.T) {
	for _, e := range []rpc.Error{
		{Code: -32603, Message: "no\n\"\x00"},
		{Code: 1, Message: "not UTF-8: \xff\xc0\xaf", Data: []byte(`{"a":1.0}`)},
		{Message: strings.Repeat("\xed\xa0\x80", 100)},
	} {
		v := e.Value()
		back, err := rpc.ReadError(v)
		if err != nil || !v.IsValid() || back.Code != e.Code || back.Message != strings.ToValidUTF8(e.Message, "\uFFFD") && !strings.Contains(back.Message, "\uFFFD") ||
			string(back.Data) != string(e.Data) {
			t.Errorf("%+v became %s, which is read as %+v (%v)", e, v, back, err)
		}
	}
}
