package console_test

import (
	"os"
	"path/filepath"
	"testing"

	"policy-service/pdp/pdptest/browsertest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// screens are the sizes and colours in which every page is judged.
var screens = []struct {
	name          string
	width, height int64
	colours       string
}{
	{"wide and light", 1280, 800, "light"},
	{"wide and dark", 1280, 800, "dark"},
	{"narrow and light", 390, 844, "light"},
	{"narrow and dark", 390, 844, "dark"},
}

// axeFindings has axe judge a page: an element and the rule that it breaks, each as text.
const axeFindings = `axe.run(document, {resultTypes: ["violations"]}).then((found) =>
	found.violations.flatMap((rule) => rule.nodes.map((node) => rule.id + ": " + node.target + ": " + node.failureSummary)))`

// TestAxe: axe-core finds nothing to say about any page.
func TestAxe(t *testing.T) {
	night.Npm(t)
	t.Parallel()
	axe, err := os.ReadFile(filepath.Join(npm.Install(t, "axe-core", os.DirFS("testdata/axe")), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	w := openRights(t, rightsPeople())
	everyPage(t, w, func(p *browsertest.Page, page string) {
		browsertest.Eval[any](p, string(axe)+"; document.body.append(document.createElement('img')); null")
		if len(browsertest.Eval[[]string](p, axeFindings)) == 0 {
			t.Errorf("%s: a picture without a text is no finding", page)
		}
		browsertest.Eval[any](p, "document.body.lastChild.remove(); null")
		for _, s := range screens {
			if testing.Short() && s.name != "wide and light" && s.name != "narrow and dark" {
				continue
			}
			rightsResize(p, s.width, s.height)
			rightsMedia(p, "", "prefers-color-scheme", s.colours)
			for _, finding := range browsertest.Eval[[]string](p, axeFindings) {
				t.Errorf("%s, %s: %s", page, s.name, finding)
			}
		}
	})
}
