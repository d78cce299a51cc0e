package arguments

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"policy-service/evaluation"
	"policy-service/pdp/visible"
)

// What a schema may be. The library's time grows with the square of the subschemas, and its memory with their places.
var schemaLimits = evaluation.Limits{Body: 256 << 10, Depth: 64, Elements: 1 << 14, NestedElements: 1 << 14, ArrayDepth: 64, Values: 10_000}

const (
	mostPlaces   = 8 << 20 // bytes of the pointers to all values
	mostNumber   = 400     // bytes of a number, and the power of ten that it is below
	mostWords    = 300     // of the library's, in an error
	documentName = "tool:///inputSchema"
)

// Compile reads an inputSchema. The error says what is wrong with it, to who may see the tool's definition.
func Compile(inputSchema []byte, m Members) (*Schema, error) {
	if inputSchema == nil {
		inputSchema = []byte("{}")
	}
	o, err := evaluation.ParseWithNulls(inputSchema, schemaLimits)
	if err != nil {
		return nil, fmt.Errorf("inputSchema: %w", err)
	}
	d := document{text: o.Value()}
	plain, err := d.plain(d.text, "", "")
	if err != nil {
		return nil, err
	}
	compiled, err := compileLibrary(plain)
	if err != nil {
		return nil, err
	}
	b := builder{document: d, nodes: map[*jsonschema.Schema]*node{}}
	root, err := b.build(compiled)
	switch {
	case err != nil:
		return nil, err
	case b.dynamic && b.resources:
		return nil, errors.New("inputSchema has $dynamicRef or $recursiveRef beside an $id within it, which is not supported; refer by $ref")
	}
	if err := (&visits{of: map[*node]int{}}).bound(root); err != nil {
		return nil, err
	}
	return &Schema{root: root, closed: m == Closed}, nil
}

// compileLibrary has the library read a schema. There is no loader: what is not in the document is not there.
func compileLibrary(plain any) (s *jsonschema.Schema, err error) {
	defer func() { // what somebody else wrote may find a mistake of the library's
		if why := recover(); why != nil {
			s, err = nil, errors.New("inputSchema cannot be read")
		}
	}()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nil)
	c.UseRegexpEngine(compilePattern)
	if err := c.AddResource(documentName, plain); err != nil {
		return nil, words(err)
	}
	if s, err = c.Compile(documentName); err != nil {
		return nil, words(err)
	}
	return s, nil
}

// words are the library's error without what a schema's author could do with a log.
func words(err error) error {
	away, wrong := (*jsonschema.LoadURLError)(nil), (*jsonschema.SchemaValidationError)(nil)
	switch {
	case errors.As(err, &away):
		return outside(away.URL)
	case errors.As(err, &wrong):
		if e := (*jsonschema.ValidationError)(nil); errors.As(wrong.Err, &e) {
			return misshapen(e)
		}
	}
	return errors.New("inputSchema: " + cut(visible.Quoted(err.Error()), mostWords))
}

func outside(place string) error {
	return fmt.Errorf("inputSchema refers to %s; nothing outside of the definition is read", cut(visible.Text(place), mostPointer))
}

// misshapen says where a schema is no schema, by the first place that is wrong.
func misshapen(e *jsonschema.ValidationError) error {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	where := "inputSchema"
	for _, t := range e.InstanceLocation {
		where += "/" + shown(t)
	}
	if f, ok := e.ErrorKind.(*kind.Format); ok && f.Want == "regex" {
		return fmt.Errorf("%s: the pattern is too large, or has what RE2 does not, such as looking ahead", cut(where, mostPointer))
	}
	return fmt.Errorf("%s: this is not JSON Schema", cut(where, mostPointer))
}

// document is an inputSchema as it was written.
type document struct {
	text   evaluation.Value
	places int
}

// counts are the keywords that the library reads as an int, and wraps around.
var counts = []string{
	"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
}

// plain is a value of the document as the library takes it. Numbers that it would stumble over are an error.
func (d *document) plain(v evaluation.Value, name, at string) (any, error) {
	if d.places += len(at); d.places > mostPlaces {
		return nil, errors.New("inputSchema has names that are too long for how deep it nests")
	}
	switch v.Kind() {
	case evaluation.Null:
		return nil, nil
	case evaluation.Bool:
		return v.True(), nil
	case evaluation.String:
		return v.Text(), nil
	case evaluation.Number:
		n, ok := readNumber(v.Text())
		_, fits := v.Scaled(0)
		if !ok || len(v.Text()) > mostNumber || n.exponent > mostNumber || n.exponent < -mostNumber || slices.Contains(counts, name) && !fits {
			return nil, fmt.Errorf("inputSchema%s: a number that is too large, or too fine", cut(visible.Text(at), mostPointer))
		}
		return json.Number(v.Text()), nil
	case evaluation.Array:
		all := make([]any, 0, v.Len())
		for i, e := range v.Elements {
			p, err := d.plain(e, "", fmt.Sprintf("%s/%d", at, i))
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
		return all, nil
	}
	all := make(map[string]any, v.Len())
	for name, m := range v.Object().All {
		p, err := d.plain(m, name, at+"/"+escaper.Replace(name))
		if err != nil {
			return nil, err
		}
		all[name] = p
	}
	return all, nil
}

// at is the value at a place that the library names.
func (d *document) at(location string) (v evaluation.Value, err error) {
	name, fragment, _ := strings.Cut(location, "#")
	if name != documentName {
		return v, outside(name)
	}
	tokens, err := tokensOf(fragment)
	if err != nil {
		return v, err
	}
	v = d.text
	for _, t := range tokens {
		next, ok := member(v, t)
		if !ok {
			return v, fmt.Errorf("inputSchema has nothing at %s", cut(visible.Text(fragment), mostPointer))
		}
		v = next
	}
	return v, nil
}
