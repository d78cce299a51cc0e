package main

import (
	"slices"
	"testing"

	"policy-service/pdp/pdptest/night"
)

// TestAgentPage types pdp/capability/AGENT.md with its part for Node, beside the program that the part copies.
func TestAgentPage(t *testing.T) {
	night.Npm(t)
	p := readPage(t, "pdp/capability/AGENT.md")
	bin := built(t)
	m := newTerminal(t, bin)
	m.checkout(t, "evaluation/capability/holder.mjs")
	m.read(t, p, slices.Concat(p.steps(t), p.stepsOf(t, withNode)))
}
