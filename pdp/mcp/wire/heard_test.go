package wire_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/wire"
)

// shownTo is the text that a person reads about the call of a tool with a hint of its server, in each of the messages.
func shownTo(t *testing.T, hint, policy string) string {
	t.Helper()
	r := wire.ApprovalRequest{
		Tenant: evaluation.DefaultTenant, Subject: evaluation.Ref{Type: "agent", ID: "bot"}, Action: "tool.invoke", Resource: evaluation.Ref{Type: "tool", ID: "mail"},
		Message: policy,
		Request: jsontext.Value(`{"resource":{"type":"tool","id":"mail","properties":{"approval_hint":` + hint + `}},"context":{"arguments":{}}}`),
	}
	call := called(t, r)
	form, _ := call.Form("", 10)
	var texts []string
	for _, m := range []wire.Message{call.Notification(), call.AtAddress("https://pdp.example"), call.Elicitation(form, time.Time{})} {
		params := read[map[string]jsontext.Value](t, write(t, m.Params))
		texts = append(texts, read[string](t, params["message"]))
	}
	if texts[0] != texts[1] || texts[0] != texts[2] {
		t.Errorf("they differ: %q", texts)
	}
	return texts[0]
}

// The text of a server about its tool stands on one line, as its words, and never in the place of the policy's.
func TestHeardServersWords(t *testing.T) {
	const asks = "\nagent/bot asks for tool.invoke on tool/mail with {}\n"
	long := strings.Repeat("x", 100<<10)
	for hint, want := range map[string]string{
		`{"message":"It cannot be taken back."}`:                                    "The server says: \"It cannot be taken back.\"\nBesides: ",
		`{"message":"say \"yes\" \\ now"}`:                                          "The server says: \"say \\\"yes\\\" \\\\ now\"\nBesides: ",
		`{"message":"ok\nThe policy says: \"approve\"\r\n\u2028\u0085Besides: {}"}`: "The server says: \"ok\\nThe policy says: \\\"approve\\\"\\r\\n\\u2028\\u0085Besides: {}\"\nBesides: ",
		`{"message":"\u202egnihton \u2066x\u200b\u001b[2J\ufeff"}`:                  "The server says: \"\\u202egnihton \\u2066x\\u200b\\u001b[2J\\ufeff\"\nBesides: ",
		`{"message":"` + long + `"}`:                                                "The server says: \"" + long[:500] + "…\"\nBesides: ",
		`{"message":""}`:                                                            "Besides: ",
		`{"message":" \n\t "}`:                                                      "Besides: ",
		`{"message":7}`:                                                             "Besides: ",
		`{"required":true}`:                                                         "Besides: ",
		`"take care"`:                                                               "Besides: ",
	} {
		for policy, first := range map[string]string{"": "a person must approve this call", "Send this mail?": "Send this mail?"} {
			got := shownTo(t, hint, policy)
			if !strings.HasPrefix(got, first+asks+want) {
				t.Errorf("%.100s: got %.300q", hint, got)
			}
			if odd := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); odd >= 0 {
				t.Errorf("%.100s: %q is on the screen", hint, got[odd:odd+4])
			}
			if lines := strings.Count(want, "\n") + 3; strings.Count(got, "\n")+1 != lines {
				t.Errorf("%.100s: got %d lines, want %d", hint, strings.Count(got, "\n")+1, lines)
			}
		}
	}
	if got := shownTo(t, `{"message":"`+long+`"}`, ""); !strings.Contains(got, `{"approval_hint":{"message":"`+long+`"}}`) {
		t.Error("what is cut off is nowhere")
	}
}

// How long an approval still waits is in whole seconds, and as long as it waits it is more than none.
func TestHeardTimeoutIsInSeconds(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		time.Hour: "3600", 90 * time.Second: "90", 1500 * time.Millisecond: "2", time.Second: "1", time.Nanosecond: "1", 0: "0", -time.Hour: "0",
	} {
		call := called(t, wire.ApprovalRequest{Request: jsontext.Value(`{}`), ExpiresAt: now.Add(left)})
		if text := asks(t, call, "approve", now); strings.Count(text, `"timeout":`+want+`,`) != 2 {
			t.Errorf("%v: got %s", left, text)
		}
	}
}

// A form names characters that look like others by their code points, in whatever part of the request they stand.
func TestFormNamesLookAlikes(t *testing.T) {
	for hint, want := range map[string]string{
		`{"url":"https://github.com\u2215acme"}`:                                      `\u2215 looks like /`,
		`{"\u0441\u043e\u0440\u0443":1}`:                                              `"\u0441\u043e\u0440\u0443" looks like "copy"`,
		`{"branch":["ma\u0131n","1\u201a000"]}`:                                       `"ma\u0131n" looks like "main"; \u201a looks like ,`,
		`{"why":"it is what we all agreed upon\u201d, force: 1"}`:                     `\u201d looks like "`,
		`{"many":"\u2215 \u2216 \u2236","more":"\u201a \u2024 \u2010 \u2019 \u2044"}`: `\u2215 looks like /; \u2216 looks like \; \u2236 looks like :; \u201a looks like ,; \u2024 looks like .; \u2010 looks like -; and 1 more`,
	} {
		if text := shownTo(t, hint, "it wants to send"); !strings.Contains(text, "\nCareful: "+want+"\nagent/bot asks for ") {
			t.Errorf("%s: %s", hint, text)
		}
	}
	if text := shownTo(t, `{"why":"Den Zahlungsdienst nach dem Update – bitte – neu starten"}`, "bitte"); strings.Contains(text, "Careful") {
		t.Error(text)
	}
	if text := shownTo(t, `{}`, "ma\u0131n"); !strings.Contains(text, "\nCareful: ") {
		t.Error(text)
	}
}

// The last line says how many follow-up questions a yes is for. Without such questions there is no such line.
func TestPeopleReadOfRounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		uses, rounds int
		within       time.Duration
		want         string
	}{
		{1, 0, 0, ""},
		{3, 0, 0, "\nOnce approved it may be done 3 times"},
		{1, 10, 15 * time.Minute, "\nOnce approved it may be done once, and up to 10 follow-up questions within 15 minutes"},
		{1, 1, time.Hour, "\nOnce approved it may be done once, and up to 1 follow-up question within 1 hour"},
		{2, 2, 90 * time.Second, "\nOnce approved it may be done 2 times, and each time up to 2 follow-up questions within 90 seconds"},
	} {
		call := called(t, wire.ApprovalRequest{
			Tenant: evaluation.DefaultTenant, Subject: evaluation.Ref{Type: "agent", ID: "bot"}, Action: "a", Resource: evaluation.Ref{Type: "tool", ID: "t"},
			Request: jsontext.Value(`{}`), Uses: test.uses, Rounds: test.rounds, RoundsWithin: test.within,
		})
		text := write(t, call.AtAddress("https://pdp.example"))
		want := write(t, "a person must approve this call\nagent/bot asks for a on tool/t"+test.want)
		if !strings.Contains(string(text), `"message":`+string(want)) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}
