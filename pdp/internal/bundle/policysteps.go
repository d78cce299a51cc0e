package bundle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// cedar-go checks a policy against the schema once for each combination of action, principal
// and resource that the scope of the policy admits. Some of these checks grow with the square
// or the cube of the policy. So we count beforehand how many steps cedar-go will take, from
// the text of the policy and the schema. A step is about a tenth of a microsecond, and the
// count is never too low.

// mayCheck counts the steps for all policies of one owner, before any policy is checked.
func (s *Schema) mayCheck(all []*Policy, use *Usage, problems *Problems) bool {
	for _, p := range all {
		steps, combinations := s.StepsOf(p, use.bounds.Checks-use.checkCount)
		if use.checkCount = plus(use.checkCount, steps); use.checkCount > use.bounds.Checks {
			const format = "let the scopes of policies name actions and types, or use fewer words: policy %q alone takes %d"
			try := fmt.Sprintf(format, p.Id, steps)
			if combinations > 0 {
				try += fmt.Sprintf(", for %d combinations of action, principal and resource", combinations)
			}
			use.exceeds(true, "many_checks", "steps of holding policies against the schema", use.bounds.Checks,
				entityPlace{p.File, p.Line, p.Column}, try, problems)
			return false
		}
	}
	return true
}

// StepsOf is how many steps CheckPolicy takes for a policy, and for how many combinations it
// checks the policy. It may stop counting beyond most steps.
func (s *Schema) StepsOf(p *Policy, most int) (steps, combinations int) {
	listed, lists := 0, 0
	for _, t := range p.Facts.Scope {
		if t.Of == ActionVar {
			listed = len(t.Uids)
			if !t.Eq {
				steps = plus(steps, product(len(t.Uids), s.sizes.ways))
			}
		} else if len(t.Uids) > 0 && !t.Eq {
			steps = plus(steps, s.sizes.typesBelow(t.Uids[0].Type))
			lists += len(s.entities)
		}
	}
	if steps = plus(steps, 1+product(len(s.Actions), 1+listed)/8); steps > most {
		return steps, 0
	}
	all := 0
	for a := range s.actionsOf(p) {
		env := Environment{Action: a}
		all += len(a.Principals) * len(a.Resources)
		combinations += env.admitted(p, PrincipalVar, a.Principals) * env.admitted(p, ResourceVar, a.Resources)
		steps = plus(steps, a.size)
	}
	steps = plus(steps, product(all, 1+(listed+lists)/16))
	return plus(steps, product(combinations, s.weigh(p))), combinations
}

// admitted counts the types that the policy's scope admits for a variable.
func (e Environment) admitted(p *Policy, of Variable, all []types.EntityType) (n int) {
	for _, typ := range all {
		e.Principal, e.Resource = typ, typ
		if e.admitsAll(p, of) {
			n++
		}
	}
	return n
}

// weigh is how many steps a check of the conditions of a policy takes for one combination.
func (s *Schema) weigh(p *Policy) (steps int) {
	for _, c := range p.tree().Conditions {
		w := weighing{sizes: &s.sizes}
		w.visit(c.Body, 0, 1)
		// Errors are handed up from each node, and known attributes are compared as texts.
		steps = plus(steps, plus(w.steps, product(w.nodes, w.deepest)/32))
		steps = plus(steps, product(w.compared, 1+w.longest/4))
	}
	return plus(1, steps)
}

// weighing counts the steps for the conditions of one policy.
type weighing struct {
	sizes        *schemaNumbers
	steps, nodes int
	deepest      int
	compared     int // comparisons of known attributes and tags with each other
	longest      int // the longest expression with a known attribute or tag, in nodes
}

// visit weighs a node. The number known is how many attributes and tags are known to be
// present there. visit returns how many are known to be present if the node is true.
func (w *weighing) visit(n ast.IsNode, known, depth int) (ifTrue int) {
	before, steps := w.nodes, 1 // the node itself takes a step
	ifTrue = known
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		left := w.visit(n.Left, known, depth+1)
		w.compare(left, left)
		ifTrue = w.visit(n.Right, left, depth+1)
	case ast.NodeTypeOr:
		left, right := w.visit(n.Left, known, depth+1), w.visit(n.Right, known, depth+1)
		w.compare(left, right)
		ifTrue = min(left, right)
	case ast.NodeTypeIfThenElse:
		test := w.visit(n.If, known, depth+1)
		w.compare(test, test)
		then, other := w.visit(n.Then, test, depth+1), w.visit(n.Else, known, depth+1)
		w.compare(then, other)
		ifTrue = min(then, other)
	default:
		for _, child := range Children(n) {
			w.visit(child, known, depth+1)
		}
	}
	switch n := n.(type) {
	case ast.NodeTypeHas:
		w.longest = max(w.longest, w.nodes-before)
		w.compare(1, 2*known)
		ifTrue++
	case ast.NodeTypeHasTag:
		w.longest = max(w.longest, w.nodes-before)
		w.compare(1, known)
		ifTrue++
	case ast.NodeTypeAccess:
		w.compare(1, known)
		steps += w.sizes.attributes[string(n.Value)]
	case ast.NodeTypeGetTag:
		w.compare(1, known)
		steps += w.sizes.tags
	case ast.NodeTypeIn:
		uids, _, _ := literalUIDs(n.Right)
		steps += w.sizes.typeWays
		if isAction(n.Left) {
			steps = plus(steps, product(max(1, len(uids)), w.sizes.ways))
		}
	case ast.NodeTypeVariable:
		if n.Name == "context" {
			steps += w.sizes.context
		}
	case ast.NodeValue:
		if isAction(n) {
			steps += w.sizes.actions
		}
	}
	w.nodes++
	w.steps = plus(w.steps, steps)
	w.deepest = max(w.deepest, depth)
	return ifTrue
}

// compare counts the comparisons of two numbers of known attributes and tags.
func (w *weighing) compare(a, b int) { w.compared = plus(w.compared, product(a, b)) }

// isAction reports if an expression may be an action that the policy names.
func isAction(n ast.IsNode) bool {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return n.Name == "action"
	case ast.NodeValue:
		uid, ok := entityLiteral(n)
		return ok && IsActionType(uid.Type)
	}
	return false
}

// schemaNumbers are sizes of the declarations of a schema.
type schemaNumbers struct {
	actions, ways int // how many actions, and steps from all of them up to their groups
	context       int // size of the largest context
	typeWays      int // most steps from a type up to all types that its entities may be in
	tags          int // size of the largest type of tags
	attributes    map[string]int
	children      map[types.EntityType][]types.EntityType
	edges         int
	mutex         *sync.Mutex
	below         map[types.EntityType]int
}

// typesBelow is how many steps it takes to find the types whose entities may be below one
// type. cedar-go goes through all types and all their parents, once for each level below that
// type.
func (z *schemaNumbers) typesBelow(top types.EntityType) int {
	z.mutex.Lock()
	defer z.mutex.Unlock()
	if steps, known := z.below[top]; known {
		return steps
	}
	seen := []types.EntityType{top}
	known := map[types.EntityType]struct{}{top: {}}
	rows := 1
	for row := seen; len(row) > 0; rows++ {
		var next []types.EntityType
		for _, above := range row {
			for _, typ := range z.children[above] {
				if _, again := known[typ]; !again {
					known[typ] = struct{}{}
					next = append(next, typ)
				}
			}
		}
		seen, row = append(seen, next...), next
	}
	steps := product(product(z.edges, len(seen)), rows) / 16
	z.below[top] = steps
	return steps
}

// size is the size of a declared type that is written out.
func (s *Shape) size() int {
	if s == nil {
		return 0
	}
	size := 1 + s.Element.size()
	for _, a := range s.Members {
		size += a.Shape.size()
	}
	return size
}

// maxActionWays is how many steps it may take to go from every action up to all groups that
// it is in.
const maxActionWays = 1_000_000

// measure finds the lineage of every action, and the numbers of the schema. It refuses groups
// of actions that would take too many steps.
func (s *Schema) measure(files schemaFiles, problems *Problems) bool {
	z := schemaNumbers{
		actions:    len(s.Actions),
		attributes: map[string]int{},
		children:   map[types.EntityType][]types.EntityType{},
		below:      map[types.EntityType]int{},
		mutex:      new(sync.Mutex),
	}
	var note func(members map[string]AttributeShape) int
	note = func(members map[string]AttributeShape) int {
		total := 1
		for name, a := range members {
			size := 1
			for of := a.Shape; of != nil; of = of.Element {
				size++
				if of.Members != nil {
					size += note(of.Members)
				}
			}
			z.attributes[name] = max(z.attributes[name], size)
			total += size
		}
		return total
	}
	for typ, e := range s.entities {
		note(e.attributes)
		z.tags = max(z.tags, e.tags.size())
		z.edges += 1 + len(e.parents)
		for _, parent := range e.parents {
			z.children[parent] = append(z.children[parent], typ)
		}
	}
	for _, uid := range slices.SortedFunc(maps.Keys(s.Actions), compareUIDs) {
		a := s.Actions[uid]
		a.size = note(a.Context)
		z.context = max(z.context, a.size)
		a.Up = LineageOf(uid, &Store{Entities: s.actionEntities})
		for _, above := range append(slices.Clone(a.Up.Up), uid) {
			if of, ok := s.actionEntities[above]; ok {
				z.ways += 1 + of.Parents.Len()
			}
		}
		if z.ways > maxActionWays {
			file, line, column := files.declarationOf(string(uid.ID))
			problems.Add(file, line, column, "schema_groups",
				fmt.Sprintf("from all actions up to all the groups that they are in there may be %d steps, and with action %s there are more",
					maxActionWays, Quote(string(uid.ID))),
				"let groups be in fewer groups: an action is in what its groups are in")
			return false
		}
	}
	z.typeWays = s.waysUp(z.edges)
	s.sizes = z
	return true
}

// waysUp is the most steps from a type up to all types that its entities may be in. If finding
// that out may take too long itself, it is the number of all edges.
func (s *Schema) waysUp(edges int) (most int) {
	if product(edges, len(s.entities)) > 10*maxActionWays {
		return edges
	}
	for typ := range s.entities {
		steps := 0
		known := map[types.EntityType]struct{}{typ: {}}
		for todo := []types.EntityType{typ}; len(todo) > 0; {
			of := s.entities[todo[len(todo)-1]]
			todo = todo[:len(todo)-1]
			steps += 1 + len(of.parents)
			for _, parent := range of.parents {
				if _, again := known[parent]; !again {
					known[parent] = struct{}{}
					todo = append(todo, parent)
				}
			}
		}
		most = max(most, steps)
	}
	return most
}

const maxNumber = math.MaxInt

// plus adds numbers that are not negative. It stops at the greatest number.
func plus(a, b int) int {
	if a > maxNumber-b {
		return maxNumber
	}
	return a + b
}

// product multiplies numbers that are not negative. It stops at the greatest number.
func product(a, b int) int {
	if b != 0 && a > maxNumber/b {
		return maxNumber
	}
	return a * b
}
