// Package link is what package approvals needs of a Client of package authzenclient, and no other program can have.
package link

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Link is a client of a PDP, as package approvals sees it.
type Link struct {
	// Base begins the URLs of this service's own API. PDP names the PDP and the tenant, and begins the URLs of what is the tenant's.
	Base, PDP string
	// Metadata are the PDP's, which AuthZEN has at that URL.
	Metadata string
	// Requests takes approval requests; "" if the PDP offers none.
	Requests string
	// The clock, and the random part of a pause.
	Now    func() time.Time
	Wait   func(context.Context, time.Duration) error
	Jitter func() float64
	// Send sends a request, without a circuit breaker. The error of Send, and of read, is an *authzenclient.Error.
	Send func(ctx context.Context, r Request, read func(Answer) error) error
}

// Request is a request about approvals.
type Request struct {
	// Op is the call, for errors.
	Op string
	// URL is at the PDP's own origin, or at one of WithEndpointOrigin. "" is a call that the PDP does not offer.
	Method, URL string
	ID          string      // its X-Request-ID; "" is one of the client's own
	Header      http.Header // beside the client's own
	Secret      string      // a credential in Header, which no error repeats
	Body        []byte
	Statuses    []int // of an answer; nil is 200
	// Wait is how long the PDP is asked to hold the answer back.
	Wait time.Duration
	// Once is set if the request is sent again only where no connection was made.
	Once bool
}

// Answer is the answer to a [Request].
type Answer struct {
	Body       []byte
	RetryAfter time.Duration
}

// Present reports whether a member of an object is there, and not null.
func Present(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }

// Text is the string that v holds, and otherwise if v is none.
func Text(otherwise string, v jsontext.Value) string {
	var s string
	if v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return otherwise
	}
	return s
}

// maxDetail bounds a text of the PDP in an error.
const maxDetail = 512

// Printable makes one line of a log of a text of the PDP.
func Printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}
