package schemas_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"policy-service/schemas"
)

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(schemas.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentIsValidOpenAPI(t *testing.T) {
	t.Parallel()
	if err := document(t).Validate(context.Background(), openapi3.EnableMultiError()); err != nil {
		t.Error(err)
	}
}

// A generator makes a type without members of an object that names none, and a list of
// nothing of an array without items: who asks with such a client cannot send a context.
func TestGeneratedClientsCanSendWhatCallersMaySend(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := yaml.Unmarshal(schemas.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	walk(t, "", doc)
	objects := document(t).Components.Schemas
	for _, name := range []string{"Properties", "EvaluationsItem"} {
		if more := objects[name].Value.AdditionalProperties.Has; more == nil || !*more {
			t.Errorf("%s takes no members but its own", name)
		}
	}
	if more := objects["NativeRequest"].Value.Properties["actor"].Value.AdditionalProperties.Has; more == nil || !*more {
		t.Error("actor takes no members but its own, and they are the subject's properties")
	}
}

// walk holds each schema to what a generator needs. What is between quotes in YAML can hold
// a comma; in a list between braces a text that is not becomes several members without value.
func walk(t *testing.T, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		typed := func(name string) bool {
			many, _ := v["type"].([]any)
			return v["type"] == name || slices.Contains(many, any(name))
		}
		_, properties := v["properties"]
		_, more := v["additionalProperties"]
		if _, items := v["items"]; typed("array") && !items {
			t.Errorf("%s: an array without items", at)
		}
		if typed("object") && !properties && !more {
			t.Errorf("%s: an object that says nothing of its members", at)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if v[name] == nil {
				t.Errorf("%s: %q has no value", at, name)
			}
			walk(t, at+"/"+name, v[name])
		}
	case []any:
		for n, item := range v {
			walk(t, fmt.Sprint(at, "/", n), item)
		}
	}
}

func TestDocumentTakesRequestsWithContext(t *testing.T) {
	t.Parallel()
	const said = `{"anything": {"at": ["all", 1, true, {"deep": null}]}, "purpose_of": "x"}`
	paths := document(t).Paths
	entity := strings.ReplaceAll(`{"type": "user", "id": "a", "properties": SAID}`, "SAID", said)
	for path, body := range map[string]string{
		"/access/v1/evaluation":      `{"subject": ENTITY, "action": {"name": "read", "properties": SAID}, "resource": ENTITY, "context": SAID}`,
		"/access/v1/evaluations":     `{"subject": ENTITY, "context": SAID, "evaluations": [{"action": {"name": "read"}, "resource": ENTITY, "context": SAID}]}`,
		"/access/v1/search/subject":  `{"subject": {"type": "user"}, "action": {"name": "read"}, "resource": ENTITY, "context": SAID}`,
		"/access/v1/search/resource": `{"subject": ENTITY, "action": {"name": "read"}, "resource": {"type": "doc"}, "context": SAID}`,
		"/access/v1/search/action":   `{"subject": ENTITY, "resource": ENTITY, "context": SAID}`,
		"/v1/authorize":              `{"tenant_id": "default", "actor": {"actor_type": "agent", "actor_id": "a", "roles": ["r"], "more": SAID}, "action": "read", "resource": {"type": "tool", "id": "t", "labels": SAID}, "context": SAID}`,
	} {
		schema := paths.Find(path).Post.RequestBody.Value.Content["application/json"].Schema.Value
		check := func(text string) error {
			var value any
			if err := json.Unmarshal([]byte(strings.NewReplacer("ENTITY", entity, "SAID", said).Replace(text)), &value); err != nil {
				t.Fatal(err)
			}
			return schema.VisitJSON(value, openapi3.EnableJSONSchema2020())
		}
		if err := check(body); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if check(strings.Replace(body, `"context": SAID`, `"context": "no object"`, 1)) == nil {
			t.Errorf("%s: a context that is no object is taken", path)
		}
	}
}

// Every path that can explain a decision says how to ask for it.
func TestDecisionsCanBeExplained(t *testing.T) {
	t.Parallel()
	paths := document(t).Paths
	for _, path := range []string{"/access/v1/evaluation", "/tenants/{tenant}/access/v1/evaluation", "/access/v1/evaluations", "/tenants/{tenant}/access/v1/evaluations", "/v1/authorize"} {
		if paths.Find(path).Post.Parameters.GetByInAndName("header", "X-Explain") == nil {
			t.Errorf("%s does not say that it takes X-Explain", path)
		}
	}
}
