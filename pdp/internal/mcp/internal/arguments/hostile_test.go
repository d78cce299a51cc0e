package arguments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"policy-service/pdp/pdptest/night"
)

// soon runs something that must end soon, on any machine, and must not allocate much. The race
// detector empties pools, so that regexp allocates anew: then the allocations do not count.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	f()
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	if took > time.Minute {
		t.Errorf("%s took %v", what, took)
	}
	if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 1000 && !night.Race {
		t.Errorf("%s made %d MiB", what, made)
	}
	t.Logf("%s: %v, %d MiB", what, took, (after.TotalAlloc-before.TotalAlloc)>>20)
}

// repeated is n texts behind each other, with commas between.
func repeated(n int, of func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = of(i)
	}
	return strings.Join(all, ",")
}

// A schema that is written to hang its reader is an error, soon.
func TestHostileSchemas(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.json")
	must(t, os.WriteFile(secret, []byte(`{"type":"object"}`), 0o600))
	for _, c := range []struct{ what, schema, want string }{
		{"itself", `{"$ref":"#"}`, "refers to itself"},
		{"itself by a choice", `{"anyOf":[{"type":"string"},{"$ref":"#"}]}`, "refers to itself"},
		{"in a circle", `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}}}`, "refers to itself"},
		{"a fork of forks", `{"$ref":"#/$defs/d0","$defs":{` + repeated(60, func(i int) string {
			return fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
		}) + `,"d60":{}}}`, "forks too often"},
		{"a long chain", `{"$ref":"#/$defs/d0","$defs":{` + repeated(400, func(i int) string { return fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1) }) + `,"d400":{}}}`, "refers to itself"},
		{"a file", `{"$ref":"file://` + secret + `"}`, "nothing outside"},
		{"an address", `{"$ref":"http://127.0.0.1:1/x"}`, "nothing outside"},
		{"beside it", `{"$ref":"other.json"}`, "nothing outside"},
		{"a dialect elsewhere", `{"$schema":"http://127.0.0.1:1/x"}`, "nothing outside"},
		{"the language itself", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "nothing outside"},
		{"nowhere", `{"$ref":"#/$defs/none"}`, "not found"},
		{"a large pattern", `{"pattern":"((a{50}){20}){1}b{1000}c{1000}d{1000}e{1000}f{1000}g{1000}h{1000}i{1000}j{1000}k{1000}"}`, "inputSchema/pattern: the pattern is too large"},
		{"a long pattern", `{"pattern":"` + strings.Repeat("a", mostPattern+1) + `"}`, "too large"},
		{"a pattern of patterns", `{"pattern":"(((a{1000}){1000}){1000}){1000}"}`, "too large"},
		{"looking ahead", `{"pattern":"^(?!x)"}`, "looking ahead"},
		{"a dynamic reference", `{"$dynamicRef":"#x","$defs":{"y":{"$dynamicAnchor":"x"}}}`, "refer by $ref"},
		{"a recursive reference", `{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"a":{"$recursiveRef":"#"}}}`, "refer by $ref"},
		{"a number", `{"minimum":1e-999999999}`, "too fine"},
		{"another number", `{"multipleOf":1e999999999}`, "too large"},
		{"a long number", `{"minimum":` + strings.Repeat("9", 500) + `}`, "too large"},
		{"a length", `{"maxLength":1e30}`, "too large"},
		{"names", `{` + strings.Repeat(`"properties":{"`+strings.Repeat("x", 900)+`":{`, 25) + `"properties":{` + repeated(400, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) }) + `}` + strings.Repeat(`}}`, 25) + `}`, "too long"},
		{"values", `{"enum":[` + repeated(20_000, func(int) string { return "1" }) + `]}`, "10000"},
		{"bytes", `{"title":"` + strings.Repeat("x", 1<<16) + `"}`, "65536"},
		{"schemas", `{"properties":{` + repeated(500, func(i int) string { return fmt.Sprintf(`"%d":true`, i) }) + `}}`, "more than 500"},
		{"no schema", `{"properties":{"a":{"type":"text"}}}`, "inputSchema/properties/a/type: this is not JSON Schema"},
		{"zeros before a number", `{"allOf":[{}],"x":[{"$ref":"#/allOf/0"},{"$ref":"#/allOf/00"}]}`, "inputSchema/x/1/$ref: a reference whose number"},
		{"a sign before a number", `{"allOf":[{"$ref":"#/allOf/+1"},{}]}`, "a reference whose number"},
		{"another sign", `{"allOf":[{},{"$dynamicRef":"#/allOf/-0"}]}`, "a reference whose number"},
		{"zeros that are escaped", `{"allOf":[{},{"$recursiveRef":"x:y#/allOf/%30%30/not"}]}`, "a reference whose number"},
		{"no object", `true`, "object"},
		{"twice", `{"type":"object","type":"string"}`, "type"},
	} {
		soon(t, c.what, func() {
			if _, err := Compile([]byte(c.schema), Open); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 600 {
				t.Errorf("%s: %v, and not %q", c.what, err, c.want)
			}
		})
	}
	soon(t, "as large as may be", func() {
		compiled(t, `{"properties":{`+repeated(490, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) })+`}}`, Closed)
	})
	soon(t, "as many references as may be", func() {
		compiled(t, `{"x":[`+repeated(240, func(i int) string { return "{}" })+`],"properties":{`+repeated(240, func(i int) string { return fmt.Sprintf(`"%d":{"$ref":"#/x/%d"}`, i, i) })+`}}`, Closed)
	})
	soon(t, "as many resources as may be", func() {
		compiled(t, `{"properties":{`+repeated(490, func(i int) string { return fmt.Sprintf(`"%d":{"$id":"x:%d"}`, i, i) })+`}}`, Closed)
	})
}

// A check that could take too long is an error, soon, and no fit. A check just below the bound passes.
func TestHostileArguments(t *testing.T) {
	many := `{"a":[` + repeated(50_000, func(i int) string { return fmt.Sprint(i) }) + `]}`
	some := `{"a":[` + repeated(5_000, func(i int) string { return fmt.Sprint(i) }) + `]}`
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + `{}` + strings.Repeat(`}`, n) }
	text := func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` }
	split := func(n int) string { // arrays of texts that the library has one hash for
		return `{"a":[` + repeated(n, func(i int) string {
			var b strings.Builder
			for bit := range 14 {
				b.WriteString("x" + map[bool]string{true: `","`, false: `\u0004`}[i>>bit&1 == 1])
			}
			return `["` + b.String() + `"]`
		}) + `]}`
	}
	forks := `{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`
	choices := func(n int) string {
		return `{"properties":{"a":{"items":{"anyOf":[` + repeated(n, func(i int) string { return fmt.Sprintf(`{"const":"%d"}`, i) }) + `]}}}}`
	}
	patterns := func(n int) string {
		return `{"patternProperties":{` + repeated(n, func(i int) string { return fmt.Sprintf(`"x.*%d":{}`, i) }) + `}}`
	}
	names := func(n int) string {
		return `{` + repeated(n, func(i int) string { return fmt.Sprintf(`"x%d":1`, i) }) + `}`
	}
	chain := `{"properties":{"a":{"$ref":"#/$defs/c0"}},"$defs":{` + repeated(20, func(i int) string {
		return fmt.Sprintf(`"c%d":{"properties":{"a":{"$ref":"#/$defs/c%d"}},"allOf":[{"$ref":"#/$defs/c%d"}]}`, i, i, i+1)
	}) + `,"c20":{}}}`
	for _, c := range []struct{ what, schema, arguments string }{
		{"forks at each depth", forks, deep(30)},
		{"forks at each depth, in a choice", `{"properties":{"a":{"oneOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}}}`, deep(30)},
		{"forks without recursion", `{"$ref":"#/$defs/d0","$defs":{` + repeated(30, func(i int) string {
			return fmt.Sprintf(`"d%d":{"properties":{"a":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}}}`, i, i+1, i+1)
		}) + `,"d30":{}}}`, deep(30)},
		{"one recursion below another", chain, deep(60)},
		{"a pattern", `{"properties":{"a":{"pattern":"(x+x+){99}y"}}}`, text(1 << 20)},
		{"patterns for names", patterns(400), names(20_000)},
		{"choices for elements", choices(400), many},
		{"elements of an enum", `{"properties":{"a":{"items":{"enum":[` + repeated(9000, func(i int) string { return fmt.Sprint(i) }) + `]}}}}`, many},
		{"copies of a text", `{"properties":{"a":{"anyOf":[` + repeated(300, func(int) string { return `{"minLength":2000000}` }) + `]}}}`, text(1 << 20)},
		{"unequal arrays of one hash", `{"properties":{"a":{"uniqueItems":true}}}`, split(4000)},
		{"members that are looked back at", `{"unevaluatedProperties":false,"anyOf":[` + repeated(300, func(int) string { return `{"minProperties":1}` }) + `]}`, names(2000)},
		{"members for choices", `{"anyOf":[` + repeated(15, func(i int) string { return fmt.Sprintf(`{"$ref":"#/$defs/%d"}`, i) }) + `],"$defs":{` + repeated(15, func(i int) string { return fmt.Sprintf(`"%d":{"required":["y%d"]}`, i, i) }) + `}}`, names(64_000)},
		{"members for references", `{"allOf":[` + repeated(80, func(int) string { return `{"$ref":"#/$defs/a"}` }) + `],"$defs":{"a":{"allOf":[` + repeated(80, func(int) string { return `{"$ref":"#/$defs/b"}` }) + `]},"b":{"additionalProperties":false,"minProperties":1}}}`, names(64_000)},
		{"elements for choices", `{"properties":{"a":{"anyOf":[` + repeated(15, func(int) string { return `{"minItems":60000}` }) + `]}}}`, many},
		{"members that booleans are looked back at", `{"unevaluatedProperties":false,"allOf":[` + repeated(400, func(i int) string { return []string{"true", "{}"}[i%2] }) + `]}`, names(2000)},
		{"elements that booleans are looked back at", `{"properties":{"a":{"unevaluatedItems":false,"anyOf":[` + repeated(400, func(int) string { return `false` }) + `]}}}`, some},
		{"many dependencies", `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"items":{"dependencies":{"x":[` + repeated(5000, func(i int) string { return fmt.Sprintf(`"%d"`, i) }) + `]}}}}}`, `{"a":[` + repeated(1000, func(int) string { return `{"x":1}` }) + `]}`},
		{"many required", `{"properties":{"a":{"items":{"required":[` + repeated(5000, func(i int) string { return fmt.Sprintf(`"%d"`, i) }) + `]}}}}`, `{"a":[` + repeated(1000, func(int) string { return "{}" }) + `]}`},
	} {
		s := compiled(t, c.schema, Open)
		soon(t, c.what, func() {
			if problems, err := s.Check([]byte(c.arguments)); !errors.Is(err, ErrCostly) || problems != nil {
				t.Errorf("%s: %v, %v", c.what, problems, err)
			}
		})
	}
	for _, c := range []struct{ what, schema, arguments, want string }{
		{"a large enum", `{"properties":{"a":{"items":{"enum":["x",` + repeated(200, func(i int) string { return fmt.Sprint(i * 10) }) + `]}}}}`, `{"a":[` + repeated(30, func(i int) string { return fmt.Sprint(i) }) + `]}`, "/a/1: does not fit the schema's enum"},
		{"all unequal", `{"properties":{"a":{"uniqueItems":true}}}`, some, ""},
		{"unequal arrays of one hash", `{"properties":{"a":{"uniqueItems":true}}}`, split(250), ""},
		{"a long text", `{"properties":{"a":{"pattern":"^(?:[A-Za-z0-9+/]{4})*$","maxLength":2000000}}}`, text(100 << 10), ""},
		{"a text as long as may be", `{"properties":{"a":{"maxLength":2000000}}}`, text(960 << 10), ""},
		{"forks at few depths", forks, deep(10), ""},
		{"choices", choices(100), `{"a":[` + repeated(300, func(i int) string { return fmt.Sprintf(`"x%d"`, i) }) + `]}`, "/a/0: does not fit"},
		{"patterns for names", patterns(60), names(30), ""},
		{"members that are looked back at", `{"unevaluatedProperties":false,"anyOf":[` + repeated(50, func(int) string { return `{"minProperties":1}` }) + `]}`, names(500), "/x0: is not a member"},
		{"many numbers", `{"properties":{"a":{"items":{"type":"integer","minimum":0.5,"maximum":1,"exclusiveMinimum":0,"exclusiveMaximum":3,"multipleOf":0.7}}}}`, `{"a":[` + repeated(4_000, func(i int) string { return fmt.Sprint(i) }) + `]}`, "/a/0: does not fit"},
		{"many members", `{"additionalProperties":{"type":"string"}}`, names(10_000), "/x"},
		{"members as many as may be", `{"additionalProperties":false}`, names(64_000), "/x0: is not a member"},
		{"many elements", `{"properties":{"a":{"items":{"type":"string"}}}}`, `{"a":[` + repeated(10_000, func(i int) string { return fmt.Sprint(i) }) + `]}`, "/a/0: is of type number"},
		{"trees", `{"properties":{"a":{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"null"}]}}}`, strings.Repeat(`{"a":[`, 20) + repeated(1000, func(int) string { return `{"a":null}` }) + strings.Repeat(`]}`, 20), ""},
	} {
		s := compiled(t, c.schema, Open)
		soon(t, c.what, func() {
			if got := told(t, s, c.arguments); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%s: %.300s", c.what, got)
			}
		})
	}
	unlistedMembers := problems{}
	unlistedMembers.collect(&jsonschema.ValidationError{ErrorKind: &kind.AdditionalProperties{Properties: append(slices.Repeat([]string{"b"}, 64_000), "a")}})
	if n := len(unlistedMembers.all); n != mostSorted || unlistedMembers.all[0].Pointer != "/a" {
		t.Errorf("of 64,000 members %d problems, %v the first", n, unlistedMembers.all[0])
	}
}
