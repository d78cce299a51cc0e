package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
)

const (
	ofPeople   = "https://login.example.com"
	forGateway = "https://mcp.example.com"
	forOther   = "https://other-mcp.example.com"
)

// votesPolicies: an agent's mail is confirmed by the very person in a form of one gateway, a deployment approved by a
// lead in a console, and a push by a lead in any way.
const votesPolicies = `
@id("mail") @obligation("confirm") permit(principal, action == Action::"tool.invoke", resource == tool::"mail");
@id("deploy") @obligation("second") permit(principal, action == Action::"tool.invoke", resource == tool::"deploy");
@id("push") @obligation("any") permit(principal, action == Action::"tool.invoke", resource == tool::"push");
@id("self") permit(principal is user, action == Action::"approval.decide", resource is Approval)
when { resource.template == "confirm" && context.via == "form" && context.gateway == "key:gw" && resource.chain.contains(principal) };
@id("leads") permit(principal in team::"leads", action == Action::"approval.decide", resource is Approval)
when { resource.template == "second" && context.via == "console" || resource.template == "any" };
`

const votesObligations = `
confirm: {type: approval_required, properties: {template: confirm, message: "mail as ${principal.id}"}}
second: {type: approval_required, properties: {template: second, form: review, delegable: true}}
any: {type: approval_required, properties: {template: any, form: review}}
`

// relays is a counter with gateways, a console and people who have tokens for them. The gateway's people are called
// by their e-mail addresses there, and by their subjects at the service.
type relays struct {
	*counter
	issuer *pdptest.Issuer
	config server.Config
}

func openRelays(t testing.TB, files map[string]string, options ...pdptest.Option) relays {
	t.Helper()
	data, now := t.TempDir(), pdptest.Now
	r := relays{counter: &counter{t: t, data: data, key: map[string]string{}, Clock: clock.At(now)}, issuer: pdptest.NewIssuer(t)}
	all := []string{"*"}
	r.grant("pep", all, "", auth.Decide, auth.Request)
	r.grant("gw", all, "", auth.Decide, auth.Search, auth.Request, auth.Relay)
	r.grant("gw-b", all, "", auth.Decide, auth.Relay)
	r.grant("auditor", all, "", auth.LogRead)
	r.grant("zoe", all, `user::"zoe"`, auth.Approve)
	apiKeys, err := keys.Open(data)
	must(t, err)
	console, err := apiKeys.Add(keys.Spec{Name: "desk", Via: evaluation.ViaConsole, Grant: auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Relay}}})
	must(t, err)
	r.key["desk"] = "Bearer " + console
	entry := func(audience, claim string, by ...string) auth.JWTIssuer {
		return auth.JWTIssuer{
			Issuer: ofPeople, Audience: audience, JWKSFile: r.issuer.File, Algorithms: []string{"EdDSA"}, RelayedBy: by,
			Principal: &auth.PrincipalClaim{Type: "user", Claim: claim},
			Grant:     auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Approve}},
		}
	}
	r.open(pdptest.Bundle(files), append(options, func(config *server.Config) {
		config.Auth.JWT = []auth.JWTIssuer{entry("pdp", "sub"), entry(forGateway, "sub", "gw", "desk"), entry(forOther, "sub", "gw-b")}
		r.config = *config
	})...)
	return r
}

func votesFiles(more ...string) map[string]string {
	files := map[string]string{"a.cedar": votesPolicies, "obligations.yaml": votesObligations, "bundle.yaml": "allow_self_approval: [confirm]\n",
		"entities/e.json": `[{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},
			{"uid":{"type":"user","id":"noah"},"attrs":{},"parents":[{"type":"team","id":"leads"}]},
			{"uid":{"type":"user","id":"zoe"},"attrs":{},"parents":[{"type":"team","id":"leads"}]}]`}
	for n := 0; n+1 < len(more); n += 2 {
		files[more[n]] += more[n+1]
	}
	return files
}

// token is a token of somebody for some audiences.
func (r relays) token(sub string, audience ...string) string {
	r.t.Helper()
	return r.issuer.Token(jwt.Claims{
		Issuer: ofPeople, Subject: sub, Audience: audience,
		Expiry: jwt.NewNumericDate(pdptest.Now.Add(time.Hour)),
	})
}

// beside is what a gateway sends for a person by a client of theirs; a console has no client.
func (r relays) beside(sub, audience string, client ...string) []string {
	header := []string{auth.ApproverToken, r.token(sub, audience)}
	for _, c := range client {
		header = append(header, auth.ApproverClient, c)
	}
	return header
}

// forPerson is a question of an agent of somebody, about a tool, that a gateway asks.
func forPerson(tool, sub string) string {
	return fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q},
		"context":{"arguments":{"to":"all"},"on_behalf_of":[{"type":"user","id":%q}],"person":%q}}`, tool, sub, evaluation.PersonOf(ofPeople, sub))
}

func (r relays) asksFor(tool, sub string) (id string) {
	r.t.Helper()
	asked := r.asks("gw", forPerson(tool, sub))
	if asked.Approval == nil || asked.Approval.Status != "pending" {
		r.t.Fatalf("%s for %s: got %+v", tool, sub, asked)
	}
	return asked.Approval.ID
}

// onRecord is what is on record of an approval request: each step with its person, its way and its gateway.
func (r relays) onRecord(id string) (steps []string) {
	r.t.Helper()
	_, text := r.do("auditor", "GET", "/v1/log/export", "")
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		var record struct {
			Kind    string `json:"kind"`
			Event   string `json:"event"`
			Caller  string `json:"caller"`
			Details struct {
				Approval, By, Via, Gateway, Person string
				Version                            int
			} `json:"details"`
		}
		if json.Unmarshal([]byte(line), &record, json.MatchCaseInsensitiveNames(true)) != nil || record.Kind != "approval" || record.Details.Approval != id {
			continue
		}
		d := record.Details
		steps = append(steps, strings.TrimSpace(strings.Join([]string{record.Event, d.By, d.Via, d.Gateway}, " ")))
		if d.Person == "" {
			r.t.Errorf("%s says nothing of the person it was asked for: %s", record.Event, line)
		}
	}
	return steps
}

const accepts = `{"action":"accept","content":{"approve":true}}`

// TestNobodyApprovesByAKeyWhatIsAskedForThem: a person has a key and a token, and the gateway calls them by another name than the key does. By the
// issuer's name for them, who asks and who would decide are one.
func TestNobodyApprovesByAKeyWhatIsAskedForThem(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	byAnotherName := strings.Replace(forPerson("push", "zoe"), `"id":"zoe"`, `"id":"z.miller"`, 1)
	id := r.asks("gw", byAnotherName).Approval.ID
	r.says("zoe", id, "decision", yes, http.StatusNotFound)
	if items, _ := r.inbox("zoe", ""); len(items) > 0 {
		t.Errorf("it is offered: %+v", items)
	}
	other := strings.Replace(forPerson("push", "mia"), `"id":"mia"`, `"id":"m.miller"`, 1)
	r.says("zoe", r.asks("gw", other).Approval.ID, "decision", yes, http.StatusOK)
	r.key["noah"] = "Bearer " + r.token("noah", "pdp")
	r.says("noah", id, "decision", yes, http.StatusOK)
}

// The person whose agent calls confirms it in a form of the gateway, where the bundle says so, and by no other way.
func TestAPersonConfirmsByForm(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	id := r.asksFor("mail", "mia")
	path := "/v1/approvals/" + id
	mine := r.beside("mia", forGateway)
	form, text := r.do("gw", "GET", path+"/elicitation", "", mine...)
	if form != 200 || !strings.Contains(text, `"requestedSchema":{"type":"object","properties":{"approve":{"type":"boolean"`) {
		t.Errorf("the form: %d %s", form, text)
	}
	for name, test := range map[string]struct {
		who, method, path, body string
		header                  []string
		want                    int
	}{
		"her own token":                   {"mia", "POST", "/response", accepts, nil, 404},
		"her own token, as a decision":    {"mia", "POST", "/decision", yes, nil, 404},
		"the gateway's key alone":         {"gw", "POST", "/response", accepts, nil, 403},
		"the gateway's key as a decision": {"gw", "POST", "/decision", yes, nil, 403},
		"by the console":                  {"desk", "POST", "/decision", yes, mine, 404},
		"another person by the form":      {"gw", "POST", "/response", accepts, r.beside("noah", forGateway), 404},
		"another gateway":                 {"gw-b", "POST", "/response", accepts, r.beside("mia", forOther), 404},
		"another gateway's token":         {"gw", "POST", "/response", accepts, r.beside("mia", forOther), 401},
		"beside another gateway":          {"gw-b", "POST", "/response", accepts, mine, 401},
		"by the form, as a decision":      {"gw", "POST", "/decision", yes, mine, 403},
		"another person sees":             {"gw", "GET", "/elicitation", "", r.beside("noah", forGateway), 404},
		"another gateway sees":            {"gw-b", "GET", "/elicitation", "", r.beside("mia", forOther), 404},
		"what a query claims":             {"gw", "POST", "/response?via=form&gateway=key:gw&person=mia", accepts, r.beside("noah", forGateway), 404},
		"what a body claims":              {"gw", "POST", "/response", `{"action":"accept","content":{"approve":true},"via":"form","gateway":"key:gw","by":"user::\"mia\"","person":"mia"}`, r.beside("noah", forGateway), 404},
		"her own token, and a claim":      {"mia", "POST", "/response?via=form", `{"action":"accept","content":{"approve":true},"via":"form","gateway":"key:gw"}`, []string{"Via", "form", "X-Gateway", "key:gw"}, 404},
	} {
		r.key["mia"] = "Bearer " + r.token("mia", "pdp")
		r.reply(test.who, test.method, path+test.path, test.body, test.header...).is(t, name, test.want)
	}
	status, text := r.do("gw", "POST", path+"/response", `{"action":"accept","content":{"approve":true},"via":"console","gateway":"key:desk"}`, mine...)
	if status != 200 || !strings.Contains(text, `"said":[{"by":"user::\"mia\"","decision":"approve","reason":"approved","via":"form","gateway":"key:gw","at":`) {
		t.Errorf("she confirms: %d %s", status, text)
	}
	if want := []string{"filed", `offered user::"mia" form key:gw`, `approve user::"mia" form key:gw`, "approved"}; !slices.Equal(r.onRecord(id), want) {
		t.Errorf("on record is %q", r.onRecord(id))
	}
	r.asks("gw", strings.Replace(forPerson("mail", "mia"), `"arguments"`, `"justification":"approved","arguments"`, 1)).passes(t, "what she confirmed does not go through")
	if status, _ := r.do("gw", "GET", path+"/elicitation", "", mine...); status != 409 {
		t.Errorf("what is used up is offered: %d", status)
	}
}

// A second person approves in a console, where the bundle wants that, and by no other way.
func TestASecondPersonApprovesByConsole(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	id := r.asksFor("deploy", "mia")
	path := "/v1/approvals/" + id
	hers, his := r.beside("mia", forGateway), r.beside("noah", forGateway)
	r.key["noah"] = "Bearer " + r.token("noah", "pdp")
	for name, test := range map[string]struct {
		who, method, path, body string
		header                  []string
		want                    int
	}{
		"he has a token of his own":  {"noah", "POST", "/decision", yes, nil, 404},
		"he answers a form":          {"gw", "POST", "/response", accepts, his, 404},
		"he is shown no form":        {"gw", "GET", "/elicitation", "", his, 404},
		"the console answers a form": {"desk", "POST", "/response", accepts, his, 403},
		"the console gets a form":    {"desk", "GET", "/elicitation", "", his, 403},
		"the console alone":          {"desk", "POST", "/decision", yes, nil, 403},
		"the console alone sees":     {"desk", "GET", "", "", nil, 404},
		"she asks":                   {"desk", "POST", "/decision", yes, hers, 404},
		"the gateway shows it":       {"gw", "GET", "", "", his, 403},
		"the console cancels":        {"desk", "POST", "/cancel", "", his, 403},
	} {
		r.reply(test.who, test.method, path+test.path, test.body, test.header...).is(t, name, test.want)
	}
	r.reply("desk", "GET", "/v1/approvals", "", his...).is(t, "the console lists for him", 200, id)
	if status, text := r.do("desk", "GET", "/v1/approvals", "", hers...); status != 200 || strings.Contains(text, id) {
		t.Errorf("the console lists for her: %d %s", status, text)
	}
	r.reply("desk", "GET", path, "", his...).is(t, "the console shows", 200)
	r.reply("desk", "POST", path+"/decision", yes, his...).is(t, "he approves", 200, `"via":"console","gateway":"key:desk"`)
	r.reply("desk", "POST", path+"/revoke", `{}`, his...).is(t, "he takes it back", 200)
	if want := []string{"filed", `approve user::"noah" console key:desk`, "approved", `revoked user::"noah" console key:desk`}; !slices.Equal(r.onRecord(id), want) {
		t.Errorf("on record is %q", r.onRecord(id))
	}
}

// Whatever an agent's client does with the token that its person gave it, on any route, nothing is decided and nobody
// has voted.
func TestATokenGivenToAClientDecidesNothing(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	ids := map[string]string{}
	for _, tool := range []string{"mail", "deploy", "push"} {
		ids[tool] = r.asksFor(tool, "mia")
	}
	before := r.recorded()
	routes, err := server.Routes()
	must(t, err)
	if len(routes) < 40 {
		t.Fatalf("%d routes", len(routes))
	}
	const question = `"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"}`
	bodies := map[string]string{
		"/evaluation":  `{` + question + `}`,
		"/evaluations": `{"evaluations":[{` + question + `}]}`,
		"/subject":     `{"subject":{"type":"user"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"}}`,
		"/resource":    `{"subject":{"type":"user","id":"mia"},"action":{"name":"tool.invoke"},"resource":{"type":"tool"}}`,
		"/action":      `{"subject":{"type":"user","id":"mia"},"resource":{"type":"tool","id":"push"}}`,
		"/authorize":   forPerson("push", "mia"),
		"/requests":    `{` + question + `,"denial":{"expires_at":"2026-01-02T03:14:05Z","binding_token":"x"}}`,
		"/decision":    yes,
		"/response":    accepts,
		"/obligations": `{"obligations":[]}`,
		"/revoke":      `{}`,
		"/cancel":      `{}`,
	}
	r.key["own"] = "Bearer " + r.token("noah", "pdp")
	r.key["basic"] = basicOf(r.key["gw"])
	for _, audience := range [][]string{{forGateway}, {forOther}, {forGateway, "pdp"}, {"pdp", forOther}} {
		for _, sub := range []string{"mia", "noah"} {
			token := r.token(sub, audience...)
			r.key["token"], r.key["token as Basic"], r.key["token as a token"] = "Bearer "+token, basicOf(token), "Token "+token
			r.key["nothing"] = ""
			for _, route := range routes {
				method, path, _ := strings.Cut(route, " ")
				body := ""
				if method == http.MethodPost {
					body = bodies[path[strings.LastIndexByte(path, '/'):]]
				}
				for tool, id := range ids {
					if !strings.Contains(path, "{id}") && tool != "push" {
						continue
					}
					path := strings.NewReplacer("{id}", id, "{tenant}", "acme", "{digest}", "h1:x").Replace(path)
					without := r.status("nothing", method, path, body)
					for _, who := range []string{"token", "token as Basic", "token as a token"} {
						for _, header := range [][]string{nil, {auth.ApproverToken, token}} {
							got := r.status(who, method, path, body, header...)
							if public := without != http.StatusUnauthorized; got != http.StatusUnauthorized && (!public || header == nil && got != without || header != nil && got < 400 && got != without) {
								t.Errorf("%s for %s, %v: %s is %d, and without a credential %d", who, sub, audience, route, got, without)
							}
						}
					}
					for _, who := range []string{"nothing", "pep", "zoe", "auditor", "own", "basic", "desk"} {
						if who == "desk" && slices.Contains(audience, forGateway) { // which is what that console brings
							continue
						}
						if got := r.status(who, method, path, body, auth.ApproverToken, token); got < 400 && (without == http.StatusUnauthorized || got != without) {
							t.Errorf("beside %s, for %s, %v: %s is %d", who, sub, audience, route, got)
						}
					}
				}
			}
		}
	}
	if after := r.recorded(); after != before {
		t.Errorf("%d records came of it", after-before)
	}
	for tool, id := range ids {
		if got, _ := r.sees("gw", id); got.Status != "pending" || got.Version != 1 || len(got.Said) > 0 {
			t.Errorf("%s: %+v", tool, got)
		}
	}
}

// status asks and says how it is answered.
func (r relays) status(who, method, path, body string, header ...string) int {
	r.t.Helper()
	status, _ := r.do(who, method, path, body, header...)
	return status
}

// basicOf is a credential as Basic, with the id of a key if it has one.
func basicOf(credential string) string {
	secret := strings.TrimPrefix(credential, "Bearer ")
	id := "x"
	if parts := strings.Split(secret, "_"); len(parts) == 3 {
		id = parts[1]
	}
	r, _ := http.NewRequest(http.MethodGet, "http://localhost/", nil)
	r.SetBasicAuth(id, secret)
	return r.Header.Get("Authorization")
}

// recorded is how many records there are of what callers do.
func (r relays) recorded() (n int) {
	r.t.Helper()
	_, text := r.do("auditor", "GET", "/v1/log/export", "")
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		var record struct {
			Kind string `json:"kind"`
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Kind != "" && record.Kind != "admin" && record.Kind != "end" {
			n++
		}
	}
	return n
}

// The gateway's question and the person's token may call one person by different names. He does not approve his own
// agent's call by either.
func TestOnePersonCalledTwoNames(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles("entities/f.json", `[{"uid":{"type":"user","id":"corp|mia"},"attrs":{},"parents":[]}]`))
	prefixed := func(tool string, person string) string {
		return strings.NewReplacer(`"id":"mia"`, `"id":"corp|mia"`, evaluation.PersonOf(ofPeople, "mia"), person).Replace(forPerson(tool, "mia"))
	}
	r.key["mia"], r.key["noah"] = "Bearer "+r.token("mia", "pdp"), "Bearer "+r.token("noah", "pdp")
	id := r.asks("gw", prefixed("push", evaluation.PersonOf(ofPeople, "mia"))).Approval.ID
	for who, header := range map[string][]string{"mia": nil, "gw": r.beside("mia", forGateway)} {
		r.reply(who, "POST", "/v1/approvals/"+id+"/response", accepts, header...).is(t, who, 404)
	}
	// Another lead names her in his place: that makes her nobody else.
	two := r.asks("gw", strings.Replace(prefixed("push", evaluation.PersonOf(ofPeople, "mia")), `"all"`, `"some"`, 1)).Approval.ID
	r.says("noah", two, "decision", `{"decision":"approve","reason":"fine"}`, 200)
	r.says("noah", id, "response", accepts, 200)
	// Where the question is another's, she may.
	other := r.asks("gw", prefixed("push", evaluation.PersonOf(ofPeople, "zoe"))).Approval.ID
	r.says("mia", other, "response", accepts, 200)
}

// A gateway that does not say for which person it asks has nobody asked, in either shape and in a batch.
func TestAGatewayAsksForSomebody(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	person := evaluation.PersonOf(ofPeople, "mia")
	without := strings.Replace(forPerson("push", "mia"), `,"person":"`+person+`"`, "", 1)
	if got := r.asks("gw", without); got.Approval != nil || got.may() {
		t.Errorf("for nobody: %+v", got)
	}
	if got := r.asks("pep", without); got.Approval == nil {
		t.Errorf("a PEP that is no gateway: %+v", got)
	}
	p := r.program("gw")
	question := `"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"},"context":{%s}`
	if got := p.evaluates(fmt.Sprintf(question, `"x":1`)); got.Context.Request != nil || got.Decision {
		t.Errorf("for nobody: %s", got.text)
	}
	denied := p.denied(fmt.Sprintf(question, `"x":1,"person":"`+person+`"`))
	for context, want := range map[string]string{
		`"x":1`: "not_requestable",
		`"x":1,"person":"` + evaluation.PersonOf(ofPeople, "noah") + `"`: "invalid_denial_binding",
	} {
		if got := p.submits(fmt.Sprintf(question, context) + "," + denied.denial()); got.problem != want {
			t.Errorf("%s: got %d %s", context, got.status, got.text)
		}
	}
	task := p.submits(fmt.Sprintf(question, `"x":1,"person":"`+person+`"`) + "," + denied.denial())
	if task.status != 202 {
		t.Errorf("for her: %d %s", task.status, task.text)
	}
	batch := fmt.Sprintf(`{"evaluations":[{%s},{%s},{%s}]}`,
		fmt.Sprintf(question, `"x":2`), fmt.Sprintf(question, `"x":2,"person":"no"`), fmt.Sprintf(question, `"x":2,"person":"`+person+`"`))
	status, text := r.do("gw", "POST", "/access/v1/evaluations", batch)
	var answers struct {
		Evaluations []struct {
			Context struct {
				Request *evaluation.AccessRequest `json:"access_request"`
				Error   struct {
					Message string `json:"message"`
				} `json:"error"`
			} `json:"context"`
		} `json:"evaluations"`
	}
	must(t, json.Unmarshal([]byte(text), &answers))
	if a := answers.Evaluations; status != 200 || a[0].Context.Request != nil || a[1].Context.Request != nil || a[2].Context.Request == nil || !strings.Contains(a[1].Context.Error.Message, "not a person") {
		t.Errorf("a batch: %d %s", status, text)
	}
	for _, body := range []string{strings.Replace(forPerson("push", "mia"), person, person[:42], 1), strings.Replace(forPerson("push", "mia"), `"`+person+`"`, `7`, 1)} {
		r.reply("gw", "POST", "/v1/authorize", body).is(t, body, 400, `"pointer":"/context/person"`)
	}
	// It is on record, and the people who are asked are not shown it.
	id := r.asksFor("push", "mia")
	_, shown := r.do("zoe", "GET", "/v1/approvals/"+id, "")
	_, log := r.do("auditor", "GET", "/v1/log/export", "")
	if strings.Contains(shown, person) || !strings.Contains(log, `"person":"`+person+`"`) {
		t.Errorf("shown is %s", shown)
	}
}

// What a gateway brought counts until its key is revoked.
func TestARevokedGatewayRelaysNothing(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	id := r.asksFor("mail", "mia")
	mine := r.beside("mia", forGateway)
	r.reply("gw", "POST", "/v1/approvals/"+id+"/response", accepts, mine...).is(t, "she confirms", 200)
	other := r.asksFor("push", "mia")
	r.reply("desk", "POST", "/v1/approvals/"+other+"/decision", yes, r.beside("noah", forGateway)...).is(t, "he approves", 200)
	apiKeys, err := keys.Open(r.data)
	must(t, err)
	must(t, apiKeys.Revoke("desk"))
	eventually(t, "the console's key is revoked", func() bool { return r.status("desk", "GET", "/v1/approvals", "", mine...) == 401 })
	justified := func(tool string) string {
		return strings.Replace(forPerson(tool, "mia"), `"arguments"`, `"justification":"approved","arguments"`, 1)
	}
	r.asks("gw", justified("push")).isStopped(t, "what a revoked console brought")
	r.counter.stands(t, "of the revoked console", "gw", other, "pending")
	r.asks("gw", justified("mail")).passes(t, "what the gateway brought")
	must(t, apiKeys.Revoke("gw"))
	eventually(t, "the gateway's key is revoked", func() bool {
		return r.status("gw", "GET", "/v1/approvals/"+id+"/elicitation", "", mine...) == 401
	})
}

// The obligation says which form is shown; a form offers to delegate only where that is possible.
func TestFormsOfObligations(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	fields := func(id, query string) string {
		var message struct {
			Params struct {
				Schema struct {
					Properties map[string]struct{ Enum []string }
				} `json:"requestedSchema"`
			}
		}
		_, text := r.do("gw", "GET", "/v1/approvals/"+id+"/elicitation"+query, "")
		must(t, json.Unmarshal([]byte(text), &message, json.MatchCaseInsensitiveNames(true)))
		return strings.Join(slices.Sorted(maps.Keys(message.Params.Schema.Properties)), " ") + " " + strings.Join(message.Params.Schema.Properties["action"].Enum, "|")
	}
	for tool, want := range map[string]map[string]string{
		"mail":   {"": "approve reason ", "?form=approve": "approve reason ", "?form=choose": "action reason approve|deny", "?form=review": "approve arguments.to reason "},
		"push":   {"": "approve arguments.to reason ", "?form=approve": "approve reason "},
		"deploy": {"": "action arguments.to delegateTo reason approve|deny|delegate", "?form=approve": "approve reason ", "?form=choose": "action delegateTo reason approve|deny|delegate"},
	} {
		id := r.asksFor(tool, "mia")
		for query, fieldsOf := range want {
			if got := fields(id, query); got != fieldsOf {
				t.Errorf("%s%s: got %q, want %q", tool, query, got, fieldsOf)
			}
		}
	}
	// What the form of a delegable review sends back counts, and changed arguments do not.
	r = openRelays(t, votesFiles("a.cedar", `permit(principal in team::"leads", action == Action::"approval.decide", resource is Approval) when { context.via == "form" };`))
	id, his := r.asksFor("deploy", "zoe"), r.beside("noah", forGateway, "agent/desk")
	r.reply("gw", "POST", "/v1/approvals/"+id+"/response", `{"action":"accept","content":{"action":"approve","arguments.to":"some"}}`, his...).is(t, "he approves something else", 409)
	delegates := `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"mia\"","arguments.to":"all"}}`
	r.reply("gw", "POST", "/v1/approvals/"+id+"/response", delegates, his...).is(t, "he delegates", 200, `"to":"user::\"mia\"","via":"form"`)
}
