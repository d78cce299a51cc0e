package ask

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// node is a JSON value of which parts are taken out. Members keep their order.
type node struct {
	kind  jsontext.Kind
	text  jsontext.Value // of a scalar, as it came
	names []string       // of an object's members
	kids  []*node        // members or elements
}

// What a result may be from which something is taken out: each value costs far more than its text.
const (
	mostNesting = 100
	mostValues  = 200_000
)

// parseNode reads one JSON value that no reader can misread, and nothing else.
func parseNode(text []byte) (*node, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	left := mostValues
	n, ok := readNode(d, 0, &left)
	if !ok {
		return nil, false
	}
	_, err := d.ReadToken()
	return n, err != nil && len(bytes.TrimSpace(text[d.InputOffset():])) == 0
}

func readNode(d *jsontext.Decoder, depth int, left *int) (*node, bool) {
	if *left--; *left < 0 {
		return nil, false
	}
	n := &node{kind: d.PeekKind()}
	if n.kind != '{' && n.kind != '[' {
		v, err := d.ReadValue()
		n.text = bytes.Clone(v)
		return n, err == nil
	}
	if _, err := d.ReadToken(); err != nil || depth == mostNesting {
		return nil, false
	}
	for end := n.kind + 2; d.PeekKind() != end; {
		if n.kind == '{' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, false
			}
			n.names = append(n.names, name.String())
		}
		kid, ok := readNode(d, depth+1, left)
		if !ok {
			return nil, false
		}
		n.kids = append(n.kids, kid)
	}
	_, err := d.ReadToken()
	return n, err == nil
}

func (n *node) value() jsontext.Value { return n.append(nil) }

func (n *node) append(b []byte) []byte {
	if n.kind != '{' && n.kind != '[' {
		return append(b, n.text...)
	}
	b = append(b, byte(n.kind))
	for i, kid := range n.kids {
		if i > 0 {
			b = append(b, ',')
		}
		if n.kind == '{' {
			b = append(append(b, rpc.String(n.names[i])...), ':')
		}
		b = kid.append(b)
	}
	return append(b, byte(n.kind+2)) // in ASCII a bracket closes two characters after it opens
}

// remove takes out what a pointer leads to, and tells of it. Of an object that is the member; an element of an array becomes
// null, so that those after it keep their places.
func (n *node) remove(p pointer, removed *secrets) {
	last := len(p) == 1
	n.filter(func(i int) bool {
		switch {
		case p[0] != "*" && p[0] != n.step(i):
		case !last:
			n.kids[i].remove(p[1:], removed)
		case n.kind == '[':
			removed.add(n.kids[i])
			n.kids[i] = &node{kind: 'n', text: jsontext.Value("null")}
		default:
			removed.add(n.kids[i])
			return false
		}
		return true
	})
}

// filter keeps the kids of which keep says so, and asks about each once, in their order.
func (n *node) filter(keep func(i int) bool) {
	kept := 0
	for i, kid := range n.kids {
		if !keep(i) {
			continue
		}
		if kid = n.kids[i]; n.kind == '{' {
			n.names[kept] = n.names[i]
		}
		n.kids[kept] = kid
		kept++
	}
	n.kids = n.kids[:kept]
	if n.kind == '{' {
		n.names = n.names[:kept]
	}
}

// step is the token that leads to a kid.
func (n *node) step(i int) string {
	if n.kind == '[' {
		return strconv.Itoa(i)
	}
	return n.names[i]
}
