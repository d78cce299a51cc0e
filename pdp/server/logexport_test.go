package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/server"
)

// fill puts so many decisions of two tenants on record.
func (o *office) fill(from, to int) {
	o.t.Helper()
	r := rand.New(rand.NewPCG(uint64(from), 3))
	var entries []decisionlog.Entry
	for i := from; i < to; i++ {
		entries = append(entries, somebody(r, fmt.Sprintf("f-%d", i)))
	}
	o.append(entries...)
}

// verified fails the test where an export does not verify as a stranger sees it.
func (o *office) verified(export string) verify.Report {
	o.t.Helper()
	report := verify.Export(strings.NewReader(export), verify.Options{Key: o.get("/v1/log/keys")})
	if !report.Verified() {
		o.t.Errorf("the export does not verify: %+v", report)
	}
	return report
}

func unzipped(t *testing.T, body string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(body))
	must(t, err)
	text, err := io.ReadAll(z)
	must(t, err)
	return string(text)
}

// An export that was stopped at any byte goes on there, also when the log has grown, by
// the tag in either place; and where nobody says which export is meant, it begins anew.
func TestExportGoesOnAtAnyByte(t *testing.T) {
	o := openOffice(t)
	o.fill(0, 300)
	r := rand.New(rand.NewPCG(5, 6))
	for n, reader := range []string{"auditor", "initech-auditor"} {
		for m, query := range []string{"?", "?proofs=true&decision=deny", "?format=csv&subject=user-1&from=2026-01-01T00:00:00%2B02:00"} {
			for _, coding := range []string{"identity", "gzip"} {
				me, path := o.as(reader), "/v1/log/export"+query
				whole := me.Get(path, "Accept-Encoding", coding)
				tag := whole.Header.Get("ETag")
				if whole.Status != 200 || tag == "" || (whole.Header.Get("Content-Encoding") == "gzip") != (coding == "gzip") {
					t.Fatalf("%s as %s: got %d %v", path, reader, whole.Status, whole.Header)
				}
				text := whole.Body
				if coding == "gzip" {
					text = unzipped(t, text)
				}
				if !strings.Contains(query, "csv") {
					o.verified(text)
				}
				o.fill(10_000*(n+1)+1000*m+len(coding), 10_000*(n+1)+1000*m+len(coding)+3)
				for _, at := range []int{0, len(whole.Body) - 1, r.IntN(len(whole.Body)), r.IntN(len(whole.Body))} {
					bytes := fmt.Sprintf("bytes=%d-", at)
					byHeader := me.Get(path, "Accept-Encoding", coding, "Range", bytes, "If-Range", tag)
					byParameter := me.Get(path+"&snapshot="+strings.Trim(tag, `"`), "Accept-Encoding", coding, "Range", bytes)
					if byHeader.Status != 206 || byHeader.Body != whole.Body[at:] || byHeader.Header.Get("ETag") != tag || byHeader.Header.Get("X-Export-Summary") == "" ||
						byHeader.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", at, len(whole.Body)-1, len(whole.Body)) {
						t.Errorf("%s from %d: got %d %v", path, at, byHeader.Status, byHeader.Header)
					}
					if byParameter.Status != 206 || byParameter.Body != byHeader.Body {
						t.Errorf("%s from %d by parameter: got %d", path, at, byParameter.Status)
					}
				}
				if again := me.Get(path+"&snapshot="+strings.Trim(tag, `"`), "Accept-Encoding", coding); again.Status != 200 || again.Body != whole.Body {
					t.Errorf("%s again: got %d", path, again.Status)
				}
				end := me.Get(path, "Accept-Encoding", coding, "Range", fmt.Sprintf("bytes=%d-", len(whole.Body)), "If-Range", tag)
				if end.Status != 416 || end.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", len(whole.Body)) {
					t.Errorf("%s from its end: got %d %v", path, end.Status, end.Header)
				}
			}
		}
	}
}

// A tag is good for the export it came with, and for no other: another filter, form,
// coding or reader gets an export of its own.
func TestTagsAreOfOneExport(t *testing.T) {
	o := openOffice(t)
	o.fill(0, 50)
	tag := o.Get("/v1/log/export", "Accept-Encoding", "identity").Header.Get("ETag")
	for name, got := range map[string]int{
		"the same":       o.Get("/v1/log/export", "Accept-Encoding", "identity", "Range", "bytes=7-", "If-Range", tag).Status,
		"another filter": o.Get("/v1/log/export?tenant=initech", "Accept-Encoding", "identity", "Range", "bytes=7-", "If-Range", tag).Status,
		"another form":   o.Get("/v1/log/export?format=csv", "Accept-Encoding", "identity", "Range", "bytes=7-", "If-Range", tag).Status,
		"with proofs":    o.Get("/v1/log/export?proofs=true", "Accept-Encoding", "identity", "Range", "bytes=7-", "If-Range", tag).Status,
		"another coding": o.Get("/v1/log/export", "Accept-Encoding", "br, gzip;q=0.5", "Range", "bytes=7-", "If-Range", tag).Status,
		"another reader": o.as("initech-auditor").Get("/v1/log/export", "Accept-Encoding", "identity", "Range", "bytes=7-", "If-Range", tag).Status,
	} {
		if want := map[bool]int{true: 206, false: 200}[name == "the same"]; got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
	for _, headers := range [][]string{
		{"Range", "bytes=7-"}, {"Range", "bytes=7-", "If-Range", "W/" + tag}, {"Range", "bytes=7-", "If-Range", `"1-2-x"`}, {"Range", "bytes=7-", "If-Range", "Fri, 20 Nov 2026 11:00:00 GMT"},
		{"Range", "bytes=7-9", "If-Range", tag}, {"Range", "bytes=-9", "If-Range", tag}, {"Range", "bytes=1-,5-", "If-Range", tag}, {"If-Range", tag},
	} {
		if got := o.Get("/v1/log/export", append(headers, "Accept-Encoding", "identity")...); got.Status != 200 {
			t.Errorf("%v: got %d", headers, got.Status)
		}
	}
	if got := o.as("initech-auditor").Get("/v1/log/export?snapshot=" + strings.Trim(tag, `"`)).Status; got != 410 {
		t.Errorf("another reader's snapshot: got %d", got)
	}
	for accepts, want := range map[string]string{"gzip": "gzip", "GZIP;q=1.0": "gzip", "br, gzip; q=0.1": "gzip", "gzip;q=0": "", "gzip;q=0.000": "", "br": "", "x-gzip-not": ""} {
		got := o.Get("/v1/log/export", "Accept-Encoding", accepts)
		if got.Header.Get("Content-Encoding") != want || got.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: got %v", accepts, got.Header)
		}
	}
	other := openOffice(t)
	if got := other.Get("/v1/log/export?snapshot=" + strings.Trim(tag, `"`)).Status; got != 410 {
		t.Errorf("another log's snapshot: got %d", got)
	}
}

// Where content was removed since, the rest of the old export is not to be had: the
// answer is a new one, whole. Who sees nothing of the removal gets the rest.
func TestExportAfterARedaction(t *testing.T) {
	o := openOffice(t)
	o.fill(0, 200)
	id := o.ask("initech", evaluationPath, tenantQuestion)
	readers := []string{"auditor", "initech-auditor", "globex-auditor"}
	whole, tag := map[string]string{}, map[string]string{}
	for _, reader := range readers {
		got := o.as(reader).Get("/v1/log/export", "Accept-Encoding", "identity")
		whole[reader], tag[reader] = got.Body, got.Header.Get("ETag")
	}
	if got := o.Do("POST", "/v1/decisions/"+id+"/redaction", `{"reason":"r"}`); got.Status != 204 {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	for _, reader := range readers {
		me := o.as(reader)
		got := me.Get("/v1/log/export", "Accept-Encoding", "identity", "Range", "bytes=100-", "If-Range", tag[reader])
		insists := me.Get("/v1/log/export?snapshot="+strings.Trim(tag[reader], `"`), "Accept-Encoding", "identity", "Range", "bytes=100-")
		if reader == "globex-auditor" {
			if got.Status != 206 || got.Body != whole[reader][100:] || insists.Status != 206 {
				t.Errorf("%s: got %d and %d", reader, got.Status, insists.Status)
			}
			continue
		}
		if got.Status != 200 || got.Header.Get("ETag") == tag[reader] || strings.Contains(got.Body, "initech-plan") || insists.Status != 410 {
			t.Errorf("%s: got %d and %d", reader, got.Status, insists.Status)
		}
		o.verified(got.Body)
	}
}

// stream begins an export and leaves the rest of it to be read.
func (o *office) stream(ctx context.Context, path string) *http.Response {
	o.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", o.URL+path, nil)
	must(o.t, err)
	r.Header.Set("Authorization", o.key[o.authorized])
	r.Header.Set("Accept-Encoding", "identity")
	transport := &http.Transport{ReadBufferSize: 4 << 10}
	o.t.Cleanup(transport.CloseIdleConnections)
	answer, err := (&http.Client{Transport: transport}).Do(r)
	must(o.t, err)
	o.t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != 200 {
		o.t.Fatalf("got %s", answer.Status)
	}
	return answer
}

// large makes an export that does not fit into what lies between server and client.
func (o *office) large() {
	o.t.Helper()
	for i := range 30 {
		o.append(largeEntry(i))
	}
}

func (o *office) append(entries ...decisionlog.Entry) {
	o.t.Helper()
	_, err := o.Log().Append(o.t.Context(), entries)
	must(o.t, err)
}

// largeEntry is nearly a megabyte.
func largeEntry(n int) decisionlog.Entry {
	e := somebody(rand.New(rand.NewPCG(1, 1)), fmt.Sprintf("large-%d", n))
	e.Tenant, e.Request.Action = "initech", jsontext.Value(`{"name":"large"}`)
	e.Request.Context = jsontext.Value(`{"note":"` + strings.Repeat("x", 900_000) + `"}`)
	return e
}

// Content that goes while it is exported breaks the connection: nobody takes half an
// export, or one of two times, for a whole one.
func TestExportBreaksWhereContentGoes(t *testing.T) {
	o := openOffice(t)
	o.large()
	id := o.ask("initech", evaluationPath, tenantQuestion)
	answer := o.stream(t.Context(), "/v1/log/export")
	if got := o.Do("POST", "/v1/decisions/"+id+"/redaction", `{"reason":"r"}`); got.Status != 204 {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	got, err := io.ReadAll(answer.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || bytes.Contains(got, []byte(`"export":"end"`)) || answer.Trailer.Get("X-Export-Summary") != "" {
		t.Errorf("%d bytes came, with %v", len(got), err)
	}
}

// An export takes as long as its reader does, who reads on: the server's limit is on each
// piece.
func TestExportOutlastsItsTimeouts(t *testing.T) {
	const limit = 100 * time.Millisecond
	o := openOffice(t, func(c *server.Config) {
		server.TuneHTTP(c, func(h *http.Server) { h.Handler = hurried{h.Handler, limit} })
	})
	o.large()
	answer := o.stream(t.Context(), "/v1/log/export")
	var read bytes.Buffer
	_, err := io.CopyN(&read, answer.Body, 1000)
	must(t, err)
	<-time.After(5 * limit) // not for anything to happen: this is the slow reader
	_, err = io.Copy(&read, answer.Body)
	must(t, err)
	o.verified(read.String())
	if answer.Trailer.Get("X-Export-Summary") == "" {
		t.Error("it has no summary")
	}
}

// hurried has exports written within a limit, as [http.Server.WriteTimeout] does. Other
// requests have all the time they want.
type hurried struct {
	http.Handler
	limit time.Duration
}

func (h hurried) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/log/export" {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.limit))
	}
	h.Handler.ServeHTTP(w, r)
}

// So many read the whole log at once, and no more; one that leaves makes room.
func TestExportsAreBounded(t *testing.T) {
	o := openOffice(t)
	o.large()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 2 {
		o.stream(ctx, "/v1/log/export")
		o.as("initech-auditor").stream(ctx, "/v1/log/export")
	}
	o.BePatient(patience, 100*time.Millisecond) // less than it takes for somebody to make way
	for _, name := range []string{"auditor", "initech-auditor", "reader"} {
		for _, path := range []string{"/v1/log/export", "/v1/log/stats"} {
			if got := o.as(name).Get(path); got.Status != 503 || got.Header.Get("Retry-After") == "" {
				t.Errorf("%s: got %d %v", path, got.Status, got.Header)
			}
		}
	}
	o.BePatient(patience, patience)
	leave()
	eventually(t, "there is room again", func() bool { return o.Get("/v1/log/stats").Status == 200 })
}

// A stop does not wait for who reads slowly, or not at all.
func TestStopEndsExports(t *testing.T) {
	o := openOffice(t)
	o.large()
	answer := o.stream(t.Context(), "/v1/log/export")
	begun := time.Now()
	stopAndWait(t, o.Server)
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Error("the export looks whole")
	}
}
