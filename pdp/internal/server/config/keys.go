// Package config reads the configuration of a program into a struct of that program. The fields of the struct are the
// keys of the configuration. The tags of a field describe its key: see [Key]. The reader of the file, of the environment
// and of flags, the JSON Schema, the printed form and the tables of the documentation all come from these tags, so they
// cannot disagree.
//
// Begin with [Form]: a program has one value of it, for its struct. [Form.Read] reads, and returns all [Mistakes], each
// with its place and a remedy. [Form.Write] prints the configuration in force and the origin of each value.
//
// The package does not know the meaning of any key. It refuses to guess: an unknown key, a key that occurs twice, an
// alias, and a value that other readers of YAML read differently are mistakes.
package config

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Form describes how a configuration of type T is written. T is a struct; a field with a yaml tag is a key. A form is
// not changed once it is in use.
type Form[T any] struct {
	// Title is the title of the JSON Schema.
	Title string
	// Prefix begins every environment variable that sets a key.
	Prefix string
	// FileVariable is the variable with this prefix that names the file. It is no key.
	FileVariable string
	// OtherVariables begin with the prefix, and are neither keys nor mistakes.
	OtherVariables []string
	// Check looks for mistakes beyond the form of each value. The defaults are set.
	Check func(*T, *Reading)
}

// Key is a key of the configuration, as the tags of its field describe it. The tags yaml and doc must be there; the
// others are optional:
//
//	yaml:"age"        its name below the name of the struct around it
//	doc:"…"           its meaning, for help, schema and the documentation
//	default:"10000"   its value if none is given, as a file would have it. A zero in the struct means
//	                  that none was given, so a number with a default needs a min above zero, and
//	                  a switch is off by default
//	min:"1h" max:"…"  the bounds of a number, duration, [Size] or [Rate]; for a list, how many items
//	enum:"a,b"        all values that are allowed; for a list, of its items
//	required:"yes"    it has no default and must be there, in the items of a list
//	instead:"a,b"     it stands in place of these keys beside it: if it is there, they must not be
//	path:"yes"        a path, relative to the file, or a list or map of them; a name that ends in _file is one as well
//	secret:"path"     a URL of which only scheme and host are shown: the rest may give access
//	reload:"yes"      a running program takes a new value, with all below it
type Key struct {
	// Path is the key with those above it, as decision_log.mode; [] stands for each item of a list, as in
	// auth.jwt[].issuer, and <name> for each name of a map, as in upstreams.<name>.url.
	Path string
	Doc  string
	// Default, Min, Max and Enum are as a file would have them.
	Default, Min, Max string
	Enum              []string
	Required          bool
	// Unless is the key beside it that stands in its place, "" if there is none.
	Unless string
	// Reloads is set if a running program takes a new value.
	Reloads bool
	// Variable is the environment variable that sets the key. It is "" if only the file can set the key: it is a list or a
	// map, in one of them, a section, or an [Object].
	Variable string

	name         string
	index        []int        // of its field, in the struct around it
	of           reflect.Type // of its values; a pointer counts as the section that it leads to
	optional     bool         // a section behind a pointer, which is on if it is there
	path, secret bool
	scalar       *scalar // nil if it is no scalar
	keys         []*Key  // of a section, in the order of the fields
	item         *Key    // an item of a list, or a value of a map
}

// anyName stands in the path of a [Key] for each name of a map.
const anyName = "<name>"

// root is the section that holds all keys.
func (f Form[T]) root() *Key { return newKey(reflect.TypeFor[T](), "", Key{}, f.Prefix) }

// newKey makes a key with all below it. above is the section, list or map around it.
func newKey(t reflect.Type, tag reflect.StructTag, k Key, prefix string) *Key {
	k.Doc, k.Default, k.Min, k.Max = tag.Get("doc"), tag.Get("default"), tag.Get("min"), tag.Get("max")
	k.Required, k.Reloads = tag.Get("required") != "", k.Reloads || tag.Get("reload") != ""
	k.path = k.path || tag.Get("path") != "" || strings.HasSuffix(k.Path, "_file")
	k.secret = k.secret || tag.Get("secret") == "path"
	if list := tag.Get("enum"); list != "" {
		k.Enum = strings.Split(list, ",")
	}
	if k.of = t; t.Kind() == reflect.Pointer {
		k.of, k.optional = t.Elem(), true
	}
	// An item has no bounds of its own.
	item := Key{Enum: k.Enum, Reloads: k.Reloads, path: k.path, secret: k.secret}
	switch k.scalar = scalarOf(k.of); {
	case k.scalar != nil:
		if !strings.Contains(k.Path, "[]") && !strings.Contains(k.Path, anyName) {
			k.Variable = prefix + strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_"))
		}
	case k.of.Kind() == reflect.Struct:
		k.addFields(k.of, nil, prefix)
	case k.of == reflect.TypeFor[Object]():
	case k.of.Kind() == reflect.Slice:
		item.Path = k.Path + "[]"
		k.item = newKey(k.of.Elem(), "", item, prefix)
	case k.of.Kind() == reflect.Map:
		item.Path = join(k.Path, anyName)
		k.item = newKey(k.of.Elem(), "", item, prefix)
	}
	return &k
}

// addFields adds the keys of a struct, and of the structs that are inline in it.
func (k *Key) addFields(t reflect.Type, above []int, prefix string) {
	for i := range t.NumField() {
		field := t.Field(i)
		index := append(slices.Clone(above), i)
		switch name := field.Tag.Get("yaml"); name {
		case "", "-":
		case ",inline":
			k.addFields(field.Type, index, prefix)
		default:
			one := Key{Path: join(k.Path, name), name: name, index: index, Reloads: k.Reloads}
			k.keys = append(k.keys, newKey(field.Type, field.Tag, one, prefix))
		}
	}
	for i := range t.NumField() {
		for name := range strings.SplitSeq(t.Field(i).Tag.Get("instead"), ",") {
			if other := k.key(name); other != nil {
				other.Unless = t.Field(i).Tag.Get("yaml")
			}
		}
	}
}

// key is the key of a section by this name, or nil.
func (k *Key) key(name string) *Key {
	if i := slices.IndexFunc(k.keys, func(one *Key) bool { return one.name == name }); i >= 0 {
		return k.keys[i]
	}
	return nil
}

// Keys are all keys, in the order of the fields of T. A section is a key only if its presence alone means something,
// which is so if its field is a pointer.
func (f Form[T]) Keys() (all []Key) {
	var add func(*Key)
	add = func(k *Key) {
		for _, one := range k.keys {
			if one.of.Kind() != reflect.Struct || one.optional {
				all = append(all, *one)
			}
			add(one)
		}
		if k.item != nil {
			add(k.item)
		}
	}
	add(f.root())
	return all
}

// walk visits the values of a configuration with their paths, a section before its keys and a map before its values. It
// does not visit the items of lists.
func (k *Key) walk(v reflect.Value, path string, visit func(k *Key, v reflect.Value, path string)) {
	visit(k, v, path)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, one := range k.keys {
			one.walk(v.FieldByIndex(one.index), join(path, one.name), visit)
		}
	case reflect.Map:
		for _, name := range names(v) {
			k.item.walk(v.MapIndex(name), Entry(path, name.String()), visit)
		}
	}
}

// SetDefaults sets every scalar that is not set and has a default. It first copies the sections behind pointers, and the
// maps, which other configurations may share.
func (f Form[T]) SetDefaults(c *T) { f.root().setDefaults(reflect.ValueOf(c).Elem()) }

func (k *Key) setDefaults(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for _, one := range k.keys {
			one.setDefaults(v.FieldByIndex(one.index))
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		own := reflect.New(k.of)
		own.Elem().Set(v.Elem())
		k.setDefaults(own.Elem())
		v.Set(own)
	case v.Kind() == reflect.Map && !v.IsNil():
		own := reflect.MakeMapWithSize(k.of, v.Len())
		for name, value := range v.Seq2() {
			one := reflect.New(k.of.Elem()).Elem()
			one.Set(value)
			k.item.setDefaults(one)
			own.SetMapIndex(name, one)
		}
		v.Set(own)
	case k.Default != "" && v.IsZero():
		_ = k.scalar.set(v, k.Default) // a test sets every default
	}
}

// Verify looks for mistakes in values that a program set: bounds, and the rest by Check. [Form.Read] does so for the
// values that it reads. The defaults must be set.
func (f Form[T]) Verify(c *T) error {
	r := newReading("")
	f.root().walk(reflect.ValueOf(c).Elem(), "", func(k *Key, v reflect.Value, path string) {
		if what, try := k.misfit(v, path); what != "" && !v.IsZero() {
			r.add("", what, try)
		}
	})
	if len(r.mistakes) == 0 && f.Check != nil {
		f.Check(c, r)
	}
	return r.err()
}

// Changed are the keys, outside lists and maps, whose values differ. If a section behind a pointer is only in one of the
// two, its keys are among them.
func (f Form[T]) Changed(a, b T) []Key {
	before, after := f.values(a), f.values(b)
	return slices.DeleteFunc(f.Keys(), func(k Key) bool { return reflect.DeepEqual(before[k.Path], after[k.Path]) })
}

func (f Form[T]) values(c T) map[string]any {
	all := map[string]any{}
	f.root().walk(reflect.ValueOf(c), "", func(_ *Key, v reflect.Value, path string) {
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

func join(above, name string) string { return strings.TrimPrefix(above+"."+name, ".") }

// Entry is the path of a map's value with this name. A name of more than letters and digits is in quotes.
func Entry(path, name string) string {
	if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/-") != "" || name == "" {
		name = strconv.Quote(name)
	}
	return join(path, name)
}

// names are those of a map, in order.
func names(of reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(of.MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
}
