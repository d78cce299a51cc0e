package era_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
)

const (
	legacy = era.Legacy
	modern = era.Modern
)

func TestResults(t *testing.T) {
	const same, refused = "=", "!"
	for _, c := range []struct {
		what, method string
		from, to     era.Era
		result, want string
	}{
		{"bytes stay", "tools/call", legacy, legacy, `{ "content" : [ { "x":1.0 } ] , "\u0078":1}`, same},
		{"bytes stay", "tools/call", modern, modern, `{ "resultType" : "complete", "content" : [ ] }`, same},
		{"members stay", "tools/call", legacy, modern, `{ "content" : [ {"x" : 1.0} ] , "\u0078":"\u00e9", "é":-0, "":null, "a.b/c":9007199254740993, "contents2":{ "resultType":"x", "inputRequests":{} } }`,
			`{"content":[ {"x" : 1.0} ],"\u0078":"\u00e9","é":-0,"":null,"a.b/c":9007199254740993,"contents2":{ "resultType":"x", "inputRequests":{} },"resultType":"complete"}`},
		{"members stay", "tools/list", legacy, modern, `{"tools":[ {"name" : "a","x":1.0} ],"\u0078":"\u00e9","nextCursor":"c"}`,
			`{"tools":[ {"name" : "a","x":1.0} ],"\u0078":"\u00e9","nextCursor":"c","resultType":"complete","ttlMs":0,"cacheScope":"private"}`},
		{"members stay", "x/y", modern, legacy, `{"resultType":"complete","\u0078":"\u00e9\/","é":-0,"":null,"a.b/c":1e2}`, `{"\u0078":"\u00e9\/","é":-0,"":null,"a.b/c":1e2}`},
		{"members stay", "tools/call", modern, legacy, `{"resultType":"complete","content" : [ {"x" : 1.0} ],"y":2}`,
			`{"content":[ {"x" : 1.0} ],"y":2}`},
		{"no type", "tools/call", modern, modern, `{"content":[]}`, `{"content":[],"resultType":"complete"}`},

		{"kept by nobody", "tools/list", legacy, modern, `{"tools":[]}`, `{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`},
		{"kept by nobody else", "tools/list", legacy, modern, `{"tools":[],"ttlMs":99999999,"cacheScope":"public"}`,
			`{"tools":[],"ttlMs":0,"cacheScope":"private","resultType":"complete"}`},
		{"kept by nobody else", "resources/read", modern, modern, `{"resultType":"complete","contents":[],"ttlMs":5000,"cacheScope":"public"}`,
			`{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"private"}`},
		{"as it must be", "prompts/list", modern, modern, `{"resultType":"complete","prompts":[],"ttlMs":0,"cacheScope":"private"}`, same},
		{"a legacy client", "resources/list", modern, legacy, `{"resultType":"complete","resources":[],"ttlMs":1,"cacheScope":"public"}`, `{"resources":[]}`},
		{"a legacy client", "resources/list", legacy, legacy, `{"resources":[],"ttlMs":1,"cacheScope":"public"}`, `{"resources":[]}`},
		{"a tool's own member", "tools/call", modern, legacy, `{"content":[],"ttlMs":1}`, same},

		{"R7 planted", "tools/call", legacy, modern, `{"content":[],"resultType":"input_required","inputRequests":{"k":{}},"requestState":"s"}`,
			`{"content":[],"resultType":"complete"}`},
		{"R7 planted", "tools/call", legacy, legacy, `{"content":[],"resultType":"input_required","inputRequests":{"k":{}},"requestState":"s"}`, `{"content":[]}`},
		{"R7 planted alone", "tools/call", legacy, legacy, `{"resultType":"input_required","inputRequests":{"k":{}}}`, `{}`},
		{"R7 beside complete", "tools/call", modern, modern, `{"resultType":"complete","content":[],"inputRequests":{"k":{}},"requestState":"s"}`,
			`{"resultType":"complete","content":[]}`},
		{"R7 beside nothing", "tools/call", modern, modern, `{"content":[],"inputRequests":{"k":{}}}`, `{"content":[],"resultType":"complete"}`},
		{"R7 beside complete", "prompts/get", modern, legacy, `{"resultType":"complete","messages":[],"inputRequests":{"k":{}}}`, `{"messages":[]}`},
		{"escaped", "tools/call", legacy, modern, `{"content":[],"\u0069nputRequests":{"k":{}}}`, `{"content":[],"resultType":"complete"}`},
		{"to be continued", "tools/call", modern, legacy, `{"resultType":"input_required","inputRequests":{"k":{}}}`, same},
		{"to be continued", "tools/call", modern, modern, `{"resultType":"input_required","requestState":"s"}`, same},
		{"not to be continued", "tools/list", modern, modern, `{"resultType":"input_required","requestState":"s","tools":[]}`, refused},
		{"not to be continued", "resources/list", modern, legacy, `{"resultType":"input_required","requestState":"s","resources":[]}`, refused},

		{"R6 a task", "tools/call", modern, modern, `{"resultType":"task","taskId":"1"}`, refused},
		{"R6 a task", "tools/call", legacy, modern, `{"task":{"taskId":"1"}}`, refused},
		{"R6 a task", "tools/call", legacy, legacy, `{"task":{"taskId":"1"}}`, refused},
		{"R6 unknown", "tools/call", modern, legacy, `{"resultType":"Complete","content":[]}`, refused},
		{"R6 no text", "tools/call", modern, modern, `{"resultType":null,"content":[]}`, refused},
		{"no task", "tools/call", legacy, legacy, `{"task":"x","content":[]}`, same},
		{"twice", "tools/call", legacy, legacy, `{"content":[],"content":[]}`, refused},

		{"_meta of one hop", "tools/call", modern, legacy,
			`{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"},"a":1}}`, `{"content":[],"_meta":{"a":1}}`},
		{"_meta of one hop", "tools/call", legacy, modern,
			`{"content":[],"_meta":{"io.modelcontextprotocol/subscriptionId":7}}`, `{"content":[],"resultType":"complete"}`},
		{"_meta stays", "tools/call", legacy, modern, `{"content":[],"_meta":{ "io.modelcontextprotocol/related-task":1, "a" : 1 }}`,
			`{"content":[],"_meta":{ "io.modelcontextprotocol/related-task":1, "a" : 1 },"resultType":"complete"}`},
		{"_meta of one hop", "subscriptions/listen", modern, modern,
			`{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"ours"}}`, `{"resultType":"complete"}`},
		{"_meta of the server", "tools/call", modern, modern,
			`{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"} }}`, same},
		{"odd _meta", "tools/call", modern, legacy, `{"content":[],"_meta":[1]}`, same},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := era.Response(c.method, rpc.Answer(rpc.IntID(1), jsontext.Value(c.result)), c.from, c.to)
			switch {
			case c.want == refused:
				if codeOfMessage(got) != rpc.InternalError || got.ID != rpc.IntID(1) {
					t.Errorf("%s server, %s client: %s became %s", c.from, c.to, c.result, got.Append(nil))
				}
			case c.want == same && string(got.Result) != c.result, c.want != same && string(got.Result) != c.want:
				t.Errorf("%s server, %s client: %s became %s\nwant %s", c.from, c.to, c.result, got.Append(nil), c.want)
			}
			if again := era.Response(c.method, got, c.to, c.to); got.Result != nil && c.what != "to be continued" && string(again.Result) != string(got.Result) {
				t.Errorf("a client of the same era gets %s for %s", again.Result, got.Result)
			}
			if c.what == "members stay" { // and come back
				back := era.Response(c.method, got, c.to, c.from)
				if there := era.Response(c.method, back, c.from, c.to); string(there.Result) != string(got.Result) {
					t.Errorf("%s became %s and then %s", got.Result, back.Result, there.Result)
				}
			}
		})
	}
}

func codeOfMessage(m rpc.Message) int {
	e, _ := rpc.ReadError(m.Error)
	return e.Code
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		method     string
		code       int
		from, to   era.Era
		want       int
		keepsWords bool
	}{
		{"resources/read", -32002, legacy, modern, -32602, true},
		{"resources/read", -32602, modern, legacy, -32002, true},
		{"resources/read", -32002, legacy, legacy, -32002, true},
		{"resources/read", -32602, legacy, modern, -32602, true},
		{"resources/read", -32002, modern, modern, -32602, true},
		{"tools/call", -32602, modern, legacy, -32602, true},
		{"tools/call", -32002, legacy, modern, -32603, true},
		{"tools/call", -32002, legacy, legacy, -32002, true},
		{"tools/call", -32042, legacy, modern, -32021, false},
		{"tools/call", -32042, legacy, legacy, -32042, true},
		{"tools/call", -32042, modern, legacy, -32603, false},
		{"tools/call", -32042, modern, modern, -32603, false},
		{"tools/call", -32020, modern, modern, -32020, true},
		{"tools/call", -32021, modern, modern, -32021, true},
		{"tools/call", -32022, modern, modern, -32603, true},
		{"tools/call", -32050, modern, modern, -32603, true},
		{"tools/call", -32021, modern, legacy, -32603, true},
		{"tools/call", -32020, legacy, modern, -32603, true},
		{"tools/call", -32099, legacy, modern, -32603, true},
		{"tools/call", -32050, legacy, legacy, -32050, true},
		{"tools/call", -32001, legacy, modern, -32001, true},
		{"tools/call", -32100, modern, legacy, -32100, true},
		{"tools/call", 7, modern, legacy, 7, true},
	} {
		text := string(rpc.Error{Code: c.code, Message: "words", Data: jsontext.Value(`{ "d":1.0 }`)}.Value())
		got := era.Response(c.method, rpc.Message{ID: rpc.IntID(1), Error: jsontext.Value(text)}, c.from, c.to)
		e, err := rpc.ReadError(got.Error)
		kept := e.Message == "words" && string(e.Data) == `{ "d":1.0 }`
		if err != nil || e.Code != c.want || kept != c.keepsWords || !c.keepsWords && !strings.HasPrefix(string(e.Data), `{"type":"upstream_ambiguous"`) {
			t.Errorf("%s: %d of a %s server is %s to a %s client", c.method, c.code, c.from, got.Error, c.to)
		}
		if c.code == c.want && string(got.Error) != text {
			t.Errorf("%s became %s", text, got.Error)
		}
	}
	for _, c := range []struct {
		data string
		want int
	}{
		{`{"requiredCapabilities":{"elicitation":{"form":{}}}}`, era.MissingCapability},
		{`{"requiredCapabilities":"elicitation"}`, rpc.InternalError}, {`"requiredCapabilities"`, rpc.InternalError},
	} {
		text := rpc.Error{Code: era.MissingCapability, Message: "words", Data: jsontext.Value(c.data)}.Value()
		if got := era.Response("tools/call", rpc.Message{Error: text}, legacy, modern); codeOfMessage(got) != c.want {
			t.Errorf("%s became %s", text, got.Error)
		}
	}
	odd := era.Response("tools/call", rpc.Message{Error: jsontext.Value(`"no"`)}, legacy, legacy)
	if codeOfMessage(odd) != rpc.InternalError {
		t.Errorf("an error that is none became %s", odd.Error)
	}
}

func TestHandshakes(t *testing.T) {
	const capable = `"capabilities":{"tools":{"listChanged":true},"tasks":{"list":{}},"experimental":{"tasks":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{"c":1.0}}}`
	const rest = `"capabilities":{"tools":{"listChanged":true},"experimental":{"tasks":{}},"extensions":{"a/b":{"c":1.0}}}`
	const versions = `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
	old := `{"protocolVersion":"2024-11-05",` + capable + `,"serverInfo":{"name":"s", "version":"1"},"instructions":"i\n","x":1.0,"resultType":"complete","ttlMs":9,"requestState":"s"}`
	new := `{"resultType":"complete","supportedVersions":["2026-07-28","2099-01-01"],` + capable + `,"instructions":"i\n","x":1.0,"ttlMs":9,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s", "version":"1"},"y":1}}`
	for _, c := range []struct {
		what         string
		server, want string
		from         era.Era
		initialize   bool
	}{
		{"legacy, initialize", old, `{"protocolVersion":"2025-06-18",` + rest + `,"serverInfo":{"name":"s", "version":"1"},"instructions":"i\n","x":1.0}`, legacy, true},
		{"modern, initialize", new, `{` + rest + `,"instructions":"i\n","x":1.0,"_meta":{"y":1},"protocolVersion":"2025-06-18","serverInfo":{"name":"s", "version":"1"}}`, modern, true},
		{"nameless, initialize", `{"supportedVersions":[]}`, `{"capabilities":{},"protocolVersion":"2025-06-18","serverInfo":{"name":"unnamed","version":"0"}}`, modern, true},
		{"legacy, discover", old, `{` + rest + `,"instructions":"i\n","x":1.0,` + versions + `,"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s", "version":"1"}}}`, legacy, false},
		{"modern, discover", new, `{` + rest + `,"instructions":"i\n","x":1.0,"_meta":{"y":1,"io.modelcontextprotocol/serverInfo":{"name":"s", "version":"1"}},` + versions + `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`, modern, false},
		{"nameless, discover", `{"supportedVersions":[],"capabilities":1}`, `{"capabilities":{},` + versions + `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`, modern, false},
	} {
		got, err := era.Discovered([]byte(c.server), c.from, rpc.Object{})
		if c.initialize {
			got, err = era.Initialized([]byte(c.server), c.from, "2025-06-18", rpc.Object{})
		}
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s (%v)\nwant %s", c.what, got, err, c.want)
		}
	}
	for _, odd := range []string{``, `[]`, `{"a":1,"a":2}`} {
		if v, err := era.Initialized([]byte(odd), legacy, "2025-11-25", rpc.Object{}); err == nil {
			t.Errorf("%q became %s", odd, v)
		}
		if v, err := era.Discovered([]byte(odd), modern, rpc.Object{}); err == nil {
			t.Errorf("%q became %s", odd, v)
		}
	}
}

// Clients learn the extensions of the gateway as their era has them. No server announces them for itself.
func TestRespondAnnounced(t *testing.T) {
	ours := rpc.Object{}.With("io.policy-service/authorization", jsontext.Value(`{}`)).With("io.policy-service/tool-requests", jsontext.Value(`{}`))
	const told = `{"io.policy-service/authorization":{},"io.policy-service/tool-requests":{}}`
	const theirs = `{"a/b":{"c":1.0},"io.policy-service/authorization":{"x":1},"io.policy-service/other":{}}`
	const both = `{"a/b":{"c":1.0},"io.policy-service/authorization":{},"io.policy-service/tool-requests":{}}`
	for said, want := range map[string][2]string{ // of initialize, and of server/discover
		``:                              {`{"experimental":` + told + `}`, `{"extensions":` + told + `}`},
		`,"capabilities":{"tools":{ }}`: {`{"tools":{ },"experimental":` + told + `}`, `{"tools":{ },"extensions":` + told + `}`},
		`,"capabilities":{"extensions":` + theirs + `,"experimental":` + theirs + `}`: {
			`{"extensions":{"a/b":{"c":1.0}},"experimental":` + both + `}`, `{"extensions":` + both + `,"experimental":{"a/b":{"c":1.0}}}`},
		`,"capabilities":{"extensions":7,"experimental":[]}`: {`{"extensions":7,"experimental":` + told + `}`, `{"extensions":` + told + `,"experimental":[]}`},
	} {
		for _, from := range []era.Era{legacy, modern} {
			server := []byte(`{"x":1` + said + `}`)
			first, err := era.Initialized(server, from, "2025-11-25", ours)
			second, err2 := era.Discovered(server, from, ours)
			for n, got := range [][]byte{first, second} {
				if o := object(t, string(got)); err != nil || err2 != nil || string(o.Get("capabilities")) != want[n] {
					t.Errorf("%s becomes %s, %v, %v, want %s", said, got, err, err2, want[n])
				}
			}
		}
	}
	got := era.WithoutOwn(object(t, `{"roots":{},"extensions":`+theirs+`,"experimental":{"b":{}}}`)).Value()
	if want := `{"roots":{},"extensions":{"a/b":{"c":1.0}},"experimental":{"b":{}}}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestToModern(t *testing.T) {
	o := era.ToModern(object(t, `{"name" : "a","arguments": { "b":1.0 } ,"_meta":{"progressToken":1.5,"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/serverInfo":{},"k":"\u00e9"}}`),
		era.Meta{Version: "2026-07-28", Client: []byte(`{"name":"c"}`), Capabilities: []byte(`{"roots":{ }}`), LogLevel: "info"})
	want := `{"name":"a","arguments":{ "b":1.0 },"_meta":{"progressToken":1.5,"k":"\u00e9",` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"roots":{ }},"io.modelcontextprotocol/logLevel":"info"}}`
	if got := string(o.Value()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	bare := era.ToModern(object(t, `{"_meta":7}`), era.Meta{Version: "2026-07-28"})
	meta, fault := era.ReadMeta(bare)
	if fault != nil || meta.Client != nil || string(meta.Capabilities) != `{}` || meta.LogLevel != "" {
		t.Errorf("%s: %+v, %+v", bare.Value(), meta, fault)
	}
}

func TestNotifications(t *testing.T) {
	const changed = "notifications/tools/list_changed"
	for _, c := range []struct {
		from, to     era.Era
		id           rpc.ID
		params, want string
	}{
		{legacy, legacy, rpc.ID{}, ``, ``},
		{legacy, legacy, rpc.ID{}, `{ "progress":1.0, "_meta":{"a":1} }`, `{ "progress":1.0, "_meta":{"a":1} }`},
		{modern, legacy, rpc.ID{}, `{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}`, ``},
		{modern, legacy, rpc.ID{}, `{"uri":"a","_meta":{"io.modelcontextprotocol/subscriptionId":7,"b":1}}`, `{"uri":"a","_meta":{"b":1}}`},
		{legacy, modern, rpc.IntID(5), ``, `{"_meta":{"io.modelcontextprotocol/subscriptionId":5}}`},
		{legacy, modern, rpc.StringID("x"), `{"uri":"a"}`, `{"uri":"a","_meta":{"io.modelcontextprotocol/subscriptionId":"x"}}`},
		{modern, modern, rpc.IntID(5), `{"_meta":{"b":1,"io.modelcontextprotocol/subscriptionId":"ours"}}`, `{"_meta":{"b":1,"io.modelcontextprotocol/subscriptionId":5}}`},
		{legacy, modern, rpc.ID{}, `{"progress":1,"_meta":{"io.modelcontextprotocol/subscriptionId":5}}`, `{"progress":1}`},
		{modern, modern, rpc.ID{}, `{"progress":1,"_meta":{"io.modelcontextprotocol/subscriptionId":5}}`, `{"progress":1}`},
	} {
		m := rpc.Message{Method: changed}
		if c.params != "" {
			m.Params = jsontext.Value(c.params)
		}
		if got := era.Notification(m, c.from, c.to, c.id); string(got.Params) != c.want || got.Method != changed {
			t.Errorf("%s to %s, %s: %s became %s, want %s", c.from, c.to, c.id.Text(), c.params, got.Params, c.want)
		}
	}
}

func TestWithServer(t *testing.T) {
	info := jsontext.Value(`{"name":"s"}`)
	for result, want := range map[string]string{
		`{"a":1.0}`:         `{"a":1.0,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}`,
		`{"_meta":{"k":1}}`: `{"_meta":{"k":1,"io.modelcontextprotocol/serverInfo":{"name":"s"}}}`,
		`{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}}}`: `{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}}}`,
		`{"_meta":1}`: `{"_meta":1}`,
	} {
		if got := era.WithServer(rpc.Answer(rpc.ID{}, jsontext.Value(result)), info); string(got.Result) != want {
			t.Errorf("%s became %s", result, got.Result)
		}
	}
	failed := rpc.Failure(rpc.ID{}, rpc.Error{Code: 1})
	if got := era.WithServer(failed, info); string(got.Append(nil)) != string(failed.Append(nil)) {
		t.Errorf("%s", got.Append(nil))
	}
	if got := era.WithServer(rpc.Answer(rpc.ID{}, jsontext.Value(`{}`)), nil); string(got.Result) != `{}` {
		t.Errorf("%s", got.Result)
	}
}

func TestAsked(t *testing.T) {
	for _, c := range []struct {
		to           era.Era
		method       string
		params, want string
	}{
		{legacy, era.Elicit, `{"mode":"url","url":"u","message":"m"}`, `{"mode":"url","url":"u","message":"m","elicitationId":"ours"}`},
		{legacy, era.Elicit, `{"mode":"url","elicitationId":"theirs","url":"u"}`, `{"mode":"url","url":"u","elicitationId":"ours"}`},
		{modern, era.Elicit, `{"mode":"url","elicitationId":"theirs","url":"u"}`, `{"mode":"url","url":"u"}`},
		{modern, era.Elicit, `{"mode":"form","requestedSchema":{ "x":1.0 },"task":{"ttl":1}}`, `{"mode":"form","requestedSchema":{ "x":1.0 }}`},
		{legacy, era.Elicit, `{ "message":"m","requestedSchema":{} }`, `{ "message":"m","requestedSchema":{} }`},
		{legacy, era.Sample, `{"elicitationId":1,"task":{}}`, `{"elicitationId":1}`},
		{legacy, era.Roots, ``, ``},
	} {
		m := rpc.Message{Method: c.method}
		if c.params != "" {
			m.Params = jsontext.Value(c.params)
		}
		if got := era.Asked(m, c.to, "ours"); string(got.Params) != c.want {
			t.Errorf("%s of a %s client: %s became %s", c.method, c.to, c.params, got.Params)
		}
	}
}

func TestTakes(t *testing.T) {
	for _, c := range []struct {
		capabilities, method, params string
		want                         bool
	}{
		{`{}`, era.Elicit, `{}`, false},
		{``, era.Elicit, `{}`, false},
		{`{"elicitation":true}`, era.Elicit, `{}`, false},
		{`{"elicitation":{}}`, era.Elicit, `{}`, true},
		{`{"elicitation":{}}`, era.Elicit, `{"mode":"form"}`, true},
		{`{"elicitation":{}}`, era.Elicit, `{"mode":"url"}`, false},
		{`{"elicitation":{"form":{}}}`, era.Elicit, `{"mode":"url"}`, false},
		{`{"elicitation":{"url":{}}}`, era.Elicit, `{"mode":"url"}`, true},
		{`{"elicitation":{"url":{}}}`, era.Elicit, `{}`, false},
		{`{"elicitation":{"url":{},"form":{}}}`, era.Elicit, `{}`, true},
		{`{"elicitation":{"url":{},"form":{}}}`, era.Elicit, `{"mode":"other"}`, false},
		{`{"elicitation":{"url":{},"form":{}}}`, era.Elicit, `{"mode":1}`, false},
		{`{"sampling":{}}`, era.Sample, `{"messages":[]}`, true},
		{`{"sampling":{}}`, era.Sample, `{"tools":[]}`, false},
		{`{"sampling":{"tools":{}}}`, era.Sample, `{"toolChoice":{}}`, true},
		{`{"elicitation":{}}`, era.Sample, `{}`, false},
		{`{"roots":{}}`, era.Roots, ``, true},
		{`{}`, era.Roots, ``, false},
		{`{"ping":{}}`, "ping", ``, false},
	} {
		if got := era.Takes([]byte(c.capabilities), rpc.Message{Method: c.method, Params: []byte(c.params)}); got != c.want {
			t.Errorf("%s %s with %s: %v", c.method, c.params, c.capabilities, got)
		}
	}
}

func TestShowPages(t *testing.T) {
	show := func(m rpc.Message) (rpc.Message, bool) {
		if m.Method != era.Elicit {
			t.Errorf("shown %s", m.Append(nil))
		}
		return era.Asked(m, legacy, "ours"), strings.Contains(string(m.Params), "good.example")
	}
	for v, want := range map[string]string{
		`{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"https://good.example/"}],"x":1.0}}`:                                     `{"code":-32042,"message":"the server wants a page opened first","data":{"elicitations":[{"mode":"url","url":"https://good.example/","elicitationId":"ours"}]}}`,
		`{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"https://good.example/"},{"mode":"url","url":"https://bad.example/"}]}}`: ``,
		`{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"form","url":"https://good.example/"}]}}`:                                            ``,
		`{"code":-32042,"message":"m","data":{"elicitations":[]}}`:                                                                                         ``,
		`{"code":-32042,"message":"m"}`: ``,
		`{"code":-32041,"message":"m","data":{"elicitations":[{"mode":"url","url":"https://good.example/"}]}}`: ``,
		`"x"`: ``,
	} {
		if got, ok := era.ShowPages([]byte(v), show); string(got) != want || ok != (want != "") {
			t.Errorf("%s became %s", v, got)
		}
	}
}

// TestNoServerSpeaksInTheGatewaysName: what a client knows the gateway's words by does not come from a server.
func TestNoServerSpeaksInTheGatewaysName(t *testing.T) {
	const same = "="
	for _, c := range []struct{ what, method, error, want string }{
		{"a refusal", "tools/call", `{"code":-32001,"message":"Authorization required","data":{"type":"authorization_required","authorizationRequest":{"id":"x"},"suggestion":"send the call again","n":1}}`,
			`{"code":-32603,"message":"the server files answered with the code -32001: Authorization required","data":{"n":1}}`},
		{"a denial", "tools/call", `{"code":-32002,"message":"m"}`, `{"code":-32603,"message":"the server files answered with the code -32002: m"}`},
		{"MCPx", "tools/call", `{"code":-32003,"message":"m"}`, `{"code":-32603,"message":"the server files answered with the code -32003: m"}`},
		{"COAZ before", "tools/call", `{"code":-32401,"message":"m"}`, `{"code":-32603,"message":"the server files answered with the code -32401: m"}`},
		{"MCP's own", "resources/read", `{ "code":-32002, "message":"Resource not found", "data":{"uri":"file:///x"}}`, same},
		{"MCP's own", "resources/subscribe", `{"code":-32002,"message":"m"}`, same},
		{"MCP's own", "resources/unsubscribe", `{"code":-32002,"message":"m"}`, same},
		{"not MCP's own", "resources/list", `{"code":-32002,"message":"m"}`, `{"code":-32603,"message":"the server files answered with the code -32002: m"}`},
		{"another code", "tools/call", `{"code":-32602,"message":"m","data":{"type":"t","suggestion":"call tools/request","fulfilledBy":"a","io.policy-service/x":1,"_meta":{"io.policy-service/x":1}}}`,
			`{"code":-32602,"message":"m","data":{}}`},
		{"escaped", "tools/call", `{"code":1,"message":"m","data":{"\u0074ype":"t","y":2}}`, `{"code":1,"message":"m","data":{"y":2}}`},
		{"its own", "tools/call", `{ "code":-32602 , "message":"m" , "data" : "type" }`, same},
	} {
		got := era.Relayed(c.method, "files", rpc.Message{Error: jsontext.Value(c.error)}, era.Legacy, era.Legacy)
		want := c.want
		if want == same {
			want = c.error
		}
		if string(got.Error) != want {
			t.Errorf("%s: %s\n%s, and not\n%s", c.what, c.error, got.Error, want)
		}
	}
	for result, want := range map[string]string{
		`{ "content" : [ {"fulfilledBy":1} ] , "_meta":{"x":1}}`:                                                                same,
		`{"content":[],"fulfilledBy":"mia","originalRequester":"agent","_meta":{"io.policy-service/fulfilledBy":{"id":"mia"}}}`: `{"content":[]}`,
		`{"content":[],"_meta":{"io.policy-service/x":1,"y":2}}`:                                                                `{"content":[],"_meta":{"y":2}}`,
	} {
		if want == same {
			want = result
		}
		if got := era.Relayed("tools/call", "files", rpc.Message{Result: jsontext.Value(result)}, era.Legacy, era.Legacy); string(got.Result) != want {
			t.Errorf("%s: %s, and not %s", result, got.Result, want)
		}
	}
	if got := era.Relayed("tools/call", "files", rpc.Message{Result: jsontext.Value(`"text"`)}, era.Legacy, era.Legacy); got.Error == nil {
		t.Errorf("a text is a result: %s", got.Result)
	}
	for method, want := range map[string]string{
		"notifications/tools/list_changed": "",
		"notifications/resources/updated":  `{"uri":"file:///x"}`,
		"notifications/message":            `{"uri":"file:///x"}`,
	} {
		params := jsontext.Value(`{"uri":"file:///x","_meta":{"io.policy-service/tokenType":"full"}}`)
		if got := era.NotificationFrom(rpc.Message{Method: method, Params: params}); string(got.Params) != want {
			t.Errorf("%s: %s, and not %s", method, got.Params, want)
		}
	}
}
