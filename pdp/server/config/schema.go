package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"
)

// durationPattern is the form of a duration; see [when.ParseDuration].
const durationPattern = `^([0-9]+d)?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*$`

// Schema is the JSON Schema of the configuration file, for editors. It knows the keys and the
// form of their values. What the program checks beyond the form it does not know.
func (f Form[T]) Schema() []byte {
	schema := f.table().section(reflect.TypeFor[T](), "")
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = f.Title
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		panic(err) // the schema holds nothing but text and numbers
	}
	return text.Bytes()
}

func (t keyTable) section(of reflect.Type, path string) map[string]any {
	properties, required, unless := map[string]any{}, []string{}, map[string][]string{}
	for _, f := range fields(of) {
		k := t[join(path, f.name)]
		properties[f.name] = t.schema(k)
		switch {
		case k.Unless != "":
			unless[k.Unless] = append(unless[k.Unless], f.name)
		case k.Required:
			required = append(required, f.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	for _, name := range slices.Sorted(maps.Keys(unless)) {
		schema["allOf"] = append(rules(schema), t.instead(path, name, unless[name]))
	}
	return schema
}

func rules(schema map[string]any) []any {
	all, _ := schema["allOf"].([]any)
	return all
}

// instead is the rule of a key that stands in place of others: either it is there, or those are that must be.
func (t keyTable) instead(path, name string, others []string) map[string]any {
	none, required := map[string]any{}, []string{}
	for _, other := range others {
		none[other] = false
		if t[join(path, other)].Required {
			required = append(required, other)
		}
	}
	rule := map[string]any{"if": map[string]any{"required": []string{name}}, "then": map[string]any{"properties": none}}
	if len(required) > 0 {
		rule["else"] = map[string]any{"required": required}
	}
	return rule
}

func (t keyTable) schema(k Key) map[string]any {
	schema := t.form(k, k.kind)
	if k.Doc != "" {
		schema["description"] = k.Doc
	}
	if k.Variable != "" {
		schema["description"] = k.Doc + " The environment variable " + k.Variable + " wins over it."
	}
	if k.Default != "" {
		schema["default"] = k.written(k.Default)
	}
	if len(k.Enum) > 0 && k.kind.Kind() == reflect.String {
		schema["enum"] = k.Enum
	}
	if slices.Equal(k.Enum, []string{"true", "false"}) { // without quotes they are no strings
		schema["type"], schema["enum"] = []string{"boolean", "string"}, []any{true, false, "true", "false"}
		delete(schema, "minLength")
	}
	return schema
}

// form is the schema of the values of a type that a key takes.
func (t keyTable) form(k Key, of reflect.Type) map[string]any {
	switch {
	case of.Kind() == reflect.Pointer:
		return t.form(k, of.Elem())
	case of.Kind() == reflect.Struct:
		return t.section(of, k.Path)
	case of == reflect.TypeFor[Object]():
		return map[string]any{"type": "object"}
	case of.Kind() == reflect.Map:
		entry := Key{Path: join(k.Path, anyName), kind: of.Elem()}
		return map[string]any{"type": "object", "additionalProperties": t.schema(entry), "propertyNames": map[string]any{"minLength": 1}}
	case of.Kind() == reflect.Slice:
		item := Key{Path: k.Path + "[]", kind: of.Elem(), Enum: k.Enum}
		return k.bounded(map[string]any{"type": "array", "items": t.schema(item)}, "minItems", "maxItems")
	case of == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "minLength": 2, "pattern": durationPattern}
	case of == reflect.TypeFor[Size]():
		return map[string]any{"type": "string", "pattern": sizePattern}
	case of == reflect.TypeFor[Rate]():
		return map[string]any{"type": "string", "pattern": ratePattern}
	case of.Kind() == reflect.Float64:
		return k.bounded(map[string]any{"type": "number"}, "minimum", "maximum")
	case of.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case of.Kind() == reflect.String:
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
	case k.kind == reflect.TypeFor[time.Duration](), k.kind == reflect.TypeFor[Size](), k.kind == reflect.TypeFor[Rate](), k.kind.Kind() == reflect.String:
		return text
	}
	return json.RawMessage(text)
}
