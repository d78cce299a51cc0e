package mask

import (
	"bytes"
	"encoding/base64"
	"hash"
	"unicode"
	"unicode/utf8"

	"policy-service/evaluation"
)

// mostSought is the length of the longest secret that is sought at every place of a later text. A longer secret is
// found if it begins and ends where words do. This bounds the work: some 120 digests for each byte of a text.
const mostSought = 128

// After masks a text that comes after its record was made, when only the digests of the secrets are known. records is
// what is on record. A part of the text becomes its digest if that digest stands in records, or if the part would be
// masked in any text. A secret that was masked together with what stood around it, as in an object that was masked
// whole, is not found.
func (m *Masker) After(text string, records ...[]byte) string {
	text = m.Apply(evaluation.Request{}).Text(text)
	recorded := digestsIn(records)
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
		case last >= 0 && spans[last].to > at: // those that overlap are taken together
			spans[last].to = max(spans[last].to, at+n)
		default:
			spans = append(spans, span{at, at + n})
		}
	}
	return m.replace(text, spans)
}

type digest [16]byte

// digestsIn are the digests in what is on record. A caller may have sent a text that looks like one, but no text has
// that digest.
func digestsIn(records [][]byte) map[digest]bool {
	found := map[digest]bool{}
	for _, text := range records {
		for {
			_, after, ok := bytes.Cut(text, []byte(Prefix))
			if !ok {
				break
			}
			var d digest
			if n, err := base64.RawURLEncoding.Decode(d[:], after[:min(digestLength, len(after))]); err == nil && n == len(d) {
				found[d] = true
			}
			text = after
		}
	}
	return found
}

// later finds secrets by their digests.
type later struct {
	recorded map[digest]bool
	hash     hash.Hash
	form     []byte
	sum      []byte
}

// longest is the length of the longest secret that begins at a place, or 0.
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
		if l.has(text[at:end]) {
			length = end - at
		}
	}
	return length
}

// joint reports if the first character that decode reads, or the last, is neither letter nor digit.
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
