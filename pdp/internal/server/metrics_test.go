package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/metric/noop"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// counted reads metrics as a map of what Prometheus would store.
func counted(t *testing.T, text string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, s := range samples(t, text) {
		all[s.Metric.String()] = float64(s.Value)
	}
	return all
}

func wantCounted(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		if v, there := got[series]; !there || v != value {
			t.Errorf("%s: got %v (%v), want %v", series, v, there, value)
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, telling(), withData(t.TempDir()))
	ask := func(path, body string, want int, headers ...string) {
		t.Helper()
		replied(t, s.Post(path, body, headers...), want)
	}
	ask(evaluationPath, readQuestion, 200)
	ask(authorizePath, nativeQuestion, 200)
	ask(evaluationPath, strings.Replace(readQuestion, "read", "delete", 1), 200)
	ask(evaluationPath, strings.Replace(readQuestion, "read", "s3cret", 1), 200)
	ask(evaluationPath, strings.Replace(readQuestion, `"user"`, `"Action"`, 1), 200)
	ask("/tenants/acme"+evaluationPath, strings.Replace(readQuestion, "read", "ping", 1), 200)
	ask("/access/v1/evaluations", strings.TrimSuffix(readQuestion, "}")+`,"evaluations":[{},7]}`, 200)
	ask("/tenants/s3cret"+evaluationPath, readQuestion, 404)
	ask(evaluationPath, `{"s3cret"`, 400)
	ask(evaluationPath, `{"subject":{"type":"user","id":"s3cret","properties":`+strings.Repeat(`{"a":`, 20)+"1"+strings.Repeat("}", 20)+`},"action":{"name":"a"},"resource":{"type":"b","id":"c"}}`, 400)
	ask(evaluationPath, readQuestion, 400, "X-Request-ID", strings.Repeat("s3cret", 50))
	ask(evaluationPath, strings.Repeat(" ", 1<<20)+readQuestion, 413)
	s.Do("S3CRET", "/s3cret", "")
	must(t, s.Log().Rotate(t.Context()))
	eventually(t, "all of the rotation is on record", func() bool { return s.CountRecorded("api_keys") == 2 })
	got := s.Get("/metrics")
	if strings.Contains(strings.ToLower(got.Body), "s3cret") {
		t.Error("what was sent is in the metrics")
	}
	all := counted(t, got.Body)
	wantCounted(t, all, map[string]float64{
		`policy_service_decisions_total{decision="allow", reason="policy", tenant="default"}`:                                  3,
		`policy_service_decisions_total{decision="allow", reason="policy", tenant="acme"}`:                                     1,
		`policy_service_decisions_total{decision="deny", reason="policy", tenant="default"}`:                                   1,
		`policy_service_decisions_total{decision="deny", reason="no_policy", tenant="default"}`:                                1,
		`policy_service_decisions_total{decision="deny", reason="unknown_type", tenant="default"}`:                             1,
		`policy_service_decisions_total{decision="deny", reason="malformed", tenant="default"}`:                                1,
		`policy_service_http_refused_total{reason="malformed"}`:                                                                1,
		`policy_service_http_refused_total{reason="limit"}`:                                                                    2,
		`policy_service_http_refused_total{reason="too_large"}`:                                                                1,
		`policy_service_http_refused_total{reason="not_found"}`:                                                                2,
		`policy_service_http_request_duration_seconds_count{http_route="/access/v1/evaluation", status="2xx"}`:                 4,
		`policy_service_http_request_duration_seconds_count{http_route="/tenants/:tenant/access/v1/evaluation", status="4xx"}`: 1,
		`policy_service_http_request_duration_seconds_count{http_route="unmatched", status="4xx"}`:                             2,
		`policy_service_http_requests_active`:                                                                                  1, // this one
		`policy_service_log_ok`:                                                                                                1,
		`policy_service_log_rotations_total`:                                                                                   1,
		`policy_service_log_segments`:                                                                                          2,
		`policy_service_log_size`:                                                                                              float64(s.Log().Size()),
		`policy_service_log_records_total`:                                                                                     float64(s.Log().Size()),
		`policy_service_bundle_loads_total{result="loaded"}`:                                                                   1,
	})
	if all["policy_service_log_commit_records_sum"] != all["policy_service_log_records_total"] || all["policy_service_log_commit_size_bytes_sum"] < 4500 || all["policy_service_log_disk_bytes"] == 0 {
		t.Errorf("commits have %v records of %v, and %v bytes", all["policy_service_log_commit_records_sum"], all["policy_service_log_records_total"], all["policy_service_log_commit_size_bytes_sum"])
	}
}

// Neither callers nor requests can make series: only tenants of the bundle do, and of those
// the first hundred.
// No name is one that Prometheus keeps for something else, and each instance says which
// one it is, the same in all its life.
func TestMetricsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	s, other := pdptest.Start(t, telling(), withData(t.TempDir())), pdptest.Start(t, telling())
	s.Post(evaluationPath, readQuestion)
	text := s.Get("/metrics").Body
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if !strings.Contains(text, "\ngo_goroutines ") && !strings.Contains(text, "\ngo_goroutines{") {
		t.Error("the number of goroutines is missing")
	}
	instance := regexp.MustCompile(`target_info\{[^}]*service_instance_id="([0-9a-f-]{36})"`)
	one, again, two := instance.FindStringSubmatch(text), instance.FindStringSubmatch(s.Get("/metrics").Body), instance.FindStringSubmatch(other.Get("/metrics").Body)
	if one == nil || two == nil || again == nil || one[1] == two[1] || one[1] != again[1] {
		t.Errorf("instances are %v, %v and another %v", one, again, two)
	}
}

func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.cedar": "permit(principal is user, action, resource);"}
	for n := range 150 {
		files[fmt.Sprintf("tenants/t%d/a.cedar", n)] = fmt.Sprintf("@id(\"p%d\") permit(principal is user, action, resource);", n)
	}
	s := pdptest.Start(t, pdptest.Bundle(files))
	drive := func(round int) {
		for n := range 150 {
			question := strings.NewReplacer("alice", fmt.Sprint("u", round, n), "plan", fmt.Sprint("d", round, n)).Replace(readQuestion)
			s.Post(fmt.Sprintf("/tenants/t%d%s", n, evaluationPath), question, "X-Request-ID", fmt.Sprint("r", round, n))
			s.Post(fmt.Sprintf("/tenants/none-%d-%d%s", round, n, evaluationPath), question)
			s.Get(fmt.Sprintf("/%d/%d", round, n))
		}
	}
	series := func() []string { return slices.Sorted(maps.Keys(counted(t, s.Get("/metrics").Body))) }
	series() // which makes one of its own
	drive(1)
	first := series()
	drive(2)
	if second := series(); !slices.Equal(first, second) {
		t.Errorf("%d series became %d", len(first), len(second))
	}
	tenants := map[model.LabelValue]bool{}
	for _, sample := range samples(t, s.Get("/metrics").Body) {
		if tenant, there := sample.Metric["tenant"]; there {
			tenants[tenant] = true
		}
	}
	if len(tenants) != 101 || !tenants["other"] {
		t.Errorf("%d tenants are told apart, with other: %v", len(tenants), tenants["other"])
	}
	if got := counted(t, s.Get("/metrics").Body)[`policy_service_decisions_total{decision="allow", reason="policy", tenant="other"}`]; got != 100 {
		t.Errorf("%v decisions of others, want those of 50 tenants in two rounds", got)
	}
}

// Metrics are of all tenants, and for those who may see the details of /readyz.
func TestWhoMaySeeMetrics(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	watcher := addKey(t, data, "watcher", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Explain}})
	pep := addKey(t, data, "pep", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}})
	one := addKey(t, data, "one", auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Explain}})
	s := pdptest.Start(t, telling(), withData(data))
	for credential, want := range map[string]int{watcher: 200, pep: 403, one: 403, "": 401, "Bearer psk_no": 401, "Basic x": 401, "Bearer a.b.c": 401} {
		got := s.Get("/metrics", "Authorization", credential)
		if got.Status != want || strings.Contains(got.Body, "policy_service_") != (want == 200) {
			t.Errorf("%q: got %d, want %d", credential, got.Status, want)
		}
	}
	s.Get("/readyz", "Authorization", "Bearer psk_no") // a place to guess at as well
	s.Get("/readyz")                                   // what every probe does is no failure
	wantCounted(t, counted(t, s.Get("/metrics", "Authorization", watcher).Body), map[string]float64{
		`policy_service_credentials_refused_total{credential="none"}`:  1,
		`policy_service_credentials_refused_total{credential="key"}`:   3,
		`policy_service_credentials_refused_total{credential="other"}`: 1,
		`policy_service_http_refused_total{reason="unauthenticated"}`:  4,
		`policy_service_http_refused_total{reason="forbidden"}`:        2,
	})
}

// A program around the service that takes what is counted shows it itself.
func TestMetricsOfAnEmbeddingProgram(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, telling(), func(c *server.Config) { c.Program.MeterProvider = noop.NewMeterProvider() })
	if got := s.Get("/metrics"); got.Status != http.StatusNotFound || s.MetricsHandler() != nil {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if s := pdptest.Start(t, telling()); s.MetricsHandler() == nil {
		t.Error("there is no handler to mount elsewhere")
	}
}

// What retention took from a segment is counted.
func TestMetricsOfRetention(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, telling(), withData(t.TempDir()), func(c *server.Config) {
		server.TuneLog(c, func(o *decisionlog.Options, keep *decisionlog.Retention) { o.SegmentBytes, keep.Bytes = 64<<10, 1 })
	})
	for n := range 20 {
		note(t, s, fmt.Sprintf("note-%03d-%s", n, strings.Repeat("x", 16<<10)))
	}
	eventually(t, "it is counted", func() bool {
		all := counted(t, s.Get("/metrics").Body)
		return all["policy_service_log_retention_records_total"] > 0
	})
}
