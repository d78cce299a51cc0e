package visible

import (
	"fmt"
	"unicode"
)

const tab = "CHARACTER TABULATION"

// names are what Unicode calls the characters that hide, or turn text around. Others are named by what they are and by
// their code.
var names = map[rune]string{
	0x00: "NULL", 0x07: "BELL", 0x08: "BACKSPACE", 0x09: tab, 0x0a: "LINE FEED", 0x0b: "LINE TABULATION",
	0x0c: "FORM FEED", 0x0d: "CARRIAGE RETURN", 0x0e: "SHIFT OUT", 0x0f: "SHIFT IN", 0x1b: "ESCAPE", 0x7f: "DELETE",
	0x85: "NEXT LINE", 0x90: "DEVICE CONTROL STRING", 0x9b: "CONTROL SEQUENCE INTRODUCER", 0x9c: "STRING TERMINATOR",
	0x9d: "OPERATING SYSTEM COMMAND", 0xa0: "NO-BREAK SPACE", 0xad: "SOFT HYPHEN", 0x34f: "COMBINING GRAPHEME JOINER",
	0x61c: "ARABIC LETTER MARK", 0x115f: "HANGUL CHOSEONG FILLER", 0x1160: "HANGUL JUNGSEONG FILLER",
	0x1680: "OGHAM SPACE MARK", 0x17b4: "KHMER VOWEL INHERENT AQ", 0x17b5: "KHMER VOWEL INHERENT AA",
	0x180e: "MONGOLIAN VOWEL SEPARATOR", 0x2000: "EN QUAD", 0x2001: "EM QUAD", 0x2002: "EN SPACE", 0x2003: "EM SPACE",
	0x2004: "THREE-PER-EM SPACE", 0x2005: "FOUR-PER-EM SPACE", 0x2006: "SIX-PER-EM SPACE", 0x2007: "FIGURE SPACE",
	0x2008: "PUNCTUATION SPACE", 0x2009: "THIN SPACE", 0x200a: "HAIR SPACE", 0x200b: "ZERO WIDTH SPACE",
	0x200c: "ZERO WIDTH NON-JOINER", 0x200d: "ZERO WIDTH JOINER", 0x200e: "LEFT-TO-RIGHT MARK",
	0x200f: "RIGHT-TO-LEFT MARK", 0x2028: "LINE SEPARATOR", 0x2029: "PARAGRAPH SEPARATOR",
	0x202a: "LEFT-TO-RIGHT EMBEDDING", 0x202b: "RIGHT-TO-LEFT EMBEDDING", 0x202c: "POP DIRECTIONAL FORMATTING",
	0x202d: "LEFT-TO-RIGHT OVERRIDE", 0x202e: "RIGHT-TO-LEFT OVERRIDE", 0x202f: "NARROW NO-BREAK SPACE",
	0x205f: "MEDIUM MATHEMATICAL SPACE", 0x2060: "WORD JOINER", 0x2061: "FUNCTION APPLICATION",
	0x2062: "INVISIBLE TIMES", 0x2063: "INVISIBLE SEPARATOR", 0x2064: "INVISIBLE PLUS",
	0x2066: "LEFT-TO-RIGHT ISOLATE", 0x2067: "RIGHT-TO-LEFT ISOLATE", 0x2068: "FIRST STRONG ISOLATE",
	0x2069: "POP DIRECTIONAL ISOLATE", 0x206a: "INHIBIT SYMMETRIC SWAPPING", 0x206b: "ACTIVATE SYMMETRIC SWAPPING",
	0x206c: "INHIBIT ARABIC FORM SHAPING", 0x206d: "ACTIVATE ARABIC FORM SHAPING", 0x206e: "NATIONAL DIGIT SHAPES",
	0x206f: "NOMINAL DIGIT SHAPES", 0x2800: "BRAILLE PATTERN BLANK", 0x3000: "IDEOGRAPHIC SPACE",
	0x3164: "HANGUL FILLER", 0xfeff: "ZERO WIDTH NO-BREAK SPACE", 0xffa0: "HALFWIDTH HANGUL FILLER",
	0xfff9: "INTERLINEAR ANNOTATION ANCHOR", 0xfffa: "INTERLINEAR ANNOTATION SEPARATOR",
	0xfffb: "INTERLINEAR ANNOTATION TERMINATOR", 0xfffc: "OBJECT REPLACEMENT CHARACTER",
	0xe0001: "LANGUAGE TAG", 0xe0020: "TAG SPACE", 0xe007f: "CANCEL TAG",
}

// nameOf is what a character that must be escaped is called.
func nameOf(c char) string {
	r := c.rune
	if name, ok := names[r]; ok {
		return name
	}
	of := fmt.Sprintf(" U+%04X", r)
	switch {
	case c.broken():
		return "NO UTF-8"
	case 0xe0021 <= r && r <= 0xe007e:
		return fmt.Sprintf("TAG %c", r-0xe0000)
	case 0xfe00 <= r && r <= 0xfe0f:
		return fmt.Sprintf("VARIATION SELECTOR-%d", r-0xfe00+1)
	case 0xe0100 <= r && r <= 0xe01ef:
		return fmt.Sprintf("VARIATION SELECTOR-%d", r-0xe0100+17)
	case unicode.Is(unicode.Variation_Selector, r):
		return "VARIATION SELECTOR" + of
	case unicode.Is(unicode.Cc, r):
		return "CONTROL" + of
	case unicode.Is(unicode.Co, r):
		return "PRIVATE USE" + of
	case unicode.Is(unicode.Noncharacter_Code_Point, r):
		return "NONCHARACTER" + of
	case unicode.Is(unicode.Cf, r):
		return "FORMAT CHARACTER" + of
	case unicode.Is(unicode.Z, r):
		return "SPACE" + of
	case c.seen():
		return "COMBINING MARK" + of
	case unicode.In(r, unicode.L, unicode.M, unicode.S):
		return "BLANK" + of
	}
	return "UNASSIGNED" + of
}
