package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth/keys"
)

// breaker stands before a server and breaks each connection after so many bytes of its
// answers as cut says.
func breaker(t *testing.T, address string, cut func(connection int) int64) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				_ = client.Close()
				continue
			}
			limit := cut(n)
			all.Go(func() {
				_, _ = io.Copy(behind, client)
				_ = behind.Close()
			})
			all.Go(func() {
				_, _ = io.CopyN(client, behind, limit)
				_, _ = client.Close(), behind.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return "http://" + listener.Addr().String()
}

// An export over connections that break at any byte, in the header, the body or what
// ends it, is the export over one that does not.
func TestExportOverBrokenConnections(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for i := range 120 {
		d.decide([]string{"acme", "default"}[i%2], fmt.Sprintf("doc-%d", rand.Uint64()))
		if i%20 == 0 { // a record of several rows
			d.possible(10)
		}
	}
	r := rand.New(rand.NewPCG(8, 9))
	var waits int
	broken := d.reader(breaker(t, d.Addr(), func(n int) int64 { return 300 + r.Int64N(6000) }), d.key, func(o *httpclient.Options) {
		o.Wait = func(context.Context, time.Duration) error { waits++; return nil }
	})
	whole := d.reader(d.URL, d.key)
	for _, o := range []export.Options{{}, {Proofs: true, Filter: record.Filter{Tenant: "acme"}}, {Format: "csv"}} {
		var before, got, after bytes.Buffer
		for { // the log signs for itself now and then, also in silence
			before.Reset()
			got.Reset()
			after.Reset()
			want, err := whole.Export(t.Context(), &before, o)
			must(t, err)
			done, err := exportOnce(t, broken, &got, o)
			must(t, err)
			_, err = whole.Export(t.Context(), &after, o)
			must(t, err)
			if !bytes.Equal(before.Bytes(), after.Bytes()) {
				continue
			}
			if done != want || done.Size == 0 {
				t.Errorf("%+v: it says %+v, want %+v", o, done, want)
			}
			break
		}
		if !bytes.Equal(got.Bytes(), before.Bytes()) {
			t.Errorf("%+v: %d bytes came, want %d", o, got.Len(), before.Len())
		}
	}
	if waits == 0 {
		t.Error("no connection broke")
	}
}

// exportOnce begins again where the very first answer broke off before it said which
// export it is: then nothing has come.
func exportOnce(t *testing.T, l *remote.Log, w *bytes.Buffer, o export.Options) (done export.Result, err error) {
	t.Helper()
	for range 50 {
		if done, err = l.Export(t.Context(), w, o); err == nil || w.Len() > 0 {
			return done, err
		}
	}
	return done, err
}

// An export that cannot go on, because of what was removed meanwhile, says so.
func TestExportThatCannotGoOn(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	id := d.decide("acme", strings.Repeat("x", 100_000))
	for range 20 {
		d.decide("acme", fmt.Sprint(rand.Uint64()))
	}
	whole := d.reader(d.URL, d.key)
	removed := false
	l := d.reader(breaker(t, d.Addr(), func(int) int64 { return 1500 }), d.key, func(o *httpclient.Options) {
		o.Wait = func(ctx context.Context, _ time.Duration) error {
			if !removed {
				removed = true
				return whole.Redact(ctx, id, "r")
			}
			return nil
		}
	})
	if _, err := l.Export(t.Context(), io.Discard, export.Options{}); !errors.Is(err, segment.ErrChanged) || !removed {
		t.Errorf("got %v", err)
	}
}

// A server that stays away is given up, and an interrupted export ends.
func TestExportGivesUp(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for range 50 {
		d.decide("acme", fmt.Sprint(rand.Uint64()))
	}
	waits := 0
	l := d.reader(breaker(t, d.Addr(), func(n int) int64 {
		if n == 0 {
			return 2500
		}
		return 0
	}), d.key, func(o *httpclient.Options) {
		o.Wait = func(context.Context, time.Duration) error { waits++; return nil }
	})
	if _, err := l.Export(t.Context(), io.Discard, export.Options{}); err == nil || errors.Is(err, segment.ErrChanged) || waits != 5 {
		t.Errorf("got %v after %d attempts", err, waits)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.reader(d.URL, d.key).Export(ctx, io.Discard, export.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// cutter stands before a server, asks it for what is not gzipped, and keeps the first
// answer. It cuts the first connection after so many bytes of the answer, below 0 never.
type cutter struct {
	url   string
	first chan []byte // the first answer

	mu     sync.Mutex
	server string
	cut    int64
	reset  bool // the connection ends by RST, not by FIN
}

func cutting(t *testing.T, server string) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cutter{url: "http://" + listener.Addr().String(), first: make(chan []byte, 1), server: server, cut: -1}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(t, client.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return c
}

func (c *cutter) pass(t *testing.T, client *net.TCPConn) {
	c.mu.Lock()
	server, cut, reset := c.server, c.cut, c.reset
	c.cut = -1
	c.mu.Unlock()
	behind, err := net.Dial("tcp", server)
	if err != nil {
		t.Error(err)
		_ = client.Close()
		return
	}
	go func() {
		asked := make([]byte, 16<<10)
		for {
			n, err := client.Read(asked)
			_, _ = behind.Write(bytes.Replace(asked[:n], []byte("Accept-Encoding: gzip"), []byte("Accept-Encoding: none"), 1))
			if err != nil {
				_ = behind.Close()
				return
			}
		}
	}()
	var answer bytes.Buffer
	if from := io.TeeReader(behind, &answer); cut < 0 {
		_, _ = io.Copy(client, from)
	} else {
		_, _ = io.CopyN(client, from, cut)
	}
	if reset {
		_ = client.SetLinger(0)
	}
	select {
	case c.first <- answer.Bytes():
	default: // another was first
	}
	_, _ = client.Close(), behind.Close()
}

// next has the next connection cut, and the ones after it not.
func (c *cutter) next(cut int64, reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut, c.reset = cut, reset
}

// places are offsets in an HTTP answer: before, in and after each of its lines.
func places(answer []byte) (all []int64) {
	at := int64(0)
	for line := range bytes.Lines(answer) {
		n := int64(len(line))
		all = append(all, at+1, at+n/2, at+n-1, at+n)
		at += n
	}
	return all
}

// A connection that is cut at any kind of place, in the header, a chunk's size, a record,
// its proof, a line of hashes, a row over two lines, the last line, or the trailer, and in
// either way that TCP knows, costs the export nothing.
func TestExportCutAtEachPlace(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for i := range 6 {
		d.decide([]string{"acme", "default"}[i%2], fmt.Sprintf(`doc, \"of\"\n%d`, i))
	}
	noWait := func(o *httpclient.Options) { o.Wait = func(context.Context, time.Duration) error { return nil } }
	for _, o := range []export.Options{{}, {Proofs: true, Filter: record.Filter{Tenant: "acme"}}, {Format: "csv"}} {
		c := cutting(t, d.Addr())
		var want bytes.Buffer
		whole := d.reader(c.url, d.key)
		done, err := whole.Export(t.Context(), &want, o)
		must(t, err)
		whole.Close()
		if report := verify.Export(bytes.NewReader(want.Bytes()), verify.Options{}); o.Format != "csv" && !report.Verified() {
			t.Errorf("%+v: it does not verify: %+v", o, report)
		}
		answer := <-c.first
		all := places(answer)
		header := bytes.Index(answer, []byte("\r\n\r\n")) + 4 // of how many bytes
		for n, at := range all {
			c.next(at, n%2 == 0)
			l := d.reader(c.url, d.key, noWait)
			var got bytes.Buffer
			again, err := l.Export(t.Context(), &got, o)
			l.Close()
			if again.Digest != done.Digest { // the log signs for itself now and then, also in silence
				want.Reset()
				done, _ = d.reader(d.URL, d.key).Export(t.Context(), &want, o)
			}
			if err != nil && got.Len() == 0 && at < int64(header) {
				continue // it broke before it said which export it is
			}
			if err != nil || again != done || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Fatalf("%+v cut after %d bytes of %d: got %+v, want %+v, %v\n%s", o, at, len(all), again, done, err, &got)
			}
		}
	}
}

// The key is rotated and the log grows while an export is broken: it goes on, and verifies.
func TestExportGoesOnAfterANewKey(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for i := range 20 {
		d.decide("acme", fmt.Sprint(i))
	}
	rotated, whole := 0, d.reader(d.URL, d.key)
	c := cutting(t, d.Addr())
	c.next(6000, false)
	l := d.reader(c.url, d.key, func(o *httpclient.Options) {
		o.Wait = func(ctx context.Context, _ time.Duration) error {
			rotated++
			_, err := whole.RotateKey(ctx, false)
			return err
		}
	})
	old, err := whole.Keys(t.Context())
	must(t, err)
	var got bytes.Buffer
	_, err = l.Export(t.Context(), &got, export.Options{})
	must(t, err)
	if report := verify.Export(&got, verify.Options{Key: strings.Join(old, "\n")}); !report.Verified() || rotated != 1 {
		t.Errorf("rotated %d times: got %+v", rotated, report)
	}
}

// Another log in the server's place does not go on with an export, whether it has a
// checkpoint of that name or not: each desk has the same clock.
func TestExportOfAnotherLog(t *testing.T) {
	t.Parallel()
	var data string
	d := openDesk(t, func(c *server.Config) { data = c.Data })
	open := func() *desk {
		other := openDesk(t, func(c *server.Config) {
			for _, name := range []string{keys.File, keys.MarksFile, keys.RenewKey.File} {
				content, err := os.ReadFile(filepath.Join(data, name))
				must(t, errors.Join(err, os.WriteFile(filepath.Join(c.Data, name), content, 0o600)))
			}
		})
		other.ask = d.ask
		return other
	}
	same, longer := open(), open()
	for i := range 20 {
		d.decide("acme", fmt.Sprint(i))
		same.decide("acme", fmt.Sprint(-i))
		longer.decide("acme", fmt.Sprint(i))
	}
	longer.decide("acme", "more")
	for _, other := range []*desk{same, longer} {
		for _, o := range []export.Options{{}, {Format: "csv"}} {
			c := cutting(t, d.Addr())
			c.next(6000, false)
			if o.Format == "csv" {
				c.next(2000, false)
			}
			l := d.reader(c.url, d.key, func(o *httpclient.Options) {
				o.Wait = func(context.Context, time.Duration) error {
					c.mu.Lock()
					defer c.mu.Unlock()
					c.server = other.Addr()
					return nil
				}
			})
			if _, err := l.Export(t.Context(), io.Discard, o); !errors.Is(err, remote.ErrOtherExport) {
				t.Errorf("%+v: got %v", o, err)
			}
		}
	}
}

// A server that does not go on as it was asked to makes no export, and one that never
// ends a line takes no more memory than a record may have.
func TestExportOfAHostileServer(t *testing.T) {
	t.Parallel()
	const begin, first, second = `{"export":"begin"}` + "\n", `{"sequence":0}` + "\n", `{"sequence":1}` + "\n"
	broken := func(w http.ResponseWriter, lines string) {
		w.Header().Set("X-Export-Checkpoint", "2-1")
		_, _ = io.WriteString(w, lines)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	rest := func(answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("after") == "" {
				broken(w, begin+first)
			}
			answer(w, r)
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"it begins anew": {rest(func(w http.ResponseWriter, _ *http.Request) { broken(w, begin+first+second) }), remote.ErrOtherExport.Error()},
		"it is of another checkpoint": {rest(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Export-Checkpoint", "2-2")
			_, _ = io.WriteString(w, second)
		}), remote.ErrOtherExport.Error()},
		"its digest is another": {rest(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Export-Checkpoint", "2-1")
			_, _ = io.WriteString(w, second+`{"export":"end","digest":"00"}`+"\n")
		}), remote.ErrOtherExport.Error()},
		"it ends without its last line": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Export-Checkpoint", "2-1")
			_, _ = io.WriteString(w, begin)
		}, "broke off"},
		"it does not go on at all": {func(w http.ResponseWriter, _ *http.Request) { broken(w, begin) }, "broke off"},
		"it cannot name its export": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, begin+first)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "broke off"},
		"it is no JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>\n") }, "no export"},
		"a line has no end": {func(w http.ResponseWriter, _ *http.Request) {
			for piece := bytes.Repeat([]byte("x"), 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}, "longer than any record"},
	} {
		s := httptest.NewServer(test.answer)
		l, err := remote.New(s.URL, httpclient.Options{Wait: func(context.Context, time.Duration) error { return nil }})
		must(t, err)
		if _, err := l.Export(t.Context(), io.Discard, export.Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
		l.Close()
		s.Close()
	}
}

// A disk that is full ends an export: no other connection mends that.
func TestExportIntoAFullDisk(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.decide("acme", strings.Repeat("x", 100_000))
	full := errors.New("no space left on device")
	l := d.reader(d.URL, d.key, func(o *httpclient.Options) {
		o.Wait = func(context.Context, time.Duration) error { t.Error("it is tried again"); return nil }
	})
	if _, err := l.Export(t.Context(), fullDisk{full}, export.Options{}); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type fullDisk struct{ error }

func (f fullDisk) Write([]byte) (int, error) { return 0, f.error }

// A proxy that drops trailers takes the digest of a CSV away, and then nothing else shows
// that its pieces are of one export. Over one connection there are no pieces.
func TestPiecesOfCSVNeedTheSummary(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]bool{"one piece": false, "two pieces": true} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				w.Header().Set("X-Export-Checkpoint", "2-1")
				switch {
				case breaks && asked == 1:
					_, _ = io.WriteString(w, "sequence,id\n1,a\n2")
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				default:
					_, _ = io.WriteString(w, "sequence,id\n1,a\n2,b\n")
				}
			}))
			t.Cleanup(s.Close)
			l, err := remote.New(s.URL, httpclient.Options{Wait: func(context.Context, time.Duration) error { return nil }})
			must(t, err)
			t.Cleanup(l.Close)
			_, err = l.Export(t.Context(), io.Discard, export.Options{Format: "csv"})
			if errors.Is(err, remote.ErrOtherExport) != breaks || err != nil && !breaks {
				t.Errorf("got %v", err)
			}
			if breaks != (asked > 1) {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}
