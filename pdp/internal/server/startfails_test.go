//go:build linux

package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/pdptest/port"
	"policy-service/pdp/pdptest/written"
)

// alone runs a test in a process of its own, where nothing else has goroutines or open files, and reports whether this is
// that process.
func alone(t *testing.T) bool {
	t.Helper()
	const variable = "TEST_ALONE"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"="+t.Name())
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// held is what a process has open: its goroutines, and the files, sockets and memory maps by name.
type held struct {
	goroutines int
	files      []string
}

func holds(t *testing.T, data string) (h held) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, one := range entries {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", one.Name())); err == nil { // else it was that of ReadDir
			h.files = append(h.files, name)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, data) {
			h.files = append(h.files, line)
		}
	}
	h.goroutines = pprof.Lookup("goroutine").Count()
	return h
}

// settles waits until a process has no more open than before.
func settles(t *testing.T, when, data string, before held) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience / 2); ; <-tick.C {
		now := holds(t, data)
		if now.goroutines <= before.goroutines && len(now.files) <= len(before.files) {
			return
		}
		if time.Now().After(late) {
			var stacks bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Errorf("%s there are %d goroutines, and were %d; open are\n%s\nand were\n%s\n%s", when, now.goroutines, before.goroutines,
				strings.Join(now.files, "\n"), strings.Join(before.files, "\n"), &stacks)
			return
		}
	}
}

// spoils spoils one opening of a server, and mend undoes that. What it changes in the configuration stays so.
type spoils func(t *testing.T, c *server.Config) (mend func())

// failure is a start that fails.
type failure struct {
	name, want string
	spoil      spoils
	// during ends the start, by cancel if by nothing else. Without it the start fails by itself.
	during func(c *server.Config, cancel func())
}

// fails starts a server, whose start fails, and another one of the same configuration after the cause is mended. Neither
// leaves anything.
func (f failure) fails(t *testing.T, config server.Config, authorization string) {
	before := holds(t, config.Data)
	mend := f.spoil(t, &config)
	spoilt := holds(t, config.Data)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if f.during != nil {
			f.during(&config, cancel)
		}
	}()
	s, err := server.New(config)
	if err == nil {
		err = s.Start(ctx)
	}
	if err == nil {
		must(t, s.Stop(t.Context()))
	}
	if err == nil || !strings.Contains(err.Error(), f.want) {
		t.Errorf("got %v, want %q", err, f.want)
	}
	<-ended
	settles(t, "after the start that failed", config.Data, spoilt)
	mend()
	answers(t, config, authorization)
	settles(t, "after the stop", config.Data, before)
}

// answers starts a server, asks it, and stops it.
func answers(t *testing.T, config server.Config, authorization string) {
	t.Helper()
	s, err := server.New(config)
	must(t, err)
	must(t, s.Start(t.Context()))
	if got := askOnce(t, s.Addr(), authorization); got != http.StatusOK {
		t.Errorf("it answers %d", got)
	}
	must(t, s.Stop(t.Context()))
}

// askOnce asks for a decision by a connection of its own. It returns 0 if there is none.
func askOnce(t *testing.T, addr, authorization string) int {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	url := "https://" + addr
	if path, is := strings.CutPrefix(addr, "unix:"); is {
		url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+evaluationPath, strings.NewReader(readQuestion))
	must(t, err)
	r.Header = http.Header{"Authorization": {authorization}, "Content-Type": {"application/json"}}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// aside renames a file or directory, and returns what has it back in the place of what came there.
func aside(t *testing.T, name string) (back func()) {
	t.Helper()
	err := os.Rename(name, name+".aside")
	return func() {
		must(t, os.RemoveAll(name))
		if err == nil {
			must(t, os.Rename(name+".aside", name))
		}
	}
}

// at returns where something of a configuration is.
type at func(c *server.Config) (file string)

func inData(name string) at {
	return func(c *server.Config) string { return filepath.Join(c.Data, name) }
}

// instead puts something else in the place of a file.
func instead(file at, put func(name string) error) spoils {
	return func(t *testing.T, c *server.Config) (mend func()) {
		mend = aside(t, file(c))
		must(t, put(file(c)))
		return mend
	}
}

func directory(file at) spoils {
	return instead(file, func(name string) error { return os.Mkdir(name, 0o700) })
}

func content(file at, text string) spoils {
	return instead(file, func(name string) error { return os.WriteFile(name, []byte(text), 0o600) })
}

// cut leaves the beginning of a file of bbolt.
func cut(file at) spoils {
	return instead(file, func(name string) error {
		all, err := os.ReadFile(name + ".aside")
		return errors.Join(err, os.WriteFile(name, all[:3*4096], 0o600))
	})
}

func gone(file at) spoils {
	return func(t *testing.T, c *server.Config) func() { return aside(t, file(c)) }
}

// taken listens at an address.
func taken(network string, address at) spoils {
	return func(t *testing.T, c *server.Config) func() {
		l, err := net.Listen(network, address(c))
		must(t, err)
		return func() { must(t, l.Close()) }
	}
}

// TestStartsAfterAFailure: whatever fails in a start leaves a process in which a second start succeeds with the cause
// mended, and nothing else.
func TestStartsAfterAFailure(t *testing.T) {
	if !alone(t) {
		return
	}
	grants, token := granting(t, "peps decide in default")
	config := server.Config{
		Listen: port.Free(t), AdminListen: port.Free(t), Console: &server.ConsoleConfig{Listen: port.Free(t)}, Policies: t.TempDir(),
		Metrics: server.MetricsConfig{TokenFile: filepath.Join(t.TempDir(), "token")},
	}
	writeAll(t, config.Policies, map[string]string{"a.cedar": `permit(principal is user, action, resource);`})
	secret := filepath.Join(t.TempDir(), "secret")
	for _, file := range []string{config.Metrics.TokenFile, secret} {
		must(t, os.WriteFile(file, []byte(strings.Repeat("s", 32)), 0o600))
	}
	config.Approvals.Webhooks = []webhook.Config{{URL: "https://192.0.2.1/", SecretFile: secret, Allow: []string{"192.0.2.1"}}}
	config.Program.PDP.Now = func() time.Time { return pdptest.Now }
	inForce, _ := witnessed(t, "", 1, 1)
	for _, option := range []pdptest.Option{inForce, grants, withTLS(pdptest.NewAuthority(t)), withStdout(0, new(written.Text)), server.Hurried} {
		option(&config)
	}
	addKey(t, config.Data, "pep", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}})
	_, other := pdptest.NewAuthority(t).Server()
	otherKey, err := os.ReadFile(other)
	must(t, err)
	var another server.Config
	ofAnother, _ := witnessed(t, "", 1, 1)
	ofAnother(&another)
	otherPolicy, err := os.ReadFile(another.DecisionLog.Witnesses.PolicyFile)
	must(t, err)
	policies := func(c *server.Config) string { return c.Policies }
	certificate, key := func(c *server.Config) string { return c.TLS.CertFile }, func(c *server.Config) string { return c.TLS.KeyFile }
	policy := func(c *server.Config) string { return c.DecisionLog.Witnesses.PolicyFile }
	scrapes := func(c *server.Config) string { return c.Metrics.TokenFile }
	hook := func(c *server.Config) string { return c.Approvals.Webhooks[0].SecretFile }
	issuer := func(c *server.Config) string { return c.Auth.JWT[0].JWKSFile }
	garbage := strings.Repeat("garbage", 10_000)
	all := []failure{
		{"address taken", "try another --listen address", taken("tcp", func(c *server.Config) string { return c.Listen }), nil},
		{"console's address taken", "try another console.listen", taken("tcp", func(c *server.Config) string { return c.Console.Listen }), nil},
		{"admin address taken", "for the admin listener", taken("tcp", func(c *server.Config) string { return c.AdminListen }), nil},
		{"socket taken", "another process answers there", func(t *testing.T, c *server.Config) func() {
			path := filepath.Join(t.TempDir(), "s")
			c.Listen = "unix:" + path
			return taken("unix", func(*server.Config) string { return path })(t, c)
		}, nil},
		{"approvals in use", "the approvals are in use by another process", func(t *testing.T, c *server.Config) func() {
			f, err := os.Open(filepath.Join(c.Data, "approvals.db"))
			must(t, err)
			must(t, boltfile.Lock(f, true, 0))
			return func() { must(t, boltfile.Unlock(f)) }
		}, nil},
		{"another certificate's key", "private key does not match", content(key, string(otherKey)), nil},
		{"policy of no witnesses", "line 1: the quorum is none", content(policy, "quorum none\n"), nil},
		{"policy of another log", "has the keys of logs, and not that of this one", content(policy, string(otherPolicy)), nil},
		{"metrics token short", "fewer than 32 bytes", content(scrapes, "short"), nil},
		{"issuer's keys", "it is no JWK Set", content(issuer, "{"), nil},
		{"policies", "cannot be read: not a directory", content(policies, ""), nil},
		{"bundle wrong", "this is not Cedar", content(func(c *server.Config) string { return filepath.Join(c.Policies, "b.cedar") }, "permit("), nil},
		{"bundle refused", "not now", func(_ *testing.T, c *server.Config) func() {
			refusal := errors.New("not now")
			c.Program.PDP.BeforeSwap = func(pdp.Incoming) error { return refusal }
			return func() { refusal = nil }
		}, nil},
		{"API keys", "api-keys.json: it is no JSON", content(inData("api-keys.json"), "{"), nil},
		{"restored", "restored.json says what a restore left", content(inData("restored.json"), "{"), nil},
		{"bundles", "cannot make the directory for the files of bundles", content(inData("log/bundles"), ""), nil},
		{"data directory", "cannot make the data directory", content(inData(""), ""), nil},
		{"segment damaged", "neither meta page is valid", content(inData("log/00000001.db"), garbage), nil},
		{"segment gone", "log.key is there, and no segment", gone(inData("log/00000001.db")), nil},
		{"segment cut", "00000001.db: the decision log is damaged", cut(inData("log/00000001.db")), nil},
		{"approvals damaged", "the file of the approvals is damaged", content(inData("approvals.db"), garbage), nil},
		{"approvals cut", "the file of the approvals is damaged", cut(inData("approvals.db")), nil},
		{"disk full", "no space left on device", func(t *testing.T, c *server.Config) func() {
			c.Data, c.DecisionLog.Witnesses = memorydisk.New(t, "size=64m,mode=0700"), nil
			return etcdtest.Fill(t, c.Data)
		}, nil},
		{"log.key short", "log.key is no private key of a log", content(inData("log.key"), "short"), nil},
		{"signing.jwks short", "signing.jwks cannot be used", content(inData("signing.jwks"), "short"), nil},
	}
	for _, name := range []string{"approvals.key", "page.key", "mask.key"} {
		all = append(all, failure{name + " short", name + " does not hold the 32 bytes of a key", content(inData(name), "short"), nil})
	}
	files := []at{certificate, key, policy, scrapes, hook, issuer}
	for _, name := range []string{"api-keys.json", "approvals.key", "page.key", "mask.key", "log.key", "signing.jwks", "restored.json", "approvals.db", "log/00000001.db"} {
		files = append(files, inData(name))
	}
	for _, file := range files {
		name := filepath.Base(file(&config))
		all = append(all, failure{name + " is a directory", name + ": it is a directory, not a regular file", directory(file), nil})
	}
	all = append(all, failure{"directory in use", "stop the server that runs there", func(t *testing.T, c *server.Config) func() {
		return startChildOn(t, decisionlog.Strict, c.Data).stop // its clock goes on: the log has another segment after it
	}, nil})
	answers(t, config, token("peps")) // what the process keeps from then on is no leak
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) { one.fails(t, config, token("peps")) })
	}
}
