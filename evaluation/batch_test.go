package evaluation_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// What a batch comes to: a line an item, request or error.
func batchText(t *testing.T, body string) string {
	t.Helper()
	b, err := evaluation.DecodeBatch([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		return "400 " + err.(*evaluation.Error).Pointer
	}
	var lines []string
	if b.Single {
		lines = append(lines, "single")
	}
	if b.Semantic != evaluation.ExecuteAll {
		lines = append(lines, string(b.Semantic))
	}
	for _, i := range b.Items {
		if i.Err != nil {
			lines = append(lines, "error "+i.Err.Pointer)
			continue
		}
		q := i.Request
		props := func(o evaluation.Object) string {
			if o.Len() == 0 {
				return ""
			}
			text, _ := o.MarshalJSON()
			return string(text)
		}
		lines = append(lines, fmt.Sprintf("%s:%s%s %s%s %s:%s%s %s", q.Subject.Type, q.Subject.ID, props(q.Subject.Properties), q.Action.Name, props(q.Action.Properties), q.Resource.Type, q.Resource.ID, props(q.Resource.Properties), props(q.Context)))
		if q.Unknown != nil {
			lines[len(lines)-1] += fmt.Sprint(q.Unknown.Pointers())
		}
	}
	return strings.Join(lines, "\n")
}

// What is found out about an item later gets the pointer that it would have had here,
// cut alike where it is long.
func TestErrorInBody(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 300)
	at := func(what, ownMember string) string {
		b, err := evaluation.DecodeBatch([]byte(`{"subject":{"type":"u","id":"a","properties":{`+what+`}},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"evaluations":[{},{`+ownMember+`}]}`), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if b.Items[1].Err != nil {
			return b.Items[1].Err.Pointer
		}
		found := evaluation.Malformed("", "", "subject", "properties", long, "__extn")
		before := *found
		pointer := b.Items[1].InBody(found).Pointer
		if *found != before {
			t.Error("the error itself was changed: what is shared by items must not be")
		}
		return pointer
	}
	reserved, plain := `"`+long+`":{"__extn":1}`, `"x":1`
	if early, late := at(reserved, ""), at(plain, ""); early != late || !strings.HasPrefix(late, "/subject/properties/é") {
		t.Errorf("inherited: found early at %s, late at %s", early, late)
	}
	const own = `"subject":{"type":"u","id":"b","properties":{`
	if early, late := at(plain, own+reserved+"}}"), at(plain, own+plain+"}}"); early != late || !strings.HasPrefix(late, "/evaluations/1/subject/properties/é") {
		t.Errorf("its own: found early at %s, late at %s", early, late)
	}
}

func TestDecodeBatch(t *testing.T) {
	t.Parallel()
	const all = `"subject":{"type":"u","id":"a","properties":{"p":1}},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"context":{"c":1}`
	for name, test := range map[string]struct{ body, want string }{
		"no evaluations":         {`{` + all + `}`, "single\nu:a{\"p\":1} r d:1 {\"c\":1}"},
		"null evaluations":       {`{` + all + `,"evaluations":null}`, "single\nu:a{\"p\":1} r d:1 {\"c\":1}"},
		"empty evaluations":      {`{` + all + `,"evaluations":[]}`, "single\nu:a{\"p\":1} r d:1 {\"c\":1}"},
		"single, incomplete":     {`{"evaluations":[]}`, "400 /subject"},
		"all inherited":          {`{` + all + `,"evaluations":[{},{"subject":null}]}`, "u:a{\"p\":1} r d:1 {\"c\":1}\nu:a{\"p\":1} r d:1 {\"c\":1}"},
		"whole override":         {`{` + all + `,"evaluations":[{"subject":{"type":"v","id":"b"},"context":{"d":2}}]}`, "v:b r d:1 {\"d\":2}"},
		"parts left out":         {`{` + all + `,"evaluations":[{"subject":{"id":"b"},"resource":{"type":"e"},"action":{"properties":{"x":1}}}]}`, "u:b r{\"x\":1} e:1 {\"c\":1}"},
		"null parts":             {`{` + all + `,"evaluations":[{"subject":{"id":null,"properties":null}}]}`, "u:a r d:1 {\"c\":1}"},
		"empty context":          {`{` + all + `,"evaluations":[{"context":{}}]}`, "u:a{\"p\":1} r d:1 "},
		"declaration inherits":   {`{"context":{"supported_obligations":["x"],"c":1},"subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"evaluations":[{"context":{"d":1}},{"context":{"supported_obligations":[]}}]}`, "u:a r d:1 {\"d\":1,\"supported_obligations\":[\"x\"]}\nu:a r d:1 {\"supported_obligations\":[]}"},
		"incomplete items":       {`{"subject":{"type":"u"},"action":{"name":"r"},"evaluations":[{"resource":{"type":"d","id":"1"}},{"subject":{"id":"a"}},{"subject":{"id":"a"},"resource":{"type":"d","id":"1"}}]}`, "error /evaluations/0/subject/id\nerror /evaluations/1/resource\nu:a r d:1 "},
		"items of other forms":   {`{` + all + `,"evaluations":[1,null,[],"x",{"subject":"a"},{"context":[]},{"action":{"name":1}},{"resource":{"properties":1}}]}`, "error /evaluations/0\nerror /evaluations/1\nerror /evaluations/2\nerror /evaluations/3\nerror /evaluations/4/subject\nerror /evaluations/5/context\nerror /evaluations/6/action/name\nerror /evaluations/7/resource/properties"},
		"wrong default":          {`{"subject":"a","evaluations":[{}]}`, "400 /subject"},
		"wrong in a default":     {`{"subject":{"type":1,"id":"a"},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"evaluations":[{},{"subject":{"type":"u"}},{"subject":{"type":"u","id":"b"}}]}`, "error /subject/type\nu:a r d:1 \nu:b r d:1 "},
		"empty default":          {`{"subject":{},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"evaluations":[{},{"subject":{"type":"u","id":"b"}}]}`, "error /evaluations/0/subject\nu:b r d:1 "},
		"evaluations no array":   {`{` + all + `,"evaluations":{}}`, "400 /evaluations"},
		"semantic":               {`{` + all + `,"options":{"evaluations_semantic":"deny_on_first_deny","other":1},"evaluations":[{}]}`, "deny_on_first_deny\nu:a{\"p\":1} r d:1 {\"c\":1}"},
		"unknown semantic":       {`{` + all + `,"options":{"evaluations_semantic":"all"},"evaluations":[{}]}`, "400 /options/evaluations_semantic"},
		"semantic no string":     {`{` + all + `,"options":{"evaluations_semantic":1}}`, "400 /options/evaluations_semantic"},
		"options no object":      {`{` + all + `,"options":[]}`, "400 /options"},
		"unknown":                {`{` + all + `,"options":{"unknown":["/context/c"]},"evaluations":[{},{"options":{}},{"options":{"unknown":[]}},{"options":{"unknown":["/context/d"]}},{"options":null}]}`, "u:a{\"p\":1} r d:1 {\"c\":1}[/context/c]\nu:a{\"p\":1} r d:1 {\"c\":1}\nu:a{\"p\":1} r d:1 {\"c\":1}[]\nu:a{\"p\":1} r d:1 {\"c\":1}[/context/d]\nu:a{\"p\":1} r d:1 {\"c\":1}[/context/c]"},
		"unknown in a single":    {`{` + all + `,"options":{"unknown":["/context/c"]}}`, "single\nu:a{\"p\":1} r d:1 {\"c\":1}[/context/c]"},
		"wrong unknown":          {`{` + all + `,"options":{"unknown":["/subject"]},"evaluations":[{"options":{}}]}`, "400 /options/unknown/0"},
		"wrong unknown of items": {`{` + all + `,"evaluations":[{"options":[]},{"options":{"unknown":{}}},{"options":{"unknown":["/context/pdp/approved","/x"]}}]}`, "error /evaluations/0/options\nerror /evaluations/1/options/unknown\nerror /evaluations/2/options/unknown/1"},
		"reserved in options":    {`{` + all + `,"options":{"__entity":1},"evaluations":[{}]}`, "400 /options/__entity"},
		"reserved in an item":    {`{` + all + `,"evaluations":[{"context":{"a":[{"__extn":1}]}},{"x":{"__entity":1}},{}]}`, "error /evaluations/0/context/a/0/__extn\nerror /evaluations/1/x/__entity\nu:a{\"p\":1} r d:1 {\"c\":1}"},
		"reserved in a default":  {`{"subject":{"type":"u","id":"a","properties":{"__entity":1}},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"evaluations":[{},{"subject":{"id":"b"}},{"subject":{"type":"v","id":"b"}}]}`, "error /subject/properties/__entity\nerror /subject/properties/__entity\nv:b r d:1 "},
		"reserved beside":        {`{` + all + `,"y":{"__entity":1},"evaluations":[{}]}`, "400 /y/__entity"},
		"reserved in a single":   {`{` + all + `,"y":{"__entity":1}}`, "400 /y/__entity"},
		"context.pdp in an item": {`{` + all + `,"evaluations":[{"context":{"pdp":{}}},{"context":{"action":1}}]}`, "error /evaluations/0/context/pdp\nerror /evaluations/1/context/action"},
		"declared as a default":  {`{"subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"context":{"supported_obligations":[1]},"evaluations":[{},{"context":{}},{"context":{"supported_obligations":[1]}},{"context":{"pdp":1}}]}`, "error /context/supported_obligations/0\nerror /context/supported_obligations/0\nerror /evaluations/2/context/supported_obligations/0\nerror /evaluations/3/context/pdp"},
		"context.pdp a default":  {`{"subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"context":{"pdp":1},"evaluations":[{},{"context":{}}]}`, "error /context/pdp\nu:a r d:1 "},
		"duplicate in an item":   {`{` + all + `,"evaluations":[{"x":1,"x":2}]}`, "400 /evaluations/0/x"},
		"too deep in an item":    {`{` + all + `,"evaluations":[{"context":{"a":` + strings.Repeat("[", 13) + strings.Repeat("]", 13) + `}}]}`, "400 /evaluations/0/context/a" + strings.Repeat("/0", 12)},
		"arrays in an item":      {`{` + all + `,"evaluations":[{"context":{"a":[[1],[2]]}}]}`, "u:a{\"p\":1} r d:1 {\"a\":[[1],[2]]}"},
		"1,000 items":            {`{` + all + `,"evaluations":[` + strings.TrimSuffix(strings.Repeat("{},", 1000), ",") + `]}`, strings.TrimSuffix(strings.Repeat("u:a{\"p\":1} r d:1 {\"c\":1}\n", 1000), "\n")},
		"1,001 items":            {`{` + all + `,"evaluations":[` + strings.TrimSuffix(strings.Repeat("{},", 1001), ",") + `]}`, "400 /evaluations"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := batchText(t, test.body); got != test.want {
				t.Errorf("%.300s\n got %.500s\nwant %.500s", test.body, got, test.want)
			}
		})
	}
}
