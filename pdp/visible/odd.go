package visible

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// odd is what is not what it looks like in a text.
type odd struct {
	mixed     []string       // what is said of words, each once
	mixedMore int            // words of which nothing is said
	hidden    map[string]int // the names of what cannot be seen, and how often it is there
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

// wordNote keeps what there is to say about a word.
func (o *odd) wordNote(note string) {
	switch {
	case slices.Contains(o.mixed, note):
	case len(o.mixed) < mostNamed:
		o.mixed = append(o.mixed, note)
	default:
		o.mixedMore++
	}
}

// words are sentences about all of it, and about the lines that are cut or left out.
func (o *odd) words(cut, left int) (notes []string) {
	notes = append(notes, o.mixed...)
	say := func(n int, format string, args ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	say(o.mixedMore, "%s of mixed letters", plural(o.mixedMore, "more word"))
	hidden := 0
	for _, n := range o.hidden {
		hidden += n
	}
	say(hidden, "%s that cannot be seen: %s", plural(hidden, "character"), o.namesInWords())
	say(o.broken, "%s no UTF-8", pluralVerb(o.broken, "byte", "is", "are"))
	say(o.marks, "%s on a letter that has enough of them, or on none", pluralVerb(o.marks, "mark", "stands", "stand"))
	say(o.spaces, "%s in a row", plural(o.spaces, "space"))
	say(o.empty, "%s in a row", plural(o.empty, "empty line"))
	say(cut, "%s too long and cut", pluralVerb(cut, "line", "is", "are"))
	say(left, "%s not shown", pluralVerb(left, "more line", "is", "are"))
	return notes
}

func (o *odd) namesInWords() string {
	var all []string
	for n, name := range o.names {
		if n == mostNamed {
			all = append(all, fmt.Sprintf("%d more", len(o.names)-n))
			break
		}
		if count := o.hidden[name]; count > 1 {
			name += " (" + plural(count, "time") + ")"
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

func pluralVerb(n int, what, one, many string) string {
	if n == 1 {
		return plural(n, what) + " " + one
	}
	return plural(n, what) + " " + many
}

// thousands writes a number with commas.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
