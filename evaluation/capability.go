package evaluation

// Capability is what context.pdp.capability says of a request: whether it was shown to hold a capability for exactly this
// call, which one, and how often that was handed on. The zero value is none.
type Capability struct {
	Held  bool
	ID    string
	Depth int
}

// ToolCapability is among the capabilities of a PDP that grants the capabilities that are meant here.
const ToolCapability = "urn:policy-service:capability:tool-capability"

// CapabilityShown is what a request shows in context.capability: a token, or the id of one, and a proof that its caller
// holds the token's key. Neither is read here, and either may be missing: then it is no good capability. Session is the id
// of the session of the call, as who enforces the answer observed it.
type CapabilityShown struct{ Token, Proof, Session string }

const capabilityMember = "capability"

// CapabilityShown reads context.capability. It reports false if there is none.
func (r *Request) CapabilityShown() (shown CapabilityShown, given bool) {
	for name, v := range r.Context.All { // each call comes here, and only then names of that length are read
		if name == capabilityMember {
			token, _ := v.Object().Get("token")
			proof, _ := v.Object().Get("proof")
			channel, _ := v.Object().Get("channel")
			session, _ := channel.Object().Get("session")
			return CapabilityShown{token.Text(), proof.Text(), session.Text()}, true
		}
	}
	return shown, false
}

// checkCapability checks context.capability. If it could not be read and were ignored, a call with a bad token would be
// one without a token.
func (r *reader) checkCapability(context Object) {
	at := []string{"context", capabilityMember}
	v, given := context.Lookup(capabilityMember)
	if !given {
		return
	}
	r.want(v.Kind() == Map, "not an object with token and proof", at...)
	for name, value := range v.Object().All {
		if name == "channel" {
			r.want(value.Kind() == Map, "not an object with session", append(at, name)...)
			for what, value := range value.Object().All {
				r.want(what == "session" && value.Kind() == String, "not the string session", append(at, name, what)...)
			}
			continue
		}
		r.want(name == "token" || name == "proof", "neither token nor proof nor channel", append(at, name)...)
		r.want(value.Kind() == String, "not a string", append(at, name)...)
	}
}

// CapabilityAnswer is what an answer says of the capability that a request showed, or that it lacks.
type CapabilityAnswer struct {
	ID string `json:"id,omitzero"`
	// UsesLeft is nil unless uses are counted.
	UsesLeft *int `json:"uses_left,omitzero"`
	// Reason is why the one that was shown does not count. Argument names an argument that it does not cover.
	Reason   string `json:"reason,omitzero"`
	Argument string `json:"argument,omitzero"`
	// Audience and Tools are what to ask a capability for.
	Audience string   `json:"audience,omitzero"`
	Tools    []string `json:"tools,omitzero"`
	// Nonce is for the next proof.
	Nonce      string `json:"nonce,omitzero"`
	NextAction string `json:"next_action,omitzero"`
	// Enforceable is false in an answer that no use was counted for, and that lets nothing happen.
	Enforceable *bool `json:"enforceable,omitzero"`
}
