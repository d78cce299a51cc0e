package link

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// Receive returns a queue of the messages that the server sends outside its answers, and beside the answers to requests,
// until stop is called. Requests of the server go to answer.
func (l *Link) Receive(answer func(context.Context, upstream.Session, rpc.Message)) (heard <-chan Notification, stop func()) {
	h := &receiver{make(chan Notification, mostQueued), answer}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receivers[h] = true
	if l.session != nil { // the server may have come back while there was no receiver
		l.announceLocked(changes["initialize"])
	}
	return h.queue, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.receivers, h)
	}
}

func (l *Link) hasReceivers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.receivers) > 0
}

// answerer returns the function that answers requests of the server outside of client requests. It is nil if no receiver can.
func (l *Link) answerer() func(context.Context, upstream.Session, rpc.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.receivers {
		if h.answer != nil && !l.changesOnly.Load() && l.fulfilling.Load() == 0 {
			return h.answer
		}
	}
	return nil
}

// PassChangesOnly drops, from now on, all notifications but those of changes, and takes the text out of those.
func (l *Link) PassChangesOnly() { l.changesOnly.Store(true) }

// PassesChangesOnly reports whether notifications with text are dropped.
func (l *Link) PassesChangesOnly() bool { return l.changesOnly.Load() }

// Fulfils keeps clients from answering requests of the server until end is called.
func (l *Link) Fulfils() (end func()) {
	l.fulfilling.Add(1)
	return func() { l.fulfilling.Add(-1) }
}

// TextWithheld is the reason for dropping a message after [Link.PassChangesOnly].
const TextWithheld = "message in words while results are to be changed"

// announce sends the receivers those of the changes that are pending. They stay pending while there are no receivers.
func (l *Link) announce(changes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announceLocked(changes)
}

func (l *Link) announceLocked(changes []string) {
	if len(l.receivers) == 0 {
		return
	}
	for _, change := range changes {
		if !l.due[change] {
			continue
		}
		delete(l.due, change)
		if change != resourceUpdated {
			l.pass(Notification{rpc.Message{Method: change}, era.Legacy})
			continue
		}
		for _, uri := range slices.Sorted(maps.Keys(l.subscriptions.of)) {
			l.pass(Notification{rpc.Message{Method: change, Params: rpc.Object{}.With("uri", rpc.String(uri)).Value()}, era.Legacy})
		}
	}
}

// Publish passes a message of the server to the receivers. It drops notifications of resources that are not the server's, and of
// those to which the client has not subscribed: the PDP may hide them, and some servers tell every session of each.
func (l *Link) Publish(s Notification) {
	s.Message = era.NotificationFrom(s.Message)
	switch s.Method {
	case toolsChanged:
		l.tools.forget()
	case resourceUpdated:
		params, _ := s.ParamsObject()
		switch uri := params.GetString("uri"); {
		case !l.Server.Owns(uri):
			l.Server.Dropped("notification of a resource that is not the server's")
			return
		case !l.Wanted(uri):
			l.Server.Dropped("notification of a resource without a subscription")
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass(s)
}

// pass puts a message into the queue of each receiver. A receiver with a full queue misses it. The caller holds the lock.
func (l *Link) pass(s Notification) {
	if l.changesOnly.Load() {
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

// subscriptions count the subscriptions of each resource. Each change increments the version and closes changed.
type subscriptions struct {
	of      map[string]int
	version int
	changed chan struct{}
}

// The bounds of one client's subscriptions: resources, and bytes of all their URIs. A receiver's queue holds all pending
// changes, and some more.
const (
	mostSubscriptions = 64
	mostSubscribed    = 64 << 10
	mostQueued        = 64 + mostSubscriptions
)

// Want adds or removes one subscription of each resource. First are the resources that had no subscription before, and last
// those that have none afterwards. If there would be too many, it is not ok and nothing changes.
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

// Note keeps the settings that a client sent to a server of the legacy era, so that its next session gets them too.
func (l *Link) Note(method string, params rpc.Object) {
	uri := params.GetString("uri")
	switch on := method == "resources/subscribe"; {
	case method == "logging/setLevel":
		l.SetLevel(params.GetString("level"))
	case l.Wanted(uri) != on:
		l.Want([]string{uri}, on)
	}
}

// Wanted reports whether a resource has a subscription.
func (l *Link) Wanted(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subscriptions.of[uri] > 0
}

// subscribed returns the resources with a subscription, sorted, their version, and a channel that is closed when they change.
func (l *Link) subscribed() (uris []string, version int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.subscriptions.of)), l.subscriptions.version, l.subscriptions.changed
}

// Listening is a principal and its client that listen to a server.
type Listening struct {
	Who    *identity.Principal
	Client Client
	// MayOpen returns nil if the PDP permits opening a session with the server for this principal.
	MayOpen func(context.Context) error
}

// Listener listens to a server for one request of a client.
type Listener struct {
	link *Link
	// by is the principal and client of the request; its MayOpen uses the permit of the request. As is the same principal and
	// client without that permit, because serverEvents outlast the request.
	by, as        Listening
	wants         Wants
	notifications <-chan Notification
	stop          func()
	// rejoins is set if the listener subscribes again after the server ended its stream or was away.
	rejoins bool

	joining *semaphore.Weighted // guards the rest
	events  *serverEvents       // nil if the server sends no notifications
	uris    []string
	wanted  bool // whether the uris are subscribed
	ended   bool
}

// Listener returns a listener for the request of by. It receives from now on.
func (l *Link) Listener(by, as Listening, w Wants, stays bool) *Listener {
	w.URIs = slices.DeleteFunc(slices.Clone(w.URIs), func(uri string) bool { return !l.Server.Owns(uri) })
	heard, stop := l.Receive(nil)
	return &Listener{link: l, by: by, as: as, wants: w, notifications: heard, stop: stop, rejoins: stays, joining: semaphore.NewWeighted(1)}
}

// End stops the listener. It waits for a running Join. The context of that Join has ended before.
func (l *Listener) End() {
	_ = l.joining.Acquire(context.Background(), 1)
	defer l.joining.Release(1)
	l.ended = true
	l.stop()
	if l.wanted {
		l.link.unwant(l.by, l.uris)
	}
}

// Join subscribes to the wanted changes, and returns those that the server will report.
func (l *Listener) Join(ctx context.Context) (agreed Wants, err error) {
	if err := l.joining.Acquire(ctx, 1); err != nil {
		return agreed, upstream.ClientGone(err)
	}
	defer l.joining.Release(1)
	if l.ended { // a Join that begins late may get the turn after End
		return agreed, upstream.ClientGone(context.Canceled)
	}
	w := l.wants
	l.events = nil
	if err := l.by.MayOpen(ctx); err != nil {
		if err == ErrForbidden { // it receives changes of the server's lists once the server is opened
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
		if !l.wanted {
			if err := pay(ctx, len(w.URIs)); err != nil { // for the ends of its subscriptions
				return agreed, err
			}
		}
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
		for _, uri := range first {
			params := rpc.Object{}.With("uri", rpc.String(uri))
			if _, _, err := l.link.Request(ctx, l.by.Who, l.by.Client, "resources/subscribe", params); err != nil {
				return agreed, err
			}
		}
	}
	l.events = e
	return w, nil
}

// Relay sends the wanted notifications until the server ends them or the client leaves. A listener that rejoins subscribes
// again after a while instead of returning.
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

// ends returns the signals for which Relay waits. With serverEvents that is their end; without, a new session or the end of a
// pause.
func (l *Listener) ends() (over, arrives <-chan struct{}, pause <-chan time.Time) {
	_ = l.joining.Acquire(context.Background(), 1) // no request waits any longer for a Join that holds the turn
	defer l.joining.Release(1)
	if l.events == nil {
		return nil, l.link.arrives(), time.After(lastPause)
	}
	return l.events.over, nil, nil
}

// Rejoin subscribes once more, within listTimeout.
func (l *Listener) Rejoin(ctx context.Context) (agreed Wants, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if agreed, err = l.Join(ctx); err != nil {
		l.link.of.o.Logger.Info("the server has no stream of its own", slog.Group("", "server", l.link.Server.Name), "why", err)
	}
	return agreed, err
}

// unwant ends the subscriptions of resources that no other listener wants. Without a session there are none, and none is opened.
func (l *Link) unwant(by Listening, uris []string) {
	_, last, _, _ := l.Want(uris, false)
	if len(last) == 0 {
		return
	}
	l.of.doors.Background(func() { // because its client has left
		ctx, cancel := context.WithTimeout(l.of.doors.Context, listTimeout)
		defer cancel()
		s, _ := l.Current()
		if s == nil || s.Era() != era.Legacy {
			return
		}
		for _, uri := range last {
			if l.roundTrip(ctx, by.Who, s, "resources/unsubscribe", "uri", uri) != nil {
				return
			}
		}
	})
}

// RelayNotifications sends the server's notifications until the client leaves.
func (l *Link) RelayNotifications(ctx context.Context, by Listening, heard <-chan Notification, send func(Notification)) {
	e, wait := l.startEvents(by), firstPause
	var pause <-chan time.Time
	var arrives <-chan struct{}
	for {
		select {
		case m := <-heard:
			send(m)
		case <-e.over:
			if errors.Is(e.err, ErrClosed) { // the link is closed
				return
			}
			l.of.o.Logger.Info("the server has no stream of its own", slog.Group("", "server", l.Server.Name), "why", e.err)
			if e.acknowledged >= 0 {
				wait = firstPause
			}
			was := e.err
			e, pause, wait = &serverEvents{}, time.After(wait), min(2*wait, lastPause) // notifications beside answers go on
			arrives = l.arrives()
			if s, _ := l.Current(); s != nil && was == ErrForbidden { // the server was opened meanwhile
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

// Wants are the changes that a listener wants to receive.
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
			break // there are too many
		}
		if s, err := jsontext.AppendUnquote(nil, v); err == nil && v.Kind() == '"' && !slices.Contains(w.URIs, string(s)) {
			w.URIs = append(w.URIs, string(s))
		}
	}
	return w
}

// offeredBy returns w without the changes that a server of the legacy era does not report.
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

// withoutText returns a notification of a change without its other members. It is not ok for any other message.
func withoutText(m rpc.Message) (rpc.Message, bool) {
	plain := rpc.Message{Method: m.Method}
	if m.Method == resourceUpdated {
		said, err := rpc.ParseObject(m.Params)
		if err != nil {
			return m, false
		}
		plain.Params = rpc.Object{}.With("uri", rpc.String(said.GetString("uri"))).Value()
	}
	return plain, IsChange(m.Method)
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

// Lists returns w without single resources.
func (w Wants) Lists() Wants {
	return Wants{tools: w.tools, prompts: w.prompts, resources: w.resources}
}

// Object returns the filter as an object.
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
		o = o.With("resourceSubscriptions", rpc.Strings(w.URIs))
	}
	return o
}

func (w Wants) and(v Wants) Wants {
	uris := slices.DeleteFunc(slices.Clone(w.URIs), func(uri string) bool { return !slices.Contains(v.URIs, uri) })
	return Wants{w.tools && v.tools, w.prompts && v.prompts, w.resources && v.resources, uris}
}

// Or returns the changes that at least one of them wants.
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
