package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/pdptest/night"
)

// The tags of pdp/decisionlog/WITNESSES.md: before there is a witness, its own commands, and after.
const (
	withoutWitness = "console key"
	litewitness    = "console litewitness"
	beside         = "console witnessed"
)

// TestWitnessesPage types the page with litewitness, a witness of others. Then it puts the data directory of before back and
// writes on: the witness refuses that, and doctor and the service's log name it.
func TestWitnessesPage(t *testing.T) {
	night.Whole(t, "it builds a witness of others")
	needProgram(t, "ssh-agent")
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "filippo.io/torchwood/cmd/litewitness", "filippo.io/torchwood/cmd/witnessctl")
	build.Dir = filepath.Join(root, "pdp/pdptest/judges")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := readPage(t, "pdp/decisionlog/WITNESSES.md")
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	must(t, os.CopyFS(filepath.Join(m.dir, "policies"), os.DirFS(filepath.Join(root, "policies"))))
	m.open(t, built(t)+string(os.PathListSeparator)+bin)
	m.read(t, p, slices.Concat(p.stepsOf(t, withoutWitness), p.stepsOf(t, litewitness), p.stepsOf(t, beside)))
	if t.Failed() {
		return
	}
	serve := "policy-service serve --policies policies/starter --data witnessed --config witnessed.yaml --listen 127.0.0.1:8251 >forked.log 2>&1 &"
	doctor := "policy-service doctor --policies policies/starter --data witnessed --config witnessed.yaml --listen 127.0.0.1:8251 | grep witnesses"
	for _, c := range []struct{ command, until string }{
		{"kill $!; wait $!", ""},
		{"cp -pR witnessed before; echo 'decision_log: {witnesses: {policy_file: witnesses.policy, every: 1s}}' >witnessed.yaml", ""},
		{serve, ""},
		{"kill $!; wait $!", ""},
		{serve, ""}, // whose first round submits what the stop signed
		{doctor, "a quorum cosigned"},
		{"kill $!; wait $!; rm -r witnessed; mv before witnessed", ""},
		{serve, ""},
		{"cat forked.log", "the witness knows another log under the name of this one, or lies"},
		{doctor, "w1 is left out since "},
	} {
		for deadline := time.Now().Add(patience); ; {
			shown, alive := m.enter(t, c.command)
			if !alive {
				t.Fatalf("this ended the shell: %s", c.command)
			}
			if strings.Contains(shown, c.until) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("$ %s\nshows\n%s\nand not %q", c.command, shown, c.until)
			}
		}
	}
}
