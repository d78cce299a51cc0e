package conformance

import (
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Body is the text of a request's body. In a file it is YAML, and becomes JSON
// with its members in the order in which they stand, also twice; or it is tagged
// !raw and is sent as it stands. Either way it is a template: {{.token}} is a
// captured value, {{repeat 3 "["}} and {{bytes "ff"}} are what their names say.
type Body struct {
	text  string
	given bool
}

// UnmarshalYAML keeps the text.
func (b *Body) UnmarshalYAML(node *yaml.Node) error {
	text, err := toJSON(node)
	*b = Body{text: text, given: true}
	return err
}

func toJSON(node *yaml.Node) (string, error) {
	switch {
	case node.Tag == "!raw":
		return node.Value, nil
	case node.Kind == yaml.MappingNode:
		return joinJSON(node, "{", "}", 2)
	case node.Kind == yaml.SequenceNode:
		return joinJSON(node, "[", "]", 1)
	case node.Kind == yaml.ScalarNode && node.Tag != "!!str":
		return node.Value, nil // a number, a boolean or null, spelt as JSON spells it
	case node.Kind == yaml.ScalarNode:
		return quote(node.Value), nil
	}
	return "", fmt.Errorf("line %d: cannot be JSON", node.Line)
}

func joinJSON(node *yaml.Node, open, shut string, step int) (string, error) {
	var parts []string
	for i := 0; i < len(node.Content); i += step {
		value, err := toJSON(node.Content[i+step-1])
		if err != nil {
			return "", err
		}
		if step == 2 {
			value = quote(node.Content[i].Value) + ":" + value
		}
		parts = append(parts, value)
	}
	return open + strings.Join(parts, ",") + shut, nil
}

func quote(s string) string {
	b, _ := jsontext.AppendQuote(nil, s) // invalid UTF-8 is replaced, and reported
	return string(b)
}

// fill replaces what is a template in a text by its value.
func fill(text string, values map[string]string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"repeat": func(n int, s string) string { return strings.Repeat(s, n) },
		"bytes": func(s string) (string, error) {
			b, err := hex.DecodeString(s)
			return string(b), err
		},
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, maps.Clone(values))
	return b.String(), err
}
