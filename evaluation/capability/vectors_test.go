package capability_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

var update = flag.Bool("update", false, "write testdata/vectors.json anew")

const vectorsFile = "testdata/vectors.json"

// vectors is the file for programs in other languages. What is JSON of a caller stands in it as a string: a reader of
// the file would round its numbers.
type vectors struct {
	About       []string          `json:"about"`
	Issuer      string            `json:"issuer"`
	ServiceKeys []jwk             `json:"service_keys"`
	HolderKeys  []jwk             `json:"holder_keys"`
	Arguments   []hashVector      `json:"arguments"`
	Constraints any               `json:"constraints"`
	Requests    []askVector       `json:"requests"`
	Calls       []json.RawMessage `json:"calls"` // each a checkVector
	Lists       []listVector      `json:"lists"`
	Offline     []offlineVector   `json:"offline"`
}

type jwk struct {
	Kty        string `json:"kty"`
	Crv        string `json:"crv"`
	X          string `json:"x"`
	Y          string `json:"y,omitempty"`
	D          string `json:"d,omitempty"`
	Thumbprint string `json:"kid"`
}

type hashVector struct {
	Arguments string          `json:"arguments"`
	JCS       string          `json:"jcs,omitempty"`
	Hash      string          `json:"hash,omitempty"`
	Reason    capability.Code `json:"reason,omitempty"`
}

type askVector struct {
	Name   string          `json:"name"`
	Now    int64           `json:"now"`
	Parent string          `json:"parent,omitempty"`
	Giver  string          `json:"giver,omitempty"` // the thumbprint
	Body   string          `json:"body"`
	Digest string          `json:"digest"`
	Reason capability.Code `json:"reason,omitempty"`
}

type checkVector struct {
	Name      string          `json:"name"`
	Now       int64           `json:"now"`
	Audience  []string        `json:"audience"`
	Servers   []string        `json:"servers"`
	Token     string          `json:"token"`
	Proof     string          `json:"proof"`
	Holder    evaluation.Ref  `json:"holder"`
	Tool      string          `json:"tool"`
	Arguments string          `json:"arguments"`
	Session   string          `json:"session,omitempty"`
	Reason    capability.Code `json:"reason,omitempty"`
}

type offlineVector struct {
	Token  string          `json:"token"`
	Reason capability.Code `json:"reason,omitempty"`
}

// private is a key of these vectors, private half included: it signs nothing else.
func private(key capability.Key, d []byte) jwk {
	text, err := key.MarshalJSON()
	if err != nil {
		panic(err)
	}
	var k jwk
	if err := json.Unmarshal(text, &k); err != nil {
		panic(err)
	}
	k.D, k.Thumbprint = base64.RawURLEncoding.EncodeToString(d), key.Thumbprint()
	return k
}

func made() vectors {
	repeated := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	v := vectors{
		About: []string{
			"Vectors of capabilities: what a gateway or an agent in any language must read, make and refuse. The package evaluation/capability of policy-service makes them, with go test -update.",
			"Where there is no reason, the arguments can be proven, the request is good, or the call is covered. Arguments, constraints, values and bodies are JSON in strings.",
			"arguments: the form of RFC 8785, and its SHA-256 in base64url. constraints: values that they admit and refuse. requests: a body, what its proof has as req, and what the proof is worth; a parent is handed on by the key giver. calls: a token and a proof at a verifier of the audience, in front of the servers; a member that is left out is that of the first call.",
			"lists: texts that are status lists at the moment of the first call, with the states of some places, and texts that are none. offline: tokens, and what the first of the lists says of them: the first call with this token in place of its own.",
			"A proof may be 60 s old and 10 s ahead; a token counts 10 s before its nbf.",
		},
		Issuer:      issuer,
		ServiceKeys: []jwk{private(newHolder(service).Key(), repeated(1))},
		HolderKeys:  []jwk{private(agent.Key(), repeated(2)), private(thief.Key(), repeated(3)), private(agentEC.Key(), repeated(4))},
		Constraints: held,
	}
	for _, one := range hashes {
		h := hashVector{Arguments: one[0], JCS: one[1]}
		hash, refusal := capability.HashArguments(parsed(h.Arguments))
		if h.Hash = hash; refusal != nil {
			h.Reason = refusal.Code
		}
		v.Arguments = append(v.Arguments, h)
	}
	for _, a := range asks() {
		decoded, err := capability.DecodeAsk([]byte(a.Body), evaluation.DefaultLimits())
		if err != nil {
			panic(a.Name + ": " + err.Error())
		}
		decoded.Parent = a.Parent
		a.Digest = decoded.Digest()
		v.Requests = append(v.Requests, a)
	}
	var first map[string]json.RawMessage
	for _, c := range trials() {
		call := members(checkVector{c.name, c.now, c.audience, c.servers, c.token, c.proof, c.holder, c.tool, c.arguments, c.session, c.want})
		if first == nil {
			first = maps.Clone(call)
		} else {
			maps.DeleteFunc(call, func(name string, text json.RawMessage) bool { return bytes.Equal(text, first[name]) })
		}
		v.Calls = append(v.Calls, marshal(call))
	}
	v.Lists = listVectors()
	for index, want := range map[int]capability.Code{0: "", 7: capability.Revoked, 9: capability.Suspended} {
		v.Offline = append(v.Offline, offlineVector{signed(offline(index)), want})
	}
	v.Offline = append(v.Offline, offlineVector{signed(granted(nil)), capability.OnlineOnly})
	slices.SortFunc(v.Offline, func(a, b offlineVector) int { return strings.Compare(string(a.Reason), string(b.Reason)) })
	return v
}

func members(v any) (m map[string]json.RawMessage) {
	if err := json.Unmarshal(marshal(v), &m); err != nil {
		panic(err)
	}
	return m
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// TestVectorsAreMade holds the file to what this package makes, byte for byte.
func TestVectorsAreMade(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(made()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorsFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(vectorsFile)
	if err != nil || !bytes.Equal(file, b.Bytes()) {
		t.Errorf("%s is not what is made now (%v); go test -update writes it, and git diff shows whether the wire has changed", vectorsFile, err)
	}
}

// fileKeys are the service's keys as the file has them.
type fileKeys []jwk

func (k fileKeys) Key(_ context.Context, kid string) (ed25519.PublicKey, bool, error) {
	for _, key := range k {
		if key.Thumbprint == kid {
			x, err := base64.RawURLEncoding.DecodeString(key.X)
			return x, true, err
		}
	}
	return nil, false, nil
}

// TestVectors runs the file as a program in another language would: it knows nothing but the file.
func TestVectors(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	constraints := new([]struct {
		Constraint     string
		Holds, Refuses []string
	})
	v.Constraints = constraints
	if err := json.Unmarshal(file, &v); err != nil {
		t.Fatal(err)
	}
	for _, h := range v.Arguments {
		hash, refusal := capability.HashArguments(parsed(h.Arguments))
		if hash != h.Hash || (refusal == nil) != (h.Reason == "") {
			t.Errorf("%s: got %q and %v, want %q and %q", h.Arguments, hash, refusal, h.Hash, h.Reason)
		}
	}
	for _, c := range *constraints {
		for _, one := range c.Holds {
			if !constraint(c.Constraint).Holds(value(one)) {
				t.Errorf("%s does not hold of %s", c.Constraint, one)
			}
		}
		for _, one := range c.Refuses {
			if constraint(c.Constraint).Holds(value(one)) {
				t.Errorf("%s holds of %s", c.Constraint, one)
			}
		}
	}
	for _, a := range v.Requests {
		decoded, err := capability.DecodeAsk([]byte(a.Body), evaluation.DefaultLimits())
		if decoded.Parent = a.Parent; a.Parent != "" {
			decoded.Giver = agent.Key()
		}
		if err != nil || decoded.Digest() != a.Digest {
			t.Errorf("%s: digest %q, %v", a.Name, decoded.Digest(), err)
		}
		if got := askCode(decoded, a.Now); got != a.Reason {
			t.Errorf("%s: got %q, want %q", a.Name, got, a.Reason)
		}
	}
	var first checkVector
	if err := json.Unmarshal(v.Calls[0], &first); err != nil {
		t.Fatal(err)
	}
	for _, text := range v.Calls {
		c := first
		c.Audience, c.Servers = slices.Clone(first.Audience), slices.Clone(first.Servers) // or a later one is read into them
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		verifier, err := capability.NewVerifier(capability.Options{
			Issuer: v.Issuer, Audience: c.Audience, Servers: c.Servers, Keys: fileKeys(v.ServiceKeys),
			Now: func() time.Time { return time.Unix(c.Now, 0) },
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = verifier.Check(t.Context(), capability.Call{Token: c.Token, Proof: c.Proof, Holder: c.Holder, Tool: c.Tool, Arguments: parsed(c.Arguments), Channel: capability.Channel{Session: c.Session}})
		if got := codeOf(t, err); got != c.Reason {
			t.Errorf("%s: got %q, want %q", c.Name, got, c.Reason)
		}
	}
	var list *capability.StatusList
	for _, l := range v.Lists {
		read, err := capability.ReadStatusList(t.Context(), fileKeys(v.ServiceKeys), l.List)
		if (err == nil) != (l.States != nil) {
			t.Errorf("%s: %v", l.Name, err)
		}
		if list == nil {
			list = read
		}
	}
	for _, o := range v.Offline {
		began := now.Add(-time.Hour)
		verifier, err := capability.NewOfflineVerifier(capability.OfflineOptions{
			Options: capability.Options{
				Issuer: v.Issuer, Audience: first.Audience, Servers: first.Servers, Keys: fileKeys(v.ServiceKeys),
				Now: func() time.Time { defer func() { began = now }(); return began },
			},
			Status: &status{list: list}, Alone: true, Before: began,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = verifier.Verify(t.Context(), capability.Call{Token: o.Token, Proof: first.Proof, Holder: first.Holder, Tool: first.Tool, Arguments: parsed(first.Arguments)})
		if got := codeOf(t, err); got != o.Reason {
			t.Errorf("offline: got %q, want %q", got, o.Reason)
		}
	}
	if len(v.Lists) < 20 || len(v.Offline) != 4 || len(v.Arguments) < 15 || len(*constraints) < 15 || len(v.Requests) < 8 || len(v.Calls) < 100 {
		t.Error("the file lacks vectors")
	}
}

func askCode(a capability.Ask, at int64) capability.Code {
	_, _, refusal := a.CheckProof(issuer, time.Unix(at, 0), time.Minute, 10*time.Second)
	if refusal == nil {
		return ""
	}
	return refusal.Code
}

// TestPageHasVectors holds the proofs that the page for agents shows to the first vectors.
func TestPageHasVectors(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../pdp/capability/AGENT.md")
	if err != nil {
		t.Fatal(err)
	}
	asked, err := capability.DecodeAsk([]byte(asks()[0].Body), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for _, proof := range []string{asked.Proof, trials()[0].proof} {
		for _, segment := range strings.Split(proof, ".")[:2] {
			text, err := base64.RawURLEncoding.DecodeString(segment)
			if err != nil || !strings.Contains(string(page), "\n"+string(text)+"\n") {
				t.Errorf("the page does not show %s (%v)", text, err)
			}
		}
	}
}
