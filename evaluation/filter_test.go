package evaluation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// filterText is what a body asks, a line a question, or what is wrong with it.
func filterText(body string) string {
	f, err := evaluation.DecodeFilter([]byte(body), "acme", "", evaluation.DefaultLimits())
	if err != nil {
		return "400 " + err.(*evaluation.Error).Error()
	}
	lines := []string{fmt.Sprint(f.Dialect, " from ", f.FirstParameter)}
	for _, q := range f.Questions {
		text, _ := q.Request.MarshalJSON()
		lines = append(lines, fmt.Sprintf("%s: %s as %q", q.Request.Tenant, text, q.Alias))
	}
	return strings.Join(lines, "\n")
}

func TestDecodeFilter(t *testing.T) {
	t.Parallel()
	const (
		who  = `"dialect":"postgres","subject":{"type":"user","id":"u-17","properties":{"p":1}}`
		one  = who + `,"action":{"name":"read"},"resource":{"type":"document"}`
		asks = `{"subject":{"type":"user","id":"u-17","properties":{"p":1}},"action":{"name":"read"},"resource":{"type":"document","id":""}`

		noProperties = "a filter is about all resources of a type, and has their ids and properties from rows"
		shows        = "a filter declares no obligation, and shows no approval, capability or reason; leave it out"
		badAlias     = "not a letter or underscore with at most 62 letters, digits and underscores behind it, or it begins with _pf"
	)
	for name, c := range map[string]struct{ body, want string }{
		"one":                  {`{` + one + `}`, "postgres from 1\nacme: " + asks + `} as ""`},
		"one of null":          {`{` + one + `,"filters":null,"alias":null,"first_parameter":null,"options":null}`, "postgres from 1\nacme: " + asks + `} as ""`},
		"all of it":            {`{` + one + `,"alias":"d","first_parameter":60000,"context":{"c":1,"person":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"},"options":{}}`, "postgres from 60000\nacme: " + asks + `,"context":{"c":1,"person":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}} as "d"`},
		"several":              {`{` + who + `,"context":{"c":1},"filters":[{"action":{"name":"read"},"resource":{"type":"document"},"alias":"d"},{"action":{"name":"edit"},"resource":{"type":"folder"},"context":{}}]}`, "postgres from 1\nacme: " + asks + `,"context":{"c":1}} as "d"` + "\nacme: " + strings.NewReplacer("read", "edit", "document", "folder").Replace(asks) + `} as ""`},
		"all shared":           {`{` + one + `,"alias":"d","filters":[{},{"alias":"e"},{"subject":{"id":"u-2"}}]}`, "postgres from 1\nacme: " + asks + "} as \"d\"\nacme: " + asks + "} as \"e\"\nacme: " + strings.Replace(asks, `"u-17","properties":{"p":1}`, `"u-2"`, 1) + `} as "d"`},
		"SQLite":               {strings.Replace(`{`+one+`}`, "postgres", "sqlite", 1), "sqlite from 1\nacme: " + asks + `} as ""`},
		"no object":            {`[]`, "400 the body is not a JSON object; send {…} with the members of a request"},
		"nothing":              {`{}`, "400 /dialect: missing; it must be a string"},
		"another dialect":      {`{"dialect":"mysql"}`, "400 /dialect: neither postgres nor sqlite"},
		"another case":         {`{"dialect":"Postgres"}`, "400 /dialect: neither postgres nor sqlite"},
		"a dialect of none":    {`{"dialect":1}`, "400 /dialect: not a string"},
		"a dialect of its own": {`{` + one + `,"filters":[{"dialect":"sqlite"}]}`, "400 /filters/0/dialect: no member of a filter"},
		"a misspelt member":    {`{` + one + `,"first_paramter":3}`, "400 /first_paramter: no member of a filter"},
		"a batch":              {`{` + one + `,"evaluations":[{}]}`, "400 /evaluations: no member of a filter"},
		"a page":               {`{` + one + `,"page":{}}`, "400 /page: no member of a filter"},
		"filters in a filter":  {`{` + one + `,"filters":[{"filters":[]}]}`, "400 /filters/0/filters: no member of a filter"},
		"first 0":              {`{` + one + `,"first_parameter":0}`, "400 /first_parameter: not a whole number from 1 to 60,000"},
		"first 60001":          {`{` + one + `,"first_parameter":60001}`, "400 /first_parameter: not a whole number from 1 to 60,000"},
		"first 1.5":            {`{` + one + `,"first_parameter":1.5}`, "400 /first_parameter: not a whole number from 1 to 60,000"},
		"first of many digits": {`{` + one + `,"first_parameter":99999999999999999999}`, "400 /first_parameter: not a whole number from 1 to 60,000"},
		"first as a text":      {`{` + one + `,"first_parameter":"1"}`, "400 /first_parameter: not a number"},
		"no filter":            {`{` + one + `,"filters":[]}`, "400 /filters: empty; there is nothing to ask"},
		"filters of none":      {`{` + one + `,"filters":{}}`, "400 /filters: not an array of filters"},
		"a filter of none":     {`{` + one + `,"filters":[{},1]}`, "400 /filters/1: not an object"},
		"too many":             {`{` + one + `,"filters":[` + strings.Repeat("{},", 1000) + `{}]}`, "400 /filters: the batch has more than 1000 items; send several batches"},

		"no subject":           {`{"dialect":"sqlite","action":{"name":"read"},"resource":{"type":"document"}}`, "400 /subject: missing; it must be an object"},
		"no action anywhere":   {`{` + who + `,"resource":{"type":"document"},"filters":[{}]}`, "400 /filters/0/action: missing; it must be an object"},
		"no type":              {`{` + who + `,"action":{"name":"read"},"filters":[{"resource":{}}]}`, "400 /filters/0/resource/type: missing; it must be a string"},
		"a type of none":       {`{` + who + `,"action":{"name":"read"},"resource":{"type":7}}`, "400 /resource/type: not a string"},
		"a resource of none":   {`{` + who + `,"action":{"name":"read"},"resource":[]}`, "400 /resource: not an object"},
		"a name twice":         {`{` + one + `,"context":{"a":1,"a":2}}`, "400 /context/a: the member occurs twice; send each member once: two readers of one body must not see two requests"},
		"a reserved name":      {`{` + one + `,"context":{"__entity":1}}`, "400 /context/__entity: a member may not have this name; rename it: __entity is how stored entities refer to each other, and a request must not"},
		"reserved in a filter": {`{` + one + `,"filters":[{"context":{"a":[{"__extn":1}]}}]}`, "400 /filters/0/context/a/0/__extn: a member may not have this name; rename it: __extn is how stored entities refer to each other, and a request must not"},
		"context.pdp":          {`{` + one + `,"filters":[{"context":{"pdp":{}}}]}`, "400 /filters/0/context/pdp: only the PDP sets this member of the context"},

		"S22 resource.id":             {`{` + who + `,"action":{"name":"read"},"resource":{"type":"document","id":"d"}}`, "400 /resource/id: " + noProperties},
		"S22 resource.properties":     {`{` + who + `,"action":{"name":"read"},"resource":{"type":"document","properties":{}}}`, "400 /resource/properties: " + noProperties},
		"S22 an id that is shared":    {`{` + who + `,"action":{"name":"read"},"resource":{"type":"document","id":"d"},"filters":[{"resource":{"type":"document"}}]}`, "400 /resource/id: " + noProperties},
		"S22 a filter's id":           {`{` + one + `,"filters":[{},{"resource":{"id":"d"}}]}`, "400 /filters/1/resource/id: " + noProperties},
		"S22 a filter's properties":   {`{` + one + `,"filters":[{"resource":{"properties":{"owner":"u-17"}}}]}`, "400 /filters/0/resource/properties: " + noProperties},
		"S22 options.unknown":         {`{` + one + `,"options":{"unknown":["/resource/properties"]}}`, "400 /options/unknown: a filter takes no options"},
		"S22 a filter's options":      {`{` + one + `,"filters":[{"options":{"unknown":[]}}]}`, "400 /filters/0/options/unknown: a filter takes no options"},
		"S22 options.semantics":       {`{` + one + `,"options":{"evaluations_semantic":"execute_all"}}`, "400 /options/evaluations_semantic: a filter takes no options"},
		"S22 options of none":         {`{` + one + `,"options":[]}`, "400 /options: not an object"},
		"S23 obligations of July":     {`{` + one + `,"context":{"supported_obligations":["redact"]}}`, "400 /context/supported_obligations: " + shows},
		"S23 shared obligations":      {`{` + one + `,"context":{"supported_obligations":[]},"filters":[{},{"context":{}}]}`, "400 /context/supported_obligations: " + shows},
		"S23 inherited obligations":   {`{` + one + `,"context":{"supported_obligations":[]},"filters":[{"context":{"c":1}}]}`, "400 /context/supported_obligations: " + shows},
		"S23 obligations of October":  {`{` + one + `,"filters":[{},{"context":{"supported_mandatory_extensions":["obligations"]}}]}`, "400 /filters/1/context/supported_mandatory_extensions: " + shows},
		"S23 an approval":             {`{` + one + `,"context":{"approval":{"id":"a"}}}`, "400 /context/approval: " + shows},
		"S23 the id of an approval":   {`{` + one + `,"filters":[{"context":{"approval_id":"a"}}]}`, "400 /filters/0/context/approval_id: " + shows},
		"S23 a capability":            {`{` + one + `,"context":{"capability":{"token":"cap_1"}}}`, "400 /context/capability: " + shows},
		"S23 a justification":         {`{` + one + `,"context":{"justification":"approved"}}`, "400 /context/justification: " + shows},
		"S23 an approval not to read": {`{` + one + `,"context":{"approval":"a"}}`, "400 /context/approval: not an object with the id of an approval"},

		"S12 a reserved alias":         {`{` + one + `,"alias":"_pf1"}`, "400 /alias: " + badAlias},
		"S12 a reserved alias by case": {`{` + one + `,"filters":[{"alias":"_Pf"}]}`, "400 /filters/0/alias: " + badAlias},
		"S12 an alias with a quote":    {`{` + one + `,"alias":"d\" OR 1=1 --"}`, "400 /alias: " + badAlias},
		"S12 an alias of two names":    {`{` + one + `,"alias":"a.b"}`, "400 /alias: " + badAlias},
		"S12 a digit first":            {`{` + one + `,"alias":"1d"}`, "400 /alias: " + badAlias},
		"S12 an empty alias":           {`{` + one + `,"alias":""}`, "400 /alias: " + badAlias},
		"S12 an alias with NUL":        {`{` + one + `,"alias":"d\u0000"}`, "400 /alias: " + badAlias},
		"S12 a long alias":             {`{` + one + `,"alias":"` + strings.Repeat("d", 64) + `"}`, "400 /alias: " + badAlias},
		"S12 no ASCII":                 {`{` + one + `,"alias":"dé"}`, "400 /alias: " + badAlias},
		"S12 an alias of none":         {`{` + one + `,"alias":1}`, "400 /alias: not a string"},
	} {
		if got := filterText(c.body); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, c.want)
		}
	}
	if _, err := evaluation.DecodeFilter([]byte(strings.Repeat(" ", 2<<20)), "", "", evaluation.DefaultLimits()); err == nil || !err.(*evaluation.Error).TooLarge {
		t.Errorf("a large body: %v", err)
	}
	for given, want := range map[string]string{"postgres": "", "sqlite": "/dialect: another dialect than the one given beside the body", "mysql": "/dialect: another dialect than the one given beside the body"} {
		_, err := evaluation.DecodeFilter([]byte(`{`+one+`}`), "", given, evaluation.DefaultLimits())
		f, alone := evaluation.DecodeFilter([]byte(strings.Replace(`{`+one+`}`, `"dialect":"postgres",`, "", 1)), "", given, evaluation.DefaultLimits())
		if (err == nil) != (want == "") || err != nil && err.Error() != want || (alone == nil) != (given != "mysql") || alone == nil && f.Dialect != given {
			t.Errorf("beside %s: %v; without one in the body %q, %v", given, err, f.Dialect, alone)
		}
	}
	if f, err := evaluation.DecodeFilter([]byte(`{`+one+`}`), "", "", evaluation.DefaultLimits()); err != nil || f.Questions[0].Request.Tenant != "default" || f.Size != len(one)+2 {
		t.Errorf("%+v, %v", f, err)
	}
}

// What is found out about a question later has its place in the body.
func TestFilterErrorInBody(t *testing.T) {
	t.Parallel()
	f, err := evaluation.DecodeFilter([]byte(`{"dialect":"sqlite","subject":{"type":"u","id":"a"},"filters":[{"action":{"name":"r"},"resource":{"type":"d"}}]}`), "", "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for canonical, want := range map[string]string{"/subject/properties/a": "/subject/properties/a", "/action/name": "/filters/0/action/name", "/resource/type": "/filters/0/resource/type"} {
		if got := f.Questions[0].Pointer(canonical); got != want {
			t.Errorf("%s stands at %s, want %s", canonical, got, want)
		}
	}
}

// FuzzDecodeFilter holds that a body is refused with a place, or asks only what a filter may ask.
func FuzzDecodeFilter(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Add([]byte(`{"dialect":"postgres","first_parameter":2,"alias":"d","subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d"},"context":{"a":[1]},"filters":[{},{"alias":"e","context":{}},{"resource":{"type":"x"}}]}`))
	f.Add([]byte(`{"dialect":"sqlite","subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"options":{"unknown":[]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := evaluation.DecodeFilter(body, "t1", "", evaluation.DefaultLimits())
		if err != nil {
			var e *evaluation.Error
			if !errors.As(err, &e) || !validPointer(e.Pointer) || e.Detail == "" || len(got.Questions) > 0 {
				t.Errorf("it is refused by %T with %.2000q, and is %+v", err, err, got)
			}
			return
		}
		if len(got.Questions) == 0 || got.FirstParameter < 1 || got.FirstParameter > evaluation.MaxFirstParameter || got.Dialect != "postgres" && got.Dialect != "sqlite" {
			t.Errorf("it asks %+v", got)
		}
		for _, q := range got.Questions {
			r := q.Request
			if q.Err != nil || r.Tenant != "t1" || r.Resource.ID != "" || r.Resource.Properties.Len() > 0 || r.Unknown != nil || q.Alias != "" && !evaluation.IsSQLName(q.Alias) {
				t.Errorf("it asks %+v as %q", r, q.Alias)
			}
			for name := range r.Context.Members {
				if evaluation.Protocol(name) && name != "person" {
					t.Errorf("it shows %s", name)
				}
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			// As a search, it is the same question.
			search, err := evaluation.DecodeSearch(evaluation.ResourceSearch, text, "t1", wider())
			if err != nil || !equal(search.Request, r) {
				t.Errorf("%s\nis searched as %+v, %v", text, search.Request, err)
			}
		}
	})
}
