package capability_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// nodeCase is one for testdata/run.mjs.
type nodeCase struct {
	Of       string `json:"of"`
	JSON     string `json:"json"`
	Key      any    `json:"key,omitempty"`
	At       int64  `json:"at,omitempty"`
	Issuer   string `json:"issuer,omitempty"`
	Token    string `json:"token,omitempty"`
	Tool     string `json:"tool,omitempty"`
	Audience string `json:"audience,omitempty"`
	Nonce    string `json:"nonce,omitempty"`
	Parent   string `json:"parent,omitempty"`
}

// TestNode holds holder.mjs to the vectors, and what it makes to what the service takes.
func TestNode(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	file, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(file, &v); err != nil {
		t.Fatal(err)
	}
	var covered checkVector
	if err := json.Unmarshal(v.Calls[0], &covered); err != nil {
		t.Fatal(err)
	}
	const ask = `{"tenant_id":"tenant-xyz","holder":{"type":"agent","id":"agent-a"},"audience":"agent-b","tools":["dangerous_operation","agent-b:x"],
"duration":60,"max_uses":5,"arguments":{"a":"é","b":{"constraint_type":"range","min":1},"c":{"d":[null,1.50]},"*":{"constraint_type":"wildcard"}},"reason":"€"}`
	handsOn := strings.Replace(ask, "{", `{"key":`+string(marshal(thief.Key()))+`,"encrypt_to":`+string(marshal(agentEC.Key()))+`,"max_depth":2,`, 1)
	var cases []nodeCase
	for _, h := range v.Arguments {
		cases = append(cases, nodeCase{Of: "arguments", JSON: h.Arguments})
	}
	for _, a := range v.Requests {
		cases = append(cases, nodeCase{Of: "body", JSON: a.Body, Parent: a.Parent})
	}
	for _, key := range v.HolderKeys {
		cases = append(cases,
			nodeCase{Of: "request", JSON: ask, Key: key, At: covered.Now, Issuer: issuer},
			nodeCase{Of: "request", JSON: handsOn, Key: key, At: covered.Now, Issuer: issuer, Parent: "cap_parent"},
			nodeCase{Of: "call", JSON: covered.Arguments, Key: key, At: covered.Now, Token: covered.Token, Tool: covered.Tool, Audience: covered.Audience[0], Nonce: "n1"},
		)
	}
	lists := len(cases)
	for _, l := range v.Lists {
		if l.Name == "a member twice" { // which JSON.parse does not tell
			l.List, l.States = "", nil
		}
		cases = append(cases, nodeCase{Of: "list", JSON: "[0,7,8,9,65535]", Key: v.ServiceKeys[0], Token: l.List})
	}
	answers := npm.Answers[nodeCase, struct{ Sent, JCS, Hash string }](t, "testdata", cases)
	for n, a := range answers {
		switch cases[n].Of {
		case "arguments":
			h := v.Arguments[n]
			// What JavaScript sends can be proven, also where it has rounded what it read.
			if hash, refusal := capability.HashArguments(parsed(a.Sent)); refusal != nil || hash != a.Hash {
				t.Errorf("of %s it sends %s with %s, which has %s, %v", h.Arguments, a.Sent, a.Hash, hash, refusal)
			}
			if h.Reason == "" && (a.Hash != h.Hash || a.JCS != h.JCS) {
				t.Errorf("%s: got %s, %s, want %s, %s", h.Arguments, a.JCS, a.Hash, h.JCS, h.Hash)
			}
		case "body":
			if want := v.Requests[n-len(v.Arguments)]; a.Hash != want.Digest {
				t.Errorf("%s: got %s, want %s", want.Name, a.Hash, want.Digest)
			}
		case "list":
			if l := v.Lists[n-lists]; (a.Sent == "0,1,0,2,0") != (l.States != nil) || l.States == nil && a.Sent != "" {
				t.Errorf("the list %q: %q", l.Name, a.Sent)
			}
		case "request":
			decoded, err := capability.DecodeAsk([]byte(a.Sent), evaluation.DefaultLimits())
			if c := cases[n]; c.Parent != "" {
				decoded.Parent, decoded.Giver = c.Parent, publicKey(t, c.Key)
			}
			if err != nil || askCode(decoded, covered.Now) != "" {
				t.Errorf("%s: %v, %q", a.Sent, err, askCode(decoded, covered.Now))
			}
		default:
			public := publicKey(t, cases[n].Key)
			hash, _ := capability.HashArguments(parsed(covered.Arguments))
			token, _ := capability.ParseToken(covered.Token)
			p, refusal := capability.ParseProof(a.Sent, public)
			if refusal != nil || p.Capability != token.ID || p.Audience != covered.Audience[0] || p.Tool != covered.Tool ||
				p.Arguments != hash || !p.IssuedAt.Equal(time.Unix(covered.Now, 0)) || p.Nonce != "n1" {
				t.Errorf("%s: %v, %+v", a.Sent, refusal, p)
			}
		}
	}
}

// publicKey is the public half of a key.
func publicKey(t *testing.T, of any) capability.Key {
	key := members(of)
	delete(key, "d")
	public, err := capability.ParseKey(marshal(key))
	if err != nil {
		t.Fatal(err)
	}
	return public
}
