package capability_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// wanted is what the agent asks for, as a change leaves it.
func wanted(change func(*capability.Ask)) capability.Ask {
	a := capability.Ask{
		Tenant: "tenant-xyz", Holder: evaluation.Ref{Type: "agent", ID: "agent-a"}, Audience: "agent-b", Tools: []string{"dangerous_operation"},
		Duration: time.Hour, MaxUses: 5, Arguments: capability.Arguments{"target": constraint(`"staging"`)}, Reason: "Need to perform maintenance task",
	}
	if change != nil {
		change(&a)
	}
	return a
}

// asks are the requests of the vectors. Their proofs have an id of their own, so that they are the same each time.
func asks() (all []askVector) {
	const id = "request-0123456789"
	header := `{"alg":"EdDSA","typ":"cap-request+jwt"}`
	body := func(a capability.Ask, proof string) string {
		a.Proof = proof
		text, err := a.MarshalJSON()
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	add := func(want capability.Code, name string, change func(*capability.Ask), proof func(req string) string) {
		a := wanted(change)
		a.Key = agent.Key()
		all = append(all, askVector{Name: name, Now: now.Unix(), Body: body(a, proof(a.Digest())), Reason: want})
	}
	payload := func(aud string, iat int64, jti, req string) string {
		return fmt.Sprintf(`{"aud":"%s","iat":%d,"jti":"%s","req":"%s"}`, aud, iat, jti, req)
	}
	proof := func(req string) string { return raw(seeded(2), header, payload(issuer, now.Unix(), id, req)) }
	add("", "good", nil, proof)
	add("", "times in place of a duration", func(a *capability.Ask) {
		a.Duration, a.ValidFrom, a.ValidUntil = 0, now, now.Add(time.Hour).In(time.FixedZone("", 3600))
	}, proof)
	add("", "as little as can be asked", func(a *capability.Ask) { a.Duration, a.MaxUses, a.Arguments, a.Tools = 0, 0, nil, []string{"*"} }, proof)
	add("", "for offline", func(a *capability.Ask) { a.MaxUses, a.Offline = 0, true }, proof)
	add("", "all kinds of constraints", func(a *capability.Ask) {
		a.Arguments = capability.Arguments{}
		for n, one := range []string{`{"constraint_type":"one_of","values":["b","a",1.0]}`, `{"constraint_type":"range","min":1e2,"max_inclusive":false,"max":1000.50}`, `{"constraint_type":"prefix","value":"é/"}`, `{"b":null,"a":[]}`} {
			a.Arguments[fmt.Sprint("a", n)] = constraint(one)
		}
		a.Arguments["*"] = constraint(`{"constraint_type":"wildcard"}`)
	}, proof)
	add("", "bound to a session", func(a *capability.Ask) { a.Channel.Session = "ws-17" }, proof)
	add("", "may be handed on", func(a *capability.Ask) { a.MaxDepth = 2 }, proof)
	add("", "encrypted", func(a *capability.Ask) { a.EncryptTo = agentEC.Key() }, proof)
	handsOn := func(want capability.Code, name string, change func(*capability.Ask), proof func(req string) string) {
		a := wanted(change)
		a.Key, a.Parent = thief.Key(), "cap_parent"
		all = append(all, askVector{Name: name, Now: now.Unix(), Parent: a.Parent, Giver: agent.Key().Thumbprint(), Body: body(a, proof(a.Digest())), Reason: want})
	}
	handsOn("", "handed on", func(a *capability.Ask) { a.Holder.ID, a.MaxDepth, a.EncryptTo = "agent-t", 2, agentEC.Key() }, proof)
	handsOn(capability.ProofInvalid, "handed on by who gets it", nil, func(req string) string { return raw(seeded(3), header, payload(issuer, now.Unix(), id, req)) })
	handsOn(capability.ProofWrongCall, "handed on, by the proof of a request", nil, func(string) string {
		a := wanted(nil)
		a.Key = thief.Key()
		return proof(a.Digest())
	})
	add("", "60 s old", nil, func(req string) string { return raw(seeded(2), header, payload(issuer, now.Unix()-60, id, req)) })
	add(capability.ProofStale, "61 s old", nil, func(req string) string { return raw(seeded(2), header, payload(issuer, now.Unix()-61, id, req)) })
	add(capability.ProofStale, "11 s ahead", nil, func(req string) string { return raw(seeded(2), header, payload(issuer, now.Unix()+11, id, req)) })
	add(capability.ProofWrongAudience, "for another service", nil, func(req string) string { return raw(seeded(2), header, payload(issuer+"x", now.Unix(), id, req)) })
	add(capability.ProofWrongCall, "for another request", nil, func(req string) string { return raw(seeded(2), header, payload(issuer, now.Unix(), id, req[1:]+"A")) })
	add(capability.ProofInvalid, "by another key", nil, func(req string) string { return raw(seeded(3), header, payload(issuer, now.Unix(), id, req)) })
	add(capability.ProofInvalid, "short jti", nil, func(req string) string { return raw(seeded(2), header, payload(issuer, now.Unix(), "short", req)) })
	add(capability.ProofInvalid, "a member more", nil, func(req string) string {
		return raw(seeded(2), header, strings.Replace(payload(issuer, now.Unix(), id, req), "}", `,"x":1}`, 1))
	})
	add(capability.ProofInvalid, "20: the proof of a call", nil, func(req string) string { return proved(agent, claim(`{}`)) })
	add(capability.ProofInvalid, "20: the type of the proof of a call", nil, func(req string) string {
		return raw(seeded(2), strings.Replace(header, "request", "proof", 1), payload(issuer, now.Unix(), id, req))
	})
	return all
}

// TestRequest: the proof that a holder adds is good for the very thing that is asked, and for nothing else.
func TestRequest(t *testing.T) {
	t.Parallel()
	for _, h := range []*capability.Holder{agent, agentEC} {
		a := wanted(nil)
		if err := h.Request(&a, issuer, now); err != nil {
			t.Fatal(err)
		}
		text, err := a.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := capability.DecodeAsk(text, evaluation.DefaultLimits())
		if err != nil || got.Digest() != a.Digest() || got.Tools[0] != tool || got.Tenant != a.Tenant || got.Reason != a.Reason {
			t.Fatalf("%s becomes %+v, %v", text, got, err)
		}
		jti, iat, refusal := got.CheckProof(issuer, now, time.Minute, 0)
		if refusal != nil || len(jti) < 16 || !iat.Equal(now) {
			t.Errorf("got %q, %v, %v", jti, iat, refusal)
		}
		for name, change := range map[string]func(*capability.Ask){
			"tool":        func(a *capability.Ask) { a.Tools = append(a.Tools, "agent-b:read_file") },
			"order":       func(a *capability.Ask) { a.Audience = "agent-c" },
			"duration":    func(a *capability.Ask) { a.Duration++; a.Duration += time.Second },
			"uses":        func(a *capability.Ask) { a.MaxUses++ },
			"no uses":     func(a *capability.Ask) { a.MaxUses = 0 },
			"constraint":  func(a *capability.Ask) { a.Arguments = capability.Arguments{"target": constraint(`"production"`)} },
			"none":        func(a *capability.Ask) { a.Arguments = nil },
			"empty":       func(a *capability.Ask) { a.Arguments = capability.Arguments{} },
			"valid_until": func(a *capability.Ask) { a.ValidUntil = now },
		} {
			other := got
			change(&other)
			if code := askCode(other, now.Unix()); code != capability.ProofWrongCall {
				t.Errorf("another %s: %q", name, code)
			}
		}
		other := got
		other.Key = thief.Key()
		if code := askCode(other, now.Unix()); code != capability.ProofInvalid {
			t.Errorf("another key: %q", code)
		}
		other.Proof = ""
		if code := askCode(other, now.Unix()); code != capability.ProofMissing {
			t.Errorf("no proof: %q", code)
		}
	}
	bad := wanted(func(a *capability.Ask) { a.Tools = []string{"agent-c:x"} })
	if err := agent.Request(&bad, issuer, now); err == nil || bad.Proof != "" {
		t.Errorf("it asks for a tool of another server: %v", err)
	}
}

const askBody = `{"holder":{"type":"agent","id":"agent-a","properties":{"department_id":"dept-eng"}},"audience":"agent-b",
	"tools":["dangerous_operation","agent-b:read_file"],"key":{"kty":"OKP","crv":"Ed25519","x":"gTl3DyAqD_RqGQcpM5PkSoTv4tAw8XADOzl2vXaDFoQ"},"proof":"x.y.z"}`

func TestDecodeAsk(t *testing.T) {
	t.Parallel()
	body := strings.Replace(askBody, "gTl3DyAqD_RqGQcpM5PkSoTv4tAw8XADOzl2vXaDFoQ", xOf(agent.Key()), 1)
	decode := func(text string) (capability.Ask, error) {
		return capability.DecodeAsk([]byte(text), evaluation.DefaultLimits())
	}
	a, err := decode(body)
	if err != nil || strings.Join(a.Tools, " ") != "agent-b:dangerous_operation agent-b:read_file" || a.Properties.Len() != 1 || a.Arguments != nil || a.Duration != 0 {
		t.Fatalf("got %+v, %v", a, err)
	}
	with := func(members string) string { return strings.Replace(body, "{", "{"+members+",", 1) }
	if a, err = decode(with(`"arguments":{"n":null,"m":{"constraint_type":"exact","value":null}},"valid_until":"2026-01-01T00:00:00+01:00"`)); err != nil ||
		!a.Arguments["n"].Holds(evaluation.Value{}) || !a.Arguments["m"].Holds(evaluation.Value{}) || a.ValidUntil.Unix() != 1767222000 {
		t.Errorf("null arguments: %+v, %v", a, err)
	}
	if a, err = decode(strings.Replace(body, `"proof":"x.y.z"`, `"reason":"r"`, 1)); err != nil || a.Proof != "" {
		t.Errorf("a holder that is away: %+v, %v", a, err)
	}
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	for text, at := range map[string]string{
		with(`"more":1`):                               "/more",
		with(`"holder":1`):                             "/holder", // twice
		with(`"duration":0`):                           "/duration",
		with(`"duration":1.5`):                         "/duration",
		with(`"duration":"3600"`):                      "/duration",
		with(`"duration":1e99`):                        "/duration",
		with(`"max_uses":0`):                           "/max_uses",
		with(`"max_uses":1000001`):                     "/max_uses",
		with(`"valid_until":"tomorrow"`):               "/valid_until",
		with(`"valid_until":5`):                        "/valid_until",
		with(`"valid_until":"2026-01-01T00:00:00.5Z"`): "/valid_until",
		with(`"valid_from":"2026-01-01T00:00:00Z"`):    "/valid_from",
		with(`"valid_from":"2026-01-01T00:00:00Z","valid_until":"2026-01-01T00:00:00Z"`): "/valid_from",
		with(`"duration":5,"valid_until":"2026-01-01T00:00:00Z"`):                        "/duration",
		with(`"arguments":[]`):                                                            "/arguments",
		with(`"arguments":{"*":1}`):                                                       "/arguments/*",
		with(`"arguments":{"a/b":{"constraint_type":"x"}}`):                               "/arguments/a~1b/constraint_type",
		with(`"arguments":{"n":9007199254740993}`):                                        "/arguments/n",
		with(`"arguments":{"":1}`):                                                        "/arguments/",
		with(`"reason":""`):                                                               "/reason",
		with(`"tenant_id":5`):                                                             "/tenant_id",
		with(`"approval_id":5`):                                                           "/approval_id",
		strings.Replace(body, `"x.y.z"`, `""`, 1):                                         "/proof",
		strings.Replace(body, `"x.y.z"`, `"`+strings.Repeat("x", 4097)+`"`, 1):            "/proof",
		strings.Replace(body, `"id":"agent-a"`, `"id":""`, 1):                             "/holder/id",
		strings.Replace(body, `"id":"agent-a"`, `"id":"agent-a","name":"x"`, 1):           "/holder/name",
		strings.Replace(body, `{"department_id":"dept-eng"}`, `5`, 1):                     "/holder/properties",
		strings.Replace(body, `"agent-b:read_file"`, `"agent-c:read_file"`, 1):            "/tools/1",
		strings.Replace(body, `"agent-b:read_file"`, `"agent-b:"`, 1):                     "/tools/1",
		strings.Replace(body, `"agent-b:read_file"`, `"agent-b:read*"`, 1):                "/tools/1",
		strings.Replace(body, `"agent-b:read_file"`, `"agent-b:dangerous_operation"`, 1):  "/tools/1",
		strings.Replace(body, `"agent-b:read_file"`, `5`, 1):                              "/tools/1",
		strings.Replace(body, `"agent-b:read_file"`, `"`+strings.Repeat("x", 257)+`"`, 1): "/tools/1",
		strings.Replace(body, `["dangerous_operation","agent-b:read_file"]`, `[]`, 1):     "/tools",
		strings.Replace(body, `"agent-b:read_file"`, many(64, `"x"`), 1):                  "/tools",
		strings.Replace(body, `"kty":"OKP"`, `"kty":"OKP","d":"x"`, 1):                    "/key",
		strings.Replace(body, `"kty":"OKP"`, `"kty":"oct","k":"x"`, 1):                    "/key",
		strings.Replace(body, `"kty":"OKP"`, `"kty":"RSA"`, 1):                            "/key",
		`{"tools":["a"]}`: "/holder",
		`[]`:              "",
		`{`:               "",
	} {
		_, err := decode(text)
		var e *evaluation.Error
		if !errors.As(err, &e) || e.Pointer != at && text != "{" {
			t.Errorf("%s: %v, want it at %q", text, err, at)
		}
		if err != nil && strings.Contains(err.Error(), "x.y.z") {
			t.Errorf("the error quotes the proof: %v", err)
		}
	}
	var arguments, tools []string
	for n := range 33 {
		arguments = append(arguments, fmt.Sprintf(`"a%d":1`, n))
		tools = append(tools, fmt.Sprintf(`"%s%d"`, strings.Repeat("t", 200), n))
	}
	for at, text := range map[string]string{
		"/arguments": with(`"arguments":{` + strings.Join(arguments, ",") + `}`),
		"":           strings.Replace(body, `"agent-b:read_file"`, strings.Join(tools, ","), 1), // too much for a token
	} {
		_, err := decode(text)
		var e *evaluation.Error
		if !errors.As(err, &e) || e.Pointer != at {
			t.Errorf("too many: %v, want it at %q", err, at)
		}
	}
	limits := evaluation.DefaultLimits()
	limits.Body = 10
	var e *evaluation.Error
	if _, err := capability.DecodeAsk([]byte(body), limits); !errors.As(err, &e) || !e.TooLarge {
		t.Errorf("too large: %v", err)
	}
}

func xOf(k capability.Key) string {
	text, _ := k.MarshalJSON()
	_, x, _ := strings.Cut(string(text), `"x":"`)
	x, _, _ = strings.Cut(x, `"`)
	return x
}

// TestWhatIsAskedForFitsAToken: however the bytes of a request are spread, it is refused or can be granted.
func TestWhatIsAskedForFitsAToken(t *testing.T) {
	t.Parallel()
	refused, fits := 0, 0
	for _, name := range []string{"t", strings.Repeat("t", 40), strings.Repeat("\x01", 40), strings.Repeat("é", 100)} {
		for n := range 64 {
			for _, change := range []func(*capability.Ask){
				func(a *capability.Ask) {
					for m := range n {
						a.Tools = append(a.Tools, fmt.Sprint(name, m))
					}
				},
				func(a *capability.Ask) {
					for m := range min(n, capability.MaxArguments) {
						a.Arguments[fmt.Sprint(name, m)] = constraint(`"` + strings.Repeat("v", n) + `"`)
					}
				},
				func(a *capability.Ask) { a.Holder.ID = strings.Repeat(name, n+1) },
				func(a *capability.Ask) { a.Audience = name + strings.Repeat("a", n) },
			} {
				a := wanted(func(a *capability.Ask) { a.Arguments = capability.Arguments{} })
				change(&a)
				if err := agentEC.Request(&a, issuer, now); err != nil {
					refused++
					continue
				}
				fits++
				text, err := a.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if a, err = capability.DecodeAsk(text, evaluation.DefaultLimits()); err != nil {
					t.Fatal(err)
				}
				token := granted(func(t *capability.Token) {
					t.Audience, t.Holder, t.Key, t.MaxUses = a.Audience, a.Holder, a.Key, a.MaxUses
					t.Layers = []capability.Layer{{Tools: a.Tools, Arguments: a.Arguments}}
				})
				if text := signed(token); len(text) > capability.MaxToken {
					t.Fatalf("a token of %d bytes", len(text))
				}
			}
		}
	}
	if refused < 50 || fits < 300 {
		t.Errorf("%d were refused, and %d fit: that tells too little", refused, fits)
	}
}
