package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// hang opens a connection, sends something that is not all of a request, and keeps it.
func hang(t *testing.T, addr, sent string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, sent)
	must(t, err)
	return conn
}

// headerOf is that of an evaluation whose body is to come.
func headerOf(authorization string, length int) string {
	header := "POST " + evaluationPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	if authorization != "" {
		header += "Authorization: " + authorization + "\r\n"
	}
	return header + fmt.Sprintf("Content-Length: %d\r\n\r\n", length)
}

// aloof asks on a connection of its own.
func aloof(s *pdptest.Server) *pdptest.Server {
	other := *s
	transport := http.DefaultTransport.(*http.Transport)     // which is only copied
	if own, ok := s.Client.Transport.(*http.Transport); ok { // it trusts the server
		transport = own
	}
	transport = transport.Clone()
	transport.DisableKeepAlives = true
	other.Client = &http.Client{Transport: transport, Timeout: patience}
	return &other
}

const largeBody = 1 << 20

func largeQuestion() string { return strings.Repeat(" ", largeBody-len(readQuestion)) + readQuestion }

// One credential has its share of the places for large bodies, however many it sends and
// however slowly; who else has one to send is answered.
func TestOneCallersLargeBodiesKeepNobodyElseOut(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Program.Authenticator = asCaller{} })
	trickle := strings.Repeat(" ", 17<<10)
	for range 80 {
		conn := hang(t, s.Addr(), headerOf("greedy:decide", largeBody)+trickle)
		go func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if _, err := conn.Write([]byte{' '}); err != nil {
					return
				}
			}
		}()
	}
	eventually(t, "the greedy one has its share", func() bool { return s.LargeBodies()["key:greedy"] == 16 && s.Unsent() == 80 })
	for range 20 {
		replied(t, s.Post(evaluationPath, largeQuestion(), "Authorization", "victim:decide"), 200)
		if n := s.LargeBodies()["key:greedy"]; n > 16 {
			t.Fatalf("one caller has %d places", n)
		}
	}
}

// Where many credentials have all places, those whose bodies do not come make way for a
// caller who has fewer.
func TestBodiesThatDoNotComeMakeWay(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Program.Authenticator = asCaller{} })
	var all []net.Conn
	for n := range 64 {
		all = append(all, hang(t, s.Addr(), headerOf(fmt.Sprintf("greedy%d:decide", n/16), largeBody)+strings.Repeat(" ", 20<<10)))
	}
	full := func() (n int) {
		for _, of := range s.LargeBodies() {
			n += of
		}
		return n
	}
	eventually(t, "all places are taken", func() bool { return full() == 64 })
	s.HurryPlaces()
	told := make(chan *http.Response, len(all))
	for _, conn := range all {
		go func() {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				told <- answer
			}
		}()
	}
	replied(t, s.Post(evaluationPath, largeQuestion(), "Authorization", "victim:decide"), 200)
	if first := <-told; first.StatusCode != http.StatusRequestTimeout || first.Header.Get("Retry-After") == "" {
		t.Errorf("who made way was told %s %v", first.Status, first.Header)
	}
	if s.Refused("slow_bodies") == 0 {
		t.Error("it is not counted")
	}
}

// Who has no good credentials, may not ask, or asks too often, learns it from the header
// alone, and nothing of the body is kept for it. It takes a second, in which the bodies may come.
func TestRefusalsDoNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.Authenticator = asCaller{}
		c.Load.RateLimit.Rate = door.Rate{PerSecond: 1}
	})
	replied(t, s.Post(evaluationPath, readQuestion, "Authorization", "often:decide"), 200)
	var all sync.WaitGroup // each is answered after a second in which its body may come, and without one after 15
	defer all.Wait()
	for authorization, want := range map[string]int{"": 401, "stranger:search": 403, "often:decide": 429} {
		for _, length := range []int{100, largeBody} {
			conn := hang(t, s.Addr(), headerOf(authorization, length))
			all.Go(func() {
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || answer.StatusCode != want {
					t.Errorf("%q, %d bytes: got %v %v, want %d", authorization, length, answer, err, want)
				}
			})
		}
	}
}

// However many connections there are on which something does not come, who comes with a
// credential is let in, and answered, every time. It takes a second, after which a connection makes way.
func TestConnectionsWhoseOtherSideIsSlowGoFirst(t *testing.T) {
	const most = 8
	for name, sent := range map[string]string{
		"the body of nobody known": headerOf("", 100),
		"the body of a caller":     headerOf("greedy:decide", 100),
		"a body that nobody wants": "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"who reads no answer":      strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the seconds after which a connection makes way
			s := pdptest.Start(t, bundle(t), func(c *server.Config) {
				c.Program.Authenticator = asCaller{}
				c.Load.MaxConnections = most
			})
			victim := aloof(s)
			for range night.Cases(10) {
				var greedy []net.Conn
				eventually(t, "there are as many as may be", func() bool {
					if s.Open() < most { // also where one went meanwhile
						greedy = append(greedy, hang(t, s.Addr(), sent))
					}
					return s.Makeable() == most
				})
				for range 3 {
					replied(t, victim.Post(evaluationPath, readQuestion, "Authorization", "victim:decide"), 200)
				}
				for _, conn := range greedy {
					_ = conn.Close()
				}
			}
		})
	}
}

// A flood of connections that send nothing takes nobody's connection whose body is coming.
func TestWhoSendsNothingPushesOutNobodyWhoSends(t *testing.T) {
	t.Parallel()
	const most = 8
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.Authenticator = asCaller{}
		c.Load.MaxConnections = most
	})
	s.KeepConnections(patience)
	conn := hang(t, s.Addr(), headerOf("victim:decide", len(readQuestion))+readQuestion[:10])
	eventually(t, "the body is waited for", func() bool { return s.Unsent() == 1 })
	for range 3 * most {
		hang(t, s.Addr(), "")
	}
	_, err := io.WriteString(conn, readQuestion[10:])
	must(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != 200 {
		t.Errorf("got %v %v", answer, err)
	}
}

// On one connection of HTTP/2 there are many requests: the bodies that are waited for are
// bounded all the same.
func TestStreamsWhoseBodiesDoNotComeAreBounded(t *testing.T) {
	t.Parallel()
	const most = 16
	a := pdptest.NewAuthority(t)
	s := pdptest.Start(t, bundle(t), withTLS(a), func(c *server.Config) {
		c.Program.Authenticator = asCaller{}
		c.Load.MaxConnections = most
	})
	s.Trust(a)
	for name, test := range map[string]struct {
		authorization string
		status        int // 0 is that the connection goes
	}{"of a caller": {"greedy:decide", 0}, "of nobody known": {"", 401}} {
		t.Run(name, func(t *testing.T) {
			transport := s.Client.Transport.(*http.Transport).Clone()
			transport.ForceAttemptHTTP2 = true
			// The greedy client does not dial again when its connection is lost. Dozens of new connections could push out
			// the victim's new one, because nothing tells new connections apart.
			var dialed atomic.Bool
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				if dialed.Swap(true) {
					return nil, errors.New("there is one connection for all requests")
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			defer transport.CloseIdleConnections()
			greedy := &http.Client{Transport: transport}
			first, err := greedy.Get(s.URL + "/livez") // the connection, for all of them
			must(t, err)
			_ = first.Body.Close()
			ctx, leave := context.WithTimeout(t.Context(), patience)
			defer leave()
			var streams sync.WaitGroup
			const requests = 64 // which one connection can have, so no second one is needed for them
			ended := make(chan int, requests)
			for range requests {
				streams.Go(func() {
					body, keep := io.Pipe()
					defer func() { _ = keep.Close() }()
					r, err := http.NewRequestWithContext(ctx, "POST", s.URL+evaluationPath, body)
					must(t, err)
					r.Header.Set("Authorization", test.authorization)
					r.Header.Set("Content-Type", "application/json")
					answer, err := greedy.Do(r)
					if err != nil {
						ended <- 0
						return
					}
					if answer.ProtoMajor != 2 {
						t.Errorf("got %s", answer.Proto)
					}
					_ = answer.Body.Close()
					ended <- answer.StatusCode
				})
			}
			if got := <-ended; got != test.status {
				t.Errorf("the first ended with %d", got)
			}
			if n := s.Unsent(); n > most {
				t.Errorf("%d bodies are waited for", n)
			}
			replied(t, aloof(s).Post(evaluationPath, readQuestion, "Authorization", "victim:decide"), 200)
			leave()
			streams.Wait()
		})
	}
}

// Those who read slowly, or nothing, keep nobody else from reading: neither by the places
// of one caller, nor by the turn to work, of which there is one here.
func TestSlowReadersOfOneCallerBlockNobodyElse(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.OneReads()
	o.large()
	for range 2 {
		o.stream(t.Context(), "/v1/log/export")
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 40 { // these wait behind their own
		r, err := http.NewRequestWithContext(ctx, "GET", o.URL+"/v1/log/export", nil)
		must(t, err)
		r.Header.Set("Authorization", o.key["auditor"])
		go func() {
			if answer, err := (&http.Client{Transport: &http.Transport{}}).Do(r); err == nil {
				_ = answer.Body.Close()
			}
		}()
	}
	reader := o.as("reader")
	for _, path := range []string{"/v1/log/stats", "/v1/log/report", "/v1/log/sample?n=1&seed=x", "/v1/log/export", "/v1/decisions?limit=1", "/v1/log/checkpoint"} {
		if got := reader.Get(path); got.Status != 200 {
			t.Errorf("%s: got %d %.200s", path, got.Status, got.Body)
		}
		if n := o.Exports()["key:auditor"]; n > 2 {
			t.Fatalf("one caller has %d places", n)
		}
	}
}

// Where slow readers of several callers have all places, the slowest makes way for a caller
// who has fewer; it goes on later where it was.
func TestSlowReadersMakeWay(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.HurryPlaces()
	o.large()
	for range 2 {
		o.stream(t.Context(), "/v1/log/export")
		o.as("initech-auditor").stream(t.Context(), "/v1/log/export")
	}
	replied(t, o.as("reader").Get("/v1/log/stats"), 200)
	if n := o.Refused("slow_readers"); n == 0 {
		t.Error("it is not counted")
	}
}

// What a request may take bounds what is read of the log for it, and its answer says what
// to do.
func TestRequestTimeBoundsReadingTheLog(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.BePatient(patience, 0)
	for _, path := range []string{"/v1/decisions", "/v1/log/stats", "/v1/log/report", "/v1/log/sample?n=1&seed=x"} {
		if got := o.Get(path); got.Status != 503 || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: got %d %.200s", path, got.Status, got.Body)
		}
	}
}

// unpaced are the routes that take nothing of a caller's rate, and why.
var unpaced = map[string]string{
	"GET /livez":                             "who watches over the service must not be sent away",
	"GET /readyz":                            "the same",
	"GET /.well-known/authzen-configuration": "a document for everybody",
	"GET /.well-known/authzen-configuration/tenants/{tenant}": "the same",
	"GET /.well-known/jwks.json":                              "the same",
	"GET /access/v1/requests/schema":                          "the same",
	"GET /openapi.yaml":                                       "the same",
	"GET /v1/capabilities/status/{list}":                      "the same; a wait for its next change is paced",
}

// manifold is whoever the header says, with everything. It counts how often it is asked.
type manifold struct{ asked *atomic.Int64 }

func (m manifold) Authenticate(r *http.Request) (auth.Caller, error) {
	m.asked.Add(1)
	all := []auth.Permission{auth.Decide, auth.Search, auth.Explain, auth.LogRead, auth.LogAdmin, auth.Approve, auth.Request, auth.Capability, auth.CapabilityAdmin, auth.Backup}
	return auth.Caller{Name: "key:" + r.Header.Get("Authorization"), AllTenants: true, Permissions: all, Principal: auth.Principal{Type: "User", ID: "mia"}}, nil
}

// Each route takes one of its caller's rate, or is listed with a reason why not: a new
// route comes here first.
func TestEveryRouteTakesOfTheRateOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), withData(t.TempDir()), func(c *server.Config) {
		c.Program.Authenticator = manifold{new(atomic.Int64)}
		c.Load.RateLimit.Rate = door.Rate{PerSecond: 1}
	})
	routes, err := server.Routes()
	must(t, err)
	for n, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{tenant}", "acme", "{id}", "ID", "{digest}", "D", "{level}", "0", "{index}", "000").Replace(path)
		ask := func() int {
			return s.Do(method, path, "", "Authorization", fmt.Sprint("walker", n), "Content-Type", mediaOf(path)).Status
		}
		if first, second := ask(), ask(); first == 429 || (second == 429) != (unpaced[route] == "") {
			t.Errorf("%s: got %d and then %d; unpaced: %q", route, first, second, unpaced[route])
		}
	}
	for route := range unpaced {
		if !slices.Contains(routes, route) {
			t.Errorf("%s is no route", route)
		}
	}
}

// mediaOf is what a path takes.
func mediaOf(path string) string {
	if strings.HasSuffix(path, "/v1/token") {
		return "application/x-www-form-urlencoded"
	}
	return "application/json"
}

// Who asks is found out once: a credential may cost as much as a signature.
func TestWhoAsksIsFoundOutOnce(t *testing.T) {
	t.Parallel()
	asked := new(atomic.Int64)
	s := pdptest.Start(t, bundle(t), withData(t.TempDir()), func(c *server.Config) { c.Program.Authenticator = manifold{asked} })
	routes, err := server.Routes()
	must(t, err)
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{tenant}", "acme", "{id}", "ID", "{digest}", "D").Replace(path)
		for _, body := range []string{"", readQuestion, largeQuestion()} {
			if body != "" && method == "GET" {
				continue
			}
			before, began := asked.Load(), time.Now()
			s.Do(method, path, body, "Authorization", "a", "Content-Type", mediaOf(path))
			again := int64(time.Since(began) / (200 * time.Millisecond)) // a long answer ends with its credential
			if n := asked.Load() - before; n > 1+again {
				t.Errorf("%s with %d bytes: asked %d times", route, len(body), n)
			}
		}
	}
}

// Who shakes no hands, or never ends a header, pushes itself out.
func TestConnectionsWithoutARequestPushThemselvesOut(t *testing.T) {
	t.Parallel()
	const most = 8
	a := pdptest.NewAuthority(t)
	s := pdptest.Start(t, bundle(t), withTLS(a), func(c *server.Config) {
		c.Program.Authenticator = asCaller{}
		c.Load.MaxConnections = most
	})
	s.Trust(a)
	victim := aloof(s)
	for _, sent := range []string{"", "\x16\x03\x01\x02\x00\x01\x00"} { // of a handshake
		for range 3 {
			for range 2 * most {
				hang(t, s.Addr(), sent)
			}
			replied(t, victim.Post(evaluationPath, readQuestion, "Authorization", "victim:decide"), 200)
		}
	}
}

// What a search examines, and what a page of the log looks at, is paid for afterwards: one
// request for each thousand.
func TestSearchesPayForWhatTheyExamine(t *testing.T) {
	t.Parallel()
	var people strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&people, `,{"uid":{"type":"user","id":"u%d"},"attrs":{},"parents":[]}`, n)
	}
	source := pdptest.Bundle(map[string]string{
		"a.cedar":              `permit(principal, action == Action::"read", resource) when { resource.open };`,
		"entities/people.json": "[" + people.String()[1:] + "]",
	})
	s := pdptest.Start(t, source, withData(t.TempDir()), func(c *server.Config) {
		c.Program.Authenticator = manifold{new(atomic.Int64)}
		c.Load.RateLimit.Rate = door.Rate{PerSecond: 1, Burst: 20}
	})
	s.BePatient(patience, patience)
	left := func(caller string) (n int) {
		for s.Post(evaluationPath, readQuestion, "Authorization", caller).Status == 200 {
			n++
		}
		return n
	}
	search := `{"subject":{"type":"user"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`
	replied(t, s.Post("/access/v1/search/subject", search, "Authorization", "searcher"), 200, `"results":[]`)
	if n := left("searcher"); n != 20-1-5 {
		t.Errorf("after a search of 5000 there are %d left", n)
	}
	r := make([]string, 1000)
	for n := range r {
		r[n] = "{}"
	}
	batch := strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[` + strings.Join(r, ",") + `]}`
	for n := range 3 {
		replied(t, s.Post("/access/v1/evaluations", batch, "Authorization", fmt.Sprint("filler", n)), 200)
	}
	replied(t, s.Get("/v1/decisions?limit=1000", "Authorization", "auditor"), 200)
	if n := left("auditor"); n != 20-1-1 {
		t.Errorf("after a page of 1000 there are %d left", n)
	}
}
