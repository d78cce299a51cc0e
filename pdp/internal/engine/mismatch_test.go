package engine_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// mismatches are what a decision says does not fit, a line each.
func mismatches(t *testing.T, p *pdp.PDP, body string) (all []string) {
	t.Helper()
	r, err := evaluation.Decode([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	d, err := p.Evaluate(t.Context(), pdp.Call{Request: r, Explain: true})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	toldOf(t, body, d)
	if !reflect.DeepEqual(d.Explain.Mismatch, d.Mismatch) {
		t.Errorf("%s: explained as %v, and not %v", body, d.Explain.Mismatch, d.Mismatch)
	}
	for _, m := range d.Mismatch {
		all = append(all, m.Pointer+" "+m.Detail)
	}
	return all
}

func TestMismatch(t *testing.T) {
	t.Parallel()
	typed := one(`permit(principal, action == Action::"read", resource);`, "schema.cedarschema", `
entity Role enum ["reader"];
entity User in [Role] { level: Long, name?: String, boss?: User, roles?: Set<String>, labels?: { kind: String, tags?: Set<Long> } };
entity Doc { price?: decimal, from?: ipaddr, status?: Status };
entity Status enum ["open"];
action read appliesTo { principal: [User], resource: [Doc, Status], context: { note: String, on?: Set<{ n: Long }>, action: { soft?: Bool } } };
action write appliesTo { principal: [User], resource: [Doc] };`,
		"bundle.yaml", "types: {user: User}\nparents: {user: {roles: Role}}\nknown: [Status]\nallow_trivial: true").Load(t)
	plain := one(`permit(principal, action, resource);`, "bundle.yaml", "types: {user: Person}\nknown: [doc]\nallow_trivial: true",
		"entities/e.json", entities(entity("doc", "1", `{"n":1}`), entity("vault", "1", `{}`))).Load(t)
	read := func(more ...string) string {
		return q("user:a", "read", "Doc:1", append(more, `s{"level":1}`, `c{"note":"n"}`)...)
	}
	const integral, fraction = "beyond 64 bits; send a smaller integer, or a string", "not an integer; send an integer, or declare it as decimal in schema.cedarschema"
	for _, c := range []struct {
		of   *pdp.PDP
		body string
		want []string
	}{
		{typed, read(), nil},
		{typed, read(`s{"level":"hunter2"}`), []string{`/subject/properties/level the schema declares User.level as Long; a string was sent; send an integer`}},
		{typed, read(`s{"level":1.5}`), []string{`/subject/properties/level the schema declares User.level as Long; a number that is not an integer was sent; send an integer, or declare it as decimal in schema.cedarschema`}},
		{typed, read(`s{"name":"a"}`), []string{`/subject/properties/level required attribute "level" was not sent, and no entity of this id is stored`}},
		{typed, read(`s{"level":1,"labels":{"tags":[1],"other":1}}`), []string{`/subject/properties/labels/kind the schema requires User.labels.kind, which was not sent`}},
		{typed, read(`s{"level":1,"labels":{"kind":"a","tags":[1,true]}}`), []string{`/subject/properties/labels/tags/1 the schema declares User.labels.tags[] as Long; a boolean was sent; send an integer`}},
		{typed, read(`s{"level":1,"boss":{"type":"Doc","id":"1"}}`), []string{`/subject/properties/boss the schema declares User.boss as User; the object that was sent has another type; send its id as a string, or an object with "type": "user" and "id" alone`}},
		{typed, read(`s{"level":1,"roles":["reader","nosuch"]}`), []string{`/subject/properties/roles this gives parents of type "Role", which is enumerated, and has no such id`}},
		{typed, read(`r{"price":1.23456,"from":"here","status":"ajar"}`), []string{
			`/resource/properties/from the schema declares Doc.from as ipaddr; the string that was sent is none; send a string such as "10.0.0.1" or "10.0.0.0/8"`,
			`/resource/properties/price the schema declares Doc.price as decimal; a number with more than four digits after the point was sent; send four at the most`,
			`/resource/properties/status the schema declares Doc.status as Status; the string that was sent is none of its ids`,
		}},
		{typed, read(`c{}`), []string{`/context/note required member "note" was not sent`}},
		{typed, read(`c{"note":["n"]}`, `a{"soft":1}`), []string{
			`/action/properties/soft the schema declares context.action.soft as Bool; a number was sent; send true or false`,
			`/context/note the schema declares context.note as String; an array was sent; send a string`,
		}},
		{typed, read(`c{"note":"n","on":[{"n":1},{"n":"a"}]}`), []string{`/context/on/1/n the schema declares context.on[].n as Long; a string was sent; send an integer`}},
		{typed, q("usr:a", "raed", "Doc:1"), []string{`/action/name the schema declares no action "raed"; did you mean "read"?`, `/subject/type the schema declares no type "usr"; did you mean "user"?`}},
		{typed, q("User:a", "read", "Doc:1"), []string{`/subject/type type "User" is not known; did you mean "user"?`}},
		{typed, q("Doc:a", "write", "Status:ajar"), []string{
			`/resource/id no entity of this id is in the store, and type "Status" is listed under known`,
			`/resource/type the schema declares action "write" for no resource of type "Status"; it declares it for "Doc"`,
			`/subject/type the schema declares action "write" for no subject of type "Doc"; it declares it for "user"`,
		}},
		{plain, q("user:a", "x", "doc:1"), nil},
		{plain, q("Person:a", "x", "Action:1"), []string{`/resource/type type "Action" is not known`, `/subject/type type "Person" is not known; did you mean "user"?`}},
		{plain, q("us er:a", "x", "doc:1"), []string{`/subject/type type "us er" is not known; did you mean "user"?`}},
		{plain, q("user:a", "x", "doc:2"), []string{`/resource/id no entity of this id is in the store, and type "doc" is listed under known`}},
		{plain, q("user:a", "x", "doc:1", `r{"n":1.5}`), nil}, // passed over
		{plain, q("user:a", "x", "doc:1", `s{"n":1.5}`, `c{"a/b":{"~":[1,{"n":1e30}]},"c":[null],"justification":1.5}`, `a{"n":0.5}`), []string{
			"/action/properties/n " + fraction, "/context/a~1b/~0/1/n " + integral, "/context/c/0 null stands in an array, and Cedar has no null; leave it out", "/subject/properties/n " + fraction,
		}},
		{plain, q("vault:1", "x", "vault:1", `s{"a":1}`, `r{"a":1,"b":1}`), []string{`/resource/properties/b subject and resource are one entity, and only the resource sends this property; send it with the subject`}},
		{plain, `{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"Person"},"action":"x","resource":{"type":"doc","id":"1"}}`, []string{`/actor/actor_type type "Person" is not known; did you mean "user"?`}},
		{plain, `{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"user","department_id":1.5},"action":"x","resource":{"type":"vault","id":"1","labels":{"n":0.5}},"context":{"z":0.5}}`, []string{
			"/actor/department_id " + fraction, "/context/z " + fraction, "/resource/labels/n " + fraction,
		}},
	} {
		if got := mismatches(t, c.of, c.body); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.body, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestMismatchOfItems: an item's pointers lead to where its members stand, beside the items
// where they are inherited.
func TestMismatchOfItems(t *testing.T) {
	t.Parallel()
	p := one(`permit(principal, action, resource);`, "bundle.yaml", "types: {user: Person}\nallow_trivial: true").Load(t)
	batch, err := evaluation.DecodeBatch([]byte(`{"subject":{"type":"Person","id":"a","properties":{"n":0.5}},"action":{"name":"x"},"resource":{"type":"doc","id":"1"},"context":{"n":0.5},"evaluations":[
		{},{"subject":{"id":"b"}},{"subject":{"type":"user","id":"b","properties":{"m":0.5}}},{"subject":{"type":"user","id":"b"},"context":{"m":[0.5]}}]}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch, Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range answer.Items {
		line := fmt.Sprint(d.Reason)
		for n, m := range d.Mismatch {
			line += " " + m.Pointer
			if d.Explain.Mismatch[n] != m {
				t.Errorf("explained as %v, and not %v", d.Explain.Mismatch[n], m)
			}
		}
		got = append(got, line)
	}
	want := []string{"unknown_type /subject/type", "unknown_type /subject/type", " /context/n /evaluations/2/subject/properties/m", " /evaluations/3/context/m/0"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestMismatchIsBounded: what is said of a request, and how long it takes, does not grow
// with what a caller sends.
func TestMismatchIsBounded(t *testing.T) {
	t.Parallel()
	p := one(`permit(principal, action, resource);`, "bundle.yaml", "allow_trivial: true").Load(t)
	members := map[string]any{}
	for n := range 5000 {
		members[fmt.Sprintf("%s%04d", strings.Repeat("n", 100), n)] = 0.5
	}
	context, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	got := mismatches(t, p, q("user:a", "x", "doc:1", "c"+string(context)))
	if len(got) != 16 || len(strings.Join(got, "")) > 16*300 {
		t.Errorf("%d mismatches", len(got))
	}
	long := q(strings.Repeat("u", 100_000)+" :a", "x", "doc:1")
	if got := mismatches(t, p, long); len(got) != 1 || len(got[0]) > 300 {
		t.Errorf("%d bytes for a long name of a type", len(strings.Join(got, "")))
	}
}

// TestNearNamesAreBounded: names are looked for only where somebody reads them, and a call does not cost more the more
// entities there are, or the more items it has.
func TestNearNamesAreBounded(t *testing.T) {
	t.Parallel()
	const stored, asked = 5000, 150
	var all []string
	for n := range stored {
		all = append(all, entity("user", fmt.Sprintf("person-%04d", n), `{}`))
	}
	p := one(`permit(principal, action, resource);`, "bundle.yaml", "known: [user]\nallow_trivial: true", "entities/e.json", entities(all...)).Load(t)
	if got, want := mismatches(t, p, q("user:person-2500x", "x", "doc:1")), `did you mean "person-2500"?`; len(got) != 1 || !strings.HasSuffix(got[0], want) {
		t.Errorf("got %q, want %s", got, want)
	}
	var items []string
	for n := range asked {
		items = append(items, fmt.Sprintf(`{"subject":{"type":"user","id":"person-%04dx"}}`, n))
	}
	body := `{"action":{"name":"x"},"resource":{"type":"doc","id":"1"},"evaluations":[` + strings.Join(items, ",") + `]}`
	for _, c := range []struct {
		body    string
		explain bool
		want    int
	}{{body, true, 100}, {body, false, 0}, {notKnowing(body, "/context/x"), true, 100}} {
		batch, err := evaluation.DecodeBatch([]byte(c.body), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch, Explain: c.explain})
		if err != nil {
			t.Fatal(err)
		}
		near := 0
		for _, d := range answer.Items {
			if len(d.Mismatch) != 1 {
				t.Fatalf("got %v", d.Mismatch)
			}
			if strings.Contains(d.Mismatch[0].Detail, "did you mean") {
				near++
			}
		}
		if near != c.want {
			t.Errorf("explained: %t: %d items have the name of another, want %d: %.80s", c.explain, near, c.want, c.body[len(c.body)-80:])
		}
	}
}

// TestUndeclaredInAnArrayIsPointedTo: the pointer leads to the member, not to one that no array has.
func TestUndeclaredInAnArrayIsPointedTo(t *testing.T) {
	t.Parallel()
	p := one(`permit(principal, action == Action::"read", resource);`, "bundle.yaml", "unknown_properties: reject\nallow_trivial: true", "schema.cedarschema",
		`entity user, doc; action read appliesTo { principal: user, resource: doc, context: { on?: Set<{ n: Long }>, action: { list?: Set<{ n?: Long }> } } };`).Load(t)
	for members, want := range map[string]string{`c{"on":[{"n":1},{"n":2,"x":1}]}`: "400 /context/on/1/x", `a{"list":[{},{"a/b":1}]}`: "400 /action/properties/list/1/a~1b"} {
		if got := ask(t, p, q("user:a", "read", "doc:1", members)); got != want {
			t.Errorf("%s: got %s, want %s", members, got, want)
		}
	}
}
