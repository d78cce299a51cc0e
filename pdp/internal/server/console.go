package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/console"
	"policy-service/pdp/internal/console/sessions"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/listener"
)

// fromConsole brings the requests of the console to the routes of the API. Each of its requests is one like any other: it is
// measured, logged and let in by itself, by the configuration that is in force when it is made.
type fromConsole struct{ api http.Handler }

// RoundTrip implements [http.RoundTripper]. The request has no header of the browser's but what the console gave it.
func (t fromConsole) RoundTrip(sent *http.Request) (*http.Response, error) {
	own := sent.WithContext(listener.Within(sent.Context()))
	// A server without credentials answers every program on its machine, by names of that machine alone. This is none: a
	// browser of the console may be anywhere, and without a login it has no identity.
	own.Host = "console.invalid"
	return answered(own.Context(), t.api, own)
}

// openSessions opens the sessions of a console that has replicas.
func (r *replica) openSessions(ctx context.Context, b *base) (err error) {
	if r == nil || b.config.Console == nil {
		return nil
	}
	r.sessions, err = sessions.Open(ctx, sessions.Options{
		Engine: r.Engine(cluster.Console, sessions.Errors()), Key: r.Derive("sessions of the console"), Idle: b.config.Console.Session.Idle,
		Now: b.now, Behind: r.Behind, Generation: r.Generation, Room: r.Room,
	})
	if err == nil {
		b.lifetime.add("the console's sessions", closing(r.sessions.Close))
	}
	return err
}

// consoleRoutes register the console, which asks the API.
func (s *Server) consoleRoutes(api http.Handler, route registrar) error {
	c, url := s.config.Console, s.listeners.consoleURL()
	o := console.Options{
		Logins:      func() console.Logins { return s.live.Load().callers.(*auth.Authenticator) },
		OIDC:        func() *auth.OIDC { return s.live.Load().config.oidc() },
		PublicURL:   url,
		Server:      s.listeners.url(),
		Secure:      s.config.TLS.CertFile != "" || s.config.TLS.Terminated || strings.HasPrefix(url, "https:"),
		MaxSession:  c.Session.Max,
		IdleSession: c.Session.Idle,
		Now:         s.now,
		Log:         s.log,
	}
	if s.replica != nil {
		o.Sessions, o.Key = s.replica.sessions, s.replica.Derive("logins to the console")
	}
	pages, err := console.New(fromConsole{api}, o)
	if err != nil {
		return err
	}
	proxies, err := c.proxies()
	if err != nil {
		return err
	}
	s.opened = append(s.opened, pages)
	serve := s.door.Pages(pages)
	at := func(prefix string) {
		stripped := func(c echo.Context) error {
			c.SetPath(consolePath + "/*") // one route to whoever counts
			r := *c.Request().WithContext(console.Lasting(c.Request().Context()))
			at := *r.URL
			at.Path, at.RawPath = strings.TrimPrefix(at.Path, prefix), strings.TrimPrefix(at.RawPath, prefix)
			r.URL, r.RemoteAddr = &at, proxies.Client(&r)
			c.SetRequest(&r)
			return serve(c)
		}
		for _, path := range []string{consolePath, consolePath + "/*"} {
			route(prefix+path, stripped, http.MethodGet, http.MethodHead, http.MethodPost)
		}
	}
	at("")
	if prefix := strings.TrimSuffix(urlPath(url), consolePath); prefix != "" {
		at(prefix) // for a proxy that takes nothing off
	}
	return nil
}
