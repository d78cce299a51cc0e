// Package casefile reads the files in which the cases of a suite stand: YAML, read strictly, in which a value can stand
// for the JSON text that a case sends or expects. Call [Read] for a file and [JSON] for a value in it.
package casefile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Read reads a file strictly: a key that is spelt wrong would be an expectation that is never checked.
func Read(files fs.FS, name string, into any) error {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: holds more than one document", name)
	}
	return nil
}

// Strictly decodes a part of a file as strictly as [Read] does.
func Strictly(node *yaml.Node, into any) error {
	text, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(into)
}

// JSON is a value's text as JSON, its members in the order of the file; one that stands there twice is there twice. A
// value tagged !raw is the text itself, whether it is JSON or not.
func JSON(node *yaml.Node) (string, error) {
	switch {
	case node.Tag == "!raw":
		return node.Value, nil
	case node.Kind == yaml.MappingNode:
		return joined(node, "{", "}", 2)
	case node.Kind == yaml.SequenceNode:
		return joined(node, "[", "]", 1)
	case node.Kind == yaml.ScalarNode && node.Tag != "!!str":
		return node.Value, nil // a number, a boolean or null, spelt as JSON spells it
	case node.Kind == yaml.ScalarNode:
		return Quote(node.Value), nil
	}
	return "", fmt.Errorf("line %d: cannot be JSON", node.Line)
}

// Text is a value of a file as JSON text, as [JSON] makes it.
type Text string

// UnmarshalYAML keeps the text.
func (t *Text) UnmarshalYAML(node *yaml.Node) error {
	text, err := JSON(node)
	*t = Text(text)
	return err
}

func joined(node *yaml.Node, open, shut string, step int) (string, error) {
	var parts []string
	for i := 0; i < len(node.Content); i += step {
		value, err := JSON(node.Content[i+step-1])
		if err != nil {
			return "", err
		}
		if step == 2 {
			value = Quote(node.Content[i].Value) + ":" + value
		}
		parts = append(parts, value)
	}
	return open + strings.Join(parts, ",") + shut, nil
}

// Quote is a text as a JSON string.
func Quote(s string) string {
	b, _ := jsontext.AppendQuote(nil, s) // invalid UTF-8 is replaced, and reported
	return string(b)
}

// Fill replaces the templates in a text by their values: {{.token}} is the value of that name, {{repeat 3 "["}} and
// {{bytes "ff"}} are what their names say.
func Fill(text string, values map[string]string) (string, error) {
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
