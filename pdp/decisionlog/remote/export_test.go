package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/export"
	"policy-service/pdp/decisionlog/remote"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/httpclient"
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

// An export over a connection that breaks at any byte, in the header, the body or the trailer, never passes for a whole
// one.
func TestExportOverABrokenConnection(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for i := range 6 {
		d.decide([]string{"acme", "default"}[i%2], fmt.Sprintf(`doc, \"of\"\n%d`, i))
	}
	for _, o := range []export.Options{{}, {Proofs: true, Filter: decisionlog.Filter{Tenant: "acme"}}, {Format: "csv"}} {
		var whole bytes.Buffer
		want, err := d.reader(d.URL, d.key).Export(t.Context(), &whole, o)
		must(t, err)
		broke := 0
		for cut := int64(40); ; cut += 61 {
			var got bytes.Buffer
			l := d.reader(breaker(t, d.Addr(), func(int) int64 { return cut }), d.key)
			done, err := l.Export(t.Context(), &got, o)
			l.Close()
			if err != nil {
				if broke++; got.Len() > 0 && !errors.Is(err, remote.ErrNotWhole) {
					t.Errorf("%+v cut after %d bytes: got %v", o, cut, err)
				}
				continue
			}
			report := verify.Export(bytes.NewReader(got.Bytes()), verify.Options{})
			if got.Len() != whole.Len() || done.Records != want.Records || o.Format != "csv" && !report.Verified() {
				t.Errorf("%+v cut after %d bytes: got %+v, want %+v, %v", o, cut, done, want, report.Problem)
			}
			break
		}
		if broke < 10 {
			t.Errorf("%+v: %d connections broke", o, broke)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.reader(d.URL, d.key).Export(ctx, io.Discard, export.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// An export that does not end as it must is not taken for whole. A proxy may drop the trailer of a table.
func TestExportOfAHostileServer(t *testing.T) {
	t.Parallel()
	const first, rows = `{"export":"begin"}` + "\n" + `{"sequence":0}` + "\n", "sequence,id\n1,a\n"
	end := func(digest string) string { return `{"export":"end","digest":"` + digest + `"}` + "\n" }
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	for name, test := range map[string]struct {
		format, answer, summary string
		whole                   bool
	}{
		"whole":                      {"", first + end(digest(first)), "", true},
		"of another digest":          {"", first + end("00"), "", false},
		"without its last line":      {"", first, `{"digest":"` + digest(first) + `"}`, false},
		"with more behind":           {"", first + end(digest(first)) + first, "", false},
		"no JSON":                    {"", "<html>\n", "", false},
		"nothing":                    {"", "", "", false},
		"a table":                    {"csv", rows, `{"digest":"` + digest(rows) + `"}`, true},
		"a table without a summary":  {"csv", rows, "", true},
		"a table of another digest":  {"csv", rows, `{"digest":"00"}`, false},
		"a table with no summary":    {"csv", rows, `<html>`, false},
		"a table with an end inside": {"csv", rows + end("00"), `{"digest":"` + digest(rows+end("00")) + `"}`, true},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Export-Summary")
			_, _ = io.WriteString(w, test.answer)
			w.Header().Set("X-Export-Summary", test.summary)
		}))
		l, err := remote.New(s.URL, httpclient.Options{})
		must(t, err)
		var got bytes.Buffer
		if _, err := l.Export(t.Context(), &got, export.Options{Format: test.format}); (err == nil) != test.whole || test.whole && got.String() != test.answer {
			t.Errorf("%s: got %v, %q", name, err, got.String())
		}
		l.Close()
		s.Close()
	}
}

// A disk that is full ends an export.
func TestExportIntoAFullDisk(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	d.decide("acme", strings.Repeat("x", 100_000))
	full := errors.New("no space left on device")
	if _, err := d.reader(d.URL, d.key).Export(t.Context(), fullDisk{full}, export.Options{}); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type fullDisk struct{ error }

func (f fullDisk) Write([]byte) (int, error) { return 0, f.error }
