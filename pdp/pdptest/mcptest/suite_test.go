package mcptest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever the suite says otherwise of one of two servers is a difference: a check, its status, how often, and also that
// it is there.
func TestDifferences(t *testing.T) {
	direct := Verdict{{"ping", ""}: nil, {"ping", "answers"}: {"SUCCESS"}, {"list", ""}: nil, {"list", "names"}: {"FAILURE", "SUCCESS"}, {"gone", ""}: nil}
	through := Verdict{{"ping", ""}: nil, {"ping", "answers"}: {"FAILURE"}, {"list", ""}: nil, {"list", "names"}: {"SUCCESS"}, {"list", "more"}: {"INFO"}}
	var got []string
	for _, d := range Differences(direct, through) {
		got = append(got, d.String())
	}
	want := []string{"gone  RAN -", "list more - INFO", "list names FAILURE+SUCCESS SUCCESS", "ping answers SUCCESS FAILURE"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if same := Differences(direct, direct); same != nil {
		t.Errorf("from itself it differs in %v", same)
	}
}

func TestReadResults(t *testing.T) {
	dir := t.TempDir()
	for scenario, checks := range map[string]string{
		"server-ping-2026-11-22T14-49-46-969Z":                       `[{"id":"b","status":"SUCCESS"},{"id":"a","status":"SUCCESS"},{"id":"a","status":"FAILURE","errorMessage":"no answer","details":{}}]`,
		"server-elicitation-sep1034-defaults-2026-11-22T14-49-47-0Z": `[]`,
	} {
		if err := os.Mkdir(filepath.Join(dir, scenario), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, scenario, "checks.json"), []byte(checks), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, faults, err := readResults(dir)
	want := Verdict{{"ping", ""}: nil, {"ping", "a"}: {"FAILURE", "SUCCESS"}, {"ping", "b"}: {"SUCCESS"}, {"elicitation-sep1034-defaults", ""}: nil}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if diff := cmp.Diff(Faults{{"ping", "a"}: "no answer"}, faults); diff != "" {
		t.Error(diff)
	}
	if failed := got.Failed(); !slices.Equal(failed, []string{"ping"}) || got.Count("SUCCESS") != 2 || len(got.Scenarios()) != 2 {
		t.Errorf("%q failed, %d are good, of %q", failed, got.Count("SUCCESS"), got.Scenarios())
	}
}
