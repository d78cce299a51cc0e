package mcp_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/policies"
)

// filesOf are the files of a bundle of ours.
func filesOf(t testing.TB, name string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := policies.Named(name)
	orFail(t, err)
	orFail(t, fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		all[name] = string(text)
		return err
	}))
	return all
}

// modeCall is a call by a mode, and what becomes of it.
type modeCall struct {
	agent, tool string
	// says are what people say about it, each as: who, what, and to whom. There are none if nobody is asked.
	says []string
	want string
}

// modeCalls are calls for bob, by the modes in which agents work with tools, of the server memory.
var modeCalls = map[string][]modeCall{
	"always-allow": {
		{"agent-release", "read_graph", nil, "runs"},
		{"agent-new", "read_graph", nil, "runs"},
		{"agent-release", "create_entities", nil, "is denied"},
	},
	"always-prompt": {
		{"agent-release", "read_graph", []string{"alice approve"}, "runs"},
		{"agent-release", "create_entities", []string{"alice deny"}, "is denied: declined"},
		{"agent-new", "delete_entities", []string{"bob approve", "mia approve"}, "is denied: an equal call that has ended took back"}, // who takes part, and who has no say
	},
	"selective": {
		{"agent-release", "read_graph", nil, "runs"},
		{"agent-release", "create_entities", []string{"mia approve", "alice approve"}, "runs"},
		{"agent-new", "create_entities", nil, "is denied: An agent on trial cannot use tools that change something."},
		{"agent-new", "read_graph", []string{"alice deny"}, "is denied: declined"},
		{"agent-release", "delete_entities", nil, "is denied"},
	},
	"delegated": {
		{"agent-new", "read_graph", []string{"mia approve", "alice approve"}, "runs"},
		{"agent-new", "read_graph", []string{"mia approve", "alice delegate mia", "alice approve", "mia approve"}, "runs"},
		{"agent-new", "read_graph", []string{"alice delegate mia", "noah deny", "mia deny"}, "is denied: declined"},
		{"agent-new", "create_entities", []string{"alice approve", "bob deny"}, "is denied: declined"}, // his own tool, by his own agent
		{"agent-release", "create_entities", nil, "is denied: The owner of this tool has ruled this agent out."},
		{"agent-release", "delete_entities", nil, "is denied"},
	},
}

// The four modes in which agents can work with tools are policies, and a gateway in front of any server has each of them as it
// stands: what is harmless goes ahead, what needs people waits for those who decide by authorization/respond, and who is named in
// their place decides as well. Nothing else reaches the server.
func TestModes(t *testing.T) {
	t.Parallel()
	for mode, calls := range modeCalls {
		for _, era := range eras {
			t.Run(mode+" "+era, func(t *testing.T) {
				t.Parallel()
				w := newPeople(t, land{
					bundle:  filesOf(t, mode),
					answers: mcptest.Answers{Tools: `[{"name":"read_graph","inputSchema":{"type":"object"}},{"name":"create_entities","inputSchema":{"type":"object"}},{"name":"delete_entities","inputSchema":{"type":"object"}}]`},
					change:  func(c *mcp.Config) { c.Upstreams = map[string]mcp.UpstreamConfig{"memory": c.Upstreams["rec"]} },
				})
				for n, call := range calls {
					call.holds(t, w, era, fmt.Sprintf(`{"n":%d}`, n))
				}
			})
		}
	}
}

func (c modeCall) holds(t *testing.T, w *world, era, arguments string) {
	t.Helper()
	before := len(w.forwarded(c.tool))
	caller := w.visitor(era, mcptest.Claims{"sub": "bob", "client_id": c.agent})
	if listed := slices.Contains(shownTo(t, caller), c.tool); listed != (c.says != nil || c.want == "runs") {
		t.Errorf("%s sees %s: %t", c.agent, c.tool, listed)
	}
	over := caller.ahead(c.tool, arguments)
	var votes []string
	if c.says != nil {
		id := w.asks("")
		for _, said := range c.says {
			who, what, _ := strings.Cut(said, " ")
			decision, to, delegates := strings.Cut(what, " ")
			more := ""
			if delegates {
				more = `,"delegateTo":` + inText(`user::"`+to+`"`)
			}
			by := "modern" // in which everybody is heard, whether they may have a session or not
			if who == "alice" {
				by = era
			}
			got := w.visitor(by, mcptest.Claims{"sub": who, "client_id": nil}).ask(respondMethod, rules(id, decision, more))
			if got.ran() {
				votes = append(votes, votedByForm(decision, who))
			} else if got.code() != -32602 {
				t.Errorf("%s: %s", said, got)
			}
		}
		if got := w.votes(id); !slices.Equal(got, votes) {
			t.Errorf("%s: they say %q, want %q", c.tool, got, votes)
		}
		if len(votes) == 0 { // the call would wait for long
			w.says("gateway", id, "cancel", "")
		}
	}
	got := becomes(seenIn(<-over))
	if !strings.HasPrefix(got, c.want) {
		t.Errorf("%s for %s %s, want that it %s", c.tool, c.agent, got, c.want)
	}
	if ran := len(w.forwarded(c.tool)) - before; ran != map[string]int{"runs": 1}[c.want] {
		t.Errorf("%s for %s ran %d times", c.tool, c.agent, ran)
	}
}
