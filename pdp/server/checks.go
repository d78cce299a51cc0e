package server

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode"

	"github.com/labstack/echo/v4"
)

func need(caller Caller, p Permission) error {
	if caller.May(p) {
		return nil
	}
	return newProblem(http.StatusForbidden, fmt.Sprintf("this needs the permission %s; ask the operator for a credential that has it", p))
}

// wantJSON holds the header to one reading: a body that somebody else would
// read as something else is not read.
func wantJSON(h http.Header) error {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return newProblem(http.StatusBadRequest, "the Content-Type must be given once; send application/json")
	}
	if mediaType, _, err := mime.ParseMediaType(types[0]); err != nil || mediaType != "application/json" {
		return newProblem(http.StatusBadRequest, "the Content-Type is not application/json; send it, with parameters or without")
	}
	for _, encoding := range h.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return newProblem(http.StatusBadRequest, "the body has a Content-Encoding, and would not be read as what was meant; send it as it is")
		}
	}
	return nil
}

const requestIDHeader = "X-Request-Id"

// What browsers, and only they, are told with every answer: to take it for nothing that
// it does not say it is, to show it nowhere, and to run nothing of it. (Not that this
// host speaks TLS only: that would be said of all its ports.) They are shared, and
// nobody changes them.
var (
	noSniff   = []string{"nosniff"}
	noContent = []string{"default-src 'none'; frame-ancestors 'none'"}
)

// identify is the first thing that happens to a request: its X-Request-ID goes
// onto the answer, whichever that will be, or is refused and goes nowhere.
func (s *Server) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		header.Set("Cache-Control", "no-store") // an answer is true at its moment only
		header["X-Content-Type-Options"], header["Content-Security-Policy"] = noSniff, noContent
		if s.stopping.Load() {
			header.Set("Connection", "close") // the next request would find nobody
		}
		ids := c.Request().Header[requestIDHeader]
		switch {
		case len(ids) == 0:
		case len(ids) > 1:
			return newProblem(http.StatusBadRequest, "X-Request-ID is given more than once; send one")
		case len(ids[0]) > s.config.Program.Limits.RequestID:
			return beyond(http.StatusBadRequest, fmt.Sprintf("X-Request-ID has more than %d bytes; send a shorter one", s.config.Program.Limits.RequestID))
		case strings.ContainsFunc(ids[0], unicode.IsControl):
			return newProblem(http.StatusBadRequest, "X-Request-ID holds control characters; send it without")
		default:
			header[requestIDHeader] = ids
		}
		return next(c)
	}
}

// requestID is the id echoed on the answer: "" where none was sent, or none fit to log.
func requestID(c echo.Context) string { return c.Response().Header().Get(requestIDHeader) }
