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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server"
)

// fill puts so many decisions of two tenants on record.
func (o *office) fill(from, to int) {
	o.t.Helper()
	r := rand.New(rand.NewPCG(uint64(from), 3))
	var entries []record.Entry
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

// What was answered is in the next export, however soon that is asked for.
func TestAnExportHasWhatWasAnswered(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	for range 5 {
		id := o.ask("initech", evaluationPath, tenantQuestion)
		if export := o.get("/v1/log/export"); !strings.Contains(export, id) {
			t.Fatalf("it does not have %s, which was answered: %s", id, export)
		}
	}
}

// An export that went on after any record is the export in one piece, for each reader,
// filter, form and coding, also when the log has grown meanwhile.
func TestExportGoesOnAfterAnyRecord(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.fill(0, 300)
	r := rand.New(rand.NewPCG(5, 6))
	for n, reader := range []string{"auditor", "initech-auditor"} {
		for m, query := range []string{"?", "?proofs=true&decision=deny", "?format=csv&subject=user-1&from=2026-01-01T00:00:00%2B02:00"} {
			for _, coding := range []string{"identity", "gzip"} {
				me, path := o.as(reader), "/v1/log/export"+query
				whole := me.export(path, coding)
				if !strings.Contains(query, "csv") {
					o.verified(whole.text)
				}
				o.fill(10_000*(n+1)+1000*m+len(coding), 10_000*(n+1)+1000*m+len(coding)+3)
				rows := strings.SplitAfter(whole.text, "\n")
				last := len(rows) - 2 // the last row of a table, or the line before "end"
				if !strings.Contains(query, "csv") {
					last--
				}
				for _, at := range []int{1, last, 1 + r.IntN(last), 1 + r.IntN(last)} {
					for strings.Contains(query, "proofs") && !strings.HasPrefix(rows[at], `{"export":`) {
						at++ // its proof belongs to it
					}
					rest := me.export(path+"&checkpoint="+whole.checkpoint+"&after="+sequenceIn(rows[at]), coding)
					if rest.text != strings.Join(rows[at+1:], "") || rest.checkpoint != whole.checkpoint || rest.summary != whole.summary {
						t.Errorf("%s after %s: got %+v", path, rows[at], rest)
					}
				}
				if again := me.export(path+"&checkpoint="+whole.checkpoint, coding); again != whole {
					t.Errorf("%s again: got %d bytes of %s", path, len(again.text), again.checkpoint)
				}
			}
		}
	}
}

// export is a whole export, or the rest of one.
type export struct{ text, checkpoint, summary string }

func (o *office) export(path, coding string) export {
	o.t.Helper()
	answer := o.stream(o.t.Context(), path, "Accept-Encoding", coding)
	body, err := io.ReadAll(answer.Body)
	must(o.t, err)
	h, text := answer.Header, string(body)
	if (h.Get("Content-Encoding") == "gzip") != (coding == "gzip") || h.Get("ETag") != "" || h.Get("Accept-Ranges") != "none" {
		o.t.Errorf("%s: got %v", path, h)
	}
	if coding == "gzip" {
		text = unzipped(o.t, text)
	}
	return export{text, h.Get("X-Export-Checkpoint"), answer.Trailer.Get("X-Export-Summary")}
}

// sequenceIn is the first record that a line of an export is about.
func sequenceIn(line string) string {
	return regexp.MustCompile(`^(?:.*?"(?:sequence|first)":)?(\d+)`).FindStringSubmatch(line)[1]
}

// What cannot be gone on with is refused, and says what to do: no answer is taken for the
// rest of an export that it is not the rest of.
func TestExportRefusesToGoOn(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.fill(0, 50)
	checkpoint := o.export("/v1/log/export", "identity").checkpoint
	size, _, _ := strings.Cut(checkpoint, "-")
	other := openOffice(t)
	other.fill(0, 49) // with the clock of these tests only the size tells the two apart
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"checkpoint=" + checkpoint:                                {200, ""},
		"checkpoint=" + checkpoint + "&after=0":                   {200, ""},
		"after=7":                                                 {400, "give as checkpoint what X-Export-Checkpoint said"},
		"checkpoint=" + checkpoint + "&after=" + size:             {400, "no record that the checkpoint covers"},
		"checkpoint=" + checkpoint + "&after=9223372036854775808": {400, "no sequence"},
		"checkpoint=" + checkpoint + "&after=-1":                  {400, "no sequence"},
		"checkpoint=" + checkpoint + "&after=x":                   {400, "no sequence"},
		"checkpoint=" + size:                                      {400, "no name of a checkpoint"},
		"checkpoint=" + checkpoint + "-M_FpQcZBQ4LruIw-1pY-":      {400, "no name of a checkpoint"},
		"checkpoint=" + size + "-1&after=7":                       {404, "export anew"},
		"checkpoint=99999999-1&after=7":                           {404, "export anew"},
		"checkpoint=0-1":                                          {404, "export anew"},
		"checkpoint=" + other.export("/v1/log/export", "identity").checkpoint + "&after=7": {404, "export anew"},
		"snapshot=" + checkpoint: {400, "snapshot"},
	} {
		got := o.Get("/v1/log/export?"+query, "Accept-Encoding", "identity")
		if got.Status != want.status || want.status != 200 && !strings.Contains(got.Body, want.says) {
			t.Errorf("%s: got %d %.300s", query, got.Status, got.Body)
		}
	}
}

// Of a reader who asks for bytes no answer makes another export out of what it has: one that says of which export
// begins anew, and the others are told.
func TestExportHasNoRanges(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.fill(0, 50)
	want := o.export("/v1/log/export", "identity")
	for headers, status := range map[[4]string]int{
		{"Range", "bytes=7-", "If-Range", `"` + want.checkpoint + `-M_FpQcZBQ4LruIw-1pY-"`}: 200,
		{"Range", "bytes=7-", "If-Range", `"1-2-x"`}:                                        200,
		{"Range", "bytes=7-", "If-Range", "Fri, 20 Nov 2026 11:00:00 GMT"}:                  200,
		{"Range", "bytes=0-", "X-Other", "1"}:                                               200,
		{"If-Range", `"x"`, "X-Other", "1"}:                                                 200,
		{"Range", "bytes=7-", "X-Other", "1"}:                                               410,
		{"Range", "bytes=7-9", "X-Other", "1"}:                                              410,
		{"Range", "bytes=-9", "X-Other", "1"}:                                               410,
		{"Range", "bytes=1-,5-", "X-Other", "1"}:                                            410,
	} {
		got := o.Get("/v1/log/export?checkpoint="+want.checkpoint, append(headers[:], "Accept-Encoding", "identity")...)
		if got.Status != status || status == 200 && got.Body != want.text || got.Header.Get("Content-Range") != "" || status == 410 && !strings.Contains(got.Body, "X-Export-Checkpoint") {
			t.Errorf("%v: got %d %v", headers, got.Status, got.Header)
		}
	}
	for accepts, want := range map[string]string{"gzip": "gzip", "GZIP;q=1.0": "gzip", "br, gzip; q=0.1": "gzip", "gzip;q=0": "", "gzip;q=0.000": "", "br": "", "x-gzip-not": ""} {
		got := o.Get("/v1/log/export", "Accept-Encoding", accepts)
		if got.Header.Get("Content-Encoding") != want || got.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: got %v", accepts, got.Header)
		}
	}
}

// Pieces of two exports never verify as one: not with another filter, form or reader.
func TestPiecesOfTwoExports(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.fill(0, 50)
	whole := o.export("/v1/log/export", "identity")
	rows := strings.SplitAfter(whole.text, "\n")
	first := strings.Join(rows[:12], "")
	rest := func(o *office, query string) string {
		return o.export("/v1/log/export?checkpoint="+whole.checkpoint+"&after="+sequenceIn(rows[11])+query, "identity").text
	}
	if first+rest(o, "") != whole.text {
		t.Error("the pieces of one export are not that export")
	}
	for name, rest := range map[string]string{
		"another filter": rest(o, "&decision=deny"), "with proofs": rest(o, "&proofs=true"), "another form": rest(o, "&format=csv"), "another reader": rest(o.as("initech-auditor"), ""),
	} {
		if report := verify.Export(strings.NewReader(first+rest), verify.Options{Key: o.get("/v1/log/keys")}); report.Verified() {
			t.Errorf("%s: it verifies", name)
		}
	}
}

// When content was removed since, the rest of the old export is not to be had. A reader
// who sees nothing of the removal gets the rest.
func TestExportAfterARedaction(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.fill(0, 200)
	id := o.ask("initech", evaluationPath, tenantQuestion)
	readers := []string{"auditor", "initech-auditor", "globex-auditor"}
	whole := map[string]export{}
	for _, reader := range readers {
		whole[reader] = o.as(reader).export("/v1/log/export", "identity")
	}
	replied(t, o.Do("POST", "/v1/decisions/"+id+"/redaction", `{"reason":"r"}`), 204)
	for _, reader := range readers {
		me := o.as(reader)
		path := "/v1/log/export?checkpoint=" + whole[reader].checkpoint
		if reader == "globex-auditor" {
			rows := strings.SplitAfter(whole[reader].text, "\n")
			if rest := me.export(path+"&after="+sequenceIn(rows[1]), "identity"); rest.text != strings.Join(rows[2:], "") {
				t.Errorf("%s: got %s", reader, rest.text)
			}
			if again := me.export(path, "identity"); again != whole[reader] {
				t.Errorf("%s: got %+v", reader, again)
			}
			continue
		}
		for _, path := range []string{path, path + "&after=7"} {
			if got := me.Get(path); got.Status != 410 || !strings.Contains(got.Body, "content was removed from the log since") {
				t.Errorf("%s: got %d %s", reader, got.Status, got.Body)
			}
		}
		anew := me.export("/v1/log/export", "identity")
		if anew.checkpoint == whole[reader].checkpoint || strings.Contains(anew.text, "initech-plan") {
			t.Errorf("%s: got %s", reader, anew.checkpoint)
		}
		o.verified(anew.text)
	}
}

// stream begins an export and leaves the rest of it to be read.
func (o *office) stream(ctx context.Context, path string, headers ...string) *http.Response {
	o.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", o.URL+path, nil)
	must(o.t, err)
	r.Header.Set("Authorization", o.key[o.authorized])
	r.Header.Set("Accept-Encoding", "identity")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
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
	for i := range largeEntries {
		o.append(largeEntry(i))
	}
}

const (
	largeEntries = 15
	largeNote    = 900_000
)

func (o *office) append(entries ...record.Entry) {
	o.t.Helper()
	must(o.t, o.Log().Append(o.t.Context(), entries))
}

// largeEntry is nearly a megabyte.
func largeEntry(n int) record.Entry {
	e := somebody(rand.New(rand.NewPCG(1, 1)), fmt.Sprintf("large-%d", n))
	e.Tenant, e.Request.Action = "initech", jsontext.Value(`{"name":"large"}`)
	e.Request.Context = jsontext.Value(`{"note":"` + strings.Repeat("x", largeNote) + `"}`)
	return e
}

// Content that goes while it is exported breaks the connection: nobody takes half an
// export, or one of two times, for a whole one.
func TestExportBreaksWhereContentGoes(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.large()
	id := o.ask("initech", evaluationPath, tenantQuestion)
	answer := o.stream(t.Context(), "/v1/log/export")
	replied(t, o.Do("POST", "/v1/decisions/"+id+"/redaction", `{"reason":"r"}`), 204)
	got, err := io.ReadAll(answer.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || bytes.Contains(got, []byte(`"export":"end"`)) || answer.Trailer.Get("X-Export-Summary") != "" {
		t.Errorf("%d bytes came, with %v", len(got), err)
	}
}

// An export takes as long as its reader does, who reads on: the server's limit is on each
// piece.
func TestExportOutlastsItsTimeouts(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	o := openOffice(t, func(c *server.Config) {
		server.TuneHTTP(c, func(h *http.Server) { h.Handler = hurried{h.Handler, limit} })
	})
	o.large()
	answer := o.stream(t.Context(), "/v1/log/export")
	var read bytes.Buffer
	_, err := io.CopyN(&read, answer.Body, 1000)
	must(t, err)
	<-time.After(4 * limit) // not for anything to happen: this is the slow reader
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
	t.Parallel()
	o := openOffice(t)
	o.KeepPlaces(patience)
	o.large()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 2 {
		o.stream(ctx, "/v1/log/export")
		o.as("initech-auditor").stream(ctx, "/v1/log/export")
	}
	o.BePatient(patience, 100*time.Millisecond)
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
	t.Parallel()
	m, withMeters := newMeters(t)
	o := openOffice(t, withMeters)
	o.large()
	answer := o.stream(t.Context(), "/v1/log/export")
	stopAndWait(t, o.Server)
	if m.count("policy_service.requests.limited", "slow_readers") > 0 {
		t.Error("it ended when the reader had taken too long")
	}
	if _, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Error("the export looks whole")
	}
}
