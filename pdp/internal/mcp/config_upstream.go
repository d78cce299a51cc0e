package mcp

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
)

// UpstreamConfig is an MCP server behind the gateway: one at a URL, or a program that is started.
type UpstreamConfig struct {
	URL            string                `yaml:"url" secret:"path" doc:"The address of the server. It is https, or http if its network is in allow_networks."`
	CAFile         string                `yaml:"ca_file" doc:"The root certificates to trust as the server's, in PEM, instead of the system's."`
	Command        []string              `yaml:"command" min:"1" doc:"The program of the server and its arguments, in place of url. Each client session has a process of its own, over the standard streams. No shell reads it."`
	Env            map[string]string     `yaml:"env" doc:"The environment variables of the program. It gets no others but those of env_files."`
	EnvFiles       map[string]string     `yaml:"env_files" path:"yes" doc:"Environment variables of the program whose values are in files, because they are secret."`
	Secret         []string              `yaml:"secret" min:"1" doc:"Names of env_files whose values are masked in what the program says, besides those that look like a secret's, such as API_TOKEN. A value has 16 bytes or more."`
	Dir            string                `yaml:"dir" path:"yes" doc:"The directory in which the program starts. The gateway's own unless given."`
	Idle           time.Duration         `yaml:"idle" default:"2m" min:"1s" max:"24h" doc:"How long the program runs on for a client before MCP 2026-07-28 that closed its stream and has nothing under way. The client's next message starts the program again."`
	Stateful       bool                  `yaml:"stateful" doc:"Whether the program remembers what its client did. It then runs for as long as the client's session, whatever idle says."`
	Auth           UpstreamAuth          `yaml:"auth"`
	AllowNetworks  []string              `yaml:"allow_networks" doc:"Private networks in which the server may stand, such as 10.1.0.0/16, or 127.0.0.0/8 for this machine. Addresses of no other private network are reached."`
	Eras           []string              `yaml:"eras" enum:"modern,legacy" min:"1" doc:"The eras of MCP that the server may be spoken to in: modern is 2026-07-28, legacy what was before. Both unless given: a server that speaks both is spoken to in its client's."`
	URIs           []string              `yaml:"uris" min:"1" doc:"How the URIs of the resources begin that are the server's, such as file:///docs/. Clients see and read no others of it, and none with a segment of dots or a backslash, escaped, in wide characters or as Windows reads it. A host at the end, as in https://example.com, is compared whole. One server has all unless given; of several, a server without uris has none."`
	Params         []string              `yaml:"params" min:"1" doc:"Members of params that go on to the server, besides those that MCP has for the request. All others are left out, and the log names each once. Policies see them only by a mapping of yours."`
	Labels         map[string]string     `yaml:"labels" doc:"Labels that policies see with every tool of the server."`
	Tools          map[string]ToolConfig `yaml:"tools" doc:"What you say of single tools, by their names."`
	Capability     string                `yaml:"capability" default:"optional" enum:"optional,required" doc:"Whether a call of the server's tools must show a capability. optional: where policies ask for one. required: a call, or a request for one, that shows none is refused before the PDP is asked. The fulfilment of a request needs none of its own. It cannot be required where the PDP takes none: with ask: coaz or ask: tool, with declared: instead, and for tools with a mapping of yours."`
	ServerRequests ServerRequests        `yaml:"server_requests"`
	Timeout        time.Duration         `yaml:"timeout" default:"60s" min:"100ms" max:"1h" doc:"How long the server may be silent about a request."`
	MaxResult      config.Size           `yaml:"max_result" default:"4MiB" min:"1KiB" max:"64MiB" doc:"The size of a message of the server."`
}

// UpstreamAuth is one of three, or none: then the gateway shows nothing.
type UpstreamAuth struct {
	Header            string         `yaml:"header" doc:"The name of the header that header_file is for. Authorization unless given."`
	HeaderFile        string         `yaml:"header_file" doc:"The value of a header that every request to the server has, such as Bearer and a token, in a file. The gateway reads the file again if it changes."`
	TokenExchange     *TokenEndpoint `yaml:"token_exchange" doc:"Exchanges each client's token for one that is for the server (RFC 8693)."`
	ClientCredentials *TokenEndpoint `yaml:"client_credentials" doc:"Gets a token of the gateway's own (OAuth 2.0, client credentials)."`
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
	Elicitation string   `yaml:"elicitation" default:"deny" enum:"deny,relay" doc:"Whether the server may ask the person something through the client."`
	Sampling    string   `yaml:"sampling" default:"deny" enum:"deny,relay" doc:"Whether the server may have the client's model generate something."`
	Roots       string   `yaml:"roots" default:"deny" enum:"deny,relay" doc:"Whether the server may ask for the client's directories."`
	Hosts       []string `yaml:"hosts" doc:"The hosts, as host or host:port, of the pages that the server may have a person open. None unless given."`
}

// upstreamName is legal if it can be separated from a tool's name behind it: a colon ends it in policies, and two underscores
// where several upstreams are.
var upstreamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// mostUpstreams is how many there may be: each client has a session with each that it uses.
const mostUpstreams = 32

func (c *Config) checkUpstreams(m *config.Reading) {
	switch n := len(c.Upstreams); {
	case n == 0:
		m.Addf("upstreams", "upstreams is missing; write the MCP server behind the gateway: upstreams: {NAME: {url: …}} or {NAME: {command: [PROGRAM, ARGUMENT]}}")
	case n > mostUpstreams:
		m.Addf("upstreams", "there are %d upstreams, and a gateway takes %d; start another gateway for the others", n, mostUpstreams)
	}
	names := map[string]string{}  // by the name in small letters
	begins := map[string]string{} // the names of the upstreams, by how their resources begin
	for _, name := range sortedNames(c.Upstreams) {
		path := config.Entry("upstreams", name)
		switch other := names[strings.ToLower(name)]; {
		case !upstreamName.MatchString(name) || strings.Contains(name, "__"):
			m.Addf(path, "%q is no name of an upstream; write up to 32 letters, digits, - and _, without two _ in a row", name)
		case len(c.Upstreams) > 1 && strings.HasSuffix(name, "_"):
			m.Addf(path, "%q ends with _, and with several upstreams nobody could tell where it ends in the names of tools; write %q", name, strings.TrimRight(name, "_"))
		case other != "":
			m.Addf(path, "%q and %q are upstreams that differ in case alone, and people would take them for one; rename one of them", name, other)
		}
		names[strings.ToLower(name)] = name
		u := c.Upstreams[name]
		u.checkURIs(m, name, begins)
		u.checkParams(m, path)
		if why := c.asksOtherwise(name); u.Capability == CapabilityRequired && why != "" {
			m.Addf(path+".capability", "%s.capability is required, and %s asks about calls in a form with which the PDP takes no capability; write optional, or take %s out", path, why, why)
		}
		if u.check(m, path); u.Auth.TokenExchange != nil && c.Identity.Static != nil {
			m.Addf(path+".auth.token_exchange", "%s.auth.token_exchange exchanges the tokens of clients, and with identity.static they have none; list issuers, or use client_credentials", path)
		}
	}
}

// reservedParams are the members of params that the gateway reads or writes itself, and those of tasks, which it does not pass on.
var reservedParams = []string{"_meta", "capability", "proof", "onBehalfOf", "requestId", "inputResponses", "requestState", "task"}

func (u UpstreamConfig) checkParams(m *config.Reading, path string) {
	for n, name := range u.Params {
		if slices.Contains(reservedParams, name) {
			at := fmt.Sprintf("%s.params[%d]", path, n)
			m.Addf(at, "%s is %q, which is between client and gateway or the protocol's own; take it out", at, name)
		}
	}
}

// asksOtherwise is what has calls of an upstream asked about in another form than by tool.invoke, "" if nothing does.
func (c *Config) asksOtherwise(upstream string) string {
	switch {
	case c.Ask == AskCOAZ, c.Ask == AskTool:
		return "ask: " + string(c.Ask)
	case c.Declared == DeclaredInstead:
		return "declared: " + string(c.Declared)
	}
	for _, name := range sortedNames(c.Mappings) {
		if name == "tools/call" || strings.HasPrefix(name, "tools/call "+upstream+":") {
			return config.Entry("mappings", name)
		}
	}
	return ""
}

// checkURIs adds the upstream's to those of the upstreams before it. Each resource is of one upstream at the most.
func (u UpstreamConfig) checkURIs(m *config.Reading, name string, begins map[string]string) {
	for n, begin := range u.URIs {
		at := fmt.Sprintf("%s.uris[%d]", config.Entry("upstreams", name), n)
		if !uriBegin.MatchString(begin) {
			m.Addf(at, "%s is not how a URI begins; write the scheme, a colon and as much as all of the server's resources have, such as file:///docs/", at)
			continue
		}
		for _, other := range sortedNames(begins) {
			if of := begins[other]; of != name && link.Overlap(begin, other) {
				m.Addf(at, "%s is %q, and upstreams.%s.uris has %q: some resources would be of both; write more of one of them, so that neither begins with the other", at, begin, of, other)
			}
		}
		begins[begin] = name
	}
}

// WholeHosts returns, by their places in the file, what to say of the entries of uris that end with a host.
func (c *Config) WholeHosts() map[string]error {
	all := map[string]error{}
	for name, u := range c.Upstreams {
		for n, begin := range u.URIs {
			if at := fmt.Sprintf("%s.uris[%d]", config.Entry("upstreams", name), n); link.EndsWithHost(begin) {
				all[at] = fmt.Errorf("%s is %q, which ends with a host, so only URIs of this very host are the server's: none of a host that begins so, of another port or with a user's name; write %q", at, begin, begin+"/")
			}
		}
	}
	return all
}

var uriBegin = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[!-~]*$`)

func (u UpstreamConfig) check(m *config.Reading, path string) {
	checkNetworks(m, path, u.AllowNetworks)
	switch {
	case u.URL == "" && len(u.Command) == 0:
		m.Addf(path, "%s has neither url nor command; write where the server is, or which program it is", path)
	case u.URL != "" && len(u.Command) > 0:
		m.Addf(path+".url", "%s has a url and a command; keep one of them", path)
	case u.URL != "":
		if err := checkUpstreamURL(u.URL, prefixes(u.AllowNetworks)); err != nil {
			m.Addf(path+".url", "%s.url %w", path, err)
		}
		if u.Env != nil || u.EnvFiles != nil || u.Secret != nil || u.Dir != "" || u.Stateful {
			m.Addf(path, "%s has a url, and env, env_files, secret, dir and stateful are for a command; leave them out", path)
		}
	default:
		u.checkCommand(m, path)
	}
	u.Auth.check(m, path+".auth")
	for n, host := range u.ServerRequests.Hosts {
		if !isHost(host) || host != strings.ToLower(host) {
			m.Addf(fmt.Sprintf("%s.server_requests.hosts[%d]", path, n), "%s.server_requests.hosts has what is no host in small letters; write it like pay.example.com or pay.example.com:8443", path)
		}
	}
}

func (u UpstreamConfig) checkCommand(m *config.Reading, path string) {
	if u.Auth != (UpstreamAuth{}) || u.AllowNetworks != nil || u.CAFile != "" {
		m.Addf(path, "%s has a command, and auth, allow_networks and ca_file are for a url; leave them out (a program takes its secrets by env_files)", path)
	}
	for n, argument := range u.Command {
		if strings.ContainsRune(argument, 0) {
			m.Addf(fmt.Sprintf("%s.command[%d]", path, n), "%s.command has a NUL in it; take it out", path)
		}
	}
	if strings.ContainsRune(u.Dir, 0) {
		m.Addf(path+".dir", "%s.dir has a NUL in it; take it out", path)
	}
	for _, name := range sortedNames(u.Env) {
		at := config.Entry(path+".env", name)
		if secretName.MatchString(name) {
			m.Addf(at, "%s looks like a secret, and this file is not the place for one; write it into a file of its own, and the file's name into env_files", at)
		}
		if strings.ContainsRune(u.Env[name], 0) {
			m.Addf(at, "%s has a NUL in it; take it out", at)
		}
		checkVariable(m, at, name)
	}
	for _, name := range sortedNames(u.EnvFiles) {
		at := config.Entry(path+".env_files", name)
		if _, twice := u.Env[name]; twice {
			m.Addf(at, "%s is in env as well; keep one of them", at)
		}
		checkVariable(m, at, name)
	}
	for n, name := range u.Secret {
		if _, ok := u.EnvFiles[name]; !ok {
			at := fmt.Sprintf("%s.secret[%d]", path, n) // which may be a secret itself, and is not repeated
			m.Addf(at, "%s is no name in env_files; list names of variables, and have their values in files of their own", at)
		}
	}
}

var (
	secretName   = regexp.MustCompile(`(?i)(secret|passw(or)?d|token|credential|private|api_?key|access_?key|(^|_)pat($|_))`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func checkVariable(m *config.Reading, path, name string) {
	if !variableName.MatchString(name) {
		m.Addf(path, "%q is no name of an environment variable; write letters, digits and _", name)
	}
}

func checkNetworks(m *config.Reading, path string, texts []string) {
	for n, text := range texts {
		network, err := netip.ParsePrefix(text)
		at := fmt.Sprintf("%s.allow_networks[%d]", path, n)
		switch {
		case err != nil:
			m.Addf(at, "%s is no network; write it like 10.1.0.0/16 or 127.0.0.0/8", at)
		case network != network.Masked():
			m.Addf(at, "%s has bits beyond its mask; write %s", at, network.Masked())
		}
	}
}

// checkUpstreamURL refuses an URL that would be refused later, when the address is known.
func checkUpstreamURL(address string, networks []netip.Prefix) error {
	u, err := plainAddress(address)
	if err != nil {
		return err
	}
	refused := func(at netip.Addr, plain bool) bool { return upstream.CheckAddress(at, networks, plain) != nil }
	at, err := netip.ParseAddr(u.Hostname())
	isName, plain := err != nil, u.Scheme == "http"
	switch {
	case plain && (len(networks) == 0 || !isName && !refused(at, false) && refused(at, true)):
		return errors.New("is reached without TLS; write https, or list the network in which the server stands in allow_networks")
	case isName && auth.IsLoopbackName(u.Hostname()) && refused(netip.MustParseAddr("127.0.0.1"), false) && refused(netip.IPv6Loopback(), false): // localhost is one of two
		return errors.New("is on this machine; add allow_networks: [127.0.0.0/8] if that is meant")
	case !isName && refused(at, false):
		return fmt.Errorf("is in a private network, or on this machine; add its network to allow_networks if that is meant, such as %s", netip.PrefixFrom(at, at.BitLen()))
	}
	return nil
}

func (a UpstreamAuth) check(m *config.Reading, path string) {
	file, exchange, own := a.HeaderFile != "", a.TokenExchange != nil, a.ClientCredentials != nil
	switch {
	case a.Header != "" && !file:
		m.Addf(path+".header", "%s has a header without its value; write header_file, or leave it out", path)
	case a.Header != "" && !upstream.ForCredentials(a.Header):
		m.Addf(path+".header", "%s.header is no header that a credential can be in; write one such as Authorization or X-Api-Key", path)
	}
	if t := a.TokenExchange; exchange {
		t.check(m, path+".token_exchange")
		if t.Audience == "" && t.Resource == "" {
			m.Addf(path+".token_exchange", "%s.token_exchange says not for whom the token is to be; write audience or resource", path)
		}
	}
	if own {
		a.ClientCredentials.check(m, path+".client_credentials")
	}
	if file && exchange || file && own || exchange && own {
		m.Addf(path, "%s says more than one credential; keep one of header_file, token_exchange and client_credentials", path)
	}
}

func (t TokenEndpoint) check(m *config.Reading, path string) {
	checkNetworks(m, path, t.AllowNetworks)
	switch err := overTLS(t.TokenURL); {
	case t.TokenURL == "" || t.ClientID == "" || t.ClientSecretFile == "":
		m.Addf(path, "%s lacks token_url, client_id or client_secret_file; write all of them", path)
	case err != nil:
		m.Addf(path+".token_url", "%s.token_url %w", path, err)
	}
}
