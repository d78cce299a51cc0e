package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
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

// TestNullArgument: a person is shown an argument that is null, though no field can hold it, and all of the arguments
// have it when they come back.
func TestNullArgument(t *testing.T) {
	call, err := wire.ReadCall(wire.ApprovalRequest{Request: jsontext.Value(`{"context":{"arguments":{"n":1,"force":null}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	form, _ := call.Form("review", 100)
	message, err := json.Marshal(call.Elicitation(form, time.Time{}))
	if err != nil || strings.Count(string(message), `"arguments":{"force":null,"n":1}`) != 2 || !strings.Contains(string(message), `with {\"force\":null,\"n\":1}`) {
		t.Errorf("people are asked %s, %v", message, err)
	}
	for content, want := range map[string]bool{
		`{"arguments":{"n":1,"force":null}}`:         false,
		`{"arguments":{"n":1}}`:                      true,
		`{"arguments":{"n":1,"force":false}}`:        true,
		`{"arguments.n":1}`:                          false,
		`{"arguments.n":1,"arguments.force":"null"}`: true,
	} {
		answer, err := evaluation.DecodeResponse([]byte(`{"action":"accept","content":`+content+`}`), "id", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Changed(answer.Reviewed); got != want {
			t.Errorf("%s: changed %t, want %t", content, got, want)
		}
	}
}
