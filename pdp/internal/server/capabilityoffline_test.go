package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
)

func offline(a *capability.Ask) { a.Offline = true }

// throughURL sends what is for the issuer's address to the server that runs now.
type throughURL struct{ w *wallet }

func (t throughURL) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := url.Parse(t.w.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// clientOf is a client of the service of a wallet, which goes by its clock.
func (w *wallet) clientOf(options ...authzenclient.Option) *authzenclient.Client {
	w.t.Helper()
	c, err := authzenclient.New(issuer, append([]authzenclient.Option{
		authzenclient.WithHTTPClient(&http.Client{Transport: throughURL{w}}), authzenclient.WithClock(w.Now, nil), authzenclient.WithTimeout(time.Minute),
	}, options...)...)
	must(w.t, err)
	return c
}

// beside is a gateway of somebody else beside a server, and the agent that calls through it.
type beside struct {
	*wallet
	url   string
	nonce string
	calls int // that came to the tools
}

const besideName = "https://gw.example"

func (w *wallet) beside(options ...authzenclient.Option) *beside {
	w.t.Helper()
	b := &beside{wallet: w}
	ctx, end := context.WithCancel(w.t.Context())
	w.t.Cleanup(end)
	tools := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { b.calls++ })
	gateway, err := otherGateway(ctx, w.clientOf(options...), issuer, besideName, w.Now, tools)
	must(w.t, err)
	s := httptest.NewServer(gateway)
	w.t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

// send sends a call as it is, and returns the code of the refusal, "" of none.
func (b *beside) send(s shot) string {
	b.t.Helper()
	s = s.proved(b.t)
	call, err := json.Marshal(map[string]string{"Token": s.token, "Proof": s.proof, "Holder": s.agent, "Tool": s.tool})
	must(b.t, err)
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url, strings.NewReader(s.arguments))
	must(b.t, err)
	r.Header.Set("X-Call", string(call))
	answer, err := ownClient().Do(r)
	must(b.t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	must(b.t, err)
	if answer.StatusCode == http.StatusOK {
		b.nonce = answer.Header.Get("X-Nonce")
		return ""
	}
	var said struct {
		Error struct {
			Data struct{ Code, Nonce string }
		}
	}
	if json.Unmarshal(body, &said, json.MatchCaseInsensitiveNames(true)) != nil {
		return string(body)
	}
	if said.Error.Data.Nonce != "" {
		b.nonce = said.Error.Data.Nonce
	}
	return said.Error.Data.Code
}

// shot is a good call, proved for the gateway with its last nonce.
func (b *beside) shot(g granted, tool string) shot {
	s := b.call(g, tool)
	s.claim.Audience, s.claim.Nonce = besideName, b.nonce
	return s
}

// calls sends a good call. If its nonce is too old it sends another one.
func (b *beside) makes(g granted, tool string) string {
	b.t.Helper()
	code := b.send(b.shot(g, tool))
	if code == "nonce_required" {
		code = b.send(b.shot(g, tool))
	}
	return code
}

// lastingLists have lists that no reader fetches again in the time of a test, unless it waits for a change.
func lastingLists(c *server.Config) { c.Capabilities.StatusTTL = time.Hour }

// TestOfflineStory is a gateway that asks nothing about the calls: what is good goes through once, what was revoked and what the
// policies would not grant any more is refused, and so is all once nobody knows.
func TestOfflineStory(t *testing.T) {
	t.Parallel()
	w := openEdited(t, lastingLists)
	g, kept := w.asksFor(http.StatusCreated, offline, "read"), w.asksFor(http.StatusCreated, offline, "write")
	counted, online := w.asksFor(http.StatusCreated, uses(3), "read"), w.asksFor(http.StatusCreated, nil, "read")
	b := w.beside(authzenclient.WithKey(strings.TrimPrefix(w.key["wallet"], "Bearer ")))

	if got := b.send(b.shot(g, "b:read")); got != "nonce_required" || b.nonce == "" {
		t.Fatalf("the first call: %q, with the nonce %q", got, b.nonce)
	}
	good := b.shot(g, "b:read").proved(t)
	for n, want := range []string{"", "proof_replayed", "proof_replayed"} {
		if got := b.send(good); got != want {
			t.Fatalf("call %d: %q, want %q", n, got, want)
		}
	}
	for name, c := range map[string]struct {
		change func(*shot)
		want   string
	}{
		"1: no proof":          {func(s *shot) { s.proof = "-" }, "proof_invalid"},
		"2: another's proof":   {func(s *shot) { s.by = newHolder(t, 9) }, "proof_invalid"},
		"5: another gateway":   {func(s *shot) { s.claim.Audience = "https://gw2.example" }, "proof_wrong_audience"},
		"5: for the service":   {func(s *shot) { s.claim.Audience = "b" }, "proof_wrong_audience"},
		"3: another's nonce":   {func(s *shot) { s.claim.Nonce = "v1.99999999999.x" }, "nonce_required"},
		"6: other arguments":   {func(s *shot) { *s = s.proved(t); s.arguments = `{"target":"production"}` }, "proof_wrong_call"},
		"8: another tool":      {func(s *shot) { s.tool, s.claim.Tool = "b:write", "b:write" }, "tool_not_covered"},
		"16: counted":          {func(s *shot) { s.token, s.claim.Capability = counted.Token, counted.ID }, "online_only"},
		"16: not for offline":  {func(s *shot) { s.token, s.claim.Capability = online.Token, online.ID }, "online_only"},
		"17: an id as a token": {func(s *shot) { s.token = g.ID }, "online_only"},
	} {
		s := b.shot(g, "b:read")
		c.change(&s)
		if got := b.send(s); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	// A revocation is heard because the gateway waits: nothing else would tell it for an hour.
	if got := b.makes(kept, "b:write"); got != "" {
		t.Fatalf("the other capability: %q", got)
	}
	w.reply("warden", "POST", "/v1/capabilities/"+kept.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", 200)
	eventually(t, "the gateway hears of the revocation", func() bool { return b.makes(kept, "b:write") == "revoked" })
	if got := b.makes(g, "b:read"); got != "" {
		t.Errorf("what was not revoked: %q", got)
	}

	// So is a change of the policies, and that it is taken back.
	w.under(capabilityPolicies + noMore)
	eventually(t, "the gateway hears of the forbid", func() bool { return b.makes(g, "b:read") == "suspended" })
	w.under(capabilityPolicies)
	eventually(t, "the gateway hears that it is gone", func() bool { return b.makes(g, "b:read") == "" })

	// Without the service the last list counts until it ends.
	must(t, w.Stop(t.Context()))
	before := b.calls
	if got := b.makes(g, "b:read"); got != "" || b.calls != before+1 {
		t.Errorf("with the last list: %q", got)
	}
}

// TestOfflineWithoutLists: what ends with the list is refused from then on, and a gateway that never had one lets nothing
// through.
func TestOfflineWithoutLists(t *testing.T) {
	t.Parallel()
	w := openWallet(t)
	w.Advance(time.Minute)
	g := w.asksFor(http.StatusCreated, offline, "read")
	b, late := w.beside(), w.beside()
	if got := b.makes(g, "b:read"); got != "" {
		t.Fatalf("before: %q", got)
	}
	must(t, w.Stop(t.Context()))
	w.Advance(59 * time.Second)
	if got := b.makes(g, "b:read"); got != "" {
		t.Errorf("a second before the list ends: %q", got)
	}
	w.Advance(time.Second)
	if got := b.makes(g, "b:read"); got != "status_stale" {
		t.Errorf("when the list has ended: %q", got)
	}
	if got := late.makes(g, "b:read"); got == "" || late.calls > 0 {
		t.Error("a gateway without keys and lists lets a call through")
	}
}
