package upstream_test

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/written"
)

// stub is a server that does its handshakes as it should, and everything else as a test wants it. It keeps all requests.
type stub struct {
	*httptest.Server
	era    era.Era
	answer func(w http.ResponseWriter, r *http.Request, id string)
	// session and version are those of its handshake in the legacy era.
	session, version string
	// strict has it refuse a handshake of a client with icons that are none.
	strict bool

	mu  sync.Mutex
	got []received
}

type received struct {
	http   string
	header http.Header
	body   string
}

func newStub(t testing.TB, e era.Era, answer func(w http.ResponseWriter, r *http.Request, id string), change ...func(*stub)) *stub {
	s := &stub{era: e, answer: answer, session: "session-1", version: "2025-06-18"}
	for _, c := range change {
		c(s)
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	http.SetCookie(w, &http.Cookie{Name: "who", Value: "alice"}) // which no request carries: see TestHeaders
	s.mu.Lock()
	s.got = append(s.got, received{r.Method, r.Header.Clone(), string(body)})
	s.mu.Unlock()
	m, fault := rpc.Parse(body)
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && fault != nil:
		http.Error(w, "this is no message", http.StatusBadRequest)
	case s.strict && strings.Contains(string(body), `"icons":5`):
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"icons are a list"}}`, m.ID.Text())
	case m.Method == "server/discover" && s.era == era.Modern:
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`, m.ID.Text())
	case m.Method == "initialize" && s.era == era.Legacy:
		w.Header().Set("Mcp-Session-Id", s.session)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{},"serverInfo":{}}}`, m.ID.Text(), s.version)
	case m.Method == "server/discover" || m.Method == "initialize":
		http.Error(w, "what is that?", http.StatusBadRequest)
	case m.IsNotification() || r.Method == http.MethodPost && m.IsResponse():
		w.WriteHeader(http.StatusAccepted)
	default:
		s.answer(w, r, string(m.ID.Text()))
	}
}

// received are the requests since the last call of it.
func (s *stub) received() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// drops counts messages that went no further.
type drops struct {
	mu    sync.Mutex
	count map[string]int
}

func (d *drops) add(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[string]int{}
	}
	d.count[reason]++
}

// says answers with a status, a media type, and a body in which ID is the request's.
func says(status int, kind, body string) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, id string) {
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "ID", id))
	}
}

func event(s string) string { return "data: " + s + "\n\n" }

const (
	good     = `{"jsonrpc":"2.0","id":ID,"result":{"ok":1}}`
	bad      = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no"}}`
	foreign  = `{"jsonrpc":"2.0","id":9876,"result":{"foreign":1}}`
	nobodys  = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`
	note     = `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`
	question = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`

	ambiguous = "not sent false, gone false, answer null: what came is not the response to the request: the server answered ambiguously"
	brokeOff  = "not sent false, gone false, answer null: the upstream's answer broke off: "
	jsonKind  = "application/json"
	eventKind = "text/event-stream"
)

// Answers of a server, and their outcomes: the result or error, or the text of ours, and the messages that were dropped.
var answers = []struct {
	name   string
	status int
	kind   string
	body   string
	want   string
	drops  map[string]int
}{
	{"two responses", 200, eventKind, event(good) + event(bad), `{"ok":1}`, map[string]int{upstream.DropLate: 1}},
	{"messages after the response", 200, eventKind, event(good) + event(note) + event(question), `{"ok":1}`, map[string]int{upstream.DropLate: 2}},
	{"another id", 200, jsonKind, foreign, ambiguous, map[string]int{upstream.DropForeign: 1}},
	{"another id before ours", 200, eventKind, event(foreign) + event(good), `{"ok":1}`, map[string]int{upstream.DropForeign: 1}},
	{"another id alone", 200, eventKind, event(foreign), brokeOff + "EOF", map[string]int{upstream.DropForeign: 1}},
	{"the id as a string", 200, jsonKind, `{"jsonrpc":"2.0","id":"ID","result":{}}`, ambiguous, map[string]int{upstream.DropForeign: 1}},
	{"the id as another number of the same value", 200, jsonKind, `{"jsonrpc":"2.0","id":ID.0,"result":{}}`, ambiguous, map[string]int{upstream.DropUnreadable: 1}},
	{"result and error", 200, jsonKind, `{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"no"}}`, ambiguous, nil},
	{"result and error in an event", 200, eventKind, event(`{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"no"}}`) + event(good), ambiguous, nil},
	{"a result twice", 200, jsonKind, `{"jsonrpc":"2.0","id":ID,"result":{"ok":1},"result":{"ok":2}}`, ambiguous, map[string]int{upstream.DropUnreadable: 1}},
	{"a batch", 200, jsonKind, "[" + good + "]", ambiguous, map[string]int{upstream.DropUnreadable: 1}},
	{"a request in place of a response", 200, jsonKind, question, ambiguous, map[string]int{upstream.DropRequest: 1}},
	{"nothing", 200, jsonKind, ``, ambiguous, map[string]int{upstream.DropUnreadable: 1}},
	{"accepted", 202, "", ``, ambiguous, map[string]int{upstream.DropUnreadable: 1}},
	{"a page", 200, "text/html", `<html>`, ambiguous, map[string]int{upstream.DropUnreadable: 1}},

	{"JSON in UTF-8", 200, `application/json; charset="utf-8"`, good, `{"ok":1}`, nil},
	{"status 201", 201, jsonKind, good, `{"ok":1}`, nil},
	{"text/plain", 200, "text/plain", good, `{"ok":1}`, nil},
	{"a media type that is none", 200, ";;", good, `{"ok":1}`, nil},
	{"Text/Event-Stream", 200, "Text/Event-Stream;charset=utf-8", event(good), `{"ok":1}`, nil},
	{"events called JSON", 200, jsonKind, event(good), ambiguous, map[string]int{upstream.DropUnreadable: 1}},
	{"JSON called events", 200, eventKind, good + "\n\n", brokeOff + "EOF", nil},
	{"an event with another name", 200, eventKind, "event: ping\n" + event(good), `{"ok":1}`, nil},
	{"in two events", 200, eventKind, event(good[:20]) + event(good[20:]), brokeOff + "EOF", map[string]int{upstream.DropUnreadable: 2}},
	{"on two lines of an event", 200, eventKind, "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":ID,\"result\":{\"ok\":1}}\n\n", `{"ok":1}`, nil},
	{"an event that does not end", 200, eventKind, "data: " + good + "\n", brokeOff + "EOF", nil},
	{"an event that begins an answer without one", 200, eventKind, "id: 1\nretry: 5\ndata:\n\n" + event(good), `{"ok":1}`, nil},
	{"line ends in a string", 200, eventKind, event(`{"jsonrpc":"2.0","id":ID,"result":{"x":"\n\ndata: \r` + "\u2028" + `"}}`), `{"x":"\n\ndata: \r` + "\u2028" + `"}`, nil},
	{"a request of the server", 200, eventKind, event(question) + event(good), `{"ok":1}`, map[string]int{upstream.DropRequest: 1}},

	{"500 with an error", 500, jsonKind, bad, `{"code":-32000,"message":"no"}`, nil},
	{"500 with an error in an event", 500, eventKind, event(bad), `{"code":-32000,"message":"no"}`, nil},
	{"500 with a result", 500, jsonKind, good, "not sent false, gone false, answer null: the upstream answers with status 500", nil},
	{"500", 500, "text/plain", "oh", "not sent false, gone false, answer null: the upstream answers with status 500", nil},
	{"400 with an error without id", 400, jsonKind, nobodys, `{"code":-32600,"message":"no"}`, nil},
	{"200 with an error without id", 200, jsonKind, nobodys, `{"code":-32600,"message":"no"}`, nil},
	{"200 with a result without id", 200, jsonKind, `{"jsonrpc":"2.0","id":null,"result":{}}`, ambiguous, map[string]int{upstream.DropUnreadable: 1}},
	{"404 with an error", 404, jsonKind, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no"}}`, `{"code":-32601,"message":"no"}`, nil},
	{"401 with an error without id", 401, jsonKind, nobodys, "not sent false, gone false, answer null: the upstream answers with status 401", nil},
	{"another id beside a status", 400, jsonKind, `{"jsonrpc":"2.0","id":77,"error":{"code":-32600,"message":"no"}}`, "not sent false, gone true, answer null: the upstream answers with status 400", nil},
	{"404", 404, "text/plain", "404 page not found", "not sent false, gone true, answer null: the upstream answers with status 404", nil},
	{"a redirect with an error", 307, jsonKind, bad, "not sent false, gone false, answer null: the upstream answers with a redirect, which is not followed; configure the url that it leads to", nil},
	{"other versions", 400, jsonKind, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no"}}`, `not sent true, gone true, answer {"code":-32022,"message":"no"}: the upstream answers with status 400`, nil},
}

func TestAnswers(t *testing.T) {
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			var dropped drops
			u := reach(t, newStub(t, era.Modern, says(a.status, a.kind, a.body)).URL, func(o *upstream.HTTPOptions) { o.Dropped = dropped.add })
			s := open(t, u)
			_, m, err := send(s, call(s, "x", `{}`))
			got := string(m.Result) + string(m.Error)
			if err != nil {
				got = describe(err)
			}
			if got != a.want || !m.ID.IsZero() {
				t.Errorf("got  %s\nwant %s", got, a.want)
			}
			_ = u.Close() // which waits for what is read after a response
			if !maps.Equal(dropped.count, a.drops) {
				t.Errorf("dropped were %v, should be %v", dropped.count, a.drops)
			}
		})
	}
}

// endless writes for as long as it is read.
func endless(kind, begin, again string) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", kind)
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = io.WriteString(w, again)
		}
	}
}

// drip writes a byte whenever the client has read the last one, and never ends.
func drip(kind, piece string) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Content-Type", kind)
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for {
			if _, err := io.WriteString(w, piece); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-again.C:
			case <-r.Context().Done():
				return
			}
		}
	}
}

func silent(w http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }

func packed(w http.ResponseWriter, _ *http.Request, id string) {
	w.Header().Set("Content-Type", jsonKind)
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, strings.ReplaceAll(good, "ID", id))
	_ = z.Close()
}

// A server that does not end costs no more than the limits have it.
func TestEndless(t *testing.T) {
	const tooLarge, slow, tooMuch = "bytes or more, and upstreams.x.max_result is 100000", "nothing came in time", "the server sends faster than is taken"
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, string)
		want   string
	}{
		{"a message of JSON", endless(jsonKind, `{"jsonrpc":"2.0","id":1,"result":"`, strings.Repeat("x", 1000)), tooLarge},
		{"a line", endless(eventKind, "data: ", strings.Repeat("x", 1000)), tooLarge},
		{"an event of many lines", endless(eventKind, "", "data: "+strings.Repeat("x", 1000)+"\n"), tooLarge},
		{"comments", endless(eventKind, "", ": still here\n\n"), tooMuch},
		{"events without data", endless(eventKind, "", "event: x\n\n"), tooMuch},
		{"notifications", endless(eventKind, "", event(note)), tooMuch},
		{"answers to others", endless(eventKind, "", event(foreign)), tooMuch},
		{"silence", silent, slow},
		{"JSON a byte at a time", drip(jsonKind, " "), slow},
		{"an event a byte at a time", drip(eventKind, ":"), slow},
		{"comments now and then", drip(eventKind, ": still here\n\n"), slow},
		{"gzip", packed, "the server answered ambiguously"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := reach(t, newStub(t, era.Modern, c.answer).URL, func(o *upstream.HTTPOptions) { o.MaxResult, o.Key = 100_000, "upstreams.x" })
			s := open(t, u)
			if c.want == slow {
				upstream.SetTimeout(u, 2*time.Second)
			}
			if _, _, err := send(s, call(s, "x", `{}`)); err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// A listener waits for as long as a server is quiet; a caller does not.
func TestQuiet(t *testing.T) {
	t.Parallel()
	u := reach(t, newStub(t, era.Modern, func(w http.ResponseWriter, r *http.Request, id string) {
		select {
		case <-time.After(2500 * time.Millisecond):
			says(200, eventKind, event(good))(w, r, id)
		case <-r.Context().Done():
		}
	}).URL)
	s := open(t, u)
	upstream.SetTimeout(u, 2*time.Second)
	if _, m, err := send(s, upstream.Request{Method: "subscriptions/listen", Params: withMeta(s, rpc.Object{})}); err != nil || m.Result == nil {
		t.Errorf("a subscription: %v", err)
	}
	if _, _, err := send(s, call(s, "x", `{}`)); err == nil || !strings.HasSuffix(err.Error(), "nothing came in time") {
		t.Errorf("a call: %v", err)
	}
}

// A long call may have many small messages; TestEndless has too many.
func TestManyMessages(t *testing.T) {
	s := open(t, reach(t, newStub(t, era.Modern, says(200, eventKind, strings.Repeat(event(note), 500)+event(good))).URL))
	if before, _, err := send(s, call(s, "x", `{}`)); err != nil || len(before) != 500 {
		t.Errorf("%d came, error %v", len(before), err)
	}
}

// A server that goes on after its response does not keep a gateway from closing.
func TestEndlessAfterResponse(t *testing.T) {
	for _, again := range []string{event(note), ": still here\n\n"} {
		u := reach(t, newStub(t, era.Modern, func(w http.ResponseWriter, r *http.Request, id string) {
			endless(eventKind, strings.ReplaceAll(event(good), "ID", id), again)(w, r, id)
		}).URL)
		s := open(t, u)
		if _, m, err := send(s, call(s, "x", `{}`)); err != nil || m.Result == nil {
			t.Errorf("the response: %v", err)
		}
		_ = u.Close()
	}
}

// reveals reports whether a text has a part of a secret.
func reveals(text, secret string) bool {
	for at := 0; at+12 <= len(secret); at++ {
		if strings.Contains(text, secret[at:at+12]) {
			return true
		}
	}
	return false
}

// TestAProgramLeaksNoSecretOfItsEnvironment in a result, an error, a notification, a request of its own or on its standard
// error. Another variable stays as it is.
func TestAProgramLeaksNoSecretOfItsEnvironment(t *testing.T) {
	t.Parallel()
	token, key := "tok/0123456789+abcdef", "-----BEGIN KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\nAwEHBG0wawIBAQQgevZzL1gdAFr88hb2\n"
	var log written.Text
	var masked atomic.Int64
	u := newChild(t, "raw", func(o *upstream.CommandOptions) {
		o.Eras = []era.Era{era.Legacy}
		o.Env = map[string]string{"GORACE": quick["GORACE"], "API_TOKEN": token, "PRIVATE_KEY": key, "PATH": "/a/path/of/more/than/sixteen/bytes"}
		o.Secrets = []string{token, key}
		o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		o.Masked = func(places int) { masked.Add(int64(places)) }
	})
	s := open(t, u)
	st, err := s.Send(context.Background(), request("leak", `"progressToken":"p"`))
	mcptest.Must(t, err)
	defer st.Close()
	var all []string
	for done := false; !done; {
		m, err := st.Next()
		mcptest.Must(t, err)
		all = append(all, string(m.Append(nil)))
		if m.IsRequest() {
			mcptest.Must(t, s.Notify(context.Background(), rpc.Message{ID: m.ID, Result: []byte("{}")}))
		}
		done = m.IsResponse()
	}
	for n, want := range []string{`"message":"[masked]"`, `"message":"aXQgaXMg[masked]`, `{\"API_TOKEN\":\"[masked]\",\"PRIVATE_KEY\":\"[masked]\"}`} {
		if n >= len(all) || !strings.Contains(all[n], want) {
			t.Fatalf("%q", all)
		}
	}
	_, m, err := send(s, request("fail", ""))
	if err != nil || string(m.Error) != `{"code":-32603,"message":"no [masked]","data":[ 1.0, "\u00e9" ]}` {
		t.Errorf("%s %v", m.Error, err)
	}
	if n := masked.Load(); n < 5 {
		t.Errorf("%d were counted", n)
	}
	if got, err := textOf(s, "environ"); err != nil || !strings.Contains(got, "/a/path/of/more/than/sixteen/bytes") || reveals(got, token) {
		t.Errorf("%q %v", got, err)
	}
	if err := u.Close(); err != nil { // all that it wrote is in the log
		t.Fatal(err)
	}
	if said := log.String(); !strings.Contains(said, "the token is [masked]") || !strings.Contains(said, "the key is ") || reveals(said, token) || reveals(said, "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49") {
		t.Error(said)
	}
}

// TestAServerLeaksNoCredentialOfTheGateway: not the one that it was shown with the request, and not the one before.
func TestAServerLeaksNoCredentialOfTheGateway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "header")
	write := func(value string) {
		t.Helper()
		mcptest.Must(t, os.WriteFile(file, []byte(value+"\n"), 0o600))
	}
	basic := base64.StdEncoding.EncodeToString([]byte("gateway:correct-horse-battery"))
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		var before string
		server := newStub(t, e, func(w http.ResponseWriter, r *http.Request, id string) {
			shown := r.Header.Get("Authorization")
			_, password, _ := r.BasicAuth()
			kept := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not %s, %s","data":{"before":"%s", "kept":1.0}}}`, id, shown, password, before)
			before = shown
			if r.Header.Get("X-Stream") != "" || e == era.Modern {
				w.Header().Set("Content-Type", "text/event-stream")
				for _, piece := range []string{event(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + shown + `"}}`), "data: " + kept[:len(kept)/2], kept[len(kept)/2:] + "\n\n"} {
					_, _ = w.Write([]byte(piece))
					_ = http.NewResponseController(w).Flush()
				}
				return
			}
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(kept))
		})
		write("Bearer first/token+0123456789")
		c := &upstream.HeaderFile{Path: file}
		var masked atomic.Int64
		s := open(t, reach(t, server.URL, func(o *upstream.HTTPOptions) {
			o.Credentials, o.Eras, o.Timeout = c, []era.Era{e}, 20*time.Second
			o.Masked = func(places int) { masked.Add(int64(places)) }
		}))
		for _, value := range []string{"Bearer first/token+0123456789", "Bearer second-token-0123456789", "Basic " + basic} {
			write(value)
			notes, m, err := send(s, call(s, "x", "{}"))
			mcptest.Must(t, err)
			said := string(m.Append(nil))
			for _, note := range notes {
				said += string(note.Append(nil))
			}
			if !strings.Contains(said, "[masked]") || !strings.Contains(said, `, "kept":1.0}`) {
				t.Error(said)
			}
			for _, secret := range []string{"first/token+0123456789", "second-token-0123456789", basic, "correct-horse-battery"} {
				if reveals(said, secret) {
					t.Errorf("%s %s is left in %s", e, secret, said)
				}
			}
		}
		if masked.Load() < 6 {
			t.Errorf("%d were counted", masked.Load())
		}
	}
}
