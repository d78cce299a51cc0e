package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
)

func readConfig(t *testing.T, text string) (server.Config, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	var c server.Config
	_, err := server.ConfigForm.Read(config.Given{File: file}, &c)
	return c, filepath.Dir(file), err
}

// whole says who may ask in every way there is.
const whole = `# how PEPs come, and who they are
public_url: https://pdp.example.com
tls:
  cert_file: cert.pem
  key_file: /etc/pdp/key.pem
  client_ca_file: ../ca.pem
auth:
  jwt:
    - issuer: https://issuer.example
      audience: pdp
      algorithms: [ES256, RS256]
      tenants: ["*"]
      permissions: [decide, explain, approve]
      principal: {type: "Acme::User", claim: sub}
  mtls:
    - san: pep.example
      tenants: [default, acme]
      permissions: [decide, search]
      obligations: []
    - {san: other.example, tenants: [acme], permissions: [decide], obligations: [log], audiences: [gw, "https://gw.example"]}
`

func TestReadConfig(t *testing.T) {
	t.Parallel()
	got, dir, err := readConfig(t, whole)
	must(t, err)
	want := server.Config{
		PublicURL: "https://pdp.example.com",
		TLS:       server.TLSConfig{TLSFiles: server.TLSFiles{CertFile: dir + "/cert.pem", KeyFile: "/etc/pdp/key.pem", ClientCAFile: filepath.Dir(dir) + "/ca.pem"}},
		Auth: server.AuthConfig{
			JWT: []auth.JWTIssuer{{
				Issuer: "https://issuer.example", Audience: "pdp", Algorithms: []string{"ES256", "RS256"},
				Principal: &auth.PrincipalClaim{Type: "Acme::User", Claim: "sub"},
				Grant:     auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Explain, auth.Approve}},
			}},
			MTLS: []auth.MTLSRule{
				// Registered for none is not the same as not registered.
				{SAN: "pep.example", Grant: auth.Grant{Tenants: []string{"default", "acme"}, Permissions: []auth.Permission{auth.Decide, auth.Search}, Obligations: []string{}}},
				{SAN: "other.example", Grant: auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.Decide}, Obligations: []string{"log"}, Audiences: []string{"gw", "https://gw.example"}}},
			},
		},
	}
	if !cmp.Equal(want.Auth, got.Auth) || !cmp.Equal(want.TLS, got.TLS) || want.PublicURL != got.PublicURL {
		t.Errorf("%s%s%s", cmp.Diff(want.Auth, got.Auth), cmp.Diff(want.TLS, got.TLS), cmp.Diff(want.PublicURL, got.PublicURL))
	}
	for name, text := range map[string]string{"an empty file": "", "comments alone": "# nothing yet\n", "JSON": `{"tls":{"cert_file":"a","key_file":"b"}}`} {
		if _, _, err := readConfig(t, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A sink is on where its key is there.
func TestReadSinks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]server.SinksConfig{
		"decision_log: {mode: strict}\n":                                      {},
		"decision_log: {sinks: {}}\n":                                         {},
		"decision_log: {sinks: {stdout: {}}}\n":                               {Stdout: &server.SinkConfig{}},
		"decision_log:\n  sinks:\n    stdout: {}\n    otlp: {queue: 20000}\n": {Stdout: &server.SinkConfig{}, OTLP: &server.SinkConfig{Queue: 20000}},
	} {
		if got, _, err := readConfig(t, text); err != nil || !cmp.Equal(want, got.DecisionLog.Sinks) {
			t.Errorf("%s: %v%s", text, err, cmp.Diff(want, got.DecisionLog.Sinks))
		}
	}
}

// refusal is a file that is not read, and what is said of it.
type refusal struct{ text, want string }

func refusals(t *testing.T) map[string]refusal {
	replaced := func(old, by string) string {
		if !strings.Contains(whole, old) {
			t.Fatalf("%q is not in the whole configuration", old)
		}
		return strings.Replace(whole, old, by, 1)
	}
	granted := func(grants string) string {
		return strings.Replace(replaced("      tenants: [\"*\"]\n", ""), "permissions: [decide, explain, approve]", "grants: "+grants, 1)
	}
	const grant = "{claim: groups, value: staff, permissions: [decide], tenants: [acme]}"
	return map[string]refusal{
		"grants and tenants":     {replaced("permissions: [decide, explain, approve]", "grants: ["+grant+"]"), `:9:7: auth.jwt[0]: grants stands in place of permissions and tenants; `},
		"grants and permissions": {granted("[" + grant + "]\n      permissions: [decide]"), `:9:7: auth.jwt[0]: grants stands in place of permissions and tenants; `},
		"tenants alone":          {replaced("      permissions: [decide, explain, approve]\n", ""), `:9:7: auth.jwt[0]: permissions is missing; `},
		"no grants":              {granted("[]"), `:9:7: auth.jwt[0]: grants is empty, `},
		"a grant of no value":    {granted("[{claim: groups, permissions: [decide], tenants: [acme]}]"), `:9:7: auth.jwt[0]: grants[0]: value is missing, `},
		"a grant of all values":  {granted("[{claim: groups, value: [staff], permissions: [decide], tenants: [acme]}]"), `: auth.jwt[0].grants[0].value must be a string; `},
		"a grant of obligations": {granted("[{claim: groups, value: staff, permissions: [decide], tenants: [acme], obligations: []}]"), `: unknown key "obligations"; use one of claim, permissions, tenants, value`},
		"a grant relays":         {granted("[{claim: groups, value: staff, permissions: [relay], tenants: [acme]}]"), `:9:7: auth.jwt[0]: grants[0]: permissions has relay, which only API keys have; `},
		"unknown key":            {"publicurl: x\n", `:1:1: unknown key "publicurl"; use one of admin_listen, approvals, auth, capabilities, cluster, console, data, decision_log, listen, listen_mode, log, max_concurrent, max_connections, metrics, policies, public_url, queue_time, rate_limit, request_time, tls`},
		"another case":           {"Public_URL: x\n", `:1:1: unknown key "Public_URL"`},
		"unknown key of a grant": {replaced("tenants: [default, acme]", "tenant: default"), `:17:7: unknown key "tenant"; use one of audiences, obligations, permissions, relays, san, tenants`},
		"a secret written out":   {replaced("audience: pdp", "client_secret: s3cret"), `:10:7: unknown key "client_secret"`},
		"twice":                  {"public_url: https://a.example\npublic_url: https://b.example\n", `:2:1: the key "public_url" occurs twice; keep one`},
		"second document":        {"public_url: https://a.example\n---\npublic_url: https://b.example\n", `:2:1: a second document`},
		"alias":                  {"tls: {cert_file: &a x, key_file: *a}\n", `:1:34: aliases are not read here`},
		"merge":                  {"tls:\n  <<: {cert_file: a}\n", `:2:3: a key must be a plain name`},
		"no YAML":                {"tls: [\n", `this is not YAML`},
		"a list":                 {"- public_url\n", `:1:1: the configuration must be a mapping`},
		"a number":               {"public_url: 7\n", `:1:13: public_url must be a string; write it in quotes`},
		"no value":               {"tls:\n  cert_file:\n", `tls.cert_file has no value`},
		"null":                   {"tls: null\n", `:1:6: tls has no value`},
		"empty":                  {"tls: {cert_file: ''}\n", `:1:18: tls.cert_file is empty`},
		"a string for a list":    {replaced("tenants: [default, acme]", "tenants: default"), `:17:16: auth.mtls[0].tenants must be a list`},
		"a mapping for a list":   {"auth: {mtls: {san: x}}\n", `:1:14: auth.mtls must be a list`},
		"a scalar for a mapping": {"tls: on\n", `:1:6: tls must be a mapping`},
		"log mode":               {"decision_log: {mode: sometimes}\n", `:1:22: decision_log.mode is not one of: strict, best_effort; write one of them`},
		"tiles":                  {"decision_log: {tiles: everybody}\n", `:1:23: decision_log.tiles is not one of: credential, public; write one of them`},
		"mask of an id":          {"decision_log: {mask: [/context/a, /subject/id]}\n", `:1:35: the mask "/subject/id" addresses nothing that is masked; `},
		"retain age in years":    {"decision_log: {retain: {age: 1y}}\n", `:1:30: decision_log.retain.age must be a duration; write it like 90d, 2160h or 1d12h`},
		"retain age too small":   {"decision_log:\n  retain:\n    age: 59m\n", `:3:10: decision_log.retain.age is less than 1h; write at least that`},
		"retain age too short":   {"decision_log: {retain: {age: 2h, bytes: 67108864, least_age: 3h}}\n", `:1:62: decision_log.retain.least_age is 3h0m0s, and records go at 2h0m0s by decision_log.retain.age; write no more than that`},
		"least age alone":        {"decision_log: {retain: {age: 2h, least_age: 1h}}\n", `:1:45: decision_log.retain.least_age bounds decision_log.retain.bytes, and there is none; write both, or leave it out`},
		"share alone":            {"decision_log: {retain: {share: 0.5}}\n", `:1:32: decision_log.retain.share is a part of decision_log.retain.bytes, and there is none; write both, or leave it out`},
		"share_person alone":     {"decision_log: {retain: {share_person: 0.5}}\n", `:1:39: decision_log.retain.share_person is a part of decision_log.retain.bytes, and there is none; write both, or leave it out`},
		"share_person of little": {"decision_log: {retain: {bytes: 67108864, share_person: 0.02}}\n", `:1:56: decision_log.retain.share_person is less than 2097152 bytes of decision_log.retain.bytes`},
		"retain bytes too few":   {"decision_log: {retain: {age: 1h, bytes: 67108863}}\n", `:1:41: decision_log.retain.bytes is less than 67108864; write at least that`},
		"retain of something":    {"decision_log: {retain: {size: 1}}\n", `:1:25: unknown key "size"; use one of age, bytes`},
		"witnesses, no policy":   {"decision_log: {witnesses: {}}\n", `:1:27: decision_log.witnesses names no witnesses; add policy_file, or leave it out`},
		"witnesses, impatient":   {"decision_log: {witnesses: {policy_file: p, every: 1m, patience: 90s}}\n", `:1:65: decision_log.witnesses.patience is 1m30s, and a checkpoint is submitted every 1m0s; write twice that at least`},
		"witnesses, best effort": {"decision_log: {mode: best_effort, witnesses: {policy_file: p, required: true}}\n", `:1:73: decision_log.witnesses.required needs answers that wait for their records, and decision_log.mode is best_effort; `},
		"witnesses, open http":   {"decision_log: {witnesses: {policy_file: p, monitoring: {w1: 'http://witness.example.com'}}}\n", `:1:56: decision_log.witnesses.monitoring.w1: plain http to another machine`},
		"sinks, unknown":         {"decision_log: {sinks: {syslog: {}}}\n", `:1:24: unknown key "syslog"; use one of otlp, stdout`},
		"sinks, queue too small": {"decision_log: {sinks: {stdout: {queue: 999}}}\n", `:1:40: decision_log.sinks.stdout.queue is less than 1000`},
		"limit of nothing":       {"max_concurrent: 0\n", `:1:17: max_concurrent is less than 1; `},
		"too much time":          {"request_time: 11s\n", `:1:15: request_time is more than 10s; `},
		"burst alone":            {"rate_limit: {burst: 5}\n", `:1:13: rate_limit has a burst and no per_second; `},
		"rate of nobody":         {"rate_limit: {callers: [{per_second: 5}]}\n", `:1:24: rate_limit.callers[0]: caller is none; write key:NAME, `},
		"rate of who":            {"rate_limit: {callers: [{caller: gateway, per_second: 5}]}\n", `:1:24: rate_limit.callers[0]: caller is none; `},
		"no rate of a caller":    {"rate_limit: {callers: [{caller: 'key:a'}]}\n", `:1:24: rate_limit.callers[0]: per_second is missing; `},
		"two rates of one":       {"rate_limit: {callers: [{caller: 'key:a', per_second: 1}, {caller: 'key:a', per_second: 2}]}\n", `:1:58: rate_limit.callers[1]: one before has the same caller; `},
		"TLS too old":            {"tls: {min_version: '1.1'}\n", `:1:20: tls.min_version is not one of: 1.2, 1.3; write one of them`},
		"a mode of no socket":    {"listen_mode: '0777'\n", `:1:14: "0777" is no mode of a socket; write "0600" for`},
		"a proxy of no address":  {"tls: {terminated: true, proxies: [10.0.0.5/24]}\n", `:1:34: tls.proxies has "10.0.0.5/24", which is no address and no range of them; `},
		"admin for all":          {"admin_listen: 0.0.0.0:8181\n", `:1:15: admin_listen is "0.0.0.0:8181", and what it shows is for this machine alone; `},
		"public_url":             {"\npublic_url: pdp.example.com\n", `:2:13: public_url must be absolute`},
		"nobody":                 {"auth: {}\n", `:1:7: auth is empty, and would let nobody in`},
		"no issuer":              {"auth: {jwt: []}\n", `:1:13: auth.jwt is empty`},
		"no audience":            {replaced("      audience: pdp\n", ""), `:9:7: auth.jwt[0]: audience is missing`},
		"symmetric algorithm":    {replaced("ES256, RS256", "HS256"), `:9:7: auth.jwt[0]: the algorithm "HS256" is not taken`},
		"no tenants":             {replaced("      tenants: [default, acme]\n", ""), `:16:7: auth.mtls[0]: tenants is missing`},
		"permission":             {replaced("[decide, search]", "[decide, admin]"), `:16:7: auth.mtls[0]: there is no permission "admin"`},
		"nobody approves":        {replaced("      principal: {type: \"Acme::User\", claim: sub}\n", ""), `:9:7: auth.jwt[0]: permissions has approve, and nothing says who approves; add principal: {type: User, claim: sub}`},
		"relayed by nobody":      {replaced("      audience: pdp\n", "      audience: pdp\n      relayed_by: []\n"), `:9:7: auth.jwt[0]: relayed_by is empty; `},
		"relayed by an empty":    {replaced("      audience: pdp\n", "      audience: pdp\n      relayed_by: ['']\n"), `:11:20: auth.jwt[0].relayed_by[0] is empty; `},
		"relayed and more":       {replaced("      audience: pdp\n", "      audience: pdp\n      relayed_by: [gateway]\n"), `:9:7: auth.jwt[0]: relayed_by is given, and such a token is good for approving alone; `},
		"a token relays":         {replaced("explain, approve", "explain, relay"), `:9:7: auth.jwt[0]: permissions has relay, which only API keys have; `},
		"a certificate relays":   {replaced("[decide, search]", "[decide, relay]"), `:16:7: auth.mtls[0]: permissions has relay, which only API keys have; `},
		"certificate approves":   {replaced("[decide, search]", "[decide, approve]"), `:16:7: auth.mtls[0]: permissions has approve, and a certificate does not say who approves; `},
		"a type of actions":      {replaced("Acme::User", "Acme::Action"), `:9:7: auth.jwt[0]: principal.type is missing or no type of principals; `},
		"no claim":               {replaced(", claim: sub", ""), `:9:7: auth.jwt[0]: principal.claim is missing or not printable; `},
		"an empty principal":     {replaced("{type: \"Acme::User\", claim: sub}", "{}"), `:9:7: auth.jwt[0]: principal.type is missing`},
		"principal of a SAN":     {replaced("    - san: pep.example\n", "    - san: pep.example\n      principal: {type: User, claim: sub}\n"), `:17:7: unknown key "principal"; use one of audiences, obligations, permissions, relays, san, tenants`},
		"second entry":           {replaced("{san: other.example", "{san: pep.example"), `:20:7: auth.mtls[1]: `},
		"no such JWKS":           {replaced("      audience: pdp\n", "      audience: pdp\n      jwks_file: nosuch.json\n"), `:9:7: auth.jwt[0]: `},
		"console, an address":    {"console: {listen: here}\n", `:1:19: console.listen is "here", which is no address`},
		"console by HTTP":        {"console: {public_url: 'http://pdp.example/console'}\n", `:1:23: console.public_url is plain HTTP`},
		"console elsewhere":      {"console: {public_url: 'https://pdp.example/desk'}\n", `:1:23: console.public_url must end in /console`},
		"console of no URL":      {"console: {public_url: pdp.example}\n", `:1:23: console.public_url must be absolute`},
		"console, no proxy":      {"console: {trusted_proxies: [10.0.0.5/24]}\n", `:1:28: console.trusted_proxies has "10.0.0.5/24", which is no address and no range of them`},
		"console, no issuer":     {"console: {oidc: {}}\n", `:1:17: console.oidc: client_id is missing`},
		"console, no grants":     {"console: {oidc: {issuer: 'https://i.example', client_id: c}}\n", `:1:17: console.oidc: grants is missing`},
		"console of bearers":     {whole + "console: {oidc: {issuer: 'https://issuer.example', client_id: pdp, grants: [{claim: g, value: v, permissions: [decide], tenants: [default]}]}}\n", `:21:17: console.oidc: auth.jwt[0] has the same issuer`},
		"too large":              {"#" + strings.Repeat(" ", 1<<20), `has more than 1048576 bytes`},
	}
}

// The forms and bounds of single values are those of package config, which has tests of its own.
func TestReadConfigRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range refusals(t) {
		_, _, err := readConfig(t, test.text)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error quotes a secret: %v", name, err)
		}
	}
}

func TestReadConfigTellsEveryMistake(t *testing.T) {
	t.Parallel()
	_, _, err := readConfig(t, `a: 1
b: 2
tls: {c: 3}
public_url: x
auth:
  mtls:
    - {san: a, tenants: [], permissions: [decide]}
    - {san: b, tenants: [default], permissions: [dcide]}
  jwt:
    - {issuer: "#"}
    - {issuer: https://i.example, audience: pdp, algorithms: [none]}
decision_log:
  mode: sometimes
  mask: [x, /context/pin, /subject/id]
  retain: {age: 1m, bytes: 1}
`)
	var got config.Mistakes
	if !errors.As(err, &got) {
		t.Fatalf("got %v", err)
	}
	places := make([]string, len(got))
	for i, mistake := range got {
		places[i] = strings.SplitN(mistake, ":", 3)[1]
	}
	slices.Sort(places)
	if want := []string{"1", "10", "11", "13", "14", "14", "15", "15", "2", "3", "4", "7", "8"}; !slices.Equal(places, want) {
		t.Errorf("mistakes in the lines %v, want %v:\n%v", places, want, err)
	}
}

func TestPublicURL(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"https://pdp.example.com":           "https://pdp.example.com",
		"https://pdp.example.com/":          "https://pdp.example.com",
		"HTTPS://pdp.example.com":           "https://pdp.example.com",
		"https://PDP.example.com:8443/a/b/": "https://PDP.example.com:8443/a/b",
		"http://10.0.0.1:80":                "http://10.0.0.1:80",
		"https://[2001:db8::1]:8443/x":      "https://[2001:db8::1]:8443/x",
		"https://h/~a.b_c-d":                "https://h/~a.b_c-d",
	} {
		s, err := server.New(server.Config{Program: server.Program{Source: bundle(t), Authenticator: asCaller{}}, PublicURL: given})
		if err != nil {
			t.Errorf("%s: %v", given, err)
		} else if got := s.PublicURL(); got != want {
			t.Errorf("%s: became %s, want %s", given, got, want)
		}
	}
	for _, given := range []string{
		"pdp.example.com", "//pdp.example.com", "/pdp", "ftp://pdp.example.com", "https:pdp", "https://", "https:///x", "https://:443",
		"https://h?", "https://h?a=b", "https://h#", "https://h/#f", "https://u@h", "https://u:p@h", "https://h:0", "https://h:", "https://h:x",
		"https://h//", "https://h/a//b", "https://h/./a", "https://h/../a", "https://h/a%2fb", "https://h/:a", "https://h/*", "https://h/a b", "https://h/é",
		"https://h/tenants", "https://h/tenants/acme", " https://h", "https://h ", "https://h\n", "https://h_-", "https://[::1", "https://exa mple", `https://h\a`,
	} {
		if _, err := server.New(server.Config{Program: server.Program{Source: bundle(t)}, PublicURL: given}); err == nil {
			t.Errorf("%q is taken", given)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: the error quotes a password: %v", given, err)
		}
	}
}
