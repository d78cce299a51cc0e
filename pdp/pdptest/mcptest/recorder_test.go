package mcptest

import (
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestMain(m *testing.M) { Main(m) }

const oddTool = `{"name":"search","x-unknown":{"b":1,"a":1.0},"inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}`

// The SDK's client speaks with a recorder in both eras, over HTTP and over standard streams, and all it sends is kept.
func TestRecorder(t *testing.T) {
	for _, over := range []string{"http", "stdio"} {
		for _, version := range []string{"2025-11-25", modern} {
			t.Run(over+" "+version, func(t *testing.T) { recorded(t, over, version) })
		}
	}
}

func recorded(t *testing.T, over, version string) {
	era := "legacy"
	if version == modern {
		era = "modern"
	}
	progress := make(chan string, 1)
	r := NewRecorder(t, Answers{Eras: []string{era}, Tools: "[" + oddTool + "]", Handle: func(c *Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"message":"half"}}`)
		c.Result(`{"content":[{"type":"text","text":"found"}],"x":1,"resultType":"complete"}`)
		return true
	}})
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) { progress <- n.Params.Message },
	})
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: r.URL}
	if over == "stdio" {
		command := r.Command()
		child := exec.Command(command[0], command[1:]...)
		child.Env = []string{"SECRET=in the environment"}
		transport = &mcp.CommandTransport{Command: child}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tools, err := s.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "search" {
		t.Fatalf("%v, %v", tools, err)
	}
	params := &mcp.CallToolParams{Name: "search", Arguments: map[string]any{"q": "a needle"}}
	params.SetProgressToken("p")
	result, err := s.CallTool(ctx, params)
	if err != nil || len(result.Content) != 1 {
		t.Fatalf("%v, %v", result, err)
	}
	select {
	case got := <-progress:
		if got != "half" {
			t.Errorf("progress %q", got)
		}
	case <-ctx.Done():
		t.Error("no progress")
	}
	var methods []string
	for _, g := range r.Got() {
		if g.Method != "" {
			methods = append(methods, g.Method)
		}
		if g.Over != over || over == "stdio" && (g.Child == nil || g.Child.PID == 0) {
			t.Errorf("%s came over %s from %v", g.Method, g.Over, g.Child)
		}
	}
	if executed := r.Executed(); !slices.Contains(methods, "tools/list") || len(executed) != 1 || executed[0].Method != "tools/call" {
		t.Errorf("of %q, executed %v", methods, executed)
	}
	if r.Saw("a needle") == "" || r.Saw("no such text") != "" || over == "stdio" && r.Saw("in the environment") == "" {
		t.Errorf("saw %q, %q and %q", r.Saw("a needle"), r.Saw("no such text"), r.Saw("in the environment"))
	}
}
