package lock

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/visible"
)

// words are the lines in which people read one of the two sides that are compared.
type words func() []string

func nothing() []string { return nil }

// ofText are the lines of a text. One that could be taken for another is in quotes: a backslash begins the escape of a
// character that cannot be seen, and a / the pointer of a member.
func ofText(text string) words {
	return func() []string {
		lines := strings.Split(text, "\n")
		for n, line := range lines {
			if strings.Contains(line, `\`) || strings.HasPrefix(line, `"`) || strings.HasPrefix(line, "/") {
				lines[n] = string(appendQuoted(nil, line))
			}
		}
		return lines
	}
}

func ofInstructions(s Server) words {
	if s.Instructions == "" {
		return nothing
	}
	return ofText(s.Instructions)
}

// ofPart is a part of a definition: the lines of a text, or the members of anything else.
func ofPart(part evaluation.Object, kind Kind) words {
	if kind == Title || kind == Description {
		if v, _ := part.Get(string(kind)); v.Kind() == evaluation.String {
			return ofText(v.Text())
		}
	}
	return ofMembers(part)
}

// ofMembers are all values of an object, a line each, with the JSON Pointer of each.
func ofMembers(o evaluation.Object) words {
	return func() (lines []string) {
		for name, v := range o.All {
			lines = appendValue(lines, string(jsontext.Pointer("").AppendToken(name)), v)
		}
		return lines
	}
}

func appendValue(lines []string, pointer string, v evaluation.Value) []string {
	switch before := len(lines); {
	case v.Kind() == evaluation.Map && !likeArray(v.Object()):
		for name, inner := range v.Object().All {
			lines = appendValue(lines, string(jsontext.Pointer(pointer).AppendToken(name)), inner)
		}
		if len(lines) > before {
			return lines
		}
	case v.Kind() == evaluation.Array && holdsMore(v):
		for n, inner := range v.Elements {
			lines = appendValue(lines, pointer+"/"+strconv.Itoa(n), inner)
		}
		return lines
	}
	text, _ := v.AppendCanonical(nil)
	return append(lines, pointer+": "+string(text))
}

// likeArray reports whether the members of an object have the pointers that elements of an array would have. It is on one
// line, or the change from one to the other was invisible.
func likeArray(o evaluation.Object) bool {
	for name := range o.All {
		if n, err := strconv.Atoi(name); err != nil || n < 0 || n >= o.Len() || strconv.Itoa(n) != name {
			return false
		}
	}
	return true
}

// holdsMore reports whether an array has elements that are arrays or objects: others are read best on one line.
func holdsMore(v evaluation.Value) bool {
	for _, inner := range v.Elements {
		if inner.Kind() == evaluation.Map || inner.Kind() == evaluation.Array {
			return true
		}
	}
	return false
}

// Lines are the lines that are locked and not found, each behind "- ", and those that are found and not locked, behind "+ ".
// Invisible characters are escaped.
func (c Change) Lines() []string {
	was, is := c.was, c.is
	if was == nil {
		was = nothing
	}
	if is == nil {
		is = nothing
	}
	lines := difference(was(), is())
	for i := range lines {
		lines[i] = visible.Quoted(lines[i])
	}
	return lines
}

// mostCells bounds the cost of finding the lines that two texts have in common. A server may send as many as it likes.
const mostCells = 4 << 20

// difference are the lines that only one of two texts has, in their order.
func difference(was, is []string) (lines []string) {
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	common := longest(was, is)
	emit := func(sign string, from []string, until int) []string {
		for _, line := range from[:until] {
			lines = append(lines, sign+line)
		}
		return from[until:]
	}
	for _, line := range common {
		was = emit("- ", was, slices.Index(was, line))[1:]
		is = emit("+ ", is, slices.Index(is, line))[1:]
	}
	emit("- ", was, len(was))
	emit("+ ", is, len(is))
	return lines
}

// longest is the longest sequence of lines that both texts have; none if it costs too much to find.
func longest(a, b []string) (common []string) {
	width := len(b) + 1
	if (len(a)+1)*width > mostCells {
		return nil
	}
	lengths := make([]int32, (len(a)+1)*width) // of the common lines from a line of each on
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				lengths[i*width+j] = lengths[(i+1)*width+j+1] + 1
			} else {
				lengths[i*width+j] = max(lengths[(i+1)*width+j], lengths[i*width+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			common = append(common, a[i])
			i, j = i+1, j+1
		case lengths[(i+1)*width+j] >= lengths[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return common
}
