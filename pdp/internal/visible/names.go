package visible

import (
	"fmt"
	"unicode"
)

const tab = "CHARACTER TABULATION"

// names are Unicode's names of the characters that are most used to hide text or to turn it around. Others have the name
// of their kind, and their code.
var names = map[rune]string{
	0x00: "NULL", 0x08: "BACKSPACE", 0x09: tab, 0x0a: "LINE FEED", 0x0d: "CARRIAGE RETURN", 0x1b: "ESCAPE", 0x7f: "DELETE",
	0xa0: "NO-BREAK SPACE", 0xad: "SOFT HYPHEN", 0x200b: "ZERO WIDTH SPACE", 0x200c: "ZERO WIDTH NON-JOINER",
	0x200d: "ZERO WIDTH JOINER", 0x200e: "LEFT-TO-RIGHT MARK", 0x200f: "RIGHT-TO-LEFT MARK", 0x2028: "LINE SEPARATOR",
	0x202a: "LEFT-TO-RIGHT EMBEDDING", 0x202b: "RIGHT-TO-LEFT EMBEDDING", 0x202c: "POP DIRECTIONAL FORMATTING",
	0x202d: "LEFT-TO-RIGHT OVERRIDE", 0x202e: "RIGHT-TO-LEFT OVERRIDE", 0x2066: "LEFT-TO-RIGHT ISOLATE",
	0x2067: "RIGHT-TO-LEFT ISOLATE", 0x2068: "FIRST STRONG ISOLATE", 0x2069: "POP DIRECTIONAL ISOLATE",
	0xfeff: "ZERO WIDTH NO-BREAK SPACE",
}

// nameOf is the name of a character that must be escaped.
func nameOf(c char) string {
	kind := "UNASSIGNED"
	switch r := c.rune; {
	case names[r] != "":
		return names[r]
	case c.broken():
		return "NO UTF-8"
	case 0xe0021 <= r && r <= 0xe007e:
		return fmt.Sprintf("TAG %c", r-0xe0000)
	case unicode.Is(unicode.Variation_Selector, r):
		kind = "VARIATION SELECTOR"
	case unicode.Is(unicode.Cc, r):
		kind = "CONTROL"
	case unicode.Is(unicode.Co, r):
		kind = "PRIVATE USE"
	case unicode.Is(unicode.Noncharacter_Code_Point, r):
		kind = "NONCHARACTER"
	case unicode.Is(unicode.Cf, r):
		kind = "FORMAT CHARACTER"
	case unicode.Is(unicode.Z, r):
		kind = "SPACE"
	case c.seen():
		kind = "COMBINING MARK"
	case unicode.In(r, unicode.L, unicode.M, unicode.S):
		kind = "BLANK"
	}
	return fmt.Sprintf("%s U+%04X", kind, c.rune)
}
