package visible

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

//go:generate sh -c "curl -fsS https://www.unicode.org/Public/security/latest/confusables.txt | go run confusables_make.go >confusables.new && mv confusables.new confusables.go"

// plainOf is the text of ASCII that each character beyond it looks like, if it does.
var plainOf = sync.OnceValue(func() map[rune]string {
	of := make(map[rune]string, 2048)
	for _, c := range confusables {
		for _, r := range c[1] {
			of[r] = c[0]
		}
	}
	return of
})

// letter is one that is marked where it stands.
type letter struct {
	at   int
	note string
}

// word is a run of letters, digits and marks of a line, or one sign that looks like ASCII.
type word struct {
	at      int
	text    string
	kind    wordKind
	letters bool   // some are ASCII
	looks   string // of a sign
}

type wordKind int

const (
	isLatin   wordKind = iota
	isDoubted          // has letters of other alphabets, and every one of them looks like a Latin one
	isMixed            // has ASCII letters, and others that look like none
	isForeign          // is of another alphabet
	isSign
)

func (w word) end() int { return w.at + len(w.text) }

// wordsIn are the words and signs of a line.
func wordsIn(line string) (all []word) {
	for at := 0; at < len(line); {
		end := at
		for end < len(line) {
			c := first(line[end:])
			if !c.inWord() {
				break
			}
			end += len(c.bytes)
		}
		if end > at {
			all = append(all, newWord(line[at:end], at))
			at = end
			continue
		}
		c := first(line[at:])
		if c.sign() {
			all = append(all, word{at: at, text: c.bytes, kind: isSign, looks: plainOf()[c.rune]})
		}
		at += len(c.bytes)
	}
	return all
}

// sign reports whether a character of no alphabet looks like ASCII.
func (c char) sign() bool {
	return c.rune >= utf8.RuneSelf && plainOf()[c.rune] != "" && c.seen() && !foreignDigit(c.rune) && scriptOf(c.rune) == ""
}

func newWord(text string, at int) word {
	w := word{at: at, text: text, letters: strings.ContainsFunc(text, isASCIILetter)}
	if isPlain(text) {
		return w
	}
	for n := 0; n < len(text); {
		c := first(text[n:])
		n += len(c.bytes)
		script, looks := scriptOf(c.rune), plainOf()[c.rune]
		switch {
		case c.rune < utf8.RuneSelf, !c.seen():
		case looks != "":
			if script != latin && w.kind == isLatin {
				w.kind = isDoubted
			}
		case script != latin && (script != "" || foreignDigit(c.rune)):
			w.kind = isForeign
		}
	}
	if w.kind == isForeign && w.letters {
		w.kind = isMixed
	}
	return w
}

func isASCIILetter(r rune) bool { return isASCIIWord(r) && unicode.IsLetter(r) }

// alike are the characters of a line, in their order, that look like others: those that stand in a word among letters of
// another script, Latin ones that look like ASCII, all of a word that could be one of ASCII where it stands, and signs.
func (d *drawer) alike(line string) (all []letter) {
	if d.plainText {
		return nil
	}
	words := wordsIn(line)
	right := make([]word, len(words)) // the next word that is not in doubt, and the zero word
	for n := len(words) - 2; n >= 0; n-- {
		right[n] = words[n+1]
		if right[n].kind == isDoubted || right[n].kind == isSign {
			right[n] = right[n+1]
		}
	}
	left := word{}
	for n, w := range words {
		switch w.kind {
		case isSign:
			if d.marksSign(line, w) {
				all = append(all, letter{w.at, "looks like " + w.looks})
				d.wordNote(first(w.text).escape() + " looks like " + w.looks)
			}
			continue
		case isDoubted:
			all = append(all, d.mixedWord(w, !d.foreign || betweenOurs(line, left, w, right[n]))...)
			continue
		}
		if !isPlain(w.text) {
			all = append(all, d.mixedWord(w, false)...)
		}
		left = w
	}
	return all
}

// betweenOurs reports whether a word stands among ASCII letters though the text is of another alphabet: beside some
// without a blank, as in a path, or with such words on both sides. A single letter may be a word of that alphabet.
func betweenOurs(line string, left, w, right word) bool {
	ours := func(w word) bool { return w.kind == isLatin && w.letters }
	blank := func(from, to int) bool { return strings.ContainsAny(line[from:to], " \t") }
	switch {
	case ours(left) && !blank(left.end(), w.at), ours(right) && !blank(w.end(), right.at):
		return true
	}
	return ours(left) && ours(right) && utf8.RuneCountInString(w.text) > 1
}

const (
	// mostOfName is how many words an id, a name or a URL may have: more of them are a text that is read.
	mostOfName = 6
	// parting are the signs that part ids, names and URLs.
	parting = `/\:@.#`
)

// marksSign reports whether a sign is marked. In a text that is read, typography is meant as such.
func (d *drawer) marksSign(line string, w word) bool {
	before, _ := utf8.DecodeLastRuneInString(line[:w.at])
	after, _ := utf8.DecodeRuneInString(line[w.end():])
	other := func(r rune) bool { return !strings.ContainsRune(parting, r) }
	switch {
	case strings.ContainsFunc(w.looks, isASCIILetter): // № or ×
		return isASCIILetter(before) || isASCIILetter(after) || len(d.lines) == 1 && len(line) == len(w.text)
	case d.json && w.looks == `"`:
		return true
	case strings.ContainsFunc(w.looks, other) || w.looks == ":":
		if isWide(first(w.text).rune) && (standsTogether(scriptOf(before)) || standsTogether(scriptOf(after))) {
			return false
		}
	}
	return !d.read || !strings.ContainsFunc(w.looks, other) && w.looks != "..."
}

// isWide reports whether a sign is one of East Asian typography.
func isWide(r rune) bool { return 0x3000 <= r && r <= 0x303f || 0xfe30 <= r && r <= 0xff5e }

// isRead reports whether a text has more words than an id, a name or a URL. Each letter of an alphabet that needs no
// blanks counts as one.
func isRead(text string) bool {
	words, inWord := 0, false
	for _, r := range text {
		blank := r == ' ' || r == '\t' || r == '\n'
		if !blank && (!inWord || r >= utf8.RuneSelf && standsTogether(scriptOf(r))) {
			words++
		}
		inWord = !blank
	}
	return words > mostOfName
}

// isJSON reports whether a text seems to be an object or an array.
func isJSON(text string) bool {
	text = strings.TrimSpace(text)
	return len(text) > 1 && (text[0] == '{' && text[len(text)-1] == '}' || text[0] == '[' && text[len(text)-1] == ']')
}

// likeNote is a sentence about a word that looks like another one.
func likeNote(word string, marked int) string {
	looks := func(c char) string {
		if !c.seen() {
			return ""
		}
		return cmp.Or(plainOf()[c.rune], c.escape())
	}
	return fmt.Sprintf(`"%s" looks like "%s"`, excerpt(word, marked, char.escape), excerpt(word, marked, looks))
}
