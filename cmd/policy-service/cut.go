package main

import (
	"fmt"
	"unicode/utf8"

	"policy-service/pdp/visible"
)

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
