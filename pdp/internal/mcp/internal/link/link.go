package link

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"policy-service/pdp/internal/mcp/internal/arguments"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/rpc"
)

// Link connects one client of one principal to one server. Links share nothing but the server.
type Link struct {
	of     *Servers
	Server *Server
	client upstream.Client
	// life ends when the link is closed, by end.
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	session upstream.Session
	arrival chan struct{} // closed when a new session is kept
	// stale is set once a new session of the legacy era was opened with fewer settings than the session before.
	stale atomic.Bool

	// opening lets one request at a time open the session. The others wait, and share the session.
	opening *semaphore.Weighted
	opens   errand[upstream.Session]

	tools         toolbox
	subscriptions subscriptions
	// level is the log level that the server has received. It goes with each request to a server of the modern era, because a
	// client of the legacy era sets it once. leveled is the session of a legacy server that got it last, for a client of the
	// modern era.
	level   string
	leveled upstream.Session
	info    jsontext.Value // the name and version that the server of the last session gives itself, nil for none
	// due are notifications of changes that the client has missed because the server was away. It receives them when the
	// server is back.
	due map[string]bool

	receivers  map[*receiver]bool
	events     *serverEvents // read for all receivers; nil if no receiver has started them, or they have ended
	stopEvents func()        // ends the serverEvents
	// changesOnly is set once a member was to be removed from a result. Text that the server sends beside its answers could
	// repeat that member.
	changesOnly atomic.Bool
	// fulfilling counts the running calls that fulfil requests of other principals. An answer of the client to the server
	// meanwhile could return to one of them.
	fulfilling atomic.Int32
}

// ServerInfo is the name and version that the server gives itself, nil if it gives none.
func (l *Link) ServerInfo() jsontext.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

func (g *Servers) newLink(s *Server, who *identity.Principal, c Client) *Link {
	g.noteWithheld(s, c)
	as := upstream.Client{Principal: who.Key, Person: who.Account(), Info: c.Info.Clone(), Capabilities: s.able(c.Capabilities), Legacy: c.Era == era.Legacy}
	if people := g.o.People; people != nil {
		as.Extra = func() { people.Charge(as.Person, 1) }
	}
	life, end := context.WithCancel(context.Background())
	return &Link{
		of: g, Server: s, client: as, life: life, end: end, opening: semaphore.NewWeighted(1), arrival: make(chan struct{}),
		tools:         toolbox{loading: semaphore.NewWeighted(1)},
		subscriptions: subscriptions{of: map[string]int{}, changed: make(chan struct{})},
		due:           map[string]bool{}, receivers: map[*receiver]bool{}, stopEvents: func() {},
	}
}

// ErrClosed is the error of a closed link.
var ErrClosed = &upstream.Error{NotSent: true, Gone: true, Detail: "the session is over"}

// Open returns the session with the server. It opens one if there is none.
func (l *Link) Open(ctx context.Context, who *identity.Principal) (upstream.Session, error) {
	if s, err := l.Current(); s != nil || err != nil {
		return s, err
	}
	if err := l.opening.Acquire(ctx, 1); err != nil {
		return nil, &upstream.Error{NotSent: true, Detail: "the client has gone", Err: err}
	}
	defer l.opening.Release(1)
	if s, err := l.Current(); s != nil || err != nil { // another request has opened it
		return s, err
	}
	if err := pay(ctx, openCosts); err != nil {
		return nil, err
	}
	c := l.client
	c.Token, c.Expires = who.Token, who.Expires
	if l.Server.Program && l.of.o.People != nil { // clients that come and go start programs again and again
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

// pay pays for messages to the server that the gateway sends by itself, besides those of clients that it relays.
func pay(ctx context.Context, messages int) error {
	if _, ok := rates.BillOf(ctx).Pay(ctx, messages); !ok {
		return &upstream.Error{NotSent: true, Detail: "nothing was sent to the server", Err: upstream.ErrOwes}
	}
	return nil
}

// openCosts is the number of messages that a session has besides requests: two to greet the server, and one at its end.
const openCosts = 3

// startCosts is the number of messages that the start of a program counts as, besides the one that causes it.
const startCosts = 20

// resume gives a new session of the legacy era the settings of the session before, which the PDP permitted then. A setting
// that the server refuses leaves the link stale.
func (l *Link) resume(ctx context.Context, who *identity.Principal, s upstream.Session) error {
	l.mu.Lock()
	uris, level, short := slices.Sorted(maps.Keys(l.subscriptions.of)), l.level, false
	if l.leveled != nil { // the next request of the client sets it
		level = ""
	}
	l.mu.Unlock()
	if s.Era() == era.Modern {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	send := func(method, name, value string) (err error) {
		if err := pay(ctx, 1); err != nil {
			return err
		}
		if err = l.roundTrip(ctx, who, s, method, name, value); isGone(err) {
			return err
		}
		short = short || err != nil
		return nil
	}
	if level != "" && Offers(s, "logging") {
		if err := send("logging/setLevel", "level", level); err != nil {
			return err
		}
	}
	for _, uri := range uris {
		if err := send("resources/subscribe", "uri", uri); err != nil {
			return err
		}
	}
	if short {
		l.stale.Store(true)
	}
	return nil
}

// roundTrip sends a request of the gateway's own, with one parameter, to a server of the legacy era. An error answer is an error.
func (l *Link) roundTrip(ctx context.Context, who *identity.Principal, s upstream.Session, method, name, value string) error {
	r := upstream.Request{Method: method, Params: rpc.Object{}.With(name, rpc.String(value)), Token: who.Token, Expires: who.Expires}
	stream, err := s.Send(ctx, r)
	if err != nil {
		return err
	}
	m, err := l.response(ctx, s, stream, r.Method, era.Legacy)
	if err == nil && m.Error != nil {
		err = &upstream.Error{Detail: "the server refuses " + r.Method, Answer: m.Error}
	}
	return err
}

// response waits for the response to a request of the gateway's own. It publishes changes that come before the response,
// refuses requests, and drops the rest.
func (l *Link) response(ctx context.Context, s upstream.Session, stream upstream.Stream, method string, client era.Era) (rpc.Message, error) {
	defer stream.Close()
	for {
		m, err := stream.Next()
		switch {
		case err != nil || m.IsResponse():
			return m, err
		case m.IsRequest():
			l.NotPassed(ctx, s, m, client, &Unasked{Why: "the gateway itself sent " + method + ", and answers nothing"})
		case IsChange(m.Method):
			l.Publish(Notification{m, s.Era()})
		}
	}
}

func isGone(err error) bool {
	e := (*upstream.Error)(nil)
	return errors.As(err, &e) && e.Gone
}

// Opened returns the session with the server. It opens one if there is none. With several servers, opening goes on when the
// request that waits for all of them gives up.
func (l *Link) Opened(ctx context.Context, who *identity.Principal) (upstream.Session, error) {
	if s, err := l.Current(); s != nil || err != nil {
		return s, err
	}
	open := func(ctx context.Context) (upstream.Session, error) { return l.Open(ctx, who) }
	if !l.of.Several() {
		return open(ctx)
	}
	s, _, err := sendOff(ctx, l.of, who, &l.opens, open)
	return s, err
}

// Current returns the current session, nil if there is none. It is an error if the link is closed.
func (l *Link) Current() (upstream.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return nil, ErrClosed
	}
	return l.session, nil
}

// AfterClose calls do once the link is closed, unless stop is called before. Use it to give up what waits for the client.
func (l *Link) AfterClose(do func()) (stop func() bool) { return context.AfterFunc(l.life, do) }

// keep makes a session the current one. It is not ok if the link is closed.
func (l *Link) keep(s upstream.Session) bool {
	info := era.ServerInfo(s.Server(), s.Era()).Clone()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return false
	}
	l.session, l.info = s, info
	close(l.arrival)
	l.arrival = make(chan struct{})
	return true
}

func (l *Link) arrives() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrival
}

// lose forgets a session that no longer exists, unless another has taken its place.
func (l *Link) lose(s upstream.Session) {
	l.mu.Lock()
	if l.session == s {
		l.session = nil
		l.owe(changes["initialize"])
	}
	l.mu.Unlock()
	s.Close()
	l.tools.forget()
}

// Rest takes the session and the serverEvents from the link until the next request. It returns nil if there is no session.
func (l *Link) Rest() upstream.Session {
	l.mu.Lock()
	s := l.session
	l.session, l.events = nil, nil
	l.owe(changes["initialize"])
	l.stopEvents()
	l.mu.Unlock()
	l.tools.forget()
	return s
}

// close ends the link. It may be called twice.
func (l *Link) close() {
	l.mu.Lock()
	s := l.session
	l.session = nil
	l.end()
	l.stopEvents()
	l.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Send sends a request. If the server has forgotten the session and did not get the request, Send opens another session,
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

// SendOnce sends a request, and never again. Together with an error it returns the session if one was open. Its caller pays for
// the request.
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

// plain returns an error with the server's own answer in it, without members that only the gateway may write.
func (l *Link) plain(method string, err error) error {
	var e *upstream.Error
	if !errors.As(err, &e) || e.Answer == nil {
		return err
	}
	said := *e
	said.Answer = era.Relayed(method, l.Server.Name, rpc.Message{Error: e.Answer}, era.Legacy, era.Legacy).Error
	return &said
}

// MostAsking is the number of requests of one server that one person may have open at a time, outside of calls and by all clients.
const MostAsking = 16

// Asking returns the key under which the open requests of a server count.
func Asking(server string) string { return "asked by " + server }

// MayAsk counts one open request to the person until done is called. It is not ok if there are too many already.
func (l *Link) MayAsk() (done func(), ok bool) {
	return l.of.o.Rates.Hold(l.client.Person, Asking(l.Server.Name))
}

func (l *Link) SetLevel(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = level
}

// Tool is a tool: its definition under the name that clients use, the parameters that its calls repeat in headers, and
// whether it is as locked.
type Tool struct {
	*ask.Tool
	Entry   jsontext.Value
	Headers []era.HeaderParam
	Pinned  bool
	Schema  *arguments.Schema // of its arguments; nil if the tool differs from the lock, or its arguments go unjudged
	// Unlisted is set if nothing is known of the tool but its name. Such a tool is decided about, and never called.
	Unlisted bool
}

// Translated returns the response to a method in the form of an era. For the modern era it names the server.
func (l *Link) Translated(method string, m rpc.Message, of upstream.Session, to era.Era) rpc.Message {
	m = era.Relayed(method, l.Server.Name, m, of.Era(), to)
	if to == era.Modern {
		m = era.WithServer(m, l.ServerInfo())
	}
	return m
}

// Signed returns a message of a server's log. With several servers the message names its server.
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

// IsChange reports whether a notification is one of a change, to which clients can subscribe.
func IsChange(method string) bool {
	return slices.Contains(changes["initialize"], method)
}

// Reach connects one client of one principal to all servers. It has a link to each, which is opened on its first use.
type Reach struct {
	Account string  // see [identity.Principal.Account]
	Links   []*Link // in the order of the servers
	// MCPx is set once the client has declared an extension of ours, or sent a message of one.
	MCPx atomic.Bool
}

// Reach returns the links of a client to all servers. None of them is open yet.
func (g *Servers) Reach(who *identity.Principal, c Client) *Reach {
	r := &Reach{Account: who.Account()}
	for _, s := range g.o.All {
		r.Links = append(r.Links, g.newLink(s, who, c))
	}
	r.MCPx.Store(c.SpeaksMCPx())
	return r
}

// Only returns the link to the only server, nil if there are several.
func (r *Reach) Only() *Link {
	if len(r.Links) == 1 {
		return r.Links[0]
	}
	return nil
}

// To returns the link to a server, nil if there is none of that name.
func (r *Reach) To(server string) *Link {
	for _, l := range r.Links {
		if l.Server.Name == server {
			return l
		}
	}
	return nil
}

// Stale returns a server that sends a client of the legacy era fewer notifications than it asked for, nil if there is none.
func (r *Reach) Stale() *Server {
	for _, l := range r.Links {
		if l.stale.Load() {
			return l.Server
		}
	}
	return nil
}

// Close ends all links at the same time, so that a slow server delays no other.
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

// Sweep drops what the links keep of their servers' lists beyond its time.
func (r *Reach) Sweep(now time.Time) {
	for _, l := range r.Links {
		l.tools.sweep(now)
	}
}

func (r *Reach) PassChangesOnly() {
	for _, l := range r.Links {
		l.PassChangesOnly()
	}
}

// lateness counts the vain waits for a server since its last answer, by method.
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

// toOpen stands for opening the session, which comes before any method.
const toOpen = "opening"

// awaited is the key in lateness of a request: its method, or toOpen without a session.
func (l *Link) awaited(method string) string {
	if s, _ := l.Current(); s == nil {
		return toOpen
	}
	return method
}

// NoteAnswer notes whether a server has answered a request that went to all servers, or was late.
func (l *Link) NoteAnswer(method string, err error) {
	if err == nil {
		l.answered(method)
		return
	}
	if ofPerson(err) { // which says nothing of the server
		return
	}
	l.Server.late.note(l.awaited(method), err == ErrLate)
	l.NotifyLater(method)
	l.Server.tried(context.Background(), err)
	if err != ErrForbidden {
		l.of.o.Logger.Warn("a server is left out", slog.Group("", "server", l.Server.Name, "method", method), "why", err)
	}
	if l.hasArrived(method, l.of.o.Now(), l.of.o.Lock.current()) { // it came just after the wait, before it was pending
		l.announce(changes[method])
	}
}

// NotifyLater makes the changes of a method pending: the client receives them when the server, which has not answered it, is
// there.
func (l *Link) NotifyLater(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owe(changes[method])
}

// owe makes changes pending. The caller holds the lock.
func (l *Link) owe(changes []string) {
	for _, change := range changes {
		l.due[change] = true
	}
}

// Patience is the time to wait for the server's answer to a method after other servers have answered.
func (l *Link) Patience(method string) time.Duration {
	return l.Server.late.patience(l.awaited(method))
}

// hasArrived reports whether the answer to a method has come meanwhile.
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

// answered notes an answer of the server, and announces it to clients that got a list without the server.
func (l *Link) answered(method string) {
	l.Server.late.note(method, false)
	l.announce(changes[method])
}

// changes are the notifications that make the answer to a method out of date.
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

// The time that a client waits for a server after other servers have answered. Each vain wait halves it, down to Glance,
// until the server answers or a minute has passed.
const (
	patience = 5 * time.Second
	Glance   = 500 * time.Millisecond
)

var (
	ErrLate   = &upstream.Error{Detail: "others have answered, and the server takes too long"}
	ErrBroken = &upstream.Error{Detail: "what the server says cannot be worked on"}
)
