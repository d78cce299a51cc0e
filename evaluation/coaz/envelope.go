package coaz

import (
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
)

// envelope is one compiled envelope: the message to one API.
type envelope struct {
	api     API
	dialect Dialect
	at      string // where the template stands in the mapping
	shared  template
	entries []template // of evaluations
	leaves  []leaf     // the expressions, in the order of their pointers
}

// leaf is an expression of a mapping, with the facts that are known without evaluating it.
type leaf struct {
	at, text string
	want     result
	reads    []selection
	tested   []selection // by has()
}

// template is a request of which parts are still to be resolved; nil is a part that it does not have.
type template struct {
	at                                 string
	subject, action, resource, context node
}

// resolution resolves a mapping for one operation.
type resolution struct {
	mapping  *Mapping
	envelope *envelope
	op       *Operation
	vars     variables
	spent    uint64
	warnings []Warning
}

func (r *resolution) fail(at, detail string) *Error {
	return &Error{Dialect: r.envelope.dialect, Pointer: at, Detail: detail}
}

// within bounds the text that an expression appends. Each can copy the whole request, and a mapping has room for thousands
// of them.
func (r *resolution) within(b []byte, at string) ([]byte, bool, *Error) {
	if limits := r.mapping.binding.limits.Request; len(b) > limits.Body {
		return nil, false, r.fail(at, tooLong(limits))
	}
	return b, true, nil
}

func tooLong(limits evaluation.Limits) string { return tooMany("bytes in a request", limits.Body) }

func (e *envelope) resolve(r *resolution) (Envelope, *Error) {
	body, err := e.body(r)
	if err != nil {
		return Envelope{}, err
	}
	requests, err := e.decode(r, body)
	if err != nil {
		return Envelope{}, err
	}
	for n := range requests {
		requests[n].Tenant = "" // the PEP's client knows whose questions it asks
		if err := e.check(r, &requests[n], n); err != nil {
			return Envelope{}, err
		}
	}
	return Envelope{API: e.api, Body: body, Requests: requests}, r.anchor(requests, e.at)
}

func (e *envelope) body(r *resolution) ([]byte, *Error) {
	b, err := e.shared.append(append(make([]byte, 0, 512), '{'), r)
	if err != nil || e.api == Evaluation {
		return append(b, '}'), err
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `"evaluations":[`...)
	for n := range e.entries {
		if n > 0 {
			b = append(b, ',')
		}
		if b, err = e.entries[n].append(append(b, '{'), r); err != nil {
			return nil, err
		}
		b = append(b, '}')
	}
	return append(b, "]}"...), nil
}

// decode reads a body as the PDP will: strictly, within the limits, and entries with the members that they inherit.
func (e *envelope) decode(r *resolution, body []byte) ([]evaluation.Request, *Error) {
	limits := r.mapping.binding.limits.Request
	if e.api == Evaluation {
		q, err := evaluation.DecodeAuthZEN(body, "", limits)
		return []evaluation.Request{q}, e.refused(r, err)
	}
	batch, err := evaluation.DecodeBatch(body, "", limits)
	if err != nil {
		return nil, e.refused(r, err)
	}
	requests := make([]evaluation.Request, len(batch.Items))
	for n, item := range batch.Items {
		if item.Err != nil {
			return nil, e.refused(r, item.Err)
		}
		requests[n] = item.Request
	}
	return requests, nil
}

// refused is an error of the request that was made, with the pointer into the mapping that made it.
func (e *envelope) refused(r *resolution, err error) *Error {
	if err == nil {
		return nil
	}
	wrong, ok := err.(*evaluation.Error)
	if !ok {
		return r.fail(e.at, "no valid request comes of the mapping")
	}
	return r.fail(e.at+wrong.Pointer, wrong.Detail)
}

// check refuses members that a request may have, but not one that a mapping made.
func (e *envelope) check(r *resolution, q *evaluation.Request, n int) *Error {
	for _, name := range [...]struct{ member, value string }{
		{"/subject/type", q.Subject.Type}, {"/subject/id", q.Subject.ID}, {"/action/name", q.Action.Name},
		{"/resource/type", q.Resource.Type}, {"/resource/id", q.Resource.ID},
	} {
		if name.value == "" {
			return r.fail(e.place(name.member, n), "empty")
		}
	}
	// An operator may name such a member in a mapping. No caller may name it in a value that an expression copies.
	for name := range q.Context.Members {
		if evaluation.Protocol(name) && (r.mapping.author != operator || !e.names(name, n)) {
			return r.fail(e.place("/context"+escaped(name), n), betweenPEPAndPDP)
		}
	}
	return nil
}

// names reports whether the context of request n has a member of this name in the mapping itself.
func (e *envelope) names(name string, n int) bool {
	context, ok := e.shared.context.(object)
	if e.api == Evaluations && e.entries[n].context != nil {
		context, ok = e.entries[n].context.(object)
	}
	return ok && has(context, name)
}

const betweenPEPAndPDP = "only the PEP sets this member of the context: it is between PEP and PDP"

// place is where a member of the request n comes from: of its entry, or of the part that entries share.
func (e *envelope) place(member string, n int) string {
	if e.api == Evaluation || !e.entries[n].has(member) {
		return e.at + member
	}
	return e.entries[n].at + member
}

func (t *template) has(member string) bool {
	part, _, _ := strings.Cut(member[1:], "/")
	for _, p := range t.parts() {
		if p.name == part {
			return p.node != nil
		}
	}
	return false
}

// describe adds the expression that stands at an error's place, or above it.
func (e *envelope) describe(err *Error) *Error {
	for at := err.Pointer; err.Expression == ""; {
		if n := slices.IndexFunc(e.leaves, func(l leaf) bool { return l.at == at }); n >= 0 {
			err.Expression = e.leaves[n].text
			break
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			break
		}
		at = at[:i]
	}
	return err
}

func tooMany(what string, bound int) string {
	return "more than " + strconv.Itoa(bound) + " " + what
}
