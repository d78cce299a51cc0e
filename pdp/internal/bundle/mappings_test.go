package bundle_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policy-service/pdp"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/source"
)

const mappedSchema = `
entity User; entity Team; entity Kind enum ["a", "b"]; entity Undeclared;
entity Document in [Team] {
  tenant: String, owner: User, public?: Bool, size?: Long, changed?: datetime, kind?: Kind, team?: String,
  label?: { category: String, level?: Long, by?: { user: User } },
  shared_with?: Set<User>, tags?: Set<String>, years?: Set<Long>, flags?: Set<Bool>, sets?: Set<Set<String>>,
  price?: decimal, from?: ipaddr, lasts?: duration, "__extn"?: String,
} tags String;
action "document.read", "document.edit" appliesTo { principal: User, resource: Document };
action "user.read" appliesTo { principal: User, resource: User };
action "approval.decide", "tool.fulfil", "capability.grant" appliesTo { principal: User, resource: Document };
`

// mapped is a bundle with a mapping, and other files.
func mapped(filters string, more ...string) small {
	return one(`@id("p") permit(principal is User, action, resource);`, append([]string{
		"schema.cedarschema", mappedSchema, "bundle.yaml", "types: {user: User, document: Document, team: Team}\n", "filters.yaml", filters,
	}, more...)...)
}

// document is the mapping of a type with what is required, and lines of its own.
func document(lines ...string) string {
	return "document:\n  table: documents\n  id: id\n  actions: [document.read]\n" + strings.Join(append(lines, "  columns:", "    tenant: tenant", "    owner: owner", ""), "\n")
}

// column is a mapping with one more column.
func column(line string) string { return document() + "    " + line + "\n" }

// Each wrong or hostile mapping, with what is said of it.
func TestMappingsAreRefused(t *testing.T) {
	t.Parallel()
	const (
		badColumn = "this is no name of a column that a filter can have; use a letter or underscore, then at most 62 letters, digits and underscores, and nothing that begins with _pf"
		badTable  = "this is no name of a table that a filter can have; use a letter or underscore, then at most 62 letters, digits and underscores, and nothing that begins with _pf; before it may stand the name of its schema and a dot"
		noFilters = "there are no filters for this action: its decisions need more than policies and a row; take it out"
	)
	withParents := []string{"bundle.yaml", "types: {user: User, document: Document}\nparents: {document: {team: Team}}\n"}
	for name, c := range map[string]struct {
		files small
		want  []string
	}{
		"no schema":          {one(permitUsers, "filters.yaml", "document: {}"), []string{"1:1: a schema must declare the types of what is in columns, and the bundle has none; add one, or remove filters.yaml"}},
		"a list":             {mapped("- document"), []string{"1:1: this must be a mapping; write key: value lines"}},
		"no YAML":            {mapped("document: [1\nb: }"), []string{"1:1: this is not YAML: did not find expected ',' or ']'; check indentation and quotes near this line"}},
		"two documents":      {mapped("{}\n---\n{}"), []string{"2:1: a second document begins here, and would not be read; put everything into one"}},
		"empty":              {mapped(" \n"), []string{"this file is empty, perhaps half-written; write its content, or remove it"}},
		"a list for one":     {mapped("document: []"), []string{"1:11: this must be a mapping; write key: value lines"}},
		"a type twice":       {mapped(document() + document()), []string{"8:1: the key \"document\" occurs twice; keep one"}},
		"a merge":            {mapped("x: &a {}\n<<: *a"), []string{"1:1: the schema does not declare the type \"x\"; declare it, or correct its name", "2:1: aliases, merges and complex keys are not read here; write the value out"}},
		"a type of policies": {mapped("Document: {}"), []string{`1:1: this is no wire name of a type; did you mean "document"?; use the name that requests send, as types: lists it`}},
		"an undeclared type": {mapped("documnet: {}"), []string{`1:1: the schema does not declare the type "documnet"; did you mean "document"?; declare it, or correct its name`}},
		"actions":            {mapped("Action: {}"), []string{"1:1: this is no wire name of a type; use the name that requests send, as types: lists it"}},
		"approvals":          {mapped("Approval: {}"), []string{"1:1: approvals are kept by the service, and in no table; take it out"}},
		"a known type": {mapped(document(), "bundle.yaml", "types: {document: Document}\nknown: [document]"),
			[]string{"1:1: known: in bundle.yaml lists this type, so each row would be denied that is no stored entity; take it out of known:, or do not map it"}},
		"an unknown key": {mapped(document("  aliases: d")), []string{`5:3: unknown key "aliases"; use one of actions, columns, id, not_null, strict, table, tenant`}},
		"nothing": {mapped("document: {}"), []string{
			"1:11: the schema requires \"owner\" of Document, and it is not mapped; add it to columns:, or declare it as optional",
			"1:11: the schema requires \"tenant\" of Document, and it is not mapped; add it to columns:, or declare it as optional",
			"1:11: there is no actions: here; add actions: with the actions that filters are asked about",
			"1:11: there is no id: here; add id: with the column of the entity's id",
			"1:11: there is no table: here; add table: with the name of the table or view"}},
		"no tenant": {mapped(document(), "tenants/acme/a.cedar", `permit(principal is User, action, resource);`),
			[]string{"2:3: there is no tenant: here; add tenant: with the column that says whose row it is, as the bundle has tenants"}},

		"a table of three names": {mapped("document: {table: a.b.c}"), []string{"1:19: " + badTable}},
		"a table of none":        {mapped("document: {table: a.}"), []string{"1:19: " + badTable}},
		"a quoted table":         {mapped(`document: {table: 'a"; drop table b; --'}`), []string{"1:19: " + badTable}},
		"a reserved table":       {mapped("document: {table: app._PF1}"), []string{"1:19: " + badTable}},
		"a table of a null":      {mapped("document: {table: ~}"), []string{"1:19: this must be a name; write it as a string"}},
		"a table of a list":      {mapped("document: {table: [a]}"), []string{"1:19: this must be a name; write it as a string"}},
		"a tenant of a mapping":  {mapped("document: {tenant: {column: a}}"), []string{"1:20: this must be a name; write it as a string"}},
		"a long name":            {mapped("document: {tenant: " + strings.Repeat("a", 64) + "}"), []string{"1:20: " + badColumn}},
		"a digit first":          {mapped("document: {tenant: 1a}"), []string{"1:20: " + badColumn}},
		"a name with NUL":        {mapped(`document: {tenant: "a\0"}`), []string{"1:20: " + badColumn}},
		"a name with a newline":  {mapped(`document: {tenant: "a\n"}`), []string{"1:20: " + badColumn}},
		"a name of a column":     {mapped(`document: {tenant: d.a}`), []string{"1:20: " + badColumn}},
		"a name with a quote":    {mapped(column(`team: 'a"'`)), []string{"8:11: " + badColumn}},
		"a name not in ASCII":    {mapped(column(`team: größe`)), []string{"8:11: " + badColumn}},
		"a reserved column":      {mapped(column(`team: _pf1`)), []string{"8:11: " + badColumn}},
		"an empty name":          {mapped(column(`team: ""`)), []string{"8:11: this must be a name; write it as a string"}},

		"an id without a column": {mapped("document: {id: {type: uuid}}"), []string{"1:16: there is no column: here; add column: with the name of the column"}},
		"an id of another type":  {mapped("document: {id: {column: id, type: boolean}}"), []string{"1:35: this is no type of a column for an id; use type: text or uuid or bigint"}},
		"an id of rows":          {mapped("document: {id: {table: a}}"), []string{"1:16: there is no column: here; add column: with the name of the column", `1:17: unknown key "table"; use one of column, type`}},

		"no actions":             {mapped("document: {actions: []}"), []string{"1:21: the list is empty; list the actions that filters are asked about"}},
		"an action alone":        {mapped("document: {actions: document.read}"), []string{"1:21: this must be a list; write - item lines"}},
		"an undeclared action":   {mapped("document: {actions: [document.raed]}"), []string{`1:22: the schema declares no action "document.raed"; did you mean "document.read"?; declare it, or correct its name`}},
		"an action of others":    {mapped("document: {actions: [user.read]}"), []string{"1:22: the schema applies the action to no resource of type Document; add the type to the resources of the action, or take the action out"}},
		"S21 approval.decide":    {mapped("document: {actions: [document.read, approval.decide]}"), []string{"1:37: " + noFilters}},
		"S21 capability.grant":   {mapped("document: {actions: [capability.grant]}"), []string{"1:22: " + noFilters}},
		"S21 another capability": {mapped("document: {actions: [capability.x]}"), []string{"1:22: " + noFilters}},
		"S21 tool.fulfil":        {mapped("document: {actions: [tool.fulfil]}"), []string{"1:22: " + noFilters}},
		"an action of a list":    {mapped("document: {actions: [[a]]}"), []string{"1:22: this must be a name; write it as a string"}},

		"an undeclared attribute":     {mapped(column("tema: team")), []string{`8:5: the schema declares no "tema" of Document; did you mean "team"?; declare it, or correct its name`}},
		"an undeclared member":        {mapped(column("label.categry: a")), []string{`8:5: the schema declares no "label.categry" of Document; did you mean "category"?; declare it, or correct its name`, `5:3: the schema requires "label.category" of Document, and it is not mapped; add it to columns:, or declare it as optional`}},
		"a member of no record":       {mapped(column("team.name: a")), []string{`8:5: "team" is declared as String, which has no members; leave out what stands behind its name`}},
		"a member of an entity":       {mapped(column("owner.name: a")), []string{`8:5: "owner" is declared as User, which has no members; leave out what stands behind its name`}},
		"a reserved attribute":        {mapped(column("__extn: a")), []string{"8:5: no request has a member of this name, so none can be made of a row; leave it out"}},
		"a record":                    {mapped(column("label: a")), []string{"8:5: this is a record, and a column holds none; map its members, as label.NAME"}},
		"a record that is incomplete": {mapped(column("label.level: {column: a, type: bigint}")), []string{`5:3: the schema requires "label.category" of Document, and it is not mapped; add it to columns:, or declare it as optional`}},
		"a record inside, incomplete": {mapped(column("label.by: a")), []string{`8:5: this is a record, and a column holds none; map its members, as label.by.NAME`, `5:3: the schema requires "label.category" of Document, and it is not mapped; add it to columns:, or declare it as optional`}},
		"an attribute twice":          {mapped(column("owner: a")), []string{`8:5: the key "owner" occurs twice; keep one`}},
		"columns in a list":           {mapped("document: {columns: [a]}"), []string{"1:21: this must be a mapping; write key: value lines"}},

		"Bool as text":           {mapped(column("public: a")), []string{"8:13: a column is of type text unless it has another type:, and that cannot hold a value that is declared as Bool; use type: boolean"}},
		"Long as text":           {mapped(column("size: {column: a}")), []string{"8:11: a column is of type text unless it has another type:, and that cannot hold a value that is declared as Long; use type: bigint"}},
		"Long as boolean":        {mapped(column("size: {column: a, type: boolean}")), []string{"8:29: this is no type of a column for a value that is declared as Long; use type: bigint"}},
		"datetime as bigint":     {mapped(column("changed: {column: a, type: bigint}")), []string{"8:32: this is no type of a column for a value that is declared as datetime; use type: timestamptz or millis"}},
		"String as bigint":       {mapped(column("team: {column: a, type: bigint}")), []string{"8:29: this is no type of a column for a value that is declared as String; use type: text or uuid"}},
		"an entity as text[]":    {mapped(column("kind: {column: a, type: 'text[]'}")), []string{"8:29: this is no type of a column for a value that is declared as Kind; use type: text or uuid or bigint"}},
		"a set as text":          {mapped(column("tags: a")), []string{"8:11: a column is of type text unless it has another type:, and that cannot hold a value that is declared as Set<String>; use type: text[] or uuid[]"}},
		"a set of Long":          {mapped(column("years: {column: a, type: 'bigint[]'}")), []string{"8:12: a value that is declared as Set<Long> is in rows of another table alone; write {table: …, key: …, value: …, type: bigint}"}},
		"S20 json":               {mapped(column("team: {column: a, type: json}")), []string{"8:29: this is no type of a column for a value that is declared as String; use type: text or uuid"}},
		"S20 jsonb of a set":     {mapped(column("tags: {column: a, type: jsonb}")), []string{"8:29: this is no type of a column for a value that is declared as Set<String>; use type: text[] or uuid[]"}},
		"S20 decimal":            {mapped(column("price: {column: a, type: numeric}")), []string{"8:5: a value that is declared as decimal can be in no column; leave it out, and declare it as optional"}},
		"S20 ip":                 {mapped(column("from: a")), []string{"8:5: a value that is declared as ipaddr can be in no column; leave it out, and declare it as optional"}},
		"S20 duration":           {mapped(column("lasts: a")), []string{"8:5: a value that is declared as duration can be in no column; leave it out, and declare it as optional"}},
		"S20 a set of sets":      {mapped(column("sets: {table: a, key: b, value: c}")), []string{"8:5: a value that is declared as Set<Set<String>> can be in no column; leave it out, and declare it as optional"}},
		"S20 a set of Bool":      {mapped(column("flags: {table: a, key: b, value: c, type: boolean}")), []string{"8:5: a value that is declared as Set<Bool> can be in no column; leave it out, and declare it as optional"}},
		"S20 tags":               {mapped(column("tags(): a")), []string{`8:5: the schema declares no "tags()" of Document; did you mean "tags"?; declare it, or correct its name`}},
		"a type of a list":       {mapped(column("team: {column: a, type: [text]}")), []string{"8:29: this is no type of a column for a value that is declared as String; use type: text or uuid"}},
		"neither column nor row": {mapped(column("team: {type: text}")), []string{"8:11: there is no column: here; add column: with the name of the column"}},
		"a column of a list":     {mapped(column("team: [a]")), []string{"8:11: this must be a mapping; write key: value lines"}},

		"both column and rows":     {mapped(column("tags: {column: a, table: b, key: c, value: d}")), []string{"8:11: this is both a column of the row and rows of another table; write column:, or table:, key: and value:"}},
		"rows of no set":           {mapped(column("team: {table: b, key: c, value: d}")), []string{"8:11: a value that is declared as String is no set, and rows of another table are one; write the name of its column"}},
		"rows without a table":     {mapped(column("tags: {key: c, value: d}")), []string{"8:11: there is no table: here; add table: with the name of the table or view"}},
		"rows without key, value":  {mapped(column("tags: {table: b}")), []string{"8:11: there is no key: here; add key: with the column that has the id of the row that the set belongs to", "8:11: there is no value: here; add value: with the column of the elements"}},
		"rows of another type":     {mapped(column("tags: {table: b, key: c, value: d, type: bigint}")), []string{"8:46: this is no type of a column for an element that is declared as String; use type: text or uuid"}},
		"rows of Long as text":     {mapped(column("years: {table: b, key: c, value: d}")), []string{"8:12: a column is of type text unless it has another type:, and that cannot hold an element that is declared as Long; use type: bigint"}},
		"rows with a wrong key":    {mapped(column("tags: {table: b, key: 'c\"', value: d}")), []string{"8:27: " + badColumn}},
		"rows with a wrong value":  {mapped(column("tags: {table: b, key: c, value: 7}")), []string{"8:37: " + badColumn}},
		"rows in a reserved table": {mapped(column("tags: {table: _pf1, key: c, value: d}")), []string{"8:19: " + badTable}},

		"S8 parents not mapped":     {mapped(document(), withParents...), []string{`5:3: bundle.yaml gives Document parents by "team", and it is not mapped; add it to columns:, or take it out of parents:`}},
		"S8 parents not declared":   {mapped(document(), "bundle.yaml", "types: {document: Document}\nparents: {document: {crew: Team}}"), []string{`5:3: bundle.yaml gives Document parents by "crew", and it is not mapped; add it to columns:, or take it out of parents:`}},
		"S8 parents as numbers":     {mapped(column("kind: {column: a, type: bigint}"), "bundle.yaml", "types: {document: Document}\nparents: {document: {kind: Team}}"), []string{"8:5: bundle.yaml gives parents by this attribute, and ids of parents are texts; map it to a column or rows of text or uuid"}},
		"S8 parents in number rows": {mapped(column("years: {table: a, key: b, value: c, type: bigint}"), "bundle.yaml", "types: {document: Document}\nparents: {document: {years: Team}}"), []string{"8:5: bundle.yaml gives parents by this attribute, and ids of parents are texts; map it to a column or rows of text or uuid"}},
		"S8 parents of a record":    {mapped(column("label.category: a"), "bundle.yaml", "types: {document: Document}\nparents: {document: {label: Team}}"), []string{"6:5: bundle.yaml gives parents by this attribute, and ids of parents are texts; map it to a column or rows of text or uuid"}},

		"a promise of nothing":    {mapped(document("  not_null: [owner, size]")), []string{`5:21: columns: has no "size"; add it there, or take it out here`}},
		"a promise of a member":   {mapped(document("  not_null: [owner.name]")), []string{`5:14: columns: has no "owner.name"; add it there, or take it out here`}},
		"a promise of a record":   {mapped(document("  not_null: [label]") + "    label.category: a\n"), []string{"5:14: this is a record, and has no column; list its members, as label.NAME"}},
		"a promise of no element": {mapped(document("  not_null: ['owner[]']")), []string{"5:14: this is no set, and only a set has elements; leave out the []"}},
		"a promise of rows":       {mapped(document("  not_null: [tags]") + "    tags: {table: b, key: c, value: d}\n"), []string{"5:14: a set in rows of another table is never NULL; leave it out, or write tags[] for its elements"}},
		"a promise of a mapping":  {mapped(document("  not_null: {owner: true}")), []string{"5:13: this must be a list; write - item lines"}},
		"perhaps strict":          {mapped(document("  strict: perhaps")), []string{"5:11: this must be one of false, true"}},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, problems := pdp.Load(c.files.Source())
			var got []string
			short := strings.HasPrefix(c.files["filters.yaml"], "document: {")
			for _, p := range problems {
				text := strings.TrimSpace(strings.TrimPrefix(p.String(), "filters.yaml:"))
				// What else a short mapping lacks is held by the case "nothing".
				if lacks := p.Code == "missing_key" || p.Code == "filter_required"; !lacks || !short || slices.Contains(c.want, text) {
					got = append(got, text)
				}
			}
			want := slices.Sorted(slices.Values(c.want))
			if loaded != nil || !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// S10: tables are the operator's. A tenant that maps some does not load, and no other tenant is in the way.
func TestS10ATenantMapsNothing(t *testing.T) {
	t.Parallel()
	files := mapped("{}", "tenants/acme/filters.yaml", document(), "tenants/acme/a.cedar", `permit(principal is User, action, resource);`)
	const want = "tenants/acme/filters.yaml: tables are the operator's, so the root of the bundle alone says what is in them; move it to the root, or remove it"
	loaded, problems := pdp.Load(files.Source())
	if loaded != nil || len(problems) != 1 || problems[0].String() != want {
		t.Errorf("got %v, want %s", problems, want)
	}
	l := bundle.NewLoading(t.Context(), files.Source().Read(), bundle.InForce{})
	l.Apart = true
	if made, _ := l.Build(); made.Bundle == nil || !slices.Equal(made.Bundle.Unavailable(), []string{"acme"}) {
		t.Errorf("apart, the bundle is %v", made.Bundle)
	}
	delete(files, "tenants/acme/filters.yaml")
	if draft := files.Source().With("tenants/acme/filters.yaml", []byte(document())).Read(); len(draft.Problems) > 0 || draft.Content["tenants/acme/filters.yaml"] != nil {
		t.Errorf("a draft of it is read: %v", draft.Problems)
	}
}

func TestMappings(t *testing.T) {
	t.Parallel()
	const filters = `
document:
  table: app.documents
  tenant: tenant
  id: {column: id, type: uuid}
  actions: [document.read, document.edit]
  columns:
    tenant: tenant
    owner: {column: owner_id, type: uuid}
    public: {column: public, type: boolean}
    size: {column: size, type: bigint}
    changed: {column: at, type: timestamptz}
    kind: {column: kind, type: bigint}
    team: tenant
    label.category: category
    label.by.user: {column: labeller}
    shared_with: {column: shared_with, type: "text[]"}
    tags: {table: app.document_tags, key: document_id, value: tag, type: uuid}
    years: {table: years, key: id, value: year, type: bigint}
  not_null: [tenant, owner, label.by.user, "shared_with[]", "tags[]"]
user: {table: Users, id: {column: id, type: bigint}, tenant: _t, actions: [user.read], strict: true}
`
	b, problems := pdp.Load(mapped(filters, "bundle.yaml", "types: {user: User, document: Document}\nparents: {document: {team: Team}}",
		"tenants/acme/a.cedar", `permit(principal is User, action, resource);`).Source())
	if b == nil {
		t.Fatal(problems)
	}
	declared := b.Schema.Attributes("Document")
	in := func(name string, c bundle.Column) *bundle.Mapped {
		return &bundle.Mapped{AttributeShape: declared[name], Column: c}
	}
	label := declared["label"]
	inLabel := func(of bundle.AttributeShape, name string, c bundle.Column) *bundle.Mapped {
		return &bundle.Mapped{AttributeShape: of.Shape.Members[name], Column: c}
	}
	by := label.Shape.Members["by"]
	shared := in("shared_with", bundle.Column{Name: "shared_with", Type: bundle.TextsColumn})
	shared.NoNullElement = true
	want := map[string]*bundle.Mapping{
		"Document": {
			Type: "Document", Wire: "document", Table: []string{"app", "documents"},
			Tenant:  bundle.Column{Name: "tenant", Type: bundle.TextColumn},
			ID:      bundle.Column{Name: "id", Type: bundle.UUIDColumn},
			Actions: []string{"document.read", "document.edit"},
			Attributes: map[string]*bundle.Mapped{
				"tenant":  in("tenant", bundle.Column{Name: "tenant", Type: bundle.TextColumn, NotNull: true}),
				"owner":   in("owner", bundle.Column{Name: "owner_id", Type: bundle.UUIDColumn, NotNull: true}),
				"public":  in("public", bundle.Column{Name: "public", Type: bundle.BooleanColumn}),
				"size":    in("size", bundle.Column{Name: "size", Type: bundle.BigintColumn}),
				"changed": in("changed", bundle.Column{Name: "at", Type: bundle.TimestamptzColumn}),
				"kind":    in("kind", bundle.Column{Name: "kind", Type: bundle.BigintColumn}),
				"team":    in("team", bundle.Column{Name: "tenant", Type: bundle.TextColumn}),
				"label": {AttributeShape: label, Members: map[string]*bundle.Mapped{
					"category": inLabel(label, "category", bundle.Column{Name: "category", Type: bundle.TextColumn}),
					"by": {AttributeShape: by, Members: map[string]*bundle.Mapped{
						"user": inLabel(by, "user", bundle.Column{Name: "labeller", Type: bundle.TextColumn, NotNull: true}),
					}},
				}},
				"shared_with": shared,
				"tags": {AttributeShape: declared["tags"], NoNullElement: true, Rows: &bundle.MappedRows{
					Table: []string{"app", "document_tags"}, Key: "document_id", Value: bundle.Column{Name: "tag", Type: bundle.UUIDColumn},
				}},
				"years": {AttributeShape: declared["years"], Rows: &bundle.MappedRows{
					Table: []string{"years"}, Key: "id", Value: bundle.Column{Name: "year", Type: bundle.BigintColumn},
				}},
			},
		},
		"User": {
			Type: "User", Wire: "user", Table: []string{"Users"}, Tenant: bundle.Column{Name: "_t", Type: bundle.TextColumn},
			ID: bundle.Column{Name: "id", Type: bundle.BigintColumn}, Actions: []string{"user.read"}, Attributes: map[string]*bundle.Mapped{}, Strict: true,
		},
	}
	got := map[string]*bundle.Mapping{}
	for typ, m := range b.Mappings {
		got[string(typ)] = m
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(), cmp.Comparer(func(a, b *bundle.Shape) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// A load takes mappings over where nothing that they hang on has changed, and makes no view again for a change of filters.yaml.
func TestMappingsAreTakenOver(t *testing.T) {
	t.Parallel()
	files := mapped(document(), "tenants.txt", "")
	delete(files, "tenants.txt")
	var before bundle.InForce
	load := func(what string, mappings, views int, loads bool) {
		t.Helper()
		l := bundle.NewLoading(t.Context(), files.Source().Read(), before)
		made, problems := l.Build()
		if (made.Bundle != nil) != loads || l.Did.Mappings != mappings || l.Did.Views != views {
			t.Fatalf("%s: bundle %v after %+v\n%v", what, made.Bundle != nil, l.Did, problems)
		}
		if loads {
			before = made
		}
	}
	load("the first", 1, 1, true)
	first := before.Bundle
	files["filters.yaml"] = document("  tenant: t")
	load("another mapping", 1, 0, true)
	if b := before.Bundle; b.Digest() == first.Digest() || b.Mappings["Document"].Tenant.Name != "t" || first.Mappings["Document"].Tenant.Name != "" {
		t.Errorf("it is not in force: %+v", b.Mappings["Document"])
	}
	files["p.cedar"] += "\n"
	load("another policy", 0, 1, true)
	files["filters.yaml"] = document()
	load("without a tenant, as at first", 1, 0, true)
	files["tenants/acme/a.cedar"] = `permit(principal is User, action, resource);`
	load("a tenant, and no column that says whose a row is", 1, 1, false)
	files["filters.yaml"] = document("  tenant: t")
	load("a tenant, and such a column", 1, 1, true)
	files["schema.cedarschema"] = strings.Replace(mappedSchema, "team?", "team", 1)
	load("a schema that requires more", 1, 2, false)
	delete(files, "filters.yaml")
	load("that schema, and no mapping", 0, 2, true)
	if before.Bundle.Mappings != nil {
		t.Error("mappings are left of a file that is not there")
	}
}

// filters.yaml is in the digest and the MANIFEST, and is measured, as any file is.
func TestMappingsAreOfTheBundle(t *testing.T) {
	t.Parallel()
	with := mapped(document()).Source().Read()
	without := mapped(document())
	delete(without, "filters.yaml")
	if with.Content[source.FiltersFile] == nil || with.Digest() == without.Source().Read().Digest() {
		t.Errorf("the digest does not cover it: %v", slices.Sorted(maps.Keys(with.Content)))
	}
	if _, problems := pdp.Load(mapped(document() + strings.Repeat("#\n", 1<<19)).Source()); len(problems) != 1 || problems[0].Code != "too_large" {
		t.Errorf("a large one: %v", problems)
	}
	var hostile strings.Builder
	for n := range 20_000 {
		fmt.Fprintf(&hostile, "    documnet%d: a\n", n)
	}
	if _, problems := pdp.Load(mapped(document() + hostile.String()).Source()); len(problems) != bundle.MostErrors+1 {
		t.Errorf("%d errors of a file with 20,000", len(problems))
	}
}

// FuzzMappings gives the loader a filters.yaml of anything. What loads names tables and columns as SQL does, and maps what the
// schema requires.
func FuzzMappings(f *testing.F) {
	for _, seed := range []string{
		document(), column("label.category: c"), column("tags: {table: a.b, key: c, value: d}"), document("  not_null: [owner]", "  strict: true"), "document: {}", "- a", "{}",
		column("size: {column: s, type: bigint}"), column(`team: "a\0"`), column("tags: {column: t, type: 'text[]'}"), "document: &a {table: a}\nuser: *a", "? {}\n: {}", "\xff: {}", "user: {table: u, id: id, actions: [user.read]}",
	} {
		f.Add([]byte(seed))
	}
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	f.Fuzz(func(t *testing.T, filters []byte) {
		b, problems := pdp.Load(mapped(string(filters)).Source())
		saysWhere(t, problems)
		if b == nil {
			return
		}
		named := func(names ...string) {
			for _, n := range names {
				if !name.MatchString(n) || strings.HasPrefix(strings.ToLower(n), "_pf") {
					t.Errorf("the name %q", n)
				}
			}
		}
		var check func(declared map[string]bundle.AttributeShape, mapped map[string]*bundle.Mapped)
		check = func(declared map[string]bundle.AttributeShape, mapped map[string]*bundle.Mapped) {
			for name, a := range declared {
				switch m := mapped[name]; {
				case m == nil && !a.Optional:
					t.Errorf("%s is required, and not mapped", name)
				case m == nil:
				case m.Members != nil:
					check(a.Shape.Members, m.Members)
				case m.Rows != nil:
					named(append(slices.Clone(m.Rows.Table), m.Rows.Key, m.Rows.Value.Name)...)
				default:
					named(m.Column.Name)
				}
			}
		}
		for _, m := range b.Mappings {
			if len(m.Table) < 1 || len(m.Table) > 2 || len(m.Actions) == 0 {
				t.Errorf("table %q, actions %q", m.Table, m.Actions)
			}
			named(append(slices.Clone(m.Table), m.ID.Name)...)
			check(b.Schema.Attributes(m.Type), m.Attributes)
		}
	})
}
