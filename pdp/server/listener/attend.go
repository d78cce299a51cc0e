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
// end of its answer; while its body does not arrive, its connection makes way for others. An answer may take as long as
// the handler likes, but each part of it has to be read in time. Give the server no WriteTimeout.
func (c *Connections) Attend(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		c.Works(ctx)
		defer c.Answers(ctx)
		if r.Body != nil && r.ContentLength != 0 {
			c.Awaits(ctx, false)
			came := sync.OnceFunc(func() { c.Came(ctx, false) })
			defer came()
			r.Body = &arriving{r.Body, came}
		}
		patient := &patientWriter{w, http.NewResponseController(w)}
		patient.within(time.Time{})                                  // not what the request before left
		defer func() { patient.within(time.Now().Add(writeTime)) }() // what is not yet on its way
		next.ServeHTTP(patient, r)
	})
}

// arriving is a body that says when it has come.
type arriving struct {
	io.ReadCloser
	came func()
}

func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		a.came()
	}
	return n, err
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
