package mcptest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// NewRecorder serves at URL + "/mcp" until the test ends.
func NewRecorder(t testing.TB, told Answers) *Recorder {
	t.Helper()
	r := &Recorder{t: t, told: told, sessions: map[string]bool{}}
	s := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(s.Close)
	r.URL = s.URL + "/mcp"
	return r
}

func (r *Recorder) serve(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	g := Got{Over: "http", Verb: q.Method, Target: q.URL.RequestURI(), Host: q.Host, Header: q.Header.Clone(), Body: body}
	g.read()
	r.keep(g)
	c := &Call{Got: g, Modern: q.Header.Get("Mcp-Protocol-Version") == modern || isModern(g.Params), Context: q.Context(), out: &toHTTP{w: w}}
	switch {
	case err != nil:
	case q.Method == http.MethodPost && (g.Method == "" || g.ID == nil):
		w.WriteHeader(http.StatusAccepted)
		r.heard(g)
	case q.Method == http.MethodPost:
		r.post(w, c)
	case q.Method == http.MethodDelete:
		r.end(q.Header.Get("Mcp-Session-Id"))
		w.WriteHeader(http.StatusNoContent)
	case q.Method == http.MethodGet && r.told.Listen != nil && !r.has(q.Header.Get("Mcp-Session-Id")):
		w.WriteHeader(http.StatusNotFound)
	case q.Method == http.MethodGet && r.told.Listen != nil:
		c.out = &toHTTP{w: w, streams: true}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		r.told.Listen(c)
	default:
		w.Header().Set("Allow", "POST, DELETE")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// post answers a request, if it is in an era and a session that it may be in.
func (r *Recorder) post(w http.ResponseWriter, c *Call) {
	switch session := c.Header.Get("Mcp-Session-Id"); {
	case c.Modern && !r.speaks("modern"):
		c.fail(http.StatusBadRequest, `{"code":-32000,"message":"Bad Request: unsupported protocol version"}`)
	case !c.Modern && !r.speaks("legacy"):
		c.fail(http.StatusBadRequest, `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["`+modern+`"],"requested":"2025-11-25"}}`)
	case !c.Modern && c.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", r.begin())
		r.answer(c)
	case !c.Modern && !r.has(session):
		c.fail(http.StatusNotFound, `{"code":-32001,"message":"Session not found"}`)
	default:
		r.answer(c)
	}
}

func (r *Recorder) begin() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	id := "session-" + strconv.Itoa(r.last)
	r.sessions[id] = true
	return id
}

func (r *Recorder) has(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[session]
}

func (r *Recorder) end(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, session)
}

// Saw reports where in all that came a text stands: in a body, a header, a target, an argument or a variable of a child.
// "" is nowhere.
func (r *Recorder) Saw(text string) (where string) {
	for _, g := range r.Got() {
		if bytes.Contains(g.Body, []byte(text)) {
			return "the body of " + g.Method
		}
		if where := g.sawBeside(text); where != "" {
			return where
		}
	}
	return ""
}
