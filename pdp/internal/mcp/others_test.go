package mcp_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// TestOthers holds the gateway to programs of others: clients, servers and the official suite.
func TestOthers(t *testing.T) {
	night.Npm(t)
	others := mcptest.Install(t)
	everything := mcptest.BuildEverything(t)
	t.Run("suite", func(t *testing.T) { testSuite(t, others, everything) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, others) })
	t.Run("people", func(t *testing.T) { testPeople(t, others) })
	t.Run("clients", func(t *testing.T) { testClients(t, others) })
	t.Run("lists", func(t *testing.T) { testLists(t, others, everything) })
}

// The revisions that the suite judges by, the server for each, and what the suite must have found out about it at least,
// so that equal is not equally nothing.
var revisions = []struct {
	revision                string
	sessions                bool
	restricted              func(testing.TB, string) string // makes of a server for both eras one of the other era
	scenarios, good, failed int
}{
	{"2025-11-25", true, mcptest.OnlyModern, 33, 80, 0},
	{"2026-07-28", false, mcptest.OnlyLegacy, 45, 160, 9}, // the tasks extension, which the server lacks
}

func testSuite(t *testing.T, others *mcptest.Others, everything mcptest.Everything) {
	for _, r := range revisions {
		t.Run(r.revision, func(t *testing.T) {
			upstream := everything.Start(t, r.sessions)
			direct, _ := others.Conformance(t, upstream, r.revision)
			failed := direct.Failed()
			if n := len(direct.Scenarios()); n < r.scenarios || direct.Count("SUCCESS") < r.good || len(failed) != r.failed ||
				slices.ContainsFunc(failed, func(s string) bool { return !strings.HasPrefix(s, "tasks-") }) {
				t.Fatalf("directly %d scenarios ran, %d checks were good, and %q failed", n, direct.Count("SUCCESS"), failed)
			}
			t.Run("equal", func(t *testing.T) {
				at, _ := through(t, passage{name: "everything", upstream: upstream})
				got, faults := others.Conformance(t, at, r.revision)
				judge(t, direct, got, faults, nil)
			})
			t.Run("crossed", func(t *testing.T) {
				other := everything.Start(t, !r.sessions) // without sessions it cannot ask its clients in the legacy era
				at, _ := through(t, passage{name: "everything", upstream: r.restricted(t, other)})
				got, faults := others.Conformance(t, at, r.revision)
				judge(t, direct, got, faults, knownDifferences(t, r.revision))
			})
		})
	}
}

// judge fails on each difference that is not known, and on each known one that is none.
func judge(t *testing.T, direct, got mcptest.Verdict, faults mcptest.Faults, known map[string]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, d := range mcptest.Differences(direct, got) {
		seen[d.String()] = true
		if known[d.String()] == "" {
			t.Errorf("not as it is directly: %s: %s", d, faults[d.Check])
		}
	}
	for d := range known {
		if !seen[d] {
			t.Errorf("is as it is directly, delete its line: %s", d)
		}
	}
	t.Logf("%d scenarios, %d checks good, %d differences", len(got.Scenarios()), got.Count("SUCCESS"), len(seen))
}

// knownDifferences are the checks that differ where client and upstream are of different eras: scenario, check, what the
// suite says directly and through the gateway, then a colon and the reason.
func knownDifferences(t *testing.T, revision string) map[string]string {
	t.Helper()
	file, err := os.Open("testdata/crossed-" + revision + ".txt")
	orFail(t, err)
	defer func() { _ = file.Close() }()
	known, err := readDifferences(bufio.NewScanner(file))
	if err != nil {
		t.Fatalf("%s: %v", file.Name(), err)
	}
	return known
}

func readDifferences(lines *bufio.Scanner) (map[string]string, error) {
	known := map[string]string{}
	for lines.Scan() {
		if lines.Text() == "" || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		what, why, _ := strings.Cut(lines.Text(), ": ")
		if len(strings.Fields(what)) != 4 || strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%q is not scenario, check, directly, through, a colon and a reason", lines.Text())
		}
		if known[what] != "" {
			return nil, fmt.Errorf("%q stands there twice", what)
		}
		known[what] = why
	}
	return known, lines.Err()
}
