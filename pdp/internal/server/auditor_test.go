package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// office is a server with a log, and who reads that: all of its traffic is held to the
// OpenAPI document.
type office struct {
	*pdptest.Server
	t          *testing.T
	data       string
	key        map[string]string // by name, as an Authorization header
	authorized string            // whose requests Get and the others are
}

// openOffice serves two tenants, initech and globex, of which each has what names it
// wherever anything can.
func openOffice(t *testing.T, options ...pdptest.Option) *office {
	t.Helper()
	o := &office{t: t, data: t.TempDir()}
	o.key = officeKeys.into(t, o.data, func(data string) map[string]string {
		key := map[string]string{}
		grant := func(name string, tenants []string, permissions ...auth.Permission) {
			key[name] = addKey(t, data, name, auth.Grant{Tenants: tenants, Permissions: permissions})
		}
		grant("auditor", []string{"*"}, auth.LogRead, auth.LogAdmin)
		grant("reader", []string{"*"}, auth.LogRead)
		for _, tenant := range []string{"initech", "globex", "default"} {
			grant(tenant+"-pep", []string{tenant}, auth.Decide, auth.Search)
			grant(tenant+"-auditor", []string{tenant}, auth.LogRead, auth.LogAdmin, auth.Explain)
		}
		return key
	})
	o.Server = pdptest.Start(t, offices(), append([]pdptest.Option{withData(o.data)}, options...)...)
	o.Client = describedClient(t)
	o.authorized = "auditor"
	return o
}

var officeKeys keyring

func offices() pdp.Source {
	files := map[string]string{
		"a.cedar": `@id("read") permit(principal, action == Action::"read", resource);`,
	}
	for _, tenant := range []string{"initech", "globex"} {
		files["tenants/"+tenant+"/"+tenant+"-policies.cedar"] = strings.ReplaceAll(`// TENANT-comment
@id("TENANT-write") @obligation("TENANT-tell") permit(principal, action == Action::"write", resource);
@id("TENANT-never") @reason_user("TENANT-reason") forbid(principal, action == Action::"delete", resource);
@id("TENANT-error") permit(principal, action == Action::"err", resource) when { principal.TENANTattribute };`, "TENANT", tenant)
		files["tenants/"+tenant+"/obligations.yaml"] = strings.ReplaceAll("TENANT-tell: {type: notification, on: allow, properties: {to: TENANT-channel, body: \"TENANT-text\"}}\n", "TENANT", tenant)
		files["tenants/"+tenant+"/entities/people.json"] = strings.ReplaceAll(`[{"uid":{"type":"user","id":"TENANT-employee"},"attrs":{},"parents":[]}]`, "TENANT", tenant)
	}
	return pdptest.Bundle(files)
}

// as asks with somebody else's credential.
func (o *office) as(name string) *office {
	other := *o
	other.authorized = name
	return &other
}

func (o *office) Get(path string, headers ...string) pdptest.Response {
	o.t.Helper()
	return o.Do(http.MethodGet, path, "", headers...)
}

func (o *office) Do(method, path, body string, headers ...string) pdptest.Response {
	o.t.Helper()
	return o.Server.Do(method, path, body, append([]string{"Content-Type", "application/json", "Authorization", o.key[o.authorized]}, headers...)...)
}

// get is the body of an answer that must be 200.
func (o *office) get(path string, headers ...string) string {
	o.t.Helper()
	got := o.Get(path, headers...)
	if got.Status != http.StatusOK {
		o.t.Fatalf("%s: got %d %s", path, got.Status, got.Body)
	}
	return got.Body
}

// ask is a question of a tenant's PEP, and returns the id of its record.
func (o *office) ask(tenant, path, body string) string {
	o.t.Helper()
	if tenant != "default" {
		path = "/tenants/" + tenant + path
	}
	got := o.as(tenant+"-pep").Do("POST", path, strings.ReplaceAll(body, "TENANT", tenant), "X-Request-ID", tenant+"-request")
	if got.Status != http.StatusOK {
		o.t.Fatalf("got %d %s", got.Status, got.Body)
	}
	return got.Header.Get("X-Decision-Id")
}

const (
	tenantQuestion = `{"subject":{"type":"user","id":"TENANT-employee","properties":{"TENANT-property":"TENANT-value"}},"action":{"name":"write","properties":{"x":"TENANT-x"}},
		"resource":{"type":"doc","id":"TENANT-plan"},"context":{"TENANT-context":["TENANT-item"],"supported_obligations":["notification"]}}`
	tenantBatch  = `{"subject":{"type":"user","id":"TENANT-employee"},"resource":{"type":"TENANTtype","id":"TENANT-plan"},"evaluations":[{"action":{"name":"TENANT-action"}},{"action":{"name":"err"}},{"TENANT-member":1}]}`
	tenantSearch = `{"subject":{"type":"user"},"action":{"name":"delete"},"resource":{"type":"doc","id":"TENANT-plan"}}`
)

// happen has something of every kind happen in a tenant, and returns the ids of the
// records: the first is a decision with receipts, the last is redacted.
func (o *office) happen(tenant string) []string {
	o.t.Helper()
	batch := o.ask(tenant, "/access/v1/evaluations", tenantBatch)
	o.appendBatch(batchEntries(tenant+"-batch", tenant, "key:"+tenant+"-pep", `{"purpose":"`+tenant+`-purpose"}`, 3))
	ids := []string{
		o.ask(tenant, evaluationPath, tenantQuestion),
		tenant + "-batch", tenant + "-batch.1",
		o.ask(tenant, evaluationPath, strings.Replace(tenantQuestion, `"write"`, `"delete"`, 1)),
		o.ask(tenant, "/access/v1/search/subject", strings.Replace(tenantSearch, "delete", "read", 1)),
		batch + ".0", batch + ".1", batch + ".2",
		o.ask(tenant, evaluationPath, tenantQuestion),
	}
	receipt := record.Receipt{Decision: ids[0], Obligations: []evaluation.Receipt{{ID: tenant + "-tell", Status: evaluation.NotDischarged, Detail: tenant + "-detail"}}}
	err := o.Log().Append(o.t.Context(), []record.Entry{receipt.Entry(tenant, "key:"+tenant+"-pep")})
	must(o.t, err)
	if got := o.as(tenant+"-auditor").Do("POST", "/v1/decisions/"+ids[len(ids)-1]+"/redaction", `{"reason":"`+tenant+`-erasure"}`); got.Status != 204 {
		o.t.Fatalf("got %d %s", got.Status, got.Body)
	}
	return ids
}

// recorded are members of a record that these tests read.
type recorded struct {
	ID     string `json:"id"`
	Bundle string `json:"bundle"`
}

// ofTheLog are the routes that read and change the log; logRoute is what is asked by one.
var (
	ofTheLog = regexp.MustCompile(` /v1/(decisions|log|bundles)(/|$)`)
	logRoute = regexp.MustCompile(`^(/v1/(?:decisions|bundles|log/records))/[^/]+|^(/v1/log/tile)/.*`)
)

// A caller of one tenant reaches no record, name, bundle file or error text of another,
// whatever they ask: all bytes of all answers are looked through.
func TestNothingOfAnotherTenantIsReached(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	ids := map[string][]string{"initech": o.happen("initech"), "globex": o.happen("globex")}
	whole := o.get("/v1/decisions?limit=1000")
	digest := url.PathEscape(regexp.MustCompile(`"bundle":"(h1:[^"]+)"`).FindStringSubmatch(whole)[1])
	checkpoint := o.get("/v1/log/checkpoint")
	for tenant, other := range map[string]string{"initech": "globex", "globex": "initech"} {
		if !strings.Contains(whole, other+"-tell") || !strings.Contains(whole, other+"-erasure") || !strings.Contains(o.get("/v1/bundles/"+digest), other+"-comment") {
			t.Fatal("what is looked for is nowhere: this test cannot fail")
		}
		me := o.as(tenant + "-auditor")
		type question struct{ method, path, body string }
		var all []question
		get := func(paths ...string) {
			for _, path := range paths {
				all = append(all, question{"GET", path, ""})
			}
		}
		for _, filter := range []string{"", "tenant=" + other, "tenant=" + tenant, "subject=" + other + "-employee", "subject=user/" + other + "-employee", "resource=" + other + "-plan",
			"action=" + other + "-action", "policy=" + other + "-write", "of=" + ids[other][0], "kind=admin", "kind=receipt", "kind=search", "decision=deny", "event=record_redacted", "event=bundle_loaded", "event=api_keys", "to=2999-01-01T00:00:00Z",
			"text=" + other, "text=" + other + "-item"} {
			get("/v1/decisions?limit=1000&"+filter, "/v1/decisions?order=oldest&limit=1000&"+filter, "/v1/decisions?limit=2&order=oldest&cursor=3&"+filter)
			get("/v1/log/export?"+filter, "/v1/log/export?format=csv&"+filter, "/v1/log/export?proofs=true&"+filter)
		}
		for _, id := range append(slices.Clone(ids[other]), "nosuch", ids[other][0]+".1") {
			get("/v1/decisions/"+id, "/v1/decisions/"+id+"/proof", "/v1/log/records/"+id+"/proof", "/v1/decisions/"+id+"/explain")
			all = append(all, question{"POST", "/v1/decisions/" + id + "/redaction", `{"reason":"r"}`}, question{"POST", "/v1/decisions/" + id + "/redaction", `{`},
				question{"POST", "/v1/decisions/" + id + "/obligations", `{"obligations":[{"id":"` + other + `-tell","status":"discharged"}]}`})
		}
		get("/v1/log/checkpoint", "/v1/log/tile/0/000.p/1", "/v1/log/keys", "/v1/log/stats", "/v1/log/report", "/v1/log/report?from=2020-01-01T00:00:00Z", "/v1/log/report?by=policy", "/v1/log/report?by=policy&decision=deny", "/v1/log/report?by=subject&top=1000", "/v1/log/sample?seed=s&n=100", "/v1/bundles", "/v1/bundles/"+digest, "/v1/bundles/h1:nosuch", "/v1/decisions?cursor=99999", "/v1/decisions?order=x", "/v1/decisions/"+ids[tenant][0], "/v1/decisions/"+ids[tenant][0]+"/explain")
		all = append(all, question{"POST", "/v1/log/consistency", checkpoint}, question{"POST", "/v1/log/consistency", "x"}, question{"POST", "/v1/log/keys", ""})
		asked := map[string]bool{}
		for _, q := range all {
			path, _, _ := strings.Cut(q.path, "?")
			asked[q.method+" "+logRoute.ReplaceAllString(path, "$1$2/{}")] = true
			got := me.Do(q.method, q.path, q.body)
			if seen := fmt.Sprint(got.Header, got.Body); strings.Contains(strings.ReplaceAll(seen, withoutEcho(q.path, other), ""), other) {
				t.Errorf("%s %s shows %s:\n%.2000s", q.method, q.path, other, seen)
			}
		}
		routes, err := server.Routes()
		must(t, err)
		of := 0
		for _, route := range routes {
			if !ofTheLog.MatchString(route) {
				continue
			}
			if of++; !asked[strings.NewReplacer("{id}", "{}", "{digest}", "{}", "{level}/{index}", "{}").Replace(route)] {
				t.Errorf("%s is not asked here", route)
			}
		}
		if of < 13 {
			t.Errorf("there are %d routes only", of)
		}
		for _, id := range ids[other] {
			for _, q := range []question{{"GET", "", ""}, {"GET", "/proof", ""}, {"GET", "/explain", ""}, {"POST", "/redaction", `{"reason":"r"}`}, {"POST", "/redaction", `{`}, {"POST", "/obligations", `{"obligations":[{"id":"tell","status":"failed"}]}`}} {
				theirs, none := me.Do(q.method, "/v1/decisions/"+id+q.path, q.body), me.Do(q.method, "/v1/decisions/nosuch"+q.path, q.body)
				theirs.Header.Del("Date")
				none.Header.Del("Date")
				if diff := cmp.Diff(none, theirs); diff != "" || none.Status != 404 {
					t.Errorf("%s of %s is not answered like one that does not exist:\n%s", q.path, id, diff)
				}
			}
		}
		mine := me.get("/v1/decisions?limit=1000")
		if got, want := strings.Count(mine, `"tenant":"`+tenant+`"`), strings.Count(whole, `"tenant":"`+tenant+`"`); got != want {
			t.Errorf("%s sees %d of its %d records", tenant, got, want)
		}
		if got := me.get("/v1/bundles/" + digest); !strings.Contains(got, tenant+"-comment") || !strings.Contains(got, `"complete":false`) {
			t.Errorf("%s: got %s", tenant, got)
		}
	}
	for _, id := range ids["globex"][:6] { // nothing was redacted by the other
		o.get("/v1/decisions/" + id)
	}
}

// withoutEcho is what an answer may hold of the other's name: an export says by which
// filter it was made.
func withoutEcho(path, other string) string {
	_, query, _ := strings.Cut(path, "?")
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if strings.Contains(path, "/export") && strings.Contains(value, other) {
			return fmt.Sprintf("%q:%q", name, value)
		}
	}
	return "nothing"
}

// A caller without any tenant sees nothing: no list of tenants must not mean all.
func TestACallerWithoutTenantsSeesNothing(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), asking(auth.Caller{Name: "key:none", Permissions: []auth.Permission{auth.Decide, auth.LogRead}}))
	for path, want := range map[string]string{"/v1/decisions": `{"items":[],"next":"0","more":false}`} {
		if got := s.Get(path).Body; got != want {
			t.Errorf("got %s", got)
		}
	}
	if got := s.Get("/v1/log/export").Body; strings.Contains(got, `"kind"`) || !strings.Contains(got, `"why":"filtered"`) {
		t.Errorf("got %s", got)
	}
}

func TestPermissionsOfTheLog(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	id := o.ask("initech", evaluationPath, tenantQuestion)
	for _, test := range []struct {
		method, path, body string
		status             map[string]int
	}{
		{"GET", "/v1/decisions", "", map[string]int{"": 401, "initech-pep": 403, "initech-auditor": 200, "reader": 200}},
		{"GET", "/v1/decisions/" + id, "", map[string]int{"": 401, "initech-pep": 403, "initech-auditor": 200, "globex-auditor": 404, "reader": 200}},
		{"GET", "/v1/log/report", "", map[string]int{"": 401, "initech-pep": 403, "initech-auditor": 200, "reader": 200}},
		{"GET", "/v1/log/sample?seed=s", "", map[string]int{"": 401, "initech-pep": 403, "initech-auditor": 200, "globex-auditor": 404, "reader": 200}},
		{"GET", "/v1/log/export", "", map[string]int{"": 401, "initech-pep": 403, "initech-auditor": 200, "reader": 200}},
		{"POST", "/v1/log/keys", "", map[string]int{"": 401, "initech-pep": 403, "initech-auditor": 403, "reader": 403, "auditor": 200}},
		{"POST", "/v1/decisions/" + id + "/redaction", `{"reason":"r"}`, map[string]int{"": 401, "initech-pep": 403, "reader": 403, "globex-auditor": 404}},
	} {
		for name, want := range test.status {
			if got := o.as(name).Do(test.method, test.path, test.body); got.Status != want {
				t.Errorf("%s %s as %q: got %d %s, want %d", test.method, test.path, name, got.Status, got.Body, want)
			}
		}
	}
}

func TestNoLogIsSaid(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, telling(), asking(auth.Caller{AllTenants: true, Permissions: []auth.Permission{auth.LogRead, auth.LogAdmin}}))
	for _, path := range []string{"/v1/decisions", "/v1/decisions/x", "/v1/log/checkpoint", "/v1/log/keys", "/v1/log/stats", "/v1/log/report", "/v1/log/sample?seed=s", "/v1/log/export", "/v1/bundles", "/v1/bundles/h1:x"} {
		if got := s.Get(path); got.Status != 404 || !strings.Contains(got.Body, "no decision log is kept here") {
			t.Errorf("%s: got %d %s", path, got.Status, got.Body)
		}
	}
}

func TestParametersOfTheLog(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	for query, want := range map[string]string{
		"subjet=alice":                          "there is no parameter subjet; there are from, ",
		"%3Cscript%3E=1":                        "there is no parameter of that name; there are",
		"tenant=a&tenant=b":                     "the parameter tenant is given more than once",
		"tenant=":                               "the parameter tenant is empty",
		"subject=%ff":                           "the parameter subject is not UTF-8",
		"a;b":                                   "the query cannot be read",
		"text=a":                                "the parameter text is not of 2 to 256 characters in UTF-8; give a word, or a few, of what you look for",
		"text=":                                 "the parameter text is empty",
		"text=" + strings.Repeat("%C3%BC", 257): "the parameter text is not of 2 to 256 characters",
		"decision=maybe":                        "the parameter decision is none of allow, waiting, deny, possible and impossible; give one of them",
		"order=up":                              "the parameter order is neither",
		"from=yesterday":                        "the parameter from is no time; write a day such as 2026-11-20, a time such as 2026-11-20T15:04:05Z, or an age such as 90s, 24h or 7d",
		"to=2026-01-01T00:00:00+02:00":          "; write the + of a time zone as %2B",
		"from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": "the parameter from is not before to",
		"since=1h&from=2026-01-01":                          "the parameter since says the same as from; leave one of the two out",
		"since=2999-01-01":                                  "the parameter since is in the future; give a time that has passed",
		"since=1h&to=2h":                                    "the parameter since is not before to",
		"from=1h&to=1h":                                     "the parameter from is not before to",
		"from=-1h":                                          "the parameter from is no time",
		"since=":                                            "the parameter since is empty",
		"cursor=7-":                                         "the parameter cursor is no cursor",
		"cursor=7--1":                                       "the parameter cursor is no cursor",
		"cursor=-7":                                         "the parameter cursor is no cursor",
		"cursor=7-9999999999999999999":                      "the parameter cursor is no cursor",
		"cursor=-1":                                         "the parameter cursor is no cursor",
		"cursor=18446744073709551615":                       "the parameter cursor is no cursor",
		"cursor=1000000":                                    "the parameter cursor is beyond the end of the log",
		"limit=0":                                           "the parameter limit is no number",
		"limit=many":                                        "the parameter limit is no number",
	} {
		if got := o.Get("/v1/decisions?" + query); got.Status != 400 || !strings.Contains(got.Body, want) {
			t.Errorf("%s: got %d %s", query, got.Status, got.Body)
		}
	}
	for path, want := range map[string]string{
		"/v1/log/export?limit=1":                "there is no parameter limit",
		"/v1/log/export?format=xml":             "the parameter format is neither",
		"/v1/log/export?proofs=yes":             "the parameter proofs is neither",
		"/v1/log/export?proofs=true&format=csv": "the parameter proofs is for ndjson",
		"/v1/log/export?bom=yes&format=csv":     "the parameter bom is neither",
		"/v1/log/export?bom=true":               "the parameter bom is for csv",
		"/v1/log/export?text=a":                 "the parameter text is not of 2 to 256",
		"/v1/log/stats?tenant=a":                "there is no parameter tenant",
		"/v1/log/report?by=tenant":              "the parameter by is neither policy nor subject",
		"/v1/log/report?top=3":                  "the parameter top is how many names are counted by the parameter by",
		"/v1/log/report?decision=deny":          "the parameter decision is of what is counted by the parameter by",
		"/v1/log/report?by=policy&decision=no":  "the parameter decision is no answer",
		"/v1/log/report?by=policy&top=0":        "the parameter top is no number of names; give one from 1 to 1000",
		"/v1/log/report?by=policy&top=1001":     "the parameter top is no number of names; give one from 1 to 1000",
		"/v1/log/report?from=now":               "the parameter from is no time",
		"/v1/log/report?since=2999-01-01":       "the parameter since is in the future",
		"/v1/log/sample?seed=a&since=1w":        "the parameter since is no time",
		"/v1/log/export?since=1w":               "the parameter since is no time",
		"/v1/log/sample":                        "the parameter seed is missing",
		"/v1/log/sample?seed=a%0Ab":             "the parameter seed is missing, too long or not in one line",
		"/v1/log/sample?seed=a&n=1001":          "the parameter n is no number of decisions; give one from 1 to 1000",
		"/v1/decisions/x?of=y":                  "there is no parameter of;",
	} {
		if got := o.Get(path); got.Status != 400 || !strings.Contains(got.Body, want) {
			t.Errorf("%s: got %d %s", path, got.Status, got.Body)
		}
	}
}

// What is redacted and rotated over HTTP is on record with who did it, and gone from
// every file.
func TestChangingTheLog(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	id := o.ask("initech", evaluationPath, tenantQuestion)
	for body, want := range map[string]int{`{}`: 400, `{"reason":" "}`: 400, `{"reason":7}`: 400, `{`: 400, `{"reason":"` + strings.Repeat("x", 1001) + `"}`: 400} {
		if got := o.as("initech-auditor").Do("POST", "/v1/decisions/"+id+"/redaction", body); got.Status != want {
			t.Errorf("%.40s: got %d %s", body, got.Status, got.Body)
		}
	}
	if got := o.as("initech-auditor").Do("POST", "/v1/decisions/"+id+"/redaction", `{"reason":"erasure request 17"}`); got.Status != 204 || got.Body != "" {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	for name, want := range map[string]int{"auditor": 410, "initech-auditor": 404} {
		for _, path := range []string{"", "/proof"} {
			if got := o.as(name).Get("/v1/decisions/" + id + path); got.Status != want {
				t.Errorf("%s as %s: got %d %s", path, name, got.Status, got.Body)
			}
		}
	}
	if onDisk(t, o.data, "initech-plan") {
		t.Error("the content is still on disk")
	}
	events := o.get("/v1/decisions?event=record_redacted")
	if !strings.Contains(events, `"tenant":"initech","kind":"admin","caller":"key:initech-auditor","event":"record_redacted"`) || !strings.Contains(events, "erasure request 17") {
		t.Errorf("got %s", events)
	}
	var redactions struct{ Items []recorded }
	must(t, json.Unmarshal([]byte(events), &redactions))
	replied(t, o.Do("POST", "/v1/decisions/"+redactions.Items[0].ID+"/redaction", `{"reason":"r"}`), 409)
	key := o.Do("POST", "/v1/log/keys", "").Body
	if keys := o.get("/v1/log/keys"); strings.Count(keys, "\n") != 2 || !strings.HasSuffix(keys, "\n"+key) {
		t.Errorf("got %q, the new one is %q", keys, key)
	}
	if got := o.get("/v1/decisions?event=key_rotated"); !strings.Contains(got, `"caller":"key:auditor","event":"key_rotated"`) {
		t.Errorf("got %s", got)
	}
	stopAndWait(t, o.Server)
	if report := verify.Directory(o.data, verify.Options{Key: strings.Split(key, "\n")[0]}); !report.Verified() || report.Redacted != 1 {
		t.Errorf("got %+v", report)
	}
}

// Checkpoints, proofs and consistency are what verify reads, each for records that
// nobody has signed for yet.
func TestProofsOverHTTP(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	kept := o.get("/v1/log/checkpoint")
	id := o.ask("initech", evaluationPath, tenantQuestion)
	keys := verify.Options{Key: o.get("/v1/log/keys")}
	proof := o.as("initech-auditor").get("/v1/decisions/" + id + "/proof")
	if report := verify.Export(strings.NewReader(proof), keys); !report.Verified() || report.Records != 1 || !strings.Contains(proof, "initech-plan") {
		t.Errorf("got %+v", report)
	}
	later := o.get("/v1/log/checkpoint")
	got := o.Do("POST", "/v1/log/consistency", kept)
	if report := verify.Export(strings.NewReader(got.Body), keys); !report.Verified() || got.Status != 200 || later == kept {
		t.Errorf("got %d %+v", got.Status, report)
	}
	other := openOffice(t)
	replied(t, other.Do("POST", "/v1/log/consistency", kept), 409, "not of this log's history")
	longer := regexp.MustCompile(`\n\d+\n`).ReplaceAllString(kept, "\n1000000\n")
	replied(t, o.Do("POST", "/v1/log/consistency", longer), 409, "the log was cut")
	replied(t, o.Do("POST", "/v1/log/consistency", "nothing"), 400)
}

// A record is shown as it is stored, with its receipts and the bundle of then.
func TestRecordOverHTTP(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	id := o.happen("initech")[0]
	rec, err := o.Log().ByID(id)
	must(t, err)
	var got struct {
		Record   jsontext.Value
		Sequence uint64
		LeafHash string `json:"leaf_hash"`
		Receipts []struct{ Details record.Receipt }
	}
	body := o.as("initech-auditor").get("/v1/decisions/" + id)
	must(t, json.Unmarshal([]byte(body), &got))
	if string(got.Record) != string(rec.Line) || got.Sequence != rec.Sequence || got.LeafHash != rec.Leaf.String() ||
		len(got.Receipts) != 1 || got.Receipts[0].Details.Decision != id {
		t.Errorf("got %s", body)
	}
	var of recorded
	must(t, json.Unmarshal(rec.Line, &of))
	files := o.get("/v1/bundles/" + url.PathEscape(of.Bundle))
	if !strings.Contains(files, `"complete":true`) || !strings.Contains(files, `"path":"tenants/globex/globex-policies.cedar"`) {
		t.Errorf("got %s", files)
	}
	forURL := strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(of.Bundle), "=")
	if got := o.get("/v1/bundles/" + forURL); got != files {
		t.Errorf("got %s", got)
	}
	for _, name := range []string{"h1:", "x", "h1:" + strings.Repeat("A", 43), "..%2f..%2flog.key", "%zz"} {
		if got := o.Do("GET", "/v1/bundles/"+strings.ReplaceAll(name, "%zz", "%25zz"), ""); got.Status != 404 {
			t.Errorf("%s: got %d %s", name, got.Status, got.Body)
		}
	}
	// A file that somebody altered is not given out.
	altered, err := filepath.Glob(filepath.Join(o.data, segment.BundlesDir, "*"))
	must(t, err)
	for _, name := range altered {
		must(t, os.WriteFile(name, []byte("altered"), 0o600))
	}
	if got := o.Get("/v1/bundles/" + url.PathEscape(of.Bundle)); got.Status != 500 || strings.Contains(got.Body, "altered") {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// A file that a tenant wrote like the list of a bundle shows its auditor no file of another tenant.
func TestNoFileIsReadAsAList(t *testing.T) {
	t.Parallel()
	const secret = "// globex alone\n"
	forged := fmt.Sprintf("%x  : {type: log}\n", sha256.Sum256([]byte(secret)))
	o := openOffice(t, func(c *server.Config) {
		c.Program.Source = pdptest.Bundle(map[string]string{
			"a.cedar": `permit(principal, action == Action::"read", resource);`, "tenants/initech/obligations.yaml": forged, "tenants/globex/a.cedar": secret,
		})
	})
	sum := sha256.Sum256([]byte(forged))
	path := "/v1/bundles/" + url.PathEscape("h1:"+base64.StdEncoding.EncodeToString(sum[:]))
	if got := o.as("auditor").Get(path); !strings.Contains(got.Body, "globex alone") {
		t.Fatalf("what is looked for is nowhere: got %d %s", got.Status, got.Body)
	}
	if got := o.as("initech-auditor").Get(path); got.Status != http.StatusNotFound {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// asking has every request come from one caller.
func asking(caller auth.Caller) pdptest.Option {
	return func(c *server.Config) { c.Program.Authenticator = always(caller) }
}

type always auth.Caller

func (a always) Authenticate(*http.Request) (auth.Caller, error) { return auth.Caller(a), nil }
