package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/crashedlog"
	"policy-service/pdp/pdptest/judged"
)

// generated fills the log of a data directory up to so many records, before its server starts.
func generated(t testing.TB, records uint64, options decisionlog.Options, then ...func(*decisionlog.Log)) pdptest.Option {
	return func(c *server.Config) {
		log, err := decisionlog.Open(c.Data, options)
		must(t, err)
		fill(t, log, records)
		for _, do := range then {
			do(log)
		}
		must(t, log.Close())
	}
}

func fill(t testing.TB, log *decisionlog.Log, records uint64) {
	t.Helper()
	var some []record.Entry
	for n := log.Size(); n < records; n++ {
		some = append(some, record.Entry{ID: fmt.Sprintf("generated-%d", n), Kind: format.KindDecision, Tenant: "default", Caller: "key:pep",
			Request: &record.Request{
				Subject:  jsontext.Value(fmt.Sprintf(`{"type":"user","id":"subject-%d"}`, n)),
				Action:   jsontext.Value(`{"name":"read"}`),
				Resource: jsontext.Value(`{"type":"doc","id":"plan"}`),
			}, Decision: &record.Decision{Allow: true}})
		if len(some) == 1000 || n == records-1 {
			must(t, log.Append(t.Context(), some))
			some = nil
		}
	}
}

// tree is the tree of a running server, as judges see it.
type tree struct {
	*office
	prefix, vkey, dir string
}

func (o *office) tree() *tree {
	o.t.Helper()
	vkey := strings.Fields(o.get("/v1/log/keys"))[0]
	return &tree{o, o.URL + "/v1/log", vkey, o.t.TempDir()}
}

// grow asks until there are so many records, and signs them.
func (r *tree) grow(size uint64) (checkpoint string) {
	r.t.Helper()
	for r.Log().Size() < size {
		r.ask("default", evaluationPath, readQuestion)
	}
	checkpoint = r.get("/v1/log/checkpoint")
	if got := strings.Split(checkpoint, "\n")[1]; got != fmt.Sprint(size) {
		r.t.Fatalf("a checkpoint of %s records, want %d", got, size)
	}
	return checkpoint
}

// file writes a file for a judge.
func (r *tree) file(name, content string) string {
	r.t.Helper()
	name = filepath.Join(r.dir, name)
	must(r.t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// lines are the lines of the export, with an empty line for each record that is gone.
func (r *tree) lines() string {
	r.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(r.get("/v1/log/export")) {
		if !strings.HasPrefix(line, `{"export":`) {
			b.WriteString(line)
			continue
		}
		var leaves struct {
			Export string
			Hashes []string
		}
		must(r.t, json.Unmarshal([]byte(line), &leaves))
		if leaves.Export == "leaves" {
			b.WriteString(strings.Repeat("\n", len(leaves.Hashes)))
		}
	}
	return b.String()
}

// judge has a judge look at the tree as it is with a checkpoint.
func (r *tree) judge(checkpoint, judge string, files ...string) (string, error) {
	r.t.Helper()
	args := []string{"-header", "Authorization: " + r.key["auditor"], "-every", fmt.Sprint(1 + r.Log().Size()/1000)}
	if checkpoint != "" {
		args = append(args, "-checkpoint", r.file("checkpoint", checkpoint))
	}
	return judged.Judge(r.t, append(append(args, judge, r.prefix, r.vkey), files...)...)
}

// accepted has a judge accept the tree, and say so.
func (r *tree) accepted(want, checkpoint, judge string, files ...string) {
	r.t.Helper()
	if said, err := r.judge(checkpoint, judge, files...); err != nil || said != want {
		r.t.Errorf("%s says %q, %v; want %q", judge, said, err, want)
	}
}

// tilesOf is how many tiles a tree has.
func tilesOf(size uint64) (tiles uint64) {
	for ; size > 0; size >>= 8 {
		tiles += (size + 255) / 256
	}
	return tiles
}

// Programs of others find the tree of a running server in its tiles, at each size around a full tile. Whatever the size has
// become, they still find that of each checkpoint that was given out.
func TestTilesAreJudgedWhileTheLogGrows(t *testing.T) {
	t.Parallel()
	for _, full := range []uint64{256, 65536} {
		t.Run(fmt.Sprint(full), func(t *testing.T) {
			t.Parallel()
			var first []byte
			o := openOffice(t, generated(t, 1, decisionlog.Options{SegmentBytes: 4 << 20}, func(log *decisionlog.Log) {
				var err error
				first, err = log.Checkpoint(t.Context())
				must(t, err)
				fill(t, log, full-60) // segments that begin have records of their own
			}))
			r := o.tree()
			checkpoints := map[uint64]string{1: string(first)}
			old := uint64(1)
			for size := full - 1; size <= full+1; size++ {
				checkpoint := r.grow(size)
				checkpoints[size] = checkpoint
				lines := r.file("lines", r.lines())
				r.accepted(fmt.Sprintf("%d records, gone []", size), checkpoint, "fsck", lines)
				every := 1 + size/1000
				r.accepted(fmt.Sprintf("proofs of %d lines in %d records", (size+every-1)/every, size), checkpoint, "proofs", lines)
				said, err := r.judge(checkpoint, "consistency", r.file("old", checkpoints[old]))
				if err != nil || !strings.HasPrefix(said, fmt.Sprintf("from %d to %d by ", old, size)) {
					t.Errorf("consistency: %q, %v", said, err)
				}
				old = size
			}
			for size, checkpoint := range checkpoints {
				r.accepted(fmt.Sprintf("%d tiles of %d records", tilesOf(size), size), checkpoint, "tiles")
			}
		})
	}
}

// Where content is gone, by retention or redaction, the tree is as before; and judges miss the lines that are gone, and no others.
func TestTilesOutliveContent(t *testing.T) {
	t.Parallel()
	var before []byte
	var gone []uint64
	o := openOffice(t, generated(t, 700, decisionlog.Options{SegmentBytes: 64 << 10, Now: func() time.Time { return pdptest.Now }}, func(log *decisionlog.Log) {
		var err error
		before, err = log.Checkpoint(t.Context())
		must(t, err)
		retired, err := log.Retain(t.Context(), decisionlog.Retention{Age: time.Hour}, pdptest.Now.Add(2*time.Hour))
		must(t, err)
		for n := range retired.Records {
			gone = append(gone, n)
		}
		fill(t, log, 1000)
		must(t, log.Redact(t.Context(), "key:auditor", "generated-900", "asked"))
		record, err := log.Reader.Get(900)
		if err == nil {
			t.Fatalf("it is not redacted: %s", record.Line)
		}
		gone = append(gone, 900)
	}))
	if len(gone) < 100 {
		t.Fatalf("%d records are gone", len(gone))
	}
	r := o.tree()
	checkpoint := r.get("/v1/log/checkpoint")
	size := strings.Split(checkpoint, "\n")[1]
	lines := r.file("lines", r.lines())
	r.accepted(fmt.Sprintf("%s records, gone %v", size, gone), checkpoint, "fsck", lines)
	first, err := segment.ParseCheckpoint(before, nil)
	must(t, err)
	r.accepted(fmt.Sprintf("%d tiles of %d records", tilesOf(first.Size), first.Size), string(before), "tiles")
	if said, err := r.judge(checkpoint, "consistency", r.file("old", string(before))); err != nil || !strings.HasPrefix(said, fmt.Sprintf("from %d to %s", first.Size, size)) {
		t.Errorf("consistency: %q, %v", said, err)
	}
	if said, err := r.judge(checkpoint, "proofs", lines); err != nil || !strings.HasSuffix(said, " lines in "+size+" records") {
		t.Errorf("proofs: %q, %v", said, err)
	}
}

// Each judge refuses one flipped bit: of a tile, of a line, of a proof, of a checkpoint.
func TestJudgesRefuseAFlippedBit(t *testing.T) {
	t.Parallel()
	o := openOffice(t, generated(t, 257, decisionlog.Options{}))
	r := o.tree()
	old := o.get("/v1/log/checkpoint")
	for range 20 {
		r.ask("default", evaluationPath, readQuestion)
	}
	checkpoint, lines := r.get("/v1/log/checkpoint"), r.lines()
	size := strings.Split(checkpoint, "\n")[1]
	served, err := url.Parse(o.URL)
	must(t, err)
	var mu sync.Mutex
	flip, seen := "", false // the path of the answer that is flipped, and whether it was asked for
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(served) },
		ModifyResponse: func(answer *http.Response) error {
			mu.Lock()
			defer mu.Unlock()
			if answer.Request.URL.Path != "/v1/log/"+flip {
				return nil
			}
			seen = true
			body, err := io.ReadAll(answer.Body)
			answer.Body = io.NopCloser(bytes.NewReader(flipped(body, 31*8)))
			return err
		},
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	r.prefix = front.URL + "/v1/log"
	ask := func(path string, judge string, files ...string) error {
		mu.Lock()
		flip, seen = path, false
		mu.Unlock()
		_, err := r.judge("", judge, files...)
		mu.Lock()
		defer mu.Unlock()
		if path != "" && !seen {
			t.Errorf("%s does not read %s", judge, path)
		}
		return err
	}
	partial := "tile/0/001.p/" + fmt.Sprint(len(strings.Split(lines, "\n"))-1-256)
	for judge, files := range map[string][]string{
		"tiles": nil, "consistency": {r.file("old", old)}, "proofs": {r.file("lines", lines)}, "fsck": {r.file("lines", lines)},
	} {
		if err := ask("", judge, files...); err != nil {
			t.Errorf("%s: %v", judge, err)
		}
		for _, path := range []string{"checkpoint", "tile/0/000", partial, "tile/1/000.p/1"} {
			if judge == "consistency" && path == "tile/0/000" || judge == "proofs" && path == "tile/1/000.p/1" && size == "256" {
				continue // it does not need the hashes of the records that both have
			}
			if ask(path, judge, files...) == nil {
				t.Errorf("%s accepts another %s", judge, path)
			}
		}
	}
	for _, at := range []int{0, 200 * 8, len(lines) * 4} {
		other := r.file("flipped", string(flipped([]byte(lines), at)))
		for _, judge := range []string{"proofs", "fsck"} {
			if ask("", judge, other) == nil {
				t.Errorf("%s accepts lines with bit %d flipped", judge, at)
			}
		}
	}
	policy := r.file("policy", "log "+r.vkey+"\nquorum none\n")
	n := int64(len(strings.Split(lines, "\n")) - 1)
	hashes, err := tlog.ProveRecord(n, 255, o.Log())
	must(t, err)
	line := strings.Split(lines, "\n")[255]
	proof := c2sp.Proof{Index: 255, Hashes: hashes, Checkpoint: []byte(checkpoint)}.Text()
	if said, err := judged.Judge(t, "proof", policy, r.file("proof", string(proof)), r.file("line", line)); err != nil {
		t.Errorf("the proof: %q, %v", said, err)
	}
	for bit := 3; bit < len(proof)*8; bit += 97 {
		other := flipped(proof, bit)
		if bytes.Equal(decoded(other), decoded(proof)) {
			continue // the last bits of Base64 may be none of the value
		}
		if _, err := judged.Judge(t, "proof", policy, r.file("flipped", string(other)), r.file("line", line)); err == nil {
			t.Errorf("a proof with bit %d flipped is accepted:\n%s", bit, other)
		}
	}
	for _, bit := range []int{0, len(line) * 4, len(line)*8 - 1} {
		if _, err := judged.Judge(t, "proof", policy, r.file("proof", string(proof)), r.file("flipped", string(flipped([]byte(line), bit)))); err == nil {
			t.Errorf("a line with bit %d flipped is accepted", bit)
		}
	}
	if said, err := judged.Judge(t, "checkpoint", policy, r.file("checkpoint", checkpoint)); err != nil {
		t.Errorf("the checkpoint: %q, %v", said, err)
	}
}

// decoded is a text with the values of the Base64 in it.
func decoded(text []byte) (out []byte) {
	for line := range bytes.Lines(text) {
		for word := range bytes.FieldsSeq(line) {
			if value, err := base64.StdEncoding.DecodeString(string(word)); err == nil {
				word = value
			}
			out = append(append(out, word...), ' ')
		}
		out = append(out, '\n')
	}
	return out
}

func flipped(b []byte, bit int) []byte {
	b = bytes.Clone(b)
	b[bit/8] ^= 1 << (bit % 8)
	return b
}

// counts counts the checkpoints, commits and steps of a log.
type counts struct{ checkpoints, commits, steps atomic.Int64 }

func (n *counts) all() [3]int64 {
	return [3]int64{n.checkpoints.Load(), n.commits.Load(), n.steps.Load()}
}

// silent keeps a log from signing anything but when it is asked to, and counts.
func (n *counts) silent(c *server.Config) {
	server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
		o.Checkpoints = decisionlog.Checkpoints{Records: 1 << 20, Bytes: 1 << 40, Every: time.Hour, Idle: time.Hour}
		on := o.On
		o.On.Checkpoint = func(note []byte) { n.checkpoints.Add(1); on.Checkpoint(note) }
		o.On.Commit = func(c decisionlog.Commit) { n.commits.Add(1); on.Commit(c) }
		o.On.Step = func(string) { n.steps.Add(1) }
	})
}

func publicTiles(c *server.Config) { c.DecisionLog.Tiles = audit.PublicTiles }

// Where tiles are public, a stranger has the signed tree: not a signature, a checkpoint or a transaction more is made for
// any request of the stranger.
func TestStrangersCostTheLogNothing(t *testing.T) {
	t.Parallel()
	made := new(counts)
	o := openOffice(t, generated(t, 300, decisionlog.Options{}), publicTiles, made.silent)
	r := o.tree()
	o.Client = ownClient() // openapi.yaml has no word for an index with slashes
	_, err := o.Log().Checkpoint(t.Context())
	must(t, err)
	signed, err := o.Log().Signed()
	must(t, err)
	o.ask("default", evaluationPath, readQuestion) // and no checkpoint covers it
	width := signed.Size - 256
	o.Log()
	before := made.all()
	for n, headers := range [][]string{
		{"Authorization", ""}, {"Authorization", "Bearer none"}, {"Authorization", "", "X-Forwarded-For", "10.0.0.1", "Forwarded", "for=10.0.0.1"},
	} {
		checkpoint := o.Get("/v1/log/checkpoint", headers...)
		if checkpoint.Status != 200 || checkpoint.Body != string(signed.Note) || checkpoint.Header.Get("Cache-Control") != "public, max-age=1" {
			t.Errorf("%v: got %d %v %s", headers, checkpoint.Status, checkpoint.Header, checkpoint.Body)
		}
		for path, hashes := range map[string]int{"0/000": 256, "0/000.p/7": 7, "1/000.p/1": 1, fmt.Sprint("0/001.p/", width): int(width)} {
			tile := o.Get("/v1/log/tile/"+path, headers...)
			if tile.Status != 200 || len(tile.Body) != 32*hashes || tile.Header.Get("Content-Type") != "application/octet-stream" ||
				tile.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
				t.Errorf("%v: %s: got %d %v, %d bytes", headers, path, tile.Status, tile.Header, len(tile.Body))
			}
			if head := o.Do("HEAD", "/v1/log/tile/"+path, "", headers...); head.Status != 200 || head.Body != "" || head.Header.Get("Cache-Control") != tile.Header.Get("Cache-Control") {
				t.Errorf("%v: HEAD of %s: got %d %v", headers, path, head.Status, head.Header)
			}
		}
		wrong := []string{"0/001", fmt.Sprint("0/001.p/", width+1)}
		if n == 0 {
			wrong = append(wrong, noTiles...)
		}
		for _, path := range wrong {
			if got := o.Server.Do("GET", "/v1/log/tile/"+path, "", headers...); got.Status != 404 || got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v: %s: got %d %v", headers, path, got.Status, got.Header)
			}
		}
		for _, path := range []string{"/v1/log/keys", "/v1/log/export", "/v1/log/stats"} { // of which nothing was said
			if got := o.Server.Do("GET", path, "", headers...); got.Status != 401 && got.Status != 403 {
				t.Errorf("%v: %s: got %d", headers, path, got.Status)
			}
		}
	}
	r.key["auditor"] = ""
	r.accepted(fmt.Sprintf("3 tiles of %d records", signed.Size), "", "tiles")
	if after := made.all(); after != before {
		t.Errorf("checkpoints, commits and steps were %v, and are %v", before, after)
	}
	_, err = o.Log().Checkpoint(t.Context())
	must(t, err)
	if after := made.all(); after == before {
		t.Error("nothing is counted")
	}
	if got := o.Get(fmt.Sprint("/v1/log/tile/0/001.p/", width+1), "Authorization", ""); got.Status != 200 {
		t.Errorf("got %d once it is signed", got.Status)
	}
}

// By whichever name a stranger calls the server, the tree is public, and nothing else.
func TestStrangersMayUseAnyHost(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t), withData(t.TempDir()), publicTiles)
	_, err := s.Log().Checkpoint(t.Context())
	must(t, err)
	for path, want := range map[string]string{"/v1/log/checkpoint": "200 OK", "/v1/log/tile/0/000.p/1": "200 OK", "/v1/log/keys": "403 Forbidden", "/v1/log/tile/0/000.p/1?a=b": "400 Bad Request"} {
		answer := exchange(t, s.Addr(), []byte("GET "+path+" HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
		if !strings.HasPrefix(answer, "HTTP/1.1 "+want) {
			t.Errorf("%s: got %s", path, answer)
		}
	}
}

// noTiles are no addresses of tiles, or those of none that a small log has.
var noTiles = []string{
	"0/000.p/0", "0/000.p/256", "0/000.p/007", "0/000.p/-1", "0/000.p/", "0/000.p", "0/000.p/7/7", "64/000", "00/000", "01/000", "-1/000", "+0/000", "0/0", "0/00",
	"0/0000", "0/000/", "0/000/000", "0/x000/000", "0/x1/000", "0/x001/x000", "0/X001/000", "0/001.p/256", "0/999", "0/x001/234/067", "1/000", "2/000.p/1", "63/000.p/1",
	"0%2F000", "0/000%2Ep/7", "0/%30%30%30", "0/000.p%2F7", "entries/000", "data/000", "0/../0/000", "0//000", "0/000.p/7%00", "0/999999999999999999999", "0/", "a/b",
	strings.Repeat("9", 400) + "/000", "0/" + strings.Repeat("x999/", 400) + "999",
}

// Without a word in the configuration tiles are for those who may read the log of all tenants, and for no other reader to keep.
func TestTilesNeedACredential(t *testing.T) {
	t.Parallel()
	o := openOffice(t, generated(t, 300, decisionlog.Options{}))
	for who, want := range map[string]int{"auditor": 200, "reader": 200, "globex-auditor": 403, "globex-pep": 403} {
		got := o.as(who).Get("/v1/log/tile/0/000")
		if got.Status != want || want == 200 && got.Header.Get("Cache-Control") != "private, max-age=31536000, immutable" {
			t.Errorf("%s: got %d %v", who, got.Status, got.Header)
		}
	}
	if got := o.as("globex-auditor").Get("/v1/log/checkpoint"); got.Status != 200 || got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %d %v", got.Status, got.Header)
	}
	if got := o.Get("/v1/log/tile/0/000", "Authorization", ""); got.Status != 401 {
		t.Errorf("got %d", got.Status)
	}
	for _, path := range noTiles {
		if got := o.Server.Do("GET", "/v1/log/tile/"+path, "", "Authorization", o.key["reader"]); got.Status != 404 || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d %v", path, got.Status, got.Header)
		}
	}
}

// A stranger's rate is that of its address, and no caller's.
func TestStrangersHaveARateOfTheirOwn(t *testing.T) {
	t.Parallel()
	o := openOffice(t, generated(t, 300, decisionlog.Options{}), publicTiles)
	asked, got := 0, pdptest.Response{}
	for ; got.Status != 429; asked++ { // the clock stands still
		if got = o.Server.Get("/v1/log/tile/0/000"); asked > 2000 || got.Status != 200 && got.Status != 429 {
			t.Fatalf("got %d after %d", got.Status, asked)
		}
	}
	if got.Header.Get("Retry-After") == "" || got.Header.Get("Cache-Control") != "no-store" || o.Server.Get("/v1/log/checkpoint").Status != 429 {
		t.Errorf("got %v", got.Header)
	}
	o.ask("default", evaluationPath, readQuestion)
	o.get("/v1/log/export")
	elsewhere := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	transport := &http.Transport{DialContext: elsewhere.DialContext}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(o.URL + "/v1/log/checkpoint")
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != 200 {
		t.Errorf("another address: got %d", answer.StatusCode)
	}
}

// In best effort answers leave before their records are on disk. What no checkpoint on disk covers is no tile.
func TestTilesAreDurable(t *testing.T) {
	t.Parallel()
	var hold atomic.Bool
	holds, goOn := make(chan struct{}), make(chan struct{})
	o := openOffice(t, generated(t, 100, decisionlog.Options{}), publicTiles, func(c *server.Config) {
		c.DecisionLog.Mode = decisionlog.BestEffort
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
			o.Checkpoints.Every, o.Checkpoints.Idle = time.Hour, time.Hour
			o.On.Step = func(step string) {
				if step == decisionlog.StepCommit && hold.CompareAndSwap(true, false) {
					close(holds)
					<-goOn
				}
			}
		})
	})
	_, err := o.Log().Checkpoint(t.Context())
	must(t, err)
	signed, err := o.Log().Signed()
	must(t, err)
	o.Client = ownClient()
	beyond := fmt.Sprint("/v1/log/tile/0/000.p/", signed.Size+1)
	hold.Store(true)
	o.ask("default", evaluationPath, readQuestion)
	made := make(chan error, 1)
	log := o.Server.Server
	go func() { _, err := log.Log().Checkpoint(t.Context()); made <- err }()
	<-holds // the record is about to be made durable
	if got := o.Server.Get("/v1/log/checkpoint"); got.Body != string(signed.Note) {
		t.Errorf("got %s", got.Body)
	}
	if got := o.Server.Get(beyond); got.Status != 404 {
		t.Errorf("got %d", got.Status)
	}
	close(goOn)
	must(t, <-made)
	if got := o.Server.Get(beyond); got.Status != 200 {
		t.Errorf("got %d once it is signed", got.Status)
	}
}

// Records that a crash left in the journal are served once the next start has signed them, and continue those of before.
func TestTilesAfterACrash(t *testing.T) {
	t.Parallel()
	for _, mode := range []decisionlog.Mode{decisionlog.Strict, decisionlog.BestEffort} {
		live := t.TempDir()
		generated(t, 250, decisionlog.Options{})(&server.Config{Data: live})
		data := crashedlog.In(t, live, 20)
		reader, err := segment.OpenReader(data)
		must(t, err)
		before, err := reader.LastCheckpoint()
		must(t, err)
		must(t, reader.Close())
		o := &office{Server: pdptest.Start(t, bundle(t), withData(data), publicTiles, func(c *server.Config) {
			c.DecisionLog.Mode, c.Program.Authenticator = mode, asCaller{}
			server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
				o.Checkpoints = decisionlog.Checkpoints{Records: 1 << 20, Bytes: 1 << 40, Every: time.Hour, Idle: time.Hour}
			})
		}), t: t, data: data}
		keys, err := segment.VerifierKeys(data)
		must(t, err)
		r := &tree{o, o.URL + "/v1/log", keys[0], t.TempDir()}
		look := func(wider uint64) {
			signed, err := o.Log().Signed()
			must(t, err)
			if said, err := r.judge("", "tiles"); err != nil || !strings.HasSuffix(said, fmt.Sprintf(" of %d records", signed.Size)) {
				t.Errorf("%s: %q, %v", mode, said, err)
			}
			if said, err := r.judge("", "consistency", r.file("old", string(before.Note))); err != nil {
				t.Errorf("%s: %q, %v", mode, said, err)
			}
			size := signed.Size + wider
			if got := o.Server.Get(fmt.Sprintf("/v1/log/tile/0/%03d.p/%d", size/256, size%256)); got.Status != 404 {
				t.Errorf("%s: beyond %d records: got %d", mode, signed.Size, got.Status)
			}
		}
		look(1)
		_, err = o.Log().Checkpoint(t.Context())
		must(t, err)
		look(1)
		if signed, err := o.Log().Signed(); err != nil || signed.Size < before.Size+20 {
			t.Errorf("%s: %d records are signed, %v; before the crash %d were", mode, signed.Size, err, before.Size)
		}
	}
}

// A new log has the origin that its tiles stand at; one that is there keeps its own.
func TestOriginIsWhereTheTilesStand(t *testing.T) {
	t.Parallel()
	at := func(url string) pdptest.Option { return func(c *server.Config) { c.PublicURL = url } }
	for url, want := range map[string]string{"https://pdp.example.com:8443/a/": "pdp.example.com:8443/a/v1/log", "http://[::1]:80": "[::1]:80/v1/log"} {
		o := openOffice(t, at(url))
		if origin, _, _ := strings.Cut(o.get("/v1/log/checkpoint"), "\n"); origin != want {
			t.Errorf("%s: the origin is %s", url, origin)
		}
	}
	o := openOffice(t, at("https://pdp.example.com"), generated(t, 1, decisionlog.Options{Origin: "mine"}))
	if origin, _, _ := strings.Cut(o.get("/v1/log/checkpoint"), "\n"); origin != "mine" {
		t.Errorf("the origin is %s", origin)
	}
	o = openOffice(t)
	if origin, _, _ := strings.Cut(o.get("/v1/log/checkpoint"), "\n"); !strings.HasPrefix(origin, "policy-service/") || slices.Contains(strings.Fields(origin), "") {
		t.Errorf("the origin is %s", origin)
	}
}
