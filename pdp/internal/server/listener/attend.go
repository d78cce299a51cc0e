package listener

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// writeTime is how long a client may leave a part of an answer unread.
const writeTime = 20 * time.Second

// Attend is around the handler of a program that has no door of its own. A request is worked on from its header to the
// end of its answer; while the handler waits for its body, its connection makes way for others. The handler reads the
// bodies of known callers alone: see [Connections.Knows]. An answer may take as long as
// the handler likes, but each part of it has to be read in time. Give the server no WriteTimeout.
func (c *Connections) Attend(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by := CarrierOf(r.Context())
		c.Works(by)
		defer c.Answers(by)
		if r.Body != nil && r.ContentLength != 0 {
			body := &arriving{ReadCloser: r.Body, on: c, by: by}
			defer body.came()
			r.Body = body
		}
		patient := &patientWriter{w, http.NewResponseController(w)}
		patient.within(time.Time{})                                  // not the deadline of the request before
		defer func() { patient.within(time.Now().Add(writeTime)) }() // for the part that is not yet on its way
		next.ServeHTTP(patient, r)
	})
}

// arriving is a body that says when it is waited for, and when it has come.
type arriving struct {
	io.ReadCloser
	on *Connections
	by Carrier

	mu    sync.Mutex
	state arrival
}

type arrival uint8

const (
	unread arrival = iota
	awaited
	arrived
)

func (a *arriving) Read(p []byte) (int, error) {
	a.awaits()
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		a.came()
	}
	return n, err
}

func (a *arriving) awaits() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == unread {
		a.state = awaited
		a.on.Awaits(a.by, true)
	}
}

func (a *arriving) came() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == awaited {
		a.on.Came(a.by, true)
	}
	a.state = arrived
}

// patientWriter gives each part of an answer its own time.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w *patientWriter) within(deadline time.Time) {
	_ = w.control.SetWriteDeadline(deadline) // a writer without deadlines is none of a network
}

func (w *patientWriter) Write(p []byte) (int, error) {
	w.within(time.Now().Add(writeTime))
	defer w.within(time.Time{})
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *patientWriter) FlushError() error {
	w.within(time.Now().Add(writeTime))
	defer w.within(time.Time{})
	return w.control.Flush()
}

// Flush implements [http.Flusher].
func (w *patientWriter) Flush() { _ = w.FlushError() }

// Unwrap is for [http.ResponseController].
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
