package era_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

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
