package server_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// listedAt is the place of a capability, and the path of its list.
func listedAt(t testing.TB, g granted) (path string, at capability.Listed) {
	t.Helper()
	token, refusal := capability.ParseToken(g.Token)
	if refusal != nil || token.Verify != capability.Offline || !strings.HasPrefix(token.Status.URI, issuer+"/v1/capabilities/status/") {
		t.Fatalf("%s: %+v, %v", g.text, token.Status, refusal)
	}
	return strings.TrimPrefix(token.Status.URI, issuer), token.Status
}

// list fetches the list of a capability without a credential, and verifies it.
func (w *wallet) list(g granted) (l *capability.StatusList, state capability.State, answer pdptest.Response) {
	w.t.Helper()
	path, at := listedAt(w.t, g)
	answer = w.Get(path)
	if answer.Status != http.StatusOK || answer.Header.Get("Content-Type") != "application/statuslist+jwt" {
		w.t.Fatalf("%s: %d %s", path, answer.Status, answer.Body)
	}
	l, err := capability.ReadStatusList(w.t.Context(), w.clientOf().Keys(), answer.Body)
	must(w.t, err)
	if l.URI != at.URI {
		w.t.Fatalf("the list of %s says %s", at.URI, l.URI)
	}
	return l, l.State(at.Index, w.Now()), answer
}

// TestStatusList is what everybody can fetch: what is signed, for how long, and when it is signed again.
func TestStatusList(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	g, other := w.asksFor(http.StatusCreated, offline, "read"), w.asksFor(http.StatusCreated, offline, "write")
	path, at := listedAt(t, g)
	if _, second := listedAt(t, other); second.URI != at.URI || second.Index == at.Index {
		t.Errorf("two of a tenant have the places %v and %v", at, second)
	}
	acme := w.asksFor(http.StatusCreated, func(a *capability.Ask) { a.Offline, a.Tenant = true, "acme" }, "read")
	if _, elsewhere := listedAt(t, acme); elsewhere.URI == at.URI {
		t.Error("two tenants share a list")
	}
	l, state, answer := w.list(g)
	tag := answer.Header.Get("ETag")
	if state != capability.StateValid || l.Expires.Sub(l.IssuedAt) != time.Minute || l.TTL != 15*time.Second ||
		answer.Header.Get("Cache-Control") != "public, max-age=15" || tag == "" {
		t.Errorf("got %+v, %v, %v", l, state, answer.Header)
	}
	if again := w.Get(path, "If-None-Match", tag); again.Status != http.StatusNotModified || again.Body != "" {
		t.Errorf("the same list again: %d %s", again.Status, again.Body)
	}
	if head := w.Do(http.MethodHead, path, ""); head.Status != http.StatusOK || head.Header.Get("ETag") != tag || head.Body != "" {
		t.Errorf("HEAD: %d %s", head.Status, head.Body)
	}
	for of, want := range map[string]int{"/v1/capabilities/status/nosuch": 404, path + "?wait=30s": 401, path + "?wait=": 200} {
		if got := w.Get(of); got.Status != want {
			t.Errorf("%s: %d %s, want %d", of, got.Status, got.Body, want)
		}
	}
	w.reply("wallet", "GET", path+"?wait=soon", "").is(t, "no time", 400)

	// It is signed again when its time to live is over, and at once when somebody takes one back.
	w.Advance(15 * time.Second)
	if later, _, answer := w.list(g); !later.IssuedAt.After(l.IssuedAt) || answer.Header.Get("ETag") == tag {
		t.Error("a quarter of a minute later the list is the same")
	}
	w.reply("warden", "POST", "/v1/capabilities/"+g.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", 200)
	if _, state, _ := w.list(g); state != capability.StateInvalid {
		t.Errorf("after the revocation: %v", state)
	}
	if _, state, _ := w.list(other); state != capability.StateValid {
		t.Errorf("the other one: %v", state)
	}

	// A restart forgets nothing.
	w.restart(func() {})
	eventually(t, "a list after the restart", func() bool { return w.Get(path).Status == http.StatusOK })
	if _, state, _ := w.list(g); state != capability.StateInvalid {
		t.Errorf("after the restart: %v", state)
	}
	if _, state, _ := w.list(other); state != capability.StateValid {
		t.Errorf("the other one, after the restart: %v", state)
	}
	w.Advance(2 * time.Hour) // nothing in it can count any more
	if got := w.Get(path); got.Status != http.StatusNotFound {
		t.Errorf("when all have ended: %d", got.Status)
	}
}

// TestStatusListWaits: a caller that has the list hears of the next change, and of nothing when the wait is over.
func TestStatusListWaits(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	g := w.asksFor(http.StatusCreated, offline, "read")
	path, _ := listedAt(t, g)
	_, _, first := w.list(g)
	ask := func(wait string) pdptest.Response {
		return w.Get(path+"?wait="+wait, "Authorization", w.key["wallet"], "If-None-Match", first.Header.Get("ETag"))
	}
	if got := ask("1ms"); got.Status != http.StatusNotModified {
		t.Errorf("without a change: %d", got.Status)
	}
	heard := make(chan pdptest.Response)
	go func() { heard <- ask("30s") }()
	w.under(capabilityPolicies + noMore)
	if got := <-heard; got.Status != http.StatusOK {
		t.Errorf("with a change: %d %s", got.Status, got.Body)
	}
	if _, state, _ := w.list(g); state != capability.StateSuspended {
		t.Errorf("it is %v", state)
	}
}

// TestStatusListWaitsOfOne: a caller that has all its waits under way waits no longer for another one than it wants to, and
// takes none from others.
func TestStatusListWaitsOfOne(t *testing.T) {
	t.Parallel()
	w := openEdited(t, lastingLists)
	g := w.asksFor(http.StatusCreated, offline, "read")
	path, _ := listedAt(t, g)
	_, _, first := w.list(g)
	ask := func(caller, wait string) int {
		return w.Get(path+"?wait="+wait, "Authorization", w.key[caller], "If-None-Match", first.Header.Get("ETag")).Status
	}
	var waiting sync.WaitGroup
	for range 50 {
		waiting.Go(func() {
			if status := ask("wallet", "30s"); status != http.StatusOK {
				t.Errorf("a change: %d", status)
			}
		})
	}
	eventually(t, "one more than a caller may have", func() bool { return ask("wallet", "20ms") == http.StatusServiceUnavailable })
	if status := ask("warden", "1ms"); status != http.StatusNotModified {
		t.Errorf("another caller: %d", status)
	}
	w.reply("warden", "POST", "/v1/capabilities/"+g.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", 200)
	waiting.Wait()
}

// TestOfflineIsAsked: what is asked for with offline is granted so, unless that cannot be.
func TestOfflineIsAsked(t *testing.T) {
	t.Parallel()
	w := openEdited(t)
	g := w.asksFor(http.StatusCreated, offline, "read")
	_, at := listedAt(t, g)
	w.is("allow", w.call(g, "b:read")) // the service takes it, too
	renewed := w.renews(g, http.StatusCreated, offline, "read")
	if _, now := listedAt(t, renewed); now != at {
		t.Errorf("the renewed one has the place %v, and had %v", now, at)
	}
	if got := w.renews(g, http.StatusBadRequest, nil, "read"); !strings.Contains(got.text, "/offline") {
		t.Errorf("renewed without offline: %s", got.text)
	}
	for name, terms := range map[string]string{"offline": "offline: false", "max_uses": "max_uses: 5"} {
		writeAll(t, w.dir, map[string]string{"obligations.yaml": approvalObligations + "\nterms: {type: capability_terms, properties: {" + terms + "}}\n"})
		w.under(capabilityPolicies + `@id("bounded") @obligation("terms") permit(principal, action == Action::"capability.grant", resource is tool);`)
		got := w.asksFor(http.StatusCreated, offline, "read")
		if token, _ := capability.ParseToken(got.Token); token.Verify != capability.Online || !strings.Contains(strings.Join(got.Narrowed, " "), "offline") {
			t.Errorf("%s: %s", name, got.text)
		}
		w.becomes(g, "suspended")
	}
}

// TestStatusListsOfOthers: a list that is older than the last, for another address, or of another server is none.
func TestStatusListsOfOthers(t *testing.T) {
	t.Parallel()
	w := openWallet(t, func(c *server.Config) { c.Capabilities.StatusTTL = 15 * time.Second })
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, offline, "read")
	path, at := listedAt(t, g)
	lists := w.clientOf(authzenclient.WithBreaker(0, 0)).StatusLists(t.Context())
	if state, err := lists.Of(t.Context(), at); err != nil || state != capability.StateValid {
		t.Fatalf("of the service: %v, %v", state, err)
	}
	for name, uri := range map[string]string{
		"another server":  "https://evil.example" + path,
		"a longer name":   "https://pdp.example.evil.example" + path,
		"another path":    issuer + "/v1/capabilities/../x",
		"with a query":    at.URI + "?x=1",
		"without a name":  issuer + "/v1/capabilities/status/",
		"of another name": issuer + "/v1/capabilities/status/nosuch",
		"none":            "",
	} {
		if state, err := lists.Of(t.Context(), capability.Listed{URI: uri, Index: at.Index}); err == nil || state != capability.StateUnknown {
			t.Errorf("%s: %v, %v", name, state, err)
		}
	}
}
