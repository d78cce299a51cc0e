package upstream_test

import (
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// TestEverything calls each tool of the SDK's own server for conformance tests, a process of its own, in both eras.
func TestEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	program := filepath.Join(t.TempDir(), "everything-server")
	build := exec.Command("go", "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		t.Run(e.String(), func(t *testing.T) {
			s, url := everything(t, program, e)
			if s.Era() != e {
				t.Fatalf("%s is of the %s era", url, s.Era())
			}
			_, m, err := send(s, upstream.Request{Method: "tools/list", Params: withMeta(s, rpc.Object{}, rpc.Object{})})
			var list struct {
				Tools []struct{ Name string } `json:"tools"`
			}
			if err != nil || json.Unmarshal(m.Result, &list) != nil || len(list.Tools) < 20 {
				t.Fatalf("tools/list: %s %v", m.Append(nil), err)
			}
			for _, tool := range list.Tools {
				useTool(t, s, tool.Name)
			}
		})
	}
}

// everything starts the server, and opens a session with it as soon as it listens.
func everything(t *testing.T, program string, e era.Era) (upstream.Session, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	server := exec.Command(program, "-http", address, "-stateless="+strconv.FormatBool(e == era.Modern))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	u := reach(t, "http://"+address)
	capabilities := jsontext.Value(`{"elicitation":{},"sampling":{},"roots":{}}`)
	for end := time.Now().Add(20 * time.Second); ; {
		s, err := u.Open(t.Context(), upstream.Client{Capabilities: capabilities})
		if err == nil {
			return s, address
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

var onLegacyStream = regexp.MustCompile(`^(elicitation/create|sampling/createMessage|notifications/.*)$`)

// useTool calls a tool, answers what the server asks meanwhile, and wants a response.
func useTool(t *testing.T, s upstream.Session, name string) {
	st, err := s.Send(t.Context(), call(s, name, `{"prompt":"x","message":"x","region":"eu"}`))
	if err != nil {
		t.Errorf("%s: %s", name, describe(err))
		return
	}
	defer st.Close()
	for {
		m, err := st.Next()
		if err != nil {
			t.Errorf("%s: %s", name, describe(err))
			return
		}
		if m.IsResponse() {
			return
		}
		if !onLegacyStream.MatchString(m.Method) {
			t.Errorf("%s: the server says %s", name, m.Method)
		}
		if m.IsRequest() {
			if err := s.Notify(t.Context(), rpc.Failure(m.ID, rpc.Error{Code: rpc.InvalidParams, Message: "no"})); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
