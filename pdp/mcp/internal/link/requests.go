package link

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/time/rate"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/visible"
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
		l.of.o.Logger.Warn("the answer to a request of the server did not reach it", "why", err)
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
	if meta, err := rpc.ParseObject(params.Get("_meta")); err == nil { // no member of the gateway's forms, and no token of another hop
		params = WithMeta(params, meta.Without(func(name string) bool {
			return name == "progressToken" || slices.ContainsFunc(approvalMeta, func(one string) bool { return strings.EqualFold(one, name) })
		}))
	}
	if m.Method == era.Elicit {
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

// approvalMeta are members of _meta by which clients recognise a form that asks for an approval. In a server's form they
// would make it look like a form of the gateway. Some clients ignore case.
var approvalMeta = []string{"elicitationType", "originalRequest", "timeout", "priority"}

// MostInputs is the number of requests that a server may send at once.
const MostInputs = 16

// elicitation returns a question to a person as the client shows it. It names the server, links only to hosts that the
// operator allows, asks for no secret, contains no character that hides another, and warns of text that only looks like other
// text.
func (s *Server) elicitation(params rpc.Object) (rpc.Object, *Unasked) {
	params = params.Without(func(name string) bool { return strings.EqualFold(name, "metadata") }) // some clients read it as _meta
	text, asks := params.GetString("message"), s.Name+" asks"
	if careful := visible.Careful(slices.Concat(visible.Notes(text), visible.NotesInJSON(params.Get("requestedSchema")))); careful != "" {
		asks += "; careful: " + careful
	}
	params = params.With("message", rpc.String("["+asks+"] "+visible.Lines(text)))
	if params.GetString("mode") == "url" {
		params = params.Without(func(name string) bool { return name == "requestedSchema" })
		switch u, err := url.Parse(params.GetString("url")); {
		case err != nil || u.Scheme != "https" || u.User != nil:
			return params, &Unasked{Why: "a page is opened by an https address without a name or password"}
		case !slices.Contains(s.Asks.Hosts, strings.ToLower(u.Host)):
			return params, byKey("server_requests.hosts", "pages of that host")
		}
		return params, nil
	}
	schema, err := rpc.ParseObject(params.Get("requestedSchema"))
	if err != nil {
		return params, &Unasked{Why: "requestedSchema cannot be read"}
	}
	drawn, ok := drawnField("", schema)
	fields, _ := rpc.ParseObject(schema.Get("properties"))
	fields = fields.Map(func(name string, v jsontext.Value) jsontext.Value {
		field, err := rpc.ParseObject(v)
		if err != nil {
			ok = ok && !asksForSecret(name)
			return v
		}
		plain, fine := drawnField(name, field)
		ok = ok && fine
		return plain.Value()
	})
	if fields.Len() > 0 {
		drawn = drawn.With("properties", fields.Value())
	}
	if !ok {
		return params, &Unasked{Why: "no form asks for a password, or for another secret"}
	}
	return params.With("requestedSchema", drawn.Value()), nil
}

// secretWords are names of fields for values that no server may ask for.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "credential", "cvv", "cardnumber"}

func asksForSecret(text string) bool {
	letters := strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKC.String(text))
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(letters, w) })
}

// drawnField returns a field of a form with its texts as they look. It is not ok if the field is for a secret.
func drawnField(name string, field rpc.Object) (drawn rpc.Object, ok bool) {
	ok = !asksForSecret(name) && !asksForSecret(field.GetString("title")) && !asksForSecret(field.GetString("description"))
	return drawnWords(field).Map(func(member string, v jsontext.Value) jsontext.Value {
		switch member {
		case "enumNames":
			return eachOf(v, func(one jsontext.Value) jsontext.Value {
				return drawnText(one, rpc.Object{}.With("text", one).GetString("text"))
			})
		case "items":
			return drawnChoice(v)
		}
		return v
	}), ok
}

// drawnChoice returns a choice, or the list of choices, with its texts as they look.
func drawnChoice(v jsontext.Value) jsontext.Value {
	o, err := rpc.ParseObject(v)
	if err != nil {
		return v
	}
	return drawnWords(o).Value()
}

// drawnWords returns o with its title, description and choices as they look.
func drawnWords(o rpc.Object) rpc.Object {
	return o.Map(func(member string, v jsontext.Value) jsontext.Value {
		switch member {
		case "title", "description":
			return drawnText(v, o.GetString(member))
		case "oneOf", "anyOf":
			return eachOf(v, drawnChoice)
		}
		return v
	})
}

// drawnText returns a text in JSON as it looks. A text that is as it looks keeps its bytes.
func drawnText(v jsontext.Value, text string) jsontext.Value {
	if plain := visible.Lines(text); plain != text {
		return rpc.String(plain)
	}
	return v
}

// eachOf returns an array with f applied to each element. A value that is no array stays as it is.
func eachOf(v jsontext.Value, f func(jsontext.Value) jsontext.Value) jsontext.Value {
	all, err := rpc.Elements(v)
	if err != nil {
		return v
	}
	for n := range all {
		all[n] = f(all[n])
	}
	return rpc.Array(all)
}
