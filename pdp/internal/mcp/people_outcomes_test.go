package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// peopleOutcome is what people make of calls. Those that run reach the server, each once and as it was made, and no others do.
type peopleOutcome struct {
	name, tool string
	// calls are the arguments of the calls that a client makes, one after the other; nil is one call toAll.
	calls []string
	// asked is what alice answers in her client, and what others do meanwhile. Round counts what she is asked, from 0.
	asked func(w *world, id string, round int) string
	// want are what becomes of the calls.
	want []string
	// votes are what people said of the first call, and status is what its approval request became.
	votes  []string
	status string
	// rounds is set if the client has to send its call again: one that waits meanwhile would go on too early.
	rounds bool
	// page is set if the client is to show its person the console's page of the request.
	page bool
	// raw is set if the clients of others do not send such an answer.
	raw bool
}

// What alice answers to forms that ask more than yes or no.
const (
	saysYesTo      = `{"action":"accept","content":{"approve":true,"arguments.n":1,"arguments.to":"all"}}`
	saysYesButTo   = `{"action":"accept","content":{"approve":true,"arguments.n":1,"arguments.to":"mia"}}`
	saysYesToMia   = `{"action":"accept","content":{"approve":true,"arguments.to":"mia","arguments.n":1}}`
	saysMiaDecides = `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"mia\""}}`
	saysOpened     = `{"action":"accept"}`
	saysApprove    = `{"action":"accept","content":{"action":"approve"}}`
	toAll          = `{"n":1,"to":"all"}`
	toMia          = `{"n":1,"to":"mia"}`
	byForm         = ` user::"alice" form key:gateway`
)

// act is what somebody does about what alice is asked.
type act func(w *world, id string)

func approves(who string) act      { return func(w *world, id string) { w.approve(who, id) } }
func denies(who string) act        { return func(w *world, id string) { w.deny(who, id, "not today") } }
func revokes(who string) act       { return func(w *world, id string) { w.revoke(who, id) } }
func delegates(who, to string) act { return func(w *world, id string) { w.delegate(who, id, to) } }

// later has people do something once alice's answer has been counted.
func later(acts ...act) act {
	return func(w *world, id string) {
		w.aside.Go(func() {
			mcptest.Until(w.t, "alice's answer counts", func() bool { return len(w.votes(id)) > 0 })
			says("", acts...)(w, id, 0)
		})
	}
}

// says is an answer of alice, whatever she is asked, and what happens before it.
func says(answer string, acts ...act) func(*world, string, int) string {
	return func(w *world, id string, _ int) string {
		for _, does := range acts {
			does(w, id)
		}
		return answer
	}
}

var peopleOutcomes = []peopleOutcome{{
	name: "approve", tool: "confirm", asked: says(saysYes),
	want: []string{"runs"}, votes: []string{"approve" + byForm}, status: "used_up",
}, {
	name: "decline", tool: "confirm", asked: says(saysNo),
	want: []string{"is denied: declined"}, votes: []string{"deny" + byForm}, status: "denied",
}, {
	name: "approve false", tool: "confirm", asked: says(`{"action":"accept","content":{"approve":false,"reason":"why?"}}`),
	want: []string{"is denied: why?"}, votes: []string{"deny" + byForm}, status: "denied",
}, {
	name: "neither yes nor no", tool: "confirm", raw: true, asked: says(`{"action":"accept","content":{"approve":"perhaps"}}`),
	want: []string{"is refused"}, status: "pending",
}, {
	name: "no action", tool: "confirm", raw: true, asked: says(`{}`),
	want: []string{"is refused"}, status: "pending",
}, {
	name: "cancel", tool: "confirm", asked: says(saysNothing), want: []string{"waits"}, status: "pending",
}, {
	name: "cancel, and the same call again", tool: "confirm", calls: []string{toAll, toAll, toAll},
	asked: func(_ *world, _ string, round int) string { return []string{saysNothing, saysNothing, saysYes}[round] },
	want:  []string{"waits", "waits", "runs"}, votes: []string{"approve" + byForm},
}, {
	name: "each call is asked about", tool: "confirm", calls: []string{toAll, toAll, toMia}, asked: says(saysYes),
	want: []string{"runs", "runs", "runs"}, votes: []string{"approve" + byForm},
}, {
	name: "somebody else denies meanwhile", tool: "pair",
	asked: says(saysYes, denies("mia")),
	want:  []string{"is denied: not today"}, votes: []string{`deny user::"mia" api`},
}, {
	name: "alice approves, and another denies", tool: "pair",
	asked: says(saysYes, later(denies("noah"))),
	want:  []string{"is denied: not today"}, votes: []string{"approve" + byForm, `deny user::"noah" api`},
}, {
	name: "its time is over", tool: "confirm",
	asked: func(w *world, _ string, _ int) string {
		w.advance(11 * time.Minute)
		return saysYes
	},
	want: []string{"is denied: nobody decided in time"},
}, {
	name: "revoked between rounds", tool: "pair", rounds: true,
	asked: says(saysYes, approves("mia"), approves("noah"), revokes("noah")),
	want:  []string{"is denied: the approval does not count any more"}, votes: []string{`approve user::"mia" api`, `approve user::"noah" api`},
}, {
	name: "two approve, alice last", tool: "pair",
	asked: says(saysYes, approves("mia")),
	want:  []string{"runs"}, votes: []string{`approve user::"mia" api`, "approve" + byForm},
}, {
	name: "two approve, alice first", tool: "pair",
	asked: says(saysYes, later(approves("mia"))),
	want:  []string{"runs"}, votes: []string{"approve" + byForm, `approve user::"mia" api`},
}, {
	name: "others approve while she reads", tool: "pair",
	asked: says(saysYes, approves("mia"), approves("noah")),
	want:  []string{"runs"}, votes: []string{`approve user::"mia" api`, `approve user::"noah" api`},
}, {
	name: "others approve, and she would rather not", tool: "pair", rounds: true,
	asked: says(saysNo, approves("mia"), approves("noah")),
	want:  []string{"waits"}, votes: []string{`approve user::"mia" api`, `approve user::"noah" api`},
}, {
	name: "alice delegates, and so does who decides for her", tool: "delegable",
	asked: says(saysMiaDecides, later(delegates("mia", "eve"), approves("eve"))),
	want:  []string{"runs"}, votes: []string{"delegate" + byForm, `delegate user::"mia" api`, `approve user::"eve" api`},
}, {
	name: "alice delegates, and it is denied", tool: "delegable",
	asked: says(saysMiaDecides, later(denies("mia"))),
	want:  []string{"is denied: not today"}, votes: []string{"delegate" + byForm, `deny user::"mia" api`},
}, {
	name: "alice could delegate", tool: "delegable", asked: says(saysApprove),
	want: []string{"runs"}, votes: []string{"approve" + byForm},
}, {
	name: "reviewed", tool: "review", asked: says(saysYesTo),
	want: []string{"runs"}, votes: []string{"approve" + byForm},
}, {
	name: "a lone yes to a review", tool: "review", asked: says(saysYes),
	want: []string{"runs"}, votes: []string{"approve" + byForm}, status: "used_up",
}, {
	name: "reviewed and changed", tool: "review", asked: says(saysYesButTo),
	want: []string{"is changed to " + toMia}, status: "cancelled",
}, {
	name: "reviewed and changed, and the changed call is asked about anew", tool: "review", calls: []string{toAll, toMia},
	asked: func(_ *world, _ string, round int) string { return []string{saysYesButTo, saysYesToMia}[round] },
	want:  []string{"is changed to " + toMia, "runs"},
}, {
	name: "approve at the console", tool: "confirm", page: true,
	asked: says(saysOpened, atThePage("approve")),
	want:  []string{"runs"}, votes: []string{`approve user::"alice" console`},
}, {
	name: "approve at the console, once the page is open", tool: "confirm", page: true,
	asked: says(saysOpened, func(w *world, id string) {
		w.aside.Go(func() { atThePage("approve")(w, id) })
	}),
	want: []string{"runs"}, votes: []string{`approve user::"alice" console`},
}, {
	name: "deny at the console", tool: "confirm", page: true,
	asked: says(saysOpened, atThePage("deny")),
	want:  []string{"is denied: I looked at it"}, votes: []string{`deny user::"alice" console`},
}, {
	name: "the page is not opened", tool: "confirm", page: true, calls: []string{toAll, toAll},
	asked: func(_ *world, _ string, round int) string { return []string{saysNo, saysNothing}[round] },
	want:  []string{"waits", "waits"},
}, {
	name: "nobody need be asked", tool: "free", want: []string{"runs"},
}, {
	name: "nobody can be asked", tool: "never", want: []string{"is denied"},
}}

// peopleClient is a client that asks its person.
type peopleClient struct {
	name, era string
	// run makes calls, each as a tool and its arguments.
	run func(t testing.TB, w *world, tool string, calls []string, asked func(jsontext.Value) string) []mcptest.Answer
}

// ourClients are those that need no programs of others.
func ourClients() (all []peopleClient) {
	for _, era := range eras {
		all = append(all, peopleClient{"raw", era, rawCalls(era)}, peopleClient{"go-sdk", era, sdkCalls(era)})
	}
	return all
}

// TestPeopleOutcomes has people make what they can of the calls of clients in both eras. The server sees a call exactly if it
// was approved, once, and as it was approved.
// It takes some seconds: each outcome has a PDP and a gateway of its own.
func TestPeopleOutcomes(t *testing.T) {
	t.Parallel()
	testOutcomes(t, ourClients(), testing.Short())
}

// testOutcomes has each client make all calls. If halved is set, of the two clients of an era the one makes those that the other
// does not.
func testOutcomes(t *testing.T, clients []peopleClient, halved bool) {
	for k, c := range clients {
		for n, o := range peopleOutcomes {
			if o.rounds && c.era == "legacy" || o.raw && c.name != "raw" || halved && !o.raw && (k+k/2+n)%2 != 0 {
				continue
			}
			t.Run(c.name+"-"+c.era+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				o.holds(t, c)
			})
		}
	}
}

func (o peopleOutcome) holds(t *testing.T, c peopleClient) {
	w := newPeople(t, land{change: func(c *mcp.Config) {
		if o.page {
			c.Approvals.Channels = []string{"url", "form", "wait"}
		}
	}})
	calls := o.calls
	if calls == nil {
		calls = []string{toAll}
	}
	first, round := "", 0
	answers := c.run(t, w, o.tool, calls, func(params jsontext.Value) string {
		w.aside.Add(1)
		defer w.aside.Done()
		id := w.asks(o.tool)
		if first == "" {
			first = id
		}
		if !strings.Contains(string(params), "rec:"+o.tool) || !strings.Contains(string(params), "agent-release") {
			t.Errorf("she is asked %s", params)
		}
		if shown := elicitationOf(t, params).URL; o.page != (shown == w.page(id)) {
			t.Errorf("she is shown %q", shown)
		}
		round++
		return o.asked(w, id, round-1)
	})
	w.aside.Wait() // a call goes on as soon as it is decided, while whoever decided still reads the answer
	if len(answers) != len(o.want) {
		t.Fatalf("%d answers to %d calls", len(answers), len(o.want))
	}
	var forwarded []string
	for n, a := range answers {
		if got := becomes(a); !strings.HasPrefix(got, o.want[n]) {
			t.Errorf("call %d %s, want that it %s: %+v", n, got, o.want[n], a)
		}
		if o.want[n] == "runs" {
			forwarded = append(forwarded, calls[n])
		}
	}
	if got := w.forwarded(o.tool); !slices.EqualFunc(got, forwarded, equalJSON) {
		t.Errorf("the server got %q, want %q", got, forwarded)
	}
	if all := w.approvals(o.tool); first == "" && len(all) > 0 {
		t.Errorf("it is asked about %+v", all)
	} else if first != "" && !slices.Equal(w.votes(first), o.votes) {
		t.Errorf("on record is %q, want %q", w.votes(first), o.votes)
	} else if o.status != "" && w.approval(first).Status != o.status {
		t.Errorf("the approval is %s, want %s", w.approval(first).Status, o.status)
	}
}

// becomes is what a client sees of a call.
func becomes(a mcptest.Answer) string {
	var result struct {
		IsError    bool `json:"isError"`
		Structured struct {
			Type      string         `json:"type"`
			Suggested jsontext.Value `json:"suggested"`
		} `json:"structuredContent"`
	}
	var data struct {
		Type    string `json:"type"`
		Reason  string `json:"reason"`
		Request struct {
			ID   string `json:"id"`
			Tool string `json:"tool"`
		} `json:"authorizationRequest"`
	}
	_, _ = json.Unmarshal(a.Result, &result), json.Unmarshal(a.Data, &data)
	switch {
	case len(a.Result) > 0 && result.IsError && result.Structured.Type == "arguments_changed":
		return "is changed to " + string(result.Structured.Suggested)
	case len(a.Result) > 0 && !result.IsError:
		return "runs"
	case a.Code == -32001 && data.Request.ID != "" && data.Request.Tool != "":
		return "waits"
	case a.Code == -32001 && (data.Type == "authorization_denied" || data.Type == "tool_call_blocked"):
		return "is denied: " + data.Reason
	case a.Code == -32602:
		return "is refused"
	}
	return "is lost"
}

// seenIn is what a client of ours sees of a call.
func seenIn(got echo) (a mcptest.Answer) {
	if a.Result = got.result; got.fault != nil {
		a.Code, a.Message, a.Data = got.fault.Code, got.fault.Message, got.fault.Data
	}
	return a
}

// rawCalls is a client that writes its messages by itself.
func rawCalls(era string) func(testing.TB, *world, string, []string, func(jsontext.Value) string) []mcptest.Answer {
	return func(_ testing.TB, w *world, tool string, calls []string, asked func(jsontext.Value) string) (all []mcptest.Answer) {
		v := w.client(era)
		for _, arguments := range calls {
			all = append(all, seenIn(v.converse(tool, arguments, asked)))
		}
		return all
	}
}

// converse makes a call, and has somebody answer what the client is asked in its course.
func (v *visitor) converse(tool, arguments string, asked func(jsontext.Value) string) echo {
	v.s.t.Helper()
	if v.era == "legacy" { // what is asked comes by the answer to the call
		got, err := v.reads(v.s.t.Context(), tool, arguments, func(id, params jsontext.Value) {
			v.reply(string(id), asked(params)).has(v.s.t, http.StatusAccepted)
		})
		orFail(v.s.t, err)
		return got
	}
	got := v.call(tool, arguments)
	for range 10 {
		var q struct {
			stateAsked `json:",inline"`
			Kind       string `json:"resultType"`
		}
		if json.Unmarshal(got.result, &q) != nil || q.Kind != "input_required" {
			return got
		}
		answers := map[string]jsontext.Value{}
		for key, request := range q.Requests {
			var m struct {
				Params jsontext.Value `json:"params"`
			}
			orFail(v.s.t, json.Unmarshal(request, &m))
			answers[key] = jsontext.Value(asked(m.Params))
		}
		text, err := json.Marshal(answers)
		orFail(v.s.t, err)
		got = v.retry(tool, arguments, inText(q.State), string(text))
	}
	return got
}

// reads calls a tool in the legacy era, and gives what came until the end. Asked gets each question as it comes.
func (v *visitor) reads(ctx context.Context, tool, arguments string, asked func(id, params jsontext.Value)) (got echo, err error) {
	params := `{"name":"` + tool + `","arguments":` + arguments + `}`
	answer, err := v.sendTo(ctx, http.MethodPost, v.s.url, v.text("tools/call", params), v.headers("tools/call", params)...)
	if err != nil {
		return got, err
	}
	defer func() { _ = answer.Body.Close() }()
	c, text := called{lines: bufio.NewScanner(answer.Body)}, ""
	c.lines.Buffer(nil, 4<<20)
	for {
		said, asks := c.next()
		text += said
		if !asks {
			return readAnswer(answer, []byte(text)), nil
		}
		asked(jsontext.Value(c.id), c.params)
	}
}

// sdkCalls is a client of the SDK.
func sdkCalls(era string) func(testing.TB, *world, string, []string, func(jsontext.Value) string) []mcptest.Answer {
	return func(t testing.TB, w *world, tool string, calls []string, asked func(jsontext.Value) string) (all []mcptest.Answer) {
		session := w.sdkClient(era, sdk.ClientOptions{ElicitationHandler: sdkAsked(asked)})
		for _, arguments := range calls {
			result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: jsontext.Value(arguments)})
			all = append(all, sdkAnswer(t, result, err))
		}
		return all
	}
}

func sdkAsked(asked func(jsontext.Value) string) func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	return func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		params, err := json.Marshal(r.Params)
		if err != nil {
			return nil, err
		}
		result := new(sdk.ElicitResult)
		return result, json.Unmarshal([]byte(asked(params)), result)
	}
}

func sdkAnswer(t testing.TB, result *sdk.CallToolResult, err error) (a mcptest.Answer) {
	var e *jsonrpc.Error
	switch {
	case errors.As(err, &e):
		a.Code, a.Message, a.Data = int(e.Code), e.Message, jsontext.Value(e.Data)
	case err != nil:
		a.Message = err.Error()
	default:
		text, err := result.MarshalJSON()
		orFail(t, err)
		a.Result = text
	}
	return a
}

// sdkClient is a client of the SDK with alice's token. Before it connects it is as knows makes it.
func (w *world) sdkClient(era string, o sdk.ClientOptions, knows ...func(*sdk.Client)) *sdk.ClientSession {
	w.t.Helper()
	o.Capabilities = &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}, URL: &sdk.URLElicitationCapabilities{}}}
	client := sdk.NewClient(&sdk.Implementation{Name: "people", Version: "1"}, &o)
	for _, make := range knows {
		make(client)
	}
	transport := &sdk.StreamableClientTransport{Endpoint: w.url, HTTPClient: &http.Client{Transport: withToken(w.issuer.Token(w.t, nil))}}
	version := map[string]string{"legacy": "2025-11-25", "modern": modernVersion}[era]
	session, err := client.Connect(w.t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	orFail(w.t, err)
	w.t.Cleanup(func() { _ = session.Close() })
	return session
}

// testPeople has clients of others do the same, each in its era.
func testPeople(t *testing.T, others *mcptest.Others) {
	var all []peopleClient
	for _, c := range others.Clients() {
		if !c.TellsCode {
			continue // it has nobody to ask
		}
		era := map[string]string{"2025-11-25": "legacy", modernVersion: "modern"}[c.Version]
		all = append(all, peopleClient{c.Name, era, jobs(c, "")})
		t.Run(c.Name+"/says that it takes forms as the first revision did", func(t *testing.T) {
			t.Parallel()
			peopleOutcomes[0].holds(t, peopleClient{c.Name, era, jobs(c, `{}`)})
		})
	}
	testOutcomes(t, all, false)
}

// jobs is a client of others.
func jobs(c mcptest.Client, takes string) func(testing.TB, *world, string, []string, func(jsontext.Value) string) []mcptest.Answer {
	return func(t testing.TB, w *world, tool string, calls []string, asked func(jsontext.Value) string) []mcptest.Answer {
		j := mcptest.Job{URL: w.url, Headers: map[string]string{"Authorization": "Bearer " + w.issuer.Token(t, nil)}, Asked: asked, Takes: takes}
		for _, arguments := range calls {
			var a map[string]any
			orFail(t, json.Unmarshal([]byte(arguments), &a))
			j.Calls = append(j.Calls, mcptest.ToolCall{Name: tool, Arguments: a})
		}
		return c.Run(t, j).Answers
	}
}
