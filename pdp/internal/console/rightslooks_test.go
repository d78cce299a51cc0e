package console_test

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"policy-service/pdp/internal/visible/hostile"
	"policy-service/pdp/pdptest/browsertest"
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
// It takes more than a second: a browser lays out a page for each text.
func TestHostileTextsAreTexts(t *testing.T) {
	t.Parallel()
	w := openRightsHostile(t)
	p := w.browser(t, w.secret["approver"])
	t.Run("request", w.requests(p))
	t.Run("inbox", w.inbox(p))
}

// rightsLook is what is seen of the page of an approval request: the buttons on a wide screen, and then on a narrow one.
type rightsLook struct {
	DOM     rightsDOM   `json:"dom"`
	Marks   rightsMarks `json:"marks"`
	Buttons []string    `json:"buttons"`
}

// rightsLookAt looks on a narrow screen as well if it is told to: to lay a long text out twice takes long.
func rightsLookAt(p *browsertest.Page, id string, narrow bool) rightsLook {
	p.Goto("/console/approvals/" + id)
	seen := browsertest.Eval[rightsLook](p, "({dom: looks.dom(), marks: looks.marks(), buttons: looks.buttons()})")
	if narrow {
		rightsResize(p, 390, 844)
		seen.Buttons = append(seen.Buttons, browsertest.Eval[[]string](p, "looks.buttons()")...)
		rightsResize(p, 1280, 800)
	}
	return seen
}

func (w *rightsHostileWorld) requests(p *browsertest.Page) func(*testing.T) {
	return func(t *testing.T) {
		rightsResize(p, 1280, 800)
		harmless := rightsLookAt(p, w.texts[1].id, true)
		others := harmless.Marks // in the names of those who may decide, which stand on each page
		if len(harmless.DOM.Lines) < 50 || len(harmless.DOM.Wrong) > 0 || others.Marked > 1 || len(harmless.Buttons) != 4 {
			t.Fatalf("the harmless page has %q, %+v and %d lines; within texts is %q", harmless.Buttons, harmless.Marks, len(harmless.DOM.Lines), harmless.DOM.Wrong)
		}
		if strings.Contains(strings.Join(harmless.Buttons, ""), "under") {
			t.Errorf("the buttons are %q", harmless.Buttons)
		}
		unmarked := 0
		for n, text := range w.texts[2:] {
			seen := rightsLookAt(p, text.id, n%4 == 0)
			if diff := rightsDifference(harmless.DOM.Lines, seen.DOM.Lines); diff != "" {
				t.Errorf("%.60q: the page differs: %.500s", text.text, diff)
			}
			if len(seen.DOM.Wrong)+len(seen.Marks.Bare) > 0 {
				t.Errorf("%.60q: within texts is %.500q; not marked is %.500q", text.text, seen.DOM.Wrong, seen.Marks.Bare)
			}
			if !slices.Equal(seen.Buttons, harmless.Buttons[:len(seen.Buttons)]) {
				t.Errorf("%.60q: the buttons are %q, and were %q", text.text, seen.Buttons, harmless.Buttons)
			}
			if seen.Marks.Alike <= others.Alike && rightsMixed(text.text) {
				t.Errorf("%.60q: a letter of another alphabet is not marked", text.text)
			}
			if seen.Marks.Marked <= others.Marked {
				unmarked++
			}
		}
		if unmarked > len(w.texts)/2+10 { // the others are of letters that are what they look like
			t.Errorf("of %d pages %d have no mark", len(w.texts), unmarked)
		}
	}
}

// rightsMixed says if a word has letters of Latin and of an alphabet with letters that look like them.
func rightsMixed(text string) bool {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin, other := false, false
		for _, r := range word {
			latin = latin || unicode.Is(unicode.Latin, r) && r < unicode.MaxLatin1
			other = other || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee)
		}
		if latin && other {
			return true
		}
	}
	return false
}

// inbox looks at all pages of the inbox, where each row is a harmless one with other texts.
func (w *rightsHostileWorld) inbox(p *browsertest.Page) func(*testing.T) {
	return func(t *testing.T) {
		p.Goto("/console/approvals")
		var harmless []string
		seen := 0
		for {
			rows, marks := browsertest.Eval[[]rightsDOM](p, "looks.rows()"), browsertest.Eval[rightsMarks](p, "looks.marks()")
			if harmless == nil && len(rows) > 0 {
				harmless = rows[0].Lines
			}
			for n, row := range rows {
				if diff := rightsDifference(harmless, row.Lines); diff != "" || len(row.Wrong) > 0 {
					t.Errorf("row %d differs: %.500s; within texts is %.500q", seen+n, diff, row.Wrong)
				}
			}
			if wrong := rightsFrom(p, "own", "sideways"); len(marks.Bare)+len(wrong) > 0 {
				t.Errorf("from row %d on: not marked is %.500q; %q", seen, marks.Bare, wrong)
			}
			if size := browsertest.Eval[int](p, "performance.getEntriesByType('navigation')[0].decodedBodySize"); size == 0 || size > 200<<10 {
				t.Errorf("the page from row %d on has %d bytes", seen, size)
			}
			seen += len(rows)
			if !p.Has("link", "Next page") {
				break
			}
			p.Loads(func() { p.Click("link", "Next page") })
		}
		if seen != len(w.texts) || len(harmless) < 5 {
			t.Errorf("%d rows such as %q, of %d approval requests", seen, harmless, len(w.texts))
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
