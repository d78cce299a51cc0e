package gate

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/rpc"
)

// quiet is for how long a client hears nothing before it is told that somebody is still there.
const quiet = 15 * time.Second

// reopen tells clients of the legacy era how long to wait before they open a stream again, so that they do not all come
// back at once.
const reopen = "retry: 1000\n\n"

// slow is how long a client may take to read what it is sent.
const slow = 30 * time.Second

// reply is the way back to the client for one request. Its methods may be called side by side.
type reply interface {
	// Interim sends a message before the response.
	Interim(m rpc.Message) error
	// Alive tells the client that its request is still being worked on.
	Alive() error
	// Final sends the response, once. Status counts if nothing was sent before it.
	Final(status int, m rpc.Message) error
	// Begin has a session count that the request begins.
	Begin(s *session)
	// Stream has the answer be a stream, whatever comes.
	Stream()
}

// httpReply is the answer to one request over HTTP: one JSON object, or a stream of events if something comes before the
// response.
type httpReply struct {
	w        http.ResponseWriter
	sessions *sessions

	mu     sync.Mutex
	stream bool // even if nothing comes before the response
	retry  bool // whether the client may open a stream again that broke off
	begun  bool
	done   bool
	err    error
}

// Begin implements reply.
func (r *httpReply) Begin(s *session) {
	r.sessions.add(s)
	r.w.Header().Set(sessionHeader, s.id)
}

func (r *httpReply) Stream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream = true
}

var errAnswered = errors.New("the request has its answer")

func (r *httpReply) Interim(m rpc.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errAnswered
	}
	r.begin()
	return r.write(rpc.AppendEvent(nil, m))
}

func (r *httpReply) Alive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errAnswered
	}
	r.begin()
	return r.write([]byte(":\n\n"))
}

func (r *httpReply) Final(status int, m rpc.Message) error {
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
	writeJSON(r.w, status, m)
	return nil
}

// leave has nothing more be written. It waits for who writes: when the handler of a request is over, its connection is gone,
// or is somebody else's.
func (r *httpReply) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
}

func (r *httpReply) begin() {
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

func (r *httpReply) write(b []byte) error {
	if r.err != nil {
		return r.err
	}
	to := http.NewResponseController(r.w)
	_ = to.SetWriteDeadline(time.Now().Add(slow)) // who does not read is not waited for
	if _, r.err = r.w.Write(b); r.err == nil {
		r.err = to.Flush()
	}
	return r.err
}

// keepAlive has a reply say that it is alive now and then, until stop is called: then it says nothing more.
func keepAlive(r reply) (stop func()) {
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
