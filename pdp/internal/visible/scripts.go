package visible

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// inWord reports whether a character belongs to a word. One that cannot be seen parts no words, if it is no space.
func (c char) inWord() bool {
	switch {
	case c.rune < utf8.RuneSelf:
		return isASCIIWord(c.rune)
	case !c.seen():
		return !unicode.In(c.rune, unicode.Z, unicode.Cc)
	case c.sign():
		return false
	}
	return unicode.In(c.rune, unicode.L, unicode.M, unicode.N, unicode.Pc) || scriptOf(c.rune) != ""
}

func isASCIIWord(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_'
}

// mixedWord are the letters of a word that are marked. If it has several scripts, they are those of the scripts that have
// less of it. Of two that have as much, Latin has the word, which our own names are in. Mathematical letters are always
// other letters in disguise. Besides they are Latin ones that look like ASCII, or all that do.
func (o *odd) mixedWord(w word, all bool) (marked []letter) {
	counts := map[string]int{}
	digits := strings.IndexFunc(w.text, foreignDigit) >= 0
	for _, r := range w.text {
		if script := scriptIn(r, digits); script != "" {
			counts[script]++
		}
	}
	most, mixes := "", !belongTogether(counts, digits)
	for script := range counts {
		if script != mathematical && (most == "" || better(script, most, counts)) {
			most = script
		}
	}
	others := map[string]bool{}
	for n := 0; n < len(w.text); {
		c := first(w.text[n:])
		looks := plainOf()[c.rune]
		switch script := scriptIn(c.rune, digits); {
		case !c.seen():
		case mixes && script != "" && script != most:
			note := script
			if most != "" {
				note += " among " + most
			}
			marked = append(marked, letter{w.at + n, note})
			others[script] = true
		case looks != "" && (all || script == latin):
			marked = append(marked, letter{w.at + n, "looks like " + looks})
		}
		n += len(c.bytes)
	}
	switch {
	case len(others) > 0:
		o.wordNote(mixedNote(w.text, slices.Sorted(maps.Keys(others)), most, marked[0].at-w.at))
	case len(marked) > 0:
		o.wordNote(likeNote(w.text, marked[0].at-w.at))
	}
	return marked
}

// better reports whether a script has more of a word than another one.
func better(script, than string, counts map[string]int) bool {
	return cmp.Or(cmp.Compare(counts[than], counts[script]), prefer(than)-prefer(script), cmp.Compare(script, than)) < 0
}

func prefer(script string) int {
	if script == latin {
		return 1
	}
	return 0
}

const (
	latin        = "Latin"
	fullwidth    = "fullwidth"
	mathematical = "mathematical"
	circled      = "circled"
)

// together are scripts that stand in one word in languages that have no spaces, or borrow words with their letters.
var together = []string{"Han", "Hiragana", "Katakana", "Bopomofo", "Hangul", "Thai"}

func standsTogether(script string) bool { return slices.Contains(together, script) }

// belongTogether reports whether a word has letters of at most one script besides those that stand together. A digit of
// these is no letter: there are some that look like Latin ones.
func belongTogether(counts map[string]int, digits bool) bool {
	others := 0
	for script := range counts {
		switch {
		case script == mathematical:
			return false
		case digits && len(counts) > 1 && counts[latin] > 0:
			return false
		case !standsTogether(script):
			others++
		}
	}
	return others < 2
}

func foreignDigit(r rune) bool { return r >= utf8.RuneSelf && unicode.Is(unicode.Nd, r) }

// scriptIn is the script of a letter or a foreign digit. Digits of ours are Latin beside those.
func scriptIn(r rune, digits bool) string {
	switch {
	case digits && '0' <= r && r <= '9':
		return latin
	case foreignDigit(r):
		return cmp.Or(scriptOf(r), "Arabic")
	}
	return scriptOf(r)
}

// scriptOf is the script of a letter, and "" of a character that any script may have.
func scriptOf(r rune) string {
	switch {
	case 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z':
		return latin
	case r < 0xaa:
		return ""
	case 0xff10 <= r && r <= 0xff5a:
		if unicode.In(r, unicode.L, unicode.Nd) {
			return fullwidth
		}
		return ""
	case 0x1d400 <= r && r <= 0x1d7ff || 0x2100 <= r && r <= 0x214f && unicode.IsLetter(r):
		return mathematical
	case 0x24b6 <= r && r <= 0x24e9, 0x1f110 <= r && r <= 0x1f189:
		return circled
	}
	all := scripts()
	n, found := slices.BinarySearchFunc(all, r, func(s scriptRange, r rune) int {
		switch {
		case s.last < r:
			return -1
		case s.first > r:
			return 1
		}
		return 0
	})
	if !found {
		return ""
	}
	return all[n].script
}

// scriptRange are letters of one script.
type scriptRange struct {
	first, last rune
	script      string
}

// scripts are all scripts, sorted by their letters.
var scripts = sync.OnceValue(func() (all []scriptRange) {
	add := func(first, last, stride rune, script string) {
		if stride == 1 {
			all = append(all, scriptRange{first, last, script})
			return
		}
		for r := first; r <= last; r += stride {
			all = append(all, scriptRange{r, r, script})
		}
	}
	for script, table := range unicode.Scripts {
		if script == "Common" || script == "Inherited" {
			continue
		}
		script = strings.ReplaceAll(script, "_", " ")
		for _, r := range table.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride), script)
		}
		for _, r := range table.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride), script)
		}
	}
	slices.SortFunc(all, func(a, b scriptRange) int { return cmp.Compare(a.first, b.first) })
	return all
})

// mostOfWord is how much of a word a note has.
const mostOfWord = 24

// mixedNote is a sentence about a word of several scripts.
func mixedNote(word string, others []string, most string, marked int) string {
	scripts := strings.Join(others, " and ")
	if most == "" {
		return fmt.Sprintf(`"%s" has %s letters`, excerpt(word, marked, char.escape), scripts)
	}
	return fmt.Sprintf(`"%s" mixes %s with %s letters`, excerpt(word, marked, char.escape), scripts, most)
}

// excerpt is a word in which every letter that is not ASCII is written in some way. A long word is shown from a little
// before its first letter that is marked.
func excerpt(word string, marked int, write func(char) string) string {
	var b strings.Builder
	before := []rune(word[:marked])
	if len(before) > mostOfWord/2 {
		b.WriteString("...")
		word = string(before[len(before)-mostOfWord/2:]) + word[marked:]
	}
	n := 0
	for len(word) > 0 {
		if n++; n > mostOfWord {
			b.WriteString("...")
			break
		}
		c := first(word)
		if word = word[len(c.bytes):]; c.rune < utf8.RuneSelf {
			b.WriteString(c.bytes)
		} else {
			b.WriteString(write(c))
		}
	}
	return b.String()
}
