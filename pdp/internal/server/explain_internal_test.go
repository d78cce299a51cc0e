package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/audit"
)

// The last bundle of then is at hand; and one that is too large is not compiled, unless it is in force.
func TestTheLastBundleOfThenIsAtHand(t *testing.T) {
	t.Parallel()
	bundles, err := segment.OpenBundles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int, more string) string {
		digest, err := bundles.Put(map[string][]byte{"a.cedar": fmt.Appendf(nil, `@id("p%d") permit (principal, action == Action::"read", resource);`, n), "b.cedar": []byte("// more\n" + more + `@id("b") forbid (principal, action == Action::"burn", resource);`)})
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	var inForce *pdp.Bundle
	e := newExplainer(func() *pdp.Bundle { return inForce }, evaluation.DefaultLimits())
	compiled := func(digest, tenant string) int {
		t.Helper()
		then, bytes, err := e.then(t.Context(), &record.Recorded{Bundle: digest, Tenant: tenant}, bundles)
		if err != nil || then.Bundle.Digest() != digest {
			t.Fatal(err)
		}
		return bytes
	}
	var all []string
	for n := range 3 {
		all = append(all, put(n, ""))
		if compiled(all[n], "default") == 0 || compiled(all[n], "default") != 0 {
			t.Errorf("bundle %d is not compiled once", n)
		}
	}
	if compiled(all[1], "without-files") == 0 || compiled(all[1], "without-files") != 0 {
		t.Error("a tenant without files is not found again")
	}
	// While one is compiled, the one at hand is found, and a request that waits for another one ends in time.
	compiled(all[0], "default")
	e.compile <- struct{}{}
	if compiled(all[0], "default") != 0 {
		t.Error("a bundle at hand is compiled again")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := e.then(ended, &record.Recorded{Bundle: all[2], Tenant: "default"}, bundles); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-e.compile
	large := put(99, strings.Repeat("// a comment\n", largestThen/13+1))
	if _, _, err := e.then(t.Context(), &record.Recorded{Bundle: large, Tenant: "default"}, bundles); !errors.Is(err, audit.ErrNotAlone) {
		t.Errorf("got %v", err)
	}
	files, err := bundles.Files(all[2])
	if err == nil {
		inForce, err = recorder.Compile(files, "default")
	}
	if err != nil {
		t.Fatal(err)
	}
	if compiled(all[2], "default"); e.last.Load().Bundle != inForce {
		t.Error("the bundle in force is compiled again")
	}
}
