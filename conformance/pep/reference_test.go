package pep

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/conformance"
)

// patience is longer than any machine stands still.
const patience = time.Minute

func openBench(t testing.TB) *Bench {
	t.Helper()
	b, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func report(t testing.TB, r conformance.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// quick are cases without those for which a PEP waits: until it gives up on a PDP, and until it asks one again that was
// down for long.
func quick(cases []Case) []Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return c.ID == "pdp-hang" || c.ID == "pdp-stops" || c.ID == "pdp-down-for-long" })
}

// judgeStub judges a PEP that is wrong in these ways.
func judgeStub(t testing.TB, how shape, cases []Case, wrong ...string) (conformance.Report, error) {
	t.Helper()
	b := openBench(t)
	url := startStub(t, b, how, wrong...)
	return b.judgeAll(t.Context(), Target{URL: url, Resource: stubResource, Timeout: patience}.complete(), cases)
}

// The suite can be passed by a PEP that is not ours, as a gateway and as a server, in both eras.
func TestReferencePasses(t *testing.T) {
	for _, how := range []shape{gateway, server} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			cases, err := Cases(planNames()...)
			if err != nil {
				t.Fatal(err)
			}
			r, err := judgeStub(t, how, cases)
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK() || r.Count(conformance.Advised) > 0 {
				t.Error(report(t, r))
			}
		})
	}
}

// A PEP that takes the subject from another claim passes as well, and one that was told and did not listen is found out.
func TestSubjectClaim(t *testing.T) {
	t.Parallel()
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	for listens, wrong := range map[bool][]string{
		true:  {"is told of another claim"},
		false: {"is told of another claim", "knows no subject claim but sub", "does not anchor the subject"},
	} {
		t.Run(fmt.Sprint("listens ", listens), func(t *testing.T) {
			t.Parallel()
			b := openBench(t)
			url := startStub(t, b, gateway, wrong...)
			r, err := b.judgeAll(t.Context(), Target{URL: url, Resource: stubResource, SubjectClaim: "act_for", Timeout: patience}, cases)
			if err != nil {
				t.Fatal(err)
			}
			if r.OK() != listens {
				t.Error(report(t, r))
			}
		})
	}
}
