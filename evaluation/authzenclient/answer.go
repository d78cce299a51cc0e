package authzenclient

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// An answer is AuthZEN's {"decision": bool, "context": {…}} or the native
// {"allow": bool, …} with the same members beside it. Members that are not
// known are ignored, null is absent, and names are compared byte for byte.
// Reading stops at the first thing that two readers could see differently
// (duplicate names, invalid UTF-8), wherever in the body it stands.
//
// Obligations are looked for at both places in both shapes: a PDP that puts
// them where the other shape has them still means them.
func read(body []byte, shape evaluation.Shape) Decision {
	var top struct {
		Decision jsontext.Value `json:"decision"`
		Allow    jsontext.Value `json:"allow"`
		Context  jsontext.Value `json:"context"`
	}
	if err := json.Unmarshal(body, &top); err != nil {
		return Decision{err: odd("the body is not one JSON object without ambiguities")}
	}
	verdict, other, name := top.Decision, top.Allow, "decision"
	if shape == evaluation.Native {
		verdict, other, name = top.Allow, top.Decision, "allow"
	}
	if k := verdict.Kind(); k != 't' && k != 'f' {
		return Decision{err: odd(name + " is missing or not a boolean")}
	}
	if verdict.Kind() == 't' && other.Kind() == 'f' {
		return Decision{err: odd("it says both yes and no")}
	}
	d := Decision{allow: verdict.Kind() == 't'}
	d.qualify(body, top.Context)
	if shape == evaluation.Native {
		d.context = body
	} else if top.Context.Kind() == '{' {
		d.context = top.Context
	}
	return d
}

// qualify reads what stands beside a verdict and in its context. All of it is
// read, also where some of it is odd: what can be done of it must be.
func (d *Decision) qualify(body, context jsontext.Value) {
	d.err = d.add(body)
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

// ofAll refuses what qualifies several answers together: nobody knows which of them it is for.
func ofAll(body, context jsontext.Value, what string) *Error {
	all := Decision{allow: true}
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
	owed, err := wanted(s)
	d.obligations = append(d.obligations, owed...)
	if k := s.Possible.Kind(); k == 't' || k == 'f' { // anything else is a member that is not known
		d.possible = evaluation.PossibilityOf(k == 't')
	}
	switch {
	case link.Present(s.Error):
		return itemError(s.Error)
	case err == nil && d.allow && d.possible != evaluation.Decided:
		return odd("it allows, and says what is possible")
	case err == nil && d.allow && link.Present(s.Required):
		return odd("it allows, and names obligations it required in vain")
	}
	return err
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
		e.Detail = link.Text("", said.Message)          // whoever knows what was sent makes it printable
	}
	return e
}
