package capability_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
)

// An agent asks for leave to call a tool, and proves that it has the key that the token is to be bound to.
func ExampleHolder_Request() {
	holder, err := capability.NewHolder(ed25519.NewKeyFromSeed(make([]byte, 32))) // of ed25519.GenerateKey, in earnest
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := capability.Ask{
		Holder: evaluation.Ref{Type: "agent", ID: "agent-a"}, Audience: "agent-b", Tools: []string{"dangerous_operation"},
		Duration: time.Hour, MaxUses: 5, Reason: "Need to perform maintenance task",
	}
	if err := holder.Request(&ask, "https://pdp.example.com/tenants/tenant-xyz", time.Now()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ask.Key.Thumbprint() == holder.Key().Thumbprint(), ask.Proof != "") // json.Marshal(ask) is the body to send
	// Output: true true
}

// A gateway checks the token and the proof of a call before it asks the service, which alone knows whether the token
// was revoked and the proof seen before.
func ExampleVerifier_Check() {
	// What the service signed, and what the agent proves.
	token := signed(granted(nil))
	proof, err := agent.Prove(capability.Claim{
		Capability: "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e", Audience: "https://gw1.example.com", Tool: "agent-b:dangerous_operation",
		Arguments: parsed(`{"target": "staging"}`), IssuedAt: now,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	v, err := capability.NewVerifier(capability.Options{
		Issuer:   "https://pdp.example.com/tenants/tenant-xyz",
		Audience: []string{"https://gw1.example.com"},
		Servers:  []string{"agent-b"},
		Keys:     published, // those of the service's JWKS
		Now:      func() time.Time { return now },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, arguments := range []string{`{"target": "staging"}`, `{"target": "production"}`} {
		checked, err := v.Check(context.Background(), capability.Call{
			Token: token, Proof: proof, Holder: evaluation.Ref{Type: "agent", ID: "agent-a"},
			Tool: "agent-b:dangerous_operation", Arguments: parsed(arguments),
		})
		fmt.Printf("%q %v\n", checked.Token.ID, err)
	}
	// Output:
	// "cap_0199f3a27c1e7d3a8f00c3b2a1908f7e" <nil>
	// "" Argument not covered by capability (argument_refused): Request capability first using capabilities/request
}
