package era_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

// whole makes the request and the headers of a modern client. Params have no _meta yet.
func whole(t *testing.T, method, params string) (http.Header, rpc.Message, rpc.Object) {
	t.Helper()
	o := era.ToModern(object(t, params), testClient)
	return headers(method, o), rpc.Message{ID: rpc.IntID(1), Method: method, Params: o.Value()}, o
}

func TestCheckHeaders(t *testing.T) {
	const call, name = "tools/call", "Mcp-Name"
	set := func(name string, values ...string) func(http.Header) {
		return func(h http.Header) { h[name] = values }
	}
	unset := func(name string) func(http.Header) { return func(h http.Header) { delete(h, name) } }
	for _, c := range []struct {
		what, method, params string
		change               func(http.Header)
		want                 int
		apart                string // why the SDK's server judges otherwise, if it does
	}{
		{"all right", call, `{"name":"mirrored"}`, nil, 0, ""},
		{"no name needed", "tools/list", `{}`, nil, 0, ""},
		{"a name nobody needs", "tools/list", `{}`, set(name, "x"), 0, ""},
		{"a resource", "resources/read", `{"uri":"file:///a"}`, nil, 0, ""},
		{"a prompt", "prompts/get", `{"name":"p"}`, nil, 0, ""},
		{"a name in Base64", call, `{"name":"naïve tool"}`, nil, 0, "it does not decode Mcp-Name"},
		{"a plain name in Base64", call, `{"name":"mirrored"}`, set(name, "=?base64?bWlycm9yZWQ=?="), 0, "it does not decode Mcp-Name"},
		{"D7 another method", call, `{"name":"mirrored"}`, set("Mcp-Method", "tools/list"), era.HeaderMismatch, ""},
		{"D7 method in another case", call, `{"name":"mirrored"}`, set("Mcp-Method", "Tools/Call"), era.HeaderMismatch, ""},
		{"D7 no method", call, `{"name":"mirrored"}`, unset("Mcp-Method"), era.HeaderMismatch, ""},
		{"D7 empty method", call, `{"name":"mirrored"}`, set("Mcp-Method", ""), era.HeaderMismatch, ""},
		{"D7 two methods", call, `{"name":"mirrored"}`, set("Mcp-Method", call, "tools/list"), era.HeaderMismatch, "it reads the first"},
		{"D7 one method twice", call, `{"name":"mirrored"}`, set("Mcp-Method", call, call), era.HeaderMismatch, "it reads the first"},
		{"D7 another name", call, `{"name":"mirrored"}`, set(name, "other"), era.HeaderMismatch, ""},
		{"D7 name in another case", call, `{"name":"mirrored"}`, set(name, "Mirrored"), era.HeaderMismatch, ""},
		{"D7 no name", call, `{"name":"mirrored"}`, unset(name), era.HeaderMismatch, ""},
		{"D7 two names", call, `{"name":"mirrored"}`, set(name, "mirrored", "other"), era.HeaderMismatch, "it reads the first"},
		{"D7 two names for none", "tools/list", `{}`, set(name, "a", "b"), era.HeaderMismatch, "it reads none"},
		{"D7 another name in Base64", call, `{"name":"mirrored"}`, set(name, "=?base64?b3RoZXI=?="), era.HeaderMismatch, ""},
		{"D7 broken Base64", call, `{"name":"mirrored"}`, set(name, "=?base64?bWlycm9yZWQ?="), era.HeaderMismatch, ""},
		{"D7 broken after the name", call, `{"name":"mirror"}`, set(name, "=?base64?bWlycm9y!?="), era.HeaderMismatch, ""},
		{"D7 marks in another case", call, `{"name":"mirrored"}`, set(name, "=?BASE64?bWlycm9yZWQ=?="), era.HeaderMismatch, ""},
		{"D7 name in UTF-8", call, `{"name":"naïve tool"}`, set(name, "naïve tool"), era.HeaderMismatch, "it takes any byte"},
		{"D7 no name in the body", call, `{}`, set(name, "mirrored"), era.HeaderMismatch, ""},
		{"D7 nothing in both", call, `{}`, set(name, "=?base64??="), era.HeaderMismatch, ""},
		{"D7 a uri for a name", call, `{"uri":"mirrored"}`, set(name, "mirrored"), era.HeaderMismatch, ""},
		{"D7 no version", call, `{"name":"mirrored"}`, unset("Mcp-Protocol-Version"), era.HeaderMismatch, ""},
		{"D7 a legacy version", call, `{"name":"mirrored"}`, set("Mcp-Protocol-Version", "2025-11-25"), era.HeaderMismatch, ""},
		{"D7 two versions", call, `{"name":"mirrored"}`, set("Mcp-Protocol-Version", "2026-07-28", "2025-11-25"), era.HeaderMismatch, "it reads the first"},
	} {
		t.Run(c.what, func(t *testing.T) {
			h, m, o := whole(t, c.method, c.params)
			if c.change != nil {
				c.change(h)
			}
			meta, fault := era.CheckHeaders(h, m, o)
			if code := codeOf(fault); code != c.want {
				t.Fatalf("%d, want %d: %+v", code, c.want, fault)
			}
			if fault == nil && (meta.Version != "2026-07-28" || string(meta.Capabilities) != `{}` || string(meta.Client) != string(testClient.Client)) {
				t.Errorf("read %+v", meta)
			}
			status, answer := startPartner(t, era.Modern).send(t, m, h)
			refused := status == http.StatusBadRequest
			if (refused != (fault != nil)) != (c.apart != "") {
				t.Errorf("the SDK's server answers %d %s; apart: %q", status, answer.Append(nil), c.apart)
			}
		})
	}
}

func codeOf(e *rpc.Error) int {
	if e == nil {
		return 0
	}
	return e.Code
}

func TestReadMeta(t *testing.T) {
	const version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	const capabilities = `"io.modelcontextprotocol/clientCapabilities":{"roots":{}}`
	for params, want := range map[string]int{
		`{}`:                               rpc.InvalidParams,
		`{"_meta":1}`:                      rpc.InvalidParams,
		`{"_meta":{}}`:                     rpc.InvalidParams,
		`{"_meta":{` + version + `}}`:      rpc.InvalidParams,
		`{"_meta":{` + capabilities + `}}`: rpc.InvalidParams,
		`{"_meta":{` + version + `,"io.modelcontextprotocol/clientCapabilities":[]}}`:                rpc.InvalidParams,
		`{"_meta":{` + version + `,` + capabilities + `,"io.modelcontextprotocol/clientInfo":"x"}}`:  rpc.InvalidParams,
		`{"_meta":{` + version + `,` + capabilities + `,"io.modelcontextprotocol/clientInfo":{}}}`:   rpc.InvalidParams,
		`{"_meta":{` + version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":"loud"}}`: rpc.InvalidParams,
		`{"_meta":{` + version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":1}}`:      rpc.InvalidParams,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":1,` + capabilities + `}}`:               rpc.InvalidParams,
		`{"_meta":{` + version + `,` + capabilities + `,"io.modelcontextprotocol/logLevel":"info"}}`: 0,
		`{"_meta":{` + version + `,` + capabilities + `}}`:                                           0,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01",` + capabilities + `}}`:    era.UnsupportedVersion,
	} {
		meta, fault := era.ReadMeta(object(t, params))
		if codeOf(fault) != want {
			t.Errorf("%s: %+v, %+v", params, meta, fault)
		}
		if strings.Contains(params, `"info"`) && meta.LogLevel != "info" {
			t.Errorf("%s: %+v", params, meta)
		}
	}
}

func TestUnsupportedVersions(t *testing.T) {
	for version, want := range map[string]string{
		"1900-01-01": `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"1900-01-01"}`,
		"2025-11-25": `{"supported":["2026-07-28","2025-06-18","2025-03-26","2024-11-05"],"requested":"2025-11-25"}`,
	} {
		o := era.ToModern(rpc.Object{}, era.Meta{Version: version})
		h := http.Header{era.VersionHeader: {version}, era.MethodHeader: {"tools/list"}}
		_, fault := era.CheckHeaders(h, rpc.Message{ID: rpc.IntID(1), Method: "tools/list"}, o)
		if codeOf(fault) != era.UnsupportedVersion || string(fault.Data) != want {
			t.Errorf("%s: %+v, data %s", version, fault, fault.Data)
		}
	}
	if e := era.Unsupported(strings.Repeat("x", 65)); e.Code != rpc.InvalidParams || e.Data != nil {
		t.Errorf("a long version comes back: %+v", e)
	}
}

// The examples of the specification.
func TestEncodeHeader(t *testing.T) {
	for text, want := range map[string]string{
		"us-west1":           "us-west1",
		"Hello, 世界":          "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":           "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":       "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?literal":   "=?base64?literal",
		"a\tb":               "=?base64?YQli?=",
		"":                   "",
	} {
		if got := era.EncodeHeader(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestHeaderParams(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`"p%d":{"type":"string","x-mcp-header":"H%d"}`, i, i)
	}
	for schema, want := range map[string]int{ // how many there are; -1 is an error
		``:   0,
		`{}`: 0,
		`{"type":"object","properties":{"a":{"type":"string"}}}`: 0,
		mirrored: 4,
		`{"properties":{"a":{"type":"string","x\u002dmcp-header":"A"}}}`:                                                  1,
		`{"properties":{"x-mcp-header":{"type":"string"}}}`:                                                               0,
		`{"properties":{"a":{"default":{"x-mcp-header":"A"},"enum":[{"x-mcp-header":"A"}],"const":{"x-mcp-header":""}}}}`: 0,
		`{"properties":{"properties":{"type":"string","x-mcp-header":"A"}}}`:                                              1,
		`{"properties":{"a":{"type":"integer","x-mcp-header":"A!#$%&'*+-.^_` + "`" + `|~09"}}}`:                           1,

		`{"x-mcp-header":"A"}`:                                                                               -1,
		`{"type":"string","x-mcp-header":"A"}`:                                                               -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`:                                           -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":1}}}`:                                            -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":null}}}`:                                         -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`:                                        -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":"a:"}}}`:                                         -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":"a\r\nX: y"}}}`:                                  -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":"é"}}}`:                                          -1,
		`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`:                                          -1,
		`{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`:                                          -1,
		`{"properties":{"a":{"type":["string"],"x-mcp-header":"A"}}}`:                                        -1,
		`{"properties":{"a":{"x-mcp-header":"A"}}}`:                                                          -1,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`: -1,
		`{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`:                 -1,
		`{"properties":{"a":{"items":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}}}`:           -1,
		`{"properties":{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}}`:                              -1,
		`{"allOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`:                              -1,
		`{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`:                                   -1,
		`{"not":{"x-mcp-header":"A"}}`:                                                                       -1,
		`{"$defs":{"a":{"type":"string","x-mcp-header":"A"}},"properties":{"b":{"$ref":"#/$defs/a"}}}`:       -1,
		`{"patternProperties":{"a":{"type":"string","x-mcp-header":"A"}}}`:                                   -1,
		`{"additionalProperties":{"type":"string","x-mcp-header":"A"}}`:                                      -1,
		`{"prefixItems":[true,{"properties":{"a":{"x-mcp-header":"A"}}}]}`:                                   -1,
		`{"properties":{` + strings.Join(many, ",") + `}}`:                                                   -1,
	} {
		p, err := era.HeaderParams([]byte(schema))
		if n := len(p); want < 0 && err == nil || want >= 0 && (err != nil || n != want) {
			t.Errorf("%s: %d, %v; want %d", schema, n, err, want)
		}
	}
}

// Parameters that stand side by side, however deep, are not taken for each other.
func TestDeepParams(t *testing.T) {
	leaves := func(depth int) string {
		return fmt.Sprintf(`"x":{"type":"string","x-mcp-header":"X%[1]d"},"y":{"type":"string","x-mcp-header":"Y%[1]d"}`, depth)
	}
	schema, arguments := leaves(9), `"x":"x9","y":"y9"`
	for depth := 8; depth >= 0; depth-- {
		schema = `"deep":{"properties":{` + schema + `}},` + leaves(depth)
		arguments = fmt.Sprintf(`"deep":{%s},"x":"x%d","y":"y%d"`, arguments, depth, depth)
	}
	p, err := era.HeaderParams([]byte(`{"properties":{` + schema + `}}`))
	if err != nil || len(p) != 20 {
		t.Fatalf("%d, %v", len(p), err)
	}
	h := era.ParamHeaders(p, []byte(`{`+arguments+`}`))
	for depth := range 10 {
		for _, name := range []string{"x", "y"} {
			if got, want := h.Get(fmt.Sprintf("Mcp-Param-%s%d", name, depth)), fmt.Sprintf("%s%d", name, depth); got != want {
				t.Errorf("%s is %q", want, got)
			}
		}
	}
}

func TestCheckParamHeaders(t *testing.T) {
	p, err := era.HeaderParams([]byte(mirrored))
	mcptest.Must(t, err)
	for _, c := range []struct {
		arguments string
		h         http.Header
		fits      bool
		apart     string // why the SDK's server judges otherwise, if it does
	}{
		{`{}`, nil, true, ""},
		{`{"region":null,"count":null,"deep":null}`, nil, true, ""},
		{`{"deep":1}`, nil, true, ""},
		{`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu"}}, true, ""},
		{`{"r\u0065gion":"\u0065u"}`, http.Header{"Mcp-Param-Region": {"eu"}}, true, ""},
		{`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"=?base64?ZXU=?="}}, true, ""},
		{`{"region":"é"}`, http.Header{"Mcp-Param-Region": {"=?base64?w6k=?="}}, true, ""},
		{`{"region":""}`, http.Header{"Mcp-Param-Region": {""}}, true, "an empty header is a missing one to it"},
		{`{"count":42}`, http.Header{"Mcp-Param-Count": {"42.0"}}, true, ""},
		{`{"count":4.2e1}`, http.Header{"Mcp-Param-Count": {"42"}}, true, ""},
		{`{"count":-7}`, http.Header{"Mcp-Param-Count": {"-7"}}, true, ""},
		{`{"count":0.0}`, http.Header{"Mcp-Param-Count": {"0"}}, true, ""},
		{`{"count":-120e-1}`, http.Header{"Mcp-Param-Count": {"-12.0"}}, true, ""},
		{`{"count":9007199254740991}`, http.Header{"Mcp-Param-Count": {"9007199254740991"}}, true, ""},
		{`{"sure":false}`, http.Header{"Mcp-Param-Sure": {"false"}}, true, ""},
		{`{"deep":{"er":"x"}}`, http.Header{"Mcp-Param-Deep-Er": {"x"}}, true, ""},
		{`{}`, http.Header{"Mcp-Param-Other": {"x"}}, true, ""},

		{`{"region":"eu"}`, nil, false, ""},
		{`{"region":""}`, nil, false, ""},
		{`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"EU"}}, false, ""},
		{`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu", "us"}}, false, "it reads the first"},
		{`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu", "eu"}}, false, "it reads the first"},
		{`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"=?base64?ZXU?="}}, false, ""},
		{`{"region":"é"}`, http.Header{"Mcp-Param-Region": {"é"}}, false, "it takes any byte"},
		{`{}`, http.Header{"Mcp-Param-Region": {"eu"}}, false, ""},
		{`{}`, http.Header{"Mcp-Param-Region": {""}}, false, "an empty header is a missing one to it"},
		{`{"region":null}`, http.Header{"Mcp-Param-Region": {"null"}}, false, ""},
		{`{"count":42}`, http.Header{"Mcp-Param-Count": {"43"}}, false, ""},
		{`{"count":99.99999999999999999999}`, http.Header{"Mcp-Param-Count": {"100"}}, false, "it reads doubles"},
		{`{"count":1e-400}`, http.Header{"Mcp-Param-Count": {"0"}}, false, "it reads doubles"},
		{`{"count":0}`, http.Header{"Mcp-Param-Count": {"-0"}}, false, "it reads doubles"},
		{`{"count":42}`, http.Header{"Mcp-Param-Count": {"0x2a"}}, false, ""},
		{`{"count":42}`, http.Header{"Mcp-Param-Count": {"042"}}, false, "it reads numbers that JSON does not have"},
		{`{"count":42}`, http.Header{"Mcp-Param-Count": {"inf"}}, false, ""},
		{`{"count":1.5}`, http.Header{"Mcp-Param-Count": {"1.5"}}, false, ""},
		{`{"count":9007199254740993}`, http.Header{"Mcp-Param-Count": {"9007199254740993"}}, false, ""},
		{`{"sure":true}`, http.Header{"Mcp-Param-Sure": {"True"}}, false, ""},
		{`{"region":{"a":1}}`, http.Header{"Mcp-Param-Region": {"x"}}, false, ""},
		{`{"region":["eu"]}`, nil, false, ""},
		{`{"deep":{"er":"x"}}`, nil, false, ""},
	} {
		fault := era.CheckParamHeaders(c.h, p, []byte(c.arguments))
		if (fault == nil) != c.fits || fault != nil && fault.Code != era.HeaderMismatch {
			t.Errorf("%s with %v: %+v", c.arguments, c.h, fault)
		}
		h, m, _ := whole(t, "tools/call", `{"name":"mirrored","arguments":`+c.arguments+`}`)
		for name, values := range c.h {
			h[name] = values
		}
		status, answer := startPartner(t, era.Modern).send(t, m, h)
		e, _ := rpc.ReadError(answer.Error)
		if ((e.Code == 0) != c.fits) != (c.apart != "") {
			t.Errorf("%s with %v: the SDK's server answers %d %s; apart: %q", c.arguments, c.h, status, answer.Append(nil), c.apart)
		}
	}
}

// What ParamHeaders writes, the SDK's server and CheckParamHeaders take.
func TestParamHeadersAreTaken(t *testing.T) {
	p, err := era.HeaderParams([]byte(mirrored))
	mcptest.Must(t, err)
	server := startPartner(t, era.Modern)
	r := rand.New(rand.NewPCG(19, 4))
	texts := []string{"a", " ", "\t", "é", "\n", "世", "=?base64?", "?=", "~", "\x7f", "😀"}
	for range 300 {
		arguments := map[string]any{}
		if r.IntN(4) > 0 {
			text := texts[r.IntN(len(texts))] // the SDK's server takes no empty header
			for range r.IntN(4) {
				text += texts[r.IntN(len(texts))]
			}
			arguments["region"] = text
			arguments["deep"] = map[string]any{"er": text + "x"}
		}
		if r.IntN(2) > 0 {
			arguments["count"] = r.Int64N(1<<53) - r.Int64N(1<<53)
			arguments["sure"] = r.IntN(2) > 0
		}
		text, err := json.Marshal(arguments)
		mcptest.Must(t, err)
		mirror := era.ParamHeaders(p, text)
		if fault := era.CheckParamHeaders(mirror, p, text); fault != nil {
			t.Fatalf("%s: we write %v, and refuse it: %s", text, mirror, fault.Message)
		}
		h, m, _ := whole(t, "tools/call", `{"name":"mirrored","arguments":`+string(text)+`}`)
		for name, values := range mirror {
			h[name] = values
		}
		if status, answer := server.send(t, m, h); answer.Result == nil {
			t.Fatalf("%s: the SDK's server answers %v with %d %s", text, mirror, status, answer.Append(nil))
		}
	}
	none := era.ParamHeaders(p, []byte(`{"region":null,"count":1.5,"sure":{},"deep":[]}`))
	if len(none) != 0 {
		t.Errorf("headers of what no header may have: %v", none)
	}
}
