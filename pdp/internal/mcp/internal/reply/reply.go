// Package reply is the way back to a client for one request over HTTP: one JSON object, or a stream of events.
//
// [Over] makes one, [KeepAlive] shows a client that its request is still being worked on, and [JSON] answers at once. The
// package sends no message of its own, and knows of no session but its id.
package reply

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"policy-service/pdp/internal/rpc"
)

// quiet is how long a stream is silent before a sign of life.
const quiet = 15 * time.Second

// reopen is the pause of legacy clients before they open a stream again, so that they do not all come back at once.
const reopen = "retry: 1000\n\n"

// slow is how long a client may take to read a part of the stream.
const slow = 30 * time.Second

// Reply is the way back to the client for one request. Its methods may be called side by side.
type Reply interface {
	// Interim sends a message before the response.
	Interim(m rpc.Message) error
	// Alive shows the client that its request is still being worked on.
	Alive() error
	// Final sends the response, once. Status counts if nothing was sent before it.
	Final(status int, m rpc.Message) error
	// Begin says that the request begins the session of that id.
	Begin(session string)
	// Stream makes the answer a stream, even if nothing comes before the response.
	Stream()
}

// HTTP is the [Reply] over HTTP: one JSON object, or a stream of events if something comes before the response.
type HTTP struct {
	// Begun is called when a session begins, nil if none can.
	Begun func()

	w http.ResponseWriter

	mu     sync.Mutex
	stream bool // even if nothing comes before the response
	retry  bool // whether the client may open a stream again that broke off
	begun  bool
	done   bool
	err    error
}

// Over is the answer that goes to w: a stream in any case if stream is set. With retry a client may open a broken one again.
func Over(w http.ResponseWriter, stream, retry bool) *HTTP {
	return &HTTP{w: w, stream: stream, retry: retry}
}

// Begin implements [Reply].
func (r *HTTP) Begin(session string) {
	r.Begun()
	r.w.Header().Set(SessionHeader, session)
}

// SessionHeader has the id of a session.
const SessionHeader = "Mcp-Session-Id"

// Stream implements [Reply].
func (r *HTTP) Stream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream = true
}

var errAnswered = errors.New("the request has its answer")

// Interim implements [Reply].
func (r *HTTP) Interim(m rpc.Message) error { return r.before(rpc.AppendEvent(nil, m)) }

// Alive implements [Reply].
func (r *HTTP) Alive() error { return r.before([]byte(":\n\n")) }

// before writes a part of the stream before the response.
func (r *HTTP) before(part []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errAnswered
	}
	r.begin()
	return r.write(part)
}

// Final implements [Reply].
func (r *HTTP) Final(status int, m rpc.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errAnswered
	}
	r.done = true
	if r.stream && status == http.StatusOK {
		r.begin()
	}
	if r.begun {
		return r.write(rpc.AppendEvent(nil, m))
	}
	JSON(r.w, status, m)
	return nil
}

// Leave ends all writing, and waits for a write under way: after the handler of a request its connection is gone, or serves
// another request.
func (r *HTTP) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
}

func (r *HTTP) begin() {
	if r.begun {
		return
	}
	r.begun = true
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	r.w.WriteHeader(http.StatusOK)
	if r.retry {
		_ = r.write([]byte(reopen))
	}
}

func (r *HTTP) write(b []byte) error {
	if r.err != nil {
		return r.err
	}
	to := http.NewResponseController(r.w)
	_ = to.SetWriteDeadline(time.Now().Add(slow)) // a client that does not read is not waited for
	if _, r.err = r.w.Write(b); r.err == nil {
		r.err = to.Flush()
	}
	return r.err
}

// KeepAlive sends a sign of life now and then, until stop is called: then it sends nothing more.
func KeepAlive(r Reply) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	ended := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(quiet, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended && r.Alive() == nil {
			timer.Reset(quiet)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}

// JSON answers with a message, and nothing before it.
func JSON(w http.ResponseWriter, status int, m rpc.Message) {
	body := m.Append(nil)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
