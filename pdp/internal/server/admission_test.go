package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/pdptest"
)

// holding is a recorder that says when it is asked, and answers when it is let go, or
// when the request has no more time.
type holding struct{ asked, release chan struct{} }

func newHolding() holding { return holding{make(chan struct{}, 100), make(chan struct{})} }

func (h holding) Record(ctx context.Context, _ []pdp.Record) error {
	h.asked <- struct{}{}
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func refusedLater(t *testing.T, what string, got pdptest.Response, status int) {
	t.Helper()
	if got.Status != status || got.Header.Get("Retry-After") != "1" || got.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(got.Body, "true") {
		t.Errorf("%s: got %d %s (Retry-After %q), want %d and when to ask again", what, got.Status, got.Body, got.Header.Get("Retry-After"), status)
	}
}

func TestMaxConcurrent(t *testing.T) {
	t.Parallel()
	h := newHolding()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.PDP.Recorder = h
		c.Load.MaxConcurrent = 1
	})
	s.BePatient(time.Millisecond, patience)
	first := make(chan pdptest.Response)
	go func() { first <- s.Post(evaluationPath, readQuestion) }()
	<-h.asked
	refusedLater(t, evaluationPath, s.Post(evaluationPath, readQuestion), 503)
	refusedLater(t, authorizePath, s.Post(authorizePath, nativeQuestion), 503)
	for _, path := range []string{"/livez", "/readyz"} {
		if got := s.Get(path); got.Status != 200 {
			t.Errorf("%s: got %d: who asks about health is never sent away", path, got.Status)
		}
	}
	close(h.release)
	if got := <-first; got.Status != 200 || got.Body != `{"decision":true}` {
		t.Errorf("who was inside got %d %s", got.Status, got.Body)
	}
	for _, body := range []string{readQuestion, "{", readQuestion} { // an error gives the place back, too
		if got := s.Post(evaluationPath, body); got.Status == 503 {
			t.Errorf("%s: got %d, and nobody is inside", body, got.Status)
		}
	}
}

// Who waits is let in as soon as there is room.
func TestMaxConcurrentWaits(t *testing.T) {
	t.Parallel()
	h := newHolding()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.PDP.Recorder = h
		c.Load.MaxConcurrent = 1
	})
	s.BePatient(patience, patience)
	close(h.release)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			replied(t, s.Post(evaluationPath, readQuestion), 200)
		})
	}
	all.Wait()
}

func TestPanicGivesThePlaceBack(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.PDP.Recorder = recorder(func() error { panic("now") })
		c.Load.MaxConcurrent, c.Load.QueueTime = 1, time.Millisecond
	})
	for range 3 {
		replied(t, s.Post(evaluationPath, readQuestion), 500)
	}
}

func TestRequestTime(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.PDP.Recorder = newHolding() // for ever
		c.Load.RequestTime = time.Millisecond
	})
	for path, body := range map[string]string{
		evaluationPath: readQuestion, authorizePath: nativeQuestion, "/access/v1/search/subject": readQuestion,
		"/access/v1/evaluations": strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[{},{}]}`,
	} {
		refusedLater(t, path, s.Post(path, body), 503)
	}
}

// The clock of the test stands still, so that what is used up stays so.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.Authenticator = asCaller{}
		c.Load.RateLimit = door.RateLimit{
			Rate:    door.Rate{PerSecond: 1, Burst: 3},
			Callers: []door.CallerRate{{Caller: "key:big", Rate: door.Rate{PerSecond: 5}}},
		}
	})
	ask := func(caller, path, body string) pdptest.Response {
		return s.Post(path, body, "Authorization", caller+":decide search")
	}
	for caller, want := range map[string]int{"a": 3, "b": 3, "big": 5} {
		for n := range want {
			if got := ask(caller, evaluationPath, readQuestion); got.Status != 200 {
				t.Errorf("%s, request %d: got %d %s", caller, n, got.Status, got.Body)
			}
		}
	}
	refusedLater(t, "a", ask("a", evaluationPath, readQuestion), 429)
	refusedLater(t, "a, natively", ask("a", authorizePath, nativeQuestion), 429)
	refusedLater(t, "b, searching", ask("b", "/access/v1/search/subject", readQuestion), 429)
	replied(t, s.Get("/readyz", "Authorization", "a:decide"), 200)

	// A batch costs as much as its items, and the answer to it is not taken back.
	batch := strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[{},{},{},{},{},{}]}`
	replied(t, ask("c", "/access/v1/evaluations", batch), 200)
	if got := ask("c", evaluationPath, readQuestion); got.Status != 429 || got.Header.Get("Retry-After") != "4" {
		t.Errorf("after a batch: got %d, Retry-After %q, want four seconds", got.Status, got.Header.Get("Retry-After"))
	}

	// Who may not ask is told so, and not that it asks too often.
	replied(t, s.Post(evaluationPath, readQuestion, "Authorization", "a:search"), 403)
}

// A large body of nobody known is read to its end, because its size comes first in the
// order of checks.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Program.Authenticator = asCaller{} })
	fill := func(n int) string { return strings.Repeat(" ", n-len(readQuestion)) + readQuestion }
	for _, test := range []struct {
		size   int
		caller string
		want   int
	}{
		{1 << 20, "a:decide", 200}, {1<<20 + 1, "a:decide", 413}, {1 << 20, "", 401}, {1<<20 + 1, "", 413},
		{16<<10 - 1, "a:decide", 200}, {16 << 10, "a:decide", 200}, {16<<10 + 1, "a:decide", 200}, {16 << 10, "", 401}, {16<<10 - 1, "", 401},
	} {
		body := fill(test.size)
		if got := s.Post(evaluationPath, body, "Authorization", test.caller); got.Status != test.want {
			t.Errorf("%d bytes of %q: got %d %s, want %d", test.size, test.caller, got.Status, got.Body, test.want)
		}
		raw := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", evaluationPath, test.caller, len(body), body)
		if got := exchange(t, s.Addr(), []byte(raw)); !strings.HasPrefix(got, fmt.Sprint("HTTP/1.1 ", test.want)) {
			t.Errorf("%d bytes of %q in chunks: got %.100s, want %d", test.size, test.caller, got, test.want)
		}
	}
}

// What may keep a processor for long waits for its turn; what is short does not. That nobody
// who waited has a place afterwards shows where all of them are answered again.
func TestLongWorkWaitsForItsTurnAndShortWorkDoesNot(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	large := strings.Repeat(" ", 16<<10)
	long := map[string]string{
		"/access/v1/evaluations": strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[{},{}]}`, "/access/v1/search/subject": readQuestion,
		evaluationPath: large + readQuestion, authorizePath: large + nativeQuestion,
	}
	s.BePatient(patience, 10*time.Millisecond)
	release := s.HoldWork("key:loud")
	for path, body := range long {
		refusedLater(t, path, s.Post(path, body), 503)
	}
	s.BePatient(patience, patience)
	for path, body := range map[string]string{evaluationPath: readQuestion, authorizePath: nativeQuestion} {
		if got := s.Post(path, body); got.Status != 200 {
			t.Errorf("%s: got %d %s", path, got.Status, got.Body)
		}
	}
	if n := s.Refused("work"); n != len(long) {
		t.Errorf("%d are counted, want %d", n, len(long))
	}
	release()
	for range 3 {
		for path, body := range long {
			if got := s.Post(path, body); got.Status != 200 {
				t.Errorf("%s: got %d %s", path, got.Status, got.Body)
			}
			_ = s.Post(path, strings.Replace(body, "{", "[", 1)) // an error gives the place back, too
		}
	}
}

// A gateway has hundreds of connections, and none of what it asks is refused because of their number.
func TestACallerWithManyConnectionsWaits(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	s.BePatient(patience, patience)
	const many = 300
	for name, ask := range map[string]struct {
		path, body string
		turns      int // how many of them wait for a turn; the others wait for a place
	}{
		"batches":      {"/access/v1/evaluations", strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[{},{}]}`, many},
		"large bodies": {evaluationPath, strings.Repeat(" ", 16<<10) + readQuestion, door.LargeOfOne},
	} {
		release := s.HoldWork("key:calm")
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if got := s.Post(ask.path, ask.body); got.Status != 200 {
					t.Errorf("%s: got %d %s", name, got.Status, got.Body)
				}
			})
		}
		eventually(t, name+" wait", func() bool { return s.WorkWaits("") == ask.turns && s.LargeWaits("") == many-ask.turns })
		release()
		all.Wait()
	}
}

// A batch whose turn others have in its middle may find none again, where its caller has
// too many that wait: that is no fault of the service, and nothing of it is decided.
func TestABatchThatFindsNoTurnAgainIsToldToAskLater(t *testing.T) {
	t.Parallel()
	archive, err := os.ReadFile("testdata/bundle.txtar")
	must(t, err)
	// With these rules no machine answers 250 items in one turn, and a busy one answers them in 10 s.
	slow := "-- slow.cedar --\n" + strings.Repeat(`forbid (principal, action == Action::"read", resource) when { context has note && context.note like "*y*y*y*" };`+"\n", 200)
	s := pdptest.Start(t, pdptest.Txtar(string(archive)+slow))
	batch := strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[{}` + strings.Repeat(`,{"context":{"note":"`+strings.Repeat("x", 500)+`"}}`, 249) + "]}"
	waits := func(caller string) {
		t.Helper()
		for end := time.Now().Add(patience); s.WorkWaits(caller) == 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%q does not wait", caller)
			}
		}
	}
	release, held, answered := s.HoldWork("key:calm"), make(chan func(), 1), make(chan pdptest.Response, 1)
	go func() { answered <- s.Post("/access/v1/evaluations", batch) }()
	waits("")
	go func() { held <- s.HoldWork("key:calm") }()
	waits("key:calm")
	release()
	again := <-held // in the middle of the batch, which waits again
	waits("")
	leave := s.CrowdWork("")
	refusedLater(t, "a batch that was crowded out", <-answered, 503)
	leave()
	again()
	replied(t, s.Post("/access/v1/evaluations", batch), 200)
}

func TestEveryAnswerHasTheHeadersOfSecurity(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Load.RateLimit.Rate = door.Rate{PerSecond: 1, Burst: 4} })
	seen := map[int]bool{}
	for _, ask := range []struct{ method, path, body string }{
		{"POST", evaluationPath, readQuestion}, {"POST", evaluationPath, "{"}, {"PUT", evaluationPath, ""}, {"GET", "/debug/pprof/", ""},
		{"POST", evaluationPath, strings.Repeat(" ", 1<<20+1)}, {"POST", authorizePath, strings.Replace(nativeQuestion, "default", "nosuch", 1)},
		{"GET", "/readyz", ""}, {"GET", "/openapi.yaml", ""}, {"POST", evaluationPath, readQuestion}, {"POST", evaluationPath, readQuestion},
	} {
		got := s.Do(ask.method, ask.path, ask.body, "Content-Type", "application/json")
		if !hardened(got.Header) || got.Header.Get("Server") != "" {
			t.Errorf("%s %s: %d with %v", ask.method, ask.path, got.Status, got.Header)
		}
		seen[got.Status] = true
	}
	for _, status := range []int{200, 400, 403, 404, 405, 413, 429} {
		if !seen[status] {
			t.Errorf("no answer was a %d", status)
		}
	}
}

func TestAdminListener(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.AdminListen = "127.0.0.1:0" })
	admin := *s
	admin.URL = "http://" + s.AdminAddr()
	if got := admin.Get("/debug/pprof/goroutine?debug=1"); got.Status != 200 || !strings.Contains(got.Body, "goroutine profile") || !hardened(got.Header) {
		t.Errorf("got %d %.100s %v, want a profile", got.Status, got.Body, got.Header)
	}
	for _, path := range []string{evaluationPath, "/", "/debug/"} {
		if got := admin.Get(path); got.Status != 404 {
			t.Errorf("%s on the admin listener: got %d", path, got.Status)
		}
	}
	if got := exchange(t, s.AdminAddr(), []byte("GET /debug/pprof/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("a foreign Host: got %.60s, want 403", got)
	}
	for name, want := range map[string]int{"Sec-Fetch-Site: cross-site": 403, "Sec-Fetch-Site: same-site": 403, "Origin: http://evil.example": 403, "Sec-Fetch-Site: none": 200, "Sec-Fetch-Site: same-origin": 200} {
		header, value, _ := strings.Cut(name, ": ")
		if got := admin.Get("/debug/pprof/cmdline", header, value); got.Status != want {
			t.Errorf("%s: got %d, want %d", name, got.Status, want)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
		if got := s.Get(path); got.Status != http.StatusNotFound {
			t.Errorf("%s where callers ask: got %d, want 404", path, got.Status)
		}
	}
	stopAndWait(t, s)
	waitUntilRefused(t, s.AdminAddr())
	for _, address := range []string{":8181", "0.0.0.0:0", "192.0.2.1:8181", "example.com:8181", "127.0.0.1"} {
		if _, err := server.New(server.Config{Program: server.Program{Source: bundle(t)}, AdminListen: address}); err == nil || !strings.Contains(err.Error(), "; try ") {
			t.Errorf("%s: got %v, want a refusal", address, err)
		}
	}
}

// Who goes away gives the place back: what is worked on for nobody keeps nobody waiting.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	h := newHolding()
	var logged log
	s := pdptest.Start(t, bundle(t), func(c *server.Config) {
		c.Program.PDP.Recorder = h
		c.Load.MaxConcurrent = 1
		c.Program.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	})
	s.BePatient(patience, 2*patience) // the place is given back in time by who goes away alone
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+evaluationPath, strings.NewReader(readQuestion))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	gone := make(chan error)
	go func() {
		_, err := s.Client.Do(r)
		gone <- err
	}()
	<-h.asked
	leave()
	if <-gone == nil {
		t.Fatal("there was an answer")
	}
	second := make(chan pdptest.Response)
	go func() { second <- s.Post(evaluationPath, readQuestion) }()
	select {
	case <-h.asked:
	case got := <-second:
		t.Fatalf("the place is still taken: got %d %s", got.Status, got.Body)
	}
	close(h.release)
	replied(t, <-second, 200)
	if n := logged.count("not answered"); n > 0 {
		t.Errorf("%d lines in the log for who goes away: a flood could fill it", n)
	}
}
