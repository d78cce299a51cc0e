package mcp_test

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/internal/mcp"
	messages "policy-service/pdp/mcp/wire"
	"policy-service/pdp/pdptest/mcptest"
)

// topic is where the participants of MCPx are, as their two ADRs print it: agent-a is an agent, user-1 is a person, and agent-b
// is the server behind the gateway, which has dangerous_operation. Each participant is a peer by hand. What they say and hear
// goes over a bridge, which has no more than package wire: an envelope in the topic is a message of MCP at the gateway.
type topic struct {
	*world
	page *spoken
}

// The tool's server, and what the policies of both ADRs have in common.
const (
	topicTool     = `{"name":"dangerous_operation","description":"Performs a dangerous operation","inputSchema":{"type":"object"},"authorization":{"required":true,"mode":"user_approval","timeout":300,"message":"This operation affects production systems"}}`
	topicPolicies = `@id("connect") permit (principal, action, resource) unless { resource is tool || action == Action::"approval.decide" };
`
)

func newTopic(t *testing.T, page *spoken, policies, obligations, says string, change func(*mcp.Config)) *topic {
	t.Helper()
	w := newPeople(t, land{
		files: map[string]string{"people.cedar": topicPolicies + policies, "obligations.yaml": cmp.Or(obligations, "{}\n"), "entities/people.json": "[]"},
		answers: mcptest.Answers{Tools: "[" + topicTool + "]", Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			result := `{"content":[{"type":"text","text":` + inText(says) + `}]}`
			if c.Modern {
				result = `{"resultType":"complete",` + result[1:]
			}
			c.Result(result)
			return true
		}},
		change: func(c *mcp.Config) {
			c.Upstreams = map[string]mcp.UpstreamConfig{"agent-b": c.Upstreams["rec"]}
			if change != nil {
				change(c)
			}
		},
	})
	return &topic{w, page}
}

// peer is one of the topic: who that is, and what they hear.
type peer struct {
	*visitor
	id      string
	page    *spoken
	hearing *ear
}

// claimsOf are those of an agent, or of a person, by their name in the topic.
func claimsOf(id string) mcptest.Claims {
	if strings.HasPrefix(id, "user-") {
		return mcptest.Claims{"sub": id, "client_id": nil}
	}
	return mcptest.Claims{"sub": "owner-of-" + id, "client_id": id}
}

// joins has somebody come.
func (w *topic) joins(era, id string) *peer {
	w.t.Helper()
	p := &peer{visitor: w.speaker(era, claimsOf(id)), id: id, page: w.page}
	if era == "legacy" {
		p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, p.headers("notifications/initialized", "{}")...)
	}
	return p
}

// listens has the peer hear what the gateway says by itself; it begins with who they are.
func (p *peer) listens(t *testing.T, tokenType string) *peer {
	t.Helper()
	p.hearing = p.visitor.listens()
	if p.era == "modern" {
		p.page.speaks(t, jsontext.Value(p.text("subscriptions/listen", listensToUs)))
		p.hears("notifications/subscriptions/acknowledged")
	}
	p.gets(t, "001-welcome", p.hears("notifications/welcome"), "participantId", p.id, "tokenType", tokenType)
	return p
}

// hears is the next message to the peer, which must be of a method.
func (p *peer) hears(method string) string { return p.hearing.next(method).text }

// printed is an envelope as one of the ADRs has it.
func printed(t *testing.T, name string) []byte { return golden(t, name, "printed") }

// golden is a message as an ADR prints it, or the payload that is written for it.
func golden(t *testing.T, name, form string) []byte {
	t.Helper()
	a, err := txtar.ParseFile("../../mcp/wire/testdata/messages/" + name + ".txtar")
	orFail(t, err)
	for _, f := range a.Files {
		if f.Name == form {
			return f.Data
		}
	}
	t.Fatalf("%s has no form %s", name, form)
	return nil
}

// payloadOf is the payload of a message as its design prints it.
func payloadOf(t *testing.T, name string) jsontext.Value {
	t.Helper()
	var envelope struct {
		Payload jsontext.Value `json:"payload"`
	}
	orFail(t, json.Unmarshal(printed(t, name), &envelope))
	return envelope.Payload
}

// with is a JSON text in which members have other texts, wherever they stand: name, value, …
func with(t *testing.T, text []byte, changes ...string) []byte {
	t.Helper()
	var v any
	orFail(t, json.Unmarshal(text, &v))
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for i := 0; i < len(changes); i += 2 {
				if _, has := v[changes[i]]; has {
					v[changes[i]] = changes[i+1]
				}
			}
			for _, one := range v {
				walk(one)
			}
		case []any:
			for _, one := range v {
				walk(one)
			}
		}
	}
	walk(v)
	text, err := json.Marshal(v, json.Deterministic(true))
	orFail(t, err)
	return text
}

// says sends the message of a printed envelope, in which some members are other than printed. It is the bridge from the topic
// to the gateway.
func (p *peer) says(t *testing.T, name string, changes ...string) echo {
	t.Helper()
	text := printed(t, name)
	if len(changes) > 0 {
		text = with(t, text, changes...)
	}
	return p.sends(t, toMCP(t, text))
}

// toMCP is the message of MCP that an envelope carries.
func toMCP(t *testing.T, text []byte) jsontext.Value {
	t.Helper()
	e, err := messages.ReadEnvelope(text)
	orFail(t, err)
	if e.Kind == messages.KindMCP {
		return e.Payload
	}
	if is := textOf(t, e.Payload, "type"); is != "tool_access_policy" {
		t.Fatalf("participants send no %s", is)
	}
	return jsontext.Value(`{"jsonrpc":"2.0","method":"` + messages.MethodAccess + `","params":` + string(e.Payload) + `}`)
}

// sends sends a message of the era before as it is, and of the later one with what that has in it.
func (p *peer) sends(t *testing.T, message jsontext.Value) echo {
	t.Helper()
	var m struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	orFail(t, json.Unmarshal(message, &m))
	p.page.speaks(t, message)
	if p.era == "modern" {
		id := ""
		if m.ID != nil {
			id = `"id":` + string(m.ID) + `,`
		}
		message = jsontext.Value(`{"jsonrpc":"2.0",` + id + `"method":"` + m.Method + `","params":` + p.params(string(m.Params)) + `}`)
	}
	return p.send(string(message), p.headers(m.Method, string(m.Params))...)
}

// fromMCP is the payload of a message of the gateway.
func fromMCP(t *testing.T, message string) jsontext.Value {
	t.Helper()
	var m struct {
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	orFail(t, json.Unmarshal([]byte(message), &m))
	if slices.Contains([]string{messages.MethodWelcome, messages.MethodPending, messages.MethodCallBlocked}, m.Method) {
		return m.Params
	}
	return jsontext.Value(message)
}

// gets fails unless a message has the payload that an ADR prints, but for members that are other than printed.
func (p *peer) gets(t *testing.T, name, message string, changes ...string) (payload jsontext.Value) {
	t.Helper()
	p.page.speaks(t, jsontext.Value(message))
	payload = fromMCP(t, message)
	for _, fault := range notAsPrinted("", with(t, payloadOf(t, name), changes...), payload) {
		t.Errorf("%s: %s; it is\n%s", name, fault, payload)
	}
	return payload
}

// ofTheSender are members that have other values each time.
var ofTheSender = []string{"id", "ts", "to", "requestId", "authorizationId", "expiresAt", "validUntil", "io.modelcontextprotocol/clientInfo", "token", "signature", "expires", "valid_from"}

// notAsPrinted says what a message lacks of a printed one: each member is to be there, with a value of the same type, and the
// same value, unless it is a name or a time of the sender's. Members may be added, but none to the arguments of a tool.
func notAsPrinted(at string, printed, got jsontext.Value) (faults []string) {
	if printed.Kind() != got.Kind() {
		return []string{at + " is of another type"}
	}
	switch printed.Kind() {
	case '{':
		var want, is map[string]jsontext.Value
		if json.Unmarshal(printed, &want) != nil || json.Unmarshal(got, &is) != nil {
			return []string{at + " cannot be read"}
		}
		for name, value := range want {
			switch its, has := is[name]; {
			case !has:
				faults = append(faults, at+"/"+name+" is missing")
			case name == "arguments":
				if !equalJSON(string(value), string(its)) {
					faults = append(faults, at+"/"+name+" is "+string(its))
				}
			case slices.Contains(ofTheSender, name):
				if value.Kind() != its.Kind() {
					faults = append(faults, at+"/"+name+" is of another type")
				}
			default:
				faults = append(faults, notAsPrinted(at+"/"+name, value, its)...)
			}
		}
	case '[':
		var want, is []jsontext.Value
		if json.Unmarshal(printed, &want) != nil || json.Unmarshal(got, &is) != nil || len(want) != len(is) {
			return []string{at + " has another length"}
		}
		for n := range want {
			faults = append(faults, notAsPrinted(fmt.Sprint(at, "/", n), want[n], is[n])...)
		}
	default:
		if !equalJSON(string(printed), string(got)) {
			faults = append(faults, at+" is "+string(got))
		}
	}
	return faults
}

// textOf is a text in a message, wherever it stands.
func textOf(t testing.TB, text jsontext.Value, name string) string {
	t.Helper()
	found := regexp.MustCompile(`"` + name + `": ?("[^"]+")`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("there is no %s in %s", name, text)
	}
	var value string
	orFail(t, json.Unmarshal(found[1], &value))
	return value
}

// answer is the message that answered a request.
func (a echo) answer() string {
	text := strings.TrimSpace(a.text)
	for line := range strings.Lines(a.text) {
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			text = data
		}
	}
	return text
}

const approvedByUser1 = `
@id("asks") @obligation("ask") permit (principal == agent::"agent-a", action == Action::"tool.invoke", resource == tool::"agent-b:dangerous_operation");
@id("user-1") permit (principal == user::"user-1", action == Action::"approval.decide", resource is Approval);
`

const asksUser1 = `
ask: {type: approval_required, properties: {template: ask, message: "Tool requires user approval for production operations", timeout: 5m, delegable: true}}
`

const fulfilledByUser1 = `
@id("no-calls") @reason_user("Agents request this tool.") forbid (principal is agent, action == Action::"tool.invoke", resource is tool);
@id("restricted") permit (principal == agent::"agent-a", action == Action::"tool.request", resource == tool::"agent-b:dangerous_operation");
@id("full") permit (principal == user::"user-1", action in [Action::"tool.invoke", Action::"tool.fulfil"], resource is tool);
`

// What the page shows, and both ADRs print, is spoken through a running gateway, in either era.
func TestPeer(t *testing.T) {
	t.Parallel()
	page := readSpoken(t)
	t.Cleanup(func() { page.all(t) })
	for _, era := range eras {
		for name, test := range map[string]func(*testing.T, *spoken, string){"authorization": peerAuthorization, "meanwhile": peerMeanwhile, "requests": peerRequests, "capabilities": peerCapabilities, "access": peerAccess} {
			t.Run(name+" "+era, func(t *testing.T) {
				t.Parallel()
				test(t, page, era)
			})
		}
	}
}

// Tool Authorization, message by message: agent-a calls a tool of agent-b, user-1 is asked, and says yes or no.
func peerAuthorization(t *testing.T, page *spoken, era string) {
	w := newTopic(t, page, approvedByUser1, asksUser1, "Operation completed successfully", func(c *mcp.Config) {
		c.Approvals.Wait, c.Errors = 100*time.Millisecond, "mcpx"
	})
	agent, user := w.joins(era, "agent-a"), w.joins(era, "user-1").listens(t, "restricted")
	const call = `{"jsonrpc":"2.0","id":"original-request-id","method":"tools/call","params":{"name":"dangerous_operation","arguments":{"target":"production"}}}`

	// The call is refused for now, and says what people are asked. They are.
	required := agent.sends(t, jsontext.Value(call))
	agent.gets(t, "000-authorization-required", required.answer(), "reason", "a person must approve this call")
	id := textOf(t, required.fault.Data, "id")
	notified := user.gets(t, "000-authorization-request", user.hears("notifications/authorization/request"))
	if textOf(t, notified, "id") != id {
		t.Errorf("the one is asked about %s, and the other waits for %s", notified, id)
	}
	w.untouched(t)

	// They approve, and the same call goes on.
	until := w.now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	got := user.says(t, "000-authorization-respond", "authorizationId", id, "validUntil", until)
	if got.status != http.StatusAccepted || got.text != "" {
		t.Errorf("what is said without an id is answered %s", got)
	}
	mcptest.Until(t, "it is approved", func() bool { return w.approval(id).Status == "approved" })
	agent.gets(t, "000-executed", agent.sends(t, jsontext.Value(call)).answer())
	if list := agent.ask("tools/list", "{}"); !strings.Contains(ofCapabilities.ReplaceAllString(list.text, ""), topicTool) {
		t.Errorf("the tool is %s", list)
	}
	page.speaks(t, jsontext.Value(topicTool))
	w.ran("dangerous_operation", `{"target":"production"}`)
	if want := []string{`approve user::"user-1" form key:gateway`}; !slices.Equal(w.votes(id), want) {
		t.Errorf("on record is %q", w.votes(id))
	}
}

// The call itself waits for as long as it may, and what people say is the answer to it. They say it by a message with an id, and so
// hear what has become of it.
func peerMeanwhile(t *testing.T, page *spoken, era string) {
	w := newTopic(t, page, approvedByUser1, asksUser1, "Operation completed successfully", func(c *mcp.Config) { c.Errors = "mcpx" })
	agent, user := w.joins(era, "agent-a"), w.joins(era, "user-1").listens(t, "restricted")
	// says is what the agent gets to hear once user-1 has decided.
	says := func(decision, status, reason string) (answer string) {
		t.Helper()
		over := agent.waits("dangerous_operation", `{"target":"production"}`).ended
		id := textOf(t, user.gets(t, "000-authorization-request", user.hears("notifications/authorization/request")), "id")
		got := user.sends(t, jsontext.Value(`{"jsonrpc":"2.0","id":"resp-1","method":"authorization/respond","params":{"authorizationId":"`+id+`","decision":"`+decision+`","reason":`+inText(reason)+`}}`))
		if !got.ran() || textOf(t, got.result, "authorizationId") != id || textOf(t, got.result, "status") != status {
			t.Errorf("who decides %s is told %s", decision, got)
		}
		if decision == "approve" {
			page.speaks(t, jsontext.Value(got.answer()))
		}
		return string(with(t, []byte(next(t, over).answer()), "id", "any"))
	}
	agent.gets(t, "000-executed", says("approve", "approved", "Approved for maintenance window"))
	w.ran("dangerous_operation", `{"target":"production"}`)
	denied := says("deny", "denied", "User denied authorization")
	if era == "legacy" {
		agent.gets(t, "000-authorization-denied", denied)
	} else { // which has another meaning for its code
		agent.gets(t, "000-authorization-denied", strings.Replace(denied, "-32001", "-32002", 1))
		page.speaks(t, jsontext.Value(denied))
	}
	w.ran("dangerous_operation", `{"target":"production"}`)
}

// Tool Access Control, message by message: agent-a may not call the tool, and asks that somebody does; user-1 hears of it, and
// calls it on behalf of agent-a.
func peerRequests(t *testing.T, page *spoken, era string) {
	w := newTopic(t, page, fulfilledByUser1, "", "Operation completed", func(c *mcp.Config) { c.Approvals.Wait = 100 * time.Millisecond })
	agent := w.joins(era, "agent-a").listens(t, "restricted")
	user := w.joins(era, "user-1").listens(t, "full")

	// A call is blocked, and both the answer and a message say what to do instead.
	blocked := agent.call("dangerous_operation", `{"target":"staging"}`)
	if blocked.code() != -32001 || textOf(t, blocked.fault.Data, "suggestion") != "call tools/request" {
		t.Errorf("it is answered %s", blocked)
	}
	agent.gets(t, "001-tool-call-blocked", agent.hears("notifications/tool_call_blocked"),
		"reason", "Agents request this tool.", "suggestion", "call tools/request")

	pending := agent.says(t, "001-tools-request", "reason", "Need to complete maintenance task")
	page.speaks(t, jsontext.Value(pending.answer()))
	if want := `{"status":"pending","requestId":"req-123"}`; !pending.ran() || len(notAsPrinted("", jsontext.Value(want), pending.result)) > 0 {
		t.Fatalf("who asked is told %s", pending)
	}
	id := textOf(t, pending.result, "requestId")
	told := user.gets(t, "001-tool-request-pending", user.hears("notifications/tools/request_pending"))
	if textOf(t, told, "requestId") != id {
		t.Errorf("%s waits, and the other hears of %s", id, told)
	}
	w.untouched(t)

	fulfilled := user.says(t, "001-call-on-behalf-of", "requestId", id)
	user.gets(t, "001-fulfilled", fulfilled.answer())
	w.ran("dangerous_operation", `{"target":"staging"}`)

	// Who asked gets the same, by the same message with the id of what waits.
	result := agent.sends(t, jsontext.Value(`{"jsonrpc":"2.0","id":"call-456","method":"tools/request","params":{"name":"dangerous_operation","arguments":{"target":"staging"},"requestId":"`+id+`"}}`))
	agent.gets(t, "001-fulfilled", result.answer())

	// It was fulfilled once, and is not again.
	if again := user.says(t, "001-call-on-behalf-of", "requestId", id); again.fault == nil {
		t.Errorf("a second time: %s", again)
	}
	w.ran("dangerous_operation", `{"target":"staging"}`)
}

// A call without a capability is blocked where one is required. What a call shows of one is judged, and is in no message to the
// server: where it is not good, the call is refused, whoever makes it.
func peerCapabilities(t *testing.T, page *spoken, era string) {
	const grants = `@id("grants") permit (principal == agent::"agent-a", action == Action::"capability.grant", resource == tool::"agent-b:dangerous_operation");`
	w := newTopic(t, page, fulfilledByUser1+grants, "", "Operation completed", func(c *mcp.Config) {
		u := c.Upstreams["agent-b"]
		u.Capability = mcp.CapabilityRequired
		c.Upstreams["agent-b"], c.Capabilities.HolderKey = u, mcp.HolderKeyGateway
	})
	agent, user := w.joins(era, "agent-a").listens(t, "restricted"), w.joins(era, "user-1")
	if got := user.says(t, "001-capabilities-request"); got.code() != -32001 {
		t.Errorf("whom no policy grants a capability is answered %s", got)
	}
	agent.gets(t, "001-capabilities-grant", agent.says(t, "001-capabilities-request").answer())
	got := agent.sends(t, jsontext.Value(`{"jsonrpc":"2.0","id":"tool-call-1","method":"tools/call","params":{"name":"dangerous_operation","arguments":{"target":"staging"}}}`))
	page.speaks(t, jsontext.Value(got.answer()))
	for _, fault := range notAsPrinted("", with(t, printed(t, "001-capability-invalid"), "reason", "Missing capability token"), jsontext.Value(got.answer())) {
		t.Errorf("%s: %s", fault, got)
	}
	agent.gets(t, "001-tool-call-blocked", agent.hears("notifications/tool_call_blocked"))
	const params = `{"name":"dangerous_operation","arguments":{"target":"staging"}}`
	for _, p := range []*peer{agent, user} {
		refused := func(got echo, reason string) {
			t.Helper()
			if got.code() != -32003 || textOf(t, got.fault.Data, "reason") != reason {
				t.Errorf("%s is answered %s", p.id, got)
			}
		}
		refused(p.sends(t, golden(t, "001-call-with-capability", "written")), "Invalid capability token")
		refused(p.sends(t, golden(t, "001-call-with-proof", "written")), "Proof of possession invalid")
		p.shows("cap_2024_abc123def456", "eyJ0eXAi.eyJhdWQi.c2ln")
		text := p.text("tools/call", params)
		page.speaks(t, jsontext.Value(text))
		refused(p.send(text, p.headers("tools/call", params)...), "Invalid capability token")
	}
	w.untouched(t)
}

// A policy of access is refused, whoever sends it and however good it is: the answer says who makes policy of it, and how. Nothing of
// it reaches the server or the PDP.
func peerAccess(t *testing.T, page *spoken, era string) {
	w := newTopic(t, page, fulfilledByUser1, "", "Operation completed", nil)
	agent := w.joins(era, "agent-a")
	for n, change := range [][]string{nil, {"agent", "agent-a", "tools", "*"}, {"mode", "open"}, {"mode", "no such mode"}} {
		if n > 0 { // which the page does not show
			agent.page = nil
		}
		got := agent.says(t, "001-tool-access-policy", change...)
		if got.status != http.StatusBadRequest || got.code() != -32600 || !strings.Contains(got.fault.Message, "policy-service access import FILE --policies DIR") {
			t.Errorf("%q: it is answered %s", change, got)
		}
		page.speaks(t, jsontext.Value(got.answer()))
	}
	if got := agent.call("dangerous_operation", `{"target":"staging"}`); got.code() != -32001 {
		t.Errorf("it permits %s", got)
	}
	w.spared(t)
}

// spared fails if the server has heard of a policy of access.
func (w *world) spared(t *testing.T) {
	t.Helper()
	for _, g := range w.rec.Got() {
		if g.Method == messages.MethodAccess {
			t.Errorf("the server got %s", g.Body)
		}
	}
}

// Over the standard streams nobody is told: a notification has no answer there. It goes nowhere all the same.
func TestPeerAccessStdio(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	l := w.stdio(t, nil)
	l.call("1", "free", `{}`) // from here on there is a session that a notification could go to
	if _, got := l.hears(`"id":1`); !got.ran() {
		t.Errorf("%s", got)
	}
	l.say(string(with(t, toMCP(t, printed(t, "001-tool-access-policy"))))) // on one line
	l.call("2", "free", `{}`)
	if _, got := l.hears(`"id":2`); !got.ran() {
		t.Errorf("%s", got)
	}
	w.spared(t)
}

// Nobody is asked whether something may be requested, or fulfilled: an approval that such a permit owes is a denial.
func TestPeerRequestsAskNobody(t *testing.T) {
	t.Parallel()
	const requests, fulfils = `permit (principal == agent::"agent-a", action == Action::"tool.request", resource is tool);`, `permit (principal == user::"user-1", action == Action::"tool.fulfil", resource is tool);`
	for name, policies := range map[string]string{
		"requested": `@id("r") @obligation("ask") ` + requests + `@id("f") ` + fulfils,
		"fulfilled": `@id("r") ` + requests + `@id("f") @obligation("ask") ` + fulfils,
	} {
		w := newTopic(t, nil, policies+`@id("i") permit (principal == user::"user-1", action == Action::"tool.invoke", resource is tool);`, asksUser1, "ran", func(c *mcp.Config) {
			c.Approvals.Wait = 100 * time.Millisecond
		})
		agent, user := w.joins("modern", "agent-a"), w.joins("modern", "user-1")
		got := agent.says(t, "001-tools-request")
		if name == "fulfilled" {
			got = user.says(t, "001-call-on-behalf-of", "requestId", textOf(t, got.result, "requestId"))
		}
		if got.code() != -32001 || strings.Contains(got.text, "authorizationRequest") || len(w.approvals("")) > 0 {
			t.Errorf("%s: %s, and people are asked %v", name, got, w.approvals(""))
		}
		w.untouched(t)
	}
}
