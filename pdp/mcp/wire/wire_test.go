package wire_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/wire"
)

// How clients and approvers meet these messages is tested over HTTP, by package server.

func TestCallID(t *testing.T) {
	for text, want := range map[string]string{"": `"a"`, "7": "7", `"x"`: `"x"`, "1.5": "", "null": "", "{}": "", `"`: ""} {
		id, ok := wire.CallID(text, "a")
		if ok != (want != "") || ok && string(id) != want {
			t.Errorf("call %s: got %s %t, want %s", text, id, ok, want)
		}
	}
}

func TestChanged(t *testing.T) {
	call, err := wire.ReadCall(wire.ApprovalRequest{Request: jsontext.Value(`{"context":{"arguments":{"n":1,"to":"mia"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	for reviewed, want := range map[string]bool{
		`{}`:                                     false,
		`{"other":1}`:                            false,
		`{"n":1.0}`:                              false,
		`{"n":2}`:                                true,
		`{"arguments":{"n":1,"to":"mia"}}`:       false,
		`{"arguments":{"n":1}}`:                  true,
		`{"arguments.n":1,"arguments.to":"mia"}`: false,
		`{"arguments.n":1}`:                      true,
		`{"arguments.new":1}`:                    true,
	} {
		o, err := evaluation.ParseObject([]byte(reviewed), evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Changed(o); got != want {
			t.Errorf("%s: changed %t, want %t", reviewed, got, want)
		}
	}
}
