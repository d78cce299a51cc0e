package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.etcd.io/bbolt"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/telemetry"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/witnesstest"
	"policy-service/pdp/pdptest/written"
)

const deployDir = "../../../cmd/policy-service/deploy"

// scrape reads the metrics of the replicas.
func (g *group) scrape() (all model.Vector) {
	for _, one := range g.all {
		all = append(all, scrapeAs(g.t, g.key["auditor"], one.URL)...)
	}
	return all
}

// alerts are the expressions of the alert rules, by name.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, "alerts.yaml"))
	must(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr string
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	must(t, decoder.Decode(&file))
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || all[r.Alert] != "" {
				t.Errorf("a rule needs a name of its own, a severity and a summary: %+v", r)
			}
			if _, err := model.ParseDuration(r.For); r.For != "" && err != nil {
				t.Error(err)
			}
			all[r.Alert] = r.Expr
		}
	}
	return all
}

// scrape reads the metrics of servers as Prometheus does, which adds whose they are, and
// whether there was an answer.
func scrape(t *testing.T, urls ...string) (all model.Vector) { return scrapeAs(t, "", urls...) }

func scrapeAs(t *testing.T, credential string, urls ...string) (all model.Vector) {
	t.Helper()
	for n, url := range urls {
		target := model.Metric{"job": "policy-service", "instance": model.LabelValue(fmt.Sprint(n))}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
		must(t, err)
		if credential != "" {
			r.Header.Set("Authorization", credential)
		}
		up := &model.Sample{Metric: model.Metric{model.MetricNameLabel: "up"}}
		answer, err := ownClient().Do(r)
		if err == nil {
			text, err := io.ReadAll(answer.Body)
			must(t, err)
			if _ = answer.Body.Close(); answer.StatusCode != 200 {
				t.Fatalf("got %d %s", answer.StatusCode, text)
			}
			all, up.Value = append(all, samples(t, string(text))...), 1
		}
		all = append(all, up)
		for _, s := range all {
			if s.Metric["instance"] == "" {
				s.Metric["job"], s.Metric["instance"] = target["job"], target["instance"]
			}
		}
	}
	return all
}

func samples(t *testing.T, text string) model.Vector {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	must(t, err)
	var all model.Vector
	for _, name := range slices.Sorted(maps.Keys(families)) {
		some, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, families[name])
		must(t, err)
		all = append(all, some...)
	}
	return all
}

// troubles are how to bring about what each alert is for: what was scraped before it, and
// while it is there.
var troubles = map[string]func(t *testing.T) (before, after model.Vector){
	"PolicyServiceDown": func(t *testing.T) (before, after model.Vector) {
		s := pdptest.Start(t, telling())
		before = scrape(t, s.URL)
		stopAndWait(t, s)
		return before, scrape(t, s.URL)
	},
	"PolicyServiceLogFailing": fullDisk,
	"PolicyServiceUnanswered": fullDisk,
	"PolicyServiceLogFull": func(t *testing.T) (before, after model.Vector) {
		s := pdptest.Start(t, telling(), withData(t.TempDir()), func(c *server.Config) {
			server.TuneLog(c, func(_ *decisionlog.Options, keep *decisionlog.Retention) {
				*keep = decisionlog.Retention{Bytes: 256 << 10, LeastAge: time.Hour, Share: 1}
			})
		})
		before = scrape(t, s.URL)
		for n, answer := 0, (pdptest.Response{Status: 200}); n < 100 && answer.Status == 200; n++ {
			answer = s.Post(evaluationPath, one(16<<10))
		}
		return before, scrape(t, s.URL)
	},
	"PolicyServiceRecordsDropped": func(t *testing.T) (before, after model.Vector) {
		c := startChild(t, decisionlog.BestEffort)
		before = scrape(t, c.url)
		c.limit(0)
		eventually(t, "records are dropped", func() bool {
			c.ask(evaluationPath, readQuestion)
			after = scrape(t, c.url)
			return value(after, "policy_service_log_dropped_total") > 0
		})
		c.limit(unix.RLIM_INFINITY)
		return before, after
	},
	"PolicyServiceSlow":    slowly,
	"PolicyServiceLogSlow": slowly,
	"PolicyServiceLogBehind": func(t *testing.T) (before, after model.Vector) {
		var stuck atomic.Bool
		var later atomic.Int64
		stands, goOn := make(chan struct{}), make(chan struct{})
		s := pdptest.Start(t, telling(), withData(t.TempDir()), func(c *server.Config) {
			c.Program.PDP.Now = func() time.Time { return pdptest.Now.Add(time.Duration(later.Load())) }
			server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) {
				o.Checkpoints.Idle = time.Millisecond
				made := o.On.Checkpoint
				o.On.Checkpoint = func(note []byte) { // the writer waits until it returns
					if made(note); stuck.CompareAndSwap(true, false) {
						close(stands)
						<-goOn
					}
				}
			})
		})
		defer close(goOn)
		before = scrape(t, s.URL)
		stuck.Store(true)
		s.Post(evaluationPath, readQuestion)
		<-stands
		s.Post(evaluationPath, readQuestion) // is answered, and waits in the journal
		later.Store(int64(time.Minute))
		after = scrape(t, s.URL)
		if n, size := value(after, "policy_service_log_journal_records"), value(after, "policy_service_log_size"); n < 1 || size != value(before, "policy_service_log_size")+2 {
			t.Errorf("%v of %v records wait in the journal", n, size)
		}
		return before, after
	},
	"PolicyServiceBundleRefused": func(t *testing.T) (before, after model.Vector) {
		dir := t.TempDir()
		writeAll(t, dir, map[string]string{"a.cedar": "permit(principal is user, action, resource);"})
		s := pdptest.Start(t, pdp.Dir(dir))
		before = scrape(t, s.URL)
		writeAll(t, dir, map[string]string{"a.cedar": "permit(principal is user, action, resource"})
		if err := s.Reload(t.Context()); err == nil {
			t.Error("it is not refused")
		}
		return before, scrape(t, s.URL)
	},
	"PolicyServiceTenantUnavailable": func(t *testing.T) (before, after model.Vector) {
		dir := t.TempDir()
		writeAll(t, dir, map[string]string{"a.cedar": "permit(principal is user, action, resource);", "tenants/acme/b.cedar": "forbid("})
		s := pdptest.Start(t, pdp.Dir(dir))
		after = scrape(t, s.URL)
		writeAll(t, dir, map[string]string{"tenants/acme/b.cedar": "forbid(principal, action, resource);"})
		if err := s.Reload(t.Context()); err != nil {
			t.Error(err)
		}
		return scrape(t, s.URL), after
	},
	"PolicyServiceBundlesDiffer": func(t *testing.T) (before, after model.Vector) {
		one, same, other := pdptest.Start(t, telling()), pdptest.Start(t, telling()), pdptest.Start(t, obliging())
		return scrape(t, one.URL, same.URL), scrape(t, one.URL, other.URL)
	},
	"PolicyServiceRetentionFailing": func(t *testing.T) (before, after model.Vector) {
		data := t.TempDir()
		s := pdptest.Start(t, telling(), withData(data), func(c *server.Config) {
			server.TuneLog(c, func(o *decisionlog.Options, keep *decisionlog.Retention) { o.SegmentBytes, keep.Bytes = 64<<10, 1 })
		})
		before = scrape(t, s.URL)
		must(t, os.Mkdir(filepath.Join(data, format.LogDir, "00000001.db.1.next"), 0o700)) // it cannot be finished, nor passed over
		return before, untilSealed(t, s, "policy_service_log_retention_failures_total")
	},
	"PolicyServiceLogUnsigned": func(t *testing.T) (before, after model.Vector) {
		data := t.TempDir()
		addKey(t, data, "pep", auth.Grant{})
		file, token := filepath.Join(t.TempDir(), "token"), strings.Repeat("t0ken-", 6) // no API key outlives such damage
		must(t, os.WriteFile(file, []byte(token), 0o600))
		s := pdptest.Start(t, telling(), withData(data), withToken(file))
		before = scrapeAs(t, "Bearer "+token, s.URL)
		stopAndWait(t, s)
		db, err := bbolt.Open(filepath.Join(data, format.LogDir, "00000001.db"), 0o600, nil)
		must(t, err)
		must(t, db.Update(func(tx *bbolt.Tx) error { // the last checkpoint is gone, and with it what vouches for the records
			signed := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor()
			if k, _ := signed.Last(); k == nil {
				t.Error("there is no checkpoint")
			}
			return errors.Join(signed.Delete(), tx.Bucket([]byte(format.BucketMeta)).Put([]byte(format.MetaHead), []byte("no head")))
		}))
		must(t, db.Close())
		return before, scrapeAs(t, "Bearer "+token, pdptest.Start(t, telling(), withData(data), withToken(file)).URL)
	},
	"PolicyServiceStateUnusable": func(t *testing.T) (before, after model.Vector) {
		g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
		g.hurry(0)
		before = g.scrape()
		g.net[0].Cut()
		eventually(t, "it cannot be used", func() bool {
			after = g.scrape()
			return value(after, "policy_service_cluster_ok") == 0
		})
		return before, after
	},
	"PolicyServiceClocksDiffer": func(t *testing.T) (before, after model.Vector) {
		g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
		before = g.scrape()
		g.add().Advance(time.Minute)
		eventually(t, "they differ", func() bool {
			after = g.scrape()
			return value(after, "policy_service_cluster_clock_skew_seconds") > 2
		})
		return before, after
	},
	"PolicyServiceEtcdFilling": func(t *testing.T) (before, after model.Vector) {
		etcd := etcdtest.Start(t, etcdtest.Options{Members: 1, Quota: 64 << 20})
		g := openGroup(t, 1, etcd)
		before = g.scrape()
		fillEtcd(t, etcd)
		eventually(t, "it is full", func() bool {
			after = g.scrape()
			return value(after, "policy_service_cluster_full") == 1
		})
		return before, after
	},
	"PolicyServiceQuorumMissing": func(t *testing.T) (before, after model.Vector) {
		var later atomic.Int64
		option, witnesses := witnessed(t, "", 1, 1)
		s := pdptest.Start(t, telling(), option, func(c *server.Config) {
			c.Program.PDP.Now = func() time.Time { return pdptest.Now.Add(time.Duration(later.Load())) }
		})
		before = scrape(t, s.URL)
		witnesses[0].Lie(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
		eventually(t, "the quorum is missing", func() bool {
			later.Add(int64(time.Minute)) // a round may be under way that has it still
			after = scrape(t, s.URL)
			return value(after, "policy_service_log_witness_missing") > 0
		})
		return before, after
	},
	"PolicyServiceWitnessSuspect": func(t *testing.T) (before, after model.Vector) {
		option, witnesses := witnessed(t, "", 1, 1)
		s := pdptest.Start(t, telling(), option)
		before = scrape(t, s.URL)
		witnesses[0].Lie(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity) })
		eventually(t, "it is a suspect", func() bool {
			after = scrape(t, s.URL)
			return value(after, "policy_service_log_witness_suspects") > 0
		})
		return before, after
	},
	"PolicyServiceLogForked": func(t *testing.T) (before, after model.Vector) {
		s, _ := fork(t, func(s *pdptest.Server) { before = scrape(t, s.URL) }, func(c *server.Config, w *witnesstest.Witness) {
			c.DecisionLog.Witnesses.Monitoring = map[string]string{"w1": w.URL}
		})
		eventually(t, "it is a conflict", func() bool {
			after = scrape(t, s.URL)
			return value(after, "policy_service_log_witness_conflict") > 0
		})
		return before, after
	},
	"PolicyServiceKeyRefused": func(t *testing.T) (before, after model.Vector) {
		data := t.TempDir()
		addKey(t, data, "pep", auth.Grant{})
		prometheus := addKey(t, data, "prometheus", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Explain}})
		old := keyFile(t, data)
		s := pdptest.Start(t, telling(), withData(data))
		before = scrapeAs(t, prometheus, s.URL)
		revokeKey(t, data, "pep")
		eventually(t, "it is on record", func() bool { scrapeAs(t, prometheus, s.URL); return s.Recorded("api_key_revoked") })
		keyFile(t, data, old)
		eventually(t, "it is refused", func() bool {
			after = scrapeAs(t, prometheus, s.URL)
			return value(after, "policy_service_keys_refused") > 0
		})
		return before, after
	},
	"PolicyServiceGatewayUndecided": func(t *testing.T) (before, after model.Vector) {
		shown, err := telemetry.Open(t.Context(), telemetry.Options{Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		meters, _ := shown.Providers()
		const resource = "http://127.0.0.1:8181/mcp"
		g, err := mcp.New(t.Context(), mcp.Config{
			Resource: resource, Identity: mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice"}},
			PDP:       mcp.PDPConfig{URL: "http://127.0.0.1:1"}, // nothing listens there
			Upstreams: map[string]mcp.UpstreamConfig{"files": {URL: "http://127.0.0.1:1", AllowNetworks: []string{"127.0.0.0/8"}}},
		}, mcp.Deps{MeterProvider: meters})
		must(t, err)
		t.Cleanup(func() { must(t, g.Close()) })
		see := func() model.Vector {
			answer := httptest.NewRecorder()
			shown.Scrape.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return samples(t, answer.Body.String())
		}
		before = see()
		for range 60 { // the circuit breaker opens soon, and is a reason of its own
			r := httptest.NewRequest(http.MethodPost, resource, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			g.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
		return before, see()
	},
	"PolicyServiceCertificateExpires": func(t *testing.T) (before, after model.Vector) {
		a := pdptest.NewAuthority(t)
		a.Lifetime = 13 * 24 * time.Hour
		return nil, overTLS(t, a)
	},
	"PolicyServiceIndexFailing": func(t *testing.T) (before, after model.Vector) {
		data := t.TempDir()
		must(t, os.Mkdir(filepath.Join(data, format.LogDir), 0o700))
		must(t, os.WriteFile(filepath.Join(data, index.Dir), nil, 0o600)) // it is to be a directory
		s := pdptest.Start(t, telling(), withData(data), func(c *server.Config) {
			server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) { o.SegmentBytes = 64 << 10 })
		})
		before = scrape(t, s.URL)
		return before, untilSealed(t, s, "policy_service_log_index_failures_total")
	},
	"PolicyServiceSinkDropped": func(t *testing.T) (before, after model.Vector) {
		refusing := make(chan struct{})
		newReceiver(t).answers(func(w http.ResponseWriter, _ int) bool {
			<-refusing
			w.WriteHeader(http.StatusBadRequest)
			return false
		})
		s := pdptest.Start(t, telling(), withData(t.TempDir()), withOTLP(0))
		before = scrape(t, s.URL)
		close(refusing)
		eventually(t, "records are left out", func() bool {
			s.Post(evaluationPath, readQuestion)
			after = scrape(t, s.URL)
			return value(after, "policy_service_sink_dropped_total") > 0
		})
		return before, after
	},
	"PolicyServicePolicyErrors": afterAsking(pdptest.Bundle(map[string]string{"a.cedar": `permit(principal is user, action, resource) when { context.missing == 1 };`}), 1, readQuestion),
	"PolicyServiceNothingApplies": func(t *testing.T) (before, after model.Vector) {
		s := pdptest.Start(t, telling())
		question := strings.Replace(readQuestion, `"read"`, `"nothing knows this"`, 1)
		s.Post(evaluationPath, question)
		before = scrape(t, s.URL)
		for range 10 {
			s.Post(evaluationPath, question)
		}
		return before, scrape(t, s.URL)
	},
	"PolicyServiceObligationsUnreported": afterAsking(obliging(), 1, strings.Replace(obligingQuestion, "ACTION", "read", 1)),
	"PolicyServiceObligationsFailed": func(t *testing.T) (before, after model.Vector) {
		s := pdptest.Start(t, obliging(), withData(t.TempDir()))
		before = scrape(t, s.URL)
		replied(t, s.Post(receiptPath(askFor(t, s, evaluationPath, "read")), reported("tell:failed")), 204)
		return before, scrape(t, s.URL)
	},
	"PolicyServiceCredentialsRefused": func(t *testing.T) (before, after model.Vector) {
		data := t.TempDir()
		watcher := addKey(t, data, "watcher", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Explain}})
		s := pdptest.Start(t, telling(), withData(data))
		before = scrapeAs(t, watcher, s.URL)
		for range 100 {
			replied(t, s.Post(evaluationPath, readQuestion, "Authorization", watcher[:len(watcher)-3]+"xxx"), 401)
		}
		return before, scrapeAs(t, watcher, s.URL)
	},
	"PolicyServiceLimitsHit": afterAsking(telling(), 100, strings.TrimSuffix(readQuestion, "}")+`,"context":`+strings.Repeat(`{"a":`, 20)+"1"+strings.Repeat("}", 20)+"}"),
}

// overTLS scrapes a server that has a certificate.
func overTLS(t *testing.T, a *pdptest.Authority) model.Vector {
	s := pdptest.Start(t, obliging(), withTLS(a))
	s.Trust(a)
	return samples(t, s.Get("/metrics").Body)
}

// afterAsking asks a server the same thing a number of times.
func afterAsking(source pdp.Source, times int, body string) func(t *testing.T) (before, after model.Vector) {
	return func(t *testing.T) (before, after model.Vector) {
		s := pdptest.Start(t, source)
		before = scrape(t, s.URL)
		for range times {
			s.Post(evaluationPath, body)
		}
		return before, scrape(t, s.URL)
	}
}

func fullDisk(t *testing.T) (before, after model.Vector) {
	c := startChild(t, decisionlog.Strict)
	before = scrape(t, c.url)
	c.limit(0)
	for range 5 {
		c.every(503)
	}
	after = scrape(t, c.url)
	c.limit(unix.RLIM_INFINITY)
	return before, after
}

// slowly asks a server for which everything that reads the clock takes longer than an alert allows for: the decision, and
// writing it down.
func slowly(t *testing.T) (before, after model.Vector) {
	var slow atomic.Bool
	s := pdptest.Start(t, telling(), withData(t.TempDir()), func(c *server.Config) {
		c.Program.PDP.Now = func() time.Time {
			if slow.Load() {
				<-time.After(slowAlert * 3 / 2)
			}
			return pdptest.Now
		}
	})
	s.Post(evaluationPath, readQuestion)
	before = scrape(t, s.URL)
	slow.Store(true)
	s.Post(evaluationPath, readQuestion)
	slow.Store(false)
	return before, scrape(t, s.URL)
}

// untilSealed asks so much that a segment is sealed, and until something was counted of it.
func untilSealed(t *testing.T, s *pdptest.Server, counter string) (after model.Vector) {
	for n := range 20 {
		note(t, s, fmt.Sprintf("note-%03d-%s", n, strings.Repeat("x", 16<<10)))
	}
	eventually(t, counter, func() bool { after = scrape(t, s.URL); return value(after, counter) > 0 })
	return after
}

// value is the sum of a metric.
func value(all model.Vector, name string) (sum float64) {
	for _, s := range all {
		if string(s.Metric[model.MetricNameLabel]) == name {
			sum += float64(s.Value)
		}
	}
	return sum
}

// Every alert fires when what it is for happens on a real server, and not before; and
// none is without a trouble that fires it.
func TestEveryAlertFires(t *testing.T) {
	all := alerts(t)
	for name := range troubles {
		if all[name] == "" {
			t.Errorf("there is no alert %s", name)
		}
	}
	for name, expression := range all {
		t.Run(name, func(t *testing.T) {
			trouble := troubles[name]
			if name != "PolicyServiceSinkDropped" { // which sets variables of the environment
				t.Parallel()
			}
			if trouble == nil {
				t.Fatal("nothing is known that fires it")
			}
			before, after := trouble(t)
			if name != "PolicyServiceNothingApplies" && len(evaluate(t, expression, before, before)) > 0 {
				t.Error("it fires before anything happened")
			}
			if len(evaluate(t, expression, before, after)) == 0 {
				t.Errorf("it does not fire: %s", expression)
			}
		})
	}
}

var health struct {
	once          sync.Once
	before, after model.Vector
	slowest       time.Duration
}

// healthy are two scrapes of a server to which nothing happens but what is meant to, and of
// another one like it; and how long the slowest answer took.
func healthy(t *testing.T) (before, after model.Vector, slowest time.Duration) {
	t.Helper()
	night.Other(t, "etcd") // before Do, which a test that is skipped would leave done
	h := &health
	h.once.Do(func() { h.before, h.after, h.slowest = scrapeHealthy(t) })
	return h.before, h.after, h.slowest
}

func scrapeHealthy(t *testing.T) (before, after model.Vector, slowest time.Duration) {
	options := []pdptest.Option{withData(t.TempDir()), func(c *server.Config) {
		c.Program.Checkpoints, c.DecisionLog.Sinks.Stdout = new(written.Text), &server.SinkConfig{}
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) { o.SegmentBytes = 64 << 10 })
	}}
	cosigned, _ := witnessed(t, "", 2, 1)
	s, other := pdptest.Start(t, obliging(), append(options, cosigned)...), pdptest.Start(t, obliging())
	watch := &stopwatch{to: http.DefaultTransport}
	s.Client = &http.Client{Transport: watch}
	drive := func() model.Vector {
		for range 20 {
			id := askFor(t, s, evaluationPath, "read")
			s.Post(receiptPath(id), reported("tell:discharged", "log:discharged"))
			s.Post(authorizePath, strings.Replace(nativeQuestion, `"read"`, `"look"`, 1))
			s.Post("/access/v1/search/action", readQuestion)
			s.Post("/tenants/acme"+evaluationPath, strings.Replace(readQuestion, `"read"`, `"nothing knows this"`, 1))
			s.Post("/tenants/acme"+evaluationPath, strings.Replace(obligingQuestion, "ACTION", "look", 1))
			s.Post("/tenants/acme"+evaluationPath, strings.Replace(obligingQuestion, "ACTION", "look", 1))
		}
		s.Post(evaluationPath, "{")
		s.Get("/v1/log/export")
		return scrape(t, s.URL, other.URL)
	}
	before, after = drive(), drive()
	after = append(after, overTLS(t, pdptest.NewAuthority(t))...)
	g, shared := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1})), model.Vector(nil)
	eventually(t, "the quota of etcd is known", func() bool {
		shared = g.scrape()
		return value(shared, "policy_service_cluster_etcd_quota_bytes") > 0
	})
	for _, one := range shared {
		if one.Metric[model.MetricNameLabel] != "policy_service_bundle_info" { // it has another bundle
			after = append(after, one)
		}
	}
	return before, after, watch.slowest
}

// stopwatch knows how long the slowest answer took.
type stopwatch struct {
	to      http.RoundTripper
	slowest time.Duration
}

func (s *stopwatch) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	defer func() { s.slowest = max(s.slowest, time.Since(began)) }()
	return s.to.RoundTrip(r)
}

// slowAlert is the least that an alert calls slow.
const slowAlert = 100 * time.Millisecond

// Nobody is woken by a server that is well, and every expression of the dashboard has
// something to show of it.
func TestHealthyServer(t *testing.T) {
	t.Parallel()
	before, after, slowest := healthy(t)
	for name, expression := range alerts(t) {
		if strings.HasSuffix(name, "Slow") && slowest > slowAlert {
			continue // the machine is not well, and it is right to fire
		}
		if fired := evaluate(t, expression, before, after); len(fired) > 0 {
			t.Errorf("%s fires: %v", name, fired)
		}
	}
	there := map[string]bool{}
	for _, s := range after {
		there[string(s.Metric[model.MetricNameLabel])] = true
	}
	named := regexp.MustCompile(`\b(policy_service|go)_\w+`)
	expressions := dashboard(t)
	for _, expression := range expressions {
		if len(onPanel(t, expression, ".*", ".*", before, after)) == 0 {
			t.Errorf("the dashboard has nothing to show for %s", expression)
		}
	}
	for _, expression := range alerts(t) {
		expressions = append(expressions, expression)
	}
	for _, expression := range expressions {
		for _, name := range named.FindAllString(expression, -1) {
			if !there[name] && !strings.HasPrefix(name, "policy_service_mcp_") { // a gateway has those
				t.Errorf("there is no metric %s, which stands in %s", name, expression)
			}
		}
	}
	if len(expressions) < 50 {
		t.Errorf("only %d expressions were found", len(expressions))
	}
}

// onPanel is what a panel shows while its variables have these values, as Grafana puts them in.
func onPanel(t *testing.T, expression, instance, tenant string, before, after model.Vector) model.Vector {
	t.Helper()
	return evaluate(t, strings.NewReplacer("$__rate_interval", "5m", "$instance", instance, "$tenant", tenant).Replace(expression), before, after)
}

// Each panel shows the chosen instances, and what is counted by tenant it shows of the chosen tenants.
func TestDashboardVariables(t *testing.T) {
	t.Parallel()
	before, after, _ := healthy(t)
	byTenant := map[string]bool{}
	for _, s := range after {
		if s.Metric["tenant"] != "" {
			byTenant[string(s.Metric[model.MetricNameLabel])] = true
		}
	}
	if !byTenant["policy_service_decisions_total"] {
		t.Error("nothing is counted by tenant")
	}
	metric := regexp.MustCompile(`\b(?:policy_service|go)_\w+`)
	for _, expression := range dashboard(t) {
		if got := onPanel(t, expression, "elsewhere", ".*", before, after); len(got) > 0 {
			t.Errorf("%s shows %v of an instance that is not chosen", expression, got)
		}
		if name := metric.FindString(expression); byTenant[name] && len(onPanel(t, expression, ".*", "elsewhere", before, after)) > 0 {
			t.Errorf("%s shows a tenant that is not chosen", expression)
		}
		if len(onPanel(t, expression, "0", "default|acme", before, after)) == 0 {
			t.Errorf("%s shows nothing of the instance and the tenants that are chosen", expression)
		}
	}
	values := map[string]string{}
	for _, v := range board(t).Templating.List {
		values[v.Name] = v.Definition
	}
	for _, name := range []string{"instance", "tenant"} {
		list := regexp.MustCompile(`^label_values\((.+), ` + name + `\)$`).FindStringSubmatch(values[name])
		if list == nil {
			t.Errorf("$%s is not the values of a label: %q", name, values[name])
		} else if found := onPanel(t, list[1], ".*", ".*", before, after); len(found) == 0 || found[0].Metric[model.LabelName(name)] == "" {
			t.Errorf("$%s has no value: %v", name, found)
		}
	}
}

type grafana struct {
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		Title   string
		Type    string
		Targets []struct{ Expr string }
	}
}

func board(t *testing.T) (file grafana) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, "grafana-dashboard.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &file))
	return file
}

// dashboard are the expressions of all panels.
func dashboard(t *testing.T) (all []string) {
	t.Helper()
	for _, p := range board(t).Panels {
		if p.Title == "" || len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("a panel shows nothing: %+v", p)
		}
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}
