package conformance_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/conformance"
	"policy-service/conformance/pep"
)

var (
	linkedTest = regexp.MustCompile(`\[(Test\w+)\]\(([^)]+)\)`)
	namedPlan  = regexp.MustCompile("plan `([^`]+)`")
)

// TestTextsNameTests holds the page of editions to the code: each of its rows names the tests that hold it, and they exist.
func TestTextsNameTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("TEXTS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); len(cells) == 5 && strings.HasPrefix(line, "| ") && cells[4] != " held by " {
			rows++
			for _, problem := range unheld(cells[4]) {
				t.Errorf("%s: %s", strings.TrimSpace(cells[0]), problem)
			}
		} else if strings.Contains(line, "](") && strings.Contains(line, "_test.go") {
			t.Errorf("this names tests, and is no row of five cells: %s", line)
		}
	}
	if rows < 30 {
		t.Errorf("the page has %d rows", rows)
	}
	for file, version := range map[string]*regexp.Regexp{
		"../go.mod": regexp.MustCompile(`/(cedar-go|cel-go) v(\S+)`),
		"../pdp/internal/cedartext/testdata/cedar/package.json":      regexp.MustCompile(`"@cedar-policy/(cedar)-wasm": "([^"]+)"`),
		"../pdp/internal/mcp/toolschema/testdata/cedar/package.json": regexp.MustCompile(`"@cedar-policy/(cedar)-wasm": "([^"]+)"`),
		"../pdp/pdptest/mcptest/node/package.json":                   regexp.MustCompile(`"@modelcontextprotocol/(conformance)": "([^"]+)"`),
	} {
		text, err := os.ReadFile(file)
		used := version.FindAllStringSubmatch(string(text), -1)
		if err != nil || len(used) == 0 {
			t.Errorf("%s: %v, and no version", file, err)
		}
		for _, one := range used {
			if !strings.Contains(string(page), " "+one[2]) {
				t.Errorf("%s: the page does not say %s of %s", file, one[2], one[1])
			}
		}
	}
	for _, wrong := range []string{
		"`TestOurServer`", "[TestOurServer](requirements_test.go)", "[TestOurServe](server_test.go)", "[TestOurServer](gone_test.go)",
		"[TestOurServer](server_test.go), plan `basic`",
	} {
		if len(unheld(wrong)) != 1 {
			t.Errorf("%s: %q", wrong, unheld(wrong))
		}
	}
}

// unheld returns what does not exist of the tests and plans in the last cell of a row.
func unheld(cell string) (problems []string) {
	tests := linkedTest.FindAllStringSubmatch(cell, -1)
	if len(tests) == 0 {
		problems = append(problems, "no test is named")
	}
	for _, test := range tests {
		if text, err := os.ReadFile(test[2]); err != nil || !strings.Contains(string(text), "\nfunc "+test[1]+"(") {
			problems = append(problems, fmt.Sprintf("no %s is in %s", test[1], test[2]))
		}
	}
	plans := slices.Concat(conformance.Plans(), pep.Plans())
	for _, plan := range namedPlan.FindAllStringSubmatch(cell, -1) {
		if !slices.ContainsFunc(plans, func(p conformance.Plan) bool { return p.Name == plan[1] }) {
			problems = append(problems, "no plan is called "+plan[1])
		}
	}
	return problems
}
