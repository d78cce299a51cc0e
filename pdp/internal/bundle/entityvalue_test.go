package bundle_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp"
)

// TestStoredValues: Cedar's JSON forms of values become these values, and none of them a
// record that no policy finds anything in.
func TestStoredValues(t *testing.T) {
	t.Parallel()
	const schema = `entity user { a: datetime, d?: decimal, ip?: ipaddr, l?: duration, s?: Set<ipaddr>, r?: { fn: String, arg: String } }; entity doc; action x appliesTo { principal: user, resource: doc };`
	for _, c := range []struct{ attrs, holds, typed string }{
		{`{"a":{"__extn":{"fn":"datetime","arg":"2026-01-02"}}}`, `principal.a == datetime("2026-01-02")`, ""},
		{`{"a":{"__extn":{"fn":"datetime","args":["2026-01-02"]}}}`, `principal.a == datetime("2026-01-02")`, ""},
		{`{"a":{"__extn":{"fn":"datetime","arg":"2026-01-02","args":[],"x":1}}}`, `principal.a == datetime("2026-01-02")`, ""},
		{`{"a":{"__extn":{"fn":"offset","args":[{"__extn":{"fn":"datetime","arg":"1970-01-01"}},{"__extn":{"fn":"duration","arg":"1d"}}]}}}`, `principal.a == datetime("1970-01-02")`, ""},
		{`{"a":{"fn":"datetime","arg":"2026-01-02"}}`, `principal.a == datetime("2026-01-02")`, schema},
		{`{"a":"2026-01-02","d":{"fn":"decimal","arg":"1.5"},"l":{"fn":"duration","arg":"1h"}}`, `principal has d && principal.d == decimal("1.5") && principal has l && principal.l == duration("1h")`, schema},
		{`{"a":"2026-01-02","s":[{"fn":"ip","arg":"10.0.0.1"},"10.0.0.2",{"__extn":{"fn":"ip","args":["10.0.0.3"]}}]}`, `principal has s && principal.s == [ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.3")]`, schema},
		{`{"a":"2026-01-02","r":{"fn":"ip","arg":"10.0.0.1"}}`, `principal has r && principal.r == {fn: "ip", arg: "10.0.0.1"}`, schema},
		{`{"a":{"fn":"ip","arg":"10.0.0.1"},"b":{"c":[1,true,"x",{}]},"e":{"__entity":{"type":"doc","id":"1"}}}`, `principal == user::"u" && principal.a == {fn: "ip", arg: "10.0.0.1"} && principal.b == {c: [1, true, "x", {}]} && principal.e == doc::"1"`, ""},
	} {
		b := one(`permit(principal is user, action, resource is doc) when { `+c.holds+` };`, "entities/e.json", entities(entity("user", "u", c.attrs)))
		if c.typed != "" {
			b["schema.cedarschema"] = c.typed
		}
		if got := ask(t, b.Load(t), q("user:u", "x", "doc:1")); got != allow {
			t.Errorf("%s: got %s", c.attrs, got)
		}
	}
}

// TestNoStoredValueIsARecordByMistake: what is none of Cedar's forms refuses the bundle, and
// says where without saying what.
func TestNoStoredValueIsARecordByMistake(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"__extn":{"fn":"offset","args":[`, 2000) + strings.Repeat(`]}}`, 2000)
	for attrs, want := range map[string]string{
		`{"a":1.5}`:                                                                    "attrs.a is no integer of 64 bits",
		`{"a":9223372036854775808}`:                                                    "attrs.a is no integer of 64 bits",
		`{"a":{"b c":[1,null]}}`:                                                       `attrs.a["b c"][1] is null`,
		`{"a":{"__extn":{"fn":"ip","arg":"secret"}}}`:                                  "attrs.a is no ipaddr: ip takes one text",
		`{"a":{"__extn":{"fn":"ip","arg":1}}}`:                                         "attrs.a is no ipaddr",
		`{"a":{"__extn":{"fn":"ip","args":["::1",1]}}}`:                                "attrs.a is no ipaddr",
		`{"a":{"__extn":{"fn":"decimal","arg":"+1.0"}}}`:                               "attrs.a is no decimal",
		`{"a":{"__extn":{"fn":"ip","args":"::1"}}}`:                                    "attrs.a is no value of an extension type",
		`{"a":{"__extn":{"fn":"ip"}}}`:                                                 "attrs.a is no value of an extension type",
		`{"a":{"__extn":"secret"}}`:                                                    "attrs.a is no value of an extension type",
		`{"a":{"__extn":{"fn":"isIpv4","args":[{"__extn":{"fn":"ip","arg":"::1"}}]}}}`: "attrs.a calls a function other than",
		`{"a":{"__extn":{"fn":"offset","args":["2026-01-01","1d"]}}}`:                  "attrs.a is no datetime that Cedar can hold",
		`{"a":{"__extn":{"fn":"offset","args":[{"__extn":{"fn":"datetime","arg":"2026-01-01"}},{"__extn":{"fn":"duration","arg":"9223372036854775807ms"}}]}}}`: "attrs.a is no datetime that Cedar can hold",
		`{"a":{"__extn":{"fn":"ip","arg":"::1"},"b":1}}`:           "attrs.a has __extn beside other members",
		`{"a":[{"b":1,"__entity":{"type":"user","id":"secret"}}]}`: "attrs.a[0] has __entity beside other members",
		`{"a":{"__entity":{"type":"us er","id":"secret"}}}`:        "attrs.a names no entity",
		`{"a":{"__entity":{"type":"user"}}}`:                       "attrs.a names no entity",
		`{"a":{"__expr":"secret"}}`:                                "attrs.a is an expression",
		`{"__extn":{"fn":"ip","arg":"::1"}}`:                       "attrs is a value, and no object",
		`[]`:                                                       "attrs is no object",
		`{"a":` + deep + `}`:                                       "attrs.a has more calls within calls than are read",
	} {
		_, problems := pdp.Load(one(permitUsers, "entities/e.json", "[\n  "+entity("user", "alice", attrs)+"]").Source())
		if text := fmt.Sprint(problems); len(problems) != 1 || problems[0].Try == "" || problems[0].Line != 2 || problems[0].Column < 39 || !strings.Contains(text, "this entity of type user is not in Cedar's JSON form: "+want) || strings.Contains(text, "secret") {
			t.Errorf("%.200s:\n got %.400s\nwant %s", attrs, text, want)
		}
	}
	const schema = `entity user { a: ipaddr, b?: { c?: Set<{ n: Long }> }, l?: Long } tags datetime; action x appliesTo { principal: user, resource: user };`
	for attrs, want := range map[string]string{
		`{"a":"secret"}`:                            `attrs.a is declared as ipaddr, and is none`,
		`{"a":{"fn":"ip","arg":"secret"}}`:          `attrs.a is declared as ipaddr, and is none`,
		`{"a":{"fn":"decimal","arg":"1.5"}}`:        `attrs.a is declared as ipaddr, and is none`,
		`{"a":{"fn":"ip","args":["::1","::2"]}}`:    `attrs.a is declared as ipaddr, and is none`,
		`{"a":"::1","b":{"c":[{"n":1},{"n":"x"}]}}`: `attrs.b.c[].n is declared as Long`,
		`{"a":"::1","b":{"c":[{}]}}`:                `attrs.b.c[].n is required, and missing`,
		`{"a":"::1","x":1}`:                         `attrs.x is not declared`,
		`{}`:                                        `attrs.a is required, and missing`,
		`{"a":"::1"},"tags":{"t":"secret"}`:         `tags.t is declared as datetime, and is none`,
	} {
		_, problems := pdp.Load(one(permitUsers, "schema.cedarschema", schema, "entities/e.json", entities(entity("user", "alice", attrs))).Source())
		if text := fmt.Sprint(problems); len(problems) != 1 || problems[0].Line != 1 || problems[0].Column < 38 || !strings.Contains(text, `user::"alice" does not fit the schema: `+want) || strings.Contains(text, "secret") {
			t.Errorf("%s:\n got %s\nwant %s", attrs, text, want)
		}
	}
}
