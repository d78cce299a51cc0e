package link

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// serverEvents reads the notifications and requests that a server sends outside its answers, for all receivers of one link. A
// link has only one: a server of the legacy era takes one such stream a session, and some servers of the modern era forget a
// subscription when another of the same process ends. The first receiver starts it, and it lasts as long as its link.
type serverEvents struct {
	link *Link
	over chan struct{}
	// The reason of its end, set before over is closed: the server's error, or ours. Neither is set if the server ended the
	// stream without an error.
	answer  rpc.Message
	session upstream.Session
	err     error

	// The lock of the link guards the rest.
	by           Listening // the newest listener; streams are opened by its token, because those before may have expired
	acknowledged int       // the version of the subscriptions that the server has confirmed
	agreed       Wants
	step         chan struct{} // closed when acknowledged has changed
}

// Notification is a message of the server that belongs to no request.
type Notification struct {
	rpc.Message
	From era.Era
}

type receiver struct {
	queue chan Notification
	// answer answers a request of the server. It is nil if the receiver cannot.
	answer func(ctx context.Context, s upstream.Session, m rpc.Message)
}

// startEvents returns the serverEvents of the link, and starts them if there are none. From now on they go on for this listener.
func (l *Link) startEvents(by Listening) *serverEvents {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events != nil {
		l.events.by = by
		return l.events
	}
	e := &serverEvents{link: l, by: by, over: make(chan struct{}), step: make(chan struct{}), acknowledged: -1}
	ctx, cancel := context.WithCancel(l.of.doors.Context)
	run := func() {
		defer cancel()
		e.run(ctx)
	}
	if l.life.Err() != nil || !l.of.doors.Background(run) {
		cancel()
		e.err = ErrClosed
		close(e.over)
		return e
	}
	l.events, l.stopEvents = e, cancel
	return e
}

func (e *serverEvents) listener() Listening {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	return e.by
}

// Agrees waits until the server has confirmed a version of the subscriptions.
func (l *Link) Agrees(ctx context.Context, by Listening, version int) error {
	_, err := l.startEvents(by).until(ctx, version)
	return err
}

// until waits until the server has confirmed a version of the subscriptions, and returns the notifications that the server
// will send.
func (e *serverEvents) until(ctx context.Context, version int) (Wants, error) {
	for {
		e.link.mu.Lock()
		settled, agreed, step := e.acknowledged, e.agreed, e.step
		e.link.mu.Unlock()
		if settled >= version {
			return agreed, nil
		}
		select {
		case <-step:
		case <-e.over:
			if e.err == nil {
				return agreed, &upstream.Error{Detail: "the server does not say what changes", Answer: e.answer.Error}
			}
			return agreed, e.err
		case <-ctx.Done():
			return agreed, upstream.ClientGone(ctx.Err())
		}
	}
}

// refusal returns the error by which the server refused the stream. It is not ok if the server has not refused it.
func (e *serverEvents) refusal() (m rpc.Message, ok bool) {
	select {
	case <-e.over:
		return e.answer, e.err == nil && e.answer.Error != nil
	default:
		return m, false
	}
}

func (e *serverEvents) acknowledge(version int, agreed Wants) {
	e.link.announce(changes["initialize"]) // the server is there
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	e.acknowledged, e.agreed = version, agreed
	close(e.step)
	e.step = make(chan struct{})
}

// The pauses before a stream that the server ended is opened again.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

func (e *serverEvents) run(ctx context.Context) {
	defer func() {
		e.link.mu.Lock()
		if e.link.events == e {
			e.link.events = nil
		}
		e.link.mu.Unlock()
		close(e.over)
	}()
	for pause := firstPause; ; {
		ended, heard := e.readStream(ctx)
		if ctx.Err() != nil {
			e.err = ErrClosed
			return
		}
		if heard || ended == again {
			pause = firstPause
		}
		switch ended {
		case again:
			continue
		case over:
			if e.acknowledged >= 0 { // changes of this time were not received
				e.link.NotifyLater("initialize")
			}
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// ending is the next step after the end of a stream.
type ending uint8

const (
	over  ending = iota // no other stream
	again               // another stream at once
	later               // another stream after a pause
)

// readStream opens one stream of the server and reads it to its end.
func (e *serverEvents) readStream(ctx context.Context) (ended ending, heard bool) {
	uris, version, changed := e.link.subscribed()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream upstream.Stream
	if e.session, stream, e.err = e.open(ctx, uris); e.err != nil {
		return over, false
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Close)()
	if e.session.Era() == era.Legacy {
		e.acknowledge(math.MaxInt, Wants{})
		if stream == upstream.Nothing { // notifications can come beside answers
			<-ctx.Done()
			return over, false
		}
	} else {
		go func() {
			select {
			case <-changed:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	for {
		m, err := stream.Next()
		if isGone(err) {
			e.link.lose(e.session)
			if !e.link.hasReceivers() { // without a receiver no program is started again
				return over, heard
			}
		}
		now, _ := e.link.Current()
		switch {
		case err != nil && (ctx.Err() != nil || now != e.session):
			return again, heard
		case errors.Is(err, io.EOF) && e.session.Era() == era.Legacy:
			return later, heard
		case err != nil:
			return over, heard
		case m.IsResponse():
			e.answer = m
			return over, heard
		case m.Method == Acknowledged:
			params, _ := rpc.ParseObject(m.Params)
			e.acknowledge(version, WantsOf(params))
		default:
			e.dispatch(ctx, m)
		}
		heard = true
	}
}

// open opens the server's stream. If the server has forgotten this session since the last request, it opens the stream in
// another session.
func (e *serverEvents) open(ctx context.Context, uris []string) (upstream.Session, upstream.Stream, error) {
	s, stream, err := e.openOnce(ctx, uris)
	if isGone(err) && s != nil {
		e.link.lose(s)
		if e.link.hasReceivers() {
			s, stream, err = e.openOnce(ctx, uris)
		}
	}
	return s, stream, err
}

func (e *serverEvents) openOnce(ctx context.Context, uris []string) (upstream.Session, upstream.Stream, error) {
	by := e.listener()
	if ends := by.Who.Expires; !ends.IsZero() && !e.link.of.o.Now().Before(ends) { // the next listener starts other serverEvents
		return nil, nil, &upstream.Error{NotSent: true, Detail: "nobody listens any more whose token is valid", Err: identity.ErrExpired}
	}
	ctx = e.link.of.o.People.WithBill(ctx, by.Who.Account()) // it is opened when no message is worked on
	if err := by.MayOpen(ctx); err != nil {
		return nil, nil, err
	}
	s, err := e.link.Open(ctx, by.Who)
	if err != nil {
		return nil, nil, err
	}
	if err := pay(ctx, 1); err != nil {
		return nil, nil, err
	}
	if s.Era() == era.Legacy {
		stream, err := s.Listen(ctx)
		return s, stream, err
	}
	if s == e.session {
		// A server that answers this has noticed the end of the stream before.
		if _, _, err := e.link.Request(ctx, by.Who, by.Client, "server/discover", rpc.Object{}); err != nil {
			return nil, nil, err
		}
	}
	all := Wants{tools: true, prompts: true, resources: true, URIs: uris}
	params := rpc.Object{}.With("notifications", all.Object().Value())
	return e.link.Send(ctx, by.Who, func(s upstream.Session) upstream.Request {
		return upstream.Request{Method: "subscriptions/listen", Params: e.link.Outgoing(s, by.Client, params)}
	})
}

func (e *serverEvents) dispatch(ctx context.Context, m rpc.Message) {
	switch {
	case m.IsRequest():
		if answer := e.link.answerer(); answer != nil {
			answer(ctx, e.session, m)
		} else {
			e.link.NotPassed(ctx, e.session, m, e.listener().Client.Era, &Unasked{Why: "nobody listens who can answer now"})
		}
	case IsChange(m.Method) || m.Method == "notifications/message":
		e.link.Publish(Notification{e.link.Signed(m), e.session.Era()})
	default:
		e.link.Server.Dropped("notification that nobody wants")
	}
}
