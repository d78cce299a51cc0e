package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value sets v to the value of a node.
func (r *Reading) value(n *yaml.Node, k *Key, v reflect.Value, path string) {
	r.at[path] = n
	before := len(r.mistakes)
	r.valueOf(n, k, v, path)
	r.wrong[path] = len(r.mistakes) > before
}

func (r *Reading) valueOf(n *yaml.Node, k *Key, v reflect.Value, path string) {
	name := path
	if path == "" {
		name = "the configuration"
	}
	if k.optional { // it is on if its key is there
		v.Set(reflect.New(k.of))
		v = v.Elem()
	}
	switch {
	case n.Kind == yaml.AliasNode:
		r.addAt(n, "aliases are not read here", "write the value out")
	case n.ShortTag() == "!!null":
		r.addAt(n, name+" has no value", "write one, or leave the key out")
	case k.scalar != nil:
		r.scalar(n, k, v, path)
	case k.of.Kind() == reflect.Slice && k.item != nil:
		if n.Kind != yaml.SequenceNode {
			r.addAt(n, name+" must be a list", "write - item lines, or [item, item]")
			return
		}
		v.Set(reflect.MakeSlice(k.of, len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			r.value(item, k.item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case n.Kind != yaml.MappingNode:
		r.addAt(n, name+" must be a mapping", "write key: value lines")
	case k.of.Kind() == reflect.Struct:
		r.section(n, k, v, path)
	case k.of.Kind() == reflect.Map:
		r.entries(n, k, v, path)
	default:
		r.object(n, v, path)
	}
}

// section reads a mapping into the struct v. It notes each mistake and goes on.
func (r *Reading) section(n *yaml.Node, k *Key, v reflect.Value, path string) {
	r.members(n, func(key, value *yaml.Node) {
		one := k.key(key.Value)
		if one == nil {
			known := []string{}
			for _, k := range k.keys {
				known = append(known, k.name)
			}
			slices.Sort(known)
			r.addAt(key, fmt.Sprintf("unknown key %q", key.Value), "use one of "+strings.Join(known, ", "))
			return
		}
		r.value(value, one, v.FieldByIndex(one.index), join(path, one.name))
	})
}

// entries reads a mapping whose keys are names of the operator's.
func (r *Reading) entries(n *yaml.Node, k *Key, v reflect.Value, path string) {
	v.Set(reflect.MakeMapWithSize(k.of, len(n.Content)/2))
	r.members(n, func(key, value *yaml.Node) {
		if key.Value == "" {
			r.addAt(key, fmt.Sprintf("a name below %s is empty", path), "write one")
			return
		}
		one := reflect.New(k.of.Elem()).Elem()
		r.value(value, k.item, one, Entry(path, key.Value))
		v.SetMapIndex(reflect.ValueOf(key.Value), one)
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

func (r *Reading) scalar(n *yaml.Node, k *Key, v reflect.Value, path string) {
	text := n.Value
	// A value that the key lists need not be in quotes, as 1.3.
	listed := k.of.Kind() == reflect.String && n.Kind == yaml.ScalarNode && slices.Contains(k.Enum, text)
	if !listed && (n.Kind != yaml.ScalarNode || !slices.Contains(k.scalar.tags, n.ShortTag())) {
		r.addAt(n, fmt.Sprintf("%s must be %s", path, k.scalar.is), k.scalar.try)
		return
	}
	if text == "" && k.of.Kind() == reflect.String {
		r.addAt(n, path+" is empty", "write a value, or leave the key out")
		return
	}
	// A path in the file is relative to it. A path in a variable or flag is relative to the working directory.
	if _, elsewhere := r.elsewhere[n]; k.path && !elsewhere && !filepath.IsAbs(text) {
		text = filepath.Join(filepath.Dir(r.file), text)
	}
	if k.scalar.set(v, text) != nil {
		r.addAt(n, fmt.Sprintf("%s must be %s", path, k.scalar.is), k.scalar.try)
	} else if what, try := k.misfit(v, path); what != "" {
		r.addAt(n, what, try)
	}
}
