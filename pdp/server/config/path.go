package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// anyName stands in the path of a [Key] for each name of a map.
const anyName = "<name>"

func join(above, name string) string { return strings.TrimPrefix(above+"."+name, ".") }

// plainName is a name that can stand in a path as it is.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_/-]+$`)

// Entry is the path of what a map has by a name. A name that is more than letters and digits stands there in quotes.
func Entry(path, name string) string {
	if !plainName.MatchString(name) {
		name = strconv.Quote(name)
	}
	return join(path, name)
}

// nth is the path of an item of a list.
func nth(path string, n int) string { return path + "[" + strconv.Itoa(n) + "]" }

// names are those of a map, in order.
func names(of reflect.Value) []string {
	all := []string{}
	for name := range of.Seq() {
		all = append(all, name.String())
	}
	return slices.Sorted(slices.Values(all))
}

// inContainer reports whether a key is in a list or in a map, where there may be any number of it.
func inContainer(path string) bool {
	return strings.Contains(path, "[]") || strings.Contains(path, anyName)
}

// Below is the path of what stands below a key at a JSON Pointer, or of the nearest place above it that was given.
func (r *Reading) Below(path, pointer string) string {
	return below(path, pointer, r.Given)
}

// Below is [Reading.Below] of what was read.
func (o Origins) Below(path, pointer string) string {
	return below(path, pointer, func(path string) bool { return o[path] != "" })
}

func below(path, pointer string, given func(path string) bool) string {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		below := Entry(path, token)
		if n, err := strconv.Atoi(token); err == nil && !given(below) {
			below = nth(path, n)
		}
		if !given(below) {
			break
		}
		path = below
	}
	return path
}

var step = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[\d+\]|[^.\[\]]+`)

// at is the key of a path with the numbers of items and the names of maps. Its Path keeps the names. It is the zero Key
// for what stands below an [Object], and for a text in a list or in a map.
func (t keyTable) at(path string) Key {
	pattern, shown := "", ""
	for _, s := range step.FindAllString(path, -1) {
		if s[0] == '[' {
			pattern, shown = pattern+"[]", shown+"[]"
			continue
		}
		if !t.has(join(pattern, s)) {
			pattern = join(pattern, anyName)
		} else {
			pattern = join(pattern, s)
		}
		shown = join(shown, s)
	}
	k, is := t[pattern]
	if is {
		k.Path = shown
	}
	return k
}

// of is the key of a path, or that of the list or map whose text it is.
func (t keyTable) of(path string) Key {
	k := t.at(path)
	if steps := step.FindAllStringIndex(path, -1); k.Path == "" && len(steps) > 0 {
		k = t.at(strings.TrimSuffix(path[:steps[len(steps)-1][0]], "."))
		k.Path = path
	}
	return k
}

func (t keyTable) has(path string) bool {
	_, is := t[path]
	return is
}
