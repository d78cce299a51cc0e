package server

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"policy-service/pdp/spelling"
)

// EnvironmentPrefix is what the variables begin with that set keys.
const EnvironmentPrefix = "POLICY_SERVICE_"

// ConfigVariable is the variable that names the configuration file, as --config does.
const ConfigVariable = EnvironmentPrefix + "CONFIG"

// CredentialVariable is what policy-service log takes the credential from. It is no
// key, and may well be set where the service runs.
const CredentialVariable = EnvironmentPrefix + "KEY"

// variable is the environment variable of a key: decision_log.mode is set by
// POLICY_SERVICE_DECISION_LOG_MODE.
func variable(path string) string {
	return EnvironmentPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// ofKubernetes are variables that Kubernetes gives every container of a namespace with a
// Service called policy-service, or policy: nobody wrote them, so they are passed over.
var ofKubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// environment sets what variables say. One that begins like ours and is none is a slip of
// the pen, and the service would run without what it was to say.
func (r *configReader) environment(environ []string, c *Config) {
	byVariable := map[string]Key{}
	for _, k := range Keys() {
		if !strings.Contains(k.Path, "[]") {
			byVariable[variable(k.Path)] = k
		}
	}
	for _, assignment := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(assignment, "=")
		k, known := byVariable[name]
		switch {
		case !strings.HasPrefix(name, EnvironmentPrefix), name == ConfigVariable, name == CredentialVariable, ofKubernetes.MatchString(name):
		case !known:
			settable := slices.DeleteFunc(slices.Sorted(maps.Keys(byVariable)), func(v string) bool { return byVariable[v].Variable == "" })
			r.badHere(name, "no key is called like this variable", "did you mean "+nearest(name, append(settable, ConfigVariable))+"? Else unset it")
		case k.Variable == "":
			r.badHere(name, k.Path+" is more than a text or a number, and only the file can say it", "write it there, and unset the variable")
		default:
			r.set(k, name, text, c)
		}
	}
}

// set sets a key as if it stood in the file. Where it comes from is told by a name.
func (r *configReader) set(k Key, from, text string, c *Config) {
	n := k.node(text)
	r.named[n] = from
	if text == "" {
		r.badNode(n, k.Path+" is empty", "write a value, or leave it out")
		return
	}
	r.value(n, fieldOf(reflect.ValueOf(c).Elem(), k.Path), k.Path)
}

// fieldOf is the field of a key outside lists. A section on the way that is not there is
// made, as it would be by writing the key.
func fieldOf(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		for _, f := range configFields(v.Type()) {
			if f.name == name {
				v = v.FieldByIndex(f.index)
				break
			}
		}
	}
	return v
}

// badHere is a mistake that has no line.
func (r *configReader) badHere(name, what, try string) {
	r.mistakes = append(r.mistakes, fmt.Sprintf("%s: %s; %s", name, what, try))
}

// nearest is the candidate with the fewest letters to change; of several the first.
func nearest(name string, candidates []string) string {
	return slices.MinFunc(candidates, func(a, b string) int { return spelling.Distance(name, a) - spelling.Distance(name, b) })
}
