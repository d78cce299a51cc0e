package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/night"
)

// TestClusterDemo types `make cluster`, and then the commands that it prints, in their order. One use is one use.
func TestClusterDemo(t *testing.T) {
	night.Whole(t, "it starts three replicas and three members of etcd")
	needProgram(t, "curl")
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	m.checkout(t, "Makefile", "policies", "pdp/cluster/example")
	here, err := filepath.Abs(root)
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(m.dir, "pdp/pdptest"), 0o755))
	must(t, os.Symlink(filepath.Join(here, "pdp/pdptest/members"), filepath.Join(m.dir, "pdp/pdptest/members")))
	bin := filepath.Join(m.dir, "bin")
	must(t, os.CopyFS(bin, os.DirFS(built(t))))
	shown := m.demonstrate(t, "cluster", "Ctrl-C ends all.")
	m.open(t, bin)
	commands := regexp.MustCompile(`(?m)^  (\S.*)$`).FindAllStringSubmatch(shown, -1)
	if len(commands) != 3 {
		t.Fatalf("it prints %d commands", len(commands))
	}
	id := "ID"
	run := func(n int) string {
		t.Helper()
		command := strings.NewReplacer(`"ID"`, `"`+id+`"`, "--yes ID", "--yes "+id).Replace(commands[n][1])
		said, alive := m.run(t, command, patience)
		if !alive {
			t.Fatalf("%s does not end", command)
		}
		return strings.TrimSpace(said)
	}
	asked := run(0)
	found := regexp.MustCompile(`"approval":\{"id":"([^"]+)","status":"pending"`).FindStringSubmatch(asked)
	if found == nil {
		t.Fatalf("the first answers %s", asked)
	}
	id = found[1]
	t.Log(run(1))
	if used := run(2); used != `{"allow":true}` {
		t.Errorf("the third answers %s", used)
	}
	if again := run(2); again == `{"allow":true}` || !strings.HasPrefix(again, "{") {
		t.Errorf("the third answers a second time %s", again)
	}
}
