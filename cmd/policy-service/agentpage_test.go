package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// TestAgentPage types pdp/capability/AGENT.md with its part for Node, beside the packed client that the part installs.
func TestAgentPage(t *testing.T) {
	night.Npm(t)
	p := readPage(t, "pdp/capability/AGENT.md")
	client, err := npm.Pack(filepath.Join(root, "evaluation/clients/typescript"), filepath.Join(t.TempDir(), "typescript"))
	must(t, err)
	bin := built(t)
	m := &terminal{dir: t.TempDir(), address: ownLoopback()}
	text, err := os.ReadFile(client.File)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(m.dir, filepath.Base(client.File)), text, 0o644))
	m.open(t, bin+string(os.PathListSeparator)+client.Bin)
	m.read(t, p, slices.Concat(p.steps(t), p.stepsOf(t, withNode)))
}
