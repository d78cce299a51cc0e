package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// Whoever counts sees one route of the console, and what it asks the API for as requests of their own.
func TestConsoleInMetrics(t *testing.T) {
	t.Parallel()
	c := openCounter(t, withConsole(server.ConsoleConfig{PublicURL: "https://pdp.example.com/pdp/console"}))
	for _, path := range []string{"/console/approvals/s3cret", "/pdp/console/s3cret", "/console", "/console/login"} {
		consoleGet(t, consoleBrowser(nil), c.URL+path)
	}
	_, text := c.do("explainer", "GET", "/metrics", "")
	if strings.Contains(text, "s3cret") {
		t.Error("what was sent is in the metrics")
	}
	requests := 0.0
	for series, value := range counted(t, text) {
		if strings.HasPrefix(series, "policy_service_http_request_duration_seconds_count{") && strings.Contains(series, `http_route="/console/*"`) {
			requests += value
		}
	}
	if requests != 4 {
		t.Errorf("%v requests of the route /console/*, want 4", requests)
	}
}

// The console speaks TLS wherever the service does, and its cookies are for https alone.
func TestConsoleOverTLS(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]string{"shared": "", "own": "127.0.0.1:0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := pdptest.NewAuthority(t)
			c := openCounter(t, withTLS(a), withConsole(server.ConsoleConfig{Listen: listen}))
			c.Trust(a)
			if !strings.HasPrefix(c.ConsoleURL(), "https://127.0.0.1:") {
				t.Errorf("it says that the console is at %s", c.ConsoleURL())
			}
			browser := consoleBrowser(c.Client.Transport)
			got := consolePost(t, browser, c.ConsoleURL()+"/login", url.Values{"key": {strings.TrimPrefix(c.key["mia"], "Bearer ")}})
			if cookie := got.header.Get("Set-Cookie"); got.status != http.StatusSeeOther || !strings.HasPrefix(cookie, "__Host-") || !strings.Contains(cookie, "; Secure") {
				t.Errorf("got %d and the cookie %q", got.status, cookie)
			}
		})
	}
}

// A browser that is answered while the server stops gets its answer, on either listener.
func TestConsoleStops(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]string{"shared": "", "own": "127.0.0.1:0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCounter(t, withConsole(server.ConsoleConfig{Listen: listen}))
			at := strings.TrimSuffix(strings.TrimPrefix(c.ConsoleURL(), "http://"), "/console")
			conn, err := net.Dial("tcp", at)
			must(t, err)
			defer func() { _ = conn.Close() }()
			form := "key=none"
			_, err = fmt.Fprintf(conn, "POST /console/login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", at, len(form))
			must(t, err)
			read := bufio.NewReader(conn)
			proceed, err := http.ReadResponse(read, nil) // 100: the body is waited for
			must(t, err)
			stopped := make(chan error, 1)
			go func() { stopped <- c.Stop(context.Background()) }()
			eventually(t, "it takes nothing new", func() bool {
				more, err := net.Dial("tcp", at)
				if err == nil {
					_ = more.Close()
				}
				return err != nil
			})
			_, err = io.WriteString(conn, form)
			must(t, err)
			answer, err := http.ReadResponse(read, nil)
			must(t, err)
			if err := answer.Body.Close(); err != nil || proceed.StatusCode != http.StatusContinue || answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("got %d, then %d, %v", proceed.StatusCode, answer.StatusCode, err)
			}
			must(t, <-stopped)
		})
	}
}

// Whoever opens pages and sends nothing keeps no decision waiting: the console has places of its own.
func TestConsoleFloodTakesNoPlaceOfDecisions(t *testing.T) {
	t.Parallel()
	c := openCounter(t, withConsole(server.ConsoleConfig{}), func(config *server.Config) { config.Load.MaxConcurrent = 1 })
	at := strings.TrimPrefix(c.URL, "http://")
	for range 200 {
		conn, err := net.Dial("tcp", at)
		must(t, err)
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "POST /console/login HTTP/1.1\r\nHost: %s\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 60000\r\nExpect: 100-continue\r\n\r\n", at)
		must(t, err)
		if _, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		c.reply("pep", "POST", "/v1/authorize", tool("push", push)).is(t, "the answer", http.StatusOK)
	}
	consoleGet(t, consoleBrowser(nil), c.ConsoleURL()+"/login").is(t, "another person gets", http.StatusOK)
}
