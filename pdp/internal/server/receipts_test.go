package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// obliging is a bundle whose answers oblige to something.
func obliging() pdp.Source {
	return pdptest.Bundle(map[string]string{
		"a.cedar": `@id("read") @obligation("tell, log") permit(principal, action == Action::"read", resource);
@id("push") @obligation("ask-first") permit(principal, action == Action::"push", resource);
@id("look") permit(principal, action == Action::"look", resource);
@id("never") @obligation("alarm") forbid(principal, action == Action::"delete", resource);`,
		"obligations.yaml": `tell: {type: notification, on: allow, properties: {to: ops, body: read}}
ask-first: {type: approval_required}
alarm: {type: notification, on: deny, properties: {to: security, body: deleted}}
`,
		"tenants/acme/a.cedar": `@id("acme") @obligation("log") permit(principal, action == Action::"ping", resource);`,
	})
}

const obligingQuestion = `{"subject":{"type":"user","id":"alice"},"action":{"name":"ACTION"},"resource":{"type":"doc","id":"plan"},"context":{"supported_obligations":["notification","log","approval_required"]}}`

// askFor asks for an action, and returns the answer's id.
func askFor(t testing.TB, s *pdptest.Server, path, action string, headers ...string) string {
	t.Helper()
	got := s.Post(path, strings.Replace(obligingQuestion, "ACTION", action, 1), headers...)
	if got.Status != 200 {
		t.Fatalf("%s: got %d %s", action, got.Status, got.Body)
	}
	return got.Header.Get("X-Decision-Id")
}

func receiptPath(id string) string { return "/v1/decisions/" + id + "/obligations" }

// reported writes a receipt of "id:status" or "id:status:detail".
func reported(all ...string) string {
	var items []string
	for _, one := range all {
		parts := append(strings.SplitN(one, ":", 3), "", "")
		items = append(items, fmt.Sprintf(`{"id":%q,"status":%q,"detail":%q}`, parts[0], parts[1], parts[2]))
	}
	return `{"obligations":[` + strings.Join(items, ",") + `]}`
}

// receiptsOf are the receipts among records, as DECISION id:status….
func receiptsOf(all []line) (found []string) {
	for _, l := range all {
		if l.Kind != format.KindReceipt {
			continue
		}
		text := fmt.Sprint(l.Details["decision"])
		for _, o := range l.Details["obligations"].([]any) {
			o := o.(map[string]any)
			text += fmt.Sprintf(" %v:%v", o["id"], o["status"])
		}
		found = append(found, text)
	}
	return found
}

// described has all that a test server's client asks held to the OpenAPI document.
func described(t *testing.T, s *pdptest.Server) *pdptest.Server {
	s.Client = describedClient(t)
	return s
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := described(t, pdptest.Start(t, obliging(), withData(data), func(c *server.Config) { c.Program.Authenticator = asCaller{} }))
	const pep, other = "pep:decide search", "other:decide"
	read := func() string { return askFor(t, s, evaluationPath, "read", "Authorization", pep) }
	searched := s.Post("/access/v1/search/action", strings.Replace(obligingQuestion, "ACTION", "read", 1), "Authorization", pep).Header.Get("X-Decision-Id")
	batch := s.Post("/access/v1/evaluations", strings.TrimSuffix(strings.Replace(obligingQuestion, "ACTION", "read", 1), "}")+`,"evaluations":[{},{"subject":7},{"action":{"name":"look"}}]}`, "Authorization", pep).Header.Get("X-Decision-Id")
	native := s.Post(authorizePath, `{"tenant_id":"default","actor":{"actor_id":"alice","actor_type":"user"},"action":"push","resource":{"type":"doc","id":"plan"}}`, "Authorization", pep)
	if native.Body != `{"allow":true,"obligations":{"approval_required":true}}` {
		t.Fatalf("the native answer, which has no id: %s", native.Body)
	}
	twice, denied, some := read(), askFor(t, s, evaluationPath, "delete", "Authorization", pep), read()
	const done = `{"obligations":[{"id":"tell","status":"discharged"}]}`
	for _, test := range []struct {
		name, id, body, caller, contentType string
		status                              int
		pointer                             string
	}{
		{"all of it", read(), reported("tell:discharged", "log:failed:no room"), pep, "", 204, ""},
		{"one of two", some, reported("log:discharged"), pep, "", 204, ""},
		{"the other", some, reported("tell:failed"), pep, "", 204, ""},
		{"none is left", some, reported("tell:discharged"), pep, "", 409, "/obligations/0"},
		{"once", twice, reported("tell:discharged"), pep, "", 204, ""},
		{"twice, and another", twice, reported("log:discharged", "tell:discharged"), pep, "", 409, "/obligations/1"},
		{"that other, of which nothing was recorded", twice, reported("log:discharged"), pep, "", 204, ""},
		{"of a deny", denied, reported("alarm:discharged"), pep, "", 204, ""},
		{"of an item", batch + ".0", reported("tell:discharged"), pep, "", 204, ""},
		{"by type, as the native answer has it", native.Header.Get("X-Decision-Id"), reported("approval_required:discharged"), pep, "", 204, ""},
		{"by id, after it was reported by type", native.Header.Get("X-Decision-Id"), reported("ask-first:discharged"), pep, "", 409, "/obligations/0"},
		{"by a caller without permissions", read(), done, "pep:", "", 204, ""},
		{"with a parameter", read(), done, pep, "application/json; charset=utf-8", 204, ""},
		{"unknown members, null for absent", read(), `{"x":1,"obligations":[{"id":"tell","status":"discharged","detail":null,"type":"notification"}]}`, pep, "", 204, ""},
		{"the longest detail", read(), reported("tell:discharged:" + strings.Repeat("x", 1024)), pep, "", 204, ""},

		{"another's", read(), done, other, "", 404, ""},
		{"unknown", "nosuch", done, pep, "", 404, ""},
		{"a batch as a whole", batch, done, pep, "", 404, ""},
		{"an item that was not asked", batch + ".9", done, pep, "", 404, ""},
		{"a search", searched, done, pep, "", 404, ""},
		{"nobody's", read(), done, "", "", 401, ""},

		{"an obligation of others", read(), reported("tell:discharged", "alarm:discharged"), pep, "", 400, "/obligations/1/id"},
		{"by a type that two could be", denied, reported("log:discharged"), pep, "", 400, "/obligations/0/id"},
		{"no obligations were owed", batch + ".2", reported("log:discharged"), pep, "", 400, "/obligations/0/id"},
		{"of an item that was no request", batch + ".1", reported("log:discharged"), pep, "", 400, "/obligations/0/id"},
		{"the same twice", read(), reported("tell:discharged", "tell:failed"), pep, "", 400, "/obligations/1/id"},
		{"the same by id and type", read(), reported("tell:discharged", "notification:failed"), pep, "", 400, "/obligations/1/id"},
		{"status", read(), reported("tell:unknown"), pep, "", 400, "/obligations/0/status"},
		{"no status", read(), `{"obligations":[{"id":"tell"}]}`, pep, "", 400, "/obligations/0/status"},
		{"no id", read(), `{"obligations":[{"status":"failed"}]}`, pep, "", 400, "/obligations/0/id"},
		{"an empty id", read(), reported(":failed"), pep, "", 400, "/obligations/0/id"},
		{"detail", read(), reported("tell:failed:" + strings.Repeat("x", 1025)), pep, "", 400, "/obligations/0/detail"},
		{"detail, no text", read(), `{"obligations":[{"id":"tell","status":"failed","detail":{}}]}`, pep, "", 400, "/obligations/0/detail"},
		{"nothing", read(), `{"obligations":[]}`, pep, "", 400, "/obligations"},
		{"missing", read(), `{}`, pep, "", 400, "/obligations"},
		{"an object", read(), `{"obligations":{"tell":true}}`, pep, "", 400, "/obligations"},
		{"a string in it", read(), `{"obligations":["tell"]}`, pep, "", 400, "/obligations/0"},
		{"a null in it", read(), `{"obligations":[null]}`, pep, "", 400, "/obligations/0"},
		{"a member twice", read(), `{"obligations":[{"id":"tell","id":"log","status":"failed"}]}`, pep, "", 400, "/obligations/0/id"},
		{"too deep", read(), `{"x":` + strings.Repeat(`{"x":`, 16) + "1" + strings.Repeat("}", 16) + `,"obligations":[]}`, pep, "", 400, strings.Repeat("/x", 16)},
		{"too many", read(), reported(slices.Repeat([]string{"tell:failed"}, 4097)...), pep, "", 400, "/obligations/4096"},
		{"no JSON", read(), `{`, pep, "", 400, ""},
		{"Content-Type", read(), done, pep, "text/plain", 400, ""},
		{"too large", read(), strings.Repeat(" ", 1<<20) + done, pep, "", 413, ""},

		{"size before credentials", read(), strings.Repeat(" ", 1<<20+1), "", "", 413, ""},
		{"credentials before the decision", "nosuch", done, "", "", 401, ""},
		{"the decision before the Content-Type", "nosuch", done, pep, "text/plain", 404, ""},
		{"the Content-Type before the body", read(), `{`, pep, "text/plain", 400, ""},
		{"the body before what was reported", twice, `{"obligations":[{"id":"tell","status":"discharged"},{"id":"log"}]}`, pep, "", 400, "/obligations/1/status"},
	} {
		contentType := test.contentType
		if contentType == "" {
			contentType = "application/json"
		}
		got := s.Do("POST", receiptPath(test.id), test.body, "Authorization", test.caller, "Content-Type", contentType, "X-Request-ID", "r-1")
		pointer := ""
		if _, after, found := strings.Cut(got.Body, `"pointer":"`); found {
			pointer, _, _ = strings.Cut(after, `"`)
		}
		if got.Status != test.status || pointer != test.pointer || got.Status == 204 && got.Body != "" || got.Header.Get("X-Request-ID") != "r-1" {
			t.Errorf("%s: got %d %s, want %d %s", test.name, got.Status, got.Body, test.status, test.pointer)
		}
	}
	stopAndWait(t, s)
	all := lines(t, data)
	if got := len(receiptsOf(all)); got != 12 {
		t.Errorf("there are %d receipts:\n%s", got, strings.Join(receiptsOf(all), "\n"))
	}
	for _, want := range []string{some + " log:discharged", some + " tell:failed", denied + " alarm:discharged", native.Header.Get("X-Decision-Id") + " ask-first:discharged"} {
		if !slices.Contains(receiptsOf(all), want) {
			t.Errorf("there is no %s in\n%s", want, strings.Join(receiptsOf(all), "\n"))
		}
	}
	for _, l := range all {
		if l.Kind == format.KindReceipt && (l.Tenant != "default" || l.Caller != "key:pep" || l.RequestID != "r-1" || l.Decision != nil) {
			t.Errorf("got %+v", l)
		}
	}
}

// serving answers for authentication: the header is the caller's name and its tenants.
type serving struct{}

func (serving) Authenticate(r *http.Request) (auth.Caller, error) {
	name, tenants, _ := strings.Cut(r.Header.Get("Authorization"), ":")
	return auth.Caller{Name: name, Tenants: strings.Fields(tenants), Permissions: []auth.Permission{auth.Decide}}, nil
}

// Whose decision it is, and whether there is one, has one and the same answer.
func TestReceiptsOfOthersAreAnsweredLikeNone(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	unique := func(c *server.Config) { c.Program.Authenticator, c.Program.PDP.NewID = serving{}, nil }
	s := pdptest.Start(t, obliging(), withData(data), unique)
	acme := askFor(t, s, "/tenants/acme"+evaluationPath, "ping", "Authorization", "pep:acme")
	redacted := askFor(t, s, "/tenants/acme"+evaluationPath, "ping", "Authorization", "pep:acme")
	stopAndWait(t, s)
	log, err := decisionlog.Open(data, decisionlog.Options{})
	must(t, err)
	must(t, log.Redact(t.Context(), "", redacted, "a test"))
	start := lastAdmin(t, log)
	must(t, log.Close())

	s = described(t, pdptest.Start(t, obliging(), withData(data), unique))
	send := func(id, caller string) string {
		got := s.Post(receiptPath(id), reported("log:discharged"), "Authorization", caller)
		return fmt.Sprint(got.Status, got.Body)
	}
	want := send("nosuch", "pep:acme")
	if !strings.HasPrefix(want, "404") {
		t.Fatal(want)
	}
	for name, got := range map[string]string{
		"another caller":            send(acme, "other:acme"),
		"no longer in the tenant":   send(acme, "pep:default"),
		"another tenant's, unknown": send("nosuch", "pep:default"),
		"redacted":                  send(redacted, "pep:acme"),
		"an administrative record":  send(start, ":acme"),
		"a very long id":            send(strings.Repeat("x", 10_000), "pep:acme"),
	} {
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if got := send(acme, "pep:acme default"); got != "204" {
		t.Errorf("its own: got %s", got)
	}
	stopAndWait(t, s)
	if l := lines(t, data); l[len(l)-2].Kind != format.KindReceipt || l[len(l)-2].Tenant != "acme" || l[len(l)-2].Caller != "pep" {
		t.Errorf("got %+v", l[len(l)-2])
	}
}

// lastAdmin is the id of a log's newest administrative record.
func lastAdmin(t *testing.T, log *decisionlog.Log) string {
	t.Helper()
	page, err := log.Query(t.Context(), decisionlog.Query{Filter: record.Filter{Kind: format.KindAdmin}, Newest: true, Cursor: decisionlog.End, Limit: 1})
	must(t, err)
	_, after, _ := strings.Cut(string(page.Lines[0]), `"id":"`)
	id, _, _ := strings.Cut(after, `"`)
	return id
}

// Many report the same at once: one is believed, also by those who come after a restart.
func TestAnObligationIsReportedOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []decisionlog.Mode{decisionlog.Strict, decisionlog.BestEffort} {
		data := t.TempDir()
		configured := func(c *server.Config) { c.DecisionLog.Mode, c.Program.PDP.NewID = mode, nil }
		s := pdptest.Start(t, obliging(), withData(data), configured)
		id := askFor(t, s, evaluationPath, "read")
		statuses := make([]int, 64)
		var all sync.WaitGroup
		for n := range statuses {
			all.Go(func() { statuses[n] = s.Post(receiptPath(id), reported("log:discharged")).Status })
		}
		all.Wait()
		slices.Sort(statuses)
		if want := append([]int{204}, slices.Repeat([]int{409}, 63)...); !slices.Equal(statuses, want) {
			t.Errorf("%s: got %v", mode, statuses)
		}
		stopAndWait(t, s)

		s = pdptest.Start(t, obliging(), withData(data), configured)
		for body, want := range map[string]int{reported("log:failed"): 409, reported("tell:discharged", "log:discharged"): 409} {
			if got := s.Post(receiptPath(id), body); got.Status != want {
				t.Errorf("%s: after a restart: got %d %s", mode, got.Status, got.Body)
			}
		}
		if got := s.Post(receiptPath(id), reported("tell:discharged")); got.Status != 204 {
			t.Errorf("%s: got %d %s", mode, got.Status, got.Body)
		}
		stopAndWait(t, s)
		if got, want := receiptsOf(lines(t, data)), []string{id + " log:discharged", id + " tell:discharged"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", mode, got, want)
		}
	}
}

// In best effort an answer leaves before its record is written. The PEP that reports
// at once is answered all the same, and only when its receipt is on record.
func TestReceiptsRightAfterTheAnswer(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, obliging(), withData(data), func(c *server.Config) { c.DecisionLog.Mode = decisionlog.BestEffort })
	for range night.Cases(300) {
		id := askFor(t, s, evaluationPath, "read")
		replied(t, s.Post(receiptPath(id), reported("log:discharged")), 204)
		if got := s.Receipts(id); got != 1 {
			t.Fatalf("there are %d receipts when it is answered", got)
		}
	}
}

// What a PEP reports changes no answer, whatever it says.
func TestReceiptsChangeNoDecision(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, obliging(), withData(t.TempDir()))
	type asked struct{ path, body string }
	var questions []asked
	for _, action := range []string{"read", "push", "look", "delete", "ping"} {
		question := strings.Replace(obligingQuestion, "ACTION", action, 1)
		questions = append(questions, asked{evaluationPath, question}, asked{"/tenants/acme" + evaluationPath, question},
			asked{"/access/v1/evaluations", strings.TrimSuffix(question, "}") + `,"evaluations":[{},{"action":{"name":"read"}}]}`},
			asked{"/access/v1/search/action", question}, asked{"/access/v1/search/subject", question},
			asked{authorizePath, strings.Replace(nativeQuestion, `"read"`, `"`+action+`"`, 1)})
	}
	ask := func() (answers string, ids []string) {
		for _, q := range questions {
			got := s.Post(q.path, q.body, "X-Explain", "true")
			answers += fmt.Sprintln(q.path, got.Status, got.Body)
			id := got.Header.Get("X-Decision-Id")
			ids = append(ids, id, id+".0", id+".1")
		}
		return answers, ids
	}
	before, ids := ask()
	sent := map[int]int{}
	for n, id := range ids {
		for _, name := range []string{"tell", "log", "ask-first", "alarm"} {
			sent[s.Post(receiptPath(id), reported(name+":"+[]string{"discharged", "failed"}[n%2])).Status]++
		}
	}
	if sent[204] < 10 {
		t.Fatalf("got %v: too few receipts to show anything", sent)
	}
	if after, _ := ask(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

// A detail is the PEP's text. It must hold no secret; one that its decision's record
// holds masked is masked in it as well.
func TestReceiptDetailIsMasked(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, obliging(), withData(data))
	question := strings.Replace(strings.Replace(obligingQuestion, "ACTION", "read", 1), `"context":{`, `"context":{"password":"hunter-0001-zebra",`, 1)
	id := s.Post(evaluationPath, question).Header.Get("X-Decision-Id")
	replied(t, s.Post(receiptPath(id), reported("log:failed:login with hunter-0001-zebra: 401")), 204)
	stopAndWait(t, s)
	for _, file := range everyFile(t, data) {
		if strings.Contains(file[1], "hunter-") {
			t.Errorf("%s holds the secret", file[0])
		}
	}
	found := false
	for _, l := range lines(t, data) {
		found = found || strings.Contains(fmt.Sprint(l.Details), "detail:login with masked:")
	}
	if !found {
		t.Error("the rest of the detail is gone, too")
	}
}

// The difference of two counters is what nobody discharged.
func TestObligationsAreCounted(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	s := pdptest.Start(t, obliging(), withData(t.TempDir()), func(c *server.Config) { c.Program.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader)) })
	id := askFor(t, s, evaluationPath, "read")
	askFor(t, s, evaluationPath, "delete")
	askFor(t, s, evaluationPath, "look")
	s.Post("/access/v1/search/action", strings.Replace(obligingQuestion, "ACTION", "read", 1)) // nobody can report on a search
	s.Post("/access/v1/evaluations", strings.TrimSuffix(strings.Replace(obligingQuestion, "ACTION", "read", 1), "}")+`,"evaluations":[{},{"action":{"name":"push"}}]}`)
	s.Post(authorizePath, strings.Replace(nativeQuestion, `"read"`, `"push"`, 1))
	s.Post(receiptPath(id), reported("tell:discharged", "log:failed"))
	s.Post(receiptPath(id), reported("tell:discharged"))
	s.Post(receiptPath(id), reported("nosuch:discharged"))
	want := map[string]int64{
		"owed type=notification": 3, "owed type=log": 2, "owed type=approval_required": 2,
		"reported status=discharged,type=notification": 1, "reported status=failed,type=log": 1,
	}
	got := map[string]int64{}
	var all metricdata.ResourceMetrics
	must(t, reader.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			counter, ours := strings.CutPrefix(m.Name, "policy_service.obligations.")
			if !ours {
				continue
			}
			for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
				if point.Value > 0 { // all types are there from the start
					got[counter+" "+point.Attributes.Encoded(attribute.DefaultEncoder())] = point.Value
				}
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Callers are told apart by their keys.
func TestReceiptsWithKeys(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	gateway, other := addKey(t, data, "gateway", auth.Grant{}), addKey(t, data, "other", auth.Grant{})
	s := pdptest.Start(t, obliging(), withData(data))
	id := askFor(t, s, evaluationPath, "read", "Authorization", gateway)
	for _, test := range []struct {
		credential string
		want       int
	}{{other, 404}, {"", 401}, {gateway, 204}, {gateway, 409}, {other, 404}} {
		replied(t, s.Post(receiptPath(id), reported("log:discharged"), "Authorization", test.credential), test.want)
	}
}
