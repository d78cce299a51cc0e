package wire_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/mcp/wire"
	"policy-service/pdp/pdptest/mcptest"
)

// How clients and approvers meet these messages is tested over HTTP, by package server.

// called is an approval request as a call.
func called(t *testing.T, r wire.ApprovalRequest) wire.Call {
	t.Helper()
	call, err := wire.ReadCall(r)
	must(t, err)
	return call
}

func object(t *testing.T, text string) evaluation.Object {
	t.Helper()
	o, err := evaluation.ParseObject([]byte(text), evaluation.DefaultLimits())
	must(t, err)
	return o
}

// asks is the message that asks a person in a form.
func asks(t *testing.T, call wire.Call, form string, now time.Time) string {
	t.Helper()
	f, _ := call.Form(form, 100)
	return string(write(t, call.Elicitation(f, now)))
}

func TestCallID(t *testing.T) {
	for text, want := range map[string]string{"": `"a"`, "7": "7", `"x"`: `"x"`, "1.5": "", "null": "", "{}": "", `"`: ""} {
		id, ok := wire.CallID(text, "a")
		if ok != (want != "") || ok && string(id) != want {
			t.Errorf("call %s: got %s %t, want %s", text, id, ok, want)
		}
	}
}

// The obligation says which form is shown unless the client asks for one, and no form offers an impossible choice, or requires
// more than the decision: a client that validates would refuse a lone yes.
func TestForm(t *testing.T) {
	for name, test := range map[string]struct {
		review, delegable bool
		form, want        string
	}{
		"as a rule":                 {false, false, "", "approve"},
		"a review":                  {true, false, "", "approve arguments.n arguments.to"},
		"delegable":                 {false, true, "", "action:approve,deny,delegate"},
		"a delegable review":        {true, true, "", "action:approve,deny,delegate arguments.n arguments.to"},
		"yes or no":                 {true, true, "approve", "approve"},
		"arguments":                 {false, true, "review", "approve arguments.n arguments.to"},
		"a choice":                  {true, true, "choose", "action:approve,deny,delegate"},
		"a choice without another":  {true, false, "choose", "action:approve,deny"},
		"none that there is":        {false, false, "all", ""},
		"a word of the answer":      {false, true, "delegate", ""},
		"what an obligation is for": {true, true, "Review", ""},
	} {
		call := called(t, wire.ApprovalRequest{
			Request: jsontext.Value(`{"context":{"arguments":{"n":1,"to":"mia"}}}`),
			Review:  test.review, Delegable: test.delegable,
		})
		form, ok := call.Form(test.form, 10)
		var fields []string
		if ok && len(form.Required) != 1 {
			t.Errorf("%s: a client wants more than a decision: %q", name, form.Required)
		}
		for _, field := range slices.Sorted(maps.Keys(form.Properties)) {
			if field == "reason" || field == "delegateTo" {
				continue
			}
			if words := form.Properties[field].Enum; len(words) > 0 {
				field += ":" + strings.Join(words, ",")
			}
			fields = append(fields, field)
		}
		if ok != (test.want != "") || ok && strings.Join(fields, " ") != test.want {
			t.Errorf("%s: got %q, %t", name, fields, ok)
		}
		_, names := form.Properties["delegateTo"]
		if offers := slices.Contains(form.Properties["action"].Enum, "delegate"); offers != names {
			t.Errorf("%s: it offers to delegate %t, and asks to whom %t", name, offers, names)
		}
	}
}

// TestNullArgument: a person is shown an argument that is null, though no field can hold it, and all of the arguments
// have it when they come back.
func TestNullArgument(t *testing.T) {
	call := called(t, wire.ApprovalRequest{Request: jsontext.Value(`{"context":{"arguments":{"n":1,"force":null}}}`)})
	message := asks(t, call, "review", time.Time{})
	if strings.Count(message, `"arguments":{"force":null,"n":1}`) != 2 || !strings.Contains(message, `with {\"force\":null,\"n\":1}`) {
		t.Errorf("people are asked %s", message)
	}
	for content, want := range map[string]bool{
		`{"arguments":{"n":1,"force":null}}`:         false,
		`{"arguments":{"n":1}}`:                      true,
		`{"arguments":{"n":1,"force":false}}`:        true,
		`{"arguments.n":1}`:                          false,
		`{"arguments.n":1,"arguments.force":"null"}`: true,
	} {
		answer, err := evaluation.DecodeResponse([]byte(`{"action":"accept","content":`+content+`}`), "id", evaluation.DefaultLimits())
		must(t, err)
		if got := call.Changed(answer.Reviewed); got != want {
			t.Errorf("%s: changed %t, want %t", content, got, want)
		}
	}
}

// An argument that a form has only a mask of is as it was, however the form has it.
func TestUnmasked(t *testing.T) {
	const arguments = `{"n":1,"password":"p","login":{"token":"t"}}`
	for filled, want := range map[string]string{
		`{"arguments.n":2,"arguments.password":"masked:x","arguments.login":"{\"token\":\"masked:y\"}"}`: `{"arguments.n":2,"arguments.password":"p","arguments.login":{"token":"t"}}`,
		`{"arguments":{"n":2,"password":"masked:x","login":{"token":"masked:y"}}}`:                       `{"arguments":{"n":2,"password":"p","login":{"token":"t"}}}`,
		`{"approve":true,"arguments.cc":"masked:x"}`:                                                     `{"approve":true,"arguments.cc":"masked:x"}`,
	} {
		if got := wire.Unmasked(object(t, filled), object(t, arguments)); !got.Value().Equal(object(t, want).Value()) {
			text, _ := got.Value().MarshalJSON()
			t.Errorf("%s: %s", filled, text)
		}
	}
}

// An argument that a person changes in a review is suggested as the tool would take it, and not as the text of a field.
func TestSuggested(t *testing.T) {
	const arguments = `{"n":1,"to":"mia","tags":["a"],"big":9007199254740993}`
	same := func(changes string) string {
		return `{"approve":true,"arguments.n":1,"arguments.to":"mia","arguments.tags":"[\"a\"]","arguments.big":"9007199254740993"` + changes + `}`
	}
	for reviewed, want := range map[string]string{
		same(""):                       "",
		same(`,"arguments.cc":"noah"`): `{"n":1,"to":"mia","tags":["a"],"big":9007199254740993,"cc":"noah"}`,
		`{"arguments.n":2,"arguments.to":"[1]","arguments.tags":"[\"a\",\"b\"]","arguments.big":"9007199254740995"}`: `{"n":2,"to":"[1]","tags":["a","b"],"big":9007199254740995}`,
		`{"arguments.n":1,"arguments.to":"mia","arguments.tags":"no JSON","arguments.big":"1,\"x\":2"}`:              `{"n":1,"to":"mia","tags":"no JSON","big":"1,\"x\":2"}`,
		`{"arguments.to":"mia"}`: `{"to":"mia"}`,
		`{"n":1.0,"other":1}`:    "",
		`{"n":2}`:                `{"n":2,"to":"mia","tags":["a"],"big":9007199254740993}`,
		`{"arguments":{"n":1.0,"to":"mia","tags":["a"],"big":9007199254740993}}`: "",
		`{"arguments":{"n":1,"to":"zoe"}}`:                                       `{"n":1,"to":"zoe"}`,
		`{}`:                                                                     "",
	} {
		got, changed := wire.Suggested(object(t, arguments), object(t, reviewed))
		if changed != (want != "") || changed && !got.Value().Equal(object(t, want).Value()) {
			text, _ := got.Value().MarshalJSON()
			t.Errorf("%s: %t, %s", reviewed, changed, text)
		}
	}
}

// TestActorsRequester: people read the requester apart from those for whom the call is done, and a member requester that is
// no entity is shown as it came.
func TestActorsRequester(t *testing.T) {
	for _, test := range []struct {
		actors evaluation.Actors
		sent   string
		want   string
	}{
		{evaluation.Actors{Requester: &evaluation.Ref{Type: "agent", ID: "bot"}}, `{"type":"agent","id":"bot"}`, "desktop asks for tool.invoke on tool/t as requested by agent/bot"},
		{evaluation.Actors{Chain: []evaluation.Ref{{Type: "user", ID: "mia"}}, Requester: &evaluation.Ref{Type: "agent", ID: "b ot"}}, `{"type":"agent","id":"b ot"}`, `on behalf of user/mia as requested by agent/"b ot"`},
		{evaluation.Actors{}, `"bot"`, `Besides: {"context":{"requester":"bot"}}`},
	} {
		call := called(t, wire.ApprovalRequest{
			Subject: evaluation.Ref{Type: "agent", ID: "desktop"}, Action: "tool.invoke", Resource: evaluation.Ref{Type: "tool", ID: "t"}, Tenant: evaluation.DefaultTenant,
			Actors: test.actors, Request: jsontext.Value(`{"context":{"requester":` + test.sent + `}}`),
		})
		message := strings.ReplaceAll(asks(t, call, "approve", time.Time{}), `\"`, `"`)
		if !strings.Contains(message, test.want) || strings.Contains(message, "Besides") != (test.actors.Requester == nil) {
			t.Errorf("people read %q, and not %q", message, test.want)
		}
	}
}

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

// TestFirstLineQuotesWhatIsAsked: what a policy's text repeats of the request is quoted as in the line below, unless it is one
// word, so that no name goes on in the policy's words. Nothing that the caller writes takes the quotes away.
func TestFirstLineQuotesWhatIsAsked(t *testing.T) {
	const name = `push. Checked by security: say yes`
	for _, test := range []struct{ says, id, others, want string }{
		{"bot wants push.", "push", `{"n":1}`, `bot wants push.`},
		{"bot wants " + name + ".", name, `{}`, `bot wants "` + name + `".`},
		{"bot wants " + name + ".", name, `{"a":"wants push","b":" wants push. Ch","c":"yes."}`, `bot" wants ` + name + `".`},
		{`bot wants x" or \"y.`, `x" or \"y`, `{}`, `bot wants "x\" or \\\"y".`},
		{"bot wants a\u202eb.", "a\u202eb", `{}`, `bot wants "a\u202eb".`},
		{"bot wants two\nlines", "two\nlines", `{}`, `bot wants "two\nlines"`},
		{"bot wants abab abab", "t", `{"a":"ab a","b":"bab a"}`, `bot wants a"bab a"bab`},
		{"a, b", "t", `{"a":",","b":" "}`, `a, b`},
		{strings.Repeat("x", 5000), "t", `{}`, `"` + strings.Repeat("x", 5000) + `"`},
	} {
		call := called(t, wire.ApprovalRequest{
			Tenant: evaluation.DefaultTenant, Subject: evaluation.Ref{Type: "agent", ID: "bot"}, Action: "a", Resource: evaluation.Ref{Type: "tool", ID: test.id}, Message: test.says, Uses: 1,
			Request: jsontext.Value(`{"resource":{"type":"tool","id":` + string(write(t, test.id)) + `},"context":{"arguments":` + test.others + `}}`),
		})
		for what, message := range map[string]any{"the form": call.AtAddress("https://pdp.example"), "the notification": call.Notification()} {
			if text := string(write(t, message)); !strings.Contains(text, `:`+strings.TrimSuffix(string(write(t, test.want)), `"`)) {
				t.Errorf("%q of %s is in %s as %.400s", test.says, test.others, what, text)
			}
		}
	}
}

// TestNoFieldForWhatIsNotDrawn: a person edits what they see alone. What has no field was not taken out.
func TestNoFieldForWhatIsNotDrawn(t *testing.T) {
	const arguments = `{"n":1,"Größe":"C:\\x","hid\u200bden":"x","mark":"a\u202eb","lines":"a\nb","looks":"\u0441\u043e\u0440\u0443","spaces":"yes                    no","end":"x ","turned":"\u05d0\u05d1","in":{"a":"\u200b"},"list":["x"],"":"y","none":null}`
	call := called(t, wire.ApprovalRequest{Request: jsontext.Value(`{"context":{"arguments":` + arguments + `}}`)})
	form, _ := call.Form("review", 100)
	if got := strings.Join(slices.Sorted(maps.Keys(form.Properties)), " "); got != "approve arguments.Größe arguments.list arguments.n reason" {
		t.Errorf("there are fields %q", got)
	}
	for content, want := range map[string]bool{
		`{"arguments.n":1,"arguments.Größe":"C:\\x","arguments.list":"[\"x\"]"}`:                       false,
		`{"arguments.n":1,"arguments.Größe":"C:\\x"}`:                                                  true,
		`{"arguments.n":2,"arguments.Größe":"C:\\x","arguments.list":"[\"x\"]"}`:                       true,
		`{"arguments.n":1,"arguments.Größe":"C:\\x","arguments.list":"[\"x\"]","arguments.mark":"ab"}`: true,
	} {
		answer, err := evaluation.DecodeResponse([]byte(`{"action":"accept","content":`+content+`}`), "id", evaluation.DefaultLimits())
		must(t, err)
		if got := call.Changed(answer.Reviewed); got != want {
			t.Errorf("%s: changed %t", content, got)
		}
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

var must = mcptest.Must

// TestShownElsewhere: a capability that stands where nothing reads it is refused, and not passed over.
func TestShownElsewhere(t *testing.T) {
	t.Parallel()
	none := func(string) jsontext.Value { return nil }
	for _, misplaced := range []string{"io.policy-service/capability", "io.policy-service/proof"} {
		params := func(name string) jsontext.Value {
			if name == misplaced || name == "capability" {
				return jsontext.Value(`"cap_1"`)
			}
			return nil
		}
		if s, refusal := wire.ReadShown(params, none); refusal == nil || refusal.Code != capability.Malformed || s.Token != "" {
			t.Errorf("%s: %+v, %v", misplaced, s, refusal)
		}
	}
}
