package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Object is a JSON object that may have any members: what they mean, another standard says. It is the object's text.
type Object []byte

// jsonNumber is a number that YAML and JSON read alike.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// object makes JSON of what is written as YAML. What YAML alone can say is a mistake, with its place.
func (r *Reading) object(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.addAt(n, named(path)+" must be a mapping", "write key: value lines")
		return
	}
	before := len(r.mistakes)
	text := r.json(nil, n, path)
	if len(r.mistakes) == before {
		v.SetBytes(text)
	}
}

func (r *Reading) json(b []byte, n *yaml.Node, path string) []byte {
	r.at[path] = n
	switch n.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		first := true
		r.members(n, func(key, value *yaml.Node) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = r.json(append(appendJSON(b, key.Value), ':'), value, Entry(path, key.Value))
		})
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, one := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = r.json(b, one, nth(path, i))
		}
		return append(b, ']')
	case yaml.AliasNode:
		r.addAt(n, "aliases are not read here", "write the value out")
		return b
	}
	return r.jsonScalar(b, n, path)
}

func (r *Reading) jsonScalar(b []byte, n *yaml.Node, path string) []byte {
	switch tag := n.ShortTag(); {
	case tag == "!!str":
		return appendJSON(b, n.Value)
	case tag == "!!null" && n.Value == "null", tag == "!!bool" && (n.Value == "true" || n.Value == "false"),
		(tag == "!!int" || tag == "!!float") && jsonNumber.MatchString(n.Value):
		return append(b, n.Value...)
	case tag == "!!null":
		r.addAt(n, named(path)+" has no value", "write one, which may be null")
	default:
		r.addAt(n, named(path)+" is not a value that JSON has", "write it in quotes, or as JSON has it")
	}
	return b
}

func appendJSON(b []byte, text string) []byte {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(err) // a text can always be encoded
	}
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// object is nil if there is none. It is printed as JSON, on one line.
func (p printer) object(v reflect.Value, path string) *yaml.Node {
	if v.IsNil() {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(v.Bytes(), &document); err != nil || len(document.Content) == 0 {
		return nil // it is no JSON: no file can have said it
	}
	n := document.Content[0]
	p.comment(n, path)
	return n
}
