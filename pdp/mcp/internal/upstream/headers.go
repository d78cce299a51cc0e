package upstream

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
)

// Headers of MCP, as [http.Header] has them.
const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	paramPrefix   = "Mcp-Param-"
)

// named says which member of params of a method a header mirrors.
var named = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// mirror adds to h what the modern era wants to see of a request's body in headers, and what of its parameters the caller
// has mirrored.
func mirror(h http.Header, r Request) {
	h[methodHeader] = []string{headerValue(r.Method)}
	if member, has := named[r.Method]; has {
		if name, is := stringMember(r.Params, member); is {
			h[nameHeader] = []string{headerValue(name)}
		}
	}
	for name, values := range r.Headers {
		if name = http.CanonicalHeaderKey(name); strings.HasPrefix(name, paramPrefix) {
			h[name] = values
		}
	}
}

// stringMember is the text of a member of an object, read without a copy of the others.
func stringMember(object jsontext.Value, name string) (string, bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(object))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return "", false
	}
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return "", false
		}
		if t.String() != name {
			if d.SkipValue() != nil {
				return "", false
			}
			continue
		}
		v, err := d.ReadToken()
		if err != nil || v.Kind() != '"' {
			return "", false
		}
		return v.String(), true
	}
	return "", false
}

const sentinel, sentinelEnd = "=?base64?", "?="

// headerValue writes a text so that it can stand in a header: as it is, or in Base64 between marks.
func headerValue(s string) string {
	plain := s == strings.Trim(s, " \t") && (!strings.HasPrefix(s, sentinel) || !strings.HasSuffix(s, sentinelEnd))
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] == '\t' || ' ' <= s[i] && s[i] <= '~'
	}
	if plain {
		return s
	}
	return sentinel + base64.StdEncoding.EncodeToString([]byte(s)) + sentinelEnd
}

// validSession reports whether a server's session id is one that can be sent back.
func validSession(id string) bool {
	return len(id) <= 4<<10 && !strings.ContainsFunc(id, func(r rune) bool { return r < '!' || r > '~' })
}

// repeats are headers by which net/http would send a request again that may have been executed.
var repeats = []string{"Idempotency-Key", "X-Idempotency-Key"}

// header adds to h, which has credentials at most, what a server wants to see. None of it is a client's.
func (s *httpSession) header(h http.Header, accept string, r Request) {
	for _, name := range repeats {
		delete(h, name)
	}
	h["Accept"] = []string{accept}
	h["User-Agent"] = []string{s.upstream.agent}
	if s.version != "" {
		h[versionHeader] = []string{s.version}
	}
	if s.id != "" {
		h[sessionHeader] = []string{s.id}
	}
	if s.era == era.Modern && r.Method != "" {
		mirror(h, r)
	}
}
