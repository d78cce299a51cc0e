package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// route finds the server that a request is for, and the tool that is called. What is for all servers it leaves alone.
func (x exchange) route(ctx context.Context) (Target, *Answer) {
	if x.request.Method == wire.MethodToolRequest && !x.g.o.Asker.Requests() { // there is no such method
		return x.Target, nil
	}
	s, what := Route(x.g.o.Servers, x.request.Method, x.params)
	switch {
	case what == "":
		return x.Target, nil
	case s != nil:
		x.link = x.reach.to(s.Name)
	case what == "tool":
		return x.Target, refuse(ask.UnknownTool())
	default:
		return x.Target, nobodys(what, x.client.era)
	}
	if what == "tool" {
		return x.find(ctx)
	}
	return x.Target, nil
}

// Route is the server that a request is for, by what it names: a tool, prompt, resource or reference. What is "" if it names
// nothing, and is for all servers. S is nil if no server has such names.
func Route(all []*Server, method string, params rpc.Object) (s *Server, what string) {
	if ask.OfTool(method) {
		return named(all, params), "tool"
	}
	switch method {
	case "prompts/get":
		return named(all, params), "prompt"
	case "completion/complete":
		return referred(all, params.GetObject("ref")), "reference"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return owner(all, params.GetString("uri")), "resource"
	}
	return nil, ""
}

// nobodys refuses what no server has.
func nobodys(what string, e era.Era) *Answer {
	code := rpc.InvalidParams
	if what == "resource" && e == era.Legacy {
		code = era.ResourceNotFound
	}
	return refusal(ask.Unknown, code, "unknown "+what, "no server has such a "+what)
}

// named is the server that the name of a tool or prompt names.
func named(all []*Server, o rpc.Object) *Server {
	if len(all) == 1 {
		return all[0]
	}
	server, _, ok := apart(o.GetString("name"))
	n := slices.IndexFunc(all, func(s *Server) bool { return s.Name == server })
	if !ok || n < 0 {
		return nil
	}
	return all[n]
}

// referred is the server that has what is to be completed.
func referred(all []*Server, ref rpc.Object) *Server {
	switch ref.GetString("type") {
	case "ref/prompt":
		return named(all, ref)
	case "ref/resource":
		return owner(all, ref.GetString("uri"))
	}
	if len(all) == 1 {
		return all[0]
	}
	return nil
}

// owner is the server whose resource it is, nil if it is nobody's.
func owner(all []*Server, uri string) *Server {
	if n := slices.IndexFunc(all, func(s *Server) bool { return s.owns(uri) }); n >= 0 {
		return all[n]
	}
	return nil
}

// own are params in which a server finds its own name for what clients of several servers call by another. All else stays
// as it is.
func (x Target) own(params rpc.Object) rpc.Object {
	if !x.g.several() {
		return params
	}
	switch ref := params.GetObject("ref"); {
	case x.tool != nil:
		return params.With("name", rpc.String(x.tool.Name))
	case x.request.Method == "prompts/get":
		return ownPrompt(params)
	case x.request.Method == "completion/complete" && ref.GetString("type") == "ref/prompt":
		return params.With("ref", ownPrompt(ref).Value())
	}
	return params
}

func ownPrompt(o rpc.Object) rpc.Object {
	_, name, _ := apart(o.GetString("name"))
	return o.With("name", rpc.String(name))
}

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
func (g *servers) toolName(s *Server, tool string) string {
	if g.several() {
		return ToolName(s.Name, tool)
	}
	return tool
}

// alike is the same for names that people would take for one: with several servers or a lock that is what differs in case
// alone.
func (g *servers) alike(name string) string {
	if g.several() || g.o.Lock.File != nil {
		return strings.ToLower(name)
	}
	return name
}

// owns reports whether a resource, or a template of some, is the server's. Where the operator says how the URIs begin, none
// leads elsewhere.
func (s *Server) owns(uri string) bool {
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
