package visible

import (
	"fmt"
	"slices"
	"strings"
)

// odd counts the characters and words of a text that deceive.
type odd struct {
	mixed     []string       // notes about words and signs, each once
	mixedMore int            // words and signs of which nothing is said
	hidden    map[string]int // invisible characters by name
	names     []string       // of hidden, in the order of the text
	broken    int            // bytes that are no UTF-8
	marks     int            // marks that are too many on a letter, or on nothing
	spaces    int            // of the longest run that was counted
	empty     int            // lines of the longest run that was counted
}

// mostNamed is how many words and names the notes have.
const mostNamed = 3

func (o *odd) escaped(c char, name string, count int) {
	switch {
	case c.broken():
		o.broken += count
	case c.seen():
		o.marks += count
	default:
		if o.hidden[name] == 0 {
			o.names = append(o.names, name)
		}
		o.hidden[name] += count
	}
}

// wordNote keeps a note about a word or a sign.
func (o *odd) wordNote(note string) {
	switch {
	case slices.Contains(o.mixed, note):
	case len(o.mixed) < mostNamed:
		o.mixed = append(o.mixed, note)
	default:
		o.mixedMore++
	}
}

// all are sentences about all of it, and about the lines that are cut or left out.
func (o *odd) all(cut, left int) []string {
	notes := o.words()
	hidden := 0
	for _, n := range o.hidden {
		hidden += n
	}
	notes = say(notes, hidden, "%s that cannot be seen: %s", Plural(hidden, "character"), o.namesInWords())
	notes = say(notes, o.broken, "%s of no UTF-8", Plural(o.broken, "byte"))
	notes = say(notes, o.marks, "%s too many on a letter, or on none", Plural(o.marks, "mark"))
	notes = append(notes, o.spacesInRow()...)
	notes = say(notes, cut, "%s too long and cut", Plural(cut, "line"))
	return say(notes, left, "%s not shown", Plural(left, "more line"))
}

// words are sentences about words of mixed letters, and about words and signs that look like others.
func (o *odd) words() []string {
	return say(slices.Clone(o.mixed), o.mixedMore, "%s of mixed letters, or like others", Plural(o.mixedMore, "more word"))
}

func (o *odd) spacesInRow() []string {
	notes := say(nil, o.spaces, "%s in a row", Plural(o.spaces, "space"))
	return say(notes, o.empty, "%s in a row", Plural(o.empty, "empty line"))
}

// say adds a sentence about so many of something, if there are any.
func say(notes []string, n int, format string, args ...any) []string {
	if n == 0 {
		return notes
	}
	return append(notes, fmt.Sprintf(format, args...))
}

func (o *odd) namesInWords() string {
	var all []string
	for n, name := range o.names {
		if n == mostNamed {
			all = append(all, fmt.Sprintf("%d more", len(o.names)-n))
			break
		}
		if count := o.hidden[name]; count > 1 {
			name += " (" + Plural(count, "time") + ")"
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

// Plural is a number of things in words.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
