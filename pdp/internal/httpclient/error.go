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

// Error is an answer with a status that was not wanted.
type Error struct {
	Status int
	// Detail is the text of the server, without characters that could act on a terminal.
	Detail string
}

// Error is the detail, or else the status.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("the server answers %d %s", e.Status, http.StatusText(e.Status))
	}
	return "the server says: " + e.Detail
}

// StatusOf is the status of an [Error], and 0 for every other error.
func StatusOf(err error) int {
	var refused *Error
	if !errors.As(err, &refused) {
		return 0
	}
	return refused.Status
}

// Passing reports if another attempt may succeed a moment later.
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
