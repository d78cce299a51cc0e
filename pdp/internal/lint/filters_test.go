package lint_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp"
)

// check warns of policies that keep listed filters from being made, where the row's attribute stands. It warns of no policy about
// other actions or types, nor of what a filter can be made of for whoever asks.
func TestCheckFilters(t *testing.T) {
	t.Parallel()
	const permit = `permit(principal, action in [Action::"read", Action::"edit"], resource is document) when `
	for name, test := range map[string]struct{ policy, says string }{
		"arithmetic":    {permit + `{ resource.n + 1 > 2 };`, `p.cedar:1:101: warning: policy "p" keeps filters of type "document" from being made for read, edit: in resource.n + 1, it calculates with what only the row has; compare the attribute by itself, and calculate with what the request has`},
		"a forbid":      {`forbid(principal, action, resource is document) when { principal has limit && resource.n * 2 > principal.limit };`, `p.cedar:1:88: warning: policy "p" keeps filters of type "document" from being made for read, edit: in resource.n * 2, it calculates with what only the row has; compare the attribute by itself, and calculate with what the request has`},
		"two entities":  {permit + `{ resource.owner in resource.team };`, `p.cedar:1:101: warning: policy "p" keeps filters of type "document" from being made for read, edit: in resource.owner in resource.team, it asks whether one entity of the row is below another; compare them by ==, or name one that the request has`},
		"one action":    {`permit(principal, action == Action::"edit", resource is document) when { resource.n + 1 > 2 };`, "made for edit: in"},
		"calls":         {permit + `{ resource.at.toDate() == datetime("2026-01-01") };`, "it calls toDate with what only the row has"},
		"many stars":    {permit + `{ resource.name like "*a*b*c*d*e*f*g*h*i*" };`, "the pattern has more than 8 stars"},
		"the context":   {permit + `{ context.pdp.resource == {type: "document", id: "a"} };`, "it uses the id of the resource as a part of the context"},
		"another row":   {permit + `{ resource.previous.n == 1 };`, "it reads an entity of type document that is not the resource"},
		"a record":      {permit + `{ {a: resource.n} == {a: 1} };`, "a record is made of what only the row has"},
		"other action":  {`permit(principal, action == Action::"drop", resource is document) when { resource.n + 1 > 2 };`, ""},
		"other type":    {`permit(principal, action, resource is folder) when { resource.n + 1 > 2 };`, ""},
		"all that goes": {permit + `{ resource.n > 1 && resource.owner == principal && resource.owner in Team::"a" && principal in resource.team && resource.name like "a*" && context has on && (if context.on then resource.tags.contains("x") else ["x"].contains(resource.name)) && resource.at < context.pdp.now && principal has limit && principal.limit + 1 > 2 };`, ""},
	} {
		source := pdp.FS(fstest.MapFS{
			"schema.cedarschema": {Data: []byte(`entity Team; entity user in [Team] = {limit?: Long};
				entity folder = {n: Long};
				entity document = {n: Long, name: String, at: datetime, owner: user, team: Team, tags: Set<String>, previous: document};
				action read, edit, drop appliesTo {principal: [user], resource: [document, folder], context: {on?: Bool}};`)},
			"filters.yaml": {Data: []byte(`document:
  table: documents
  id: id
  actions: [read, edit]
  columns: {n: {column: n, type: bigint}, name: name, at: {column: at, type: timestamptz}, owner: owner, team: team, tags: {column: tags, type: "text[]"}, previous: previous}
`)},
			"p.cedar":    {Data: []byte("@id(\"p\") " + test.policy)},
			"base.cedar": {Data: []byte(`permit(principal, action == Action::"read", resource);`)},
		})
		b, problems := pdp.Check(source, time.Time{})
		if b == nil {
			t.Fatalf("%s: %v", name, problems)
		}
		var said []string
		for _, p := range problems {
			if p.Code == "filter_unsupported" {
				said = append(said, p.String())
			}
		}
		if got := strings.Join(said, "\n"); !strings.Contains(got, test.says) || (test.says == "") != (got == "") {
			t.Errorf("%s: said %q, not %q", name, got, test.says)
		}
	}
}
