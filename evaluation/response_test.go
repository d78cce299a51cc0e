package evaluation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"policy-service/evaluation"
)

// No body approves, and none delegates, but those that say so in the words of the documentation, as
// another reader of JSON understands them.
func FuzzDecodeResponse(f *testing.F) {
	for _, body := range append(slices.Clone(bodies),
		`{"action":"accept","content":{"approve":true,"reason":"fine","arguments.n":1}}`,
		`{"action":"accept","content":{"action":"approve","approve":null,"delegateTo":""}}`,
		`{"action":"accept","content":{"action":"delegate","delegateTo":"User::\"mia\""}}`,
		`{"action":"accept","content":{"approve":true,"action":"deny"}}`,
		`{"action":"decline","content":{"approve":true}}`, `{"action":"cancel"}`, `{"action":"accept"}`,
		`{"action":"accept","content":{"approve":"true"}}`, `{"action":"accept","content":{"approve":1}}`,
		`{"authorizationId":"a1","decision":"approve","reason":"fine","validUntil":"2026-01-02T15:04:05Z","arguments":{"n":1}}`,
		`{"authorizationId":"a1","decision":"delegate","delegateTo":"User::\"mia\"","reason":"she knows"}`,
		`{"authorizationId":"a1","decision":"delegate","delegateTo":null}`, `{"authorizationId":"a1","decision":"approve","delegateTo":"User::\"mia\""}`,
		`{"action":"accept","content":{"approve":true},"delegateTo":"User::\"mia\""}`,
		`{"authorizationId":"a1","decision":"deny"}`, `{"authorizationId":"a2","decision":"approve"}`,
		`{"authorizationId":"a1","decision":"approve","action":"accept","content":{"approve":true}}`,
		`{"action":"accept","action":"cancel","content":{"approve":true}}`) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := evaluation.DecodeResponse(body, "a1", evaluation.DefaultLimits())
		if err != nil {
			var e *evaluation.Error
			if !errors.As(err, &e) || !validPointer(e.Pointer) || e.Detail == "" {
				t.Errorf("it is refused by %T with %v", err, err)
			}
			if got.Ruling != (evaluation.Ruling{}) || got.Reviewed.Len() > 0 {
				t.Errorf("it is refused, and yet an answer: %+v", got)
			}
			return
		}
		decision := got.Ruling.Decision
		if !slices.Contains([]string{"", "approve", "deny", "delegate"}, decision) || (decision == "") != (got.Ruling.Reason == "") || (decision == "delegate") != (got.Ruling.To != "") {
			t.Errorf("no ruling: %+v", got.Ruling)
		}
		if (decision == "approve") != approves(body) || (decision == "delegate") != (delegatesTo(body) != "") || got.Ruling.To != delegatesTo(body) {
			t.Errorf("%q is read as %+v", body, got.Ruling)
		}
	})
}

func members(text []byte) (m map[string]json.RawMessage) {
	_ = json.Unmarshal(text, &m)
	return m
}

func is(text json.RawMessage, want string) bool {
	var v any
	return json.Unmarshal(text, &v) == nil && v == want
}

// delegatesTo reads an answer that was accepted with encoding/json: whom it names, if it delegates.
func delegatesTo(body []byte) (to string) {
	m := members(body)
	content := members(m["content"])
	switch unsaid := content["approve"] == nil || string(content["approve"]) == "null"; {
	case is(m["action"], "accept") && is(content["action"], "delegate") && unsaid:
		_ = json.Unmarshal(content["delegateTo"], &to)
	case is(m["authorizationId"], "a1") && is(m["decision"], "delegate"):
		_ = json.Unmarshal(m["delegateTo"], &to)
	}
	return to
}

// approves reads an answer that was accepted with encoding/json: an approval is said, and
// nothing against it.
func approves(body []byte) bool {
	unsaid := func(text json.RawMessage) bool { return text == nil || bytes.Equal(text, []byte("null")) }
	m := members(body)
	content := members(m["content"])
	yes, word := string(content["approve"]) == "true", is(content["action"], "approve")
	elicited := is(m["action"], "accept") && (yes || word) && (yes || unsaid(content["approve"])) && (word || unsaid(content["action"]))
	authorized := is(m["authorizationId"], "a1") && is(m["decision"], "approve")
	return elicited != authorized
}
