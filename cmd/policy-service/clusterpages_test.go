package main

import (
	"os"
	"path/filepath"
	"testing"

	"policy-service/pdp/pdptest/judged"
)

// withEtcd tags the transcripts that need the programs of etcd.
const withEtcd = "console etcd"

// TestClusterPages types pdp/server/MOVE.md and, beside what that leaves, pdp/server/RECOVER.md, with the etcd of others.
func TestClusterPages(t *testing.T) {
	needProgram(t, "curl")
	parallelPage(t)
	bin := t.TempDir()
	for name, tool := range map[string]string{"etcd": "server", "etcdctl": "etcdctl", "etcdutl": "etcdutl"} {
		must(t, os.Symlink(judged.ProgramOf(t, "etcd", tool), filepath.Join(bin, name)))
	}
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	m.open(t, built(t)+string(os.PathListSeparator)+bin)
	// On a busy machine a leader that is well is late, too.
	m.run(t, "export ETCD_HEARTBEAT_INTERVAL=300 ETCD_ELECTION_TIMEOUT=3000", patience)
	for _, path := range []string{"pdp/server/MOVE.md", "pdp/server/RECOVER.md"} {
		p := readPage(t, path)
		m.read(t, p, p.stepsOf(t, withEtcd))
		if t.Failed() {
			return
		}
	}
}
