package authzenclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// asking is one request to the PDP.
type asking struct {
	op     string
	url    string // "" where the PDP does not offer the call
	method string // "" is POST
	id     string // its X-Request-ID; "" is one of the client's own
	public bool   // readable by anybody: it gets no credentials
	body   []byte
	handed *evaluation.Handed // in place of body, if it is not nil
	accept string             // the type of an answer; "" is application/json
	header http.Header        // beside the client's own
	adopts []bool             // for each question in body, whether its answer is of October's drafts of obligations
	secret secrets            // beside the client's credential: no error repeats them
	repeat repeatable         // the failures after which it may be asked again
	// The statuses of an answer, nil is 200, and the breaker, nil is the client's own. Receipts and approvals have others.
	statuses []int
	breaker  *breaker
	// How long the PDP was asked to hold its answer back: the call may take so much longer.
	wait time.Duration
}

// reply is an answer that came as it should, and is still to be read.
type reply struct {
	body       []byte
	decisionID string
	secrets    secrets
	retryAfter time.Duration
	tag        string // its ETag
}

const jsonType = "application/json"

// ask sends a request until there is an answer that read accepts, or none can
// be had. It returns the X-Request-ID of the call.
func (c *Client) ask(ctx context.Context, a asking, read func(reply) *Error) (id string, err *Error) {
	if a.url == "" {
		return "", notAsked("the PDP does not offer this call, or its discovery failed")
	}
	if id, err = c.requestID(a.id); err != nil {
		return "", err
	}
	leave, err := cmp.Or(a.breaker, c.breaker).enter()
	if err != nil {
		return id, err
	}
	outcome := failed // also where something below panics
	defer func() { leave(outcome) }()
	ctx, cancel := context.WithTimeout(ctx, c.timeout+a.wait)
	defer cancel()
	for n := 0; ; n++ {
		if err = c.once(ctx, a, id, read); err == nil || !c.mayRepeat(ctx, a, err, n) {
			ofCaller := a.breaker == nil && err.ofCaller()
			switch outcome = outcomeOf(err); {
			case c.chosen && (ofCaller || err != nil && (err.Kind == Odd || err.Status == http.StatusTooManyRequests)):
				outcome = undecided // it may be about the tenant
			case ofCaller:
				outcome = failed
			}
			return id, err
		}
	}
}

func (c *Client) requestID(id string) (string, *Error) {
	if id == "" && c.ids == nil {
		return "", nil
	}
	if id == "" {
		id = c.ids()
	}
	if len(id) > 256 || !isToken(id) {
		return "", notAsked("the X-Request-ID is empty, longer than 256 bytes, or has characters that no header can carry")
	}
	return id, nil
}

func (c *Client) once(ctx context.Context, a asking, id string, read func(reply) *Error) *Error {
	method := cmp.Or(a.method, http.MethodPost)
	var body io.Reader = bytes.NewReader(a.body)
	if a.handed != nil {
		again := *a.handed // which nobody has read
		body = &again
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url, body)
	if err != nil {
		return notAsked("the URL of the call cannot be used")
	}
	token, failure := c.credentials(r, a)
	if failure != nil {
		return failure
	}
	hidden := append(secrets{token}, a.secret...)
	maps.Copy(r.Header, a.header)
	r.Header.Set("Accept", cmp.Or(a.accept, jsonType))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if id != "" {
		r.Header.Set("X-Request-Id", id)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return broken(ctx, err, hidden, true)
	}
	defer func() { _ = answer.Body.Close() }()
	return c.receive(ctx, answer, a, id, hidden, read)
}

// credentials adds them, where the request goes to the PDP's origin.
func (c *Client) credentials(r *http.Request, a asking) (token string, err *Error) {
	if c.token == nil || a.public || originOf(r.URL) != c.at.origin {
		return "", nil
	}
	token, failure := c.token(r.Context(), cmp.Or(c.tenant, evaluation.DefaultTenant))
	switch {
	case r.Context().Err() != nil:
		return "", broken(r.Context(), r.Context().Err(), nil, false)
	case failure != nil:
		return "", notAsked("the token source failed") // its text may hold the credential
	case !isToken(token):
		return "", notAsked("the token is empty, or has characters that no header can carry")
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return token, nil
}

// receive judges an answer by everything but its body.
func (c *Client) receive(ctx context.Context, answer *http.Response, a asking, id string, hidden secrets, read func(reply) *Error) *Error {
	if a.statuses == nil {
		a.statuses = []int{http.StatusOK}
	}
	if !slices.Contains(a.statuses, answer.StatusCode) {
		return c.refusal(answer, hidden)
	}
	echoes := answer.Header.Values("X-Request-Id")
	if id != "" && c.echo && len(echoes) == 0 {
		return odd("the X-Request-ID was not echoed")
	}
	for _, echo := range echoes {
		if id != "" && echo != id {
			return odd("it answers another X-Request-ID")
		}
	}
	if answer.StatusCode == http.StatusNoContent || answer.StatusCode == http.StatusNotModified {
		return nil
	}
	if b := answer.Header.Get("X-Bundle"); b != "" && b != c.Bundle() {
		c.bundle.Store(&b)
	}
	types := answer.Header.Values("Content-Type")
	if len(types) != 1 {
		return odd("it has no Content-Type, or several")
	}
	if want := cmp.Or(a.accept, jsonType); types[0] != want { // nearly every PDP sends just this, which need not be parsed
		if t, _, err := mime.ParseMediaType(types[0]); err != nil || t != want {
			return odd("its Content-Type is not " + want)
		}
	}
	var body bytes.Buffer
	body.Grow(int(max(0, min(answer.ContentLength, usualBody))) + bytes.MinRead) // one that lies costs no more than usual ones have
	_, err := body.ReadFrom(io.LimitReader(answer.Body, c.maxBody+1))
	if err != nil {
		return broken(ctx, err, hidden, false)
	}
	if int64(body.Len()) > c.maxBody {
		return odd("its body is too large; see WithMaxBody")
	}
	failure := read(reply{body.Bytes(), hidden[:1].printable(answer.Header.Get("X-Decision-Id")), hidden, c.retryAfter(answer.Header), answer.Header.Get("Etag")})
	if failure != nil {
		failure.Detail = hidden.printable(failure.Detail)
	}
	return failure
}

// usualBody is the size of answers up to which its own word of it is taken.
const usualBody = 64 << 10

// refusal is the error of any status but the one that an answer has.
func (c *Client) refusal(answer *http.Response, hidden secrets) *Error {
	e := &Error{Kind: Odd, Status: answer.StatusCode, RetryAfter: c.retryAfter(answer.Header)}
	switch {
	case e.Status == http.StatusTooManyRequests, e.Status >= 500:
		e.Kind = Unavailable
	case e.Status >= 400:
		e.Kind = Refused
	}
	if e.Status == http.StatusUnauthorized && strings.Contains(answer.Header.Get("WWW-Authenticate"), `realm="Approver-Token"`) {
		e.Cause = ErrPerson
	}
	if e.RetryAfter > 0 && (e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable) {
		e.again = askedToWait
	}
	var problem struct {
		Detail string `json:"detail"`
	}
	if body, err := io.ReadAll(io.LimitReader(answer.Body, 8<<10)); err == nil && json.Unmarshal(body, &problem) == nil {
		e.Detail = hidden.printable(problem.Detail)
	}
	return e
}

// broken is the error of an exchange that did not come to its end.
func broken(ctx context.Context, err error, hidden secrets, beforeAnswer bool) *Error {
	e := &Error{Kind: Unreachable, Cause: err}
	var u *url.Error
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Kind, e.Cause = Cancelled, context.Canceled
	case ctx.Err() != nil:
		e.Kind, e.Cause = TimedOut, context.DeadlineExceeded
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Kind = TimedOut
	case beforeAnswer:
		e.again = failureOf(err)
	}
	if errors.As(e.Cause, &u) {
		e.Cause = u.Err // without the URL, which the caller knows
	}
	if text := e.Cause.Error(); text != hidden.without(text) {
		e.Cause = errors.New(hidden.without(text))
	}
	e.Detail = link.Printable(e.Cause.Error())
	return e
}

// secrets are the credentials that were sent. No error repeats them: servers and proxies like to quote.
type secrets []string

func (s secrets) without(text string) string {
	for _, secret := range s {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}

// withoutJSON is without for each text of a JSON value. It is nil where names become one.
func (s secrets) withoutJSON(v jsontext.Value) jsontext.Value {
	if !bytes.ContainsRune(v, '\\') && s.without(string(v)) == string(v) {
		return v
	}
	var hidden bytes.Buffer
	from, to := jsontext.NewDecoder(bytes.NewReader(v)), jsontext.NewEncoder(&hidden)
	for {
		token, err := from.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimSpace(hidden.Bytes())
		}
		if err == nil && token.Kind() == '"' {
			token = jsontext.String(s.without(token.String()))
		}
		if err != nil || to.WriteToken(token) != nil {
			return nil
		}
	}
}

// printable is a text from elsewhere for an error. It is cut last: a secret that is cut in two is not found.
func (s secrets) printable(text string) string { return link.Printable(s.without(text)) }
