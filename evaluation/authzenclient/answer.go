package authzenclient

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// An answer is {"decision": bool, "context": {…}}. Unknown members are ignored, null is absent, and names are compared byte
// for byte. Reading stops at the first thing that two readers could read differently (duplicate names, invalid UTF-8),
// wherever in the body it stands.
//
// The members of a context count beside the decision, too: a PDP that puts obligations there still means them.
//
// An answer to a PEP that adopted October's drafts is read by them.
func read(body []byte, october bool) Decision {
	switch string(body) { // most answers say no more than this, and need not be parsed
	case `{"decision":true}`:
		return Decision{permit: true, allow: true, october: october}
	case `{"decision":false}`:
		return Decision{october: october}
	}
	var top struct {
		Decision jsontext.Value `json:"decision"`
		Allow    jsontext.Value `json:"allow"`
		Context  jsontext.Value `json:"context"`
	}
	if err := json.Unmarshal(body, &top); err != nil {
		return Decision{err: odd("the body is not one JSON object without ambiguities")}
	}
	verdict := top.Decision.Kind()
	switch {
	case verdict != 't' && verdict != 'f':
		return Decision{err: odd("decision is missing or not a boolean")}
	case verdict == 't' && top.Allow.Kind() == 'f':
		return Decision{err: odd("it says both yes and no")}
	}
	d := Decision{allow: verdict == 't', october: october}
	d.qualify(body, top.Context)
	if top.Context.Kind() == '{' {
		d.context = top.Context
	}
	return d
}

// qualify reads the members beside a verdict and in its context. All of them are
// read, also where some are odd: the readable obligations are to be discharged.
func (d *Decision) qualify(body, context jsontext.Value) {
	d.err = cmp.Or(d.err, d.add(body))
	switch context.Kind() {
	case '{':
		d.err = cmp.Or(d.err, d.add(context))
	case 0, 'n':
	default:
		d.err = cmp.Or(d.err, odd("context is not an object"))
	}
	if d.err == nil && d.allow && len(d.obligations) > 0 {
		d.err = &Error{Kind: Obligated, Detail: "the PDP allows, but wants something done besides; see Enforce"}
	}
	d.permit = d.allow && d.err == nil
}

// ofAll refuses members that qualify several answers together: it is not known which of them they are for.
func ofAll(body, context jsontext.Value, what string, october bool) *Error {
	all := Decision{allow: true, october: october}
	if all.qualify(body, context); all.conditional() {
		return &Error{Kind: Obligated, Detail: what + " as a whole carries obligations"}
	}
	return all.err
}

// conditional reports whether the PDP allows, and nothing is wrong with that but
// that the obligations are still to be discharged.
func (d Decision) conditional() bool { return d.allow && d.err != nil && d.err.Kind == Obligated }

// said are the members that qualify a decision.
type said struct {
	Obligations jsontext.Value `json:"obligations"`
	Details     jsontext.Value `json:"obligation_details"`
	Required    jsontext.Value `json:"required_obligations"`
	Error       jsontext.Value `json:"error"`
	Possible    jsontext.Value `json:"possible"`
	Capability  jsontext.Value `json:"capability"`
	Reason      jsontext.Value `json:"reason"`
	ReasonUser  jsontext.Value `json:"reason_user"`
}

func (d *Decision) add(place jsontext.Value) *Error {
	var s said
	if err := json.Unmarshal(place, &s); err != nil {
		return odd("the answer cannot be read")
	}
	// Texts only: other PDPs put objects there, which stay in the context.
	d.reason, d.reasonUser = link.Text(d.reason, s.Reason), link.Text(d.reasonUser, s.ReasonUser)
	read := wanted
	if d.october {
		read = owedInOctober
	}
	owed, err := read(s)
	d.unite(owed)
	if k := s.Possible.Kind(); k == 't' || k == 'f' { // anything else is a member that is not known
		d.possible = evaluation.PossibilityOf(k == 't')
	}
	switch {
	case link.Present(s.Error):
		return itemError(s.Error)
	case err == nil && d.allow && d.possible != evaluation.Decided:
		return odd("it allows, and says what is possible")
	case err == nil && d.allow && unenforceable(s.Capability):
		return odd("it allows, and says that nothing may happen by it")
	case err == nil && d.allow && link.Present(s.Required):
		return odd("it allows, and names obligations it required in vain")
	}
	return err
}

// unenforceable reports whether no use of a capability was counted for an answer, because it is explained.
func unenforceable(capability jsontext.Value) bool {
	var said struct {
		Enforceable jsontext.Value `json:"enforceable"`
	}
	return capability.Kind() == '{' && json.Unmarshal(capability, &said) == nil && said.Enforceable.Kind() == 'f'
}

// itemError reads context.error, which makes a deny of whatever stands beside it.
func itemError(v jsontext.Value) *Error {
	e := &Error{Kind: BadItem}
	var said struct {
		Status  jsontext.Value `json:"status"`
		Message jsontext.Value `json:"message"`
	}
	if json.Unmarshal(v, &said) == nil {
		e.Status, _ = strconv.Atoi(string(said.Status)) // anything but an integer is 0
		e.Detail = link.Text("", said.Message)          // the caller, which knows the secrets, makes it printable
	}
	return e
}
