package authzenclient

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// receive judges what came back by everything but what it says.
func (c *Client) receive(ctx context.Context, answer *http.Response, a asking, id, token string, read func(reply) *Error) *Error {
	if a.statuses == nil {
		a.statuses = []int{http.StatusOK}
	}
	if !slices.Contains(a.statuses, answer.StatusCode) {
		return c.refusal(answer, token)
	}
	echoes := answer.Header.Values("X-Request-ID")
	if id != "" && c.echo && len(echoes) == 0 {
		return odd("the X-Request-ID was not echoed")
	}
	for _, echo := range echoes {
		if id != "" && echo != id {
			return odd("it answers another X-Request-ID")
		}
	}
	if answer.StatusCode == http.StatusNoContent {
		return nil
	}
	types := answer.Header.Values("Content-Type")
	if len(types) != 1 {
		return odd("it has no Content-Type, or several")
	}
	if t, _, err := mime.ParseMediaType(types[0]); err != nil || t != "application/json" && !(a.schema && t == "application/schema+json") {
		return odd("its Content-Type is not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, c.maxBody+1))
	if err != nil {
		return broken(ctx, err, token, false)
	}
	if int64(len(body)) > c.maxBody {
		return odd("its body is too large; see WithMaxBody")
	}
	failure := read(reply{body, printable(answer.Header.Get("X-Decision-Id")), token, c.retryAfter(answer.Header)})
	if failure != nil {
		failure.Detail = without(failure.Detail, token)
	}
	return failure
}

// refusal is the error of any status but the one that an answer has.
func (c *Client) refusal(answer *http.Response, token string) *Error {
	e := &Error{Kind: Odd, Status: answer.StatusCode, RetryAfter: c.retryAfter(answer.Header)}
	switch {
	case e.Status == http.StatusTooManyRequests, e.Status >= 500:
		e.Kind = Unavailable
	case e.Status >= 400:
		e.Kind = Refused
	}
	if e.RetryAfter > 0 && (e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable) {
		e.again = askedToWait
	}
	var problem struct {
		Detail string `json:"detail"`
	}
	if body, err := io.ReadAll(io.LimitReader(answer.Body, 8<<10)); err == nil && json.Unmarshal(body, &problem) == nil {
		e.Detail = printable(without(problem.Detail, token))
	}
	return e
}

// broken is the error of an exchange that did not come to its end.
func broken(ctx context.Context, err error, token string, beforeAnswer bool) *Error {
	e := &Error{Kind: Unreachable, cause: err}
	var u *url.Error
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Kind, e.cause = Cancelled, context.Canceled
	case ctx.Err() != nil:
		e.Kind, e.cause = TimedOut, context.DeadlineExceeded
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Kind = TimedOut
	case beforeAnswer:
		e.again = failureOf(err)
	}
	if errors.As(e.cause, &u) {
		e.cause = u.Err // without the URL, which the caller knows
	}
	if text := e.cause.Error(); text != without(text, token) {
		e.cause = errors.New(without(text, token))
	}
	e.Detail = printable(e.cause.Error())
	return e
}

// without takes a credential out of a text: servers and proxies like to quote.
func without(text, token string) string {
	if token == "" {
		return text
	}
	return strings.ReplaceAll(text, token, "…")
}
