package browsertest

import (
	"math"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
)

// Node is an element as assistive technology is told of it.
type Node struct {
	Role, Name string
	// Element names it to commands of the DevTools protocol.
	Element cdp.BackendNodeID
}

// Find returns the one element with a role and an accessible name. If none has exactly that name, it is the one whose name
// contains it. The test fails if there is none, or several.
func (p *Page) Find(role, name string) Node {
	p.t.Helper()
	found := p.All(role, name)
	if len(found) != 1 {
		p.t.Fatalf("%d of %s %q, not 1%s\n%s", len(found), role, name, p.where(), p.Tree())
	}
	return found[0]
}

// Has says if there is an element with a role and a name, as [Page.Find] looks for it.
func (p *Page) Has(role, name string) bool {
	p.t.Helper()
	return len(p.All(role, name)) > 0
}

// All returns the elements with a role and exactly a name, or, if there are none, those whose name contains it, in order.
func (p *Page) All(role, name string) []Node {
	p.t.Helper()
	var exact, within []Node
	for _, n := range p.nodes() {
		node := Node{Role: text(n.Role), Name: spaced(text(n.Name)), Element: n.BackendDOMNodeID}
		if n.Ignored || node.Role != role {
			continue
		}
		if node.Name == name {
			exact = append(exact, node)
		}
		if strings.Contains(node.Name, name) {
			within = append(within, node)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return within
}

// spaced is a text with its runs of white space as one space each, and none around it: a label that is wrapped around its
// field ends in one, which nobody hears.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// Focus returns what has the focus: the document, if no element has.
func (p *Page) Focus() Node {
	p.t.Helper()
	var last Node
	for _, n := range p.nodes() {
		if property(n, "focused") == "true" {
			last = Node{Role: text(n.Role), Name: spaced(text(n.Name)), Element: n.BackendDOMNodeID}
		}
	}
	return last
}

func (p *Page) nodes() []*accessibility.Node {
	p.t.Helper()
	return Call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
}

// Rect is where something is drawn, in CSS pixels from the upper left corner of what is visible of the page.
type Rect struct{ X, Y, Width, Height float64 }

// Box is where an element is drawn.
func (p *Page) Box(n Node) Rect {
	p.t.Helper()
	quads := Call(p, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: n.Element}).Quads
	if len(quads) == 0 {
		p.t.Fatalf("%s %q is not drawn%s", n.Role, n.Name, p.where())
	}
	left, top, right, bottom := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, quad := range quads {
		for i := 0; i+1 < len(quad); i += 2 {
			left, right = min(left, quad[i]), max(right, quad[i])
			top, bottom = min(top, quad[i+1]), max(bottom, quad[i+1])
		}
	}
	return Rect{left, top, right - left, bottom - top}
}

// InView says if all of an element can be seen without scrolling, and nothing covers its middle.
func (p *Page) InView(n Node) bool {
	p.t.Helper()
	box, view := p.Box(n), Call(p, page.GetLayoutMetrics, cdp.Empty{}).CSSLayoutViewport
	inside := box.X >= 0 && box.Y >= 0 && box.X+box.Width <= float64(view.ClientWidth) && box.Y+box.Height <= float64(view.ClientHeight)
	x, y := p.point(n)
	return inside && p.hits(n, x, y)
}

// point is the middle of the first part of an element that is drawn: a link over two lines has two.
func (p *Page) point(n Node) (x, y float64) {
	p.t.Helper()
	quads := Call(p, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: n.Element}).Quads
	if len(quads) == 0 {
		p.t.Fatalf("%s %q is not drawn%s", n.Role, n.Name, p.where())
	}
	q := quads[0]
	return math.Floor((q[0] + q[2] + q[4] + q[6]) / 4), math.Floor((q[1] + q[3] + q[5] + q[7]) / 4)
}

// hits says if what a person points at there is the element, or within it.
func (p *Page) hits(n Node, x, y float64) bool {
	p.t.Helper()
	scrolled := Call(p, page.GetLayoutMetrics, cdp.Empty{}).CSSVisualViewport
	hit := Call(p, dom.GetNodeForLocation, dom.GetNodeForLocationParams{
		X: int64(x + scrolled.PageX), Y: int64(y + scrolled.PageY),
	}).BackendNodeID
	of := Call(p, dom.DescribeNode, dom.DescribeNodeParams{BackendNodeID: n.Element, Depth: new(int64(-1))})
	return contains(of.Node, hit)
}

func contains(n *cdp.Node, id cdp.BackendNodeID) bool {
	if n.BackendNodeID == id {
		return true
	}
	for _, child := range slices.Concat(n.Children, n.PseudoElements) {
		if contains(child, id) {
			return true
		}
	}
	return false
}
