package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/c2sp"
	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/decisionlog"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/inside/segment"
	"policy-service/pdp/pdptest/inside/server"
	"policy-service/pdp/pdptest/judged"
	"policy-service/pdp/pdptest/witnesstest"
)

// prover is a server with a log, and a directory for the proofs of it.
type prover struct {
	*testing.T
	*pdptest.Server
	dir, key string
	options  []pdptest.Option
	from     []string // flags that say which log is meant
}

func newProver(t *testing.T, options ...func(data string) pdptest.Option) *prover {
	t.Helper()
	p := &prover{T: t, dir: t.TempDir()}
	data := filepath.Join(p.dir, "data")
	keys, err := auth.OpenKeys(data)
	must(t, err)
	p.key, err = keys.Add(auth.KeySpec{Name: "all", Grant: auth.Grant{
		Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.LogRead, auth.LogAdmin},
	}})
	must(t, err)
	must(t, os.WriteFile(p.path("all.key"), []byte(p.key), 0o600))
	p.options = []pdptest.Option{func(c *server.Config) { c.Data, c.Program.PDP.NewID = data, nil }}
	for _, option := range options {
		p.options = append(p.options, option(data))
	}
	p.start()
	return p
}

func (p *prover) start() {
	p.Helper()
	p.Server = pdptest.Start(p.T, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("read") permit(principal, action == Action::"read", resource);`,
	}), p.options...)
	p.from = []string{"--server", p.URL, "--credential", p.path("all.key")}
}

func (p *prover) path(name string) string { return filepath.Join(p.dir, name) }

// ask returns the id of an answer's record.
func (p *prover) ask(path, body string) string {
	p.Helper()
	got := p.Post(path, body, "Authorization", "Bearer "+p.key)
	if got.Status/100 != 2 {
		p.Fatalf("got %d %s", got.Status, got.Body)
	}
	return got.Header.Get("X-Decision-Id")
}

// line is a record as it was hashed.
func (p *prover) line(id string) []byte {
	p.Helper()
	var got struct {
		Record jsontext.Value `json:"record"`
	}
	must(p.T, json.Unmarshal([]byte(p.Get("/v1/decisions/"+id, "Authorization", "Bearer "+p.key).Body), &got))
	return got.Record
}

// run runs a command, which must end so.
func (p *prover) run(want cli.ExitCode, args ...string) (out string) {
	p.Helper()
	var printed, told bytes.Buffer
	if code := command.Run(args, cli.Streams{In: strings.NewReader(""), Out: &printed, Err: &told}); code != want {
		p.Fatalf("policy-service %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, &printed, &told)
	}
	return printed.String() + told.String()
}

func (p *prover) log(command ...string) []string {
	return append(append([]string{"log"}, command...), p.from...)
}

func (p *prover) write(name string, content []byte) string {
	p.Helper()
	must(p.T, os.WriteFile(p.path(name), content, 0o600))
	return p.path(name)
}

func (p *prover) read(name string) []byte {
	p.Helper()
	content, err := os.ReadFile(name)
	must(p.T, err)
	return content
}

// judges holds a proof of a line against a program of others, and against ours.
func (p *prover) judges(policy, proof, line string) {
	p.Helper()
	if said, err := judged.Judge(p.T, "proof", policy, proof, line); err != nil {
		p.Errorf("others refuse the proof: %s, %v", said, err)
	}
	if got := p.run(0, "log", "verify", proof, "--line", line, "--policy", policy); !strings.HasPrefix(got, "verified "+proof) {
		p.Errorf("got %s", got)
	}
}

const proveQuestion = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`

// What is proved of a running server, and of its directory afterwards, a program of others accepts, and refuses if one bit
// differs.
func TestProofsForStrangers(t *testing.T) {
	t.Parallel()
	p := newProver(t)
	id := p.ask("/access/v1/evaluation", proveQuestion)
	batch := p.ask("/access/v1/evaluations", `{"subject":{"type":"user","id":"alice"},"context":{"purpose":"tests"},"resource":{"type":"doc","id":"plan"},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"write"}}]}`)
	gone := p.ask("/access/v1/evaluation", strings.Replace(proveQuestion, "alice", "bob", 1))
	kept := p.write("kept", p.line(gone))
	p.run(0, p.log("redact", gone, "--reason", "erasure request 17")...)
	policy := p.write("policy", []byte(p.run(0, p.log("key", "--policy")...)))
	for _, where := range []string{"server", "data"} {
		if where == "data" {
			must(t, p.Stop(context.Background()))
			p.from = []string{"--data", p.path("data")}
		}
		dir := p.path(where)
		file := func(id string) string { return filepath.Join(dir, id+".json") }
		p.run(0, p.log("prove", id, "-o", dir)...)
		p.judges(policy, file(id)+".tlog-proof", file(id))
		if line := p.read(file(id)); !bytes.Contains(line, []byte(`"id":"`+id+`"`)) || bytes.HasSuffix(line, []byte("\n")) {
			t.Errorf("the line is %q", line)
		}
		if proof, err := c2sp.ParseProof(p.read(file(id) + ".tlog-proof")); err != nil || string(proof.Extra) != id {
			t.Errorf("the extra is %q, %v", proof.Extra, err)
		}
		if got := p.run(0, "log", "verify", file(id)+".tlog-proof", "--policy", policy); !strings.Contains(got, "each of the 1 records here is in the log") {
			t.Errorf("got %s", got)
		}
		if got := p.run(0, p.log("prove", batch+".1", "-o", dir)...); !strings.Contains(got, batch+".json.tlog-proof: record ") {
			t.Errorf("got %s", got)
		}
		p.judges(policy, file(batch)+".tlog-proof", file(batch))
		p.judges(policy, file(batch+".1")+".tlog-proof", file(batch+".1"))
		got := p.run(0, p.log("prove", gone, "-o", dir)...)
		if !strings.Contains(got, "the content of record ") || !strings.Contains(got, "--line COPY") {
			t.Errorf("got %s", got)
		}
		if _, err := os.Stat(file(gone)); err == nil {
			t.Error("content that is gone was written")
		}
		p.judges(policy, file(gone)+".tlog-proof", kept)
		said, _, _ := strings.Cut(got, ".json.tlog-proof")
		if line := p.read(said + ".json"); !bytes.Contains(line, []byte("erasure request 17")) || !bytes.Contains(line, []byte(gone)) {
			t.Errorf("the redaction is %s", line)
		}
		p.judges(policy, said+".json.tlog-proof", said+".json")
	}
	p.flips(policy, p.path("server/"+id+".json"))
}

// flips changes one bit of a line, and of each line of its proof that is proved: both refuse all of them.
func (p *prover) flips(policy, name string) {
	p.Helper()
	line, proof := p.read(name), p.read(name+".tlog-proof")
	refused := func(what string) {
		p.Helper()
		if said, err := judged.Judge(p.T, "proof", policy, p.path("proof.tlog-proof"), p.path("line")); err == nil {
			p.Errorf("%s: others say %s", what, said)
		}
		var out bytes.Buffer
		args := []string{"log", "verify", p.path("proof.tlog-proof"), "--line", p.path("line"), "--policy", policy}
		if code := command.Run(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code < 3 {
			p.Errorf("%s: exit %d, %s", what, code, &out)
		}
	}
	p.write("proof.tlog-proof", proof)
	for n := range 8 {
		bad := bytes.Clone(line)
		bad[n*(len(bad)-1)/7] ^= 1 << n
		p.write("line", bad)
		refused(fmt.Sprintf("bit %d of the line", n))
	}
	p.write("line", line)
	lines := bytes.SplitAfter(proof, []byte("\n"))
	for n := range lines {
		if len(lines[n]) == 0 || bytes.HasPrefix(lines[n], []byte("extra ")) {
			continue
		}
		bad := bytes.Clone(proof)
		bad[len(bytes.Join(lines[:n], nil))+len(lines[n])/2] ^= 2
		p.write("proof.tlog-proof", bad)
		refused(fmt.Sprintf("%q", lines[n]))
	}
}

// The route gives the same proof without the record, to the newest checkpoint that there is.
func TestTheRouteOfAProofForStrangers(t *testing.T) {
	t.Parallel()
	p := newProver(t)
	id := p.ask("/access/v1/evaluation", proveQuestion)
	p.run(0, p.log("checkpoint")...)
	got := p.Get("/v1/log/records/"+id+"/proof", "Authorization", "Bearer "+p.key)
	policy := p.write("policy", []byte(p.run(0, p.log("key", "--policy")...)))
	p.write("it.tlog-proof", []byte(got.Body))
	p.write("it", p.line(id))
	p.judges(policy, p.path("it.tlog-proof"), p.path("it"))
	p.flips(policy, p.path("it"))
}

// An id is the name of a file, or none is written.
func TestIdsThatNameNoFile(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l, err := decisionlog.Open(data, decisionlog.Options{Origin: "pdp.example.com/log"})
	must(t, err)
	ids := []string{"../x", "a/b", `a\b`, "..", ".hidden", "a\x1bb", "a\nb", "C:x", strings.Repeat("x", 201)}
	for _, id := range ids {
		must(t, l.Append(t.Context(), []record.Entry{{ID: id, Kind: format.KindDecision, Tenant: "default", Decision: &record.Decision{Allow: true}}}))
	}
	must(t, l.Close())
	dir := filepath.Join(t.TempDir(), "out")
	for _, id := range ids {
		var out, told bytes.Buffer
		code := command.Run([]string{"log", "prove", id, "--data", data, "-o", dir}, cli.Streams{Out: &out, Err: &told})
		if code != cli.Failed || !strings.Contains(told.String(), "cannot be the name of a file") {
			t.Errorf("%q: exit %d, %s", id, code, told.String())
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) > 0 {
		t.Errorf("written: %v, %v", entries, err)
	}
}

// A server says how records are called, and may lie.
func TestALyingServerNamesNoFile(t *testing.T) {
	t.Parallel()
	const head, record, proof = `{"export":"begin","format":1,"form":"proof","checkpoint":"c"}`, `{"sequence":1,"id":"%s","time":"2026-01-02T03:04:05Z","kind":"batch","tenant":"default"}`, `{"export":"proof","sequence":1,"hashes":[]}`
	said := func(ids ...string) string {
		text := head + "\n"
		for _, id := range ids {
			text += fmt.Sprintf(record, id) + "\n" + proof + "\n"
		}
		return text
	}
	for answer, want := range map[string]string{
		said("other"):              "the proof is of another record, \"other\"",
		said("../x", "asked.1"):    "cannot be the name of a file",
		said("/tmp/x", "asked"):    "cannot be the name of a file",
		said("asked.1", "../x"):    "the proof is of another record",
		said():                     "there is no record in the proof",
		"garbage":                  "cannot prove the record",
		head + "\n" + proof + "\n": "there is no record in the proof",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		dir := t.TempDir()
		var out bytes.Buffer
		code := command.Run([]string{"log", "prove", "asked.1", "--server", server.URL, "-o", filepath.Join(dir, "out")}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		server.Close()
		entries, err := os.ReadDir(dir)
		must(t, err)
		if code != cli.Failed || !strings.Contains(out.String(), want) || len(entries) > 0 {
			t.Errorf("%s: exit %d, %s, %v", answer, code, &out, entries)
		}
	}
}

// A server whose export is not the log that its key signed is found, also where the export fits together.
func TestVerifyOfAServerThatLies(t *testing.T) {
	t.Parallel()
	p := newProver(t)
	p.ask("/access/v1/evaluation", proveQuestion)
	policy := p.write("policy", []byte(p.run(0, p.log("key", "--policy")...)))
	server, err := url.Parse(p.URL)
	must(t, err)
	early := p.run(0, p.log("checkpoint")...)
	p.ask("/access/v1/evaluation", proveQuestion)
	p.run(0, p.log("checkpoint")...)
	for name, test := range map[string]struct {
		path   string
		change func(string) string
		want   cli.ExitCode
		says   string
	}{
		"nothing":                   {"/v1/log/export", func(s string) string { return s }, 0, "verified http://127.0.0.1:"},
		"a record":                  {"/v1/log/export", func(s string) string { return mended(strings.Replace(s, "alice", "malic", 1)) }, 3, "altered "},
		"a record, and no digest":   {"/v1/log/export", func(s string) string { return strings.Replace(s, "alice", "malic", 1) }, 2, "not in one piece"},
		"the end":                   {"/v1/log/export", func(s string) string { return s[:strings.LastIndex(s, `{"export":"end"`)] }, 2, "cannot verify"},
		"a checkpoint of then":      {"/v1/log/checkpoint", func(string) string { return early }, 0, "verified"},
		"a checkpoint's signature":  {"/v1/log/checkpoint", func(s string) string { return strings.Replace(s, "— ", "— x", 1) }, 9, "the checkpoint that the server serves: "},
		"a checkpoint that is none": {"/v1/log/checkpoint", func(string) string { return "garbage" }, 3, "the checkpoint"},
	} {
		proxy := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(server)
				r.Out.Header.Set("Accept-Encoding", "identity")
			},
			ModifyResponse: func(r *http.Response) error {
				body, err := io.ReadAll(r.Body)
				if err == nil && r.Request.URL.Path == test.path {
					body = []byte(test.change(string(body)))
				}
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), -1
				r.Header.Del("Content-Length")
				return err
			},
		}
		lying := httptest.NewServer(proxy)
		got := p.run(test.want, "log", "verify", "--server", lying.URL, "--credential", p.path("all.key"), "--policy", policy)
		if lying.Close(); !strings.Contains(got, test.says) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// mended is an export with the digest of its lines.
func mended(text string) string {
	at := strings.LastIndex(text, `{"export":"end"`)
	return text[:at] + regexp.MustCompile(`"digest":"[0-9a-f]+"`).ReplaceAllString(text[at:], fmt.Sprintf(`"digest":"%x"`, sha256.Sum256([]byte(text[:at]))))
}

// A policy is read in place of a key, for all that there is to verify. Witnesses that it asks must have cosigned.
func TestVerifyByPolicy(t *testing.T) {
	t.Parallel()
	p, other := newProver(t), newProver(t)
	id := p.ask("/access/v1/evaluation", proveQuestion)
	p.run(0, p.log("prove", id, "-o", p.dir)...)
	p.run(0, p.log("export", "-o", p.path("export"))...)
	text := p.run(0, p.log("key", "--policy")...)
	seed := sha256.Sum256([]byte("a witness"))
	material := append([]byte{4}, ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)...)
	hash := sha256.Sum256(append([]byte("witness.example\n"), material...))
	asked := fmt.Sprintf("witness W witness.example+%08x+%s\nquorum W\n", binary.BigEndian.Uint32(hash[:]), base64.StdEncoding.EncodeToString(material))
	policies := map[string]struct {
		file string
		want cli.ExitCode
		says string
	}{
		"none":      {p.write("none", []byte(text)), 0, "the policy asks no witness"},
		"witnessed": {p.write("witnessed", []byte(strings.Replace(text, "quorum none\n", asked, 1))), 11, "unwitnessed"},
		"other":     {p.write("other", []byte(other.run(0, other.log("key", "--policy")...))), 9, "other key"},
		"both":      {p.write("both", []byte(strings.Split(other.run(0, other.log("key", "--policy")...), "\n")[0]+"\n"+text)), 0, "verified"},
		"garbage":   {p.write("garbage", []byte("log x\n")), 2, "line 1: "},
		"no file":   {p.path("nosuch"), 2, "cannot read the policy"},
	}
	verify := func() {
		t.Helper()
		for name, policy := range policies {
			for _, what := range [][]string{{p.path(id + ".json.tlog-proof")}, {p.path("export")}, p.from} {
				got := p.run(policy.want, append([]string{"log", "verify", "--policy", policy.file}, what...)...)
				if !strings.Contains(got, policy.says) {
					t.Errorf("%s, %s: got %s", name, what[0], got)
				}
			}
		}
	}
	verify()
	if got := p.run(0, append([]string{"log", "verify"}, p.from...)...); !strings.Contains(got, "verified "+p.URL+": ") {
		t.Errorf("got %s", got)
	}
	for _, args := range [][]string{
		{"--policy", p.path("none"), "--key", p.path("none"), p.path("export")}, {"--line", p.path("export"), p.path("export")}, {},
		{p.path("export"), "--server", p.URL}, {p.path("export"), "--credential", p.path("all.key")}, {p.path("nosuch.tlog-proof")},
		{p.path(id + ".json.tlog-proof"), "--line", p.path("nosuch"), "--policy", p.path("none")}, {p.path(id + ".json.tlog-proof")},
		{"--server", "http://127.0.0.1:1"}, {"--server", p.URL},
	} {
		p.run(2, append([]string{"log", "verify"}, args...)...)
	}
	must(t, p.Stop(context.Background()))
	p.from = []string{p.path("data")}
	verify()
	record, err := segment.OpenReader(p.path("data"))
	must(t, err)
	found, err := record.Find(id)
	must(t, err)
	if tlog.RecordHash(p.read(p.path(id+".json"))) != found.Leaf {
		t.Error("the line is not the record")
	}
	must(t, record.Close())
}

// cosignedBy has witnesses cosign the log of a prover, as their policy says, which is in the file.
func cosignedBy(t *testing.T, file string, all ...*witnesstest.Witness) func(data string) pdptest.Option {
	return func(data string) pdptest.Option {
		l, err := decisionlog.Open(data, decisionlog.Options{Origin: "pdp.example.com/v1/log"})
		must(t, err)
		must(t, l.Close())
		keys, err := segment.VerifierKeys(data)
		must(t, err)
		for _, w := range all {
			w.Add(t, keys[0])
			w.At(func() time.Time { return pdptest.Now }) // as the server's clock
		}
		must(t, os.WriteFile(file, []byte("log "+keys[0]+"\n"+witnesstest.Policy(2, all...)), 0o600))
		return func(c *server.Config) {
			c.DecisionLog.Witnesses = &server.WitnessesConfig{PolicyFile: file, Every: time.Second}
		}
	}
}

// With witnesses the proofs and the exports of a running server have what they cosigned, and a directory of before that goes on
// is found.
func TestProofsThatWitnessesCosigned(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy")
	witnesses := []*witnesstest.Witness{witnesstest.New(t, "w1.example"), witnesstest.New(t, "w2.example"), witnesstest.New(t, "w3.example")}
	p := newProver(t, cosignedBy(t, policy, witnesses...))
	cosigned := func(id string) {
		t.Helper()
		until(t, "witnesses cosign the record", func() (bool, error) {
			var out bytes.Buffer
			if code := command.Run(p.log("prove", id, "-o", p.dir), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != cli.OK {
				return false, fmt.Errorf("exit %d: %s", code, &out)
			}
			if proof, err := os.ReadFile(p.path(id + ".json.tlog-proof")); err != nil || bytes.Count(proof, []byte("\n— w")) < 2 {
				return false, err // to ask the judge takes longer than to read
			}
			_, err := judged.Judge(t, "proof", policy, p.path(id+".json.tlog-proof"), p.path(id+".json"))
			return err == nil, nil
		})
	}
	first := p.ask("/access/v1/evaluation", proveQuestion)
	cosigned(first)
	p.judges(policy, p.path(first+".json.tlog-proof"), p.path(first+".json"))
	p.flips(policy, p.path(first+".json"))
	for _, what := range [][]string{p.from, {p.path("export")}} {
		p.run(0, p.log("export", "-o", p.path("export"))...)
		got := p.run(0, append([]string{"log", "verify", "--policy", policy}, what...)...)
		if !regexp.MustCompile(`the quorum of the policy cosigned the first \d+ records?: w\d\.example at \S+, w\d\.example at `).MatchString(got) {
			t.Errorf("got %s", got)
		}
	}
	must(t, p.Stop(context.Background()))
	if got := p.run(0, "log", "verify", p.path("data"), "--policy", policy); !strings.Contains(got, "the quorum of the policy cosigned the first ") {
		t.Errorf("got %s", got)
	}
	must(t, exec.Command("cp", "-a", p.path("data"), p.path("before")).Run())
	p.start()
	for range 5 {
		cosigned(p.ask("/access/v1/evaluation", proveQuestion))
	}
	must(t, p.Stop(context.Background()))

	// The directory of before is put back, and written on.
	must(t, os.Rename(p.path("data"), p.path("after")))
	must(t, os.Rename(p.path("before"), p.path("data")))
	p.start()
	p.ask("/access/v1/evaluation", strings.Replace(proveQuestion, "alice", "mallory", 1))
	until(t, "the witnesses say that they know more", func() (bool, error) {
		content, err := os.ReadFile(p.path("data/" + format.SuspectsFile))
		return err == nil && bytes.Contains(content, []byte(".example")), nil
	})
	must(t, p.Stop(context.Background()))
	said := "another history of this log: witness w"
	if got := p.run(0, "log", "verify", p.path("data"), "--policy", policy); !strings.Contains(got, "not excluded: "+said) {
		t.Errorf("got %s", got)
	}
	if got := p.run(11, "log", "verify", p.path("data"), "--policy", policy, "--strict"); !strings.Contains(got, "unwitnessed not excluded: another history") {
		t.Errorf("got %s", got)
	}
	kept := p.write("kept.checkpoint", p.read(p.path("after/"+format.WitnessedFile)))
	p.run(5, "log", "verify", p.path("data"), "--policy", policy, "--checkpoint", kept)
	p.write("data/"+format.ConflictFile, p.read(kept))
	p.run(5, "log", "verify", p.path("data"))
}
