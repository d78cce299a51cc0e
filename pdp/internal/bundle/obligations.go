package bundle

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	kinds "github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/spelling"
	"policy-service/schemas"
)

// Definition is the definition of an obligation, with its place.
type Definition struct {
	*obligations.Definition
	File         string // "" if it is built in
	Line, Column int
}

// ObligationName matches the legal names of obligations. The slash is that of an obligation of a
// tenant's access declaration, which an author may write out.
var ObligationName = regexp.MustCompile(`^(access\.[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$`)

// parseObligations reads obligations.yaml on top of the definitions above it.
func parseObligations(file string, text []byte, above map[string]Definition, october bool, problems *Problems) map[string]Definition {
	known := maps.Clone(above)
	root, ok := document.Read(file, text, problems)
	if !ok {
		known[unreadNames] = Definition{}
		return known
	}
	r := obligationReader{Map: document.Map{File: file, Problems: problems}, above: above, october: october}
	r.Each(root, func(name, value *yaml.Node) {
		d, ok := r.definition(name, value)
		if _, taken := known[name.Value]; !ok && taken {
			return // the other definition stays
		} else if !ok {
			d = Definition{}
		}
		known[name.Value] = d
	})
	return known
}

// A definition with an error stands in the map as an empty one, so that a policy that names it is not at fault too.
// unreadNames stands for the names of a file that could not be read; no policy can name it. With either there is an error, and
// so no bundle.
const unreadNames = ""

// obligationReader reads the definitions of one file.
type obligationReader struct {
	document.Map
	above   map[string]Definition
	october bool // bundle.yaml says obligations: october
}

// definition reads one definition. It reports if there was no problem.
func (r *obligationReader) definition(name, value *yaml.Node) (Definition, bool) {
	before := len(*r.Problems)
	d := Definition{&obligations.Definition{Name: name.Value}, r.File, name.Line, name.Column}
	if !ObligationName.MatchString(name.Value) {
		r.Bad(name, "obligation_name", "this is no name of an obligation",
			"use letters, digits, dots, underscores and hyphens")
	}
	above := r.above[name.Value]
	redefines := above.Definition != nil
	if redefines && (above.File != "" || strings.HasPrefix(r.File, "tenants/")) {
		r.Bad(name, "obligation_redefined", fmt.Sprintf("obligation %q is defined above the tenant", name.Value),
			"give it a name of its own")
	}
	var typ, on, properties *yaml.Node
	m := document.Map{File: r.File, Problems: r.Problems, Known: map[string]func(*yaml.Node){
		"type":       func(n *yaml.Node) { typ = n },
		"on":         func(n *yaml.Node) { on = n },
		"properties": func(n *yaml.Node) { properties = n },
	}}
	m.Read(value)
	switch {
	case value.Kind != yaml.MappingNode:
		return d, false
	case typ == nil:
		r.Bad(value, "missing_key", fmt.Sprintf("obligation %q has no type", name.Value),
			"add type: with one of "+strings.Join(obligations.Types(), ", "))
		return d, false
	}
	var ok bool
	if d.Type, ok = obligations.Lookup(typ.Value); !ok || typ.Kind != yaml.ScalarNode {
		near := DidYouMean(typ.Value, slices.Values(obligations.Types()))
		r.Bad(typ, "obligation_type", fmt.Sprintf("unknown obligation type %q%s", typ.Value, near),
			"use one of "+strings.Join(obligations.Types(), ", "), near.At(typ))
		return d, false
	}
	if redefines && above.Type.Name != d.Type.Name {
		r.Bad(typ, "obligation_type", fmt.Sprintf("%q is built in with the type %s", name.Value, above.Type.Name),
			"keep its type, or use another name")
	}
	if d.On = d.Type.On; on != nil {
		answers := map[string]obligations.On{
			"allow": obligations.OnAllow,
			"deny":  obligations.OnDeny,
			"both":  obligations.OnBoth,
		}
		d.On = answers[r.OneOf(on, "allow", "deny", "both")]
	}
	if properties == nil {
		properties = &yaml.Node{Kind: yaml.MappingNode, Line: value.Line, Column: value.Column}
	}
	d.Properties = r.properties(properties, d.Type)
	return d, len(*r.Problems) == before
}

// properties checks the properties of an obligation against the schema of its type, and checks
// the templates in their strings.
func (r *obligationReader) properties(n *yaml.Node, typ obligations.Type) evaluation.Object {
	if n.Kind != yaml.MappingNode {
		r.Bad(n, "yaml_form", "properties must be a mapping", "write name: value lines")
		return evaluation.Object{}
	}
	text, bad := document.AppendJSON(nil, n)
	if bad != nil {
		r.Bad(bad.At, "yaml_json", bad.What, bad.Try)
		return evaluation.Object{}
	}
	o, err := evaluation.ParseObject(text, evaluation.DefaultLimits())
	if err != nil {
		r.Bad(n, "obligation_properties", "the properties are "+err.Error(),
			"write values that JSON has, and no reserved names")
		return evaluation.Object{}
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = propertySchemas()[typ.Name].Validate(instance)
	}
	if err != nil {
		r.refuseProperties(n, typ, err)
	}
	r.templates(n)
	switch to, _ := o.Get("to"); {
	case typ.Name != "notification" || to.Kind() != evaluation.Array:
	case to.Len() > 1 && !r.october:
		r.Bad(n, "obligation_properties", "a notification of the draft of July goes to one address",
			"write obligations: october in bundle.yaml, or an obligation for each address")
	case to.Len() == 1:
		for _, address := range to.Elements { // July's form of one address
			o = o.With("to", address)
		}
	}
	switch typ.Name {
	case obligations.ApprovalRequired:
		r.terms(n, o, err == nil)
	case obligations.CapabilityTerms:
		if _, ok := obligations.GrantTermsOf(evaluation.Obligation{Type: typ.Name, Properties: o}); err == nil && !ok {
			r.tooLong(n, "max_duration")
		}
	}
	return o
}

// terms checks the rules for an approval that its schema cannot express. What does not fit the schema has no terms.
func (r *obligationReader) terms(n *yaml.Node, properties evaluation.Object, fits bool) {
	material, _ := properties.Get("material")
	for _, name := range material.Elements {
		if !obligations.IsMaterial(name.Text()) {
			r.Bad(n, "obligation_material", fmt.Sprintf("material has %q, which is no part of a request", name.Text()),
				"use subject, action, resource, context, or context.NAME for one member of it")
		}
	}
	if template, ok := properties.Get("template"); !fits || !ok || template.Text() == "" {
		return
	}
	approval := evaluation.Obligation{Type: obligations.ApprovalRequired, Properties: properties}
	if _, ok := obligations.TermsOf(approval); ok {
		return
	}
	for _, name := range []string{"timeout", "valid_for", "rounds_within"} {
		approval.Properties = properties.Without(func(member string) bool { return member != "template" && member != name })
		if _, ok := obligations.TermsOf(approval); !ok {
			r.tooLong(n, name)
		}
	}
}

func (r *obligationReader) tooLong(n *yaml.Node, name string) {
	r.Bad(document.NodeAt(n, "/"+name), "obligation_terms", name+" is longer than it can be", "keep it to 366 days, which are 8784h")
}

// templates checks the templates in every string, each at its place.
func (r *obligationReader) templates(n *yaml.Node) {
	// A value can become a string even if its tag is not that of a string.
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		if _, err := obligations.Variables(n.Value); err != nil {
			r.Bad(n, "obligation_template", err.Error(),
				"use ${principal.id}, ${resource.id}, ${action.name} or ${context.NAME}, and ${context.NAME.NAME} for what is below it")
		}
	}
	for i, child := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			r.templates(child)
		}
	}
}

// propertySchemas compiles the schemas of all types, once.
var propertySchemas = sync.OnceValue(func() map[string]*jsonschema.Schema {
	compiled := map[string]*jsonschema.Schema{}
	for _, name := range obligations.Types() {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Obligation(name)))
		if err != nil {
			panic(err) // the documents are ours, and a test reads them all
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(name, doc); err != nil {
			panic(err)
		}
		compiled[name] = c.MustCompile(name)
	}
	return compiled
})

// refuseProperties says which properties the schema of their type refuses, and why. It does not give their values, which stay
// in their file.
func (r *obligationReader) refuseProperties(n *yaml.Node, typ obligations.Type, err error) {
	invalid, ok := err.(*jsonschema.ValidationError)
	if !ok {
		r.Bad(n, "obligation_properties", "the properties are no JSON", "write values that JSON has")
		return
	}
	if len(invalid.Causes) > 0 {
		for _, cause := range invalid.Causes {
			r.refuseProperties(n, typ, cause)
		}
		return
	}
	at, name := n, strings.Join(invalid.InstanceLocation, ".")
	for _, member := range invalid.InstanceLocation {
		at = document.NodeAt(at, string(jsontext.Pointer("").AppendToken(member)))
	}
	bad := func(what, try string, mend ...document.Mend) { r.Bad(at, "obligation_properties", what, try, mend...) }
	switch why := invalid.ErrorKind.(type) {
	case *kinds.AdditionalProperties:
		known := slices.Sorted(maps.Keys(propertySchemas()[typ.Name].Properties))
		for _, name := range why.Properties {
			at = document.KeyAt(n, name)
			near := DidYouMean(name, slices.Values(known))
			bad(fmt.Sprintf("%s has no property %s%s", typ.Name, Quote(name), near), "use one of "+strings.Join(known, ", "), near.At(at))
		}
	case *kinds.Required:
		for _, name := range why.Missing {
			bad(fmt.Sprintf("the property %s is missing, which %s must have", name, typ.Name), "add "+name+": to properties")
		}
	case *kinds.Pattern: // times alone have one
		bad(name+" is no time of this form", "write a number and s, m or h, such as 90s, 10m or 8h")
	case *kinds.Type:
		bad(name+" must be of the type "+strings.Join(why.Want, " or "), "correct the value")
	case *kinds.Enum:
		bad(fmt.Sprintf("%s must be one of %s", name, strings.Trim(fmt.Sprint(why.Want), "[]")), "correct the value")
	case *kinds.MinLength:
		bad(name+" is empty", "write a text, or leave it out")
	case *kinds.Minimum:
		bad(fmt.Sprintf("%s must be %s at least", name, why.Want.RatString()), "correct the number")
	case *kinds.Maximum:
		bad(fmt.Sprintf("%s may be %s at most", name, why.Want.RatString()), "correct the number")
	default:
		bad(name+" is not what it must be", "correct the value")
	}
}

// resolveObligations finds the obligations that the @obligation of a policy names. Its problems stand where that does in the
// text of the file.
func (p *Policy) resolveObligations(annotation string, text []byte, known map[string]Definition, problems *Problems) {
	place := sync.OnceValues(func() (line, column int) { return p.annotationAt("obligation", text) })
	bad := func(code, message, try string, mend ...document.Mend) {
		line, column := place()
		problems.Add(p.File, line, column, code, message, try, mend...)
	}
	next := 0 // where a name begins in the annotation
	for name := range strings.SplitSeq(annotation, ",") {
		at := next + len(name) - len(strings.TrimLeft(name, " "))
		next += len(name) + 1
		name = strings.TrimSpace(name)
		d, ok := known[name]
		switch {
		case name == "":
			bad("obligation_name",
				"the @obligation of policy "+Quote(p.Id)+" names nothing",
				"name an obligation, or several separated by commas")
		case ok && d.Definition == nil:
			// its definition is refused already
		case !ok:
			if _, unread := known[unreadNames]; unread {
				continue
			}
			hint := document.Near("")
			if len(*problems) < maxSuggestions {
				hint = DidYouMean(name, maps.Keys(known))
			}
			bad("unknown_obligation",
				"unknown obligation "+Quote(name)+hint.String(), "define it in obligations.yaml, or correct its name", hint.In(annotation[:at], name, strings.TrimPrefix(annotation[at:], name)))
		case !d.On.With(!p.Forbids()):
			bad("obligation_never",
				fmt.Sprintf("obligation %q never comes with the answer of a %s", name, p.Effect()),
				"define it with on: both, or name another")
		case slices.Contains(p.Obliges, d.Definition):
			bad("obligation_twice",
				"policy "+Quote(p.Id)+" names the obligation "+Quote(name)+" twice", "name it once")
		default:
			p.Obliges = append(p.Obliges, d.Definition)
		}
	}
}

// annotationAt is where the value of an annotation is written, or where the policy begins if that is not found.
func (p *Policy) annotationAt(name string, text []byte) (line, column int) {
	written := p.In(text)
	tokens := written.Tokens
	for i := range max(0, len(tokens)-3) {
		if tokens[i].Text == "@" && tokens[i+1].Text == name && tokens[i+2].Text == "(" {
			return written.Position(tokens[i+3].From)
		}
	}
	return p.Line, p.Column
}

// maxSuggestions bounds how many names of a file are compared with others. A file may hold tens of thousands of wrong names,
// and people read only some suggestions.
const maxSuggestions = 100

// DidYouMean suggests the candidate nearest to a name, if one is near.
func DidYouMean(name string, candidates iter.Seq[string]) document.Near {
	near, _ := Nearest(name, candidates)
	return document.Near(near)
}

// Nearest is [spelling.Nearest] among candidates.
func Nearest(name string, candidates iter.Seq[string]) (near string, ok bool) {
	return spelling.Nearest(name, slices.Collect(candidates))
}
