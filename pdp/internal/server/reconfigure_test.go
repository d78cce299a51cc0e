package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// changing is a server whose configuration changes while it runs.
type changing struct {
	*pdptest.Server
	t         *testing.T
	authority *pdptest.Authority
	data      string
	base      func(*server.Config) // what it was started with
	told      written.Text
}

// letIn is a rule for the certificate of one PEP.
func letIn(name string) auth.MTLSRule {
	return auth.MTLSRule{SAN: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}}}
}

// startChanging starts a server that lets one.example in.
func startChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{t: t, authority: pdptest.NewAuthority(t), data: t.TempDir()}
	cert, key := c.authority.Server()
	c.base = func(config *server.Config) {
		config.Listen, config.Data, config.Program.Checkpoints = "127.0.0.1:0", c.data, io.Discard
		config.TLS.TLSFiles = server.TLSFiles{CertFile: cert, KeyFile: key, ClientCAFile: c.authority.File}
		config.Auth.MTLS = []auth.MTLSRule{letIn("one.example")}
		config.DecisionLog.Mask = []string{"/context/pin"}
	}
	c.Server = pdptest.Start(t, telling(), c.base, logTo(&c.told), func(config *server.Config) { config.Program.Checkpoints = &c.told })
	return c
}

// take has it take what a change makes of what it was started with.
func (c *changing) take(change func(*server.Config)) error {
	return c.Reconfigure(c.t.Context(), c.changed(change))
}

func (c *changing) changed(change func(*server.Config)) func() (server.Config, error) {
	return func() (server.Config, error) {
		var config server.Config
		c.base(&config)
		change(&config)
		return config, nil
	}
}

// as asks with the certificate of a PEP, over a connection of its own.
func (c *changing) as(name, pin string) pdptest.Response {
	c.t.Helper()
	c.Trust(c.authority, c.authority.Client(name))
	defer c.Client.CloseIdleConnections()
	return c.Post(evaluationPath, in(`{"pin":"`+pin+`","other":"`+pin+`"}`))
}

func (c *changing) lets(names ...string) {
	c.t.Helper()
	for _, name := range []string{"one.example", "two.example"} {
		want := 401
		if slices.Contains(names, name) {
			want = 200
		}
		if got := c.as(name, "some-pin"); got.Status != want {
			c.t.Errorf("%s got %d, want %d", name, got.Status, want)
		}
	}
}

func TestReconfigure(t *testing.T) {
	t.Parallel()
	c := startChanging(t)
	c.lets("one.example")
	must(t, c.take(func(config *server.Config) { config.Auth.MTLS = append(config.Auth.MTLS, letIn("two.example")) }))
	c.lets("one.example", "two.example")
	must(t, c.take(func(config *server.Config) {
		config.Auth.MTLS = []auth.MTLSRule{letIn("two.example")}
		config.DecisionLog.Mask = []string{"/context/other"}
		config.DecisionLog.Retain.Age = 90 * 24 * time.Hour
	}))
	c.lets("two.example")
	id := c.as("two.example", "four-two").Header.Get("X-Decision-Id")
	must(t, c.take(func(config *server.Config) { // nothing new
		config.Auth.MTLS = []auth.MTLSRule{letIn("two.example")}
		config.DecisionLog.Mask = []string{"/context/other"}
		config.DecisionLog.Retain.Age = 90 * 24 * time.Hour
	}))
	stopAndWait(t, c.Server)

	all := lines(t, c.data)
	if context := byID(all)[id].Request.Context; !strings.HasPrefix(context["other"].(string), "masked:") {
		t.Errorf("the new mask does not count: %v", context)
	}
	taken := events(all, "configuration")
	if len(taken) != 3 || strings.Contains(text(t, taken[1].Details), "2160h") || !strings.Contains(text(t, taken[2].Details), `"age":"2160h0m0s"`) || taken[2].Sequence > byID(all)[id].Sequence {
		t.Errorf("the configuration in force should be on record before it counts: %+v", taken)
	}
	if told := c.told.String(); !strings.Contains(told, `msg="configuration in force" changed="[auth.mtls decision_log.mask decision_log.retain.age]"`) || !strings.Contains(told, "nothing in it has changed") {
		t.Errorf("got %s", told)
	}
}

// Every key is taken, or refused by its name, and then nothing else counts either.
func TestReconfigureTakesAllOrNothing(t *testing.T) {
	t.Parallel()
	other := map[string]string{
		"listen": "127.0.0.1:1", "public_url": "https://pdp.example", "decision_log.mode": "best_effort", "decision_log.tiles": "public", "tls.client_ca_file": "/other/ca.pem", "admin_listen": "127.0.0.1:1",
		"console.listen": "127.0.0.1:1", "console.public_url": "https://pdp.example/console", "decision_log.sinks.stdout.queue": "2000", "decision_log.sinks.otlp.queue": "2000", "decision_log.retain.age": "90d", "decision_log.retain.bytes": "10737418240", "log.access": "true",
	}
	other["metrics.token_file"] = filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(other["metrics.token_file"], []byte(strings.Repeat("x", 32)), 0o600))
	c := startChanging(t)
	for _, k := range server.ConfigForm.Keys() {
		switch k.Path {
		case "listen_mode", "tls.terminated": // which are refused without a socket, and beside a certificate
			continue
		case "rate_limit.burst", "decision_log.retain.least_age", "decision_log.retain.share", "decision_log.retain.share_person",
			"decision_log.witnesses.every", "decision_log.witnesses.patience", "decision_log.witnesses.required": // which are refused without per_second, bytes and policy_file
			continue
		}
		if k.Variable == "" || strings.HasPrefix(k.Path, "console.oidc.") || strings.HasPrefix(k.Path, "cluster.") { // which say nothing without grants, or endpoints
			continue
		}
		value := other[k.Path]
		switch {
		case value != "":
		case len(k.Enum) > 0:
			value = k.Enum[0]
		case k.Min != "" && k.Min != k.Default:
			value = k.Min
		default:
			value = filepath.Join(t.TempDir(), "other")
		}
		err := c.take(func(told *server.Config) {
			told.Auth.MTLS = []auth.MTLSRule{letIn("two.example")}
			_, err := server.ConfigForm.Read(config.Given{Flags: []config.Flag{{Key: k.Path, Name: "--x", Value: value}}}, told)
			must(t, err)
			told.Program.Checkpoints = &c.told
		})
		if k.Reloads {
			if err != nil {
				t.Errorf("%s: %v", k.Path, err)
			}
			c.lets("two.example")
			must(t, c.take(func(*server.Config) {})) // as it was
			continue
		}
		var restart *server.RestartError
		if !errors.As(err, &restart) || !slices.Contains(restart.Keys, k.Path) || slices.Contains(restart.Keys, "auth.mtls") {
			t.Errorf("%s: got %v", k.Path, err)
		}
		c.lets("one.example")
	}
	stopAndWait(t, c.Server)
	refused := events(lines(t, c.data), "configuration_refused")
	if len(refused) < 7 || !strings.Contains(text(t, refused[0].Details), `"restart":["policies"]`) {
		t.Errorf("got %+v", refused)
	}
}

func TestReconfigureRefuses(t *testing.T) {
	t.Parallel()
	c := startChanging(t)
	broken := config.Mistakes{"c.yaml:1:1: unknown key \"lisen\"; use one of listen", "c.yaml:2:1: another; mend it"}
	for want, read := range map[string]func() (server.Config, error){
		"unknown key":               func() (server.Config, error) { return server.Config{}, broken },
		"auth.mtls[1]: ":            c.changed(func(config *server.Config) { config.Auth.MTLS = append(config.Auth.MTLS, letIn("one.example")) }),
		"retain.age is less than":   c.changed(func(config *server.Config) { config.DecisionLog.Retain.Age = 1 }),
		"decision_log.retain count": c.changed(func(config *server.Config) { config.DecisionLog.Retain.Age = 2 * time.Hour }), // shorter segments
		"addresses nothing":         c.changed(func(config *server.Config) { config.DecisionLog.Mask = []string{"/subject/id"} }),
		"open to everybody":         c.changed(func(config *server.Config) { config.Auth.MTLS = nil }),
		"needs a directory":         c.changed(func(config *server.Config) { config.Data = "" }),
		"metrics.token_file: ":      c.changed(func(config *server.Config) { config.Metrics.TokenFile = "/dev/null" }),
	} {
		err := c.Reconfigure(t.Context(), read)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("got %v, want %s", err, want)
		}
		if !strings.Contains(c.told.String(), want) && !strings.Contains(c.told.String(), strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("the operator is not told of %s", want)
		}
		c.lets("one.example")
	}
	stopAndWait(t, c.Server)
	all := lines(t, c.data)
	if refused := events(all, "configuration_refused"); len(refused) != 8 {
		t.Errorf("got %+v", refused)
	}
	if taken := events(all, "configuration"); len(taken) != 1 {
		t.Errorf("got %+v", taken)
	}
}

// What cannot be put on record does not count.
func TestReconfigureWithoutARecordIsRefused(t *testing.T) {
	t.Parallel()
	c := startChanging(t)
	must(t, c.Log().Close())
	err := c.take(func(config *server.Config) { config.Auth.MTLS = []auth.MTLSRule{letIn("two.example")} })
	if err == nil || !strings.Contains(err.Error(), "cannot be recorded: ") {
		t.Errorf("got %v", err)
	}
	if got := c.as("two.example", "x").Status; got != 401 {
		t.Errorf("got %d: it counts", got)
	}
}

// A key that was added while the server runs is a credential as well.
func TestReconfigureWithoutAuthWhereThereIsAKey(t *testing.T) {
	t.Parallel()
	c := startChanging(t)
	key := addKey(t, c.data, "pep", auth.Grant{})
	eventually(t, "the key is known", func() bool { return c.asKey(key) == 200 })
	must(t, c.take(func(config *server.Config) { config.Auth.MTLS = nil }))
	c.lets()
	if got := c.asKey(key); got != 200 {
		t.Errorf("got %d", got)
	}
}

func (c *changing) asKey(key string) int {
	c.Trust(c.authority)
	defer c.Client.CloseIdleConnections()
	return c.Post(evaluationPath, readQuestion, "Authorization", key).Status
}

// A request that has begun ends by the configuration that it began with: the caller's
// rule is gone and the mask another one before its body is sent.
func TestARequestKeepsTheConfigurationItBeganWith(t *testing.T) {
	t.Parallel()
	c := startChanging(t)
	begun, body := make(chan struct{}), in(`{"pin":"four-two","other":"none"}`)
	transport := &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: c.authority.Pool, Certificates: []tls.Certificate{c.authority.Client("one.example")}},
		ExpectContinueTimeout: patience,
	}
	defer transport.CloseIdleConnections()
	reader, writer := io.Pipe()
	go func() {
		_, _ = writer.Write([]byte(body[:1])) // returns when the server has asked for the body
		close(begun)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+evaluationPath, reader)
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Expect", "100-continue")
	type outcome struct {
		status int
		id     string
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		w, err := transport.RoundTrip(r)
		if err != nil {
			ended <- outcome{err: err}
			return
		}
		_ = w.Body.Close()
		ended <- outcome{w.StatusCode, w.Header.Get("X-Decision-Id"), nil}
	}()
	select {
	case <-begun:
	case got := <-ended:
		t.Fatalf("it ended before it began: %+v", got)
	}
	must(t, c.take(func(config *server.Config) {
		config.Auth.MTLS = []auth.MTLSRule{letIn("two.example")}
		config.DecisionLog.Mask = nil
	}))
	c.lets("two.example")
	_, err = writer.Write([]byte(body[1:]))
	must(t, err)
	must(t, writer.Close())
	got := <-ended
	if got.err != nil || got.status != 200 {
		t.Fatalf("got %+v", got)
	}
	stopAndWait(t, c.Server)
	if pin := byID(lines(t, c.data))[got.id].Request.Context["pin"]; !strings.HasPrefix(pin.(string), "masked:") {
		t.Errorf("got %v", pin)
	}
}

// text is what goes on record of details.
func text(t *testing.T, details map[string]any) string {
	t.Helper()
	encoded, err := json.Marshal(details)
	must(t, err)
	return string(encoded)
}
