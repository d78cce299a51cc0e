package server

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
)

// DefaultListen is where a server listens that is told nothing else.
const DefaultListen = "127.0.0.1:8180"

// Config is what a [Server] is told. Nothing in it can change an answer: what
// does lives in the bundle, so that all commands agree.
//
// A field with a yaml tag is a key of the configuration: the file, the environment,
// the JSON Schema, the help and the page README.md take it from its tags, which [Key]
// explains. To add one, add a field.
type Config struct {
	// Source is the bundle to answer from; without one it is the directory Policies.
	Source pdp.Source `yaml:"-"`
	// Policies is the directory of the bundle, where there is no Source.
	Policies string `yaml:"policies" path:"yes" doc:"The directory of the bundle. The service watches it: an edit is in force a moment later."`
	// Listen is the address, host:port; port 0 takes any free one. Other than
	// loopback needs TLS and credentials.
	Listen string `yaml:"listen" default:"127.0.0.1:8180" doc:"The address to listen on, as host:port. Port 0 takes a free port. An address other than loopback needs TLS and credentials."`
	// Data is the directory for what the service keeps, made where it does not
	// exist; without one there are no API keys and the signing key is not kept.
	Data string `yaml:"data" path:"yes" doc:"The directory for what the service keeps: the decision log, approvals, API keys and signing keys. The service makes it if it does not exist. Without it the service keeps nothing, and there are no API keys."`
	// PublicURL is the address by which clients reach the service. What it publishes
	// about itself is made from this, never from a request's Host.
	PublicURL string `yaml:"public_url" doc:"The address by which clients reach the service, as https://host[:port][/path]. The service makes what it publishes about itself from it. A slash at its end is dropped. A host other than loopback needs credentials."`
	// TLS turns TLS on; the zero value is plain HTTP.
	TLS TLSFiles `yaml:"tls"`
	// Auth is who may ask besides the holders of API keys.
	Auth AuthConfig `yaml:"auth" reload:"yes"`
	// DecisionLog is how decisions are recorded. There is a log where there is Data.
	DecisionLog DecisionLogConfig `yaml:"decision_log"`
	// Approvals bounds what people are asked. They are asked where there is a log.
	Approvals ApprovalsConfig `yaml:"approvals"`
	// Load bounds what all requests together may cost.
	Load LoadConfig `yaml:",inline"`
	// AdminListen is the address of a second listener, for profiles of the process; ""
	// is none. It must be loopback.
	AdminListen string `yaml:"admin_listen" doc:"A second address to listen on, as host:port on loopback, for profiles of the process (/debug/pprof) and its metrics. It takes no credentials. None unless given."`
	// Checkpoints takes every signed checkpoint of the decision log as it is made,
	// for somebody to keep elsewhere; the default discards them. With the sink stdout
	// it takes the records, too; see [SinksConfig]. One call takes whole lines.
	Checkpoints io.Writer `yaml:"-"`
	// MeterProvider takes what the service counts. Without one it is at /metrics, and sent
	// where the environment variables of OpenTelemetry say.
	MeterProvider metric.MeterProvider `yaml:"-"`
	// TracerProvider takes the traces of requests. Without one they are sent where the
	// environment variables of OpenTelemetry say, and there are none where they say nothing.
	TracerProvider trace.TracerProvider `yaml:"-"`
	// Logger takes what the operator should know; the default discards it.
	Logger *slog.Logger `yaml:"-"`
	// Limits bound requests; the zero value is [evaluation.DefaultLimits].
	Limits evaluation.Limits `yaml:"-"`
	// Authenticator takes the place of the one that Data and Auth make.
	Authenticator Authenticator `yaml:"-"`
	// PDP is passed on. Its BeforeSwap and OnLoad are called after the server's own;
	// its Recorder takes the place of the decision log.
	PDP pdp.Options `yaml:"-"`

	// tuneLog is for tests of what takes hours and gigabytes otherwise.
	tuneLog func(*decisionlog.Options, *decisionlog.Retention)
	// tuneHTTP is for tests of what takes minutes otherwise.
	tuneHTTP func(*http.Server)
	// unhurried is for tests of what is handed on at a stop, on a machine that may be slow.
	unhurried bool
}

// stopsWithin is how long a stop waits for those who take what it hands on.
func (c *Config) stopsWithin(usual time.Duration) time.Duration {
	if c.unhurried {
		return time.Minute
	}
	return usual
}

// withDefaults sets what is not set. Defaults of keys stand in their tags.
func (c Config) withDefaults() Config {
	c.setDefaults()
	if c.Source == (pdp.Source{}) && c.Policies != "" {
		c.Source = pdp.Dir(c.Policies)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = slog.New(correlated{c.Logger.Handler()})
	if c.Limits == (evaluation.Limits{}) {
		c.Limits = evaluation.DefaultLimits()
	}
	if c.Checkpoints == nil {
		c.Checkpoints = io.Discard
	}
	if c.PDP.Now == nil {
		c.PDP.Now = time.Now
	}
	return c
}

// check finds what cannot work whatever the files hold. It also writes PublicURL in
// its one form.
func (c *Config) check() (err error) {
	if err := c.checkBounds(); err != nil {
		return err
	}
	if c.PublicURL != "" {
		if c.PublicURL, err = cleanPublicURL(c.PublicURL); err != nil {
			return err
		}
	}
	if err := c.TLS.check(); err != nil {
		return err
	}
	if len(c.Auth.MTLS) > 0 && c.TLS.ClientCAFile == "" {
		return errors.New("auth.mtls needs the authority of the clients' certificates; add --client-ca, or tls.client_ca_file")
	}
	if err := errors.Join(c.checkLog(), c.Load.check(), c.checkAdmin(), c.checkPublished()); err != nil {
		return err
	}
	return c.checkListen()
}

// httpServer sets every bound that net/http leaves open.
func (s *Server) httpServer() *http.Server {
	server := &http.Server{
		Handler: s.handler(),
		// A client that dribbles its header holds a connection this long, no longer.
		ReadHeaderTimeout: 5 * time.Second,
		// The same for its body: 1 MiB in this time is a very slow PEP.
		ReadTimeout: 15 * time.Second,
		// Runs from the end of the header, so it must outlast the body and the
		// decision; it ends clients that never read their answer.
		WriteTimeout: 40 * time.Second,
		// Longer than the 60 s after which common proxies drop an idle
		// connection: the side that closes second never loses a request.
		IdleTimeout: 120 * time.Second,
		// Room for a JWT and a trace, not for the 1 MiB of the default.
		MaxHeaderBytes: 32 << 10,
		// "OPTIONS *" is to go the way of every other request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState:                    s.connections.changed,
		ConnContext:                  s.connections.named,
		HTTP2: &http.HTTP2Config{
			// As many requests at once as a busy PEP has, on one connection.
			MaxConcurrentStreams: 128,
			// A peer that has gone without a word holds a connection this long.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     10 * time.Second,
			// A peer that reads nothing of what waits for it.
			WriteByteTimeout: 20 * time.Second,
		},
	}
	if s.config.tuneHTTP != nil {
		s.config.tuneHTTP(server)
	}
	return server
}
