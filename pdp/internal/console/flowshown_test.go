package console_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"policy-service/pdp/internal/visible/hostile"
	"policy-service/pdp/pdptest/browsertest"
)

// longScript is an argument that pages cut.
var longScript = `{"script":"` + strings.Repeat("echo step; ", 40) + longEnd + `"}`

// TestBrowserApprovesWhatWasShown has somebody approve what is cut: once they follow the link, or read on after they are
// refused. A second click, where Approve was, approves nothing.
func TestBrowserApprovesWhatWasShown(t *testing.T) {
	t.Parallel()
	onScreens(t, flowScreens, func(t *testing.T, f *flow, screen []browsertest.Option) {
		id := f.asks("agent-release", "github.push_code", longScript)
		p := f.open("alice", screen...)
		p.Goto("/console/approvals/" + id)
		readyToDecide(t, p)
		if text := p.Text(); strings.Contains(text, longEnd) || !strings.Contains(text, "Not all is shown: 1 text is cut.") {
			t.Errorf("the page says %s", text)
		}
		before := p.Box(p.Find("button", "Approve"))
		p.Type(flowReason)
		p.Answers(http.StatusUnprocessableEntity, func() { p.Click("button", "Approve") })
		f.untouched(id)
		readyToDecide(t, p)
		if text := p.Text(); !strings.Contains(text, longEnd) || !strings.Contains(text, "You had not seen all of it; here it is whole.") {
			t.Errorf("the page says %s", text)
		}
		if now := p.Box(p.Find("button", "Approve")); now.Y+now.Height > before.Y {
			t.Errorf("Approve is at %v, and was at %v", now, before)
		}
		p.Loads(func() { p.Click("button", "Approve") }) // the reason is there still
		f.decided(id, "approved", byConsole("approve", "alice", flowReason))

		id = f.asks("agent-nightly", "github.push_code", longScript)
		p.Goto("/console/approvals")
		p.Loads(func() { p.Click("link", "agent-nightly") })
		p.Loads(func() { p.Click("link", "Show all of it") })
		readyToDecide(t, p)
		p.Type("all read")
		p.Loads(func() { p.Click("button", "Approve") })
		f.decided(id, "approved", byConsole("approve", "alice", "all read"))

		id = f.asks("agent-nightly", "github.push_code", strings.Replace(longScript, "step", "other", 1))
		p.Goto("/console/approvals/" + id)
		p.Type("too long")
		p.Loads(func() { p.Click("button", "Deny") })
		f.decided(id, "denied", byConsole("deny", "alice", "too long"))
	})
}

// asked and askedBefore are arguments of all kinds, of which some differ.
const (
	asked       = `{"environment":"production","replicas":10000,"dry_run":false,"repository":"shop","command":"deploy --force --all-the-regions --without-asking-anybody","files":[{"path":"a.sh","mode":"0777"},{"path":"b","mode":"0644"}],"mail":"Dear all,\n\nwe deploy at midnight.\n\nThe team","added":[1]}`
	askedBefore = `{"environment":"staging","replicas":10,"dry_run":true,"repository":"shop","command":"deploy --all-the-regions --after-asking-somebody","files":[{"path":"a.sh","mode":"0600"},{"path":"b","mode":"0644"}],"mail":"Dear all,\n\nwe deploy at noon.\n\nThe team","gone":{"a":1}}`
)

// asksAgain has an agent ask for something, mia approve it, and the agent ask for something else later.
func (f *flow) asksAgain(before, now string) (id string) {
	f.t.Helper()
	last := f.asks("agent-release", "github.push_code", before)
	f.api("mia", http.MethodPost, "/v1/approvals/"+last+"/decision", `{"decision":"approve","reason":"tests are green"}`, new(any))
	f.Advance(5 * time.Hour)
	return f.asks("agent-release", "github.push_code", now)
}

// TestBrowserDifferences looks at a page that says what differs from the last time.
func TestBrowserDifferences(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	id := f.asksAgain(askedBefore, asked)
	p := f.open("alice")
	browsertest.Call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: rightsLooks})
	p.Goto("/console/approvals/" + id)
	readyToDecide(t, p)
	for _, want := range []string{
		`cell "new: \"production\""`, `cell "last time: was: \"staging\""`, `columnheader "Last time"`, `cell "new: 10000"`, `cell "last time: was: 10"`,
		"insertion", "deletion",
	} {
		if !strings.Contains(p.Tree(), want) {
			t.Errorf("there is no %s in\n%s", want, p.Tree())
		}
	}
	for _, width := range []int64{1280, 390} {
		rightsResize(p, width, 844)
		for _, theme := range []string{"light", "dark"} {
			rightsMedia(p, "", "prefers-color-scheme", theme)
			if wrong := rightsFrom(p, "own", "structure", "contrast", "targets", "sideways"); len(wrong) > 0 {
				t.Errorf("%d wide, %s: %q", width, theme, wrong)
			}
		}
	}
	rightsMedia(p, "", "forced-colors", "active")
	if wrong := rightsFrom(p, "contrast", "borders"); len(wrong) > 0 {
		t.Errorf("forced colours: %q", wrong)
	}
	rightsResize(p, 1280, 844)
	rightsMedia(p, "print")
	if wrong := rightsFrom(p, "print"); len(wrong) > 0 {
		t.Errorf("print: %q", wrong)
	}
}

// TestBrowserHostileDifferences has a hostile text now, and another one the last time, in every kind of value.
func TestBrowserHostileDifferences(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	p := f.open("alice")
	ran := "globalThis." + hostile.Runs + " = () => console.error('a hostile text ran');"
	browsertest.Call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: ran + rightsLooks})
	texts := someOf(rightsTogether(hostile.UTF8()))
	of := func(n int) string {
		text := rightsJSON(rightsBrief(texts[n%len(texts)], 400))
		name := text
		if rightsSecret.MatchString(text) { // its value would be masked
			name = `"name"`
		}
		return `{"1":` + text + `,` + name + `:1,"in":{` + name + `:` + text + `,"list":[` + text + `]},"lines":` + rightsJSON("a\n"+rightsBrief(texts[n%len(texts)], 400)+"\nb") + `}`
	}
	last := f.asks("agent-release", "github.push_code", of(0))
	for n := range texts {
		f.api("mia", http.MethodPost, "/v1/approvals/"+last+"/decision", `{"decision":"deny","reason":"later"}`, new(any))
		f.Advance(time.Second)
		id := f.asks("agent-release", "github.push_code", of(n+1))
		last = id
		p.Goto("/console/approvals/" + id + "?whole")
		dom, marks := browsertest.Eval[rightsDOM](p, "looks.dom()"), browsertest.Eval[rightsMarks](p, "looks.marks()")
		if len(dom.Wrong)+len(marks.Bare) > 0 {
			t.Errorf("%.60q: within texts is %.500q; not marked is %.500q", texts[n], dom.Wrong, marks.Bare)
		}
		if wrong := rightsFrom(p, "own", "sideways"); len(wrong) > 0 {
			t.Errorf("%.60q: %q", texts[n], wrong)
		}
		if browsertest.Eval[int](p, `document.querySelectorAll(".box ins, .box del").length`) == 0 {
			t.Errorf("%.60q: nothing differs", texts[n])
		}
		for _, tag := range browsertest.Eval[[]string](p, `[...document.querySelectorAll(".box *")].map((e) => e.localName)`) {
			if !slices.Contains(strings.Fields("table thead tbody tr th td bdi bdo span ins del p ul li"), tag) {
				t.Errorf("%.60q makes %s", texts[n], tag)
			}
		}
	}
}
