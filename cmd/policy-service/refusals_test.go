package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
)

// The bundles of the test below: typed has a schema, strict is typed and rejects what it does not declare, spaced is
// typed in a namespace, and plain has no schema.
const (
	refusingTypes = `type Address = { street: String, zip?: Long };
entity Role enum ["reader", "writer"];
entity Status enum ["open", "closed"];
entity User in [Role] { level: Long, boss?: User, roles?: Set<String>, address?: Address, tags?: Set<Long>, on?: Bool };
entity Service { level: Long };
entity Order { amount?: decimal, count?: Long, from?: ipaddr, placed?: datetime, ttl?: duration, status?: Status };
entity Page;
action all;
action read in [all] appliesTo { principal: [User, Service], resource: [Order, Page], context: { reason?: String } };
action "tool.invoke" appliesTo { principal: User, resource: Order, context: {
  arguments: { amount: decimal, to?: Set<User> }, ticket: String, agent?: Service } };
action close appliesTo { principal: User, resource: Order, context: { action: { force: Bool } } };
`
	refusingPolicies = `permit (principal is User, action, resource);`
	refusingConfig   = "types: {user: User, order: Order}\nparents: {user: {roles: Role}}\nknown: [Page]\n"
	plainPolicies    = `@id("small") permit (principal, action == Action::"read", resource) when { context.arguments.amount < 500 };`
)

func refusingBundles(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	stored := func(prefix, typ, id, attributes string) string {
		return fmt.Sprintf(`{"uid":{"type":"%s%s","id":"%s"},"attrs":{%s},"parents":[]}`, prefix, typ, id, attributes)
	}
	files := map[string]string{
		"typed/bundle.yaml": refusingConfig, "strict/bundle.yaml": refusingConfig + "unknown_properties: reject\n",
		"spaced/bundle.yaml":        refusingConfig + "namespace: App\n",
		"spaced/p.cedar":            strings.ReplaceAll(refusingPolicies, "User", "App::User"),
		"spaced/schema.cedarschema": "namespace App {\n" + refusingTypes + "}\n",
		"plain/p.cedar":             plainPolicies, "plain/bundle.yaml": "types: {user: Person}\nknown: [user]\n",
		"plain/entities/e.json": "[" + stored("", "Person", "alice", "") + "]",
	}
	for _, bundle := range []string{"typed", "strict", "spaced"} {
		prefix := ""
		if bundle == "spaced" {
			prefix = "App::"
		} else {
			files[bundle+"/p.cedar"], files[bundle+"/schema.cedarschema"] = refusingPolicies, refusingTypes
		}
		files[bundle+"/entities/e.json"] = "[" + stored(prefix, "User", "alice", `"level":3`) + "," + stored(prefix, "Page", "handbook", "") + "]"
		for tenant, page := range map[string]string{"acme": "budget-2031", "bravo": "merger-2031"} {
			files[bundle+"/tenants/"+tenant+"/entities/e.json"] = "[" + stored(prefix, "Page", page, "") + "]"
		}
	}
	dirs := map[string]string{}
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), text)
		bundle, _, _ := strings.Cut(name, "/")
		dirs[bundle] = filepath.Join(dir, bundle)
	}
	return dirs
}

// refusal is a request that cannot be put to the policies, or not with all that it holds. Its members stand in the
// place of those of an ordinary request, unless it is a native one.
type refusal struct {
	bundle, members, reason string
	pointer, what, right    string // right is empty if there is no name to suggest
}

func (r refusal) body(t *testing.T) []byte {
	t.Helper()
	body := map[string]json.RawMessage{
		"subject": json.RawMessage(`{"type":"user","id":"alice"}`), "action": json.RawMessage(`{"name":"read"}`),
		"resource": json.RawMessage(`{"type":"order","id":"order-5077"}`),
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.members), &own); err != nil {
		t.Fatalf("%s: %v", r.members, err)
	}
	if own["actor"] != nil {
		return []byte(r.members)
	}
	maps.Copy(body, own)
	text, err := json.Marshal(body)
	must(t, err)
	return text
}

// scalars are the values below v, as texts. The names of members, types and actions are none.
func scalars(t *testing.T, v any) (all []string) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			switch _, text := member.(string); {
			case text && slices.Contains([]string{"type", "name", "action", "actor_type", "tenant_id"}, name):
			default:
				all = append(all, scalars(t, member)...)
			}
		}
	case []any:
		for _, e := range v {
			all = append(all, scalars(t, e)...)
		}
	case string, json.Number:
		text := fmt.Sprint(v)
		if len(text) < 4 {
			t.Errorf("a value %q is so short that it can stand anywhere", text)
		}
		return []string{text}
	}
	return all
}

var refusals = []refusal{
	{"typed", `{"action":{"name":"raed"}}`, "schema_mismatch", "/action/name", `the schema declares no action "raed"`, "read"},
	{"typed", `{"action":{"name":"TOOL.INVOKE"}}`, "schema_mismatch", "/action/name", `declares no action "TOOL.INVOKE"`, "tool.invoke"},
	{"typed", `{"action":{"name":"all"}}`, "schema_mismatch", "/action/name", `declares action "all" for no request at all; ask about an action that is in it`, ""},
	{"typed", `{"subject":{"type":"usr","id":"alice"}}`, "schema_mismatch", "/subject/type", `declares no type "usr"`, "user"},
	{"typed", `{"resource":{"type":"ordre","id":"order-5077"}}`, "schema_mismatch", "/resource/type", `declares no type "ordre"`, "order"},
	{"typed", `{"subject":{"type":"USER","id":"alice"}}`, "schema_mismatch", "/subject/type", `declares no type "USER"`, "user"},
	{"typed", `{"subject":{"type":"User","id":"alice"}}`, "unknown_type", "/subject/type", `type "User" is not known`, "user"},
	{"plain", `{"subject":{"type":"Person","id":"alice"}}`, "unknown_type", "/subject/type", `type "Person" is not known`, "user"},
	{"typed", `{"resource":{"type":"an order","id":"order-5077"}}`, "unknown_type", "/resource/type", `type "an order" is not known`, "order"},
	{"typed", `{"subject":{"type":"Action","id":"read-5070"}}`, "unknown_type", "/subject/type", `type "Action" is not known`, ""},
	{"spaced", `{"resource":{"type":"App::Order","id":"order-5077"}}`, "schema_mismatch", "/resource/type", `declares no type "App::Order"`, "order"},
	{"typed", `{"action":{"name":"tool.invoke"},"subject":{"type":"Service","id":"svc-5081","properties":{"level":4102}},"context":{"arguments":{"amount":4103},"ticket":"TK-77"}}`,
		"schema_mismatch", "/subject/type", `declares action "tool.invoke" for no subject of type "Service"; it declares it for "user"`, ""},
	{"typed", `{"action":{"name":"close","properties":{"force":true}},"resource":{"type":"Page","id":"handbook"}}`, "schema_mismatch", "/resource/type", `for no resource of type "Page"; it declares it for "order"`, ""},
	{"typed", `{"subject":{"type":"user","id":"bob-5090"}}`, "schema_mismatch", "/subject/properties/level", `required attribute "level" was not sent, and no entity of this id is stored`, ""},
	{"typed", `{"subject":{"type":"user","id":"alcie"}}`, "schema_mismatch", "/subject/properties/level", `required attribute "level" was not sent, and no entity of this id is stored`, "alice"},
	{"typed", `{"subject":{"type":"user","id":"ALICE"}}`, "schema_mismatch", "/subject/properties/level", `no entity of this id is stored`, "alice"},
	{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"levle":4104}}}`, "schema_mismatch", "/subject/properties/level", `"levle" was sent, which the schema does not declare`, "level"},
	{"typed", `{"tenant_id":"default","actor":{"actor_type":"user","actor_id":"bob-5090","level":"s3cret"},"action":"read","resource":{"type":"order","id":"order-5077"}}`,
		"schema_mismatch", "/actor/level", `declares User.level as Long; a string was sent; send an integer`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":4103},"tiket":"TK-77"}}`, "schema_mismatch", "/context/ticket", `required member "ticket" was not sent; "tiket" was sent, which`, "ticket"},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amont":4103},"ticket":"TK-77"}}`, "schema_mismatch", "/context/arguments/amount", `requires context.arguments.amount, which was not sent; "amont" was sent`, "amount"},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":"4,103"},"ticket":"TK-77"}}`, "schema_mismatch", "/context/arguments/amount", `as decimal; the string that was sent is none; send a number, or a string such as "750.50"`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":4103.12345},"ticket":"TK-77"}}`, "schema_mismatch", "/context/arguments/amount", `as decimal; a number with more than four digits after the point was sent`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":4.103e30},"ticket":"TK-77"}}`, "schema_mismatch", "/context/arguments/amount", `a number beyond the range of decimal was sent`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":4103},"ticket":7719}}`, "schema_mismatch", "/context/ticket", `context.ticket as String; a number was sent; send a string`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":["arg-1"],"ticket":"TK-77"}}`, "schema_mismatch", "/context/arguments", `as a record; an array was sent; send an object`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":4103,"to":[{"type":"Page","id":"page-17"}]},"ticket":"TK-77"}}`, "schema_mismatch", "/context/arguments/to/0", `as User; the object that was sent has another type; send its id as a string, or an object with "type": "user"`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":4103},"ticket":"TK-77","agent":{"type":"user","id":"bot-17"}}}`, "schema_mismatch", "/context/agent", `as Service; the object that was sent has another type; send its id as a string, or an object with "type": "Service"`, ""},
	{"typed", `{"action":{"name":"tool.invoke"},"context":{"arguments":{"amount":4103},"ticket":"TK-77","agent":7718}}`, "schema_mismatch", "/context/agent", `as Service; a number was sent; send its id as a string`, ""},
	{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"level":4104,"tags":[4105,"tag-9"]}}}`, "schema_mismatch", "/subject/properties/tags/1", `User.tags[] as Long; a string was sent; send an integer`, ""},
	{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"level":4104,"tags":{"first":4105}}}}`, "schema_mismatch", "/subject/properties/tags", `as Set<Long>; an object was sent; send an array`, ""},
	{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"level":4104,"on":"yes-yes"}}}`, "schema_mismatch", "/subject/properties/on", `as Bool; a string was sent; send true or false`, ""},
	{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"level":4104,"address":{"street":"Low Street","zip":"91011"}}}}`, "schema_mismatch", "/subject/properties/address/zip", `User.address.zip as Long; a string was sent; send an integer`, ""},
	{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"level":4104,"boss":{"type":"user","id":"carol","since":"2019-01-01"}}}}`, "schema_mismatch", "/subject/properties/boss", `the object that was sent names none; send its id as a string, or an object with "type": "user" and "id" alone`, ""},
	{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"level":4104,"roles":["raeder"]}}}`, "schema_mismatch", "/subject/properties/roles", `this gives parents of type "Role", which is enumerated, and has no such id`, "reader"},
	{"typed", `{"resource":{"type":"order","id":"order-5077","properties":{"count":41.5}}}`, "schema_mismatch", "/resource/properties/count", `as Long; a number that is not an integer was sent; send an integer, or declare it as decimal in schema.cedarschema`, ""},
	{"typed", `{"resource":{"type":"order","id":"order-5077","properties":{"count":41e30}}}`, "schema_mismatch", "/resource/properties/count", `as Long; a number beyond 64 bits was sent`, ""},
	{"typed", `{"resource":{"type":"order","id":"order-5077","properties":{"from":"10.1.2"}}}`, "schema_mismatch", "/resource/properties/from", `as ipaddr; the string that was sent is none; send a string such as "10.0.0.1"`, ""},
	{"typed", `{"resource":{"type":"order","id":"order-5077","properties":{"placed":"2026/03/04"}}}`, "schema_mismatch", "/resource/properties/placed", `as datetime; the string that was sent is none; send a string such as "2026-01-31"`, ""},
	{"typed", `{"resource":{"type":"order","id":"order-5077","properties":{"ttl":"five minutes"}}}`, "schema_mismatch", "/resource/properties/ttl", `as duration; the string that was sent is none; send a string such as "1h30m"`, ""},
	{"typed", `{"resource":{"type":"order","id":"order-5077","properties":{"status":"opne"}}}`, "schema_mismatch", "/resource/properties/status", `as Status; the string that was sent is none of its ids`, "open"},
	{"typed", `{"resource":{"type":"order","id":"order-5077","properties":{"status":{"type":"Status","id":"closd"}}}}`, "schema_mismatch", "/resource/properties/status", `as Status; the id that was sent is none of its ids`, "closed"},
	{"typed", `{"resource":{"type":"Status","id":"opne"}}`, "schema_mismatch", "/resource/id", `type "Status" is enumerated, and has no such id`, "open"},
	{"typed", `{"action":{"name":"close","properties":{"forse":true}}}`, "schema_mismatch", "/action/properties/force", `requires context.action.force, which was not sent; "forse" was sent`, "force"},
	{"typed", `{"resource":{"type":"Page","id":"hanbook"}}`, "unknown_entity", "/resource/id", `no entity of this id is in the store, and type "Page" is listed under known`, "handbook"},
	{"plain", `{"subject":{"type":"user","id":"alicia"}}`, "unknown_entity", "/subject/id", `no entity of this id is in the store, and type "user" is listed under known`, "alice"},
	{"plain", `{"context":{"arguments":{"amount":751.25}}}`, "", "/context/arguments/amount", `not an integer; send an integer, or declare it as decimal in schema.cedarschema`, ""},
	{"plain", `{"context":{"arguments":{"amount":41e30}}}`, "", "/context/arguments/amount", `beyond 64 bits; send a smaller integer, or a string`, ""},
	{"plain", `{"context":{"arguments":{"to":["b-17",null]}}}`, "", "/context/arguments/to/1", `null stands in an array, and Cedar has no null; leave it out`, ""},
}

// TestEvalSaysWhatDoesNotFit: the place, what does not fit there, and the right name where one is near, and never a
// value of the request.
func TestEvalSaysWhatDoesNotFit(t *testing.T) {
	dirs := refusingBundles(t)
	for _, r := range refusals {
		body := r.body(t)
		asked := func(more ...string) string {
			var out, told strings.Builder
			args := append([]string{"eval", "--policies", dirs[r.bundle]}, more...)
			code := command.Run(append(args, "-"), cli.Streams{In: strings.NewReader(string(body)), Out: &out, Err: &told})
			if code != cli.No || told.String() != "" {
				t.Errorf("%s: exit %d %s", body, code, told.String())
			}
			return out.String()
		}
		var request any
		decoder := json.NewDecoder(strings.NewReader(string(body)))
		if decoder.UseNumber(); decoder.Decode(&request) != nil {
			t.Fatal(string(body))
		}
		says := func(detail string) bool {
			suggested := strings.HasSuffix(detail, fmt.Sprintf("did you mean %q?", r.right))
			return strings.Contains(detail, r.what) && (suggested || r.right == "" && !strings.Contains(detail, "did you mean"))
		}
		plain, explained, forPrograms := asked(), asked("--explain"), asked("--json", "--explain")
		for _, text := range []string{plain, explained} {
			line := ""
			for one := range strings.Lines(text) {
				if after, ok := strings.CutPrefix(one, "  mismatch     "+r.pointer+": "); ok {
					line = strings.TrimSuffix(after, "\n")
				}
			}
			if !says(line) || r.reason != "" && !strings.Contains(text, "\n  reason       "+r.reason+"\n") {
				t.Errorf("%s\ngot  %s\nwant %s %s (%s)", body, text, r.pointer, r.what, r.right)
			}
		}
		if wasAsked := r.reason == ""; strings.Contains(explained, "no policy was asked") == wasAsked || strings.Contains(explained, "scope fits") {
			t.Errorf("%s\n%s", body, explained)
		}
		var answer struct {
			Reason   string
			Mismatch []evaluation.Mismatch
		}
		if err := json.Unmarshal([]byte(forPrograms), &answer); err != nil || answer.Reason != r.reason {
			t.Errorf("%s: %v: %s", body, err, forPrograms)
		}
		atPointer := func(m evaluation.Mismatch) bool { return m.Pointer == r.pointer && says(m.Detail) }
		if !slices.ContainsFunc(answer.Mismatch, atPointer) {
			t.Errorf("%s\ngot  %s\nwant %s %s (%s)", body, forPrograms, r.pointer, r.what, r.right)
		}
		for _, value := range scalars(t, request) {
			if slices.ContainsFunc([]string{plain, explained, forPrograms}, func(text string) bool { return strings.Contains(text, value) }) {
				t.Errorf("%s: the answer has %q, which was sent\n%s%s%s", body, value, plain, explained, forPrograms)
			}
		}
	}
}

// TestEvalSaysWhatIsMalformed: nothing is decided, and a name that is near is suggested all the same.
func TestEvalSaysWhatIsMalformed(t *testing.T) {
	dirs := refusingBundles(t)
	for _, c := range []struct {
		refusal
		tenant string
	}{
		{refusal{"strict", `{"subject":{"type":"user","id":"bob-5090","properties":{"levle":4104}}}`, "", "/subject/properties/levle", "the schema does not declare this member", "level"}, ""},
		{refusal{"strict", `{"subject":{"type":"user","id":"bob-5090","properties":{"level":4104,"address":{"steet":"Low Street"}}}}`, "", "/subject/properties/address/steet", "the schema does not declare this member", "street"}, ""},
		{refusal{"strict", `{"context":{"raeson":"gone"}}`, "", "/context/raeson", "the schema does not declare this member", "reason"}, ""},
		{refusal{"strict", `{"context":{"unheard":"gone"}}`, "", "/context/unheard", "the schema does not declare this member; leave it out", ""}, ""},
		{refusal{"typed", `{"subject":{"type":"user","id":"bob-5090","properties":{"roles":[4106]}}}`, "", "/subject/properties/roles", "this property gives Role parents: it must be a string or an array of strings", ""}, ""},
		{refusal{"typed", `{"resource":{"type":"user","id":"alice","properties":{"level":4104}},"subject":{"type":"user","id":"alice","properties":{"level":4105}}}`, "", "/resource/properties/level", "is sent with two values; send it once", ""}, ""},
		{refusal{"typed", `{"context":{"pdp":{"tenant":"acme"}}}`, "", "/context/pdp", "only the PDP sets this member", ""}, ""},
		{refusal{"typed", `{}`, "", "", `there is no tenant "acne"`, "acme"}, "acne"},
		{refusal{"typed", `{}`, "", "", `there is no tenant "elsewhere"; try default, or a directory below tenants/`, ""}, "elsewhere"},
	} {
		var out, told strings.Builder
		args := []string{"eval", "--policies", dirs[c.bundle], "--tenant", c.tenant, "-"}
		if c.tenant == "" {
			args = slices.Delete(args, 3, 5)
		}
		code := command.Run(args, cli.Streams{In: strings.NewReader(string(c.body(t))), Out: &out, Err: &told})
		if said := told.String(); code != cli.Failed || out.String() != "" || !strings.Contains(said, c.pointer) || !strings.Contains(said, c.what) ||
			strings.Contains(said, "did you mean") != (c.right != "") || !strings.Contains(said, c.right) || strings.Contains(said, "410") {
			t.Errorf("%s: exit %d %s%s", c.body(t), code, out.String(), said)
		}
	}
}

// TestEvalSuggestsNoIDOfAnotherTenant: of the ids that are near, only those that the tenant of the request sees.
func TestEvalSuggestsNoIDOfAnotherTenant(t *testing.T) {
	dirs := refusingBundles(t)
	for _, c := range []struct{ tenant, id, right string }{
		{"acme", "budget-2032", "budget-2031"}, {"acme", "merger-2032", ""}, {"acme", "hanbook", "handbook"},
		{"bravo", "budget-2032", ""}, {"bravo", "merger-2032", "merger-2031"}, {"bravo", "hanbook", "handbook"},
		{"default", "budget-2032", ""}, {"default", "merger-2032", ""}, {"default", "hanbook", "handbook"},
	} {
		var out, told strings.Builder
		body := refusal{members: `{"resource":{"type":"Page","id":"` + c.id + `"}}`}.body(t)
		code := command.Run([]string{"eval", "--policies", dirs["typed"], "--tenant", c.tenant, "-"}, cli.Streams{In: strings.NewReader(string(body)), Out: &out, Err: &told})
		_, near, _ := strings.Cut(out.String(), "did you mean ")
		if want := fmt.Sprintf("%q?\n", c.right); code != cli.No || near != want && (c.right != "" || near != "") {
			t.Errorf("%s in %s: exit %d %s%s", c.id, c.tenant, code, out.String(), told.String())
		}
	}
}
