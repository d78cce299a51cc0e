package gateway

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server/auth"
)

// handler has the routes of proxies and monitoring, and the gateway for all else.
func (r *running) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", r.readyz)
	mux.HandleFunc("GET /metrics", r.metrics)
	mux.Handle("/", r.gateway.Handler())
	return mux
}

func answer(w http.ResponseWriter, code int, status string, why ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	text, _ := json.Marshal(struct {
		Status string   `json:"status"`
		Why    []string `json:"why,omitempty"`
	}{status, why})
	_, _ = w.Write(text)
}

// readyz says whether to send requests here. A gateway whose PDP does not answer, or whose servers are not as they are
// locked, is degraded: another one in its place would not do better. Why it is, is for this machine alone.
func (r *running) readyz(w http.ResponseWriter, req *http.Request) {
	err := r.gateway.Ready()
	switch {
	case r.stopping.Load():
		answer(w, http.StatusServiceUnavailable, "unavailable")
	case err == nil:
		answer(w, http.StatusOK, "ready")
	case isHere(req):
		answer(w, http.StatusOK, "degraded", strings.Split(err.Error(), "\n")...)
	default:
		answer(w, http.StatusOK, "degraded")
	}
}

// isHere reports whether a request comes from this machine.
func isHere(r *http.Request) bool {
	_, err := (auth.Loopback{}).Authenticate(r)
	return err == nil
}

// metrics are for this machine alone: they tell more about the gateway than a client should know.
func (r *running) metrics(w http.ResponseWriter, req *http.Request) {
	if !isHere(req) {
		http.NotFound(w, req)
		return
	}
	r.telemetry.Scrape.ServeHTTP(w, req)
}
