package link

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/turn"
	"policy-service/pdp/mcp/internal/upstream"
)

// has reports whether a session is the link's.
func (l *Link) has(s upstream.Session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session == s
}

// Receive gives what the server says by itself, and beside the answers to requests, until stop is called.
func (l *Link) Receive(answer func(context.Context, upstream.Session, rpc.Message)) (heard <-chan Notification, stop func()) {
	h := &receiver{make(chan Notification, mostQueued), answer}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receivers[h] = true
	if l.session != nil { // the server came back while nobody listened
		l.announceLocked(changes["initialize"])
	}
	return h.queue, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.receivers, h)
	}
}

// hasReceivers reports whether the link has listeners.
func (l *Link) hasReceivers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.receivers) > 0
}

// answerer answers requests of the server that belong to no request of the client. It is nil if no listener can.
func (l *Link) answerer() func(context.Context, upstream.Session, rpc.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.receivers {
		if h.answer != nil && !l.filter.changesOnly && l.filter.fulfilling == 0 {
			return h.answer
		}
	}
	return nil
}

// PassChangesOnly drops words of the server beside its answers from now on.
func (l *Link) PassChangesOnly() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.filter.changesOnly = true
}

// Fulfils lets no client answer requests of the server until end is called.
func (l *Link) Fulfils() (end func()) {
	add := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.filter.fulfilling += n
	}
	add(1)
	return func() { add(-1) }
}

// PassesChangesOnly reports whether words of the server are dropped.
func (l *Link) PassesChangesOnly() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.filter.changesOnly
}

// TextWithheld is why a message goes nowhere after [Link.PassChangesOnly].
const TextWithheld = "message in words while results are to be changed"

// announce sends listeners the changes that are owed, of some. They stay owed while there are no listeners.
func (l *Link) announce(changes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announceLocked(changes)
}

func (l *Link) announceLocked(changes []string) {
	if len(l.receivers) == 0 {
		return
	}
	for _, change := range l.dues.changes.take(changes) {
		if change != resourceUpdated {
			l.passLocked(Notification{rpc.Message{Method: change}, era.Legacy})
			continue
		}
		for _, uri := range slices.Sorted(maps.Keys(l.subscriptions.of)) {
			l.passLocked(Notification{rpc.Message{Method: change, Params: rpc.Object{}.With("uri", rpc.String(uri)).Value()}, era.Legacy})
		}
	}
}

// Publish hands a message of the server to the listeners. A server reports nothing of resources that are not its own.
func (l *Link) Publish(s Notification) {
	s.Message = era.NotificationFrom(s.Message)
	switch s.Method {
	case toolsChanged:
		l.tools.forget()
	case resourceUpdated:
		if params, _ := s.ParamsObject(); !l.Server.Owns(params.GetString("uri")) {
			l.Server.Dropped("notification of a resource that is not the server's")
			return
		}
	}
	l.pass(s)
}

// pass hands a message to the listeners. A listener that does not keep up misses it.
func (l *Link) pass(s Notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passLocked(s)
}

func (l *Link) passLocked(s Notification) {
	if l.filter.changesOnly {
		var ok bool
		if s.Message, ok = withoutText(s.Message); !ok {
			l.Server.Dropped(TextWithheld)
			return
		}
	}
	for h := range l.receivers {
		select {
		case h.queue <- s:
		default:
			l.Server.Dropped("listener too slow")
		}
	}
}

// subscriptions count the subscriptions of each resource. Each change makes another version, and closes changed.
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
	mostQueued        = 64 + mostSubscriptions
)

// Want counts one subscription more, or one less, to resources. First are those without a subscription before, and last those
// without one afterwards. It is not ok, and nothing changes, if they are too many.
func (l *Link) Want(uris []string, on bool) (first, last []string, version int, ok bool) {
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

// Note keeps what the client told a server of the legacy era, so that its next session is told the same.
func (l *Link) Note(method string, params rpc.Object) {
	uri := params.GetString("uri")
	switch on := method == "resources/subscribe"; {
	case method == "logging/setLevel":
		l.SetLevel(params.GetString("level"))
	case l.Wanted(uri) == on:
	default:
		if _, _, _, ok := l.Want([]string{uri}, on); !ok {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.resumed.short = true
		}
	}
}

// Wanted reports whether a resource has a subscription.
func (l *Link) Wanted(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subscriptions.of[uri] > 0
}

// subscribed are the resources, sorted, and what is closed when they change.
func (l *Link) subscribed() (uris []string, version int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.subscriptions.of)), l.subscriptions.version, l.subscriptions.changed
}

// Listening is a principal and its client that listen to a server.
type Listening struct {
	Who    *identity.Principal
	Client Client
	// MayOpen is nil if a session may be opened with the server for it.
	MayOpen func(context.Context) error
}

// Listener listens to a server for one request of a client.
type Listener struct {
	link *Link
	// by is the principal and client of the request; its MayOpen uses the permit of the request. As is the same principal and
	// client without that permit: the ear lasts longer than the request.
	by, as        Listening
	wants         Wants
	notifications <-chan Notification
	stop          func()
	// rejoins is set if it listens again to a server that ends what it tells, or was away.
	rejoins bool

	joining turn.Turn     // guards what follows
	events  *serverEvents // nil if the server does not tell
	uris    []string
	wanted  bool // whether the uris are
	ended   bool
}

// Listener is a listener for the request of by. It hears from now on.
func (l *Link) Listener(by, as Listening, w Wants, stays bool) *Listener {
	w.URIs = slices.DeleteFunc(slices.Clone(w.URIs), func(uri string) bool { return !l.Server.Owns(uri) })
	heard, stop := l.Receive(nil)
	return &Listener{link: l, by: by, as: as, wants: w, notifications: heard, stop: stop, rejoins: stays, joining: turn.New()}
}

// End stops the listener. It waits for a Join under way, whose context has ended by then.
func (l *Listener) End() {
	_ = l.joining.Take(context.Background())
	defer l.joining.Leave()
	l.ended = true
	l.stop()
	if l.wanted {
		l.link.unwant(l.by, l.uris)
	}
}

// Join has the server report the changes that are wanted, and returns those that it will report.
func (l *Listener) Join(ctx context.Context) (agreed Wants, err error) {
	if err := l.joining.Take(ctx); err != nil {
		return agreed, &upstream.Error{Detail: "the client has gone", Err: err}
	}
	defer l.joining.Leave()
	if l.ended { // who begins late may have the turn all the same
		return agreed, &upstream.Error{Detail: "the client has gone", Err: context.Canceled}
	}
	w := l.wants
	l.events = nil
	if err := l.by.MayOpen(ctx); err != nil {
		if err == ErrForbidden { // it is told of the server's lists once that is open
			return w.Lists(), nil
		}
		return agreed, err
	}
	s, err := l.link.Opened(ctx, l.by.Who)
	if err != nil {
		return agreed, err
	}
	if s.Era() == era.Legacy {
		w = w.offeredBy(s)
	}
	first, version := l.uris, 0
	if !l.wanted {
		l.uris = w.URIs
		if first, _, version, l.wanted = l.link.Want(l.uris, true); !l.wanted {
			return agreed, answer.Invalid("too many resources; listen to fewer")
		}
	}
	e := l.link.startEvents(l.as)
	agreed, err = e.until(ctx, version)
	no, refused := e.refusal()
	switch {
	case err != nil && refused:
		return agreed, answer.Of(l.link.Translated("subscriptions/listen", no, e.session, l.by.Client.Era))
	case err != nil:
		return agreed, err
	case s.Era() == era.Modern:
		w = w.and(agreed)
	default:
		if err := l.link.sendSubscriptions(ctx, l.by, "resources/subscribe", first); err != nil {
			return agreed, err
		}
	}
	l.events = e
	return w, nil
}

// Relay sends what the listener is told, until the server ends it or the client goes. If it stays, it listens again after a
// while instead.
func (l *Listener) Relay(ctx context.Context, w Wants, send func(Notification)) {
	over, arrives, pause := l.ends()
	for {
		select {
		case m := <-l.notifications:
			if w.includes(m.Message) {
				send(m)
			}
		case <-over:
			if !l.rejoins {
				return
			}
			over, arrives, pause = nil, nil, time.After(lastPause)
		case <-arrives:
			_, _ = l.Rejoin(ctx)
			over, arrives, pause = l.ends()
		case <-pause:
			_, _ = l.Rejoin(ctx)
			over, arrives, pause = l.ends()
		case <-ctx.Done():
			return
		}
	}
}

// ends are the signals for which Relay waits: with an ear the end of the ear, without one a new session, or the end of a pause.
func (l *Listener) ends() (over, arrives <-chan struct{}, pause <-chan time.Time) {
	_ = l.joining.Take(context.Background()) // who has it is not waited for any longer
	defer l.joining.Leave()
	if l.events == nil {
		return nil, l.link.arrives(), time.After(lastPause)
	}
	return l.events.over, nil, nil
}

// Rejoin has the server tell once more, or in time.
func (l *Listener) Rejoin(ctx context.Context) (agreed Wants, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if agreed, err = l.Join(ctx); err != nil {
		l.link.of.o.Logger.Info("the server has no stream of its own", "server", l.link.Server.Name, "why", err)
	}
	return agreed, err
}

// unwant has the server tell no longer of what nobody wants to hear of.
func (l *Link) unwant(by Listening, uris []string) {
	_, last, _, _ := l.Want(uris, false)
	if len(last) == 0 {
		return
	}
	l.of.doors.Background(func() { // for its client has gone
		ctx, cancel := context.WithTimeout(l.of.doors.Context, listTimeout)
		defer cancel()
		if s, err := l.Open(ctx, by.Who); err == nil && s.Era() == era.Legacy {
			_ = l.sendSubscriptions(ctx, by, "resources/unsubscribe", last)
		}
	})
}

// sendSubscriptions subscribes to resources of a server of the legacy era, or unsubscribes from them.
func (l *Link) sendSubscriptions(ctx context.Context, by Listening, method string, uris []string) error {
	for _, uri := range uris {
		params := rpc.Object{}.With("uri", rpc.String(uri))
		if _, _, err := l.Request(ctx, by.Who, by.Client, method, params); err != nil {
			return err
		}
	}
	return nil
}

// RelayNotifications sends what the server says by itself until the client goes.
func (l *Link) RelayNotifications(ctx context.Context, by Listening, heard <-chan Notification, send func(Notification)) {
	e, wait := l.startEvents(by), firstPause
	var pause <-chan time.Time
	var arrives <-chan struct{}
	for {
		select {
		case m := <-heard:
			send(m)
		case <-e.over:
			if errors.Is(e.err, ErrClosed) { // the session is over
				return
			}
			l.of.o.Logger.Info("the server has no stream of its own", "server", l.Server.Name, "why", e.err)
			if e.acknowledged >= 0 {
				wait = firstPause
			}
			was := e.err
			e, pause, wait = &serverEvents{}, time.After(wait), min(2*wait, lastPause) // what comes beside answers goes on
			arrives = l.arrives()
			if s, _ := l.Current(); s != nil && was == ErrForbidden { // opened meanwhile
				e = l.startEvents(by)
			}
		case <-pause:
			e, arrives = l.startEvents(by), nil
		case <-arrives:
			e, arrives = l.startEvents(by), nil
		case <-ctx.Done():
			return
		}
	}
}

// Wants is what a listener wants to hear.
type Wants struct {
	tools, prompts, resources bool
	URIs                      []string
}

// WantsOf reads the filter of a client or of an acknowledgement.
func WantsOf(params rpc.Object) (w Wants) {
	o, _ := rpc.ParseObject(params.Get("notifications"))
	yes := func(name string) bool { return o.Get(name).Kind() == 't' }
	w.tools, w.prompts, w.resources = yes("toolsListChanged"), yes("promptsListChanged"), yes("resourcesListChanged")
	uris, _ := rpc.Elements(o.Get("resourceSubscriptions"))
	for _, v := range uris {
		if len(w.URIs) > mostSubscriptions {
			break // they are too many
		}
		if s, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' && !slices.Contains(w.URIs, string(s)) {
			w.URIs = append(w.URIs, string(s))
		}
	}
	return w
}

// offeredBy are w as far as a server of the legacy era says that it tells of such things.
func (w Wants) offeredBy(s upstream.Session) Wants {
	server, _ := rpc.ParseObject(s.Server())
	can := server.GetObject("capabilities")
	yes := func(of, name string) bool { return can.GetObject(of).Get(name).Kind() == 't' }
	w.tools = w.tools && yes("tools", "listChanged")
	w.prompts = w.prompts && yes("prompts", "listChanged")
	w.resources = w.resources && yes("resources", "listChanged")
	if !yes("resources", "subscribe") {
		w.URIs = nil
	}
	return w
}

// withoutText is what says that something has changed, and no more than what. It is not ok for anything else.
func withoutText(m rpc.Message) (rpc.Message, bool) {
	var params jsontext.Value
	switch m.Method {
	case toolsChanged, promptsChanged, resourcesChanged:
	case resourceUpdated:
		said, err := rpc.ParseObject(m.Params)
		if err != nil {
			return m, false
		}
		params = rpc.Object{}.With("uri", rpc.String(said.GetString("uri"))).Value()
	default:
		return m, false
	}
	return rpc.Message{Method: m.Method, Params: params}, true
}

func (w Wants) includes(m rpc.Message) bool {
	switch m.Method {
	case toolsChanged:
		return w.tools
	case promptsChanged:
		return w.prompts
	case resourcesChanged:
		return w.resources
	case resourceUpdated:
		params, _ := rpc.ParseObject(m.Params)
		return slices.Contains(w.URIs, params.GetString("uri"))
	}
	return false
}

// None reports whether nothing is wanted.
func (w Wants) None() bool { return !w.tools && !w.prompts && !w.resources && len(w.URIs) == 0 }

// Lists are w without single resources.
func (w Wants) Lists() Wants {
	return Wants{tools: w.tools, prompts: w.prompts, resources: w.resources}
}

// value is the filter in JSON.
func (w Wants) value() jsontext.Value { return w.Object().Value() }

// Object is the filter as an object.
func (w Wants) Object() rpc.Object {
	o := rpc.Object{}
	for _, v := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", w.tools}, {"promptsListChanged", w.prompts}, {"resourcesListChanged", w.resources}} {
		if v.on {
			o = o.With(v.name, jsontext.Value("true"))
		}
	}
	if len(w.URIs) > 0 {
		o = o.With("resourceSubscriptions", texts(w.URIs))
	}
	return o
}

// and is what both want.
func (w Wants) and(v Wants) Wants {
	uris := slices.DeleteFunc(slices.Clone(w.URIs), func(uri string) bool { return !slices.Contains(v.URIs, uri) })
	return Wants{w.tools && v.tools, w.prompts && v.prompts, w.resources && v.resources, uris}
}

// Or is what one or the other wants.
func (w Wants) Or(v Wants) Wants {
	uris := slices.Clone(w.URIs)
	for _, uri := range v.URIs {
		if !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
	}
	return Wants{w.tools || v.tools, w.prompts || v.prompts, w.resources || v.resources, uris}
}

const Acknowledged = "notifications/subscriptions/acknowledged"

func texts(all []string) jsontext.Value {
	values := make([]jsontext.Value, len(all))
	for i, s := range all {
		values[i] = rpc.String(s)
	}
	return rpc.Array(values)
}
