package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/txtar"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/crashedlog"
	"policy-service/pdp/pdptest/inside/approval"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/backup"
	"policy-service/pdp/pdptest/inside/bolt"
	capabilities "policy-service/pdp/pdptest/inside/capability"
	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/journal"
	"policy-service/pdp/pdptest/inside/ledger"
	"policy-service/pdp/pdptest/inside/lock"
	"policy-service/pdp/pdptest/inside/server"
)

var updateFormats = flag.Bool("update-formats", false, "make the fixture in testdata/formats of the version that is not released yet")

// formatsDir has a fixture of each version that had a format of its own: what its commands and its server have written, and
// what people give them. Large files are packed. story.txtar is what the next fixture begins with.
const formatsDir = "testdata/formats"

// story is what happened to the files of a fixture, and how it is at the end, for each version that opens them.
type story struct {
	*testing.T `json:"-"`
	dir        string
	clock      atomic.Int64 // of the server, in nanoseconds
	server     *pdptest.Server

	Made                         time.Time // of the fixture
	Given, Denied, Waiting, Task string    // ids of approval requests, and of a task
	Counted, Token, Revoked      string    // a capability with its token, whose first of three uses is spent; one that was revoked
	First, Item, Redacted        string    // ids of decisions: of the first day, of a batch, without content
}

const formatsIssuer = "https://pdp.example"

func (s *story) path(name string) string { return filepath.Join(s.dir, name) }

// run is what a command prints. Names in it that begin with @ are of files of the fixture.
func (s *story) run(line string) string {
	s.Helper()
	var out, told strings.Builder
	args := strings.Fields(strings.ReplaceAll(line, "@", s.dir+"/"))
	if code := command.Run(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &told}); code != cli.OK {
		s.Fatalf("%s: exit %d\n%s%s", line, code, out.String(), told.String())
	}
	return out.String()
}

// says is run, and what it prints has these parts.
func (s *story) says(line string, parts ...string) {
	s.Helper()
	out := s.run(line)
	for _, part := range parts {
		if !strings.Contains(out, part) {
			s.Errorf("%s does not say %q:\n%s", line, part, out)
		}
	}
}

// serve starts a server so long after the fixture was made, and waits until a proof needs no nonce.
func (s *story) serve(later time.Duration, issuer string) {
	s.Helper()
	s.clock.Store(s.Made.Add(later).UnixNano())
	s.server = pdptest.Start(s.T, pdp.Dir(s.path("agents")), func(c *server.Config) {
		c.Data, c.PublicURL, c.DecisionLog.Mask = s.path("data"), issuer, []string{"/context/pin"}
		c.Program.PDP.NewID = nil
		c.Program.PDP.Now = s.now
	})
	s.clock.Add(int64(2 * time.Minute))
}

func (s *story) now() time.Time { return time.Unix(0, s.clock.Load()).UTC() }

func (s *story) stop() {
	s.Helper()
	must(s.T, s.server.Stop(s.Context()))
}

// ask has a holder of a key send a request, and returns the answer, which has a status and a text.
func (s *story) ask(key, path, body string, status int, part string) pdptest.Response {
	s.Helper()
	secret, err := os.ReadFile(s.path("keys/" + key + ".key"))
	must(s.T, err)
	method := "POST"
	if body == "" {
		method = "GET"
	}
	got := s.server.Do(method, path, body, "Content-Type", "application/json", "Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	if got.Status != status || !strings.Contains(got.Body, part) {
		s.Fatalf("%s %s %s: %d %s; want %d %s", key, path, body, got.Status, got.Body, status, part)
	}
	return got
}

// after is the text behind another one in an answer.
func (s *story) after(got pdptest.Response, before string) string {
	s.Helper()
	_, text, found := strings.Cut(got.Body, before)
	if !found {
		s.Fatalf("%s has no %s", got.Body, before)
	}
	text, _, _ = strings.Cut(text, `"`)
	return text
}

const (
	aliceReads = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":{"pin":"1234","supported_obligations":["notification"]}}`
	botCalls   = `{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"files:deploy"},"context":{"arguments":{"n":%d}%s}}`
)

func (s *story) holder() *capability.Holder {
	s.Helper()
	h, err := capability.NewHolder(ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize))))
	must(s.T, err)
	return h
}

// grant asks for a capability for three calls.
func (s *story) grant() (id, token string) {
	s.Helper()
	ask := capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "bot"}, Audience: "files", Tools: []string{"read"}, Duration: 24 * time.Hour, MaxUses: 3,
	}
	must(s.T, s.holder().Request(&ask, formatsIssuer, s.now()))
	body, err := json.Marshal(ask)
	must(s.T, err)
	got := s.ask("pep", "/v1/capabilities", string(body), 201, `"granted":true`)
	return s.after(got, `"id":"`), s.after(got, `"token":"`)
}

// call shows a capability with a call.
func (s *story) call(id, token, part string) {
	s.Helper()
	claim := capability.Claim{Capability: id, Audience: "files", Tool: "files:read", IssuedAt: s.now()}
	proof, err := s.holder().Prove(claim)
	must(s.T, err)
	s.ask("pep", "/v1/authorize", fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"files:read"},"context":{"arguments":{},"capability":{"token":%q,"proof":%q}}}`, token, proof), 200, part)
}

// tell makes all that is in a fixture.
func (s *story) tell() {
	text, err := os.ReadFile(filepath.Join(formatsDir, "story.txtar"))
	must(s.T, err)
	for _, f := range txtar.Parse(text).Files {
		writeFile(s.T, s.path(f.Name), string(f.Data))
	}
	s.run("check --write-manifest @bundle")
	s.run("check --write-manifest @agents")
	for name, flags := range map[string]string{
		"pep": "--permission decide --permission search --permission request --permission capability --tenant *", "gone": "", "late": "", "renewed": "", "brief": "--expires 1s",
		"mia": "--permission approve --principal user::\"mia\"", "warden": "--permission capability.admin --tenant *", "auditor": "--permission log.read --permission log.admin --tenant *",
	} {
		writeFile(s.T, s.path("keys/"+name+".key"), s.run("keys add --data @data --name "+name+" "+flags))
	}
	s.run("keys revoke --data @data gone")
	writeFile(s.T, s.path("keys/new.key"), s.run("keys renew --data @data --overlap 0 --expires 36500d renewed"))
	s.Made = time.Now().UTC().Truncate(time.Second)
	s.firstDay()
	s.secondDay()
	s.run("keys revoke --data @data late") // after the last server
	s.written()
}

// firstDay ends with the segment that a rotation seals.
func (s *story) firstDay() {
	s.serve(-25*time.Hour, "")
	s.First = s.ask("pep", "/access/v1/evaluation", aliceReads, 200, `"decision":true`).Header.Get("X-Decision-Id")
	s.ask("pep", "/v1/decisions/"+s.First+"/obligations", `{"obligations":[{"id":"tell","status":"discharged"}]}`, 204, "")
	s.Redacted = s.ask("pep", "/tenants/acme/access/v1/evaluation", strings.Replace(aliceReads, "alice", "carol", 1), 200, `"decision":true`).Header.Get("X-Decision-Id")
	s.Item = s.ask("pep", "/access/v1/evaluations", strings.TrimSuffix(aliceReads, "}")+`,"evaluations":[{},{"action":{"name":"write"}}]}`, 200, `"decision":true`).Header.Get("X-Decision-Id") + ".1"
	s.ask("pep", "/access/v1/search/resource", strings.Replace(aliceReads, `,"id":"plan"`, "", 1), 200, `"plan"`)
	s.task()
	s.ask("auditor", "/v1/log/keys", "{}", 200, "")
	s.ask("auditor", "/v1/decisions/"+s.Redacted+"/redaction", `{"reason":"on request"}`, 204, "")
	s.stop()
}

// task has a client in Go keep a task, and go.
func (s *story) task() {
	s.Helper()
	key, err := os.ReadFile(s.path("keys/pep.key"))
	must(s.T, err)
	client, err := authzenclient.New(s.server.URL, authzenclient.WithKey(strings.TrimSpace(string(key))))
	must(s.T, err)
	e := approvals.Enforce(s.Context(), client, evaluation.Request{
		Subject: evaluation.Entity{Type: "agent", ID: "bot"}, Action: evaluation.Action{Name: "tool.invoke"}, Resource: evaluation.Entity{Type: "tool", ID: "files:deploy"},
	}, obligations.Handlers{}, approvals.KeepTask(func(_ context.Context, task approvals.Task) error {
		text, err := json.Marshal(task)
		writeFile(s.T, s.path("task.json"), string(text))
		return errors.Join(err, errors.New("kept"))
	}))
	text, err := os.ReadFile(s.path("task.json"))
	if err != nil || e.Permitted() {
		s.Fatalf("there is no task: %v, %v", e.Err(), err)
	}
	s.Task = s.after(pdptest.Response{Body: string(text)}, `"id":"`)
}

func (s *story) secondDay() {
	s.serve(-10*time.Minute, formatsIssuer)
	asked := func(n int) string {
		return s.after(s.ask("pep", "/v1/authorize", fmt.Sprintf(botCalls, n, ""), 200, `"pending"`), `"approval":{"id":"`)
	}
	says := func(id, what string) {
		s.ask("mia", "/v1/approvals/"+id+"/decision", `{"decision":"`+what+`","reason":"as agreed"}`, 200, "")
	}
	s.Given, s.Denied, s.Waiting = asked(1), asked(2), asked(3)
	says(s.Given, "approve")
	says(s.Denied, "deny")
	s.Counted, s.Token = s.grant()
	s.call(s.Counted, s.Token, `"uses_left":2`)
	s.Revoked, _ = s.grant()
	s.ask("warden", "/v1/capabilities/"+s.Revoked+"/revoke", `{"reason":"enough"}`, 200, `"revoked"`)
	s.stop()
	crashed := crashedlog.In(s.T, s.path("data"), 2, format.KindApproval, format.KindCapability)
	must(s.T, os.RemoveAll(s.path("data")))
	must(s.T, os.CopyFS(s.path("data"), os.DirFS(crashed)))
}

// written has commands write the rest.
func (s *story) written() {
	must(s.T, os.Mkdir(s.path("out"), 0o700))
	s.run("log export --data @data --proofs -o @out/export.ndjson")
	s.run("log export --data @data --format csv -o @out/export.csv")
	s.run("log merge @out/export.ndjson -o @out/merged.ndjson")
	s.run("backup --data @data -o @out/backup")
	for name, command := range map[string]string{"checkpoint": "log checkpoint --data @data", "proof": "log prove --data @data " + s.First, "log.pub": "log key --data @data"} {
		writeFile(s.T, s.path("out/"+name), s.run(command))
	}
	s.run("log sample --data @data --seed 1 --n 3 -o @out/sample")
	must(s.T, os.Remove(s.path("out/sample/README.md"))) // a page for people
	s.run("mcp lock --config @gateway.yaml --accept")
	text, err := json.Marshal(s, json.Deterministic(true))
	must(s.T, err)
	writeFile(s.T, s.path("story.json"), string(text)+"\n")
	writeFile(s.T, s.path("formats"), formats(s.T))
}

// open has the commands and the server of now open a fixture of then, and go on with it.
func (s *story) open() {
	s.says("check @bundle", "loads: 0 warnings")
	s.says("check @agents", "loads: 0 warnings")
	s.says("test @bundle", "ok ")
	s.says("test @agents", "ok ")
	s.run("config check @config.yaml")
	s.run("mcp-gateway config check @gateway.yaml")
	s.says("mcp schema --config @gateway.yaml --lock @tools.lock.json", "read")
	s.says("keys list --data @data", "pep", "gone", "late", "mia", "warden", "auditor")
	s.says("log verify --key @out/log.pub --checkpoint @out/checkpoint @data", "verified", "2 records are in the journal only")
	s.says("log verify --key @out/log.pub @out/export.ndjson", "verified")
	s.says("log verify --key @out/log.pub @out/merged.ndjson", "verified")
	s.says("log approvals --export @out/merged.ndjson", s.Waiting)
	s.says("log verify --key @out/log.pub @out/proof", "verified")
	s.says("log verify --key @out/log.pub @out/sample/records.ndjson", "verified")
	s.says("log show --data @data "+s.First, "alice", "plan")
	s.run("restore @out/backup --data @restored --policies @restored-agents --key @out/log.pub")
	s.says("log verify --key @out/log.pub @restored/restored", "verified")
	s.says("check @restored-agents", "loads: 0 warnings")
	s.csv()
	s.serve(time.Minute, formatsIssuer)
	s.decides()
	s.approves()
	s.grants()
	s.records()
	s.stop()
	s.says("log verify --key @out/log.pub --checkpoint @out/checkpoint @data", "verified")
	s.says("log report --data @data", "crash")
}

// csv has each column of before, for those who read it by name.
func (s *story) csv() {
	s.Helper()
	before, err := os.ReadFile(s.path("out/export.csv"))
	must(s.T, err)
	columns := func(text string) []string {
		head, _, _ := strings.Cut(text, "\n")
		return strings.Split(strings.TrimSpace(head), ",")
	}
	now := columns(s.run("log export --data @data --format csv"))
	for _, column := range columns(string(before)) {
		if !slices.Contains(now, column) {
			s.Errorf("an export has no column %s any more", column)
		}
	}
}

func (s *story) decides() {
	s.ask("pep", "/access/v1/evaluation", aliceReads, 200, `"decision":true`)
	s.ask("new", "/access/v1/evaluation", aliceReads, 200, `"decision":true`)
	for _, key := range []string{"gone", "late", "renewed", "brief"} {
		s.ask(key, "/access/v1/evaluation", aliceReads, 401, "")
	}
}

func (s *story) approves() {
	s.says("approvals list --server "+s.server.URL+" --credential @keys/mia.key", s.Waiting)
	for id, is := range map[string]string{s.Given: "approved", s.Denied: "denied", s.Waiting: "pending"} {
		s.ask("mia", "/v1/approvals/"+id, "", 200, `"status":"`+is+`"`)
	}
	s.ask("pep", "/access/v1/requests/"+s.Task, "", 200, s.Task)
	kept, err := os.ReadFile(s.path("task.json"))
	must(s.T, err)
	must(s.T, json.Unmarshal(kept, new(approvals.Task)))
	use := func(n int, part string) {
		s.ask("pep", "/v1/authorize", fmt.Sprintf(botCalls, n, `,"justification":"approved"`), 200, part)
	}
	use(1, `{"allow":true}`)
	use(1, `"pending"`) // it was for one use
	use(2, `"pending"`) // it was denied: people are asked anew
	s.ask("mia", "/v1/approvals/"+s.Waiting+"/decision", `{"decision":"approve","reason":"as agreed"}`, 200, "")
	use(3, `{"allow":true}`)
}

func (s *story) grants() {
	s.call(s.Counted, s.Token, `"uses_left":1`)
	s.call(s.Counted, s.Token, `"uses_left":0`)
	s.call(s.Counted, s.Token, `"allow":false`)
	s.ask("warden", "/v1/capabilities/"+s.Revoked, "", 200, `"state":"revoked"`)
	writeFile(s.T, s.path("jwks.json"), s.ask("pep", "/.well-known/jwks.json", "", 200, "keys").Body)
	s.says("capabilities verify --jwks @jwks.json --issuer "+formatsIssuer+" --now "+s.Made.Format(time.RFC3339)+" "+s.Token, "good: capability "+s.Counted)
}

func (s *story) records() {
	for id, part := range map[string]string{s.First: "alice", s.Item: "write", crashedlog.ID(1): crashedlog.Secret(1), crashedlog.ID(2): crashedlog.Secret(2)} {
		s.ask("auditor", "/v1/decisions/"+id, "", 200, part)
	}
	at := " --server " + s.server.URL + " --credential @keys/auditor.key "
	s.says("log tail --json --last 1000 --event log_opened_after_crash"+at, `"replayed":2`)
	s.says("log consistency"+at+"@out/checkpoint", "consistency")
}

// TestFormats has this version open what each version before it, and itself, has written. -update-formats makes the fixture
// of the version that is not released yet.
func TestFormats(t *testing.T) {
	t.Parallel()
	if *updateFormats {
		s := &story{T: t, dir: t.TempDir()}
		s.tell()
		to := filepath.Join(formatsDir, unreleased(t))
		must(t, os.RemoveAll(to))
		pack(t, s.dir, to)
	}
	for _, version := range versions(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			opened(t, version).open()
		})
	}
}

// opened is a copy of a fixture.
func opened(t *testing.T, version string) *story {
	t.Helper()
	s := &story{T: t, dir: t.TempDir()}
	unpack(t, filepath.Join(formatsDir, version), s.dir)
	text, err := os.ReadFile(s.path("story.json"))
	must(t, err)
	must(t, json.Unmarshal(text, s))
	return s
}

// versions that have a fixture, the oldest first.
func versions(t *testing.T) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(formatsDir)
	must(t, err)
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	slices.SortFunc(all, func(a, b string) int { return semver.Compare("v"+a, "v"+b) })
	return all
}

// unreleased is the version that the list of changes begins with. A version that is released has its fixture for good.
func unreleased(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("CHANGES.md")
	must(t, err)
	found := regexp.MustCompile(`(?m)^## (.+)$`).FindStringSubmatch(string(text))
	version, ok := strings.CutSuffix(found[1], " (unreleased)")
	if !ok {
		t.Fatalf("%s is released, and its formats stay: begin the next version in CHANGES.md", found[1])
	}
	return version
}

// formats are the numbers of all formats that have one, as this program writes them.
func formats(t *testing.T) string {
	t.Helper()
	data := t.TempDir()
	s := &story{T: t, dir: data}
	s.run("keys add --name a --data @data")
	keys, err := os.ReadFile(s.path("data/" + auth.KeyFile))
	must(t, err)
	number := regexp.MustCompile(`"(?:format|version)": ?(\d+)`)
	return fmt.Sprintf("segments %d and %d\njournal %d\napprovals %d\ncapabilities %d\nexport %d\nmerge %d\nbackup %d\nAPI keys %s\nlock of tools %s\n",
		format.Version, format.VersionJournaled, journal.FormatVersion, approval.FormatVersion, capabilities.FormatVersion,
		format.ExportVersion, format.MergeVersion, backup.Format, number.FindSubmatch(keys)[1], number.FindSubmatch(lock.File{}.Text())[1])
}

// TestFormatNumbers: a format with another number has a fixture, made by the version that writes it.
func TestFormatNumbers(t *testing.T) {
	t.Parallel()
	all := versions(t)
	newest := all[len(all)-1]
	was, err := os.ReadFile(filepath.Join(formatsDir, newest, "formats"))
	must(t, err)
	if now := formats(t); string(was) != now {
		t.Errorf("formats have changed since %s:\n%s\nnow:\n%s\nsee CHANGES.md, \"Add an entry\": each change has an upgrade, a fixture by -update-formats, and a line", newest, was, now)
	}
}

// packed: these files are stored packed, because most of them is empty.
func packed(name string, content []byte) bool {
	return len(content) > 4<<10 && !utf8.Valid(content) || strings.HasPrefix(filepath.Base(name), "journal.")
}

func pack(t *testing.T, from, to string) {
	t.Helper()
	each(t, from, func(name string, content []byte) {
		if packed(name, content) {
			var small bytes.Buffer
			w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
			must(t, err)
			_, err = w.Write(content)
			must(t, errors.Join(err, w.Close()))
			name, content = name+".gz", small.Bytes()
		}
		writeFile(t, filepath.Join(to, name), string(content))
	})
}

func unpack(t *testing.T, from, to string) {
	t.Helper()
	each(t, from, func(name string, content []byte) {
		if small, ok := strings.CutSuffix(name, ".gz"); ok {
			r, err := gzip.NewReader(bytes.NewReader(content))
			must(t, err)
			content, err = io.ReadAll(r)
			must(t, err)
			name = small
		}
		writeFile(t, filepath.Join(to, name), string(content))
	})
}

// each does something with each file of a directory.
func each(t *testing.T, dir string, do func(name string, content []byte)) {
	t.Helper()
	must(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		do(name, content)
		return err
	}))
}

// inBolt changes a value of a file of bbolt.
func (s *story) inBolt(file, bucket, key string, change func(old []byte) []byte) {
	s.Helper()
	db, err := bbolt.Open(s.path(file), 0o600, nil)
	must(s.T, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		return b.Put([]byte(key), change(bytes.Clone(b.Get([]byte(key)))))
	})
	must(s.T, errors.Join(err, db.Close()))
}

// newerLedger gives a file of approvals or capabilities the next format, as the service with its key would.
func (s *story) newerLedger(name string) {
	s.Helper()
	key, err := os.ReadFile(s.path("data/approvals.key"))
	must(s.T, err)
	s.inBolt("data/"+name+".db", bolt.BucketValues, ledger.KeyFormat, func(old []byte) []byte {
		const revision = 8
		text := regexp.MustCompile(`"format":\d+`).ReplaceAll(old[revision+sha256.Size:], []byte(`"format":99`))
		mac := hmac.New(sha256.New, ledger.DeriveKey(key, "policy-service "+name+" file"))
		_, _ = fmt.Fprintf(mac, "\x00\x01%s%s", ledger.KeyFormat, text)
		return slices.Concat(old[:revision], mac.Sum(nil), text)
	})
}

// newerJournal gives the files of the journal the next format.
func (s *story) newerJournal() {
	s.Helper()
	const block, checked = 4096, 80 // see journal/format.go
	for _, name := range []string{"data/log/journal.0", "data/log/journal.1"} {
		content, err := os.ReadFile(s.path(name))
		must(s.T, err)
		for _, header := range [][]byte{content[:block], content[block : 2*block]} {
			binary.BigEndian.PutUint32(header[8:], 99)
			binary.BigEndian.PutUint32(header[checked:], crc32.Checksum(header[:checked], crc32.MakeTable(crc32.Castagnoli)))
		}
		writeFile(s.T, s.path(name), string(content))
	}
}

func (s *story) edit(name, old, new string) {
	s.Helper()
	text, err := os.ReadFile(s.path(name))
	must(s.T, err)
	if !strings.Contains(string(text), old) {
		s.Fatalf("%s has no %s", name, old)
	}
	writeFile(s.T, s.path(name), strings.Replace(string(text), old, new, 1))
}

// TestNewerFormats: after a rollback, what the newer version wrote is refused as such, and not altered. A server without
// capabilities starts, and answers nobody who shows one.
func TestNewerFormats(t *testing.T) {
	t.Parallel()
	const serve = "serve --listen 127.0.0.1:0 --policies @agents --data @data"
	segment := func(s *story) {
		s.inBolt("data/log/00000004.db", format.BucketMeta, format.MetaFormat, func([]byte) []byte { return []byte("99") })
	}
	keys := func(s *story) {
		s.edit("data/api-keys.json", `{"format":1,`, `{"format":99,"new":true,`)
	}
	all := versions(t)
	for name, c := range map[string]struct {
		change    func(*story)
		run       string
		code      cli.ExitCode
		says      string
		unchanged string
	}{
		"segment":      {segment, serve, 2, `its format is "99", and this version reads 1 and 2: a newer version made it`, "data/log/00000004.db"},
		"journal":      {(*story).newerJournal, serve, 2, "its format is 99, and this version reads 2: a newer version made it", "data/log/journal.0"},
		"approvals":    {func(s *story) { s.newerLedger("approvals") }, serve, 2, "its format is 99, and this version reads 5: a newer version made it", "data/approvals.db"},
		"capabilities": {func(s *story) { s.newerLedger("capabilities") }, "doctor" + serve[len("serve"):], 1, "its format is 99, and this version reads 1: a newer version made it", "data/capabilities.db"},
		"API keys":     {keys, serve, 2, "its format is 99, and this version reads 1: a newer version made it", "data/api-keys.json"},
		"verify":       {segment, "log verify @data", 8, `its format is "99", and this verifies formats 1 and 2: a newer version made it`, "data/log/00000004.db"},
		"export": {
			func(s *story) { s.edit("out/export.ndjson", `"format":1`, `"format":99`) }, "log verify @out/export.ndjson", 8,
			"the export is of format 99, and this verifies format 1: a newer version made it", "out/export.ndjson",
		},
		"lock": {
			func(s *story) { s.edit("tools.lock.json", `"version": 1`, `"version": 99`) }, "mcp lock --config @gateway.yaml --diff", 2,
			"the version of the file is not 1, which is what this release reads; use the release of policy-service that wrote it, or a newer one", "tools.lock.json",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := opened(t, all[len(all)-1])
			c.change(s)
			before := fileSum(t, s.path(c.unchanged))
			ctx, cancel := context.WithTimeout(t.Context(), patience) // if it is not refused, a server starts
			defer cancel()
			args := strings.Fields(strings.ReplaceAll(c.run, "@", s.dir+"/"))
			out, err := exec.CommandContext(ctx, "policy-service", args...).CombinedOutput()
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != int(c.code) || !strings.Contains(string(out), c.says) ||
				strings.Contains(string(out), "; another process") || strings.Contains(string(out), "disk may be full") {
				t.Errorf("%v\n%s\nwant exit %d and %s", err, out, c.code, c.says)
			}
			if fileSum(t, s.path(c.unchanged)) != before {
				t.Errorf("%s is not as the newer version left it", c.unchanged)
			}
		})
	}
}
