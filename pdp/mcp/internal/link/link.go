package link

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	"policy-service/pdp/mcp/lock"
)

// Link is the way from one client of one principal to one server. Links share nothing but the server.
type Link struct {
	of     *Servers
	Server *Server
	client upstream.Client

	mu      sync.Mutex
	session upstream.Session
	opening opening
	arrival chan struct{} // closed when another session is there
	closed  bool
	resumed resumed

	tools         toolbox
	dues          clientDues
	log           logSettings
	subscriptions subscriptions
	introduced    introduced
	eventState
}

// opening lets one request at a time open the session. The others wait for it, and share the session.
type opening struct {
	turn   turn.Turn
	errand turn.Errand[upstream.Session]
}

// resumed is how far a new session of the legacy era is told what the one before was.
type resumed struct {
	// short is set if less is kept than the client told the server, and stale once a session was told less.
	short, stale bool
}

// clientDues is how many things of the server's the client is asked, and what it is to be told.
type clientDues struct {
	requests int
	changes  pendingChanges
}

// eventState holds the listeners of the link, and the ear that reads from the server for all of them.
type eventState struct {
	receivers  map[*receiver]bool
	events     *serverEvents // nil if nobody has listened yet
	stopEvents func()        // ends it
	filter     passFilter
}

// passFilter is why a client does not hear what the server says by itself.
type passFilter struct {
	// changesOnly is set once something was to be taken out of a result: what the server says in words of its own beside answers
	// could be just that.
	changesOnly bool
	// fulfilling counts the calls under way that fulfil requests of others: what a client answered to the server meanwhile could
	// come back to one of them.
	fulfilling int
}

// logSettings are what of its log the server was told to say.
type logSettings struct {
	// level is what a server of the modern era is told with each request, because its client has said it once.
	level string
	// session is the session that a server of the legacy era was told level in, for a client of the modern one.
	session upstream.Session
}

// introduced is what the server of a session calls itself.
type introduced struct {
	of   upstream.Session
	info jsontext.Value
}

// ServerInfo is what the server of a session calls itself, nil if it does not say.
func (l *Link) ServerInfo(s upstream.Session) jsontext.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.introduced.of != s {
		l.introduced = introduced{s, era.ServerInfo(s.Server(), s.Era())}
	}
	return l.introduced.info
}

func (g *Servers) newLink(s *Server, who *identity.Principal, c Client) *Link {
	as := upstream.Client{Principal: who.Key, Person: who.Account(), Info: c.Info.Clone(), Capabilities: s.able(c.Capabilities), Legacy: c.Era == era.Legacy}
	return &Link{
		of: g, Server: s, client: as, opening: opening{turn: turn.New()}, arrival: make(chan struct{}),
		tools:         toolbox{loading: turn.New()},
		subscriptions: subscriptions{of: map[string]int{}, changed: make(chan struct{})},
		eventState:    eventState{receivers: map[*receiver]bool{}, stopEvents: func() {}},
	}
}

// ErrClosed is of a link that is closed.
var ErrClosed = &upstream.Error{NotSent: true, Gone: true, Detail: "the session is over"}

// Open is the session with the server, opened if there is none.
func (l *Link) Open(ctx context.Context, who *identity.Principal) (upstream.Session, error) {
	if s, err := l.Current(); s != nil || err != nil {
		return s, err
	}
	if err := l.opening.turn.Take(ctx); err != nil {
		return nil, &upstream.Error{NotSent: true, Detail: "the client has gone", Err: err}
	}
	defer l.opening.turn.Leave()
	if s, err := l.Current(); s != nil || err != nil { // somebody had the turn before
		return s, err
	}
	c := l.client
	c.Token, c.Expires = who.Token, who.Expires
	if l.Server.Program && l.of.o.People != nil { // clients that come and go have programs come and go
		l.of.o.People.Charge(who.Account(), startCosts)
	}
	s, err := l.Server.Upstream.Open(ctx, c)
	l.Server.tried(ctx, err)
	if err != nil {
		return nil, l.plain("initialize", err)
	}
	if err := l.resume(ctx, who, s); err != nil {
		s.Close()
		return nil, err
	}
	if !l.keep(s) {
		s.Close()
		return nil, ErrClosed
	}
	l.Server.late.note(toOpen, false)
	l.announce(changes["initialize"])
	return s, nil
}

// startCosts is how many messages the start of a program counts as, besides the one that wants it.
const startCosts = 20

// resume tells a new session of the legacy era what the client told the one before, which was permitted then. What the server
// does not take leaves the link stale.
func (l *Link) resume(ctx context.Context, who *identity.Principal, s upstream.Session) error {
	l.mu.Lock()
	uris, level, short := slices.Sorted(maps.Keys(l.subscriptions.of)), l.log.level, l.resumed.short
	if l.log.session != nil { // the next request of the client says it
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
		if err = roundTrip(ctx, s, r); isGone(err) {
			return err
		}
		short = short || err != nil
		return nil
	}
	if level != "" && Offers(s, "logging") {
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

// roundTrip has a server of the legacy era take a request, and is an error if it does not.
func roundTrip(ctx context.Context, s upstream.Session, r upstream.Request) error {
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

// Opened is the session with the server, opened if there is none. One of several servers goes on opening when whoever asks
// for all of them does not wait any longer.
func (l *Link) Opened(ctx context.Context, who *identity.Principal) (upstream.Session, error) {
	if s, err := l.Current(); s != nil || err != nil {
		return s, err
	}
	open := func(ctx context.Context) (upstream.Session, error) { return l.Open(ctx, who) }
	if !l.of.Several() {
		return open(ctx)
	}
	s, _, err := sendOff(ctx, l.of, who, &l.opening.errand, open)
	return s, err
}

// Current is the session that there is, nil if there is none. It is an error if there will be none.
func (l *Link) Current() (upstream.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	return l.session, nil
}

// keep makes a session the link's. It is not ok if the link is closed.
func (l *Link) keep(s upstream.Session) bool {
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
func (l *Link) arrives() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrival
}

// lose forgets a session that is no more, unless another has taken its place already.
func (l *Link) lose(s upstream.Session) {
	l.mu.Lock()
	if l.session == s {
		l.session = nil
		l.dues.changes.add(changes["initialize"])
	}
	l.mu.Unlock()
	s.Close()
	l.tools.forget()
}

// Rest takes the session from the link until something is sent again, and the ear with it. It is nil if there is none.
func (l *Link) Rest() upstream.Session {
	l.mu.Lock()
	s := l.session
	l.session, l.events = nil, nil
	l.dues.changes.add(changes["initialize"])
	l.stopEvents()
	l.mu.Unlock()
	l.tools.forget()
	return s
}

// close ends the link. It may be called twice.
func (l *Link) close() {
	l.mu.Lock()
	s := l.session
	l.session, l.closed = nil, true
	l.stopEvents()
	l.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Send sends a request. If the server has forgotten the session and has not got the request, another session is opened,
// once.
func (l *Link) Send(ctx context.Context, who *identity.Principal, make func(upstream.Session) upstream.Request) (upstream.Session, upstream.Stream, error) {
	s, stream, err := l.SendOnce(ctx, who, make)
	gone := (*upstream.Error)(nil)
	if errors.As(err, &gone) && gone.Gone && gone.NotSent && s != nil {
		s, stream, err = l.SendOnce(ctx, who, make)
	}
	if err != nil {
		return nil, nil, err
	}
	return s, stream, nil
}

// SendOnce sends a request, and never again. With an error there is a session if one was open.
func (l *Link) SendOnce(ctx context.Context, who *identity.Principal, make func(upstream.Session) upstream.Request) (upstream.Session, upstream.Stream, error) {
	s, err := l.Open(ctx, who)
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
func (l *Link) plain(method string, err error) error {
	var e *upstream.Error
	if !errors.As(err, &e) || e.Answer == nil {
		return err
	}
	said := *e
	said.Answer = era.Relayed(method, l.Server.Name, rpc.Message{Error: e.Answer}, era.Legacy, era.Legacy).Error
	return &said
}

// mostAsking is how many things of a server's one client may be asked at a time.
const mostAsking = 16

// MayAsk notes that the client is asked something, until done is called. It is not ok if it is asked too much already.
func (l *Link) MayAsk() (done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dues.requests == mostAsking {
		return nil, false
	}
	l.dues.requests++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dues.requests--
	}, true
}

// level is the log level that a client of the legacy era has set.
func (l *Link) level() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.level
}

// SetLevel keeps the log level that a client of the legacy era has set.
func (l *Link) SetLevel(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.level = level
}

// Tool is a tool, how it is defined by the name that clients use, what its calls have in their headers, and whether it is as it
// is locked.
type Tool struct {
	*ask.Tool
	Entry   jsontext.Value
	Headers []era.HeaderParam
	Pinned  bool
	Schema  *arguments.Schema // of its arguments; nil if it is not as it is locked, or they go unjudged
}

// Translated is the response to a method as an era has it, and says whose it is.
func (l *Link) Translated(method string, m rpc.Message, of upstream.Session, to era.Era) rpc.Message {
	m = era.Relayed(method, l.Server.Name, m, of.Era(), to)
	if to == era.Modern {
		m = era.WithServer(m, l.ServerInfo(of))
	}
	return m
}

// Signed is a message of a server's log that says of which of several servers it is.
func (l *Link) Signed(m rpc.Message) rpc.Message {
	if !l.of.Several() || m.Method != "notifications/message" {
		return m
	}
	params, err := m.ParamsObject()
	if err != nil {
		return m
	}
	logger := l.Server.Name
	if own := params.GetString("logger"); own != "" {
		logger += ": " + own
	}
	m.Params = params.With("logger", rpc.String(logger)).Value()
	return m
}

// IsChange reports whether a notification says that something is other than it was, for whoever wants to know.
func IsChange(method string) bool {
	switch method {
	case toolsChanged, promptsChanged, resourcesChanged, resourceUpdated:
		return true
	}
	return false
}

// Reach is the ways from one client of one principal to all servers: a link to each, which is opened when it is needed.
type Reach struct {
	Account string  // see [identity.Principal.Account]
	Links   []*Link // in the order of the servers
	// MCPx is set once the client has declared an extension of ours, or sent a message of one.
	MCPx atomic.Bool
}

// Reach is the way of a client to all servers. Nothing is opened yet.
func (g *Servers) Reach(who *identity.Principal, c Client) *Reach {
	r := &Reach{Account: who.Account()}
	for _, s := range g.o.All {
		r.Links = append(r.Links, g.newLink(s, who, c))
	}
	r.MCPx.Store(c.Knows(era.Authorizations) || c.Knows(era.ToolRequests))
	return r
}

// Only is the link to the one server there is, nil if there are several.
func (r *Reach) Only() *Link {
	if len(r.Links) == 1 {
		return r.Links[0]
	}
	return nil
}

// To is the link to a server, nil if there is none of that name.
func (r *Reach) To(server string) *Link {
	for _, l := range r.Links {
		if l.Server.Name == server {
			return l
		}
	}
	return nil
}

// Stale is the server, if there is one, of which a client of the legacy era hears less than it asked for.
func (r *Reach) Stale() *Server {
	for _, l := range r.Links {
		l.mu.Lock()
		stale := l.resumed.stale
		l.mu.Unlock()
		if stale {
			return l.Server
		}
	}
	return nil
}

// Close ends all links. One server that takes its time to hear that it is over is in no other's way.
func (r *Reach) Close() {
	if l := r.Only(); l != nil {
		l.close()
		return
	}
	var all sync.WaitGroup
	for _, l := range r.Links {
		all.Go(l.close)
	}
	all.Wait()
}

func (r *Reach) PassChangesOnly() {
	for _, l := range r.Links {
		l.PassChangesOnly()
	}
}

// lateness is how often a server was waited for in vain, one time after the other, by what it was asked.
type lateness struct {
	mu sync.Mutex
	of map[string]late
}

type late struct {
	times uint
	last  time.Time
}

func (t *lateness) patience(of string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[of]; time.Since(one.last) < time.Minute {
		return max(patience>>min(one.times, 8), Glance)
	}
	return patience
}

func (t *lateness) note(of string, inVain bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !inVain {
		delete(t.of, of)
		return
	}
	if t.of == nil {
		t.of = map[string]late{}
	}
	t.of[of] = late{t.of[of].times + 1, time.Now()}
}

// toOpen is what a server is asked first, whatever a client wants.
const toOpen = "opening"

// waits is what a server is waited for.
func (l *Link) waits(method string) string {
	if s, _ := l.Current(); s == nil {
		return toOpen
	}
	return method
}

// NoteAnswer notes whether a server has answered what all were asked, or came late.
func (l *Link) NoteAnswer(method string, err error) {
	if err == nil {
		l.answered(method)
		return
	}
	l.Server.late.note(l.waits(method), err == ErrLate)
	l.NotifyLater(method)
	l.Server.tried(context.Background(), err)
	if err != ErrForbidden {
		l.of.o.Logger.Warn("a server is left out", "server", l.Server.Name, "method", method, "why", err)
	}
	if l.hasArrived(method, l.of.o.Now(), l.of.o.Lock.current()) { // just when nobody waited for it any longer, and before anything was owed
		l.announce(changes[method])
	}
}

// NotifyLater notes that the client is to hear when the server, which has not answered a method, is there.
func (l *Link) NotifyLater(method string) { l.dues.changes.add(changes[method]) }

// Patience is for how long the server is waited for that has not answered a method while others have.
func (l *Link) Patience(method string) time.Duration { return l.Server.late.patience(l.waits(method)) }

// hasArrived reports whether what the server was asked is there meanwhile.
func (l *Link) hasArrived(method string, now time.Time, locked *lock.File) bool {
	switch method {
	case "initialize", "server/discover":
		s, _ := l.Current()
		return s != nil
	case "tools/list":
		listed, _, _ := l.tools.fresh(now, locked)
		return listed != nil
	}
	return false
}

// answered notes that the server has answered, and tells whoever was not shown what it has.
func (l *Link) answered(method string) {
	l.Server.late.note(method, false)
	l.announce(changes[method])
}

// changes are the notifications that are due, because the server was away when a client was shown what servers have: the client
// is told when the server is back.
type pendingChanges struct {
	mu  sync.Mutex
	all map[string]bool
}

func (o *pendingChanges) add(changes []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string]bool{}
	}
	for _, change := range changes {
		o.all[change] = true
	}
}

// take are those of the changes that are due. They are due no longer.
func (o *pendingChanges) take(changes []string) (due []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, change := range changes {
		if o.all[change] {
			due = append(due, change)
			delete(o.all, change)
		}
	}
	return due
}

// changes are the notifications that say that what a method said is no longer so.
var changes = map[string][]string{
	"initialize":               {toolsChanged, promptsChanged, resourcesChanged, resourceUpdated},
	"server/discover":          {toolsChanged, promptsChanged, resourcesChanged, resourceUpdated},
	"tools/list":               {toolsChanged},
	"prompts/list":             {promptsChanged},
	"resources/list":           {resourcesChanged},
	"resources/templates/list": {resourcesChanged},
}

const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

// How long a client waits for a server that has not answered while others have. It is half of that each time that somebody
// has waited in vain, until the server answers or a minute has gone, but not less than a glance.
const (
	patience = 5 * time.Second
	Glance   = 500 * time.Millisecond
)

var (
	ErrLate   = &upstream.Error{Detail: "others have answered, and the server takes too long"}
	ErrBroken = &upstream.Error{Detail: "what the server says cannot be worked on"}
)
