package mcp_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/pdptest/mcptest"
)

// outcome is what becomes of a call, as its caller sees it.
type outcome string

// A call runs, or is refused because a person must approve it, or because policies say no, whatever its arguments: such a
// tool is on no list either.
const (
	runs    outcome = "runs"
	waits   outcome = "waits for approval"
	refused outcome = "is refused"
	told    outcome = "is refused in words" // by a client that shows neither code nor data
)

// modes are the bundles, and what becomes of the three calls of a server, for the agent agent-release on behalf of alice:
// of one that looks, one that changes something, and one that no bundle lists.
var modes = []struct {
	policies               string
	looks, changes, absent outcome
}{
	{"always-allow", runs, refused, refused},
	{"always-prompt", waits, waits, waits},
	{"selective", runs, waits, refused},
	{"delegated", waits, refused, refused},
}

// testClients has clients of others use servers of others through the gateway, by each of the modes.
func testClients(t *testing.T, others *mcptest.Others) {
	for m, mode := range modes {
		for n, s := range servers(t, others) {
			t.Run(filepath.Join(mode.policies, s.name), func(t *testing.T) {
				t.Parallel()
				p := s.passage
				p.policies = mode.policies
				at, authorization := through(t, p)
				j := mcptest.Job{URL: at, Headers: map[string]string{"Authorization": authorization}, Calls: []mcptest.ToolCall{s.looks, s.changes, s.absent}}
				want := []outcome{mode.looks, mode.changes, mode.absent}
				// The Inspector is a process for each call: it sees each mode and each server, but not each with each.
				inspector := []string{"inspector-legacy", "inspector-modern"}[m%2]
				for _, c := range others.Clients() {
					if c.TellsCode || c.Name == inspector && n == m%3 {
						t.Run(c.Name, func(t *testing.T) { used(t, c, j, want) })
					}
				}
			})
		}
	}
}

// used has a client do a job and holds it to the outcomes that are wanted.
func used(t *testing.T, c mcptest.Client, j mcptest.Job, want []outcome) {
	seen := c.Run(t, j)
	if c.Version != seen.Version {
		t.Errorf("it speaks %q, where %q was wanted", seen.Version, c.Version)
	}
	if len(seen.Answers) != len(j.Calls) {
		t.Fatalf("%d answers to %d calls", len(seen.Answers), len(j.Calls))
	}
	for n, call := range j.Calls {
		if listed := slices.Contains(seen.Tools, call.Name); listed != (want[n] != refused) {
			t.Errorf("%s is on the list: %t, and its call %s", call.Name, listed, want[n])
		}
		if got := outcomeOf(c, seen.Answers[n]); got != want[n] && (got != told || want[n] == runs) {
			t.Errorf("%s %s, where it %s by the policies: %+v", call.Name, got, want[n], seen.Answers[n])
		}
	}
}

func outcomeOf(c mcptest.Client, a mcptest.Answer) outcome {
	var data struct {
		Type    string         `json:"type"`
		Request jsontext.Value `json:"authorizationRequest"`
	}
	switch {
	case len(a.Result) > 0 && !bytes.Contains(a.Result, []byte(`"isError":true`)):
		return runs
	case !c.TellsCode && len(a.Result) == 0 && a.Message != "":
		return told
	case a.Code == -32001 && json.Unmarshal(a.Data, &data) == nil && data.Type == "tool_call_blocked" && data.Request != nil:
		return waits
	case a.Code == -32001 && data.Type == "tool_call_blocked":
		return refused
	}
	return "neither runs nor is refused"
}

// testRefusals has the clients show what a refusal is, of a server in whose answers nobody has a hand.
func testRefusals(t *testing.T, others *mcptest.Others) {
	const blocked = `{"code":-32001,"message":"Access denied","data":{"type":"tool_call_blocked","reason":"no"`
	r := mcptest.NewRecorder(t, mcptest.Answers{Tools: `[{"name":"look","inputSchema":{"type":"object"}},{"name":"change","inputSchema":{"type":"object"}}]`,
		Handle: func(c *mcptest.Call) bool {
			var params struct {
				Name string `json:"name"`
			}
			if c.Method != "tools/call" || json.Unmarshal(c.Params, &params) != nil || params.Name == "look" {
				return false
			}
			if params.Name == "change" {
				c.Error(blocked + `,"authorizationRequest":{"tool":"change"}}}`)
			} else {
				c.Error(blocked + `}}`)
			}
			return true
		}})
	const secret = "Bearer of a secret"
	j := mcptest.Job{URL: r.URL, Headers: map[string]string{"Authorization": secret}, Calls: []mcptest.ToolCall{{Name: "look"}, {Name: "change"}, {Name: "absent"}}}
	for _, c := range others.Clients() {
		t.Run(c.Name, func(t *testing.T) {
			used(t, c, j, []outcome{runs, waits, refused})
		})
	}
	if where := r.Saw(secret); where == "" {
		t.Error("the clients sent no token")
	}
}

// server is a server of others, with three calls: see modes.
type server struct {
	passage
	looks, changes, absent mcptest.ToolCall
}

func servers(t *testing.T, others *mcptest.Others) []server {
	dir := t.TempDir()
	orFail(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("a note"), 0o600))
	call := func(name string, arguments map[string]any) mcptest.ToolCall {
		return mcptest.ToolCall{Name: name, Arguments: arguments}
	}
	none := map[string]any{}
	return []server{{
		passage: passage{name: "everything", command: others.Server("everything", "stdio")},
		looks:   call("echo", map[string]any{"message": "hello"}), changes: call("toggle-simulated-logging", none), absent: call("get-tiny-image", none),
	}, {
		passage: passage{name: "files", command: others.Server("filesystem", dir)},
		looks:   call("list_directory", map[string]any{"path": dir}),
		changes: call("write_file", map[string]any{"path": filepath.Join(dir, "new.txt"), "content": "new"}),
		absent:  call("directory_tree", map[string]any{"path": dir}),
	}, {
		passage: passage{name: "memory", command: others.Server("memory"), env: map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.json")}},
		looks:   call("read_graph", none),
		changes: call("create_entities", map[string]any{"entities": []any{map[string]any{"name": "a", "entityType": "b", "observations": []any{"c"}}}}),
		absent:  call("delete_entities", map[string]any{"entityNames": []any{"a"}}),
	}}
}
