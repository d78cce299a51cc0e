package link

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/time/rate"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
)

// Unasked is the reason for which a request of a server reaches no client.
type Unasked struct {
	Why string // a text for the server
	key string // of the server's configuration, if that refuses the request
}

// capabilityOf names the capability that a method needs, for clients and in the configuration.
var capabilityOf = map[string]string{era.Elicit: "elicitation", era.Sample: "sampling", era.Roots: "roots"}

// refuses returns the reason if the configuration refuses a request of the server by its method, nil otherwise.
func (s *Server) refuses(method string) *Unasked {
	if capabilityOf[method] == "" || s.Asks.May[capabilityOf[method]] {
		return nil
	}
	return byKey("server_requests."+capabilityOf[method], method)
}

// answerMembers are the members of answers by which a server knows what is answered, with the capability that this needs.
var answerMembers = map[string]string{"action": "elicitation", "model": "sampling", "role": "sampling", "roots": "roots"}

// MayHave reports whether the server may have an answer of a client that it may not have asked: the configuration lets it ask for
// all that is in the answer. Some servers do not mind the case of names.
func (s *Server) MayHave(answer jsontext.Value) (may bool) {
	o, err := rpc.ParseObject(answer)
	if err != nil {
		return false
	}
	for name := range o.Members {
		if capability := answerMembers[strings.ToLower(name)]; capability != "" {
			if may = s.Asks.May[capability]; !may {
				return false
			}
		}
	}
	return may
}

func byKey(key, what string) *Unasked {
	return &Unasked{"the configuration of the gateway refuses " + what + " (" + key + ")", key}
}

// NotPassed answers a request of a server that reaches no client, and gives the reason: the configuration if that refuses it,
// otherwise the given one. In the modern era a client that cannot be asked has an error code of its own. The code of an
// unknown method would turn the client's request into a 404 if the server repeats it.
func (l *Link) NotPassed(ctx context.Context, s upstream.Session, m rpc.Message, client era.Era, otherwise *Unasked) {
	no := l.Server.refuses(m.Method)
	if no == nil {
		no = otherwise
	}
	l.NoteUnasked(m.Method, no)
	e := rpc.Error{Code: rpc.MethodNotFound, Message: no.Why}
	if client == era.Modern {
		e.Code, e.Data = era.MissingCapability, Missing(m.Method).Value()
	}
	answer := rpc.Failure(m.ID, e)
	if m.Method == "ping" {
		answer = rpc.Answer(m.ID, jsontext.Value(`{}`))
	}
	if err := s.Notify(ctx, answer); err != nil {
		l.of.o.Logger.Warn("the answer to a request of the server did not reach it", slog.Group("", "server", l.Server.Name), "why", err)
	}
}

// Missing returns the data of the error that names the capability a request needs.
func Missing(method string) (data rpc.Object) {
	var wants rpc.Object
	if name := capabilityOf[method]; name != "" {
		wants = wants.With(name, jsontext.Value(`{}`))
	}
	return data.With("requiredCapabilities", wants.Value())
}

// unaskedEach is the interval of log lines about a server's refused requests, for each key.
const unaskedEach = time.Minute

func (l *Link) NoteUnasked(method string, no *Unasked) {
	if no.key == "" {
		return
	}
	s := l.Server
	each, _ := s.noted.LoadOrStore(no.key, &rate.Sometimes{Interval: unaskedEach})
	each.(*rate.Sometimes).Do(func() {
		l.of.o.Logger.Warn("the configuration refuses what a server asks", "server", s.Name, "method", method, "key", s.Key+"."+no.key)
	})
}

// Shown returns a request of a server as its client gets it, or the reason for which the client does not get it. The operator
// may not let it through, the client may be unable to answer it, or it may ask a person for a secret.
func Shown(s *Server, m rpc.Message, capabilities jsontext.Value) (shown rpc.Message, no *Unasked) {
	if no := s.refuses(m.Method); no != nil {
		return shown, no
	}
	if !era.Takes(capabilities, m) {
		return shown, &Unasked{Why: "the client does not take this request"}
	}
	m.Params = era.WithoutOwnMeta(m.Params)
	params, err := m.ParamsObject()
	if err != nil && m.Params != nil {
		return shown, &Unasked{Why: "the params of the request cannot be read"}
	}
	if meta, err := rpc.ParseObject(params.Get("_meta")); err == nil { // no token of another hop
		params = WithMeta(params, meta.Without(func(name string) bool { return name == "progressToken" }))
	}
	if m.Method == era.Elicit { // without _meta: by members of it some clients know a form that asks for an approval
		if params, no = s.elicitation(params); no != nil {
			return shown, no
		}
	}
	shown = rpc.Message{Method: m.Method}
	if params.Len() > 0 {
		shown.Params = params.Value()
	}
	return shown, nil
}

// OwnMeta is the prefix of the gateway's members of _meta.
const OwnMeta = era.Own

// MostInputs is the number of requests that a server may send at once.
const MostInputs = 16
