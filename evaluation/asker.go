package evaluation

// Asker is the caller behind a question, as authentication knows it, and what others know the
// question by. It stands beside a [Request] because no request can say it of itself.
type Asker struct {
	// Name is context.pdp.caller to policies; "" is an unknown caller.
	Name string
	// Principal is whom the caller is authenticated as, by the name that policies have; the zero value if that is nobody. Whoever
	// it is decides about no approval that the caller asks for.
	Principal Ref
	// Registered is set if the caller's registration declares obligation types: those in
	// Obligations, which may be none. Then a request cannot declare others.
	Registered  bool
	Obligations []string
	// Audiences are the names of the caller as a verifier of capabilities, one of which a proof must be for. If there is
	// none, a proof must be for the server of the tool. They are not on record: what came of a proof is.
	Audiences []string
	// Relays is set if the caller relays what people say. It asks for persons whom it names in the
	// context; see [Request.Person].
	Relays bool
	// Forwards is set if the caller sends requests of other PEPs. October's draft lets nobody but the enforcing PEP adopt it.
	Forwards bool
	// RequestID and TraceID go on record and change no answer.
	RequestID, TraceID string
}
