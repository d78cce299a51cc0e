package arguments

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"policy-service/pdp/internal/visible"
)

// Problem is one place of arguments that does not fit.
type Problem struct {
	// Pointer is the place, as a JSON Pointer that begins at the arguments. Invisible characters in it are escaped, and a
	// long one is cut.
	Pointer string
	// Detail names the keyword of the schema. It has no value of the arguments.
	Detail string
}

// The limits of the answer to one call.
const (
	mostProblems = 16
	mostSorted   = 1000 // problems of which the first are listed
	mostPointer  = 200
	mostName     = 64
)

func (p Problem) String() string { return cmp.Or(p.Pointer, "the arguments") + ": " + p.Detail }

// Text lists problems for the caller, a line each.
func Text(problems []Problem) string {
	var b strings.Builder
	b.WriteString("The arguments do not fit the inputSchema of the tool.")
	for _, p := range problems {
		b.WriteString("\n" + p.String())
	}
	if len(problems) == mostProblems {
		b.WriteString("\nNo more problems are listed.")
	}
	return b.String()
}

const unlisted = "is not a member that the schema lists"

// problems are the problems in an error of the library, in no order.
type problems struct{ all []Problem }

// problemsOf are the problems in an error of the library, sorted; none if it is nil.
func problemsOf(err error) []Problem {
	if err == nil {
		return nil
	}
	var p problems
	if e := (*jsonschema.ValidationError)(nil); errors.As(err, &e) {
		p.collect(e)
	}
	if len(p.all) == 0 { // whatever the library means, it is no fit
		p.all = []Problem{{"", "does not fit"}}
	}
	slices.SortFunc(p.all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Detail, b.Detail))
	})
	p.all = slices.Compact(p.all)
	return p.all[:min(len(p.all), mostProblems)]
}

func (p *problems) collect(e *jsonschema.ValidationError) {
	if len(p.all) >= mostSorted {
		return
	}
	at := func(detail string, members ...string) {
		p.all = append(p.all, Problem{pointer(e.InstanceLocation, members...), detail})
	}
	each := func(detail string, names []string) {
		slices.Sort(names)
		for _, name := range names[:min(len(names), mostSorted-len(p.all))] {
			at(detail, name)
		}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		at(wrongType(k.Got, k.Want))
	case *kind.Required:
		each("is missing", k.Missing)
	case *kind.DependentRequired:
		each("is missing", k.Missing)
	case *kind.Dependency:
		each("is missing", k.Missing)
	case *kind.AdditionalProperties:
		each(unlisted, k.Properties)
	case *kind.PropertyNames:
		at("has a name that does not fit the schema's propertyNames", k.Property)
	case *kind.FalseSchema:
		if isUnlisted(e) {
			at(unlisted)
		} else {
			at("is not allowed")
		}
	case *kind.AnyOf:
		p.choice(e, "anyOf")
	case *kind.OneOf:
		p.choice(e, "oneOf")
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		p.collectAll(e.Causes)
	case *kind.Not, nil:
		at("does not fit the schema's not")
	default:
		at("does not fit the schema's " + strings.Join(k.KeywordPath(), "/"))
	}
}

// collectAll collects the problems of one value. The library takes all members of a value that does not fit for unlisted:
// then unlisted members say nothing.
func (p *problems) collectAll(causes []*jsonschema.ValidationError) {
	others := slices.DeleteFunc(slices.Clone(causes), isUnlisted)
	if len(others) == 0 {
		others = causes
	}
	for _, cause := range others {
		p.collect(cause)
	}
}

func isUnlisted(e *jsonschema.ValidationError) bool {
	_, never := e.ErrorKind.(*kind.FalseSchema)
	return never && strings.HasSuffix(e.SchemaURL, unevaluated)
}

// choice explains why a value fits none of several schemas: if one alone is for its type, by the problems with that
// one; if none is, by the types; else by the keyword.
func (p *problems) choice(e *jsonschema.ValidationError, keyword string) {
	var got string
	var want []string
	var others []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		leaf := cause
		for _, is := leaf.ErrorKind.(*kind.Reference); is && len(leaf.Causes) == 1; _, is = leaf.ErrorKind.(*kind.Reference) {
			leaf = leaf.Causes[0]
		}
		if t, is := leaf.ErrorKind.(*kind.Type); is && len(leaf.InstanceLocation) == len(e.InstanceLocation) {
			got, want = t.Got, append(want, t.Want...)
		} else {
			others = append(others, cause)
		}
	}
	switch {
	case len(others) == 1:
		p.collect(others[0])
	case len(others) == 0 && len(want) > 0:
		p.all = append(p.all, Problem{pointer(e.InstanceLocation), wrongType(got, want)})
	default:
		p.all = append(p.all, Problem{pointer(e.InstanceLocation), "does not fit the schema's " + keyword})
	}
}

func wrongType(got string, want []string) string {
	slices.Sort(want)
	return fmt.Sprintf("is of type %s, and must be of type %s", got, strings.Join(slices.Compact(want), " or "))
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is a JSON Pointer that people can read.
func pointer(tokens []string, more ...string) string {
	var b strings.Builder
	for _, t := range slices.Concat(tokens, more) {
		b.WriteString("/" + visible.Text(escaper.Replace(cut(t, mostName))))
	}
	return cut(b.String(), mostPointer)
}

// cut is a text of no more bytes than that and a sign that it goes on.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
