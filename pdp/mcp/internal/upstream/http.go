package upstream

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/pdp/mcp/internal/leak"
)

// HTTPOptions describe an upstream over streamable HTTP.
type HTTPOptions struct {
	Options
	URL string
	// AllowNetworks are the networks of the server if its address is not a public one: loopback and private ones too. The
	// URL may be http if the address is loopback, or in one of them.
	AllowNetworks []netip.Prefix
	// Credentials may be nil: the server wants none.
	Credentials Credentials
	// RootsFile holds the roots of the server's certificate in PEM; "" means those of the system.
	RootsFile string
}

// Why a message of a server goes no further.
const (
	DropUnreadable = "unreadable"        // not one JSON-RPC message
	DropForeign    = "foreign_id"        // the answer to something that was not asked here
	DropLate       = "after_response"    // anything after the response
	DropRequest    = "request_of_server" // a request in an era that has none
	DropEarly      = "before_handshake"  // before the answer to a handshake, or beside a status that refuses
)

type httpUpstream struct {
	target    *url.URL
	transport *http.Transport
	options   HTTPOptions
	agent     string
	masks     leak.Masks

	// speaks has for each era whether the server speaks it; the session that finds out holds probing.
	speaks  [2]atomic.Int32
	probing chan struct{}

	// ctx ends with Close.
	ctx  context.Context
	stop context.CancelCauseFunc

	mu       sync.Mutex // guards the rest
	closed   bool
	sessions map[*httpSession]struct{}
	behind   sync.WaitGroup // goroutines that outlive their caller
}

// NewHTTP is an upstream over streamable HTTP. Nothing is sent before a session is opened.
func NewHTTP(o HTTPOptions) (Upstream, error) {
	target, err := parseTarget(o)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(o, target)
	if err != nil {
		return nil, err
	}
	u := &httpUpstream{
		target: target, transport: transport, options: o, agent: o.Name + "/" + o.Version,
		probing: make(chan struct{}, 1), sessions: map[*httpSession]struct{}{},
	}
	u.ctx, u.stop = context.WithCancelCause(context.Background())
	return u, nil
}

var errClosed = errors.New("the session is over")

func gone() *Error { return &Error{NotSent: true, Gone: true, Detail: errClosed.Error()} }

func (u *httpUpstream) Open(ctx context.Context, c Client) (Session, error) {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return nil, gone()
	}
	u.behind.Add(1)
	u.mu.Unlock()
	defer u.behind.Done()
	s := newHTTPSession(u, c)
	ctx, cancel := context.WithTimeoutCause(ctx, u.options.Timeout, errSlow)
	defer cancel()
	defer context.AfterFunc(u.ctx, cancel)()
	if err := u.agree(ctx, s); err != nil {
		s.Close() // it may have an id already
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Detail: "no session was opened", Err: err}
		}
		e.NotSent = true // the request that needed the session
		return nil, e
	}
	u.mu.Lock()
	closed := u.closed
	if !closed {
		u.sessions[s] = struct{}{}
	}
	u.mu.Unlock()
	if closed {
		s.Close()
		return nil, gone()
	}
	u.options.Logger.Debug("a session with an upstream is open", "era", s.era.String(), "version", s.version)
	return s, nil
}

// farewell bounds the last messages to a server, about requests and sessions.
const farewell = 5 * time.Second

func (u *httpUpstream) Close() error {
	u.mu.Lock()
	u.closed = true
	open := slices.Collect(maps.Keys(u.sessions))
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), min(farewell, u.options.Timeout))
	defer cancel()
	var all errgroup.Group
	all.SetLimit(32)
	for _, s := range open {
		all.Go(func() error {
			s.end(ctx)
			return nil
		})
	}
	_ = all.Wait()
	u.stop(errClosed)
	u.behind.Wait()
	u.transport.CloseIdleConnections()
	return nil
}

// background runs a function that only Close waits for. After Close it runs nothing, and is not ok.
func (u *httpUpstream) background(what func()) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.behind.Go(what)
	return true
}
