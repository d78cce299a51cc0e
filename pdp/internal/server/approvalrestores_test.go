package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// Restores of the model: of the whole directory as a copy, of a backup by the command's own code, and of etcd.

// restores is how many of them there were.
type restores struct {
	directories, begun, wentOn, lied, refused int
	etcd, forgotten                           int // and uses that it has forgotten
}

func (a *restores) add(b restores) {
	a.directories, a.begun, a.wentOn = a.directories+b.directories, a.begun+b.begun, a.wentOn+b.wentOn
	a.lied, a.refused = a.lied+b.lied, a.refused+b.refused
	a.etcd, a.forgotten = a.etcd+b.etcd, a.forgotten+b.forgotten
}

// kept is what an operator has elsewhere.
type kept struct {
	backups    [][]byte // of each stop; nil where it is refused, as after a crash
	checkpoint segment.Checkpoint
}

// keep keeps a backup, and the newest checkpoint. If the log was cut, the operator lives with that.
func (m *hostileModel) keep() {
	var made bytes.Buffer
	if err := server.BackUpStopped(m.data, true, &made); err != nil {
		made = bytes.Buffer{}
	}
	m.kept.backups = append(m.kept.backups, made.Bytes())
	if reader, err := segment.OpenReader(m.data); err == nil {
		if last, err := reader.LastCheckpoint(); err == nil {
			m.kept.checkpoint = last
		}
		must(m.t, reader.Close())
	}
}

// restoredDirectory puts the whole directory back. The checkpoint that was kept elsewhere finds it.
func (m *hostileModel) restoredDirectory() string {
	from := m.rng.IntN(len(m.past))
	m.write(m.past[from])
	m.restores.directories++
	report, newest := verify.Directory(m.data, verify.Options{}), m.kept.checkpoint
	if older := report.Verified() && report.Origin == newest.Origin && uint64(report.Size) < newest.Size; older {
		if found := verify.Directory(m.data, verify.Options{Checkpoint: string(newest.Note)}); found.Verified() {
			m.t.Errorf("seed %d: the newest checkpoint has %d records, and verifies a log of %d", m.seed, newest.Size, report.Size)
		}
	}
	m.cut = m.cut || from < len(m.past)-1
	return fmt.Sprintf("the directory of stop %d", from)
}

// restoredBackup restores a backup, the newest or an older one: without a number, with a wrong one, or with the right one.
func (m *hostileModel) restoredBackup() string {
	from, last := len(m.past)-1, len(m.past)-1
	if m.chance(2) {
		from = m.rng.IntN(len(m.past))
	}
	if len(m.kept.backups[from]) == 0 {
		return "nothing"
	}
	restore := func(number *int, checkpoint string) (files, error) {
		r := server.Restoring{Data: filepath.Join(m.t.TempDir(), "data"), NothingCameAfter: number, Verify: verify.Options{Checkpoint: checkpoint}}
		if _, err := r.From(m.t.Context(), bytes.NewReader(m.kept.backups[from])); err != nil {
			return nil, err
		}
		return readFiles(r.Data)
	}
	newest := string(m.kept.checkpoint.Note)
	kind := m.rng.IntN(4)
	if kind == 0 { // what was open ends, and with it all that was cut
		all, err := restore(nil, "")
		if err != nil {
			return "a backup that is refused"
		}
		m.write(all)
		m.restores.begun++
		return fmt.Sprintf("the backup of stop %d", from)
	}
	wrong := 1 << 20
	_, err := restore(&wrong, "")
	if err == nil {
		m.t.Errorf("seed %d: a restore goes on by the number %d", m.seed, wrong)
		return "nothing"
	}
	asks := regexp.MustCompile(`give --nothing-came-after (\d+),`).FindStringSubmatch(err.Error())
	if m.restores.refused++; asks == nil || kind == 1 { // it went on after the backup, or is not what was signed
		return "a backup that is refused"
	}
	n, err := strconv.Atoi(asks[1])
	must(m.t, err)
	checkpoint := ""
	if kind == 2 {
		checkpoint = newest
	}
	all, err := restore(&n, checkpoint)
	switch {
	case kind == 2 && from < last && err == nil && m.grew(from):
		m.t.Errorf("seed %d: a backup that does not reach the newest checkpoint goes on", m.seed)
	case err != nil:
		m.restores.refused++
		return "a backup that is refused"
	}
	m.write(all)
	if from < last { // the operator says what is not so
		m.cut = true
		m.restores.lied++
		return fmt.Sprintf("the backup of stop %d as if nothing had come after", from)
	}
	m.restores.wentOn++
	return "the newest backup, which goes on"
}

// grew reports whether the log that the newest checkpoint is of was shorter at a stop.
func (m *hostileModel) grew(stop int) bool {
	segments := 0
	for name, content := range m.past[stop] {
		if isSegment(name) {
			segments++
			if !bytes.Contains(content, m.kept.checkpoint.Note) {
				continue
			}
			return false // the checkpoint stands there
		}
	}
	return segments > 0
}

// welcomeBack makes new keys for people whose keys were added after what was restored.
func (m *hostileModel) welcomeBack() {
	apiKeys, err := keys.Open(m.data)
	if err != nil || m.cluster != nil {
		return
	}
	there := map[string]bool{}
	for _, key := range apiKeys.List() {
		there[key.Name] = true
	}
	for _, person := range []string{"mia", "mia.admin", "noah", "zoe", "eve"} {
		if !there[m.holder[person]] {
			m.newKey(person)
		}
	}
}

// refusesItsClone starts a server on a copy of the directory while this one goes on. The copy never answers.
func (m *hostileModel) refusesItsClone(t *testing.T, seed uint64) {
	t.Helper()
	m.stop()
	clone := makeHostileModel(t, seed, nil)
	clone.Clock, clone.key, clone.cluster = m.Clock, m.key, m.cluster
	copyDir(t, clone.data, m.data)
	must(t, m.start())
	if err := clone.start(); err == nil || !strings.Contains(err.Error(), "another process runs under the name") {
		t.Errorf("a clone starts, or does not say why not: %v", err)
	}
}

// TestNoYesThatTheLogDoesNotCarryOnEtcd has a directory cloned, and etcd put back again and again, as a copy of its disk or by a
// snapshot. Etcd forgets a use that one replica has on record, and the other one says no yes that its log does not carry, and none
// twice.
func TestNoYesThatTheLogDoesNotCarryOnEtcd(t *testing.T) {
	t.Parallel()
	var total tally
	for seed := range uint64(night.Cases(2)) {
		etcd := etcdtest.Start(t, etcdtest.Options{Members: 1})
		m := makeHostileModel(t, seed, nil)
		m.cluster = &cluster.Config{}
		m.cluster.Etcd.Timeout = etcdtest.Patience
		for _, one := range etcd.Client().Endpoints() {
			m.cluster.Etcd.Endpoints = append(m.cluster.Etcd.Endpoints, "http://"+one)
		}
		apiKeys, done, err := server.OpenSharedKeys(t.Context(), server.Config{Data: m.data, Cluster: m.cluster})
		must(t, err)
		for _, name := range []string{"pep", "mia", "mia.admin", "noah", "zoe", "eve"} {
			spec := keys.Spec{Name: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Approve}}}
			if name == "pep" {
				spec.Grant.Permissions = []auth.Permission{auth.Decide}
			} else {
				spec.Principal, err = auth.ParsePrincipal(`user::"` + name + `"`)
				must(t, err)
			}
			key, err := apiKeys.Add(spec)
			must(t, err)
			m.key[name], m.holder[name] = "Bearer "+key, name
		}
		done()
		must(t, m.start())
		other := makeHostileModel(t, seed, nil) // a replica that uses what etcd is to forget
		other.Clock, other.key, other.cluster = m.Clock, m.key, m.cluster
		for _, name := range []string{"approvals.key", "mask.key", "page.key", "signing.jwks"} {
			other.put(name, m.read()[name])
		}
		must(t, other.start())
		for n := range 3 {
			m.run()
			m.refusesItsClone(t, seed)
			q := question{"push", 10 + n}
			m.approve(q)
			id := m.ids[len(m.ids)-1]
			var snapshot, disk string
			if m.chance(2) {
				snapshot = etcd.Snapshot(0)
			} else {
				disk = etcd.CopyOf()
			}
			etcdtest.Eventually(t, "the other replica answers", func() bool {
				status, text := other.do("pep", "POST", "/v1/authorize", tool("push", fmt.Sprintf(`"arguments":{"n":%d},"approval_id":%q`, q.n, id)))
				if text == `{"allow":true}` {
					m.spent[id]++
					m.restores.forgotten++
				}
				return status == http.StatusOK
			})
			m.stop()
			if snapshot == "" {
				etcd.PutBack(disk)
			} else {
				etcd.Restore(snapshot)
			}
			m.restores.etcd++
			m.attacked = true
			m.attacks = append(m.attacks, "etcd put back")
			must(t, m.start())
			for range 3 {
				m.use(q) // while the other has not compared its log
			}
			other.Client.CloseIdleConnections()
			other.halt(other.Server.Server)
			must(t, other.start())
			etcdtest.Eventually(t, "state goes on", func() bool {
				status, _ := m.do("pep", "POST", "/v1/authorize", tool("push", fmt.Sprintf(`"arguments":{"n":%d}`, nobodys)))
				return status == http.StatusOK
			})
			m.next = []question{q, q}
		}
		m.run()
		m.stop()
		total.add(m.tally)
	}
	t.Logf("%+v", total)
	if total.yesAfterAttack == 0 || total.restores.forgotten == 0 {
		t.Errorf("the test tries too little: %+v", total)
	}
}
