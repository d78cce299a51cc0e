package era

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/rpc"
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
	data := rpc.Object{}.With("supported", rpc.Strings(supported)).With("requested", rpc.String(requested))
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

// CheckParamHeaders holds headers against arguments: each parameter with a value is in its header, and no other is. Its status is 400.
func CheckParamHeaders(h http.Header, p []HeaderParam, arguments jsontext.Value) *rpc.Error {
	if len(p) == 0 {
		return nil
	}
	all := objectOf(arguments)
	for _, one := range p {
		v := one.value(all)
		if v == nil {
			if len(h[one.header]) > 0 {
				return mismatch("the header " + one.header + " is of a parameter that has no value")
			}
			continue
		}
		said, fault := single(h, one.header)
		if fault != nil {
			return fault
		}
		if !mirrors(said, v) {
			return differs(one.header)
		}
	}
	return nil
}

// ParamHeaders are the headers that mirror the arguments of a call. A value that no header may have has none.
func ParamHeaders(p []HeaderParam, arguments jsontext.Value) http.Header {
	if len(p) == 0 {
		return nil
	}
	h, all := http.Header{}, objectOf(arguments)
	for _, one := range p {
		if text, ok := primitive(one.value(all)); ok {
			h[one.header] = []string{EncodeHeader(text)}
		}
	}
	return h
}

// value is the argument of a parameter, nil if it is absent or null.
func (p HeaderParam) value(arguments rpc.Object) jsontext.Value {
	v := arguments.Get(p.path[0])
	for _, name := range p.path[1:] {
		v = objectOf(v).Get(name)
	}
	if v.Kind() == 'n' {
		return nil
	}
	return v
}

// mirrors reports whether a header has the value of an argument. Integers are compared as numbers.
func mirrors(header string, v jsontext.Value) bool {
	said, ok := decodeHeader(header)
	text, ok2 := primitive(v)
	if !ok || !ok2 {
		return false
	}
	if other := jsontext.Value(said); v.Kind() == '0' && other.Kind() == '0' && other.IsValid() {
		said, ok = primitive(other)
	}
	return ok && text == said
}

// primitive is the text of an argument that a header may have: a string, a boolean, an integer that a double holds exactly.
func primitive(v jsontext.Value) (string, bool) {
	switch v.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, v)
		return string(b), err == nil
	case 't', 'f':
		return string(v), true
	case '0':
		n, ok := integer(v)
		return strconv.FormatInt(n, 10), ok
	}
	return "", false
}

// integer is a number that is one, however it is written, within the protocol's bounds. The digits decide and not the nearest
// double: what is decided about is never rounded. Negative zero is none.
func integer(v jsontext.Value) (int64, bool) {
	const most = 1<<53 - 1
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.Abs(f) > most {
		return 0, false
	}
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(string(v)), "e")
	e := 0
	if scientific {
		if e, err = strconv.Atoi(exponent); err != nil {
			return 0, false
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	if strings.Trim(digits, "-") == "" {
		return 0, digits == ""
	}
	return int64(f), len(whole)+e >= len(digits)
}

// HeaderParam is a parameter of a tool that a header mirrors.
type HeaderParam struct {
	// path are the names that lead to the parameter in the arguments.
	path []string
	// header is the whole name of the header, as [net/http.Header] has it.
	header string
}

const (
	annotation = "x-mcp-header"
	// mostHeaders is how many parameters of one tool have headers: servers take no request with many more.
	mostHeaders = 64
)

// HeaderParams are the parameters that an input schema wants mirrored. It is an error if an annotation breaks a rule of the
// protocol: then the tool is not valid, and no client may list it.
func HeaderParams(schema jsontext.Value) ([]HeaderParam, error) {
	if !bytes.Contains(schema, []byte(annotation)) && !bytes.ContainsRune(schema, '\\') {
		return nil, nil
	}
	var w schemaWalk
	if err := w.schema(schema, nil, true); err != nil {
		return nil, err
	}
	return w.found, nil
}

type schemaWalk struct{ found []HeaderParam }

// Where schemas stand beside properties: as a value, in an array, or as the values of a map. Anything elsewhere is data.
var (
	below = map[string]bool{
		"items": true, "additionalItems": true, "additionalProperties": true, "unevaluatedItems": true,
		"unevaluatedProperties": true, "contains": true, "propertyNames": true, "not": true, "if": true, "then": true,
		"else": true, "contentSchema": true, "allOf": true, "anyOf": true, "oneOf": true, "prefixItems": true,
	}
	belowNames = map[string]bool{
		"$defs": true, "definitions": true, "patternProperties": true, "dependentSchemas": true, "dependencies": true,
	}
)

// schema walks through a schema. Reachable reports that nothing but properties leads to it from the root.
func (w *schemaWalk) schema(v jsontext.Value, path []string, reachable bool) error {
	s, err := rpc.ParseObject(v)
	if err != nil { // true, false, or nothing that we could read an annotation in
		return nil
	}
	if s.Get(annotation) != nil {
		if !reachable || len(path) == 0 {
			return fmt.Errorf("%s stands where no chain of properties leads", annotation)
		}
		if err := w.take(s, path); err != nil {
			return err
		}
	}
	for keyword, v := range s.Members {
		switch {
		case keyword == "properties":
			err = w.schemas(v, path, reachable)
		case belowNames[keyword]:
			err = w.schemas(v, nil, false)
		case below[keyword]:
			err = w.anySchema(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *schemaWalk) schemas(v jsontext.Value, path []string, reachable bool) error {
	for name, inner := range objectOf(v).Members {
		if err := w.schema(inner, append(slices.Clip(path), name), reachable); err != nil {
			return err
		}
	}
	return nil
}

func (w *schemaWalk) anySchema(v jsontext.Value) error {
	if v.Kind() != '[' {
		return w.schema(v, nil, false)
	}
	all, err := rpc.Elements(v)
	for _, inner := range all {
		if err := w.schema(inner, nil, false); err != nil {
			return err
		}
	}
	return err
}

func (w *schemaWalk) take(s rpc.Object, path []string) error {
	name := s.GetString(annotation)
	header := http.CanonicalHeaderKey(ParamPrefix + name)
	switch kind := s.GetString("type"); {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }):
		return fmt.Errorf("%s of the parameter %q is no name of a header", annotation, path)
	case kind != "string" && kind != "integer" && kind != "boolean":
		return fmt.Errorf("%s stands at the parameter %q, whose type is not string, integer or boolean", annotation, path)
	case slices.ContainsFunc(w.found, func(p HeaderParam) bool { return p.header == header }):
		return fmt.Errorf("%s of the parameter %q is that of another", annotation, path)
	case len(w.found) >= mostHeaders:
		return fmt.Errorf("more than %d parameters have %s", mostHeaders, annotation)
	}
	w.found = append(w.found, HeaderParam{path, header})
	return nil
}

func isTokenRune(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r < 0x7F && strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
