package pep

import (
	"strings"
	"testing"
	"time"

	"policy-service/conformance"
)

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

// judgeStub judges a PEP that is wrong in these ways.
func judgeStub(t testing.TB, how shape, cases []Case, wrong ...string) (conformance.Report, error) {
	t.Helper()
	b := openBench(t)
	url := startStub(t, b, how, wrong...)
	return b.judgeAll(t.Context(), Target{URL: url, Resource: stubResource, Timeout: 5 * time.Second}.complete(), cases)
}

// The suite can be passed by a PEP that is not ours, as a gateway and as a server, in both eras.
func TestReferencePasses(t *testing.T) {
	for _, how := range []shape{gateway, server} {
		t.Run(string(how), func(t *testing.T) {
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
			t.Log(report(t, r))
		})
	}
}
