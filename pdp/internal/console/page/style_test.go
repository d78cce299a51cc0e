package page_test

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"policy-service/pdp/internal/console/page"
)

// readable are the pairs of colours of the style sheet that a text and what is behind it have. A mark of a control that is
// no text needs less.
var readable = []struct {
	ink, paper string
	least      float64
}{
	{"ink", "paper", 4.5},
	{"ink", "sheet", 4.5},
	{"faint", "paper", 4.5},
	{"faint", "sheet", 4.5},
	{"link", "paper", 4.5},
	{"link", "sheet", 4.5},
	{"yes-ink", "yes", 4.5},
	{"no", "paper", 4.5},
	{"odd", "paper", 4.5},
	{"odd", "odd-paper", 4.5},
	{"bad", "paper", 4.5},
	{"bad", "sheet", 4.5},
	{"bad", "bad-paper", 4.5},
	{"good", "paper", 4.5},
	{"good", "good-paper", 4.5},
	{"ink", "link-paper", 4.5},
	{"faint", "link-paper", 4.5},
	{"link", "link-paper", 4.5},
	{"focus", "paper", 3},
	{"focus", "sheet", 3},
	{"edge", "paper", 3},
	{"edge", "sheet", 3},
}

// A line through a text hides a hyphen, and the sign of a number.
func TestNothingIsStruckOut(t *testing.T) {
	if strings.Contains(page.Style, "line-through") {
		t.Error("a text is struck out")
	}
}

func TestContrast(t *testing.T) {
	light, rest, _ := strings.Cut(page.Style, "prefers-color-scheme: dark")
	dark, _, _ := strings.Cut(rest, "prefers-contrast")
	for name, theme := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(theme, -1) {
			colours[m[1]] = m[2]
		}
		for _, pair := range readable {
			ink, paper := colours[pair.ink], colours[pair.paper]
			if ink == "" || paper == "" {
				t.Errorf("%s: there is no %s or no %s", name, pair.ink, pair.paper)
				continue
			}
			if got := contrast(ink, paper); got < pair.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, less than %v", name, pair.ink, pair.paper, got, pair.least)
			}
		}
	}
}

// contrast is that of two colours, as WCAG 2 counts it.
func contrast(one, other string) float64 {
	a, b := luminance(one), luminance(other)
	return (math.Max(a, b) + .05) / (math.Min(a, b) + .05)
}

func luminance(colour string) float64 {
	var rgb [3]uint8
	_, _ = fmt.Sscanf(colour, "%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2])
	var l float64
	for n, weight := range []float64{.2126, .7152, .0722} {
		c := float64(rgb[n]) / 255
		if c <= .04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}
