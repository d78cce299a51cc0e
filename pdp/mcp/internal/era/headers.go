package era

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"policy-service/pdp/mcp/internal/rpc"
)

// Headers that repeat members of a modern request's body, as [http.Header] has them.
const (
	VersionHeader = "Mcp-Protocol-Version"
	MethodHeader  = "Mcp-Method"
	NameHeader    = "Mcp-Name"
	ParamPrefix   = "Mcp-Param-"
)

// Named says which member of params Mcp-Name mirrors, of the methods that have it.
var Named = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// mayName is the same of methods of which it need not come: clients that know MCP alone do not send it.
var mayName = map[string]string{"tools/request": "name"}

// CheckHeaders reads the [Meta] of a modern request, and holds the headers it came with against it. Nothing is decided on a
// header: one that differs is an error, for a proxy could have decided on it. The status of each error is 400.
func CheckHeaders(h http.Header, m rpc.Message, params rpc.Object) (Meta, *rpc.Error) {
	version, fault := single(h, VersionHeader)
	if fault != nil {
		return Meta{}, fault
	}
	meta, fault := ReadMeta(params)
	switch {
	case meta.Version != "" && meta.Version != version:
		return meta, differs(VersionHeader)
	case meta.Version != "" && !slices.Contains(ModernVersions, version):
		return meta, Unsupported(version)
	case fault != nil:
		return meta, fault
	}
	method, fault := single(h, MethodHeader)
	if fault != nil {
		return meta, fault
	}
	if method != m.Method {
		return meta, differs(MethodHeader)
	}
	return meta, checkName(h, m.Method, params)
}

// checkName holds Mcp-Name against the name in the body.
func checkName(h http.Header, method string, params rpc.Object) *rpc.Error {
	member, named := Named[method]
	if optional, ok := mayName[method]; ok && len(h[NameHeader]) > 0 {
		member, named = optional, true
	}
	if !named {
		if len(h[NameHeader]) > 1 {
			return mismatch("the header Mcp-Name comes twice")
		}
		return nil
	}
	value, fault := single(h, NameHeader)
	if fault != nil {
		return fault
	}
	if params.Get(member).Kind() != '"' {
		return mismatch("the header Mcp-Name has nothing to be compared with: params." + member + " is missing, or no string")
	}
	name, ok := decodeHeader(value)
	if !ok || name != params.GetString(member) {
		return differs(NameHeader)
	}
	return nil
}

// single is the value of a header that comes once. Of those that mirror members, only a parameter's may be empty.
func single(h http.Header, name string) (string, *rpc.Error) {
	values := h[name]
	switch {
	case len(values) == 0 || values[0] == "" && len(values) == 1 && !strings.HasPrefix(name, ParamPrefix):
		return "", mismatch("the header " + name + " is missing")
	case len(values) > 1:
		return "", mismatch("the header " + name + " comes twice")
	case !plain(values[0]):
		return "", mismatch("the header " + name + " has characters that a header cannot have")
	}
	return values[0], nil
}

func differs(name string) *rpc.Error {
	return mismatch("the header " + name + " does not say what the body says")
}

func mismatch(text string) *rpc.Error {
	return &rpc.Error{Code: HeaderMismatch, Message: "Header mismatch: " + text}
}

// Unsupported is the error that says which revisions we speak. It names all but the one that was asked for.
func Unsupported(requested string) *rpc.Error {
	if len(requested) > 64 {
		return invalid(MetaVersion + " is no revision of the protocol")
	}
	supported := slices.DeleteFunc(Versions(), func(v string) bool { return v == requested })
	data := rpc.Object{}.With("supported", texts(supported)).With("requested", rpc.String(requested))
	return &rpc.Error{Code: UnsupportedVersion, Message: "Unsupported protocol version", Data: data.Value()}
}

// Versions are the revisions of both eras that we speak, newest first.
func Versions() []string { return slices.Concat(ModernVersions, LegacyVersions) }

const sentinel, sentinelEnd = "=?base64?", "?="

// EncodeHeader writes a text so that a header can hold it: as it is, or in Base64 between marks.
func EncodeHeader(s string) string {
	ambiguous := strings.HasPrefix(s, sentinel) && strings.HasSuffix(s, sentinelEnd)
	if !ambiguous && plain(s) && !strings.Contains(s, "\t") && s == strings.Trim(s, " ") {
		return s
	}
	return sentinel + base64.StdEncoding.EncodeToString([]byte(s)) + sentinelEnd
}

// decodeHeader is the inverse of [EncodeHeader].
func decodeHeader(s string) (text string, ok bool) {
	inner, begins := strings.CutPrefix(s, sentinel)
	inner, ends := strings.CutSuffix(inner, sentinelEnd)
	if !begins || !ends {
		return s, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(b), err == nil
}

// plain reports whether a header can hold a text as it is.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') })
}
