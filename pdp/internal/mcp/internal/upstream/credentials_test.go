package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
)

// authorizationServer is a token endpoint that gives numbered tokens, or those of give.
type authorizationServer struct {
	*httptest.Server
	asked atomic.Int64
	give  func(w http.ResponseWriter, r *http.Request, n int64) // nil gives good tokens
}

func newAuthorizationServer(t *testing.T, give func(http.ResponseWriter, *http.Request, int64)) *authorizationServer {
	t.Helper()
	a := &authorizationServer{give: give}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := a.asked.Add(1)
		if id, secret, _ := r.BasicAuth(); id != "gateway" || secret != "client%2Bsecret" || r.Method != http.MethodPost || r.ParseForm() != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if a.give != nil {
			a.give(w, r, n)
			return
		}
		giveToken(w, r, fmt.Sprintf("token-%d-for-%s", n, r.PostForm.Get("subject_token")), 300)
	}))
	a.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.Start()
	t.Cleanup(a.Close)
	return a
}

func giveToken(w http.ResponseWriter, r *http.Request, token string, expires int) {
	answer := map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": expires}
	if strings.Contains(r.PostForm.Get("grant_type"), "exchange") {
		answer["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	_ = json.NewEncoder(w).Encode(answer)
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	mcptest.Must(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

func (a *authorizationServer) endpoint(t *testing.T, c *clock.Clock) upstream.TokenEndpoint {
	t.Helper()
	return upstream.TokenEndpoint{
		TokenURL:         a.URL,
		AllowNetworks:    []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		ClientID:         "gateway",
		ClientSecretFile: writeFile(t, "client+secret\n"),
		Timeout:          time.Minute,
		Now:              c.Now,
	}
}

func newExchange(t *testing.T, e upstream.TokenEndpoint) upstream.Credentials {
	t.Helper()
	e.Audience, e.Resource, e.Scopes = "https://jira", "https://jira/mcp", []string{"read", "write"}
	c, err := upstream.NewTokenExchange(e)
	mcptest.Must(t, err)
	return c
}

// authorized is the Authorization of a principal's request.
func authorized(c upstream.Credentials, principal, token string, expires time.Time) (string, error) {
	h := http.Header{}
	err := c.Authorize(context.Background(), h, upstream.Client{Principal: principal, Token: token, Expires: expires})
	if err != nil && len(h) > 0 {
		return "", fmt.Errorf("a header although: %w", err)
	}
	return h.Get("Authorization"), err
}

func TestTokenExchange(t *testing.T) {
	var form atomic.Value
	a := newAuthorizationServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		form.Store(r.PostForm.Encode())
		giveToken(w, r, fmt.Sprintf("token-%d", n), 300)
	})
	clock := clock.New()
	x := newExchange(t, a.endpoint(t, clock))
	end := clock.Now().Add(400 * time.Second)
	for _, step := range []struct {
		after            time.Duration
		principal, token string
		want             string
	}{
		{0, "alice", "a1", "Bearer token-1"},
		{0, "alice", "a1", "Bearer token-1"},
		{0, "alice", "a2", "Bearer token-2"}, // another token of hers
		{0, "bob", "a1", "Bearer token-3"},   // the same token, another principal's
		{269 * time.Second, "alice", "a1", "Bearer token-1"},
		{time.Second, "alice", "a1", "Bearer token-4"}, // 30 s before its end
		{129 * time.Second, "alice", "a1", "Bearer token-4"},
		{time.Second, "alice", "a1", ""}, // the client's own has ended
	} {
		clock.Advance(step.after)
		got, err := authorized(x, step.principal, step.token, end)
		if got != step.want || (err == nil) != (step.want != "") {
			t.Errorf("%+v: %q %v", step, got, err)
		}
		if step.principal == "bob" {
			want := "audience=https%3A%2F%2Fjira&grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange" +
				"&requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token&resource=https%3A%2F%2Fjira%2Fmcp" +
				"&scope=read+write&subject_token=a1&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token"
			if form.Load() != want {
				t.Errorf("it was asked %s", form.Load())
			}
		}
	}
	for _, nobody := range [][2]string{{"", "a1"}, {"alice", ""}} {
		if got, err := authorized(x, nobody[0], nobody[1], end.Add(time.Hour)); err == nil {
			t.Errorf("%q: %q", nobody, got)
		}
	}
}

// TestTokenExchangeIsNotKeptWithoutAnEnd has a server that does not say how long its tokens last, and a client whose token
// ends before the exchanged one.
func TestTokenExchangeKeepsNothingTooLong(t *testing.T) {
	clock := clock.New()
	a := newAuthorizationServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"bearer","issued_token_type":"urn:ietf:params:oauth:token-type:jwt"}`, n)
	})
	x := newExchange(t, a.endpoint(t, clock))
	for n := range 3 {
		if got, err := authorized(x, "alice", "a", clock.Now().Add(time.Hour)); got != fmt.Sprintf("Bearer t%d", n+1) {
			t.Errorf("%q %v", got, err)
		}
	}
	a = newAuthorizationServer(t, nil)
	x = newExchange(t, a.endpoint(t, clock))
	end := clock.Now().Add(10 * time.Second)
	for range 2 {
		if got, err := authorized(x, "alice", "a", end); got != "Bearer token-1-for-a" {
			t.Errorf("%q %v", got, err)
		}
	}
	clock.Advance(10 * time.Second)
	// The very token again, said to last longer: the one it was exchanged for is not used longer than it was to last.
	if got, err := authorized(x, "alice", "a", end.Add(time.Hour)); got != "Bearer token-2-for-a" {
		t.Errorf("%q %v", got, err)
	}
}

func TestTokenExchangeKeepsPrincipalsApart(t *testing.T) {
	release := make(chan struct{})
	a := newAuthorizationServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		<-release
		giveToken(w, r, "for-"+r.PostForm.Get("subject_token"), 300)
	})
	clock := clock.New()
	x := newExchange(t, a.endpoint(t, clock))
	var callers sync.WaitGroup
	for n := range 64 {
		for range 4 { // callers at once for one principal ask once
			callers.Go(func() {
				who := fmt.Sprint("p", n)
				if got, err := authorized(x, who, who+"-token", clock.Now().Add(time.Hour)); got != "Bearer for-"+who+"-token" {
					t.Errorf("%s got %q, %v", who, got, err)
				}
			})
		}
	}
	close(release)
	callers.Wait()
	if n := a.asked.Load(); n != 64 {
		t.Errorf("the server was asked %d times", n)
	}
}

// TestTokenExchangeOutlivesItsFirstCaller has the first caller go before the answer comes.
func TestTokenExchangeOutlivesItsFirstCaller(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	a := newAuthorizationServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
		close(asked)
		<-release
		giveToken(w, r, "one", 300)
	})
	clock := clock.New()
	x := newExchange(t, a.endpoint(t, clock))
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		first <- x.Authorize(ctx, http.Header{}, upstream.Client{Principal: "alice", Token: "a", Expires: clock.Now().Add(time.Hour)})
	}()
	<-asked
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	second := make(chan string)
	go func() {
		got, err := authorized(x, "alice", "a", clock.Now().Add(time.Hour))
		second <- fmt.Sprint(got, err)
	}()
	close(release)
	if got := <-second; got != "Bearer one<nil>" {
		t.Error(got)
	}
	if n := a.asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestClientCredentials(t *testing.T) {
	a := newAuthorizationServer(t, nil)
	clock := clock.New()
	e := a.endpoint(t, clock)
	e.Audience, e.Scopes = "x", []string{"s"}
	c, err := upstream.NewClientCredentials(e)
	mcptest.Must(t, err)
	for n, want := range []string{"Bearer token-1-for-", "Bearer token-1-for-", "Bearer token-2-for-"} {
		// The client and its token make no difference.
		if got, err := authorized(c, fmt.Sprint("p", n), "client's", time.Time{}); got != want {
			t.Errorf("%q %v", got, err)
		}
		clock.Advance(time.Duration(n) * 270 * time.Second)
	}
	mcptest.Must(t, os.WriteFile(e.ClientSecretFile, []byte("changed"), 0o600))
	clock.Advance(time.Hour)
	if got, err := authorized(c, "p", "", time.Time{}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("%q %v", got, err)
	}
}

// TestTokenEndpointLies has an endpoint answer in every wrong way, with all of the question in each answer. It gives no token, and
// nothing of its answer is quoted.
func TestTokenEndpointLies(t *testing.T) {
	const good = `"access_token":"SECRET-given","token_type":"Bearer","expires_in":300,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"`
	answers := func(code int, kind, text string) func(http.ResponseWriter, *http.Request, int64) {
		return func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Location", "/elsewhere?SECRET-subject")
			says(code, kind, text)(w, nil, "ID")
		}
	}
	body := func(text string) func(http.ResponseWriter, *http.Request, int64) {
		return answers(http.StatusOK, jsonKind, text)
	}
	raw := func(text string) func(http.ResponseWriter, *http.Request, int64) {
		return func(w http.ResponseWriter, _ *http.Request, _ int64) { hangUp(w, text) }
	}
	for name, c := range map[string]struct {
		give func(http.ResponseWriter, *http.Request, int64)
		want string
	}{
		"expired":         {body(strings.Replace("{"+good+"}", "300", "0", 1)), "expires_in"},
		"expired before":  {body(strings.Replace("{"+good+"}", "300", "-5", 1)), "expires_in"},
		"end is text":     {body(strings.Replace("{"+good+"}", "300", `"300"`, 1)), "ambiguities"},
		"no bearer":       {body(strings.Replace("{"+good+"}", "Bearer", "SECRET-DPoP", 1)), "token_type"},
		"no access token": {body(strings.Replace("{"+good+"}", "token-type:access_token", "token-type:SECRET", 1)), "issued_token_type"},
		"not said which":  {body(`{"access_token":"SECRET-given","token_type":"Bearer","expires_in":300}`), "issued_token_type"},
		"empty":           {body(strings.Replace("{"+good+"}", "SECRET-given", "", 1)), "access_token"},
		"two headers":     {body(strings.Replace("{"+good+"}", "SECRET-given", `SECRET\r\nX: y`, 1)), "access_token"},
		"large token":     {body(strings.Replace("{"+good+"}", "SECRET-given", strings.Repeat("SECRET", 4000), 1)), "access_token"},
		"twice":           {body(`{"access_token":"SECRET-first",` + good + "}"), "ambiguities"},
		"two":             {body("{" + good + "}{" + good + "}"), "ambiguities"},
		"null":            {body("null"), "access_token"},
		"nothing":         {body(""), "ambiguities"},
		"huge":            {body("{" + good + `,"x":"` + strings.Repeat("SECRET", 20_000) + `"}`), "too large"},
		"html":            {answers(http.StatusOK, "text/html", "{"+good+"}"), "no JSON"},
		"redirect":        {answers(http.StatusFound, jsonKind, "{"+good+"}"), "302, no reason"},
		"kept redirect":   {answers(http.StatusTemporaryRedirect, jsonKind, "{"+good+"}"), "307, no reason"},
		"created":         {answers(http.StatusCreated, jsonKind, "{"+good+"}"), "201, no reason"},
		"refusal":         {answers(http.StatusBadRequest, jsonKind, `{"error":"invalid_target","error_description":"SECRET-subject"}`), "400, invalid_target"},
		"own refusal":     {answers(http.StatusBadRequest, jsonKind, `{"error":"SECRET-subject"}`), "400, no reason"},
		"broken":          {answers(http.StatusInternalServerError, jsonKind, "SECRET-subject"), "500, no reason"},
		"bad header":      {raw("HTTP/1.1 200 OK\r\nSECRET-subject\r\n\r\n"), "is not HTTP"},
		"cut off":         {raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{" + good), "EOF"},
		"hangs up":        {raw(""), "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			log.SetOutput(&logged)
			defer log.SetOutput(os.Stderr)
			clock := clock.New()
			a := newAuthorizationServer(t, c.give)
			got, err := authorized(newExchange(t, a.endpoint(t, clock)), "SECRET-principal", "SECRET-subject", clock.Now().Add(time.Hour))
			if err == nil {
				t.Fatalf("it gave %q", got)
			}
			if said := fmt.Sprintf("%v %+v %#v %s", err, err, err, logged.String()); !strings.Contains(said, c.want) || leaks(said) {
				t.Errorf("said %s", said)
			}
			if n := a.asked.Load(); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// leaks reports whether a text holds a secret.
func leaks(text string) bool {
	return strings.Contains(text, "SECRET") || strings.Contains(text, "client+secret") || strings.Contains(text, "client%2Bsecret")
}

func TestTokenEndpointIsSlow(t *testing.T) {
	release := make(chan struct{})
	a := newAuthorizationServer(t, func(http.ResponseWriter, *http.Request, int64) { <-release })
	defer close(release)
	clock := clock.New()
	e := a.endpoint(t, clock)
	e.Timeout = 100 * time.Millisecond
	if got, err := authorized(newExchange(t, e), "alice", "SECRET", clock.Now().Add(time.Hour)); !errors.Is(err, context.DeadlineExceeded) || leaks(err.Error()) {
		t.Errorf("%q %v", got, err)
	}
}

// An endpoint is reached as an upstream is: TestNames and TestRoots have the rest.
func TestTokenEndpointIsAway(t *testing.T) {
	a := newAuthorizationServer(t, nil)
	clock := clock.New()
	e := a.endpoint(t, clock)
	e.AllowNetworks = nil
	if got, err := authorized(newExchange(t, e), "alice", "SECRET", clock.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "allow_networks") || a.asked.Load() > 0 {
		t.Errorf("at an address that nobody allowed: %q %v", got, err)
	}
	a.Close()
	if got, err := authorized(newExchange(t, a.endpoint(t, clock)), "alice", "SECRET", clock.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%q %v", got, err)
	}
}

func TestClientSecretFileIsWrong(t *testing.T) {
	a := newAuthorizationServer(t, nil)
	clock := clock.New()
	for content, mode := range map[string]os.FileMode{"SECRET\nSECRET": 0o600, "client+secret\n": 0o644} {
		e := a.endpoint(t, clock)
		e.ClientSecretFile = writeFile(t, content)
		mcptest.Must(t, os.Chmod(e.ClientSecretFile, mode))
		if got, err := authorized(newExchange(t, e), "alice", "a", clock.Now().Add(time.Hour)); err == nil || leaks(err.Error()) {
			t.Errorf("%q: %q %v", content, got, err)
		}
	}
	if n := a.asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestScopesAreWords(t *testing.T) {
	for _, scope := range []string{"", "a b"} {
		if _, err := upstream.NewClientCredentials(upstream.TokenEndpoint{Scopes: []string{"a", scope}}); err == nil {
			t.Errorf("%q is taken", scope)
		}
	}
}

func TestHeaderFile(t *testing.T) {
	name := writeFile(t, "Bearer one\n")
	f, key := &upstream.HeaderFile{Path: name}, &upstream.HeaderFile{Path: name, Header: "X-Api-Key"}
	for content, want := range map[string]string{
		"Bearer one": "Bearer one", "Bearer two\n": "Bearer two", "Bearer three\r\n": "Bearer three",
		"": "", "\n": "", " ": "", "SECRET\nSECRET": "", "SECRET\n\n": "", "SECRET\rX: y": "", " SECRET": "", "SECRET\x00": "", "SECRETé": "",
		strings.Repeat("SECRET", 4000): "",
	} {
		mcptest.Must(t, os.WriteFile(name, []byte(content), 0o600))
		got, err := authorized(f, "alice", "client's", time.Time{})
		if got != want || (err == nil) != (want != "") || err != nil && leaks(err.Error()) {
			t.Errorf("%.20q: %q %v", content, got, err)
		}
		h := http.Header{"X-Api-Key": {"the client's", "twice"}}
		if err := key.Authorize(t.Context(), h, upstream.Client{Principal: "alice"}); err == nil && (len(h) != 1 || h.Get("X-Api-Key") != want || len(h["X-Api-Key"]) != 1) {
			t.Errorf("%v", h)
		}
	}
	mcptest.Must(t, os.Remove(name))
	if got, err := authorized(f, "alice", "", time.Time{}); err == nil {
		t.Errorf("without a file: %q", got)
	}
	for _, header := range []string{"Host", "host", "Content-Type", "Mcp-Session-Id", "MCP-Protocol-Version", "X-Forwarded-For", "a b", "a:b", "é", "Transfer-Encoding", "Accept", "Cookie", "", "X-Api-\u212aey"} {
		if upstream.ForCredentials(header) {
			t.Errorf("%s is taken", header)
		}
	}
}
