package mcp

import (
	"time"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/server/config"
)

// ConfigVariable names the configuration file, as --config does.
const ConfigVariable = "MCP_GATEWAY_CONFIG"

// Form describes how a [Config] is written: in a file, in the environment and as flags.
var Form = config.Form[Config]{
	Title:        "The configuration of policy-service mcp-gateway",
	Prefix:       "MCP_GATEWAY_",
	FileVariable: ConfigVariable,
	Check:        (*Config).check,
}

// DefaultListen is the address of a gateway whose configuration has none.
const DefaultListen = "127.0.0.1:8181"

// Config configures a [Gateway]. A field with a yaml tag is a key: the file, the environment, the JSON Schema, the
// help and the page REFERENCE.md take it from its tags, which [config.Key] explains. To add a key, add a field.
//
// A zero field was not given. [Form] sets the defaults.
type Config struct {
	// Listen is the address, host:port. The program listens there; a gateway over the standard streams has none.
	Listen string `yaml:"listen" default:"127.0.0.1:8181" doc:"The address to listen on, as host:port. Port 0 takes a free port. An address other than loopback needs TLS, and issuers of tokens."`
	// TLS is the program's as well.
	TLS TLSConfig `yaml:"tls"`
	// Resource is the audience of tokens, and the name of the server behind the gateway in metadata and mappings.
	Resource string `yaml:"resource" doc:"The address by which clients reach the gateway, as https://host[:port]/mcp. Tokens must be made for it. It must be given."`
	// AllowedHosts and AllowedOrigins are compared with headers of requests, so that no page in a browser asks here by a
	// name of its own.
	AllowedHosts   []string `yaml:"allowed_hosts" doc:"Further values of the header Host that the gateway answers to, as host or host:port. Loopback names and the host of resource are always taken."`
	AllowedOrigins []string `yaml:"allowed_origins" doc:"Web pages that may ask from a browser, by the header Origin, as https://host[:port]. Others are pages that this very host serves, and on loopback any page of this machine unless identity is static; clients that are no browsers send no such header."`
	// Strict leaves out additions to the binding: operator mappings that are built in, and arguments in questions.
	Strict bool `yaml:"strict" doc:"Asks by the letter of the COAZ binding: methods for which it has no default mapping are denied, and with ask: coaz the question has no arguments. A client of MCP 2026-07-28 then cannot connect without mappings of yours."`
	// PDP is the PDP that is asked.
	PDP PDPConfig `yaml:"pdp"`
	// Identity says for whom requests are.
	Identity IdentityConfig `yaml:"identity"`
	// Ask, Declared, SubjectOverride and Dialects shape the question.
	Ask             Ask             `yaml:"ask" default:"tool.invoke" enum:"tool.invoke,tool,coaz" doc:"The question about a call of a tool. tool.invoke: may this agent invoke this tool with these arguments. tool: the same, but the action is called as the tool is, SERVER:TOOL, so that a Cedar schema can type the arguments of each tool; policy-service mcp schema writes it. Policies about all tools then need that schema, and say action in, not ==. coaz: the default mapping of the COAZ binding."`
	Declared        Declared        `yaml:"declared" default:"also" enum:"also,instead,ignore" doc:"What a mapping counts that the server declares with a tool. also: both questions are asked, and both must be permitted. instead: only the declared one, as the COAZ binding has it; then the server decides what is asked about it. ignore: it is not read."`
	SubjectOverride SubjectOverride `yaml:"subject_override" default:"refuse" enum:"refuse,warn" doc:"What becomes of a call if a declared mapping names another subject than the token does. refuse: it is refused. warn: it is asked, and logged."`
	Dialects        []string        `yaml:"dialects" enum:"authzen,sep" min:"1" doc:"The dialects of declared mappings that are read: authzen is x-authzen-mapping, sep is coaz with x-coaz-mapping. Both unless given."`
	// Arguments says which arguments of locked tools fit.
	Arguments Arguments `yaml:"arguments" default:"open" enum:"open,closed" doc:"Which arguments of a locked tool fit its inputSchema. open: as JSON Schema has it, so that members which the schema does not list are allowed unless it says otherwise. closed: they are refused, at the top and in each object of which the schema lists properties, unless it says what else may be there. The arguments of tools that are not locked are not held against anything."`
	// Errors, Denials and DenyHTTPStatus say how a refusal is written.
	Errors         ErrorCodes `yaml:"errors" default:"coaz" enum:"coaz,sep,mcpx" doc:"The codes of refusals. coaz: -32001, or -32401 for tools that declare in the dialect sep. sep: -32401 for all. mcpx: as coaz, and -32002 for a denied call, for clients before MCP 2026-07-28. The message of a call that a person must approve is then the two words Authorization required, and data.suggestion says the rest."`
	Denials        Denials    `yaml:"denials" default:"error" enum:"error,result" doc:"How a client gets the refusal of a tools/call: an error of JSON-RPC, or a result with isError: true whose text says the reason that the policy gives, and of a missing approval what happens next and the id of the request. Some hosts show models no errors of the protocol. Methods other than tools/call, and calls that cannot be meant, are refused by errors in any case."`
	DenyHTTPStatus int64      `yaml:"deny_http_status" default:"200" min:"200" max:"403" doc:"The status of the HTTP response to what is denied, 200 or 403; that of a result is 200. With 403 common clients show neither code nor reason of the refusal."`
	// Mappings are the operator's own, by method, or of one tool by "tools/call NAME:TOOL".
	Mappings map[string]config.Object `yaml:"mappings" doc:"Your own mappings, by the method of the request, in the dialect authzen. Besides params and token they may use server, tool and client. For tools/call a mapping takes the place of ask, and \"tools/call NAME:TOOL\" is for one tool of the upstream NAME."`
	// Upstreams are the servers behind the gateway, by names of the operator's.
	Upstreams map[string]UpstreamConfig `yaml:"upstreams" min:"1" doc:"The MCP servers behind the gateway, up to 32, by names of letters, digits, - and _. Policies see a tool as name:tool. Clients see tools and prompts by their own names if there is one server, and as name__tool if there are several."`
	// Lock has the definitions with which tools are compared.
	Lock LockConfig `yaml:"lock"`
	// Limits bound the cost of requests.
	Limits LimitsConfig `yaml:"limits"`
	// Sessions are of clients of the legacy era.
	Sessions  SessionsConfig  `yaml:"sessions"`
	Processes ProcessesConfig `yaml:"processes"`
	List      ListConfig      `yaml:"list"`
	Seal      SealConfig      `yaml:"seal"`
	// Obligations say how obligations are discharged that need more than the gateway itself.
	Obligations ObligationsConfig `yaml:"obligations"`
	// Approvals say how people are asked.
	Approvals ApprovalsConfig `yaml:"approvals"`
	// ToolRequests bound the requests for tools that wait.
	ToolRequests ToolRequestsConfig `yaml:"tool_requests"`
	// Meta are members of _meta that go on to the upstream.
	Meta []string `yaml:"meta" doc:"Members of _meta in requests that go on to the upstream, besides progressToken, the trace and what the protocol has there. All others are taken out."`
}

// SessionsConfig is how long sessions are kept, and how many.
type SessionsConfig struct {
	PerPerson int64         `yaml:"per_person" default:"64" min:"1" max:"10000" doc:"How many sessions one person may have, by all clients, and how many clients of MCP 2026-07-28. Beyond it the one that was not used for longest makes place; if all are busy, no other begins."`
	Idle      time.Duration `yaml:"idle" default:"30m" min:"1m" max:"24h" doc:"How long a session of a client before MCP 2026-07-28 is kept that has no stream and no request under way. Afterwards a client that comes with its id finds it begun anew."`
}

// ProcessesConfig is how many programs of a server run.
type ProcessesConfig struct {
	Most      int64 `yaml:"most" default:"256" min:"1" max:"100000" doc:"How many programs of one server run at once, of all sessions."`
	PerPerson int64 `yaml:"per_person" default:"32" min:"1" max:"100000" doc:"How many of them run for one person, by all clients; without a person, for one client. With identity.static there is one person, and no share."`
}

// TLSConfig is the certificate that clients see.
type TLSConfig struct {
	CertFile   string `yaml:"cert_file" doc:"The certificate of the gateway and the intermediate ones, in PEM. With it the gateway speaks TLS. A changed file takes effect without a restart."`
	KeyFile    string `yaml:"key_file" doc:"The private key of the certificate, in PEM, without a password."`
	MinVersion string `yaml:"min_version" default:"1.3" enum:"1.2,1.3" doc:"The oldest version of TLS that the gateway speaks to clients."`
}

// Ask is the question about a call, Declared the effect of a declared mapping, and ErrorCodes are those of refusals.
type (
	Ask        = ask.Ask
	Declared   = ask.Declared
	ErrorCodes = ask.Errors
)

// The questions, and the effects.
const (
	AskToolInvoke   = ask.ToolInvoke
	AskTool         = ask.ByTool
	AskCOAZ         = ask.COAZ
	DeclaredInstead = ask.Instead
	DeclaredIgnore  = ask.Ignore
)

// SubjectOverride is the treatment of a declared mapping with another subject.
type SubjectOverride string

// OverrideWarn asks, and logs it. The other treatment is refuse.
const OverrideWarn SubjectOverride = "warn"

// Arguments is which arguments fit.
type Arguments string

// ArgumentsClosed refuses members that a schema does not list. Otherwise it is open.
const ArgumentsClosed Arguments = "closed"

// Denials is how a refusal of a call is written.
type Denials string

// DenialsResult writes a result with isError. Otherwise it is an error of JSON-RPC.
const DenialsResult Denials = "result"
