package pep

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"policy-service/conformance/internal/wire"
)

// recorder is a PDP that answers as a case wants, and keeps the questions.
type recorder struct {
	book *book
	url  string

	mu     sync.Mutex
	answer reply
	over   chan struct{}    // closed at the end of the case, for answers that wait for it
	held   func(begun bool) // if it is not nil, called for each answer that waits, also for one that has begun
}

// reply answers one request.
type reply func(w http.ResponseWriter, q query)

// query is one request to the PDP.
type query struct {
	endpoint string
	body     object   // nil if it is not JSON
	each     []object // its questions, each complete
	path     string
	over     <-chan struct{}
	held     func(begun bool)
}

// hold waits for the end of the case.
func (q query) hold(begun bool) {
	if q.held != nil {
		q.held(begun)
	}
	<-q.over
}

// behave makes the PDP answer in this way until the next call.
func (p *recorder) behave(r reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		close(p.over)
	}
	p.answer, p.over = r, make(chan struct{})
}

const (
	endpoints = "/access/v1/"
	elsewhere = "/elsewhere" // where a redirect leads
)

func (p *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get("X-Request-ID"); id != "" {
		w.Header().Set("X-Request-ID", id)
	}
	if strings.HasPrefix(r.URL.Path, "/.well-known/") {
		p.describe(w)
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, wire.Most))
	if err != nil {
		return // the PEP went away
	}
	p.book.watch("pdp", r, text)
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, elsewhere), endpoints)
	p.book.ask(asked{name, string(text)})
	p.mu.Lock()
	answer, q := p.answer, query{endpoint: name, path: r.URL.Path, over: p.over, held: p.held}
	p.mu.Unlock()
	if q.body, err = parseObject(text); err == nil {
		q.each = complete(q.body, name == "evaluations")
	}
	answer(w, q)
}

// describe gives the metadata.
func (p *recorder) describe(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, object{
		"policy_decision_point":       p.url,
		"access_evaluation_endpoint":  p.url + endpoints + "evaluation",
		"access_evaluations_endpoint": p.url + endpoints + "evaluations",
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, _ := json.Marshal(v, json.Deterministic(true)) // it is made of maps, strings and booleans
	writeText(w, status, "application/json", string(text))
}

func writeText(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// complete takes a body apart into its questions, each with the defaults that apply to it, as the Authorization API does
// it: a member of an item replaces the default whole.
func complete(body object, batch bool) []object {
	items, ok := body["evaluations"].([]any)
	if !batch || !ok || len(items) == 0 {
		return []object{question(nil, body)}
	}
	var all []object
	for _, item := range items {
		inner, _ := item.(object)
		all = append(all, question(body, inner))
	}
	return all
}

// parts are the members of a question that a mapping can make.
var parts = []string{"subject", "action", "resource", "context"}

func question(defaults, own object) object {
	q := object{}
	for _, from := range []object{defaults, own} {
		for _, name := range parts {
			if v, there := from[name]; there {
				q[name] = v
			}
		}
	}
	for _, from := range []object{defaults, own} { // a member that does not belong there shows
		for name, v := range from {
			if _, there := q[name]; !there && name != "evaluations" && name != "options" {
				q[name] = v
			}
		}
	}
	return plain(q)
}

// plain takes away members that say nothing of the operation: the obligations that the PEP can discharge, which it says about
// itself, and an empty context or empty properties, which are the same as none.
func plain(q object) object {
	q = without(q, "context", func(o object) object {
		for _, name := range []string{"supported_obligations", "supported_mandatory_extensions"} {
			if _, isArray := o[name].([]any); isArray {
				o = omit(o, name)
			}
		}
		return o
	})
	for _, entity := range []string{"subject", "action", "resource"} {
		if o, ok := q[entity].(object); ok {
			q[entity] = without(o, "properties", func(o object) object { return o })
		}
	}
	return q
}

// without leaves a member out if nothing is left in it.
func without(o object, name string, reduce func(object) object) object {
	inner, ok := o[name].(object)
	if !ok {
		return o
	}
	o = omit(o, name)
	if inner = reduce(inner); len(inner) > 0 {
		o[name] = inner
	}
	return o
}

func omit(o object, name string) object {
	left := object{}
	for n, v := range o {
		if n != name {
			left[n] = v
		}
	}
	return left
}
