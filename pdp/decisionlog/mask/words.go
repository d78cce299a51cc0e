package mask

import "strings"

// separators are what stands between words: in prose, and then within what prose
// takes for one word, as in password=hunter2.
var separators = []string{" \t\r\n\"'`<>()[]{},;", "=:.!?&/"}

// Words is a text that comes after its record was made, when the secrets are no
// longer known but by their digests. A word of eight or more bytes becomes its digest
// where recorded reports that. A secret that is no word there is not found.
func (m *Masker) Words(text string, recorded func(digest string) bool) string {
	return m.words(text, separators, recorded)
}

func (m *Masker) words(text string, separators []string, recorded func(string) bool) string {
	if len(separators) == 0 || len(text) < searched {
		return text
	}
	var b strings.Builder
	for text != "" {
		end := strings.IndexAny(text, separators[0])
		if end < 0 {
			end = len(text)
		}
		b.WriteString(m.word(text[:end], separators[1:], recorded))
		gap := len(text) - len(strings.TrimLeft(text[end:], separators[0]))
		b.WriteString(text[end:gap])
		text = text[gap:]
	}
	return b.String()
}

func (m *Masker) word(word string, inner []string, recorded func(string) bool) string {
	if len(word) < searched {
		return word
	}
	if digest := m.digestOfText(word); recorded(digest) {
		return digest
	}
	return m.words(word, inner, recorded)
}
