package config

import (
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// entries reads a section whose keys are names of the operator's: a map of sections, of objects or of texts.
func (r *Reading) entries(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.addAt(n, named(path)+" must be a mapping", "write name: value lines")
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
	r.members(n, func(key, value *yaml.Node) {
		if key.Value == "" {
			r.addAt(key, fmt.Sprintf("a name below %s is empty", named(path)), "write one")
			return
		}
		one := reflect.New(v.Type().Elem()).Elem()
		r.value(value, one, Entry(path, key.Value))
		v.SetMapIndex(reflect.ValueOf(key.Value), one)
	})
}

// entries is nil if there is no map. An empty map is a value.
func (p printer) entries(v reflect.Value, path string) *yaml.Node {
	if v.IsNil() {
		return nil
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range names(v) {
		one, below := v.MapIndex(reflect.ValueOf(name)), Entry(path, name)
		var value *yaml.Node
		switch {
		case one.Kind() == reflect.Struct:
			value = p.section(one, below) // also if nothing is said in it: the name alone says something
		case one.Kind() == reflect.String:
			value = &yaml.Node{}
			setText(value, p.keys.at(path).text(one))
			p.comment(value, below)
		default:
			value = p.value(one, below)
		}
		if value == nil {
			continue
		}
		key := &yaml.Node{}
		setText(key, name)
		n.Content = append(n.Content, key, value)
	}
	return n
}
