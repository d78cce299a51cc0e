package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/config"
)

// everything is a file that the service reads, with every section there is.
const everything = whole + `policies: bundle
listen: 127.0.0.1:0
data: /var/lib/pdp
decision_log:
  mode: best_effort
  tiles: public
  mask: [/context/pin]
  retain: {age: 1d12h, bytes: 67108864}
  sinks: {stdout: {}, otlp: {queue: 20000}}
  witnesses: {policy_file: witnesses.policy, every: 5s, patience: 1m, monitoring: {w1: 'https://witness.example.com'}}
log: {level: debug, format: json, access: true}
`

// sample is what could be written for a scalar key.
func sample(k config.Key) string {
	for _, text := range append([]string{k.Min, k.Default}, k.Enum...) {
		if text != "" {
			return text
		}
	}
	switch k.Path {
	case "log.access":
		return "true"
	case "public_url":
		return "https://pdp.example.com"
	case "console.public_url":
		return "https://pdp.example.com/console"
	case "admin_listen", "console.listen":
		return "127.0.0.1:8181"
	case "tls.terminated":
		return "true"
	}
	return "/somewhere"
}

// nested is a file that says one key.
func nested(path, value string) string {
	var b strings.Builder
	names := strings.Split(path, ".")
	for depth, name := range names {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", depth), name)
		if depth < len(names)-1 {
			b.WriteString("\n")
		}
	}
	return b.String() + " " + value + "\n"
}

func printed(t *testing.T, c server.Config, from config.Origins) string {
	t.Helper()
	var b bytes.Buffer
	must(t, server.ConfigForm.Write(&b, c, from))
	return b.String()
}

func TestEveryKeyIsDescribed(t *testing.T) {
	t.Parallel()
	variables := map[string]string{}
	for _, k := range server.ConfigForm.Keys() {
		if !strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s has no doc that ends with a full stop: %q", k.Path, k.Doc)
		}
		if other := variables[k.Variable]; other != "" && k.Variable != "" {
			t.Errorf("%s and %s are set by one variable", k.Path, other)
		}
		variables[k.Variable] = k.Path
		if k.Path == "listen" && k.Default != server.DefaultListen {
			t.Errorf("listen has the default %s, and DefaultListen is %s", k.Default, server.DefaultListen)
		}
	}
	if variables["POLICY_SERVICE_DECISION_LOG_SINKS_OTLP_QUEUE"] != "decision_log.sinks.otlp.queue" {
		t.Errorf("got %v", variables)
	}
}

// What is secret is in files, and the configuration says where.
func TestNoKeyTakesASecret(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`(?i)secret|password|passwd|token|key|credential|private|cookie|authorization`)
	seen := 0
	for _, k := range server.ConfigForm.Keys() {
		name := k.Path[strings.LastIndex(k.Path, ".")+1:]
		if _, err := time.ParseDuration(k.Default); err == nil { // a time is no secret
			continue
		}
		if secret.MatchString(name) && name != "secrets" { // a directory of files
			if seen++; !strings.HasSuffix(name, "_file") {
				t.Errorf("%s takes a secret: make it a path, with a name that ends in _file", k.Path)
			}
		}
	}
	if seen == 0 {
		t.Error("tls.key_file was not looked at")
	}
}

// A variable says what the same words in the file say, and wins over it.
func TestEveryScalarKeyHasAVariable(t *testing.T) {
	t.Parallel()
	// These are refused without per_second, bytes, policy_file, grants, or endpoints.
	beside := map[string]bool{"decision_log.witnesses.every": true, "decision_log.witnesses.patience": true, "decision_log.witnesses.required": true, "rate_limit.burst": true, "decision_log.retain.least_age": true, "decision_log.retain.share": true, "decision_log.retain.share_person": true}
	seen := 0
	for _, k := range server.ConfigForm.Keys() {
		if k.Variable == "" || beside[k.Path] || k.Path == "listen_mode" /* a file needs quotes */ || strings.HasPrefix(k.Path, "console.oidc.") || strings.HasPrefix(k.Path, "cluster.") {
			continue
		}
		seen++
		var byFile, byVariable server.Config
		file := filepath.Join(t.TempDir(), "c.yaml")
		must(t, os.WriteFile(file, []byte(nested(k.Path, sample(k))), 0o600))
		if _, err := server.ConfigForm.Read(config.Given{File: file}, &byFile); err != nil {
			t.Fatal(err)
		}
		from, err := server.ConfigForm.Read(config.Given{Environ: []string{"HOME=/", k.Variable + "=" + sample(k)}}, &byVariable)
		if err != nil || from[k.Path] != k.Variable || printed(t, byFile, nil) != printed(t, byVariable, nil) {
			t.Errorf("%s=%s: %v, from %q\n%s%s", k.Variable, sample(k), err, from[k.Path], printed(t, byFile, nil), printed(t, byVariable, nil))
		}
	}
	if seen < 9 {
		t.Errorf("only %d keys have one", seen)
	}
}

func TestWhichOfManyCounts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	must(t, os.WriteFile(file, []byte("listen: 127.0.0.1:1\ntls: {cert_file: c.pem}\n"), 0o600))
	environ := []string{"POLICY_SERVICE_LISTEN=127.0.0.1:2", "POLICY_SERVICE_TLS_KEY_FILE=k.pem", "POLICY_SERVICE_CONFIG=elsewhere.yaml"}
	flags := []config.Flag{{Key: "listen", Name: "--listen", Value: "127.0.0.1:3"}}
	for _, test := range []struct {
		given        config.Given
		listen, from string
	}{
		{config.Given{}, "", ""},
		{config.Given{File: file}, "127.0.0.1:1", file + ":1:9"},
		{config.Given{File: file, Environ: environ}, "127.0.0.1:2", "POLICY_SERVICE_LISTEN"},
		{config.Given{File: file, Environ: environ, Flags: flags}, "127.0.0.1:3", "--listen"},
		{config.Given{Flags: flags}, "127.0.0.1:3", "--listen"},
	} {
		var c server.Config
		from, err := server.ConfigForm.Read(test.given, &c)
		if err != nil || c.Listen != test.listen || from["listen"] != test.from {
			t.Errorf("%+v: got %q from %q, %v", test.given, c.Listen, from["listen"], err)
		}
		if test.given.Environ != nil && (c.TLS.KeyFile != "k.pem" || c.TLS.CertFile != filepath.Join(filepath.Dir(file), "c.pem")) {
			t.Errorf("a path of the file is relative to it, and no other: %+v", c.TLS)
		}
	}
}

func TestVariablesThatSayNothing(t *testing.T) {
	t.Parallel()
	for assignment, want := range map[string]string{
		"POLICY_SERVICE_LISTN=127.0.0.1:0":             "POLICY_SERVICE_LISTN: no key is called like this variable; did you mean POLICY_SERVICE_LISTEN?",
		"POLICY_SERVICE_CONFG=x":                       "did you mean POLICY_SERVICE_CONFIG?",
		"POLICY_SERVICE_AUTH_JWT=[]":                   "POLICY_SERVICE_AUTH_JWT: auth.jwt is more than a text or a number, and only the file can say it; ",
		"POLICY_SERVICE_DECISION_LOG_SINKS_STDOUT={}":  "decision_log.sinks.stdout is more than",
		"POLICY_SERVICE_TLS_CERT_FILE=":                "POLICY_SERVICE_TLS_CERT_FILE: tls.cert_file is empty; ",
		"POLICY_SERVICE_DECISION_LOG_RETAIN_BYTES=1 G": "POLICY_SERVICE_DECISION_LOG_RETAIN_BYTES: decision_log.retain.bytes must be a whole number; ",
		"POLICY_SERVICE_DECISION_LOG_RETAIN_AGE=1m":    "POLICY_SERVICE_DECISION_LOG_RETAIN_AGE: decision_log.retain.age is less than 1h; ",
		"POLICY_SERVICE_PUBLIC_URL=pdp":                "POLICY_SERVICE_PUBLIC_URL: public_url must be absolute",
		"policy_service_listen=x":                      "",
		"POLICY_SERVICES=x":                            "",
		// What Kubernetes sets where a Service is called policy-service, or policy.
		"POLICY_SERVICE_KEY=psk_of_log":                  "",
		"POLICY_SERVICE_SERVICE_HOST=10.0.0.1":           "",
		"POLICY_SERVICE_SERVICE_PORT_HTTPS=443":          "",
		"POLICY_SERVICE_PORT=tcp://10.0.0.1:443":         "",
		"POLICY_SERVICE_PORT_443_TCP_ADDR=10.0.0.1":      "",
		"POLICY_SERVICE_ADMIN_PORT=tcp://10.0.0.1:9090":  "",
		"POLICY_SERVICE_ADMIN_SERVICE_HOST=10.0.0.1":     "",
		"POLICY_SERVICE_HOST=10.0.0.1":                   "",
		"POLICY_SERVICE_ADMIN_PORT_9090_TCP_PROTO=tcp":   "",
		"POLICY_SERVICE_ADMIN_PORT_9090_TCP_PROTOCOL=xx": "no key is called like this variable",
	} {
		_, err := server.ConfigForm.Read(config.Given{Environ: []string{assignment}}, &server.Config{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", assignment, err, want)
		}
	}
}

// A zero in a Config means that nobody gave a value, and becomes the default. So nobody may be able to give zero.
func TestNoDefaultOverridesWhatWasGiven(t *testing.T) {
	t.Parallel()
	for _, k := range server.ConfigForm.Keys() {
		if k.Default == "" || len(k.Enum) > 0 || k.Path == "listen" || strings.HasPrefix(k.Default, "/") {
			continue
		}
		_, err := server.ConfigForm.Read(config.Given{Flags: []config.Flag{{Key: k.Path, Name: "--x", Value: "0"}}}, &server.Config{})
		if err == nil || !strings.Contains(err.Error(), " is less than ") && !strings.Contains(err.Error(), " must be a size") {
			t.Errorf("%s: zero would become %s; give it a min above zero, or call it so that zero is its default", k.Path, k.Default)
		}
	}
}

// What is printed can be read, and says the same.
func TestWrittenConfigurationSaysTheSame(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	must(t, os.WriteFile(file, []byte(everything), 0o600))
	var c, again server.Config
	from, err := server.ConfigForm.Read(config.Given{File: file, Flags: []config.Flag{{Key: "decision_log.mode", Name: "--log-mode", Value: "strict"}}}, &c)
	must(t, err)
	text := printed(t, c, from)
	for _, want := range []string{"mode: strict # --log-mode\n", "listen: 127.0.0.1:0 # " + file + ":22:9\n", "queue: 10000 # default\n", "queue: 20000 # " + file, "obligations: [] # " + file, "age: 36h0m0s # "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	other := filepath.Join(t.TempDir(), "other.yaml")
	must(t, os.WriteFile(other, []byte(text), 0o600))
	_, err = server.ConfigForm.Read(config.Given{File: other}, &again)
	must(t, err)
	if diff := cmp.Diff(printed(t, c, nil), printed(t, again, nil)); diff != "" {
		t.Error(diff)
	}
	c.TLS.MinVersion = "1.3" // the default, which is written out
	if !reflect.DeepEqual(c.Auth, again.Auth) || !reflect.DeepEqual(c.TLS, again.TLS) {
		t.Errorf("got %+v %+v", again.Auth, again.TLS)
	}
	// A default is what is said where nobody says anything, and the caller's own stays as it was.
	if got := printed(t, server.Config{}, config.Origins{}); got != "listen: 127.0.0.1:8180 # default\ntls:\n  min_version: \"1.3\" # default\n  terminated: false # default\ndecision_log:\n  mode: strict # default\n  tiles: credential # default\nlog:\n  level: info # default\n  format: text # default\n  access: false # default\napprovals:\n  max_pending_per_subject: 200 # default\n  max_pending_per_tenant: 10000 # default\n  new_per_minute_per_subject: 60 # default\n  retain: 720h0m0s # default\ncapabilities:\n  max_lifetime: 24h0m0s # default\n  default_lifetime: 10m0s # default\n  proof_age: 1m0s # default\n  clock_skew: 10s # default\n  nonce: auto # default\n  status_ttl: 15s # default\n  max_live_per_holder: 100 # default\n  max_live_per_tenant: 100000 # default\n  new_per_minute_per_holder: 60 # default\n  retain: 720h0m0s # default\nqueue_time: 100ms # default\nrequest_time: 10s # default\n" {
		t.Errorf("got %s", got)
	}
	if c.DecisionLog.Sinks.Stdout.Queue != 0 {
		t.Error("a default was written into a configuration that is somebody else's")
	}
}

const byGrants = `auth: {jwt: [{issuer: "https://issuer.example", audience: pdp, algorithms: [RS256], obligations: [],
  grants: [{claim: groups, value: "Größe", permissions: [decide], tenants: ["*"]}]}]}
`

// The schema has the keys that there are, takes what the service takes, and refuses most of what it refuses.
func TestConfigSchema(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	accepted := map[string]string{"everything": everything, "whole": whole, "printed": "", "none": "{}", "JSON": `{"tls":{"cert_file":"a","key_file":"b"}}`, "sinks": "decision_log: {sinks: {}}\n"}
	file := filepath.Join(t.TempDir(), "c.yaml")
	must(t, os.WriteFile(file, []byte(everything), 0o600))
	var c server.Config
	_, err := server.ConfigForm.Read(config.Given{File: file}, &c)
	must(t, err)
	accepted["printed"] = printed(t, c, nil)
	accepted["grants"] = byGrants
	again, _, err := readConfig(t, byGrants)
	must(t, err)
	accepted["grants, printed"] = printed(t, again, nil)
	if third, _, err := readConfig(t, accepted["grants, printed"]); err != nil || !reflect.DeepEqual(third.Auth, again.Auth) || len(third.Auth.JWT[0].Grants) != 1 {
		t.Errorf("got %+v, %v", third.Auth, err)
	}
	for name, text := range accepted {
		if err := schema.Validate(plain(t, text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var passed []string
	for name, test := range refusals(t) {
		var value any
		if yaml.Unmarshal([]byte(test.text), &value) == nil && schema.Validate(plain(t, test.text)) == nil {
			passed = append(passed, name)
		}
	}
	slices.Sort(passed)
	// What only the service knows: files, URLs, names, how much a duration is, and how YAML is written.
	if want := []string{
		"a certificate relays", "a grant relays", "a mode of no socket", "a proxy of no address", "a token relays", "a type of actions", "admin for all", "alias", "burst alone",
		"certificate approves", "console by HTTP", "console elsewhere", "console of bearers", "console of no URL", "console, an address",
		"console, no proxy", "least age alone", "mask of an id", "merge", "no rate of a caller", "no such JWKS", "nobody", "nobody approves", "permission",
		"public_url", "rate of who", "relayed and more", "retain age too short", "retain age too small", "second document", "second entry", "share alone",
		"share_person alone", "share_person of little", "symmetric algorithm", "too much time", "two rates of one",
		"witnesses, best effort", "witnesses, impatient", "witnesses, no policy", "witnesses, open http",
	}; !slices.Equal(passed, want) {
		t.Errorf("the schema takes %q, want only %q", passed, want)
	}
}

func TestConfigSchemaHasEveryKey(t *testing.T) {
	t.Parallel()
	var schema map[string]any
	must(t, json.Unmarshal(server.ConfigForm.Schema(), &schema))
	found := map[string]bool{}
	var walk func(schema map[string]any, path string)
	walk = func(schema map[string]any, path string) {
		if properties, ok := schema["properties"].(map[string]any); ok {
			for name, value := range properties {
				walk(value.(map[string]any), strings.TrimPrefix(path+"."+name, "."))
			}
			if len(properties) > 0 && !strings.HasPrefix(path, "decision_log.sinks.") && path != "decision_log.witnesses" && path != "auth.jwt[].principal" && path != "auth.jwt[].exchange" && path != "cluster" && path != "console" && path != "console.oidc" && path != "console.oidc.principal" {
				return // a section that means nothing by itself is no key
			}
		}
		if items, ok := schema["items"].(map[string]any); ok && items["properties"] != nil {
			walk(items, path+"[]")
		}
		found[path] = true
	}
	walk(schema, "")
	for _, k := range server.ConfigForm.Keys() {
		if !found[k.Path] {
			t.Errorf("%s is not in the schema", k.Path)
		}
		delete(found, k.Path)
	}
	if len(found) > 0 {
		t.Errorf("the schema has keys that do not exist: %v", found)
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(server.ConfigForm.Schema()))
	must(t, err)
	compiler := jsonschema.NewCompiler()
	must(t, compiler.AddResource("config.json", document))
	schema, err := compiler.Compile("config.json")
	must(t, err)
	return schema
}

// plain is a document in YAML as JSON has it.
func plain(t *testing.T, text string) any {
	t.Helper()
	var value any
	must(t, yaml.Unmarshal([]byte(text), &value))
	encoded, err := json.Marshal(value)
	must(t, err)
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	must(t, err)
	return decoded
}
