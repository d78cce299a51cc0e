package filter_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/filetree"
	"policy-service/pdp/pdptest/night"
)

// mutants are mistakes in the translator, by name. The tests of the gate must fail with each of them.
var mutants = []struct{ name, file, old, new string }{
	{"fit: a required column may be NULL", "fit.go", "		fits = t.column(m.Column).isPresent()", "		fits = yes"},
	{"fit: a required member may be NULL", "fit.go", "			complete = all(complete, t.hasValue(member).is)", "			complete = all(complete, yes)"},
	{"fit: an optional record may be half there", "fit.go", "some(t.complete(m), t.hasValue(m).not)", "yes"},
	{"fit: an array may have NULL", "set.go", `bad += " WHEN array_position(" + array + ", NULL) IS NOT NULL THEN 1"`, "_ = bad"},
	{"fit: an array may have two dimensions", "set.go", `), 1) <> 1 THEN 1"`, `), 1) < 0 THEN 1"`},
	{"fit: a set in rows may have NULL", "set.go", "s.exists(s.element.isBad(!s.of.NoNullElement)).not", "yes"},
	{"fit: an array may have any size", "set.go", `") > " + mostElements + " OR`, `") > 100000000 OR`},
	{"fit: a set in rows may have any size", "set.go", `" LIMIT 1 OFFSET "+mostElements+")"`, `" LIMIT 1 OFFSET 100000000)"`},
	{"fit: a timestamptz may have any year", "fit.go", "case bundle.TimestamptzColumn:", "case \"no\":"},
	{"fit: milliseconds may have any year", "fit.go", "case bundle.MillisColumn:", "case \"no\":"},
	{"fit: a text may have U+0000", "fit.go", `good = append(good, "instr("+c.name+", char(0)) = 0")`, "_ = good"},
	{"fit: an element may have U+0000", "fit.go", `return some(bad, when("instr("+c.name+", char(0)) > 0"))`, "return bad"},
	{"fit: a column of SQLite may have any type", "fit.go", `good = append(good, "typeof("+c.name+") = "+c.storage())`, "_ = good"},
	{"fit: an element in SQLite may have any type", "fit.go", `bad = when("typeof(" + c.name + ") <> " + c.storage())`, "_ = bad"},
	{"fit: a boolean of SQLite may be 2", "fit.go", `good = append(good, c.name+" IN (0, 1)")`, "_ = good"},
	{"fit: a reference may be to no id of an enumerated type", "fit.go", "		fits = all(fits, of)\n	}\n	return fits", "	}\n	return fits"},
	{"fit: an element may be no id of an enumerated type", "set.go", "		within = s.isWithin(ids).is", "		within = yes"},
	{"fit: a parent may be no id of an enumerated type", "fit.go", "	case !enumerated:\n", "	case len(ids) > 0, !enumerated:\n"},
	{"fit: a row may be no id of an enumerated type", "fit.go", "	if enumerated {\n		parts", "	if enumerated && ids == nil {\n		parts"},
	{"the tenant is not asked for", "filter.go", "		rest = append(rest, t.column(t.mapping.Tenant).is(in.Request.Tenant).is)", ""},
	{"a forbid that holds does not deny", "filter.go", "	return is.not\n}", "	return is.is\n}"},
	{"an errored forbid does not deny", "filter.go", "	if t.bundle.Config.IgnoreForbidErrors {\n		return isNotTrue(is.is)\n	}\n	return is.not", "	return isNotTrue(is.is)"},
	{"an errored forbid denies where errors are ignored", "filter.go", "		return isNotTrue(is.is)", "		return is.not"},
	{"a permit with an obligation permits", "filter.go", "		case p.Forbids(), len(owes) > 0:", "		case p.Forbids():"},
	{"an expression behind an errored one counts", "translate.go", "		after = all(t.is, after)", "		_ = after"},
	{"an attribute that may be NULL is there", "operand.go", "when: all(a.when, present.is)", "when: a.when"},
	{"SQLite compares by the column's collation", "column.go", `		return c.name + " COLLATE BINARY"
	case c.doubted()`, `		return c.name
	case c.doubted()`},
	{"PostgreSQL compares by the column's collation", "column.go", "c.dialect == Postgres && c.typ == bundle.TextColumn && !c.strict", "false"},
	{"a time after a bound is in its millisecond", "column.go", "min(bound, lastMilli) + 1", "min(bound, lastMilli)"},
	{"the opposite of < is >", "column.go", `opposite = map[string]string{"<": ">="`, `opposite = map[string]string{"<": ">"`},
	{"a mirrored comparison is the same", "compare.go", "left, right, sign = right, left, mirrored[sign]", "left, right = right, left"},
	{"columns of times are compared by microseconds", "column.go", `return "date_trunc('milliseconds', " + c.name + ")"`, "return c.name"},
	{"a column of the other table is not qualified", "set.go", `column{inner + "." + quote(m.Rows.Value.Name)`, `column{quote("id")`},
	{"parameters are numbered from the next", "column.go", `return "?" + strconv.Itoa(n)`, `return "?" + strconv.Itoa(n+1)`},
	{"a uuid may be in upper case", "column.go", "return uuids.MatchString(text)", "return uuids.MatchString(strings.ToLower(text))"},
	{"a number may have zeros before it", "column.go", "return err == nil && strconv.FormatInt(n, 10) == text", "_ = n\n		return err == nil"},
	{"U+0000 is sent to PostgreSQL", "column.go", `return utf8.ValidString(text) && !strings.Contains(text, "\x00")`, "return utf8.ValidString(text)"},
	{"* is a star in GLOB", "column.go", `"*", "[*]", `, ""},
	{"? is any in GLOB", "column.go", `"?", "[?]", `, ""},
	{"[ begins a class in GLOB", "column.go", `, "[", "[[]")`, ")"},
	{"% is a star in LIKE", "column.go", `"%", "!%", `, ""},
	{"_ is any in LIKE", "column.go", `, "_", "!_")`, ")"},
	{"! is an escape in LIKE", "column.go", `"!", "!!", `, ""},
	{"a row is in no group by its parents", "compare.go", "		made = made.or(truth{all(present.is, gives.is), some(present.not, all(present.is, gives.not)), true})", "		_, _ = present, gives"},
	{"a group is not in itself", "compare.go", "		ids = append(ids, string(l.Uid.ID))", "		if !slices.Contains(uids, l.Uid) {\n			ids = append(ids, string(l.Uid.ID))\n		}"},
	{"members are stored ones", "../engine/open.go", "		up := bundle.LineageOf(uid, o.Entities)", "		up := bundle.LineageOf(uid, o.Entities.Store)"},
	{"what reads a row is known", "translate.go", "	r.met = r.met || uid.Type == r.mapped ||", "	_ = uid.Type == r.mapped ||"},
	{"a stored row is no hindrance", "filter.go", "		if len(s.Ids[t.mapping.Type]) > 0 {", "		if false {"},
	{"a row between an owner and a group is no hindrance", "compare.go", "	if alone && t.known.climbs {", "	if false {"},
}

// Each mutant can still be made, and the night makes each, and runs the tests of the gate until one fails.
func TestMutants(t *testing.T) {
	t.Parallel()
	top, err := filetree.Top()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "pdp", "internal", "filter")
	for _, m := range mutants {
		file := filepath.Join(dir, m.file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: %s has %d of its places, not one", m.name, m.file, n)
		}
	}
	night.Whole(t, "it compiles and runs the tests of filters once for each mutant, and what it finds is a test that has become weaker")
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			file := filepath.Join(dir, m.file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			mutated := filepath.Join(t.TempDir(), "mutated.go")
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(t.TempDir(), "overlay.json")
			for name, content := range map[string]string{mutated: strings.Replace(string(text), m.old, m.new, 1), at: string(overlay)} {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			said, err := exec.Command("go", "test", "-vet=off", "-short", "-failfast", "-overlay", at, "-run", "^(TestCase|TestPairs)", dir).CombinedOutput()
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Error("no test fails")
			case !errors.As(err, &exit) || !strings.Contains(string(said), "--- FAIL"):
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}
