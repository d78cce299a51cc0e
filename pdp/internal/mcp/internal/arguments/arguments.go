// Package arguments checks the arguments of a call against the inputSchema of its tool.
//
// Begin with [Compile], once for each definition; [Schema.Check] lists the problems of the arguments of one call.
//
// A library reads schemas and applies them. It cannot be stopped, it quotes values, and it fetches references, and schemas
// come from strangers. So nothing outside of a schema is read, the steps of a check are counted before the check is made
// (see meter), and problems name places and keywords, never values. No format is asserted.
package arguments

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"policy-service/evaluation"
	"policy-service/pdp/internal/visible"
)

// Members says which members objects may have besides those that a schema lists.
type Members string

const (
	// Open allows them unless the schema says otherwise, as JSON Schema does.
	Open Members = "open"
	// Closed refuses them at the top, and in each object of which the schema lists properties, unless the schema says
	// what they are: by additionalProperties, unevaluatedProperties, or patternProperties that they match.
	Closed Members = "closed"
)

// Schema is a compiled inputSchema. It is immutable, and safe for concurrent use.
type Schema struct {
	root *jsonschema.Schema
	// looksBack says that a keyword applies to members or elements that no other keyword applies to.
	looksBack bool
}

// The limits of arguments. Those of a question to the PDP are narrower.
var limits = evaluation.Limits{Body: 4 << 20, Depth: 64, Values: 100_000}

// ErrCostly says that a check of the arguments would take too long. Such arguments do not fit: a caller must not be able to
// avoid the check by adding to them.
var ErrCostly = errors.New("to hold the arguments against the tool's inputSchema takes too long")

// Check lists the problems of arguments as they came; none if they fit. No arguments are an empty object. With an error
// they do not fit either.
func (s *Schema) Check(arguments []byte) ([]Problem, error) {
	if arguments == nil {
		arguments = []byte("{}")
	}
	o, err := evaluation.ParseWithNulls(arguments, limits)
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	return s.check(o.Value())
}

func (s *Schema) check(v evaluation.Value) (problems []Problem, err error) {
	defer recovered(&err, "the arguments cannot be held against the tool's inputSchema")
	arguments, err := (&document{what: "the arguments"}).plain(v, "")
	if err != nil {
		return nil, err
	}
	m := meter{left: mostSteps, looksBack: s.looksBack}
	if m.visit(s.root, arguments, 0); m.left < 0 {
		return nil, ErrCostly
	}
	return problemsOf(s.root.Validate(arguments)), nil
}

// The limits of a schema. The library's time grows with the square of the places where schemas can stand.
var schemaLimits = evaluation.Limits{Body: 64 << 10, Depth: 64, Values: 10_000}

const (
	mostSchemas  = 500     // objects and booleans
	mostPointers = 1 << 20 // bytes of the pointers to all values
	mostNumber   = 100     // bytes of a number, and the power of ten that it is below
	mostWords    = 300     // bytes of an error of the library
	documentName = "tool:///inputSchema"
)

// Compile reads an inputSchema. The error says to people who may see the definition why it cannot be used.
func Compile(inputSchema []byte, m Members) (*Schema, error) {
	if inputSchema == nil {
		inputSchema = []byte("{}")
	}
	o, err := evaluation.ParseWithNulls(inputSchema, schemaLimits)
	if err != nil {
		return nil, fmt.Errorf("inputSchema: %w", err)
	}
	d := document{what: "inputSchema", schema: true}
	plain, err := d.plain(o.Value(), "")
	if err != nil {
		return nil, err
	}
	if d.schemas > mostSchemas {
		return nil, fmt.Errorf("inputSchema has more than %d objects and booleans", mostSchemas)
	}
	open, err := newGraph(plain)
	if err != nil {
		return nil, err
	}
	if m != Closed {
		return &Schema{open.root, open.looksBack}, nil
	}
	closed, err := newGraph(plain)
	if err != nil {
		return nil, err
	}
	return &Schema{closed.close(open), true}, nil
}

// readByLibrary has the library compile a schema. It has no loader: references lead nowhere outside of the document.
func readByLibrary(plain any) (s *jsonschema.Schema, err error) {
	defer recovered(&err, "inputSchema cannot be read")
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

// recovered makes an error of a panic: a stranger's schema may find a mistake in the library.
func recovered(err *error, says string) {
	if why := recover(); why != nil {
		*err = errors.New(says)
	}
}

// words are the library's error without text that could deceive readers of a log.
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

// misshapen names the first place of a schema that is not JSON Schema.
func misshapen(e *jsonschema.ValidationError) error {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	where := "inputSchema" + pointer(e.InstanceLocation)
	if f, ok := e.ErrorKind.(*kind.Format); ok && f.Want == "regex" {
		return fmt.Errorf("%s: the pattern is too large, or has what RE2 does not, such as looking ahead", where)
	}
	return fmt.Errorf("%s: this is not JSON Schema", where)
}

// document turns JSON into the library's values, within the limits that the library needs.
type document struct {
	what              string
	schema            bool // it is a schema, and not arguments
	pointers, schemas int
	at                []string // the place of the value that is turned
	length            int      // bytes of the pointer to it
}

// counts are the keywords that the library reads as an int, and wraps around.
var counts = []string{
	"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
}

// references are the keywords that lead to a place, by its text: the library compiles a place once for each text of it.
var references = []string{"$ref", "$dynamicRef", "$recursiveRef"}

// aliases reports whether a reference writes a number as the library reads it, and would not write it itself.
func aliases(reference string) bool {
	_, fragment, _ := strings.Cut(reference, "#")
	fragment, _ = url.PathUnescape(fragment) // what cannot be unescaped is an error of the library
	return slices.ContainsFunc(strings.Split(fragment, "/"), func(token string) bool {
		n, err := strconv.Atoi(token)
		return err == nil && strconv.Itoa(n) != token
	})
}

// below turns a member or an element of the value that is turned.
func (d *document) below(token string, v evaluation.Value, name string) (any, error) {
	size := len("/") + len(escaper.Replace(token))
	d.at, d.length = append(d.at, token), d.length+size
	p, err := d.plain(v, name)
	d.at, d.length = d.at[:len(d.at)-1], d.length-size
	return p, err
}

func (d *document) plain(v evaluation.Value, name string) (any, error) {
	if d.pointers += d.length; d.schema && d.pointers > mostPointers {
		return nil, errors.New("inputSchema has names that are too long for how deep it nests")
	}
	switch v.Kind() {
	case evaluation.Null:
		return nil, nil
	case evaluation.Bool:
		d.schemas++
		return v.True(), nil
	case evaluation.String:
		if d.schema && slices.Contains(references, name) && aliases(v.Text()) {
			return nil, fmt.Errorf("inputSchema%s: a reference whose number of an element has a sign or leading zeros", pointer(d.at))
		}
		return v.Text(), nil
	case evaluation.Number:
		if _, fits := v.Scaled(0); !measurable(v.Text()) || d.schema && slices.Contains(counts, name) && !fits {
			return nil, fmt.Errorf("%s%s: a number that is too large, or too fine, to be compared", d.what, pointer(d.at))
		}
		return json.Number(v.Text()), nil
	case evaluation.Array:
		all := make([]any, 0, v.Len())
		for i, e := range v.Elements {
			p, err := d.below(strconv.Itoa(i), e, "")
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
		return all, nil
	}
	d.schemas++
	all := make(map[string]any, v.Len())
	for name, m := range v.Object().All {
		p, err := d.below(name, m, name)
		if err != nil {
			return nil, err
		}
		all[name] = p
	}
	return all, nil
}

// measurable reports whether the library can write out the digits of a number.
func measurable(number string) bool {
	_, exponent, has := strings.Cut(strings.ToLower(number), "e")
	power, err := strconv.Atoi(exponent)
	return len(number) <= mostNumber && (!has || err == nil && max(power, -power) <= mostNumber)
}
