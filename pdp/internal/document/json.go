package document

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// NotJSON says which part of a YAML document has no JSON form.
type NotJSON struct {
	At        *yaml.Node
	What, Try string
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// AppendJSON writes a YAML node as JSON. Numbers keep their text, because the decoder
// distinguishes 1 from 1.5 by it. Members that occur twice stay, because the decoder refuses them. Aliases are
// not followed, because a few lines of aliases can make a document of any size.
func AppendJSON(b []byte, n *yaml.Node) ([]byte, *NotJSON) {
	first, last := byte('['), byte(']')
	switch n.Kind {
	case yaml.ScalarNode:
		return appendJSONScalar(b, n)
	case yaml.SequenceNode:
	case yaml.MappingNode:
		first, last = '{', '}'
	default:
		return nil, &NotJSON{n, "aliases are not read here", "write the value out"}
	}
	b = append(b, first)
	for i, item := range n.Content { // of a mapping these are keys and values by turns
		isValue := n.Kind == yaml.MappingNode && i%2 == 1
		isKey := n.Kind == yaml.MappingNode && !isValue
		switch {
		case isKey && (item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str"):
			return nil, &NotJSON{item, "the name of a member must be a string", "write it in quotes"}
		case isValue:
			b = append(b, ':')
		case i > 0:
			b = append(b, ',')
		}
		var bad *NotJSON
		if b, bad = AppendJSON(b, item); bad != nil {
			return nil, bad
		}
	}
	return append(b, last), nil
}

func appendJSONScalar(b []byte, n *yaml.Node) ([]byte, *NotJSON) {
	switch n.ShortTag() {
	case "!!null":
		return append(b, "null"...), nil
	case "!!bool":
		said, ok := Bool(n)
		if !ok {
			return nil, &NotJSON{n, "this must be true or false", "leave the tag out"}
		}
		return strconv.AppendBool(b, said), nil
	case "!!int", "!!float":
		if !jsonNumber.MatchString(n.Value) {
			return nil, &NotJSON{
				At:   n,
				What: "JSON has no number of this form",
				Try:  "write it in plain decimal, or in quotes if it is a string",
			}
		}
		return append(b, n.Value...), nil
	case "!!str", "!!timestamp": // a plain 2026-01-02 is a string to JSON
		if quoted, err := jsontext.AppendQuote(b, n.Value); err == nil {
			return quoted, nil
		}
		return nil, &NotJSON{n, "the string is not valid UTF-8", "write it as UTF-8"}
	}
	return nil, &NotJSON{n, "JSON has nothing with this tag", "leave the tag out"}
}

// Bool is the value of a node that is true or false. A tag alone, as in !!bool yes, makes neither of a text.
func Bool(n *yaml.Node) (said, ok bool) {
	text := strings.ToLower(n.Value)
	return text == "true", n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && (text == "true" || text == "false")
}

// NodeAt finds the node that a JSON Pointer leads to, or else the nearest node around it.
func NodeAt(n *yaml.Node, pointer string) *yaml.Node {
	for token := range jsontext.Pointer(pointer).Tokens() {
		next := childNode(n, token)
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

func childNode(n *yaml.Node, name string) *yaml.Node {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(name); err == nil && 0 <= i && i < len(n.Content) {
			return n.Content[i]
		}
	}
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

// KeyAt finds the key of a member of a mapping, or else the mapping itself.
func KeyAt(n *yaml.Node, name string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i]
		}
	}
	return n
}
