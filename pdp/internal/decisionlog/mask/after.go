package mask

import (
	"bytes"
	"encoding/base64"
	"hash"
	"unicode"
	"unicode/utf8"

	"policy-service/evaluation"
)

// mostSought is the length up to which secrets are sought at every place of a later text. A longer secret is found if it
// begins and ends where words do. This bounds the work: some 120 digests for each byte of a text.
const mostSought = 128

// After masks a text that comes after its record was made, when only the digests of the secrets are known. records are
// the lines on record. A part of the text becomes its digest if that digest stands in records, or if the part would be
// masked in any text. After does not find a secret that was masked together with its surroundings, as in an object that
// was masked whole.
func (m *Masker) After(text string, records ...[]byte) string {
	text = m.Apply(evaluation.Request{}).Text(text)
	recorded := map[digest]bool{} // a text that a caller sent may look like a digest, but no text has that digest
	for _, rest := range records {
		for {
			_, after, ok := bytes.Cut(rest, []byte(Prefix))
			if !ok {
				break
			}
			var d digest
			if n, err := base64.RawURLEncoding.Decode(d[:], after[:min(digestLength, len(after))]); err == nil && n == len(d) {
				recorded[d] = true
			}
			rest = after
		}
	}
	if len(recorded) == 0 || len(text) < leastSought {
		return text
	}
	l := later{recorded: recorded, hash: m.digests.Get().(hash.Hash)}
	defer m.digests.Put(l.hash)
	var spans []span
	for at := range text { // each place where a character begins
		n := l.longest(text, at)
		switch last := len(spans) - 1; {
		case n == 0:
		case last >= 0 && spans[last].to > at: // parts that overlap become one
			spans[last].to = max(spans[last].to, at+n)
		default:
			spans = append(spans, span{at, at + n})
		}
	}
	return m.replace(text, spans)
}

type digest [16]byte

// later finds secrets in a text by their digests.
type later struct {
	recorded map[digest]bool
	hash     hash.Hash
	form     []byte
	sum      []byte
}

// longest returns the length of the longest secret that begins at a place, or 0.
func (l *later) longest(text string, at int) (length int) {
	begins := (at == 0 || joint(text[:at], utf8.DecodeLastRuneInString)) && !joint(text[at:], utf8.DecodeRuneInString)
	for end := at + leastSought; end <= len(text); end++ {
		if end < len(text) && !utf8.RuneStart(text[end]) {
			continue
		}
		if end-at > mostSought {
			if !begins {
				return length
			}
			if end < len(text) && !joint(text[end:], utf8.DecodeRuneInString) {
				continue
			}
		}
		l.form = appendText(l.form[:0], text[at:end])
		l.hash.Reset()
		_, _ = l.hash.Write(l.form)
		l.sum = l.hash.Sum(l.sum[:0])
		if l.recorded[digest(l.sum[:len(digest{})])] {
			length = end - at
		}
	}
	return length
}

// joint reports whether the character that decode reads, the first or the last, is neither letter nor digit.
func joint(text string, decode func(string) (rune, int)) bool {
	r, _ := decode(text)
	return !unicode.IsLetter(r) && !unicode.IsDigit(r)
}
