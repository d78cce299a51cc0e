package main // and not main_test: a cached result must not outlive a change of the program that the test builds

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/filetree"
)

// The pages of this repository promise commands and their answers. Here they are taken at their word: each page is typed,
// from its first line to its last, into a terminal of its own beside a server of its own. What a block may be:
//
//	console  a transcript. A line that begins with "$ " is a command, lines right after it that begin with "> " continue
//	         it, and the lines after those are what a terminal shows of it (pagematch_test.go says what "…" means there).
//	sh       make, with targets that exist
//	text     a picture
//
// and what a test of another package makes sure of.
const root = "../.."

// readers are the pages that have to be there, each with its reader's name.
var readers = map[string]string{
	"README.md":                          "everybody",
	"evaluation/README.md":               "PEP developer, over HTTP",
	"evaluation/authzenclient/README.md": "PEP developer, in Go",
	"evaluation/coaz/sdkpep/README.md":   "developer of an MCP server",
	"evaluation/coaz/README.md":          "PEP developer, in front of MCP tools",
	"obligations/README.md":              "PEP developer, of obligations",
	"policies/README.md":                 "policy author",
	"pdp/approval/README.md":             "approver, and who asks approvers",
	"pdp/console/README.md":              "approver, in a browser",
	"pdp/console/RECORDS.md":             "auditor, in a browser",
	"pdp/approval/TASKS.md":              "PEP developer, who waits for many approvals",
	"pdp/approval/CONTINUE.md":           "PEP developer, in front of tools that ask back",
	"pdp/capability/README.md":           "agent platform, and PEP developer, of capabilities",
	"pdp/capability/AGENT.md":            "author of an agent that holds capabilities",
	"pdp/capability/OFFLINE.md":          "author of a gateway that asks nobody about a call",
	"pdp/decisionlog/README.md":          "auditor",
	"pdp/decisionlog/WITNESSES.md":       "operator, who has others watch the log",
	"pdp/decisionlog/export/README.md":   "auditor, with a spreadsheet",
	"pdp/decisionlog/PROOFS.md":          "auditor, who hands a decision on",
	"pdp/decisionlog/MERGE.md":           "auditor, of several servers that share their state",
	"pdp/mcp/README.md":                  "agent platform",
	"pdp/mcp/ASK.md":                     "agent platform, who has people asked",
	"pdp/mcp/MESSAGES.md":                "author of an agent, a host or a gateway, who speaks the messages of MCPx",
	"pdp/mcp/REFERENCE.md":               "agent platform, who looks something up",
	"pdp/server/CAPABILITIES.md":         "operator, of a service that grants capabilities",
	"pdp/server/CLUSTER.md":              "operator, of several servers that share their state",
	"pdp/server/CONSOLE.md":              "operator, who lets people approve in a browser",
	"pdp/server/KEYS.md":                 "operator, who looks something up",
	"pdp/server/MOVE.md":                 "operator, who takes one server to three replicas",
	"pdp/server/RECOVER.md":              "operator, who has lost something of a cluster",
	"pdp/server/README.md":               "operator, who looks something up",
	"pdp/server/auth/README.md":          "operator, who says who may ask",
	"policies/ACCESS.md":                 "owner of a tool server",
	"policies/CAPABILITIES.md":           "policy author, of capabilities",
	"policies/EDITORS.md":                "policy author, in an editor",
	"policies/REPLAY.md":                 "policy author, about to merge",
	"policies/REFERENCE.md":              "policy author, who looks something up",
	"policies/CHOOSE.md":                 "everybody who chooses a PDP",
	"policies/SAAS.md":                   "policy author, of an application with many customers",
	"policies/TUTORIAL.md":               "newcomer",
	"conformance/TEXTS.md":               "who integrates with the service, or certifies it",
	"cmd/policy-service/README.md":       "operator",
	"cmd/policy-service/INSTALL.md":      "operator, who installs",
	"cmd/policy-service/CHANGES.md":      "operator, who upgrades",

	"evaluation/clients/python/README.md":     "PEP developer, in Python",
	"evaluation/clients/typescript/README.md": "PEP developer, in TypeScript",
	"evaluation/clients/typescript/MCP.md":    "developer of an MCP server, in TypeScript",
}

// elsewhere are the blocks that another test executes or reads: which one, by the page and the tag.
var elsewhere = map[string]map[string]string{
	"evaluation/authzenclient/README.md":               {"go": "readme_test.go beside it, which holds them to examples that are run"},
	"pdp/capability/AGENT.md":                          {"go": "readme_test.go of evaluation/authzenclient, as above", withNode: "agentpage_test.go, which types them beside the rest", "ts": "typescript_test.go of evaluation/capability, which holds it to a program that pdp/internal/server runs"},
	"evaluation/coaz/sdkpep/README.md":                 {"go": "readme_test.go beside it, as above"},
	"evaluation/coaz/README.md":                        {"go": "readme_test.go beside it, as above", "json": "readme_test.go beside it, which makes the questions"},
	"conformance/pep/README.md":                        {"yaml": "conformance/pep/cases_test.go, which reads it as a case"},
	"pdp/mcp/README.md":                                {withNode: "demopage_test.go, which types them beside make mcp-demo", "json": "gateway_stdio_test.go, which starts by it what a client starts"},
	"pdp/mcp/ASK.md":                                   {withNode: "demopage_test.go, as above, and opens in a browser what they say to open"},
	"pdp/mcp/MESSAGES.md":                              {withNode: "demopage_test.go, as above", "json": "pdp/internal/mcp/peer_test.go, which speaks it through a gateway"},
	"pdp/mcp/REFERENCE.md":                             {"yaml": "pdp/internal/mcp/coaz_test.go, which has a gateway judged by it"},
	"cmd/policy-service/INSTALL.md":                    {asRoot: "install_linux_test.go, which types them on a machine without Go", "console go": "install_linux_test.go, which types them into a copy of the checkout"},
	"conformance/cases/README.md":                      {"yaml": "conformance/casespage_test.go, which reads it as a case"},
	"pdp/decisionlog/WITNESSES.md":                     {withoutWitness: "witnessespage_test.go, which types them beside a witness", litewitness: "as above", beside: "as above"},
	"pdp/server/MOVE.md":                               {withEtcd: "clusterpages_test.go, which types them beside the programs of etcd"},
	"pdp/server/RECOVER.md":                            {withEtcd: "clusterpages_test.go, as above"},
	"pdp/internal/decisionlog/report/sample_readme.md": {"sh": "log_sample_test.go, which runs them in a sample"},

	"evaluation/clients/python/README.md":     {"python": "python_test.go of evaluation/clients, which runs the programs", "console python": "python_test.go, as above"},
	"evaluation/clients/typescript/README.md": {"ts": "typescript_test.go of evaluation/clients, which runs the programs", withNode: "typescript_test.go, as above"},
	"evaluation/clients/typescript/MCP.md":    {"ts": "typescript_test.go, as above", "js": "mcpguard_test.go, which finds it in the example"},
}

// unexecuted are the pages of which no block is executed, each with the reason.
var unexecuted = map[string]string{
	"cmd/policy-service/CHANGES.md":   "it tells of the past",
	"evaluation/clients/README.md":    "its commands are those of the tests beside it",
	"conformance/REQUIREMENTS.md":     "its rows are held to the cases, and the suite runs those",
	"conformance/pep/REQUIREMENTS.md": "its rows are held to the cases, and the suite runs those",
	"pdp/console/README.md":           "it is about what people see in a browser, and pdp/internal/console holds its pictures to that",
	"pdp/console/RECORDS.md":          "it is about what people see in a browser, and the commands there are run by TestTheCommandsOnARecordsPage",
	"pdp/PERFORMANCE.md":              "its commands take minutes, and its numbers are those of one machine",
	"pdp/server/CLUSTER.md":           "it needs an etcd, and pdp/internal/server holds its table to one",
	"pdp/server/KEYS.md":              "it is tables, which are made of the keys",
	"policies/CHOOSE.md":              "it is about other programs",
	"pdp/server/LIMITS.md":            "it is tables, which pdp/internal/server and pdp hold to the code",

	"evaluation/clients/python/CHANGELOG.md":     "it tells of the past",
	"evaluation/clients/typescript/CHANGELOG.md": "it tells of the past",
}

// withoutContents are the pages that begin with no table of contents, each with the reason.
var withoutContents = map[string]string{
	"README.md": "it has a table of readers, and their pages",
	"pdp/internal/decisionlog/report/sample_readme.md": "it is read beside the files that it is about, from its first line to its last",

	"evaluation/clients/python/CHANGELOG.md":     "its headings are versions",
	"evaluation/clients/typescript/CHANGELOG.md": "its headings are versions",
}

// maxColumns is how wide prose may be.
const maxColumns = 120

// TestPages types all pages. It takes half a minute of CPU: that is some five hundred commands.
func TestPages(t *testing.T) {
	needProgram(t, "curl")
	bin := built(t)
	for _, p := range pages(t) {
		if steps := p.steps(t); len(steps) > 0 {
			t.Run(p.path, func(t *testing.T) {
				parallelPage(t)
				newTerminal(t, p, bin).read(t, p, steps)
			})
		}
	}
}

// TestPagesFirstCurl holds together what `make run` prints and what the first page shows, with its answer, as the first
// thing to try.
func TestPagesFirstCurl(t *testing.T) {
	needProgram(t, "make")
	line := strings.TrimSuffix(runMake(t, "-s", "first-curl"), "\n")
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	if !regexp.MustCompile(`(?m)^run:.* first-curl\b`).Match(makefile) {
		t.Error("make run no longer makes first-curl, which prints the request")
	}
	if first := readPage(t, "README.md").steps(t)[0]; first.command != line || first.want != "{\"decision\":true}\n" {
		t.Errorf("make run prints\n%s\nbut README.md:%d starts with\n%s\n%s", line, first.line, first.command, first.want)
	}
}

// pages are all of the repository: the first one, and the others in the order of their paths.
func pages(t *testing.T) (all []page) {
	t.Helper()
	all = append(all, readPage(t, "README.md"))
	for _, room := range filetree.Rooms {
		err := fs.WalkDir(os.DirFS(root), room, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
				return fs.SkipDir
			case strings.HasSuffix(path, ".md"):
				all = append(all, readPage(t, path))
			}
			return nil
		})
		must(t, err)
	}
	return all
}

func runMake(t *testing.T, args ...string) string {
	t.Helper()
	out, err := makeOutput(args...)
	must(t, err)
	return out
}

func makeOutput(args ...string) (string, error) {
	cmd := exec.Command("make", append([]string{"--no-print-directory", "-C", root}, args...)...)
	cmd.Env = withoutMake()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w", cmd, err)
	}
	return string(out), nil
}

// withoutMake is the environment of a make of our own: an outer make's flags are not this one's.
func withoutMake() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS") })
}

// needProgram skips a test on a machine without a program. CI has all of them, and there the test fails.
func needProgram(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	} else if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skipf("there is no %s; install it", program)
}
