package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"policy-service/conformance/internal/casefile"
)

// edits are values by the JSON Pointer of where they go, in file order.
type edits []edit

type edit struct{ pointer, text string }

// UnmarshalYAML reads a mapping.
func (e *edits) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: set is a mapping of pointers", node.Line)
	}
	for i := 0; i < len(node.Content); i += 2 {
		text, err := casefile.JSON(node.Content[i+1])
		if err != nil {
			return err
		}
		*e = append(*e, edit{node.Content[i].Value, text})
	}
	return nil
}

// withEdits returns the body with members removed and set. A value may be no
// JSON at all, so it goes in last: a stand-in marks its place meanwhile.
func withEdits(body string, remove []string, set edits) (string, error) {
	text := jsontext.Value(body)
	var err error
	for _, pointer := range remove {
		if text, err = rewrite(text, tokens(pointer), nil); err != nil {
			return "", err
		}
	}
	mark := func(n int) string { return `"@@` + strconv.Itoa(n) + `@@"` }
	for n, e := range set {
		if text, err = rewrite(text, tokens(e.pointer), jsontext.Value(mark(n))); err != nil {
			return "", err
		}
	}
	whole := string(text)
	for n, e := range set {
		whole = strings.Replace(whole, mark(n), e.text, 1)
	}
	return whole, nil
}

func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for n, p := range parts {
		parts[n] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
	}
	return parts
}

// rewrite puts a value at a path, in place or at the end of its object, or
// removes the value that is there if value is nil.
func rewrite(text jsontext.Value, path []string, value jsontext.Value) (jsontext.Value, error) {
	if len(path) == 0 {
		return value, nil
	}
	names, values, err := open(text)
	if err != nil {
		return nil, fmt.Errorf("nothing at %s to edit: %w", path[0], err)
	}
	at := slices.Index(names, path[0])
	switch {
	case at < 0 && len(path) == 1 && value != nil:
		names, values = append(names, path[0]), append(values, value)
	case at < 0:
		return nil, fmt.Errorf("no member %q to edit", path[0])
	case len(path) == 1 && value == nil:
		names, values = slices.Delete(names, at, at+1), slices.Delete(values, at, at+1)
	default:
		if values[at], err = rewrite(values[at], path[1:], value); err != nil {
			return nil, err
		}
	}
	return shut(text.Kind(), names, values), nil
}

// open takes an object or an array apart; an array's names are its indexes.
func open(text jsontext.Value) (names []string, values []jsontext.Value, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	first, err := d.ReadToken()
	if err != nil {
		return nil, nil, err
	}
	kind := first.Kind() // before the next read, which takes the token away
	if kind != '{' && kind != '[' {
		return nil, nil, fmt.Errorf("%s is neither object nor array", text)
	}
	for n := 0; d.PeekKind() != '}' && d.PeekKind() != ']'; n++ {
		name := strconv.Itoa(n)
		if kind == '{' {
			token, err := d.ReadToken()
			if err != nil {
				return nil, nil, err
			}
			name = token.String()
		}
		value, err := d.ReadValue()
		if err != nil {
			return nil, nil, err
		}
		names, values = append(names, name), append(values, bytes.Clone(value))
	}
	return names, values, nil
}

func shut(kind jsontext.Kind, names []string, values []jsontext.Value) jsontext.Value {
	parts := make([]string, len(values))
	for n, v := range values {
		parts[n] = string(v)
		if kind == '{' {
			parts[n] = casefile.Quote(names[n]) + ":" + parts[n]
		}
	}
	if kind == '{' {
		return jsontext.Value("{" + strings.Join(parts, ",") + "}")
	}
	return jsontext.Value("[" + strings.Join(parts, ",") + "]")
}
