package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/approval/webhook"
)

// TestSend sends over TLS, and fails once: the second attempt is the same message, signed anew.
func TestSend(t *testing.T) {
	t.Parallel()
	i := new(inbox)
	i.Server = httptest.NewTLSServer(i.handler([]http.HandlerFunc{answers(503, "Set-Cookie", "a=b"), answers(204)}))
	defer i.Close()
	w := sends(t, i.URL, loopback, func(o *webhook.Options) {
		o.Roots = x509.NewCertPool()
		o.Roots.AddCert(i.Certificate())
	})
	started := w.Now()
	w.send(t)
	got := i.deliveries()
	if len(got) != 2 {
		t.Fatalf("%d requests; log:\n%s", len(got), w.log)
	}
	for n, d := range got {
		h := d.Header
		if d.Method != "POST" || d.RequestURI != path || string(d.body) != body || h.Get("Content-Type") != "application/json" || h.Get("User-Agent") != "policy-service" {
			t.Errorf("%s %s with %q and %v", d.Method, d.RequestURI, d.body, h)
		}
		if h.Get("Webhook-Id") != "msg_1" || h.Get("Cookie") != "" || h.Get("Authorization") != "" {
			t.Errorf("attempt %d has the headers %v", n, h)
		}
		at := started.Add(time.Duration(n) * time.Second)
		if err := webhook.Verify([]byte(secret), h, d.body, at, 0); err != nil {
			t.Errorf("attempt %d: %v", n, err)
		}
	}
	if !strings.Contains(w.log.String(), i.URL+`"`) {
		t.Errorf("the log does not name the receiver:\n%s", w.log)
	}
}

// TestSendSafely meets servers that no message is to be given to.
func TestSendSafely(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		trusted bool
		newest  uint16
		want    string
	}{
		"unknown authority": {false, tls.VersionTLS13, "its certificate cannot be trusted"},
		"TLS 1.1":           {true, tls.VersionTLS11, "the connection broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			i := new(inbox)
			i.Server = httptest.NewUnstartedServer(i.handler([]http.HandlerFunc{answers(200)}))
			i.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: test.newest}
			i.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains about us
			i.StartTLS()
			defer i.Close()
			w := sends(t, i.URL, loopback, func(o *webhook.Options) {
				if o.Roots = x509.NewCertPool(); test.trusted {
					o.Roots.AddCert(i.Certificate())
				}
			})
			w.send(t)
			if got := i.deliveries(); len(got) != 0 || !strings.Contains(w.log.String(), test.want) {
				t.Errorf("%d requests; log:\n%s", len(got), w.log)
			}
		})
	}
}

// TestAnswers is how often each answer is given before the message is taken or given up.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const all = 15
	for _, test := range []struct {
		steps []http.HandlerFunc
		want  int
		log   string
	}{
		{[]http.HandlerFunc{answers(200)}, 1, ""},
		{[]http.HandlerFunc{answers(299)}, 1, ""},
		{[]http.HandlerFunc{answers(500), answers(502), answers(504), answers(200)}, 4, "takes them again"},
		{[]http.HandlerFunc{answers(408), answers(425), answers(429), answers(200)}, 4, "takes them again"},
		{[]http.HandlerFunc{hangUp, answers(200)}, 2, "broke off"},
		{[]http.HandlerFunc{quote, answers(200)}, 2, "broke off"},
		{[]http.HandlerFunc{longHeader, answers(200)}, 2, "broke off"},
		{[]http.HandlerFunc{answers(503)}, all, "neither at once nor later"},
		{[]http.HandlerFunc{answers(400)}, 1, "it answers 400"},
		{[]http.HandlerFunc{answers(401)}, 1, "it answers 401"},
		{[]http.HandlerFunc{answers(404)}, 1, "it answers 404"},
		{[]http.HandlerFunc{answers(304)}, 1, "redirects are not followed"},
		{[]http.HandlerFunc{answers(307, "Location", "%")}, 1, "redirects are not followed"},
	} {
		i := receives(t, test.steps...)
		w := sends(t, i.URL, loopback)
		w.send(t)
		if got := len(i.deliveries()); got != test.want || !strings.Contains(w.log.String(), test.log) {
			t.Errorf("%d requests, not %d with %q in the log:\n%s", got, test.want, test.log, w.log)
		}
	}
}

// raw writes something in the place of an answer, and ends the connection.
func raw(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write([]byte(text))
	_ = conn.Close()
}

func hangUp(w http.ResponseWriter, _ *http.Request) { raw(w, "") }

// quote answers with the request, which the log must not tell.
func quote(w http.ResponseWriter, r *http.Request) { raw(w, r.RequestURI+" "+body+"\r\n\r\n") }

func longHeader(w http.ResponseWriter, _ *http.Request) {
	raw(w, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("a", 64<<10)+"\r\n\r\n")
}

// endless writes a body until the other side has had enough.
func endless(w http.ResponseWriter, _ *http.Request) {
	for part := make([]byte, 64<<10); ; {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	const s = time.Second
	day := newClock().now.Format(http.TimeFormat)
	for name, test := range map[string]struct {
		steps   []http.HandlerFunc
		backoff webhook.Backoff
		want    []time.Duration
	}{
		"usual": {[]http.HandlerFunc{answers(503)}, webhook.Backoff{}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 512 * s,
			600 * s, 600 * s, 600 * s, 600 * s}},
		"few":        {[]http.HandlerFunc{answers(503)}, webhook.Backoff{First: s, Most: 2 * s, Within: time.Hour, Tries: 4}, []time.Duration{s, 2 * s, 2 * s}},
		"short":      {[]http.HandlerFunc{answers(503)}, webhook.Backoff{First: s, Most: time.Hour, Within: 10 * s, Tries: 99}, []time.Duration{s, 2 * s, 4 * s}},
		"asked for":  {[]http.HandlerFunc{answers(503, "Retry-After", "30"), answers(429, "Retry-After", "0"), answers(200)}, webhook.Backoff{}, []time.Duration{30 * s, 2 * s}},
		"a date":     {[]http.HandlerFunc{answers(503, "Retry-After", newClock().now.Add(90*s).Format(http.TimeFormat)), answers(200)}, webhook.Backoff{}, []time.Duration{90 * s}},
		"gone by":    {[]http.HandlerFunc{answers(503), answers(503, "Retry-After", day), answers(200)}, webhook.Backoff{}, []time.Duration{s, 2 * s}},
		"too long":   {[]http.HandlerFunc{answers(503, "Retry-After", "86400"), answers(200)}, webhook.Backoff{}, []time.Duration{600 * s}},
		"nonsense":   {[]http.HandlerFunc{answers(503, "Retry-After", "-5"), answers(503, "Retry-After", "9e9"), answers(200)}, webhook.Backoff{}, []time.Duration{s, 2 * s}},
		"of a final": {[]http.HandlerFunc{answers(400, "Retry-After", "5")}, webhook.Backoff{}, nil},
	} {
		i := receives(t, test.steps...)
		w := sends(t, i.URL, loopback, func(o *webhook.Options) { o.Backoff = test.backoff })
		started := w.Now()
		w.send(t)
		if !slices.Equal(w.pauses, test.want) || w.Now().Sub(started) > time.Hour {
			t.Errorf("%s: it waits %v, not %v", name, w.pauses, test.want)
		}
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	i := receives(t, answers(503), answers(503), answers(200))
	next := 0.0
	w := sends(t, i.URL, loopback, func(o *webhook.Options) { o.Jitter = func() float64 { next += 0.25; return next } })
	w.send(t)
	if want := []time.Duration{750 * time.Millisecond, 2 * time.Second}; !slices.Equal(w.pauses, want) {
		t.Errorf("it waits %v, not %v", w.pauses, want)
	}
}

// TestGone has a receiver that wants nothing, then takes a message, and then wants nothing again.
func TestGone(t *testing.T) {
	t.Parallel()
	i := receives(t, answers(503), answers(410), answers(410), answers(200), answers(410))
	w := sends(t, i.URL, loopback)
	for n, logged := range []int{1, 1, 1, 2} {
		w.send(t)
		if got := len(i.deliveries()); got != n+2 || strings.Count(w.log.String(), "(410)") != logged {
			t.Errorf("%d requests; log:\n%s", got, w.log)
		}
	}
}

// TestRedirect is sent on to another listener, which is as reachable as the first.
func TestRedirect(t *testing.T) {
	t.Parallel()
	inside := receives(t, answers(200))
	for _, status := range []int{301, 302, 303, 307, 308} {
		i := receives(t, answers(status, "Location", inside.URL+"/admin"))
		w := sends(t, i.URL, loopback)
		w.send(t)
		if len(i.deliveries()) != 1 || len(inside.deliveries()) != 0 || !strings.Contains(w.log.String(), "redirects are not followed") {
			t.Errorf("%d is followed; log:\n%s", status, w.log)
		}
	}
}

// TestEndless meets one that takes the message and goes on to say so for ever.
func TestEndless(t *testing.T) {
	t.Parallel()
	i := receives(t, endless)
	w := sends(t, i.URL, loopback, func(o *webhook.Options) { o.Timeout = time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Send(ctx, "msg_1", "e", []byte(body)); err != nil || ctx.Err() != nil || len(i.deliveries()) != 1 || w.log.String() != "" {
		t.Errorf("%v, %v, %d requests; log:\n%s", err, ctx.Err(), len(i.deliveries()), w.log)
	}
}

// TestSlow meets a receiver that takes the message and says nothing, and one that does not come to the end of what it says.
func TestSlow(t *testing.T) {
	t.Parallel()
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	i := receives(t, hangs, answers(200))
	w := sends(t, i.URL, loopback, func(o *webhook.Options) { o.Timeout = 100 * time.Millisecond; o.Backoff = tireless })
	w.send(t)
	if got := len(i.deliveries()); got < 2 || !strings.Contains(w.log.String(), "does not answer in time") {
		t.Errorf("%d requests; log:\n%s", got, w.log)
	}
	halts := receives(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	// Where the machine stands still its answer may begin too late, and another attempt is made; but one whose answer
	// began is the last.
	w = sends(t, halts.URL, loopback, func(o *webhook.Options) { o.Timeout = 250 * time.Millisecond; o.Backoff = tireless })
	w.send(t)
	if got := len(halts.deliveries()); got < 1 || got > len(w.pauses)+1 || strings.Contains(w.log.String(), "neither at once nor later") {
		t.Errorf("%d requests in %d attempts; log:\n%s", got, len(w.pauses)+1, w.log)
	}
}

// tireless never gives up.
var tireless = webhook.Backoff{First: 1, Most: 1, Within: time.Hour, Tries: 1 << 20}

// TestNobodyListens sends to a port that no test is given.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	w := sends(t, "http://127.0.0.1:1", loopback)
	w.send(t)
	if len(w.pauses) != 14 || !strings.Contains(w.log.String(), "it cannot be reached") {
		t.Errorf("waited %v; log:\n%s", w.pauses, w.log)
	}
}
