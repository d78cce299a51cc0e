package mcp_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// filesystemTools are the tools of the official server for files, with its annotations and the labels of an operator.
var filesystemTools = []struct{ name, says, impact string }{
	{"read_file", `"readOnlyHint":true`, ""}, // deprecated, and without a label
	{"read_text_file", `"readOnlyHint":true`, "read"},
	{"read_media_file", `"readOnlyHint":true`, "read"},
	{"read_multiple_files", `"readOnlyHint":true`, "read"},
	{"write_file", `"readOnlyHint":false,"idempotentHint":true,"destructiveHint":true`, "write"},
	{"edit_file", `"readOnlyHint":false,"idempotentHint":false,"destructiveHint":true`, "write"},
	{"create_directory", `"readOnlyHint":false,"idempotentHint":true,"destructiveHint":false`, "write"},
	{"list_directory", `"readOnlyHint":true`, "read"},
	{"list_directory_with_sizes", `"readOnlyHint":true`, "read"},
	{"directory_tree", `"readOnlyHint":true`, "read"},
	{"move_file", `"readOnlyHint":false,"idempotentHint":false,"destructiveHint":true`, "destroy"},
	{"search_files", `"readOnlyHint":true`, "read"},
	{"get_file_info", `"readOnlyHint":true`, "read"},
	{"list_allowed_directories", `"readOnlyHint":true`, "read"},
}

// filesystem is a server with these tools behind a gateway whose PDP has the bundle mcp.
func filesystem(t *testing.T) *siege {
	t.Helper()
	of := camp{policies: filesOf(t, "mcp")}
	var listed []string
	labelled := map[string]mcp.ToolConfig{}
	for _, tool := range filesystemTools {
		listed = append(listed, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"annotations":{%s,"openWorldHint":false}}`, tool.name, tool.says))
		if tool.impact != "" {
			labelled[tool.name] = mcp.ToolConfig{Labels: map[string]string{"impact": tool.impact}}
		}
	}
	of.answers = mcptest.Answers{Tools: "[" + strings.Join(listed, ",") + "]"}
	of.change = func(c *mcp.Config) {
		u := c.Upstreams["rec"]
		u.Labels, u.Tools = map[string]string{"integration": "files"}, labelled
		c.Upstreams = map[string]mcp.UpstreamConfig{"files": u}
	}
	return newSiege(t, of)
}

// shownTo are the tools that a visitor sees.
func shownTo(t *testing.T, v *visitor) []string {
	t.Helper()
	names, _ := v.tools()
	return names
}

// The outcomes of calls by the bundle mcp. A refusal names the remedy.
const (
	bundleRuns  = "runs"
	bundleAsks  = "Authorization required"
	bundlePlain = "Name one file or folder, by a plain path"
	bundleDraft = "Files are changed below drafts/ only"
	bundleLabel = "Nobody has said yet what this tool does"
	bundleJob   = "An agent that acts for nobody only reads"
)

var bundleCalls = []struct {
	name, tool, arguments string
	person, job           string // the outcome for a person, or an agent for one, and for a job
	ofPerson              string // the policy by which a person has to approve
}{
	{name: "a file is read", tool: "read_text_file", arguments: `{"path":"welcome.md"}`, person: bundleRuns, job: bundleRuns},
	{name: "none with a dot is", tool: "read_text_file", arguments: `{"path":"/srv/docs/.env"}`, person: bundlePlain, job: bundlePlain},
	{name: "nor by two arguments", tool: "read_text_file", arguments: `{"Path":"a.md"}`, person: bundlePlain, job: bundlePlain},
	{name: "a draft is written", tool: "write_file", arguments: `{"path":"drafts/a.md","content":"x"}`, person: bundleAsks, job: bundleJob, ofPerson: "write"},
	{name: "nothing else is", tool: "write_file", arguments: `{"path":"welcome.md","content":"x"}`, person: bundleDraft, job: bundleJob},
	{name: "a draft is moved", tool: "move_file", arguments: `{"source":"drafts/a.md","destination":"drafts/b.md"}`, person: bundleAsks, job: bundleJob, ofPerson: "destroy"},
	{name: "a hidden tool", tool: "read_multiple_files", arguments: `{"path":"a.md","paths":["a.md"]}`, person: bundlePlain, job: bundlePlain},
	{name: "a tool without a label", tool: "read_file", arguments: `{"path":"a.md"}`, person: bundleLabel, job: bundleJob},
}

// bundleCallers come to the bundle mcp, and each does not see some tools.
var bundleCallers = []struct {
	name   string
	claims mcptest.Claims
	hidden string
}{
	{"desktop", mcptest.Claims{"client_id": "desktop"}, "read_file read_multiple_files"},
	{"alice", mcptest.Claims{"client_id": nil}, "read_file read_multiple_files"},
	{"job", mcptest.Claims{"client_id": "ci", "sub": "ci"}, "create_directory edit_file move_file read_file read_multiple_files write_file"},
}

// The bundle mcp before the server for files, in both eras: which tools each caller sees, which calls run, which ones wait for
// an approval, and which are refused. No other call runs.
func TestBundleOfTheGateway(t *testing.T) {
	t.Parallel()
	s := filesystem(t)
	runs, waits := 0, map[string]int{}
	for _, era := range eras {
		for _, who := range bundleCallers {
			t.Run(era+"/"+who.name, func(t *testing.T) {
				v := s.visitor(era, who.claims)
				shown := shownTo(t, v)
				hidden := strings.Fields(who.hidden)
				for _, tool := range filesystemTools {
					if slices.Contains(shown, tool.name) == slices.Contains(hidden, tool.name) {
						t.Errorf("%s is in the wrong place: shown are %q", tool.name, shown)
					}
				}
				ran, asked := filesUsed(t, v, who.name == "job")
				runs += ran
				for policy, n := range asked {
					waits[policy] += n
				}
				if got := v.ask("resources/read", `{"uri":"mem://notes"}`); !got.ran() {
					t.Errorf("a resource: %s", got)
				}
				if got := v.ask("prompts/get", `{"name":"greet"}`); !got.ran() {
					t.Errorf("a prompt: %s", got)
				}
			})
		}
		keptOut(t, s, era)
	}
	called := slices.DeleteFunc(s.executed(), func(method string) bool { return method != "tools/call" })
	if runs != len(eras)*len(bundleCallers) || len(called) != runs {
		t.Errorf("%d calls ran, and the server got %d", runs, len(called))
	}
	if got := approvalsWanted(t, s); !maps.Equal(got, waits) {
		t.Errorf("approvals were wanted by %v, and by the record by %v", waits, got)
	}
}

// filesUsed calls the tools, and compares the outcomes with the table. It counts the calls that ran, and those that wait, by policy.
func filesUsed(t *testing.T, v *visitor, job bool) (ran int, waits map[string]int) {
	t.Helper()
	waits = map[string]int{}
	for _, c := range bundleCalls {
		want := c.person
		if job {
			want = c.job
		}
		if want == bundleAsks {
			waits[c.ofPerson]++
		}
		got := v.call(c.tool, c.arguments)
		switch {
		case want == bundleRuns && got.ran():
			ran++
		case want == bundleRuns || got.ran() || got.code() != -32001 || !strings.Contains(got.fault.Message, want):
			t.Errorf("%s: want %q, got %s", c.name, want, got)
		}
	}
	return ran, waits
}

// keptOut has callers come whom the bundle does not know: they do not get as far as a session.
func keptOut(t *testing.T, s *siege, era string) {
	first := map[string]string{"legacy": "initialize", "modern": "server/discover"}[era]
	for name, claims := range map[string]mcptest.Claims{
		"somebody":                {"client_id": nil, "sub": "mallory"},
		"an agent for somebody":   {"client_id": "desktop", "sub": "mallory"},
		"an agent for nobody":     {"client_id": "desktop", "sub": "desktop"},
		"somebody's own agent":    {"client_id": "newcomer"},
		"an agent for an agent":   {"client_id": "desktop", "act": map[string]any{"sub": "newcomer"}},
		"somebody who says more":  {"client_id": "desktop", "sub": "mallory", "department_id": "finance", "roles": []string{"staff"}},
		"who has a person's name": {"client_id": "alice", "sub": "alice"},
	} {
		t.Run(era+"/"+name, func(t *testing.T) {
			v := s.stranger(era, s.issuer.Token(t, claims))
			for _, method := range []string{first, "tools/list", "tools/call"} {
				got := v.ask(method, `{"name":"read_text_file","arguments":{"path":"welcome.md"},"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"1"},"capabilities":{}}`)
				if got.ran() || method == first && got.code() != -32001 {
					t.Errorf("%s: %s", method, got)
				}
			}
		})
	}
}

// approvalsWanted are the policies by which people would have been asked, by the decision log, and how often. The PDP is
// stopped for it.
func approvalsWanted(t *testing.T, s *siege) map[string]int {
	t.Helper()
	wanted := map[string]int{}
	for _, r := range s.records() {
		var line struct {
			Reason    string   `json:"reason"`
			Overruled []string `json:"overruled"`
		}
		orFail(t, json.Unmarshal([]byte(r.line), &line))
		if line.Reason == "approval_required" {
			wanted[strings.Join(line.Overruled, " ")]++
		}
	}
	return wanted
}
