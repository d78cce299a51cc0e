package httpclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
)

// Error is an answer that is not what was asked for.
type Error struct {
	Status int
	// Detail is the server's, without what could act on a terminal.
	Detail string
}

// Error says what the server said.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("the server answers %d %s", e.Status, http.StatusText(e.Status))
	}
	return "the server says: " + e.Detail
}

// StatusOf is the status of an answer that is an [Error], 0 of every other error.
func StatusOf(err error) int {
	var refused *Error
	if !errors.As(err, &refused) {
		return 0
	}
	return refused.Status
}

// Passing reports whether an error may be gone a moment later.
func Passing(err error) bool {
	status := StatusOf(err)
	return status == 0 || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

func (s *Server) refusal(answer *http.Response) error {
	e := &Error{Status: answer.StatusCode}
	var problem struct {
		Detail string `json:"detail"`
	}
	if body, err := io.ReadAll(io.LimitReader(answer.Body, 8<<10)); err == nil && json.Unmarshal(body, &problem) == nil {
		e.Detail = problem.Detail
	}
	if e.Status >= 300 && e.Status < 400 {
		e.Detail = "what is asked for is elsewhere; give the URL of the server itself"
	}
	if s.credential != "" {
		e.Detail = strings.ReplaceAll(e.Detail, s.credential, "…") // servers and proxies like to quote
	}
	e.Detail = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, e.Detail)
	return e
}
