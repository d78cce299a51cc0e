package coaz

import (
	"fmt"
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Binding reads mappings by the rules of one deployment. It is immutable, and safe for concurrent use.
type Binding struct {
	resource string
	claim    evaluation.ClaimPath
	override Override
	limits   Limits
	inputs   []string

	declared *language // of mappings that servers declare, and of the defaults
	operator *language // of mappings that operators write
	// by method
	defaults, forgotten map[string]*Mapping
}

// New makes a Binding, and compiles the default mappings.
func New(o Options) (*Binding, error) { return newBinding(o, DefaultLimits()) }

func newBinding(o Options, limits Limits) (*Binding, error) {
	claim, err := claimOf(o.SubjectClaim)
	if err != nil {
		return nil, err
	}
	if o.Override > WarnOverride {
		return nil, fmt.Errorf("coaz: there is no Override %d", o.Override)
	}
	b := &Binding{resource: o.Resource, claim: claim, override: o.Override, limits: limits, inputs: slices.Clone(o.Inputs)}
	if b.declared, err = newLanguage(b.limits, nil); err != nil {
		return nil, err
	}
	b.operator = b.declared
	if len(o.Inputs) > 0 {
		if err := checkInputs(o.Inputs); err != nil {
			return nil, err
		}
		if b.operator, err = newLanguage(b.limits, o.Inputs); err != nil {
			return nil, err
		}
	}
	return b, b.compileDefaults()
}

// checkInputs refuses names that no expression could use, or that mean something else in one.
func checkInputs(names []string) error {
	for n, name := range names {
		switch {
		case name == "params" || name == "token" || slices.Contains(names[:n], name):
			return fmt.Errorf("coaz: the input %q is there already", name)
		case !isIdentifier(name):
			return fmt.Errorf("coaz: %q cannot be the name of an input; take a lower-case letter, then lower-case letters, digits and underscores, and no word of CEL", name)
		}
	}
	return nil
}

func isIdentifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		if ('a' > c || c > 'z') && (i == 0 || c != '_' && ('0' > c || c > '9')) {
			return false
		}
	}
	return name != "" && !slices.Contains(wordsOfCEL, name)
}

// wordsOfCEL mean something else in an expression, or are reserved.
var wordsOfCEL = strings.Fields("true false null in as break const continue else for function if import let loop package namespace return var void while " +
	"bool bytes double duration dyn int list map string timestamp type uint optional google has all exists exists_one filter size matches")

// Default returns the default mapping of a method, if there is one; see [Verdict].
func (b *Binding) Default(method string) (*Mapping, Verdict) {
	if m, ok := b.defaults[method]; ok {
		return m, Mapped
	}
	if method == "ping" || strings.HasPrefix(method, "notifications/") {
		return nil, PassThrough
	}
	return nil, Unknown
}

// Forgotten returns our mapping for a method for which the binding has no mapping, but without which a client cannot connect or
// list templates, or nil. By the letter of the binding, a PEP denies such a method.
func (b *Binding) Forgotten(method string) *Mapping { return b.forgotten[method] }

// Compile compiles a mapping that an operator wrote. In the dialect [AuthZEN] it is an object with an envelope, in
// [SEP] one with resource, subject and context. Nothing is added to it, and its subject may be whoever it names. Every
// error is an [*Error].
func (b *Binding) Compile(mapping evaluation.Object, d Dialect) (*Mapping, error) {
	c := compiler{binding: b, author: operator, dialect: d, language: b.operator, limits: b.limits}
	return c.compile(mapping)
}

// Members of a tool's definition, and of its inputSchema, that have to do with a mapping.
const (
	schemaMember  = "inputSchema"
	authzenMember = "x-authzen-mapping"
	sepMember     = "x-coaz-mapping"
	markMember    = "coaz"
)

// Parse compiles the mapping that a tool's definition declares: an x-authzen-mapping in its inputSchema, or, if coaz is
// true, an x-coaz-mapping there. It is nil if the tool declares none: then the default of tools/call applies. If the
// tool declares both, the questions of both are asked. Every error is an [*Error], with a pointer into the mapping: as
// long as the definition is as it is, no call of the tool may go on.
func (b *Binding) Parse(tool evaluation.Object) (*Mapping, error) {
	schema, _ := tool.Get(schemaMember)
	authzen, hasAuthZEN := schema.Object().Lookup(authzenMember)
	sep, hasSEP := schema.Object().Lookup(sepMember)
	mark, _ := tool.Get(markMember)
	if mark.True() && !hasSEP {
		return nil, &Error{Dialect: SEP, Detail: "the tool says coaz: true, and its inputSchema has no " + sepMember}
	}
	var m *Mapping
	if hasAuthZEN {
		c := compiler{binding: b, author: declared, dialect: AuthZEN, language: b.declared, limits: b.limits}
		var err error
		if m, err = c.declaration(authzen); err != nil {
			return nil, err
		}
	}
	if !mark.True() {
		return m, nil
	}
	name, _ := tool.Get("name")
	c := compiler{binding: b, author: declared, dialect: SEP, language: b.declared, limits: b.limits, tool: name.Text()}
	older, err := c.declaration(sep)
	if err != nil {
		return nil, err
	}
	return m.and(older), nil
}

func (c *compiler) declaration(v evaluation.Value) (*Mapping, error) {
	if v.Kind() != evaluation.Map {
		return nil, c.fail("", "the mapping is not an object")
	}
	return c.compile(v.Object())
}
