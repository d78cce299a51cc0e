package link

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Owns reports whether a resource, or a template of resources, is the server's. A URI that climbs out of its prefix is not.
func (s *Server) Owns(uri string) bool {
	return slices.ContainsFunc(s.URIs, func(begin string) bool { return begin == "" || Begins(uri, begin) && !climbs(uri) })
}

// Begins reports whether a URI begins as uris of an upstream say. A prefix that ends with a host is for that host alone, and
// not for longer ones, other ports or hosts behind a user's name.
func Begins(uri, begin string) bool {
	rest, ok := strings.CutPrefix(uri, begin)
	return ok && (!EndsWithHost(begin) || rest == "" || strings.ContainsRune("/?#", rune(rest[0])))
}

// EndsWithHost reports whether the beginning of a URI has a host, and nothing behind it that ends the host.
func EndsWithHost(begin string) bool {
	_, host, ok := strings.Cut(begin, "://")
	return ok && host != "" && !strings.ContainsAny(host, "/?#")
}

// Overlap reports whether a URI could begin in both ways. Schemes and hosts in other letters are the same to who reads a URI.
func Overlap(a, b string) bool {
	a, b = foldedHost(a), foldedHost(b)
	return Begins(a, b) || Begins(b, a)
}

// foldedHost returns the beginning of a URI with its scheme and its host in small letters.
func foldedHost(begin string) string {
	scheme, rest, _ := strings.Cut(begin, ":")
	end := 0
	if strings.HasPrefix(rest, "//") {
		if end = 2 + strings.IndexAny(rest[2:], "/?#"); end < 2 {
			end = len(rest)
		}
	}
	return strings.ToLower(scheme+":"+rest[:end]) + rest[end:]
}

// climbs reports whether a URI can be read as that of another place. Such a URI has a segment of dots, a backslash, a
// control character or a character that is encoded longer than UTF-8 has it, plain or escaped, once or repeatedly.
func climbs(uri string) bool {
	for range mostEscapes {
		if isOverlong(uri) {
			return true
		}
		uri = plain(uri)
		if strings.ContainsFunc(uri, func(r rune) bool { return r == '\\' || r < ' ' || r == 0x7f }) {
			return true
		}
		for segment := range strings.FieldsFuncSeq(uri, func(r rune) bool { return strings.ContainsRune("/?#;:", r) }) {
			// Windows ignores dots and blanks at the end of a name.
			if strings.Contains(segment, ".") && strings.Trim(segment, ". ") == "" {
				return true
			}
		}
		next := unescaped(uri)
		if next == uri {
			return false
		}
		uri = next
	}
	return true
}

const mostEscapes = 4

// plain returns a URI as readers see it that know fewer characters: with ASCII in the place of wide and small forms (NFKC) and
// of other characters that code pages of Windows and names of hosts have for a dot or a slash, and without invisible ones
// and bytes that are no UTF-8.
func plain(uri string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '\u3002': // ideographic full stop
			return '.'
		case '\u2044', '\u2215', '\u2216', '\u29f5', '\u00a5', '\u20a9': // slashes of fractions and sets; yen and won are backslashes
			return '/'
		}
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return r
	}, norm.NFKC.String(strings.ToValidUTF8(uri, "")))
}

// isOverlong reports whether bytes hold an ASCII character in more bytes than one, as no UTF-8 does.
func isOverlong(s string) bool {
	for n := range len(s) - 1 {
		if next := s[n+1]; s[n]&^1 == 0xc0 && next&0xc0 == 0x80 || s[n] == 0xe0 && next&0xe0 == 0x80 || s[n] == 0xf0 && next&0xf0 == 0x80 {
			return true
		}
	}
	return false
}

// unescaped returns a URI with its escapes decoded, those of bytes and, as some servers take them, %uHHHH. Other percent
// signs stay.
func unescaped(uri string) string {
	var b bytes.Buffer
	for n := 0; n < len(uri); n++ {
		if uri[n] == '%' && n+2 < len(uri) {
			if c, err := hex.DecodeString(uri[n+1 : n+3]); err == nil {
				b.WriteByte(c[0])
				n += 2
				continue
			}
			if wide := uri[n+1]; (wide == 'u' || wide == 'U') && n+5 < len(uri) {
				if r, err := strconv.ParseUint(uri[n+2:n+6], 16, 16); err == nil {
					b.WriteRune(rune(r))
					n += 5
					continue
				}
			}
		}
		b.WriteByte(uri[n])
	}
	return b.String()
}
