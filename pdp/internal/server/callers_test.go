package server_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
)

// withData has a test server use a data directory.
func withData(dir string) pdptest.Option { return func(c *server.Config) { c.Data = dir } }

// ofItsMoment is what an export has of the whole log, which grows meanwhile.
var ofItsMoment = regexp.MustCompile(`"(checkpoint|digest)":"[^"]*"|"hashes":\[[^]]*\]|"size":[0-9]+`)

// Nobody learns from any answer whether a tenant exists: another's, one that does not
// exist and, but for metadata, a name that no tenant may have are answered alike.
func TestTenantsOfOthersAreAnsweredLikeNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	apiKeys, err := keys.Open(dir)
	must(t, err)
	pep, err := apiKeys.Add(keys.Spec{Name: "pep", Principal: auth.Principal{Type: "User", ID: "mia"}, Grant: auth.Grant{
		Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Explain, auth.Request, auth.Approve, auth.LogRead}}})
	must(t, err)
	pep = "Bearer " + pep
	insider := addKey(t, dir, "insider", auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.Decide}})
	s := pdptest.Start(t, bundle(t), withData(dir), func(c *server.Config) { c.PublicURL = "https://pdp.example.com" })
	// It has a record, which is not to be found.
	if got := s.Post("/tenants/acme"+evaluationPath, readQuestion, "Authorization", insider); got.Status != 200 || got.Header.Get("X-Decision-Id") == "" {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	type row struct {
		method, path, body string
		status             int
		legalOnly          bool
	}
	rows := []row{
		{"POST", "/tenants/TENANT/access/v1/evaluation", readQuestion, 404, false},
		{"POST", "/tenants/TENANT/access/v1/evaluation", "{", 404, false},
		{"PUT", "/tenants/TENANT/access/v1/evaluation", readQuestion, 405, false},
		{"POST", "/tenants/TENANT/access/v1/evaluations", readQuestion, 404, false},
		{"POST", "/tenants/TENANT/access/v1/search/subject", readQuestion, 404, false},
		{"POST", "/tenants/TENANT/access/v1/search/resource", readQuestion, 404, false},
		{"POST", "/tenants/TENANT/access/v1/search/action", readQuestion, 404, false},
		{"POST", authorizePath, strings.Replace(nativeQuestion, `"default"`, `"TENANT"`, 1), 403, false},
		{"GET", metadataPath + "/tenants/TENANT", "", 200, true},
		{"HEAD", metadataPath + "/tenants/TENANT", "", 200, true},
		{"POST", metadataPath + "/tenants/TENANT", "", 405, false},
		{"POST", "/tenants/TENANT/access/v1/requests", "{}", 404, false},
		{"POST", "/tenants/TENANT/access/v1/requests", "{", 404, false},
		{"GET", "/tenants/TENANT/access/v1/requests", "", 404, false},
		{"GET", "/tenants/TENANT/access/v1/requests/ID", "", 404, false},
		{"GET", "/tenants/TENANT/access/v1/requests/notifications", "", 404, false},
		{"POST", "/tenants/TENANT/access/v1/requests/ID/cancel", "{}", 404, false},
		{"POST", "/tenants/TENANT/v1/tools/drift", driftFound, 404, false},
		{"GET", "/tenants/TENANT/v1/tools/requests", "", 404, false},
		{"GET", "/tenants/TENANT/v1/tools/requests/ID", "", 404, false},
		{"POST", "/tenants/TENANT/v1/tools/requests/ID", "{}", 404, false},
		{"POST", "/tenants/TENANT/v1/token", "{}", 404, false},
		{"GET", "/v1/decisions?tenant=TENANT", "", 200, false},
		{"GET", "/v1/approvals?tenant=TENANT", "", 200, false},
		{"GET", "/v1/log/export?tenant=TENANT", "", 200, false},
		{"GET", "/v1/log/export?format=csv&tenant=TENANT", "", 200, false},
	}
	routes, err := server.Routes()
	must(t, err)
	for _, route := range routes {
		asked := strings.NewReplacer("{tenant}", "TENANT", "{id}", "ID").Replace(route)
		if strings.Contains(route, "{tenant}") && !slices.ContainsFunc(rows, func(r row) bool { return r.method+" "+r.path == asked }) {
			t.Errorf("%s is not asked here", route)
		}
	}
	for _, test := range rows {
		for _, credential := range []string{pep, ""} {
			ask := func(tenant string) pdptest.Response {
				body := strings.ReplaceAll(test.body, "TENANT", tenant)
				got := s.Do(test.method, strings.ReplaceAll(test.path, "TENANT", tenant), body, "Content-Type", "application/json", "Authorization", credential, "X-Explain", "true")
				got.Header.Del("Date")
				if strings.HasPrefix(test.path, "/v1/log/export") { // it says what it was asked for, and is of its moment
					got.Header.Del("X-Export-Checkpoint")
					got.Body = strings.ReplaceAll(got.Body, `"tenant":"`+tenant+`"`, `"tenant":"TENANT"`)
					got.Body = ofItsMoment.ReplaceAllString(got.Body, "")
				}
				if test.legalOnly { // it holds the name, and a signature of it
					got.Header.Del("Content-Length")
					got.Body, _, _ = strings.Cut(got.Body, `"signed_metadata"`)
					got.Body = strings.ReplaceAll(got.Body, "/tenants/"+tenant, "/tenants/TENANT")
				}
				return got
			}
			others := ask("acme")
			if want := test.status; credential != "" && others.Status != want {
				t.Errorf("%s %s: got %d, want %d", test.method, test.path, others.Status, want)
			}
			for _, name := range []string{"nosuch", "n", ".acme", "acme.."} {
				if legal := name != ".acme"; !legal && test.legalOnly {
					continue
				}
				if diff := cmp.Diff(others, ask(name)); diff != "" {
					t.Errorf("%s %s for %s:\n%s", test.method, test.path, name, diff)
				}
			}
		}
	}
}

func TestEachPermission(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	grants := map[string]string{"nobody": ""}
	for name, grant := range map[string]auth.Grant{
		"decider":  {Permissions: []auth.Permission{auth.Decide}},
		"searcher": {Permissions: []auth.Permission{auth.Search}},
		"explains": {Permissions: []auth.Permission{auth.Decide, auth.Explain}},
		"operator": {Permissions: []auth.Permission{auth.Explain}, Tenants: []string{"*"}},
	} {
		grants[name] = addKey(t, dir, name, grant)
	}
	s := pdptest.Start(t, bundle(t), withData(dir))
	type seen struct {
		Status, Native, Batch, Search int
		Explained, Readiness          bool
	}
	got := map[string]seen{}
	for name, credential := range grants {
		answer := s.Post(evaluationPath, readQuestion, "Authorization", credential, "X-Explain", "true")
		native := s.Post(authorizePath, nativeQuestion, "Authorization", credential)
		ready := s.Get("/readyz", "Authorization", credential)
		batch := s.Post("/access/v1/evaluations", readQuestion, "Authorization", credential)
		search := s.Post("/access/v1/search/action", readQuestion, "Authorization", credential)
		got[name] = seen{answer.Status, native.Status, batch.Status, search.Status, strings.Contains(answer.Body, `"explain"`), ready.Body != `{"status":"ready"}`}
	}
	want := map[string]seen{
		"nobody":   {401, 401, 401, 401, false, false},
		"decider":  {200, 200, 200, 403, false, false},
		"searcher": {403, 403, 403, 200, false, false},
		"explains": {200, 200, 200, 403, true, false},
		"operator": {403, 403, 403, 403, false, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	replied(t, s.Get("/livez"), 200)
}

// The caller that policies see is the key's name.
func TestPoliciesSeeTheCaller(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{"a.cedar": `permit (principal, action, resource) when { context.pdp.caller == "key:gateway" };`}
	credentials := map[string]string{"gateway": addKey(t, dir, "gateway", auth.Grant{}), "other": addKey(t, dir, "other", auth.Grant{})}
	s := pdptest.Start(t, pdptest.Bundle(files), withData(dir))
	got := map[string]string{}
	for name, credential := range credentials {
		got[name] = s.Post(evaluationPath, readQuestion, "Authorization", credential).Body
	}
	if want := map[string]string{"gateway": `{"decision":true}`, "other": `{"decision":false}`}; !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestExposure(t *testing.T) {
	t.Parallel()
	a := pdptest.NewAuthority(t)
	keyed, empty := t.TempDir(), t.TempDir()
	addKey(t, keyed, "pep", auth.Grant{})
	unreadable := t.TempDir()
	must(t, os.Mkdir(filepath.Join(unreadable, "api-keys.json"), 0o700))
	mtls := func(c *server.Config) {
		c.TLS.ClientCAFile = a.File
		c.Auth.MTLS = []auth.MTLSRule{{SAN: "pep.example", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}}}}
	}
	for name, test := range map[string]struct {
		options []pdptest.Option
		ok      bool
	}{
		"nothing":                 {nil, false},
		"TLS alone":               {[]pdptest.Option{withTLS(a)}, false},
		"TLS and no key":          {[]pdptest.Option{withTLS(a), withData(empty)}, false},
		"keys without TLS":        {[]pdptest.Option{withData(keyed)}, false},
		"keys behind another TLS": {[]pdptest.Option{withData(keyed), func(c *server.Config) { c.PublicURL = "https://pdp.example.com" }}, false},
		"loopback's own rule":     {[]pdptest.Option{withTLS(a), func(c *server.Config) { c.Program.Authenticator = auth.Loopback{} }}, false},
		"unreadable keys":         {[]pdptest.Option{withTLS(a), withData(unreadable)}, false},
		"TLS and keys":            {[]pdptest.Option{withTLS(a), withData(keyed)}, true},
		"TLS and certificates":    {[]pdptest.Option{withTLS(a), mtls}, true},
		"TLS and one's own":       {[]pdptest.Option{withTLS(a), func(c *server.Config) { c.Program.Authenticator = asCaller{} }}, true},
	} {
		config := server.Config{Program: server.Program{Source: bundle(t)}, Listen: "0.0.0.0:0"}
		for _, option := range test.options {
			option(&config)
		}
		s, err := server.New(config)
		if err == nil {
			if err = s.Start(t.Context()); err == nil {
				err = s.Stop(t.Context())
			}
		}
		if (err == nil) != test.ok {
			t.Errorf("%s: got %v, want accepted: %v", name, err, test.ok)
		}
	}
}

// Who may approve, and as whom, is on record from the moment a key says so.
func TestApproverIsOnRecord(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := pdptest.Start(t, bundle(t), withData(data))
	apiKeys, err := keys.Open(data)
	must(t, err)
	_, err = apiKeys.Add(keys.Spec{Name: "mia", Principal: auth.Principal{Type: "User", ID: "mia"}, Grant: auth.Grant{Permissions: []auth.Permission{auth.Approve}}})
	must(t, err)
	eventually(t, "the key is on record", func() bool { return s.Recorded("api_key_added") })
	stopAndWait(t, s)
	added := events(lines(t, data), "api_key_added")
	if len(added) != 1 || added[0].Details["principal"] != `User::"mia"` {
		t.Errorf("got %+v", added)
	}
}
