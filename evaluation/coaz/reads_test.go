package coaz_test

import (
	"fmt"
	"slices"
	"testing"

	"policy-service/evaluation/coaz"
)

// A name is needed if the mapping fails without it.
func TestReads(t *testing.T) {
	t.Parallel()
	resource := func(id string) string {
		return single(map[string]string{"resource": `{"type": "t", "id": ` + string(jsonOf(t, id)) + `}`})
	}
	context := func(x string) string {
		return single(map[string]string{"context": `{"x": ` + string(jsonOf(t, x)) + `}`})
	}
	for _, row := range []struct {
		mapping string
		want    []string // the names, and how many of them are needed
	}{
		{resource("$params.arguments.id"), []string{"[arguments id] 2"}},
		{resource("$params.arguments['id']"), []string{"[arguments id] 2"}},
		{resource("$params.arguments.who.name + ''"), []string{"[arguments who name] 3"}},
		{resource("$params.arguments.?case"), []string{"[arguments case] 2"}}, // an id must be there
		{context("$params.arguments.?case"), []string{"[arguments case] 1"}},
		{context("$params.arguments.?who.age"), []string{"[arguments who age] 1"}},
		{context("$params.arguments.?list[0].x"), []string{"[arguments list] 1"}},
		{context("$has(params.arguments.case) ? params.arguments.case : 'none'"), []string{"[arguments] 1", "[arguments case] 1"}},
		{context("$has(params.arguments.case) ? params.arguments.n : 0"), []string{"[arguments] 1", "[arguments n] 2"}},
		{context("$[1].map(params, params)"), nil},
		{context("$params"), []string{"[] 0"}},
	} {
		var got []string
		for _, r := range declare(t, newBinding(t, coaz.Options{}), row.mapping).Reads() {
			if r.Root == "params" {
				got = append(got, fmt.Sprint(r.Names, " ", r.Needed))
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", row.mapping, got, row.want)
		}
	}
	definition := `{"name": "t", "coaz": true, "inputSchema": {"x-coaz-mapping": {"resource": {"id": "$.properties['id']", "type": "t"}, "subject": {"type": "user", "id": "$.token.sub"}, "context": {"x": "$.properties.case"}}}}`
	m, err := newBinding(t, coaz.Options{}).Parse(object(t, definition))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range m.Reads() {
		got = append(got, fmt.Sprint(r.Dialect, r.Pointer, " ", r.Names, " ", r.Needed))
	}
	if want := []string{"sep/subject/id [sub] 1", "sep/resource/id [arguments id] 2", "sep/context/x [arguments case] 0"}; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%q, want %q", got, want)
	}
}
