package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
)

// desk is a server whose log is read, and the credential that reads it.
type desk struct {
	*pdptest.Server
	t          *testing.T
	key, teams string // of all tenants, and of acme
	ask        string // may ask for decisions
}

const question = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"DOC"}}`

func openDesk(t *testing.T, options ...pdptest.Option) *desk {
	t.Helper()
	d := &desk{t: t}
	data := t.TempDir()
	apiKeys, err := keys.Open(data)
	must(t, err)
	add := func(name string, g auth.Grant) string {
		key, err := apiKeys.Add(keys.Spec{Name: name, Grant: g})
		must(t, err)
		return key
	}
	d.key = add("auditor", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.LogRead, auth.LogAdmin}})
	d.teams = add("acme", auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.LogRead}})
	d.ask = add("pep", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search}})
	d.Server = pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar":                `@id("read") permit(principal, action == Action::"read", resource);`,
		"tenants/acme/a.cedar":   `@id("acme") permit(principal, action == Action::"write", resource);`,
		"tenants/globex/a.cedar": `@id("globex") permit(principal, action == Action::"write", resource);`,
	}), append([]pdptest.Option{func(c *server.Config) { c.Data = data }}, options...)...)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// decide has something decided, and returns the id of the record.
func (d *desk) decide(tenant, doc string) string {
	d.t.Helper()
	path := "/access/v1/evaluation"
	if tenant != "default" {
		path = "/tenants/" + tenant + path
	}
	got := d.Post(path, strings.Replace(question, "DOC", doc, 1), "Authorization", "Bearer "+d.ask)
	if got.Status != 200 {
		d.t.Fatalf("got %d %s", got.Status, got.Body)
	}
	return got.Header.Get("X-Decision-Id")
}

// possible asks so many questions with an unknown place at once.
func (d *desk) possible(n int) {
	d.t.Helper()
	one := `{"resource":{"type":"doc","id":"plan"}}`
	got := d.Post("/access/v1/evaluations", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"options":{"unknown":["/subject/properties"]},"evaluations":[`+
		strings.Join(slices.Repeat([]string{one}, n), ",")+`]}`, "Authorization", "Bearer "+d.ask)
	if got.Status != 200 {
		d.t.Fatalf("got %d %s", got.Status, got.Body)
	}
}

func (d *desk) reader(url, key string, options ...func(*httpclient.Options)) *remote.Log {
	d.t.Helper()
	o := httpclient.Options{Credential: key}
	for _, option := range options {
		option(&o)
	}
	l, err := remote.New(url, o)
	must(d.t, err)
	d.t.Cleanup(l.Close)
	return l
}

// What is read over HTTP is what is read of the log's files, to the byte.
func TestReadsAsFilesAreRead(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	id := d.decide("acme", "plan")
	d.decide("default", "plan")
	l, ctx := d.reader(d.URL+"/", d.key), t.Context()

	checkpoint, err := l.Checkpoint(ctx)
	must(t, err)
	keys, err := l.Keys(ctx)
	must(t, err)
	trusted := verify.Options{Key: strings.Join(keys, "\n"), Checkpoint: string(checkpoint)}
	var exported, proof, consistency bytes.Buffer
	done, err := l.Export(ctx, &exported, export.Options{Proofs: true})
	must(t, err)
	if report := verify.Export(&exported, trusted); !report.Verified() || report.Records != done.Records || done.Records != done.Size || done.Uncovered != 0 {
		t.Errorf("got %+v, %+v", report, done)
	}
	must(t, l.Prove(ctx, &proof, id))
	if report := verify.Export(&proof, trusted); !report.Verified() {
		t.Errorf("got %+v", report)
	}
	d.decide("acme", "another")
	must(t, l.Consistency(ctx, &consistency, checkpoint))
	if report := verify.Export(&consistency, trusted); !report.Verified() {
		t.Errorf("got %+v", report)
	}
	shown, err := l.Show(ctx, id)
	must(t, err)
	if !strings.Contains(string(shown.Record.Line), `"id":"`+id+`"`) || len(shown.Files) != 3 || shown.Record.Bundle == "" {
		t.Errorf("got %+v", shown)
	}
	stats, err := l.Stats(ctx)
	must(t, err)
	if stats.Allowed != 3 || stats.Size == 0 || len(stats.Segments) != 1 {
		t.Errorf("got %+v", stats)
	}
	public, err := l.RotateKey(ctx, false)
	must(t, err)
	if keys, err := l.Keys(ctx); err != nil || len(keys) != 2 || keys[1] != public {
		t.Errorf("got %v, %v", keys, err)
	}
	must(t, l.Redact(ctx, id, "erasure request 17"))
	if _, err := l.Show(ctx, id); httpclient.StatusOf(err) != 410 {
		t.Errorf("got %v", err)
	}
}

// What another tenant has is not there for the reader of one.
func TestReadsOfOneTenant(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	mine, other := d.decide("acme", "plan"), d.decide("globex", "plan")
	l := d.reader(d.URL, d.teams)
	shown, err := l.Show(t.Context(), mine)
	must(t, err)
	if len(shown.Files) != 2 || shown.Files["tenants/globex/a.cedar"] != nil {
		t.Errorf("got %v", shown.Files)
	}
	if _, err := l.Show(t.Context(), other); httpclient.StatusOf(err) != 404 {
		t.Errorf("got %v", err)
	}
	if err := l.Redact(t.Context(), mine, "r"); httpclient.StatusOf(err) != 403 {
		t.Errorf("got %v", err)
	}
}

// The last records, and then each that comes, once: also when the server is not there
// for a moment.
func TestTail(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for i := range 5 {
		d.decide("acme", fmt.Sprintf("doc-%d", i))
	}
	var seen []string
	see := func(_ int64, line []byte) error {
		_, rest, _ := strings.Cut(string(line), `"resource":{"type":"doc","id":"`)
		doc, _, _ := strings.Cut(rest, `"`)
		seen = append(seen, doc)
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	var away atomic.Int64
	l := d.reader(breaker(t, d.Addr(), func(n int) int64 {
		if n > 0 && n < 3 {
			away.Add(1)
			return 0
		}
		return 1 << 40
	}), d.key, func(o *httpclient.Options) {
		o.Wait = func(context.Context, time.Duration) error {
			if rounds++; rounds == 8 {
				cancel()
				return ctx.Err()
			}
			d.decide("acme", fmt.Sprintf("new-%d", rounds))
			d.decide("default", "passed over")
			return nil
		}
	})
	f := record.Filter{Tenant: "acme"}
	cursor, err := l.Last(ctx, export.TailOptions{Filter: f, Last: 2}, see)
	must(t, err)
	l.Close() // so that the next request is on a new connection
	cursor, err = l.Tail(ctx, export.TailOptions{After: cursor, Filter: f, Every: time.Second}, see)
	must(t, err)
	want := []string{"doc-3", "doc-4", "new-1", "new-2", "new-3", "new-4", "new-5", "new-6", "new-7"}
	if !slices.Equal(seen, want) || away.Load() == 0 {
		t.Errorf("got %v, %d connections broke", seen, away.Load())
	}
	seen = nil
	again, err := d.reader(d.URL, d.key).Tail(t.Context(), export.TailOptions{After: -1, Filter: record.Filter{Subject: "user/alice", Tenant: "acme"}}, see)
	must(t, err)
	if len(seen) != 12 || again < cursor {
		t.Errorf("from the beginning: got %v, cursor %d after %d", seen, again, cursor)
	}
	seen = nil
	if _, err := d.reader(d.URL, d.key).Last(t.Context(), export.TailOptions{Filter: f}, see); err != nil || seen != nil {
		t.Errorf("got %v, %v", seen, err)
	}
	if _, err := l.Tail(t.Context(), export.TailOptions{After: 1_000_000, Every: time.Second}, see); httpclient.StatusOf(err) != 400 {
		t.Errorf("beyond the end: got %v", err)
	}
}

func TestWhatIsNoServer(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "pdp", "ftp://pdp.example", "http://pdp.example", "http://10.0.0.1:8180", "https://user:secret@pdp.example", "https://pdp.example?x=y", "https://pdp.example#x", "http://%zz"} {
		if _, err := remote.New(address, httpclient.Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v", address, err)
		}
	}
	for _, address := range []string{"https://pdp.example/base/", "http://localhost:8180", "http://[::1]:8180", "http://127.0.0.2:1"} {
		if _, err := remote.New(address, httpclient.Options{}); err != nil {
			t.Errorf("%q: got %v", address, err)
		}
	}
	if _, err := remote.New("https://pdp.example", httpclient.Options{Credential: "psk_x\n"}); err == nil || strings.Contains(err.Error(), "psk_x") {
		t.Errorf("got %v", err)
	}
}

// Whatever answers in a server's place: no credential goes elsewhere or into an error,
// and nothing is believed that its own hash speaks against.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	const key = "psk_secret"
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	line := `{"sequence":1,"id":"x","time":"2026-01-02T03:04:05Z","kind":"decision","salt":"s"}`
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"the credential quoted": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			_, _ = fmt.Fprintf(w, `{"detail":"no \u001b[2J%s"}`, r.Header.Get("Authorization"))
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"another record's hash": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"record":`+line+`,"sequence":1,"leaf_hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","receipts":[]}`)
		},
		"a sequence that no log has": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"items":[{"sequence":9223372036854775808,"id":"x","kind":"decision"}],"next":"9223372036854775809"}`)
		},
		"a page without an end": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"items":[],"next":"0","more":true}`)
		},
		"too much": func(w http.ResponseWriter, _ *http.Request) {
			piece := bytes.Repeat([]byte("x"), 1<<20)
			for range 70 {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		},
	} {
		s := httptest.NewServer(answer)
		l, err := remote.New(s.URL, httpclient.Options{Credential: key})
		must(t, err)
		_, show := l.Show(t.Context(), "x")
		_, tail := l.Tail(t.Context(), export.TailOptions{After: -1}, func(int64, []byte) error { return nil })
		for _, err := range []error{show, tail} {
			if err == nil || strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "\x1b") || strings.Contains(err.Error(), elsewhere.URL) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		l.Close()
		s.Close()
	}
}

// A page may have no record although there are more: the server had no time to find one. It is gone on from, in both orders.
func TestPagesWithoutRecords(t *testing.T) {
	t.Parallel()
	line := `{"sequence":%d,"id":"x","time":"2026-01-02T03:04:05Z","kind":"decision","salt":"s"}`
	answers := map[string]string{
		"newest/":   `{"items":[` + fmt.Sprintf(line, 9) + `],"next":"9","more":true}`,
		"newest/10": `{"items":[],"next":"7","more":true}`,
		"newest/7":  `{"items":[` + fmt.Sprintf(line, 5) + `],"next":"5","more":true}`,
		"newest/5":  `{"items":[],"next":"0","more":false}`,
		"oldest/0":  `{"items":[],"next":"4","more":true}`,
		"oldest/4":  `{"items":[` + fmt.Sprintf(line, 5) + `],"next":"10","more":false}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answers[r.URL.Query().Get("order")+"/"+r.URL.Query().Get("cursor")])
	}))
	defer s.Close()
	l, err := remote.New(s.URL, httpclient.Options{Credential: "psk_x"})
	must(t, err)
	defer l.Close()
	o := export.TailOptions{After: -1, Last: 3, Filter: record.Filter{Text: "Q3 launch"}}
	for name, read := range map[string]func(context.Context, export.TailOptions, func(int64, []byte) error) (int64, error){"last": l.Last, "tail": l.Tail} {
		var got []int64
		if cursor, err := read(t.Context(), o, func(n int64, _ []byte) error { got = append(got, n); return nil }); err != nil || cursor != 9 || !slices.Equal(got, []int64{5}) {
			t.Errorf("%s: got %v, cursor %d, %v", name, got, cursor, err)
		}
	}
}

// A private authority is trusted where it is named, and nowhere else; an export takes
// another way through HTTP/2.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := pdptest.NewAuthority(t)
	d := openDesk(t, func(c *server.Config) { c.TLS.CertFile, c.TLS.KeyFile = a.Server() })
	if _, err := d.reader(d.URL, d.key).Checkpoint(t.Context()); err == nil {
		t.Error("an unknown authority is trusted")
	}
	l := d.reader(d.URL, d.key, func(o *httpclient.Options) { o.Roots = a.Pool })
	var exported bytes.Buffer
	done, err := l.Export(t.Context(), &exported, export.Options{})
	must(t, err)
	if report := verify.Export(&exported, verify.Options{}); !report.Verified() || report.Records != done.Records || done.Records == 0 {
		t.Errorf("got %+v, %+v", report, done)
	}
}
