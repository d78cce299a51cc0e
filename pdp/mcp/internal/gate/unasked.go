package gate

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// unasked is why a request of a server reaches no client.
type unasked struct {
	why string // in words for the server
	key string // of the server's configuration, if that refuses it
}

// What clients say that they can, and what the configuration calls it, by the method that wants it.
var capabilityOf = map[string]string{era.Elicit: "elicitation", era.Sample: "sampling", era.Roots: "roots"}

// refuses is why the configuration refuses a request of the server by its method, nil if it does not.
func (s *Server) refuses(method string) *unasked {
	if capabilityOf[method] == "" || s.Asks.allow(method) {
		return nil
	}
	return byKey("server_requests."+capabilityOf[method], method)
}

// byKey is a refusal by the configuration.
func byKey(key, what string) *unasked {
	return &unasked{"the configuration of the gateway refuses " + what + " (" + key + ")", key}
}

// notPassed answers a request of a server that no client is to see, and says why: the configuration, if that refuses it, and
// otherwise what else does. In the modern era a client that cannot be asked has a code of its own; that of an unknown method
// would make a 404 of the client's request if the server repeats it.
func (g *servers) notPassed(ctx context.Context, l *link, s upstream.Session, m rpc.Message, client era.Era, otherwise *unasked) {
	no := l.server.refuses(m.Method)
	if no == nil {
		no = otherwise
	}
	g.noteUnasked(l.server, m.Method, no)
	e := rpc.Error{Code: rpc.MethodNotFound, Message: no.why}
	if client == era.Modern {
		e.Code, e.Data = era.MissingCapability, missing(m.Method).Value()
	}
	answer := rpc.Failure(m.ID, e)
	if m.Method == "ping" {
		answer = rpc.Answer(m.ID, jsontext.Value(`{}`))
	}
	if err := s.Notify(ctx, answer); err != nil {
		g.o.Logger.Warn("the answer to a request of the server did not reach it", "why", err)
	}
}

// missing are the data of the error that says which capability a request wants.
func missing(method string) (data rpc.Object) {
	var wants rpc.Object
	if name := capabilityOf[method]; name != "" {
		wants = wants.With(name, jsontext.Value(`{}`))
	}
	return data.With("requiredCapabilities", wants.Value())
}

// unasked refuses the request of a client whose server answers with a request that does not reach the client.
func (x Target) unasked(method string, no *unasked) *Answer {
	x.g.noteUnasked(x.link.server, method, no)
	r := ask.Refusal{Kind: requestRefused, Code: rpc.InternalError, Message: "the server asks for something first: " + no.why, Why: no.why}
	var data rpc.Object
	if x.client.era == era.Modern {
		r.Code, r.Status, data = era.MissingCapability, statusOf(era.MissingCapability), missing(method)
	}
	r.Data = data.With("type", rpc.String(string(requestRefused))).Value()
	return refuse(&r)
}

const requestRefused ask.Kind = "server_request_refused"

// noRound refuses a call whose server asks for something first, if people have approved the call and nothing that comes after
// it. They are not asked again: what the server asks does not reach the client.
func (x exchange) noRound() *Answer {
	obligation, is := x.permit.LastRound()
	if !is {
		return nil
	}
	why := "the approval of this call has no follow-up question left (rounds"
	if obligation != "" {
		why += " of the obligation " + strconv.Quote(obligation)
	}
	why += ")"
	return refusal(requestRefused, rpc.InternalError, "the server asks for something first, and "+why+", so the call has ended; the server may have begun it", why)
}

// cancels answers a request of the server's in the place of a client: the person gives no answer.
func (r *relay) cancels(ctx context.Context, m rpc.Message) {
	answer := rpc.Failure(m.ID, rpc.Error{Code: rpc.InternalError, Message: "the call has ended: its approval has no follow-up question left"})
	if m.Method == era.Elicit {
		answer = rpc.Answer(m.ID, cancels().Value())
	}
	if err := r.session.Notify(ctx, answer); err != nil {
		r.exchange.g.o.Logger.Warn("the answer to a request of the server did not reach it", "server", r.exchange.link.server.Name, "why", err)
	}
}

// unaskedEach is how often the log says that the configuration refuses what a server asks, of each key.
const unaskedEach = time.Minute

// noted are the keys of which the log said so, and when.
type noted struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (g *servers) noteUnasked(s *Server, method string, no *unasked) {
	if no.key == "" {
		return
	}
	s.noted.mu.Lock()
	defer s.noted.mu.Unlock()
	now := g.o.Now()
	if last, ok := s.noted.last[no.key]; ok && now.Sub(last) < unaskedEach {
		return
	}
	if s.noted.last == nil {
		s.noted.last = map[string]time.Time{}
	}
	s.noted.last[no.key] = now
	g.o.Logger.Warn("the configuration refuses what a server asks", "server", s.Name, "method", method, "key", s.Key+"."+no.key)
}
