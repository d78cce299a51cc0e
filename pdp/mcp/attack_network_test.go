package mcp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// D31: a session that is not one's own is none.
func TestSessionsOfOthers(t *testing.T) {
	t.Parallel()
	s, other := newSiege(t, camp{}), newSiege(t, camp{})
	alice := s.visitor("legacy", nil)
	ended := s.visitor("legacy", nil)
	if got, err := ended.try(t.Context(), http.MethodDelete, "", "Authorization", "Bearer "+ended.token, "Mcp-Session-Id", ended.session); err != nil || got.status != http.StatusNoContent {
		t.Fatalf("%s, %v", got, err)
	}
	mallory := s.stranger("legacy", s.issuer.Token(t, mcptest.Claims{"sub": "mallory"}))
	agent := s.stranger("legacy", s.issuer.Token(t, mcptest.Claims{"client_id": "another-agent"}))
	own := s.stranger("legacy", alice.token)
	for name, test := range map[string]struct {
		by      *visitor
		session string
	}{
		"another person's":        {mallory, alice.session},
		"another agent's":         {agent, alice.session},
		"guessed":                 {own, "session-1"},
		"of another gateway":      {own, other.visitor("legacy", nil).session},
		"ended":                   {own, ended.session},
		"changed at its end":      {own, flipped(alice.session, len(alice.session)-3)},
		"changed at its begin":    {own, flipped(alice.session, 1)},
		"cut":                     {own, alice.session[:len(alice.session)-4]},
		"longer":                  {own, alice.session + "AAAA"},
		"in another case":         {own, strings.ToUpper(alice.session)},
		"very long":               {own, strings.Repeat("A", 8<<10)},
		"the server's":            {own, "session-2"},
		"two of them, one header": {own, alice.session + ", " + alice.session},
	} {
		for verb, body := range map[string]string{http.MethodPost: alice.text("tools/call", `{"name":"look","arguments":{}}`), http.MethodGet: "", http.MethodDelete: ""} {
			test.by.session = test.session
			got, err := test.by.try(t.Context(), verb, body, test.by.headers("tools/call", "{}")...)
			if err != nil || got.status != http.StatusNotFound {
				t.Errorf("%s, %s: %s, %v", name, verb, got, err)
			}
		}
		// What somebody else answers is no answer, and what he gives up goes on.
		for _, body := range []string{`{"jsonrpc":"2.0","id":"x","result":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`} {
			if got := test.by.send(body, test.by.headers("tools/call", "{}")...); got.status != http.StatusNotFound {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	s.untouched(t)
	alice.call("look", `{}`).runs(t, "alice's own:")
}

func flipped(s string, at int) string {
	b := []byte(s)
	if b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	return string(b)
}

// D33: a token that does not count has its client told where to get one, and none counts anywhere but in its header, once.
// TestTokensThatDoNotCount of identity has what a token may have wrong with it, and the places.
func TestTokensThatAreNone(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	good := s.issuer.Token(t, nil)
	parts := strings.Split(good, ".")
	bearer := func(c mcptest.Claims) []string { return []string{"Authorization", "Bearer " + s.issuer.Token(t, c)} }
	for name, headers := range map[string][]string{
		"another's aud":     bearer(mcptest.Claims{"aud": "https://other.example.com/mcp"}),
		"no sub":            bearer(mcptest.Claims{"sub": nil}),
		"ended":             bearer(mcptest.Claims{"exp": time.Now().Unix() - 3600}),
		"a stranger's":      {"Authorization", "Bearer " + mcptest.NewIssuer(t, siegeResource, time.Now).Token(t, nil)},
		"another signature": {"Authorization", "Bearer " + parts[0] + "." + parts[1] + "." + flipped(parts[2], 5)},
		"nothing":           {"Authorization", ""},
		"no scheme":         {"Authorization", good},
		"two in one":        {"Authorization", "Bearer " + good + ", Bearer " + good},
		"twice":             {"Authorization", "", "+Authorization", "Bearer " + good, "+Authorization", "Bearer " + good},
		"in a cookie":       {"Authorization", "", "Cookie", "access_token=" + good},
		"in another header": {"Authorization", "", "Proxy-Authorization", "Bearer " + good, "X-Forwarded-Access-Token", good, "X-Forwarded-User", "alice"},
		"in the query":      {"Authorization", ""},
		"100 KB":            {"Authorization", "Bearer " + strings.Repeat("A", 100<<10)},
	} {
		for _, era := range eras {
			there := *s
			v := there.visitor(era, nil)
			if name == "in the query" {
				there.url += "?access_token=" + good
			}
			got, err := v.try(t.Context(), http.MethodPost, v.text("tools/call", `{"name":"look","arguments":{}}`), append(v.headers("tools/call", `{"name":"look"}`), headers...)...)
			if err != nil || got.result != nil || got.status != http.StatusUnauthorized && (got.status != http.StatusRequestHeaderFieldsTooLarge || name != "100 KB") {
				t.Errorf("%s, %s: %s, %v", name, era, got, err)
			}
			if got.status == http.StatusUnauthorized && !strings.Contains(got.header.Get("WWW-Authenticate"), "resource_metadata=") {
				t.Errorf("%s, %s: it is not told where to get one: %q", name, era, got.header)
			}
		}
	}
	s.untouched(t)
	s.visitor("modern", mcptest.Claims{"aud": []string{"https://a.example.com", siegeResource}}).call("look", `{}`).runs(t, "ours among others:")
	for _, part := range parts[1:] {
		if strings.Contains(s.logs.String(), part) {
			t.Error("a token is in the log")
		}
	}
}

// D32: what is open for somebody ends with the token.
func TestStreamsEndWithTheToken(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 8)
	s := newSiege(t, camp{answers: mcptest.Answers{
		Handle: func(c *mcptest.Call) bool {
			if c.Method == "tools/call" {
				begun <- struct{}{}
				<-c.Context.Done()
				return true
			}
			return false
		},
		Listen: func(c *mcptest.Call) { <-c.Context.Done() },
	}})
	soon := mcptest.Claims{"exp": time.Now().Unix() + 4}
	var all sync.WaitGroup
	for _, era := range eras {
		v := s.visitor(era, soon)
		all.Go(func() {
			if got := v.call("look", `{}`); got.ran() {
				t.Errorf("%s: %s", era, got)
			}
		})
	}
	<-begun
	<-begun
	v := s.visitor("legacy", soon)
	all.Go(func() {
		if got, err := v.try(t.Context(), http.MethodGet, "", v.headers("", "{}")...); err != nil || got.status != http.StatusOK {
			t.Errorf("GET: %s, %v", got, err)
		}
	})
	all.Wait() // or the test hangs
}

// D34: a page in a browser that made its name point here asks nothing, and nothing of it is read.
func TestHostsAndOrigins(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	for name, headers := range map[string][]string{
		"a foreign host":            {"Host", "evil.example"},
		"with our port":             {"Host", "evil.example:8181"},
		"a name that begins so":     {"Host", "localhost.evil.example"},
		"a name that ends so":       {"Host", "evil-localhost"},
		"127.0.0.1 as a part":       {"Host", "127.0.0.1.evil.example"},
		"a number":                  {"Host", "2130706433.evil.example"},
		"a foreign origin":          {"Origin", "https://evil.example"},
		"null":                      {"Origin", "null"},
		"an empty origin":           {"+Origin", ""},
		"an origin that begins so":  {"Origin", "http://127.0.0.1.evil.example"},
		"an origin with a user":     {"Origin", "http://127.0.0.1@evil.example"},
		"two origins":               {"+Origin", "http://127.0.0.1", "+Origin", "https://evil.example"},
		"an origin of files":        {"Origin", "file://"},
		"an extension":              {"Origin", "chrome-extension://abcdef"},
		"a host of the link":        {"Host", "169.254.169.254"},
		"nothing of a host, a port": {"Host", ":8181"},
	} {
		for _, era := range eras {
			v := s.visitor(era, nil)
			for _, verb := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
				soon, cancel := context.WithTimeout(t.Context(), time.Minute)
				got, err := v.try(soon, verb, "this is not read", append(v.headers("tools/call", "{}"), headers...)...)
				cancel()
				if err != nil || got.status != http.StatusForbidden && got.status != http.StatusBadRequest {
					t.Errorf("%s, %s, %s: %s, %v", name, era, verb, got, err)
				}
			}
		}
	}
	s.untouched(t)
}

// TestPagesOfOtherPortsAskNothing: where no token is needed, a page that some other program of this machine serves is a stranger.
func TestPagesOfOtherPortsAskNothing(t *testing.T) {
	t.Parallel()
	const other, named = "http://localhost:3000", "http://localhost:5173"
	for static, want := range map[bool]map[string]bool{
		true:  {"": true, "own": true, named: true, other: false, "http://127.0.0.1": false, "http://[::1]:1": false},
		false: {"": true, "own": true, named: true, other: true},
	} {
		s := newSiege(t, camp{change: func(c *mcp.Config) {
			c.AllowedOrigins = []string{named}
			if static {
				c.Identity = mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "me"}}
			}
		}})
		v := s.stranger("modern", s.issuer.Token(t, nil))
		for origin, allowed := range want {
			headers := v.headers("tools/list", "{}")
			switch origin {
			case "":
			case "own":
				headers = append(headers, "Origin", s.url[:strings.LastIndex(s.url, "/")])
			default:
				headers = append(headers, "Origin", origin)
			}
			if got := v.send(v.text("tools/list", "{}"), headers...); (got.status == http.StatusOK) != allowed {
				t.Errorf("static %t, %q: %s", static, origin, got)
			}
		}
	}
}

// TestRefusedBeforeTheBodyEndsTheConnection: nobody waits for a body that is not read.
func TestRefusedBeforeTheBodyEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	at, err := url.Parse(s.url)
	orFail(t, err)
	token := "Authorization: Bearer " + s.issuer.Token(t, nil) + "\r\n"
	const accept, plain = "Accept: application/json, text/event-stream\r\n", "Content-Type: application/json\r\n"
	for name, headers := range map[string]string{
		"no token":      accept + plain,
		"a wrong token": accept + plain + "Authorization: Bearer x\r\n",
		"a stranger":    accept + plain + token + "Origin: https://evil.example\r\n",
		"another type":  accept + "Content-Type: text/plain\r\n" + token,
		"no answer":     "Accept: text/html\r\n" + plain + token,
	} {
		connection, err := net.Dial("tcp", at.Host)
		orFail(t, err)
		_, err = io.WriteString(connection, "POST "+at.Path+" HTTP/1.1\r\nHost: "+at.Host+"\r\nContent-Length: 1000\r\n"+headers+"\r\n{")
		orFail(t, err)
		orFail(t, connection.SetReadDeadline(time.Now().Add(time.Minute)))
		answer, err := io.ReadAll(connection) // until the other side ends it
		if err != nil || !strings.Contains(string(answer), "Connection: close") || !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		_ = connection.Close()
	}
	s.untouched(t)
}

// D35: what a definition names is fetched by nobody. TestNothingNamedIsFetched of upstream has what an answer names.
func TestServersLeadNowhere(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		visits.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(inside.Close)
	tools := strings.ReplaceAll(`[{"name":"look","icons":[{"src":"URL/icon.png"}],"inputSchema":{"$schema":"URL/schema","$ref":"URL/ref","type":"object","properties":{"a":{"$ref":"URL/a"}}}}]`, "URL", inside.URL)
	s := newSiege(t, camp{answers: mcptest.Answers{Tools: tools}})
	for _, era := range eras {
		v := s.visitor(era, nil)
		if got := v.ask("tools/list", `{}`); !strings.Contains(got.text, "icon.png") {
			t.Errorf("%s: %s", era, got)
		}
		v.call("look", `{"a":1}`)
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("the gateway went where a server led it, %d times", n)
	}
}
