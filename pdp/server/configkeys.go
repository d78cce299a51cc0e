package server

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// Key is a key of the configuration, as the tags of its field in [Config] say it.
// Whoever adds a field writes yaml and doc, and what else is true of it:
//
//	yaml:"age"        its name below that of the struct around it
//	doc:"…"           what it is, for help, schema and the page README.md
//	default:"10000"   its value where nobody gives one, as it would be written. In [Config]
//	                  nobody giving one is zero, so a number has a min above it then, and
//	                  a switch is off
//	min:"1h" max:"…"  the bounds of a number or duration; min of how many items in a list
//	enum:"a,b"        all values there are
//	required:"yes"    it has no default and must be there, in the items of a list
//	path:"yes"        a path, relative to the file; a name that ends in _file is one as well
//	secret:"path"     a URL that shows scheme and host alone: the rest may be what gives access
//	reload:"yes"      a SIGHUP takes it, with all below it; then whoever uses it asks
//	                  for it each time: pinned(ctx).config, see [Server.Reconfigure]
type Key struct {
	// Path is the key with those above it, as decision_log.mode; [] stands for each
	// item of a list, as in auth.jwt[].issuer.
	Path string
	Doc  string
	// Default, Min, Max and Enum are as they would be written.
	Default, Min, Max string
	Enum              []string
	Required          bool
	// Reloads says that a SIGHUP takes it.
	Reloads bool
	// Variable is the environment variable that sets it; "" where only the file can,
	// because it is a list, in one, or a section.
	Variable string

	kind   reflect.Type
	path   bool
	secret bool // see the tag
}

// Keys are all keys, in the order of [Config]. A section is among them where that it is
// there means something by itself.
func Keys() []Key {
	var all []Key
	collectKeys(reflect.TypeFor[Config](), "", false, &all)
	return all
}

func collectKeys(t reflect.Type, above string, reloads bool, all *[]Key) {
	for _, f := range configFields(t) {
		k := newKey(f, joinKey(above, f.name))
		k.Reloads = reloads || k.Reloads
		below := k.kind
		if below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		if k.kind.Kind() != reflect.Struct {
			*all = append(*all, k)
		}
		switch {
		case below.Kind() == reflect.Struct:
			collectKeys(below, k.Path, k.Reloads, all)
		case below.Kind() == reflect.Slice && below.Elem().Kind() == reflect.Struct:
			collectKeys(below.Elem(), k.Path+"[]", k.Reloads, all)
		}
	}
}

func newKey(f configField, path string) Key {
	tag := f.field.Tag
	k := Key{
		Path: path, Doc: tag.Get("doc"), Default: tag.Get("default"), Min: tag.Get("min"), Max: tag.Get("max"),
		Required: tag.Get("required") != "", Reloads: tag.Get("reload") != "",
		kind: f.field.Type, path: tag.Get("path") != "" || strings.HasSuffix(path, "_file"),
		secret: tag.Get("secret") == "path",
	}
	if list := tag.Get("enum"); list != "" {
		k.Enum = strings.Split(list, ",")
	}
	if isScalar(k.kind) && !strings.Contains(path, "[]") {
		k.Variable = variable(path)
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

func joinKey(above, name string) string { return strings.TrimPrefix(above+"."+name, ".") }

// configField is a field that is a key, with the way to it.
type configField struct {
	name  string
	index []int
	field reflect.StructField
}

// configFields are the keys of a mapping.
func configFields(t reflect.Type) (all []configField) {
	for i := range t.NumField() {
		field := t.Field(i)
		switch name := field.Tag.Get("yaml"); name {
		case "", "-":
		case ",inline":
			for _, inner := range configFields(field.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = append(all, inner)
			}
		default:
			all = append(all, configField{name, []int{i}, field})
		}
	}
	return all
}

var (
	keyTable = sync.OnceValue(func() map[string]Key {
		table := map[string]Key{}
		for _, k := range Keys() {
			table[k.Path] = k
		}
		return table
	})
	itemNumber = regexp.MustCompile(`\[\d+\]`)
)

// keyAt is the key that a path with the numbers of items leads to.
func keyAt(path string) Key { return keyTable()[itemNumber.ReplaceAllString(path, "[]")] }

// eachKey visits the values of a configuration with the paths of their keys, sections
// before what is in them; what is in lists is not visited.
func eachKey(v reflect.Value, above string, visit func(path string, v reflect.Value)) {
	for _, f := range configFields(v.Type()) {
		field, path := v.FieldByIndex(f.index), joinKey(above, f.name)
		visit(path, field)
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if field.Kind() == reflect.Struct {
			eachKey(field, path, visit)
		}
	}
}

// setDefaults sets every scalar that is not set and has a default. What a pointer leads
// to is copied first: it is shared with whoever made the configuration.
func (c *Config) setDefaults() {
	eachKey(reflect.ValueOf(c).Elem(), "", func(path string, v reflect.Value) {
		switch k := keyAt(path); {
		case v.Kind() == reflect.Pointer && !v.IsNil():
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			v.Set(own)
		case k.Default != "" && v.IsZero():
			newConfigReader("").value(k.node(k.Default), v, path)
		}
	})
}

// checkBounds holds to the bounds of the keys what a program set. What was read was held
// to them where its place was known.
func (c *Config) checkBounds() error {
	var found Mistakes
	eachKey(reflect.ValueOf(c).Elem(), "", func(path string, v reflect.Value) {
		if v.IsZero() {
			return
		}
		if what, try := keyAt(path).misfit(v); what != "" {
			found = append(found, what+"; "+try)
		}
	})
	if len(found) > 0 {
		return found
	}
	return nil
}

// node is a scalar that is written as text, read as what the key is.
func (k Key) node(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch k.kind.Kind() {
	case reflect.Int, reflect.Int64:
		if k.kind != reflect.TypeFor[time.Duration]() {
			n.Tag = "!!int"
		}
	case reflect.Float64:
		n.Tag = "!!float"
	case reflect.Bool:
		n.Tag = "!!bool"
	}
	return n
}

// misfit says why a value cannot be that of the key, and what to try; "" where it can.
func (k Key) misfit(v reflect.Value) (what, try string) {
	if len(k.Enum) > 0 && !slices.Contains(k.Enum, v.String()) {
		return fmt.Sprintf("%s is not one of: %s", k.Path, strings.Join(k.Enum, ", ")), "write one of them"
	}
	if k.Min != "" && k.compare(v, k.Min) < 0 {
		return fmt.Sprintf("%s is less than %s", k.Path, k.Min), "write at least that, or leave the key out"
	}
	if k.Max != "" && k.compare(v, k.Max) > 0 {
		return fmt.Sprintf("%s is more than %s", k.Path, k.Max), "write at most that, or leave the key out"
	}
	return "", ""
}

// compare compares a number or duration with a bound as it is written.
func (k Key) compare(v reflect.Value, bound string) int {
	other := reflect.New(k.kind).Elem()
	r := newConfigReader("")
	switch {
	case v.Kind() == reflect.Float64:
		r.number(k.node(bound), other, k.Path)
		return cmp.Compare(v.Float(), other.Float())
	case k.kind == reflect.TypeFor[time.Duration]():
		r.duration(k.node(bound), other, k.Path)
	case v.CanInt():
		r.integer(k.node(bound), other, k.Path)
	default:
		return 0 // how many items there are is the business of who uses the list
	}
	return cmp.Compare(v.Int(), other.Int())
}
