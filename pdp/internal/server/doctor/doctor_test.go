package doctor_test

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/crashedlog"
)

const starter = "../../../../policies/starter"

// later is when the examination is: a moment after the servers of these tests, whose clock stands still.
var later = pdptest.Now.Add(time.Minute)

// life is a data directory that a server ran on, with one API key, and stopped.
var life struct {
	sync.Once
	dir   string // TestMain removes it
	ended bool
}

func TestMain(m *testing.M) {
	var err error
	if life.dir, err = os.MkdirTemp("", "doctor-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(life.dir)
	os.Exit(code)
}

// lived is a copy of a data directory that a server ran on, with one API key, and stopped.
func lived(t *testing.T) string {
	t.Helper()
	before := filepath.Join(life.dir, "data")
	life.Do(func() {
		apiKeys, err := keys.Open(before)
		must(t, err)
		if _, err := apiKeys.Add(keys.Spec{Name: "gateway"}); err != nil {
			t.Fatal(err)
		}
		life.ended = t.Run("a life before", func(t *testing.T) { living(t, before) })
	})
	data := filepath.Join(t.TempDir(), "data")
	if out, err := exec.CommandContext(t.Context(), "cp", "-pR", before, data).CombinedOutput(); err != nil || !life.ended {
		t.Fatalf("there was no life before: %v\n%s", err, out)
	}
	return data
}

// living is a server on a data directory, until the test ends.
func living(t *testing.T, data string, options ...pdptest.Option) *pdptest.Server {
	t.Helper()
	options = append(options, func(c *server.Config) { c.Data = data })
	return pdptest.Start(t, pdp.FS(os.DirFS(starter)), options...)
}

func patient(data string) doctor.Patient {
	return doctor.Patient{
		Config: server.Config{Policies: starter, Data: data, Listen: "127.0.0.1:0", Program: server.Program{PDP: pdp.Options{Now: func() time.Time { return later }}}},
	}
}

// biting are the findings of one check that bite, a line each.
func biting(found finding.List, check string) string {
	var b strings.Builder
	for _, f := range found {
		if f.Check == check && f.Bites {
			_, _ = fmt.Fprintf(&b, "%s; %s\n", f.Message, f.Try)
		}
	}
	return b.String()
}

// mustBite wants one finding that bites and holds a text; wherever something bites there is something to try.
func mustBite(t *testing.T, found finding.List, check, want string) {
	t.Helper()
	if got := biting(found, check); !strings.Contains(got, want) {
		t.Errorf("%s says %q, want %q; all: %+v", check, got, want, found)
	}
	for _, f := range found {
		if f.Bites && f.Try == "" {
			t.Errorf("nothing to try is said: %+v", f)
		}
	}
}

func mustBeWell(t *testing.T, found finding.List) {
	t.Helper()
	for _, f := range found {
		if f.Bites && f.Check != "disk" { // which depends on the machine
			t.Errorf("%+v", f)
		}
	}
}

// TestWell: a directory that a server made and left has nothing that bites, findings come in one order, and nothing is
// changed by looking.
func TestWell(t *testing.T) {
	t.Parallel()
	data := lived(t)
	before := listing(t, data)
	found := doctor.Examine(t.Context(), patient(data))
	mustBeWell(t, found)
	var order []string
	for _, f := range found {
		order = append(order, f.Check)
		if f.Message == "" || !f.Bites && f.Try != "" {
			t.Errorf("%+v", f)
		}
	}
	const want = "configuration bundle data keys log approvals capabilities clock disk listen"
	if got := strings.Join(slices.Compact(order), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if after := listing(t, data); after != before {
		t.Errorf("looking changed\n%sinto\n%s", before, after)
	}
}

// TestCapabilitiesAreLookedAt: tokens are signed by a service that knows its own URL. It does not matter where none is live.
func TestCapabilitiesAreLookedAt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	must(t, os.Chmod(data, 0o700))
	const issuer = "https://pdp.example.com"
	grants := pdptest.Bundle(map[string]string{"a.cedar": `@id("grants") permit(principal, action == Action::"capability.grant", resource);`})
	s := pdptest.Start(t, grants, func(c *server.Config) { c.Data, c.PublicURL, c.Program.Authenticator = data, issuer, everybody{} })
	says := func(publicURL, listen string) string {
		p := patient(data)
		p.Config.PublicURL, p.Config.Listen = publicURL, listen
		for _, f := range doctor.Examine(t.Context(), p) {
			if f.Check == "capabilities" {
				return fmt.Sprint(f.Bites, ": ", f.Message)
			}
		}
		return ""
	}
	if got := says(issuer, "127.0.0.1:0"); got != "false: their file is locked: a server is running on it" {
		t.Error(got)
	}
	must(t, s.Stop(t.Context()))
	if got := says("", ":8180"); got != "false: none is granted: tokens are signed once public_url is set" {
		t.Error(got)
	}
	s = pdptest.Start(t, grants, func(c *server.Config) { c.Data, c.PublicURL, c.Program.Authenticator = data, issuer, everybody{} })
	holder, err := capability.NewHolder(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	must(t, err)
	ask := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "a"}, Audience: "b", Tools: []string{"c"}}
	must(t, holder.Request(&ask, issuer, pdptest.Now))
	body, err := ask.MarshalJSON()
	must(t, err)
	if got := s.Post("/v1/capabilities", string(body)); got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	must(t, s.Stop(t.Context()))
	for _, c := range []struct{ publicURL, listen, want string }{
		{issuer, ":8180", "false: 1 are live, and no server is running on their file"},
		{"", "127.0.0.1:8180", "false: 1 are live, and no server is running on their file"},
		{"", ":8180", "true: 1 are live, and their tokens do not count: without public_url the service does not know its own URL"},
	} {
		if got := says(c.publicURL, c.listen); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// everybody may ask for capabilities.
type everybody struct{}

func (everybody) Authenticate(*http.Request) (auth.Caller, error) {
	return auth.Caller{Name: "key:pep", AllTenants: true, Permissions: []auth.Permission{auth.Capability}}, nil
}

// TestNothingYet: serve makes all that is missing, and the doctor makes nothing of it.
func TestNothingYet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustBeWell(t, doctor.Examine(t.Context(), patient(filepath.Join(dir, "a/b"))))
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Error(entries, err)
	}
	mustBite(t, doctor.Examine(t.Context(), patient("")), "data", "decisions are not recorded")
}

// listing is names, modes and contents.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprint(&b, name, info.Mode())
		if !entry.IsDir() {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(&b, " %x", sha256.Sum256(content))
		}
		b.WriteByte('\n')
		return nil
	})
	must(t, err)
	return b.String()
}

// TestSpoilt spoils one thing of a directory that was well, and looks again.
func TestSpoilt(t *testing.T) {
	t.Parallel()
	write := func(name, content string) func(string) error {
		return func(data string) error {
			_ = os.Chmod(filepath.Join(data, name), 0o600) // a sealed segment cannot be written to otherwise
			return os.WriteFile(filepath.Join(data, name), []byte(content), 0o600)
		}
	}
	chmod := func(name string, mode fs.FileMode) func(string) error {
		return func(data string) error { return os.Chmod(filepath.Join(data, name), mode) }
	}
	for _, c := range []struct {
		name, check, want string
		spoil             func(data string) error
	}{
		{"directory open to all", "data", "open to every user of this machine (mode 0755); chmod 700 ", chmod("", 0o755)},
		{"directory open to its group", "data", "open to its group (mode 0750); chmod 700 ", chmod("", 0o750)},
		{"no log key", "keys", "restore it from a backup", func(data string) error { return os.Remove(filepath.Join(data, "log.key")) }},
		{"log key garbage", "keys", "is no private key of a log; restore it from a backup", write("log.key", "garbage")},
		{"mask key short", "keys", "does not hold the 32 bytes of a key; put the file back", write("mask.key", "short")},
		{"signing keys garbage", "keys", "signing.jwks cannot be used", write("signing.jwks", "{")},
		{"API keys garbage", "keys", "cannot read the API keys", write("api-keys.json", "{")},
		{"every API key revoked", "keys", "every API key is revoked or has expired, and nobody can ask; policy-service keys add", revoke},
		{"an API key that expires", "keys", `the API key "soon" expires at `, adds("soon", 13*24*time.Hour)},
		{"approvals' key short", "keys", "does not hold the 32 bytes of a key; put the file back", write("approvals.key", "short")},
		{"approvals garbage", "approvals", "no server starts with them: ", write("approvals.db", strings.Repeat("garbage", 10_000))},
		{"capabilities garbage", "capabilities", "requests that show one are answered with 503: ", write("capabilities.db", strings.Repeat("garbage", 10_000))},
		{"segment garbage", "log", "it cannot be read: ", write("log/00000001.db", strings.Repeat("garbage", 10_000))},
		{"segment empty", "log", "policy-service log verify ", write("log/00000001.db", "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data := lived(t)
			must(t, c.spoil(data))
			mustBite(t, doctor.Examine(t.Context(), patient(data)), c.check, c.want)
		})
	}
}

func adds(name string, lifetime time.Duration) func(string) error {
	return func(data string) error {
		apiKeys, err := keys.Open(data)
		if err != nil {
			return err
		}
		_, err = apiKeys.Add(keys.Spec{Name: name, Lifetime: lifetime})
		return err
	}
}

func revoke(data string) error {
	apiKeys, err := keys.Open(data)
	if err != nil {
		return err
	}
	return apiKeys.Revoke("gateway")
}

// TestJournal: what a crash left in the journal is put on record by serve, and a journal that is damaged keeps serve from
// starting.
func TestJournal(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 3)
	if found := doctor.Examine(t.Context(), patient(data)); biting(found, "log") != "" || !strings.Contains(fmt.Sprint(found), "a crash left 3 records in its journal; serve puts them into the log") {
		t.Error(found)
	}
	at := crashedlog.Damage(t, data, 2)
	mustBite(t, doctor.Examine(t.Context(), patient(data)), "log", fmt.Sprintf("no server starts with it: the journal is damaged: journal.0 at byte %d", at))
	mustBite(t, doctor.Examine(t.Context(), patient(data)), "log", "policy-service log recover --accept-loss --data "+data)
}

func TestDataIsNoDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	mustBite(t, doctor.Examine(t.Context(), patient(file)), "data", "is no directory")
}

func TestClock(t *testing.T) {
	t.Parallel()
	data := lived(t)
	for _, c := range []struct {
		now  time.Time
		want string // "" is nothing
	}{
		{now: later},
		{now: pdptest.Now.Add(300 * 24 * time.Hour)},
		{now: pdptest.Now.Add(-time.Hour), want: "until then every record repeats that time"},
		{now: pdptest.Now.Add(400 * 24 * time.Hour), want: "400 days before: if it is ahead, a retention by age drops everything"},
	} {
		p := patient(data)
		p.Config.Program.PDP.Now = func() time.Time { return c.now }
		found := doctor.Examine(t.Context(), p)
		if mustBite(t, found, "clock", c.want); c.want == "" && biting(found, "clock") != "" {
			t.Errorf("%v: %s", c.now, biting(found, "clock"))
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	data := lived(t)
	running := living(t, data)
	on := func(data, listen string) finding.List {
		p := patient(data)
		p.Config.Listen = listen
		return doctor.Examine(t.Context(), p)
	}
	found := on(data, running.Addr())
	mustBeWell(t, found)
	if text := fmt.Sprint(found); !strings.Contains(text, "it is locked: a server is running on it") || !strings.Contains(text, "is in use, and a server is running on "+data) {
		t.Error(text)
	}
	mustBite(t, on(lived(t), running.Addr()), "listen", "is in use, and no server is running on the log of this data directory")
	mustBite(t, on(data, "192.0.2.1:80"), "listen", "192.0.2.1:80 cannot be listened on")
	mustBite(t, on(data, "0.0.0.0:0"), "configuration", "without TLS only loopback is safe")
}

// TestSocket: the path of a Unix socket is looked at, and nothing is put there or taken away.
func TestSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, path := lived(t), filepath.Join(dir, "pdp.sock")
	on := func(data, mode string) finding.List {
		p := patient(data)
		p.Config.Listen, p.Config.ListenMode = "unix:"+path, mode
		return doctor.Examine(t.Context(), p)
	}
	if found := on(data, "0660"); biting(found, "listen") != "" || !strings.Contains(fmt.Sprint(found), "unix:"+path+" is free") {
		t.Error(found)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the doctor made a socket")
	}
	mustBite(t, on("", "0660"), "listen", "there are no credentials: serve will not start")
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	mustBite(t, on(data, ""), "listen", "every user of this machine can put a socket of its own at "+path)
	must(t, os.Chmod(dir, 0o755))
	living(t, data, func(c *server.Config) { c.Listen = "unix:" + path })
	if found := on(data, ""); !strings.Contains(fmt.Sprint(found), "is in use, and a server is running on "+data) {
		t.Error(found)
	}
	mustBite(t, on(lived(t), ""), "listen", "is in use, and no server is running on the log of this data directory")
	path = filepath.Join(dir, "file")
	must(t, os.WriteFile(path, nil, 0o600))
	mustBite(t, on(data, ""), "listen", "there is a file, not a socket")
}

// TestTerminated: plain HTTP on a network is told of, though the operator wants it.
func TestTerminated(t *testing.T) {
	t.Parallel()
	data := lived(t)
	on := func(data, listen string) finding.List {
		p := patient(data)
		p.Config.Listen, p.Config.TLS.Terminated, p.Config.TLS.Proxies = listen, true, []string{"10.0.0.5"}
		return doctor.Examine(t.Context(), p)
	}
	mustBite(t, on(data, "0.0.0.0:0"), "listen", "whatever can read along between them sees every credential")
	if found := on(data, "127.0.0.1:0"); biting(found, "listen") != "" {
		t.Error(found)
	}
	mustBite(t, on("", "127.0.0.1:0"), "listen", "a proxy that terminates TLS leads here from other machines, and there are no credentials")
}

// TestTLS: an address beyond this machine needs credentials, and a certificate and its key are looked at.
func TestTLS(t *testing.T) {
	t.Parallel()
	data := lived(t)
	cert, key := pdptest.NewAuthority(t).Server()
	secure := func(c *server.Config) { c.TLS.CertFile, c.TLS.KeyFile = cert, key }
	running := living(t, data, secure)
	with := func(data, listen string) doctor.Patient {
		p := patient(data)
		secure(&p.Config)
		p.Config.Listen = listen
		p.Config.Program.PDP.Now = time.Now // the certificate is of today
		return p
	}
	mustBite(t, doctor.Examine(t.Context(), with("", "0.0.0.0:0")), "listen", "there are no credentials: serve will not start")
	found := doctor.Examine(t.Context(), with(data, running.Addr()))
	if text := fmt.Sprint(found); biting(found, "listen") != "" || !strings.Contains(text, "is in use, and a server is running on ") {
		t.Error(text)
	}
	if found := doctor.Examine(t.Context(), with(lived(t), "0.0.0.0:0")); cmp.Or(biting(found, "listen"), biting(found, "configuration")) != "" {
		t.Error(found)
	}

	late := with(data, "127.0.0.1:0")
	late.Config.Program.PDP.Now = func() time.Time { return time.Now().Add(100 * 365 * 24 * time.Hour) }
	mustBite(t, doctor.Examine(t.Context(), late), "configuration", "and clients refuse it; renew it")
	must(t, os.Chmod(key, 0o644))
	mustBite(t, doctor.Examine(t.Context(), with(data, "127.0.0.1:0")), "configuration", "is open to every user of this machine (mode 0644); chmod 600 it")
	must(t, os.WriteFile(cert, nil, 0o600))
	mustBite(t, doctor.Examine(t.Context(), with(data, "127.0.0.1:0")), "configuration", "are no certificate with its key")
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	p := patient(lived(t))
	decide := auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}}
	p.Config.Auth.MTLS = []auth.MTLSRule{{SAN: "gateway.example.com", Grant: decide}}
	mustBite(t, doctor.Examine(t.Context(), p), "configuration", "auth.mtls needs the authority")
	p.Config.Auth.MTLS = nil
	p.Config.Auth.JWT = []auth.JWTIssuer{{
		Issuer: "https://issuer.example.com", Audience: "pdp", Algorithms: []string{"RS256"}, JWKSFile: "no/such/file", Grant: decide,
	}}
	mustBite(t, doctor.Examine(t.Context(), p), "configuration", "auth.jwt[0]: jwks_file no/such/file: ")
}

// People answer a gateway, and nobody hears it: the key that brings their tokens is not there, or may not.
func TestKeysThatRelay(t *testing.T) {
	t.Parallel()
	data := lived(t)
	apiKeys, err := keys.Open(data)
	must(t, err)
	for _, name := range []string{"mcp", "old"} {
		if _, err := apiKeys.Add(keys.Spec{Name: name, Grant: auth.Grant{Permissions: []auth.Permission{auth.Decide, auth.Relay}}}); err != nil {
			t.Fatal(err)
		}
	}
	must(t, apiKeys.Revoke("old"))
	with := func(data string, names ...string) finding.List {
		p := patient(data)
		p.Config.Auth.JWT = []auth.JWTIssuer{
			{Issuer: "https://login.example.com", Audience: "pdp"},
			{Issuer: "https://login.example.com", Audience: "https://mcp.example.com", RelayedBy: names},
		}
		return doctor.Examine(t.Context(), p)
	}
	if bites := biting(with(data, "mcp"), "keys"); bites != "" {
		t.Errorf("a key that relays: %s", bites)
	}
	found := with(data, "mcp", "mpc", "old", "gateway")
	for _, want := range []string{
		`auth.jwt[1].relayed_by names the API key "mpc", and there is none of that name: what people say there does not count; policy-service keys add --data ` + data + ` --permission relay --name "mpc", or correct the name`,
		`names the API key "old", and it is revoked, or has expired`,
		`names the API key "gateway", and it lacks the permission relay: what people say there does not count; make a key of another name`,
	} {
		mustBite(t, found, "keys", want)
	}
	if bites := biting(found, "keys"); strings.Count(bites, "\n") != 3 {
		t.Errorf("the keys: %s", bites)
	}
	mustBite(t, with(filepath.Join(t.TempDir(), "yet"), "mcp"), "keys", `names the API key "mcp", and there is none of that name`)
}

// What was approved must not stop to count because the log forgets it first.
func TestRetentionOutlastedByApprovals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.cedar":                         `@obligation("ask") permit (principal, action == Action::"push", resource); forbid (principal, action == Action::"stop", resource);`,
		"obligations.yaml":                "ask: {type: approval_required, properties: {template: owner, timeout: 1h}}\nnobody: {type: approval_required, properties: {timeout: 900h}}\n",
		"tenants/acme/obligations.yaml":   "acme: {type: approval_required, properties: {template: owner, timeout: 24h, valid_for: 30m}}\n",
		"tenants/globex/obligations.yaml": "step: {type: step-up, properties: {acr_value: high}}\n",
	} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		must(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)))
	}
	p := patient("")
	p.Config.Policies = dir
	for _, age := range []time.Duration{0, 24*time.Hour + 30*time.Minute, 48 * time.Hour} {
		p.Config.DecisionLog.Retain.Age = age
		if bites := biting(doctor.Examine(t.Context(), p), "bundle"); bites != "" {
			t.Errorf("%v: %s", age, bites)
		}
	}
	p.Config.DecisionLog.Retain.Age = 24*time.Hour + 29*time.Minute
	mustBite(t, doctor.Examine(t.Context(), p), "bundle",
		"decision_log.retain.age is 24h29m0s, and an approval request of this bundle lasts up to 24h30m0s: once its steps are dropped from the log it allows nothing; make the age 24h30m0s at least, or ")
}

func TestBundle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		spoil      func(dir string) error
	}{
		{"as it was", "", func(string) error { return nil }},
		{"gone", "it cannot be read", os.RemoveAll},
		{"half a policy", "half.cedar:1:", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "half.cedar"), []byte("forbid (principal,"), 0o644)
		}},
		{"writable for all", "1 of its files and directories are writable for all, the first is people.cedar; chmod -R o-w ", func(dir string) error {
			return os.Chmod(filepath.Join(dir, "people.cedar"), 0o666)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bundle")
			must(t, os.CopyFS(dir, os.DirFS(starter)))
			must(t, c.spoil(dir))
			p := patient("")
			p.Config.Policies = dir
			found := doctor.Examine(t.Context(), p)
			if mustBite(t, found, "bundle", c.want); c.want == "" && biting(found, "bundle") != "" {
				t.Error(biting(found, "bundle"))
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
