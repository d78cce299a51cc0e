//go:build linux

package doctor_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/crashedlog"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/pdptest/witnesstest"
)

// look returns all that there is of a directory: names, inodes, owners, modes, sizes, times and bytes. Only when a file was read is
// left out.
func look(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		is := info.Sys().(*syscall.Stat_t)
		_, _ = fmt.Fprintln(&all, name, is.Ino, is.Nlink, is.Uid, is.Gid, info.Mode(), is.Size, is.Mtim, is.Ctim)
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(name)
			_, _ = fmt.Fprintf(&all, " %x\n", sha256.Sum256(content))
			return err
		}
		return nil
	}))
	return all.String()
}

// untouched examines a server, and wants its data directory, and what is beside it, to stay as it was.
func untouched(t *testing.T, p doctor.Patient) []finding.Finding {
	t.Helper()
	dir := filepath.Dir(p.Config.Data)
	before := look(t, dir)
	found := doctor.Examine(t.Context(), p)
	if after := look(t, dir); after != before {
		t.Errorf("looking changed\n%s\ninto\n%s", before, after)
	}
	return found
}

// copied returns a copy of a data directory, with its modes and times.
func copied(t *testing.T, data string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	if out, err := exec.CommandContext(t.Context(), "cp", "-pR", data, to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return to
}

// says wants a finding with a text.
func says(t *testing.T, found []finding.Finding, want string) {
	t.Helper()
	if !strings.Contains(fmt.Sprint(found), want) {
		t.Errorf("no finding says %q: %+v", want, found)
	}
}

// inUse is a running server whose data directory has an API key, an approval request, a capability and a log that a witness
// cosigned. It writes nothing any more.
func inUse(t *testing.T) (*pdptest.Server, doctor.Patient) {
	t.Helper()
	const issuer = "https://pdp.example.com"
	data := filepath.Join(t.TempDir(), "data")
	apiKeys, err := keys.Open(data)
	must(t, err)
	secret, err := apiKeys.Add(keys.Spec{Name: "pep", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Capability}}})
	must(t, err)
	now := func() time.Time { return pdptest.Now }
	log, err := decisionlog.Open(data, decisionlog.Options{Now: now})
	must(t, err)
	must(t, log.Close())
	logKeys, err := segment.VerifierKeys(data)
	must(t, err)
	w := witnesstest.New(t, "w")
	w.At(now)
	w.Add(t, logKeys[0])
	policy := filepath.Join(t.TempDir(), "policy")
	must(t, os.WriteFile(policy, []byte(witnesstest.Policy(1, w)), 0o600))
	p := patient(data)
	p.Config.PublicURL = issuer
	p.Config.DecisionLog.Witnesses = &server.WitnessesConfig{PolicyFile: policy, Every: time.Hour, Patience: 2 * time.Hour}
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("grants") permit(principal, action == Action::"capability.grant", resource);
@id("ask") @obligation("ask") permit(principal, action == Action::"tool.invoke", resource is tool);`,
		"obligations.yaml": `ask: {type: approval_required, properties: {template: owner, message: "may it?", timeout: 10m}}`,
	}), func(c *server.Config) {
		c.Data, c.PublicURL, c.DecisionLog.Witnesses = data, issuer, p.Config.DecisionLog.Witnesses
	})
	holder, err := capability.NewHolder(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	must(t, err)
	ask := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "a"}, Audience: "b", Tools: []string{"c"}}
	must(t, holder.Request(&ask, issuer, pdptest.Now))
	body, err := ask.MarshalJSON()
	must(t, err)
	if got := s.Post("/v1/capabilities", string(body), "Authorization", "Bearer "+secret); got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	const question = `{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"push"},"context":{}}`
	if got := s.Post("/v1/authorize", question, "Authorization", "Bearer "+secret); got.Status != http.StatusOK || !strings.Contains(got.Body, "pending") {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	idle(t, data)
	return s, p
}

// idle waits until a server has written nothing for longer than it waits for more records before it signs a checkpoint. The
// next checkpoint is a minute away then.
func idle(t *testing.T, data string) {
	t.Helper()
	before, since := "", time.Now()
	etcdtest.Eventually(t, "nothing is written any more", func() bool {
		if now := look(t, data); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
}

// TestDoctorLeavesAllAsItIs: nothing of a data directory changes by looking, whatever state it is in.
func TestDoctorLeavesAllAsItIs(t *testing.T) {
	t.Parallel()
	s, p := inUse(t)
	on := func(data string) doctor.Patient {
		p := p
		p.Config.Data = data
		return p
	}
	data := p.Config.Data
	found := untouched(t, p)
	says(t, found, "a server is running on it")
	says(t, found, "a quorum cosigned")
	killed := copied(t, data)
	must(t, s.Stop(t.Context()))
	found = untouched(t, p)
	for _, want := range []string{"no server is running on it", "1 wait for a person", "1 are live", "a quorum cosigned", "w knows the log"} {
		says(t, found, want)
	}
	untouched(t, on(killed))
	stopped := copied(t, data)
	crashed := crashedlog.In(t, stopped, 3, format.KindApproval, format.KindCapability)
	says(t, untouched(t, on(crashed)), "a crash left 3 records in its journal")

	must(t, filepath.WalkDir(stopped, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(name, 0o500)
		}
		return os.Chmod(name, 0o400)
	}))
	says(t, untouched(t, on(stopped)), "1 wait for a person")

	empty := filepath.Join(t.TempDir(), "data")
	must(t, os.Mkdir(empty, 0o700))
	says(t, untouched(t, on(empty)), "there is none yet; serve begins it")
	says(t, untouched(t, on(filepath.Join(t.TempDir(), "data"))), "does not exist yet; serve makes it")
}

// TestDoctorOnAReadOnlyMount: a disk that cannot be written to is looked at as any other.
func TestDoctorOnAReadOnlyMount(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=1g,mode=0700")
	p := patient(filepath.Join(dir, "data"))
	out, err := exec.CommandContext(t.Context(), "cp", "-pR", lived(t), p.Config.Data).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	found := untouched(t, p)
	says(t, found, "and no server is running on it")
	for _, f := range found {
		if f.Bites && f.Check != "disk" {
			t.Errorf("%+v", f)
		}
	}
}

// TestDoctorOfAReplica: keys that all replicas have are not made, and those of cluster.secrets are not taken.
func TestDoctorOfAReplica(t *testing.T) {
	t.Parallel()
	p := patient(filepath.Join(t.TempDir(), "data"))
	p.Config.Cluster = &cluster.Config{}
	p.Config.Cluster.Etcd.Timeout = etcdtest.Patience
	for _, one := range etcdtest.Start(t, etcdtest.Options{Members: 1}).Client().Endpoints() {
		p.Config.Cluster.Etcd.Endpoints = append(p.Config.Cluster.Etcd.Endpoints, "http://"+one)
	}
	says(t, untouched(t, p), "no replica has joined yet")
	apiKeys, done, err := server.OpenSharedKeys(t.Context(), p.Config)
	must(t, err)
	_, err = apiKeys.Add(keys.Spec{Name: "pep"})
	must(t, err)
	done()
	says(t, untouched(t, p), "etcd answers, and no replica has joined yet") // with the first key
	s := living(t, p.Config.Data, func(c *server.Config) { c.Cluster = p.Config.Cluster })
	must(t, s.Stop(t.Context()))
	says(t, untouched(t, p), "and replicas have joined")
	for _, missing := range []string{"approvals.key", "mask.key", "page.key", "signing.jwks"} {
		secrets := t.TempDir()
		other := p
		other.Config.Data = copied(t, p.Config.Data)
		must(t, os.Rename(filepath.Join(other.Config.Data, missing), filepath.Join(secrets, missing)))
		says(t, untouched(t, other), missing+" is missing, and must be the same at all replicas")
		with := *p.Config.Cluster
		with.Secrets = secrets
		other.Config.Cluster = &with
		for _, f := range untouched(t, other) {
			if strings.Contains(f.Message, missing+" is missing") {
				t.Errorf("the start takes it of cluster.secrets: %+v", f)
			}
		}
	}
}
