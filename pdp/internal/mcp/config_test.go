package mcp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
)

var updateSchema = flag.Bool("update-schema", false, "write schemas/mcp-gateway.schema.json")

// least is the shortest file that works.
const least = `resource: http://127.0.0.1:8181/mcp
pdp: {url: http://127.0.0.1:8180}
identity: {static: {sub: me}}
upstreams: {files: {command: [mcp-server-filesystem, /srv]}}
`

// full says every key.
const full = `listen: 0.0.0.0:8443
name: gateway-0
tls: {cert_file: tls.crt, key_file: tls.key, min_version: "1.2"}
resource: https://mcp.example.com/mcp
allowed_hosts: [mcp.internal:8443]
allowed_origins: ["https://inspector.example.com"]
strict: true
pdp:
  url: https://pdp.example.com
  ca_file: ca.pem
  tenant: acme
  key_file: pdp.key
  timeout: 500ms
  breaker: {failures: 3, cool_down: 1s}
identity:
  issuers:
    - {issuer: "https://idp.example.com", audience: gateway, algorithms: [ES256, RS256]}
    - {issuer: "urn:other", algorithms: [EdDSA], jwks_file: keys.json, tenant: other, subject_type: member, agent_type: bot, id_prefix: "o:"}
  subject_claim: /act/sub
  agent_claim: azp
  properties: [roles]
  scopes: [mcp]
ask: coaz
declared: instead
subject_override: warn
log: {level: debug, format: json, access: true}
dialects: [sep]
arguments: closed
lock: {file: tools.lock.json, mode: warn}
errors: sep
denials: result
deny_http_status: 403
mappings:
  resources/templates/list: {evaluation: {subject: {type: identity, id: $token.sub}, action: {name: resources/templates/list}, resource: {type: mcp_server, id: $server.resource}}}
  "tools/call jira:create_ticket": {evaluation: {subject: {type: user, id: $token.sub}, action: {name: create}, resource: {type: tool, id: $server.name}}}
upstreams:
  jira:
    url: https://jira.example.com/mcp
    ca_file: jira-ca.pem
    auth: {token_exchange: {token_url: "https://idp.example.com/token", audience: jira, resource: "https://jira.example.com", scopes: [x], client_id: gateway, client_secret_file: secret, ca_file: idp.pem, allow_networks: [10.9.0.0/16]}}
    allow_networks: [10.0.0.0/8]
    eras: [modern]
    uris: ["https://jira.internal/"]
    params: [traceId]
    capability: optional
    labels: {integration: jira}
    tools:
      create_ticket: {labels: {category: sensitive}}
      delete_project: {hidden: true}
    server_requests: {elicitation: relay, sampling: deny, roots: relay, hosts: [login.example.com]}
    timeout: 30s
    max_result: 8MiB
limits:
  max_body: 2MiB
  max_arguments: 64KiB
  max_connections: 100
  rate: 20/s
  burst: 100
  per_principal: {rate: 10/s, burst: 50, concurrent: 8}
  per_tool: {rate: 30/m, burst: 5}
sessions: {idle: 1h, per_person: 16}
processes: {most: 64, per_person: 8}
list: {cache: 1s, ttl: 5s}
seal: {key_files: [seal.key, old.key]}
obligations:
  notification: {webhook: "https://hooks.example.com/n", key_file: hook.key}
  log: {file: owed.log}
  custom: {page: {webhook: "https://hooks.example.com/c"}}
approvals: {channels: [url, wait], wait: 10s, on_disconnect: cancel, per_principal: 8, waiting: 100}
tool_requests: {ttl: 5m, per_principal: 8, pending: 100, keep: pdp}
capabilities: {holder_key: gateway, per_minute: 5}
meta: [com.example/trace]
`

func read(t *testing.T, text string) (c mcp.Config, from config.Origins, file string, err error) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "gateway.yaml")
	orFail(t, os.WriteFile(file, []byte(text), 0o600))
	from, err = mcp.Form.Read(config.Given{File: file}, &c)
	return c, from, file, err
}

func TestConfigIsRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{least, full} {
		c, from, file, err := read(t, text)
		orFail(t, err)
		orFail(t, c.Check())
		var b bytes.Buffer
		orFail(t, mcp.Form.Write(&b, c, from))
		again, _, _, err := read(t, b.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		mcp.Form.SetDefaults(&c)
		if diff := cmp.Diff(c.PDP, again.PDP); diff != "" || c.Limits != again.Limits || !cmp.Equal(c.Identity, again.Identity) {
			t.Errorf("what is printed says something else: %s\n%s", diff, b.String())
		}
		if text == full && c.Seal.KeyFiles[1] != filepath.Join(filepath.Dir(file), "old.key") {
			t.Errorf("got %v", c.Seal)
		}
		if text == full && (len(c.Mappings) != 2 || c.Mappings["resources/templates/list"] == nil) {
			t.Errorf("got %v", c.Mappings)
		}
	}
}

// full is held to the keys, so that no key is left without a word.
func TestFullSaysEveryKey(t *testing.T) {
	t.Parallel()
	elsewhere := regexp.MustCompile(`^(pdp\.embedded|identity\.static|upstreams\.<name>\.(command|env|env_files|secret|dir|idle|stateful|auth\.header|auth\.header_file|auth\.client_credentials|tools\.<name>\.(labels|hidden))|obligations\.custom\.<name>\.key_file)`)
	_, from, _, err := read(t, full)
	orFail(t, err)
	for _, k := range mcp.Form.Keys() {
		path := strings.NewReplacer("upstreams.<name>", "upstreams.jira", "custom.<name>", "custom.page", "[]", "[0]").Replace(k.Path)
		_, first := from[path]
		_, second := from[strings.Replace(path, "[0]", "[1]", 1)]
		if !first && !second && !elsewhere.MatchString(k.Path) {
			t.Errorf("%s is not said", k.Path)
		}
	}
}

// manyUpstreams are so many, each with a comma behind it.
func manyUpstreams(n int) (text string) {
	for i := range n {
		text += "u" + strconv.Itoa(i) + ": {command: [x]}, "
	}
	return text
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ from, to, want string }{
		"no file":                 {least, "", "resource is missing"},
		"nobody asked":            {"pdp: {url: http://127.0.0.1:8180}\n", "", ":1:1: there is nobody to ask"},
		"PDP in the clear":        {"http://127.0.0.1:8180", "http://pdp.example.com", ":2:12: pdp.url is reached without TLS"},
		"PDP with a password":     {"http://127.0.0.1:8180", "https://a:hunter2@pdp.example.com", ":2:12: pdp.url has a name or password in it"},
		"two PDPs":                {"{url: http://127.0.0.1:8180}", "{url: http://127.0.0.1:8180, embedded: {policies: p}}", ":2:12: pdp has a url and a PDP in this process"},
		"embedded without bundle": {"{url: http://127.0.0.1:8180}", "{embedded: {data: d}}", ":2:17: pdp.embedded has no policies"},
		"embedded with a key":     {"{url: http://127.0.0.1:8180}", "{embedded: {policies: p}, key_file: k}", "needs neither key_file nor ca_file"},
		"tenant":                  {"{url: http://127.0.0.1:8180}", "{url: http://127.0.0.1:8180, tenant: ../x}", ":2:43: pdp.tenant is no name of a tenant"},
		"static on the network":   {"resource:", "listen: 0.0.0.0:1\ntls: {cert_file: c, key_file: k}\nresource:", "identity.static would make everybody who reaches \"0.0.0.0:1\" the same person"},
		"plain on the network":    {"resource:", "listen: 0.0.0.0:1\nresource:", ":1:9: refusing to listen on \"0.0.0.0:1\": without TLS"},
		"listen":                  {"resource:", "listen: here\nresource:", ":1:9: \"here\" is no address to listen on"},
		"listen on a socket":      {"resource:", "listen: unix:/run/gateway.sock\nresource:", ":1:9: the gateway listens on no socket such as \"unix:/run/gateway.sock\"; try host:port, such as 127.0.0.1:8181"},
		"name with a dot":         {"resource:", "name: gateway.0\nresource:", ":1:7: name is no name of a gateway; write up to 63"},
		"name in capitals":        {"resource:", "name: Gateway\nresource:", ":1:7: name is no name of a gateway"},
		"name that ends in -":     {"resource:", "name: gateway-\nresource:", ":1:7: name is no name of a gateway"},
		"name too long":           {"resource:", "name: " + strings.Repeat("g", 64) + "\nresource:", ":1:7: name is no name of a gateway"},
		"half of TLS":             {"resource:", "tls: {cert_file: c}\nresource:", ":1:6: tls has a certificate without its key"},
		"nobody":                  {"identity: {static: {sub: me}}\n", "", "identity says nothing of who may come"},
		"both":                    {"{static: {sub: me}}", "{static: {sub: me}, issuers: [{issuer: https://i, algorithms: [ES256]}]}", ":3:20: identity has both static and issuers"},
		"static nobody":           {"{sub: me}", "{client_id: me}", ":3:20: identity.static has no sub"},
		"issuer in the clear":     {"{static: {sub: me}}", "{issuers: [{issuer: http://i.example, algorithms: [ES256]}]}", ":3:22: identity.issuers[0]: issuer is reached without TLS"},
		"no algorithm":            {"{static: {sub: me}}", "{issuers: [{issuer: https://i}]}", "identity.issuers[0]: algorithms is missing"},
		"symmetric":               {"{static: {sub: me}}", "{issuers: [{issuer: https://i, algorithms: [HS256]}]}", ":3:55: identity.issuers[0].algorithms[0] is not one of: RS256"},
		"one sub, two people":     {"{static: {sub: me}}", "{issuers: [{issuer: https://i, algorithms: [ES256]}, {issuer: https://j, algorithms: [ES256]}]}", ":3:64: identity.issuers[1]: one before could name the same person"},
		"prefix of a prefix":      {"{static: {sub: me}}", "{issuers: [{issuer: https://i, algorithms: [ES256], id_prefix: a}, {issuer: https://j, algorithms: [ES256], id_prefix: ab}]}", "one before could name the same person"},
		"a tenant like the other": {"{static: {sub: me}}", "{issuers: [{issuer: https://i, algorithms: [ES256], tenant: default}, {issuer: https://j, algorithms: [ES256]}]}", "one before could name the same person"},
		"subject claim":           {"{static: {sub: me}}", "{static: {sub: me}, subject_claim: /a~x}", ":3:46: identity.subject_claim is no claim"},
		"resource fragment":       {"http://127.0.0.1:8181/mcp", "'http://127.0.0.1:8181/mcp#x'", ":1:11: resource has a fragment"},
		"resource with a query":   {"http://127.0.0.1:8181/mcp", "'http://127.0.0.1:8181/mcp?x=1'", ":1:11: resource is no plain address"},
		"resource relative":       {"http://127.0.0.1:8181/mcp", "/mcp", ":1:11: resource is no absolute URL"},
		"resource in the clear":   {"http://127.0.0.1:8181/mcp", "http://mcp.example.com/mcp", ":1:11: resource is plain HTTP"},
		"host":                    {"resource:", "allowed_hosts: [a, https://b]\nresource:", ":1:20: allowed_hosts has what is no host"},
		"origin":                  {"resource:", "allowed_origins: [https://a/]\nresource:", ":1:19: allowed_origins has what is no origin"},
		"status":                  {"resource:", "deny_http_status: 302\nresource:", ":1:19: deny_http_status is neither 200 nor 403"},
		"a lock without a file":   {"resource:", "lock: {mode: enforce}\nresource:", ":1:14: lock has a mode and no file, so that nothing would be locked"},
		"many upstreams":          {"upstreams: {", "upstreams: {" + manyUpstreams(32), ":4:12: there are 33 upstreams, and a gateway takes 32"},
		"upstreams alike":         {"upstreams: {", "upstreams: {Files: {command: [x]}, ", `:4:43: "files" and "Files" are upstreams that differ in case alone`},
		"name that ends in _":     {"upstreams: {", "upstreams: {a_: {command: [x]}, ", `:4:17: "a_" ends with _, and with several upstreams nobody could tell where it ends in the names of tools; write "a"`},
		"capability by coaz":      {"/srv]}}", "/srv], capability: required}}\nask: coaz", ":4:73: upstreams.files.capability is required, and ask: coaz asks about calls in a form with which the PDP takes no capability; write optional, or take ask: coaz out"},
		"capability by tool":      {"/srv]}}", "/srv], capability: required}}\nask: tool", "upstreams.files.capability is required, and ask: tool asks"},
		"capability instead":      {"/srv]}}", "/srv], capability: required}}\ndeclared: instead", "upstreams.files.capability is required, and declared: instead asks"},
		"capability mapped":       {"/srv]}}", "/srv], capability: required}}\nmappings: {\"tools/call files:x\": {evaluation: {subject: {type: user, id: me}, action: {name: read}, resource: {type: doc, id: x}}}}", "upstreams.files.capability is required, and mappings.\"tools/call files:x\" asks"},
		"no URI":                  {"/srv]", "/srv], uris: ['file:///a', 'docs/']", ":4:81: upstreams.files.uris[1] is not how a URI begins"},
		"no param of a server":    {"/srv]", "/srv], params: [mine, requestId]", `upstreams.files.params[1]`},
		"resources of two":        {"{files: {", "{a: {command: [x], uris: ['file:///docs']}, files: {uris: ['mem:', 'file:///docs/b'], ", `upstreams.files.uris[1] is "file:///docs/b", and upstreams.a.uris has "file:///docs": some resources would be of both`},
		"hosts of two":            {"{files: {", "{a: {command: [x], uris: ['https://example.com']}, files: {uris: ['HTTPS://Example.com/b'], ", `upstreams.files.uris[0] is "HTTPS://Example.com/b", and upstreams.a.uris has "https://example.com": some resources would be of both`},
		"no upstream":             {"{files: {command: [mcp-server-filesystem, /srv]}}", "{}", "upstreams is missing"},
		"upstream of nothing":     {"{command: [mcp-server-filesystem, /srv]}", "{}", ":4:20: upstreams.files has neither url nor command"},
		"NUL in an argument":      {"/srv]", `"/s\0rv"]`, ":4:54: upstreams.files.command has a NUL in it"},
		"NUL in a variable":       {"/srv]", `/srv], env: {MODE: "a\0b"}`, ":4:73: upstreams.files.env.MODE has a NUL in it"},
		"NUL in a directory":      {"/srv]", `/srv], dir: "/s\0rv"`, "upstreams.files.dir has a NUL in it"},
		"upstream of both":        {"{command: [", "{url: https://x/mcp, command: [", ":4:26: upstreams.files has a url and a command"},
		"name with a colon":       {"{files:", "{'a:b':", `:4:20: "a:b" is no name of an upstream`},
		"name with two _":         {"{files:", "{a__b:", `"a__b" is no name of an upstream`},
		"upstream in the clear":   {"command: [mcp-server-filesystem, /srv]", "url: http://mcp.example.com/mcp", ":4:26: upstreams.files.url is reached without TLS"},
		"loopback upstream":       {"command: [mcp-server-filesystem, /srv]", "url: https://localhost/mcp", "upstreams.files.url is on this machine; add allow_networks: [127.0.0.0/8]"},
		"private upstream":        {"command: [mcp-server-filesystem, /srv]", "url: https://10.1.2.3/mcp", "add its network to allow_networks if that is meant, such as 10.1.2.3/32"},
		"metadata upstream":       {"command: [mcp-server-filesystem, /srv]", "url: https://169.254.169.254/, allow_networks: [10.0.0.0/8]", "upstreams.files.url is in a private network"},
		"carrier's upstream":      {"command: [mcp-server-filesystem, /srv]", "url: https://100.64.1.2/mcp", "add its network to allow_networks if that is meant, such as 100.64.1.2/32"},
		"metadata in a network":   {"command: [mcp-server-filesystem, /srv]", "url: https://169.254.169.254/, allow_networks: [169.254.0.0/16]", "such as 169.254.169.254/32"},
		"one in another network":  {"command: [mcp-server-filesystem, /srv]", "url: http://93.184.216.34/mcp, allow_networks: [10.0.0.0/8]", "upstreams.files.url is reached without TLS"},
		"upstream with password":  {"command: [mcp-server-filesystem, /srv]", "url: https://a:hunter2@x/mcp", "upstreams.files.url has a name or password in it"},
		"no network":              {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, allow_networks: [10.0.0.1/8]", ":4:58: upstreams.files.allow_networks[0] has bits beyond its mask; write 10.0.0.0/8"},
		"env of a URL":            {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, env: {A: b}", "env, env_files, secret, dir and stateful are for a command"},
		"secret of a URL":         {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, secret: [A]", "env, env_files, secret, dir and stateful are for a command"},
		"auth of a command":       {"/srv]", "/srv], auth: {header_file: f}", "auth, allow_networks and ca_file are for a url"},
		"page":                    {"/srv]", "/srv], server_requests: {hosts: [a.example, https://b.example/]}", ":4:98: upstreams.files.server_requests.hosts has what is no host in small letters"},
		"page in capitals":        {"/srv]", "/srv], server_requests: {hosts: [A.example]}", "upstreams.files.server_requests.hosts has what is no host in small letters"},
		"secret in env":           {"/srv]", "/srv], env: {GITHUB_TOKEN: hunter2}", "upstreams.files.env.GITHUB_TOKEN looks like a secret"},
		"variable":                {"/srv]", "/srv], env: {A B: x}", `"A B" is no name of an environment variable`},
		"variable twice":          {"/srv]", "/srv], env: {A: x}, env_files: {A: f}", "upstreams.files.env_files.A is in env as well"},
		"secret without a file":   {"/srv]", "/srv], env_files: {A: f}, secret: [A, B]", `:4:92: upstreams.files.secret[1] is no name in env_files`},
		"header of ours":          {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, auth: {header: mcp-session-id, header_file: f}", "auth.header is no header that a credential can be in"},
		"two credentials":         {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, auth: {header_file: f, client_credentials: {token_url: https://t, client_id: i, client_secret_file: s}}", "auth says more than one credential"},
		"token in the clear":      {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, auth: {client_credentials: {token_url: http://t, client_id: i, client_secret_file: s}}", "token_url is reached without TLS"},
		"token URL with password": {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, auth: {client_credentials: {token_url: https://a:hunter2@t, client_id: i, client_secret_file: s}}", "token_url has a name or password in it"},
		"token URL with a query":  {"command: [mcp-server-filesystem, /srv]", `url: https://x/mcp, auth: {client_credentials: {token_url: "https://t/?key=hunter2", client_id: i, client_secret_file: s}}`, "token_url has a query"},
		"half of an exchange":     {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, auth: {token_exchange: {token_url: https://t, audience: a}}", "auth.token_exchange lacks token_url, client_id or client_secret_file"},
		"token for nobody":        {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, auth: {token_exchange: {token_url: https://t, client_id: i, client_secret_file: f}}", "auth.token_exchange says not for whom the token is to be"},
		"nothing to exchange":     {"command: [mcp-server-filesystem, /srv]", "url: https://x/mcp, auth: {token_exchange: {token_url: https://t, audience: a, client_id: i, client_secret_file: f}}", "with identity.static they have none"},
		"burst alone":             {"resource:", "limits: {per_tool: {burst: 3}}\nresource:", ":1:28: limits.per_tool has a burst and no rate"},
		"arguments too large":     {"resource:", "limits: {max_body: 1KiB, max_arguments: 2KiB}\nresource:", ":1:41: limits.max_arguments is more than max_body"},
		"no rate":                 {"resource:", "limits: {per_tool: {rate: 3}}\nresource:", ":1:27: limits.per_tool.rate must be a rate"},
		"a way twice":             {"resource:", "approvals: {channels: [form, wait, form]}\nresource:", ":1:36: approvals.channels has form twice"},
		"no way":                  {"resource:", "approvals: {channels: [email]}\nresource:", ":1:24: approvals.channels[0] is not one of: form, url, wait"},
		"a wait too long":         {"resource:", "approvals: {wait: 26s}\nresource:", ":1:19: approvals.wait"},
		"more each than all":      {"resource:", "approvals: {per_principal: 8, waiting: 4}\nresource:", ":1:28: approvals.per_principal is more than waiting"},
		"more requests than all":  {"resource:", "tool_requests: {per_principal: 8, pending: 4}\nresource:", ":1:32: tool_requests.per_principal is more than pending"},
		"keys of nothing":         {"resource:", "capabilities: {holder_key: gateway}\nresource:", ":1:28: capabilities.holder_key is gateway, and there are no seal.key_files"},
		"mapping of a capability": {"resource:", "mappings: {capabilities/request: {evaluation: {}}}\nresource:", `capabilities/request`},
		"mapping of a vote":       {"resource:", "mappings: {authorization/respond: {evaluation: {}}}\nresource:", "authorization/respond is for nobody to map: the PDP decides who may decide, by the policies about approval.decide"},
		"webhook in the clear":    {"resource:", "obligations: {custom: {page: {webhook: http://h.example/}}}\nresource:", ":1:40: obligations.custom.page.webhook is reached without TLS"},
		"log without file":        {"resource:", "obligations: {log: {}}\nresource:", "obligations.log has no file"},
		"meta of the protocol":    {"resource:", "meta: [a, io.modelcontextprotocol/x]\nresource:", ":1:11: meta has \"io.modelcontextprotocol/x\""},
		"mapping of no method":    {"resource:", "mappings: {tools/cal: {evaluation: {}}}\nresource:", `there is no method "tools/cal"; did you mean tools/call?`},
		"mapping of no tool":      {"resource:", "mappings: {\"tools/call other:x\": {evaluation: {}}}\nresource:", `"tools/call other:x" is no method, and no tool of an upstream; `},
		"mapping, member":         {"resource:", "mappings:\n  tools/call:\n    evaluation:\n      action: {name: x}\n      resource: {typ: a, id: b}\nresource:", ":5:23: mappings.tools/call: COAZ mapping error: /evaluation/resource/typ"},
		"mapping, expression":     {"resource:", "mappings:\n  tools/call:\n    evaluation:\n      action: {name: $nobody.name}\n      resource: {type: a, id: b}\nresource:", ":4:22: mappings.tools/call: COAZ mapping error: /evaluation/action/name"},
	} {
		text := strings.Replace(least, test.from, test.to, 1)
		if text == least {
			t.Fatalf("%s changes nothing", name)
		}
		_, _, file, err := read(t, text)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), file) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a secret is quoted: %v", name, err)
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.Contains(line, ";") {
				t.Errorf("%s: it does not say what to try: %s", name, line)
			}
		}
	}
}

// What a program sets is checked as well.
func TestCheckWithoutAFile(t *testing.T) {
	t.Parallel()
	c, _, _, err := read(t, least)
	orFail(t, err)
	c.PDP.URL = "http://pdp.example.com"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "pdp.url is reached without TLS") {
		t.Errorf("got %v", err)
	}
	c.Ask = "all"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "ask is not one of") {
		t.Errorf("got %v", err)
	}
}

func TestEveryKeyIsDescribed(t *testing.T) {
	t.Parallel()
	for _, k := range mcp.Form.Keys() {
		if !strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s has no doc that ends with a full stop: %q", k.Path, k.Doc)
		}
		if k.Path == "listen" && k.Default != mcp.DefaultListen {
			t.Errorf("listen has the default %s, and DefaultListen is %s", k.Default, mcp.DefaultListen)
		}
	}
}

// What is secret is in files, and the configuration says where.
func TestNoKeyTakesASecret(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`(?i)secret|password|passwd|token|key|credential|private|cookie|authorization`)
	no := regexp.MustCompile(`_files?$|^token_(url|exchange)$|^client_credentials$|^secret$|^holder_key$`) // secret lists names of variables, and holder_key says who keeps a key
	seen := 0
	for _, k := range mcp.Form.Keys() {
		name := k.Path[strings.LastIndex(k.Path, ".")+1:]
		if secret.MatchString(name) {
			if seen++; !no.MatchString(name) {
				t.Errorf("%s takes a secret: make it a path, with a name that ends in _file", k.Path)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d keys were looked at", seen)
	}
}

// The schema in schemas/ is the one that the command prints. After a change:
// go test ./pdp/internal/mcp -run ConfigSchema -update-schema.
func TestConfigSchema(t *testing.T) {
	t.Parallel()
	const file = "../../../schemas/mcp-gateway.schema.json"
	if *updateSchema {
		orFail(t, os.WriteFile(file, mcp.Form.Schema(), 0o644))
	}
	kept, err := os.ReadFile(file)
	orFail(t, err)
	if !bytes.Equal(kept, mcp.Form.Schema()) {
		t.Error("schemas/mcp-gateway.schema.json is not what the tags say; try go test ./pdp/internal/mcp -run ConfigSchema -update-schema")
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(kept))
	orFail(t, err)
	compiler := jsonschema.NewCompiler()
	orFail(t, compiler.AddResource("config.json", document))
	schema, err := compiler.Compile("config.json")
	orFail(t, err)
	for text, ok := range map[string]bool{least: true, full: true, strings.Replace(least, "command", "comand", 1): false} {
		var value any
		orFail(t, yaml.Unmarshal([]byte(text), &value))
		encoded, err := json.Marshal(value)
		orFail(t, err)
		decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
		orFail(t, err)
		if err := schema.Validate(decoded); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
