package mcp_test

import (
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

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// D31: a session that is not one's own is none. TestNothingElseOpens of seal has more that are changed.
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
		"changed":                 {own, flipped(alice.session, len(alice.session)-3)},
		"very long":               {own, strings.Repeat("A", 8<<10)},
		"the server's":            {own, "session-2"},
		"two of them, one header": {own, alice.session + ", " + alice.session},
	} {
		test.by.session = test.session
		for _, one := range [][2]string{
			{http.MethodPost, alice.text("tools/call", `{"name":"look","arguments":{}}`)}, {http.MethodGet, ""}, {http.MethodDelete, ""},
			// What somebody else answers is no answer, and what he gives up goes on.
			{http.MethodPost, `{"jsonrpc":"2.0","id":"x","result":{}}`},
			{http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
		} {
			got, err := test.by.try(t.Context(), one[0], one[1], test.by.headers("tools/call", "{}")...)
			if err != nil || got.status != http.StatusNotFound {
				t.Errorf("%s, %s: %s, %v", name, one, got, err)
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

// D32: what is open for somebody ends with the token, and what is open for others goes on.
func TestStreamsEndWithTheToken(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 8)
	now := time.Now().Truncate(time.Second) // it stands still: a stream ends four seconds after its own beginning, however slow the machine is
	s := newSiege(t, camp{now: func() time.Time { return now }, answers: mcptest.Answers{
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
	soon := s.issuer.Token(t, mcptest.Claims{"exp": now.Unix() + 4})
	begins := func(era string) *visitor {
		v := s.visitor(era, nil)
		v.token = soon
		return v
	}
	var all sync.WaitGroup
	var brief, others []*ear
	for _, era := range eras {
		v := begins(era)
		all.Go(func() {
			defer func() { begun <- struct{}{} }() // a slow machine may end it before it is at the server
			if got := v.call("look", `{}`); got.ran() {
				t.Errorf("%s: %s", era, got)
			}
		})
		others, brief = append(others, s.visitor(era, mcptest.Claims{"sub": "eve"}).listens()), append(brief, begins(era).listens())
		others[len(others)-1].welcomed()
	}
	<-begun
	<-begun
	v := begins("legacy")
	all.Go(func() {
		if got, err := v.try(t.Context(), http.MethodGet, "", v.headers("", "{}")...); err != nil || got.status != http.StatusOK {
			t.Errorf("GET: %s, %v", got, err)
		}
	})
	all.Wait() // or the test hangs
	for n, other := range others {
		brief[n].ended()
		other.nothing() // nor has it ended
	}
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
