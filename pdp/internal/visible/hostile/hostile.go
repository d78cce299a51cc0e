// Package hostile has texts that were written to deceive people, or what shows text to people: a terminal, a page, a
// table. Tests put [Texts] into every field that somebody reads. It is in nobody's binary.
//
// Whatever shows one of them must neither run it, fetch anything for it, nor break what stands around it, and a person
// must be able to tell what is in it.
package hostile

import (
	"slices"
	"strings"
)

// Texts are all texts, each different from the others, always in the same order. Some are no UTF-8 and some are long:
// see [UTF8] and [Short].
func Texts() []string {
	return slices.Concat(markup, handlers, addresses, clobbering, templates, syntaxes(), terminals, hidden(), directions, lookAlikes, broken, long())
}

// UTF8 are those of Texts that a JSON document can hold.
func UTF8() []string {
	return slices.DeleteFunc(Texts(), func(text string) bool { return strings.ToValidUTF8(text, "") != text })
}

// Short are those of UTF8 that an id may hold: they have at most so many bytes.
func Short(most int) []string {
	return slices.DeleteFunc(UTF8(), func(text string) bool { return len(text) > most })
}

// Runs is what a text calls if it ever runs as a script. A page that shows the texts has no such name, and no element,
// attribute or request that is called so.
const Runs = "hostileRan"

// Elsewhere is the origin that the texts want something fetched from, or sent to.
const Elsewhere = "hostile.example"
