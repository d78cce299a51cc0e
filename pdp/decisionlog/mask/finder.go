package mask

// finder finds every occurrence of many strings in a text in one pass (Aho and
// Corasick, 1975). A request can bring thousands of secrets and a megabyte of text to
// look for them in; looking for one after the other would take minutes of their
// product, this takes their sum.
type finder struct {
	nodes []node
	// branches are the ways on from a node but for its first one: no more than there
	// are strings, whatever their length.
	branches map[edge]int32
	first    [256]bool // the bytes that any of the strings begins with
}

// node is a prefix of one or more of the strings; node 0 is the empty one.
type node struct {
	depth, fail int32 // fail is the longest proper suffix that is a node as well
	longest     int32 // the length of the longest of the strings that ends here, 0 is none
	parent      int32
	by          byte // the last byte of the prefix
	branching   bool
	nextBy      byte // the first way on: the byte, and the node it leads to; 0 is none
	next        int32
}

// edge is a node and the byte that comes after it: one number, which maps are fastest with.
type edge uint64

func edgeOf(from int32, by byte) edge { return edge(from)<<8 | edge(by) }

// newFinder takes time and space of the sum of the lengths.
func newFinder(of []string) *finder {
	total := 1
	for _, s := range of {
		total += len(s)
	}
	f := &finder{nodes: make([]node, 1, total), branches: map[edge]int32{}}
	for _, s := range of {
		f.add(s)
	}
	f.link()
	return f
}

func (f *finder) add(s string) {
	f.first[s[0]] = true
	at := int32(0)
	for i := range len(s) {
		next, ok := f.child(at, s[i])
		if !ok {
			next = f.grow(at, s[i])
		}
		at = next
	}
	f.nodes[at].longest = int32(len(s))
}

func (f *finder) child(from int32, by byte) (int32, bool) {
	n := &f.nodes[from]
	if n.next != 0 && n.nextBy == by {
		return n.next, true
	}
	if !n.branching {
		return 0, false
	}
	to, ok := f.branches[edgeOf(from, by)]
	return to, ok
}

func (f *finder) grow(from int32, by byte) int32 {
	to, n := int32(len(f.nodes)), &f.nodes[from]
	if n.next == 0 {
		n.next, n.nextBy = to, by
	} else {
		n.branching = true
		f.branches[edgeOf(from, by)] = to
	}
	f.nodes = append(f.nodes, node{depth: n.depth + 1, parent: from, by: by})
	return to
}

// link finds the suffix of every node, the shorter ones first.
func (f *finder) link() {
	for _, n := range f.byDepth() {
		node := &f.nodes[n]
		if node.depth > 1 {
			node.fail = f.step(f.nodes[node.parent].fail, node.by)
		}
		node.longest = max(node.longest, f.nodes[node.fail].longest)
	}
}

// byDepth is every node but the first, sorted by counting.
func (f *finder) byDepth() []int32 {
	deepest := int32(0)
	for _, n := range f.nodes {
		deepest = max(deepest, n.depth)
	}
	starts := make([]int32, deepest+2)
	for _, n := range f.nodes[1:] {
		starts[n.depth+1]++
	}
	for d := range deepest + 1 {
		starts[d+1] += starts[d]
	}
	order := make([]int32, len(f.nodes)-1)
	for n := range f.nodes[1:] {
		depth := f.nodes[n+1].depth
		order[starts[depth]] = int32(n + 1)
		starts[depth]++
	}
	return order
}

// step is the longest suffix of a prefix and one more byte that is a prefix itself.
func (f *finder) step(from int32, by byte) int32 {
	for {
		if to, ok := f.child(from, by); ok {
			return to
		}
		if from == 0 {
			return 0
		}
		from = f.nodes[from].fail
	}
}

// span is a part of a text.
type span struct{ from, to int }

// spans are the parts of a text that are occurrences of the strings, those that
// overlap taken together, in their order.
func (f *finder) spans(text string) (found []span) {
	at := int32(0)
	for i := range len(text) {
		if at == 0 && !f.first[text[i]] {
			continue
		}
		at = f.step(at, text[i])
		length := int(f.nodes[at].longest)
		if length == 0 {
			continue
		}
		next := span{i + 1 - length, i + 1}
		for n := len(found); n > 0 && found[n-1].to > next.from; n = len(found) {
			next.from = min(next.from, found[n-1].from)
			found = found[:n-1]
		}
		found = append(found, next)
	}
	return found
}
