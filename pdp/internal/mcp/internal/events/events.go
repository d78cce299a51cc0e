// Package events sends listeners what is new for them.
//
// Begin with [New] and [Broadcaster.Topic]. [Broadcaster.Listen] gives a [Listener], and [Listener.Hear] sends it what there
// is. A [Topic] says no more than that it has changed ([Topic.Changed]): then it is read with the token of each listener, from
// the cursor of the last read. All streams of one token share their reads. After an error the next read begins at the same
// cursor, so nothing is lost.
//
// Reads begin at a random moment after a change, and few go on at once: many listeners do not overrun the PDP. The package
// decides nothing, and knows no message but by its id.
package events

import (
	"context"
	"sync"
	"time"

	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
)

// Options are the parts of a [Broadcaster]. All are needed.
type Options struct {
	// Dropped counts a message that a listener misses, by the reason.
	Dropped func(reason string)
	// Background runs a function. It is not ok, and nothing runs, once Context has ended.
	Background func(what func()) (ok bool)
	Context    context.Context
}

const (
	// Spread is the time within which reads begin after a change.
	Spread = 2 * time.Second
	// mostReading is how many reads go on at once, mostOfTopic how many of them of one topic, and readsFor how long one may take.
	mostReading = 16
	mostOfTopic = 4
	readsFor    = 30 * time.Second
	// mostQueued is how many messages to a principal wait for a slow stream.
	mostQueued = 64
)

// TooSlow is the reason for which a message to a principal is dropped.
const TooSlow = "listener too slow"

// Event is a message that a stream is sent once.
type Event struct {
	ID      string
	Message rpc.Message
	// Over, unless nil, reports whether the event is of no use any longer, and is not sent. It must be quick, and call nothing here.
	Over func() bool
}

// Page is what a read finds. The next read begins at Cursor, and at once if there is More.
type Page struct {
	Events []Event
	Cursor string
	More   bool
	// Failed is why something is missing: the topic is read on from Cursor, but after a pause as after an error of a [Read].
	Failed error
}

// Read reads what a topic has for a principal since a cursor; "" is the beginning. An event may come twice. After an error the
// same is read again: see [Later].
type Read func(ctx context.Context, who *identity.Principal, cursor string) (Page, error)

// Later is an error of a [Read] with the least time until the next one.
type Later struct {
	Err   error
	After time.Duration
}

// Error implements error.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the error itself.
func (l *Later) Unwrap() error { return l.Err }

// Broadcaster has all listeners. [New] makes it.
type Broadcaster struct {
	o       Options
	reading chan struct{} // one value for each read

	mu        sync.Mutex                    // guards what follows, and the fields of topics, readers and listeners
	listeners map[string]map[*Listener]bool // by principal
	people    map[string]*person            // by account
}

// person is whoever has listeners, by all clients.
type person struct {
	listeners int
	reading   chan struct{} // one read at a time goes on, of all their tokens: the places of all reads are few
}

// New returns a Broadcaster without listeners.
func New(o Options) *Broadcaster {
	return &Broadcaster{o: o, reading: make(chan struct{}, mostReading), listeners: map[string]map[*Listener]bool{}, people: map[string]*person{}}
}

// Tell sends a message to all streams of one principal.
func (b *Broadcaster) Tell(principal string, m rpc.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.listeners[principal] {
		if len(l.queue) >= mostQueued {
			b.o.Dropped(TooSlow)
			continue
		}
		l.queue = append(l.queue, m)
		signal(l.more)
	}
}

// Topic is something that listeners read when it has changed. [Broadcaster.Topic] makes it.
type Topic struct {
	broadcaster *Broadcaster
	read        Read
	reading     chan struct{} // one value for each read
	readers     map[credential]*reader
}

// credential is by what a topic is read: two tokens of one principal may be shown different things.
type credential struct{ principal, token string }

// Topic returns a topic without listeners.
func (b *Broadcaster) Topic(read Read) *Topic {
	return &Topic{broadcaster: b, read: read, reading: make(chan struct{}, mostOfTopic), readers: map[credential]*reader{}}
}

// Changed has all listeners of the topic read it.
func (t *Topic) Changed() {
	t.broadcaster.mu.Lock()
	defer t.broadcaster.mu.Unlock()
	for _, r := range t.readers {
		r.again(r.positions)
		signal(r.wake)
	}
}

// Listened reports whether the topic has a listener.
func (t *Topic) Listened() bool {
	t.broadcaster.mu.Lock()
	defer t.broadcaster.mu.Unlock()
	return len(t.readers) > 0
}

// Listener is one stream. [Broadcaster.Listen] makes it.
type Listener struct {
	broadcaster *Broadcaster
	principal   string
	account     string // see [identity.Principal.Account]
	positions   []*position
	queue       []rpc.Message // of Tell
	more        chan struct{}
}

// Listen adds a stream of a principal that reads topics from their beginnings, until [Listener.Leave].
func (b *Broadcaster) Listen(who *identity.Principal, topics ...*Topic) *Listener {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &Listener{broadcaster: b, principal: who.Key, account: who.Account(), more: make(chan struct{}, 1)}
	if b.listeners[l.principal] == nil {
		b.listeners[l.principal] = map[*Listener]bool{}
	}
	b.listeners[l.principal][l] = true
	of := b.people[l.account]
	if of == nil {
		of = &person{reading: make(chan struct{}, 1)}
		b.people[l.account] = of
	}
	of.listeners++
	for _, t := range topics {
		l.positions = append(l.positions, t.join(l, who, of.reading))
	}
	return l
}

// Leave removes the stream.
func (l *Listener) Leave() {
	b := l.broadcaster
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range l.positions {
		p.reader.remove(p)
	}
	all := b.listeners[l.principal]
	if !all[l] { // it has left
		return
	}
	if delete(all, l); len(all) == 0 {
		delete(b.listeners, l.principal)
	}
	of := b.people[l.account]
	if of.listeners--; of.listeners == 0 {
		delete(b.people, l.account)
	}
}

// Hear sends what there is until ctx ends, or until send fails.
func (l *Listener) Hear(ctx context.Context, send func(rpc.Message) error) error {
	for ctx.Err() == nil {
		if m, ok := l.next(); ok {
			if err := send(m); err != nil {
				return err
			}
			continue
		}
		select {
		case <-l.more:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// next takes the next message. It is not ok if there is none now.
func (l *Listener) next() (m rpc.Message, ok bool) {
	l.broadcaster.mu.Lock()
	defer l.broadcaster.mu.Unlock()
	if len(l.queue) > 0 {
		m, l.queue = l.queue[0], l.queue[1:]
		return m, true
	}
	for _, p := range l.positions {
		for len(p.page) > 0 {
			var e Event
			if e, p.page = p.page[0], p.page[1:]; p.due() {
				signal(p.reader.wake)
			}
			if e.Over == nil || !e.Over() {
				return e.Message, true
			}
		}
	}
	return m, false
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
