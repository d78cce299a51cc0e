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
	"policy-service/pdp/mcp/internal/rpc"
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
	resumed resumed

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

// resumed is how far a new session of the legacy era is told what the one before was.
type resumed struct {
	// short is set if less is kept than the client told the server, and stale once a session was told less.
	short, stale bool
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
	of := upstream.Client{Principal: principal, Info: c.info.Clone(), Capabilities: s.able(c.capabilities), Legacy: c.era == era.Legacy}
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
	if l.server.starting != nil {
		l.server.starting(who)
	}
	s, err := l.server.Upstream.Open(ctx, c)
	l.server.tried(ctx, err)
	if err != nil {
		return nil, l.plain("initialize", err)
	}
	if err := l.resume(ctx, who, s); err != nil {
		s.Close()
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

// resume tells a new session of the legacy era what the client told the one before, which was permitted then. What the server
// does not take leaves the link stale.
func (l *link) resume(ctx context.Context, who *identity.Principal, s upstream.Session) error {
	l.mu.Lock()
	uris, level, short := sortedKeys(l.subscriptions.of), l.log.level, l.resumed.short
	if l.log.told != nil { // the next request of the client says it
		level = ""
	}
	l.mu.Unlock()
	if s.Era() == era.Modern {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	tell := func(method, name, value string) (err error) {
		r := upstream.Request{Method: method, Params: rpc.Object{}.With(name, rpc.String(value)), Token: who.Token, Expires: who.Expires}
		if err = takes(ctx, s, r); isGone(err) {
			return err
		}
		short = short || err != nil
		return nil
	}
	if level != "" && offers(s, "logging") {
		if err := tell("logging/setLevel", "level", level); err != nil {
			return err
		}
	}
	for _, uri := range uris {
		if err := tell("resources/subscribe", "uri", uri); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumed.stale = l.resumed.stale || short
	return nil
}

// takes has a server of the legacy era take a request, and is an error if it does not.
func takes(ctx context.Context, s upstream.Session, r upstream.Request) error {
	stream, err := s.Send(ctx, r)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		switch m, err := stream.Next(); {
		case err != nil:
			return err
		case m.IsResponse() && m.Error != nil:
			return &upstream.Error{Detail: "the server refuses " + r.Method, Answer: m.Error}
		case m.IsResponse():
			return nil
		}
	}
}

// isGone reports whether an error says that a session is no more.
func isGone(err error) bool {
	e := (*upstream.Error)(nil)
	return errors.As(err, &e) && e.Gone
}

// opened is the session with the server, opened if there is none. One of several servers goes on opening when whoever asks
// for all of them does not wait any longer.
func (x Target) opened(ctx context.Context) (upstream.Session, error) {
	if s, err := x.link.current(); s != nil || err != nil {
		return s, err
	}
	open := func(ctx context.Context) (upstream.Session, error) { return x.link.open(ctx, x.who) }
	if !x.g.several() {
		return open(ctx)
	}
	s, _, err := sendOff(ctx, x.Call, &x.link.opening.errand, open)
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
		l.account.owed.add(changes["initialize"])
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
	l.account.owed.add(changes["initialize"])
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
	if isGone(err) {
		l.lose(s)
	}
	return s, stream, l.plain(r.Method, err)
}

// plain is an error without what only the gateway says, if the server said one.
func (l *link) plain(method string, err error) error {
	var e *upstream.Error
	if !errors.As(err, &e) || e.Answer == nil {
		return err
	}
	said := *e
	said.Answer = era.Relayed(method, l.server.Name, rpc.Message{Error: e.Answer}, era.Legacy, era.Legacy).Error
	return &said
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
	// Key is what the server is called in the configuration.
	Key string
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
	// Program is set if each session has a process of its own.
	Program bool

	starting func(who *identity.Principal) // counts a process that is about to be started
	away     atomic.Bool                   // it did not answer when it was last asked
	late     lateness
	catalog  catalog
	noted    noted
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
	schema  *arguments.Schema // of its arguments; nil if it is not as it is locked, or they go unjudged
}
