package arguments

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"policy-service/evaluation"
)

// builder makes nodes of what the library has compiled. Numbers and values are those of the document, exactly.
type builder struct {
	document
	nodes map[*jsonschema.Schema]*node
	// dynamic says that references depend on the way to them, resources that there are several documents in this one.
	dynamic, resources bool
}

// build is the node of a schema, nil of none.
func (b *builder) build(s *jsonschema.Schema) (*node, error) {
	if s == nil {
		return nil, nil
	}
	if n := b.nodes[s]; n != nil {
		return n, nil
	}
	v, err := b.at(s.Location)
	if err != nil {
		return nil, err
	}
	n := &node{}
	b.nodes[s] = n
	if s.Bool != nil {
		n.never = !*s.Bool
		return n, nil
	}
	f := filler{builder: b, n: n, s: s, o: v.Object()}
	f.fill()
	return n, f.err
}

// filler fills one node. After an error it does nothing of use.
type filler struct {
	*builder
	n   *node
	s   *jsonschema.Schema
	o   evaluation.Object // the schema as it was written
	err error
}

func (f *filler) fill() {
	s, n := f.s, f.n
	f.resources = f.resources || s.ID != "" && s.Location != documentName+"#"
	refs := []*jsonschema.Schema{s.Ref, s.RecursiveRef}
	if s.DynamicRef != nil {
		refs = append(refs, s.DynamicRef.Ref)
	}
	f.dynamic = f.dynamic || s.RecursiveRef != nil || s.DynamicRef != nil
	n.all = f.nodesOf(append(refs, s.AllOf...))
	if s.Ref != nil && s.DraftVersion < 2019 {
		return // in these drafts what stands beside a reference counts for nothing
	}
	f.values()
	n.any, n.one, n.not = f.nodesOf(s.AnyOf), f.nodesOf(s.OneOf), f.node(s.Not)
	if s.If != nil {
		n.when = &when{f.node(s.If), f.node(s.Then), f.node(s.Else)}
	}
	f.texts()
	f.numbers()
	f.items()
	f.members()
}

func (f *filler) node(s *jsonschema.Schema) *node {
	n, err := f.build(s)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n
}

// nodesOf are the nodes of schemas, of which those that are nil are none.
func (f *filler) nodesOf(list []*jsonschema.Schema) (all []*node) {
	for _, s := range list {
		if n := f.node(s); n != nil {
			all = append(all, n)
		}
	}
	return all
}

// either is the node of what is a bool, or a schema, or nothing.
func (f *filler) either(v any) *node {
	switch v := v.(type) {
	case bool:
		return &node{never: !v}
	case *jsonschema.Schema:
		return f.node(v)
	}
	return nil
}

// values are type, const and enum.
func (f *filler) values() {
	if f.s.Types != nil {
		for _, name := range f.s.Types.ToStrings() {
			i := slices.IndexFunc(kindNames, func(k struct {
				kind kinds
				name string
			}) bool {
				return k.name == name
			})
			f.n.kinds |= kindNames[i].kind
		}
	}
	if v, ok := f.o.Lookup("const"); ok && f.s.Const != nil {
		key := keyOf(v)
		f.n.exact = &key
	}
	if v, ok := f.o.Lookup("enum"); ok && f.s.Enum != nil {
		f.n.only = keys{}
		for _, e := range v.Elements {
			f.n.only[keyOf(e)] = true
		}
	}
}

func spanOf(least, most *int) span {
	s := span{-1, -1}
	if least != nil {
		s.least = *least
	}
	if most != nil {
		s.most = *most
	}
	return s
}

func (f *filler) texts() {
	t := texts{length: spanOf(f.s.MinLength, f.s.MaxLength)}
	if f.s.Pattern != nil {
		t.pattern = f.s.Pattern.(*pattern)
	}
	if t != (texts{length: span{-1, -1}}) {
		f.n.texts = &t
	}
}

func (f *filler) numbers() {
	s := f.s
	n := numbers{}
	for _, b := range []struct {
		is      bool
		keyword string
		flagged string // where draft 4 has the number, if keyword is a flag
		to      **bound
	}{
		{s.Minimum != nil, "minimum", "", &n.least}, {s.Maximum != nil, "maximum", "", &n.most},
		{s.ExclusiveMinimum != nil, "exclusiveMinimum", "minimum", &n.above}, {s.ExclusiveMaximum != nil, "exclusiveMaximum", "maximum", &n.below},
		{s.MultipleOf != nil, "multipleOf", "", &n.multiple},
	} {
		if !b.is {
			continue
		}
		v, _ := f.o.Lookup(b.keyword)
		if v.Kind() == evaluation.Bool {
			v, _ = f.o.Lookup(b.flagged)
		}
		number, ok := readNumber(v.Text())
		if !ok || v.Kind() != evaluation.Number {
			f.err = errors.New("inputSchema: " + b.keyword + " is no number")
		}
		*b.to = &bound{number, v.Text()}
	}
	if n != (numbers{}) {
		f.n.size = &n
	}
}

func (f *filler) items() {
	s := f.s
	t := items{
		count: spanOf(s.MinItems, s.MaxItems), unique: s.UniqueItems, contains: f.node(s.Contains), matches: spanOf(s.MinContains, s.MaxContains),
		marks: s.DraftVersion >= 2020, unevaluated: f.node(s.UnevaluatedItems), prefix: f.nodesOf(s.PrefixItems), rest: f.node(s.Items2020),
	}
	if t.matches.least < 0 {
		t.matches.least = 1
	}
	switch before := s.Items.(type) { // as it was before 2020-12
	case *jsonschema.Schema:
		t.rest = f.node(before)
	case []*jsonschema.Schema:
		t.prefix, t.rest = f.nodesOf(before), f.either(s.AdditionalItems)
	}
	if t.count != (span{-1, -1}) || t.unique || t.contains != nil || t.unevaluated != nil || t.prefix != nil || t.rest != nil {
		f.n.items = &t
	}
}

func (f *filler) members() {
	s := f.s
	m := members{
		count: spanOf(s.MinProperties, s.MaxProperties), required: s.Required, additional: f.either(s.AdditionalProperties),
		names: f.node(s.PropertyNames), unevaluated: f.node(s.UnevaluatedProperties),
	}
	if s.Properties != nil {
		m.properties = map[string]*node{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			m.properties[name] = f.node(s.Properties[name])
		}
	}
	for p, schema := range s.PatternProperties {
		m.patterns = append(m.patterns, patterned{p.(*pattern), f.node(schema)})
	}
	slices.SortFunc(m.patterns, func(a, b patterned) int { return strings.Compare(a.pattern.String(), b.pattern.String()) })
	for _, name := range slices.Sorted(maps.Keys(s.DependentRequired)) {
		m.needs = append(m.needs, needs{name, s.DependentRequired[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentSchemas)) {
		m.dependent = append(m.dependent, dependent{name, f.node(s.DependentSchemas[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) { // as it was before 2019-09
		switch d := s.Dependencies[name].(type) {
		case []string:
			m.needs = append(m.needs, needs{name, d})
		case *jsonschema.Schema:
			m.dependent = append(m.dependent, dependent{name, f.node(d)})
		}
	}
	if m.count != (span{-1, -1}) || m.required != nil || m.additional != nil || m.names != nil || m.unevaluated != nil || m.properties != nil || m.patterns != nil || m.needs != nil || m.dependent != nil {
		f.n.of = &m
	}
}

// tokensOf are the tokens of a JSON Pointer in a fragment.
func tokensOf(fragment string) (tokens []string, err error) {
	for i, t := range strings.Split(fragment, "/") {
		if i == 0 {
			continue
		}
		if t, err = url.PathUnescape(t); err != nil {
			return nil, err
		}
		tokens = append(tokens, strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~"))
	}
	return tokens, nil
}

// member is a member of an object, or an element of an array.
func member(v evaluation.Value, token string) (evaluation.Value, bool) {
	if v.Kind() == evaluation.Map {
		return v.Object().Lookup(token)
	}
	if n, err := strconv.Atoi(token); err == nil {
		for i, e := range v.Elements {
			if i == n {
				return e, true
			}
		}
	}
	return evaluation.Value{}, false
}
