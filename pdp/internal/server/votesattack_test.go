package server_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// Whoever stands in for another person votes by the ways that are open to that person, and by no other: a lead who
// decides in a console does not have somebody's agent confirm instead.
func TestADelegateHasNoOtherWay(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	id := r.asksFor("deploy", "mia")
	path := "/v1/approvals/" + id
	r.reply("desk", "POST", path+"/decision", `{"decision":"delegate","to":"user::\"bob\"","reason":"on leave"}`, r.beside("noah", forGateway)...).is(t, "he delegates", 200)
	his := r.beside("bob", forGateway)
	r.key["bob"] = "Bearer " + r.token("bob", "pdp")
	for name, test := range map[string]struct {
		who, method, path, body string
		header                  []string
	}{
		"by a form":              {"gw", "POST", "/response", accepts, his},
		"he is shown a form":     {"gw", "GET", "/elicitation", "", his},
		"who named him is shown": {"gw", "GET", "/elicitation", "", r.beside("noah", forGateway)}, // he sees it, and decides no more
		"by the API":             {"bob", "POST", "/decision", yes, nil},
		"by the API, as a reply": {"bob", "POST", "/response", accepts, nil},
	} {
		r.reply(test.who, test.method, path+test.path, test.body, test.header...).is(t, name, 404)
	}
	r.reply("desk", "POST", path+"/decision", yes, his...).is(t, "in the console", 200, `"status":"approved"`)
	// A table says the way of each, too.
	_, table := r.do("auditor", "GET", "/v1/log/export?format=csv&approval="+id, "")
	has(t, table, `""via"":""console"",""gateway"":""key:desk""`)
}

// Who has voted is shown no form: what they answered would not count.
func TestAFormForWhoHasVoted(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles("obligations.yaml", "\ntwice: {type: approval_required, properties: {template: any, quorum: 2}}\n",
		"a.cedar", `@id("stop") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"stop");`))
	id := r.asksFor("stop", "mia")
	path, his := "/v1/approvals/"+id, r.beside("noah", forGateway)
	r.reply("desk", "POST", path+"/decision", yes, his...).is(t, "he approves", 200, `"status":"pending"`)
	r.reply("gw", "GET", path+"/elicitation", "", r.beside("noah", forGateway, "agent/desk")...).is(t, "he is shown", 409, "you have voted")
	r.reply("gw-b", "GET", path+"/elicitation", "", r.beside("zoe", forOther, "agent/desk")...).is(t, "another lead is shown", 200)
	if got := strings.Join(r.onRecord(id), ", "); got != `filed, approve user::"noah" console key:desk, offered user::"zoe" form key:gw-b` {
		t.Errorf("on record is %s", got)
	}
}

// One person by every way at once is one person.
func TestOnePersonByEveryWayAtOnce(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles("obligations.yaml", "\ntwice: {type: approval_required, properties: {template: any, quorum: 2}}\n",
		"a.cedar", `@id("stop") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"stop");`))
	id := r.asksFor("stop", "mia")
	r.key["noah"] = "Bearer " + r.token("noah", "pdp")
	path, his, other := "/v1/approvals/"+id, r.beside("noah", forGateway), r.beside("noah", forOther, "agent/desk")
	form := r.beside("noah", forGateway, "agent/phone")
	var counted, refused atomic.Int32
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			var status int
			switch n % 4 {
			case 0:
				status, _ = r.do("noah", "POST", path+"/decision", yes)
			case 1:
				status, _ = r.do("gw", "POST", path+"/response", accepts, form...)
			case 2:
				status, _ = r.do("desk", "POST", path+"/decision", yes, his...)
			case 3:
				status, _ = r.do("gw-b", "POST", path+"/response", accepts, other...)
			}
			switch status {
			case http.StatusOK:
				counted.Add(1)
			case http.StatusConflict:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if got, _ := r.sees("gw", id); counted.Load() != 1 || refused.Load() != 31 || got.Status != "pending" || len(got.Said) != 1 {
		t.Errorf("%d counted, %d refused: %+v", counted.Load(), refused.Load(), got)
	}
	r.asks("gw", strings.Replace(forPerson("stop", "mia"), `"arguments"`, `"justification":"approved","arguments"`, 1)).isStopped(t, "it goes through")
}

// A key that is revoked, or an entry that no longer names it, while people answer: nothing that it brought allows
// anything after that, whether it was before or after.
func TestVotesWhileTheirWayEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(relays){
		"the key is revoked": func(r relays) {
			apiKeys, err := keys.Open(r.data)
			must(t, err)
			must(t, apiKeys.Revoke("gw-b"))
		},
		"the entry is gone": func(r relays) {
			must(t, r.Reconfigure(t.Context(), func() (server.Config, error) {
				config := r.config
				config.Auth.JWT = config.Auth.JWT[:2]
				return config, nil
			}))
		},
	} {
		r := openRelays(t, votesFiles())
		var ids []string
		for n := range 16 {
			ids = append(ids, r.asks("pep", tool("push", fmt.Sprintf(`"arguments":{"n":%d}`, n))).Approval.ID)
		}
		his := r.beside("noah", forOther)
		var all sync.WaitGroup
		var counted atomic.Int32
		for n, id := range ids {
			all.Go(func() {
				if status, _ := r.do("gw-b", "POST", "/v1/approvals/"+id+"/response", accepts, his...); status == http.StatusOK {
					counted.Add(1)
				}
			})
			if n == len(ids)/2 {
				all.Go(func() { end(r) })
			}
		}
		all.Wait()
		eventually(t, name, func() bool {
			return r.status("gw-b", "GET", "/v1/approvals/"+ids[0]+"/elicitation", "", his...) == http.StatusUnauthorized
		})
		for n := range ids {
			if got := r.asks("pep", tool("push", fmt.Sprintf(`"arguments":{"n":%d},"justification":"approved"`, n))); got.may() {
				t.Errorf("%s: %d goes through", name, n)
			}
		}
		t.Logf("%s: %d were counted before", name, counted.Load())
	}
}

// A gateway's or a console's key with the person's good token is refused on every route but its own, and leaves nothing.
func TestARelayedTokenOnEveryRoute(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	id := r.asksFor("push", "mia")
	before := r.recorded()
	routes, err := server.Routes()
	must(t, err)
	own := map[string]string{
		"GET /v1/approvals/{id}/elicitation": "gw", "GET /v1/approvals/{id}/authorization-notification": "gw", "POST /v1/approvals/{id}/response": "gw",
		"GET /access/v1/requests/notifications": "gw", "GET /tenants/{tenant}/access/v1/requests/notifications": "gw",
		"GET /v1/approvals": "desk", "GET /v1/approvals/{id}": "desk", "POST /v1/approvals/{id}/decision": "desk", "POST /v1/approvals/{id}/revoke": "desk",
		"GET /v1/me": "desk", "GET /v1/approvals/{id}/why": "desk", "GET /v1/approvals/{id}/deciders": "desk", "GET /v1/approvals/{id}/previous": "desk",
	}
	his := r.beside("noah", forGateway)
	refused := 0
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{id}", id, "{tenant}", "acme", "{digest}", "h1:x").Replace(path)
		for _, who := range []string{"gw", "desk"} {
			if own[route] == who {
				delete(own, route)
				continue
			}
			body := ""
			if method == http.MethodPost {
				body = yes
			}
			if got := r.status(who, method, path, body, his...); got != http.StatusForbidden {
				t.Errorf("%s: %s is %d", who, route, got)
			}
			refused++
		}
	}
	if refused < 80 || len(own) > 0 {
		t.Errorf("%d were refused; there is no %v", refused, own)
	}
	if after := r.recorded(); after != before {
		t.Errorf("%d records came of it", after-before)
	}
}

// An authenticator of the embedding program, or the rule of loopback, may know nothing of the header. Nobody is told that
// it counted.
func TestApproverTokenThatNobodyLooksAt(t *testing.T) {
	t.Parallel()
	for name, callers := range map[string]door.Authenticator{"the program's own": always{Name: "a", AllTenants: true, Permissions: []auth.Permission{auth.Approve, auth.Explain}}, "loopback": auth.Loopback{}} {
		s := pdptest.Start(t, bundle(t), func(c *server.Config) { c.Program.Authenticator = callers })
		for _, path := range []string{"/readyz", "/v1/approvals/x/response", "/v1/approvals/x/elicitation", "/v1/approvals", "/metrics"} {
			method := http.MethodGet
			if strings.HasSuffix(path, "/response") {
				method = http.MethodPost
			}
			if got := s.Do(method, path, "", auth.ApproverToken, "eyJ.x.y"); got.Status != http.StatusForbidden || !strings.Contains(got.Body, "Approver-Token") {
				t.Errorf("%s: %s is %d %s", name, path, got.Status, got.Body)
			}
		}
		if got := s.Get("/readyz"); got.Status != http.StatusOK {
			t.Errorf("%s: without the header: %d %s", name, got.Status, got.Body)
		}
	}
}

// However the header is written, there is one token in it, or nobody is believed.
func TestApproverTokenAsItIsWritten(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	id := r.asksFor("push", "mia")
	his, hers := r.token("noah", forGateway), r.token("mia", forGateway)
	for name, test := range map[string]struct {
		header string
		want   int
	}{
		"twice":                      {"Approver-Token: " + his + "\r\nApprover-Token: " + his, 401},
		"twice in other letters":     {"approver-token: " + his + "\r\nAPPROVER-TOKEN: " + his, 401},
		"two people":                 {"Approver-Token: " + hers + "\r\napprover-token: " + his, 401},
		"two people in one line":     {"Approver-Token: " + hers + ", " + his, 401},
		"a person and nothing":       {"Approver-Token: " + his + "\r\nApprover-Token:", 401},
		"nothing":                    {"Approver-Token:", 401},
		"with a scheme":              {"Approver-Token: Bearer " + his, 401},
		"folded":                     {"Approver-Token: Bearer\r\n " + his, 401},
		"another name":               {"Approver_Token: " + his, 403},
		"a space before the colon":   {"Approver-Token : " + his, 400},
		"as the Authorization too":   {"Approver-Token: " + his + "\r\nAuthorization: Bearer " + his, 401},
		"in a trailer":               {"Trailer: Approver-Token\r\nX-Approver-Token: " + his, 403},
		"by a proxy's header":        {"X-Forwarded-Approver-Token: " + his, 403},
		"a token with = behind it":   {"Approver-Token: " + his + "=", 401},
		"a token with a fourth part": {"Approver-Token: " + his + "." + his[strings.LastIndexByte(his, '.')+1:], 401},
		"a client alone":             {"Approver-Client: agent/desk", 403},
		"a client of no type":        {"Approver-Token: " + his + "\r\nApprover-Client: /desk", 403},
		"a client without a name":    {"Approver-Token: " + his + "\r\nApprover-Client: agent/", 403},
		"a client in one word":       {"Approver-Token: " + his + "\r\nApprover-Client: agent", 403},
		"no client, written so":      {"Approver-Token: " + his + "\r\nApprover-Client: none/", 403},
		"no client in capitals":      {"Approver-Token: " + his + "\r\nApprover-Client: None", 403},
		"an empty client":            {"Approver-Token: " + his + "\r\nApprover-Client:", 403},
		"two clients":                {"Approver-Token: " + his + "\r\nApprover-Client: agent/a\r\nApprover-Client: agent/b", 403},
		"a client that is no text":   {"Approver-Token: " + his + "\r\nApprover-Client: agent/%ff", 403},
		"a client badly written":     {"Approver-Token: " + his + "\r\nApprover-Client: agent/%f", 403},
	} {
		if got := r.raw(id, test.header); !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", test.want)) {
			t.Errorf("%s: want %d, got %s", name, test.want, got)
		}
	}
	if got, _ := r.sees("gw", id); got.Version != 1 {
		t.Errorf("somebody has voted: %+v", got)
	}
	if got := r.raw(id, "aPPROVER-tOKEN:  "+his+" \r\napprover-client: agent/%64esk"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("as it should be: %s", got)
	}
}

// The agent that asks is in the hands of the client that would answer: what a form of this client says is no vote, whose
// ever token it has, unless the bundle lets it. Nothing tells the client what has become of the request.
func TestNobodyVotesThroughTheAgentThatAsks(t *testing.T) {
	t.Parallel()
	question := strings.Replace(forPerson("push", "mia"), `"context":{`, `"context":{"requester":{"type":"agent","id":"asker"},`, 1)
	for name, test := range map[string]struct {
		files []string
		lets  bool
	}{
		"by default":         {nil, false},
		"self-approval":      {[]string{"bundle.yaml", "allow_self_approval: [any]\n"}, true},
		"of another":         {[]string{"bundle.yaml", "allow_self_approval: [confirm]\n"}, false},
		"same client":        {[]string{"obligations.yaml", strings.Replace(votesObligations, "template: any", "template: any, same_client: true", 1)}, true},
		"not the same":       {[]string{"obligations.yaml", strings.Replace(votesObligations, "template: any", "template: any, same_client: false", 1)}, false},
		"same, of the other": {[]string{"obligations.yaml", strings.Replace(votesObligations, "template: second", "template: second, same_client: true", 1)}, false},
	} {
		files := votesFiles()
		for n := 0; n+1 < len(test.files); n += 2 {
			files[test.files[n]] = test.files[n+1]
		}
		r := openRelays(t, files)
		n := 0
		asks := func() (id string) {
			n++
			asked := r.asks("gw", strings.Replace(question, `"all"`, fmt.Sprintf(`"%d"`, n), 1))
			if asked.Approval == nil || asked.Approval.Status != "pending" {
				t.Fatalf("%s: got %+v", name, asked)
			}
			return asked.Approval.ID
		}
		for client, lets := range map[string]bool{"agent/bot": test.lets, "agent/asker": test.lets, "": test.lets, "agent/desk": true, "agent/Bot": true, "user/bot": true, "none": true, "none/bot": true} {
			id, his := asks(), r.beside("noah", forGateway)
			if client != "" {
				his = r.beside("noah", forGateway, client)
			}
			want := map[bool]int{true: 200, false: 404}[lets]
			for _, one := range [][3]string{{"GET", "/elicitation"}, {"GET", "/authorization-notification"}, {"POST", "/response", accepts}} {
				r.reply("gw", one[0], "/v1/approvals/"+id+one[1], one[2], his...).is(t, fmt.Sprintf("%s, by %q: %s", name, client, one[1]), want)
			}
			wanted := map[bool]string{true: "approved", false: "pending"}[lets]
			if got, _ := r.sees("gw", id); got.Status != wanted || len(got.Said) > 0 != lets {
				t.Errorf("%s, by %q: it is %+v", name, client, got)
			}
		}
		// A console has no client.
		r.reply("desk", "POST", "/v1/approvals/"+asks()+"/decision", yes, r.beside("noah", forGateway)...).is(t, fmt.Sprintf("%s, by a console", name), 200)
		r.reply("desk", "POST", "/v1/approvals/"+asks()+"/decision", yes, r.beside("noah", forGateway, "agent/desk")...).is(t, fmt.Sprintf("%s, by a console with a client", name), 403)
	}
}

// Whoever has no vote is told the same of a request that waits, is decided, is over, or never was.
func TestNobodyWithoutAVoteLearnsWhatBecameOfARequest(t *testing.T) {
	t.Parallel()
	files := votesFiles()
	files["obligations.yaml"] = strings.Replace(votesObligations, "template: any", "template: any, timeout: 5m", 1)
	r := openRelays(t, files)
	ids := map[string]string{"unknown": "01a1fdc8-2f47-7a90-b3c1-9e8d7f6a5b41"}
	for n, state := range []string{"expired", "approved", "denied", "revoked", "cancelled", "used_up", "pending"} {
		question := strings.Replace(forPerson("push", "mia"), `"all"`, fmt.Sprintf(`"%d"`, n), 1)
		id := r.asks("gw", question).Approval.ID
		ids[state] = id
		says := func(what, body string) {
			t.Helper()
			r.reply("desk", "POST", "/v1/approvals/"+id+what, body, r.beside("noah", forGateway)...).is(t, state, 200)
		}
		switch state {
		case "expired":
			r.Advance(6 * time.Minute)
		case "denied":
			says("/decision", `{"decision":"deny","reason":"no"}`)
		case "approved":
			says("/decision", yes)
		case "used_up":
			says("/decision", yes)
			if !r.asks("gw", strings.Replace(question, `"arguments"`, `"justification":"approved","arguments"`, 1)).may() {
				t.Fatal("what is approved does not go through")
			}
		case "revoked":
			says("/decision", yes)
			says("/revoke", `{}`)
		case "cancelled":
			r.reply("gw", "POST", "/v1/approvals/"+id+"/cancel", "").is(t, "it is cancelled", 200)
		}
	}
	for who, brings := range map[string][]string{
		"a lead through the agent that asks": r.beside("noah", forGateway, "agent/bot"),
		"another lead through it":            r.beside("zoe", forGateway, "agent/bot"),
		"whom it is for":                     r.beside("mia", forGateway, "agent/desk"),
		"somebody else":                      r.beside("eve", forGateway, "agent/desk"),
	} {
		for _, one := range [][3]string{
			{"GET", "/elicitation"}, {"GET", "/elicitation?form=url"}, {"GET", "/authorization-notification"}, {"POST", "/response", accepts}, {"POST", "/response", `{"action":"cancel"}`},
			{"POST", "/response", `{"action":"decline"}`}, {"POST", "/response", `{"action":"accept","content":{"approve":true,"arguments.to":"other"}}`}, {"POST", "/response", `{}`},
		} {
			wanted, of := "", ""
			for state, id := range ids {
				status, text := r.do("gw", one[0], "/v1/approvals/"+id+one[1], one[2], brings...)
				if got := fmt.Sprint(status, " ", text); wanted == "" {
					wanted, of = got, state
				} else if got != wanted || status != 404 {
					t.Errorf("%s: %s %s of what is %s: %s, and of what is %s: %s", who, one[1], one[2], state, got, of, wanted)
				}
			}
		}
	}
}

// raw has a gateway answer a form, with a header as it is written.
func (r relays) raw(id, header string) string {
	r.t.Helper()
	return exchange(r.t, r.Addr(), fmt.Appendf(nil, "POST /v1/approvals/%s/response HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s",
		id, r.Addr(), r.key["gw"], header, len(accepts), accepts))
}

// Nothing that the service writes or answers has a token that came in Approver-Token, be it good or not.
func TestApproverTokenIsInNoText(t *testing.T) {
	t.Parallel()
	var told written.Text
	r := openRelays(t, votesFiles(), logTo(&told))
	id := r.asksFor("push", "mia")
	var answers strings.Builder
	tokens := []string{r.token("noah", forGateway), r.token("mia", forGateway), r.token("noah", forOther), r.token("noah", "pdp"), "eyJhbGciOiJub25lIn0.eyJzdWIiOiJub2FoIn0.", "approver-token-of-nobody"}
	for _, token := range tokens {
		for _, who := range []string{"gw", "desk", "gw-b", "pep", "zoe"} {
			for _, route := range []string{"GET /elicitation", "POST /response", "POST /decision", "POST /revoke", "GET ", "POST /cancel"} {
				method, path, _ := strings.Cut(route, " ")
				_, text := r.do(who, method, "/v1/approvals/"+id+path, map[string]string{"GET": "", "POST": yes}[method], auth.ApproverToken, token)
				answers.WriteString(text)
			}
			_, text := r.do(who, "POST", "/access/v1/evaluation", forPerson("push", "mia"), auth.ApproverToken, token)
			answers.WriteString(text)
		}
	}
	_, log := r.do("auditor", "GET", "/v1/log/export", "")
	stopAndWait(t, r.Server)
	all := map[string]string{"the log of the service": told.String(), "the answers": answers.String(), "the decision log": log}
	must(t, fs.WalkDir(os.DirFS(r.data), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(r.data, name))
		all[name] = string(content)
		return err
	}))
	if !strings.Contains(log, `"via":"console"`) || len(all) < 6 || told.String() == "" {
		t.Errorf("nobody has voted, or nothing was written: %d texts", len(all))
	}
	for _, token := range tokens {
		for part := range strings.SplitSeq(token, ".") {
			if claims, err := base64.RawURLEncoding.DecodeString(part); part == "" || err == nil && strings.HasPrefix(string(claims), `{"alg"`) {
				continue
			}
			for name, text := range all {
				if strings.Contains(text, part) {
					t.Errorf("%s has %s", name, part)
				}
			}
		}
	}
}
