package wire_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/wire"
)

// An envelope that is read has a sender, a kind and an object, which is a slice of the text.
func FuzzWireReadEnvelope(f *testing.F) {
	for _, seed := range []string{
		`{"protocol":"mcp-x/v0","id":"a","ts":"2024-01-01T12:00:00.25+01:00","from":"b","to":["c","d"],"kind":"mcp","payload":{"jsonrpc":"2.0","id":1,"result":{ "n" : 1.0 }}}`,
		`{"protocol":"mcp-x/v0","from":"gateway","kind":"system","payload":{"type":"welcome","tokenType":"full","participantId":"a"},"more":[]}`,
		`{"protocol":"mcp-x/v0","from":"gateway","kind":"system","payload":{"type":"tool_request_pending","\u0061":"\ud83d\ude00"}}`,
		`{"protocol":"mcp-x/v0","ts":"2024-01-01T12:00:00,5Z","from":"b","To":["c"],"kind":"other","payload":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := wire.ReadEnvelope(text)
		if err == nil && (e.From == "" || e.Kind != wire.KindMCP && e.Kind != wire.KindSystem || e.Payload.Kind() != '{' || !bytes.Contains(text, e.Payload)) {
			t.Fatalf("%s is read as %+v", text, e)
		}
	})
}

// What is read of params is JSON again, and what is made of it can be read.
func FuzzWireReaders(f *testing.F) {
	for _, seed := range []string{
		`{"authorizationId":"a","decision":"approve","reason":"r","validUntil":"2024-01-01T13:00:00Z","arguments":{"n":1.0},"_meta":{}}`,
		`{"authorizationId":"a","decision":"delegate","delegateTo":"User::\"mia\""}`,
		`{"name":"t","arguments":{ "n" : 1.0 },"reason":"r","requestId":"i"}`,
		`{"name":"t","onBehalfOf":"a","requestId":"i","_meta":{"io.policy-service/onBehalfOf":"a","io.policy-service/requestId":"i"}}`,
		`{"content":[],"fulfilledBy":"x","_meta":{"a":1}}`,
		`{"id":"i","tool":"s:t","requester":"agent/a","arguments":{}}`,
		policyWhole, policyPayload, policyAlone,
	} {
		f.Add([]byte(seed))
	}
	limits := evaluation.DefaultLimits()
	f.Fuzz(func(t *testing.T, text []byte) {
		params := jsontext.Value(text)
		valid := func(what string, v jsontext.Value) {
			if !v.IsValid() || v.Kind() != '{' {
				t.Fatalf("%s of %s is %s", what, text, v)
			}
		}
		if r, err := wire.ReadRespond(params, limits); err == nil {
			valid("the answer", r.Answer)
			said, err := evaluation.DecodeResponse(r.Answer, r.AuthorizationID, limits)
			said.Ruling.ValidUntil, r.Ruling.ValidUntil = said.Ruling.ValidUntil.UTC(), r.Ruling.ValidUntil.UTC() // a zone is not equal to itself
			if err != nil || said.Ruling != r.Ruling || r.AuthorizationID == "" {
				t.Fatalf("%s: the PDP reads %+v, %v, not %+v", text, said.Ruling, err, r.Ruling)
			}
		}
		if r, err := wire.ReadToolRequest(params); err == nil {
			if r.Name == "" {
				t.Fatalf("%s names no tool", text)
			}
			valid("the payload", wire.Pending{Tool: wire.Tool{Name: r.Name}, Arguments: r.Arguments, RequestID: r.RequestID, Reason: r.Reason}.Payload())
		}
		if f, given, err := fulfilment(string(text)); given && err == nil && (f.OnBehalfOf == "" || f.RequestID == "") || !given && (err != nil || f != wire.Fulfilment{}) {
			t.Fatalf("%s: %+v, %t, %v", text, f, given, err)
		}
		if p, err := wire.ReadAccessPolicy(text); err == nil {
			nobody := func(r wire.AccessRule) bool { return r.Agent == "" || len(r.Tools) == 0 }
			if p.Mode == "" || slices.ContainsFunc(p.Rules, nobody) {
				t.Fatalf("%s: %+v", text, p)
			}
		}
		if v, err := wire.Fulfilled(params, evaluation.Ref{ID: "b"}, evaluation.Ref{ID: "o"}); err == nil {
			valid("the result", v)
		}
		if v, err := wire.Announced(params, "t", "a"); err == nil {
			valid("the notification", v)
		}
	})
}
