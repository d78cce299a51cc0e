package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/night"
)

// TestClusterStory types `make cluster` in a checkout, and then what that prints: an approval that one replica asked for and another
// decided is used at the third, once.
func TestClusterStory(t *testing.T) {
	t.Parallel()
	night.Other(t, "etcd")
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	m.checkout(t, "Makefile", "policies", "pdp/cluster/example", "pdp/pdptest/etcd")
	bin := filepath.Join(m.dir, "bin")
	must(t, os.CopyFS(bin, os.DirFS(built(t))))
	shown := m.demonstrate(t, "cluster", "Ctrl-C ends all")
	m.open(t, bin)
	commands := regexp.MustCompile(`(?m)^  (.+)$`).FindAllStringSubmatch(shown, -1)
	if len(commands) != 3 {
		t.Fatalf("it prints %d commands", len(commands))
	}
	id := ""
	run := func(n int, want string) (said string) {
		said, _ = m.run(t, strings.ReplaceAll(commands[n][1], "ID", id), patience)
		if !strings.Contains(said, want) {
			t.Fatalf("%s: got %s, want %s", commands[n][1], said, want)
		}
		return said
	}
	asked := run(0, `"approval_required"`)
	found := regexp.MustCompile(`"approval":{"id":"([^"]+)"`).FindStringSubmatch(asked)
	if found == nil {
		t.Fatalf("it shows no id: %s", asked)
	}
	id = found[1]
	run(1, "approved")
	run(2, `{"allow":true}`)
	run(2, "used_up")

	// The API keys of a replica are in etcd, and doctor finds them there.
	said, _ := m.run(t, "(cd .cluster && ../bin/policy-service doctor --config 1.yaml)", patience)
	if !strings.Contains(said, "etcd answers, and replicas have joined") || strings.Contains(said, "there are no credentials") || strings.Contains(said, "no API key") {
		t.Errorf("doctor says %s", said)
	}
	// A key that is revoked in the directory of a replica would go on to count.
	said, _ = m.run(t, `bin/policy-service keys revoke --data .cluster/data1 pep; echo "exit $?"`, patience)
	if !strings.Contains(said, "exit 2") || !strings.Contains(said, "whose API keys are in etcd; give its configuration with --config") {
		t.Errorf("keys revoke says %s", said)
	}
}
