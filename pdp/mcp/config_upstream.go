package mcp

import (
	"time"

	"policy-service/pdp/server/config"
)

// UpstreamConfig is an MCP server behind the gateway: one at a URL, or a program that is started.
type UpstreamConfig struct {
	URL     string   `yaml:"url" secret:"path" doc:"The address of the server. It is https, or http if its network is in allow_networks."`
	CAFile  string   `yaml:"ca_file" doc:"The root certificates to trust as the server's, in PEM, instead of the system's."`
	Command []string `yaml:"command" min:"1" doc:"The program of the server and its arguments, in place of url. Each client session has a process of its own, over the standard streams. No shell reads it."`
	// Env and EnvFiles are all of the process's environment.
	Env      map[string]string `yaml:"env" doc:"The environment variables of the program. It gets no others but those of env_files."`
	EnvFiles map[string]string `yaml:"env_files" path:"yes" doc:"Environment variables of the program whose values are in files, because they are secret."`
	Secret   []string          `yaml:"secret" min:"1" doc:"Names of env_files whose values are masked in what the program says, besides those that look like a secret's, such as API_TOKEN. A value has 16 bytes or more."`
	Dir      string            `yaml:"dir" path:"yes" doc:"The directory in which the program starts. The gateway's own unless given."`
	Idle     time.Duration     `yaml:"idle" default:"2m" min:"1s" max:"24h" doc:"How long the program runs on for a client before MCP 2026-07-28 that closed its stream and has nothing under way. The client's next message starts the program again."`
	Stateful bool              `yaml:"stateful" doc:"Whether the program remembers what its client did. It then runs for as long as the client's session, whatever idle says."`
	// Auth is the credential of the gateway at the server.
	Auth          UpstreamAuth          `yaml:"auth"`
	AllowNetworks []string              `yaml:"allow_networks" doc:"Private networks in which the server may stand, such as 10.1.0.0/16, or 127.0.0.0/8 for this machine. Addresses of no other private network are reached."`
	Eras          []string              `yaml:"eras" enum:"modern,legacy" min:"1" doc:"The eras of MCP that the server may be spoken to in: modern is 2026-07-28, legacy what was before. Both unless given: a server that speaks both is spoken to in its client's."`
	URIs          []string              `yaml:"uris" min:"1" doc:"How the URIs of the resources begin that are the server's, such as file:///docs/. Clients see and read no others of it, and none with a segment of dots or a backslash, escaped or not. One server has all unless given; of several, a server without uris has none."`
	Labels        map[string]string     `yaml:"labels" doc:"Labels that policies see with every tool of the server."`
	Tools         map[string]ToolConfig `yaml:"tools" doc:"What you say of single tools, by their names."`
	// ServerRequests are the kinds of requests of the server to clients.
	ServerRequests ServerRequests `yaml:"server_requests"`
	Timeout        time.Duration  `yaml:"timeout" default:"60s" min:"100ms" max:"1h" doc:"How long the server may be silent about a request."`
	MaxResult      config.Size    `yaml:"max_result" default:"4MiB" min:"1KiB" max:"64MiB" doc:"The size of a message of the server."`
}

// UpstreamAuth is one of three, or none: then the gateway shows nothing.
type UpstreamAuth struct {
	// HeaderFile is the value of Header.
	Header            string             `yaml:"header" doc:"The name of the header that header_file is for. Authorization unless given."`
	HeaderFile        string             `yaml:"header_file" doc:"The value of a header that every request to the server has, such as Bearer and a token, in a file. The gateway reads the file again if it changes."`
	TokenExchange     *TokenExchange     `yaml:"token_exchange" doc:"Exchanges each client's token for one that is for the server (RFC 8693)."`
	ClientCredentials *ClientCredentials `yaml:"client_credentials" doc:"Gets a token of the gateway's own (OAuth 2.0, client credentials)."`
}

// TokenExchange is an authorization server that makes tokens out of tokens.
type TokenExchange struct {
	TokenEndpoint `yaml:",inline"`
}

// ClientCredentials is an authorization server that makes tokens for the gateway.
type ClientCredentials struct {
	TokenEndpoint `yaml:",inline"`
}

// TokenEndpoint is the address at which tokens are made, with the identity of the gateway there.
type TokenEndpoint struct {
	TokenURL         string   `yaml:"token_url" required:"yes" doc:"The token endpoint of the authorization server. It is https, or http on loopback."`
	ClientID         string   `yaml:"client_id" required:"yes" doc:"The gateway's own client id there."`
	ClientSecretFile string   `yaml:"client_secret_file" required:"yes" doc:"The gateway's own client secret there, in a file. The gateway reads it for each token."`
	CAFile           string   `yaml:"ca_file" doc:"The root certificates to trust as the authorization server's, in PEM, instead of the system's."`
	AllowNetworks    []string `yaml:"allow_networks" doc:"Private networks in which the authorization server may stand, as those of the upstream."`
	Audience         string   `yaml:"audience" doc:"The audience of the token to ask for. token_exchange needs this or resource."`
	Resource         string   `yaml:"resource" doc:"The resource of the token to ask for (RFC 8707)."`
	Scopes           []string `yaml:"scopes" min:"1" doc:"The scopes of the token to ask for."`
}

// ToolConfig is the configuration of one tool.
type ToolConfig struct {
	Labels map[string]string `yaml:"labels" doc:"Labels that policies see with the tool, besides those of the server. The tool's own win."`
	Hidden bool              `yaml:"hidden" doc:"Whether the tool is neither listed nor callable, as if the server did not have it."`
}

// ServerRequests permit requests of a server to a client, kind by kind.
type ServerRequests struct {
	Elicitation Relay `yaml:"elicitation" default:"deny" enum:"deny,relay" doc:"Whether the server may ask the person something through the client."`
	Sampling    Relay `yaml:"sampling" default:"deny" enum:"deny,relay" doc:"Whether the server may have the client's model generate something."`
	Roots       Relay `yaml:"roots" default:"deny" enum:"deny,relay" doc:"Whether the server may ask for the client's directories."`
	// Hosts bound where an elicitation may lead.
	Hosts []string `yaml:"hosts" doc:"The hosts, as host or host:port, of the pages that the server may have a person open. None unless given."`
}

// Relay is whether requests of a kind are relayed.
type Relay string

// The treatments of such a request.
const (
	RelayDeny Relay = "deny"
	RelayOn   Relay = "relay"
)
