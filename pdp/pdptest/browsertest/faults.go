package browsertest

import (
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
)

// Expect says that something is to go wrong on the page, named by a part of how it is reported: whatever is reported with
// it fails the test no more, and the test fails if nothing is.
func (p *Page) Expect(parts ...string) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.watch.expected = append(p.watch.expected, parts...)
}

// Await is [Page.Expect], and waits until it has happened.
func (p *Page) Await(part string) {
	p.t.Helper()
	p.Expect(part)
	limit := time.After(patience)
	for !slices.ContainsFunc(p.watch.faults(), func(fault string) bool { return strings.Contains(fault, part) }) {
		select {
		case <-p.watch.changed:
		case <-limit:
			p.t.Fatalf("%q was to go wrong within %v, and did not%s", part, patience, p.where())
		}
	}
}

// Faults are what went wrong so far, in order. A test needs it only to look: they fail it by themselves.
func (p *Page) Faults() []string {
	p.t.Helper()
	Call(p, page.GetFrameTree, cdp.Empty{}) // events that were on their way come before its answer
	return p.watch.faults()
}

// judge fails the test for what went wrong and was not expected, and for what was expected and did not.
func (p *Page) judge() {
	p.t.Helper()
	if p.ctx.Err() != nil {
		p.t.Errorf("the browser ended before the test: %v", p.ctx.Err())
		return
	}
	faults := p.Faults()
	for _, fault := range faults {
		if !slices.ContainsFunc(p.watch.expected, func(part string) bool { return strings.Contains(fault, part) }) {
			p.t.Errorf("%s\non %s", fault, p.URL())
		}
	}
	for _, part := range p.watch.expected {
		if !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, part) }) {
			p.t.Errorf("%q was to go wrong, and did not; this did: %q", part, faults)
		}
	}
}
