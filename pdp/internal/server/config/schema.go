package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// Schema is the JSON Schema of the configuration file, for editors. It knows the keys and the form of their values, not
// the checks of the program beyond the form.
func (f Form[T]) Schema() []byte {
	schema := f.root().section()
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

func (k *Key) section() map[string]any {
	properties, required, unless := map[string]any{}, []string{}, map[string][]*Key{}
	for _, one := range k.keys {
		properties[one.name] = one.schema()
		switch {
		case one.Unless != "":
			unless[one.Unless] = append(unless[one.Unless], one)
		case one.Required:
			required = append(required, one.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	rules := []any{}
	for _, name := range slices.Sorted(maps.Keys(unless)) {
		rules = append(rules, instead(name, unless[name]))
		schema["allOf"] = rules
	}
	return schema
}

// instead is the rule of a key that stands in place of others: either it is there, or those are that must be.
func instead(name string, others []*Key) map[string]any {
	none, required := map[string]any{}, []string{}
	for _, other := range others {
		none[other.name] = false
		if other.Required {
			required = append(required, other.name)
		}
	}
	rule := map[string]any{"if": map[string]any{"required": []string{name}}, "then": map[string]any{"properties": none}}
	if len(required) > 0 {
		rule["else"] = map[string]any{"required": required}
	}
	return rule
}

func (k *Key) schema() map[string]any {
	schema := k.form()
	if k.Doc != "" {
		schema["description"] = k.Doc
	}
	if k.Variable != "" {
		schema["description"] = k.Doc + " The environment variable " + k.Variable + " wins over it."
	}
	if k.Default != "" {
		schema["default"] = k.Default
		if schema["type"] != "string" {
			schema["default"] = json.RawMessage(k.Default)
		}
	}
	if len(k.Enum) > 0 && k.scalar != nil {
		schema["enum"] = k.Enum
	}
	return schema
}

// form is the schema of the key's values, whatever the key is called.
func (k *Key) form() map[string]any {
	switch {
	case k.scalar == whole, k.scalar == number:
		return k.bounded(maps.Clone(k.scalar.schema), "minimum", "maximum")
	case k.scalar != nil:
		return maps.Clone(k.scalar.schema)
	case k.of.Kind() == reflect.Struct:
		return k.section()
	case k.of.Kind() == reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": k.item.schema(), "propertyNames": map[string]any{"minLength": 1}}
	case k.item != nil:
		return k.bounded(map[string]any{"type": "array", "items": k.item.schema()}, "minItems", "maxItems")
	}
	return map[string]any{"type": "object"} // an Object
}

func (k *Key) bounded(schema map[string]any, least, most string) map[string]any {
	if k.Min != "" {
		schema[least] = json.Number(k.Min)
	}
	if k.Max != "" {
		schema[most] = json.Number(k.Max)
	}
	return schema
}
