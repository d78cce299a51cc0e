package mask

// finder finds every occurrence of many strings in a text in one pass (Aho and Corasick, 1975). A request can bring
// thousands of secrets and a megabyte of text. Seeking one secret after the other takes minutes, the product of both;
// one pass takes their sum.
type finder struct {
	nodes    []node
	branches map[edge]int32 // the children of nodes besides the first child; less than the strings
	first    [256]bool      // the bytes that strings begin with
}

// node is a prefix of one or more strings; node 0 is the empty prefix.
type node struct {
	depth, fail int32 // fail is the longest proper suffix that is a node too
	longest     int32 // the length of the longest string that ends here, or 0
	parent      int32
	by          byte // the last byte of the prefix
	branching   bool
	nextBy      byte // the byte of the first child, and its node or 0
	next        int32
}

// edge is a node and the byte after it, as one number, because maps are fastest with numbers.
type edge uint64

func edgeOf(from int32, by byte) edge { return edge(from)<<8 | edge(by) }

// newFinder takes time and space in proportion to the sum of the lengths.
func newFinder(strings []string) *finder {
	total := 1
	for _, s := range strings {
		total += len(s)
	}
	f := &finder{nodes: make([]node, 1, total), branches: map[edge]int32{}}
	for _, s := range strings {
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
	for _, n := range f.byDepth() { // the fail of a node must be known before those of longer prefixes
		node := &f.nodes[n]
		if node.depth > 1 {
			node.fail = f.step(f.nodes[node.parent].fail, node.by)
		}
		node.longest = max(node.longest, f.nodes[node.fail].longest)
	}
	return f
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

// byDepth returns all nodes but the first, in the order of their depth. It sorts by counting.
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

// step returns the longest suffix, of a prefix and one more byte, that is a prefix itself.
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

// span delimits a part of a text.
type span struct{ from, to int }

// spans returns the occurrences of the strings in a text, in order. Occurrences that overlap are one span.
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
