package lock

import (
	"regexp"
	"strconv"

	"policy-service/pdp/visible"
)

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
