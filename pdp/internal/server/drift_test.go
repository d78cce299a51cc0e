package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

const (
	driftPath  = "/v1/tools/drift"
	driftFound = `{"server":"jira","tool":"reset_password","change":"changed","parts":["description","inputSchema"],"locked":"sha256:old","found":"sha256:new"}`
)

// driftsOf are the drifts among records.
func driftsOf(all []line) (found []line) {
	for _, l := range all {
		if l.Event == format.EventToolDrift {
			found = append(found, l)
		}
	}
	return found
}

// driftDetails is what of a drift is on record.
func driftDetails(l line) string {
	text := ""
	for _, name := range []string{"server", "tool", "change", "parts", "locked", "found"} {
		text += fmt.Sprintf("%v ", l.Details[name])
	}
	if len(l.Details) > 6 {
		text += "and more"
	}
	return strings.TrimSpace(text)
}

// A drift is on record when it is answered, as it was sent, and nothing that is refused is.
func TestDrift(t *testing.T) {
	for _, mode := range []decisionlog.Mode{decisionlog.Strict, decisionlog.BestEffort} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			s := described(t, pdptest.Start(t, obliging(), withData(data), func(c *server.Config) {
				c.Program.Authenticator, c.DecisionLog.Mode = asCaller{}, mode
			}))
			const gateway = "gateway:decide"
			for _, test := range []struct {
				name, path, body, caller, contentType string
				status                                int
				pointer                               string
			}{
				{"a change", driftPath, driftFound, gateway, "", 204, ""},
				{"of instructions", driftPath, `{"server":"jira","change":"instructions","locked":"sha256:a","found":"sha256:b"}`, gateway, "application/json; charset=utf-8", 204, ""},

				{"nobody's", driftPath, driftFound, "", "", 401, ""},
				{"without the permission", driftPath, driftFound, "gateway:search log.read log.admin", "", 403, ""},
				{"for another's tenant", "/tenants/acme" + driftPath, driftFound, gateway, "", 404, ""},
				{"for no tenant", "/tenants/nosuch" + driftPath, driftFound, gateway, "", 404, ""},
				{"for default by name", "/tenants/default" + driftPath, driftFound, gateway, "", 404, ""},
				{"parameters", driftPath + "?tenant=acme", driftFound, gateway, "", 400, ""},
				{"Content-Type", driftPath, driftFound, gateway, "text/plain", 400, ""},
				{"too large", driftPath, strings.Repeat(" ", 1<<20) + driftFound, gateway, "", 413, ""},
				{"size before credentials", driftPath, strings.Repeat(" ", 1<<20+1), "", "", 413, ""},
				{"credentials before the tenant", "/tenants/nosuch" + driftPath, driftFound, "", "", 401, ""},
				{"the tenant before the permission", "/tenants/acme" + driftPath, driftFound, "gateway:search", "", 404, ""},
				{"no JSON", driftPath, `{`, gateway, "", 400, ""},
				{"a member twice", driftPath, `{"server":"a","server":"b","tool":"t","change":"new"}`, gateway, "", 400, "/server"},
				{"an unknown member", driftPath, `{"server":"a","tool":"t","change":"new","event":"stop"}`, gateway, "", 400, "/event"},
				{"an unknown change", driftPath, `{"server":"a","tool":"t","change":"deleted"}`, gateway, "", 400, "/change"},
				{"what cannot be seen", driftPath, `{"server":"a","tool":"a\u202eb","change":"new"}`, gateway, "", 400, "/tool"},
				{"two lines", driftPath, `{"server":"a","tool":"a\nb","change":"new"}`, gateway, "", 400, "/tool"},
			} {
				contentType := test.contentType
				if contentType == "" {
					contentType = "application/json"
				}
				got := s.Do("POST", test.path, test.body, "Authorization", test.caller, "Content-Type", contentType, "X-Request-ID", "r-1")
				if got.Status != test.status || test.pointer != "" && !strings.Contains(got.Body, `"pointer":"`+test.pointer+`"`) || got.Status == 204 && got.Body != "" {
					t.Errorf("%s: got %d %s, want %d %s", test.name, got.Status, got.Body, test.status, test.pointer)
				}
			}
			stopAndWait(t, s)
			found := driftsOf(lines(t, data))
			want := []string{
				"jira reset_password changed [description inputSchema] sha256:old sha256:new",
				"jira <nil> instructions <nil> sha256:a sha256:b",
			}
			for n, l := range found {
				if n >= len(want) || driftDetails(l) != want[n] || l.Kind != format.KindAdmin || l.Tenant != "default" || l.Caller != "key:gateway" || l.RequestID != "r-1" || l.Decision != nil {
					t.Errorf("%d: got %+v", n, l)
				}
			}
			if len(found) != len(want) {
				t.Errorf("%d are on record", len(found))
			}
		})
	}
}

// Each tenant has its own drifts: its auditors see them, others do not.
func TestDriftIsOfATenant(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	gateway := addKey(t, data, "gateway", auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.Decide}})
	seeing := func(name, tenant string) string {
		return addKey(t, data, name, auth.Grant{Tenants: []string{tenant}, Permissions: []auth.Permission{auth.LogRead}})
	}
	acme, other := seeing("acme", "acme"), seeing("other", "default")
	s := described(t, pdptest.Start(t, obliging(), withData(data)))
	replied(t, s.Post("/tenants/acme"+driftPath, driftFound, "Authorization", gateway), 204)
	replied(t, s.Post(driftPath, driftFound, "Authorization", gateway), 404)
	for credential, want := range map[string]int{acme: 1, other: 0} {
		page := s.Get("/v1/decisions?event=tool_drift&kind=admin", "Authorization", credential)
		if got := strings.Count(page.Body, `"tool":"reset_password"`); page.Status != 200 || got != want {
			t.Errorf("%d in %d %s", got, page.Status, page.Body)
		}
		told := s.Get("/v1/log/report", "Authorization", credential)
		if got := strings.Contains(told.Body, `"tool_drift":{"changed":1}`); told.Status != 200 || got != (want == 1) {
			t.Errorf("the report is %d %s", told.Status, told.Body)
		}
		for _, format := range []string{"csv", "ndjson"} {
			export := s.Get("/v1/log/export?event=tool_drift&format="+format, "Authorization", credential)
			if got := strings.Count(export.Body, "reset_password"); export.Status != 200 || got != want {
				t.Errorf("%s: %d in %d %s", format, got, export.Status, export.Body)
			}
		}
	}
}

// What a caller may put on record bounds its drifts, too, and takes nothing from others.
func TestDriftFlood(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	body := `{"server":"jira","tool":"` + strings.Repeat("t", 256) + `","change":"changed","parts":["` + strings.Repeat(strings.Repeat("p", 64)+`","`, 31) + `p"]}`
	var all sync.WaitGroup
	var mu sync.Mutex
	last, written := pdptest.Response{}, 0
	for range 64 {
		all.Go(func() {
			for range 2 * sharedShare / len(body) / 64 {
				got := s.Post(driftPath, body, "Authorization", s.greedy)
				mu.Lock()
				if got.Status == http.StatusNoContent {
					written++
				} else {
					last = got
				}
				mu.Unlock()
				if got.Status != http.StatusNoContent {
					return
				}
			}
		})
	}
	all.Wait()
	s.refused(last, http.StatusTooManyRequests)
	records, bytes := s.recorded("key:greedy")
	if records != written || bytes > sharedShare+64*int64(len(body)) {
		t.Errorf("%d were answered, and %d of %d bytes are on record", written, records, bytes)
	}
	s.asks(200)
}
