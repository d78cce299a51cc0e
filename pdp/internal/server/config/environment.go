package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/spelling"
)

// ofKubernetes are the ends of the variables that Kubernetes gives every container of a namespace with a Service of the
// program's name. No person wrote them, so they are not mistakes.
var ofKubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// environment finds the variables that set keys. A variable with the prefix that sets no key is probably misspelt, and
// the program would run without its value: it is a mistake.
func (f Form[T]) environment(environ []string, r *Reading) (set []Flag) {
	keys, settable := map[string]Key{}, []string{}
	for _, k := range f.Keys() {
		keys[f.Prefix+strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_"))] = k
		if k.Variable != "" {
			settable = append(settable, k.Variable)
		}
	}
	slices.Sort(settable)
	settable = append(settable, f.FileVariable)
	for _, assignment := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(assignment, "=")
		k, known := keys[name]
		switch {
		case !strings.HasPrefix(name, f.Prefix), name == f.FileVariable, slices.Contains(f.OtherVariables, name), ofKubernetes.MatchString(name):
		case !known:
			meant := slices.MinFunc(settable, func(a, b string) int { return spelling.Distance(name, a) - spelling.Distance(name, b) })
			r.add(name, "no key is called like this variable", "did you mean "+meant+"? Else unset it")
		case k.Variable == "":
			r.add(name, k.Path+" is more than a text or a number, and only the file can say it", "write it there, and unset the variable")
		default:
			set = append(set, Flag{k.Path, name, text})
		}
	}
	return set
}

// set sets a key as if it stood in the file, with the sections around it.
func (r *Reading) set(f Flag, k *Key, v reflect.Value) {
	for name := range strings.SplitSeq(f.Key, ".") {
		if k.optional {
			if v.IsNil() {
				v.Set(reflect.New(k.of))
			}
			v = v.Elem()
		}
		k = k.key(name)
		v = v.FieldByIndex(k.index)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: k.scalar.tags[0], Value: f.Value}
	r.elsewhere[n] = f.Name
	if f.Value == "" {
		r.addAt(n, k.Path+" is empty", "write a value, or leave it out")
		return
	}
	r.value(n, k, v, k.Path)
}
