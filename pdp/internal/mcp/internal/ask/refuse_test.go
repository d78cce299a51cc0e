package ask_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/lies"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/written"
)

const plainTool = `{"name":"a","inputSchema":{}}`

// The codes of denials, by configuration, dialect of the tool and era of the client.
func TestCodes(t *testing.T) {
	t.Parallel()
	nothing := map[string]string{"a.cedar": `permit(principal == user::"nobody", action, resource);`}
	for _, test := range []struct {
		errors ask.Errors
		tool   string
		era    era.Era
		call   int // the code of a call's denial
		read   int // and of that of another method
	}{
		{"", plainTool, era.Legacy, -32001, -32001},
		{ask.ErrorsCOAZ, plainTool, era.Modern, -32001, -32001},
		{ask.ErrorsCOAZ, sepTool, era.Modern, -32401, -32001},
		{ask.ErrorsSEP, plainTool, era.Legacy, -32401, -32401},
		{ask.ErrorsMCPX, plainTool, era.Legacy, -32002, -32001},
		{ask.ErrorsMCPX, plainTool, era.Modern, -32001, -32001},
		{ask.ErrorsMCPX, sepTool, era.Legacy, -32401, -32001},
	} {
		for _, status := range []int{0, 403} {
			s := open(t, nothing, func(o *ask.Options) { o.Errors, o.DenyStatus = test.errors, status })
			op := s.call(alice(t), s.tool(test.tool, nil), `{"id":"1","case":"c"}`)
			op.Era = test.era
			got, call := s.outcome(op)
			read, refused := s.outcome(ask.Operation{Principal: alice(t), Method: "resources/read", Params: members(`{"uri":"x"}`), Era: test.era})
			if call.Code != test.call || refused.Code != test.read || call.Kind != ask.Denied {
				t.Errorf("%+v: %s, %s", test, got, read)
			}
			if want := max(status, 200); call.Status != want || refused.Status != want {
				t.Errorf("status %d and %d, want %d", call.Status, refused.Status, want)
			}
			if !strings.Contains(got, `"type":"tool_call_blocked"`) || !strings.Contains(read, `"type":"authorization_denied"`) {
				t.Errorf("%s, %s", got, read)
			}
		}
	}
}

// Each method goes on, is refused, or is asked about.
func TestMethods(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	strict := s.beside(func(o *ask.Options) { o.Strict = true })
	for _, test := range []struct {
		s      *stage
		method string
		era    era.Era
		code   int
		status int
	}{
		{s, "ping", era.Legacy, 0, 0},
		{s, "ping", era.Modern, -32601, 404},
		{s, "acme/own", era.Legacy, -32601, 200},
		{s, "acme/own", era.Modern, -32601, 404},
		{s, "initialize", era.Modern, -32601, 404},
		{s, "server/discover", era.Legacy, -32601, 200},
		{s, "subscriptions/listen", era.Legacy, -32601, 200},
		{s, "logging/setLevel", era.Modern, -32601, 404},
		{s, "notifications/initialized", era.Legacy, -32601, 200},
		{s, "", era.Legacy, -32601, 200},
		{s, "tools/call jira-server-1:a", era.Legacy, -32601, 200},
		{s, "tasks/get", era.Legacy, -32001, 200},
		{s, "tasks/update", era.Modern, -32001, 200},
		{s, "tasks/list", era.Legacy, -32001, 200},
		{s, "resources/templates/list", era.Legacy, 0, 0},
		{strict, "resources/templates/list", era.Legacy, -32001, 200},
		{strict, "initialize", era.Legacy, -32001, 200},
		{strict, "server/discover", era.Modern, -32001, 200},
		{strict, "subscriptions/listen", era.Modern, -32001, 200},
		{strict, "prompts/list", era.Modern, 0, 0},
	} {
		got, refusal := test.s.outcome(ask.Operation{Principal: alice(t), Method: test.method, Era: test.era})
		asked := len(test.s.taken()) > 0
		if refusal == nil && test.code != 0 || refusal != nil && (refusal.Code != test.code || refusal.Status != test.status) {
			t.Errorf("%s, %s: %s", test.method, test.era, got)
		}
		if asked != (test.code == 0 && test.method != "ping") {
			t.Errorf("%s, %s: asked %v", test.method, test.era, asked)
		}
	}
}

// Requests about which nothing can be asked: the place is named, no value is, and the PDP hears nothing.
func TestUnmapped(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	tool := s.tool(plainTool, nil)
	const secret = "hunter2"
	call := func(arguments string, more ...string) ask.Operation {
		return s.call(alice(t), tool, arguments, more...)
	}
	meta := func(members string) ask.Operation { return call(`{}`, `,"_meta":{`+members+`}`) }
	with := func(change func(*identity.Principal)) ask.Operation {
		p := alice(t)
		change(p)
		return s.call(p, tool, `{}`)
	}
	deep := strings.Repeat(`{"a":`, 20) + `"` + secret + `"` + strings.Repeat(`}`, 20)
	var members strings.Builder
	for n := range 18_000 {
		fmt.Fprintf(&members, `"m%d":%d,`, n, n)
	}
	nested := func(depth int) string { return strings.Repeat(`{"a":`, depth) + `"x"` + strings.Repeat(`}`, depth) }
	of := func(bytes int) string { return `{"a":"` + strings.Repeat("x", bytes-8) + `"}` }
	const most = 1<<20 - 64<<10
	for name, test := range map[string]struct {
		op   ask.Operation
		want string
	}{
		"no object":        {call(`"` + secret + `"`), "/params/arguments"},
		"null":             {call(`null`), "/params/arguments"},
		"too deep":         {call(deep), "/params/arguments/a/a/a/a/a"},
		"too large":        {call(`{"a":"` + strings.Repeat(secret, 150_000) + `"}`), "bytes"},
		"too many values":  {call(`{` + members.String() + `"z":1}`), "values"},
		"one too deep":     {call(nested(15)), "/params/arguments/a/a/a"},
		"a bit too large":  {call(of(most)), "bytes"},
		"a long array":     {call(`{"a":[` + strings.Repeat("1,", 18_000) + `1]}`), "/params/arguments/a"},
		"reserved":         {call(`{"a":{"__entity":{"type":"user","id":"` + secret + `"}}}`), "/params/arguments/a/__entity"},
		"a task":           {call(`{}`, `,"task":{}`), "task"},
		"purpose":          {meta(`"io.policy-service/purpose":["` + secret + `"]`), "/params/_meta/io.policy-service~1purpose"},
		"context":          {meta(`"io.policy-service/context":"` + secret + `"`), "/params/_meta/io.policy-service~1context"},
		"context, long":    {meta(`"io.policy-service/context":{"x":"` + secret + strings.Repeat("x", 4<<10) + `"}`), "/params/_meta/io.policy-service~1context: more than 4096 bytes"},
		"purpose, long":    {meta(`"io.policy-service/purpose":"` + secret + strings.Repeat("x", 1<<10) + `"`), "/params/_meta/io.policy-service~1purpose: more than 1024 bytes"},
		"context, deep":    {meta(`"io.policy-service/context":{"x":` + deep + `}`), "/params/_meta/io.policy-service~1context/x/a"},
		"_meta":            {call(`{}`, `,"_meta":7`), "/params/_meta"},
		"nobody":           {with(func(p *identity.Principal) { p.User, p.Agent = identity.Entity{}, identity.Entity{} }), "nobody"},
		"act":              {with(func(p *identity.Principal) { p.Claims = parsed(t, `{"sub":"alice","act":"`+secret+`"}`) }), "act"},
		"act without sub":  {with(func(p *identity.Principal) { p.Claims = parsed(t, `{"sub":"alice","act":{"act":{"sub":"x"}}}`) }), "act"},
		"endless act":      {with(func(p *identity.Principal) { p.Claims = acting(t, 9) }), "act"},
		"listen":           {request(alice(t), "subscriptions/listen", `{"notifications":7}`), "/params/notifications"},
		"subscriptions":    {request(alice(t), "subscriptions/listen", `{"notifications":{"resourceSubscriptions":{}}}`), "resourceSubscriptions"},
		"no URI":           {request(alice(t), "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["a",""]}}`), "/1"},
		"65 of them":       {request(alice(t), "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["a"`+strings.Repeat(`,"a"`, 64)+`]}}`), "64"},
		"read of nothing":  {request(alice(t), "resources/read", `{}`), "/evaluation/resource/id"},
		"read of a number": {request(alice(t), "resources/read", `{"uri":7}`), "/evaluation/resource/id"},
		"said twice":       {request(alice(t), "logging/setLevel", `{"level":"debug","_meta":{"io.policy-service/context":{"level":"x"}}}`), "level"},
	} {
		got, refusal := s.outcome(test.op)
		if refusal == nil || refusal.Code != -32602 || !strings.Contains(got, test.want) || strings.Contains(got, secret) || len(got) > 1000 || refusal.Kind != ask.Unmapped || refusal.Status != 200 {
			t.Errorf("%s: %.500s", name, got)
		}
		if bodies := s.taken(); len(bodies) > 0 {
			t.Errorf("%s: asked %.500q", name, bodies)
		}
	}
	// Just within the bounds the PDP takes our questions.
	for name, arguments := range map[string]string{
		"as deep as can be":  nested(14),
		"as large as can be": of(most - 200),
	} {
		if got, _ := s.outcome(call(arguments)); got != "permit" {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}

func acting(t *testing.T, depth int) evaluation.Object {
	text := `{"sub":"alice"`
	for n := range depth {
		text += `,"act":{"sub":"x` + strconv.Itoa(n) + `"`
	}
	return parsed(t, text+strings.Repeat(`}`, depth)+`}`)
}

// Names that there are none of are refused alike, whatever the reason, and nothing is asked.
func TestUnknownTool(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	tool := s.tool(plainTool, nil)
	want := string(ask.UnknownTool().Failure(rpc.IntID(1)).Error)
	for name, op := range map[string]ask.Operation{
		"no tool":     {Principal: alice(t), Method: "tools/call", Params: members(`{"name":"a"}`)},
		"another one": {Principal: alice(t), Method: "tools/call", Params: members(`{"name":"other"}`), Tool: tool},
		"its own":     {Principal: alice(t), Method: "tools/call", Params: members(`{"name":"a"}`), Tool: tool}, // and not the one shown
		"no name":     {Principal: alice(t), Method: "tools/call", Tool: tool},
		"a number":    {Principal: alice(t), Method: "tools/call", Params: members(`{"name":7}`), Tool: tool},
	} {
		if got, _ := s.outcome(op); got != want || len(s.taken()) > 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
	if !strings.Contains(want, `"code":-32602,"message":"unknown tool"`) {
		t.Error(want)
	}
}

// A call that people would have to approve is refused, with the request that they would be shown.
func TestApprovalRequired(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"a.cedar": `@id("ask") @obligation("approval_required") permit(principal, action, resource == tool::"jira-server-1:a");
		@id("said") @reason_user("x") forbid(principal == user::"mallory", action, resource);`})
	strict := open(t, map[string]string{"bundle.yaml": "allow_trivial: true\n", "a.cedar": `@id("ask") @obligation("approval_required") permit(principal, action, resource);`}, func(o *ask.Options) { o.Ask, o.Strict = ask.COAZ, true })
	tool := s.tool(plainTool, nil)
	const says = "a person must approve this call. Nobody was asked: ask for approval"
	for mode, shown := range map[ask.Errors][2]string{ask.ErrorsCOAZ: {"Authorization required: " + says, "ask for approval"}, ask.ErrorsMCPX: {"Authorization required", says}} {
		s.before(s.pdp.URL, func(o *ask.Options) { o.Errors = mode })
		got, refusal := s.outcome(s.call(alice(t), tool, `{"target": "production","n":null}`))
		want := `{"code":-32001,"message":"` + shown[0] + `","data":{"type":"tool_call_blocked","reason":"a person must approve this call","suggestion":"` + shown[1] + `",` +
			`"authorizationRequest":{"tool":"shown__a","arguments":{"target":"production","n":null},"requester":"orchestrator","reason":"a person must approve this call"}}}`
		if got != want || refusal.Status != 200 {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	got, _ := s.outcome(s.call(himself(t, "bob"), tool, ``))
	if !strings.Contains(got, `"arguments":{},"requester":"bob"`) {
		t.Error(got)
	}
	for context, asks := range map[string]bool{`{"arguments":"$params.arguments"}`: true, `{"arguments":{"a":1}}`: false, `{"more":"$params.arguments"}`: false, `{}`: false} {
		s.before(s.pdp.URL, func(o *ask.Options) {
			o.Mappings = mapped(t, map[string]string{"tools/call": `{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"x"},"resource":{"type":"tool","id":"jira-server-1:a"},"context":` + context + `}}`})
		})
		got, refusal := s.outcome(s.call(alice(t), s.tool(plainTool, nil), `{"a":2,"b":null}`))
		if refusal == nil || refusal.Code != -32001 || strings.Contains(got, `"requester":"alice"`) != asks {
			t.Errorf("a mapping with %s: %s", context, got)
		}
	}
	// By the letter of the binding the arguments are not in the question, and an approval would be for any.
	if got, _ := strict.outcome(strict.call(alice(t), tool, `{}`)); strings.Contains(got, "authorizationRequest") || !strings.Contains(got, "-32001") {
		t.Error(got)
	}
}

// No other tenant answers, and without a principal there is no question.
func TestTenant(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	stray := alice(t)
	stray.Tenant = "acme"
	for _, p := range []*identity.Principal{stray, nil} {
		got, refusal := s.outcome(ask.Operation{Principal: p, Method: "tools/list"})
		if refusal == nil || refusal.Code != -32603 || len(s.taken()) > 0 {
			t.Error(got)
		}
		if keep, refusal := s.Filter(t.Context(), ask.Operation{Principal: p, Method: "tools/list"}, nil); keep != nil || refusal == nil {
			t.Errorf("%v, %v", keep, refusal)
		}
	}
	if _, err := ask.New(ask.Options{PDP: map[string]*authzenclient.Client{}, Resource: resource}); err == nil {
		t.Error("no PDP is enough")
	}
}

// The client learns by the code whether the PDP denies, finds fault with the question, or cannot be asked. TestApprovedLies has
// the other lies.
func TestLies(t *testing.T) {
	t.Parallel()
	const json, yes = "application/json", `{"decision":true}`
	type lie struct {
		status     int
		kind, body string
		code       int
	}
	lies := []lie{
		{200, json, `{"decision":false,"context":{"reason":"hunter2","reason_admin":"hunter2","error_detail":"hunter2"}}`, -32001},
		{200, json, `{"decision":true,"context":{"obligations":[{"id":"a","type":"log"}]}}`, -32001},
		{200, json, `{"decision":true,"context":{"obligations":[{"id":"a","type":"redact","properties":{"fields":["ssn"]}}]}}`, -32001},
		{200, json, `{"decision":true,"context":{"error":{"status":500,"message":"hunter2"}}}`, -32603},
		{200, json, ``, -32603}, {200, "text/html", yes, -32603}, {200, "application/problem+json", yes, -32603}, {200, "Application/jsonx", yes, -32603},
	}
	for status, code := range map[int]int{201: -32603, 204: -32603, 301: -32603, 307: -32603, 400: -32602, 401: -32603, 403: -32603, 404: -32603, 409: -32603, 413: -32602, 422: -32602, 429: -32603, 500: -32603, 503: -32603} {
		lies = append(lies, lie{status, json, yes, code})
	}
	for _, l := range lies {
		s := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", l.kind)
			w.Header().Set("Location", "/")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(l.status)
			_, _ = io.WriteString(w, l.body)
		})
		got, refusal := s.outcome(s.call(alice(t), s.tool(plainTool, nil), `{}`))
		if refusal == nil || refusal.Code != l.code || strings.Contains(got, "hunter2") || l.status == 429 && !strings.Contains(got, `"retry_after":7`) ||
			l.code == -32603 && (!strings.Contains(got, `"message":"authorization service unavailable"`) || !strings.Contains(got, `"retry_after":`)) {
			t.Errorf("%+v: %s", l, got)
		}
		got, refusal = s.outcome(s.call(alice(t), s.tool(declares("a", `{"evaluation":{"action":{"name":"x"},"resource":{"type":"x","id":"1"}}}`), nil), `{}`))
		if refusal == nil || strings.Contains(got, "hunter2") {
			t.Errorf("%+v, with a declared mapping: %s", l, got)
		}
		items := []ask.Item{{Tool: s.tool(plainTool, nil)}, {Tool: s.tool(sepTool, nil)}}
		if keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), items); refusal == nil || keep != nil {
			t.Errorf("%+v: a list is %v", l, keep)
		}
	}
}

// A place in the question is shown to the client if it is in the arguments, and not if only its name begins alike.
func TestPointerOfADenial(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{
		"/context/arguments":            `"/params/arguments"`,
		"/context/arguments/a/b":        `"/params/arguments/a/b"`,
		"/context/arguments_internal/x": "",
		"/context/argument":             "",
	} {
		s := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"decision":false,"context":{"pointer":"`+pointer+`"}}`)
		})
		got, refusal := s.outcome(s.call(alice(t), s.tool(plainTool, nil), `{}`))
		if refusal == nil || strings.Contains(got, "/params/arguments") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %s", pointer, got)
		}
	}
}

// A list is an error, neither shorter nor wider, whatever the PDP says wrong: to all questions, to the one there is, and to the two
// of a call. The exception is an item whose question it does not take: that is hidden.
func TestListLies(t *testing.T) {
	t.Parallel()
	const yes, no = `{"decision":false,"context":{"possible":true}}`, `{"decision":false,"context":{"possible":false}}`
	for items, want := range map[string]string{
		yes + `,` + no: "[true false]",
		yes + `,{"decision":false,"context":{"error":{"status":400,"message":"m"}}}`: "[true false]",

		yes + `,{"decision":true}`:                                                     "", // a PDP that takes the question for another
		`{"decision":true},{"decision":true}`:                                          "",
		yes + `,{"decision":false}`:                                                    "",
		yes + `,{"decision":false,"context":{"possible":"false"}}`:                     "",
		yes + `,{"decision":true,"context":{"possible":true}}`:                         "",
		yes + `,{"decision":true,"context":{"obligations":[{"id":"a","type":"x"}]}}`:   "",
		yes + `,{"decision":"false","context":{"possible":true}}`:                      "",
		yes + `,{"decision":false,"context":{"possible":true,"error":{"status":500}}}`: "",
		yes:                         "",
		yes + `,` + yes + `,` + yes: "",
	} {
		body := `{"evaluations":[` + items + `]}`
		s := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
		listed := []ask.Item{{Tool: s.tool(plainTool, nil)}, {Tool: s.tool(sepTool, nil)}}
		keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), listed)
		if got := fmt.Sprint(keep); want != "" && got != want || (refusal != nil) != (want == "") {
			t.Errorf("%s: %v, %+v", body, keep, refusal)
		}
	}
	var said atomic.Value
	liar := mcptest.NewLiar(t, "http://127.0.0.1:0", func(int64) string { return said.Load().(string) })
	s := &stage{t: t}
	s.before(liar.URL)
	of := func(n int) []ask.Item {
		return []ask.Item{{Tool: s.tool(plainTool, nil)}, {Tool: s.tool(sepTool, nil)}}[:n]
	}
	for name, body := range lies.Bodies { // beside an honest answer
		s := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"evaluations":[`+yes+`,`+lies.InShape(body, "decision", "allow")+`]}`)
		})
		listed := []ask.Item{{Tool: s.tool(plainTool, nil)}, {Tool: s.tool(sepTool, nil)}}
		keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), listed)
		if hidden := name == "error in context"; hidden != (refusal == nil) || hidden != slices.Equal(keep, []bool{true, false}) {
			t.Errorf("%s, of one item: %v, %+v", name, keep, refusal)
		}
	}
	declared := s.call(alice(t), s.tool(declares("a", `{"evaluation":{"action":{"name":"x"},"resource":{"type":"x","id":"1"}}}`), nil), `{}`)
	for _, lie := range mcptest.Lies() {
		if lie == "connection: hangs" || lie == "connection: drips" {
			continue // their five seconds each are TestLyingPDP's
		}
		said.Store(lie)
		for n := 1; n <= 2; n++ {
			keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), of(n))
			if hidden := lie == "body: error in context"; hidden != (refusal == nil) || slices.Contains(keep, true) || !hidden && keep != nil {
				t.Errorf("%s, of %d items: %v, %+v", lie, n, keep, refusal)
			}
		}
		if got, refusal := s.outcome(declared); refusal == nil {
			t.Errorf("%s, of a declared mapping: %s", lie, got)
		}
	}
}

// Items about which the PDP does not take the questions are one line of the log, however many a server lists.
func TestUntakenItemsAreOneLine(t *testing.T) {
	t.Parallel()
	for _, e := range []era.Era{era.Legacy, era.Modern} {
		var logs written.Text
		s := stub(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			must(t, err)
			one := `,{"decision":false,"context":{"error":{"status":400,"message":"m"}}}`
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"evaluations":[`+strings.Repeat(one, strings.Count(string(body), `"resource":`))[1:]+`]}`)
		}, func(o *ask.Options) { o.Logger = slog.New(slog.NewTextHandler(&logs, nil)) })
		var items []ask.Item
		for n := range 300 {
			items = append(items, ask.Item{ID: fmt.Sprintf("mem://%d/%s", n, strings.Repeat("z", 2000))})
		}
		op := request(alice(t), "resources/list", ``)
		op.Era, op.Server = e, "s"
		keep, refusal := s.Filter(t.Context(), op, items)
		if refusal != nil || slices.Contains(keep, true) {
			t.Errorf("%v, %+v", keep, refusal)
		}
		if text := logs.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "server=s method=resources/read items=300 first=mem://0/zzz") || len(text) > 2000 {
			t.Errorf("%s", text)
		}
	}
}
