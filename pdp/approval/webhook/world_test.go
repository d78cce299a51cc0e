package webhook_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/approval/webhook"
)

// TestMain names proxies at which nobody listens. Whatever asks the environment for one gets nowhere in these tests.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		_ = os.Setenv(name, "http://127.0.0.1:1")
	}
	os.Exit(m.Run())
}

const (
	secret = "0123456789abcdef0123456789abcdef"
	path   = "/hooks/secret-path?key=secret-query"
	body   = `{"type":"approval.filed","data":{"note":"secret-body"}}`
	// patience is how long something may take that takes a moment: longer than any machine
	// stands still.
	patience = time.Minute
)

// clock is a time that passes when somebody waits for it, and then at once.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	pauses []time.Duration
	// between is called in each wait.
	between func(n int)
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.now = c.now.Add(d)
	c.pauses = append(c.pauses, d)
	n := len(c.pauses)
	c.mu.Unlock()
	if c.between != nil {
		c.between(n)
	}
	return ctx.Err()
}

// logbook is a log that can be read while it is written.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logFor is the log of a test, which fails where it holds what no log may.
func logFor(t testing.TB) (*logbook, *slog.Logger) {
	l := new(logbook)
	t.Cleanup(func() {
		for _, never := range []string{secret, "secret-path", "secret-query", "secret-body"} {
			if strings.Contains(l.String(), never) {
				t.Errorf("the log holds %q:\n%s", never, l)
			}
		}
	})
	return l, slog.New(slog.NewJSONHandler(l, nil))
}

// world is a sender with all that it touches.
type world struct {
	*webhook.Sender
	*clock
	log *logbook
}

// options are those of the tests: no jitter, and a clock that does not stand still.
func options(t testing.TB) (webhook.Options, *clock, *logbook) {
	c := newClock()
	log, logger := logFor(t)
	return webhook.Options{Logger: logger, Timeout: patience, Now: c.Now, Wait: c.Wait, Jitter: func() float64 { return 0.5 }}, c, log
}

// sends is a sender to one receiver.
func sends(t testing.TB, url string, allow []string, change ...func(*webhook.Options)) world {
	t.Helper()
	o, c, log := options(t)
	for _, f := range change {
		f(&o)
	}
	s, err := webhook.New([]webhook.Config{{URL: url + path, SecretFile: secretFile(t, secret+"\n"), Allow: allow}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return world{s, c, log}
}

func (w world) send(t testing.TB) {
	t.Helper()
	if err := w.Send(t.Context(), "msg_1", "approval.filed", []byte(body)); err != nil {
		t.Error(err)
	}
}

func secretFile(t testing.TB, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "webhook.key")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var loopback = []string{"127.0.0.0/8"}

// delivery is a request as a receiver has it.
type delivery struct {
	*http.Request
	body []byte
}

// inbox is a receiver. It answers with the steps, one after the other, and the last one for ever.
type inbox struct {
	*httptest.Server
	mu  sync.Mutex
	got []delivery
}

func (i *inbox) deliveries() []delivery {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got
}

func receives(t testing.TB, steps ...http.HandlerFunc) *inbox {
	i := new(inbox)
	i.Server = httptest.NewServer(i.handler(steps))
	t.Cleanup(i.Close)
	return i
}

func (i *inbox) handler(steps []http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return // it was told to stop
		}
		i.mu.Lock()
		i.got = append(i.got, delivery{r, content})
		step := steps[min(len(i.got), len(steps))-1]
		i.mu.Unlock()
		step(w, r)
	})
}

func answers(status int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for n := 0; n < len(headers); n += 2 {
			w.Header().Set(headers[n], headers[n+1])
		}
		w.WriteHeader(status)
	}
}

// names is a DNS server on a real socket that knows one name, receiver.test.
type names struct {
	mu        sync.Mutex
	addresses []netip.Addr
}

func (n *names) set(addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = nil
	for _, a := range addresses {
		n.addresses = append(n.addresses, netip.MustParseAddr(a))
	}
}

// newNames starts the server. The resolver asks it and nobody else.
func newNames(t testing.TB, addresses ...string) (*names, *net.Resolver) {
	t.Helper()
	n := new(names)
	n.set(addresses...)
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go n.serve(socket)
	return n, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

func (n *names) serve(socket net.PacketConn) {
	for packet := make([]byte, 1500); ; {
		size, from, err := socket.ReadFrom(packet)
		if err != nil {
			return
		}
		_, _ = socket.WriteTo(n.answer(packet[:size]), from)
	}
}

// answer is the header, the question and the addresses of the kind that is asked for.
func (n *names) answer(query []byte) []byte {
	end, name := 12, ""
	for query[end] != 0 {
		name += string(query[end+1:end+1+int(query[end])]) + "."
		end += 1 + int(query[end])
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	out := bytes.Clone(query[:end+5])
	copy(out[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	if name != "receiver.test." {
		out[3] |= 3 // there is no such name
		return out
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.addresses {
		if a.Is4() != (kind == 1) || !a.Is4() && kind != 28 {
			continue
		}
		out[7]++
		out = append(out, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(a.BitLen()/8))
		out = append(out, a.AsSlice()...)
	}
	return out
}
