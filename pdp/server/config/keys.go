// Package config reads the configuration of a program into a struct of that program. The
// fields of the struct are the keys of the configuration, and the tags of a field say all
// that is true of its key: see [Key]. From these tags alone come the reader of the file, of
// the environment and of flags, the JSON Schema, the printed form and the tables of the
// documentation, so they cannot disagree.
//
// Begin with [Form], which is the whole of the package: a program has one value of it, for
// its struct. [Form.Read] reads, and returns every [Mistakes] with the place of each and what
// to try. [Form.Write] prints what is in force and the origin of each value.
//
// The package does not know what any key means. It refuses to guess: an unknown key, a key
// that occurs twice, an alias, and a value that other readers of YAML take for something
// else are mistakes.
package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Form is how a configuration of type T is written. T is a struct; a field with a yaml tag
// is a key. A form is not changed once it is in use.
type Form[T any] struct {
	// Title is the title of the JSON Schema.
	Title string
	// Prefix begins every environment variable that sets a key.
	Prefix string
	// FileVariable is the variable with this prefix that names the file. It is no key.
	FileVariable string
	// OtherVariables begin with the prefix, and are neither keys nor mistakes.
	OtherVariables []string
	// Check looks for mistakes beyond the form of each value, once everything is read.
	Check func(*T, *Reading)
}

// Key is a key of the configuration, as the tags of its field say it. The tags yaml and doc
// must be there; the others say what else is true of the key:
//
//	yaml:"age"        its name below the name of the struct around it
//	doc:"…"           what it means, for help, schema and the documentation
//	default:"10000"   its value if nobody gives one, as it would be written. A zero in the
//	                  struct means that nobody gave one, so a number with a default needs a
//	                  min above zero, and a switch is off by default
//	min:"1h" max:"…"  the bounds of a number, duration, [Size] or [Rate]; for a list, how many items
//	enum:"a,b"        all values that are allowed; for a list, of its items
//	required:"yes"    it has no default and must be there, in the items of a list
//	instead:"a,b"     it stands in place of these keys beside it: if it is there, they must not be
//	path:"yes"        a path, relative to the file, or a list or map of them; a name that ends in _file is one as well
//	secret:"path"     a URL of which only scheme and host are shown: the rest may give access
//	reload:"yes"      a running program takes a new value, with all below it
type Key struct {
	// Path is the key with those above it, as decision_log.mode; [] stands for each
	// item of a list, as in auth.jwt[].issuer, and <name> for each name of a map, as in
	// upstreams.<name>.url.
	Path string
	Doc  string
	// Default, Min, Max and Enum are as they would be written.
	Default, Min, Max string
	Enum              []string
	Required          bool
	// Unless is the key beside it that stands in its place, "" if there is none.
	Unless string
	// Reloads is set if a running program takes a new value.
	Reloads bool
	// Variable is the environment variable that sets the key. It is "" if only the file can
	// set the key: it is a list or a map, in one of them, a section, or an [Object].
	Variable string

	kind   reflect.Type
	path   bool
	secret bool
}

// Keys are all keys, in the order of the fields of T. A section is a key only if its presence
// alone means something, which is so if its field is a pointer.
func (f Form[T]) Keys() []Key {
	return slices.DeleteFunc(f.everyKey(), func(k Key) bool { return k.kind.Kind() == reflect.Struct })
}

// everyKey are the keys and the sections.
func (f Form[T]) everyKey() []Key {
	var all []Key
	collectKeys(reflect.TypeFor[T](), "", f.Prefix, false, &all)
	return all
}

func collectKeys(t reflect.Type, above, prefix string, reloads bool, all *[]Key) {
	unless := map[string]string{}
	for _, f := range fields(t) {
		for name := range strings.SplitSeq(f.field.Tag.Get("instead"), ",") {
			unless[name] = f.name
		}
	}
	for _, f := range fields(t) {
		k := newKey(f.field, join(above, f.name), prefix)
		k.Reloads, k.Unless = reloads || k.Reloads, unless[f.name]
		*all = append(*all, k)
		below := k.kind
		if below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		switch {
		case below.Kind() == reflect.Struct:
			collectKeys(below, k.Path, prefix, k.Reloads, all)
		case below.Kind() == reflect.Slice && below.Elem().Kind() == reflect.Struct:
			collectKeys(below.Elem(), k.Path+"[]", prefix, k.Reloads, all)
		case below.Kind() == reflect.Map && below.Elem().Kind() == reflect.Struct:
			collectKeys(below.Elem(), join(k.Path, anyName), prefix, k.Reloads, all)
		}
	}
}

func newKey(field reflect.StructField, path, prefix string) Key {
	tag := field.Tag
	k := Key{
		Path:     path,
		Doc:      tag.Get("doc"),
		Default:  tag.Get("default"),
		Min:      tag.Get("min"),
		Max:      tag.Get("max"),
		Required: tag.Get("required") != "",
		Reloads:  tag.Get("reload") != "",
		kind:     field.Type,
		path:     tag.Get("path") != "" || strings.HasSuffix(path, "_file"),
		secret:   tag.Get("secret") == "path",
	}
	if list := tag.Get("enum"); list != "" {
		k.Enum = strings.Split(list, ",")
	}
	if isScalar(k.kind) && !inContainer(path) {
		k.Variable = variable(prefix, path)
	}
	return k
}

func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	}
	return false
}

// keyField is a field that is a key, with the way to it.
type keyField struct {
	name  string
	index []int
	field reflect.StructField
}

// fields are the keys of a mapping.
func fields(t reflect.Type) (all []keyField) {
	for i := range t.NumField() {
		field := t.Field(i)
		switch name := field.Tag.Get("yaml"); name {
		case "", "-":
		case ",inline":
			for _, inner := range fields(field.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = append(all, inner)
			}
		default:
			all = append(all, keyField{name, []int{i}, field})
		}
	}
	return all
}

// keyTable has the keys and the sections by their paths.
type keyTable map[string]Key

func (f Form[T]) table() keyTable {
	table := keyTable{}
	for _, k := range f.everyKey() {
		table[k.Path] = k
	}
	return table
}

// eachKey visits the values of a configuration with the paths of their keys, a section before its keys and a map before
// what it holds. It does not visit the keys in lists.
func eachKey(v reflect.Value, above string, visit func(path string, v reflect.Value)) {
	for _, f := range fields(v.Type()) {
		field, path := v.FieldByIndex(f.index), join(above, f.name)
		visit(path, field)
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		switch {
		case field.Kind() == reflect.Struct:
			eachKey(field, path, visit)
		case field.Kind() == reflect.Map && field.Type().Elem().Kind() == reflect.Struct:
			for _, name := range names(field) {
				eachKey(field.MapIndex(reflect.ValueOf(name)), Entry(path, name), visit)
			}
		}
	}
}

// SetDefaults sets every scalar that is not set and has a default. It first copies what a
// pointer leads to, and the maps, which other configurations may share.
func (f Form[T]) SetDefaults(c *T) {
	r := newReading("", f.table())
	r.defaults(reflect.ValueOf(c).Elem(), "")
}

func (r *Reading) defaults(v reflect.Value, above string) {
	for _, f := range fields(v.Type()) {
		field, path := v.FieldByIndex(f.index), join(above, f.name)
		switch k := r.keys.at(path); {
		case field.Kind() == reflect.Struct:
			r.defaults(field, path)
		case field.Kind() == reflect.Pointer && !field.IsNil():
			own := reflect.New(field.Type().Elem())
			own.Elem().Set(field.Elem())
			r.defaults(own.Elem(), path)
			field.Set(own)
		case field.Kind() == reflect.Map && field.Type().Elem().Kind() == reflect.Struct && !field.IsNil():
			own := reflect.MakeMapWithSize(field.Type(), field.Len())
			for _, name := range names(field) {
				one := reflect.New(field.Type().Elem()).Elem()
				one.Set(field.MapIndex(reflect.ValueOf(name)))
				r.defaults(one, Entry(path, name))
				own.SetMapIndex(reflect.ValueOf(name), one)
			}
			field.Set(own)
		case k.Default != "" && field.IsZero():
			r.value(k.node(k.Default), field, path)
		}
	}
}

// CheckBounds holds to the bounds of the keys the values that a program set. [Form.Read]
// does so for the values that it reads.
func (f Form[T]) CheckBounds(c *T) error {
	keys := f.table()
	var found Mistakes
	eachKey(reflect.ValueOf(c).Elem(), "", func(path string, v reflect.Value) {
		if v.IsZero() {
			return
		}
		if what, try := keys.at(path).misfit(v); what != "" {
			found = append(found, what+"; "+try)
		}
	})
	if len(found) > 0 {
		return found
	}
	return nil
}

// Changed are the keys, outside lists and maps, whose values differ.
func (f Form[T]) Changed(a, b T) []Key {
	before, after := values(a), values(b)
	return slices.DeleteFunc(f.Keys(), func(k Key) bool { return reflect.DeepEqual(before[k.Path], after[k.Path]) })
}

// values are what keys outside lists come to, by their paths. A section behind a pointer has
// only whether it is absent: its keys are there by themselves.
func values(c any) map[string]any {
	all := map[string]any{}
	eachKey(reflect.ValueOf(c), "", func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
		case reflect.Pointer:
			all[path] = v.IsNil()
		default:
			all[path] = v.Interface()
		}
	})
	return all
}

// node is a scalar that is written as text, read as what the key is.
func (k Key) node(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch k.kind.Kind() {
	case reflect.Int, reflect.Int64:
		if k.kind != reflect.TypeFor[time.Duration]() && k.kind != reflect.TypeFor[Size]() {
			n.Tag = "!!int"
		}
	case reflect.Float64:
		if k.kind != reflect.TypeFor[Rate]() {
			n.Tag = "!!float"
		}
	case reflect.Bool:
		n.Tag = "!!bool"
	}
	return n
}

// misfit says why a value cannot be the key's, and what to try; "" if it can.
func (k Key) misfit(v reflect.Value) (what, try string) {
	if len(k.Enum) > 0 && v.Kind() == reflect.String && !slices.Contains(k.Enum, v.String()) {
		return fmt.Sprintf("%s is not one of: %s", k.Path, strings.Join(k.Enum, ", ")), "write one of them"
	}
	if v.Type() != k.kind {
		return "", "" // an item of the key's list has no bounds
	}
	if k.Min != "" && k.compare(v, k.Min) < 0 {
		return fmt.Sprintf("%s is less than %s", k.Path, k.Min), "write at least that, or leave the key out"
	}
	if k.Max != "" && k.compare(v, k.Max) > 0 {
		return fmt.Sprintf("%s is more than %s", k.Path, k.Max), "write at most that, or leave the key out"
	}
	return "", ""
}

// compare compares a number or duration with a bound as it is written. The number of items
// of a list is equal to every bound: the program that uses the list checks it.
func (k Key) compare(v reflect.Value, bound string) int {
	other := reflect.New(k.kind).Elem()
	r := newReading("", nil)
	switch {
	case k.kind == reflect.TypeFor[Rate]():
		r.rate(k.node(bound), other, k.Path)
		return cmp.Compare(v.Float(), other.Float())
	case v.Kind() == reflect.Float64:
		r.number(k.node(bound), other, k.Path)
		return cmp.Compare(v.Float(), other.Float())
	case k.kind == reflect.TypeFor[time.Duration]():
		r.duration(k.node(bound), other, k.Path)
	case k.kind == reflect.TypeFor[Size]():
		r.size(k.node(bound), other, k.Path)
	case v.CanInt():
		r.integer(k.node(bound), other, k.Path)
	default:
		return 0
	}
	return cmp.Compare(v.Int(), other.Int())
}
