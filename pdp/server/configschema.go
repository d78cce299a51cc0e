package server

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"
)

// durationPattern is what a duration looks like; see parseDuration.
const durationPattern = `^([0-9]+d)?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*$`

// ConfigSchema is the JSON Schema of the configuration file, for editors: it knows the
// keys and what they can be, and less of what goes together than the service does.
func ConfigSchema() []byte {
	schema := sectionSchema(reflect.TypeFor[Config](), "")
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "The configuration of policy-service"
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		panic(err) // it is made of nothing but text and numbers
	}
	return text.Bytes()
}

func sectionSchema(t reflect.Type, above string) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range configFields(t) {
		k := newKey(f, joinKey(above, f.name))
		properties[f.name] = k.schema()
		if k.Required {
			required = append(required, f.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

func (k Key) schema() map[string]any {
	schema := k.form(k.kind)
	if k.Doc != "" {
		schema["description"] = k.Doc
	}
	if k.Variable != "" {
		schema["description"] = k.Doc + " The environment variable " + k.Variable + " wins over it."
	}
	if k.Default != "" {
		schema["default"] = k.written(k.Default)
	}
	if len(k.Enum) > 0 {
		schema["enum"] = k.Enum
	}
	return schema
}

// form is what a value of a type looks like.
func (k Key) form(t reflect.Type) map[string]any {
	switch {
	case t.Kind() == reflect.Pointer:
		return k.form(t.Elem())
	case t.Kind() == reflect.Struct:
		return sectionSchema(t, k.Path)
	case t.Kind() == reflect.Slice:
		item := Key{Path: k.Path + "[]", kind: t.Elem()}
		return k.bounded(map[string]any{"type": "array", "items": item.schema()}, "minItems", "maxItems")
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "minLength": 2, "pattern": durationPattern}
	case t.Kind() == reflect.Float64:
		return k.bounded(map[string]any{"type": "number"}, "minimum", "maximum")
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.String:
		return map[string]any{"type": "string", "minLength": 1}
	}
	return k.bounded(map[string]any{"type": "integer"}, "minimum", "maximum")
}

func (k Key) bounded(schema map[string]any, least, most string) map[string]any {
	if k.Min != "" {
		schema[least] = json.Number(k.Min)
	}
	if k.Max != "" {
		schema[most] = json.Number(k.Max)
	}
	return schema
}

// written is a default as JSON has it.
func (k Key) written(text string) any {
	switch {
	case k.kind == reflect.TypeFor[time.Duration](), k.kind.Kind() == reflect.String:
		return text
	}
	return json.RawMessage(text)
}
