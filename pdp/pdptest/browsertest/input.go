package browsertest

import (
	"context"
	"strings"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Click clicks once on the element with a role and an accessible name, as [Page.Find] finds it: by the mouse, at its
// middle. What is off the screen is scrolled to first. The test fails if something else would get the click.
func (p *Page) Click(role, name string) {
	p.t.Helper()
	p.click(role, name, 1)
}

// DoubleClick clicks twice, before the page can answer the first click.
func (p *Page) DoubleClick(role, name string) {
	p.t.Helper()
	p.click(role, name, 2)
}

func (p *Page) click(role, name string, times int) {
	p.t.Helper()
	n := p.Find(role, name)
	Call(p, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: n.Element})
	x, y := p.point(n)
	if !p.hits(n, x, y) {
		p.t.Fatalf("%s %q is covered by something else at %v,%v%s", role, n.Name, x, y, p.where())
	}
	p.clicks += times
	p.mouse(input.DispatchMouseEventParams{Type: chromedp.MouseMoved, X: x, Y: y})
	for n := range times {
		at := input.DispatchMouseEventParams{X: x, Y: y, Button: input.MouseButtonLeft, Buttons: 1, ClickCount: int64(n + 1)}
		at.Type = chromedp.MousePressed
		p.mouse(at)
		at.Type, at.Buttons = chromedp.MouseReleased, 0
		p.mouse(at)
	}
}

func (p *Page) mouse(e input.DispatchMouseEventParams) {
	p.t.Helper()
	Call(p, input.DispatchMouseEvent, e)
}

// Clicks counts the clicks so far.
func (p *Page) Clicks() int { return p.clicks }

// Presses counts the keys that were pressed so far, without what was typed.
func (p *Page) Presses() int { return p.presses }

// Type types a text, key by key, into what has the focus.
func (p *Page) Type(text string) {
	p.t.Helper()
	_, err := run(p, chromedp.KeyEvent(text))
	p.must(err)
}

// Fill clicks on a field with an accessible name, and types a text into it.
func (p *Page) Fill(name, text string) {
	p.t.Helper()
	role := "textbox"
	if !p.Has(role, name) {
		role = "combobox" // one that offers something to choose
	}
	p.Click(role, name)
	p.Type(text)
}

// keys are those that type no character, by name.
var keys = map[string]string{"Tab": kb.Tab, "Enter": kb.Enter, "Escape": kb.Escape, "Space": " ",
	"ArrowUp": kb.ArrowUp, "ArrowDown": kb.ArrowDown, "PageDown": kb.PageDown, "End": kb.End}

// Press presses keys, one after the other: Tab, Shift+Tab, Enter, Space, Escape, and others by their character.
func (p *Page) Press(names ...string) {
	p.t.Helper()
	for _, name := range names {
		key, shift := strings.CutPrefix(name, "Shift+")
		if known, ok := keys[key]; ok {
			key = known
		} else if len([]rune(key)) != 1 {
			p.t.Fatalf("no key has the name %s", name)
		}
		var with []chromedp.KeyOption
		if shift {
			with = append(with, chromedp.KeyModifiers(chromedp.ModifierShift))
		}
		p.presses++
		_, err := run(p, chromedp.KeyEvent(key, with...))
		p.must(err)
	}
}

// TabTo presses Tab until the element with a role and a name has the focus, and returns how often. The test fails if it
// never gets there.
func (p *Page) TabTo(role, name string) int {
	p.t.Helper()
	to := p.Find(role, name)
	var order []string
	for n := range 200 {
		at := p.Focus()
		if at.Element == to.Element {
			return n
		}
		order = append(order, at.Role+" "+at.Name)
		p.Press("Tab")
	}
	p.t.Fatalf("Tab does not lead to %s %q, but to %q%s", role, name, order, p.where())
	return 0
}

// run is an action of the library, which may not take for ever.
func run[T any](p *Page, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// FocusOn gives the focus to an element, as a person does who gets there in some way.
func (p *Page) FocusOn(n Node) {
	p.t.Helper()
	Call(p, dom.Focus, dom.FocusParams{BackendNodeID: n.Element})
}
