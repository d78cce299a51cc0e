package gateway

import (
	"net/http"

	"policy-service/pdp/server/auth"
)

// handler has what a proxy and monitoring ask, and the gateway for all else.
func (r *running) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", r.readyz)
	mux.HandleFunc("GET /metrics", r.metrics)
	mux.Handle("/", r.gateway.Handler())
	return mux
}

func answer(w http.ResponseWriter, code int, status string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(`{"status":"` + status + `"}`))
}

// readyz says whether to send requests here. A gateway whose PDP does not answer is degraded: another one in its place
// would not do better.
func (r *running) readyz(w http.ResponseWriter, _ *http.Request) {
	switch {
	case r.stopping.Load():
		answer(w, http.StatusServiceUnavailable, "unavailable")
	case r.gateway.Ready() != nil:
		answer(w, http.StatusOK, "degraded")
	default:
		answer(w, http.StatusOK, "ready")
	}
}

// metrics are for this machine alone: they tell more about the gateway than a client should know.
func (r *running) metrics(w http.ResponseWriter, req *http.Request) {
	if _, err := (auth.Loopback{}).Authenticate(req); err != nil {
		http.NotFound(w, req)
		return
	}
	r.telemetry.Scrape.ServeHTTP(w, req)
}
