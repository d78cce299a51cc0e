package console_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// byScript are the headers of a browser whose script asks.
var byScript = []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "cors"}

// coreStream is a stream as a browser reads it.
type coreStream struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Reader
	leave  context.CancelFunc
}

// listens opens the stream of a browser.
func (b *coreBrowser) listens(headers ...string) *coreStream {
	b.c.t.Helper()
	ctx, leave := context.WithCancel(b.c.t.Context())
	b.c.t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.c.URL+"/approvals/stream", nil)
	coreMust(b.c.t, err)
	headers = append(headers, byScript...)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := b.client.Do(r)
	coreMust(b.c.t, err)
	b.c.t.Cleanup(func() { _ = got.Body.Close() })
	return &coreStream{b.c.t, got, bufio.NewReader(got.Body), leave}
}

// coreEvent is an event. Its kind is "" at the end of the stream.
type coreEvent struct{ kind, id, data string }

// next is the next event.
func (s *coreStream) next() (e coreEvent) {
	s.t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return coreEvent{}
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			if e.kind != "" {
				return e
			}
		}
	}
}

// waits wants the next event but beats to say that so many wait, and returns its id.
func (s *coreStream) waits(n int) string {
	s.t.Helper()
	e := s.next()
	for e.kind == "beat" {
		e = s.next()
	}
	want := fmt.Sprintf(`{"n":%d,"more":false,"tag":%q}`, n, e.id)
	if e.kind != "waiting" || e.id == "" || e.data != want {
		s.t.Fatalf("got %+v, want %s", e, want)
	}
	return e.id
}

// ends wants the stream to end, with an event before or without.
func (s *coreStream) ends(last string) {
	s.t.Helper()
	e := s.next()
	for e.kind == "beat" || e.kind == "waiting" {
		e = s.next()
	}
	if e.kind != last || last != "" && s.next().kind != "" {
		s.t.Errorf("it ends with %+v", e)
	}
}

func (c *core) denies(id string) {
	c.t.Helper()
	c.ask("mia", http.MethodPost, "/v1/approvals/"+id+"/decision", `{"decision":"deny","reason":"no"}`)
}

var coreTag = regexp.MustCompile(` data-stream="/pdp/console/approvals/stream" data-tag="([^"]+)"`)

// A stream says how many wait at its beginning and whenever that is another list: what the page has been made of is known by
// its tag. A stream that was cut goes on where it was, and says nothing twice.
func TestStream(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	b.logIn("mia")
	c.waits("one")
	s := b.listens()
	if got := s.answer.Header; s.answer.StatusCode != 200 || got.Get("Content-Type") != "text/event-stream" || got.Get("Cache-Control") != "no-store" {
		t.Errorf("got %d %v", s.answer.StatusCode, got)
	}
	tag := s.waits(1)
	if got := coreTag.FindStringSubmatch(b.get("/approvals").Body); got == nil || got[1] != tag {
		t.Errorf("the page has %q, and the stream %q", got, tag)
	}
	two := c.waits("two")
	other := s.waits(2)
	s.leave()
	s = b.listens("Last-Event-ID", other)
	if e := s.next(); e.kind != "beat" {
		t.Errorf("nothing has changed, and it begins with %+v", e)
	}
	c.denies(two)
	if back := s.waits(1); back != tag {
		t.Errorf("the list is as it was, and its tag is %q, not %q", back, tag)
	}
	s.leave()
	c.waits("three")
	c.waits("four")
	s = b.listens("Last-Event-ID", tag)
	s.waits(3)
	got := b.get("/approvals/stream", append(byScript, "Accept", "application/json")...)
	if got.is(t, "the answer to a poll", 200); !strings.HasPrefix(got.Body, `{"n":3,"more":false,"tag":"`) || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %v %s", got.Header, got.Body)
	}
}

// A stream ends with all that it hangs on. A session has one.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*core, *coreBrowser)
		last string
	}{
		"the key is revoked": {end: func(c *core, _ *coreBrowser) { coreMust(c.t, c.keys.Revoke("mia")) }},
		"the person logs out": {end: func(c *core, b *coreBrowser) {
			fields := b.fields("/approvals", "/logout")
			b.send("/logout", "token", fields["token"])
		}},
		"the session is not used": {end: func(c *core, _ *coreBrowser) {
			c.clock.Advance(30 * time.Minute)
			c.waits("a change")
		}},
		"another stream begins": {end: func(c *core, b *coreBrowser) { b.listens().waits(0) }, last: "replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCore(t, coreWith{})
			b, other := c.browser(), c.browser()
			b.logIn("mia")
			other.logIn("eve")
			s, others := b.listens(), other.listens()
			s.waits(0)
			others.waits(0)
			test.end(c, b)
			s.ends(test.last)
			if name == "another stream begins" {
				return
			}
			got := b.get("/approvals/stream", append(byScript, "Accept", "application/json")...)
			got.is(t, "then a poll", http.StatusUnauthorized)
			if got := b.listens(); got.answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("then a stream is %d", got.answer.StatusCode)
			}
		})
	}
}

// While a server stops, its streams end at once.
func TestStreamEndsWithTheServer(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice := p.logIn("alice")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/console/approvals/stream", nil)
	p.must(err)
	for i := 0; i < len(byScript); i += 2 {
		r.Header.Set(byScript[i], byScript[i+1])
	}
	got, err := alice.client.Do(r)
	p.must(err)
	defer func() { _ = got.Body.Close() }()
	s := &coreStream{t: t, lines: bufio.NewReader(got.Body)}
	s.waits(0)
	ended := make(chan error, 1)
	go func() { ended <- p.Stop(context.Background()) }()
	s.ends("")
	p.must(<-ended)
}

// Neither a stream, nor a poll, nor a page that a script loads anew is a use of a session. What a person opens is one.
func TestStreamIsNoUse(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	b.logIn("mia")
	navigates := []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate"}
	s := b.listens()
	s.waits(0)
	c.clock.Advance(20 * time.Minute)
	b.get("/approvals", append(navigates, "Sec-Fetch-User", "?1")...).is(t, "a person's page", 200)
	c.clock.Advance(20 * time.Minute)
	c.waits("one")
	s.waits(1)
	b.get("/approvals/stream", append(byScript, "Accept", "application/json")...).is(t, "a poll", 200)
	b.get("/approvals", navigates...).is(t, "a page that loads itself", 200)
	c.clock.Advance(10 * time.Minute)
	c.waits("two")
	s.ends("")
	b.get("/approvals", navigates...).is(t, "then a page", http.StatusSeeOther)
}

// The stream is for scripts of the console's own pages, and its cookie opens nothing below /v1.
func TestStreamIsForTheConsole(t *testing.T) {
	t.Parallel()
	c := openCore(t, coreWith{})
	b := c.browser()
	b.logIn("mia")
	for name, headers := range map[string][]string{
		"nothing is said":       nil,
		"a page of another":     {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "empty"},
		"another port":          {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Dest", "empty"},
		"a person opens it":     {"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "document"},
		"a typed address":       {"Sec-Fetch-Site", "none", "Sec-Fetch-Dest", "empty"},
		"a picture of ours":     {"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "image"},
		"it is said twice":      {"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty"},
		"no destination at all": {"Sec-Fetch-Site", "same-origin"},
	} {
		b.get("/approvals/stream", append(headers, "Accept", "application/json")...).is(t, name, http.StatusForbidden)
	}
	for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodPut} {
		b.do(method, "/approvals/stream", "", byScript...).is(t, method, http.StatusMethodNotAllowed)
	}
	b.get("/approvals", byScript...).is(t, "a page for a script", http.StatusForbidden)
	c.browser().get("/approvals/stream", append(byScript, "Accept", "application/json")...).is(t, "without a session", http.StatusUnauthorized)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://pdp.invalid/v1/approvals", nil)
	coreMust(t, err)
	r.Header.Set("Cookie", "__Host-session="+b.cookie("__Host-session"))
	got, err := c.api.RoundTrip(r)
	coreMust(t, err)
	if got.StatusCode != http.StatusUnauthorized {
		t.Errorf("by the cookie the API answers %d", got.StatusCode)
	}
}

// An API that has no time is asked again, and a stream goes on meanwhile.
func TestStreamOfAnAPIInTrouble(t *testing.T) {
	t.Parallel()
	trouble := &coreTrouble{}
	c := openCore(t, coreWith{api: func(api http.RoundTripper) http.RoundTripper { trouble.RoundTripper = api; return trouble }})
	b := c.browser()
	b.logIn("mia")
	trouble.answers("/v1/approvals", http.StatusServiceUnavailable)
	s := b.listens()
	if e := s.next(); e.kind != "beat" {
		t.Errorf("got %+v", e)
	}
	b.get("/approvals/stream", append(byScript, "Accept", "application/json")...).is(t, "a poll", http.StatusServiceUnavailable)
	trouble.answers("/v1/approvals", 0)
	s.waits(0)
}
