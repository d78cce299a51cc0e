package server

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/door"
)

// registrar registers a route.
type registrar = func(path string, handle echo.HandlerFunc, methods ...string)

// router has no route yet. A request for anything else than its routes gets a 404 in the form of every other problem.
func (s *Server) router() (*echo.Echo, registrar) {
	e := echo.New()
	e.HTTPErrorHandler = s.door.Fail
	around := &around{door: s.door, telemetry: s.telemetry, known: map[string]bool{}, log: s.log, live: &s.live}
	// Before routing, so that 404 and 405 are covered too; and all as one, so that a request makes one function.
	e.Pre(func(route echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return around.request(c, route) }
	})
	others := map[string][]string{}
	return e, func(path string, handle echo.HandlerFunc, methods ...string) {
		e.Match(methods, path, handle)
		around.known[path] = true
		// echo's own answers would allow OPTIONS, and list it in Allow.
		others[path] = append(others[path], methods...)
		e.RouteNotFound(path, otherMethod(others[path]))
	}
}

// routed is a part of a server that answers requests.
type routed interface {
	Routes(route registrar)
}

// handlers have every route: public those of the address for everybody, and own those of the console if it has an
// address of its own.
func (s *Server) handlers() (public, own http.Handler, err error) {
	e, route := s.router()
	for _, one := range s.opened {
		if one, answers := one.(routed); answers {
			one.Routes(route)
		}
	}
	switch c := s.config.Console; {
	case c == nil:
	case c.Listen == "":
		err = s.consoleRoutes(e, route)
	default:
		pages, route := s.router()
		own, err = pages, s.consoleRoutes(e, route)
	}
	return e, own, err
}

func otherMethod(methods []string) echo.HandlerFunc {
	allow := strings.Join(methods, ", ")
	return func(c echo.Context) error {
		c.Response().Header().Set(echo.HeaderAllow, allow)
		return door.NewProblem(http.StatusMethodNotAllowed, "this path takes "+allow+" only; see the Allow header")
	}
}
