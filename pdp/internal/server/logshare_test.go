package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// shared is a server whose log holds a few megabytes, and whose clock a test sets. There
// are two callers, each in a tenant of its own.
type shared struct {
	*pdptest.Server
	t              *testing.T
	data           string
	victim, greedy string
	gateway        string // asks for many
	others         []string
	watcher        string        // sees metrics and the state
	later          *atomic.Int64 // since the start
}

const (
	sharedBytes = 4 << 20
	sharedShare = sharedBytes / 4
)

func startShared(t *testing.T) *shared {
	t.Helper()
	s := &shared{t: t, data: t.TempDir(), later: new(atomic.Int64)}
	s.greedy = addKey(t, s.data, "greedy", auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide, auth.Search}})
	s.victim = addKey(t, s.data, "victim", auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.Decide}})
	for n := range 4 {
		s.others = append(s.others, addKey(t, s.data, fmt.Sprint("other", n), auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}}))
	}
	s.gateway = addKey(t, s.data, "gateway", auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Relay}})
	s.watcher = addKey(t, s.data, "watcher", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Explain}})
	s.start(s.data)
	return s
}

// start runs a server on a data directory, which may be a copy of the other's.
func (s *shared) start(data string) {
	s.t.Helper()
	s.Server = pdptest.Start(s.t, telling(), withData(data), func(c *server.Config) {
		c.Program.PDP.Now = func() time.Time { return pdptest.Now.Add(time.Duration(s.later.Load())) }
		c.Program.PDP.NewID = nil
		server.TuneLog(c, func(o *decisionlog.Options, keep *decisionlog.Retention) {
			o.SegmentBytes = 256 << 10
			*keep = decisionlog.Retention{Bytes: sharedBytes, LeastAge: time.Hour, Share: 0.25, SharePerson: 1. / 16}
		})
	})
	s.BePatient(patience, patience)
}

// again stops the server, and starts another one.
func (s *shared) again() {
	s.t.Helper()
	stopAndWait(s.t, s.Server)
	s.start(s.data)
}

// one is a question with so many bytes that are recorded.
func one(bytes int) string {
	return strings.TrimSuffix(readQuestion, "}") + `,"context":{"note":"` + strings.Repeat("x", bytes) + `"}}`
}

// floodItems of floodItem bytes are recorded of each request of a flood.
const floodItems, floodItem = 20, 8 << 10

// flood asks on 64 connections in a closed loop until each was refused, or twice what the
// log may have was answered. It returns how many requests were, and the last refusal.
func (s *shared) flood(credential string) (answered int64, last pdptest.Response) {
	s.t.Helper()
	body := `{"evaluations":[` + strings.TrimSuffix(strings.Repeat(one(floodItem)+",", floodItems), ",") + `]}`
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 64 {
		all.Go(func() {
			for {
				got := s.Post("/access/v1/evaluations", body, "Authorization", credential)
				mu.Lock()
				if got.Status == http.StatusOK {
					answered++
				} else {
					last = got
				}
				enough := got.Status != http.StatusOK || answered > 2*sharedBytes/(floodItems*floodItem) // it is never refused
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	all.Wait()
	return answered, last
}

// asks has the victim ask, and wants a status.
func (s *shared) asks(want int) pdptest.Response {
	s.t.Helper()
	got := s.Post("/tenants/acme"+evaluationPath, readQuestion, "Authorization", s.victim)
	if got.Status != want {
		s.t.Fatalf("the victim gets %d %s, want %d", got.Status, got.Body, want)
	}
	return got
}

// recorded is how many records with content there are of a caller, and the bytes of their
// lines.
func (s *shared) recorded(caller string) (records int, bytes int64) {
	s.t.Helper()
	for r, err := range s.Log().Records(context.Background(), 0, s.Log().Size()) {
		must(s.t, err)
		var of struct {
			Caller string `json:"caller"`
		}
		if r.Line != nil && json.Unmarshal(r.Line, &of) == nil && of.Caller == caller {
			records, bytes = records+1, bytes+int64(len(r.Line))
		}
	}
	return records, bytes
}

// refused wants a refusal with a Retry-After, and returns that.
func (s *shared) refused(got pdptest.Response, status int) time.Duration {
	s.t.Helper()
	after, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if got.Status != status || err != nil || after < 1 || after > 3600 || got.Header.Get("X-Decision-Id") != "" {
		s.t.Fatalf("got %d %v %s, want %d with Retry-After", got.Status, got.Header, got.Body, status)
	}
	return time.Duration(after) * time.Second
}

// crashed is the data directory as it would be found after a crash now.
func (s *shared) crashed() string {
	s.t.Helper()
	copied := s.t.TempDir()
	for name, content := range photographed(s.t, s.data) {
		path := filepath.Join(copied, filepath.FromSlash(name))
		must(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(s.t, os.WriteFile(path, content, 0o600))
	}
	return copied
}

// One caller with 64 connections fills its share of the log and no more, whatever is
// restarted, and no record of anybody else's goes for it before its time.
func TestOneCallerCannotRetireEverybodysRecords(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	const before = 100
	for range before {
		s.asks(http.StatusOK)
	}
	answered, last := s.flood(s.greedy)
	s.refused(last, http.StatusTooManyRequests)
	// One request may go beyond the share, which is of what is on disk: lines and some more.
	request := int64(floodItems * (floodItem + 1<<10))
	bounded := func() {
		t.Helper()
		if _, bytes := s.recorded("key:greedy"); bytes > sharedShare+request || bytes < sharedShare/2 || answered == 0 {
			t.Errorf("%d requests put %d bytes on record, of a share of %d", answered, bytes, sharedShare)
		}
	}
	bounded()
	if got := s.Log().Status().Recent; got > sharedShare+2*request+256<<10 {
		t.Errorf("the log has %d bytes", got)
	}
	whole := func() {
		t.Helper()
		if records, _ := s.recorded("key:victim"); records < before || s.Recorded("segments_retired") {
			t.Errorf("of %d records %d are left", before, records)
		}
	}
	whole()
	s.asks(http.StatusOK)
	inActive := s.crashed()
	answered += s.settle()
	bounded()
	settled := s.crashed()

	s.again() // in good order
	s.nothingMore("a restart")
	whole()
	s.asks(http.StatusOK)
	stopAndWait(t, s.Server)

	s.start(settled) // and not
	s.nothingMore("a crash")
	whole()
	s.asks(http.StatusOK)
	s.limits("log_share", 64)
	stopAndWait(t, s.Server)

	s.start(inActive) // nor is forgotten what the segment holds that was written to
	s.flood(s.greedy)
	s.again()
	s.flood(s.greedy)
	bounded()
	whole()
}

// asksFor has the gateway ask for one, until it is refused or that would be too much. It returns how many bytes were put on
// record, and the refusal.
func (s *shared) asksFor(one string) (bytes int64, last pdptest.Response) {
	s.t.Helper()
	for bytes < sharedBytes {
		last = s.Post(evaluationPath, one, "Authorization", s.gateway)
		if last.Status != http.StatusOK {
			return bytes, last
		}
		bytes += int64(len(one))
	}
	s.t.Fatal("it is never refused")
	return bytes, last
}

// ofPerson is a question for a person, by a subject.
func ofPerson(person, subject string) string {
	question := strings.Replace(one(8<<10), `"alice"`, strconv.Quote(subject), 1)
	if person == "" {
		return question
	}
	return strings.Replace(question, `"context":{`, `"context":{"person":"`+evaluation.PersonOf("https://id.example", person)+`",`, 1)
}

// A person who asks through a gateway fills a share of their own, by however many agents, and keeps nobody else behind the
// gateway from asking. All of them together leave as much to others as one party may.
func TestOnePersonCannotFillTheShareOfAGateway(t *testing.T) {
	t.Parallel()
	const whose = "the one for whom this caller asks"
	s := startShared(t)
	n, filled := 0, int64(0)
	mallory := func() {
		t.Helper()
		for ; filled < sharedBytes; filled += 8 << 10 {
			n++
			got := s.Post(evaluationPath, ofPerson("mallory", fmt.Sprint("agent-", n)), "Authorization", s.gateway)
			if got.Status == http.StatusOK {
				continue
			}
			if s.refused(got, http.StatusTooManyRequests); !strings.Contains(got.Body, whose) {
				t.Errorf("it does not say whose: %s", got.Body)
			}
			break
		}
		if filled < sharedBytes/32 || filled > sharedBytes/16 {
			t.Errorf("one person put %d bytes on record, of a share of %d", filled, sharedBytes/16)
		}
	}
	mallory()
	others := func(after string) {
		t.Helper()
		for name, body := range map[string]string{
			"another person": ofPerson("alice", "agent-1"), "an agent of nobody": ofPerson("", "agent-1"),
			"in a batch": `{"evaluations":[` + ofPerson("alice", "a") + `,` + ofPerson("alice", "b") + `]}`,
		} {
			path := evaluationPath
			if strings.HasPrefix(body, `{"evaluations"`) {
				path = "/access/v1/evaluations"
			}
			if got := s.Post(path, body, "Authorization", s.gateway); got.Status != http.StatusOK {
				t.Errorf("after %s, %s gets %d %s", after, name, got.Status, got.Body)
			}
		}
		mallory()
		s.asks(http.StatusOK)
	}
	others("that")
	s.again()
	others("a restart")
	s.limits("log_person", 1)

	for person := 0; ; person++ { // until all of them have as much as one party may
		if person > 40 {
			t.Fatal("they are never refused")
		}
		_, last := s.asksFor(ofPerson(fmt.Sprint("p", person), "agent"))
		if s.refused(last, http.StatusTooManyRequests); !strings.Contains(last.Body, whose) {
			break
		}
	}
	if _, bytes := s.recorded("key:gateway"); bytes < sharedBytes/4 || bytes > sharedBytes*11/20 {
		t.Errorf("all for whom it asks put %d bytes on record, of %d", bytes, sharedBytes)
	}
	s.asks(http.StatusOK)
	stopAndWait(t, s.Server)
}

// settle has others write until all that greedy has stands in sealed segments, and is still all that it may have. Only
// then is it known to the byte what that takes: in the segment that is written to it is an estimate, above what it comes
// to. It returns how many requests of greedy were answered on the way.
func (s *shared) settle() (answered int64) {
	s.t.Helper()
	for {
		segments := s.Log().Status().Segments
		for n := 0; s.Log().Status().Segments == segments; n++ {
			got := s.Post(evaluationPath, one(floodItem), "Authorization", s.others[n%len(s.others)])
			if got.Status != http.StatusOK {
				s.t.Fatalf("another caller gets %d %s", got.Status, got.Body)
			}
		}
		more, last := s.flood(s.greedy)
		s.refused(last, http.StatusTooManyRequests)
		if more == 0 {
			return answered
		}
		answered += more
	}
}

// nothingMore wants greedy to be refused from its first request on.
func (s *shared) nothingMore(after string) {
	s.t.Helper()
	answered, last := s.flood(s.greedy)
	if s.refused(last, http.StatusTooManyRequests); answered > 0 {
		s.t.Errorf("after %s %d more were answered", after, answered)
	}
}

// limits wants so many refusals, at least, to be counted by a word.
func (s *shared) limits(word string, least float64) {
	s.t.Helper()
	counted := 0.0
	for _, sample := range scrapeAs(s.t, s.watcher, s.URL) {
		if sample.Metric["__name__"] == "policy_service_requests_limited_total" && string(sample.Metric["limit"]) == word {
			counted += float64(sample.Value)
		}
	}
	if counted < least {
		s.t.Errorf("%v were counted as %s, want %v", counted, word, least)
	}
}

// What is old enough goes, and then its caller may write again; content on disk never is
// more than the log may have, a segment, and what was on its way.
func TestSharesAreGivenBackWithTime(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	for round := range 6 {
		segments := s.Log().Status().Segments
		answered, last := s.flood(s.greedy)
		after := s.refused(last, http.StatusTooManyRequests)
		if answered == 0 {
			t.Fatalf("in round %d nothing was answered", round)
		}
		if disk := s.onDisk(); disk > sharedBytes+2<<20 {
			t.Errorf("in round %d there are %d bytes of content", round, disk)
		}
		eventually(t, "what was written is sealed", func() bool { return s.Log().Status().Segments > segments })
		s.later.Add(int64(after + time.Second)) // as it was told
		if got := s.Post(evaluationPath, one(1), "Authorization", s.greedy); got.Status != http.StatusOK {
			t.Fatalf("in round %d, after %v: got %d %s", round, after, got.Status, got.Body)
		}
		s.later.Add(int64(time.Hour + time.Minute))
	}
	eventually(t, "what is old and too much is dropped", func() bool { return s.Recorded("segments_retired") && s.onDisk() <= sharedBytes+512<<10 })
}

// onDisk is what lines take that have content.
func (s *shared) onDisk() (bytes int64) {
	for r, err := range s.Log().Records(context.Background(), 0, s.Log().Size()) {
		must(s.t, err)
		bytes += int64(len(r.Line))
	}
	return bytes
}

// Where all shares are used nobody is decided for, and everybody can see why; when time
// has passed it goes on by itself.
func TestLogFullOfYoungRecordsRefusesAll(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	s.asks(http.StatusOK)
	if got := s.Get("/readyz", "Authorization", s.watcher); got.Status != http.StatusOK || strings.Contains(got.Body, "full") {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	var last pdptest.Response
	for _, pep := range append(s.others, s.greedy) {
		_, last = s.flood(pep)
	}
	full := s.refused(last, http.StatusServiceUnavailable)
	s.refused(s.asks(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
	replied(t, s.Get("/readyz", "Authorization", s.watcher), http.StatusServiceUnavailable, `"status":"unavailable"`, `"full":true`)
	metrics := scrapeAs(t, s.watcher, s.URL)
	if value(metrics, "policy_service_log_full") != 1 || value(metrics, "policy_service_log_recent_bytes") < sharedBytes {
		t.Error("the metrics do not say it")
	}
	s.limits("log_full", 1)
	s.again()
	s.refused(s.asks(http.StatusServiceUnavailable), http.StatusServiceUnavailable)

	s.later.Add(int64(full + time.Second))
	replied(t, s.Get("/readyz"), http.StatusOK)
	s.asks(http.StatusOK)
	eventually(t, "what is old is dropped", func() bool { return s.Recorded("segments_retired") })
}

// A new share counts from the next request on; what holds where nobody wrote it is told of.
func TestShareIsTakenWhileRunning(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	greedy := addKey(t, data, "greedy", auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}})
	var told written.Text
	with := func(share float64) func(*server.Config) {
		return func(c *server.Config) {
			c.Listen, c.Data = "127.0.0.1:0", data
			c.DecisionLog.Retain = server.RetainConfig{Bytes: 64 << 20, Share: share}
		}
	}
	s := pdptest.Start(t, telling(), with(0.25), logTo(&told), func(c *server.Config) { c.Program.PDP.NewID = nil })
	ask := func() pdptest.Response {
		return s.Post(evaluationPath, one(100<<10), "Authorization", greedy)
	}
	answered := 0
	for ; answered < 400 && ask().Status == http.StatusOK; answered++ {
	}
	if answered < 80 || answered > 180 { // of 16 MiB
		t.Errorf("%d were answered", answered)
	}
	take := func(share float64) error {
		return s.Reconfigure(t.Context(), func() (c server.Config, err error) { with(share)(&c); return c, nil })
	}
	must(t, take(0.5))
	replied(t, ask(), http.StatusOK)
	must(t, take(0.25))
	replied(t, ask(), http.StatusTooManyRequests)
	if err := take(0.05); err == nil || !strings.Contains(err.Error(), "decision_log.retain") { // smaller segments
		t.Errorf("got %v", err)
	}
	if strings.Contains(told.String(), "one caller can fill so much") {
		t.Errorf("got %s", told.String())
	}
	stopAndWait(t, s)
	pdptest.Start(t, telling(), with(0.6), logTo(&told))
	if !strings.Contains(told.String(), "level=WARN msg=\"decision_log.retain.share is 0.6: one caller can fill so much of decision_log.retain.bytes") {
		t.Errorf("got %s", told.String())
	}
}

// Whoever has filled its share is refused all that is put on record because it asks, and
// none of what a person decides.
func TestFullShareStopsAskingAndNoDecisionOfAPerson(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) {
		server.TuneLog(config, func(_ *decisionlog.Options, keep *decisionlog.Retention) {
			*keep = decisionlog.Retention{Bytes: 4 << 20, LeastAge: time.Hour, Share: 0.25, SharePerson: 1. / 16}
		})
	})
	c.welcome("everything", `user::"zoe"`, auth.Decide, auth.Search, auth.Request, auth.Approve, auth.LogAdmin, auth.LogRead)
	denied, approved := c.asks("pep", tool("push", `"arguments":{}`)).Approval.ID, c.approved("noah")
	own := c.asks("everything", tool("stop", push)).Approval.ID
	// The last of them goes far beyond the share: what others put on record meanwhile changes
	// what a record counts by a little.
	status, asked := 200, 0
	for ; status == 200 && asked < 1000; asked++ {
		status, _ = c.do("everything", "POST", evaluationPath, one(130<<10))
	}
	if status != http.StatusTooManyRequests || asked < 5 {
		t.Fatalf("after %d got %d", asked, status)
	}
	for path, body := range map[string]string{
		evaluationPath: readQuestion, "/tenants/acme" + evaluationPath: readQuestion, "/access/v1/evaluations": `{"evaluations":[` + readQuestion + `]}`,
		authorizePath: tool("push", push), "/access/v1/search/resource": readQuestion, "/access/v1/search/subject": readQuestion, "/access/v1/search/action": readQuestion,
		"/access/v1/requests": `{}`, "/v1/decisions/" + denied + "/obligations": `{}`,
	} {
		if status, text := c.do("everything", "POST", path, body); status != http.StatusTooManyRequests {
			t.Errorf("%s: got %d %s", path, status, text)
		}
		if strings.Contains(path, "search") || strings.Contains(path, "requests") {
			continue // which the other may not
		}
		if status, text := c.do("pep", "POST", path, body); status == http.StatusTooManyRequests {
			t.Errorf("%s: the other got %d %s", path, status, text)
		}
	}
	c.says("everything", denied, "decision", no, http.StatusOK)
	c.says("everything", approved, "revoke", `{"reason":"no more"}`, http.StatusOK)
	c.says("everything", own, "cancel", `{}`, http.StatusOK)
	_, text := c.do("auditor", "GET", "/v1/decisions?limit=1", "")
	var page struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	must(t, json.Unmarshal([]byte(text), &page))
	if status, text := c.do("everything", "POST", "/v1/decisions/"+page.Items[0].ID+"/redaction", `{"reason":"asked"}`); status != http.StatusNoContent {
		t.Errorf("got %d %s", status, text)
	}
	if records, _ := (&shared{Server: c.Server, t: t}).recorded("key:everything"); records < asked+4 {
		t.Errorf("%d records are of it", records)
	}
}

// Whoever edits a tenant's policies puts little on record by each edit that is refused.
func TestRefusedBundleIsASmallRecord(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	writeAll(t, dir, map[string]string{"a.cedar": "permit(principal is user, action, resource);"})
	var logged log
	s := pdptest.Start(t, pdp.Dir(dir), withData(data), func(c *server.Config) { c.Program.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	// They come at once, so that whatever the watcher reads is all of them or nothing.
	coming := t.TempDir()
	for _, tenant := range []string{"acme", "other", "third"} {
		writeAll(t, coming, map[string]string{"tenants/" + tenant + "/a.cedar": strings.Repeat("@obligation(\"nosuch\") permit(principal is user, action, resource);\n", 300)})
	}
	must(t, os.Rename(filepath.Join(coming, "tenants"), filepath.Join(dir, "tenants")))
	if err := s.Reload(t.Context()); err == nil {
		t.Fatal("it is not refused")
	}
	eventually(t, "it is on record", func() bool { return s.Recorded("bundle_refused") })
	if body := s.Get("/readyz").Body; strings.Count(body, `"code"`) != 100 || !strings.Contains(body, `"more":203`) {
		t.Errorf("readyz tells of %d problems: %.300s", strings.Count(body, `"code"`), body)
	}
	stopAndWait(t, s)
	refused := events(lines(t, data), "bundle_refused")
	if details := text(t, refused[0].Details); len(details) > 4<<10 || !strings.Contains(details, "nosuch") || !strings.Contains(details, `"count":303`) {
		t.Errorf("%d bytes: %s", len(details), details)
	}
	// It is refused once, or once more by the watcher.
	if times := logged.count("more=203"); times == 0 || logged.count("nosuch") != 100*times {
		t.Errorf("%d problems are logged, of %d refusals", logged.count("nosuch"), times)
	}
}
