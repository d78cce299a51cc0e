package console_test

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"policy-service/pdp/console/browsertest"
	"policy-service/pdp/visible/hostile"
)

// rightsLooks are the questions about pages.
//
//go:embed testdata/looks.js
var rightsLooks string

// rightsBrowser is the browser of somebody who logs in with an API key. Each of its pages has the questions, and would
// say if a hostile text ran as a script.
func (w *rightsWorld) browser(t *testing.T, secret string, options ...browsertest.Option) *browsertest.Page {
	t.Helper()
	p := browsertest.Open(t, w.URL, options...)
	ran := "globalThis." + hostile.Runs + " = () => console.error('a hostile text ran');"
	browsertest.Call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: ran + rightsLooks})
	if secret != "" {
		p.Goto("/console/login")
		p.Fill("API key", secret)
		p.Loads(func() { p.Click("button", "Log in with the key") })
	}
	return p
}

// rightsDOM is what a page is made of, but for texts and what is said of them.
type rightsDOM struct{ Lines, Wrong []string }

// rightsMarks is what cannot be seen and is not marked, and how much is marked.
type rightsMarks struct {
	Bare          []string
	Marked, Alike int
}

func rightsResize(p *browsertest.Page, width, height int64) {
	browsertest.Call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// rightsFrom has everything that is wrong with a page by some questions.
func rightsFrom(p *browsertest.Page, questions ...string) []string {
	var calls []string
	for _, q := range questions {
		calls = append(calls, fmt.Sprintf("...looks.%s().map((x) => %q + x)", q, q+": "))
	}
	return browsertest.Eval[[]string](p, "["+strings.Join(calls, ",")+"]")
}

// Whatever stands in the fields that people are shown, the page is the harmless one with other texts: nothing of them is
// an element, an attribute, a script or a request; what cannot be seen is marked; and the buttons are where they were.
// (The browser's own faults, such as a broken content security policy, fail the test by themselves.)
func TestHostileTextsAreTexts(t *testing.T) {
	t.Parallel()
	w := openRightsHostile(t)
	p := w.browser(t, w.secret["approver"])
	sizes := [][2]int64{{1280, 800}, {390, 844}}
	look := func(id string) (dom rightsDOM, marks rightsMarks, buttons []string) {
		p.Goto("/console/approvals/" + id)
		type looked struct {
			DOM     rightsDOM   `json:"dom"`
			Marks   rightsMarks `json:"marks"`
			Buttons []string    `json:"buttons"`
		}
		for n, size := range sizes {
			rightsResize(p, size[0], size[1])
			got := browsertest.Eval[looked](p, fmt.Sprintf("({dom: %d ? {} : looks.dom(), marks: %d ? {} : looks.marks(), buttons: looks.buttons()})", n, n))
			if n == 0 {
				dom, marks = got.DOM, got.Marks
			}
			buttons = append(buttons, got.Buttons...)
		}
		return dom, marks, buttons
	}
	harmless, none, buttons := look(w.texts[1].id)
	if len(harmless.Lines) < 50 || len(harmless.Wrong)+none.Marked > 0 || len(buttons) != 4 {
		t.Fatalf("the harmless page is %q, marked %+v, with %q", harmless, none, buttons)
	}
	wrong := 0
	for _, text := range w.texts[2:] {
		dom, marks, at := look(text.id)
		fail := func(format string, arguments ...any) {
			wrong++
			t.Errorf("%.60q: %.500s", text.text, fmt.Sprintf(format, arguments...))
		}
		if diff := rightsDifference(harmless.Lines, dom.Lines); diff != "" {
			fail("the page differs: %s", diff)
		}
		if len(dom.Wrong) > 0 {
			fail("within texts is %q", dom.Wrong)
		}
		if len(marks.Bare) > 0 {
			fail("not marked: %q", marks.Bare)
		}
		if !slices.Equal(at, buttons) {
			fail("the buttons are %q, and were %q", at, buttons)
		}
		if wrong > 40 {
			t.Fatal("and so on")
		}
	}
}

// rightsDifference is the first line that two pages do not share.
func rightsDifference(want, got []string) string {
	for n := range max(len(want), len(got)) {
		at := func(lines []string) string {
			if n < len(lines) {
				return lines[n]
			}
			return "nothing"
		}
		if at(want) != at(got) {
			return fmt.Sprintf("line %d is %q, and was %q", n, at(got), at(want))
		}
	}
	return ""
}
