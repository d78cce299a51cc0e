// Package visible writes text that somebody else wrote so that it is what it looks like: [Text] on one line, [Lines] on
// several. It knows nothing of where the text is shown.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Text writes what cannot be seen as JSON would escape it. An id may hold what moves a cursor, reverses text
// or hides it, and what is read must not be able to rewrite the screen it is read on.
func Text(text string) string { return but(text, "") }

// Lines leaves a text its lines.
func Lines(text string) string { return but(text, "\n\t") }

func but(text, keep string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case seen(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// blank are what leaves no ink though Unicode counts it as letters, marks and symbols: Hangul fillers, variation
// selectors and the like, and the empty pattern of Braille.
var blank = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
	{R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}}},
}

// seen reports whether a rune is what it looks like. Of the spaces only one is; controls and what directs text (U+202E,
// U+2066) or has no width (U+200B) are not printable at all.
func seen(r rune) bool { return unicode.IsPrint(r) && !unicode.In(r, blank...) }
