package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/wire"
)

// The forms of 000 and 001 are in testdata. Here are the refusals with their places, and the members that only the gateway writes.

// refusedAt fails if an error does not say where it is: in that pointer, or nowhere for "-".
func refusedAt(t *testing.T, what string, err error, at string) {
	t.Helper()
	var e *evaluation.Error
	switch {
	case at == "-" && err == nil:
	case at == "-" || !errors.As(err, &e) || e.Pointer != at:
		t.Errorf("%s: got %v, want an error at %q", what, err, at)
	}
}

func TestWireEnvelopeRefusals(t *testing.T) {
	const whole = `{"protocol":"mcp-x/v0","id":"a","ts":"2024-01-01T12:00:00Z","from":"b","to":["c"],"kind":"mcp","payload":{}}`
	for _, test := range []struct{ part, instead, at string }{
		{``, ``, "-"},
		{`"payload":{}`, `"payload":{},"more":[1]`, "-"}, // others may add members
		{`"id":"a",`, ``, "-"},
		{`"ts":"2024-01-01T12:00:00Z",`, ``, "-"},
		{`"to":["c"],`, ``, "-"},
		{`mcp-x/v0`, `mcp-x/v1`, "/protocol"},
		{`"protocol":"mcp-x/v0",`, ``, "/protocol"},
		{`"id":"a"`, `"id":1`, "/id"},
		{`"id":"a"`, `"id":""`, "/id"},
		{`"id":"a"`, `"id":null`, "/id"},
		{`2024-01-01T12:00:00Z`, `2024-01-01`, "/ts"},
		{`2024-01-01T12:00:00Z`, `2024-02-30T12:00:00Z`, "/ts"},
		{`2024-01-01T12:00:00Z`, `2024-01-01T12:00:00,5Z`, "/ts"},
		{`2024-01-01T12:00:00Z`, `0001-01-01T00:00:00Z`, "/ts"},
		{`"2024-01-01T12:00:00Z"`, `1704110400`, "/ts"},
		{`"from":"b",`, ``, "/from"},
		{`"from":"b"`, `"from":{}`, "/from"},
		{`"to":["c"]`, `"to":[]`, "/to"}, // which some would read as everybody
		{`"to":["c"]`, `"to":"c"`, "/to"},
		{`"to":["c"]`, `"to":["c",1]`, "/to/1"},
		{`"to":["c"]`, `"to":null`, "/to"},
		{`"to":["c"]`, `"To":["c"]`, "/To"}, // it would be for everybody
		{`"kind":"mcp"`, `"kind":"MCP"`, "/kind"},
		{`"kind":"mcp",`, ``, "/kind"},
		{`"payload":{}`, `"payload":[]`, "/payload"},
		{`"payload":{}`, `"payload":null`, "/payload"},
		{`,"payload":{}`, ``, "/payload"},
		{`"payload":{}`, `"payload":{"a":1,"a":2}`, "/payload/a"},
		{`"kind":"mcp"`, `"kind":"mcp","kind":"system"`, "/kind"},
		{`"kind":"mcp"`, `"kind":"mcp","kin\u0064":"system"`, "/kind"},
		{`}}`, `}}{}`, ""},
		{whole, `[` + whole + `]`, ""},
		{whole, ``, ""},
	} {
		text := strings.Replace(whole, test.part, test.instead, 1)
		_, err := wire.ReadEnvelope([]byte(text))
		refusedAt(t, text, err, test.at)
	}
}

func TestWireRespond(t *testing.T) {
	for params, at := range map[string]string{
		`{"authorizationId":"a","decision":"delegate"}`:                                 "/delegateTo",
		`{"authorizationId":"a","decision":"approve","delegateTo":"User::\"mia\""}`:     "/delegateTo",
		`{"authorizationId":"a","decision":"delegate","delegateto":"User::\"mia\""}`:    "/delegateto",
		`{"authorizationId":"a","decision":"approve"}`:                                  "-",
		`{"authorizationId":"a","decision":"deny","reason":"no"}`:                       "-",
		`{"decision":"approve"}`:                                                        "/authorizationId",
		`{"authorizationId":"","decision":"approve"}`:                                   "/authorizationId",
		`{"authorizationId":1,"decision":"approve"}`:                                    "/authorizationId",
		`{"authorizationId":"a"}`:                                                       "/decision",
		`{"authorizationId":"a","decision":"Approve"}`:                                  "/decision",
		`{"authorizationId":"a","decision":"approve","decision":"deny"}`:                "/decision",
		`{"authorizationId":"a","Decision":"deny","decision":"approve"}`:                "/Decision",
		`{"authorizationId":"a","decision":"approve","validUntil":"tomorrow"}`:          "/validUntil",
		`{"authorizationId":"a","decision":"deny","validUntil":"2024-01-01T13:00:00Z"}`: "/validUntil",
		`{"authorizationId":"a","decision":"approve","content":{"approve":true}}`:       "",
		`[]`: "",
	} {
		_, err := wire.ReadRespond(jsontext.Value(params), evaluation.DefaultLimits())
		refusedAt(t, params, err, at)
	}
	delegated, err := wire.ReadRespond(jsontext.Value(`{"authorizationId":"a","decision":"delegate","delegateTo":"User::\"mia\""}`), evaluation.DefaultLimits())
	if want := (evaluation.Ruling{Decision: "delegate", To: `User::"mia"`, Reason: "delegated"}); err != nil || delegated.Ruling != want {
		t.Errorf("%+v, %v", delegated.Ruling, err)
	}
	// Members that may contradict the ruling reach the PDP as they came, and _meta, which is for the gateway, does not.
	r, err := wire.ReadRespond(jsontext.Value(`{"_meta":{"progressToken":1},"authorizationId":"a", "arguments": {"n": 1.0},"decision":"approve"}`), evaluation.DefaultLimits())
	if err != nil || string(r.Answer) != `{"authorizationId":"a","arguments":{"n": 1.0},"decision":"approve"}` {
		t.Errorf("%s, %v", r.Answer, err)
	}
}

func TestWireToolRequest(t *testing.T) {
	for params, at := range map[string]string{
		`{"name":"t"}`: "-",
		`{"name":"t","arguments":{},"reason":"r","requestId":"i","_meta":{}}`: "-",
		`{"name":"t","reason":""}`:               "-",
		`{"arguments":{}}`:                       "/name",
		`{"name":["t"]}`:                         "/name",
		`{"name":"t","arguments":[]}`:            "/arguments",
		`{"name":"t","arguments":null}`:          "/arguments",
		`{"name":"t","arguments":{"a":1,"a":1}}`: "/arguments/a",
		`{"name":"t","reason":1}`:                "/reason",
		`{"name":"t","requestId":""}`:            "/requestId",
		`{"name":"t","requestid":"i"}`:           "/requestid", // it would be a new request
	} {
		_, err := wire.ReadToolRequest(jsontext.Value(params))
		refusedAt(t, params, err, at)
	}
}

// fulfilment reads params as a gateway does that has read them before.
func fulfilment(params string) (wire.Fulfilment, bool, error) {
	get := func(v jsontext.Value) func(string) jsontext.Value {
		members := map[string]jsontext.Value{}
		_ = json.Unmarshal(v, &members) // _meta may be none
		return func(name string) jsontext.Value { return members[name] }
	}
	top := get(jsontext.Value(params))
	return wire.ReadFulfilment(top, get(top("_meta")))
}

func TestWireFulfilment(t *testing.T) {
	const of, id = `"io.policy-service/onBehalfOf"`, `"io.policy-service/requestId"`
	for params, at := range map[string]string{
		`{"onBehalfOf":"a","requestId":"i"}`:                                          "-",
		`{"_meta":{` + of + `:"a",` + id + `:"i"}}`:                                   "-",
		`{"onBehalfOf":"a","requestId":"i","_meta":{` + of + `:"a",` + id + `:"i"}}`:  "-",
		`{"onBehalfOf":"a","_meta":{` + id + `:"i"}}`:                                 "-",
		`{"onBehalfOf":"a"}`:                                                          "/requestId",
		`{"_meta":{` + of + `:"a"}}`:                                                  "/requestId",
		`{"requestId":"i"}`:                                                           "/onBehalfOf",
		`{"onBehalfOf":"a","requestId":"i","_meta":{` + of + `:"b"}}`:                 "/_meta/io.policy-service~1onBehalfOf",
		`{"onBehalfOf":"a","requestId":"i","_meta":{` + id + `:"j"}}`:                 "/_meta/io.policy-service~1requestId",
		`{"onBehalfOf":"","requestId":"i"}`:                                           "/onBehalfOf",
		`{"onBehalfOf":null,"requestId":"i"}`:                                         "/onBehalfOf",
		`{"onBehalfOf":["a"],"requestId":"i"}`:                                        "/onBehalfOf",
		`{"onBehalfOf":"a","requestId":7}`:                                            "/requestId",
		`{"onBehalfOf":"a","requestId":"i","_meta":{` + of + `:null,` + id + `:"i"}}`: "/_meta/io.policy-service~1onBehalfOf",
	} {
		f, given, err := fulfilment(params)
		refusedAt(t, params, err, at)
		if want := (wire.Fulfilment{OnBehalfOf: "a", RequestID: "i"}); !given || err == nil && f != want {
			t.Errorf("%s: %v, given %t", params, f, given)
		}
	}
	for _, params := range []string{`{}`, `{"name":"t","_meta":{"progressToken":1}}`, `{"_meta":7}`} {
		if f, given, err := fulfilment(params); given || err != nil {
			t.Errorf("%s: %v, %t, %v", params, f, given, err)
		}
	}
}

// A server cannot name the caller of its tool, and nothing else of its result changes.
func TestWireFulfilled(t *testing.T) {
	by, of := evaluation.Ref{Type: "user", ID: "mia"}, evaluation.Ref{Type: "agent", ID: "a-1"}
	const meta = `"_meta":{"io.policy-service/fulfilledBy":"user/mia","io.policy-service/originalRequester":"agent/a-1"}`
	for result, want := range map[string]string{
		`{}`: `{"fulfilledBy":"mia","originalRequester":"a-1",` + meta + `}`,
		`{"content":[ {"n": 1.00, "t":"\u00e9"} ],"n\u0061me":9007199254740993}`:                                `{"content":[ {"n": 1.00, "t":"\u00e9"} ],"n\u0061me":9007199254740993,"fulfilledBy":"mia","originalRequester":"a-1",` + meta + `}`,
		`{"fulfilledBy":"boss","_meta":{"io.policy-service/fulfilledBy":"user/boss","a":[ 1 ]},"isError":true}`: `{"fulfilledBy":"mia","_meta":{"io.policy-service/fulfilledBy":"user/mia","a":[ 1 ],"io.policy-service/originalRequester":"agent/a-1"},"isError":true,"originalRequester":"a-1"}`,
		`{"_meta":null}`: `{` + meta + `,"fulfilledBy":"mia","originalRequester":"a-1"}`,
		`[]`:             "",
		`{"a":1,"a":1}`:  "",
	} {
		got, err := wire.Fulfilled(jsontext.Value(result), by, of)
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v", result, got, err)
		}
	}
}

func TestWireAnnounced(t *testing.T) {
	for params, want := range map[string]string{
		`{"id":"i","tool":"jira:create","arguments":{"n": 1.0},"requester":"agent/a","request":{"x":[ ]}}`: `{"id":"i","tool":"jira_create","arguments":{"n": 1.0},"requester":"a","request":{"x":[ ]},"_meta":{"io.policy-service/tool":"jira:create","io.policy-service/requester":"agent/a"}}`,
		`{"id":"i","tool":"jira:create"}`:   "",
		`{"id":"i","requester":"agent/a"}`:  "",
		`{"tool":{},"requester":"agent/a"}`: "",
		`7`:                                 "",
	} {
		got, err := wire.Announced(jsontext.Value(params), "jira_create", "a")
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v", params, got, err)
		}
	}
}

// The reason of a requester has no invisible characters for its readers.
func TestWirePendingReason(t *testing.T) {
	p := wire.Pending{Reason: "safe\u202eelif", Arguments: jsontext.Value(`{ "n" : 1.0 }`)}
	text := string(p.Payload())
	if strings.Contains(text, "\u202e") || !strings.Contains(text, `"arguments":{ "n" : 1.0 }`) {
		t.Error(text)
	}
}

const (
	policyAlone   = `{"mode":"hybrid","default":"deny","rules":[{"agent":"a","tools":["t","u"],"expires":"2024-01-02T00:00:00Z","requires_approval":true,"effect":"allow"}]}`
	policyPayload = `{"type":"tool_access_policy","policy":` + policyAlone + `}`
	policyMessage = `{"jsonrpc":"2.0","method":"notifications/tool_access_policy","params":` + policyPayload + `}`
	policyWhole   = `{"protocol":"mcp-x/v0","id":"m","ts":"2024-01-01T12:00:00Z","from":"b","kind":"system","payload":` + policyPayload + `}`
)

func TestWireAccessPolicyRefusals(t *testing.T) {
	for _, test := range []struct{ whole, part, instead, at string }{
		{policyWhole, ``, ``, "-"},
		{policyPayload, ``, ``, "-"},
		{policyMessage, ``, ``, "-"},
		{policyAlone, ``, ``, "-"},
		{policyAlone, `"default":"deny",`, ``, "-"},
		{policyAlone, `["t","u"]`, `"*"`, "-"},
		{policyAlone, `,"rules":[{"agent":"a","tools":["t","u"],"expires":"2024-01-02T00:00:00Z","requires_approval":true,"effect":"allow"}]`, ``, "-"},
		{policyAlone, `,"expires":"2024-01-02T00:00:00Z","requires_approval":true,"effect":"allow"`, ``, "-"},
		{policyAlone, `"mode":"hybrid",`, ``, "/mode"},
		{policyAlone, `"hybrid"`, `["hybrid"]`, "/mode"},
		{policyAlone, `"default"`, `"Default"`, "/Default"},
		{policyAlone, `"deny"`, `false`, "/default"},
		{policyAlone, `"deny"`, `""`, "/default"},
		{policyAlone, `"rules"`, `"rule"`, "/rule"},
		{policyAlone, `"rules":[`, `"rules":[[],`, "/rules/0"},
		{policyAlone, `"agent"`, `"agents"`, "/rules/0/agents"},
		{policyAlone, `"agent"`, `"x/~y":1,"agent"`, "/rules/0/x~1~0y"},
		{policyAlone, `"agent":"a",`, ``, "/rules/0/agent"},
		{policyAlone, `"agent":"a"`, `"agent":{"id":"a"}`, "/rules/0/agent"},
		{policyAlone, `"agent":"a"`, `"agent":"a","agent":"b"`, "/rules/0/agent"},
		{policyAlone, `"tools":["t","u"],`, ``, "/rules/0/tools"},
		{policyAlone, `["t","u"]`, `[]`, "/rules/0/tools"},
		{policyAlone, `["t","u"]`, `"t"`, "/rules/0/tools"}, // 001 has one text that stands for tools
		{policyAlone, `["t","u"]`, `["t",1]`, "/rules/0/tools/1"},
		{policyAlone, `["t","u"]`, `["t",""]`, "/rules/0/tools/1"},
		{policyAlone, `["t","u"]`, `null`, "/rules/0/tools"},
		{policyAlone, `"2024-01-02T00:00:00Z"`, `1704153600`, "/rules/0/expires"},
		{policyAlone, `"2024-01-02T00:00:00Z"`, `null`, "/rules/0/expires"},
		{policyAlone, `true`, `"true"`, "/rules/0/requires_approval"},
		{policyAlone, `true`, `null`, "/rules/0/requires_approval"},
		{policyAlone, `"allow"`, `true`, "/rules/0/effect"},
		{policyPayload, `"tool_access_policy"`, `"welcome"`, "/type"},
		{policyPayload, `"tool_access_policy"`, `1`, "/type"},
		{policyPayload, `"type"`, `"more":1,"type"`, "/more"},
		{policyPayload, `"policy":` + policyAlone, `"policy":[]`, "/policy"},
		{policyPayload, `,"policy":` + policyAlone, ``, "/policy"},
		{policyPayload, `"agent"`, `"agents"`, "/policy/rules/0/agents"},
		{policyMessage, `"agent"`, `"agents"`, "/params/policy/rules/0/agents"},
		{policyMessage, `"2.0"`, `"1.0"`, "/jsonrpc"},
		{policyMessage, `"params"`, `"id":1,"params"`, "/id"},
		{policyMessage, `"params"`, `"more":1,"params"`, "/more"},
		{policyMessage, `,"params":` + policyPayload, ``, "/params"},
		{policyMessage, `notifications/tool_access_policy`, `notifications/welcome`, "/method"},
		{policyMessage, `notifications/tool_access_policy`, `tools/call`, "/method"},
		{policyWhole, `"agent"`, `"agents"`, "/payload/policy/rules/0/agents"},
		{policyWhole, `"type":"tool_access_policy",`, ``, "/payload/type"},
		{policyWhole, `"kind":"system"`, `"kind":"mcp"`, "/kind"},
		{policyWhole, `"from":"b",`, ``, "/from"},
		{policyWhole, `"id":"m"`, `"id":"m","expires":"2024-01-02T00:00:00Z"`, "/expires"},
		{policyWhole, `mcp-x/v0`, `mcp-x/v1`, "/protocol"},
		{policyAlone, policyAlone, `[]`, ""},
		{policyAlone, policyAlone, policyAlone + policyAlone, ""},
		{policyAlone, policyAlone, `{"mode":"open"} // or denylist`, ""},
	} {
		if !strings.Contains(test.whole, test.part) {
			t.Errorf("%s is not there to be replaced", test.part)
		}
		text := strings.Replace(test.whole, test.part, test.instead, 1)
		_, err := wire.ReadAccessPolicy([]byte(text))
		refusedAt(t, text, err, test.at)
	}
}

// A policy is the same in an envelope, in a message of MCP, in a payload, and alone, and says where it is.
func TestWireAccessPolicy(t *testing.T) {
	rule := wire.AccessRule{Agent: "a", Tools: []string{"t", "u"}, Expires: "2024-01-02T00:00:00Z", RequiresApproval: true, Effect: "allow"}
	for at, text := range map[string]string{"": policyAlone, "/policy": policyPayload, "/params/policy": policyMessage, "/payload/policy": policyWhole} {
		p, err := wire.ReadAccessPolicy([]byte(text))
		if err != nil || p.At != at || p.Mode != "hybrid" || p.Default != "deny" || !reflect.DeepEqual(p.Rules, []wire.AccessRule{rule}) {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
		if whole := text == policyWhole; whole != (p.Envelope.From == "b") || whole != (p.Envelope.ID == "m") {
			t.Errorf("%s is of %+v", text, p.Envelope)
		}
	}
	p, err := wire.ReadAccessPolicy([]byte(strings.Replace(policyAlone, `["t","u"]`, `"*"`, 1)))
	if err != nil || !reflect.DeepEqual(p.Rules[0].Tools, []string{wire.AllTools}) {
		t.Errorf("all tools are %+v, %v", p.Rules, err)
	}
}

// What is read of params is JSON again, and what is made of it can be read.
func FuzzWireReaders(f *testing.F) {
	for _, seed := range []string{
		`{"authorizationId":"a","decision":"approve","reason":"r","validUntil":"2024-01-01T13:00:00Z","arguments":{"n":1.0},"_meta":{}}`,
		`{"authorizationId":"a","decision":"delegate","delegateTo":"User::\"mia\""}`,
		`{"name":"t","arguments":{ "n" : 1.0 },"reason":"r","requestId":"i"}`,
		`{"name":"t","onBehalfOf":"a","requestId":"i","_meta":{"io.policy-service/onBehalfOf":"a","io.policy-service/requestId":"i"}}`,
		`{"content":[],"fulfilledBy":"x","_meta":{"a":1}}`,
		`{"id":"i","tool":"s:t","requester":"agent/a","arguments":{}}`,
		`{"protocol":"mcp-x/v0","id":"a","ts":"2024-01-01T12:00:00.25+01:00","from":"b","to":["c","d"],"kind":"mcp","payload":{"jsonrpc":"2.0","id":1,"result":{ "n" : 1.0 }}}`,
		`{"protocol":"mcp-x/v0","from":"gateway","kind":"system","payload":{"type":"welcome","tokenType":"full","participantId":"a"},"more":[]}`,
		`{"protocol":"mcp-x/v0","from":"gateway","kind":"system","payload":{"type":"tool_request_pending","\u0061":"\ud83d\ude00"}}`,
		`{"protocol":"mcp-x/v0","ts":"2024-01-01T12:00:00,5Z","from":"b","To":["c"],"kind":"other","payload":[]}`,
		policyWhole, policyPayload, policyAlone,
	} {
		f.Add([]byte(seed))
	}
	limits := evaluation.DefaultLimits()
	f.Fuzz(func(t *testing.T, text []byte) {
		params := jsontext.Value(text)
		valid := func(what string, v jsontext.Value) {
			if !v.IsValid() || v.Kind() != '{' {
				t.Fatalf("%s of %s is %s", what, text, v)
			}
		}
		if r, err := wire.ReadRespond(params, limits); err == nil {
			valid("the answer", r.Answer)
			said, err := evaluation.DecodeResponse(r.Answer, r.AuthorizationID, limits)
			said.Ruling.ValidUntil, r.Ruling.ValidUntil = said.Ruling.ValidUntil.UTC(), r.Ruling.ValidUntil.UTC() // a zone is not equal to itself
			if err != nil || said.Ruling != r.Ruling || r.AuthorizationID == "" {
				t.Fatalf("%s: the PDP reads %+v, %v, not %+v", text, said.Ruling, err, r.Ruling)
			}
		}
		if r, err := wire.ReadToolRequest(params); err == nil {
			if r.Name == "" {
				t.Fatalf("%s names no tool", text)
			}
			valid("the payload", wire.Pending{Tool: wire.Tool{Name: r.Name}, Arguments: r.Arguments, RequestID: r.RequestID, Reason: r.Reason}.Payload())
		}
		if f, given, err := fulfilment(string(text)); given && err == nil && (f.OnBehalfOf == "" || f.RequestID == "") || !given && (err != nil || f != wire.Fulfilment{}) {
			t.Fatalf("%s: %+v, %t, %v", text, f, given, err)
		}
		if p, err := wire.ReadAccessPolicy(text); err == nil {
			nobody := func(r wire.AccessRule) bool { return r.Agent == "" || len(r.Tools) == 0 }
			if p.Mode == "" || slices.ContainsFunc(p.Rules, nobody) {
				t.Fatalf("%s: %+v", text, p)
			}
		}
		e, err := wire.ReadEnvelope(text)
		if err == nil && (e.From == "" || e.Kind != wire.KindMCP && e.Kind != wire.KindSystem || e.Payload.Kind() != '{' || !bytes.Contains(text, e.Payload)) {
			t.Fatalf("%s is read as %+v", text, e)
		}
		if v, err := wire.Fulfilled(params, evaluation.Ref{ID: "b"}, evaluation.Ref{ID: "o"}); err == nil {
			valid("the result", v)
		}
		if v, err := wire.Announced(params, "t", "a"); err == nil {
			valid("the notification", v)
		}
	})
}
