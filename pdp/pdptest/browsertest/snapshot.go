package browsertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
)

// Text is the text that a person sees, as the browser would copy it.
func (p *Page) Text() string {
	p.t.Helper()
	return Eval[string](p, `document.body ? document.body.innerText : ""`)
}

// Elements are all elements of the document, in order, each with the names of its attributes, sorted: "a class href".
func (p *Page) Elements() []string {
	p.t.Helper()
	root := Call(p, dom.GetDocument, dom.GetDocumentParams{Depth: new(int64(-1)), Pierce: new(true)}).Root
	var all []string
	walk(root, func(n *cdp.Node) {
		if n.NodeType != 1 {
			return
		}
		var names []string
		for i := 0; i < len(n.Attributes); i += 2 {
			names = append(names, n.Attributes[i])
		}
		slices.Sort(names)
		all = append(all, strings.Join(append([]string{n.LocalName}, names...), " "))
	})
	return all
}

func walk(n *cdp.Node, visit func(*cdp.Node)) {
	visit(n)
	for _, child := range n.Children {
		walk(child, visit)
	}
	for _, shadow := range n.ShadowRoots {
		if shadow.ShadowRootType != cdp.ShadowRootTypeUserAgent { // how the browser draws its own controls
			walk(shadow, visit)
		}
	}
	for _, within := range []*cdp.Node{n.ContentDocument, n.TemplateContent} {
		if within != nil {
			walk(within, visit)
		}
	}
}

// Screenshot is a picture of what is visible of the page, as PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	return Call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{}).Data
}

// ScreenshotWebP is [Page.Screenshot] as WebP, which is a fraction of the size at a quality of 70 of 100.
func (p *Page) ScreenshotWebP(quality int) []byte {
	p.t.Helper()
	return Call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatWebp, Quality: new(int64(quality)),
	}).Data
}

// silent are roles that say nothing to a person: what is in them is told as if they were not there.
var silent = []string{"none", "generic", "InlineTextBox", "LineBreak"}

// shown are the properties that a tree shows, in this order.
var shown = []string{"focused", "required", "disabled", "invalid", "readonly", "expanded", "checked", "selected", "level"}

// Tree is the accessibility tree as text: a line for each node with its role, name, value and state, indented by depth.
// Text is a line of its own where it is not the name of what it stands in.
func (p *Page) Tree() string {
	p.t.Helper()
	nodes := map[accessibility.NodeID]*accessibility.Node{}
	all := p.nodes()
	for _, n := range all {
		nodes[n.NodeID] = n
	}
	var out strings.Builder
	var print func(n *accessibility.Node, depth int, within string)
	print = func(n *accessibility.Node, depth int, within string) {
		role, name := text(n.Role), text(n.Name)
		inner := spaced(name)
		switch {
		case n.Ignored || slices.Contains(silent, role), role == "form" && name == "": // such a form Chromium tells of since 156
			inner = within
		case role == "StaticText" && strings.Contains(within, spaced(name)):
			return
		case role == "StaticText":
			fmt.Fprintf(&out, "%*stext %q\n", 2*depth, "", name)
			return
		default:
			fmt.Fprintf(&out, "%*s%s%s\n", 2*depth, "", role, details(n))
			depth++
		}
		for _, id := range n.ChildIDs {
			if child := nodes[id]; child != nil {
				print(child, depth, inner)
			}
		}
	}
	if len(all) > 0 {
		print(all[0], 0, "")
	}
	return out.String()
}

func details(n *accessibility.Node) string {
	var all string
	if name := spaced(text(n.Name)); name != "" {
		all += fmt.Sprintf(" %q", name)
	}
	if value := text(n.Value); value != "" {
		all += fmt.Sprintf(" value=%q", value)
	}
	if description := text(n.Description); description != "" {
		all += fmt.Sprintf(" description=%q", description)
	}
	for _, name := range shown {
		if value := property(n, name); value != "" && value != "false" {
			all += " " + strings.TrimSuffix(name+"="+value, "=true")
		}
	}
	return all
}

// property is a property of a node, "" if it has none of that name.
func property(n *accessibility.Node, name string) string {
	for _, property := range n.Properties {
		if string(property.Name) == name {
			return text(property.Value)
		}
	}
	return ""
}

// text is a value, which is a JSON string, number or boolean.
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	if json.Unmarshal(v.Value, &s) == nil {
		return s
	}
	return string(v.Value)
}
