package bundle

import (
	"regexp"
	"strconv"
	"strings"
)

// schemaToken is a string, a name, a comment, or one other character, in either form of a
// schema.
var schemaToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[\pL_][\pL\pN_]*|//[^\n]*|\S`)

// declaredAt is where the text of a schema declares a member of an action's context, else
// where it declares the action: the member may stand in a type with a name. Both are 0
// where neither is found. cedar-go keeps no places.
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
		case found && token(i) == "action" && after != ":" && after != "?": // the next one
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

// bareName is a name without the quotes it may stand in.
func bareName(token string) string {
	if name, err := strconv.Unquote(token); err == nil {
		return name
	}
	return token
}

// placeOf is an offset as people count, columns in bytes as Cedar does.
func placeOf(text string, offset int) (line, column int) {
	before := text[:offset]
	return strings.Count(before, "\n") + 1, offset - strings.LastIndex(before, "\n")
}
