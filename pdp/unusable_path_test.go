package pdp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// arguments of a tool that Cedar cannot hold, each with the place that the answer names.
var unusableArguments = []struct{ what, json, pointer, detail string }{
	{"a fraction", `1.5`, "", "not an integer"},
	{"a number beyond 64 bits", `9223372036854775808`, "", "beyond 64 bits"},
	{"a null in an array", `[1,null]`, "/1", "Cedar has no null"},
	{"a fraction in an array", `[0,[2.5]]`, "/1/0", "not an integer"},
	{"a fraction in an object in an array", `[{"deep":{"x":0.5}}]`, "/0/deep/x", "not an integer"},
	{"a polygon of GeoJSON", `[[[1,2],[3,4],[5,6],[1,2]]]`, "/0/0", "arrays nest more than 2 deep"},
	{"arrays three deep through objects", `[{"a":[{"b":[]}]}]`, "/0/a/0/b", "arrays nest more than 2 deep"},
	{"arrays 10 deep", strings.Repeat("[", 10) + strings.Repeat("]", 10), "/0/0", "arrays nest more than 2 deep"},
	{"129 rows", "[" + strings.Repeat(`{"id":1},`, 128) + `{"id":1}]`, "", "holds arrays or objects and has more than 128"},
	{"129 elements, the last nested", "[" + strings.Repeat("1,", 128) + "[]]", "", "holds arrays or objects and has more than 128"},
	{"4,097 elements", "[1" + strings.Repeat(",1", 4096) + "]", "", "more than 4096 elements"},
	{"19,000 elements", "[1" + strings.Repeat(",1", 18_999) + "]", "", "more than 4096 elements"},
}

// TestUnusableWhereItStands: what Cedar cannot hold is left out where it stands, in the arguments and in a property: a
// policy that reads it, something around it as a value, or asks for its name, errs, and no other does.
func TestUnusableWhereItStands(t *testing.T) {
	t.Parallel()
	// NAME stands for the record around it, OTHER for one beside it, and TOP for the name that it stands below.
	reading := []string{
		`NAME.x == 1`, `NAME["x"] == 1`, `NAME.x.y == 1`, `NAME.x has y`, `(if principal.b then NAME else {x: 1}).x == 1`,
		`NAME has x`, `NAME has "x"`, `NAME has x.y`, `!(NAME has x)`, `context has arguments && false || NAME has x`,
		`NAME == {y: 1}`, `NAME != {y: 1}`, `[NAME].contains({y: 1})`, `[{y: 1}].containsAll([NAME])`, `[1].containsAny([NAME, 1])`, `[NAME].isEmpty()`,
		`{a: NAME}.a == {y: 1}`, `{a: {b: NAME}}.a.b.y == 1`, `{a: NAME} has a && true`, `(if principal.b then NAME else context.arguments.q).y == 1`,
		`(if NAME.y == 1 then NAME else NAME) == {y: 1}`, `[1].contains(NAME.x)`, `NAME.x like "*"`, `NAME.x is User`, `NAME.x in User::"u"`,
		`principal in NAME.x`, `principal.hasTag(NAME.x)`, `-(NAME.x) == 1`, `ip(NAME.x).isLoopback()`, `NAME.x < 2`, `TOP != {}`,
	}
	beside := []string{
		`NAME.y == 1`, `NAME["y"] == 1`, `NAME has y`, `NAME has z || true`, `OTHER.x == 1`, `OTHER has x`, `{a: NAME.y}.a == 1`, `[NAME.y].contains(1)`,
		`(if NAME.y == 1 then NAME.y else 2) == 1`, `principal has b`, `context has arguments`, `context has arguments.geo.y`, `principal has profile`,
		`principal has profile.geo.y`, `context.arguments has geo`, `principal.profile has geo`, `context.pdp.tenant == "default"`, `principal is User`, `context.action == {}`,
	}
	for _, where := range []struct{ name, top, other, body, pointer string }{
		{"context.arguments.geo", "context.arguments", "principal.profile.geo", `"context":{"arguments":{"geo":{"x":%s,"y":1},"q":{"y":1}}}`, "/context/arguments/geo/x"},
		{"principal.profile.geo", "principal.profile", "context.arguments.geo", `"context":{"arguments":{"geo":{"x":1,"y":1},"q":{"y":1}}}`, "/subject/properties/profile/geo/x"},
	} {
		expand := strings.NewReplacer("NAME", where.name, "OTHER", where.other, "TOP", where.top).Replace
		for _, value := range unusableArguments {
			profile := `{"geo":{"x":1,"y":1}}`
			body := where.body
			if strings.Contains(body, "%s") {
				body = fmt.Sprintf(body, value.json)
			} else {
				profile = `{"geo":{"x":` + value.json + `,"y":1}}`
			}
			r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"User","id":"u","properties":{"b":true,"profile":`+profile+`}},"action":{"name":"read"},"resource":{"type":"Doc","id":"d"},`+body+`}`),
				"", evaluation.DefaultLimits())
			must(t, err)
			for errs, conditions := range map[bool][]string{true: reading, false: beside} {
				for _, condition := range conditions {
					b := bundleOfFiles(t, map[string]string{
						"p.cedar":     `@id("p") permit (principal, action, resource) when { true }; @id("f") forbid (principal, action, resource) when { (` + expand(condition) + `) && false };`,
						"bundle.yaml": "forbid_errors: ignore\nallow_trivial: true\n", // which never holds for unusable values
					})
					d, err := decideBy(context.Background(), b, Call{Request: r, Now: propertyTime})
					must(t, err)
					counts := slices.ContainsFunc(d.Errors, func(e evaluation.PolicyError) bool { return e.Policy == "f" && e.Kind == evaluation.UnusableValue })
					if counts != errs || d.Allow == errs || errs && d.Reason != evaluation.ErroredPolicy {
						t.Errorf("%s, %s: errs %t (%v), want %t: allow %t, %q", value.what, expand(condition), counts, d.Errors, errs, d.Allow, d.Reason)
					}
					if len(d.Mismatch) != 1 || d.Mismatch[0].Pointer != where.pointer+value.pointer || !strings.Contains(d.Mismatch[0].Detail, value.detail) {
						t.Errorf("%s: noted %v", value.what, d.Mismatch)
					}
				}
			}
		}
	}
}

// What a declared type cannot hold does not fit the schema, and what the schema does not declare is dropped, however deep it
// nests. An attribute that gives parents has no form that policies could not see.
func TestUnusableBesideASchema(t *testing.T) {
	t.Parallel()
	b := bundleOfFiles(t, map[string]string{
		"schema.cedarschema": `entity Role; entity User in [Role] { roles?: Set<String> }; entity Doc;
			action read appliesTo { principal: [User], resource: [Doc], context: { arguments?: { rows?: Set<{ id?: Long }>, n?: Long, deep?: Set<Set<Set<Long>>> } } };`,
		"bundle.yaml": "parents: {User: {roles: Role}}\n",
		"p.cedar":     `permit (principal, action, resource) unless { context has arguments.n && context.arguments.n > 1 };`,
	})
	rows := func(n int) string { return "[" + strings.Repeat(`{"id":1},`, n-1) + `{"id":1}]` }
	for what, c := range map[string]struct{ properties, arguments, pointer, detail string }{
		"128 rows":                     {`{}`, `{"rows":` + rows(128) + `,"n":1}`, "", ""},
		"129 rows":                     {`{}`, `{"rows":` + rows(129) + `,"n":1}`, "/context/arguments/rows", "holds arrays or objects and has more than 128"},
		"arrays three deep":            {`{}`, `{"deep":[[[1]]],"n":1}`, "/context/arguments/deep/0/0", "arrays nest more than 2 deep"},
		"a fraction for an integer":    {`{}`, `{"n":1.5}`, "/context/arguments/n", "not an integer"},
		"129 rows that are undeclared": {`{}`, `{"more":` + rows(129) + `,"polygon":[[[1.5]]],"n":1}`, "", ""},
		"4,096 roles":                  {`{"roles":["r"` + strings.Repeat(`,"r"`, 4095) + `]}`, `{}`, "", ""},
	} {
		r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"User","id":"u","properties":`+c.properties+`},"action":{"name":"read"},"resource":{"type":"Doc","id":"d"},"context":{"arguments":`+c.arguments+`}}`),
			"", evaluation.DefaultLimits())
		must(t, err)
		d, err := decideBy(context.Background(), b, Call{Request: r, Now: propertyTime})
		must(t, err)
		fits := c.pointer == ""
		if d.Allow != fits || !fits && (d.Reason != evaluation.SchemaMismatch || d.Mismatch[0].Pointer != c.pointer || !strings.Contains(d.Mismatch[0].Detail, c.detail)) {
			t.Errorf("%s: allow %t, %q, %v", what, d.Allow, d.Reason, d.Mismatch)
		}
	}
	r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"User","id":"u","properties":{"roles":["r"`+strings.Repeat(`,"r"`, 4096)+`]}},"action":{"name":"read"},"resource":{"type":"Doc","id":"d"}}`),
		"", evaluation.DefaultLimits())
	must(t, err)
	if _, err := decideBy(context.Background(), b, Call{Request: r, Now: propertyTime}); err == nil || !strings.Contains(err.Error(), "/subject/properties/roles") {
		t.Errorf("4,097 roles: %v", err)
	}
}

// An obligation that is filled with an unusable argument cannot be filled, and one with the argument beside it can.
func TestUnusableInAnObligation(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]evaluation.Reason{"x": evaluation.ObligationUnfilled, "y": ""} {
		b := bundleOfFiles(t, map[string]string{
			"obligations.yaml": `say: {type: log, on: allow, properties: {text: "${context.arguments.` + name + `}"}}`,
			"bundle.yaml":      "allow_trivial: true\n",
			"p.cedar":          `@obligation("say") permit (principal, action, resource);`,
		})
		r, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"User","id":"u"},"action":{"name":"read"},"resource":{"type":"Doc","id":"d"},
			"context":{"arguments":{"x":1.5,"y":2},"supported_obligations":["log"]}}`), "", evaluation.DefaultLimits())
		must(t, err)
		d, err := decideBy(context.Background(), b, Call{Request: r, Now: propertyTime})
		must(t, err)
		if d.Allow != (reason == "") || d.Reason != reason {
			t.Errorf("%s: allow %t, %q", name, d.Allow, d.Reason)
		}
	}
}
