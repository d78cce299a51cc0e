package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

const mismatchSchema = `entity user { level: Long, token?: { kind?: String } };
entity doc;
action read appliesTo { principal: user, resource: doc, context: { note?: String } };`

// explained is what an answer's explanation says does not fit, in either shape.
func explained(t *testing.T, body string) (pointers []string) {
	t.Helper()
	type answer struct {
		Explain struct{ Mismatch []evaluation.Mismatch }
	}
	var got struct {
		answer
		Context     answer
		Evaluations []struct{ Context answer }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	all := slices.Concat(got.Explain.Mismatch, got.Context.Explain.Mismatch)
	for _, item := range got.Evaluations {
		all = append(all, item.Context.Explain.Mismatch...)
	}
	for _, m := range all {
		pointers = append(pointers, m.Pointer)
		if m.Detail == "" {
			t.Errorf("no detail: %s", body)
		}
	}
	return pointers
}

// TestMismatchTellsNoValue: callers who may have explanations learn where, the record has
// the same places, and nobody's answer or record has a value that was sent.
func TestMismatchTellsNoValue(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	every := auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Explain}}
	asker, explainer := addKey(t, data, "asker", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}}), addKey(t, data, "explainer", every)
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"p.cedar": `permit(principal is user, action == Action::"read", resource);`, "schema.cedarschema": mismatchSchema,
	}), withData(data), func(c *server.Config) { c.DecisionLog.Mask = []string{"/subject/properties/level"} })
	const value = "hunter22-hunter22"
	subject := func(properties string) string {
		return `{"subject":{"type":"user","id":"a","properties":` + properties + `},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`
	}
	wrong := `{"level":"` + value + `","token":{"kind":["` + value + `"]}}`
	ids := map[string][]string{}
	for _, c := range []struct{ path, body, want, recorded string }{
		{evaluationPath, subject(`{"level":1}`), "[]", "[]"},
		{evaluationPath, subject(wrong), "[/subject/properties/level /subject/properties/token/kind]", "[/subject/properties/level /subject/properties/token]"},
		{authorizePath, `{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"user",` + wrong[1:] + `,"action":"read","resource":{"type":"doc","id":"1"}}`,
			"[/actor/level /actor/token/kind]", "[/actor/level /actor/token]"},
		{"/access/v1/evaluations", strings.TrimSuffix(subject(wrong), "}") + `,"context":{"note":7},"evaluations":[{"subject":{"type":"user","id":"b"}}]}`,
			"[/context/note /evaluations/0/subject/properties/level]", "[/context/note /evaluations/0/subject/properties/level]"},
		{evaluationPath, strings.Replace(subject(`{"level":1}`), `"user"`, `"usr"`, 1), "[/subject/type]", "[/subject/type]"},
	} {
		for _, key := range []string{asker, explainer} {
			got := s.Post(c.path, c.body, "Authorization", key, "X-Explain", "true")
			if got.Status != 200 || strings.Contains(got.Body, "hunter") {
				t.Fatalf("%s: got %d %s", c.body, got.Status, got.Body)
			}
			want := "[]"
			if key == explainer {
				want = c.want
			}
			if told := fmt.Sprint(explained(t, got.Body)); told != want {
				t.Errorf("%s: got %s, want %s", c.body, told, want)
			}
			id := got.Header.Get("X-Decision-Id")
			if strings.HasSuffix(c.path, "evaluations") {
				id += ".0"
			}
			ids[c.recorded] = append(ids[c.recorded], id)
		}
	}
	stopAndWait(t, s)
	records := byID(lines(t, data))
	for want, of := range ids {
		for _, id := range of {
			if got := records[id]; fmt.Sprint(got.Mismatch) != want || got.Decision == nil {
				t.Errorf("%s is recorded with %q, want %s", id, got.Mismatch, want)
			}
		}
	}
	for _, file := range everyFile(t, data) {
		if strings.Contains(file[1], value) {
			t.Errorf("%s holds what was sent as a secret", file[0])
		}
	}
}

// TestNearNamesAreForWhoeverMayHaveThem: callers learn the ids that are near from what their own tenant sees, if they
// may have explanations and ask for them. Nobody else does, and no file keeps them.
func TestNearNamesAreForWhoeverMayHaveThem(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	stored := func(id string) string {
		return `[{"uid":{"type":"page","id":"` + id + `"},"attrs":{},"parents":[]}]`
	}
	grant := func(tenant string, permissions ...auth.Permission) auth.Grant {
		return auth.Grant{Tenants: []string{tenant}, Permissions: append(permissions, auth.Decide)}
	}
	asker := addKey(t, data, "asker", grant("acme"))
	acme, bravo := addKey(t, data, "acme", grant("acme", auth.Explain)), addKey(t, data, "bravo", grant("bravo", auth.Explain))
	root := addKey(t, data, "root", grant("default", auth.Explain))
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"p.cedar": `permit(principal is user, action, resource is page);`, "bundle.yaml": "known: [page]\nunknown_properties: reject\n",
		"schema.cedarschema": `entity user { level?: Long }; entity page; action read appliesTo { principal: user, resource: page };`,
		"entities/e.json":    stored("handbook-of-all"), "tenants/acme/entities/e.json": stored("budget-2031"), "tenants/bravo/entities/e.json": stored("merger-2031"),
	}), withData(data))
	about := func(id, properties string) string {
		return `{"subject":{"type":"user","id":"a","properties":` + properties + `},"action":{"name":"read"},"resource":{"type":"page","id":"` + id + `"}}`
	}
	native := func(tenant, id string) string {
		return `{"tenant_id":"` + tenant + `","actor":{"actor_type":"user","actor_id":"a"},"action":"read","resource":{"type":"page","id":"` + id + `"}}`
	}
	const suggests = "did you mean"
	for _, c := range []struct{ key, header, path, body, right string }{
		{acme, "true", "/tenants/acme" + evaluationPath, about("budget-2032", "{}"), "budget-2031"},
		{acme, "true", "/tenants/acme" + evaluationPath, about("merger-2032", "{}"), ""},
		{acme, "true", "/tenants/acme" + evaluationPath, about("handbok-of-all", "{}"), "handbook-of-all"},
		{acme, "true", "/tenants/acme/access/v1/evaluations", `{"evaluations":[` + about("merger-2032", "{}") + `,` + about("budget-2032", "{}") + `]}`, "budget-2031"},
		{acme, "true", authorizePath, native("acme", "budget-2032"), "budget-2031"},
		{acme, "true", authorizePath, native("acme", "merger-2032"), ""},
		{acme, "false", "/tenants/acme" + evaluationPath, about("budget-2032", "{}"), ""},
		{asker, "true", "/tenants/acme" + evaluationPath, about("budget-2032", "{}"), ""},
		{bravo, "true", "/tenants/bravo" + evaluationPath, about("merger-2032", "{}"), "merger-2031"},
		{bravo, "true", "/tenants/bravo" + evaluationPath, about("budget-2032", "{}"), ""},
		{root, "true", evaluationPath, about("budget-2032", "{}"), ""},
		{root, "true", evaluationPath, about("handbook_of_all", "{}"), "handbook-of-all"},
		{acme, "true", "/tenants/acme" + evaluationPath, about("budget-2031", `{"levle":1}`), "level"},
		{asker, "true", "/tenants/acme" + evaluationPath, about("budget-2031", `{"levle":1}`), ""},
	} {
		got := s.Post(c.path, c.body, "Authorization", c.key, "X-Explain", c.header)
		_, near, _ := strings.Cut(got.Body, suggests)
		if want := ` \"` + c.right + `\"?`; c.right != "" && !strings.HasPrefix(near, want) || c.right == "" && near != "" || strings.Count(got.Body, suggests) > 1 {
			t.Errorf("%s: got %d %s, want %q", c.body, got.Status, got.Body, c.right)
		}
	}
	stopAndWait(t, s)
	for _, file := range everyFile(t, data) {
		if strings.Contains(file[1], suggests) {
			t.Errorf("%s holds what was suggested", file[0])
		}
	}
}

// TestMismatchesOfABatchAreBounded: what a thousand items inherit does not stand a thousand
// times on record in all its length.
func TestMismatchesOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{"p.cedar": `permit(principal is user, action, resource);`}), withData(data))
	context := ""
	for n := range 40 {
		context += fmt.Sprintf(`,"%s%d":0.5`, strings.Repeat("n", 400), n)
	}
	body := `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":{` + context[1:] + `},"evaluations":[{},{},{}]}`
	replied(t, s.Post("/access/v1/evaluations", body), 200)
	stopAndWait(t, s)
	items := 0
	for _, l := range lines(t, data) {
		if l.Kind != "decision" {
			continue
		}
		items++
		if size := len(strings.Join(l.Mismatch, "")); len(l.Mismatch) == 0 || size > 600 {
			t.Errorf("%d bytes of pointers", size)
		}
	}
	if items != 3 {
		t.Errorf("%d items are on record", items)
	}
}
