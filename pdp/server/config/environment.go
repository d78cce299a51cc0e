package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"policy-service/pdp/spelling"
)

// variable is the environment variable of a key: with the prefix POLICY_SERVICE_,
// decision_log.mode is set by POLICY_SERVICE_DECISION_LOG_MODE.
func variable(prefix, path string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// ofKubernetes are the ends of the variables that Kubernetes gives every container of a
// namespace with a Service of the program's name. No person wrote them, so they are not
// mistakes.
var ofKubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// environment sets what variables say. A variable with the prefix that sets no key is probably
// misspelt, and the program would run without what it was to say: it is a mistake.
func (f Form[T]) environment(environ []string, r *Reading, root reflect.Value) {
	byVariable := map[string]Key{}
	for _, k := range f.Keys() {
		if !inContainer(k.Path) {
			byVariable[variable(f.Prefix, k.Path)] = k
		}
	}
	ours := func(name string) bool {
		others := append([]string{f.FileVariable}, f.OtherVariables...)
		return strings.HasPrefix(name, f.Prefix) && !slices.Contains(others, name) && !ofKubernetes.MatchString(name)
	}
	for _, assignment := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(assignment, "=")
		k, known := byVariable[name]
		switch {
		case !ours(name):
		case !known:
			settable := slices.Sorted(maps.Keys(byVariable))
			settable = slices.DeleteFunc(settable, func(v string) bool { return byVariable[v].Variable == "" })
			meant := nearest(name, append(settable, f.FileVariable))
			r.add(name, "no key is called like this variable", "did you mean "+meant+"? Else unset it")
		case k.Variable == "":
			what := k.Path + " is more than a text or a number, and only the file can say it"
			r.add(name, what, "write it there, and unset the variable")
		default:
			r.set(Flag{k.Path, name, text}, root)
		}
	}
}

// set sets a key as if it stood in the file.
func (r *Reading) set(f Flag, root reflect.Value) {
	k := r.keys.at(f.Key)
	n := k.node(f.Value)
	r.elsewhere[n] = f.Name
	if f.Value == "" {
		r.addAt(n, k.Path+" is empty", "write a value, or leave it out")
		return
	}
	r.value(n, fieldOf(root, k.Path), k.Path)
}

// fieldOf is the field of a key outside lists. It makes every section on the way that is not
// there, as writing the key in the file would.
func fieldOf(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		for _, f := range fields(v.Type()) {
			if f.name == name {
				v = v.FieldByIndex(f.index)
				break
			}
		}
	}
	return v
}

// nearest is the candidate with the fewest letters to change; the first of several.
func nearest(name string, candidates []string) string {
	return slices.MinFunc(candidates, func(a, b string) int {
		return spelling.Distance(name, a) - spelling.Distance(name, b)
	})
}
