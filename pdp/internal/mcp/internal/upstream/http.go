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

	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/leak"
	"policy-service/pdp/internal/rpc"
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
	// forgetful makes the log say once that the server keeps no sessions.
	forgetful sync.Once

	doors *doors.Doors // until Close: a session that is opened enters, and what outlives its caller runs in the background

	mu       sync.Mutex // guards sessions
	sessions map[*httpSession]struct{}
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
	return &httpUpstream{
		target: target, transport: transport, options: o, agent: o.Name + "/" + o.Version,
		probing: make(chan struct{}, 1), doors: doors.New(o.Logger), sessions: map[*httpSession]struct{}{},
	}, nil
}

var errClosed = errors.New("the session is over")

func gone() *Error { return &Error{NotSent: true, Gone: true, Detail: errClosed.Error()} }

func (u *httpUpstream) Open(ctx context.Context, c Client) (Session, error) {
	ctx, leave, ok := u.doors.Enter(ctx)
	if !ok {
		return nil, gone()
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, u.options.Timeout, errSlow)
	defer cancel()
	s := u.newSession(c)
	if err := u.agree(ctx, s); err != nil {
		s.Close() // it may have an id already
		return nil, unopened(err)
	}
	u.mu.Lock()
	u.sessions[s] = struct{}{}
	u.mu.Unlock()
	u.options.Logger.Debug("a session with an upstream is open", "era", s.era.String(), "version", s.version)
	if s.era == era.Legacy && s.id == "" {
		u.forgetful.Do(func() {
			u.options.Logger.Warn("the server keeps no sessions: it forgets what clients take, so it cannot ask them anything, nor tell them of changes; start it with sessions, or as one of MCP 2026-07-28",
				"key", u.options.Key)
		})
	}
	return s, nil
}

// newSession is a session that is not open yet.
func (u *httpUpstream) newSession(c Client) *httpSession {
	s := &httpSession{upstream: u}
	s.client.Store(&c)
	s.ctx, s.stop = context.WithCancelCause(u.doors.Context)
	return s
}

// farewell bounds the last messages to a server, about requests and sessions.
const farewell = 5 * time.Second

func (u *httpUpstream) Close() error {
	u.doors.Close()
	u.doors.Served(2 * farewell) // those that are being opened have no time left
	u.mu.Lock()
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
	u.transport.CloseIdleConnections()
	return nil
}

// httpSession is one client's. It shares connections alone with others, and they identify no client to a server: each
// request does.
type httpSession struct {
	upstream *httpUpstream
	client   atomic.Pointer[Client] // with the newest token

	// The results of the handshake. They do not change afterwards.
	met
	version string
	id      string // "" if the server keeps no session

	last  atomic.Int64 // id of a request
	ended sync.Once
	// ctx ends with Close, and with it all that is open.
	ctx  context.Context
	stop context.CancelCauseFunc
}

func (s *httpSession) Send(ctx context.Context, r Request) (Stream, error) {
	t, err := s.exchange(ctx, r)
	if err != nil {
		return nil, err
	}
	if t.status/100 == 2 {
		return t, nil
	}
	defer t.abandon(true)
	return s.refused(t)
}

func (s *httpSession) Notify(ctx context.Context, m rpc.Message) error {
	_, err := s.notify(ctx, m)
	return err
}

// notify is [Session.Notify], and gives the status of the answer, 0 if there is none.
func (s *httpSession) notify(ctx context.Context, m rpc.Message) (status int, _ error) {
	if s.era == era.Modern {
		return 0, &Error{NotSent: true, Detail: "in the modern era a client sends requests alone"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.upstream.options.Timeout, errSlow)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	response, err := s.do(ctx, http.MethodPost, both, m.Append(nil), Request{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	switch status = response.StatusCode; {
	case status/100 == 2:
		return status, nil
	case status == http.StatusNotFound && s.id != "":
		return status, gone()
	}
	return status, &Error{Detail: "the server answers a notification with " + response.Status[:3]}
}

func (s *httpSession) Listen(ctx context.Context) (Stream, error) {
	if s.era == era.Modern {
		return Nothing, nil
	}
	t := s.newStream(ctx, rpc.ID{}, forever)
	response, err := s.do(t.ctx, http.MethodGet, eventStream, nil, Request{})
	if err != nil {
		t.Close()
		return nil, err
	}
	if t.take(response); t.status/100 == 2 && t.events != nil {
		return t, nil
	}
	t.Close()
	switch {
	case t.status == http.StatusMethodNotAllowed:
		return Nothing, nil
	case t.status == http.StatusNotFound && s.id != "":
		return nil, gone()
	}
	return nil, &Error{Detail: "the server answers GET with " + response.Status[:3] + ", and not with a stream"}
}

func (s *httpSession) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), min(farewell, s.upstream.options.Timeout))
	defer cancel()
	s.end(ctx)
}

// end ends the session at the server, once.
func (s *httpSession) end(ctx context.Context) {
	s.ended.Do(func() {
		s.stop(errClosed)
		s.upstream.mu.Lock()
		delete(s.upstream.sessions, s)
		s.upstream.mu.Unlock()
		if s.id == "" {
			return
		}
		response, err := s.do(ctx, http.MethodDelete, jsonType, nil, Request{})
		if err == nil {
			_ = response.Body.Close()
		}
	})
}

// giveUp is for a request whose response has not come: in the legacy era the server is notified. A handshake is not
// cancelled.
func (s *httpSession) giveUp(id rpc.ID) {
	if s.era == era.Modern || s.server == nil || s.ctx.Err() != nil {
		return
	}
	s.client.Load().extra()
	s.upstream.doors.Background(func() {
		ctx, cancel := context.WithTimeoutCause(s.ctx, min(farewell, s.upstream.options.Timeout), errSlow)
		defer cancel()
		if err := s.Notify(ctx, cancelled(id)); err != nil && !errors.Is(err, errClosed) {
			s.upstream.options.Logger.Debug("a cancelled request was not told to an upstream", "error", err)
		}
	})
}
