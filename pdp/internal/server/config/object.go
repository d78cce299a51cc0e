package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Object is a JSON object that may have any members: another standard gives them their meaning. It is the object's text.
type Object []byte

// jsonNumber is a number that YAML and JSON read alike.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// object makes JSON of YAML. A value that only YAML has is a mistake, with its place.
func (r *Reading) object(n *yaml.Node, v reflect.Value, path string) {
	before := len(r.mistakes)
	text := r.json(nil, n, path)
	if len(r.mistakes) == before {
		v.SetBytes(text)
	}
}

func (r *Reading) json(b []byte, n *yaml.Node, path string) []byte {
	r.at[path] = n
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.MappingNode:
		b = append(b, '{')
		first := true
		r.members(n, func(key, value *yaml.Node) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = r.json(append(appendJSON(b, key.Value), ':'), value, path+"/"+pointerEscape.Replace(key.Value))
		})
		return append(b, '}')
	case n.Kind == yaml.SequenceNode:
		b = append(b, '[')
		for i, one := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = r.json(b, one, fmt.Sprintf("%s/%d", path, i))
		}
		return append(b, ']')
	case n.Kind == yaml.AliasNode:
		r.addAt(n, "aliases are not read here", "write the value out")
	case tag == "!!str":
		return appendJSON(b, n.Value)
	case tag == "!!null" && n.Value == "null", tag == "!!bool" && (n.Value == "true" || n.Value == "false"),
		(tag == "!!int" || tag == "!!float") && jsonNumber.MatchString(n.Value):
		return append(b, n.Value...)
	case tag == "!!null":
		r.addAt(n, path+" has no value", "write one, which may be null")
	default:
		r.addAt(n, path+" is not a value that JSON has", "write it in quotes, or as JSON has it")
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
