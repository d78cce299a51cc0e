// Package leak masks secrets of the gateway in what servers send. A server that fails may repeat its environment, or the
// header by which it was asked. The package is for such accidents: a server that wants to betray a secret can write it in
// ways that nothing finds.
//
// A secret is found in the text of a message, and not in its decoded strings, so that all other bytes stay as they are.
// The text is searched as it came, and then as it is without its escapes of JSON and URLs, up to three times: JSON may
// stand in a string of JSON.
package leak

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// Least is the least length of a secret in bytes. What is shorter may be in a text by chance.
	Least = 16
	// Mask stands in place of a secret.
	Mask = "[masked]"

	mostLearned = 8 // secrets of a credential that changes; what a server repeats is one of the newest
	mostEscaped = 3
)

// Masks are the secrets that are masked. The zero Masks has none.
type Masks struct {
	mu      sync.Mutex
	learned []string // the newest last
	forms   atomic.Pointer[forms]
}

// New returns masks of secrets. Those that are too short are left out.
func New(secrets ...string) *Masks {
	m := &Masks{}
	m.forms.Store(newForms(secrets))
	return m
}

// Learn adds a secret, and forgets an old one beyond eight.
func (m *Masks) Learn(secret string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.learned, secret) {
		return
	}
	m.learned = append(m.learned, secret)
	m.learned = m.learned[max(0, len(m.learned)-mostLearned):]
	m.forms.Store(newForms(m.learned))
}

// In returns a text without secrets, and how many places were masked. Without any it is the text itself.
func (m *Masks) In(text []byte) (masked []byte, places int) { return m.Begin(text, len(text)) }

// Begin is [Masks.In] for the first bytes of a text. A secret that begins in them is masked whole.
func (m *Masks) Begin(text []byte, most int) (masked []byte, places int) {
	most = min(most, len(text))
	f := m.forms.Load()
	if f == nil || len(f.search(text, nil)) == 0 {
		return text[:most], 0
	}
	places, end := 0, 0
	for _, s := range f.search(text, identity(len(text))) {
		switch {
		case s.from >= most || s.to <= end:
		case s.from < end: // a part of it is masked
			end = s.to
		default:
			masked = append(append(masked, text[end:s.from]...), Mask...)
			places, end = places+1, s.to
		}
	}
	return append(masked, text[min(end, most):most]...), places
}

// Longest is the length of the longest form of a secret, 0 without any.
func (m *Masks) Longest() int {
	if f := m.forms.Load(); f != nil {
		return f.longest
	}
	return 0
}

// identity is where each byte of a text comes from that was not decoded, and the end.
func identity(length int) []int32 {
	at := make([]int32, length+1)
	for n := range at {
		at[n] = int32(n)
	}
	return at
}

type span struct{ from, to int }

// forms are all texts that secrets are found by. One pass finds all of them (Wu and Manber, 1994): it looks at the last two
// bytes of a window of Least bytes, and moves on by as much as these bytes allow.
type forms struct {
	skip    [1 << 16]uint8
	ending  map[uint16][]string // by the last two bytes of their first window
	longest int
}

func newForms(secrets []string) *forms {
	f := &forms{ending: map[uint16][]string{}}
	for n := range f.skip {
		f.skip[n] = Least - 1
	}
	for _, secret := range secrets {
		if len(secret) < Least {
			continue
		}
		f.add(secret)
		f.add(strings.ReplaceAll(secret, " ", "+")) // as in the query of a URL
		for _, digits := range Base64(secret) {
			f.add(digits)
		}
		for n, decoded := 0, []byte(secret); n < mostEscaped; n++ { // where it has itself what looks like an escape
			decoded, _ = decode(decoded, nil)
			f.add(string(decoded))
		}
	}
	if f.longest == 0 {
		return nil
	}
	return f
}

func (f *forms) add(form string) {
	if len(form) < Least {
		return
	}
	f.longest = max(f.longest, len(form))
	for end := 2; end <= Least; end++ {
		last := uint16(form[end-2])<<8 | uint16(form[end-1])
		f.skip[last] = min(f.skip[last], uint8(Least-end))
		if end == Least && !slices.Contains(f.ending[last], form) {
			f.ending[last] = append(f.ending[last], form)
		}
	}
}

// search finds secrets in a text, and in the same text decoded. Origin is where its bytes come from. The spans lie in the
// text that was not decoded, in order; without an origin they only show that there are some.
func (f *forms) search(text []byte, origin []int32) (found []span) {
	for n := 0; ; n++ {
		for _, s := range f.spans(text) {
			if origin != nil {
				s = span{int(origin[s.from]), int(origin[s.to])}
			}
			found = append(found, s)
		}
		decoded, from := decode(text, origin)
		if n == mostEscaped || len(decoded) == len(text) {
			break
		}
		text, origin = decoded, from
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return found
}

func (f *forms) spans(text []byte) (found []span) {
	for end := Least; end <= len(text); {
		last := uint16(text[end-2])<<8 | uint16(text[end-1])
		if n := f.skip[last]; n > 0 {
			end += int(n)
			continue
		}
		for _, form := range f.ending[last] {
			from := end - Least
			if to := from + len(form); to <= len(text) && string(text[from:to]) == form {
				found = append(found, span{from, to})
			}
		}
		end++
	}
	return found
}

// decode takes out the escapes of JSON and of URLs, wherever they stand. Origin, if not nil, is where each byte of the text
// comes from, and the end; from is the same of what is decoded. A text without escapes is returned as it is.
func decode(text []byte, origin []int32) (decoded []byte, from []int32) {
	if bytes.IndexByte(text, '\\') < 0 && bytes.IndexByte(text, '%') < 0 {
		return text, origin
	}
	decoded = make([]byte, 0, len(text))
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && text[end] != '\\' && text[end] != '%' {
			end++
		}
		decoded = append(decoded, text[at:end]...)
		if origin != nil {
			from = append(from, origin[at:end]...)
		}
		if at = end; at == len(text) {
			break
		}
		character, size := unescaped(text[at:])
		decoded = append(decoded, character...)
		for n := 0; n < len(character) && origin != nil; n++ {
			from = append(from, origin[at])
		}
		at += size
	}
	if origin != nil {
		from = append(from, origin[len(text)])
	}
	return decoded, from
}

// unescaped is the character of an escape at the begin of a text, and the escape's size. What is no escape is itself.
func unescaped(text []byte) (character string, size int) {
	hex := func(from, to int) (n uint64, ok bool) {
		if len(text) < to {
			return 0, false
		}
		n, err := strconv.ParseUint(string(text[from:to]), 16, 16)
		return n, err == nil
	}
	if text[0] == '%' {
		if n, ok := hex(1, 3); ok {
			return string([]byte{byte(n)}), 3
		}
		return "%", 1
	}
	if len(text) == 1 {
		return `\`, 1
	}
	if n := strings.IndexByte(`"\/bfnrt`, text[1]); n >= 0 {
		return "\"\\/\b\f\n\r\t"[n : n+1], 2
	}
	if n, ok := hex(2, 6); text[1] == 'u' && ok {
		if low, ok := hex(8, 12); ok && utf16.IsSurrogate(rune(n)) && string(text[6:8]) == `\u` {
			if r := utf16.DecodeRune(rune(n), rune(low)); r != utf8.RuneError {
				return string(r), 12
			}
		}
		return string(rune(n)), 6
	}
	return `\`, 1
}

// Base64 are the texts, in both alphabets, of which one stands in the Base64 of whatever has the secret in it.
func Base64(secret string) (forms []string) {
	for before := range 3 { // bytes that share their digits with others are left out
		digits := base64.RawStdEncoding.EncodeToString([]byte("xx"[:before] + secret))
		if digits = digits[(4*before+2)/3:]; (before+len(secret))%3 > 0 {
			digits = digits[:len(digits)-1]
		}
		forms = append(forms, digits)
		if url := strings.NewReplacer("+", "-", "/", "_").Replace(digits); url != digits {
			forms = append(forms, url)
		}
	}
	return forms
}
