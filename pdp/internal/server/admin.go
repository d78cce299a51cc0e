package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/listener"
)

// The admin listener shows the process, not its answers: profiles. They tell more about it than a caller should know,
// and cost more than a caller should be able to ask for. The listener takes no credentials, so it is for this machine
// alone, whatever else is configured.

// checkAdmin refuses an address that others could reach.
func (c Config) checkAdmin() error {
	if c.AdminListen == "" || listener.IsLoopback(c.AdminListen) {
		return nil
	}
	return fmt.Errorf("admin_listen is %q, and what it shows is for this machine alone; try 127.0.0.1:8181, and a tunnel to get there", c.AdminListen)
}

// adminHandler is all there is on the admin listener.
func adminHandler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header["X-Content-Type-Options"], header["Content-Security-Policy"] = door.NoSniff, door.NoContent
		// A page in a browser on this machine can be made to ask, too; see [auth.Loopback].
		if _, err := (auth.Loopback{}).Authenticate(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" || r.Header.Get("Origin") != "" {
			http.Error(w, "a page of another site asks for this; open it yourself", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// openAdmin opens the admin listener, and answers there.
func (l *listeners) openAdmin(ctx context.Context) error {
	if l.config.AdminListen == "" {
		return nil
	}
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", l.config.AdminListen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s, for the admin listener: %w; try another --admin-listen address, or port 0 for any free one", l.config.AdminListen, err)
	}
	if !listener.IsLoopback(on.Addr().String()) {
		return errors.Join(fmt.Errorf("admin_listen leads to %s, which is not on loopback; try 127.0.0.1:8181", on.Addr()), on.Close())
	}
	l.admin = on
	server := &http.Server{
		Handler:           adminHandler(l.telemetry.Scrape),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      5 * time.Minute, // a profile takes as long as it is asked to
		MaxHeaderBytes:    8 << 10,
	}
	l.lifetime.add("admin listener", closing(server.Close)) // nobody's decision hangs on it
	go func() {
		if err := server.Serve(on); !errors.Is(err, http.ErrServerClosed) {
			l.log.Error("the admin listener ended; restart to have it again", "error", err)
		}
	}()
	l.log.Info("admin listener", "address", on.Addr().String())
	return nil
}
