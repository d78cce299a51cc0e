package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/time/rate"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
)

// httpStream is the answer to one POST, or to the GET of a session.
type httpStream struct {
	session *httpSession
	id      rpc.ID // zero for a GET
	status  int
	header  http.Header
	body    io.ReadCloser
	length  int64 // of the body, as far as it is known
	// events is nil if the body is one message. The media type of a body decides how it is read, and nothing else.
	events *rpc.Events
	pace   *pace

	// ctx ends with the caller's, the session's, and Close; patience ends it too, after a silence.
	ctx      context.Context
	stop     context.CancelCauseFunc
	release  []func() bool
	patience *time.Timer
	silence  time.Duration

	mu       sync.Mutex // guards body once others have the stream
	named    bool       // the response has the request's id
	begun    bool       // beside a status that refuses stood a text of a server that has begun on the request
	answered atomic.Bool
	closed   sync.Once
}

var errGivenUp = errors.New("the request was given up")

// forever is the longest silence of a stream that may say nothing for days.
const forever time.Duration = math.MaxInt64

// newStream makes a stream that ends after a silence of the server. The time runs until the answer begins, and while a
// caller waits for a message.
func (s *httpSession) newStream(ctx context.Context, id rpc.ID, silence time.Duration) *httpStream {
	t := &httpStream{session: s, id: id, silence: silence}
	own, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	t.ctx, t.stop = own, stop
	t.release = []func() bool{
		context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) }),
		context.AfterFunc(s.ctx, func() { stop(errClosed) }),
	}
	t.patience = time.AfterFunc(silence, func() { stop(errSlow) })
	return t
}

// take takes over a response of HTTP: the first, or one that goes on where another ended, which is no new allowance.
func (t *httpStream) take(response *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	most := t.session.upstream.options.MaxResult
	t.status, t.header, t.body, t.length = response.StatusCode, response.Header, response.Body, response.ContentLength
	if t.pace == nil {
		t.pace = &pace{limit: allowance(most)}
	}
	t.pace.in, t.events = t.body, nil
	if kind, _, _ := mime.ParseMediaType(t.header.Get("Content-Type")); kind == eventStream {
		t.events = rpc.NewEvents(t.pace, most)
	}
	if t.ctx.Err() != nil { // closed meanwhile
		_ = t.body.Close()
	}
}

func (t *httpStream) Next() (rpc.Message, error) {
	if t.answered.Load() {
		return rpc.Message{}, io.EOF
	}
	t.patience.Reset(t.silence)
	defer t.patience.Stop()
	for {
		text, err := t.read()
		if err == io.EOF && t.resume() {
			continue
		}
		if err == io.EOF && t.id.IsZero() {
			return rpc.Message{}, io.EOF
		}
		if errors.Is(err, rpc.ErrTooLarge) {
			return rpc.Message{}, t.session.upstream.options.tooLarge(int(t.length))
		}
		if err != nil {
			return rpc.Message{}, &Error{Detail: "the upstream's answer broke off", Err: reason(t.ctx, err)}
		}
		m, verdict := t.judge(text)
		switch verdict {
		case pass:
			return m, nil
		case last:
			t.finish()
			return m, nil
		case wrong:
			t.stop(ErrAmbiguous)
			return rpc.Message{}, &Error{Detail: "what came is not the response to the request", Err: ErrAmbiguous}
		}
	}
}

// read reads the next text that should be a message.
func (t *httpStream) read() (text []byte, err error) {
	if cause := context.Cause(t.ctx); cause != nil {
		return nil, cause
	}
	u := t.session.upstream
	defer func() { text = u.options.masked(&u.masks, text) }()
	if t.events != nil {
		text, err := t.pace.event(t.events)
		t.length = int64(t.events.Size())
		return text, err
	}
	most := u.options.MaxResult
	text, err = io.ReadAll(io.LimitReader(t.body, int64(most)+1))
	if err == nil && len(text) > most {
		if err = rpc.ErrTooLarge; t.length < 0 { // it is read on for its size
			n, _ := io.Copy(io.Discard, io.LimitReader(t.body, int64(skipFactor*most)))
			t.length = int64(len(text)) + n
		}
	}
	return text, err
}

// finish is called when the response has come. A stream of events is read to its end, which is near if the server is a
// good one, so that its connection can be used again; the rest of it is dropped.
func (t *httpStream) finish() {
	t.answered.Store(true)
	t.detach()
	if t.events == nil || !t.session.upstream.doors.Background(t.drain) {
		t.end(nil)
	}
}

// lateTime bounds how long a stream may go on after its response.
const lateTime = time.Second

func (t *httpStream) drain() {
	cut := time.AfterFunc(min(lateTime, t.session.upstream.options.Timeout), func() { t.stop(errSlow) })
	defer cut.Stop()
	defer context.AfterFunc(t.session.ctx, func() { t.stop(errClosed) })()
	for {
		if _, err := t.pace.event(t.events); err != nil {
			t.end(nil)
			return
		}
		t.session.upstream.options.Dropped(DropLate)
	}
}

func (t *httpStream) detach() {
	for _, release := range t.release {
		release()
	}
	t.patience.Stop()
}

func (t *httpStream) Close() { t.abandon(t.id.IsZero()) }

// abandon ends a stream whose response has not come, and says so to the server unless it knows nothing of the request.
func (t *httpStream) abandon(unknown bool) {
	if t.answered.Load() {
		return
	}
	t.closed.Do(func() {
		t.detach()
		t.end(errGivenUp)
		if !unknown {
			t.session.giveUp(t.id)
		}
	})
}

func (t *httpStream) end(cause error) {
	t.stop(cause)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.body != nil {
		_ = t.body.Close()
	}
}

// A server of the legacy era may end a stream before its time, and have the client come back for the rest. It has then said
// by which event it goes on.

const (
	mostResumed  = 1000
	soonResumed  = 8 // after as short a pause as the server wants: each one is charged to the person
	shortPause   = 10 * time.Millisecond
	defaultPause = time.Second
)

// resume opens a stream again that the server has ended. It reports whether there is one again.
func (t *httpStream) resume() bool {
	if t.events == nil || t.session.era == era.Modern || t.pace.resumed == mostResumed {
		return false
	}
	id, after := t.events.Resume()
	if id == "" {
		return false
	}
	t.pace.resumed++
	shortest := shortPause
	if t.pace.resumed > soonResumed {
		shortest = defaultPause
	}
	if pause(t.ctx, max(cmp.Or(after, defaultPause), shortest)) != nil {
		return false
	}
	_ = t.body.Close()
	t.session.client.Load().extra()
	response, err := t.session.do(t.ctx, http.MethodGet, eventStream, nil, Request{after: id})
	if err != nil {
		return false
	}
	before := t.events
	t.take(response)
	t.patience.Reset(t.silence)
	if t.status/100 != 2 || t.events == nil {
		_ = t.body.Close()
		t.events = before // which says again that it has ended
		return false
	}
	return true
}

type verdict uint8

const (
	wrong verdict = iota // it ends the stream, because it is not known which request it answers
	drop                 // it goes no further
	pass
	last // the response
)

// judge reads a text, and decides about it. Neither its status nor its media type counts beside its content.
func (t *httpStream) judge(text []byte) (rpc.Message, verdict) {
	if t.status/100 != 2 && ofWork(text) {
		t.begun = true
	}
	m, fault := rpc.Parse(text)
	if fault != nil {
		return t.unnamed(text, fault)
	}
	if m.IsResponse() {
		if t.id.IsZero() || m.ID != t.id {
			return t.dropped(DropForeign)
		}
		if m.Result != nil && t.status/100 != 2 {
			return m, wrong // a status that refuses, and a result
		}
		m.ID, t.named = rpc.ID{}, true
		return m, last
	}
	if m.IsRequest() && t.session.era == era.Modern {
		return t.dropped(DropRequest)
	}
	return m, pass
}

// unnamed judges a text that is no message, or names no request: the error of a server that could not read
// the request.
func (t *httpStream) unnamed(text []byte, fault *rpc.Fault) (rpc.Message, verdict) {
	if e := unnamedError(text); e != nil && !t.id.IsZero() {
		return rpc.Message{Error: e}, last
	}
	if fault.ID == t.id && !t.id.IsZero() {
		return rpc.Message{}, wrong
	}
	return t.dropped(DropUnreadable)
}

// dropped counts a text that goes no further. Where nothing else can come, that is the end.
func (t *httpStream) dropped(reason string) (rpc.Message, verdict) {
	if t.status/100 == 2 { // beside a status that refuses, anything may stand
		t.session.upstream.options.Dropped(reason)
	}
	if t.events == nil {
		return rpc.Message{}, wrong
	}
	return rpc.Message{}, drop
}

// unnamedError is the error of a response whose id is null or absent, nil if text is anything else. [rpc.Parse] takes none:
// over HTTP alone, or if one call alone waits, it is known which request such an error answers.
func unnamedError(text []byte) jsontext.Value {
	o, err := rpc.ParseObject(text)
	if err != nil || o.GetString("jsonrpc") != "2.0" || o.Get("method") != nil || o.Get("result") != nil {
		return nil
	}
	if id := o.Get("id"); id != nil && id.Kind() != 'n' {
		return nil
	}
	e := o.Get("error")
	if _, err := rpc.ReadError(e); err != nil {
		return nil
	}
	return e
}

// errTooMuch is of a server that says more than anybody can take.
var errTooMuch = errors.New("the server sends faster than is taken")

// eventCost is the cost of an event beside its bytes, so that many small ones are bounded too.
const eventCost = 4 << 10

// allowance is how much a server may send: the size of one message in a second, and four times that at once.
func allowance(most int) *rate.Limiter {
	most = max(most, 1<<20)
	return rate.NewLimiter(rate.Limit(most), 4*most)
}

// pace bounds how fast a server may speak.
type pace struct {
	in    io.Reader
	limit *rate.Limiter
	// resumed is how often the stream was opened again.
	resumed int
}

func (p *pace) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	if !p.limit.AllowN(time.Now(), n) {
		return 0, errTooMuch
	}
	return n, err
}

func (p *pace) event(events *rpc.Events) ([]byte, error) {
	text, err := events.Next()
	if err == nil && !p.limit.AllowN(time.Now(), eventCost) {
		return nil, errTooMuch
	}
	return text, err
}
