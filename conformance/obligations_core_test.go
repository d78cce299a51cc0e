package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest"
)

// A textPEP is a policy enforcement point written from the text of the Obligations Core
// and the Standard Types of 6 October 2026 alone. Numbers in comments are sections of the
// Core; those with ST are sections of the Standard Types.
type textPEP struct {
	url     string
	client  *http.Client
	context map[string]any // sent as the context of each request, nil for none
	execute func(typ string, properties map[string]any) error
}

// An outcome is what the user of an enforcement point can see of one answer.
type outcome struct {
	Granted  bool
	Executed []string // each as "type properties", sorted: the order has no meaning (5)
	Results  []string // of a search
}

func (p *textPEP) evaluate(request map[string]any) outcome {
	return p.enforce(p.post("/access/v1/evaluation", p.declared(request)))
}

// batch declares in the default context and in each item's own context, because the
// latter replaces the default (6.4). Each decision counts for itself (10).
func (p *textPEP) batch(request map[string]any) (all []outcome) {
	request = p.declared(request)
	items := slices.Clone(request["evaluations"].([]any))
	for i := range items {
		if item := items[i].(map[string]any); item["context"] != nil {
			items[i] = p.declared(item)
		}
	}
	request["evaluations"] = items
	decisions, _ := p.post("/access/v1/evaluations", request)["evaluations"].([]any)
	for i := range items {
		var decision map[string]any
		if i < len(decisions) {
			decision, _ = decisions[i].(map[string]any)
		}
		all = append(all, p.enforce(decision))
	}
	return all
}

// search returns the results whose obligations were all executed (7.3).
func (p *textPEP) search(kind string, request map[string]any) outcome {
	answer := p.post("/access/v1/search/"+kind, p.declared(request))
	results, _ := answer["results"].([]any)
	holders := []map[string]any{answer}
	for _, r := range results {
		result := r.(map[string]any)
		if _, own := result["context"]; !own {
			result = answer // the top-level context applies unless the result has its own
		}
		holders = append(holders, result)
	}
	complied, executed := p.comply(holders)
	kept := outcome{Executed: executed}
	for i, r := range results {
		if complied[i+1] {
			kept.Results = append(kept.Results, entityName(r.(map[string]any)))
		}
	}
	return kept
}

func entityName(entity map[string]any) string {
	if name, ok := entity["name"].(string); ok {
		return name
	}
	return fmt.Sprint(entity["type"], "/", entity["id"])
}

// enforce grants a permit only if every obligation was executed (7.1), and never grants a
// denial, though it executes its obligations (7.2).
func (p *textPEP) enforce(decision map[string]any) outcome {
	complied, executed := p.comply([]map[string]any{decision})
	return outcome{Granted: decision["decision"] == true && complied[0], Executed: executed}
}

// comply executes the obligations that it can (7.4), each id once for all holders of one
// answer (7.3), and reports for each holder whether it complied with all of its own.
func (p *textPEP) comply(holders []map[string]any) (complied []bool, executed []string) {
	complied = slices.Repeat([]bool{true}, len(holders))
	if !p.adopts() { // 8: such a PEP ignores the member
		return complied, nil
	}
	lists := make([][]map[string]any, len(holders))
	contents := map[string]string{} // by id
	ambiguous := map[string]bool{}
	for i, holder := range holders {
		lists[i], complied[i] = obligationsOf(holder)
		for _, o := range lists[i] {
			if id, ok := o["id"].(string); ok {
				content := fmt.Sprint(o["type"], " ", asJSON(o["properties"]))
				ambiguous[id] = ambiguous[id] || contents[id] != "" && contents[id] != content
				contents[id] = content
			}
		}
	}
	done := map[string]error{}
	for i, list := range lists {
		for _, o := range list {
			id, ok := o["id"].(string)
			if !ok || ambiguous[id] { // 5: an id identifies one instance, so two that differ are malformed
				complied[i] = false
				continue
			}
			err, tried := done[id]
			if !tried {
				var did string
				if did, err = p.perform(o); err == nil {
					executed = append(executed, did)
				}
				done[id] = err
			}
			complied[i] = complied[i] && err == nil
		}
	}
	slices.Sort(executed)
	return complied, executed
}

// obligationsOf returns the obligations in the context of a decision, a search response or
// a result, and reports whether the member is absent or well-formed (8). The objects of a
// malformed array are returned too, because 7.4 has the PEP execute what it understands.
func obligationsOf(holder map[string]any) (list []map[string]any, ok bool) {
	value, has := holder["context"]
	if !has {
		return nil, true
	}
	context, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	if value, has = context["obligations"]; !has {
		return nil, true
	}
	array, _ := value.([]any)
	for _, element := range array {
		if o, ok := element.(map[string]any); ok {
			list = append(list, o)
		}
	}
	return list, len(list) > 0 && len(list) == len(array)
}

// perform executes one obligation if it is well-formed (7.4). It ignores what it does not
// know outside properties (8).
func (p *textPEP) perform(o map[string]any) (did string, err error) {
	typ, _ := o["type"].(string)
	properties, ok := o["properties"].(map[string]any)
	members, known := standardTypes[typ]
	if !ok || !known || !slices.Contains(p.types(), typ) || !fits(properties, members) {
		return "", errors.New("cannot comply")
	}
	if typ == "custom" { // 5.2: the bilateral agreement
		typ, properties = properties["type"].(string), properties["properties"].(map[string]any)
	}
	return typ + " " + asJSON(properties), p.execute(typ, properties)
}

// standardTypes has the members of properties by type (ST 3.1 to 3.3), the optional ones
// with a question mark, and those of the bilateral agreement on custom (5.2).
var standardTypes = map[string]map[string]func(any) bool{
	"step-up":             {"acr_value": isString, "amr_values?": areStrings},
	"notification":        {"to": func(v any) bool { a, _ := v.([]any); return len(a) > 0 && areStrings(v) }, "body": isString, "topic?": isString},
	"session_termination": {"subject": isString},
	"custom": {
		"vendor":     func(v any) bool { return v == "policy-service" },
		"type":       func(v any) bool { return v == "redact" || v == "log" },
		"properties": func(v any) bool { _, ok := v.(map[string]any); return ok },
	},
}

func isString(v any) bool { _, ok := v.(string); return ok }

func areStrings(v any) bool {
	a, ok := v.([]any)
	return ok && !slices.ContainsFunc(a, func(v any) bool { return !isString(v) })
}

// fits reports whether properties has every required member, none that is unknown, and
// none of the wrong form.
func fits(properties map[string]any, members map[string]func(any) bool) bool {
	for name := range members {
		if _, has := properties[name]; !has && !strings.HasSuffix(name, "?") {
			return false
		}
	}
	for name, value := range properties {
		check := members[name]
		if check == nil {
			check = members[name+"?"]
		}
		if check == nil || !check(value) {
			return false
		}
	}
	return true
}

// adopts reports whether requests list the extension (6.1).
func (p *textPEP) adopts() bool {
	extensions, _ := p.context["supported_mandatory_extensions"].([]any)
	return slices.Contains(extensions, any("obligations"))
}

// types returns what requests list as executable (6.2), which is all that is implemented (ST 2).
func (p *textPEP) types() (types []string) {
	listed, _ := p.context["supported_obligations"].([]any)
	for _, t := range listed {
		types = append(types, t.(string))
	}
	return types
}

// declared returns a request whose context also has the declarations.
func (p *textPEP) declared(request map[string]any) map[string]any {
	request = maps.Clone(request)
	context := map[string]any{}
	if own, ok := request["context"].(map[string]any); ok {
		maps.Copy(context, own)
	}
	maps.Copy(context, p.context)
	if len(context) > 0 {
		request["context"] = context
	}
	return request
}

// post returns the answer to a request, or nil, which nothing is granted by.
func (p *textPEP) post(path string, request map[string]any) (answer map[string]any) {
	resp, err := p.client.Post(p.url+path, "application/json", strings.NewReader(asJSON(request)))
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		return nil
	}
	return answer
}

func asJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// The obligations that the documents of the bundle owe, as obligations.yaml and as the PEP
// executes them.
var owed = map[string]struct{ typ, yaml, executed string }{
	"login":  {"step-up", `{acr_value: "urn:loa:3", amr_values: [mfa, hwk]}`, `step-up {"acr_value":"urn:loa:3","amr_values":["mfa","hwk"]}`},
	"tell":   {"notification", `{to: TO, topic: Reading, body: "${principal.id} ${action.name} ${resource.id}"}`, `notification {"body":"SUBJECT ACTION DOC","to":["boss@example.com"],"topic":"Reading"}`},
	"many":   {"notification", `{to: ["a@example.com", "b@example.com"], body: Both}`, `notification {"body":"Both","to":["a@example.com","b@example.com"]}`},
	"logout": {"session_termination", `{subject: "${principal.id}"}`, `session_termination {"subject":"SUBJECT"}`},
	"mask":   {"redact", `{fields: [/email]}`, `redact {"fields":["/email"]}`},
	"note":   {"log", `{}`, `log {}`},
	"ask":    {"approval_required", `{}`, ""},
}

// Documents by what they owe. Everybody may read and list, and nobody may write.
var documents = map[string][]string{
	"free": nil, "login": {"login"}, "tell": {"tell"}, "many": {"many"}, "logout": {"logout"}, "mask": {"mask"},
	"note": {"note"}, "several": {"tell", "logout", "mask", "login"}, "ask": {"ask"}, "asktell": {"ask", "tell"},
}

func coreBundle(october bool) map[string]string {
	files, to := map[string]string{"bundle.yaml": "obligations: july\n"}, "boss@example.com"
	if october {
		files["bundle.yaml"], to = "obligations: october\n", "[boss@example.com]"
	}
	var obligations, policies strings.Builder
	for name, o := range owed {
		if name != "many" || october {
			fmt.Fprintf(&obligations, "%s: {type: %s, properties: %s}\n", name, o.typ, strings.ReplaceAll(o.yaml, "TO", to))
		}
	}
	entities := []any{stored("user", "ann"), stored("user", "ben")}
	for name, owes := range documents {
		if name == "many" && !october {
			continue
		}
		entities = append(entities, stored("doc", name))
		permits, forbids := strings.Join(owes, ", "), strings.Join(slices.DeleteFunc(slices.Clone(owes), func(o string) bool { return o == "ask" }), ", ")
		fmt.Fprintf(&policies, "@obligation(%q) permit (principal is user, action in [Action::\"read\", Action::\"list\"], resource == doc::%q);\n", permits, name)
		fmt.Fprintf(&policies, "@obligation(%q) forbid (principal is user, action == Action::\"write\", resource == doc::%q);\n", forbids, name)
	}
	files["obligations.yaml"], files["docs.cedar"] = obligations.String(), strings.ReplaceAll(policies.String(), `@obligation("") `, "")
	files["entities/all.json"] = asJSON(entities)
	return files
}

var ann = entity("user", "ann")

func entity(typ, id string) map[string]any { return map[string]any{"type": typ, "id": id} }

func stored(typ, id string) any {
	return map[string]any{"uid": map[string]any{"type": typ, "id": id}, "attrs": map[string]any{}, "parents": []any{}}
}

var declarations = map[string]map[string]any{
	"all":           {"supported_mandatory_extensions": []any{"obligations"}, "supported_obligations": []any{"step-up", "notification", "session_termination", "custom"}},
	"some":          {"supported_mandatory_extensions": []any{"x", "obligations"}, "supported_obligations": []any{"step-up", "notification", "x"}},
	"none":          {"supported_mandatory_extensions": []any{"obligations"}, "supported_obligations": []any{}},
	"types omitted": {"supported_mandatory_extensions": []any{"obligations"}},
	"not adopting":  {"supported_mandatory_extensions": []any{"x"}, "supported_obligations": []any{"step-up", "notification", "session_termination", "custom"}},
	"no member":     nil,
	"types alone":   {"supported_obligations": []any{"step-up", "notification", "session_termination", "custom"}},
}

// expected is the table of 6.3 for one question, as the PEP's user sees it.
func expected(declared map[string]any, subject, action, doc string) (o outcome) {
	p := &textPEP{context: declared}
	o.Granted = action != "write"
	for _, name := range documents[doc] {
		typ := owed[name].typ
		if name == "ask" && action == "write" {
			continue
		}
		if typ == "redact" || typ == "log" {
			typ = "custom"
		}
		if listed := p.adopts() && slices.Contains(p.types(), typ); !listed && action == "write" {
			continue // a DENY carries no obligation of an unlisted type, but may carry the others
		} else if !listed {
			return outcome{}
		}
		o.Executed = append(o.Executed, strings.NewReplacer("SUBJECT", subject, "ACTION", action, "DOC", doc).Replace(owed[name].executed))
	}
	slices.Sort(o.Executed)
	return o
}

func TestObligationsCore(t *testing.T) {
	t.Parallel()
	for _, draft := range []string{"july", "october"} {
		s := pdptest.Start(t, pdptest.Bundle(coreBundle(draft == "october")))
		var metadata struct {
			Capabilities []string
			Types        []string `json:"supported_obligations"`
		}
		if err := json.Unmarshal([]byte(s.Get("/.well-known/authzen-configuration").Body), &metadata); err != nil {
			t.Fatal(err)
		}
		equal(t, "11: capability", slices.Contains(metadata.Capabilities, "urn:openid:authzen:capability:obligations"), true)
		if draft == "october" { // with the default, types of the draft of July are advertised too
			equal(t, "11: types", metadata.Types, []string{"custom", "notification", "session_termination", "step-up"})
		}
		for name, declared := range declarations {
			if draft == "july" && name == "types alone" {
				continue // the draft of July adopts so, and such a bundle answers by it
			}
			t.Run(draft+"/"+name, func(t *testing.T) {
				pep := &textPEP{url: s.URL, client: s.Client, context: declared, execute: execute}
				client := newGoClient(t, pep)
				isClients := pep.adopts() // ours always adopts
				ask := func(action, doc string) map[string]any {
					return map[string]any{"subject": ann, "action": map[string]any{"name": action}, "resource": entity("doc", doc)}
				}
				var items []any
				var ofBatch []outcome
				var asked []evaluation.Request
				var ofClient []string
				docs := slices.DeleteFunc(slices.Sorted(maps.Keys(documents)), func(d string) bool { return d == "many" && draft == "july" })
				for _, doc := range docs {
					for _, action := range []string{"read", "list", "write"} {
						want := expected(declared, "ann", action, doc)
						equal(t, "6.3, 7.1, 7.2: "+action+" "+doc, pep.evaluate(ask(action, doc)), want)
						if asked = append(asked, question("ann", action, doc)); isClients {
							equal(t, "our client: "+action+" "+doc, client.evaluate(t, question("ann", action, doc)), want)
						}
						item := ask(action, doc)
						delete(item, "subject")
						own := maps.Clone(item)
						own["context"] = map[string]any{"ip": "192.0.2.2"}
						items, ofBatch = append(items, item, own), append(ofBatch, want, want)
						ofClient = append(ofClient, want.Executed...)
					}
				}
				batch := map[string]any{"subject": ann, "context": map[string]any{"ip": "192.0.2.1"}, "evaluations": items}
				equal(t, "6.4: batch", pep.batch(batch), ofBatch)
				bare := ask("read", "tell") // its context replaces the default, so it does not adopt
				bare["context"] = map[string]any{"ip": "192.0.2.2"}
				answer := pep.post("/access/v1/evaluations", pep.declared(map[string]any{"evaluations": []any{bare}}))
				equal(t, "6.4: bare item", asJSON(answer["evaluations"].([]any)[0].(map[string]any)["decision"])+asJSON(strings.Contains(asJSON(answer), `"obligations"`)), "falsefalse")
				for i, e := range client.EnforceBatch(t.Context(), evaluation.ExecuteAll, client.handlers, asked...) {
					if isClients && e.Permitted() != ofBatch[2*i].Granted {
						t.Error("our client, batch:", asked[i], e)
					}
				}
				if isClients {
					equal(t, "our client, batch", client.did(), slices.Sorted(slices.Values(ofClient)))
				}
				search := func(what, kind string, request map[string]any, r evaluation.Request, want outcome) {
					equal(t, "7.3: "+what, pep.search(kind, request), want)
					if isClients {
						equal(t, "our client: "+what, client.search(t, kind, r), want)
					}
				}
				for _, action := range []string{"read", "write"} {
					want := union(declared, docs, func(d string) (string, string, string, string) { return "doc/" + d, "ann", action, d })
					search("resources to "+action, "resource", map[string]any{"subject": ann, "action": map[string]any{"name": action}, "resource": map[string]any{"type": "doc"}}, question("ann", action, ""), want)
				}
				for _, d := range docs {
					want := union(declared, []string{"ann", "ben"}, func(u string) (string, string, string, string) { return "user/" + u, u, "read", d })
					search("readers of "+d, "subject", map[string]any{"subject": map[string]any{"type": "user"}, "action": map[string]any{"name": "read"}, "resource": entity("doc", d)}, question("", "read", d), want)
					want = union(declared, []string{"list", "read", "write"}, func(a string) (string, string, string, string) { return a, "ann", a, d })
					search("actions on "+d, "action", map[string]any{"subject": ann, "resource": entity("doc", d)}, question("ann", "", d), want)
				}
			})
		}
	}
}

// union is what 7.3 expects of a search: the permitted results, and each obligation once.
func union(declared map[string]any, among []string, question func(string) (result, subject, action, doc string)) (o outcome) {
	for _, one := range among {
		result, subject, action, doc := question(one)
		if want := expected(declared, subject, action, doc); want.Granted {
			o.Results, o.Executed = append(o.Results, result), append(o.Executed, want.Executed...)
		}
	}
	slices.Sort(o.Executed)
	o.Executed = slices.Compact(o.Executed)
	return o
}
