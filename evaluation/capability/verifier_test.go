package capability_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// TestCheck makes every trial, and holds its error to what an error may say.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range trials() {
		checked, err := c.verifier().Check(t.Context(), c.call())
		if got := codeOf(t, err); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if err == nil {
			if checked.Proof.Text() != c.proof || !checked.Proof.VerifiedBy(checked.Token.Key) {
				t.Errorf("%s: the proof cannot be rebuilt", c.name)
			}
			continue
		}
		if checked.Token.ID != "" || checked.Proof.ID != "" {
			t.Errorf("%s: refused, and returned", c.name)
		}
		quotesNothing(t, c, err)
	}
}

// TestCheckToken: a token by itself is refused for what is wrong with it, and not for the call.
func TestCheckToken(t *testing.T) {
	t.Parallel()
	ofToken := []capability.Code{
		capability.Missing, capability.Malformed, capability.TooLarge, capability.BadSignature, capability.NotYetValid, capability.Expired,
		capability.OnlineOnly,
	}
	for _, c := range trials() {
		want := c.want
		if !slices.Contains(ofToken, want) {
			want = ""
		}
		token, err := c.verifier().CheckToken(t.Context(), c.token)
		if got := codeOf(t, err); got != want || (token.ID != "") != (err == nil) {
			t.Errorf("%s: got %q, want %q", c.name, got, want)
		}
		if err != nil {
			quotesNothing(t, c, err)
			continue
		}
		if read, refusal := capability.ParseToken(c.token); refusal != nil || read.ID != token.ID || read.Key.Thumbprint() != token.Key.Thumbprint() {
			t.Errorf("%s: its holder cannot read it: %v", c.name, refusal)
		}
	}
	for _, text := range []string{"", "x", "a.b.c", "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e"} {
		if _, refusal := capability.ParseToken(text); refusal == nil || refusal.Code != capability.Malformed {
			t.Errorf("%q reads as a token", text)
		}
	}
}

// quotesNothing wants an error and its answers free of the texts of token, proof and argument values (row 25).
func quotesNothing(t *testing.T, c trial, err error) {
	t.Helper()
	var r *capability.Refusal
	errors.As(err, &r)
	said := err.Error() + string(r.RPC(nil)) + string(r.Blocked("t", "o"))
	for _, secret := range append(strings.Split(c.token, "."), strings.Split(c.proof, ".")...) {
		if len(secret) > 15 && strings.Contains(said, secret) {
			t.Errorf("%s: the error quotes what was sent: %s", c.name, said)
		}
	}
	if strings.Contains(said, "staging") || strings.Contains(said, "production") || strings.Contains(err.Error(), "agent-") {
		t.Errorf("%s: the error quotes a value: %s", c.name, said)
	}
	if r.Text() == "" || r.NextAction() == "" || r.Suggestion() == "" {
		t.Errorf("%s: nothing is said of %s", c.name, r.Code)
	}
}

// TestWhatARefusalNames: an agent finds in it what to ask for, and for whom to make a proof.
func TestWhatARefusalNames(t *testing.T) {
	t.Parallel()
	refused := func(change func(*trial)) *capability.Refusal {
		c := good(agent)
		change(&c)
		_, err := c.verifier().Check(t.Context(), c.call())
		var r *capability.Refusal
		if !errors.As(err, &r) {
			t.Fatalf("not refused: %v", err)
		}
		return r
	}
	for name, try := range map[string]struct{ got, want *capability.Refusal }{
		"argument": {refused(func(c *trial) { c.arguments = `{"target":"x"}` }), &capability.Refusal{Code: capability.ArgumentRefused, Argument: "target", Audience: "agent-b", Tool: tool}},
		"tool":     {refused(func(c *trial) { c.tool = "agent-b:x" }), &capability.Refusal{Code: capability.ToolNotCovered, Audience: "agent-b", Tool: "agent-b:x"}},
		"missing":  {refused(func(c *trial) { c.token = "" }), &capability.Refusal{Code: capability.Missing, Audience: "agent-b", Tool: tool}},
		"audience": {refused(func(c *trial) { c.tool, c.servers = "agent-c:x", []string{"agent-b", "agent-c"} }), &capability.Refusal{Code: capability.WrongAudience, Audience: "agent-c", Tool: "agent-c:x"}},
		"unknown":  {refused(func(c *trial) { c.tool = "agent-c:x" }), &capability.Refusal{Code: capability.WrongAudience, Tool: "agent-c:x"}},
		"proof":    {refused(func(c *trial) { c.proof = "" }), &capability.Refusal{Code: capability.ProofMissing, Audience: gateway}},
		"expired":  {refused(func(c *trial) { c.now += 3600 }), &capability.Refusal{Code: capability.Expired, Audience: "agent-b", Tool: tool}},
	} {
		if *try.got != *try.want {
			t.Errorf("%s: got %+v, want %+v", name, *try.got, *try.want)
		}
	}
	dpop := refused(func(c *trial) { c.proof = raw(seeded(2), `{"typ":"dpop+jwt"}`, `{}`) })
	if !strings.Contains(dpop.Error(), "DPoP") {
		t.Errorf("of DPoP it says %q", dpop)
	}
}

// TestOversize: what is too large is refused before it is read.
func TestOversize(t *testing.T) {
	t.Parallel()
	c := good(agent)
	for name, spoil := range map[string]struct {
		change func(*trial)
		want   capability.Code
	}{
		"10 MB token":   {func(c *trial) { c.token = strings.Repeat("A", 10<<20) }, capability.TooLarge},
		"10 MB of dots": {func(c *trial) { c.token = strings.Repeat(".", 10<<20) }, capability.TooLarge},
		"10 MB proof":   {func(c *trial) { c.proof = strings.Repeat("A", 10<<20) }, capability.ProofInvalid},
		"many dots":     {func(c *trial) { c.token = strings.Repeat(".", 8<<10) }, capability.Malformed},
		"1 MB jti": {func(c *trial) {
			c.proof = raw(seeded(2), `{"alg":"EdDSA","typ":"cap-proof+jwt"}`, strings.Repeat("j", 1<<20))
		}, capability.ProofInvalid},
		"deep header": {func(c *trial) { c.token = raw(service, strings.Repeat(`{"a":`, 1000), "{}") }, capability.Malformed},
		"deep claims": {func(c *trial) { h, _, _ := segments(c.token); c.token = raw(service, h, strings.Repeat("[", 5000)) }, capability.Malformed},
		"deep constraint": {func(c *trial) {
			c.token = edited(c.token, `"value":"staging"`, `"value":`+strings.Repeat("[", 5)+strings.Repeat("]", 5))
		}, capability.Malformed},
		"deep proof": {func(c *trial) {
			c.proof = raw(seeded(2), `{"alg":"EdDSA","typ":"cap-proof+jwt"}`, strings.Repeat(`{"a":`, 500))
		}, capability.ProofInvalid},
	} {
		bad := c
		spoil.change(&bad)
		_, err := bad.verifier().Check(t.Context(), bad.call())
		if got := codeOf(t, err); got != spoil.want {
			t.Errorf("%s: got %q, want %q", name, got, spoil.want)
		}
	}
	if _, refusal := capability.ParseClaims([]byte(strings.Repeat(`{"a":`, 100_000))); refusal == nil || refusal.Code != capability.Malformed {
		t.Errorf("claims of depth 100,000: %v", refusal)
	}
}

// TestMutations: whatever is changed in a token or a proof, it is refused.
func TestMutations(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	goods := []trial{good(agent), good(agentEC)}
	for n := range 10_000 {
		c := goods[n%2]
		mutated := c
		if n%4 < 2 {
			mutated.token = mutate(random, c.token)
		} else {
			mutated.proof = mutate(random, c.proof)
		}
		_, err := mutated.verifier().Check(t.Context(), mutated.call())
		if same := mutated.token == c.token && mutated.proof == c.proof; (err == nil) != same {
			t.Fatalf("token %q, proof %q: %v", mutated.token, mutated.proof, err)
		}
	}
}

func mutate(random *rand.Rand, s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=. \n\x00\xff"
	at := random.IntN(len(s))
	all := strings.Split(s, ".")
	switch random.IntN(9) {
	case 0: // flip a bit
		return s[:at] + string([]byte{s[at] ^ 1<<random.IntN(8)}) + s[at+1:]
	case 1: // another character
		return s[:at] + alphabet[random.IntN(len(alphabet)):][:1] + s[at+1:]
	case 2: // one more
		return s[:at] + alphabet[random.IntN(len(alphabet)):][:1] + s[at:]
	case 3: // one less
		return s[:at] + s[at+1:]
	case 4: // cut
		return s[:at]
	case 5: // segments in another order
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	case 6: // a segment twice
		all = append(all, all[random.IntN(len(all))])
	case 7: // encoded again, as the other base64 has it
		part := random.IntN(len(all))
		all[part] = strings.NewReplacer("-", "+", "_", "/").Replace(all[part]) + strings.Repeat("=", random.IntN(3))
	case 8: // a payload with a flipped bit, under the same signature
		_, payload, _ := segments(s)
		bit := random.IntN(len(payload))
		all[1] = b64(payload[:bit] + string([]byte{payload[bit] ^ 1<<random.IntN(8)}) + payload[bit+1:])
	}
	return strings.Join(all, ".")
}

// TestKeysThatCannotBeLookedUp: that is no refusal, since another try may find them.
func TestKeysThatCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	c := good(agent)
	_, claims, _ := segments(c.token)
	c.token = signedBy(service, "unreachable", capability.TypeToken, claims)
	_, err := c.verifier().Check(t.Context(), c.call())
	var r *capability.Refusal
	if !errors.Is(err, errNoAnswer) || errors.As(err, &r) {
		t.Errorf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*capability.Options){
		"no issuer":        func(o *capability.Options) { o.Issuer = "" },
		"no keys":          func(o *capability.Options) { o.Keys = nil },
		"empty audience":   func(o *capability.Options) { o.Audience = []string{gateway, ""} },
		"empty server":     func(o *capability.Options) { o.Servers = []string{""} },
		"age below zero":   func(o *capability.Options) { o.ProofAge = -time.Second },
		"age too great":    func(o *capability.Options) { o.ProofAge = 301 * time.Second },
		"half a second":    func(o *capability.Options) { o.ProofAge = 1500 * time.Millisecond },
		"skew too great":   func(o *capability.Options) { o.Skew = 61 * time.Second },
		"skew below zero":  func(o *capability.Options) { o.Skew = -time.Second },
		"skew of half a s": func(o *capability.Options) { o.Skew = time.Second / 2 },
	} {
		o := capability.Options{Issuer: issuer, Keys: published}
		if _, err := capability.NewVerifier(o); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if _, err := capability.NewVerifier(o); err == nil || !strings.Contains(err.Error(), ";") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckCall: whoever has the token already checks the same.
func TestCheckCall(t *testing.T) {
	t.Parallel()
	check := func(token capability.Token, c capability.Call) capability.Code {
		p, refusal := token.CheckCall(c, []string{gateway}, now, time.Minute, 10*time.Second)
		if refusal != nil {
			return refusal.Code
		}
		if p.Text() != c.Proof {
			t.Error("another proof than was sent")
		}
		return ""
	}
	c := good(agent).call()
	c.Token = "not read"
	if got := check(granted(nil), c); got != "" {
		t.Errorf("refused: %s", got)
	}
	for name, try := range map[string]struct {
		token capability.Token
		want  capability.Code
	}{
		"no token at all": {capability.Token{}, capability.Expired},
		"no layers":       {granted(func(t *capability.Token) { t.Layers = nil }), capability.ToolNotCovered},
		"no key":          {granted(func(t *capability.Token) { t.Key = capability.Key{} }), capability.ProofInvalid},
		"empty layer":     {granted(func(t *capability.Token) { t.Layers = []capability.Layer{{}} }), capability.ToolNotCovered},
		"no constraint":   {granted(func(t *capability.Token) { t.Layers[0].Arguments = capability.Arguments{"target": {}} }), capability.ArgumentRefused},
	} {
		if got := check(try.token, c); got != try.want {
			t.Errorf("%s: got %q, want %q", name, got, try.want)
		}
	}
	c.Holder = evaluation.Ref{}
	if got := check(granted(nil), c); got != capability.WrongHolder {
		t.Errorf("nobody: %q", got)
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, h := range map[string]*capability.Holder{"Ed25519": agent, "P-256": agentEC} {
		b.Run(name, func(b *testing.B) {
			c := good(h)
			v, call := c.verifier(), c.call()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Check(b.Context(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
