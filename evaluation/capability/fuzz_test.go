package capability_test

import (
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// FuzzCheck: nothing but the very token and proof is taken, and each refusal says why.
func FuzzCheck(f *testing.F) {
	for _, c := range trials() {
		f.Add(c.token, c.proof, c.tool, c.arguments)
	}
	goods := []trial{good(agent), good(agentEC)}
	known := map[[2]string]bool{}
	for _, c := range append(trials(), goods...) {
		known[[2]string{c.token, c.proof}] = c.want == "" || known[[2]string{c.token, c.proof}]
	}
	v := verifier(nil)
	f.Fuzz(func(t *testing.T, token, proof, tool, arguments string) {
		o, err := evaluation.ParseWithNulls([]byte(arguments), evaluation.DefaultLimits())
		if err != nil {
			return
		}
		_, err = v.Check(t.Context(), capability.Call{Token: token, Proof: proof, Holder: goods[0].holder, Tool: tool, Arguments: o})
		if code := codeOf(t, err); code == "" && !known[[2]string{token, proof}] {
			t.Errorf("taken: token %q, proof %q", token, proof)
		}
	})
}

// FuzzDecodeAsk: what is taken is written and read as the same.
func FuzzDecodeAsk(f *testing.F) {
	for _, a := range asks() {
		f.Add([]byte(a.Body))
	}
	f.Add([]byte(askBody))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := capability.DecodeAsk(body, evaluation.DefaultLimits())
		if err != nil {
			return
		}
		text, err := a.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := capability.DecodeAsk(text, evaluation.DefaultLimits())
		if err != nil || again.Digest() != a.Digest() {
			t.Errorf("%s becomes %s: %v", body, text, err)
		}
		_, _, _ = a.CheckProof(issuer, now, time.Minute, 0)
		token := granted(func(t *capability.Token) {
			t.Audience, t.Holder, t.Key = a.Audience, a.Holder, a.Key
			t.Layers = []capability.Layer{{Tools: a.Tools, Arguments: a.Arguments}}
		})
		if text, err := token.Claims(); err != nil { // it is bounded so that a token holds it
			t.Errorf("no token of %s: %v %s", body, err, text)
		}
	})
}

// FuzzConstraint: what is taken is written and read as the same, and holds of the one value that it pins.
func FuzzConstraint(f *testing.F) {
	for _, one := range held {
		f.Add(one.Constraint, one.Holds[0])
		for _, v := range one.Refuses {
			f.Add(one.Constraint, v)
		}
	}
	parse := func(text string) (evaluation.Value, bool) {
		o, err := evaluation.ParseWithNulls([]byte(`{"v":`+text+`}`), evaluation.DefaultLimits())
		v, _ := o.Lookup("v")
		return v, err == nil
	}
	f.Fuzz(func(t *testing.T, text, of string) {
		v, ok1 := parse(text)
		arg, ok2 := parse(of)
		if !ok1 || !ok2 {
			return
		}
		c, err := capability.ParseConstraint(v)
		if err != nil {
			return
		}
		again, err := capability.ParseConstraint(c.Value())
		if err != nil || !again.Value().Equal(c.Value()) || again.Holds(arg) != c.Holds(arg) {
			t.Errorf("%s becomes another constraint: %v", text, err)
		}
		if pinned, ok := c.ScalarExact(); ok && c.Kind() == "exact" && pinned.Kind() != evaluation.Number && !c.Holds(pinned) {
			t.Errorf("%s does not hold of what it pins", text)
		}
	})
}

// FuzzClaims: what is taken under the service's signature is written and read as the same, and covers no call of
// another server or holder.
func FuzzClaims(f *testing.F) {
	for _, c := range trials() {
		if c.want == "" {
			_, claims, _ := segments(c.token)
			_, proof, _ := segments(c.proof)
			f.Add([]byte(claims), []byte(proof))
		}
	}
	f.Fuzz(func(t *testing.T, claims, proof []byte) {
		if p, refusal := capability.ParseProof(raw(seeded(2), `{"alg":"EdDSA","typ":"cap-proof+jwt"}`, string(proof)), agent.Key()); refusal == nil {
			if _, payload, _ := segments(p.Text()); payload != string(proof) || !p.VerifiedBy(agent.Key()) {
				t.Errorf("%s cannot be rebuilt", proof)
			}
		}
		token, refusal := capability.ParseClaims(claims)
		if refusal != nil {
			return
		}
		text, err := token.Claims()
		if err != nil {
			return // it is too large with all that goes without saying
		}
		again, refusal := capability.ParseClaims(text)
		if refusal != nil || !again.Expires.Equal(token.Expires) || len(again.Layers) != len(token.Layers) {
			t.Errorf("%s becomes %s: %v", claims, text, refusal)
		}
		for _, c := range []capability.Call{{Tool: "other:" + tool, Holder: token.Holder}, {Tool: token.Audience + ":x"}} {
			if _, refusal := token.CheckCall(c, nil, token.NotBefore, time.Minute, 0); refusal == nil {
				t.Errorf("%s covers %+v", claims, c)
			}
		}
	})
}
