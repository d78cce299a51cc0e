package upstream

import (
	"errors"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/time/rate"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
)

// verdict is the decision about a text that a server sent.
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
		t.shown.begun = true
	}
	m, fault := rpc.Parse(text, rpc.DefaultLimits())
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
		m.ID, t.shown.named = rpc.ID{}, true
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
// over HTTP alone it is known which request such an error answers.
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
