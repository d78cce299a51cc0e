package policies_test

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"policy-service/pdp"
)

// answered is a line of answers.ndjson, which testdata/make.go.txt writes.
type answered struct {
	Bundle      string   `json:"bundle"`
	File        string   `json:"file"`
	Line        int      `json:"line"`
	Name        string   `json:"name"`
	Allow       bool     `json:"allow"`
	Reason      string   `json:"reason"`
	Determining []string `json:"determining"`
	Obligations []string `json:"obligations"`
	Errors      []string `json:"errors"`
}

// TestReleases: a bundle that has loaded once loads, and answers as it did. The bundles of each release are kept with
// the answers of its own code to their tests; testdata/make.sh says how a release adds its own.
func TestReleases(t *testing.T) {
	t.Parallel()
	releases, err := filepath.Glob("testdata/of-*")
	if err != nil || len(releases) < 2 {
		t.Fatalf("%d releases are kept: %v", len(releases), err)
	}
	for _, release := range releases {
		t.Run(filepath.Base(release), func(t *testing.T) {
			kept := answersOf(t, filepath.Join(release, "answers.ndjson"))
			bundles, err := filepath.Glob(filepath.Join(release, "*", "bundle.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range bundles {
				dir := filepath.Dir(file)
				name := filepath.Base(dir)
				if len(kept[name]) == 0 {
					t.Errorf("no answers of %s are kept", name)
				}
				if diff := cmp.Diff(kept[name], answersNow(t, dir)); diff != "" {
					t.Errorf("%s: it answered otherwise (-), and now (+)\n%s", dir, diff)
				}
				delete(kept, name)
			}
			if len(kept) > 0 {
				t.Errorf("there are answers of bundles that are not kept: %v", kept)
			}
		})
	}
}

// answersOf are the answers that are kept, by bundle.
func answersOf(t *testing.T, file string) map[string][]answered {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]answered{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var a answered
		if err := json.Unmarshal(lines.Bytes(), &a, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		all[a.Bundle] = append(all[a.Bundle], a)
	}
	return all
}

// answersNow are the answers of this code to the tests of a bundle. A warning is none of its faults: there are more of
// them than there were.
func answersNow(t *testing.T, dir string) (all []answered) {
	t.Helper()
	source := pdp.Dir(dir)
	bundle, problems := pdp.Load(source)
	if problems.Refuse() {
		t.Fatalf("%s loads no more: %v", dir, problems)
	}
	examples, problems := pdp.Examples(source)
	if problems.Refuse() {
		t.Fatalf("%s: its tests cannot be read any more: %v", dir, problems)
	}
	decider := pdp.Of(bundle, pdp.Options{})
	for _, e := range examples {
		d, err := decider.Evaluate(t.Context(), e.Call)
		if err != nil || !asExpected(e, d) {
			t.Errorf("%s: %s:%d: %s: it fails: %v", dir, e.File, e.Line, e.Name, err)
		}
		a := answered{Bundle: filepath.Base(dir), File: e.File, Line: e.Line, Name: e.Name, Allow: d.Allow, Reason: string(d.Reason), Determining: d.Determining}
		for _, o := range d.Obligations {
			a.Obligations = append(a.Obligations, o.ID)
		}
		for _, failed := range d.Errors {
			a.Errors = append(a.Errors, failed.Policy)
		}
		slices.Sort(a.Determining)
		slices.Sort(a.Obligations)
		slices.Sort(a.Errors)
		all = append(all, a)
	}
	return all
}
