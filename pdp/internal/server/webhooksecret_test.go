package server_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/written"
)

// What stands behind the host of a webhook's URL is often all that keeps others from
// posting there. It is in no record, log line, answer or metric, however an attempt ends.
func TestNobodyIsToldTheRestOfAWebhooksURL(t *testing.T) {
	t.Parallel()
	failing := make(chan bool, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/broken"):
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		case strings.HasPrefix(r.URL.Path, "/elsewhere"):
			http.Redirect(w, r, r.URL.String()+"/again", http.StatusFound)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
		failing <- true
	}))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(strings.Repeat("s", 32)), 0o600))
	var log, stdout written.Text
	c := openCounter(t, logTo(&log), withStdout(0, &stdout), func(config *server.Config) {
		for _, path := range []string{"/broken", "/elsewhere", "/teapot"} {
			config.Approvals.Webhooks = append(config.Approvals.Webhooks, webhook.Config{URL: receiver.URL + path + "/zebra-path?key=zebra-query", SecretFile: file, Allow: []string{"127.0.0.1"}})
		}
		config.Approvals.Webhooks = append(config.Approvals.Webhooks, webhook.Config{URL: "https://[2001:db8::1]/zebra-path?zebra-query", SecretFile: file, Allow: []string{"2001:db8::/32"}})
		config.Approvals.Callbacks = []broker.CallbackConfig{{Caller: "key:asker", Config: webhook.Config{URL: receiver.URL + "/zebra-path?zebra-query", SecretFile: file, Allow: []string{"127.0.0.1"}}}}
	})
	id := c.asks("pep", tool("push", push)).Approval.ID
	for range 3 {
		<-failing
	}
	all := c.Get("/readyz", "Authorization", c.key["explainer"]).Body + c.Get("/metrics", "Authorization", c.key["explainer"]).Body +
		c.Get("/v1/approvals/"+id, "Authorization", c.key["mia"]).Body + c.Get("/v1/log/export", "Authorization", c.key["auditor"]).Body
	must(t, c.Stop(t.Context()))
	var written strings.Builder
	hooks := []webhook.Config{{URL: "https://u:zebra-user@h.example/zebra-path"}, {URL: "zebra-path"}, {URL: "zebra:path"}}
	must(t, server.ConfigForm.Write(&written, server.Config{Approvals: server.ApprovalsConfig{Webhooks: hooks}}, config.Origins{}))
	all += log.String() + stdout.String() + written.String()
	if strings.Contains(all, "zebra") {
		at := strings.Index(all, "zebra")
		t.Errorf("it is in …%s", all[max(0, at-200):at+20])
	}
	for _, want := range []string{`"url":"` + receiver.URL + `"`, "receiver=" + receiver.URL, "https://h.example # default, where more is said, which may be secret"} {
		if !strings.Contains(all, want) {
			t.Errorf("there is no %s in what was searched: the test proves nothing", want)
		}
	}
}
