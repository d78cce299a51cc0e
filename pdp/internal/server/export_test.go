package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
)

// PublicURL is what became of the one configured.
func (s *Server) PublicURL() string { return s.config.PublicURL }

// ConsoleBeside says that other pages have the host of the console.
func (c *Config) ConsoleBeside() error { return c.consoleBeside() }

// AdminAddr is the address of the admin listener, as host:port; "" if there is none.
func (s *Server) AdminAddr() string { return address(s.listeners.admin) }

// ClocksAgree reports whether so many other replicas have the time of this one, and have said that it has theirs.
func (s *Server) ClocksAgree(others int) bool {
	there := s.replica.There()
	return len(there) == others && !slices.ContainsFunc(there, func(m cluster.Member) bool {
		return !m.Clock.Equal(s.now()) || m.Ahead[s.replica.Origin()] != 0
	})
}

// TakesProofs reports whether the clock of a replica is right, as far as it knows.
func (s *Server) TakesProofs() bool { return s.replica.Clock() == nil }

// ConsoleAddr is the address of the console's own listener, as host:port; "" if it has none.
func (s *Server) ConsoleAddr() string { return address(s.listeners.console) }

// Routes lists what a server serves, as the OpenAPI document writes it.
func Routes() ([]string, error) {
	source := pdp.FS(fstest.MapFS{"a.cedar": {Data: []byte("permit (principal, action == Action::\"read\", resource);")}})
	s, err := New(Config{Program: Program{InProcess: true, Source: source}})
	if err != nil {
		return nil, err
	}
	if err := s.Start(context.Background()); err != nil {
		return nil, err
	}
	public, _, err := s.handlers()
	if err = errors.Join(err, s.Stop(context.Background())); err != nil {
		return nil, err
	}
	var served []string
	for _, r := range public.(*echo.Echo).Routes() {
		if r.Method != echo.RouteNotFound && r.Method != "HEAD" {
			served = append(served, r.Method+" "+strings.NewReplacer(":tenant", "{tenant}", ":id", "{id}", ":list", "{list}", ":digest", "{digest}", ":level", "{level}", "*", "{index}").Replace(r.Path))
		}
	}
	return served, nil
}

// TuneLog has a server keep its log otherwise than a configuration can say.
func TuneLog(c *Config, tune func(*decisionlog.Options, *decisionlog.Retention)) {
	c.Program.tuneLog = tune
}

// TuneElapsed has a server take the time that passed from a function.
func TuneElapsed(c *Config, elapsed func() time.Duration) { c.Program.elapsed = elapsed }

// Recorded reports whether there is a record of an event.
func (s *Server) Recorded(event string) bool { return s.CountRecorded(event) > 0 }

// CountRecorded is how many records of an event there are.
func (s *Server) CountRecorded(event string) (n int) {
	for r := range s.decisions.Records(context.Background(), 0, s.decisions.Size()) {
		if strings.Contains(string(r.Line), `"event":"`+event+`"`) {
			n++
		}
	}
	return n
}

// Receipts is the number of receipts on record of a decision.
func (s *Server) Receipts(decision string) int {
	page, err := s.decisions.Query(context.Background(), decisionlog.Query{Filter: record.Filter{Of: decision}, Limit: 100})
	if err != nil {
		return -1
	}
	return len(page.Lines)
}

// Log is the decision log of a running server. Its segments have all that was answered.
func (s *Server) Log() *decisionlog.Log {
	_ = s.decisions.Flush(context.Background()) // a log that failed has what it has
	return s.decisions.Log
}

// Unhurried has a stop wait as long as it takes for those who take what it hands on.
func Unhurried(c *Config) { c.Program.handsOnWithin = time.Minute }

// Hurried has a stop wait a moment for those who take what it hands on, because they never do.
func Hurried(c *Config) { c.Program.handsOnWithin = 50 * time.Millisecond }

// TuneHTTP has a server keep other limits than its own.
func TuneHTTP(c *Config, tune func(*http.Server)) { c.Program.tuneHTTP = tune }

// BePatient has a running server let requests wait for a place, and take, for longer than
// can be configured.
func (s *Server) BePatient(queue, request time.Duration) {
	s.door.Short.Patience, s.door.Long.Patience = queue, request
	s.door.Options.Load.RequestTime, s.config.Load.RequestTime = request, request
}

// HurryPlaces has those who wait for the other side make way at once, where somebody wants their places.
func (s *Server) HurryPlaces() {
	s.door.Large.MakesWay, s.audit.Exports.MakesWay = 50*time.Millisecond, 50*time.Millisecond
}

// KeepPlaces has those who wait for the other side to read the log make way for nobody for so long.
func (s *Server) KeepPlaces(long time.Duration) { s.audit.Exports.MakesWay = long }

// KeepConnections has a caller whose body is awaited keep its connection for so long.
func (s *Server) KeepConnections(long time.Duration) { s.door.Connections.NotHeardOf = long }

// WorkOff has one more worker do what is due of approvals at once, until it is stopped.
func (s *Server) WorkOff() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	worker.Go(func() { s.approvals.Broker.Store.Run(ctx) })
	return func() { cancel(); worker.Wait() }
}

// CloseApprovals has a running server without its approvals, as after a disk that failed.
func (s *Server) CloseApprovals() error { return s.approvals.Broker.Store.Close() }

// CloseCapabilities closes their file, as if it could not be read any more.
func (s *Server) CloseCapabilities() error { return s.capabilities.Broker.Store.Close() }

// Waiting is how many wait for something to become of an approval.
func (s *Server) Waiting() int {
	waiting := s.approvals.Counts().Waiting
	return waiting
}

// LargeBodies is how many places for large bodies each caller has.
func (s *Server) LargeBodies() map[string]int { return s.door.Large.Shares() }

// Exports is how many places for readers of the whole log each caller has.
func (s *Server) Exports() map[string]int { return s.audit.Exports.Shares() }

// OneReads has a server let one at a time work on what is read of the log.
func (s *Server) OneReads() { s.audit.Reading.Limit = 1 }

// Unsent is how many bodies are waited for.
func (s *Server) Unsent() int {
	_, unsent, _ := s.door.Connections.Counts()
	return unsent
}

// Open is how many connections there are.
func (s *Server) Open() int {
	open, _, _ := s.door.Connections.Counts()
	return open
}

// Makeable is how many connections make room for one that comes, before any that is idle.
func (s *Server) Makeable() int {
	_, _, makeWay := s.door.Connections.Counts()
	return makeWay
}

// WorkGoesOn is how many requests have a turn at long work.
func (s *Server) WorkGoesOn() int { return s.door.Long.Inside() }

// WorkWaits is how many requests of a caller wait for their turn at long work.
func (s *Server) WorkWaits(caller string) int { return s.door.Long.Waiting()[caller] }

// LargeWaits is how many large bodies of a caller wait for a place.
func (s *Server) LargeWaits(caller string) int { return s.door.Large.Gate.Waiting()[caller] }

// CrowdWork has as many of a caller wait for a turn as may, who come after all that wait.
func (s *Server) CrowdWork(caller string) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var crowd sync.WaitGroup
	for range s.door.Long.Queue {
		crowd.Go(func() {
			if s.door.Long.Enter(ctx, caller) == nil {
				<-ctx.Done()
				s.door.Long.Leave(caller)
			}
		})
	}
	for s.WorkWaits(caller) < s.door.Long.Queue {
		runtime.Gosched()
	}
	return func() { cancel(); crowd.Wait() }
}

// HoldWork takes all places of those who may keep a processor for long, until it is let go.
func (s *Server) HoldWork(caller string) (release func()) {
	for range s.door.Long.Limit {
		_ = s.door.Long.Enter(context.Background(), caller)
	}
	return func() {
		for range s.door.Long.Limit {
			s.door.Long.Leave(caller)
		}
	}
}

// Refused is how many were refused for one limit, by the metrics.
func (s *Server) Refused(limit string) int {
	w := httptest.NewRecorder()
	s.MetricsHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	found := regexp.MustCompile(`requests_limited_total{limit="` + limit + `".*} (\d+)`).FindStringSubmatch(w.Body.String())
	n, err := strconv.Atoi(found[1])
	if err != nil {
		panic(err) // it is a counter
	}
	return n
}

// Looks is how often a watch looked for the requests with its question, and Pages how many pages of approval requests
// were begun. Watches is how many watches there are, and Joined how many requests wait with them.
func (s *Server) Looks() int64 { return s.approvals.Counts().Looks }
func (s *Server) Pages() int64 { return s.approvals.Counts().Pages }
func (s *Server) Watches() int { return s.approvals.Counts().Questions }
func (s *Server) Joined() int  { return s.approvals.Counts().Joined }

// ClusterCalls counts the calls of etcd: those that read, and the transactions that write.
func ClusterCalls(s *Server) (reads, commits uint64) { return s.replica.Calls() }
