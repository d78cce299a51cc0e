package main

import (
	"fmt"
	"reflect"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible writes what cannot be seen as JSON would escape it. An id may hold what moves a cursor, reverses text
// or hides it, and what is read must not be able to rewrite the screen it is read on.
func visible(text string) string { return visibleBut(text, "") }

// visibleLines leaves a text its lines.
func visibleLines(text string) string { return visibleBut(text, "\n\t") }

func visibleBut(text, keep string) string {
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

// seen reports whether a rune is what it looks like. Of the spaces only one is; controls and what directs text (U+202E, U+2066)
// or has no width (U+200B) are not printable at all.
func seen(r rune) bool { return unicode.IsPrint(r) && !unicode.In(r, blank...) }

// lines are a text of several lines, which print leaves it.
type lines string

// coloured is what [colour] made: the text in it is visible, and the marks are ours.
type coloured string

// shown are the values of a line of output, made visible each by itself, so that none
// can begin a line that looks like one of ours.
func shown(values []any) []any {
	all := make([]any, len(values))
	for n, v := range values {
		all[n] = shownOne(v)
	}
	return all
}

func shownOne(v any) any {
	switch v := v.(type) {
	case coloured:
		return v
	case lines:
		return visibleLines(string(v))
	case []byte:
		return visible(string(v))
	}
	if k := reflect.ValueOf(v).Kind(); reflect.Bool <= k && k <= reflect.Float64 {
		return v
	}
	return visible(fmt.Sprint(v))
}

// table is printed as one, with what is in it made visible.
type table struct{ *tabwriter.Writer }

func (s streams) table() table { return table{tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)} }

func (t table) row(cells ...any) {
	_, _ = fmt.Fprintf(t, strings.Repeat("\t%v", len(cells))[1:]+"\n", shown(cells)...)
}

// cut is the beginning of a text that somebody wrote to be read, made visible, with a note of what is left out.
func cut(text string, most int) string {
	short, left := shorten(text, most)
	if left == 0 {
		return visible(text)
	}
	return visible(short) + moreOf(left)
}

// shorten leaves at most so many characters, and says how many are gone.
func shorten(text string, most int) (short string, left int) {
	if left = utf8.RuneCountInString(text) - most; left <= 0 {
		return text, 0
	}
	return string([]rune(text)[:most]), left
}

func moreOf(left int) string { return fmt.Sprintf("… (and %s)", plural(left, "more character")) }
