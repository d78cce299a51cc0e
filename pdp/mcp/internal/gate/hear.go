package gate

import (
	"context"
	"slices"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
	"policy-service/pdp/mcp/internal/upstream"
)

// has reports whether a session is the link's.
func (l *link) has(s upstream.Session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session == s
}

// hear gives what the server says by itself, and beside the answers to requests, until stop is called.
func (l *link) hear(answer func(context.Context, upstream.Session, rpc.Message)) (heard <-chan said, stop func()) {
	h := &hearer{make(chan said, mostUnheard), answer}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hearers[h] = true
	if l.session != nil { // the server came back while nobody listened
		l.announceLocked(changes["initialize"])
	}
	return h.heard, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.hearers, h)
	}
}

// isHeard reports whether anybody listens.
func (l *link) isHeard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.hearers) > 0
}

// answerer answers requests of the server that belong to none of the client's, nil if nobody does.
func (l *link) answerer() func(context.Context, upstream.Session, rpc.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.hearers {
		if h.answer != nil && !l.muted.silent && l.muted.fulfilling == 0 {
			return h.answer
		}
	}
	return nil
}

// silence has nobody hear words of the server's beside its answers any longer.
func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted.silent = true
}

// fulfils has nobody answer requests of the server until end is called.
func (l *link) fulfils() (end func()) {
	add := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.muted.fulfilling += n
	}
	add(1)
	return func() { add(-1) }
}

func (l *link) silenced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.muted.silent
}

// wordsWhileSilent is why a message goes nowhere after [link.silence].
const wordsWhileSilent = "message in words while results are to be changed"

// announce tells whoever listens what is owed of some changes. It stays owed while nobody listens.
func (l *link) announce(changes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announceLocked(changes)
}

func (l *link) announceLocked(changes []string) {
	if len(l.hearers) == 0 {
		return
	}
	for _, change := range l.account.owed.take(changes) {
		if change != resourceUpdated {
			l.passLocked(said{rpc.Message{Method: change}, era.Legacy})
			continue
		}
		for _, uri := range sortedKeys(l.subscriptions.of) {
			l.passLocked(said{rpc.Message{Method: change, Params: rpc.Object{}.With("uri", rpc.String(uri)).Value()}, era.Legacy})
		}
	}
}

// tell is for whoever listens. A server says nothing of what is not its own.
func (l *link) tell(s said) {
	s.Message = era.NotificationFrom(s.Message)
	switch s.Method {
	case toolsChanged:
		l.tools.forget()
	case resourceUpdated:
		if params, _ := s.ParamsObject(); !l.server.owns(params.GetString("uri")) {
			l.server.Dropped("notification of a resource that is not the server's")
			return
		}
	}
	l.pass(s)
}

// pass is for whoever listens. Who does not keep up misses it.
func (l *link) pass(s said) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passLocked(s)
}

func (l *link) passLocked(s said) {
	if l.muted.silent {
		var ok bool
		if s.Message, ok = withoutWords(s.Message); !ok {
			l.server.Dropped(wordsWhileSilent)
			return
		}
	}
	for h := range l.hearers {
		select {
		case h.heard <- s:
		default:
			l.server.Dropped("listener too slow")
		}
	}
}

// subscriptions say how many want to hear of a resource. When they have changed, they have another version, and changed is
// closed.
type subscriptions struct {
	of      map[string]int
	version int
	changed chan struct{}
}

// How many resources one client may want to hear of, how long their URIs may be together, and how much waits for one that listens:
// all that is owed, and some more.
const (
	mostSubscriptions = 64
	mostSubscribed    = 64 << 10
	mostUnheard       = 64 + mostSubscriptions
)

// want notes that one more wants to hear of resources, or one less. First are those that nobody wanted before, and last
// those that nobody wants any more. It is not ok, and nothing is noted, if they are too many.
func (l *link) want(uris []string, on bool) (first, last []string, version int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for uri := range l.subscriptions.of {
		size += len(uri)
	}
	for _, uri := range uris {
		if on && l.subscriptions.of[uri] == 0 {
			first = append(first, uri)
			size += len(uri)
		}
	}
	if len(first) > 0 && (len(l.subscriptions.of)+len(first) > mostSubscriptions || size > mostSubscribed) {
		return nil, nil, 0, false
	}
	for _, uri := range uris {
		if on {
			l.subscriptions.of[uri]++
		} else if l.subscriptions.of[uri]--; l.subscriptions.of[uri] <= 0 {
			delete(l.subscriptions.of, uri)
			last = append(last, uri)
		}
	}
	if len(first)+len(last) > 0 {
		l.subscriptions.version++
		close(l.subscriptions.changed)
		l.subscriptions.changed = make(chan struct{})
	}
	return first, last, l.subscriptions.version, true
}

// note keeps what the client told a server of the legacy era, so that its next session is told the same.
func (l *link) note(method string, params rpc.Object) {
	uri := params.GetString("uri")
	switch on := method == "resources/subscribe"; {
	case method == "logging/setLevel":
		l.setLevel(params.GetString("level"))
	case l.wanted(uri) == on:
	default:
		if _, _, _, ok := l.want([]string{uri}, on); !ok {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.resumed.short = true
		}
	}
}

// wanted reports whether anybody wants to hear of a resource.
func (l *link) wanted(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subscriptions.of[uri] > 0
}

// subscribed are the resources, sorted, and what is closed when they change.
func (l *link) subscribed() (uris []string, version int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sortedKeys(l.subscriptions.of), l.subscriptions.version, l.subscriptions.changed
}

// listener is one who listens to a server.
type listener struct {
	x     exchange
	wants wants
	heard <-chan said
	stop  func()
	// stays is set if it listens again to a server that ends what it tells, or was away.
	stays bool

	joining turn.Turn // guards what follows
	ear     *ear      // nil if the server does not tell
	uris    []string
	wanted  bool // whether the uris are
	ended   bool
}

func newListener(x exchange, w wants) *listener {
	w.uris = slices.DeleteFunc(slices.Clone(w.uris), func(uri string) bool { return !x.link.server.owns(uri) })
	heard, stop := x.link.hear(nil)
	return &listener{x: x, wants: w, heard: heard, stop: stop, joining: turn.New()}
}

// end has the listener be told no longer. It waits for who has it join: whose context has ended.
func (l *listener) end() {
	_ = l.joining.Take(context.Background())
	defer l.joining.Leave()
	l.ended = true
	l.stop()
	if l.wanted {
		l.x.unwant(l.uris)
	}
}

// join has the server tell of what is wanted, and says of what it does.
func (l *listener) join(ctx context.Context) (agreed wants, err error) {
	if err := l.joining.Take(ctx); err != nil {
		return agreed, &upstream.Error{Detail: "the client has gone", Err: err}
	}
	defer l.joining.Leave()
	if l.ended { // who begins late may have the turn all the same
		return agreed, &upstream.Error{Detail: "the client has gone", Err: context.Canceled}
	}
	x, w := l.x, l.wants
	l.ear = nil
	if err := x.mayOpen(ctx); err != nil {
		if err == errClosed { // it is told of the server's lists once that is open
			return w.lists(), nil
		}
		return agreed, err
	}
	s, err := x.opened(ctx)
	if err != nil {
		return agreed, err
	}
	if s.Era() == era.Legacy {
		w = w.told(s)
	}
	first, version := l.uris, 0
	if !l.wanted {
		l.uris = w.uris
		if first, _, version, l.wanted = x.link.want(l.uris, true); !l.wanted {
			return agreed, invalid("too many resources; listen to fewer")
		}
	}
	e := x.link.attend(x)
	agreed, err = e.until(ctx, version)
	no, refused := e.refusal()
	switch {
	case err != nil && refused:
		return agreed, answered(x.translated(no, e.of))
	case err != nil:
		return agreed, err
	case s.Era() == era.Modern:
		w = w.and(agreed)
	default:
		if err := x.tellOf(ctx, "resources/subscribe", first); err != nil {
			return agreed, err
		}
	}
	l.ear = e
	return w, nil
}

// relay relays what the listener is told, until the server ends it or the client goes. If it stays, it listens again after a
// while instead.
func (l *listener) relay(ctx context.Context, w wants) {
	over, arrives, pause := l.ends()
	for {
		select {
		case m := <-l.heard:
			if w.hear(m.Message) {
				_ = l.x.reply.Interim(era.Notification(m.Message, m.from, era.Modern, l.x.request.ID))
			}
		case <-over:
			if !l.stays {
				return
			}
			over, arrives, pause = nil, nil, time.After(lastPause)
		case <-arrives:
			_, _ = l.again(ctx)
			over, arrives, pause = l.ends()
		case <-pause:
			_, _ = l.again(ctx)
			over, arrives, pause = l.ends()
		case <-ctx.Done():
			return
		}
	}
}

// ends are when the server ends what it tells, and if it tells nothing when to ask it again: when it is back, or in a while.
func (l *listener) ends() (over, arrives <-chan struct{}, pause <-chan time.Time) {
	_ = l.joining.Take(context.Background()) // who has it is not waited for any longer
	defer l.joining.Leave()
	if l.ear == nil {
		return nil, l.x.link.arrives(), time.After(lastPause)
	}
	return l.ear.over, nil, nil
}

// again has the server tell once more, or in time.
func (l *listener) again(ctx context.Context) (agreed wants, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if agreed, err = l.join(ctx); err != nil {
		l.x.g.o.Logger.Info("the server has no stream of its own", "server", l.x.link.server.Name, "why", err)
	}
	return agreed, err
}
