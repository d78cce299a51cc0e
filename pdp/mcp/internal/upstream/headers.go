package upstream

import (
	"net/http"
	"strings"

	"policy-service/pdp/mcp/internal/era"
)

// sessionHeader holds the id of a session in the legacy era.
const sessionHeader = "Mcp-Session-Id"

// repeats are headers by which net/http would send a request again that may have been executed.
var repeats = []string{"Idempotency-Key", "X-Idempotency-Key"}

// header adds the headers that a server wants to h, which has credentials at most. None of them is a client's.
func (s *httpSession) header(h http.Header, accept string, r Request) {
	for _, name := range repeats {
		delete(h, name)
	}
	h["Accept"] = []string{accept}
	h["User-Agent"] = []string{s.upstream.agent}
	if s.version != "" {
		h[era.VersionHeader] = []string{s.version}
	}
	if s.id != "" {
		h[sessionHeader] = []string{s.id}
	}
	if r.after != "" {
		h["Last-Event-Id"] = []string{r.after}
	}
	if s.era == era.Modern && r.Method != "" {
		mirror(h, r)
	}
}

// mirror adds to h what the modern era wants to see of a request's body in headers, and what of its parameters the caller
// has mirrored.
func mirror(h http.Header, r Request) {
	h[era.MethodHeader] = []string{era.EncodeHeader(r.Method)}
	if member, has := era.Named[r.Method]; has {
		if name := r.Params.GetString(member); name != "" {
			h[era.NameHeader] = []string{era.EncodeHeader(name)}
		}
	}
	for name, values := range r.Headers {
		if name = http.CanonicalHeaderKey(name); strings.HasPrefix(name, era.ParamPrefix) {
			h[name] = values
		}
	}
}

// validSession reports whether a server's session id is one that can be sent back.
func validSession(id string) bool {
	return len(id) <= 4<<10 && !strings.ContainsFunc(id, func(r rune) bool { return r < '!' || r > '~' })
}
