package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"policy-service/pdp/pdptest/browsertest"
)

// everyPage opens each kind of page that the console has, and has it looked at.
func everyPage(t *testing.T, w *rightsWorld, look func(p *browsertest.Page, what string)) {
	ids := map[string]string{}
	states := rightsStates()
	for _, s := range states {
		if s.name == rightsExpired {
			ids[s.name] = w.makes(s)
		}
	}
	nobody := w.browser(t, "", append(rightsCalm(), browsertest.Origins(w.provider.URL))...)
	nobody.Goto("/console/login")
	look(nobody, "login")
	nobody.Fill("API key", "psk_wrong")
	nobody.Answers(http.StatusUnauthorized, func() { nobody.Click("button", "Log in with the key") })
	look(nobody, "login that failed")
	nobody.Refused("/console/login/callback?error=access_denied&state=x", http.StatusBadRequest)
	look(nobody, "answer of a provider that nobody asked")

	p := w.browser(t, w.secret["approver"], rightsCalm()...)
	p.Goto("/console/approvals")
	look(p, "empty inbox")
	p.Goto("/console/approvals?tab=said")
	look(p, "empty tab")
	for _, s := range states {
		if s.name != rightsExpired {
			ids[s.name] = w.makes(s)
		}
	}
	for _, path := range []string{"?tab=mine", "?tab=said", "?tab=done", "?tab=mine&tenant=default&template=owner", "?tab=mine&subject=nobody"} {
		p.Goto("/console/approvals" + path)
		look(p, "inbox "+path)
	}
	for _, s := range states {
		if w.api("approver", http.MethodGet, "/v1/approvals/"+ids[s.name], "").Status == http.StatusOK {
			p.Goto("/console/approvals/" + ids[s.name])
			look(p, s.name)
		}
	}
	p.Refused("/console/approvals/none", http.StatusNotFound)
	look(p, "not found")
	rightsTries(p, ids["pending"], http.StatusUnprocessableEntity, func() {})
	look(p, "without a reason")
	rightsTries(p, ids["half approved"], http.StatusConflict, func() {
		w.says("approver", ids["half approved"], "decision", rightsNo)
	})
	look(p, "out of date")
	p.Goto("/console/approvals/" + ids["delegated"])
	p.Fill("Reason", "fine")
	p.Loads(func() { p.Click("button", "Approve") })
	look(p, "decided")

	auditor := w.browser(t, w.secret["everything"], rightsCalm()...)
	for _, path := range []string{"", "?kind=all", "?subject=nobody", "?approval=" + ids["delegated"]} {
		auditor.Goto("/console/decisions" + path)
		look(auditor, "records "+path)
	}
	auditor.Goto("/console/decisions?decision=waiting")
	auditor.Goto(browsertest.Eval[string](auditor, "document.querySelector('a[data-row]').href"))
	look(auditor, "record")
	auditor.Refused("/console/decisions?from=never", http.StatusBadRequest)
	look(auditor, "records of no time")

	asked := w.browser(t, w.secret["asked"], rightsCalm()...)
	asked.Goto("/console/approvals/" + ids["pending"])
	look(asked, "of one's own")
	asked.Loads(func() { asked.Click("button", "Log out") })
	look(asked, "logged out")
}

// rightsCalm is somebody whose pages do not move, on a server with a certificate of its own authority.
func rightsCalm() []browsertest.Option {
	return []browsertest.Option{browsertest.AnyCertificate(), browsertest.Media(rightsStill.Name, rightsStill.Value)}
}

// rightsTries sends the form of a page past what the browser demands, after something has happened.
func rightsTries(p *browsertest.Page, id string, want int, happens func()) {
	p.Goto("/console/approvals/" + id)
	happens()
	browsertest.Eval[bool](p, "document.querySelector('form.deciding').noValidate = true")
	if want == http.StatusConflict {
		p.Fill("Reason", "fine")
	}
	p.Answers(want, func() { p.Click("button", "Approve") })
}

// nameless matches a line of an accessibility tree with what must have a name, and has none.
var nameless = regexp.MustCompile(`(?m)^ *(button|link|textbox|combobox|checkbox|radio|DisclosureTriangle|heading|region|navigation|searchbox|listbox|form)( [a-z].*)?$`)

// rightsStill has nothing move: a colour that is between two others is none of the page's.
var rightsStill = &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"}

func rightsMedia(p *browsertest.Page, media string, features ...string) {
	params := emulation.SetEmulatedMediaParams{Media: media, Features: []*emulation.MediaFeature{rightsStill}}
	for n := 0; n+1 < len(features); n += 2 {
		params.Features = append(params.Features, &emulation.MediaFeature{Name: features[n], Value: features[n+1]})
	}
	browsertest.Call(p, emulation.SetEmulatedMedia, params)
}

// Every page loads from the console alone and has no style or script of its own; has a name for each control; can be
// read in light, in dark, in forced colours, at four times the size and on paper; and can be used by keyboard and finger.
// It takes more than a second: a browser lays out some 28 pages, and five of them in seven ways.
func TestEveryPageCanBeUsed(t *testing.T) {
	t.Parallel()
	w := openRights(t, rightsPeople())
	looked := 0
	everyPage(t, w, func(p *browsertest.Page, what string) {
		looked++
		wrong := func(where string, all []string) {
			for _, one := range all {
				t.Errorf("%s, %s: %s", what, where, one)
			}
		}
		wrong("wide", rightsFrom(p, "own", "structure", "contrast", "targets", "sideways"))
		wrong("the tree", nameless.FindAllString(p.Tree(), -1))
		if testing.Short() && !slices.Contains(rightsKinds, what) {
			return
		}
		wrong("the keyboard", rightsTabs(p))
		rightsMedia(p, "", "prefers-color-scheme", "dark")
		wrong("dark", rightsFrom(p, "contrast"))
		rightsMedia(p, "", "forced-colors", "active")
		wrong("forced colours", rightsFrom(p, "contrast", "borders"))
		rightsMedia(p, "print")
		wrong("print", rightsFrom(p, "print"))
		rightsMedia(p, "")
		rightsResize(p, 390, 844)
		wrong("narrow", rightsFrom(p, "targets", "sideways", "structure"))
		rightsResize(p, 320, 256) // 1280 by 1024 at 400 %
		wrong("at 400 %", rightsFrom(p, "sideways", "reach"))
		rightsResize(p, 1280, 800)
	})
	if looked < 20 {
		t.Errorf("%d pages", looked)
	}
}

// rightsKinds has a page of each kind: these are looked at in every way, also in the gate.
var rightsKinds = []string{"login that failed", "inbox ?tab=mine", "delegated", "out of date", "not found"}

// rightsTabs goes through all controls of a page by keyboard.
func rightsTabs(p *browsertest.Page) (wrong []string) {
	browsertest.Eval[bool](p, "document.activeElement.blur() ?? true")
	stops, seen := browsertest.Eval[int](p, "looks.stops()"), map[string]bool{}
	for range stops + 1 { // the link that skips what comes before the content is not shown until one is there
		p.Press("Tab")
		at := browsertest.Eval[string](p, "looks.focus()")
		if strings.Contains(at, ": it") {
			wrong = append(wrong, at)
		}
		seen[at] = true
	}
	if len(seen) < min(stops, 3) {
		wrong = append(wrong, fmt.Sprintf("it reaches %d of %d controls", len(seen), stops))
	}
	return wrong
}
