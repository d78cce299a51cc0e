// Package era knows how the two eras of MCP differ, and changes a message of one into the same message of the other. Legacy
// is every revision with an initialize handshake (2025-11-25 and before); modern is every one that repeats on each request
// the contents of the handshake (2026-07-28).
//
// Begin with [Era]. On the way to a server: [CheckHeaders] and [CheckParamHeaders] hold a client's headers against its
// body, [ToModern] and [ParamHeaders] write the members and headers of a modern request. On the way back: [Response],
// [Notification], [Asked], [Initialized] and [Discovered] translate a server's message for its client, without members
// that a server of the other era must not send. Members that they do not name keep their bytes.
//
// The package is pure: it keeps nothing and sends nothing, and knows no principal and no policy.
package era

type Era uint8

// Legacy has a handshake, sessions, and requests of servers; Modern has none of them.
const (
	Legacy Era = iota
	Modern
)

func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// The revisions of each era that we speak, newest first.
var (
	LegacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
	ModernVersions = []string{"2026-07-28"}
)

// Members of _meta by which modern requests and results describe themselves.
const (
	MetaPrefix       = "io.modelcontextprotocol/"
	MetaVersion      = MetaPrefix + "protocolVersion"
	MetaClient       = MetaPrefix + "clientInfo"
	MetaCapabilities = MetaPrefix + "clientCapabilities"
	MetaLogLevel     = MetaPrefix + "logLevel"
	MetaServer       = MetaPrefix + "serverInfo"
	MetaSubscription = MetaPrefix + "subscriptionId"
)

// Codes of MCP 2026-07-28 for faults of a request as such. It keeps all that follow until -32099 for itself.
const (
	HeaderMismatch     = -32020
	MissingCapability  = -32021
	UnsupportedVersion = -32022

	lastReserved = -32099
)

// Codes of the legacy era, which the modern era must not send.
const (
	ResourceNotFound = -32002
	URLRequired      = -32042
)
