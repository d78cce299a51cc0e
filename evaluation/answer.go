package evaluation

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// Answer is a decision in a wire shape: AuthZEN's {"decision", "context"} or
// the native {"allow", …} with the same members beside it. It says no more
// than it must, and the same decision always gives the same bytes. What is
// possible is never an allow, and has nothing beside it but its explanation.
func (s Shape) Answer(d Decision) ([]byte, error) {
	if d.Possible != Decided {
		d = Decision{Possible: d.Possible, Explain: d.Explain}
	}
	more, err := d.context(s)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 48+len(more))
	if s == Native {
		b = strconv.AppendBool(append(b, `{"allow":`...), d.Allow)
		b = d.appendNative(b)
		if d.Approval != nil {
			a := *d.Approval
			a.ExpiresAt = a.ExpiresAt.UTC().Truncate(time.Second) // not beyond the end of it
			if b, err = appendMember(b, "approval", a); err != nil {
				return nil, err
			}
		}
		return append(append(b, more...), '}'), nil
	}
	b = strconv.AppendBool(append(b, `{"decision":`...), d.Allow)
	if len(more) > 0 {
		b = append(append(b, `,"context":{`...), more[1:]...)
		b = append(b, '}')
	}
	return append(b, '}'), nil
}

// Answers is the body of an Access Evaluations answer: what [Shape.Answer] says
// of each item, in order.
func Answers(decisions []Decision) ([]byte, error) {
	b := append(make([]byte, 0, 24*len(decisions)+32), `{"evaluations":[`...)
	for n, d := range decisions {
		answer, err := AuthZEN.Answer(d)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			b = append(b, ',')
		}
		b = append(b, answer...)
	}
	return append(b, "]}"...), nil
}

// context returns the members of the answer besides the decision itself, each
// with a comma before it.
func (d Decision) context(s Shape) ([]byte, error) {
	var b []byte
	if d.Possible != Decided {
		b = strconv.AppendBool(append(b, `,"possible":`...), d.Possible == Possible)
	}
	reason := d.Reason
	if d.Access != nil && s == AuthZEN {
		var err error
		access := *d.Access
		reason, access.Reason = d.why()
		if d.Refused != nil {
			access.Request = nil
			if d.Draft == October {
				access.NextAction = ""
			}
		}
		if b, err = access.append(b); err != nil {
			return nil, err
		}
	}
	if reason != "" {
		b = appendString(append(b, `,"reason":`...), string(reason))
	}
	if d.Pointer != "" {
		b = appendString(append(b, `,"pointer":`...), d.Pointer)
	}
	if d.ReasonUser != "" {
		b = appendString(append(b, `,"reason_user":`...), d.ReasonUser)
	}
	if len(d.Required) > 0 && d.Draft != October {
		b = append(b, `,"required_obligations":[`...)
		b = append(appendList(b, d.Required, appendString), ']')
	}
	if s == AuthZEN && len(d.Obligations) > 0 {
		b = d.Draft.appendObligations(append(b, `,"obligations":`...), d.Obligations)
	}
	if d.Refused != nil {
		if s == AuthZEN && d.Draft == October { // access_request alone would tell other PEPs that they can ask
			b = append(b, `,"next_action":"`+NextNone+`"`...)
		}
		var err error
		if b, err = appendMember(b, "access_request", map[string]*Mismatch{"refused": d.Refused}); err != nil {
			return nil, err
		}
	}
	if d.Capability != nil {
		var err error
		if b, err = appendMember(b, capabilityMember, d.Capability); err != nil {
			return nil, err
		}
	}
	if d.Malformed != nil {
		b = appendString(append(b, `,"error":{"status":400,"message":`...), d.Malformed.Error())
		b = append(b, '}')
	}
	if d.Explain != nil {
		return appendMember(b, "explain", d.Explain)
	}
	return b, nil
}

// PointOut sets Pointer on a deny to a value of the request that does not fit the schema, or that a policy could not read.
// Without a reason, that policy is a permit, and the answer does not say whether it would have applied.
func (d *Decision) PointOut() {
	unread := slices.ContainsFunc(d.Errors, func(e PolicyError) bool { return e.Kind == UnusableValue })
	errs := d.Reason == ErroredPolicy || d.Reason == "" && len(d.Determining) == 0
	if !d.Allow && d.Possible == Decided && len(d.Mismatch) > 0 && (d.Reason == SchemaMismatch || errs && unread) {
		d.Pointer = d.Mismatch[0].Pointer
	}
}

// appendMember appends one more member to those of an object.
func appendMember(b []byte, name string, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(append(b, `,"`+name+`":`...), text...), err
}

// why is the one reason to give; the other result is empty. It is the decision's own. But if there is none, or it only
// says that an approval is required, why the approval that was presented does not count says more.
func (d Decision) why() (own, ofApproval Reason) {
	if d.Access.Reason != "" && (d.Reason == "" || d.Reason == ApprovalRequired) {
		return "", d.Access.Reason
	}
	return d.Reason, ""
}

// appendNative writes obligations as the native answer has them: each type is
// exactly true, never anything else, and what there is to say besides stands in
// obligation_details.
func (d Decision) appendNative(b []byte) []byte {
	if len(d.Obligations) == 0 {
		return b
	}
	types, details := make([]string, 0, len(d.Obligations)), false
	for _, o := range d.Obligations {
		details = details || o.Properties.Len() > 0
		types = append(types, o.Type)
	}
	slices.Sort(types)
	once := slices.Compact(types)
	b = appendList(append(b, `,"obligations":{`...), once, func(b []byte, t string) []byte {
		return append(appendString(b, t), `:true`...)
	})
	b = append(b, '}')
	if details || len(once) < len(d.Obligations) {
		b = July.appendObligations(append(b, `,"obligation_details":`...), d.Obligations)
	}
	return b
}

// appendList appends each of all, with a comma before every one but the first.
func appendList[T any](b []byte, all []T, one func([]byte, T) []byte) []byte {
	for n, e := range all {
		if n > 0 {
			b = append(b, ',')
		}
		b = one(b, e)
	}
	return b
}
