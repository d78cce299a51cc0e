// Package night makes no promise: it is for the tests of this module alone. It says how much of a test runs.
// `make test` and the gate run tests with -short: each kind of mistake is tried, some of it a tenth as often.
// `make night` runs them whole. Three kinds of test run only there:
//
//   - [Measures]: it compares times, CPU, memory or allocations, so nothing may run beside it;
//   - [Soaks]: it looks for what shows only after a while;
//   - [Whole]: it takes long, and what it could find is rare.
//
// [Other] is for tests that `make test` leaves out, and the gate runs. And [Npm] is for tests that run programs from npm: the
// gate runs them where what they judge has changed.
//
// A test calls Measures, Soaks and Npm itself, and not through a helper, so that `make measure`, `make soak` and `make npm`
// find it in the text. What starts a program of others calls Other.
package night

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Measures skips a test that compares times, CPU, memory or allocations. `make measure` runs it.
func Measures(t testing.TB) {
	t.Helper()
	if os.Getenv("MEASURE") == "" {
		t.Skip("it measures; run make measure")
	}
	if Race {
		t.Skip("the race detector costs more than what is measured; run make measure")
	}
}

// Soaks skips a test that looks for what shows only after a while. `make soak` runs it.
func Soaks(t testing.TB) {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("it soaks; run make soak")
	}
}

// Npm skips a test that installs programs from npm. `make npm` runs it.
func Npm(t testing.TB) {
	t.Helper()
	if os.Getenv("NPM") == "" {
		t.Skip("it runs programs from npm; run make npm")
	}
}

// others are what `make test` leaves out: it is not on every machine, or takes long to compile. See WITHOUT in the Makefile.
var others = []string{"browsers", "databases", "etcd", "kubernetes", "judges", "releases"}

// Other skips a test that needs one of the others, if the variable WITHOUT names that.
func Other(t testing.TB, name string) {
	t.Helper()
	if !slices.Contains(others, name) {
		t.Fatalf("make test leaves out %v, and not %s: add it there, and to WITHOUT in the Makefile", others, name)
	}
	if slices.Contains(strings.Fields(os.Getenv("WITHOUT")), name) {
		t.Skipf("make test leaves out %s; run make test WITHOUT=", name)
	}
}

// Whole skips a test that only a whole run of the tests has, and says why.
func Whole(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(why + "; run make whole")
	}
}

// Cases is how many of all generated cases to try: a tenth with -short, and at least one.
func Cases(all int) int {
	if testing.Short() {
		return max(1, all/10)
	}
	return all
}
