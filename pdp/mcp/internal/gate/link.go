package gate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/arguments"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/turn"
	"policy-service/pdp/mcp/internal/upstream"
)

// client is what a client says of itself: once in the legacy era, with each request in the modern one.
type client struct {
	era                era.Era
	version            string
	info, capabilities jsontext.Value
	// logLevel is which messages of a server's log it wants, "" if none.
	logLevel string
}

// link is the way from one client of one principal to one server. Links share nothing but the server.
type link struct {
	server *Server
	client upstream.Client

	mu      sync.Mutex
	session upstream.Session
	opening opening
	arrival chan struct{} // closed when another session is there
	closed  bool

	tools         toolbox
	account       account
	log           logSettings
	subscriptions subscriptions
	introduced    introduced
	hearing
}

// opening is who opens the session, for all who want it.
type opening struct {
	turn   turn.Turn
	errand turn.Errand[upstream.Session]
}

// account is how many things of the server's the client is asked, and what it is to be told.
type account struct {
	asking int
	owed   owed
}

// hearing is who listens to what the server says by itself, and who listens to the server for them.
type hearing struct {
	hearers map[*hearer]bool
	ear     *ear   // nil if nobody has listened yet
	deafen  func() // ends it
	muted   muted
}

// muted is why a client does not hear what the server says by itself.
type muted struct {
	// silent is set once something was to be taken out of a result: what the server says in words of its own beside answers
	// could be just that.
	silent bool
	// fulfilling counts the calls under way that fulfil requests of others: what a client answered to the server meanwhile could
	// come back to one of them.
	fulfilling int
}

// logSettings are what of its log the server was told to say.
type logSettings struct {
	// level is what a server of the modern era is told with each request, because its client has said it once.
	level string
	// told is the session that a server of the legacy era was told level in, for a client of the modern one.
	told upstream.Session
}

// introduced is what the server of a session calls itself.
type introduced struct {
	of   upstream.Session
	info jsontext.Value
}

// serverInfo is what the server of a session calls itself, nil if it does not say.
func (l *link) serverInfo(s upstream.Session) jsontext.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.introduced.of != s {
		l.introduced = introduced{s, era.ServerInfo(s.Server(), s.Era())}
	}
	return l.introduced.info
}

// kept is a client without the request in which it says what it is.
func (c client) kept() client {
	c.info, c.capabilities = c.info.Clone(), c.capabilities.Clone()
	return c
}

func newLink(s *Server, principal string, c client) *link {
	of := upstream.Client{Principal: principal, Info: c.info.Clone(), Capabilities: s.able(c.capabilities)}
	return &link{
		server: s, client: of, opening: opening{turn: turn.New()}, arrival: make(chan struct{}),
		tools:         toolbox{loading: turn.New()},
		subscriptions: subscriptions{of: map[string]int{}, changed: make(chan struct{})},
		hearing:       hearing{hearers: map[*hearer]bool{}, deafen: func() {}},
	}
}

var errLinkClosed = &upstream.Error{NotSent: true, Gone: true, Detail: "the session is over"}

// open is the session with the server, opened if there is none.
func (l *link) open(ctx context.Context, who *identity.Principal) (upstream.Session, error) {
	if s, err := l.current(); s != nil || err != nil {
		return s, err
	}
	if err := l.opening.turn.Take(ctx); err != nil {
		return nil, &upstream.Error{NotSent: true, Detail: "the client has gone", Err: err}
	}
	defer l.opening.turn.Leave()
	if s, err := l.current(); s != nil || err != nil { // somebody had the turn before
		return s, err
	}
	c := l.client
	c.Token, c.Expires = who.Token, who.Expires
	s, err := l.server.Upstream.Open(ctx, c)
	l.server.tried(ctx, err)
	if err != nil {
		return nil, err
	}
	if !l.keep(s) {
		s.Close()
		return nil, errLinkClosed
	}
	l.server.late.note(toOpen, false)
	l.announce(changes["initialize"])
	return s, nil
}

// opened is the session with the server, opened if there is none. One of several servers goes on opening when whoever asks
// for all of them does not wait any longer.
func (x *exchange) opened(ctx context.Context) (upstream.Session, error) {
	if s, err := x.link.current(); s != nil || err != nil {
		return s, err
	}
	open := func(ctx context.Context) (upstream.Session, error) { return x.link.open(ctx, x.who) }
	if !x.g.several() {
		return open(ctx)
	}
	s, _, err := sendOff(ctx, x, &x.link.opening.errand, open)
	return s, err
}

// current is the session that there is, nil if there is none. It is an error if there will be none.
func (l *link) current() (upstream.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errLinkClosed
	}
	return l.session, nil
}

// keep makes a session the link's. It is not ok if the link is closed.
func (l *link) keep(s upstream.Session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.session = s
		close(l.arrival)
		l.arrival = make(chan struct{})
	}
	return !l.closed
}

// arrives is closed when another session than the one there is has been opened.
func (l *link) arrives() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrival
}

// lose forgets a session that is no more, unless another has taken its place already.
func (l *link) lose(s upstream.Session) {
	l.mu.Lock()
	if l.session == s {
		l.session = nil
	}
	l.mu.Unlock()
	s.Close()
	l.tools.forget()
}

// rest takes the session from the link until something is sent again, and the ear with it. It is nil if there is none.
func (l *link) rest() upstream.Session {
	l.mu.Lock()
	s := l.session
	l.session, l.ear = nil, nil
	l.deafen()
	l.mu.Unlock()
	l.tools.forget()
	return s
}

// close ends the link. It may be called twice.
func (l *link) close() {
	l.mu.Lock()
	s := l.session
	l.session, l.closed = nil, true
	l.deafen()
	l.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// send sends a request. If the server has forgotten the session and has not got the request, another session is opened,
// once.
func (l *link) send(ctx context.Context, who *identity.Principal, make func(upstream.Session) upstream.Request) (upstream.Session, upstream.Stream, error) {
	s, stream, err := l.sendOnce(ctx, who, make)
	gone := (*upstream.Error)(nil)
	if errors.As(err, &gone) && gone.Gone && gone.NotSent && s != nil {
		s, stream, err = l.sendOnce(ctx, who, make)
	}
	if err != nil {
		return nil, nil, err
	}
	return s, stream, nil
}

// sendOnce sends a request, and never again. With an error there is a session if one was open.
func (l *link) sendOnce(ctx context.Context, who *identity.Principal, make func(upstream.Session) upstream.Request) (upstream.Session, upstream.Stream, error) {
	s, err := l.open(ctx, who)
	if err != nil {
		return nil, nil, err
	}
	r := make(s)
	r.Token, r.Expires = who.Token, who.Expires
	stream, err := s.Send(ctx, r)
	gone := (*upstream.Error)(nil)
	if errors.As(err, &gone) && gone.Gone {
		l.lose(s)
	}
	return s, stream, err
}

// mostAsking is how many things of a server's one client may be asked at a time.
const mostAsking = 16

// mayAsk notes that the client is asked something, until done is called. It is not ok if it is asked too much already.
func (l *link) mayAsk() (done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.account.asking == mostAsking {
		return nil, false
	}
	l.account.asking++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.account.asking--
	}, true
}

// level is the log level that a client of the legacy era has set.
func (l *link) level() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.level
}

func (l *link) setLevel(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.level = level
}

// Server is the MCP server as the gateway knows it.
type Server struct {
	Name     string
	Upstream upstream.Upstream
	// Labels are the operator's, of tools by their own names.
	Labels map[string]map[string]string
	// Hidden are tools that the gateway does not have.
	Hidden map[string]bool
	// Asks says what the server may ask of clients.
	Asks Relays
	// Dropped counts what came from the server and went nowhere.
	Dropped func(reason string)
	// URIs are how the resources begin that are the server's; "" begins all.
	URIs []string
	// Idle is how long its program runs on for a session whose client closed its stream; 0 is for as long as the session.
	Idle time.Duration

	away    atomic.Bool // it did not answer when it was last asked
	late    lateness
	catalog catalog
}

// sent notes how a request to the server ended.
func (s *Server) sent(err error) { s.away.Store(err != nil) }

// tried notes how something ended that the gateway wanted of the server, unless it was given up. What the server answers with
// an error, it has answered.
func (s *Server) tried(ctx context.Context, err error) {
	e := (*upstream.Error)(nil)
	if ctx.Err() == nil {
		s.away.Store(errors.As(err, &e) && e.Answer == nil)
	}
}

// Relays says which requests of a server reach its clients.
type Relays struct {
	Elicitation, Sampling, Roots bool
	// Hosts are those that a URL may lead to which a server has a person open.
	Hosts []string
}

// tool is a tool, how it is defined by the name that clients use, what its calls have in their headers, and whether it is as it
// is locked.
type tool struct {
	*ask.Tool
	shown   jsontext.Value
	headers []era.HeaderParam
	pinned  bool
	schema  *arguments.Schema // of its arguments, nil if it is not as it is locked
}
