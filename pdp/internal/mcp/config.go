package mcp

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/mcp/internal/arguments"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
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
	Listen   string    `yaml:"listen" default:"127.0.0.1:8181" doc:"The address to listen on, as host:port. Port 0 takes a free port. An address other than loopback needs TLS, and issuers of tokens."`
	Name     string    `yaml:"name" doc:"The name of this gateway where several stand behind one load balancer: up to 63 lower-case letters, digits and -, such as gateway-0. Ids of sessions before MCP 2026-07-28 begin with it and a dot, so that the balancer can route by the header Mcp-Session-Id. Each gateway has its own, for example by the variable MCP_GATEWAY_NAME. None unless given."`
	TLS      TLSConfig `yaml:"tls"`
	Resource string    `yaml:"resource" doc:"The address by which clients reach the gateway, as https://host[:port]/mcp. Tokens must be made for it. It must be given."`
	// AllowedHosts and AllowedOrigins are compared with headers of requests, so that no page in a browser asks here by a
	// name of its own.
	AllowedHosts    []string                  `yaml:"allowed_hosts" doc:"Further values of the header Host that the gateway answers to, as host or host:port. Loopback names and the host of resource are always taken."`
	AllowedOrigins  []string                  `yaml:"allowed_origins" doc:"Web pages that may ask from a browser, by the header Origin, as https://host[:port]. Others are pages that this very host serves, and on loopback any page of this machine unless identity is static; clients that are no browsers send no such header."`
	Strict          bool                      `yaml:"strict" doc:"Asks by the letter of the COAZ binding: methods for which it has no default mapping are denied, and with ask: coaz the question has no arguments. No client can then connect without mappings of yours for initialize or server/discover."`
	PDP             PDPConfig                 `yaml:"pdp"`
	Identity        IdentityConfig            `yaml:"identity"`
	Ask             Ask                       `yaml:"ask" default:"tool.invoke" enum:"tool.invoke,tool,coaz" doc:"The question about a call of a tool. tool.invoke: may this agent invoke this tool with these arguments. tool: the same, but the action is called as the tool is, SERVER:TOOL, so that a Cedar schema can type the arguments of each tool; policy-service mcp schema writes it. Policies about all tools then need that schema, and say action in, not ==. coaz: the default mapping of the COAZ binding."`
	Declared        ask.Declared              `yaml:"declared" default:"also" enum:"also,instead,ignore" doc:"What a mapping counts that the server declares with a tool. also: both questions are asked, and both must be permitted. instead: only the declared one, as the COAZ binding has it; then the server decides what is asked about it. ignore: it is not read."`
	SubjectOverride string                    `yaml:"subject_override" default:"refuse" enum:"refuse,warn" doc:"What becomes of a call if a declared mapping names another subject than the token does. refuse: it is refused. warn: it is asked, and logged."`
	Dialects        []string                  `yaml:"dialects" enum:"authzen,sep" min:"1" doc:"The dialects of declared mappings that are read: authzen is x-authzen-mapping, sep is coaz with x-coaz-mapping. Both unless given."`
	Arguments       arguments.Members         `yaml:"arguments" default:"open" enum:"open,closed" doc:"Which arguments of a locked tool fit its inputSchema. open: as JSON Schema has it, so that members which the schema does not list are allowed unless it says otherwise. closed: they are refused, at the top and in each object of which the schema lists properties, unless it says what else may be there. The arguments of tools that are not locked are not held against anything."`
	Errors          ask.Errors                `yaml:"errors" default:"coaz" enum:"coaz,sep,mcpx" doc:"The codes of refusals. coaz: -32001, or -32401 for tools that declare in the dialect sep. sep: -32401 for all. mcpx: as coaz, and -32002 for a denied call, for clients before MCP 2026-07-28. The message of a call that a person must approve is then the two words Authorization required, and data.suggestion says the rest."`
	Denials         Denials                   `yaml:"denials" default:"error" enum:"error,result" doc:"How a client gets the refusal of a tools/call: an error of JSON-RPC, or a result with isError: true whose text says the reason that the policy gives, and of a missing approval what happens next and the id of the request. Some hosts show models no errors of the protocol. Methods other than tools/call, and calls that cannot be meant, are refused by errors in any case."`
	DenyHTTPStatus  int64                     `yaml:"deny_http_status" default:"200" min:"200" max:"403" doc:"The status of the HTTP response to what is denied, 200 or 403; that of a result is 200. With 403 common clients show neither code nor reason of the refusal."`
	Mappings        map[string]config.Object  `yaml:"mappings" doc:"Your own mappings, by the method of the request, in the dialect authzen. Besides params and token they may use server, tool and client. For tools/call a mapping takes the place of ask, and \"tools/call NAME:TOOL\" is for one tool of the upstream NAME."`
	Upstreams       map[string]UpstreamConfig `yaml:"upstreams" min:"1" doc:"The MCP servers behind the gateway, up to 32, by names of letters, digits, - and _. Policies see a tool as name:tool. Clients see tools and prompts by their own names if there is one server, and as name__tool if there are several."`
	Lock            LockConfig                `yaml:"lock"`
	Limits          LimitsConfig              `yaml:"limits"`
	Sessions        SessionsConfig            `yaml:"sessions"`
	Processes       ProcessesConfig           `yaml:"processes"`
	List            ListConfig                `yaml:"list"`
	Seal            SealConfig                `yaml:"seal"`
	Obligations     ObligationsConfig         `yaml:"obligations"`
	Approvals       ApprovalsConfig           `yaml:"approvals"`
	Capabilities    CapabilitiesConfig        `yaml:"capabilities"`
	ToolRequests    ToolRequestsConfig        `yaml:"tool_requests"`
	// Log is how the messages for the operator are written. The program does that: see [Deps].
	Log  logging.Config `yaml:"log"`
	Meta []string       `yaml:"meta" doc:"Members of _meta in requests that go on to the upstream, besides progressToken, the trace and what the protocol has there. All others are taken out."`
}

// CapabilitiesConfig is how agents ask for capabilities, where the PDP has some.
type CapabilitiesConfig struct {
	HolderKey string `yaml:"holder_key" default:"client" enum:"client,gateway" doc:"Who keeps the key of an agent that asks for a capability without one. client refuses the request. With gateway it is a key of the gateway, made of the first of seal.key_files and the principal: the gateway proves the agent's requests and calls, and the record says so. Give every agent that can keep a key its own."`
	PerMinute int64  `yaml:"per_minute" default:"20" min:"1" max:"10000" doc:"How many capabilities one person may ask for in a minute, by all clients; without a person, one client."`
}

func (c CapabilitiesConfig) check(m *config.Reading, keys []string) {
	if c.HolderKey == HolderKeyGateway && len(keys) == 0 {
		m.Addf("capabilities.holder_key", "capabilities.holder_key is gateway, and there are no seal.key_files to make the keys of: they would end with the process; write seal: {key_files: [FILE]}")
	}
}

// SessionsConfig is how long sessions are kept, and how many.
type SessionsConfig struct {
	PerPerson int64         `yaml:"per_person" default:"64" min:"1" max:"10000" doc:"How many sessions one person may have, by all clients, and how many clients of MCP 2026-07-28. Beyond it the one that was not used for longest ends, and its client begins anew after a 404; if all are busy, no other begins."`
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

// Ask is the question about a call.
type Ask = ask.Ask

// The questions, and the effects.
const (
	AskToolInvoke   = ask.ToolInvoke
	AskTool         = ask.ByTool
	AskCOAZ         = ask.COAZ
	DeclaredInstead = ask.Instead
	DeclaredIgnore  = ask.Ignore
)

// Each of these keys has one value more, which is its default.
const (
	HolderKeyGateway   = "gateway"  // of capabilities.holder_key
	OverrideWarn       = "warn"     // of subject_override
	KeepAtPDP          = "pdp"      // of tool_requests.keep
	CapabilityRequired = "required" // of capability of an upstream
	RelayOn            = "relay"    // of the kinds of server_requests
)

type Denials string

// DenialsResult writes a result with isError. Otherwise it is an error of JSON-RPC.
const DenialsResult Denials = "result"

// IdentityConfig says for whom requests are.
type IdentityConfig struct {
	// Issuers are believed. Without one there is Static.
	Issuers      []IssuerConfig `yaml:"issuers" min:"1" doc:"Issuers whose access tokens the gateway takes."`
	SubjectClaim string         `yaml:"subject_claim" default:"sub" doc:"The claim that says who the person is: a name, or a JSON Pointer such as /act/sub."`
	AgentClaim   string         `yaml:"agent_claim" default:"client_id" doc:"The claim that says which agent asks: a name, or a JSON Pointer."`
	Properties   []string       `yaml:"properties" doc:"The claims that policies see as properties of the person. roles and department_id unless given."`
	Scopes       []string       `yaml:"scopes" min:"1" doc:"The scopes that clients are told to ask for. Whether a token has them, nobody looks: policies decide. None unless given."`
	Static       *StaticConfig  `yaml:"static" doc:"The one identity of every request, without a token: for --stdio, and for a gateway on loopback that only you use. It takes the place of issuers."`
}

// IssuerConfig is an issuer of access tokens.
type IssuerConfig = identity.Issuer

// StaticConfig is an identity that no token says.
type StaticConfig struct {
	Sub      string `yaml:"sub" required:"yes" doc:"Who the person is."`
	ClientID string `yaml:"client_id" doc:"Which agent asks. Without it the person asks alone."`
	Issuer   string `yaml:"iss" doc:"Whose name sub is: the issuer by whose tokens the same person decides about approvals, so that nobody approves what their own agent wants. resource unless given."`
}

func (i IdentityConfig) check(m *config.Reading, c *Config) {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case i.Static == nil && len(i.Issuers) == 0:
		m.Addf("identity", "identity says nothing of who may come; list issuers of tokens, or write static: {sub: NAME} if only you can come")
	case i.Static != nil && len(i.Issuers) > 0:
		m.Addf("identity.static", "identity has both static and issuers; keep one of them")
	case i.Static != nil && i.Static.Sub == "":
		m.Addf("identity.static", "identity.static has no sub; write who the person is")
	case i.Static != nil && err == nil && !auth.IsLoopbackName(host):
		m.Addf("identity.static", "identity.static would make everybody who reaches %q the same person; listen on loopback, or list issuers instead", c.Listen)
	}
	for n, issuer := range i.Issuers {
		if err := checkIssuer(issuer); err != nil {
			m.Addf(fmt.Sprintf("identity.issuers[%d]", n), "identity.issuers[%d]: %w", n, err)
		}
	}
	if n, err := identity.Apart(identity.Options{Issuers: i.Issuers, DefaultTenant: c.PDP.Tenant}); err != nil {
		m.Addf(fmt.Sprintf("identity.issuers[%d]", n), "identity.issuers[%d]: %w", n, err)
	}
}

func checkIssuer(i IssuerConfig) error {
	switch {
	case i.Issuer == "" || strings.Contains(i.Issuer, "#"):
		return errors.New("issuer is missing or has a fragment; write it as in the claim iss of the tokens")
	case len(i.Algorithms) == 0:
		return errors.New("algorithms is missing; list those the issuer signs with, such as RS256 or ES256")
	case i.Tenant != "" && !evaluation.IsTenantName(i.Tenant):
		return errors.New("tenant is no name of a tenant; write it as the directory is called")
	}
	if err := overTLS(i.Issuer); err != nil && i.JWKSFile == "" {
		return fmt.Errorf("issuer %w, or use jwks_file", err)
	}
	return nil
}

func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// PDPConfig is the PDP that is asked: a server, or one in this process.
type PDPConfig struct {
	URL      string          `yaml:"url" doc:"The address of the PDP. It is https, or http on loopback."`
	CAFile   string          `yaml:"ca_file" doc:"The root certificates to trust as the PDP's, in PEM, instead of the system's."`
	Embedded *EmbeddedConfig `yaml:"embedded" doc:"A PDP in this process, in place of url."`
	Tenant   string          `yaml:"tenant" default:"default" doc:"The tenant whose policies decide, unless the issuer of the token has its own."`
	KeyFile  string          `yaml:"key_file" doc:"The API key of the gateway, in a file. It needs the permissions decide, search, request and relay, and capability if agents ask for capabilities. The gateway reads the file again if it changes. The PDP in this process needs none."`
	Timeout  time.Duration   `yaml:"timeout" default:"2s" min:"10ms" max:"1m" doc:"How long a question may take. Without an answer the request is refused."`
	Breaker  BreakerConfig   `yaml:"breaker"`
}

// EmbeddedConfig is a PDP in this process.
type EmbeddedConfig struct {
	Policies string `yaml:"policies" path:"yes" doc:"The directory of the bundle. The PDP watches it: an edit is in force a moment later."`
	Data     string `yaml:"data" path:"yes" doc:"The directory for the decision log, approvals and keys. Without it there is no decision log, and nobody is asked for an approval."`
	LogMode  string `yaml:"log_mode" default:"strict" enum:"strict,best_effort" doc:"strict: a request goes on once its decision is on disk. best_effort: requests do not wait, and some decisions may have no record."`
}

// BreakerConfig is when the PDP is no longer asked for a while.
type BreakerConfig struct {
	Failures int64         `yaml:"failures" default:"5" min:"1" max:"1000" doc:"After so many questions in a row without an answer the gateway refuses at once, without asking."`
	CoolDown time.Duration `yaml:"cool_down" default:"10s" min:"100ms" max:"10m" doc:"After how long the gateway asks one question again."`
}

// LimitsConfig bounds the cost of requests, before the PDP is asked.
type LimitsConfig struct {
	MaxBody        config.Size   `yaml:"max_body" default:"1MiB" min:"1KiB" max:"16MiB" doc:"The size of a request."`
	MaxArguments   config.Size   `yaml:"max_arguments" default:"512KiB" min:"1KiB" max:"960KiB" doc:"The size of the arguments of a call. They stand in the question, and a PDP takes 1 MiB."`
	MaxConnections int64         `yaml:"max_connections" min:"1" max:"1048576" doc:"How many connections may be open at once. 4096 unless given, or fewer if the process may not open so many files."`
	Rate           config.Rate   `yaml:"rate" default:"50/s" min:"1/h" max:"1000000/s" doc:"How often one person may ask in the long run, by whatever clients; without a person, one client. A result counts once more for each 256 KiB, the start of a program twenty times more. Each 32 questions that a request causes count once more, and so does each message that the gateway itself sends to a server, three for a session. That work waits for its share for up to two seconds, and is refused beyond that. With identity.static there is no limit."`
	Burst          int64         `yaml:"burst" default:"200" min:"1" max:"1000000" doc:"How many requests of one person may come at once. Answers, cancellations and the end of a session count, and are never refused. Beyond twice rate and burst each message waits for one to two seconds."`
	PerPrincipal   PrincipalRate `yaml:"per_principal"`
	PerTool        ToolRate      `yaml:"per_tool"`
}

// PrincipalRate bounds one principal: a person by an agent.
type PrincipalRate struct {
	Rate       config.Rate `yaml:"rate" min:"1/h" max:"1000000/s" doc:"How often one principal may ask in the long run. No limit unless given."`
	Burst      int64       `yaml:"burst" min:"1" max:"1000000" doc:"How many requests of one principal may come at once. It needs rate. As many as come in a second unless given."`
	Concurrent int64       `yaml:"concurrent" default:"128" min:"1" max:"100000" doc:"How many requests of one principal may be under way at once. Streams to which its person only listens are counted apart: there may be as many of one person, by all clients."`
}

// ToolRate bounds the calls of one tool by one principal.
type ToolRate struct {
	Rate  config.Rate `yaml:"rate" min:"1/h" max:"1000000/s" doc:"How often one principal may call one tool in the long run. No limit unless given."`
	Burst int64       `yaml:"burst" min:"1" max:"1000000" doc:"How many calls of one tool may come at once. It needs rate. As many as come in a second unless given."`
}

// ListConfig is about lists of tools, prompts and resources.
type ListConfig struct {
	Cache time.Duration `yaml:"cache" default:"5s" min:"1ms" max:"5s" doc:"How long the gateway keeps what a server says of its tools. What of it a principal may see is decided each time."`
	TTL   time.Duration `yaml:"ttl" max:"1h" doc:"How long clients may keep a list. They do not keep it unless given."`
}

// SealConfig has the keys of the state that clients keep for the gateway.
type SealConfig struct {
	KeyFiles []string `yaml:"key_files" path:"yes" min:"1" doc:"Files with the keys of sessions and cursors that clients hold: 32 random bytes each, or their base64url. The first one seals, all of them open. Gateways with the same files are replicas of each other. Without it a key is made at each start."`
}

// ObligationsConfig are how obligations are discharged. A type without an entry is not declared to the PDP, except redact.
type ObligationsConfig struct {
	Notification *WebhookConfig           `yaml:"notification" doc:"Where notifications go that a decision demands."`
	Log          *LogConfig               `yaml:"log" doc:"Where entries go that a decision demands to be logged."`
	Custom       map[string]WebhookConfig `yaml:"custom" doc:"Where obligations of a type of your own go, by their name."`
}

// WebhookConfig is a receiver of obligations.
type WebhookConfig struct {
	Webhook string `yaml:"webhook" required:"yes" secret:"path" doc:"The URL that gets each of these obligations. It is https, or http on loopback."`
	KeyFile string `yaml:"key_file" doc:"The key that signs the messages, in a file."`
}

// LogConfig is the file of the obligation log.
type LogConfig struct {
	File string `yaml:"file" required:"yes" path:"yes" doc:"The file to which entries are added, a line of JSON each."`
}

// ApprovalsConfig is how people are asked about a call that needs them.
type ApprovalsConfig struct {
	Channels     []string      `yaml:"channels" enum:"form,url,wait" min:"1" doc:"How people are asked, in the order in which it is tried. form: the person behind the token, by a form in the client. Without it nobody decides through this gateway: authorization/respond is refused, and what waits is announced to nobody. url: the same person, by a page of the PDP's console that the client opens. wait: whoever may decide, by the console or elsewhere, while the call waits. The PDP says who may decide in which way. All three unless given."`
	Wait         time.Duration `yaml:"wait" default:"25s" min:"100ms" max:"25s" doc:"How long a request waits for people. Then it is refused, or a client of MCP 2026-07-28 is told to send it again; the same call again goes on waiting, and nobody is asked twice."`
	OnDisconnect OnDisconnect  `yaml:"on_disconnect" default:"keep" enum:"keep,cancel" doc:"What becomes of what people were asked if the client goes away. keep: they may decide, and the same call again finds what they said. cancel: it is taken back, unless another call of this process waits for the same."`
	PerPrincipal int64         `yaml:"per_principal" default:"32" min:"1" max:"100000" doc:"How many calls of one person, by all their clients, may wait for people at once. More are refused, and nobody is asked about them."`
	Waiting      int64         `yaml:"waiting" default:"4096" min:"1" max:"1000000" doc:"How many calls may wait for people at once, of all persons together."`
}

// OnDisconnect is the treatment of a question to people if the client goes away.
type OnDisconnect string

// The treatments.
const (
	DisconnectKeep   OnDisconnect = people.KeepAsking
	DisconnectCancel OnDisconnect = people.CancelTask
)

func (a ApprovalsConfig) check(m *config.Reading) {
	for n, channel := range a.Channels {
		if slices.Contains(a.Channels[:n], channel) {
			m.Addf(fmt.Sprintf("approvals.channels[%d]", n), "approvals.channels has %s twice; write each way once", channel)
		}
	}
	if a.PerPrincipal > a.Waiting {
		m.Addf("approvals.per_principal", "approvals.per_principal is more than waiting, which is for all persons together; write less, or more there")
	}
}

func (a ApprovalsConfig) settings() people.Approvals {
	channels := a.Channels
	if channels == nil {
		channels = []string{people.ByForm, people.ByURL, people.ByWait}
	}
	return people.Approvals{Channels: channels, Wait: a.Wait, OnDisconnect: string(a.OnDisconnect)}
}

// ToolRequestsConfig bounds the requests for tools (tools/request) that wait until another caller fulfils them.
type ToolRequestsConfig struct {
	TTL          time.Duration `yaml:"ttl" default:"15m" min:"1s" max:"24h" doc:"How long a request for a tool (tools/request) waits for somebody to fulfil it, and how long what came of it is kept for who has requested it."`
	PerPrincipal int64         `yaml:"per_principal" default:"32" min:"1" max:"100000" doc:"How many requests for tools of one person, by all their clients, may wait. More are refused."`
	Keep         string        `yaml:"keep" default:"memory" enum:"memory,pdp" doc:"memory: requests are known to this process alone, and are gone after a restart. pdp: the PDP keeps them, sealed with seal.key_files, so that every gateway with the same files and pdp.key_file knows them. It keeps 4096 in a tenant, of 256 KiB each at the most and 64 MiB together."`
	Pending      int64         `yaml:"pending" default:"1024" min:"1" max:"100000" doc:"How many requests for tools may wait, of all persons together. Those that one gateway knows are in its memory, with what came of them in 64 MiB at the most."`
}

func (r ToolRequestsConfig) check(m *config.Reading, sealed bool) {
	if r.Keep == KeepAtPDP && !sealed {
		m.Addf("tool_requests.keep", "tool_requests.keep is pdp, and without seal.key_files no other gateway could read what is kept; list them, or leave keep out")
	}
	if r.PerPrincipal > r.Pending {
		m.Addf("tool_requests.per_principal", "tool_requests.per_principal is more than pending, which is for all persons together; write less, or more there")
	}
}

// LockConfig has the definitions of tools that were accepted, with which tools are compared.
type LockConfig struct {
	File string   `yaml:"file" path:"yes" doc:"The file with the definitions of tools that were accepted. policy-service mcp lock --accept writes it. A changed file takes effect without a restart. Nothing is locked unless given."`
	Mode LockMode `yaml:"mode" enum:"enforce,warn,off" doc:"What becomes of what is not as it is locked; enforce unless given. enforce: a tool that is new or changed is neither listed nor callable, as if it did not exist, and clients are told the instructions that are locked. warn: policies see pinned: false with such a tool. off: nothing is compared."`
}

// LockMode is the treatment of tools that differ from the lock.
type LockMode string

// The treatments.
const (
	LockEnforce LockMode = "enforce"
	LockWarn    LockMode = "warn"
	LockOff     LockMode = "off"
)

func (l LockConfig) check(m *config.Reading) {
	if l.File == "" && l.Mode != "" && l.Mode != LockOff {
		m.Addf("lock.mode", "lock has a mode and no file, so that nothing would be locked; write lock.file, and make the file with: policy-service mcp lock --accept")
	}
}
