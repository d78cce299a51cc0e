package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	cdp "github.com/chromedp/cdproto/page"

	"policy-service/pdp/pdptest/browsertest"
)

// On pages that come with soon, the times that scripts wait for pass a thousand times as fast, except for the time after which a
// stream counts as cut. With cut that passes as fast, too.
const (
	soon = `{ const wait = window.setTimeout; window.setTimeout = (f, ms) => wait(f, ms === 45000 ? ms : ms / 1000); }`
	cut  = `{ const wait = window.setTimeout; window.setTimeout = (f, ms) => wait(f, ms / 1000); }`
)

// before runs a script on each page that comes, before the page's own.
func before(p *browsertest.Page, script string) {
	browsertest.Call(p, cdp.AddScriptToEvaluateOnNewDocument, cdp.AddScriptToEvaluateOnNewDocumentParams{Source: script})
}

// until waits until an expression of JavaScript holds on a page, which stays there meanwhile.
func until(p *browsertest.Page, expression string) {
	browsertest.Eval[bool](p, `new Promise((done) => { const look = () => `+expression+` ? done(true) : requestAnimationFrame(look); look(); })`)
}

func title(p *browsertest.Page) string { return browsertest.Eval[string](p, "document.title") }

// denies has frank deny by the API.
func (f *flow) denies(id string) {
	f.t.Helper()
	f.api("frank", http.MethodPost, "/v1/approvals/"+id+"/decision", `{"decision":"deny","reason":"no"}`, &struct{}{})
}

// What comes and goes elsewhere comes and goes on the page that is open, with its numbers. The focus stays where it was, and
// what is typed is not lost.
func TestInboxIsLive(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	p := f.open("alice")
	before(p, soon)
	p.Goto("/console/approvals")
	if got := title(p); got != "Inbox · policy-service" || !p.Has("link", "Mine to decide") {
		t.Errorf("the title is %q", got)
	}
	var first, second string
	p.Loads(func() { first = f.push("agent-one") })
	if got := title(p); got != "(1) Inbox · policy-service" || !p.Has("link", "Mine to decide 1") || !p.Has("link", "Inbox with 1 that wait for you") {
		t.Errorf("the title is %q\n%s", got, p.Tree())
	}
	if text := p.Text(); !strings.Contains(text, "agent/agent-one") || !strings.Contains(text, "The list has changed.") {
		t.Errorf("got %s", text)
	}
	p.Press("j")
	row := p.Focus()
	p.Loads(func() { second = f.push("agent-two") })
	if at := p.Focus(); at.Name != row.Name || !strings.Contains(at.Name, "agent-one") || title(p) != "(2) Inbox · policy-service" {
		t.Errorf("the focus was at %v and is at %v", row, at)
	}
	p.Loads(func() { f.denies(second) }) // elsewhere
	if text := p.Text(); strings.Contains(text, "agent-two") || title(p) != "(1) Inbox · policy-service" {
		t.Errorf("it is still there: %s", text)
	}
	p.Click("DisclosureTriangle", "Filter")
	p.Fill("Template", "team")
	f.denies(first)
	until(p, `document.title === "Inbox · policy-service"`)
	if text := p.Text(); !strings.Contains(text, "agent-one") || p.Has("link", "Mine to decide 1") {
		t.Errorf("what is typed was lost: %s", text)
	}
	p.Loads(func() {
		browsertest.Eval[bool](p, `(document.activeElement.value = "", document.activeElement.blur(), true)`)
	})
	if text := p.Text(); strings.Contains(text, "agent-one") {
		t.Errorf("it is still there: %s", text)
	}
}

// Of all pages of a browser one has the stream. The others hear from it, and only their numbers change where there is no list.
func TestTabsShareOneStream(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	id := f.push("agent-one")
	p := f.open("alice")
	request := p.Tab()
	for _, one := range []*browsertest.Page{p, request} {
		before(one, soon)
	}
	p.Goto("/console/approvals?tab=done")
	request.Goto("/console/approvals/" + id)
	request.Type("half a reason")
	p.Loads(func() { f.push("agent-two") })
	until(request, `document.title.startsWith("(2) Request ")`)
	if got := browsertest.Eval[string](request, `document.querySelector("[name=reason]").value`); got != "half a reason" || !request.Has("link", "Inbox with 2 that wait for you") {
		t.Errorf("the reason is %q", got)
	}
	const locks = `navigator.locks.query().then((all) => all.held.length + " " + all.pending.length)`
	if got := browsertest.Eval[string](p, locks); got != "1 1" {
		t.Errorf("held and awaited are %s", got)
	}
	if p.Text(); title(p) != "(2) Inbox · policy-service" {
		t.Errorf("the title is %q", title(p))
	}
}

// Where events do not come through, or a browser has none, the script asks instead.
func TestCutStreamIsPolled(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"kept by a proxy": `window.EventSource = class extends EventTarget { close() { window.cut = true; } };`,
		"refused":         `window.EventSource = class extends EventTarget { static CLOSED = 2; readyState = 2; constructor() { super(); setTimeout(() => this.dispatchEvent(new Event("error"))); } close() { window.cut = true; } };`,
		"without events":  `delete window.EventSource; window.cut = true;`,
		"without locks":   `Object.defineProperty(navigator, "locks", {value: undefined}); window.cut = true;`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFlow(t)
			p := f.open("alice")
			before(p, cut+script)
			p.Goto("/console/approvals")
			p.Loads(func() { f.push("agent-one") })
			if text := p.Text(); !strings.Contains(text, "agent/agent-one") {
				t.Errorf("got %s", text)
			}
			until(p, "window.cut")
		})
	}
}

// A page whose person is logged out elsewhere asks no more. Without scripts nothing is asked, and the page that is opened again
// is up to date.
func TestInboxOfSessionThatIsOver(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	p := f.open("alice")
	p.Expect("load failed: EventSource 401", "load failed: Fetch 401")
	before(p, soon+(`const ask = fetch; window.asked = []; window.fetch = (...all) => ask(...all).then((r) => { window.asked.push(r.status); return r; });`))
	p.Goto("/console/approvals")
	f.revoke("alice")
	until(p, "window.asked.length === 1")
	if got := browsertest.Eval[string](p, `new Promise((done) => setTimeout(() => done(String(window.asked)), 50000))`); got != "401" {
		t.Errorf("it asks again: %s", got)
	}
}

func TestInboxWithoutScript(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	p := f.open("alice", browsertest.WithoutScript())
	id := f.push("agent-one")
	f.asks("agent-one", "github.push_code", `{"branch":"next","repository":"shop"}`)
	p.Reload()
	if text := p.Text(); title(p) != "(2) Inbox · policy-service" || !strings.Contains(text, `branch: "main"`) || !strings.Contains(text, `branch: "next"`) {
		t.Errorf("got %q: %s", title(p), text)
	}
	f.denies(id)
	p.Loads(func() { p.Click("link", "Done") })
	if text := p.Text(); !strings.Contains(text, "Denied") || title(p) != "(1) Inbox · policy-service" {
		t.Errorf("got %q: %s", title(p), text)
	}
}

// A page that loads itself anew, again and again, keeps no person logged in who is not there.
func TestLiveInboxIsNoUse(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	p := f.open("alice")
	before(p, soon)
	p.Goto("/console/approvals")
	f.Advance(20 * time.Minute)
	p.Loads(func() { f.push("agent-one") })
	p.GotoUnanswered("about:blank") // else its stream may be asked for once more, and refused
	f.Advance(10 * time.Minute)
	if p.Goto("/console/approvals"); p.Path() != "/console/login" {
		t.Errorf("it is logged in, at %s", p.Path())
	}
}
