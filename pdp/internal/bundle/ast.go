package bundle

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	publicast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
	"github.com/go-json-experiment/json"
)

// This file is the only one that looks inside a policy. It puts what it finds into plain
// values of ours, so that a change of cedar-go's AST ends here.

// Variable is one of the three variables of a policy that hold an entity.
type Variable uint8

// The variables, and their number.
const (
	PrincipalVar Variable = iota
	ActionVar
	ResourceVar
	Variables = iota
)

// VariableNames are the names of the variables, as policies write them.
var VariableNames = [Variables]string{
	PrincipalVar: "principal",
	ActionVar:    "action",
	ResourceVar:  "resource",
}

// ScopeTest is a test of one variable that needs only the uid, the type and the ancestors of
// the variable. So the test can neither err nor depend on a value.
type ScopeTest struct {
	Of   Variable
	Is   types.EntityType  // "" is any type
	Uids []types.EntityUID // nil: no place is tested
	Eq   bool              // the uid itself must be Uids[0]; otherwise it or an ancestor must be in Uids
	// Prefix is what the id must begin with: context.pdp.resource.id like "TEXT*". "" is any id. A test with a
	// prefix tests nothing else.
	Prefix string
}

// Facts are what the decision path needs to know of the text of a policy.
type Facts struct {
	// Scope holds the tests of the policy's head. Leading holds the tests that the first when
	// clauses begin with. If a test of either does not hold, the policy is false without an
	// error, whatever else stands in it.
	Scope, Leading []ScopeTest
	// Whole is set if the policy uses context as a value, not only through its members.
	Whole bool
	// HasNames are the names that the policy tests with has, ReadNames the names that it
	// reads.
	HasNames, ReadNames map[string]struct{}
	// Reads are the attribute paths that the policy reads, in the order of their texts. The
	// map known holds these texts while the paths are gathered.
	Reads []AttributePath
	// Unrooted are the paths without a root that the policy reads from anything but a variable: from an entity that it
	// names, a tag, a record that it writes, or what an if decides.
	Unrooted []AttributePath
	known    map[string]struct{}
	// Conjuncts are the clauses of the policy, in order. All of them must hold.
	Conjuncts []Conjunct
	// Uids are the entities the policy names.
	Uids []types.EntityUID
	// conditions is the number of when and unless clauses.
	conditions int
	// miscalled are the calls with another number of arguments than callForms has, the first of each name.
	miscalled []ast.NodeTypeExtensionCall
}

// callForms are the functions and methods of Cedar's extensions, with a … for each argument.
var callForms = map[types.Path]string{
	"ip": "ip(…)", "decimal": "decimal(…)", "datetime": "datetime(…)", "duration": "duration(…)",
	"lessThan": ".lessThan(…)", "lessThanOrEqual": ".lessThanOrEqual(…)",
	"greaterThan": ".greaterThan(…)", "greaterThanOrEqual": ".greaterThanOrEqual(…)",
	"isIpv4": ".isIpv4()", "isIpv6": ".isIpv6()", "isLoopback": ".isLoopback()", "isMulticast": ".isMulticast()", "isInRange": ".isInRange(…)",
	"toDate": ".toDate()", "toTime": ".toTime()", "offset": ".offset(…)", "durationSince": ".durationSince(…)",
	"toDays": ".toDays()", "toHours": ".toHours()", "toMinutes": ".toMinutes()", "toSeconds": ".toSeconds()", "toMilliseconds": ".toMilliseconds()",
}

// argumentsOf returns how many arguments a call has in the policy's text, and how many it must have.
func argumentsOf(n ast.NodeTypeExtensionCall) (has, takes int) {
	form := callForms[n.Name]
	return len(n.Args) - strings.Count(form[:min(1, len(form))], "."), strings.Count(form, "…") // a method is called on the first
}

// AttributePath is a chain of attributes from a variable.
type AttributePath struct {
	Root  string // principal, action, resource or context
	Names []string
	Has   bool // tested for presence rather than read
}

// String is the path as policies write it.
func (p AttributePath) String() string {
	var b strings.Builder
	b.WriteString(p.Root)
	for _, name := range p.Names {
		b.WriteString(memberOf(name))
	}
	return b.String()
}

var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// Conjunct is one clause of a policy, as a node of its AST.
type Conjunct struct {
	Unless bool
	Body   ast.IsNode
}

// Policy compiles the conjunct as a permit with this one condition. So cedar-go alone decides
// if the condition holds.
func (c Conjunct) Policy() *cedar.Policy {
	p := ast.Permit()
	if c.Unless {
		p.Unless(ast.NewNode(c.Body))
	} else {
		p.When(ast.NewNode(c.Body))
	}
	return cedar.NewPolicyFromAST((*publicast.Policy)(p))
}

// Text is the conjunct in Cedar's syntax: when { … } or unless { … }.
func (c Conjunct) Text() string {
	text := c.Policy().MarshalCedar()
	i := max(bytes.Index(text, []byte("\nwhen ")), bytes.Index(text, []byte("\nunless ")))
	return strings.Join(strings.Fields(string(bytes.TrimSuffix(text[i+1:], []byte(";")))), " ")
}

// factsOf gathers the facts of one policy.
func factsOf(p *cedar.Policy) Facts {
	tree := (*ast.Policy)(p.AST())
	f := Facts{
		HasNames:   map[string]struct{}{},
		ReadNames:  map[string]struct{}{},
		known:      map[string]struct{}{},
		conditions: len(tree.Conditions),
	}
	heads := [Variables]ast.IsScopeNode{
		PrincipalVar: tree.Principal,
		ActionVar:    tree.Action,
		ResourceVar:  tree.Resource,
	}
	for v, node := range heads {
		if t, ok := testOfScope(Variable(v), node); ok {
			f.Scope = append(f.Scope, t)
		}
	}
	leads := true
	for _, c := range tree.Conditions {
		if !c.Condition {
			f.Conjuncts = append(f.Conjuncts, Conjunct{Unless: true, Body: c.Body})
			leads = false
			continue
		}
		for _, node := range Flatten(c.Body, nil) {
			f.Conjuncts = append(f.Conjuncts, Conjunct{Body: node})
			t, ok := TestOfNode(node)
			if leads = leads && ok; leads {
				f.Leading = append(f.Leading, t)
			}
		}
	}

	for _, t := range f.Scope {
		f.Uids = append(f.Uids, t.Uids...)
	}
	for _, c := range tree.Conditions {
		ast.Inspect(ast.NewNode(c.Body), f.visit)
	}
	slices.SortFunc(f.Reads, func(a, b AttributePath) int { return strings.Compare(a.String(), b.String()) })
	f.known = nil
	return f
}

// Flatten lists the operands of a chain of && in order of evaluation.
func Flatten(n ast.IsNode, to []ast.IsNode) []ast.IsNode {
	if and, ok := n.(ast.NodeTypeAnd); ok {
		return Flatten(and.Right, Flatten(and.Left, to))
	}
	return append(to, n)
}

// testOfScope turns the constraint of a scope into a test, if there is a constraint.
func testOfScope(of Variable, node ast.IsScopeNode) (ScopeTest, bool) {
	switch s := node.(type) {
	case ast.ScopeTypeEq:
		return ScopeTest{Of: of, Uids: []types.EntityUID{s.Entity}, Eq: true}, true
	case ast.ScopeTypeIn:
		return ScopeTest{Of: of, Uids: []types.EntityUID{s.Entity}}, true
	case ast.ScopeTypeInSet:
		return ScopeTest{Of: of, Uids: append([]types.EntityUID{}, s.Entities...)}, true
	case ast.ScopeTypeIs:
		return ScopeTest{Of: of, Is: s.Type}, true
	case ast.ScopeTypeIsIn:
		return ScopeTest{Of: of, Is: s.Type, Uids: []types.EntityUID{s.Entity}}, true
	}
	return ScopeTest{}, false
}

// TestOfNode recognises a condition that has the same form as a scope constraint.
func TestOfNode(node ast.IsNode) (ScopeTest, bool) {
	switch n := node.(type) {
	case ast.NodeTypeEquals:
		of, ok := entityVariable(n.Left)
		uids, set, literal := literalUIDs(n.Right)
		return ScopeTest{Of: of, Uids: uids, Eq: true}, ok && literal && !set
	case ast.NodeTypeIn:
		of, ok := entityVariable(n.Left)
		uids, _, literal := literalUIDs(n.Right)
		return ScopeTest{Of: of, Uids: uids}, ok && literal
	case ast.NodeTypeIs:
		of, ok := entityVariable(n.Left)
		return ScopeTest{Of: of, Is: n.EntityType}, ok
	case ast.NodeTypeIsIn:
		of, ok := entityVariable(n.Left)
		uids, _, literal := literalUIDs(n.Entity)
		return ScopeTest{Of: of, Is: n.EntityType, Uids: uids}, ok && literal
	case ast.NodeTypeLike:
		of, ok := idVariable(n.Arg)
		if !ok {
			return ScopeTest{}, false
		}
		prefix, ok := prefixOf(n.Value)
		return ScopeTest{Of: of, Prefix: prefix}, ok
	}
	return ScopeTest{}, false
}

// idVariable recognises the id of the subject or of the resource as the PDP supplies it, and says of which variable
// that is the id. The two ids are the same text, byte for byte.
func idVariable(n ast.IsNode) (Variable, bool) {
	path, ok := pathOf(n)
	if !ok || path.Root != "context" || len(path.Names) != 3 || path.Names[0] != "pdp" || path.Names[2] != "id" {
		return 0, false
	}
	switch path.Names[1] {
	case subjectMember:
		return PrincipalVar, true
	case resourceMember:
		return ResourceVar, true
	}
	return 0, false
}

// prefixOf recognises a pattern that is a text and then one star.
func prefixOf(p types.Pattern) (prefix string, ok bool) {
	texts, err := PatternTexts(p)
	if err != nil || len(texts) != 2 || texts[1] != "" {
		return "", false
	}
	return texts[0], texts[0] != ""
}

// entityVariable recognises a variable that holds an entity.
func entityVariable(n ast.IsNode) (Variable, bool) {
	v, _ := n.(ast.NodeTypeVariable)
	i := slices.Index(VariableNames[:], string(v.Name)) // "" if n is something else
	return Variable(i), i >= 0
}

// entityLiteral recognises an entity that the policy writes out.
func entityLiteral(n ast.IsNode) (types.EntityUID, bool) {
	v, _ := n.(ast.NodeValue)
	uid, ok := v.Value.(types.EntityUID)
	return uid, ok
}

// literalUIDs reads an entity that the policy writes out, or a set of nothing but such
// entities.
func literalUIDs(n ast.IsNode) (uids []types.EntityUID, set, ok bool) {
	list, set := n.(ast.NodeTypeSet)
	if !set {
		uid, ok := entityLiteral(n)
		return []types.EntityUID{uid}, false, ok
	}
	uids = []types.EntityUID{}
	for _, e := range list.Elements {
		uid, ok := entityLiteral(e)
		if !ok {
			return nil, true, false
		}
		uids = append(uids, uid)
	}
	return uids, true, true
}

// visit gathers what one node adds to the facts. It is the visitor of ast.Inspect.
func (f *Facts) visit(node ast.IsNode) bool {
	switch n := node.(type) {
	case ast.NodeTypeHas:
		f.HasNames[string(n.Value)] = struct{}{}
		return f.noteRead(n.Arg, string(n.Value), true)
	case ast.NodeTypeAccess:
		f.ReadNames[string(n.Value)] = struct{}{}
		return f.noteRead(n.Arg, string(n.Value), false)
	case ast.NodeTypeVariable:
		f.Whole = f.Whole || n.Name == "context"
	case ast.NodeTypeExtensionCall:
		if has, takes := argumentsOf(n); has != takes &&
			!slices.ContainsFunc(f.miscalled, func(one ast.NodeTypeExtensionCall) bool { return one.Name == n.Name }) {
			f.miscalled = append(f.miscalled, n)
		}
	case ast.NodeValue:
		if uid, ok := entityLiteral(n); ok {
			f.Uids = append(f.Uids, uid)
		}
	}
	return true
}

// noteRead notes the path base.name. It always returns false, so that ast.Inspect does not
// visit base. A chain that starts at a variable is one path, read once. If a chain starts at
// something else, noteRead visits that start itself: a visit to each link of the chain would
// walk the rest of the chain every time.
func (f *Facts) noteRead(base ast.IsNode, name string, has bool) bool {
	path, ok := pathOf(base)
	for _, n := range path.Names {
		f.ReadNames[n] = struct{}{}
	}
	path.Names, path.Has = append(path.Names, name), has
	key := fmt.Sprint(has, path)
	if _, known := f.known[key]; !known && ok {
		f.Reads = append(f.Reads, path)
	} else if !known {
		f.Unrooted = append(f.Unrooted, path)
	}
	f.known[key] = struct{}{}
	if !ok {
		_, root := chainOf(base)
		ast.Inspect(ast.NewNode(root), f.visit)
	}
	return false
}

// pathOf reads a chain of attributes of a variable, or the variable alone.
func pathOf(n ast.IsNode) (AttributePath, bool) {
	names, root := chainOf(n)
	v, ok := root.(ast.NodeTypeVariable)
	return AttributePath{Root: string(v.Name), Names: names}, ok
}

// chainOf splits a chain of attributes into its names and the node that it starts at.
func chainOf(n ast.IsNode) (names []string, root ast.IsNode) {
	for {
		access, ok := n.(ast.NodeTypeAccess)
		if !ok {
			slices.Reverse(names)
			return names, n
		}
		names = append(names, string(access.Value))
		n = access.Arg
	}
}

// tree is the policy's AST, for the validator.
func (p *Policy) tree() *ast.Policy { return (*ast.Policy)(p.Cedar.AST()) }

// only is the policy for one action alone.
func (p *Policy) only(action types.EntityUID) *Policy {
	tree, one := *p.tree(), *p
	tree.Action = ast.ScopeTypeEq{Entity: action}
	one.Cedar = cedar.NewPolicyFromAST((*publicast.Policy)(&tree))
	one.Facts.Scope = []ScopeTest{{Of: ActionVar, Uids: []types.EntityUID{action}, Eq: true}}
	for _, t := range p.Facts.Scope {
		if t.Of != ActionVar {
			one.Facts.Scope = append(one.Facts.Scope, t)
		}
	}
	return &one
}

// Term is a condition as plain values, for code that follows how the condition is evaluated.
// Nothing on the decision path uses terms.
type Term struct {
	Op      Op
	Path    AttributePath // of OpPath; for OpHas, the path that it tests for; of OpRead, a name without a root
	Test    ScopeTest     // of OpTest; of any other is, the type alone
	Value   types.Value   // of OpValue
	Pattern types.Pattern // of OpLike
	Name    string        // of OpCall, the function; of OpContains, the method; of OpOrder, the sign
	Keys    []string      // of OpBuild, those of a record; nil of a set
	Args    []*Term
	// OfResource is set if the term uses the resource or its id, or the context or context.pdp as a value: its result differs
	// among the resources of otherwise equal requests.
	OfResource bool

	node ast.IsNode // nil of the opposite of another term that no policy writes out
}

// Op is the operator of a term.
type Op uint8

// The operators, as far as terms tell them apart.
const (
	opOther Op = iota // errs on an argument of a wrong type
	OpIs              // any other is
	OpBuild           // a set or a record, made of anything
	OpTrue
	OpFalse
	OpPath // a variable, or attributes read from one
	OpHas  // has on such a path
	OpTest // a test like those of a scope
	OpIn   // any other in
	OpEqual
	OpContains // contains, containsAll, containsAny
	OpIsEmpty
	OpValue // anything else that the policy writes out
	OpOrder // <, <=, > and >=
	OpLike
	OpAdd
	OpSubtract
	OpMultiply
	OpNegate
	OpRead // an attribute of something that is no path, read or tested for
	OpCall // a function or method of an extension, such as decimal or lessThan
	OpNot
	OpAnd
	OpOr
	OpIf
)

// Terms are the conditions of the policy, in order. All of them must hold. The term of an
// unless is the opposite of its body.
func (p *Policy) Terms() []*Term {
	var terms []*Term
	for _, c := range p.tree().Conditions {
		terms = append(terms, Conjunct{Unless: !bool(c.Condition), Body: c.Body}.Term())
	}
	return terms
}

// KeptTerms returns the terms of the policy, which it keeps for all who ask again.
func (p *Policy) KeptTerms() []*Term {
	p.terms.once.Do(func() { p.terms.made = p.Terms() })
	return p.terms.made
}

// lazyTerms are the terms of a policy, once a filter has asked for them.
type lazyTerms struct {
	once sync.Once
	made []*Term
}

// Term is the clause as a term.
func (c Conjunct) Term() *Term {
	t := termOf(c.Body)
	if c.Unless {
		t = &Term{Op: OpNot, Args: []*Term{t}, OfResource: t.OfResource}
	}
	return t
}

// termOf makes the term of a node.
func termOf(n ast.IsNode) *Term {
	if test, ok := TestOfNode(n); ok {
		return test.Term(n)
	}
	if path, ok := pathOf(n); ok {
		return &Term{Op: OpPath, Path: path, node: n, OfResource: path.ofResource()}
	}
	t := &Term{Op: OpOf(n), node: n}
	switch n := n.(type) {
	case ast.NodeTypeHas:
		if path, ok := pathOf(n.Arg); ok {
			path.Names, path.Has = append(path.Names, string(n.Value)), true
			return &Term{Op: OpHas, Path: path, node: n, OfResource: path.Root == VariableNames[ResourceVar]}
		}
		t.Path.Names, t.Path.Has = []string{string(n.Value)}, true
	case ast.NodeTypeAccess:
		t.Path.Names = []string{string(n.Value)}
	case ast.NodeTypeIs:
		t.Test.Is = n.EntityType
	case ast.NodeTypeIsIn:
		t.Test.Is = n.EntityType
	case ast.NodeTypeLike:
		t.Pattern = n.Value
	case ast.NodeValue:
		t.Value = n.Value
	case ast.NodeTypeExtensionCall:
		t.Name = string(n.Name)
	case ast.NodeTypeRecord:
		t.Keys = []string{}
		for _, e := range n.Elements {
			t.Keys = append(t.Keys, string(e.Key))
		}
	case ast.NodeTypeContains:
		t.Name = "contains"
	case ast.NodeTypeContainsAll:
		t.Name = "containsAll"
	case ast.NodeTypeContainsAny:
		t.Name = "containsAny"
	case ast.NodeTypeLessThan:
		t.Name = "<"
	case ast.NodeTypeLessThanOrEqual:
		t.Name = "<="
	case ast.NodeTypeGreaterThan:
		t.Name = ">"
	case ast.NodeTypeGreaterThanOrEqual:
		t.Name = ">="
	}
	for _, child := range Children(n) {
		arg := termOf(child)
		t.Args, t.OfResource = append(t.Args, arg), t.OfResource || arg.OfResource
	}
	if n, ok := n.(ast.NodeTypeNotEquals); ok {
		t.node = ast.NodeTypeEquals(n)
		return &Term{Op: OpNot, Args: []*Term{t}, OfResource: t.OfResource}
	}
	return t
}

// Term returns the test as a term. n is the node of the test, or nil of a test of a scope.
func (t ScopeTest) Term(n ast.IsNode) *Term {
	return &Term{Op: OpTest, Test: t, node: n, OfResource: t.Of == ResourceVar}
}

// ofResource reports whether what is read at the path differs among resources.
func (p AttributePath) ofResource() bool {
	if p.Root != "context" {
		return p.Root == VariableNames[ResourceVar]
	}
	whole := []string{"pdp", resourceMember, "id"}
	return len(p.Names) <= len(whole) && slices.Equal(p.Names, whole[:len(p.Names)])
}

// Text returns the term in Cedar's syntax.
func (t *Term) Text() string {
	if t.node == nil {
		return "(…)"
	}
	text := Conjunct{Body: t.node}.Text()
	return strings.TrimSuffix(strings.TrimPrefix(text, "when { "), " }")
}

// Eval evaluates a term that does not use the resource, as cedar-go does where it decides.
func (t *Term) Eval(request cedar.Request, entities types.EntityGetter) (types.Value, error) {
	return eval.Eval(t.node, eval.Env{Entities: entities, Principal: request.Principal, Action: request.Action, Resource: request.Resource, Context: request.Context})
}

// PatternTexts returns the texts between the stars of a pattern. cedar-go shows what is in a pattern as JSON alone.
func PatternTexts(p types.Pattern) ([]string, error) {
	text, err := p.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var parts []any
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, err
	}
	texts := []string{""}
	for _, part := range parts {
		if literal, ok := part.(map[string]any); ok {
			text, _ := literal["Literal"].(string)
			texts[len(texts)-1] += text
		} else {
			texts = append(texts, "")
		}
	}
	return texts, nil
}

// IsWritten reports if a policy writes the term out whole: it looks neither at the request nor at an entity.
func (t *Term) IsWritten() bool { return t.node != nil && !looks(t.node) }

// Written reports what such a term comes to. cedar-go evaluates it, and it comes to the same every time. ok is false of
// any other term, and of one that errs or is no truth value.
func (t *Term) Written() (holds, ok bool) {
	if !t.IsWritten() {
		return false, false
	}
	set := cedar.NewPolicySet()
	set.Add("", Conjunct{Body: t.node}.Policy())
	decision, diagnostic := cedar.Authorize(set, types.EntityMap{}, cedar.Request{})
	return decision == cedar.Allow, len(diagnostic.Errors) == 0
}

// Literal is the value that a policy writes out, also with the function that makes one of an extension type.
func (t *Term) Literal() (types.Value, bool) {
	switch t.Op {
	case OpTrue, OpFalse:
		return types.Boolean(t.Op == OpTrue), true
	case OpValue:
		return t.Value, true
	case OpCall:
		if make, ok := constructors[t.Name]; ok && len(t.Args) == 1 && t.Args[0].Op == OpValue {
			text, _ := t.Args[0].Value.(types.String)
			return FromText(string(text), make)
		}
	}
	return nil, false
}

// looks reports if a node looks at the request or at an entity. To look into a record that is written out is neither.
func looks(n ast.IsNode) bool {
	var variable, entity, into bool
	ast.Inspect(ast.NewNode(n), func(node ast.IsNode) bool {
		switch node := node.(type) {
		case ast.NodeTypeVariable:
			variable = true
		case ast.NodeValue:
			_, one := node.Value.(types.EntityUID)
			entity = entity || one
		case ast.NodeTypeHas, ast.NodeTypeAccess, ast.NodeTypeHasTag, ast.NodeTypeGetTag, ast.NodeTypeIn, ast.NodeTypeIsIn:
			into = true
		}
		return !variable
	})
	return variable || entity && into
}

// OpOf is the operator of a node, as far as terms tell them apart.
func OpOf(n ast.IsNode) Op {
	switch n := n.(type) {
	case ast.NodeValue:
		switch n.Value {
		case types.True:
			return OpTrue
		case types.False:
			return OpFalse
		}
		return OpValue
	case ast.NodeTypeHas, ast.NodeTypeAccess:
		return OpRead
	case ast.NodeTypeLike:
		return OpLike
	case ast.NodeTypeAdd:
		return OpAdd
	case ast.NodeTypeSub:
		return OpSubtract
	case ast.NodeTypeMult:
		return OpMultiply
	case ast.NodeTypeNegate:
		return OpNegate
	case ast.NodeTypeLessThan, ast.NodeTypeLessThanOrEqual, ast.NodeTypeGreaterThan, ast.NodeTypeGreaterThanOrEqual:
		return OpOrder
	case ast.NodeTypeSet, ast.NodeTypeRecord:
		return OpBuild
	case ast.NodeTypeIs:
		return OpIs
	case ast.NodeTypeIn, ast.NodeTypeIsIn:
		return OpIn
	case ast.NodeTypeEquals, ast.NodeTypeNotEquals:
		return OpEqual
	case ast.NodeTypeContains, ast.NodeTypeContainsAll, ast.NodeTypeContainsAny:
		return OpContains
	case ast.NodeTypeIsEmpty:
		return OpIsEmpty
	case ast.NodeTypeExtensionCall:
		return OpCall
	case ast.NodeTypeNot:
		return OpNot
	case ast.NodeTypeAnd:
		return OpAnd
	case ast.NodeTypeOr:
		return OpOr
	case ast.NodeTypeIfThenElse:
		return OpIf
	}
	return opOther
}

// Children are the operands of a node, in order of evaluation.
func Children(n ast.IsNode) []ast.IsNode {
	var nodes []ast.IsNode
	self := true
	ast.Inspect(ast.NewNode(n), func(node ast.IsNode) bool {
		if self {
			self = false
			return true
		}
		nodes = append(nodes, node)
		return false
	})
	return nodes
}

// hasTests are the has tests of a policy, each with what must hold before it is evaluated.
type hasTests struct {
	has    []hasTest
	guards []guard // the first stands for no guard
}

// hasTest is one has test.
type hasTest struct {
	of    ast.IsNode
	name  string
	guard int // the index of the guard that the test stands behind
}

// guard is a test. If it does not hold, the expression behind it is not evaluated. A guard can
// itself stand behind an outer guard.
type guard struct {
	test  ScopeTest
	outer int
}

// hasTests walks the policy. Only a schema asks for these tests, while it is loaded.
func (p *Policy) hasTests() *hasTests {
	h := &hasTests{guards: make([]guard, 1)}
	behind := 0
	for _, c := range p.tree().Conditions {
		if then := h.walk(c.Body, behind); c.Condition {
			behind = then
		}
	}
	return h
}

// walk visits a node that stands behind a guard. It returns the guard behind which an
// expression stands that is evaluated only if the node is true.
func (h *hasTests) walk(n ast.IsNode, behind int) int {
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		return h.walk(n.Right, h.walk(n.Left, behind))
	case ast.NodeTypeIfThenElse:
		h.walk(n.Then, h.walk(n.If, behind))
		h.walk(n.Else, behind)
		return behind
	case ast.NodeTypeHas:
		h.has = append(h.has, hasTest{of: n.Arg, name: string(n.Value), guard: behind})
	}
	if test, ok := TestOfNode(n); ok {
		h.guards = append(h.guards, guard{test: test, outer: behind})
		return len(h.guards) - 1
	}
	for _, child := range Children(n) {
		h.walk(child, behind)
	}
	return behind
}

// path is the tested path, as far as it has names.
func (h *hasTest) path() string {
	names, root := chainOf(h.of)
	path := AttributePath{Root: "(…)", Names: append(names, h.name)}
	switch root := root.(type) {
	case ast.NodeTypeVariable:
		path.Root = string(root.Name)
	case ast.NodeValue:
		path.Root = root.Value.String()
	}
	return path.String()
}

// owner is something that can have attributes: an entity of a type, a declared
// record, the context of an action, or a record that the policy writes.
type owner struct {
	entity  types.EntityType
	record  *Shape
	context *actionShape
	written *ast.NodeTypeRecord
}

// owners lists the owners that an expression can be. It lists none if the expression has no
// attributes, and several if an if decides.
func (s *Schema) owners(n ast.IsNode, env Environment) (all []owner) {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return []owner{env.owner(string(n.Name))}
	case ast.NodeValue:
		if uid, ok := entityLiteral(n); ok {
			return []owner{{entity: uid.Type}}
		}
	case ast.NodeTypeRecord:
		return []owner{{written: &n}}
	case ast.NodeTypeIfThenElse:
		return distinct(append(s.owners(n.Then, env), s.owners(n.Else, env)...))
	case ast.NodeTypeGetTag:
		for _, o := range s.owners(n.Left, env) {
			all = append(all, ownerOf(s.entities[o.entity].tags)...)
		}
	case ast.NodeTypeAccess:
		for _, o := range s.owners(n.Arg, env) {
			if o.written == nil {
				all = append(all, ownerOf(s.attributesOf(o)[string(n.Value)].Shape)...)
			} else if member := o.member(string(n.Value)); member != nil {
				all = append(all, s.owners(member, env)...)
			}
		}
	}
	return distinct(all)
}

// distinct drops owners that occur twice. Otherwise a chain of attributes behind many ifs
// would be followed once for each of the ifs.
func distinct(owners []owner) []owner {
	if len(owners) < 2 {
		return owners
	}
	seen := make(map[owner]struct{}, len(owners))
	return slices.DeleteFunc(owners, func(o owner) bool {
		_, known := seen[o]
		seen[o] = struct{}{}
		return known
	})
}

// member is the expression that the policy writes for a member of a record, or nil.
func (o owner) member(name string) ast.IsNode {
	for _, e := range o.written.Elements {
		if string(e.Key) == name {
			return e.Value
		}
	}
	return nil
}

// declares reports if an owner has an attribute.
func (s *Schema) declares(o owner, name string) bool {
	_, ok := s.attributesOf(o)[name]
	return ok || o.written != nil && o.member(name) != nil
}

// spares are the attributes that a policy asks for to make an exception, and has nowhere else.
func (p *Policy) spares() (all []AttributePath) {
	in := map[bool]*Facts{}
	for _, unless := range []bool{true, false} {
		in[unless] = &Facts{HasNames: map[string]struct{}{}, ReadNames: map[string]struct{}{}, known: map[string]struct{}{}}
	}
	var gather func(n ast.IsNode, unless bool)
	gather = func(n ast.IsNode, unless bool) {
		switch op := OpOf(n); op {
		case OpNot, OpAnd, OpOr:
			for _, operand := range Children(n) {
				gather(operand, unless != (op == OpNot))
			}
		default:
			ast.Inspect(ast.NewNode(n), in[unless].visit)
		}
	}
	for _, c := range p.Facts.Conjuncts {
		gather(c.Body, c.Unless)
	}
	for _, path := range in[true].Reads {
		elsewhere := func(other AttributePath) bool { return other.String() == path.String() }
		if path.Has && !slices.ContainsFunc(in[false].Reads, elsewhere) {
			all = append(all, path)
		}
	}
	return all
}
