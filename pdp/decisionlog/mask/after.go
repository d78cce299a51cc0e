package mask

import (
	"bytes"
	"encoding/base64"
	"hash"
	"strings"
	"unicode"
	"unicode/utf8"

	"policy-service/evaluation"
)

// looked is the length of the longest secret that is looked for at any place of a later
// text; a longer one is found where it begins and ends as words do. It bounds the work:
// some 120 digests for each byte of a text.
const looked = 128

// After is a text that comes after its record was made, when the secrets are no longer
// known but by their digests. What of it has a digest that stands in said, which is what
// is on record, becomes that digest, wherever it stands; and so does what would be masked
// in any text. A secret that went into a digest with more around it, as in an object that
// was masked whole, is not found.
func (m *Masker) After(text string, said ...[]byte) string {
	text = m.Of(evaluation.Request{}).Text(text)
	recorded := digestsIn(said)
	if len(recorded) == 0 || len(text) < searched {
		return text
	}
	l := later{recorded: recorded, hash: m.digests.Get().(hash.Hash)}
	defer m.digests.Put(l.hash)
	var spans []span
	for at := range text { // each place where a character begins
		if n := l.longest(text, at); n > 0 {
			spans = append(spans, span{at, at + n})
		}
	}
	var b strings.Builder
	end := 0
	for n := 0; n < len(spans); n++ {
		s := spans[n]
		for n+1 < len(spans) && spans[n+1].from < s.to { // those that overlap are taken together
			n++
			s.to = max(s.to, spans[n].to)
		}
		b.WriteString(text[end:s.from])
		b.WriteString(m.digestOfText(text[s.from:s.to]))
		end = s.to
	}
	return b.String() + text[end:]
}

type digest [16]byte

// digestsIn are those that stand in what is on record. Who sent one that looks like it
// is not lied about: nothing has it.
func digestsIn(said [][]byte) map[digest]bool {
	const length = 22
	found := map[digest]bool{}
	for _, text := range said {
		for {
			_, after, ok := bytes.Cut(text, []byte(Prefix))
			if !ok {
				break
			}
			var d digest
			if n, err := base64.RawURLEncoding.Decode(d[:], after[:min(length, len(after))]); err == nil && n == len(d) {
				found[d] = true
			}
			text = after
		}
	}
	return found
}

// later looks for what is known by its digest.
type later struct {
	recorded map[digest]bool
	hash     hash.Hash
	form     []byte
	sum      []byte
}

// longest is the length of the longest secret that begins at a place; 0 is none.
func (l *later) longest(text string, at int) (length int) {
	begins := (at == 0 || joint(text[:at], utf8.DecodeLastRuneInString)) && !joint(text[at:], utf8.DecodeRuneInString)
	for end := at + searched; end <= len(text); end++ {
		if end < len(text) && !utf8.RuneStart(text[end]) {
			continue
		}
		if end-at > looked {
			if !begins {
				return length
			}
			if end < len(text) && !joint(text[end:], utf8.DecodeRuneInString) {
				continue
			}
		}
		if l.has(text[at:end]) {
			length = end - at
		}
	}
	return length
}

// joint reports whether the next character, or the last, is none of a word.
func joint(text string, decode func(string) (rune, int)) bool {
	r, _ := decode(text)
	return !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

func (l *later) has(text string) bool {
	l.form = appendText(l.form[:0], text)
	l.hash.Reset()
	_, _ = l.hash.Write(l.form)
	l.sum = l.hash.Sum(l.sum[:0])
	return l.recorded[digest(l.sum[:len(digest{})])]
}
