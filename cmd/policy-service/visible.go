package main

import (
	"fmt"
	"reflect"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"policy-service/pdp/visible"
)

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
		return visible.Lines(string(v))
	case []byte:
		return visible.Text(string(v))
	}
	if k := reflect.ValueOf(v).Kind(); reflect.Bool <= k && k <= reflect.Float64 {
		return v
	}
	return visible.Text(fmt.Sprint(v))
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
		return visible.Text(text)
	}
	return visible.Text(short) + moreOf(left)
}

// shorten leaves at most so many characters, and says how many are gone.
func shorten(text string, most int) (short string, left int) {
	if left = utf8.RuneCountInString(text) - most; left <= 0 {
		return text, 0
	}
	return string([]rune(text)[:most]), left
}

func moreOf(left int) string { return fmt.Sprintf("… (and %s)", plural(left, "more character")) }
