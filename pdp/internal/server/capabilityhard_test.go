package server_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation/capability"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/written"
)

// authzen is the call in the shape of AuthZEN.
func (s shot) authzen(t testing.TB) string {
	t.Helper()
	s = s.proved(t)
	return fmt.Sprintf(`{"subject":{"type":"agent","id":%q},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q},"context":{"arguments":%s,"capability":{"token":%q,"proof":%q}%s}}`,
		s.agent, s.tool, s.arguments, s.token, s.proof, s.more)
}

// TestCapabilityOnceByAuthZEN: of 64 calls at once as many are allowed as there are proofs, uses and approvals.
func TestCapabilityOnceByAuthZEN(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	all := func(body func() string) int {
		return w.atOnce(func(int) (string, string) { return evaluationPath, body() })[evaluationPath]
	}

	g := w.asksFor(http.StatusCreated, nil, "read")
	s := w.call(g, "b:read").proved(t)
	if n := all(func() string { return s.authzen(t) }); n != 1 {
		t.Errorf("one proof: %d allows", n)
	}
	w.reply("wallet", "POST", evaluationPath, s.authzen(t)).is(t, "the proof once more", 200, `"reason":"proof_replayed"`)
	w.is("proof_replayed", s) // natively, too
	once := w.asksFor(http.StatusCreated, uses(1), "read")
	if n := all(func() string { return w.call(once, "b:read").authzen(t) }); n != 1 {
		t.Errorf("one use: %d allows", n)
	}
	w.reply("wallet", "POST", evaluationPath, w.call(once, "b:read").authzen(t)).is(t, "the second use of one", 200, `"reason":"used_up"`)

	// Each call has a proof of its own, and all of them one approval, which is for one call. The others use nothing.
	both := w.asksFor(http.StatusCreated, uses(2), "both")
	waits := w.is("wait", w.call(both, "b:both"))
	w.says("mia", waits.Approval.ID, "decision", yes, http.StatusOK)
	approved := func() string {
		s := w.call(both, "b:both")
		s.more = fmt.Sprintf(`,"approval_id":%q`, waits.Approval.ID)
		return s.authzen(t)
	}
	if n := all(approved); n != 1 {
		t.Errorf("one approval: %d allows", n)
	}
	w.stands(t, "the approval", "wallet", waits.Approval.ID, "used_up", 1)
	w.reply("wallet", "GET", "/v1/capabilities/"+both.ID, "").is(t, "one use is left", 200, `"used":1}`)
}

// TestCapabilityOfTwoTenants: a holder has a capability for a tool in two tenants, with one key. Neither counts in the other
// tenant, nor does a use of it.
func TestCapabilityOfTwoTenants(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	tenants := []string{"default", "acme"}
	path := map[string]string{"default": evaluationPath, "acme": "/tenants/acme" + evaluationPath}
	most, held := map[string]int{"default": 20, "acme": 7}, map[string]granted{}
	for _, tenant := range tenants {
		held[tenant] = w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Tenant, a.MaxUses = tenant, most[tenant] }, "read")
	}
	for n, tenant := range tenants {
		other := tenants[1-n]
		for _, token := range []string{held[tenant].Token, held[tenant].ID} {
			s := w.call(held[tenant], "b:read").proved(t)
			s.token = token
			const want = `{"decision":false,"context":{"reason":"capability_invalid","capability":{"reason":"bad_signature","next_action":"none"}}}`
			if got := w.reply("wallet", "POST", path[other], s.authzen(t)); got.text != want {
				t.Errorf("that of %s in %s: %+v", tenant, other, got)
			}
			w.reply("wallet", "POST", path[tenant], s.authzen(t)).is(t, "at home, with the same proof", 200, `{"decision":true`)
			most[tenant]--
		}
	}
	allows := w.atOnce(func(n int) (string, string) {
		tenant := tenants[n%2]
		return path[tenant], w.call(held[tenant], "b:read").authzen(t)
	})
	for _, tenant := range tenants {
		if allows[path[tenant]] != most[tenant] {
			t.Errorf("%s: %d allows, want %d", tenant, allows[path[tenant]], most[tenant])
		}
	}
	revoked := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Tenant = "acme" }, "read")
	w.reply("warden", "POST", "/v1/capabilities/"+revoked.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", 200)
	s := w.call(revoked, "b:read")
	s.token = revoked.ID
	w.reply("wallet", "POST", path["acme"], s.authzen(t)).is(t, "at home", 200, `"reason":"revoked"`)
	w.reply("wallet", "POST", path["default"], s.authzen(t)).is(t, "what became of one of another tenant", 200, `"reason":"bad_signature"`)
}

// TestCapabilityOfAKilledServer kills a server at random moments while calls use up capabilities. None gets more uses than it
// has, each allow that was answered is on record, and no proof that was sent to a server is taken by the next one.
func TestCapabilityOfAKilledServer(t *testing.T) {
	t.Parallel()
	if kept := os.Getenv("CAPABILITY_KILLED"); kept != "" {
		serveUntilKilled(t, kept)
		return
	}
	killedUnderUse(t, night.Cases(20))
}

// TestSoakCapabilityOfAKilledServer does it more often.
func TestSoakCapabilityOfAKilledServer(t *testing.T) {
	night.Soaks(t)
	killedUnderUse(t, 200)
}

const (
	// usesOfOne is how many uses each capability has.
	usesOfOne = 20
	// sinceStart is after the time from which on a proof needs no nonce of the process.
	sinceStart = 15 * time.Second
)

// keptForChild is what a server in a process of its own is given.
type keptForChild struct {
	Data string
	Keys map[string]string
	At   time.Time
}

// serveUntilKilled is the server that is killed.
func serveUntilKilled(t *testing.T, kept string) {
	var is keptForChild
	must(t, json.Unmarshal([]byte(kept), &is))
	c := &counter{t: t, Clock: clock.At(is.At), data: is.Data, key: is.Keys}
	c.open(capabilityBundle(), func(config *server.Config) { config.PublicURL = issuer }, withoutLimits)
	c.Advance(sinceStart)
	_, err := fmt.Printf("\nserves %s\n", c.URL)
	must(t, err)
	_, _ = io.Copy(io.Discard, os.Stdin) // until whoever started it ends, too
}

// withoutLimits has a server take as many requests for capabilities as come.
func withoutLimits(c *server.Config) {
	c.Capabilities.MaxLivePerHolder, c.Capabilities.NewPerMinutePerHolder = 100_000, 100_000
}

// killing is a wallet whose server is killed now and again.
type killing struct {
	wallet
	mu       sync.Mutex
	answered map[string]string // ids of the decisions that were answered with an allow, and of their capabilities
	sent     []shot            // the last ones
	left     int               // answers until the server is killed
}

func killedUnderUse(t *testing.T, rounds int) {
	t.Helper()
	c := &counter{t: t, data: t.TempDir(), key: map[string]string{}, Clock: clock.At(pdptest.Now)}
	c.grant("wallet", []string{"*"}, "", auth.Decide, auth.Capability)
	c.grant("auditor", []string{"*"}, "", auth.LogRead)
	k := &killing{wallet: wallet{counter: c, holder: newHolder(t, 1)}, answered: map[string]string{}}
	var held []granted
	for range rounds {
		held = append(held, k.round(held))
		if t.Failed() {
			return
		}
	}
	k.open(capabilityBundle(), func(config *server.Config) { config.PublicURL = issuer })
	k.replays()
	k.Advance(sinceStart)
	for _, g := range held {
		for range usesOfOne + 1 {
			if got, _ := k.shoot(k.call(g, "b:read")); got == "used_up" {
				break
			} else if got != "allow" {
				t.Errorf("%s: %s", g.ID, got)
			}
		}
	}
	k.count(held, rounds)
}

// round has calls use a new capability, and the one before, until the server is killed, which is after some answer in the
// middle of others.
func (k *killing) round(before []granted) (g granted) {
	k.t.Helper()
	kill, killed := k.start()
	k.replays()
	k.Advance(sinceStart)
	g = k.asksFor(http.StatusCreated, func(a *capability.Ask) { a.MaxUses, a.Duration = usesOfOne, 10*time.Hour }, "read")
	of := append(before[max(0, len(before)-1):len(before):len(before)], g)
	k.left = rand.IntN(3 * usesOfOne)
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() {
			for k.calls(of[n%len(of)]) {
			}
			kill()
		})
	}
	callers.Wait()
	killed()
	return g
}

// start starts a server in a process of its own, which kill kills. Killed waits for its end.
func (k *killing) start() (kill, killed func()) {
	k.t.Helper()
	kept, err := json.Marshal(keptForChild{k.data, k.key, k.Now()})
	must(k.t, err)
	child := exec.CommandContext(k.t.Context(), os.Args[0], "-test.run=^TestCapabilityOfAKilledServer$")
	child.Env = append(os.Environ(), "CAPABILITY_KILLED="+string(kept))
	out, err := child.StdoutPipe()
	must(k.t, err)
	_, err = child.StdinPipe()
	must(k.t, err)
	must(k.t, child.Start())
	k.Server = &pdptest.Server{Client: ownClient()}
	said := ""
	for lines := bufio.NewScanner(out); k.URL == "" && lines.Scan(); {
		k.URL, _ = strings.CutPrefix(lines.Text(), "serves ")
		if !strings.HasPrefix(k.URL, "http") {
			said, k.URL = said+lines.Text()+"\n", ""
		}
	}
	if k.URL == "" {
		k.t.Fatalf("the server does not start: %s", said)
	}
	return func() { _ = child.Process.Kill() }, func() {
		k.Client.CloseIdleConnections()
		_, _ = io.Copy(io.Discard, out)
		if err := child.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
			k.t.Errorf("the server ended otherwise than by being killed: %v", err)
		}
	}
}

// calls makes one call, and reports whether the server goes on.
func (k *killing) calls(g granted) bool {
	k.mu.Lock()
	s := k.call(g, "b:read")
	k.mu.Unlock()
	s = s.proved(k.t)
	r, err := http.NewRequestWithContext(k.t.Context(), "POST", k.URL+authorizePath, strings.NewReader(s.body(k.t)))
	must(k.t, err)
	r.Header.Set("Authorization", k.key["wallet"])
	r.Header.Set("Content-Type", "application/json")
	answer, err := k.Client.Do(r)
	text := ""
	if err == nil {
		read, failed := io.ReadAll(answer.Body)
		_, text, err = answer.Body.Close(), string(read), failed
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = append(k.sent[max(0, len(k.sent)-63):], s)
	if err != nil {
		return false
	}
	if strings.Contains(text, `"allow":true`) {
		k.answered[answer.Header.Get("X-Decision-Id")] = g.ID
	} else if !strings.Contains(text, `"reason":"used_up"`) {
		k.t.Errorf("got %s", text)
	}
	k.left--
	return k.left > 0
}

// replays shows the proofs once more that were sent to the server before.
func (k *killing) replays() {
	k.t.Helper()
	for _, s := range k.sent {
		if got, _ := k.shoot(s); got != "nonce_required" && got != "used_up" {
			k.t.Errorf("a proof of before the start: %s", got)
		}
	}
	k.sent = nil
}

// count looks for each answer in the log, and counts what was used.
func (k *killing) count(held []granted, rounds int) {
	k.t.Helper()
	_, text := k.do("auditor", "GET", "/v1/log/export", "")
	if report := verify.Export(strings.NewReader(text), verify.Options{}); !report.Verified() {
		k.t.Errorf("the log does not verify: %+v", report)
	}
	used, proofs, crashes := map[string]int{}, map[string]bool{}, 0
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		r, err := record.Parse([]byte(line))
		must(k.t, err)
		if r.Event == format.EventCrash {
			crashes++
		}
		if c := r.Capability; c != nil && r.Decision != nil && *r.Decision && c.Proof != nil {
			if used[c.ID]++; proofs[c.Proof.ID] || !c.Used {
				k.t.Errorf("a proof was taken twice, or a use not counted: %s", line)
			}
			proofs[c.Proof.ID] = true
			delete(k.answered, r.ID)
		}
	}
	if len(k.answered) > 0 {
		k.t.Errorf("%d answers are not on record: %v", len(k.answered), k.answered)
	}
	for n, g := range held {
		if used[g.ID] != usesOfOne {
			k.t.Errorf("the capability of round %d has %d uses on record, of %d", n, used[g.ID], usesOfOne)
		}
	}
	if crashes != rounds {
		k.t.Errorf("%d crashes are on record, and there were %d", crashes, rounds)
	}
	k.t.Logf("%d proofs, %d crashes", len(proofs), crashes)
}

// TestNoSecretOfCapabilitiesIsLeftAnywhere: tokens, proofs and keys come in good requests and in bad ones, and are looked for
// in all that the service shows or leaves behind. On record is the signature of a proof that was taken, and no more of it.
func TestNoSecretOfCapabilitiesIsLeftAnywhere(t *testing.T) {
	collected := newCollector(t)
	var log, stdout, heard written.Text
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(&heard, r.Body) }))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, bytes.Repeat([]byte("s"), 32), 0o600))
	w := openWallet(t, logTo(&log), withStdout(0, &stdout), withConsole(server.ConsoleConfig{Listen: "127.0.0.1:0"}), func(c *server.Config) {
		c.Approvals.Webhooks = []webhook.Config{{URL: receiver.URL, SecretFile: file, Allow: []string{"127.0.0.1"}}}
	})
	w.Advance(time.Minute)
	secrets, places := map[string]string{}, [][2]string{}
	// hides has a JWS looked for, and its segments from the payload on, but for a signature that goes on record.
	hides := func(what, jws string, signed bool) string {
		segments := strings.Split(jws, ".")
		secrets["the whole "+what], secrets["the payload of the "+what] = jws, segments[1]
		if !signed {
			secrets["the signature of the "+what] = segments[2]
		}
		return jws
	}
	seed := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	secrets["a private key"] = seed
	sends := func(name, who, method, path, body string, want int, header ...string) string {
		t.Helper()
		status, text := w.do(who, method, path, body, header...)
		if status != want {
			t.Errorf("%s: got %d %s, want %d", name, status, text, want)
		}
		places = append(places, [2]string{"the answer to " + name, text})
		return text
	}

	// Requests for a capability.
	const route = "/v1/capabilities"
	asked := func(a capability.Ask) string {
		hides("proof of a request", a.Proof, false)
		text, err := json.Marshal(a)
		must(t, err)
		return string(text)
	}
	one := w.asking(nil, "read")
	g := granted{}
	_, text := w.do("wallet", "POST", route, asked(one)) // whose answer has the token
	must(t, json.Unmarshal([]byte(text), &g))
	hides("token", g.Token, false)
	sends("a proof that is taken", "wallet", "POST", route, asked(one), 400)
	other := w.asking(nil, "read")
	sends("a proof for something else", "wallet", "POST", route, strings.Replace(asked(other), `"b:read"`, `"b:write"`, 1), 400)
	sends("a reason that is no text", "wallet", "POST", route, strings.Replace(asked(other), `"tools":`, `"reason":7,"tools":`, 1), 400)
	sends("a private key", "wallet", "POST", route, strings.Replace(asked(other), `"kty":`, `"d":"`+seed+`","kty":`, 1), 400)
	sends("a request that is cut off", "wallet", "POST", route, asked(other)[:len(asked(other))-9], 400)
	sends("no permission", "pep", "POST", route, asked(other), 403)
	sends("a token for an id", "wallet", "GET", route+"/"+g.Token, "", 404)
	sends("a token as a credential", "wallet", "GET", route+"/"+g.ID, "", 401, "Authorization", "Bearer "+g.Token)
	waits := granted{}
	must(t, json.Unmarshal([]byte(sends("a request for people", "wallet", "POST", route, asked(w.asking(nil, "danger")), 202)), &waits))

	// Calls.
	call := func(tool string, change func(*shot)) shot {
		s := w.call(g, tool)
		change(&s)
		return s.proved(t)
	}
	plain := func(*shot) {}
	good := call("b:read", plain)
	hides("proof of a call", good.proof, true)
	sends("a call", "wallet", "POST", authorizePath, good.body(t), 200)
	sends("a call once more", "wallet", "POST", evaluationPath, good.authzen(t), 200)
	copied := call("b:read", plain)
	hides("proof of a call with copies", copied.proof, true)
	copied.more = fmt.Sprintf(`,"note":"it is %s!","token":{"deep":[%q]},"signature":%q`, copied.proof, g.Token, seed)
	sends("a call with copies", "wallet", "POST", authorizePath, copied.body(t), 200)
	explained := call("b:read", plain)
	hides("proof of a call that is explained", explained.proof, false)
	sends("a call that is explained", "explainer", "POST", authorizePath, explained.body(t), 200, "X-Explain", "true")
	bad := call("b:read", func(s *shot) { s.claim.IssuedAt = w.Now().Add(-time.Hour) })
	hides("proof of a bad call", bad.proof, false)
	body := bad.body(t)
	sends("a stale proof", "wallet", "POST", authorizePath, body, 200)
	for name, changed := range map[string]string{
		"a token that is no text":     strings.Replace(body, `{"token":"`, `{"token":["`, 1),
		"a capability that is a text": strings.Replace(body, `"capability":{`, `"capability":"`+g.Token+`","x":{`, 1),
		"a key beside them":           strings.Replace(body, `"capability":{`, `"capability":{"key":"`+seed+`",`, 1),
		"two capabilities":            strings.Replace(body, `"capability":{`, `"capability":{"token":"`+g.Token+`"},"capability":{`, 1),
		"a body that is cut off":      body[:len(body)-5],
	} {
		sends(name, "wallet", "POST", authorizePath, changed, 400)
	}
	sends("a forged token", "wallet", "POST", authorizePath, strings.Replace(body, g.Token, g.Token[:len(g.Token)-4]+"AAAA", 1), 200)
	sends("a batch", "wallet", "POST", "/access/v1/evaluations", strings.TrimSuffix(bad.authzen(t), "}")+`,"evaluations":[{},{}]}`, 200)
	sends("a search", "searcher", "POST", "/access/v1/search/action", strings.Replace(bad.authzen(t), `"action":{"name":"tool.invoke"},`, "", 1), 400)

	// People.
	g = w.asksFor(http.StatusCreated, nil, "both")
	hides("other token", g.Token, false)
	both := call("b:both", plain)
	hides("proof of a call that waits", both.proof, true)
	var a worth
	must(t, json.Unmarshal([]byte(sends("a call that waits", "wallet", "POST", authorizePath, both.body(t), 200)), &a))
	mia := w.consoleIn("mia")
	for _, id := range []string{"", "/" + waits.Approval.ID, "/" + a.Approval.ID} {
		sends("a look at approvals", "mia", "GET", "/v1/approvals"+id, "", 200)
		page := consoleGet(t, mia, w.ConsoleURL()+"/approvals"+id)
		if page.status != http.StatusOK || !strings.Contains(page.body, "b:both") && id != "/"+waits.Approval.ID {
			t.Errorf("the console: %d %s", page.status, page.body)
		}
		places = append(places, [2]string{"the console's page approvals" + id, page.body})
	}
	w.says("mia", a.Approval.ID, "decision", yes, http.StatusOK)
	both.more = fmt.Sprintf(`,"approval_id":%q`, a.Approval.ID)
	sends("the call that waited", "wallet", "POST", authorizePath, both.body(t), 200)
	eventually(t, "the webhook hears of both", func() bool { return strings.Count(heard.String(), "approved") > 0 })

	for _, path := range []string{"/v1/log/export?format=ndjson", "/v1/log/export?format=csv", "/v1/log/export?proofs=true", route + "/" + g.ID} {
		who := map[bool]string{true: "auditor", false: "wallet"}[strings.Contains(path, "export")]
		has(t, sends(path, who, "GET", path, "", 200), g.ID)
	}
	sends("the metrics", "explainer", "GET", "/metrics", "", 200)
	must(t, w.Stop(t.Context()))
	places = append(places, everyFile(t, w.data)...)
	places = append(places, [2]string{"the log", log.String()}, [2]string{"standard output", stdout.String()},
		[2]string{"telemetry", collected.raw.String()}, [2]string{"the webhook", heard.String()})
	for _, place := range places {
		for what, secret := range secrets {
			if i := strings.Index(place[1], secret); i >= 0 {
				t.Errorf("%s holds %s: …%q…", place[0], what, place[1][max(0, i-200):min(len(place[1]), i+50)])
			}
		}
	}
	if strings.Contains(log.String(), "panic") || log.String() == "" || collected.raw.Len() == 0 {
		t.Errorf("the log has a panic, or there is none: %s", log.String())
	}
}

// TestCapabilityAskedOnce: the proof of a request is taken once, so who saw it is granted nothing.
func TestCapabilityAskedOnce(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	body, err := json.Marshal(w.asking(nil, "read"))
	must(t, err)
	w.reply("wallet", "POST", "/v1/capabilities", string(body)).is(t, "first", 201)
	w.reply("wallet", "POST", "/v1/capabilities", string(body)).is(t, "again", 400, "proof_replayed", `"pointer":"/proof"`)
}

// TestCapabilityFileFails: once the file cannot be read, nothing is granted, let through, shown or revoked.
func TestCapabilityFileFails(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(201, nil, "read")
	w.is("allow", w.call(g, "b:read"))
	must(t, w.CloseCapabilities())
	w.asksFor(503, nil, "read")
	w.is("503", w.call(g, "b:read"))
	byID := w.call(g, "b:read")
	byID.token = g.ID
	w.is("503", byID)
	w.reply("wallet", "GET", "/v1/capabilities", "").is(t, "list", 503)
	w.reply("wallet", "GET", "/v1/capabilities/"+g.ID, "").is(t, "state", 503)
	w.reply("warden", "POST", "/v1/capabilities/"+g.ID+"/revoke", `{"reason":"x"}`).is(t, "revoke", 503)
	w.reply("warden", "POST", "/v1/capabilities/revoke", `{"tenant_id":"default","reason":"x","all":true}`).is(t, "revoke all", 503, "0 were revoked")
}
