package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/crashedlog"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/backup"
	"policy-service/pdp/pdptest/inside/decisionlog"
	"policy-service/pdp/pdptest/inside/export"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/inside/segment"
)

// TestBackupUnderLoad has clients ask all the time. A backup is made meanwhile, the server is killed, and the backup is
// restored elsewhere: the log there verifies, and has all that was answered before the backup began. Then a server goes on
// from there.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	c := crash{data: t.TempDir(), answered: map[string]bool{}}
	dir := t.TempDir()
	keys, err := auth.OpenKeys(c.data)
	must(t, err)
	asks, err := keys.Add(auth.KeySpec{Name: "pep"})
	must(t, err)
	fetches, err := keys.Add(auth.KeySpec{Name: "backup", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Backup}}})
	must(t, err)
	credential, file := filepath.Join(dir, "backup.key"), filepath.Join(dir, "backup")
	writeFile(t, credential, fetches)

	server, addr := c.serve(t)
	client := &http.Client{Timeout: patience, Transport: bearer{asks, &http.Transport{MaxIdleConnsPerHost: crashClients}}}
	defer client.CloseIdleConnections()
	var clients sync.WaitGroup
	some, more := make(chan struct{}), make(chan struct{})
	for n := range crashClients {
		clients.Go(func() {
			for {
				ids := ask(client, addr, n%8 == 0)
				if ids == nil {
					return // the server is gone
				}
				switch c.add(ids) {
				case 500:
					close(some)
				case 1000:
					close(more)
				}
			}
		})
	}
	within(t, some)
	before := c.ids()
	runCommand(t, "backup", "--server", "http://"+addr, "--credential", credential, "-o", file)
	within(t, more) // and decisions go on
	_ = server.Process.Kill()
	_ = server.Wait()
	clients.Wait()

	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the backup has mode %v", info.Mode())
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	said := runCommand(t, "restore", file, "--data", elsewhere, "--policies", filepath.Join(dir, "policies"), "--key", filepath.Join(c.data, "log.pub"))
	if !strings.Contains(said, "a new decision log begins") {
		t.Errorf("restore says %s", said)
	}
	old := filepath.Join(elsewhere, "restored")
	missing := maps.Clone(before)
	public, err := os.ReadFile(filepath.Join(c.data, "log.pub"))
	must(t, err)
	if report := verify.Directory(old, verify.Options{Key: string(public)}); !report.Verified() || report.Unsigned > 0 {
		t.Errorf("%v: %v, %d unsigned", report.Code, report.Problem, report.Unsigned)
	}
	_, err = export.Tail(t.Context(), old, export.TailOptions{After: -1}, func(_ int64, line []byte) error {
		l, err := record.Parse(line)
		delete(missing, l.ID)
		return err
	})
	must(t, err)
	if len(missing) > 0 || len(before) == 0 {
		t.Errorf("of %d answers from before the backup, it has not %v", len(before), missing)
	}

	next, addr := serveIn(t, "--policies", filepath.Join(dir, "policies"), "--data", elsewhere)
	if ask(client, addr, false) == nil {
		t.Error("the restored server gives no answer")
	}
	stop(t, next)
	keys2, err := segment.VerifierKeys(elsewhere)
	must(t, err)
	if strings.Contains(string(public), keys2[0]) {
		t.Error("the log goes on with the old key")
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "restored.json")); !os.IsNotExist(err) {
		t.Errorf("the restore is still to be recorded: %v", err)
	}
}

// add notes answers, and returns the number of all requests that were answered.
func (c *crash) add(ids []string) int {
	left := 0
	c.note(ids, &left)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	return c.requests
}

// ids are those of all that was answered.
func (c *crash) ids() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.answered)
}

// bearer sends a key with each request.
type bearer struct {
	key string
	*http.Transport
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.Transport.RoundTrip(r)
}

// within waits until a channel is closed.
func within(t *testing.T, done <-chan struct{}) {
	t.Helper()
	err := untilDone(t.Context(), "the clients are answered", func() (bool, error) {
		select {
		case <-done:
			return true, nil
		default:
			return false, nil
		}
	})
	must(t, err)
}

// runCommand runs a command that exits with 0, and returns all that it prints.
func runCommand(t *testing.T, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "policy-service", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("policy-service %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return string(said)
}

// archive makes a backup of the files of a data directory, whatever they are worth.
func archive(t *testing.T, data string, head backup.Head, end backup.End) (file string) {
	t.Helper()
	var files []backup.Source
	must(t, fs.WalkDir(os.DirFS(data), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(name, "lock") || name == format.CheckpointFile || path.Dir(name) == "log" && strings.HasSuffix(name, ".index") {
			return err
		}
		f, err := os.Open(filepath.Join(data, name))
		files = append(files, backup.Source{Name: name, File: f})
		return err
	}))
	file = filepath.Join(t.TempDir(), "archive")
	to, err := os.Create(file)
	must(t, err)
	must(t, backup.Write(to, head, files, end, time.Now))
	for _, f := range files {
		_ = f.Close()
	}
	must(t, to.Close())
	return file
}

// What a crash left in the journal alone would be lost to each reader of a restored log. So there is no backup of it, and it
// came after what such a backup has, whatever its operator says.
func TestBackupOfACrash(t *testing.T) {
	t.Parallel()
	data, dir := crashedlog.Make(t, 3), t.TempDir()
	file := filepath.Join(dir, "backup")
	says(t, 2, "backup --data "+data+" -o "+file, "a crash left records in its journal alone; start the server once, and stop it")
	reader, err := segment.OpenReader(data)
	must(t, err)
	last, err := reader.LastCheckpoint()
	must(t, err)
	must(t, reader.Close())
	checkpoint := filepath.Join(dir, "checkpoint")
	writeFile(t, checkpoint, string(last.Note))
	by := archive(t, data, backup.Head{Keys: true}, backup.End{})
	says(t, 2, "restore "+by+" --data "+dir+"/to --nothing-came-after 0", "does not end with the stop of its server")
	says(t, 0, "restore "+by+" --data "+dir+"/to --checkpoint "+checkpoint, "a new decision log begins", "not restored: 3 records that a crash left in the journal alone")
	startAndStop(t, data)
	says(t, 0, "backup --data "+data+" -o "+file, "backed up")
}

// Until a restore is on record, a backup would be without it.
func TestBackupBeforeTheRestoreIsRecorded(t *testing.T) {
	t.Parallel()
	first, dir := t.TempDir(), t.TempDir()
	startAndStop(t, first)
	says(t, 0, "backup --data "+first+" -o "+dir+"/backup")
	says(t, 0, "restore "+dir+"/backup --data "+dir+"/to")
	text, err := os.ReadFile(dir + "/to/restored.json")
	must(t, err)
	startAndStop(t, dir+"/to")
	writeFile(t, dir+"/to/restored.json", string(text)) // as if a crash came before the record
	says(t, 2, "backup --data "+dir+"/to -o "+dir+"/again", "what was restored here is not on record yet")
	startAndStop(t, dir+"/to")
	says(t, 0, "backup --data "+dir+"/to -o "+dir+"/again", "backed up")
}

// The bundle that was in force is the one that the signed records name, and not the one that an altered backup names.
func TestRestoredBundleIsOnRecord(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	startAndStop(t, data)
	bundles, err := segment.OpenBundles(data)
	must(t, err)
	put, err := bundles.Put(map[string][]byte{"all.cedar": []byte(`@id("all") permit (principal, action, resource);`)})
	must(t, err)
	by := archive(t, data, backup.Head{Online: true}, backup.End{Bundle: put})
	says(t, 0, "restore "+by+" --data "+dir+"/to --policies "+dir+"/bundle")
	if _, err := os.Stat(dir + "/bundle/all.cedar"); !os.IsNotExist(err) {
		t.Errorf("the bundle is another than the one on record: %v", err)
	}
}

// A server that was not stopped has answered more, whatever its operator says. A checkpoint says nothing of what came after.
// And a key that was put into the file is named, since the log does not know it.
func TestRestoreGoesOnOnlyAfterAStop(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	log, err := decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	must(t, log.Append(t.Context(), []record.Entry{{Kind: format.KindAdmin, Event: format.EventStart}}))
	must(t, log.Close())
	says(t, 0, "keys add --data "+data+" --name mallory")
	reader, err := segment.OpenReader(data)
	must(t, err)
	last, err := reader.LastCheckpoint()
	must(t, errors.Join(err, reader.Close()))
	writeFile(t, dir+"/checkpoint", string(last.Note))
	by := archive(t, data, backup.Head{Keys: true}, backup.End{})
	says(t, 2, "restore "+by+" --data "+dir+"/to --nothing-came-after 1", "does not end with the stop of its server")
	says(t, 0, "restore "+by+" --data "+dir+"/to --checkpoint "+dir+"/checkpoint",
		"a new decision log begins", "in force, and not on record: the API keys mallory; ")
	must(t, os.Remove(data+"/api-keys.json"))
	must(t, os.Remove(data+"/api-keys.lock"))
	must(t, os.Remove(data+"/api-keys.revoked"))
	log, err = decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	must(t, log.Append(t.Context(), []record.Entry{{Kind: format.KindAdmin, Event: format.EventStop}}))
	must(t, log.Close())
	reader, err = segment.OpenReader(data)
	must(t, err)
	last, err = reader.LastCheckpoint()
	must(t, errors.Join(err, reader.Close()))
	writeFile(t, dir+"/checkpoint", string(last.Note))
	by = archive(t, data, backup.Head{Keys: true}, backup.End{})
	says(t, 0, "restore "+by+" --data "+dir+"/begun --checkpoint "+dir+"/checkpoint", "a new decision log begins")
	says(t, 2, "restore "+by+" --data "+dir+"/on --nothing-came-after 1", "0 would count again, and --nothing-came-after is 1", "nothing was restored")
	says(t, 0, "restore "+by+" --data "+dir+"/on --nothing-came-after 0", "goes on as it was")
}

// TestRestoreStory types what an operator types: after a backup of a stop the service goes on, and an approval of one use is
// used, a capability is revoked, and so is a key. A restore brings none of them back: it names all three before it goes on, and
// a newer checkpoint refuses even the right number.
func TestRestoreStory(t *testing.T) {
	needProgram(t, "curl")
	parallelPage(t)
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	m.open(t, built(t))
	writeFile(t, filepath.Join(m.dir, "pdp.yaml"), fmt.Sprintf("policies: shop\nlisten: %[1]s:8341\npublic_url: http://%[1]s:8341\ncapabilities: {clock_skew: 1s}\n", m.address))
	must(t, os.Mkdir(filepath.Join(m.dir, "shop"), 0o700))
	writeFile(t, filepath.Join(m.dir, "shop", "obligations.yaml"), "one: {type: approval_required, properties: {template: owner}}\n")
	writeFile(t, filepath.Join(m.dir, "shop", "a.cedar"), `
@id("one") @obligation("one") permit (principal is agent, action == Action::"tool.invoke", resource == tool::"mail:send");
@id("people") permit (principal is user, action == Action::"approval.decide", resource is Approval);
@id("granted") permit (principal is agent, action == Action::"capability.grant", resource == tool::"db:restart");
`)
	writeFile(t, filepath.Join(m.dir, "ask"), `{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"mail:send"}}`)
	const serve, stopped, restore = "policy-service serve --config pdp.yaml --data one >>one.log 2>&1 &", "kill $!; wait $!", "policy-service restore one.backup --data "
	ask := func(key string) string {
		return "curl -sS -H 'Content-Type: application/json' -H \"Authorization: Bearer $(cat " + key + ".key)\" http://127.0.0.1:8341/v1/authorize -d @ask"
	}
	use := strings.Replace(ask("pep"), "@ask", `"$(sed "s/}$/,\"context\":{\"approval_id\":\"$(cat id)\"}}/" ask)"`, 1)
	type step struct{ command, shows string }
	typed := func(steps ...step) {
		t.Helper()
		for _, s := range steps {
			shown, alive := "", false
			err := untilDone(t.Context(), s.command, func() (bool, error) {
				if shown, alive = m.enter(t, s.command); !alive {
					return false, errors.New("it ended the shell")
				}
				if strings.Contains(shown, s.shows) {
					return true, nil
				}
				if !strings.HasPrefix(s.command, "curl") { // what a server notices by itself
					t.Errorf("$ %s\n%s\nwithout %q", s.command, shown, s.shows)
					return true, nil
				}
				return false, nil
			})
			if err != nil {
				t.Fatalf("%v; it shows\n%s", err, shown)
			}
		}
	}
	typed(
		step{"for name in pep old; do policy-service keys add --data one --name $name --permission decide --permission request --permission capability >$name.key; done", ""},
		step{`policy-service keys add --data one --name mia --principal 'user::"mia"' --permission approve >mia.key`, ""},
		step{"policy-service keys add --data one --name warden --permission capability.admin >warden.key", ""},
		step{serve, ""},
		step{ask("pep") + " >asked; cat asked", `"status":"pending"`},
		step{`sed 's/.*"approval":{"id":"\([^"]*\)".*/\1/' asked >id; policy-service approvals approve --server http://127.0.0.1:8341 --credential mia.key --reason agreed --version 1 $(cat id)`, "is approved"},
		step{"policy-service capabilities key -o bot.pem >bot.jwk; policy-service capabilities request --server http://127.0.0.1:8341 --credential pep.key --key bot.pem --holder agent:bot --audience db --tool restart --max-uses 3 --duration 8h 2>&1 >bot.token | tee granted", "capability cap_"},
		step{stopped + "; policy-service backup --data one -o one.backup && policy-service log checkpoint --data one >at.checkpoint", "backed up"},

		step{serve, ""},
		step{use, `{"allow":true}`},
		step{"policy-service capabilities revoke $(cut -d' ' -f2 granted) --reason stolen --server http://127.0.0.1:8341 --credential warden.key", "revoked"},
		step{"policy-service keys revoke --data one old", ""},
		step{ask("old"), `"status":401`},
		step{stopped + "; policy-service log checkpoint --data one >newest.checkpoint; mv one before", ""},

		step{restore + `one --checkpoint at.checkpoint --nothing-came-after 0; echo "exit $?"; ls one`, "6 would count again, and --nothing-came-after is 0"},
		step{restore + `one --nothing-came-after 0 2>&1 | grep -c "approval requests: $(cat id); capabilities: $(cut -d' ' -f2 granted); API keys: .*old"`, "1"},
		step{restore + `one --checkpoint newest.checkpoint --nothing-came-after 6; echo "exit $?"`, "truncated"},
		step{restore + "one --checkpoint at.checkpoint", "have ended, because they may have been used after the backup"},
		step{serve, ""},
		step{use, `"obligations":{"approval_required":true}`},
		step{"policy-service capabilities show $(cut -d' ' -f2 granted) --server http://127.0.0.1:8341 --credential pep.key", "not"},
		step{stopped + "; policy-service log verify one/restored --checkpoint at.checkpoint | head -1", "verified one/restored"},
	)
}
