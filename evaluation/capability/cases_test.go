package capability_test

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// trial is one call at a verifier.
type trial struct {
	name      string
	now       int64
	audience  []string
	servers   []string
	token     string
	proof     string
	holder    evaluation.Ref
	tool      string
	arguments string // as sent
	session   string // as observed
	want      capability.Code
}

const staging = `{"target":"staging","n":1,"note":null}`

// good is a call that is covered.
func good(h *capability.Holder) trial {
	return trial{
		now: now.Unix(), audience: []string{gateway}, servers: []string{"agent-b"},
		token:  signed(granted(func(t *capability.Token) { t.Key = h.Key() })),
		proof:  proved(h, claim(staging)),
		holder: evaluation.Ref{Type: "agent", ID: "agent-a"}, tool: tool, arguments: staging,
	}
}

// trials are the calls of the vectors. The rows are those of the threats that they stand for.
func trials() (all []trial) {
	add := func(want capability.Code, name string, change func(*trial)) {
		c := good(agent)
		c.name, c.want = name, want
		change(&c)
		all = append(all, c)
	}
	token := func(change func(*capability.Token)) func(*trial) {
		return func(c *trial) { c.token = signed(granted(change)) }
	}
	proof := func(change func(*capability.Claim)) func(*trial) {
		return func(c *trial) {
			made := claim(c.arguments)
			change(&made)
			c.proof = proved(agent, made)
		}
	}
	at := func(seconds int64) func(*trial) { return func(c *trial) { c.now = start + seconds } }

	add("", "covered", func(*trial) {})
	add("", "covered, key of P-256", func(c *trial) { n := c.name; *c = good(agentEC); c.name = n })
	add("", "the type of who calls is not known", func(c *trial) { c.holder.Type = "" })
	add("", "no names of the verifier: the proof is for the server", func(c *trial) {
		c.audience = nil
		proof(func(p *capability.Claim) { p.Audience = "agent-b" })(c)
	})
	add("", "all tools of the server", token(func(t *capability.Token) { t.Layers = []capability.Layer{{Tools: []string{"agent-b:*"}}} }))
	add("", "a nonce", proof(func(p *capability.Claim) { p.Nonce = "v1.1763650360.abc" }))
	add("", "another claim is passed over", func(c *trial) { c.token = edited(c.token, `"iss"`, `"more":{"a":null},"iss"`) })
	add("", "an entry of another type is passed over", func(c *trial) {
		c.token = edited(c.token, `"authorization_details":[`, `"authorization_details":[{"type":"other","layers":5},`)
	})

	// 1: stolen token.
	add(capability.Missing, "1: no token", func(c *trial) { c.token = "" })
	add(capability.ProofMissing, "1: stolen token, no proof", func(c *trial) { c.proof = "" })
	add(capability.ProofInvalid, "1: stolen token, a proof by the thief's key", func(c *trial) { c.proof = proved(thief, claim(staging)) })
	add(capability.WrongHolder, "1: token and proof of another", func(c *trial) { c.holder.ID = "agent-c" })
	add(capability.WrongHolder, "1: another type of holder", func(c *trial) { c.holder.Type = "user" })
	add(capability.WrongHolder, "1: another spelling of the holder", func(c *trial) { c.holder.ID = "Agent-a" })
	add(capability.ProofWrongCall, "1: a proof for another token of the agent", proof(func(p *capability.Claim) { p.Capability = "cap_another_one" }))
	// A token that is bound to a session.
	bound := token(func(t *capability.Token) { t.Session = capability.Channel{Session: "ws-17"}.Hash() })
	for session, want := range ordered(map[string]capability.Code{
		"ws-17": "", "ws-18": capability.ChannelMismatch, "": capability.ChannelMismatch, "WS-17": capability.ChannelMismatch,
		capability.Channel{Session: "ws-17"}.Hash(): capability.ChannelMismatch,
	}) {
		add(want, "bound to a session, in session "+session, func(c *trial) {
			bound(c)
			c.session = session
		})
	}
	add("", "bound to no session, in one", func(c *trial) { c.session = "ws-17" })
	add(capability.Malformed, "bound to a channel of a kind that is not known", func(c *trial) {
		bound(c)
		c.session, c.token = "ws-17", edited(c.token, `"channel":{`, `"channel":{"x":1,`)
	})
	add(capability.Malformed, "bound to a channel of no kind", func(c *trial) { c.token = edited(c.token, `"iss"`, `"channel":{},"iss"`) })
	add(capability.Malformed, "bound to null", func(c *trial) { c.token = edited(c.token, `"iss"`, `"channel":null,"iss"`) })
	// 5: replay at another gateway.
	add(capability.ProofWrongAudience, "5: a proof for another gateway", proof(func(p *capability.Claim) { p.Audience = "https://gw2.example.com" }))
	// 6: arguments that the proof is not about.
	for name, sent := range ordered(map[string]string{
		"6: another value":               `{"target":"staging","n":2,"note":null}`,
		"6: an argument more":            `{"target":"staging","n":1,"note":null,"more":1}`,
		"6: a null argument more":        `{"target":"staging","n":1,"note":null,"more":null}`,
		"6: a null argument less":        `{"target":"staging","n":1}`,
		"6: a string in place of number": `{"target":"staging","n":"1","note":null}`,
	}) {
		add(capability.ProofWrongCall, name, func(c *trial) { c.arguments = sent })
	}
	add("", "6: another spelling of the same", func(c *trial) { c.arguments = ` { "n" : 1.0 , "note":null, "target":"stag\u0069ng" } ` })
	add(capability.ArgumentUnprovable, "6: 2^53+1", func(c *trial) { c.arguments = `{"target":"staging","n":9007199254740993}` })
	add(capability.ArgumentUnprovable, "6: more digits than a double has", func(c *trial) { c.arguments = `{"target":"staging","n":[0.1000000000000000055]}` })
	add(capability.ArgumentUnprovable, "6: beyond all doubles", func(c *trial) { c.arguments = `{"target":"staging","n":{"m":1e400}}` })
	// 7: arguments that the token is not about.
	add(capability.ArgumentRefused, "7: another value", func(c *trial) { c.arguments = `{"target":"production"}` })
	add(capability.ArgumentRefused, "7: left out", func(c *trial) { c.arguments = `{"n":1}` })
	add(capability.ArgumentRefused, "7: null", func(c *trial) { c.arguments = `{"target":null}` })
	add(capability.ArgumentRefused, "7: not named", func(c *trial) {
		token(func(t *capability.Token) {
			t.Layers[0].Arguments = capability.Arguments{"target": constraint(`"staging"`)}
		})(c)
	})
	add(capability.ArgumentRefused, "7: none may be given", func(c *trial) {
		token(func(t *capability.Token) { t.Layers[0].Arguments = capability.Arguments{} })(c)
	})
	add(capability.ArgumentRefused, "7: the second layer is narrower", func(c *trial) {
		token(func(t *capability.Token) {
			t.Layers = append(t.Layers, capability.Layer{Tools: []string{tool}, Arguments: capability.Arguments{"n": constraint(`2`), "*": constraint(`{"constraint_type":"wildcard"}`)}})
		})(c)
	})
	add(capability.ToolNotCovered, "7: the third layer has another tool", func(c *trial) {
		token(func(t *capability.Token) {
			t.Layers = append(t.Layers, capability.Layer{Tools: []string{"agent-b:*"}}, capability.Layer{Tools: []string{"agent-b:read_file"}})
		})(c)
	})
	// 8: another tool.
	for _, id := range []string{"agent-b:Dangerous_operation", "agent-b:dangerous_operation ", "agent-b:dangerous_operatio\u0301n", "agent-b:*", "agent-b:"} {
		add(capability.ToolNotCovered, "8: "+id, func(c *trial) { c.tool = id })
	}
	add(capability.ToolNotCovered, "8: a star is no tool", func(c *trial) {
		token(func(t *capability.Token) { t.Layers = []capability.Layer{{Tools: []string{"agent-b:*"}}} })(c)
		c.tool = "agent-b:*"
	})
	add(capability.ProofWrongCall, "8: covered, and not the tool of the proof", func(c *trial) { c.tool = "agent-b:read_file" })
	// 9: audiences.
	add(capability.WrongAudience, "9: a tool of another server", func(c *trial) { c.tool = "agent-c:dangerous_operation" })
	add(capability.WrongAudience, "9: a server whose name begins the same", func(c *trial) { c.tool = "agent-bb:dangerous_operation" })
	add(capability.WrongAudience, "9: not a server of this verifier", func(c *trial) { c.servers = []string{"agent-c"} })
	// 10: tenants.
	add(capability.BadSignature, "10: another tenant", token(func(t *capability.Token) { t.Issuer = "https://pdp.example.com/tenants/other" }))
	// 13: clocks.
	add(capability.NotYetValid, "13: 11 s too early", at(-11))
	add(capability.ProofStale, "13: 10 s too early is the skew, and the proof is from the future", at(-10))
	add(capability.ProofStale, "13: a second before it expires, and the proof is old", at(3599))
	add(capability.Expired, "13: expired", at(3600))
	add("", "13: the proof is 60 s old", at(360))
	add(capability.ProofStale, "13: the proof is 61 s old", at(361))
	add("", "13: the proof is 10 s ahead", at(290))
	add(capability.ProofStale, "13: the proof is 11 s ahead", at(289))
	// 17: keys in headers.
	header, claims, _ := segments(good(agent).token)
	_, proven, _ := segments(good(agent).proof)
	for _, member := range []string{`"jku":"https://evil.example.com"`, `"x5u":"https://evil.example.com"`, `"crit":["exp"]`, `"jwk":{}`, `"b64":false`, `"cty":"JWT"`} {
		add(capability.Malformed, "17: header of the token with "+member, func(c *trial) {
			c.token = raw(service, strings.Replace(header, "{", "{"+member+",", 1), claims)
		})
	}
	for _, member := range []string{`"jwk":{"kty":"OKP"}`, `"kid":"a"`, `"jku":"https://evil.example.com"`} {
		add(capability.ProofInvalid, "17: header of the proof with "+member, func(c *trial) {
			c.proof = raw(seeded(2), `{"alg":"EdDSA",`+member+`,"typ":"cap-proof+jwt"}`, proven)
		})
	}
	add(capability.BadSignature, "17: an unknown key", func(c *trial) { c.token = signedBy(seeded(9), kidOf(seeded(9)), capability.TypeToken, claims) })
	add(capability.BadSignature, "17: another key by the id of the service's", func(c *trial) { c.token = signedBy(seeded(9), kidOf(service), capability.TypeToken, claims) })
	// 19: algorithms.
	for _, alg := range []string{"none", "HS256", "ES256", "eddsa", "EdDSA ", ""} {
		add(capability.Malformed, "19: token with alg "+alg, func(c *trial) { c.token = raw(service, strings.Replace(header, "EdDSA", alg, 1), claims) })
		add(capability.ProofInvalid, "19: proof with alg "+alg, func(c *trial) { c.proof = raw(seeded(2), `{"alg":"`+alg+`","typ":"cap-proof+jwt"}`, proven) })
	}
	add(capability.Malformed, "19: token without signature", func(c *trial) { c.token = b64(`{"alg":"none"}`) + "." + b64(claims) + "." })
	add(capability.ProofInvalid, "19: proof of EdDSA where the key is of P-256", func(c *trial) { ec := good(agentEC); c.token = ec.token })
	// 20: types.
	for _, typ := range []string{capability.TypeProof, capability.TypeRequest, "JWT", "statuslist+jwt", "application/cap+jwt", "CAP+JWT", ""} {
		add(capability.Malformed, "20: token of type "+typ, func(c *trial) { c.token = signedBy(service, kidOf(service), typ, claims) })
	}
	for _, typ := range []string{capability.TypeToken, capability.TypeRequest, "JWT", ""} {
		add(capability.ProofInvalid, "20: proof of type "+typ, func(c *trial) { c.proof = raw(seeded(2), `{"alg":"EdDSA","typ":"`+typ+`"}`, proven) })
	}
	add(capability.ProofInvalid, "20: DPoP", func(c *trial) {
		c.proof = raw(seeded(2), `{"typ":"dpop+jwt","alg":"EdDSA","jwk":{}}`, `{"htm":"POST"}`)
	})
	add(capability.Malformed, "20: a proof as token", func(c *trial) { c.token = c.proof })
	add(capability.ProofInvalid, "20: a token as proof", func(c *trial) { c.proof = c.token })
	// 27: size and form.
	add(capability.Malformed, "27: typ is a number", func(c *trial) { c.token = raw(service, strings.Replace(header, `"cap+jwt"`, "5", 1), claims) })
	add(capability.Malformed, "27: a header that is no object", func(c *trial) { c.token = raw(service, `[]`, claims) })
	for _, replaced := range [][2]string{
		{`"iss"`, `"iss":"x","iss"`},
		{`"tools":[`, `"tolls":[],"tools":[`}, {`"constraint_type":"exact"`, `"constraint_type":"not"`}, {`"constraint_type":"exact"`, `"constraint_type":5`},
		{`"value":"staging"`, `"value":"staging","more":1`}, {`"value":"staging"`, `"values":"staging"`},
		{`"locations":["agent-b"]`, `"locations":["agent-b","agent-c"]`}, {`"locations":["agent-b"]`, `"locations":[]`},
		{`"datatypes":["agent-b:dangerous_operation",`, `"datatypes":[`}, {`"actions":["tools/call"]`, `"actions":["tools/list"]`},
		{`"type":"tool_capability"`, `"type":"another"`}, {`"type":"tool_capability"`, `"type":5`}, {`"type":"tool_capability"`, `"identifier":"x","type":"tool_capability"`},
		{`"layers":[`, `"layers":[{"tools":["agent-b:*"]},{"tools":["agent-b:*"]},{"tools":["agent-b:*"]},`}, {`"layers":[`, `"layers":[5,`},
		{`"verify":"online"`, `"verify":"offline"`}, {`"verify":"online"`, `"more":1`}, {`"verify":"online"`, `"verify":"online","depth":1`},
		{`"verify":"online"`, `"verify":"online","max_uses":0`}, {`"verify":"online"`, `"verify":"online","max_uses":1.5`},
		{`"verify":"online"`, `"verify":"online","max_depth":3`}, {`"verify":"online"`, `"verify":"online","grantor":{"type":"a"}`},
		{`"exp":1763653600`, `"exp":"1763653600"`}, {`"exp":1763653600`, `"exp":null`}, {`"exp":1763653600`, `"exp":1e400`}, {`"exp":1763653600`, `"exp":-1`},
		{`"aud":"agent-b"`, `"aud":["agent-b"]`}, {`"aud":"agent-b"`, `"aud":"agent-c"`}, {`"aud":"agent-b"`, `"aud":""`},
		{`"kty":"OKP"`, `"kty":"OKP","d":"AAAA"`}, {`"kty":"OKP"`, `"kty":"oct","k":"AAAA"`}, {`"kty":"OKP"`, `"kty":"OKP","use":"enc"`},
		{`"jkt":"`, `"jkt":"A`}, {`"jti":"cap_`, `"jti":"cap é`},
	} {
		add(capability.Malformed, "27: "+replaced[0]+" becomes "+replaced[1], func(c *trial) { c.token = edited(c.token, replaced[0], replaced[1]) })
	}
	add(capability.ProofInvalid, "27: a member of the proof more", func(c *trial) {
		c.proof = raw(seeded(2), `{"alg":"EdDSA","typ":"cap-proof+jwt"}`, strings.Replace(proven, `"tool"`, `"ch":"x","tool"`, 1))
	})
	add(capability.ProofInvalid, "27: a member of the proof twice", func(c *trial) {
		c.proof = raw(seeded(2), `{"alg":"EdDSA","typ":"cap-proof+jwt"}`, strings.Replace(proven, `"tool"`, `"jti":"proof-0123456789abcdef","tool"`, 1))
	})
	for _, id := range []string{"short", strings.Repeat("x", 15), strings.Repeat("x", 129), "with space 0123456789", "with é 0123456789"} {
		add(capability.ProofInvalid, "27: jti "+id, func(c *trial) {
			c.proof = raw(seeded(2), `{"alg":"EdDSA","typ":"cap-proof+jwt"}`, strings.Replace(proven, "proof-0123456789abcdef", id, 1))
		})
	}
	// 30: encodings.
	for name, spoil := range ordered(map[string]func(string) string{
		"a line break":      func(s string) string { return s + "\n" },
		"padding":           func(s string) string { return s + "=" },
		"another segment":   func(s string) string { return s + ".e30" },
		"no signature":      func(s string) string { return s[:strings.LastIndexByte(s, '.')+1] },
		"unused bits":       unusedBits,
		"JSON, not compact": func(s string) string { return `{"protected":"` + strings.Replace(s, ".", `","payload":"`, 1) + `"}` },
	}) {
		add(capability.Malformed, "30: token with "+name, func(c *trial) {
			if c.token = spoil(c.token); name == "no signature" {
				c.want = capability.BadSignature
			}
		})
		add(capability.ProofInvalid, "30: proof with "+name, func(c *trial) { c.proof = spoil(c.proof) })
	}
	for name, payload := range ordered(map[string]string{
		"white space":          strings.Replace(proven, ":", ": ", 1),
		"another order":        `{"tool":"` + tool + `",` + strings.Replace(proven[1:], `,"tool":"`+tool+`"`, "", 1),
		"a needless escape":    strings.Replace(proven, "agent-b", `\u0061gent-b`, 1),
		"iat with an exponent": strings.Replace(proven, "1763650300", "17636503e2", 1),
		"iat with a fraction":  strings.Replace(proven, "1763650300", "1763650300.5", 1),
		"an empty nonce":       strings.Replace(proven, `"tool"`, `"nonce":"","tool"`, 1),
		"a null nonce":         strings.Replace(proven, `"tool"`, `"nonce":null,"tool"`, 1),
	}) {
		add(capability.ProofInvalid, "30: payload of the proof with "+name, func(c *trial) {
			c.proof = raw(seeded(2), `{"alg":"EdDSA","typ":"cap-proof+jwt"}`, payload)
		})
	}
	add(capability.OnlineOnly, "a token by its id", func(c *trial) { c.token = granted(nil).ID })
	return all
}

// ordered yields the members of a map in the order of their names.
func ordered[T any](all map[string]T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

// edited is a token with a part of its claims replaced, signed anew.
func edited(token, old, new string) string {
	header, claims, _ := segments(token)
	if !strings.Contains(claims, old) {
		panic("no " + old + " in " + claims)
	}
	return raw(service, header, strings.Replace(claims, old, new, 1))
}

// unusedBits sets the last bit of the last character, of which the signature has no use.
func unusedBits(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return s[:len(s)-1] + string(alphabet[strings.IndexByte(alphabet, s[len(s)-1])^1])
}

func (c trial) verifier() *capability.Verifier {
	return verifier(func(o *capability.Options) {
		o.Audience, o.Servers = c.audience, c.servers
		o.Now = func() time.Time { return time.Unix(c.now, 0) }
	})
}

func (c trial) call() capability.Call {
	return capability.Call{Token: c.token, Proof: c.proof, Holder: c.holder, Tool: c.tool, Arguments: parsed(c.arguments), Channel: capability.Channel{Session: c.session}}
}
