package capability_test

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// byJose is what testdata/ts answers to a case.
type byJose struct{ Refused, JCS, Hash, Made, Sub string }

// TestTypeScript runs the vectors by jose: it hashes, verifies the tokens and proofs, and makes each good proof once more.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	dir := npm.Install(t, "jose", os.DirFS("testdata/ts"))
	npm.Compile(t, dir)
	file, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(file, &v); err != nil {
		t.Fatal(err)
	}
	type check struct {
		name string
		is   func(byJose) bool
	}
	var cases []map[string]any
	var checks []check
	ask := func(name string, is func(byJose) bool, c map[string]any) {
		cases, checks = append(cases, c), append(checks, check{name, is})
	}
	holder := func(thumbprint string) jwk {
		return v.HolderKeys[max(0, slices.IndexFunc(v.HolderKeys, func(k jwk) bool { return k.Thumbprint == thumbprint }))]
	}
	// good is whether a proof by a key is made as the vector has it. The signatures of ES256 are never the same.
	good := func(made, proof string, key jwk) bool { return made == proof || made != "" && key.Kty == "EC" }
	for _, h := range v.Arguments {
		if h.Reason == "" {
			ask(h.Arguments, func(a byJose) bool { return a.JCS == h.JCS && a.Hash == h.Hash }, map[string]any{"of": "arguments", "json": h.Arguments})
		}
	}
	for _, r := range v.Requests {
		var body struct {
			Proof string         `json:"proof"`
			Key   capability.Key `json:"key"`
		}
		if err := json.Unmarshal([]byte(r.Body), &body); err != nil {
			t.Fatal(err)
		}
		key := holder(cmp.Or(r.Giver, body.Key.Thumbprint()))
		ask(r.Name, func(a byJose) bool {
			return a.Hash == r.Digest && (a.Refused == "") == (r.Reason == "") && (r.Reason != "" || good(a.Made, body.Proof, key))
		}, map[string]any{"of": "request", "json": r.Body, "key": key, "issuer": v.Issuer, "at": r.Now, "parent": r.Parent})
	}
	var first checkVector
	if err := json.Unmarshal(v.Calls[0], &first); err != nil {
		t.Fatal(err)
	}
	// What jose refuses of a token is its signature, its times and its type; what it refuses of a proof begins with proof_.
	tokens := []capability.Code{capability.BadSignature, capability.NotYetValid, capability.Expired, capability.OnlineOnly, capability.Missing}
	proofs := []capability.Code{capability.ProofMissing, capability.ProofInvalid, capability.ProofWrongAudience, capability.ProofWrongCall, capability.ProofStale}
	for _, text := range v.Calls {
		c := first
		c.Audience, c.Servers = slices.Clone(first.Audience), slices.Clone(first.Servers)
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		if c.Reason == capability.Malformed { // the claims of some are read by a capability's reader alone
			continue
		}
		bad := slices.Contains(tokens, c.Reason)
		ask(c.Name+", its token", func(a byJose) bool { return (a.Refused != "") == bad && (bad || a.Sub != "") },
			map[string]any{"of": "token", "token": c.Token, "keys": public(v.ServiceKeys), "issuer": v.Issuer, "at": c.Now})
		if c.Reason != "" && !slices.Contains(proofs, c.Reason) {
			continue
		}
		token, refusal := capability.ParseToken(c.Token)
		if refusal != nil {
			t.Fatal(c.Name, refusal)
		}
		key, audience := holder(token.Key.Thumbprint()), token.Audience
		if len(c.Audience) > 0 {
			audience = c.Audience[0]
		}
		ask(c.Name+", its proof", func(a byJose) bool {
			return (a.Refused == "") == (c.Reason == "") && (c.Reason != "" || good(a.Made, c.Proof, key))
		}, map[string]any{"of": "proof", "token": c.Token, "proof": c.Proof, "key": key, "tool": c.Tool, "json": c.Arguments, "audience": audience, "at": c.Now})
	}
	for n, a := range npm.Answers[map[string]any, byJose](t, dir, cases) {
		if !checks[n].is(a) {
			t.Errorf("%s: jose says %+v", checks[n].name, a)
		}
	}
	if len(cases) < 150 {
		t.Errorf("there are %d cases", len(cases))
	}
}

// public are keys without their private halves.
func public(keys []jwk) (all []jwk) {
	for _, k := range keys {
		k.D = ""
		all = append(all, k)
	}
	return all
}

// TestPageHasTypeScript holds the program that the page for agents shows to the one that a test of the service runs.
func TestPageHasTypeScript(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../pdp/capability/AGENT.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("testdata/ts/agent.ts")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n```ts\n"+string(program)+"```\n") {
		t.Error("the page does not show testdata/ts/agent.ts as it is")
	}
}
