package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// gateway is an MCP server of the official SDK with a client of it, and somebody between
// them who hands the client what our server wrote, byte for byte.
type gateway struct {
	toClient io.Writer
	answers  chan *jsonrpc.Response // of the client, to what was handed to it
}

// openGateway connects them. What somebody fills in is said by fill, who is shown what
// the SDK made of the message.
func openGateway(t *testing.T, version string, fill func(*mcp.ElicitParams) *mcp.ElicitResult) *gateway {
	t.Helper()
	clientReads, toClient := io.Pipe()
	fromClient, clientWrites := io.Pipe()
	serverReads, toServer := io.Pipe()
	g := &gateway{toClient: &oneAtATime{to: toClient}, answers: make(chan *jsonrpc.Response, 1)}
	go func() {
		for lines := bufio.NewScanner(fromClient); lines.Scan(); {
			m, _ := jsonrpc.DecodeMessage(lines.Bytes())
			if answer, ok := m.(*jsonrpc.Response); ok {
				g.answers <- answer // the server asks nothing by itself
			} else if _, err := io.WriteString(toServer, lines.Text()+"\n"); err != nil {
				return
			}
		}
	}()
	who := &mcp.Implementation{Name: "test", Version: "1"}
	served, err := mcp.NewServer(who, nil).Connect(t.Context(), &mcp.IOTransport{Reader: serverReads, Writer: closing{g.toClient}}, nil)
	must(t, err)
	client := mcp.NewClient(who, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return fill(r.Params), nil
	}})
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: clientReads, Writer: clientWrites}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	must(t, err)
	t.Cleanup(func() {
		_ = toServer.Close()
		_ = toClient.Close()
		_ = session.Close()
		_ = served.Close()
	})
	return g
}

// elicit hands the client a message, and is what comes back.
func (g *gateway) elicit(t *testing.T, message, id string) (result string) {
	t.Helper()
	_, err := io.WriteString(g.toClient, message+"\n")
	must(t, err)
	answer := <-g.answers
	if answer.ID.Raw() != id || answer.Error != nil {
		t.Errorf("the client answers %v: %v, to\n%s", answer.ID.Raw(), answer.Error, message)
	}
	return string(answer.Result)
}

// oneAtATime keeps the lines of two writers apart.
type oneAtATime struct {
	mu sync.Mutex
	to io.Writer
}

func (w *oneAtATime) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

type closing struct{ io.Writer }

func (closing) Close() error { return nil }

// The official SDK takes each elicitation as it is, its client shows a person what was
// asked, and what the person fills in comes back as it is and counts.
func TestMCPByTheSDK(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	n := 0
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		for _, test := range []struct {
			form    string
			content map[string]any
			becomes string
		}{
			{"approve", map[string]any{"approve": true, "reason": "fine"}, "approved"},
			{"approve", map[string]any{"approve": false}, "denied"},
			{"approve", nil, "denied"},
			{"choose", map[string]any{"action": "approve"}, "approved"},
			{"choose", map[string]any{"action": "delegate", "delegateTo": `user::"eve"`}, "pending"},
			{"choose", map[string]any{"action": "deny", "reason": "no"}, "denied"},
			{"review", map[string]any{"approve": true, "arguments.l": `["x"]`, "arguments.branch": "main", "arguments.n": 7, "arguments.b": true}, "approved"},
		} {
			n++
			id := c.asks("pep", tool("push", fmt.Sprintf(`"arguments":{"branch":"main","n":7,"b":true,"l":["x"]},"case":%d`, n))).Approval.ID
			g := openGateway(t, version, func(p *mcp.ElicitParams) *mcp.ElicitResult {
				original, _ := p.Meta["originalRequest"].(map[string]any)
				if !strings.Contains(p.Message, "agent/bot asks for tool.invoke on tool/push") || p.Meta["elicitationType"] != "tool_approval" || original["tool"] != "push" {
					t.Errorf("the client is shown %+v", p)
				}
				return &mcp.ElicitResult{Action: "accept", Content: test.content}
			})
			result := g.elicit(t, c.message("pep", id, "elicitation?form="+test.form, 200), id)
			if got := c.says("mia", id, "response", result, 200); got.Status != test.becomes {
				t.Errorf("%s, %s: it is %s, want %s", version, result, got.Status, test.becomes)
			}
		}
	}
}

// The other messages are JSON-RPC to the SDK: an answer with an error to the call of that
// id, and a notification.
func TestMCPMessagesAreJSONRPC(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("pep", tool("push", push)).Approval.ID
	decode := func(which string) jsonrpc.Message {
		t.Helper()
		m, err := jsonrpc.DecodeMessage([]byte(c.message("pep", id, which, 200)))
		must(t, err)
		return m
	}
	if r, ok := decode("authorization-request?call=7").(*jsonrpc.Response); !ok || r.ID.Raw() != int64(7) || r.Error == nil || !strings.Contains(r.Error.Error(), "authorization required") {
		t.Errorf("got %+v", r)
	}
	if r, ok := decode("authorization-notification").(*jsonrpc.Request); !ok || r.IsCall() || r.Method != "notifications/authorization/request" {
		t.Errorf("got %+v", r)
	}
	if r, ok := decode("elicitation").(*jsonrpc.Request); !ok || !r.IsCall() || r.ID.Raw() != id || r.Method != "elicitation/create" {
		t.Errorf("got %+v", r)
	}
}
