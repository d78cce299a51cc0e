package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server/auth"
)

// A stream has for the scripts of one session how many approval requests wait for the person. Its events are
//
//	waiting   with the tag of the first page of them as its id, and a waits as its data: at the beginning, and when
//	          that page is another one
//	beat      every 15 seconds in between, so that a browser and a proxy see that the stream is not cut
//	replaced  as the last one, if another stream of the session has begun
//
// It keeps no events: each look sees how it is now. Each is a request to the API, which judges anew if the
// person may.
const (
	streamPath = approvalsPath + "/stream"
	// mostStreams is how many there are at once. Each waits at the API, which has more places for programs that wait.
	mostStreams = 256
	streamBeat  = 15 * time.Second
	// streamPause is the least time between two looks.
	streamPause = time.Second
	// streamWrite is how long a reader may take for an event.
	streamWrite = 10 * time.Second
	// streamRetry is how long a browser waits before it opens a stream again that was cut.
	streamRetry = 2 * time.Second

	approver = string(auth.Approve)
)

// The causes of a stream's end.
var (
	errOver     = errors.New("the session is over")
	errReplaced = errors.New("another stream of the session has begun")
	errCrowded  = errors.New("there are too many streams")
)

// streams are those of this process, one for each session.
type streams struct {
	mu sync.Mutex
	n  int // also those that have yet to see their end
	of map[SessionID]*context.CancelCauseFunc
}

// end ends the stream of a session, if it has one.
func (s *streams) end(id SessionID, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end, found := s.of[id]; found {
		delete(s.of, id)
		(*end)(cause)
	}
}

// begin begins the stream of a session: its context ends when another one begins, or by end. Its done is called once.
func (s *streams) begin(ctx context.Context, id SessionID) (_ context.Context, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, found := s.of[id]
	if s.n >= mostStreams && !found {
		return nil, nil, errCrowded
	}
	ctx, end := context.WithCancelCause(ctx)
	if found {
		(*before)(errReplaced)
	}
	s.of[id] = &end
	s.n++
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n--
		if s.of[id] == &end {
			delete(s.of, id)
		}
		end(nil)
	}, nil
}

// waits is how many approval requests wait. Tag is that of the page that was counted.
type waits struct {
	N    int    `json:"n"`
	More bool   `json:"more"`
	Tag  string `json:"tag"`
}

func jsonOf(c inbox.Count) []byte {
	text, _ := json.Marshal(waits{c.N, c.More, tagOf(c.Tag).String()})
	return text
}

// tagOf is the tag of a page without its quotation marks, as scripts and the ids of events have it.
func tagOf(tag string) page.ID { return page.IDOf(strings.Trim(tag, `"`)) }

// lasting is the context of a request that outlasts the time for a page.
type lasting struct{}

// Lasting keeps a context for the streams of the console. The context of a page, which is made of it, may end before.
func Lasting(ctx context.Context) context.Context { return context.WithValue(ctx, lasting{}, ctx) }

// stream answers a script with a stream, or once if it asks for JSON. The session does not count as used.
func (v *visit) stream() {
	t, on := v.ticket()
	var one Session
	var err error
	if on {
		one, on, err = v.options.Sessions.Find(v.r.Context(), t.id(), false)
	}
	switch {
	case err != nil:
		v.w.Header().Set("Retry-After", "2")
		v.w.WriteHeader(http.StatusServiceUnavailable)
		return
	case !on:
		v.w.WriteHeader(http.StatusUnauthorized)
		return
	case v.r.Header.Get("Accept") == "application/json":
		v.count(one)
		return
	}
	ctx := v.r.Context()
	if own, is := ctx.Value(lasting{}).(context.Context); is {
		ctx = own
	}
	ctx, done, err := v.streams.begin(one.Login.Context(ctx), t.id())
	if err != nil { // errCrowded
		v.w.Header().Set("Retry-After", "30")
		v.w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer done()
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(v.stopping, end)()
	f := &feed{v: v, ctx: ctx, id: t.id()}
	if last := page.IDOf(v.r.Header.Get("Last-Event-ID")); !last.None() {
		f.tag = `"` + last.String() + `"`
	}
	event, err := f.look(0)
	if err != nil {
		v.w.WriteHeader(http.StatusUnauthorized)
		return
	}
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // or nginx keeps events until there are many
	for err = f.send(fmt.Sprintf("retry: %d\n\n", streamRetry.Milliseconds())); err == nil; event, err = f.look(streamBeat) {
		if err = f.send(event); err != nil {
			return
		}
		select {
		case <-time.After(streamPause):
		case <-ctx.Done():
		}
	}
	if errors.Is(context.Cause(ctx), errReplaced) {
		_ = f.send("event: replaced\ndata: {}\n\n")
	}
}

// feed makes the events of a stream. Tag is that of the last one, "" of none.
type feed struct {
	v   *visit
	ctx context.Context
	id  SessionID
	tag string
}

// look is the next event: the list as it is now, if it is another one, and else a beat after so long. Its error is the end
// of the stream.
func (f *feed) look(wait time.Duration) (event string, err error) {
	event = "event: beat\ndata: {}\n\n"
	if f.tag == "" { // before the first event
		wait = 0
	}
	got, changed, err := f.v.api.Count(f.ctx, mine, onPage, f.tag, wait)
	// A session of which it is not known whether it goes on has no stream.
	if _, on, _ := f.v.options.Sessions.Find(f.ctx, f.id, false); !on || f.ctx.Err() != nil {
		return "", errOver
	}
	switch {
	case err != nil && httpclient.Passing(err):
		return event, nil
	case err != nil:
		return "", err
	case changed:
		f.tag = got.Tag
		event = fmt.Sprintf("id: %s\nevent: waiting\ndata: %s\n\n", tagOf(got.Tag), jsonOf(got))
	}
	return event, nil
}

// count answers with how many wait now.
func (v *visit) count(one Session) {
	got, _, err := v.api.Count(one.Login.Context(v.r.Context()), mine, onPage, "", 0)
	switch status := httpclient.StatusOf(err); {
	case err == nil:
		v.w.Header().Set("Content-Type", "application/json")
		_, _ = v.w.Write(jsonOf(got))
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		v.w.WriteHeader(http.StatusUnauthorized)
	default:
		v.w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// send sends an event, within a time of its own.
func (f *feed) send(event string) error {
	control := http.NewResponseController(f.v.w)
	_ = control.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer without deadlines is none of a network
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	if _, err := io.WriteString(f.v.w, event); err != nil {
		return err
	}
	return control.Flush()
}
