// Package upstream speaks with the MCP servers behind a gateway: over streamable HTTP in both eras, and over the standard
// streams of a child process.
//
// Begin with [Upstream] and [Session]. The package sends requests as given and hands back answers, read strictly; it
// does not ask whether it may. It adds no credential but the gateway's own, follows no redirect, and goes to no address
// that its configuration does not allow.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/leak"
	"policy-service/pdp/internal/rpc"
)

// Options are those of each server, whatever the way to it.
type Options struct {
	// Eras are those that may be spoken; none are both.
	Eras []era.Era
	// Timeout bounds an opening, each silence of the server while a request waits for it, and each write to a program.
	Timeout time.Duration
	// MaxResult bounds a message of the server, in bytes.
	MaxResult int
	// Key is the server's name in the configuration, for errors.
	Key string
	// Name and Version are the gateway's, for servers and for handshakes of a client that says nothing of itself.
	Name, Version string
	Logger        *slog.Logger
	// Dropped gets the reason for each message that goes no further, one of Drop*. It must not wait for anything.
	Dropped func(reason string)
	// Masked gets the number of places where secrets were masked. It must not wait for anything.
	Masked func(places int)
}

func (o *Options) speaks(e era.Era) bool { return len(o.Eras) == 0 || slices.Contains(o.Eras, e) }

// tooLarge is of a message of the server that is larger than it may be.
func (o *Options) tooLarge(size int) *Error {
	why := &TooLarge{Size: size, Limit: o.MaxResult, Key: o.Key + ".max_result"}
	return &Error{Detail: "a message of the server is larger than max_result", Err: why}
}

// masked masks the gateway's own secrets in a message of the server, and reports how many places they had.
func (o *Options) masked(masks *leak.Masks, text []byte) []byte {
	text, places := masks.In(text)
	if places > 0 {
		o.Masked(places)
	}
	return text
}

// Upstream is one MCP server.
type Upstream interface {
	// Open opens a session for one client. Ctx bounds the opening alone. Sessions share nothing: no process, no session of
	// the server's, no credential of a principal.
	Open(ctx context.Context, c Client) (Session, error)
	// Close ends all sessions, and waits for their goroutines.
	Close() error
}

// Client is for whom a session is.
type Client struct {
	// Principal is a key of [identity.Principal]. Credentials that are made for a principal are cached by it.
	Principal string
	// Person is by whom programs are shared.
	Person string
	// Token is the principal's access token, and Expires its end. It is shown to the authorization server if the upstream's
	// credentials are exchanged for it, and to no other. [Request.Token] takes its place if the session goes on for
	// longer.
	Token   string
	Expires time.Time
	// Extra is called before a message that no caller sends: that a request is given up, or goes on where its answer broke off. It
	// may be nil.
	Extra func()
	// Legacy is set of a client of the legacy era: that is spoken with a server that speaks both.
	Legacy bool
	// Info and Capabilities are for the handshake with a server of the legacy era. In the modern era each request has them,
	// written by its sender.
	Info, Capabilities jsontext.Value
}

// Session is one client's connection with a server. Its methods may be called side by side.
type Session interface {
	Era() era.Era
	// Server is the server's description of itself: the result of initialize or of server/discover, as it came.
	Server() jsontext.Value
	// Send sends a request, and returns when the server has begun to answer. An error is of type *[Error].
	Send(ctx context.Context, r Request) (Stream, error)
	// Notify sends a notification, or the answer to a request of the server.
	Notify(ctx context.Context, m rpc.Message) error
	// Listen is the stream of messages of a server of the legacy era beside the answers to requests, one at a time. A server that
	// says nothing gives a stream that ends. The modern era has subscriptions/listen for it, which is sent like any request.
	Listen(ctx context.Context) (Stream, error)
	// Close ends the session at the server, where the era has a way.
	Close()
}

// Credentials are the gateway's proof to an upstream that it may use it. They are the gateway's own, or were made for a
// principal from its token; the token itself is shown only to their maker.
type Credentials interface {
	// Authorize adds the credentials to h. C has the principal's access token as it is now. An error means that nothing is
	// sent.
	Authorize(ctx context.Context, h http.Header, c Client) error
}

// Request is a request as the server is to get it.
type Request struct {
	Method string
	// Params are sent with the bytes that they have. Without members nothing is sent.
	Params rpc.Object
	// Headers mirror parameters, in the modern era over HTTP: Mcp-Param-*. All other headers are the package's own.
	Headers http.Header
	// Token is the client's access token as it is now; see [Client.Token].
	Token   string
	Expires time.Time

	after string // the event that a stream goes on behind
}

func (r Request) message(id rpc.ID) rpc.Message {
	return rpc.Message{ID: id, Method: r.Method, Params: r.Params.Params()}
}

// Stream is the answer to one request: notifications, in the legacy era requests of the server, and at last the response.
type Stream interface {
	// Next waits for a message. After the response, or if the stream ends, it is [io.EOF]; any other error is of type
	// *[Error]. The response has the id [rpc.ID] zero: its caller knows the request.
	Next() (rpc.Message, error)
	// Close gives up the request, and notifies the server, if the response has not come.
	Close()
}

// met is a server whose handshake went well.
type met struct {
	era    era.Era
	server jsontext.Value
}

func (m *met) Era() era.Era           { return m.era }
func (m *met) Server() jsontext.Value { return m.server }

// response skips messages before the response, and counts them.
func response(t Stream, dropped func(reason string)) (rpc.Message, error) {
	for {
		m, err := t.Next()
		if err != nil || m.IsResponse() {
			return m, err
		}
		dropped(DropEarly)
	}
}

// cancelled notifies a server of the legacy era, or any over a pipe, that no caller waits for a request any more.
func cancelled(id rpc.ID) rpc.Message {
	return rpc.Message{Method: "notifications/cancelled", Params: rpc.Object{}.With("requestId", id.Text()).Value()}
}

// pause waits for a time, or until ctx ends: its cause is the error then.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Nothing is the stream of a server that says nothing by itself.
var Nothing Stream = &single{read: true}

// ErrManyOfPerson is of a person for whom as many programs run as may.
var ErrManyOfPerson = errors.New("as many programs run for the person as may: see processes.per_person")

// ErrOwes is the error if the person's messages have caused more work than limits.rate pays for.
var ErrOwes = errors.New("the messages of the person have caused more work than limits.rate pays for")

// extra notes a message that no caller sends.
func (c *Client) extra() {
	if c.Extra != nil {
		c.Extra()
	}
}

// ErrAmbiguous is of an answer that is not one message that everybody reads alike.
var ErrAmbiguous = errors.New("the server answered ambiguously")

// TooLarge is of a message of the server that is larger than its max_result.
type TooLarge struct {
	Size  int // at least
	Limit int
	Key   string
}

func (e *TooLarge) Error() string {
	return fmt.Sprintf("it has %d bytes or more, and %s is %d", e.Size, e.Key, e.Limit)
}

// Error is why an upstream gave no answer.
type Error struct {
	// NotSent reports that the server has certainly not got the request: it may be sent again.
	NotSent bool
	// Gone reports that the session is no more, so that another must be opened.
	Gone bool
	// Answer is the error that the server sent where that is no response to the request: it speaks of the session or of
	// the era. It is nil if the server sent none, or one about the gateway's credentials.
	Answer jsontext.Value
	// Detail is for the operator's eyes. It has no credential in it, and nothing of a message.
	Detail string
	Err    error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

func (e *Error) Unwrap() error { return e.Err }

// ClientGone is the error if the client no longer waits for an answer.
func ClientGone(cause error) *Error { return &Error{Detail: "the client has gone", Err: cause} }
