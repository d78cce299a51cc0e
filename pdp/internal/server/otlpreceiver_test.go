package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// receiver takes OTLP over HTTP, as a collector does.
type receiver struct {
	t      testing.TB
	http   *httptest.Server
	port   net.Listener
	addr   string
	tls    *tls.Config                                     // nil is plain HTTP
	answer func(w http.ResponseWriter, n int) (taken bool) // nil takes all

	mu       sync.Mutex
	entrance *entrance
	came     chan struct{} // closed with each request
	requests int
	raw      []string // the bodies of those that were taken
	header   http.Header
	got      []*logs.LogRecord
	resource map[string]string
	scope    string
}

// newReceiver starts one, and has the sinks of servers send to it; other telemetry is off.
func newReceiver(t *testing.T) *receiver {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &receiver{t: t, port: port, addr: port.Addr().String(), came: make(chan struct{})}
	r.up()
	go r.admit()
	t.Cleanup(func() {
		_ = port.Close()
		r.down()
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+r.addr)
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	return r
}

// entrance is where those who connect come in while the receiver is there. The port is kept
// when it is not, or somebody else could take it.
type entrance struct {
	net.Listener
	guests chan net.Conn
	shut   chan struct{}
	once   sync.Once
}

func (d *entrance) Accept() (net.Conn, error) {
	select {
	case guest := <-d.guests:
		return guest, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *entrance) Close() error {
	d.once.Do(func() { close(d.shut) })
	return nil
}

// admit hangs up on those who find the door shut.
func (r *receiver) admit() {
	for {
		guest, err := r.port.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		entrance := r.entrance
		r.mu.Unlock()
		select {
		case entrance.guests <- guest:
		case <-entrance.shut:
			_ = guest.Close()
		}
	}
}

func (r *receiver) up() {
	opened := &entrance{Listener: r.port, guests: make(chan net.Conn), shut: make(chan struct{})}
	r.mu.Lock()
	r.entrance = opened
	r.mu.Unlock()
	r.http = &httptest.Server{Listener: opened, Config: &http.Server{Handler: r}}
	if r.http.TLS = r.tls; r.tls != nil {
		r.http.StartTLS()
		return
	}
	r.http.Start()
}

func (r *receiver) down() {
	r.http.CloseClientConnections()
	r.http.Close()
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender gave up
	}
	var export collector.ExportLogsServiceRequest
	if err := proto.Unmarshal(body, &export); err != nil || request.URL.Path != "/v1/logs" {
		r.t.Errorf("%s: %v", request.URL, err)
	}
	n := 0
	for _, l := range export.ResourceLogs {
		for _, s := range l.ScopeLogs {
			n += len(s.LogRecords)
		}
	}
	r.mu.Lock()
	r.requests++
	close(r.came)
	r.came = make(chan struct{})
	answer := r.answer
	r.mu.Unlock()
	if answer == nil || answer(w, n) {
		r.take(request, string(body), &export)
	}
}

func (r *receiver) take(request *http.Request, body string, export *collector.ExportLogsServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw, r.header = append(r.raw, body), request.Header
	for _, l := range export.ResourceLogs {
		r.resource = attributes(l.Resource.Attributes)
		for _, s := range l.ScopeLogs {
			r.scope = s.Scope.Name
			r.got = append(r.got, s.LogRecords...)
		}
	}
	close(r.came)
	r.came = make(chan struct{})
}

// answers says what becomes of the requests from now on.
func (r *receiver) answers(answer func(w http.ResponseWriter, n int) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// await waits until what was received is enough.
func (r *receiver) await(what string, enough func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		done, came := enough(), r.came
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-came:
		case <-ctx.Done():
			r.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// has waits for a record.
func (r *receiver) has(id string) {
	r.t.Helper()
	r.await("the record "+id+" is received", func() bool {
		return slices.ContainsFunc(r.got, func(l *logs.LogRecord) bool { return attributes(l.Attributes)["log.record.uid"] == id })
	})
}

// bodies are the records received so far.
func (r *receiver) bodies() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.got {
		all = append(all, l.Body.GetStringValue())
	}
	return all
}

// attributes are the texts among them, lists joined.
func attributes(all []*common.KeyValue) map[string]string {
	found := map[string]string{}
	for _, a := range all {
		texts := []string{a.Value.GetStringValue()}
		for _, v := range a.Value.GetArrayValue().GetValues() {
			texts = append(texts, v.GetStringValue())
		}
		found[a.Key] = strings.TrimSpace(strings.Join(texts, " "))
	}
	return found
}

// withOTLP turns the sink on.
func withOTLP(queue int64) pdptest.Option {
	return func(c *server.Config) { c.DecisionLog.Sinks.OTLP = &server.SinkConfig{Queue: queue} }
}
