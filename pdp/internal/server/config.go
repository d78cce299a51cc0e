package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/listener"
	"policy-service/pdp/internal/server/telemetry"
)

// DefaultListen is the address of a server whose configuration has none.
const DefaultListen = "127.0.0.1:8180"

// The environment variables that are not keys and begin like those that are.
const (
	// ConfigVariable names the configuration file, as --config does.
	ConfigVariable = "POLICY_SERVICE_CONFIG"
	// CredentialVariable holds the credential of the commands that ask a running server. It
	// may well be set on the machine of the service.
	CredentialVariable = "POLICY_SERVICE_KEY"
	// ServerVariable holds the URL of the running server that commands ask, where --server is not given.
	ServerVariable = "POLICY_SERVICE_SERVER"
)

// ConfigForm describes how a [Config] is written: in a file, in the environment and as flags.
var ConfigForm = config.Form[Config]{
	Title:          "The configuration of policy-service",
	Prefix:         "POLICY_SERVICE_",
	FileVariable:   ConfigVariable,
	OtherVariables: []string{CredentialVariable, ServerVariable},
	Check:          (*Config).checkValues,
}

// Config configures a [Server]. Nothing in it can change an answer: every switch that changes an answer is in the
// bundle, so that all commands agree.
//
// A field with a yaml tag is a key of the configuration: the file, the environment,
// the JSON Schema, the help and the page README.md take it from its tags, which [config.Key]
// explains. To add a key, add a field. A handler asks for the value of a key with the tag
// reload in every request: live.pinned(ctx).config, see [Server.Reconfigure].
type Config struct {
	// Policies is the directory of the bundle, unless the program gives a Source.
	Policies string `yaml:"policies" path:"yes" doc:"The directory of the bundle. The service watches it: an edit is in force a moment later."`
	// Listen is the address, host:port or unix:PATH; port 0 takes any free one. Other than
	// loopback needs TLS and credentials.
	Listen string `yaml:"listen" default:"127.0.0.1:8180" doc:"The address to listen on, as host:port, or as unix:PATH for a Unix socket. Port 0 takes a free port. An address other than loopback needs TLS and credentials."`
	// ListenMode is that of a Unix socket, in octal.
	ListenMode string `yaml:"listen_mode" doc:"The mode of the Unix socket, such as \"0660\" for the group of the service, too. Unless given, it is 0600: only the user of the service may connect. A wider one needs credentials."`
	// Data is the directory for the files that the service keeps, made if it does not
	// exist; without one there are no API keys and the signing key is not kept.
	Data string `yaml:"data" path:"yes" doc:"The directory for what the service keeps: the decision log, approvals, API keys and signing keys. The service makes it if it does not exist. Without it the service keeps nothing, and there are no API keys."`
	// PublicURL is the address by which clients reach the service. Its metadata is made from this, never from a
	// request's Host.
	PublicURL string `yaml:"public_url" doc:"The address by which clients reach the service, as https://host[:port][/path]. The service makes what it publishes about itself from it. A slash at its end is dropped. A host other than loopback needs credentials."`
	// TLS turns TLS on; the zero value is plain HTTP.
	TLS TLSConfig `yaml:"tls"`
	// Metrics says which scrapers read the metrics, besides callers.
	Metrics MetricsConfig `yaml:"metrics" reload:"yes"`
	// Auth names the callers besides the holders of API keys.
	Auth AuthConfig `yaml:"auth" reload:"yes"`
	// DecisionLog is how decisions are recorded. There is a log if there is Data.
	DecisionLog DecisionLogConfig `yaml:"decision_log"`
	// Log is how the messages for the operator are written. The program does that: see Program.Logger.
	Log logging.Config `yaml:"log"`
	// Approvals bounds the questions to people. They are asked if there is a log.
	Approvals ApprovalsConfig `yaml:"approvals"`
	// Capabilities bounds the capabilities that agents are granted. There are some if there is a log.
	Capabilities CapabilitiesConfig `yaml:"capabilities"`
	// Cluster keeps approvals, capabilities and API keys in an etcd that several servers share; nil is the data directory.
	Cluster *cluster.Config `yaml:"cluster" doc:"The etcd in which this replica and others keep approvals, capabilities and API keys, so that each of them knows all. Without it they are in the data directory of this process alone. See CLUSTER.md."`
	// Console turns the console on; nil is none.
	Console *ConsoleConfig `yaml:"console" doc:"Pages at /console/ where people decide about approval requests. There are none unless it is given; {} is enough."`
	// Load bounds the cost of all requests together.
	Load door.LoadConfig `yaml:",inline"`
	// AdminListen is the address of a second listener, for profiles of the process; ""
	// is none. It must be loopback.
	AdminListen string `yaml:"admin_listen" doc:"A second address to listen on, as host:port on loopback, for profiles of the process (/debug/pprof) and its metrics. It takes no credentials. None unless given."`
	// Program has the values that only a program can give; it is no key.
	Program Program `yaml:"-"`
}

// Program is the part of a [Config] that no file can say: values of the program that runs
// the server. The zero value is ready to use.
type Program struct {
	// Source is the bundle to answer from; without one it is the directory Policies.
	Source pdp.Source
	// Checkpoints takes every signed checkpoint of the decision log as it is made, to be
	// kept elsewhere; the default discards them. With the sink stdout it takes the records,
	// too; see [SinksConfig]. One call takes whole lines.
	Checkpoints io.Writer
	// MeterProvider takes the metrics of the service. Without one they are at /metrics, and sent
	// where the environment variables of OpenTelemetry say.
	MeterProvider metric.MeterProvider
	// TracerProvider takes the traces of requests. Without one they are sent where the
	// environment variables of OpenTelemetry say. If these say nothing there are no traces.
	TracerProvider trace.TracerProvider
	// Logger takes the messages for the operator; the default discards them. Package logging makes one of Log.
	Logger *slog.Logger
	// Relog is called with Log when another one is in force; nil passes it over.
	Relog func(logging.Config)
	// Limits bound requests; the zero value is [evaluation.DefaultLimits].
	Limits evaluation.Limits
	// Authenticator takes the place of the one that Data and Auth make.
	Authenticator door.Authenticator
	// InProcess has the server open no address: only [Server.Transport] reaches it. Its program ends its requests
	// before it stops the server.
	InProcess bool
	// PDP is passed on. Its BeforeSwap and OnLoad are called after the server's own;
	// its Recorder takes the place of the decision log.
	PDP pdp.Options

	// tuneLog is for tests that would take hours and gigabytes otherwise.
	tuneLog func(*decisionlog.Options, *decisionlog.Retention)
	// tuneHTTP is for tests that would take minutes otherwise.
	tuneHTTP func(*http.Server)
	// handsOnWithin is for tests of the last records of a stop: a minute on a machine that may be slow, and a moment if the
	// receiver hangs. 0 is the usual time.
	handsOnWithin time.Duration
	// elapsed is for tests that set the clock: the time that passed, which the machine's monotonic clock has otherwise.
	elapsed func() time.Duration
}

// stopsWithin is how long a stop waits for the receivers of its last records.
func (p *Program) stopsWithin(usual time.Duration) time.Duration {
	return cmp.Or(p.handsOnWithin, usual)
}

// withDefaults sets the values that are not set. The defaults of keys are in their tags.
func (c Config) withDefaults() Config {
	ConfigForm.SetDefaults(&c)
	p := &c.Program
	if p.Source.IsNothing() && c.Policies != "" {
		p.Source = pdp.Dir(c.Policies)
	}
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	p.Logger = slog.New(telemetry.Correlated{Handler: p.Logger.Handler()})
	p.Limits = cmp.Or(p.Limits, evaluation.DefaultLimits())
	if p.Checkpoints == nil {
		p.Checkpoints = io.Discard
	}
	if p.PDP.Now == nil {
		p.PDP.Now = time.Now
	}
	return c
}

// check refuses a configuration that cannot work, whatever is in the files that it names. It also writes PublicURL in its
// one form.
func (c *Config) check() error {
	if err := ConfigForm.Verify(c); err != nil {
		return err
	}
	if c.PublicURL != "" {
		c.PublicURL, _ = cleanPublicURL(c.PublicURL)
	}
	if err := errors.Join(c.TLS.Check(), c.checkTerminated(), c.checkSocket()); err != nil {
		return err
	}
	if len(c.Auth.MTLS) > 0 && c.TLS.ClientCAFile == "" {
		return errors.New("auth.mtls needs the authority of the clients' certificates; add --client-ca, or tls.client_ca_file")
	}
	if err := errors.Join(c.checkSinks(), c.checkConsole(), c.checkPublished(), c.checkCluster()); err != nil {
		return err
	}
	return c.checkListen()
}

// Findings looks for what cannot work, and for what is probably not meant. Of the files that the configuration names it looks at
// those of the cluster alone. All that it finds bites: config check warns of each, and the doctor shows those whose check a
// part of it asks for.
func (c *Config) Findings() (found finding.List) {
	_, err := New(*c)
	found.Wrong("configuration", err)
	found.WrongKey("disk", keyRetainShare, c.DecisionLog.Retain.doubtful())
	found.WrongKey("console", "console.public_url", c.consoleBeside())
	if c.Cluster != nil {
		for _, err := range c.Cluster.Files() {
			found.Wrong("cluster", err)
		}
	}
	for n, issuer := range c.Auth.JWT {
		if err := issuer.Unbarred(); err != nil {
			found.Wrong("issuers", fmt.Errorf("auth.jwt[%d]: %w", n, err))
		}
	}
	return found
}

// checkValues looks for mistakes in the values of each section. A flag or a variable cannot mend them.
func (c *Config) checkValues(r *config.Reading) {
	if c.PublicURL != "" {
		_, err := cleanPublicURL(c.PublicURL)
		r.Add("public_url", err)
	}
	_, err := listener.SocketMode(c.ListenMode)
	r.Add("listen_mode", err)
	_, err = c.TLS.proxies()
	r.Add("tls.proxies", err)
	c.DecisionLog.check(r)
	c.Auth.check(r)
	c.Console.check(r, c.Auth)
	c.checkClusterValues(r)
	c.Load.RateLimit.Check(r.Add)
	r.Add("admin_listen", c.checkAdmin())
}

func (c AuthConfig) check(r *config.Reading) {
	for _, key := range []string{"auth", "auth.jwt", "auth.mtls"} {
		if r.Empty(key) {
			r.Addf(key, "%s is empty, and would let nobody in; list the callers, or leave it out", key)
		}
	}
	_, ofTokens := auth.NewJWT(c.JWT, auth.JWTOptions{})
	_, ofCertificates := auth.NewMTLS(c.MTLS, nil)
	if err := errors.Join(ofTokens, ofCertificates); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.Add(authEntry.FindString(line), errors.New(line))
		}
	}
}

// authEntry is the entry at the beginning of a mistake of it.
var authEntry = regexp.MustCompile(`^auth\.\w+\[\d+\]`)
