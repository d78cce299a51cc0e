package evaluation

import (
	"cmp"
	"slices"
	"strings"
)

// Response is an approver's answer to an approval request in the words of MCP: the
// result of an elicitation, or the answer to a request for authorization.
type Response struct {
	// Ruling is the ruling that it means. Its Decision is empty where the person put the
	// message away and said nothing.
	Ruling Ruling
	// Reviewed are the values that came back beside the ruling, some of which may be
	// arguments of the call: under their names, under those with [ArgumentPrefix], or
	// all of them in one object "arguments".
	Reviewed Object
}

// ArgumentPrefix begins the name of a field for an argument of the
// call: an argument may be called approve.
const ArgumentPrefix = "arguments."

// DecodeResponse reads an answer to the approval request of that id. Only accept with
// approve true or with the action approve, and the decision approve with that id,
// approve; an answer that can be read in two ways denies, or is refused. Only the word delegate, with
// a person to delegate to, delegates.
func DecodeResponse(body []byte, id string, limits Limits) (Response, error) {
	return decode(body, limits, func(r *reader, o Object) Response {
		elicited := has(o, "action") || has(o, "content")
		ofAuthorization := func(name string) bool { return has(o, name) }
		authorized := slices.ContainsFunc([]string{"authorizationId", "decision", "reason", "validUntil", "delegateTo"}, ofAuthorization)
		switch {
		case elicited == authorized:
			r.err = Malformed("not one answer",
				"send action and content, or authorizationId and decision with reason, validUntil and delegateTo; not members of both")
			return Response{}
		case elicited:
			return r.elicited(o, limits)
		}
		return r.authorized(o, id, limits)
	})
}

// elicited reads the result of an elicitation.
func (r *reader) elicited(o Object, limits Limits) Response {
	action, content := r.text(o, "action"), r.optional(o, "content")
	chosen := r.form(content, limits)
	v := Response{Reviewed: content.Without(ofForm)}
	switch action {
	case "accept":
		v.Ruling = chosen
		r.named(chosen, "content", "delegateTo")
	case "decline":
		v.Ruling = Ruling{Decision: "deny", Reason: chosen.Reason}
	case "cancel":
		return v
	default:
		r.want(false, "none of accept, decline, cancel", "action")
	}
	v.Ruling.Reason = reasonOr(v.Ruling)
	return v
}

func ofForm(name string) bool {
	return name == "approve" || name == "action" || name == "delegateTo" || name == "reason"
}

// form reads the fields that an approver filled in: approve, or action and, for a delegation, delegateTo.
func (r *reader) form(content Object, limits Limits) Ruling {
	approve, _ := r.member(content, []string{"content", "approve"}, false, Bool, "true or false")
	chosen, given := r.member(content, []string{"content", "action"}, false, String, "a string")
	action := chosen.Text()
	r.want(!given || isRuling(action), "none of approve, deny, delegate", "content", "action")
	to := r.delegateTo(content, action, "content", "delegateTo")
	return Ruling{Decision: decisionOf(approve, action), Reason: r.reason(content, false, limits, "content"), To: to}
}

// delegateTo reads the person of a delegation. There is none unless the approver chose to delegate.
func (r *reader) delegateTo(o Object, chosen string, at ...string) string {
	to, _ := r.member(o, at, false, String, "a string")
	r.want(to.Text() == "" || chosen == "delegate", "there is somebody to delegate to, and this is no delegation", at...)
	return to.Text()
}

// named refuses a delegation without a person.
func (r *reader) named(v Ruling, at ...string) {
	r.want(v.Decision != "delegate" || v.To != "", "missing; it must be a string", at...)
}

func isRuling(word string) bool { return word == "approve" || word == "deny" || word == "delegate" }

// decisionOf is deny if neither is given, or if they disagree.
func decisionOf(approve Value, action string) string {
	said := action
	switch {
	case approve.True():
		said = "approve"
	case approve.Kind() != Null:
		said = "deny"
	}
	if said == "" || action != "" && action != said {
		return "deny"
	}
	return said
}

// authorized reads the answer to a request for authorization.
func (r *reader) authorized(o Object, id string, limits Limits) Response {
	r.want(r.text(o, "authorizationId") == id, "not the id of this approval request", "authorizationId")
	v := Ruling{Decision: r.text(o, "decision"), Reason: r.reason(o, false, limits)}
	r.want(isRuling(v.Decision), "none of approve, deny, delegate", "decision")
	v.To = r.delegateTo(o, v.Decision, "delegateTo")
	r.named(v, "delegateTo")
	v.ValidUntil = r.until(o, "validUntil", v.Decision)
	v.Reason = reasonOr(v)
	return Response{Ruling: v, Reviewed: o.Without(func(name string) bool { return name != "arguments" })}
}

// reasonOr is the reason, or the plain fact: the record is never empty.
func reasonOr(v Ruling) string {
	return cmp.Or(strings.TrimSpace(v.Reason), map[string]string{"approve": "approved", "deny": "declined", "delegate": "delegated"}[v.Decision])
}
