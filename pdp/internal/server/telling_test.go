package server_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// logAs logs as serve does.
func logAs(to *written.Text, told logging.Config) pdptest.Option {
	return func(c *server.Config) { c.Log, c.Program.Logger = told, logging.New(to, told).Logger }
}

// A line about a request says its route and who asked, and nothing that was sent but the request's id.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	key := addKey(t, data, "pep", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}})
	var log, silent written.Text
	s := pdptest.Start(t, telling(), withData(data), logAs(&log, logging.Config{Level: "error", Access: true}))
	got := s.Post(evaluationPath, readQuestion, "Authorization", key, "X-Request-ID", "r-1")
	s.Post(evaluationPath+"?token=SECRET", readQuestion, "X-Request-ID", "r-2")
	s.Post("/SECRET?token=SECRET", `{"SECRET":1}`, "X-Request-ID", "r-3", "Cookie", "SECRET", "Authorization", "Bearer SECRET")
	r, err := http.NewRequest("SECRET", s.URL+"/livez", nil)
	must(t, err)
	answer, err := ownClient().Do(r)
	must(t, err)
	must(t, answer.Body.Close())
	stopAndWait(t, s)
	told := strings.Join(regexp.MustCompile(`(?m)^time=\S+ level=ACCESS .*\n`).FindAllString(log.String(), -1), "")
	told = regexp.MustCompile(`time=\S+ |seconds=\S+ `).ReplaceAllString(told, "")
	want := fmt.Sprintf(`level=ACCESS msg=request method=POST route=/access/v1/evaluation status=200 bytes=%d caller=key:pep request_id=r-1 decision=%s
level=ACCESS msg=request method=POST route=/access/v1/evaluation status=401 bytes=… caller="" request_id=r-2 decision=""
level=ACCESS msg=request method=POST route=unmatched status=404 bytes=… caller="" request_id=r-3 decision=""
level=ACCESS msg=request method=_OTHER route=/livez status=405 bytes=… caller="" request_id="" decision=""
`, len(got.Body), got.Header.Get("X-Decision-Id"))
	first, rest, _ := strings.Cut(told, "\n")
	if told = first + "\n" + regexp.MustCompile(`bytes=\d+`).ReplaceAllString(rest, "bytes=…"); told != want {
		t.Errorf("got\n%swant\n%s", told, want)
	}
	if !strings.Contains(log.String(), " seconds=") || strings.Contains(log.String(), "SECRET") || strings.Contains(log.String(), "INFO") {
		t.Error(log.String())
	}
	other := pdptest.Start(t, telling(), logAs(&silent, logging.Config{Level: "debug"}))
	other.Post(evaluationPath, readQuestion)
	stopAndWait(t, other)
	if strings.Contains(silent.String(), "msg=request") {
		t.Errorf("nobody asked for\n%s", silent.String())
	}
}

// What observe lets pass is counted, and told of once a minute.
func TestObservedCallsAreToldOf(t *testing.T) {
	t.Parallel()
	var log written.Text
	s := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"access/vault.yaml": "mode: allowlist\ncapability: observe\nrules:\n  - {agent: helpdesk, tools: [reset_password]}\n",
	}), logAs(&log, logging.Config{}))
	ask := func(agent string) string {
		return `{"subject":{"type":"agent","id":"` + agent + `"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"vault:reset_password"}}`
	}
	for range 3 {
		if got := s.Post(evaluationPath, ask("helpdesk")); got.Body != `{"decision":true}` {
			t.Fatalf("got %d %s", got.Status, got.Body)
		}
		s.Post(evaluationPath, ask("stranger"))
	}
	s.Post("/access/v1/evaluations", strings.TrimSuffix(ask("helpdesk"), "}")+`,"evaluations":[{},{}]}`)
	if metrics := s.Get("/metrics").Body; !strings.Contains(metrics, `policy_service_capabilities_observed_total{tenant="default"} 5`) {
		t.Errorf("got %s", regexp.MustCompile(`.*observed_total\{.*`).FindString(metrics))
	}
	if got := log.String(); strings.Count(got, `required would refuse it" tenant=default policy=access.vault.observe decision=`) != 1 {
		t.Error(got)
	}
}
