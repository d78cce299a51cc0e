package arguments

import "errors"

// visits counts how often schemas are visited for one value, if each is visited that can be.
type visits struct {
	of map[*node]int // -1 while it is counted
}

// mostVisits is how many there may be. References that fork again and again make more than anybody can wait for.
const mostVisits = 1 << 16

var (
	errEndless   = errors.New("inputSchema refers to itself without going into a value: it would never end")
	errManifold  = errors.New("inputSchema has references that fork too often")
	errTooNested = errors.New("inputSchema has too long a chain of references")
)

// mostChain is how long a chain of references may be.
const mostChain = 500

// bound is an error if a node, or one below it, is visited too often for one value.
func (v *visits) bound(root *node) error {
	seen := map[*node]bool{root: true}
	for todo := []*node{root}; len(todo) > 0; {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, err := v.count(n, 0); err != nil {
			return err
		}
		next := func(m *node) bool {
			if m != nil && !seen[m] {
				seen[m] = true
				todo = append(todo, m)
			}
			return true
		}
		n.inPlace(next)
		n.below(next)
	}
	return nil
}

func (v *visits) count(n *node, depth int) (int, error) {
	if depth > mostChain {
		return 0, errTooNested
	}
	switch all := v.of[n]; {
	case all < 0:
		return 0, errEndless
	case all > 0:
		return all, nil
	}
	v.of[n] = -1
	all := 1
	for m := range n.inPlace {
		more, err := v.count(m, depth+1)
		if err != nil {
			return 0, err
		}
		if all += more; all > mostVisits {
			return 0, errManifold
		}
	}
	v.of[n] = all
	return all, nil
}

// below yields the nodes that are held against what is in a value, and may be nil.
func (n *node) below(yield func(*node) bool) {
	if t := n.items; t != nil {
		for _, m := range append([]*node{t.rest, t.contains, t.unevaluated}, t.prefix...) {
			yield(m)
		}
	}
	if o := n.of; o != nil {
		for _, m := range []*node{o.additional, o.names, o.unevaluated} {
			yield(m)
		}
		for _, m := range o.properties {
			yield(m)
		}
		for _, p := range o.patterns {
			yield(p.node)
		}
	}
}
