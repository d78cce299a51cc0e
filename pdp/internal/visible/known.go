package visible

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Known are ids that are known, such as those that policies name. The zero Known knows none.
type Known struct {
	ids    map[string]bool
	folded map[string]string // the first id, in the order of texts, that folds so
}

// NewKnown takes time and room in proportion to the ids.
func NewKnown(ids []string) *Known {
	k := &Known{ids: make(map[string]bool, len(ids)), folded: make(map[string]string, len(ids))}
	for _, id := range ids {
		if k.ids[id] {
			continue
		}
		k.ids[id] = true
		for _, key := range folds(id) {
			if other, ok := k.folded[key]; !ok || id < other {
				k.folded[key] = id
			}
		}
	}
	delete(k.folded, "")
	return k
}

// Like reports whether an id that is not known looks like a known one, and like which one. Case makes no
// difference, nor do characters that cannot be seen, letters of other alphabets that look like ours, and letters and
// digits of ours that look like each other.
func (k *Known) Like(id string) (known string, alike bool) {
	if k == nil || id == "" || k.ids[id] {
		return "", false
	}
	keys := folds(id)
	if upper := strings.Map(upperI, plain(id)); upper == strings.ToUpper(upper) { // an l among capitals is an I
		keys = append(keys, reading(upper))
	}
	for _, key := range keys {
		if known, alike = k.folded[key]; alike {
			return known, true
		}
	}
	return "", false
}

func upperI(r rune) rune {
	if r == 'l' || r == '1' || r == '|' {
		return 'I'
	}
	return r
}

// folds are forms of an id. Two ids look alike if they share one: the id as it looks, in which an I is an l; as it is
// read whatever the case, in which an I is an i; and, if it is not plain ASCII, that of its small letters, which may
// look like ours where the capitals do not.
func folds(id string) []string {
	text := plain(id)
	keys := []string{reading(strings.ReplaceAll(text, "I", "l")), reading(text)}
	if !isPlain(id) {
		keys = append(keys, reading(plain(strings.ToLower(id))))
	}
	return keys
}

// Skeleton returns a text with each character as the ASCII that it looks like, as far as it looks like any. It leaves out
// invisible characters, and marks on and around letters.
func Skeleton(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.M, r) {
			return -1
		}
		return r
	}, norm.NFD.String(plain(text)))
}

// plain is a text in ASCII, as far as its characters look like that, without invisible ones.
func plain(text string) string {
	if isPlain(text) {
		return text
	}
	text = toPlain(norm.NFKC.String(toPlain(text))) // before, or it would take apart a look-alike
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !first(string(r)).seen():
			return -1
		}
		return r
	}, text))
}

func toPlain(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		c := first(text)
		text = text[len(c.bytes):]
		plain, of := c.bytes, plainOf()
		if c.rune >= utf8.RuneSelf { // м is no m, and yet М is an M
			plain = cmp.Or(of[c.rune], of[unicode.ToUpper(c.rune)], plain)
		}
		b.WriteString(plain)
	}
	return b.String()
}

func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// alike are the letters and digits of ASCII that look like others.
var alike = strings.NewReplacer("0", "o", "1", "l", "|", "l", "rn", "m", "vv", "w", "i\u0307", "i", "j\u0307", "j")

func reading(text string) string { return alike.Replace(strings.ToLower(text)) }
