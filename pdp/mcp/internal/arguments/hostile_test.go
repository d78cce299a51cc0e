package arguments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest/night"
)

// soon runs something that must end soon, whatever machine it is on, and make not much of what is to be collected. The race
// detector has pools forget what is in them, so that regexp makes all anew: then that is not looked at.
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

// What a schema's author writes to hang who compiles it is an error, soon.
func TestHostileSchemas(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, schema, want string }{
		{"itself", `{"$ref":"#"}`, "never end"},
		{"itself by a choice", `{"anyOf":[{"type":"string"},{"$ref":"#"}]}`, "never end"},
		{"in a circle", `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}}}`, "never end"},
		{"a fork of forks", `{"$ref":"#/$defs/d0","$defs":{` + repeated(60, func(i int) string {
			return fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
		}) + `,"d60":{}}}`, "fork too often"},
		{"a long chain", `{"$ref":"#/$defs/d0","$defs":{` + repeated(2000, func(i int) string { return fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1) }) + `,"d2000":{}}}`, "too long a chain"},
		{"a file", `{"$ref":"file://` + secret + `"}`, "nothing outside"},
		{"an address", `{"$ref":"http://127.0.0.1:1/x"}`, "nothing outside"},
		{"beside it", `{"$ref":"other.json"}`, "nothing outside"},
		{"a dialect elsewhere", `{"$schema":"http://127.0.0.1:1/x"}`, "nothing outside"},
		{"the language itself", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, "nothing outside"},
		{"nowhere", `{"$ref":"#/$defs/none"}`, "not found"},
		{"a large pattern", `{"pattern":"((a{50}){20}){1}b{1000}c{1000}d{1000}e{1000}f{1000}g{1000}h{1000}i{1000}j{1000}k{1000}"}`, "inputSchema/pattern: the pattern is too large"},
		{"a long pattern", `{"pattern":"` + strings.Repeat("a", mostPattern+1) + `"}`, "too large"},
		{"a pattern of patterns", `{"pattern":"(((a{1000}){1000}){1000}){1000}"}`, "too large"},
		{"looking ahead", `{"pattern":"x(?!x)"}`, "looking ahead"},
		{"a number", `{"minimum":1e-999999999}`, "too fine"},
		{"another number", `{"multipleOf":1e999999999}`, "too large"},
		{"a long number", `{"minimum":` + strings.Repeat("9", 500) + `}`, "too large"},
		{"a length", `{"maxLength":1e30}`, "too large"},
		{"names", `{` + strings.Repeat(`"properties":{"`+strings.Repeat("x", 4000)+`":{`, 25) + `"properties":{` + repeated(2000, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) }) + `}` + strings.Repeat(`}}`, 25) + `}`, "too long"},
		{"values", `{"properties":{` + repeated(20_000, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) }) + `}}`, "10000"},
		{"no schema", `{"properties":{"a":{"type":"text"}}}`, "inputSchema/properties/a/type: this is not JSON Schema"},
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
		compiled(t, `{"properties":{`+repeated(9_000, func(i int) string { return fmt.Sprintf(`"%d":{}`, i) })+`}}`, Open)
	})
}

// What takes too long to check is an error, soon, and no fit.
func TestHostileArguments(t *testing.T) {
	many := `{"a":[` + repeated(50_000, func(i int) string { return fmt.Sprint(i) }) + `]}`
	deep := strings.Repeat(`{"a":`, 30) + `{}` + strings.Repeat(`}`, 30)
	for _, c := range []struct{ what, schema, arguments string }{
		{"forks at each depth", `{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, deep},
		{"forks at each depth, in a choice", `{"properties":{"a":{"oneOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}}}`, deep},
		{"a pattern", `{"properties":{"a":{"pattern":"(x+x+){99}y"}}}`, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`},
		{"patterns for names", `{"patternProperties":{` + repeated(2000, func(i int) string { return fmt.Sprintf(`"x.*%d":{}`, i) }) + `}}`,
			`{` + repeated(20_000, func(i int) string { return fmt.Sprintf(`"x%d":1`, i) }) + `}`},
		{"choices for elements", `{"properties":{"a":{"items":{"anyOf":[` + repeated(3000, func(i int) string { return fmt.Sprintf(`{"const":"%d"}`, i) }) + `]}}}}`, many},
	} {
		s := compiled(t, c.schema, Open)
		soon(t, c.what, func() {
			if problems, err := s.Check([]byte(c.arguments)); !errors.Is(err, ErrCostly) || problems != nil {
				t.Errorf("%s: %v, %v", c.what, problems, err)
			}
		})
	}
	for _, c := range []struct{ what, schema, arguments, want string }{
		{"a large enum", `{"properties":{"a":{"items":{"enum":[` + repeated(9000, func(i int) string { return fmt.Sprint(i * 10) }) + `]}}}}`, many, "/a/1: must be one of"},
		{"all unequal", `{"properties":{"a":{"uniqueItems":true}}}`, many, ""},
		{"a long text", `{"properties":{"a":{"pattern":"^(?:[A-Za-z0-9+/]{4})*$","maxLength":2000000}}}`, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, ""},
		{"a long number", `{"properties":{"a":{"type":"integer","multipleOf":7}}}`, `{"a":` + strings.Repeat("1", 1<<20) + `}`, "/a: is a number that is too long"},
		{"a fine number", `{"properties":{"a":{"multipleOf":0.5}}}`, `{"a":1e-999999999}`, "/a: must be a multiple"},
		{"a great number", `{"properties":{"a":{"multipleOf":3}}}`, `{"a":3e999999999}`, ""},
	} {
		s := compiled(t, c.schema, Open)
		soon(t, c.what, func() {
			if got := told(t, s, c.arguments); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%s: %.300s", c.what, got)
			}
		})
	}
}
