package visible_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/visible"
	"policy-service/pdp/internal/visible/hostile"
	"policy-service/pdp/pdptest/night"
)

// drawn writes the pieces of a text: those that are not plain with their notes, then what is in More, then the notes.
func drawn(text string) string {
	s := visible.Of(text)
	all := drawnLines(s.Lines)
	if s.More != nil {
		all += "\n---\n" + drawnLines(s.More)
	}
	if s.RightToLeft {
		all += "\n=> right to left"
	}
	for _, note := range s.Notes {
		all += "\n=> " + note
	}
	return all
}

func drawnLines(lines [][]visible.Piece) string {
	var b strings.Builder
	for n, line := range lines {
		if n > 0 {
			b.WriteByte('\n')
		}
		for _, p := range line {
			if p.Kind == visible.Plain {
				b.WriteString(p.Text)
			} else {
				fmt.Fprintf(&b, "[%s|%s]", p.Text, p.Note)
			}
		}
	}
	return b.String()
}

func TestOfDrawsWhatIsThere(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", 300)
	for text, want := range map[string]string{
		"":                "",
		"main":            "main",
		"a b\nc":          "a b\nc",
		`C:\temp`:         `C:\\temp`,
		`\u202e`:          `\\u202e`,
		"caf\u00e9 漢 😀":   "café 漢 😀",
		"a\tb\n\tc":       "a[→   |CHARACTER TABULATION]b\n[→   |CHARACTER TABULATION]c",
		"lead ":           "lead[␣|1 space]",
		" lead":           "[␣|1 space]lead",
		"  if x\n    y\n": "  if x\n    y\n",
		"\u202e":          `[\u202e|RIGHT-TO-LEFT OVERRIDE]` + "\n=> 1 character that cannot be seen: RIGHT-TO-LEFT OVERRIDE",
		"a\u200b\u200bb":  `a[\u200b|ZERO WIDTH SPACE][\u200b|ZERO WIDTH SPACE]b` + "\n=> 2 characters that cannot be seen: ZERO WIDTH SPACE (2 times)",
		"a\r\n\x1b[2J": `a[\u000d|CARRIAGE RETURN]` + "\n" + `[\u001b|ESCAPE][2J` +
			"\n=> 2 characters that cannot be seen: CARRIAGE RETURN, ESCAPE",
		"\U000e0041\ufe0f\ue000\u0378\ufdd0": `[\udb40\udc41|TAG A][\ufe0f|VARIATION SELECTOR U+FE0F][\ue000|PRIVATE USE U+E000]` +
			`[\u0378|UNASSIGNED U+0378][\ufdd0|NONCHARACTER U+FDD0]` +
			"\n=> 5 characters that cannot be seen: TAG A, VARIATION SELECTOR U+FE0F, PRIVATE USE U+E000, 2 more",
		"a\xff\xed\xa0\x80": `a[\xff|NO UTF-8][\xed|NO UTF-8][\xa0|NO UTF-8][\x80|NO UTF-8]` + "\n=> 4 bytes of no UTF-8",
		"\ufffd":            "\ufffd",
		"x" + strings.Repeat("\u200b", 2000) + "y": `x[\u200b×2000|ZERO WIDTH SPACE, 2000 times]y` +
			"\n=> 2000 characters that cannot be seen: ZERO WIDTH SPACE (2000 times)",
		"a        b": "a        b",
		"main" + strings.Repeat(" ", 120) + "--force": "main[␣×120|120 spaces]--force\n=> 120 spaces in a row",
		"a" + strings.Repeat(" \t", 5) + "b":          "a[␣×5 →×5|5 spaces and 5 tabs]b\n=> 10 spaces in a row",
		"a\n\n\n\nb":                                  "a\n\n\n\nb",
		"a" + strings.Repeat("\n \t", 7) + "\nb":      "a\n[⏎×7|7 lines of spaces]\nb\n=> 7 empty lines in a row",
		"e\u0301\u0302\u0303x":                        "e\u0301\u0302" + `[\u0303|COMBINING MARK U+0303]x` + "\n=> 1 mark too many on a letter, or on none",
		"\u0301":                                      `[\u0301|COMBINING MARK U+0301]` + "\n=> 1 mark too many on a letter, or on none",
		"\u1000\u103b\u102d\u102f\u1037":              "\u1000\u103b\u102d\u102f\u1037", // a Burmese word
		"\u05e9\u05dc 12":                             "\u05e9\u05dc 12\n=> right to left",
		x + "yz":                                      x + "[…|2 more characters]\n---\n" + x + "yz\n=> 1 line too long and cut",
		x[:299] + "\u202ez": x[:299] + "[…|7 more characters]\n---\n" + x[:299] + `[\u202e|RIGHT-TO-LEFT OVERRIDE]z` +
			"\n=> 1 character that cannot be seen: RIGHT-TO-LEFT OVERRIDE\n=> 1 line too long and cut",
		x[:299] + `\z`:                   x[:299] + "[…|3 more characters]\n---\n" + x[:299] + `\\z` + "\n=> 1 line too long and cut",
		strings.Repeat("y\n", 101) + "z": strings.Repeat("y\n", 99) + "y\n---\ny\nz\n=> 2 more lines not shown",
	} {
		if diff := cmp.Diff(want, drawn(text)); diff != "" {
			t.Errorf("%.60q (-want +got):\n%s", text, diff)
		}
	}
}

func TestOfMarksMixedWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ma\u0456n":      `ma[\u0456|Cyrillic among Latin]n` + "\n=> \"ma\\u0456n\" mixes Cyrillic with Latin letters",
		"\u043c\u0430in": `[\u043c|Cyrillic among Latin][\u0430|Cyrillic among Latin]in` + "\n=> \"\\u043c\\u0430in\" mixes Cyrillic with Latin letters",
		"\u043f\u0440\u0438\u0432e\u0442": "\u043f\u0440\u0438\u0432" + `[\u0065|Latin among Cyrillic]` + "\u0442" +
			"\n=> \"\\u043f\\u0440\\u0438\\u0432e\\u0442\" mixes Latin with Cyrillic letters",
		"push_\u0441":   `push_[\u0441|Cyrillic among Latin]` + "\n=> \"push_\\u0441\" mixes Cyrillic with Latin letters",
		"c\u03bfde":     `c[\u03bf|Greek among Latin]de` + "\n=> \"c\\u03bfde\" mixes Greek with Latin letters",
		"\u0585wner":    `[\u0585|Armenian among Latin]wner` + "\n=> \"\\u0585wner\" mixes Armenian with Latin letters",
		"\u13aeoogle":   `[\u13ae|Cherokee among Latin]oogle` + "\n=> \"\\u13aeoogle\" mixes Cherokee with Latin letters",
		"\uff4dain":     `[\uff4d|fullwidth among Latin]ain` + "\n=> \"\\uff4dain\" mixes fullwidth with Latin letters",
		"\U0001d426ain": `[\ud835\udc26|mathematical among Latin]ain` + "\n=> \"\\ud835\\udc26ain\" mixes mathematical with Latin letters",
		"\U0001d426":    `[\ud835\udc26|mathematical]` + "\n=> \"\\ud835\\udc26\" has mathematical letters",
		"\u24dcain":     `[\u24dc|circled among Latin]ain` + "\n=> \"\\u24dcain\" mixes circled with Latin letters",
		"g\u0e50ogle":   `g[\u0e50|Thai among Latin]ogle` + "\n=> \"g\\u0e50ogle\" mixes Thai with Latin letters",
		"\u0967\u09661": "\u0967\u0966" + `[\u0031|Latin among Devanagari]` + "\n=> \"\\u0967\\u09661\" mixes Latin with Devanagari letters",
		"1\u0662":       `1[\u0662|Arabic among Latin]` + "\n=> \"1\\u0662\" mixes Arabic with Latin letters",
		"m\u200b\u0430\u200bin": `m[\u200b|ZERO WIDTH SPACE][\u0430|Cyrillic among Latin][\u200b|ZERO WIDTH SPACE]in` +
			"\n=> \"m\\u200b\\u0430\\u200bin\" mixes Cyrillic with Latin letters" +
			"\n=> 2 characters that cannot be seen: ZERO WIDTH SPACE (2 times)",
		strings.Repeat("x", 50) + "\u0430" + strings.Repeat("y", 50): strings.Repeat("x", 50) + `[\u0430|Cyrillic among Latin]` + strings.Repeat("y", 50) +
			"\n=> \"...xxxxxxxxxxxx\\u0430yyyyyyyyyyy...\" mixes Cyrillic with Latin letters",
		"\u0430a \u0435e a\u0430 a\u043e o\u043e \u0430a": `[\u0430|Cyrillic among Latin]a [\u0435|Cyrillic among Latin]e a[\u0430|Cyrillic among Latin]` +
			` a[\u043e|Cyrillic among Latin] o[\u043e|Cyrillic among Latin] [\u0430|Cyrillic among Latin]a` +
			"\n=> \"\\u0430a\" mixes Cyrillic with Latin letters\n=> \"\\u0435e\" mixes Cyrillic with Latin letters" +
			"\n=> \"a\\u0430\" mixes Cyrillic with Latin letters\n=> 2 more words of mixed letters, or like others",
	} {
		if diff := cmp.Diff(want, drawn(text)); diff != "" {
			t.Errorf("%.60q (-want +got):\n%s", text, diff)
		}
	}
	for _, plain := range []string{
		"\u043f\u0440\u0438\u0432\u0435\u0442 world", // two words
		"\u03a9-resistor",
		"日本語のテキストtext", "ＡＢＣ株式会社", "API를", "漢字 ㄅㄆ", "\ud55c\uad6d\uc5b4", "PDF\u0e44\u0e1f\u0e25\u0e4c",
		"caf\u00e9", "cafe\u0301", "na\u00efve", "stra\u00dfe", "Vi\u1ec7t", "\u00b5m", "x\u00b2",
		"\u0939\u093f\u0928\u094d\u0926\u0940\u0967", "हिन्दी", "\u0661\u0662", "\u0967\u0966",
		"main2", "😀main", "①②", "½ cup", "github.push_code", "_", "a_b",
	} {
		if s := visible.Of(plain); len(s.Notes) > 0 {
			t.Errorf("%q: %q", plain, s.Notes)
		}
	}
}

// check holds what must be true of any text.
func check(t *testing.T, text string) {
	t.Helper()
	s := visible.Of(text)
	if len(s.Lines) > 100 {
		t.Errorf("%.40q: %d lines", text, len(s.Lines))
	}
	for _, line := range s.Lines {
		length := 0
		for _, p := range line {
			length += utf8.RuneCountInString(p.Text)
		}
		if length > 301 {
			t.Errorf("%.40q: a line of %d characters", text, length)
		}
	}
	for _, line := range append(s.Lines, s.More...) {
		for _, p := range line {
			if p.Text == "" || (p.Kind == visible.Plain) != (p.Note == "") || notSeen(p.Text) || notSeen(p.Note) {
				t.Errorf("%.40q: %+v", text, p)
			}
		}
	}
	for _, note := range s.Notes {
		if strings.ContainsFunc(note, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%.40q: note %q", text, note)
		}
	}
	for _, shown := range []string{visible.Text(text), visible.Quoted(text), visible.Lines(text), visible.QuotedLines(text)} {
		if notSeen(strings.NewReplacer("\n", "", "\t", "").Replace(shown)) {
			t.Errorf("%.40q: shown as %q", text, shown)
		}
	}
	if again := visible.Of(text); !cmp.Equal(s, again) {
		t.Errorf("%.40q: shown otherwise when shown again", text)
	}
	if got, want := readBack(t, s), counted(text); got != want {
		t.Errorf("%.40q: read back as %.300q, want %.300q", text, got, want)
	}
}

// readBack is the text that the pieces stand for.
func readBack(t *testing.T, s visible.Shown) string {
	var lines []string
	more := s.More
	for _, line := range s.Lines {
		if len(line) > 0 && line[len(line)-1].Text == "…" && line[len(line)-1].Kind == visible.Escape {
			line, more = more[0], more[1:]
		}
		lines = append(lines, readBackLine(t, line))
	}
	for _, line := range more {
		lines = append(lines, readBackLine(t, line))
	}
	return strings.Join(lines, "\n")
}

func readBackLine(t *testing.T, line []visible.Piece) string {
	var b strings.Builder
	for _, p := range line {
		text, times, counted := strings.Cut(p.Text, "×")
		n := 1
		if counted && p.Kind != visible.Plain {
			if _, err := fmt.Sscan(times, &n); err != nil {
				t.Errorf("%q: %v", p.Text, err)
			}
		}
		switch {
		case p.Kind == visible.Plain:
			b.WriteString(strings.ReplaceAll(p.Text, `\\`, `\`))
		case p.Kind == visible.Spaces && text == "⏎":
			b.WriteString(strings.Repeat("\n", n-1))
		case p.Kind == visible.Spaces && counted:
			for part := range strings.FieldsSeq(p.Text) {
				_, _ = fmt.Sscan(part[strings.Index(part, "×")+len("×"):], &n)
				b.WriteString(strings.Repeat(map[bool]string{true: " ", false: "\t"}[strings.HasPrefix(part, "␣")], n))
			}
		case p.Kind == visible.Spaces:
			b.WriteString(strings.NewReplacer("␣", " ", "→   ", "\t").Replace(p.Text))
		default:
			b.WriteString(strings.Repeat(unescaped(t, text), n))
		}
	}
	return b.String()
}

func unescaped(t *testing.T, text string) string {
	quoted := text
	if len(text) == 12 { // Go has no pairs
		var high, low rune
		_, err := fmt.Sscanf(text, `\u%x\u%x`, &high, &low)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		return string(utf16.DecodeRune(high, low))
	}
	text, err := strconv.Unquote(`"` + text + `"`)
	if err != nil {
		t.Errorf("%q: %v", quoted, err)
	}
	return text
}

var (
	longSpace  = regexp.MustCompile(`[ \t]{9,}`)
	emptyLines = regexp.MustCompile(`(?:^|\n)[ \t]*(?:\n[ \t]*){3,}(?:\n|$)`)
)

// counted is a text as far as one of its lines and long spaces is: they are counted.
func counted(text string) string {
	text = emptyLines.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	return longSpace.ReplaceAllStringFunc(text, func(s string) string {
		return strings.Repeat(" ", strings.Count(s, " ")) + strings.Repeat("\t", strings.Count(s, "\t"))
	})
}

func notSeen(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == 0x2800
	})
}

func TestEveryCharacterIsShown(t *testing.T) {
	t.Parallel()
	for _, text := range hostile.Texts() {
		check(t, text)
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r > 0x3200 && (r < 0xf900 || r > 0x20000) {
			r += 30 // there are thousands of one kind
		}
		if s := visible.Of(string(r)); len(s.Lines) == 0 || r != '\n' && len(s.Lines[0]) == 0 {
			t.Errorf("%U is not shown", r)
		} else if notSeen(drawnLines(s.Lines)) && r != '\n' {
			t.Errorf("%U is shown as %v", r, s.Lines)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	parts := append(strings.Split(" ,  ,\t,\n,\\,a,b,x1,\u0430,\u03bf,\u0301,\u0335,\u200b,\u202e,\u05d0,\xff,\xed\xa0\x80,漢,…,×,␣,→   ,⏎", ","),
		strings.Repeat(" ", 9), strings.Repeat("\n", 5), strings.Repeat("w", 200))
	for range 1000 {
		var b strings.Builder
		for range random.IntN(40) {
			if random.IntN(4) == 0 {
				b.WriteRune(random.Int32N(unicode.MaxRune + 1))
			}
			b.WriteString(parts[random.IntN(len(parts))])
		}
		check(t, b.String())
	}
}

// Twice as much takes about twice as long, whatever it is.
func TestOfIsLinear(t *testing.T) {
	night.Measures(t)
	for _, part := range []string{"x", " ", "\n", "\t", "x\n", "m\u0430in ", "m\u0430in", "\u200b", "\u200bx", "\u0301", "\xff", "\\", "a\u0301\u0302\u0303", "\U0001d426"} {
		took := func(n int) time.Duration {
			text := strings.Repeat(part, n/len(part))
			began := time.Now()
			visible.Of(text)
			return time.Since(began)
		}
		if small, large := took(1<<14), took(1<<18); large > 100*small && large > time.Second {
			t.Errorf("%q: 16 times as much took %v, not %v", part, large, small)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, text := range hostile.Short(200) {
		f.Add(text)
	}
	f.Fuzz(check)
}
