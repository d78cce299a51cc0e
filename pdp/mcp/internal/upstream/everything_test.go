package upstream_test

import (
	"regexp"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
)

// TestEverything calls each tool of the SDK's own server for conformance tests, a process of its own, in both eras.
func TestEverything(t *testing.T) {
	night.Npm(t)
	everything := mcptest.BuildEverything(t)
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		t.Run(e.String(), func(t *testing.T) {
			u := reach(t, everything.Start(t, e == era.Legacy))
			s, err := u.Open(t.Context(), upstream.Client{Capabilities: jsontext.Value(`{"elicitation":{},"sampling":{},"roots":{}}`)})
			if err != nil || s.Era() != e {
				t.Fatalf("%v, %v", s, err)
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
