package config

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp/when"
)

// value sets v to the value of a node; path is the key of the node.
func (r *Reading) value(n *yaml.Node, v reflect.Value, path string) {
	r.at[path] = n
	before := len(r.mistakes)
	r.valueOf(n, v, path)
	if what, try := r.keys.of(path).misfit(v); what != "" && len(r.mistakes) == before {
		r.addAt(n, what, try)
	}
	if len(r.mistakes) > before {
		r.wrong[path] = true
	}
}

func (r *Reading) valueOf(n *yaml.Node, v reflect.Value, path string) {
	switch {
	case n.Kind == yaml.AliasNode:
		r.addAt(n, "aliases are not read here", "write the value out")
	case n.ShortTag() == "!!null":
		r.addAt(n, named(path)+" has no value", "write one, or leave the key out")
	case v.Kind() == reflect.Pointer: // a section that is on if its key is there
		v.Set(reflect.New(v.Type().Elem()))
		r.valueOf(n, v.Elem(), path)
	case v.Kind() == reflect.Struct:
		r.mapping(n, v, path)
	case v.Type() == reflect.TypeFor[Object]():
		r.object(n, v, path)
	case v.Kind() == reflect.Map:
		r.entries(n, v, path)
	case v.Kind() == reflect.Slice:
		r.list(n, v, path)
	case v.Type() == reflect.TypeFor[time.Duration]():
		r.duration(n, v, path)
	case v.Type() == reflect.TypeFor[Size]():
		r.size(n, v, path)
	case v.Type() == reflect.TypeFor[Rate]():
		r.rate(n, v, path)
	case v.CanInt():
		r.integer(n, v, path)
	case v.CanFloat():
		r.number(n, v, path)
	case v.Kind() == reflect.Bool:
		r.truth(n, v, path)
	case n.Kind == yaml.ScalarNode && slices.Contains(r.keys.of(path).Enum, n.Value): // 1.3 need not be in quotes
		v.SetString(n.Value)
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		r.addAt(n, named(path)+" must be a string", "write it in quotes")
	case n.Value == "":
		r.addAt(n, named(path)+" is empty", "write a value, or leave the key out")
	default:
		v.SetString(r.resolve(n, path))
	}
}

// duration reads a duration as Go writes it, with days before it or without.
func (r *Reading) duration(n *yaml.Node, v reflect.Value, path string) {
	d, err := when.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || err != nil {
		r.addAt(n, named(path)+" must be a duration", "write it like 90d, 2160h or 1d12h")
		return
	}
	v.SetInt(int64(d))
}

func (r *Reading) integer(n *yaml.Node, v reflect.Value, path string) {
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v.OverflowInt(i) {
		r.addAt(n, named(path)+" must be a whole number", "write digits alone, without quotes and units")
		return
	}
	v.SetInt(i)
}

func (r *Reading) number(n *yaml.Node, v reflect.Value, path string) {
	f, err := strconv.ParseFloat(n.Value, 64)
	tag := n.ShortTag()
	isNumber := n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float")
	if !isNumber || err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		r.addAt(n, named(path)+" must be a number", "write it like 0.25, without quotes")
		return
	}
	v.SetFloat(f)
}

// truth takes only the two words that every reader of YAML understands alike.
func (r *Reading) truth(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		r.addAt(n, named(path)+" must be true or false", "write one of them, without quotes")
		return
	}
	v.SetBool(n.Value == "true")
}

// named is how a mistake names a value.
func named(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}

// resolve makes a path in the file, which is relative to the file, relative to the working
// directory. A path in a variable or flag is that already.
func (r *Reading) resolve(n *yaml.Node, path string) string {
	if _, elsewhere := r.elsewhere[n]; !elsewhere && r.keys.of(path).path && !filepath.IsAbs(n.Value) {
		return filepath.Join(filepath.Dir(r.file), n.Value)
	}
	return n.Value
}

func (r *Reading) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		r.addAt(n, named(path)+" must be a list", "write - item lines, or [item, item]")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		r.value(item, v.Index(i), nth(path, i))
	}
}

// mapping reads a section into the struct v. It notes each mistake and goes on.
func (r *Reading) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.addAt(n, named(path)+" must be a mapping", "write key: value lines")
		return
	}
	index := map[string][]int{}
	for _, f := range fields(v.Type()) {
		index[f.name] = f.index
	}
	r.members(n, func(key, value *yaml.Node) {
		field, known := index[key.Value]
		if !known {
			names := strings.Join(slices.Sorted(maps.Keys(index)), ", ")
			r.addAt(key, fmt.Sprintf("unknown key %q", key.Value), "use one of "+names)
			return
		}
		r.value(value, v.FieldByIndex(field), join(path, key.Value))
	})
}

// members takes each member of a mapping whose key is a plain name that occurs once. All others are mistakes.
func (r *Reading) members(n *yaml.Node, take func(key, value *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			r.addAt(key, "a key must be a plain name; aliases and merges are not read here", "write the keys out")
		case seen[key.Value]:
			r.addAt(key, fmt.Sprintf("the key %q occurs twice", key.Value), "keep one")
		default:
			take(key, value)
		}
		seen[key.Value] = true
	}
}
