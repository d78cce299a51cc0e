package bundle

import (
	"regexp"
	"strconv"
	"strings"
)

// schemaToken matches a string, a name, a comment, or one other character, in either form of a
// schema.
var schemaToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[\pL_][\pL\pN_]*|//[^\n]*|\S`)

// declaredAt is the place where the text of a schema declares a member of an action's context.
// If the member is not found, it is the place of the action, because the member may be
// declared in a named type. If the action is not found either, line and column are 0. We
// search the text because cedar-go keeps no places.
func declaredAt(text, action, member string) (line, column int) {
	tokens := schemaToken.FindAllStringIndex(text, -1)
	token := func(i int) string {
		if i < 0 || i >= len(tokens) {
			return ""
		}
		return text[tokens[i][0]:tokens[i][1]]
	}
	at, found := 0, false
	for i := range tokens {
		switch before, here, after := token(i-1), bareName(token(i)), token(i+1); {
		case !found && here == action && (before == "action" || before == "," || after == ":"):
			at, found = i, true
		case found && token(i) == "action" && after != ":" && after != "?": // the next action begins
			return placeOf(text, tokens[at][0])
		case found && here == member && (after == ":" || after == "?"):
			return placeOf(text, tokens[i][0])
		}
	}
	if !found {
		return 0, 0
	}
	return placeOf(text, tokens[at][0])
}

// bareName is a name without its quotes, if it has any.
func bareName(token string) string {
	if name, err := strconv.Unquote(token); err == nil {
		return name
	}
	return token
}

// placeOf is the line and column of an offset. Columns count bytes, as Cedar counts them.
func placeOf(text string, offset int) (line, column int) {
	before := text[:offset]
	return strings.Count(before, "\n") + 1, offset - strings.LastIndex(before, "\n")
}
