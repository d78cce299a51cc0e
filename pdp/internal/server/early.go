package server

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/go-json-experiment/json"
)

// early answers while the server waits to join the cluster, and hands on once there is a handler.
type early struct {
	handler atomic.Pointer[http.Handler]
	waiting *atomic.Pointer[string]
}

// earlyReadiness is the body of /readyz meanwhile, also for those who may not explain: nobody is known yet.
type earlyReadiness struct {
	Status  string `json:"status"`
	Waiting string `json:"waiting"`
}

// ServeHTTP implements [http.Handler].
func (e *early) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := e.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	status, text := http.StatusServiceUnavailable, []byte(nil)
	switch r.URL.Path {
	case "/livez":
		status, text = http.StatusOK, []byte(`{"status":"ok"}`)
	case "/readyz":
		text, _ = json.Marshal(earlyReadiness{"unavailable", *e.waiting.Load()}) // of two texts
	default:
		w.Header().Set("Content-Type", "application/problem+json")
		text = []byte(`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"this replica has not joined the cluster yet, and /readyz says for what it waits; ask again later, or ask another replica"}`)
	}
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text)
	}
}

// answerEarly tells callers for what the server waits. The first call opens the addresses.
func (l *listeners) answerEarly(ctx context.Context, waiting string, err error) error {
	if said := l.waiting.Swap(&waiting); said == nil || *said != waiting {
		l.log.Error("waiting: nothing is answered until this replica has joined the cluster", "error", err)
	}
	if l.early != nil {
		return nil
	}
	if err := l.loadCertificates(); err != nil {
		return err
	}
	if err := l.openAll(ctx, true); err != nil { // credentials are checked once they are open
		return err
	}
	l.early, l.earlyOwn = &early{waiting: &l.waiting}, &early{waiting: &l.waiting}
	l.serveAll(l.early, l.earlyOwn)
	l.lifetime.add("waiting for the cluster", closing(func() error {
		l.door.Stopping.Store(true) // only a start that failed comes here before the drain
		for _, server := range l.servers {
			_ = server.Close()
		}
		return nil
	}))
	return nil
}
