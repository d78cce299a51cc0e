package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/backup"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/witnesstest"
)

// restorable is a stopped server with a backup of its data directory. One approval of one use is open, one capability is live.
type restorable struct {
	*wallet
	backup   []byte
	approval string
	granted  granted
}

func openRestorable(t *testing.T, options ...pdptest.Option) *restorable {
	t.Helper()
	bundle := capabilityFiles()
	bundle["a.cedar"] += `@id("asked") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource == tool::"push");`
	r := &restorable{wallet: openWalletOn(t, pdptest.Bundle(bundle), options...)}
	r.approval = r.approved()
	r.granted = r.asksFor(http.StatusCreated, uses(3), "read")
	r.Advance(time.Minute) // no nonce is needed then
	r.is("allow", r.call(r.granted, "b:read"))
	must(t, r.Stop(t.Context()))
	r.backup = backedUp(t, r.data)
	return r
}

func backedUp(t *testing.T, data string) []byte {
	t.Helper()
	var made bytes.Buffer
	must(t, server.BackUpStopped(data, true, &made))
	return made.Bytes()
}

// restored makes a directory of a backup. A negative number is none.
func restored(t *testing.T, backup []byte, number int, checkpoint string) (data string, done server.Restored, err error) {
	t.Helper()
	r := server.Restoring{Data: filepath.Join(t.TempDir(), "data"), Verify: verify.Options{Checkpoint: checkpoint}}
	if number >= 0 {
		r.NothingCameAfter = &number
	}
	done, err = r.From(t.Context(), bytes.NewReader(backup))
	return r.Data, done, err
}

// numberOf is the number that a refusal asks for.
func numberOf(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		t.Fatal("it is restored")
	}
	found := regexp.MustCompile(`give --nothing-came-after (\d+),`).FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(found[1])
	must(t, err)
	return n
}

func newestCheckpoint(t *testing.T, data string) segment.Checkpoint {
	t.Helper()
	reader, err := segment.OpenReader(data)
	must(t, err)
	last, err := reader.LastCheckpoint()
	must(t, err)
	must(t, reader.Close())
	return last
}

// goesOn starts a server on a restored directory.
func (r *restorable) goesOn(data string) {
	r.t.Helper()
	r.data = data
	r.open(r.source, r.options...)
}

// refuses starts a server that is to refuse its directory.
func refuses(t *testing.T, source pdp.Source, wants string, options ...pdptest.Option) {
	t.Helper()
	config := server.Config{Program: server.Program{Source: source}, Listen: "127.0.0.1:0"}
	for _, option := range options {
		option(&config)
	}
	s, err := server.New(config)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err = s.Start(ctx); err == nil {
		must(t, s.Stop(context.Background()))
	}
	if err == nil || !strings.Contains(err.Error(), wants) {
		t.Errorf("the start says %v, and not %q", err, wants)
	}
}

// A backup of a stop says nothing of what came after it: here a use of an approval, a use and the revocation of a capability,
// and the revocation of an API key. Unless the operator says of as many items that nothing came after, what was open ends.
func TestRestoreGoesOnByItsNumber(t *testing.T) {
	t.Parallel()
	r := openRestorable(t)
	at := string(newestCheckpoint(t, r.data).Note)
	r.open(r.source, r.options...)
	r.counter.asks("pep", tool("push", again)).passes(t, "the only use")
	r.reply("warden", "POST", "/v1/capabilities/"+r.granted.ID+"/revoke", `{"reason":"enough"}`).is(t, "revoke", 200)
	apiKeys, err := keys.Open(r.data)
	must(t, err)
	must(t, apiKeys.Revoke("other-pep"))
	r.until("other-pep", func(status int) bool { return status == http.StatusUnauthorized })
	must(t, r.Stop(t.Context()))
	newest := string(newestCheckpoint(t, r.data).Note)
	after := backedUp(t, r.data)

	data, _, err := restored(t, r.backup, 0, at)
	n := numberOf(t, err)
	has(t, err.Error(), fmt.Sprintf("%d would count again, and --nothing-came-after is 0", n),
		"approval requests: "+r.approval+"; ", "capabilities: "+r.granted.ID+"; ", "API keys: ", " and "+strconv.Itoa(n-22)+" more; ")
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("a refused restore leaves %s: %v", data, err)
	}
	for _, other := range []int{1, n - 1, n + 1} {
		_, _, err := restored(t, r.backup, other, at)
		if numberOf(t, err) != n {
			t.Errorf("%d: %v", other, err)
		}
	}
	if _, _, err := restored(t, r.backup, n, newest); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("an older backup than the checkpoint: %v", err)
	}
	if _, _, err := restored(t, after, 0, at); numberOf(t, err) != n-3 {
		t.Errorf("what was used up and revoked counts: %v, and before it was %d", err, n)
	}

	for _, checkpoint := range []string{"", at} { // it proves nothing of what came after
		data, done, err := restored(t, r.backup, -1, checkpoint)
		must(t, err)
		if done.GoesOn || len(done.Approvals) != 1 || len(done.Capabilities) != 1 {
			t.Errorf("got %+v", done)
		}
		r.goesOn(data)
		r.counter.asks("pep", tool("push", again)).isStopped(t, "restored without the number")
		r.Advance(time.Minute)
		if got, _ := r.shoot(r.call(r.granted, "b:read")); got == "allow" {
			t.Error("a revoked capability is good after a restore without the number")
		}
		must(t, r.Stop(t.Context()))
	}

	data, done, err := restored(t, r.backup, n, at)
	must(t, err)
	if !done.GoesOn {
		t.Errorf("got %+v", done)
	}
	if err := server.BackUpStopped(data, false, io.Discard); err == nil {
		t.Error("a backup loses that a restore is not on record yet")
	}
	r.goesOn(data)
	r.counter.asks("pep", tool("push", again)).passes(t, "as it was")
	r.counter.asks("pep", tool("push", again)).isStopped(t, "used")
	r.Advance(time.Minute)
	r.is("allow", r.call(r.granted, "b:read"))
	_, text := r.do("auditor", "GET", "/v1/log/export", "")
	has(t, text, `"event":"restored"`, fmt.Sprintf(`"nothing_came_after":%d`, n))
	must(t, r.Stop(t.Context()))
	if report := verify.Directory(data, verify.Options{Checkpoint: at}); !report.Verified() {
		t.Errorf("the log that goes on is %s: %v", report.Code, report.Problem)
	}
}

// archived is a backup of files, whatever they are worth.
func archived(t *testing.T, all files) []byte {
	t.Helper()
	dir := t.TempDir()
	var sources []backup.Source
	for _, name := range sortedNames(all) {
		if strings.HasSuffix(name, "lock") || strings.HasSuffix(name, ".index") {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, all[name], 0o600))
		f, err := os.Open(path)
		must(t, err)
		defer func() { _ = f.Close() }()
		sources = append(sources, backup.Source{Name: name, File: f})
	}
	var made bytes.Buffer
	must(t, backup.Write(&made, backup.Head{Keys: true}, sources, backup.End{}, time.Now))
	return made.Bytes()
}

// A log that does not end with the stop of its server went on, whatever the number is; and a log that is not there, or not
// what was signed, is refused with any number and with none.
func TestRestoreGoesOnFromAStop(t *testing.T) {
	t.Parallel()
	r := openRestorable(t)
	_, _, err := restored(t, r.backup, 0, "")
	n := numberOf(t, err)
	r.open(r.source, r.options...)
	r.welcome("copier", "", auth.Backup)
	online := r.reply("copier", "GET", "/v1/backup", "")
	online.is(t, "backup", http.StatusOK)
	for _, number := range []int{0, n, n + 1} {
		if _, _, err := restored(t, []byte(online.text), number, ""); err == nil || !strings.Contains(err.Error(), "does not end with the stop of its server") {
			t.Errorf("%d: got %v", number, err)
		}
	}
	must(t, r.Stop(t.Context()))
	segments, err := filepath.Glob(filepath.Join(r.data, "log", "*.db"))
	must(t, err)
	for name, harm := range map[string]func(files) files{
		"without a segment": func(all files) files {
			maps.DeleteFunc(all, func(name string, _ []byte) bool { return isSegment(name) })
			return all
		},
		"altered": func(all files) files {
			name, _ := filepath.Rel(r.data, segments[0])
			all[name] = bytes.Replace(all[name], []byte(`"event":"filed"`), []byte(`"event":"fi1ed"`), 1)
			return all
		},
	} {
		for _, number := range []int{-1, 0, n} {
			all, err := readFiles(r.data)
			must(t, err)
			if data, done, err := restored(t, archived(t, harm(all)), number, ""); err == nil {
				t.Errorf("%s, %d: it is restored to %s: %+v", name, number, data, done.Report)
			}
		}
	}
}

// Witnesses know what came after. Where the log had some, a restored one goes on only once each of them has cosigned it as it
// is, whatever their quorum is.
func TestRestoreAsksWitnesses(t *testing.T) {
	t.Parallel()
	one, two := witnesstest.New(t, "w1"), witnesstest.New(t, "w2")
	r := openRestorable(t)
	keys, err := segment.VerifierKeys(r.data)
	must(t, err)
	for _, w := range []*witnesstest.Witness{one, two} {
		w.Add(t, keys[0])
		w.At(r.Now)
	}
	policy := filepath.Join(t.TempDir(), "policy")
	must(t, os.WriteFile(policy, []byte(witnesstest.Policy(1, one, two)), 0o600))
	without := r.options
	r.options = append(r.options[:len(r.options):len(r.options)], func(c *server.Config) {
		c.DecisionLog.Witnesses = &server.WitnessesConfig{PolicyFile: policy, Every: time.Second}
	})
	r.open(r.source, r.options...)
	must(t, r.Stop(t.Context()))
	r.backup = backedUp(t, r.data)
	_, _, err = restored(t, r.backup, 0, "")
	n := numberOf(t, err)

	data, _, err := restored(t, r.backup, n, "")
	must(t, err)
	in := func(data string) pdptest.Option {
		return func(c *server.Config) { c.Data, c.Program.PDP.Now = data, r.Now }
	}
	size := newestCheckpoint(t, data).Size
	refuses(t, r.source, "it had witnesses, and the configuration has none", append(without, in(data))...)
	two.Lie(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	refuses(t, r.source, "and w2 does not: it answers 503", append(r.options, in(data))...)
	if got := newestCheckpoint(t, data).Size; got != size {
		t.Errorf("a start that was refused makes %d records of %d", got, size)
	}
	two.Lie(nil)
	r.goesOn(data)
	r.counter.asks("pep", tool("push", again)).passes(t, "the witnesses know no more")
	eventually(t, "the use is cosigned", func() bool { return one.Size(strings.Split(keys[0], "+")[0]) > int64(size)+3 })
	must(t, r.Stop(t.Context()))
	two.Lie(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	r.goesOn(data) // what is on record is asked no more
	must(t, r.Stop(t.Context()))
	two.Lie(nil)

	data, _, err = restored(t, r.backup, n, "") // once more, while the first restore goes on
	must(t, err)
	for range 2 {
		refuses(t, r.source, "which are not among our", append(r.options, in(data))...)
	}
	data, _, err = restored(t, r.backup, -1, "")
	must(t, err)
	r.options = without
	r.goesOn(data)
	r.counter.asks("pep", tool("push", again)).isStopped(t, "what was open has ended")
}

// Etcd knows how long the log of a replica was: one that goes on must not be shorter, and what its start adds does not count.
func TestRestoreAsksEtcd(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a := g.all[0]
	id := a.approved()
	// Else the next start says it, with the length of the log by then.
	eventually(t, "etcd knows that its clock is right", func() bool {
		text, err := os.ReadFile(filepath.Join(a.data, cluster.MarkFile))
		must(t, err)
		return bytes.Contains(text, []byte(`"shown":`))
	})
	must(t, a.Stop(t.Context()))
	copied := backedUp(t, a.data)
	_, _, err := restored(t, copied, 0, "")
	n := numberOf(t, err)
	has(t, err.Error(), id)
	in := func(data string) pdptest.Option {
		return func(c *server.Config) { c.Data, c.Program.PDP.Now = data, a.Now }
	}
	source := pdptest.Bundle(approvalFiles())

	data, _, err := restored(t, copied, n, "")
	must(t, err)
	refuses(t, source, "the configuration has no etcd that could be asked", in(data))
	a.data = data
	g.start(0)
	eventually(t, "it goes on", func() bool { _, is := a.ready(); return is.State == nil && is.Status == "ready" })
	a.asks("pep", tool("push", again)).passes(t, "nothing came after")
	must(t, a.Stop(t.Context()))

	data, _, err = restored(t, copied, n, "") // once more: a use came after it
	must(t, err)
	for range 2 {
		refuses(t, source, "the log was cut, or an older copy of it put in its place", g.config(0), in(data))
	}

	copied = backedUp(t, a.data)
	g.start(0)
	must(t, a.Stop(t.Context()))
	_, _, err = restored(t, copied, 0, "")
	data, _, err = restored(t, copied, numberOf(t, err), "") // only a start came after it, and added no less than this one will
	must(t, err)
	for range 2 {
		refuses(t, source, "records at least, and has", g.config(0), in(data))
	}
}
