package pdptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"policy-service/schemas"
)

// OpenAPI holds traffic to the OpenAPI document of the service. It is safe for
// concurrent use.
type OpenAPI struct {
	t testing.TB
	*document
	mu    sync.Mutex
	asked map[string]bool
}

// document is openapi.yaml with the schemas that were needed of it. There is one: each
// reading takes as long as dozens of exchanges.
type document struct {
	doc      map[string]any
	mu       sync.Mutex // held while a schema is compiled
	compiler *jsonschema.Compiler
	inline   map[string]*jsonschema.Schema // by their texts
}

const openapiURL = "https://policy-service.invalid/openapi.json"

var readDocument = sync.OnceValues(func() (*document, error) {
	var doc any
	if err := yaml.Unmarshal(schemas.OpenAPI, &doc); err != nil {
		return nil, err
	}
	text, err := json.Marshal(doc) // the values JSON has, and no others
	if err != nil {
		return nil, err
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
		return nil, err
	}
	d := &document{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), inline: map[string]*jsonschema.Schema{}}
	return d, d.compiler.AddResource(openapiURL, doc)
})

// NewOpenAPI has asked for nothing yet.
func NewOpenAPI(t testing.TB) *OpenAPI {
	t.Helper()
	d, err := readDocument()
	if err != nil {
		t.Fatal(err)
	}
	return &OpenAPI{t: t, document: d, asked: map[string]bool{}}
}

// Operations lists what the document describes, as "POST /path".
func (o *OpenAPI) Operations() []string {
	var all []string
	for path, methods := range o.doc["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	return all
}

// Asked reports whether an operation was part of the traffic.
func (o *OpenAPI) Asked(operation string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[operation]
}

// RoundTrip makes a transport that fails the test where an exchange is not as
// the document says: every answer, and every request that got one.
func (o *OpenAPI) RoundTrip(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		var sent []byte
		if r.Body != nil {
			var err error
			if sent, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(sent))
		}
		resp, err := base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(got))
		if err == nil {
			if err := o.Check(r.Method, r.URL.EscapedPath(), sent, resp.StatusCode, resp.Header.Get("Content-Type"), got); err != nil {
				o.t.Errorf("%s %s\n%.500s\n%d\n%.1000s\nis not as openapi.yaml says: %v", r.Method, r.URL.Path, sent, resp.StatusCode, got, err)
			}
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Check holds one exchange to the document. What the document does not describe
// must be refused.
func (o *OpenAPI) Check(method, path string, sent []byte, status int, contentType string, got []byte) error {
	template, operation := o.find(method, path)
	if operation == nil {
		if status < 400 && method != http.MethodHead && method != http.MethodOptions {
			return fmt.Errorf("%s %s is answered with %d and not described", method, path, status)
		}
		return nil
	}
	o.mu.Lock()
	o.asked[method+" "+template] = true
	o.mu.Unlock()
	responses := o.at(operation, "responses").(map[string]any)
	response, ok := responses[fmt.Sprint(status)]
	if !ok {
		if response, ok = responses["default"]; !ok {
			return fmt.Errorf("status %d is not described", status)
		}
	}
	if err := o.body(response, contentType, got); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	required, _ := o.at(operation["requestBody"], "required").(bool)
	if kind := o.accepted(operation["requestBody"]); kind != "" && status < 300 && (required || len(sent) > 0) {
		if err := o.body(operation["requestBody"], kind, sent); err != nil {
			return fmt.Errorf("the request, which was accepted: %w", err)
		}
	}
	return nil
}

// accepted is the media type that a request's body is described with, of which there
// is one; "" where there is no body.
func (d *document) accepted(body any) string {
	content, _ := d.at(body, "content").(map[string]any)
	for kind := range content {
		return kind
	}
	return ""
}

// find returns the path template and operation for a path; one without a parameter counts
// before one with.
func (d *document) find(method, path string) (string, map[string]any) {
	paths := d.doc["paths"].(map[string]any)
	_, exact := paths[path]
	for template, methods := range paths {
		if !matches(template, path) || exact && template != path {
			continue
		}
		if operation, ok := methods.(map[string]any)[strings.ToLower(method)].(map[string]any); ok {
			return template, operation
		}
	}
	return "", nil
}

func matches(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for n := range want {
		if !strings.HasPrefix(want[n], "{") && want[n] != got[n] {
			return false
		}
	}
	return true
}

// at follows names, and references on the way.
func (d *document) at(v any, names ...string) any {
	for {
		m, ok := v.(map[string]any)
		if !ok {
			return v
		}
		if ref, ok := m["$ref"].(string); ok {
			v = d.at(any(d.doc), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			continue
		}
		if len(names) == 0 {
			return v
		}
		v, names = m[names[0]], names[1:]
	}
}

func (d *document) body(holder any, contentType string, body []byte) error {
	kind, _, _ := strings.Cut(contentType, ";")
	content, _ := d.at(holder, "content").(map[string]any)
	media, ok := content[kind].(map[string]any)
	if !ok {
		if len(content) == 0 && len(body) == 0 {
			return nil
		}
		return fmt.Errorf("the media type %q is not described", contentType)
	}
	schema, ok := media["schema"].(map[string]any)
	if !ok {
		return nil
	}
	if kind != "application/json" && kind != "application/problem+json" {
		return nil
	}
	compiled, err := d.compile(schema)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// compile compiles a schema, the first time: mostly a reference, else one written out in place.
func (d *document) compile(schema map[string]any) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ref, ok := schema["$ref"].(string); ok {
		return d.compiler.Compile(openapiURL + ref)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	if compiled := d.inline[string(text)]; compiled != nil {
		return compiled, nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(openapiURL+"/inline", value); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(openapiURL + "/inline")
	if err != nil {
		return nil, err
	}
	d.inline[string(text)] = compiled
	return compiled, nil
}
