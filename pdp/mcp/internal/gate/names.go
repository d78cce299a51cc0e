package gate

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

// promptName is how clients call a prompt of one of several servers. People choose prompts: any name will do.
func promptName(server, prompt string) string { return server + between + prompt }

// apart are the server's name in what a client calls something of one of several servers, and what stands behind it.
func apart(name string) (server, rest string, ok bool) { return strings.Cut(name, between) }

func isPlain(name string) bool {
	return len(name) <= mostName && !strings.ContainsFunc(name, func(r rune) bool { return !isPlainRune(r) })
}

func isPlainRune(r rune) bool {
	return r < utf8.RuneSelf && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z')
}

// toolName is how clients call a tool of a server's.
func (g *Gateway) toolName(s *Server, tool string) string {
	if g.several() {
		return ToolName(s.Name, tool)
	}
	return tool
}

// alike is the same for names that people would take for one: with several servers or a lock that is what differs in case
// alone.
func (g *Gateway) alike(name string) string {
	if g.several() || g.o.Lock.File != nil {
		return strings.ToLower(name)
	}
	return name
}

// owns reports whether a resource, or a template of some, is the server's.
func (s *Server) owns(uri string) bool {
	return slices.ContainsFunc(s.URIs, func(begin string) bool { return strings.HasPrefix(uri, begin) })
}
