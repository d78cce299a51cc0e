package authzenclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/evaluation/authzenclient"
)

// script is a transport that does one step per request, and the last one for ever.
type script struct {
	steps []func(*http.Request) (*http.Response, error)
	asked atomic.Int64
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	n := int(s.asked.Add(1)) - 1
	return s.steps[min(n, len(s.steps)-1)](r)
}

func answer(status int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

func fails(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

var (
	yes     = answer(200, `{"decision":true,"allow":true}`)
	refused = fails(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	reset   = fails(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})
	hungUp  = fails(io.EOF)
	busy    = answer(503, `{"detail":"no bundle"}`, "Retry-After", "1")
	limited = answer(429, ``, "Retry-After", "1")
)

// hangs is a PDP that never answers.
func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func scripted(t testing.TB, steps []func(*http.Request) (*http.Response, error), options ...authzenclient.Option) (*authzenclient.Client, *script) {
	s := &script{steps: steps}
	c, err := authzenclient.New("https://pdp", append([]authzenclient.Option{
		authzenclient.WithHTTPClient(&http.Client{Transport: s}), authzenclient.WithTenant("default"),
		authzenclient.Jitter(func() float64 { return 0.5 }),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestRetries(t *testing.T) {
	t.Parallel()
	type steps = []func(*http.Request) (*http.Response, error)
	for name, test := range map[string]struct {
		steps  steps
		asked  int // requests until the answer
		permit bool
	}{
		"refused":             {steps{refused, yes}, 2, true},
		"reset":               {steps{reset, yes}, 2, true},
		"hung up":             {steps{hungUp, yes}, 2, true},
		"busy":                {steps{busy, yes}, 2, true},
		"limited":             {steps{limited, yes}, 2, true},
		"busy, by date":       {steps{answer(503, ``, "Retry-After", "Sat, 01 Jan 2000 00:00:01 GMT"), yes}, 2, true},
		"busy, odd date":      {steps{answer(503, ``, "Retry-After", "soon"), yes}, 1, false},
		"busy, negative":      {steps{answer(503, ``, "Retry-After", "-1"), yes}, 1, false},
		"busy, too long":      {steps{answer(503, ``, "Retry-After", "3600"), yes}, 1, false},
		"busy without saying": {steps{answer(503, ``), yes}, 1, false},
		"failed":              {steps{answer(500, ``, "Retry-After", "1"), yes}, 1, false},
		"refuses":             {steps{answer(400, ``, "Retry-After", "1"), yes}, 1, false},
		"odd":                 {steps{answer(200, `{`), yes}, 1, false},
		"deny":                {steps{answer(200, `{"decision":false,"allow":false}`), yes}, 1, false},
		"cut head":            {steps{fails(io.ErrUnexpectedEOF), yes}, 1, false},
		"unknown failure":     {steps{fails(errors.New("x")), yes}, 1, false},
		"hangs":               {steps{hangs, yes}, 1, false},
		"always refused":      {steps{refused}, 3, false},
		"twice":               {steps{refused, busy, yes}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, test.steps)
				if d := c.Evaluate(t.Context(), question); d.Permitted() != test.permit || s.asked.Load() != int64(test.asked) {
					t.Errorf("%v after %d requests", d, s.asked.Load())
				}
			})
		})
	}
}

func TestRetriesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c, _ := scripted(t, []func(*http.Request) (*http.Response, error){refused, refused, busy, yes}, authzenclient.WithRetries(3))
		if d := c.Evaluate(t.Context(), question); !d.Permitted() {
			t.Error(d)
		}
		if got, want := time.Since(start), 50*time.Millisecond+100*time.Millisecond+time.Second; got != want {
			t.Errorf("waited %v, want %v", got, want)
		}
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c, s := scripted(t, []func(*http.Request) (*http.Response, error){hangs}, authzenclient.WithTimeout(2*time.Second), authzenclient.WithBreaker(0, 0))
		e := wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.TimedOut)
		if !errors.Is(e, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v", e, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantDeny(t, c.Evaluate(ctx, question), authzenclient.TimedOut)
		if time.Since(start) != 3*time.Second {
			t.Errorf("the context's deadline is not the nearer one: %v", time.Since(start))
		}
		gone, give := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, give)
		if e := wantDeny(t, c.Evaluate(gone, question), authzenclient.Cancelled); !errors.Is(e, context.Canceled) {
			t.Error(e)
		}
		wantDeny(t, c.Evaluate(gone, question), authzenclient.Cancelled)
		slow := func(r *http.Request) (*http.Response, error) { // the head comes, the body never does
			body, w := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
			a, err := yes(r)
			a.Body = body
			return a, err
		}
		s.steps = []func(*http.Request) (*http.Response, error){slow}
		wantDeny(t, c.Evaluate(t.Context(), question), authzenclient.TimedOut)
	})
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	const closed = "http://127.0.0.1:1" // no test is given that port
	if e := wantDeny(t, newClient(t, closed).Evaluate(t.Context(), question), authzenclient.Unreachable); !errors.Is(e, syscall.ECONNREFUSED) {
		t.Errorf("%v", e)
	}
	raw := map[string]string{
		"not HTTP":      "SSH-2.0-x\r\n",
		"nothing":       "",
		"cut head":      "HTTP/1.1 200 OK\r\nContent-Ty",
		"cut body":      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"decision\":true,\"allow\":true}",
		"cut chunk":     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1e\r\n{\"decision\":true,\"allow\":true}\r\n",
		"two lengths":   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 30\r\nContent-Length: 3\r\n\r\n{\"decision\":true,\"allow\":true}",
		"switched":      "HTTP/1.1 101 Switching Protocols\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n{\"decision\":true,\"allow\":true}",
		"no status":     "HTTP/1.1\r\nContent-Type: application/json\r\n\r\n{\"decision\":true,\"allow\":true}",
		"only a body":   "{\"decision\":true,\"allow\":true}",
		"early hints":   "HTTP/1.1 103 Early Hints\r\nContent-Type: application/json\r\n\r\n{\"decision\":true,\"allow\":true}",
		"folded status": "HTTP/1.1 2 00\r\nContent-Type: application/json\r\n\r\n{\"decision\":true,\"allow\":true}",
	}
	for name, text := range raw {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, wire(t, text))
			if d := c.Evaluate(t.Context(), question); d.Permitted() || d.Err() == nil {
				t.Errorf("%v", d)
			}
		})
	}
}

// wire is a server that reads a request's first bytes, writes text, and hangs up.
func wire(t *testing.T, text string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}()
	return "http://" + l.Addr().String()
}
