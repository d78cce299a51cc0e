package events

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/mcp/internal/identity"
)

const (
	// firstPause is the pause after one failed read, lastPause the one after many.
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
	// failuresFor is how long a failure counts. A success does not end that: reads can succeed and fail in turn.
	failuresFor = 2 * lastPause
	// mostRecent is how many events of a stream are remembered at least.
	mostRecent = 1024
)

// reader reads a topic for all streams of one token, one page after the other.
type reader struct {
	topic     *Topic
	by        credential
	who       *identity.Principal
	end       context.CancelFunc
	positions []*position
	wake      chan struct{}
	// slots are what each read takes a place of, in this order: of the person, of the topic, and of all.
	slots []chan struct{}
	// failures counts those of run, up to failed, the end of the last one's pause.
	failures int
	failed   time.Time
}

// position is how far a stream is in a topic.
type position struct {
	reader   *reader
	listener *Listener
	cursor   string
	// changed is set if the topic may have changed since the last read, more if that read did not come to the end.
	changed, more bool
	page          []Event                // was read and waits for the client, which is read no further meanwhile
	sent          recent.Texts[struct{}] // the ids of the last events
}

// due reports whether there is something to read, and room for it.
func (p *position) due() bool { return (p.changed || p.more) && len(p.page) == 0 }

// join adds a stream. The caller holds the lock.
func (t *Topic) join(l *Listener, who *identity.Principal, own chan struct{}) *position {
	by := credential{who.Key, who.Token}
	r := t.readers[by]
	if r == nil {
		r = &reader{topic: t, by: by, who: who, wake: make(chan struct{}, 1), slots: []chan struct{}{own, t.reading, t.broadcaster.reading}}
		var ctx context.Context
		ctx, r.end = context.WithCancel(t.broadcaster.o.Context)
		t.readers[by] = r
		if !t.broadcaster.o.Background(func() { r.run(ctx, nil) }) {
			r.end()
		}
	}
	p := &position{reader: r, listener: l, changed: true}
	r.positions = append(r.positions, p)
	signal(r.wake)
	return p
}

// remove takes a stream out. With the last one reading ends. The caller holds the lock.
func (r *reader) remove(p *position) {
	r.positions = slices.DeleteFunc(r.positions, func(one *position) bool { return one == p })
	if len(r.positions) == 0 && r.topic.readers[r.by] == r {
		r.end()
		delete(r.topic.readers, r.by)
	}
}

var errPanic = errors.New("a read panicked")

// run reads after each change until ctx ends. After err it begins with a pause.
func (r *reader) run(ctx context.Context, err error) {
	var pause time.Duration
	if err != nil {
		pause = r.pauseAfter(err)
	}
	defer func() {
		if ctx.Err() == nil { // it panics, and whoever runs it takes note of that
			r.topic.broadcaster.mu.Lock()
			r.again(r.positions)
			r.topic.broadcaster.mu.Unlock()
			r.topic.broadcaster.o.Background(func() { r.run(ctx, errPanic) })
		}
	}()
	for {
		if err == nil {
			select {
			case <-r.wake:
			case <-ctx.Done():
				return
			}
			pause = r.pause()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if err = r.round(ctx); err != nil {
			pause = r.pauseAfter(err)
		}
	}
}

// pauseAfter is the time until the next read after an error.
func (r *reader) pauseAfter(err error) time.Duration {
	if time.Since(r.failed) > failuresFor {
		r.failures = 0
	}
	pause := min(firstPause<<min(r.failures, 16), lastPause)
	pause = pause/2 + rand.N(pause/2)
	if later := (*Later)(nil); errors.As(err, &later) {
		pause = max(pause, later.After)
	}
	r.failures++
	r.failed = time.Now().Add(pause)
	return pause
}

// pause is the time until the next read: none for a stream that has read a page and goes on.
func (r *reader) pause() time.Duration {
	b := r.topic.broadcaster
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(r.positions, func(p *position) bool { return p.more && p.due() }) {
		return 0
	}
	return rand.N(Spread)
}

// round reads a page for each cursor of a stream that has room for it.
func (r *reader) round(ctx context.Context) (failed error) {
	end, groups := "", r.due()
	for n, group := range groups {
		page, err := r.read(ctx, group[0].cursor)
		if err != nil {
			r.topic.broadcaster.mu.Lock()
			defer r.topic.broadcaster.mu.Unlock()
			r.again(slices.Concat(groups[n:]...))
			return err
		}
		if end == "" && page.ends() {
			end = page.Cursor
		}
		r.deliver(group, page, end)
		if failed == nil {
			failed = page.Failed
		}
	}
	return failed
}

// ends reports whether nothing comes after the page for now.
func (p *Page) ends() bool { return !p.More && p.Failed == nil }

// read reads a page, once there is a place for that: slow reads of a topic or of a person delay no others.
func (r *reader) read(ctx context.Context, cursor string) (Page, error) {
	for _, slots := range r.slots {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return Page{}, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readsFor)
	defer cancel()
	return r.topic.read(ctx, r.who, cursor)
}

// due takes the streams to read for, those at the same cursor together. What changes from now on is read in the next round.
func (r *reader) due() (groups [][]*position) {
	r.topic.broadcaster.mu.Lock()
	defer r.topic.broadcaster.mu.Unlock()
	for _, p := range r.positions {
		if !p.due() {
			continue
		}
		p.changed, p.more = false, false
		n := slices.IndexFunc(groups, func(group []*position) bool { return group[0].cursor == p.cursor })
		if n < 0 {
			n, groups = len(groups), append(groups, nil)
		}
		groups[n] = append(groups[n], p)
	}
	return groups
}

// again has streams read again. The caller holds the lock.
func (r *reader) again(streams []*position) {
	for _, p := range streams {
		p.changed = true
	}
}

// deliver gives a page to streams, but for events that they were sent. Streams that came to the end in the same round go on at
// the first end of them: what comes between the ends they know, and from then on they share their reads.
func (r *reader) deliver(group []*position, page Page, end string) {
	r.topic.broadcaster.mu.Lock()
	defer r.topic.broadcaster.mu.Unlock()
	for _, p := range group {
		if p.cursor, p.more = page.Cursor, !page.ends(); !p.more {
			p.cursor = end
		}
		for _, e := range page.Events {
			id := sha256.Sum256([]byte(e.ID))
			if _, known := p.sent.Get(id); !known {
				p.sent.Put(id, struct{}{}, mostRecent)
				p.page = append(p.page, e)
			}
		}
		if p.due() {
			signal(r.wake)
		}
		signal(p.listener.more)
	}
}
