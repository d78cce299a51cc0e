package mcptest

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Call is a request that a recorder answers. Messages before the answer make a stream of it. All texts go out byte for
// byte, so they need be neither messages nor JSON.
type Call struct {
	// Got is the request.
	Got
	// Modern reports its era.
	Modern bool
	// Context ends if the client gives up: over HTTP if it closes the connection.
	Context context.Context

	out sink
}

// sink is where an answer goes.
type sink interface {
	// message sends one message; last is the answer, with a status over HTTP.
	message(text string, last bool, status int)
	// raw sends bytes as they are. Over HTTP they are a body, of a type.
	raw(status int, contentType, text string)
}

// Result answers with a result.
func (c *Call) Result(result string) { c.answer(http.StatusOK, `"result":`+result) }

// Error answers with an error, {"code", "message"} and whatever else.
func (c *Call) Error(e string) { c.answer(http.StatusOK, `"error":`+e) }

// Message sends a message before the answer, or any other text in its place.
func (c *Call) Message(text string) { c.out.message(text, false, http.StatusOK) }

// Answer sends a whole message as the answer, which need not be one to this request.
func (c *Call) Answer(text string) { c.out.message(text, true, http.StatusOK) }

// Raw answers with bytes: over HTTP as a body of a type, with a status, over standard streams without the end of a line.
func (c *Call) Raw(status int, contentType, text string) { c.out.raw(status, contentType, text) }

func (c *Call) fail(status int, e string) { c.answer(status, `"error":`+e) }

func (c *Call) answer(status int, member string) {
	id := c.ID
	if id == nil {
		id = jsontext.Value("null")
	}
	c.out.message(`{"jsonrpc":"2.0","id":`+string(id)+`,`+member+`}`, true, status)
}

// toHTTP answers with JSON, or with a stream if there are messages before the answer.
type toHTTP struct {
	w       http.ResponseWriter
	streams bool
	begun   bool // the header has gone
}

func (o *toHTTP) message(text string, last bool, status int) {
	if last && !o.streams {
		o.raw(status, "application/json", text)
		return
	}
	if !o.streams {
		o.streams, o.begun = true, true
		o.w.Header().Set("Content-Type", "text/event-stream")
		o.w.WriteHeader(status)
	}
	_, _ = io.WriteString(o.w, "event: message\ndata: "+text+"\n\n")
	_ = http.NewResponseController(o.w).Flush()
}

func (o *toHTTP) raw(status int, contentType, text string) {
	if !o.streams && !o.begun {
		o.begun = true
		if contentType != "" {
			o.w.Header().Set("Content-Type", contentType)
		}
		o.w.WriteHeader(status)
	}
	_, _ = io.WriteString(o.w, text)
	_ = http.NewResponseController(o.w).Flush()
}

// toLines answers with lines, one at a time.
type toLines struct {
	mu *sync.Mutex
	w  io.Writer
}

func (o toLines) message(text string, _ bool, _ int) { o.raw(0, "", text+"\n") }

func (o toLines) raw(_ int, _, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = io.WriteString(o.w, text)
}
