package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// The admin listener shows the process, not its answers: profiles, which tell more of it
// than a caller should know and cost more than one should be able to ask for. There are
// no credentials on it, so it is for this machine alone, whatever else is configured.

// checkAdmin refuses an address that others could reach.
func (c Config) checkAdmin() error {
	if c.AdminListen == "" || isLoopbackAddress(c.AdminListen) {
		return nil
	}
	return fmt.Errorf("admin_listen is %q, and what it shows is for this machine alone; try 127.0.0.1:8181, and a tunnel to get there", c.AdminListen)
}

// adminHandler is all there is on the admin listener.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	if h := s.MetricsHandler(); h != nil {
		mux.Handle("GET /metrics", h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header["X-Content-Type-Options"], header["Content-Security-Policy"] = door.NoSniff, door.NoContent
		// A page in a browser on this machine can be made to ask, too; see [auth.Loopback].
		if _, err := (auth.Loopback{}).Authenticate(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) serveAdmin(ctx context.Context) error {
	if s.config.AdminListen == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.config.AdminListen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s, for the admin listener: %w; try another --admin-listen address, or port 0 for any free one", s.config.AdminListen, err)
	}
	if a, ok := listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return errors.Join(fmt.Errorf("admin_listen leads to %s, which is not on loopback; try 127.0.0.1:8181", listener.Addr()), listener.Close())
	}
	s.admin = listener
	server := &http.Server{
		Handler:           s.adminHandler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      5 * time.Minute, // a profile takes as long as it is asked to
		MaxHeaderBytes:    8 << 10,
	}
	s.teardown.add("admin listener", closing(server.Close)) // nobody's decision hangs on it
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the admin listener ended; restart to have it again", "error", err)
		}
	}()
	s.log.Info("admin listener", "address", listener.Addr().String())
	return nil
}

// AdminAddr is the address of the admin listener, as host:port; "" where there is none.
func (s *Server) AdminAddr() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.Addr().String()
}
