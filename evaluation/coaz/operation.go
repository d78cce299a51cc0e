package coaz

import "policy-service/evaluation"

// Operation is one MCP request about which a PDP is to be asked.
type Operation struct {
	// Method is the JSON-RPC method.
	Method string
	// Params are the request's, as they were received; for tools/call with name and arguments.
	Params evaluation.Object
	// Token holds the claims of the access token. The maker of an Operation has validated it.
	Token evaluation.Object
	// Inputs are the values of [Options.Inputs], for mappings that an operator wrote. No other mapping can read them.
	Inputs evaluation.Object
}

// Verdict says whether a mapping applies to a method.
type Verdict uint8

// The verdicts. The zero Verdict is Unknown: a caller that forgets to look refuses.
const (
	// Unknown: no default mapping. Unless another mapping applies, the request is refused with [Denied].
	Unknown Verdict = iota
	// Mapped: the mapping says what the PDP is asked.
	Mapped
	// PassThrough: the message goes on, and the PDP is not asked: ping, and notifications. A message that has an id is
	// no notification, whatever its method: refuse it. One of any other method that has none is not to be executed.
	PassThrough
)

// Override says what becomes of a declared mapping whose subject is another than the one of the token.
type Override uint8

const (
	// RefuseOverride makes it a mapping error.
	RefuseOverride Override = iota
	// WarnOverride lets it pass with a [Warning], as the binding allows.
	WarnOverride
)

// Options of a [Binding]. The zero Options are usable.
type Options struct {
	// Resource is the server's own resource identifier (RFC 8707). If it is set, default mappings use it where they
	// name the server, and a token that has an audience but not this one is a mapping error. If it is "", they use the
	// audience, which must then be one.
	Resource string
	// SubjectClaim names the claim that says who the subject is: a claim's name, or a JSON Pointer if it begins with
	// a slash, such as /act/sub. "" is sub.
	SubjectClaim string
	Override     Override
	// Inputs are the names of further variables, for mappings that an operator wrote: such as server, tool, client.
	Inputs []string
}
