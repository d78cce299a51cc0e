package lock

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/diff"

	"policy-service/evaluation"
	"policy-service/pdp/internal/visible"
)

// ofPart is what people compare of a part of a definition: the text of it, or the members of anything else.
func ofPart(part evaluation.Object, kind Kind) evaluation.Value {
	if v, _ := part.Get(string(kind)); (kind == Title || kind == Description) && v.Kind() == evaluation.String {
		return v
	}
	return part.Value()
}

// linesOf are the lines in which people read one of the two sides that are compared; none for no side. A text has its own. One
// that could be taken for another is in quotes: a backslash begins the escape of a character that cannot be seen, and a / the
// pointer of a member. An object has a line for each value in it, with the JSON Pointer.
func linesOf(v evaluation.Value) (lines []string) {
	for name, inner := range v.Object().All {
		lines = appendValue(lines, string(jsontext.Pointer("").AppendToken(name)), inner)
	}
	if v.Kind() != evaluation.String {
		return lines
	}
	lines = strings.Split(v.Text(), "\n")
	for n, line := range lines {
		if strings.Contains(line, `\`) || strings.HasPrefix(line, `"`) || strings.HasPrefix(line, "/") {
			quoted, _ := jsontext.AppendQuote(nil, line)
			lines[n] = string(quoted)
		}
	}
	return lines
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

// Lines are the lines that are only locked, each behind "- ", and only found, behind "+ ". Invisible characters are escaped.
func (c Change) Lines() []string {
	lines := difference(linesOf(c.was), linesOf(c.is))
	for i := range lines {
		lines[i] = visible.Quoted(lines[i])
	}
	return lines
}

// difference are the lines that only one of two texts has. They are compared in quotes: a member's name can hold a line feed.
func difference(was, is []string) (lines []string) {
	quoted := func(all []string) (text []byte) {
		for _, line := range all {
			text = append(strconv.AppendQuote(text, line), '\n')
		}
		return text
	}
	for line := range strings.Lines(string(diff.Diff("was", quoted(was), "is", quoted(is)))) {
		if text, err := strconv.Unquote(strings.TrimSuffix(line[1:], "\n")); err == nil && line[0] != ' ' {
			lines = append(lines, line[:1]+" "+text)
		}
	}
	return lines
}

var titles = map[Kind]string{
	NewServer: "the server is new", GoneServer: "the server is gone", Instructions: "the instructions are changed",
	NewTool: "is new", GoneTool: "is gone", Renamed: "is now called", Swapped: "is now what another was:",
	Title: "the title is changed", Description: "the description is changed", InputSchema: "the input schema is changed",
	OutputSchema: "the output schema is changed", Annotations: "the annotations are changed", Mapping: "the mapping is changed",
	Authorization: "the authorization is changed", Other: "other members are changed",
}

// plainName is a name without lookalikes, and without room for words of ours.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// named is the name of a tool. Another alphabet has letters that look like ours, and an old name in them is a new tool.
func named(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// Title is the change on one line. A name that a server gave is in quotes and in ASCII, unless it is a plain one.
func (c Change) Title() string {
	text := c.Server + ": "
	if c.Tool != "" {
		text += "tool " + named(c.Tool) + ": "
	}
	text += titles[c.Kind]
	if c.With != "" {
		text += " " + named(c.With)
	}
	return visible.Quoted(text)
}
