package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// httpSession is one client's. It shares connections alone with others, and they identify no client to a server: each
// request does.
type httpSession struct {
	upstream *httpUpstream
	client   Client

	// The results of the handshake. They do not change afterwards.
	met
	version string
	id      string // "" if the server keeps no session

	last  atomic.Int64 // id of a request
	ended sync.Once
	// ctx ends with Close, and with it all that is open.
	ctx  context.Context
	stop context.CancelCauseFunc

	mu      sync.Mutex // guards the newest token
	token   string
	expires time.Time
}

func newHTTPSession(u *httpUpstream, c Client) *httpSession {
	s := &httpSession{upstream: u, client: c, token: c.Token, expires: c.Expires}
	s.ctx, s.stop = context.WithCancelCause(u.ctx)
	return s
}

// renew takes over a client's newer token, and is the newest.
func (s *httpSession) renew(r Request) (token string, expires time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Token != "" {
		s.token, s.expires = r.Token, r.Expires
	}
	return s.token, s.expires
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
	s.upstream.background(func() {
		ctx, cancel := context.WithTimeoutCause(s.ctx, min(farewell, s.upstream.options.Timeout), errSlow)
		defer cancel()
		if err := s.Notify(ctx, cancelled(id)); err != nil && !errors.Is(err, errClosed) {
			s.upstream.options.Logger.Debug("a cancelled request was not told to an upstream", "error", err)
		}
	})
}
