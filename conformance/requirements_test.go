package conformance

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/conformance/internal/casetest"
)

// certificationSections are all sections of the certification document that hold
// a requirement or a test.
const certificationSections = `
c-1 c-1-1 c-1-2 c-1-3 c-1-4 c-1-5 c-1-6
c-2-1 c-2-2 c-2-2-1 c-2-2-2 c-2-2-3 c-2-2-4 c-2-2-5 c-2-2-6 c-2-2-7 c-2-2-8 c-2-2-9
c-2-3 c-2-3-1 c-2-3-2 c-2-4 c-2-4-1 c-2-4-2 c-2-4-3 c-2-4-4 c-2-4-5 c-2-4-6 c-2-5 c-2-5-1 c-2-5-2 c-2-6
c-3-1 c-3-2 c-3-2-1 c-3-2-2 c-3-2-3 c-3-2-4 c-3-2-5 c-3-2-6 c-3-2-7
c-3-3 c-3-3-1 c-3-3-2 c-3-3-3 c-3-3-4 c-3-4 c-3-4-1 c-3-4-2 c-3-4-3
c-4-1 c-4-2 c-4-2-1 c-4-2-2 c-4-2-3 c-4-2-4 c-4-3 c-4-3-1 c-4-3-2 c-4-3-3 c-4-4 c-4-4-1 c-4-4-2 c-4-4-3
c-4-5 c-4-5-1 c-4-5-2 c-4-5-3 c-4-5-4 c-4-6 c-4-6-1 c-4-6-2 c-4-7 c-4-7-1 c-4-7-2
c-5 c-6 c-6-1 c-6-2 c-6-3 c-6-4 c-6-5 c-6-6`

// certificationCases are the tests of its Test ID Matrix that name one case each.
const certificationCases = `
c-2-2-1 c-2-2-2 c-2-2-3 c-2-2-8 c-2-2-9 c-2-6 c-2-2-4 c-2-2-5 c-2-2-6 c-2-2-7
c-3-2-1 c-3-2-2 c-3-2-5 c-3-2-6 c-3-2-3 c-3-2-4 c-3-2-7
c-4-2-1 c-4-2-2 c-4-2-3 c-4-3-1 c-4-3-2 c-4-4-1 c-4-4-2 c-4-2-4 c-4-3-3 c-4-4-3`

func rows(t *testing.T) []casetest.Row { return casetest.Rows(t, "REQUIREMENTS.md") }

func TestRequirementsNameCases(t *testing.T) {
	t.Parallel()
	ids := caseIDs(t)
	ours := planNames()
	for _, row := range rows(t) {
		for _, name := range row.Names() {
			exists := slices.ContainsFunc(ids, func(id string) bool { ok, _ := path.Match(name, id); return ok })
			if isCase := !strings.ContainsAny(name, "_ ./") && !slices.Contains(ours, name); isCase && !exists && name != "reason" {
				t.Errorf("%s: no case is called %s", row.Section, name)
			}
		}
	}
}

var goTest = regexp.MustCompile(`\bTest[A-Z]\w+`)

// Whatever is said to be shown by a test of ours is there.
func TestRequirementsNameTests(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for _, dir := range []string{".", "../obligations", "../pdp/internal/engine", "../pdp/internal/mcp/internal/ask", "../pdp/internal/server", "../pdp/internal/approval/broker", "../evaluation", "../evaluation/authzenclient", "../evaluation/authzenclient/approvals", "../evaluation/clients"} {
		files, err := filepath.Glob(dir + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	named := 0
	for _, row := range rows(t) {
		for _, name := range goTest.FindAllString(row.Shown, -1) {
			if named++; !strings.Contains(tests.String(), "func "+name+"(") {
				t.Errorf("%s, %s: no test is called %s", row.Section, row.Says, name)
			}
		}
	}
	if named == 0 {
		t.Error("no test is named")
	}
}

func TestRequirementsCoverCertification(t *testing.T) {
	t.Parallel()
	ids := caseIDs(t)
	sections := map[string]bool{}
	for _, row := range rows(t) {
		sections[row.Section] = len(row.Names()) > 0 || row.Section == "c-1"
	}
	for section := range strings.FieldsSeq(certificationSections) {
		if !sections[section] {
			t.Errorf("section %s is not covered", section)
		}
	}
	for id := range strings.FieldsSeq(certificationCases) {
		if !slices.Contains(ids, id) {
			t.Errorf("there is no case %s", id)
		}
	}
}

// Whatever the certification calls a section is in the requirements, so that a
// case cannot claim a number that the document does not have.
func TestCertificationCasesHaveSections(t *testing.T) {
	t.Parallel()
	known := strings.Fields(certificationSections)
	for _, id := range caseIDs(t) {
		if !strings.HasPrefix(id, "c-") {
			continue
		}
		if !slices.ContainsFunc(known, func(s string) bool { return id == s || strings.HasPrefix(id, s+"-") }) {
			t.Errorf("%s is no section", id)
		}
	}
}
