package mcp_test

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/mcptest"
)

// world is a siege with people in it: a gateway that asks them, in as many replicas as are wanted, and a PDP that knows who
// they are. Alice has the agent that calls, and tokens for the gateway. Mia, noah and zoe are operators, and eve is nobody;
// each of them has an API key of the PDP, and so has alice. See peoplePolicies for the tools.
type world struct {
	*siege
	// replicas are the gateways, each as a siege of its own; the first one is siege.
	replicas []*siege
	keys     map[string]string // by whose they are
	ahead    *atomic.Int64     // of the time, for the PDP, the gateways and the issuer
	began    time.Time
	slower   time.Duration
	aside    sync.WaitGroup // what people do while a call goes on
}

// land is what differs from the ordinary. The zero land has one gateway.
type land struct {
	replicas int
	bundle   map[string]string // in place of the one with peoplePolicies
	files    map[string]string // are added to those of the bundle, or take their place
	answers  mcptest.Answers
	before   func(pdp string) string // stands before the PDP at a URL, and has one of its own
	change   func(*mcp.Config)
	serve    func(*pdpserver.Config)
	deps     mcp.Deps
	slower   time.Duration // by how many times the clock is slower; 0 is as 1
}

// peoplePolicies: each tool is called as the way in which people agree to it. "never" is denied.
//
//	free           goes ahead
//	confirm        alice agrees, by a form that asks yes or no
//	review         alice agrees, by a form that shows the arguments
//	brief          as confirm, and the time for it is over after three seconds
//	second-person  an operator agrees, and never by a form
//	pair           two of alice and the operators agree
//	delegable      alice or an operator agrees, or names somebody in their place
const peoplePolicies = `
@id("connect") permit (principal, action, resource) unless { resource is tool || action == Action::"approval.decide" };
@id("free") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:free");
@id("confirm") @obligation("confirm") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:confirm");
@id("review") @obligation("review") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:review");
@id("brief") @obligation("brief") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:brief");
@id("second-person") @obligation("second-person") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:second-person");
@id("pair") @obligation("pair") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:pair");
@id("delegable") @obligation("delegable") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:delegable");
@id("blocked") forbid (principal, action == Action::"tool.invoke", resource) when { context has arguments.blocked && context.arguments.blocked };

@id("the-person") permit (principal is user, action == Action::"approval.decide", resource is Approval)
when { resource.template != "second-person" }
when { (resource has chain && resource.chain.contains(principal)) || (resource has subject && resource.subject == principal) };
@id("an-operator") permit (principal in team::"operators", action == Action::"approval.decide", resource is Approval)
when { ["second-person", "pair", "delegable"].contains(resource.template) };
@id("away-from-the-client") forbid (principal, action == Action::"approval.decide", resource is Approval)
when { resource.template == "second-person" } unless { ["console", "api"].contains(context.via) };
`

const peopleObligations = `
confirm: {type: approval_required, properties: {template: confirm, message: "Did you ask ${principal.id} for ${resource.id}?", timeout: 10m}}
review: {type: approval_required, properties: {template: review, message: "${principal.id} wants ${resource.id}", timeout: 10m, form: review}}
brief: {type: approval_required, properties: {template: brief, message: "${principal.id} wants ${resource.id}", timeout: 3s}}
second-person: {type: approval_required, properties: {template: second-person, message: "${principal.id} wants ${resource.id}", timeout: 10m, form: review}}
pair: {type: approval_required, properties: {template: pair, message: "${principal.id} wants ${resource.id}", timeout: 10m, quorum: 2}}
delegable: {type: approval_required, properties: {template: delegable, message: "${principal.id} wants ${resource.id}", timeout: 10m, delegable: true}}
`

// withRounds are obligations by which what people approve may ask for input, and go on with it.
var withRounds = map[string]string{"obligations.yaml": strings.ReplaceAll(peopleObligations, "timeout: 10m", "timeout: 10m, rounds: 10")}

const peopleEntities = `[
{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"operators"}]},
{"uid":{"type":"user","id":"noah"},"attrs":{},"parents":[{"type":"team","id":"operators"}]},
{"uid":{"type":"user","id":"zoe"},"attrs":{},"parents":[{"type":"team","id":"operators"}]},
{"uid":{"type":"user","id":"alice"},"attrs":{},"parents":[]},
{"uid":{"type":"user","id":"eve"},"attrs":{},"parents":[]}]`

// peopleTools are the tools of the server.
var peopleTools = []string{"free", "confirm", "review", "brief", "second-person", "pair", "delegable", "never"}

// newPeople runs until the test ends.
func newPeople(t testing.TB, of land) *world {
	t.Helper()
	w := &world{keys: map[string]string{}, ahead: new(atomic.Int64), began: time.Now(), slower: max(1, of.slower)}
	files := map[string]string{
		"people.cedar": peoplePolicies, "obligations.yaml": peopleObligations, "entities/people.json": peopleEntities,
		"bundle.yaml": "allow_trivial: true\nallow_self_approval: [confirm, review, brief, pair, delegable]\n",
	}
	if of.bundle != nil {
		files = maps.Clone(of.bundle)
	}
	maps.Copy(files, of.files)
	if of.answers.Tools == "" {
		of.answers.Tools = definitions(peopleTools...)
	}
	keyFile, sealFile := filepath.Join(t.TempDir(), "gateway.key"), secretFile(t, "0123456789abcdef0123456789abcdef")
	w.siege = newSiege(t, camp{
		policies: files, answers: of.answers, before: of.before, deps: of.deps,
		now: w.now,
		serve: func(s *siege, c *pdpserver.Config) {
			w.addKeys(s)
			orFail(t, os.WriteFile(keyFile, []byte(w.keys["gateway"]), 0o600))
			c.Program.PDP.Now, c.Program.PDP.NewID, c.Console = w.now, nil, &pdpserver.ConsoleConfig{}
			c.Approvals.NewPerMinutePerSubject, c.Approvals.MaxPendingPerSubject = 100_000, 10_000
			c.Auth.JWT = []auth.JWTIssuer{{
				Issuer: s.issuer.URL, Audience: siegeResource, JWKSFile: s.issuer.KeysFile(t), Algorithms: []string{"ES256"},
				RelayedBy: []string{"gateway"}, Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"},
				Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Approve}},
			}}
			if of.serve != nil {
				of.serve(c)
			}
		},
		change: func(c *mcp.Config) {
			c.PDP.KeyFile, c.Seal.KeyFiles = keyFile, []string{sealFile}
			if of.change != nil {
				of.change(c)
			}
		},
	})
	w.replicas = []*siege{w.siege}
	for len(w.replicas) < of.replicas {
		w.replicas = append(w.replicas, w.replica())
	}
	return w
}

// replica is one more gateway with the same configuration.
func (w *world) replica() *siege {
	w.t.Helper()
	other := *w.siege
	other.gateway, other.url = other.beside()
	return &other
}

// now is the time, for all but the people.
func (w *world) now() time.Time {
	return w.began.Add(time.Since(w.began)/w.slower + time.Duration(w.ahead.Load()))
}

// advance is what happens if nothing happens for so long.
func (w *world) advance(d time.Duration) { w.ahead.Add(int64(d)) }

func (w *world) addKeys(s *siege) {
	w.addKey(s, "gateway", "", auth.Decide, auth.Search, auth.Request, auth.Relay, auth.Capability)
	w.addKey(s, "auditor", "", auth.LogRead)
	w.addKey(s, "wallet", "", auth.Capability)
	w.addKey(s, "warden", "", auth.CapabilityAdmin)
	for _, who := range []string{"alice", "mia", "noah", "zoe", "eve"} {
		w.addKey(s, who, `user::"`+who+`"`, auth.Approve)
	}
}

func (w *world) addKey(s *siege, name, principal string, permissions ...auth.Permission) {
	s.t.Helper()
	apiKeys, err := keys.Open(s.data)
	orFail(s.t, err)
	spec := keys.Spec{Name: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}}
	if principal != "" {
		spec.Principal, err = auth.ParsePrincipal(principal)
		orFail(s.t, err)
	}
	w.keys[name], err = apiKeys.Add(spec)
	orFail(s.t, err)
}

// api sends a request to the PDP by somebody's key.
func (w *world) api(who, method, path, body string, headers ...string) pdptest.Response {
	w.t.Helper()
	headers = append([]string{"Authorization", "Bearer " + w.keys[who], "Accept-Encoding", "identity"}, headers...)
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return w.pdp.Do(method, path, body, headers...)
}

// says has somebody do something about an approval request, by their own key, and fails unless that is done.
func (w *world) says(who, id, what, body string) {
	w.t.Helper()
	if got := w.api(who, http.MethodPost, "/v1/approvals/"+id+"/"+what, body); got.Status != http.StatusOK {
		w.t.Fatalf("%s: %s %s: %d %s", who, what, body, got.Status, got.Body)
	}
}

func (w *world) approve(who, id string) {
	w.t.Helper()
	w.says(who, id, "decision", `{"decision":"approve","reason":"fine"}`)
}

func (w *world) deny(who, id, reason string) {
	w.t.Helper()
	w.says(who, id, "decision", `{"decision":"deny","reason":`+inText(reason)+`}`)
}

func (w *world) delegate(who, id, to string) {
	w.t.Helper()
	w.says(who, id, "decision", `{"decision":"delegate","reason":"away","to":`+inText(`user::"`+to+`"`)+`}`)
}

func (w *world) revoke(who, id string) {
	w.t.Helper()
	w.says(who, id, "revoke", "")
}

// approval is an approval request, as who asked sees it.
type approval struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Used    int    `json:"used"`
	Request struct {
		Resource struct {
			ID string `json:"id"`
		} `json:"resource"`
		Context struct {
			Arguments jsontext.Value `json:"arguments"`
		} `json:"context"`
	} `json:"request"`
	Said []struct {
		By       string `json:"by"`
		Decision string `json:"decision"`
		Via      string `json:"via"`
		Gateway  string `json:"gateway"`
	} `json:"said"`
}

// approval is one of them, as it is now.
func (w *world) approval(id string) (a approval) {
	w.t.Helper()
	got := w.api("gateway", http.MethodGet, "/v1/approvals/"+id, "")
	if got.Status != http.StatusOK {
		w.t.Fatalf("%s: %d %s", id, got.Status, got.Body)
	}
	orFail(w.t, json.Unmarshal([]byte(got.Body), &a))
	return a
}

// approvals are all that were ever filed about a tool, "" is any, in their order.
func (w *world) approvals(tool string) (all []approval) {
	w.t.Helper()
	for _, step := range w.steps("") {
		if id, ok := strings.CutPrefix(step, "filed "); ok {
			if a := w.approval(id); tool == "" || a.Request.Resource.ID == "rec:"+tool {
				all = append(all, a)
			}
		}
	}
	return all
}

// pending are the ids of those that people have not decided about.
func (w *world) pending(tool string) (ids []string) {
	w.t.Helper()
	for _, a := range w.approvals(tool) {
		if a.Status == "pending" {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// asks waits until people are asked about a tool, and gives the id of the one request that is pending.
func (w *world) asks(tool string) (id string) {
	w.t.Helper()
	mcptest.Until(w.t, "people are asked about "+tool, func() bool {
		all := w.pending(tool)
		if len(all) > 1 {
			w.t.Fatalf("people are asked %d times", len(all))
		}
		id = strings.Join(all, "")
		return id != ""
	})
	return id
}

// votes are what people said of an approval request, each as: decision, who, via and the gateway.
func (w *world) votes(id string) (all []string) {
	w.t.Helper()
	for _, v := range w.approval(id).Said {
		all = append(all, strings.TrimSpace(strings.Join([]string{v.Decision, v.By, v.Via, v.Gateway}, " ")))
	}
	return all
}

// steps are what is on record of an approval request, each as: event, who, via and the gateway. Of "" it is the ids of all.
func (w *world) steps(id string) (all []string) {
	w.t.Helper()
	got := w.api("auditor", http.MethodGet, "/v1/log/export", "")
	if got.Status != http.StatusOK {
		w.t.Fatalf("the log: %d %s", got.Status, got.Body)
	}
	for line := range strings.Lines(got.Body) {
		var record struct {
			Kind, Event string
			Details     struct{ Approval, By, Via, Gateway string }
		}
		if json.Unmarshal([]byte(line), &record, json.MatchCaseInsensitiveNames(true)) != nil || record.Kind != "approval" {
			continue
		}
		switch d := record.Details; id {
		case "":
			all = append(all, record.Event+" "+d.Approval)
		case d.Approval:
			all = append(all, strings.Join(slices.DeleteFunc([]string{record.Event, d.By, d.Via, d.Gateway}, func(s string) bool { return s == "" }), " "))
		}
	}
	return all
}

// forwarded are the arguments of each call of a tool that reached the server, byte for byte, in their order.
func (w *world) forwarded(tool string) (all []string) {
	w.t.Helper()
	for _, g := range w.rec.Got() {
		var params struct {
			Name      string
			Arguments jsontext.Value
		}
		if g.Method == "tools/call" && json.Unmarshal(g.Params, &params, json.MatchCaseInsensitiveNames(true)) == nil && params.Name == tool {
			all = append(all, string(params.Arguments))
		}
	}
	return all
}

// client is a client of alice's agent that takes forms and addresses, at the first replica.
func (w *world) client(era string) *visitor { return w.replicas[0].takesForms(era, nil) }

// takesForms comes with the claims that differ from alice's, and takes forms and addresses.
func (s *siege) takesForms(era string, claims mcptest.Claims) *visitor {
	s.t.Helper()
	return s.saying(`{"elicitation":{"form":{},"url":{}}}`, era, claims)
}

// plain is a client of alice's agent that takes neither.
func (w *world) plain(era string) *visitor {
	w.t.Helper()
	return w.visitor(era, nil)
}

// dialogue is what a client is asked in the course of a call, in either era.
type dialogue struct {
	v               *visitor
	tool, arguments string
	// asked are the params of what it is asked.
	asked  jsontext.Value
	modern stateAsked
	legacy called
	over   chan echo // what came of the call
}

// dialogue calls a tool, and fails unless the client is asked something.
func (v *visitor) dialogue(tool, arguments string) *dialogue {
	v.s.t.Helper()
	d := &dialogue{v: v, tool: tool, arguments: arguments, over: make(chan echo, 1)}
	var text string
	if v.era == "modern" {
		d.modern = stateOf(v.s.t, v.call(tool, arguments))
		text = string(d.modern.Requests[d.modern.key()])
	} else {
		d.legacy = v.asked(tool, arguments)
		text = d.legacy.asks
	}
	var m struct {
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	orFail(v.s.t, json.Unmarshal([]byte(text), &m))
	if m.Method != "elicitation/create" {
		v.s.t.Fatalf("it is asked %s", text)
	}
	d.asked = m.Params
	return d
}

// What people answer to a form.
const (
	saysYes     = `{"action":"accept","content":{"approve":true}}`
	saysNo      = `{"action":"decline"}`
	saysNothing = `{"action":"cancel"}`
)

// answer answers what was asked, by v or by another client, such as one at another replica. It does not wait for anything
// to come of it.
func (d *dialogue) answer(by *visitor, answer string) {
	by.s.t.Helper()
	if by.era == "legacy" {
		if got := by.reply(d.legacy.id, answer); got.status != http.StatusAccepted {
			by.s.t.Errorf("the answer: %s", got)
		}
		return
	}
	go func() { d.over <- d.repeats(by, d.says(answer)) }()
}

// says is an answer as a client of the modern era brings it.
func (d *dialogue) says(answer string) string { return `{"` + d.modern.key() + `":` + answer + `}` }

// reply sends the result of what a client of the legacy era was asked.
func (v *visitor) reply(id, result string) echo {
	v.s.t.Helper()
	return v.send(`{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`, v.headers("", "")...)
}

// repeats sends the call again, and again for as long as the gateway asks for that and nothing else, as clients do.
func (d *dialogue) repeats(by *visitor, answers string) (got echo) {
	state := d.modern.State
	for range 10 {
		if got = by.retry(d.tool, d.arguments, inText(state), answers); got.result == nil {
			return got
		}
		var next struct {
			stateAsked `json:",inline"`
			ResultType string `json:"resultType"`
		}
		if json.Unmarshal(got.result, &next) != nil || next.ResultType != "input_required" || len(next.Requests) > 0 {
			return got
		}
		state, answers = next.State, `{}`
	}
	return got
}

// end is what came of the call in the end.
func (d *dialogue) end() echo {
	d.v.s.t.Helper()
	if d.v.era == "legacy" {
		return d.legacy.end(d.v.s.t)
	}
	return <-d.over
}

// inEras runs a test in each era, all at once.
func inEras(t *testing.T, test func(t *testing.T, era string)) {
	t.Helper()
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			test(t, era)
		})
	}
}

// runs fails unless a call has come to a result. Of says which call that is.
func (a echo) runs(t testing.TB, of ...any) {
	t.Helper()
	if !a.ran() {
		t.Errorf("%v %s", of, a)
	}
}

// refused fails unless an answer is an error of a code and a kind, "" is any, that says something.
func (a echo) refused(t testing.TB, code int, kind, message string, of ...any) {
	t.Helper()
	if !a.says(code, message) || kind != "" && a.kind() != kind {
		t.Errorf("%v %s, want %d %s: %s", of, a, code, kind, message)
	}
}

// has fails unless the answer to a message has a status, and headers.
func (a echo) has(t testing.TB, status int, headers ...string) {
	t.Helper()
	for _, name := range headers {
		if a.header.Get(name) == "" {
			t.Errorf("%s has no %s", a, name)
		}
	}
	if a.status != status {
		t.Errorf("%s, want %d", a, status)
	}
}

// voted fails unless people have said just this of an approval request.
func (w *world) voted(id string, want ...string) {
	w.t.Helper()
	if got := w.votes(id); !slices.Equal(got, want) {
		w.t.Errorf("they say %q, want %q", got, want)
	}
}

// is fails unless an approval request has a status.
func (w *world) is(id, status string) {
	w.t.Helper()
	if got := w.approval(id).Status; got != status {
		w.t.Errorf("it is %s, want %s", got, status)
	}
}

// becomes waits until an approval request has a status.
func (w *world) becomes(id, status string) {
	w.t.Helper()
	mcptest.Until(w.t, "it is "+status, func() bool { return w.approval(id).Status == status })
}

// askedFor fails unless people were asked so often about a tool, "" is any.
func (w *world) askedFor(tool string, times int) {
	w.t.Helper()
	if all := w.approvals(tool); len(all) != times {
		w.t.Errorf("people were asked %d times, want %d", len(all), times)
	}
}

// ran fails unless the server has got just these calls of a tool.
func (w *world) ran(tool string, arguments ...string) {
	w.t.Helper()
	if got := w.forwarded(tool); !slices.Equal(got, arguments) {
		w.t.Errorf("the server has got %q of %s, want %q", got, tool, arguments)
	}
}
