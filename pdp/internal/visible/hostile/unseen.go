package hostile

import "strings"

// hidden are characters that leave no ink, take no room, or take room as if they were spaces.
func hidden() []string {
	texts := []string{
		"ma\u200bin",                   // ZERO WIDTH SPACE
		"ma\u200cin",                   // ZERO WIDTH NON-JOINER
		"ma\u200din",                   // ZERO WIDTH JOINER
		"ma\u2060in",                   // WORD JOINER
		"ma\ufeffin",                   // ZERO WIDTH NO-BREAK SPACE
		"ma\u00adin",                   // SOFT HYPHEN
		"ma\u034fin",                   // COMBINING GRAPHEME JOINER
		"ma\u061cin",                   // ARABIC LETTER MARK
		"ma\u180ein",                   // MONGOLIAN VOWEL SEPARATOR
		"ma\u180bin",                   // MONGOLIAN FREE VARIATION SELECTOR ONE
		"ma\u2061\u2062\u2063\u2064in", // FUNCTION APPLICATION ... INVISIBLE PLUS
		"ma\u206a\u206b\u206c\u206d\u206e\u206fin", // deprecated format characters
		"ma\u115fin",       // HANGUL CHOSEONG FILLER
		"ma\u1160in",       // HANGUL JUNGSEONG FILLER
		"ma\u3164in",       // HANGUL FILLER
		"ma\uffa0in",       // HALFWIDTH HANGUL FILLER
		"ma\u2800in",       // BRAILLE PATTERN BLANK
		"ma\u17b4in\u17b5", // KHMER VOWEL INHERENT
		"ma\ufe0fin",       // VARIATION SELECTOR-16
		"ma\ufe00in",       // VARIATION SELECTOR-1
		"ma\U000e0100in",   // VARIATION SELECTOR-17
		"ma\U000e01efin",   // VARIATION SELECTOR-256
		"main\U000e0001\U000e0072\U000e006d\U000e007f",   // tag characters
		"\U0001f3f4\U000e0067\U000e0062\U000e007f",       // a flag of tags
		"ma\ufff9i\ufffan\ufffb",                         // interlinear annotation
		"ma\ufffcin",                                     // OBJECT REPLACEMENT CHARACTER
		"ma\U0001d173in\U0001d17a",                       // musical format characters
		"ma\U0001bca0in",                                 // shorthand format characters
		"ma\u00a0in",                                     // NO-BREAK SPACE
		"ma\u1680in",                                     // OGHAM SPACE MARK
		"ma\u2000\u2001\u2002\u2003\u2004\u2005\u2006in", // wide spaces
		"ma\u2007\u2008\u2009\u200a\u202f\u205f\u3000in", // thin spaces, and an ideographic one
		"ma\u2028in",                                     // LINE SEPARATOR
		"ma\u2029in",                                     // PARAGRAPH SEPARATOR
		"ma\ue000in",                                     // private use
		"ma\U0010fffdin",                                 // private use
		"ma\ufdd0in",                                     // a noncharacter
		"ma\uffffin",                                     // a noncharacter
		"ma\u0378in",                                     // unassigned
		"ma\ufffdin",                                     // REPLACEMENT CHARACTER
		"\u0301a",                                        // a mark on nothing
		"\u20dd\u20de\u20e0main",                         // marks around nothing
		"Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320A\u036b\u0357\u0334\u0362\u0335\u031c\u0330\u0354L", // marks on marks
		"\U0001f468\u200d\U0001f469\u200d\U0001f467",    // a family of three
		"\U0001f3f3\ufe0f\u200d\U0001f308",              // a flag of a joiner and a selector
		"1\ufe0f\u20e3",                                 // a keycap
		"\U0001f44d\U0001f3fd",                          // a thumb with a skin tone
		"\U0001f1e9\U0001f1ea",                          // two regional indicators
		"main" + strings.Repeat(" ", 500) + "--force",   // out of sight
		strings.Repeat(" ", 500) + "main",               // out of sight
		"main" + strings.Repeat("\u3000", 200) + "x",    // wide spaces
		"main" + strings.Repeat("\t", 200) + "--force",  // tabs
		"main" + strings.Repeat("\n", 200) + "--force",  // lines
		"main" + strings.Repeat("\u200b", 2000) + "x",   // nothing
		"a" + strings.Repeat("\u0301", 2000),            // marks
		"e" + strings.Repeat("\u0335", 12) + " crossed", // marks that strike out
		strings.Repeat("\u0e47\u0e49", 100),             // Thai marks
		"\u0dc5\u0dca\u200d\u0dba\u0dd2",                // Sinhala with a joiner that it needs
		"\u0915\u094d\u200d\u0937",                      // Devanagari with a joiner that it needs
		"\U000f0000\U00100000 \ue0b0",                   // planes of private use
		"\u0600\u0601\u06dd\u070f\u08e2\U000110bd123",   // prepended marks
	}
	return texts
}

// directions turn text around, with and without characters for it.
var directions = []string{
	"main\u202etxt.exe",                       // RIGHT-TO-LEFT OVERRIDE
	"\u202dmain\u202c",                        // LEFT-TO-RIGHT OVERRIDE
	"\u202amain\u202c",                        // LEFT-TO-RIGHT EMBEDDING
	"\u202bmain\u202c",                        // RIGHT-TO-LEFT EMBEDDING
	"\u202cmain",                              // POP DIRECTIONAL FORMATTING
	"\u2066main\u2069",                        // LEFT-TO-RIGHT ISOLATE
	"\u2067main\u2069",                        // RIGHT-TO-LEFT ISOLATE
	"\u2068main\u2069",                        // FIRST STRONG ISOLATE
	"\u2069main",                              // POP DIRECTIONAL ISOLATE
	"\u2069\u2069\u202c\u202c\u202emain",      // out of an isolate that is not ours
	"main\u200e",                              // LEFT-TO-RIGHT MARK
	"\u200fmain",                              // RIGHT-TO-LEFT MARK
	"pay \u2067\u2066100\u2069 200\u2069 EUR", // digits that change places
	"if admin\u202e { \u2066// only\u2069 \u2066begin",
	"photo_\u202egpj.exe",
	"\u05e9\u05dc\u05d5\u05dd",                // Hebrew
	"pay \u05d0 100 200 \u05d1",               // digits between Hebrew letters
	"\u05d0\u05d1\u05d2.txt.exe",              // a file with a Hebrew name
	"user \u0645\u0631\u062d\u0628\u0627 123", // Arabic with digits
	"\u0661\u0662\u0663 \u06f1\u06f2\u06f3",   // Arabic digits
	"\u0710\u0712\u0713 1/2",                  // Syriac
	"\u0780\u0781\u0782",                      // Thaana
	"\u07ca\u07cb\u07cc",                      // N'Ko
	"\U00010800\U00010900\U0001e900",          // Cypriot, Phoenician, Adlam
	"\ufb1d\ufe70\ufefc",                      // presentation forms
	"/etc/\u05d0/passwd",                      // a path with a Hebrew name
	"(\u05d0[\u05d1{\u05d2",                   // brackets that are mirrored
	"a < \u05d0 > b",                          // comparisons that are mirrored
	"\u05d0 \u200e100\u200e 200",              // with marks of direction
	"shop/\u0639\u0631\u0628\u064a/../main",   // a path with an Arabic name
	"https://example.com/\u05d0?to=hostile.example",
}

// lookAlikes look like other texts: main, github.push_code, admin, paypal, rm, lead.
var lookAlikes = []string{
	"ma\u0456n",                            // Cyrillic i
	"\u043c\u0430\u0456n",                  // mostly Cyrillic
	"m\u0430in",                            // Cyrillic a
	"\u0440\u0430\u0443\u0440\u0430\u04cf", // all Cyrillic: it reads as paypal
	"g\u0456thub.push_code",
	"github.push_c\u03bfde",                          // Greek omicron
	"github\u2024push_code",                          // ONE DOT LEADER
	"github.push\u2017code",                          // DOUBLE LOW LINE
	"github\uff0epush_code",                          // FULLWIDTH FULL STOP
	"github.push\uff3fcode",                          // FULLWIDTH LOW LINE
	"\uff47\uff49\uff54\uff48\uff55\uff42.push_code", // fullwidth
	"\U0001d420\U0001d422\U0001d42d\U0001d421\U0001d42e\U0001d41b.push_code", // mathematical bold
	"\U0001d5fa\U0001d5ee\U0001d5f6\U0001d5fb",                               // mathematical sans-serif bold: main
	"\U0001d696\U0001d68a\U0001d692\U0001d697",                               // mathematical monospace: main
	"\u24dc\u24d0\u24d8\u24dd",                                               // circled
	"\U0001f13c\U0001f130\U0001f138\U0001f13d",                               // squared
	"\u1d0d\u1d00\u026a\u0274",                                               // small capitals
	"\u1d50\u1d43\u2071\u207f",                                               // superscripts
	"\u13a0\u13a1mi\u13a2",                                                   // Cherokee
	"\u0561d\u0574\u056bn",                                                   // Armenian
	"\u0585wner",                                                             // Armenian o
	"adm\u0269n",                                                             // LATIN SMALL LETTER IOTA
	"adm\u0131n",                                                             // DOTLESS I
	"\u0251dmin",                                                             // LATIN SMALL LETTER ALPHA
	"admi\u0578",                                                             // Armenian
	"\u217ead",                                                               // a Roman numeral
	"\u2115ode",                                                              // double-struck
	"\u212aey",                                                               // KELVIN SIGN
	"\u00b5g",                                                                // MICRO SIGN
	"\ufb01le",                                                               // a ligature
	"o\ufb03ce",                                                              // a ligature
	"\u01c9ubljana",                                                          // a digraph
	"github.push_c0de",                                                       // digit 0
	"githu\u0431.push_code",
	"rnain", // rn for m
	"rn\u0430\u0456n",
	"paypa1",     // digit 1
	"paypaI",     // capital I
	"lead\u0000", // a NUL
	"lead\u00a0", // a NO-BREAK SPACE
	"lead ",
	" lead",
	"LEAD",
	"vvorld",
	"le\u0430d\u200b",
	"l\u0435ad",
	"\u2113ead",                        // SCRIPT SMALL L
	"\u01c0ead",                        // a click
	"a\u2044b",                         // FRACTION SLASH
	"a\u2215b",                         // DIVISION SLASH
	"a\uff0fb",                         // FULLWIDTH SOLIDUS
	"tool\u29f8github.push_code",       // BIG SOLIDUS
	"User\ua789\ua789\u201clead\u201d", // colons and quotes that are none
	"User\u2236\u2236\u02balead\u02ba",
	"rm \u2212rf",                    // MINUS SIGN
	"rm \u2013rf",                    // EN DASH
	"rm \u2010rf",                    // HYPHEN
	"1\u066b000",                     // ARABIC DECIMAL SEPARATOR
	"1\u201a000",                     // a quote for a comma
	"100\u03bf000",                   // omicron for 0
	"\u0967\u0966\u0966",             // Devanagari digits
	"\U0001d7cf\U0001d7ce\U0001d7ce", // mathematical digits
	"\uff11\uff10\uff10",             // fullwidth digits
	"\u0967\u0031\u0661",             // digits of three scripts
	"\u4e00\u2014\u30fc\u2015-",      // strokes
	"\u30ce\uff0f\u4e3f/",            // slashes
	"\u5de5\u30a8",                   // Han and Katakana
	"\u30cb\u4e8c",                   // Katakana and Han
	"\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 text", // plain Japanese
	"\ud55c\uad6d\uc5b4 \u6f22\u5b57 text",                  // plain Korean
	"caf\u00e9",                                             // composed
	"cafe\u0301",                                            // decomposed: another id
	"stra\u00dfe",
	"STRASSE",
	"\u0130stanbul", // a dotted capital I
	"\u043f\u0440\u0438\u0432\u0435\u0442 world", // two words, each of one script
	"\u03a9-resistor",
	"\u03bcService",        // Greek mu and Latin
	"\u2460\u2461\u2462",   // circled digits
	"\u00bd\u215b",         // fractions
	"\u00b9\u00b2\u00b3",   // superscript digits
	"\U0001f170\U0001f171", // letters as emoji
	"\u261b Approve",
	"\u2713 approved by lead",
	"\u26a0\ufe0f verified",
	"\U0001f512 secure",
}

// broken is no UTF-8.
var broken = []string{
	"\xff\xfe",
	"a\xffb",
	"\xc3",
	"\xc3\x28",
	"\xc0\xaf",                 // a slash, too long
	"\xe0\x80\xaf",             // a slash, much too long
	"\xc1\x9c..",               // a backslash, too long
	"\xed\xa0\x80",             // half of a surrogate pair
	"\xed\xb0\x80",             // the other half
	"\xed\xa0\xbd\xed\xb8\x80", // both, as CESU-8
	"\xf4\x90\x80\x80",         // beyond Unicode
	"\xf8\x88\x80\x80\x80",     // five bytes
	"\x80\x81\x9b31m",          // C1 controls as bytes
	"\xe2\x80",                 // the beginning of a direction
	"\xe2\x80\xae"[1:],         // the end of one
	"\xef\xbb\xbf\xff",
	"\xf0\x9f\x98",
	"<script\xc2>hostileRan()</script>",
	"\xc3\x22><script>hostileRan()</script>",
	"ma\xd1\x96n\xd1",
}
