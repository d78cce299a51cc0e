package mcp_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

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
	if got := alice.call("look", `{}`); !got.ran() {
		t.Errorf("alice's own: %s", got)
	}
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

// D32: a token that is not good is none, wherever it stands and however often.
func TestTokensThatAreNone(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	stranger := mcptest.NewIssuer(t, siegeResource, time.Now)
	good := s.issuer.Token(t, nil)
	now := time.Now().Unix()
	claims := func(c mcptest.Claims) string { return "Bearer " + s.issuer.Token(t, c) }
	parts := strings.Split(good, ".")
	header := func(h string) string { return base64.RawURLEncoding.EncodeToString([]byte(h)) }
	tokens := map[string]string{
		"none":                      "Bearer " + header(`{"alg":"none","typ":"at+jwt"}`) + "." + parts[1] + ".",
		"None":                      "Bearer " + header(`{"alg":"None"}`) + "." + parts[1] + "." + parts[2],
		"HS256 by the public key":   "Bearer " + hs256(t, s.issuer, parts[1]),
		"RS256, which is not taken": "Bearer " + s.issuer.Sign(t, jose.RS256, nil),
		"kid that is a path":        "Bearer " + header(`{"alg":"ES256","kid":"../../../../dev/null"}`) + "." + parts[1] + "." + parts[2],
		"kid that is SQL":           "Bearer " + header(`{"alg":"ES256","kid":"' OR 1=1 --"}`) + "." + parts[1] + "." + parts[2],
		"a key of its own":          "Bearer " + header(`{"alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}}`) + "." + parts[1] + "." + parts[2],
		"a key to fetch":            "Bearer " + header(`{"alg":"ES256","jku":"http://127.0.0.1:1/keys"}`) + "." + parts[1] + "." + parts[2],
		"critical":                  "Bearer " + header(`{"alg":"ES256","kid":"ES256","crit":["exp"],"exp":1}`) + "." + parts[1] + "." + parts[2],
		"another's aud":             claims(mcptest.Claims{"aud": "https://other.example.com/mcp"}),
		"auds of others":            claims(mcptest.Claims{"aud": []string{"https://a.example.com", siegeResource + "2"}}),
		"aud in another case":       claims(mcptest.Claims{"aud": strings.ToUpper(siegeResource)}),
		"no aud":                    claims(mcptest.Claims{"aud": nil}),
		"another iss":               claims(mcptest.Claims{"iss": "https://evil.example.com"}),
		"iss with a slash":          claims(mcptest.Claims{"iss": s.issuer.URL + "/"}),
		"no iss":                    claims(mcptest.Claims{"iss": nil}),
		"a stranger's":              "Bearer " + stranger.Token(t, nil),
		"ended":                     claims(mcptest.Claims{"exp": now - 3600}),
		"no exp":                    claims(mcptest.Claims{"exp": nil}),
		"exp as a text":             claims(mcptest.Claims{"exp": "never"}),
		"not yet":                   claims(mcptest.Claims{"nbf": now + 3600}),
		"of the future":             claims(mcptest.Claims{"iat": now + 36000, "nbf": now + 36000}),
		"no sub":                    claims(mcptest.Claims{"sub": nil}),
		"an empty sub":              claims(mcptest.Claims{"sub": ""}),
		"sub as a list":             claims(mcptest.Claims{"sub": []string{"alice"}}),
		"100 KB":                    "Bearer " + strings.Repeat("A", 100<<10),
		"another signature":         "Bearer " + parts[0] + "." + parts[1] + "." + flipped(parts[2], 5),
		"other claims":              "Bearer " + parts[0] + "." + header(`{"sub":"root"}`) + "." + parts[2],
		"cut":                       "Bearer " + parts[0] + "." + parts[1],
		"more":                      "Bearer " + good + ".x",
		"Basic":                     "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:"+good)),
		"no scheme":                 good,
		"two in one":                "Bearer " + good + ", Bearer " + good,
		"two words":                 "Bearer " + good + " " + good,
		"empty":                     "Bearer ",
		"nothing":                   "",
	}
	for _, era := range eras {
		v := s.visitor(era, nil)
		for name, authorization := range tokens {
			body := v.text("tools/call", `{"name":"look","arguments":{}}`)
			headers := v.headers("tools/call", `{"name":"look"}`)
			got, err := v.try(t.Context(), http.MethodPost, body, append(headers, "Authorization", authorization)...)
			if err != nil || got.status != http.StatusUnauthorized && got.status != http.StatusRequestHeaderFieldsTooLarge && got.status != http.StatusBadRequest || got.result != nil {
				t.Errorf("%s, %s: %s, %v", name, era, got, err)
			}
			if got.status == http.StatusUnauthorized && !strings.Contains(got.header.Get("WWW-Authenticate"), "resource_metadata=") {
				t.Errorf("%s, %s: it is not told where to get one: %q", name, era, got.header)
			}
			for _, place := range elsewhere(v, authorization) {
				if got := place(body, headers); got.status == http.StatusOK {
					t.Errorf("%s, %s, elsewhere: %s", name, era, got)
				}
			}
		}
		// The good one counts nowhere but in its header, once.
		body, headers := v.text("tools/call", `{"name":"look","arguments":{}}`), v.headers("tools/call", `{"name":"look"}`)
		for n, place := range elsewhere(v, "Bearer "+good) {
			if got := place(body, headers); got.status == http.StatusOK {
				t.Errorf("%s, the good one, place %d: %s", era, n, got)
			}
		}
	}
	s.untouched(t)
	for name, aud := range map[string]any{"ours among others": []string{"https://a.example.com", siegeResource}} {
		if got := s.visitor("modern", mcptest.Claims{"aud": aud}).call("look", `{}`); !got.ran() {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, part := range parts[1:] {
		if strings.Contains(s.logs.String(), part) {
			t.Error("a token is in the log")
		}
	}
}

// elsewhere are the places of a token that are none: the query, a cookie, other headers, and the header twice.
func elsewhere(v *visitor, authorization string) (all []func(body string, headers []string) echo) {
	token := strings.TrimPrefix(authorization, "Bearer ")
	without := func(headers []string, more ...string) []string {
		return append(append(append([]string(nil), headers...), "Authorization", ""), more...)
	}
	for _, more := range [][]string{
		{"Cookie", "access_token=" + url.QueryEscape(token) + "; Authorization=" + url.QueryEscape(authorization)},
		{"Proxy-Authorization", authorization},
		{"X-Forwarded-Access-Token", token},
		{"X-Forwarded-User", "alice"},
		{"+Authorization", authorization, "+Authorization", authorization},
	} {
		all = append(all, func(body string, headers []string) echo {
			got, err := v.try(v.s.t.Context(), http.MethodPost, body, without(headers, more...)...)
			if err != nil {
				v.s.t.Error(err)
			}
			return got
		})
	}
	return append(all, func(body string, headers []string) echo {
		there := *v.s
		there.url += "?access_token=" + url.QueryEscape(token) + "&Authorization=" + url.QueryEscape(authorization)
		by := &visitor{s: &there, era: v.era, client: v.client, heard: v.heard}
		got, err := by.try(v.s.t.Context(), http.MethodPost, body, without(headers)...)
		if err != nil {
			v.s.t.Error(err)
		}
		return got
	})
}

// hs256 is a token that is signed with the public keys of the issuer, as if they were a secret.
func hs256(t testing.TB, i *mcptest.Issuer, claims string) string {
	t.Helper()
	set, err := os.ReadFile(i.KeysFile(t))
	orFail(t, err)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"ES256"}`)) + "." + claims
	sum := hmac.New(sha256.New, set)
	_, _ = io.WriteString(sum, text)
	return text + "." + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
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

// D35: a server leads the gateway nowhere else.
func TestServersLeadNowhere(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		visits.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(inside.Close)
	for _, status := range []int{301, 302, 303, 307, 308, 401, 403} {
		leads := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", inside.URL)
			w.Header().Set("Refresh", "0; url="+inside.URL)
			w.Header().Set("Link", "<"+inside.URL+">; rel=preload")
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+inside.URL+`", authorization_uri="`+inside.URL+`"`)
			w.WriteHeader(status)
		}))
		t.Cleanup(leads.Close)
		s := newSiege(t, camp{change: func(c *mcp.Config) {
			u := c.Upstreams["rec"]
			u.URL = leads.URL
			c.Upstreams["rec"] = u
		}})
		v := s.stranger("modern", s.issuer.Token(t, nil))
		if got := v.call("look", `{}`); got.fault == nil || got.code() != -32603 || strings.Contains(got.text, inside.URL) {
			t.Errorf("%d: %s", status, got)
		}
	}
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

// D35: an address that is not for servers is not reached, however it is written.
func TestAddressesThatAreNoServers(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://169.254.169.254/mcp", "https://[::ffff:169.254.169.254]/mcp", "https://[::ffff:10.0.0.1]/mcp", "https://10.0.0.1/mcp", "https://[fd00:ec2::254]/mcp", "https://0.0.0.0/mcp"} {
		c := mcp.Config{
			Listen: "127.0.0.1:0", Resource: siegeResource, PDP: mcp.PDPConfig{URL: "http://127.0.0.1:1"},
			Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}},
			Upstreams: map[string]mcp.UpstreamConfig{"rec": {URL: address}},
		}
		if g, err := mcp.New(t.Context(), c, mcp.Deps{}); err == nil {
			_ = g.Close()
			t.Errorf("%s is taken", address)
		}
	}
}
