package mcptest

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// Verdict is what the conformance suite says of a server: by scenario and check, the statuses of the check, sorted. A
// scenario that checked nothing has the check "".
type Verdict map[Check][]string

// Check is one thing that the suite looks at.
type Check struct{ Scenario, ID string }

// Faults are the suite's words on what it finds fault with.
type Faults map[Check]string

// Conformance has the official suite judge the server at a URL by a revision, which is a name that --requirements takes.
func (o *Others) Conformance(t testing.TB, url, revision string) (Verdict, Faults) {
	t.Helper()
	results := t.TempDir()
	run := o.command(t.Context(), o.program("conformance"), "server", "--url", url, "--requirements", revision, "--output-dir", results)
	said, err := run.CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) { // its status says whether all is well
		t.Fatal(err)
	}
	v, faults, err := readResults(results)
	if err != nil || len(v) == 0 {
		t.Fatalf("the suite left no results: %v\n%s", err, said)
	}
	return v, faults
}

// result is how the suite names the directory of a scenario's results.
var result = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[0-9-]+Z$`)

// readResults reads what the suite left.
func readResults(dir string) (Verdict, Faults, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		return nil, nil, err
	}
	v, faults := Verdict{}, Faults{}
	for _, file := range files {
		name := result.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if name == nil {
			return nil, nil, errors.New("unknown form of results: " + file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		var checks []struct {
			ID     string `json:"id"`
			Status string `json:"status"`
			Error  string `json:"errorMessage"`
		}
		if err := json.Unmarshal(bytes.TrimSpace(text), &checks); err != nil {
			return nil, nil, err
		}
		v[Check{Scenario: name[1]}] = nil
		for _, c := range checks {
			of := Check{name[1], c.ID}
			v[of] = append(v[of], c.Status)
			if c.Error != "" {
				faults[of] = c.Error
			}
		}
	}
	for _, statuses := range v {
		slices.Sort(statuses)
	}
	return v, faults, nil
}

// Scenarios are those that ran.
func (v Verdict) Scenarios() []string {
	all := map[string]bool{}
	for c := range v {
		all[c.Scenario] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// Failed are the scenarios with a check that failed.
func (v Verdict) Failed() []string {
	all := map[string]bool{}
	for c, statuses := range v {
		if slices.Contains(statuses, "FAILURE") {
			all[c.Scenario] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Count is how many checks have a status.
func (v Verdict) Count(status string) (n int) {
	for _, statuses := range v {
		for _, s := range statuses {
			if s == status {
				n++
			}
		}
	}
	return n
}

// Difference is a check of which two runs say different things, "-" if a run does not have it.
type Difference struct {
	Check
	Direct, Through string
}

func (d Difference) String() string {
	return strings.Join([]string{d.Scenario, d.ID, d.Direct, d.Through}, " ")
}

// Differences are the checks that are not equal, sorted.
func Differences(direct, through Verdict) (all []Difference) {
	checks := maps.Clone(direct)
	maps.Copy(checks, through)
	for c := range checks {
		if d := (Difference{c, direct.of(c), through.of(c)}); d.Direct != d.Through {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Difference) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func (v Verdict) of(c Check) string {
	statuses, has := v[c]
	switch {
	case !has:
		return "-"
	case len(statuses) == 0:
		return "RAN"
	}
	return strings.Join(statuses, "+")
}
