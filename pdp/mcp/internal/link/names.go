package link

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"
)

// With one server its names are the clients' names. With several a client sees the server's name, [between] and the
// server's own name for it. A server's name has no [between] in it, and does not end with half of it: so the first [between]
// is where it ends, and no server has a name for something that another has.

const (
	// between is what stands between a server's name and the name of what it has.
	between = "__"
	// mostName is how long a tool's name may be for the clients that people use.
	mostName = 64
	// digestSize is how many bytes of a digest tell shortened names apart.
	digestSize = 4
)

// ToolName is how clients call a tool of one of several servers. A name that common clients would not take is shortened:
// what they do not take in it becomes _, and a digest of the whole name is behind it.
func ToolName(server, tool string) string {
	name := server + between + tool
	if isPlain(name) {
		return name
	}
	sum := sha256.Sum256([]byte(server + ":" + tool))
	tail := "_" + hex.EncodeToString(sum[:digestSize])
	plain := strings.Map(func(r rune) rune {
		if isPlainRune(r) {
			return r
		}
		return '_'
	}, tool)
	return server + between + plain[:max(0, min(len(plain), mostName-len(tail)-len(server)-len(between)))] + tail
}

// PromptName is how clients call a prompt of one of several servers. People choose prompts: any name will do.
func PromptName(server, prompt string) string { return server + between + prompt }

// Apart are the server's name in what a client calls something of one of several servers, and what stands behind it.
func Apart(name string) (server, rest string, ok bool) { return strings.Cut(name, between) }

func isPlain(name string) bool {
	return len(name) <= mostName && !strings.ContainsFunc(name, func(r rune) bool { return !isPlainRune(r) })
}

func isPlainRune(r rune) bool {
	return r < utf8.RuneSelf && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z')
}

// ToolName is how clients call a tool of a server's.
func (g *Servers) ToolName(server, tool string) string {
	if g.Several() {
		return ToolName(server, tool)
	}
	return tool
}

// alike is the same for names that people would take for one: with several servers or a lock that is what differs in case
// alone.
func (g *Servers) alike(name string) string {
	if g.Several() || g.o.Lock.File != nil {
		return strings.ToLower(name)
	}
	return name
}

// Owns reports whether a resource, or a template of some, is the server's. Where the operator says how the URIs begin, none
// leads elsewhere.
func (s *Server) Owns(uri string) bool {
	return slices.ContainsFunc(s.URIs, func(begin string) bool { return strings.HasPrefix(uri, begin) && (begin == "" || !climbs(uri)) })
}

// climbs reports whether a URI can be read as that of another place: it has a segment of dots, a backslash or a
// control character, as it is or escaped, once or again.
func climbs(uri string) bool {
	for range mostEscapes {
		if strings.ContainsFunc(uri, func(r rune) bool { return r == '\\' || r < ' ' || r == 0x7f }) {
			return true
		}
		for segment := range strings.FieldsFuncSeq(uri, func(r rune) bool { return strings.ContainsRune("/?#;", r) }) {
			if segment == "." || segment == ".." {
				return true
			}
		}
		plain := unescaped(uri)
		if plain == uri {
			return false
		}
		uri = plain
	}
	return true
}

const mostEscapes = 4

// unescaped is a URI with its escapes read, and other percent signs left.
func unescaped(uri string) string {
	var b strings.Builder
	for n := 0; n < len(uri); n++ {
		if uri[n] == '%' && n+2 < len(uri) {
			if c, err := hex.DecodeString(uri[n+1 : n+3]); err == nil {
				b.WriteByte(c[0])
				n += 2
				continue
			}
		}
		b.WriteByte(uri[n])
	}
	return b.String()
}
