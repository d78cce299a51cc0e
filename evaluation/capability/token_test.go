package capability_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// TestClaims: what is written is read as the same, and is what other authorization servers have to write.
func TestClaims(t *testing.T) {
	t.Parallel()
	text, err := granted(func(t *capability.Token) { t.MaxUses = 5 }).Claims()
	want := `{"aud":"agent-b","authorization_details":[{"actions":["tools/call"],"datatypes":["agent-b:dangerous_operation","agent-b:read_file"],` +
		`"layers":[{"tools":["agent-b:dangerous_operation","agent-b:read_file"],"arguments":{"*":{"constraint_type":"wildcard"},"target":{"constraint_type":"exact","value":"staging"}}}],` +
		`"locations":["agent-b"],"type":"tool_capability"}],"cnf":{"jkt":"` + agent.Key().Thumbprint() + `","jwk":{"crv":"Ed25519","kty":"OKP","x":"` + xOf(agent.Key()) + `"}},` +
		`"exp":1763653600,"iat":1763650000,"iss":"https://pdp.example.com/tenants/tenant-xyz","jti":"cap_0199f3a27c1e7d3a8f00c3b2a1908f7e","max_uses":5,"nbf":1763650000,` +
		`"sub":"agent-a","sub_type":"agent","verify":"online"}`
	if err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
	for name, change := range map[string]func(*capability.Token){
		"plain":        func(*capability.Token) {},
		"no arguments": func(t *capability.Token) { t.Layers[0].Arguments = nil },
		"closed":       func(t *capability.Token) { t.Layers[0].Arguments = capability.Arguments{} },
		"handed on": func(t *capability.Token) {
			t.Parent, t.Depth, t.MaxDepth, t.Grantor = "cap_parent", 1, 2, &evaluation.Ref{Type: "user", ID: "alice"}
			t.Layers = append(t.Layers, capability.Layer{Tools: []string{"agent-b:*"}}, capability.Layer{Tools: []string{"agent-b:a:b"}})
		},
		"P-256": func(t *capability.Token) { t.Key = agentEC.Key() },
		"nulls": func(t *capability.Token) {
			t.Layers[0].Arguments = capability.Arguments{"a": constraint(`null`), "b": constraint(`{"constraint_type":"one_of","values":[null,{"c":null}]}`)}
		},
	} {
		token := granted(change)
		text, err := token.Claims()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, refusal := capability.ParseClaims(text)
		again, err := got.Claims()
		if refusal != nil || err != nil || string(again) != string(text) {
			t.Errorf("%s: %s is read as %s; %v, %v", name, text, again, refusal, err)
		}
		got.Layers, token.Layers = nil, nil // whose texts were compared
		if !reflect.DeepEqual(got, token) {
			t.Errorf("%s: got %+v, want %+v", name, got, token)
		}
	}
}

// TestClaimsThatWouldBeRefused: the service does not sign what no verifier takes.
func TestClaimsThatWouldBeRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*capability.Token){
		"no layers":         func(t *capability.Token) { t.Layers = nil },
		"four layers":       func(t *capability.Token) { t.Layers = append(t.Layers, t.Layers[0], t.Layers[0], t.Layers[0]) },
		"no tools":          func(t *capability.Token) { t.Layers[0].Tools = nil },
		"another's tool":    func(t *capability.Token) { t.Layers[0].Tools = []string{"agent-c:x"} },
		"star within":       func(t *capability.Token) { t.Layers[0].Tools = []string{"agent-b:x*"} },
		"no key":            func(t *capability.Token) { t.Key = capability.Key{} },
		"no holder":         func(t *capability.Token) { t.Holder.ID = "" },
		"no type":           func(t *capability.Token) { t.Holder.Type = "" },
		"no end":            func(t *capability.Token) { t.Expires = time.Time{} },
		"ends as it begins": func(t *capability.Token) { t.Expires = t.NotBefore },
		"too many uses":     func(t *capability.Token) { t.MaxUses = capability.MaxUses + 1 },
		"offline":           func(t *capability.Token) { t.Verify = "offline" },
		"too deep":          func(t *capability.Token) { t.Parent, t.Depth = "p", 1 },
		"no parent":         func(t *capability.Token) { t.Depth, t.MaxDepth = 1, 1 },
		"zero constraint":   func(t *capability.Token) { t.Layers[0].Arguments = capability.Arguments{"a": {}} },
		"star with exact":   func(t *capability.Token) { t.Layers[0].Arguments = capability.Arguments{"*": constraint("1")} },
		"name out of bounds": func(t *capability.Token) {
			t.Layers[0].Arguments = capability.Arguments{strings.Repeat("n", 257): constraint("1")}
		},
		"not UTF-8": func(t *capability.Token) { t.Holder.ID = "agent-\xff" },
		"too large": func(t *capability.Token) {
			t.Layers[0].Arguments["a"] = constraint(`"` + strings.Repeat("a", 7000) + `"`)
		},
	} {
		if text, err := granted(change).Claims(); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := &capability.Refusal{Code: capability.Expired}
	for _, one := range [][2]string{
		{string(r.RPC([]byte(`"tool-call-1"`))), `{"error":{"code":-32003,"data":{"code":"expired","next_action":"request","reason":"Token expired","suggestion":"Request capability first using capabilities/request"},"message":"Invalid or missing capability token"},"id":"tool-call-1","jsonrpc":"2.0"}`},
		{string((&capability.Refusal{Code: capability.NonceRequired, Nonce: "v1.x", Audience: gateway}).RPC([]byte("7"))), `{"error":{"code":-32003,"data":{"audience":"https://gw1.example.com","code":"nonce_required","next_action":"retry","nonce":"v1.x","reason":"Fresh nonce required","suggestion":"Send the call again with a fresh proof"},"message":"Invalid or missing capability token"},"id":7,"jsonrpc":"2.0"}`},
		{string((&capability.Refusal{Code: capability.ArgumentRefused, Argument: "a\"\xff", Audience: "agent-b", Tool: tool}).RPC(nil)), `{"error":{"code":-32003,"data":{"argument":"a\"�","audience":"agent-b","code":"argument_refused","id":"agent-b:dangerous_operation","next_action":"request","reason":"Argument not covered by capability","suggestion":"Request capability first using capabilities/request"},"message":"Invalid or missing capability token"},"id":null,"jsonrpc":"2.0"}`},
		{string(r.RPC([]byte(`{"a":`))), string(r.RPC(nil))},
		{string(r.RPC([]byte(``))), string(r.RPC(nil))},
		{string(r.Blocked("dangerous_operation", "agent-b")), `{"reason":"No valid capability for tool 'dangerous_operation' on agent 'agent-b'","suggestion":"Request capability first using capabilities/request","type":"tool_call_blocked"}`},
		{r.Error(), "Token expired (expired): Request capability first using capabilities/request"},
	} {
		if one[0] != one[1] {
			t.Errorf("got  %s\nwant %s", one[0], one[1])
		}
	}
	for _, code := range []capability.Code{
		capability.Missing, capability.Malformed, capability.TooLarge, capability.BadSignature, capability.NotYetValid, capability.Expired, capability.Revoked,
		capability.Suspended, capability.UsedUp, capability.WrongAudience, capability.WrongHolder, capability.ToolNotCovered, capability.ArgumentRefused,
		capability.ProofMissing, capability.ProofInvalid, capability.ProofWrongAudience, capability.ProofWrongCall, capability.ProofStale, capability.ProofReplayed,
		capability.ArgumentUnprovable, capability.NonceRequired, capability.OnlineOnly, capability.Elsewhere, capability.NotInBatch, capability.NotAsked, capability.Unavailable,
	} {
		r := capability.Refusal{Code: code}
		if r.Text() == "" || r.NextAction() == "" || r.Suggestion() == "" {
			t.Errorf("%s says nothing", code)
		}
	}
}
