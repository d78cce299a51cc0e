package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
)

// errOtherEra is of a handshake that the server does not know.
var errOtherEra = errors.New("the server does not speak this era")

// Whether a server speaks an era. It is a property of the server: all sessions use the findings of one.
const (
	unknown int32 = iota
	spoken
	foreign
)

// era is the one to speak for a client that would rather have them in that order, if it is known.
func (u *httpUpstream) era(order []era.Era) (e era.Era, known bool) {
	first, second := u.speaks[order[0]].Load(), u.speaks[order[1]].Load()
	if first == foreign {
		return order[1], second == spoken
	}
	return order[0], first == spoken
}

// forget makes the next session find out again, unless another one has done so meanwhile.
func (u *httpUpstream) forget(e era.Era) { u.speaks[e].CompareAndSwap(spoken, unknown) }

// agree opens a session in an era of the server, the client's if there is a choice. If no session knows which eras the server
// speaks, it finds out, one session at a time.
func (u *httpUpstream) agree(ctx context.Context, s *httpSession) error {
	if len(u.options.Eras) == 1 { // there is no question, and sessions do not wait for each other
		return s.shake(ctx, u.options.Eras[0])
	}
	order := []era.Era{era.Modern, era.Legacy}
	if s.client.Load().Legacy {
		slices.Reverse(order)
	}
	if e, known := u.era(order); known {
		err := s.shake(ctx, e)
		if !u.refuses(ctx, s, e, err) {
			return err
		}
		u.forget(e)
	}
	select {
	case u.probing <- struct{}{}:
	case <-ctx.Done():
		return &Error{Detail: "the era of the server was not found out in time", Err: context.Cause(ctx)}
	}
	defer func() { <-u.probing }()
	if e, known := u.era(order); known {
		return s.shake(ctx, e)
	}
	var said error // by a server that takes neither handshake: the word of a legacy one is the clearer
	for _, e := range order {
		err := s.shake(ctx, e)
		if err == nil && e == era.Legacy && s.id == "" {
			return u.agreeStateless(ctx, s)
		}
		if err == nil {
			u.speaks[e].Store(spoken)
			return nil
		}
		if !u.refuses(ctx, s, e, err) {
			return err
		}
		u.speaks[e].Store(foreign)
		if said == nil || e == era.Legacy {
			said = err
		}
	}
	return said
}

// agreeStateless opens a session with a server that keeps none in the legacy era: it forgets what its client takes, so it cannot
// ask the client anything, and it has no stream for changes. If it speaks the modern era, that is spoken with all clients.
func (u *httpUpstream) agreeStateless(ctx context.Context, s *httpSession) error {
	if u.speaks[era.Modern].Load() != foreign {
		err := s.shake(ctx, era.Modern)
		switch {
		case err == nil:
			u.speaks[era.Legacy].Store(foreign)
			u.speaks[era.Modern].Store(spoken)
			return nil
		case !u.refuses(ctx, s, era.Modern, err): // another session finds out
			return s.shake(ctx, era.Legacy)
		}
		u.speaks[era.Modern].Store(foreign)
		if err := s.shake(ctx, era.Legacy); err != nil {
			return err
		}
	}
	u.speaks[era.Legacy].Store(spoken)
	return nil
}

// refuses reports whether the server takes no handshake of an era, once it has not taken that of a session. It may have refused
// what the client says of itself, and that changes nothing for other clients: so it is asked again in the gateway's own words,
// by a session for that alone.
func (u *httpUpstream) refuses(ctx context.Context, s *httpSession, e era.Era, err error) bool {
	if c := *s.client.Load(); errors.Is(err, errOtherEra) && (c.Info != nil || c.Capabilities != nil) {
		c.Info, c.Capabilities = nil, nil
		own := u.newSession(c)
		defer own.Close()
		if err = own.shake(ctx, e); err == nil {
			u.speaks[e].Store(spoken)
		}
	}
	return errors.Is(err, errOtherEra)
}

func (s *httpSession) shake(ctx context.Context, e era.Era) error {
	s.era, s.id, s.server = e, "", nil
	if e == era.Modern {
		s.version = era.ModernVersions[0]
		return s.discover(ctx)
	}
	s.version = ""
	return s.initialize(ctx)
}

func (s *httpSession) discover(ctx context.Context) error {
	_, m, err := s.ask(ctx, s.upstream.options.discovers(*s.client.Load()))
	if err == nil {
		err = discovered(m)
	}
	if err == nil {
		s.server = m.Result
	}
	return err
}

// discovered reads the answer to server/discover. An error that is errOtherEra speaks for a server of the legacy era.
func discovered(m rpc.Message) error {
	if m.Error == nil {
		var r struct {
			Supported []string `json:"supportedVersions"`
		}
		if json.Unmarshal(m.Result, &r) != nil || !slices.Contains(r.Supported, era.ModernVersions[0]) {
			return &Error{Detail: "server/discover names no version of the modern era that we speak", Err: errOtherEra}
		}
		return nil
	}
	switch errorCode(m.Error) {
	case era.HeaderMismatch, era.MissingCapability:
		return &Error{Detail: "the server is of the modern era, and refuses server/discover", Answer: m.Error}
	case era.UnsupportedVersion:
		return &Error{Detail: "the server speaks other versions than we do", Answer: m.Error, Err: errOtherEra}
	}
	return &Error{Detail: "the server does not know server/discover", Answer: m.Error, Err: errOtherEra}
}

func (s *httpSession) initialize(ctx context.Context) error {
	h, m, err := s.ask(ctx, s.upstream.options.initializes(*s.client.Load()))
	if err != nil {
		return err
	}
	version, err := initialized(m)
	if err != nil {
		return err
	}
	id := h.Get(sessionHeader)
	if len(id) > 4<<10 || !isToken(id) {
		return &Error{Detail: "the server's session id cannot stand in a header"}
	}
	s.version, s.id, s.server = version, id, m.Result
	status, err := s.notify(ctx, rpc.Message{Method: "notifications/initialized"})
	if status == http.StatusBadRequest { // there are servers of the modern era alone that answer initialize
		return &Error{Detail: "the server takes initialize, and refuses what follows it", Err: errOtherEra}
	}
	return err
}

// initialized reads the answer to initialize. An error that is errOtherEra speaks for a server of the modern era.
func initialized(m rpc.Message) (version string, err error) {
	if m.Error != nil {
		return "", &Error{Detail: "the server refuses initialize", Answer: m.Error, Err: errOtherEra}
	}
	o, _ := m.ResultObject()
	if version = o.GetString("protocolVersion"); !slices.Contains(era.LegacyVersions, version) {
		return "", &Error{Detail: "the server wants a version of the protocol that we do not speak", Err: errOtherEra}
	}
	return version, nil
}

// unopened is the error of an opening: the request that needed the session was not sent.
func unopened(err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.NotSent = true
	}
	return err
}

// says describes the client to the server: in the client's own words, or else in the gateway's.
func (o *Options) says(c Client) (info, capabilities jsontext.Value) {
	info, capabilities = c.Info, c.Capabilities
	if info == nil {
		info = rpc.Object{}.With("name", rpc.String(o.Name)).With("version", rpc.String(o.Version)).Value()
	}
	if capabilities == nil {
		capabilities = jsontext.Value("{}")
	}
	return info, capabilities
}

func (o *Options) discovers(c Client) Request {
	info, capabilities := o.says(c)
	as := era.Meta{Version: era.ModernVersions[0], Client: info, Capabilities: capabilities}
	return Request{Method: "server/discover", Params: era.ToModern(rpc.Object{}, as)}
}

func (o *Options) initializes(c Client) Request {
	info, capabilities := o.says(c)
	params := rpc.Object{}.With("protocolVersion", rpc.String(era.LegacyVersions[0])).With("capabilities", capabilities).With("clientInfo", info)
	return Request{Method: "initialize", Params: params}
}

// ask sends a request of a handshake, and waits for its response. An error is of the server, or errOtherEra if what
// refuses the request does not know it.
func (s *httpSession) ask(ctx context.Context, r Request) (http.Header, rpc.Message, error) {
	t, err := s.exchange(ctx, r)
	if err != nil {
		return nil, rpc.Message{}, err
	}
	defer t.Close()
	m, err := response(t, s.upstream.options.Dropped)
	if err == nil && (m.Error == nil || !ofServer(t.status)) {
		return t.header, m, nil
	}
	e := &Error{Detail: "the server answers " + r.Method + " with " + strconv.Itoa(t.status), Answer: forClients(t.status, m), Err: err}
	if errors.Is(err, ErrAmbiguous) && t.status/100 != 3 && !ofServer(t.status) {
		e.Err = errOtherEra
	}
	return nil, m, e
}

// ofServer reports whether a status is about the gateway's credentials or the state of the server, and has no word about the
// request.
func ofServer(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return status > http.StatusNotImplemented
}

// greet starts a process and finds out its era. A server of the modern era is known by its answer to server/discover; every
// other answer, and none, is that of a server of the legacy era, which then gets initialize. Some of those end because they
// were asked, and are started again.
//
// For a client of the legacy era a server that takes initialize is one, whatever else it speaks. A server that refuses what
// one client says of itself speaks the same era with others: so it is asked again in the gateway's own words.
func (k *command) greet(ctx context.Context, c Client) (*childSession, error) {
	own, named := c, c.Info != nil || c.Capabilities != nil
	own.Info, own.Capabilities = nil, nil
	modern, legacy := k.o.speaks(era.Modern), k.o.speaks(era.Legacy)
	if c.Legacy && modern && legacy && !k.foreign[era.Legacy].Load() {
		s, err := k.start(c)
		if err == nil {
			err = s.initialize(ctx, c)
		}
		if !errors.Is(err, errOtherEra) || named && s.initialize(ctx, own) == nil {
			return greeted(s, err)
		}
		s.Close()
	}
	s, err := k.start(c)
	if err != nil {
		return nil, err
	}
	var late *childStream // the question, if it has no answer yet
	if modern && !k.foreign[era.Modern].Load() {
		late, err = s.discover(ctx, c)
		if errors.Is(err, errOtherEra) && late == nil && named {
			var refused error
			if late, refused = s.discover(ctx, own); refused == nil {
				return greeted(s, err)
			}
		}
		e := (*Error)(nil)
		switch {
		case err == nil:
			if c.Legacy {
				k.foreign[era.Legacy].Store(true)
			}
			return s, nil
		case errors.Is(err, errOtherEra) && !legacy:
			return greeted(s, &Error{Detail: "the server does not speak the modern era, and nothing else is allowed"})
		case errors.Is(err, errOtherEra): // go on
		case errors.As(err, &e) && e.Gone && ctx.Err() == nil && legacy:
			if s, err = k.start(c); err != nil {
				return nil, err
			}
		default:
			k.foreign[era.Legacy].Store(false)
			return greeted(s, err)
		}
	}
	err = s.initialize(ctx, c)
	if late != nil {
		defer late.Close()
		if m, _, none := late.take(); err != nil && none == nil && m.IsResponse() && s.isModern(m) == nil {
			return s, nil
		}
	}
	k.foreign[era.Modern].Store(err == nil)
	return greeted(s, err)
}

// greeted is a session, if its greeting went well; else it is over.
func greeted(s *childSession, err error) (*childSession, error) {
	if err != nil && s != nil {
		s.Close()
		return nil, err
	}
	return s, err
}

// become begins the session proper: the server is known.
func (s *childSession) become(e era.Era, server jsontext.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era, s.server = e, server
	if e == era.Legacy && s.over == nil {
		s.listener = s.newStream()
		s.early = time.AfterFunc(s.o.Probe, s.dropUnheard)
	}
}

// discover asks a question that servers of the modern era answer. The error is errOtherEra if the server is of the legacy
// era, as far as one can tell: late is the question if it has no answer yet.
func (s *childSession) discover(ctx context.Context, c Client) (late *childStream, err error) {
	question, err := s.begin(ctx, s.o.discovers(c))
	if err != nil {
		return nil, err
	}
	m, err := s.soon(question)
	e := (*Error)(nil)
	switch {
	case err == nil:
		return nil, s.isModern(m)
	case errors.Is(err, errSlow):
		return question, errOtherEra
	case errors.As(err, &e) && !e.Gone && ctx.Err() == nil: // an answer, if not one that can be read
		return nil, errOtherEra
	}
	return nil, fmt.Errorf("server/discover: %w", err)
}

// soon is the response to a question, or errSlow once Probe is over, however much else the server says meanwhile.
func (s *childSession) soon(question *childStream) (rpc.Message, error) {
	until := time.Now().Add(s.o.Probe)
	for {
		if question.patience = time.Until(until); question.patience <= 0 {
			return rpc.Message{}, errSlow
		}
		m, err := question.Next()
		if err != nil || m.IsResponse() {
			return m, err
		}
		s.o.Dropped(DropEarly)
	}
}

// isModern begins the session if m, an answer to server/discover, is that of a server of the modern era.
func (s *childSession) isModern(m rpc.Message) error {
	err := discovered(m)
	if err == nil {
		s.become(era.Modern, m.Result)
	}
	return err
}

func (s *childSession) initialize(ctx context.Context, c Client) error {
	question, err := s.begin(ctx, s.o.initializes(c))
	if err != nil {
		return err
	}
	m, err := response(question, s.o.Dropped)
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if _, err := initialized(m); err != nil {
		return err
	}
	s.become(era.Legacy, m.Result)
	return s.Notify(ctx, rpc.Message{Method: "notifications/initialized"})
}
