package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/telemetry"
)

// around is what happens to every request before and after its route, whichever that is.
type around struct {
	door      *door.Door
	telemetry *telemetry.Telemetry
	known     map[string]bool // the routes that are counted apart
	log       *slog.Logger
	live      *inForce
}

// request measures a request, which has a span if there is a tracer. It is our own and not otelhttp, which would copy
// the request and wrap the answer also without a tracer, and counts by the Host that was sent.
func (a *around) request(c echo.Context, route echo.HandlerFunc) error {
	a.door.Begin(c)
	defer a.door.End(c)
	begun := time.Now()
	a.telemetry.Requests.Begin()
	r, span := a.telemetry.Begin(c.Request(), c.Response().Header())
	c.SetRequest(r)
	answered := false // else it panics, to cut the answer off
	defer func() {
		path, status := c.Path(), c.Response().Status
		if !a.known[path] { // the client chose it, so it must not become an attribute
			path = "unmatched"
		}
		telemetry.End(span, c.Request().Method, path, status, answered)
		took := time.Since(begun)
		a.telemetry.Requests.End(c.Request().Context(), path, status, took)
		if a.log.Enabled(context.Background(), logging.Access) {
			a.logAccess(c, path, took, answered)
		}
	}()
	if err := a.inside(c, route); err != nil {
		c.Error(err) // here, so that the status is known
	}
	answered = true
	return nil
}

// logAccess writes the line about a request, for operators who want it. Of the request it has the id that it sent, and its
// caller.
func (a *around) logAccess(c echo.Context, route string, took time.Duration, answered bool) {
	r, w := c.Request(), c.Response()
	about := []slog.Attr{
		slog.String("method", telemetry.MethodOf(r.Method)), slog.String("route", route), slog.Int("status", w.Status),
		slog.Float64("seconds", took.Seconds()), slog.Int64("bytes", w.Size), slog.String("caller", a.door.KnownAs(c)),
		slog.String("request_id", door.RequestID(c)), slog.String("decision", w.Header().Get("X-Decision-Id")),
	}
	if !answered {
		about = append(about, slog.Bool("cut_off", true))
	}
	a.log.LogAttrs(telemetry.LogContext(r), logging.Access, "request", about...)
}

// inside makes a 500 of a panic: one request is lost, not the service.
func (a *around) inside(c echo.Context, route echo.HandlerFunc) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler { // net/http's own way to give up on a connection
			panic(v)
		}
		a.log.ErrorContext(telemetry.LogContext(c.Request()), "panic", "cause", door.PanicCause(v), "request_id", door.RequestID(c), "stack", string(debug.Stack()))
		err = fmt.Errorf("panic: %T", v)
	}()
	a.door.Keep(c, a.live.Load()) // to its end, a request has the configuration that it began with
	if err := a.door.Identify(c); err != nil {
		return err
	}
	return route(c)
}
