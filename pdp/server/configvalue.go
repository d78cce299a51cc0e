package server

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
)

// value sets v to what a node says; path is the key it stands under.
func (r *configReader) value(n *yaml.Node, v reflect.Value, path string) {
	r.at[path] = n
	before := len(r.mistakes)
	r.valueOf(n, v, path)
	if what, try := keyAt(path).misfit(v); what != "" && len(r.mistakes) == before {
		r.badNode(n, what, try)
	}
	if len(r.mistakes) > before {
		r.wrong[path] = true
	}
}

func (r *configReader) valueOf(n *yaml.Node, v reflect.Value, path string) {
	switch {
	case n.Kind == yaml.AliasNode:
		r.badNode(n, "aliases are not read here", "write the value out")
	case n.ShortTag() == "!!null":
		r.badNode(n, fmt.Sprintf("%s has no value", what(path)), "write one, or leave the key out")
	case v.Kind() == reflect.Pointer: // what is on where its key is there
		v.Set(reflect.New(v.Type().Elem()))
		r.valueOf(n, v.Elem(), path)
	case v.Kind() == reflect.Struct:
		r.mapping(n, v, path)
	case v.Kind() == reflect.Slice:
		r.list(n, v, path)
	case v.Type() == reflect.TypeFor[time.Duration]():
		r.duration(n, v, path)
	case v.CanInt():
		r.integer(n, v, path)
	case v.CanFloat():
		r.number(n, v, path)
	case v.Kind() == reflect.Bool:
		r.truth(n, v, path)
	case n.Kind == yaml.ScalarNode && slices.Contains(keyAt(path).Enum, n.Value): // 1.3 need not be in quotes
		v.SetString(n.Value)
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		r.badNode(n, fmt.Sprintf("%s must be a string", what(path)), "write it in quotes")
	case n.Value == "":
		r.badNode(n, fmt.Sprintf("%s is empty", what(path)), "write a value, or leave the key out")
	default:
		v.SetString(r.resolve(n, path))
	}
}

// duration reads one of Go's, before which days may stand.
func (r *configReader) duration(n *yaml.Node, v reflect.Value, path string) {
	d, err := parseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || err != nil {
		r.badNode(n, fmt.Sprintf("%s must be a duration", what(path)), "write it like 90d, 2160h or 1d12h")
		return
	}
	v.SetInt(int64(d))
}

func parseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	const day, most = 24 * time.Hour, uint64(math.MaxInt64 / (24 * time.Hour))
	n, err := strconv.ParseUint(days, 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%q is no number of days", days)
	}
	if rest == "" {
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(rest)
	if sum := time.Duration(n)*day + d; err == nil && rest[0] != '-' && rest[0] != '+' && sum >= d {
		return sum, nil
	}
	return 0, fmt.Errorf("%q is no duration", text)
}

func (r *configReader) integer(n *yaml.Node, v reflect.Value, path string) {
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v.OverflowInt(i) {
		r.badNode(n, fmt.Sprintf("%s must be a whole number", what(path)), "write digits alone, without quotes and units")
		return
	}
	v.SetInt(i)
}

func (r *configReader) number(n *yaml.Node, v reflect.Value, path string) {
	f, err := strconv.ParseFloat(n.Value, 64)
	if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" || err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		r.badNode(n, fmt.Sprintf("%s must be a number", what(path)), "write it like 0.25, without quotes")
		return
	}
	v.SetFloat(f)
}

// truth takes the two words that every reader of YAML takes for the same.
func (r *configReader) truth(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		r.badNode(n, fmt.Sprintf("%s must be true or false", what(path)), "write one of them, without quotes")
		return
	}
	v.SetBool(n.Value == "true")
}

func what(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}

// resolve makes a path in the file one from where the service runs. Elsewhere than in the
// file paths are that already.
func (r *configReader) resolve(n *yaml.Node, path string) string {
	if _, elsewhere := r.named[n]; !elsewhere && keyAt(path).path && !filepath.IsAbs(n.Value) {
		return filepath.Join(filepath.Dir(r.file), n.Value)
	}
	return n.Value
}

func (r *configReader) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		r.badNode(n, fmt.Sprintf("%s must be a list", what(path)), "write - item lines, or [item, item]")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		r.value(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

func (r *configReader) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.badNode(n, fmt.Sprintf("%s must be a mapping", what(path)), "write key: value lines")
		return
	}
	fields := map[string][]int{}
	for _, f := range configFields(v.Type()) {
		fields[f.name] = f.index
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field, known := fields[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			r.badNode(key, "a key must be a plain name; aliases and merges are not read here", "write the keys out")
		case seen[key.Value]:
			r.badNode(key, fmt.Sprintf("the key %q occurs twice", key.Value), "keep one")
		case !known:
			r.badNode(key, fmt.Sprintf("unknown key %q", key.Value), "use one of "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		default:
			r.value(value, v.FieldByIndex(field), joinKey(path, key.Value))
		}
		seen[key.Value] = true
	}
}
