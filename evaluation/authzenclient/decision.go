package authzenclient

import (
	"bytes"
	"slices"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// Decision is the PDP's answer, or the reason why there is none. Only this package can
// make one that permits; the zero Decision is a deny.
type Decision struct {
	permit      bool
	possible    evaluation.Possibility // of a request with options.unknown
	allow       bool                   // the verdict, obligations aside: never shown, it is not a permit
	err         *Error
	reason      string
	reasonUser  string
	context     []byte
	obligations []evaluation.Obligation
	october     bool // the PEP adopted October's drafts of obligations
	id          string
	requestID   string
}

// Permitted reports whether the PDP allows, without any condition.
func (d Decision) Permitted() bool { return d.permit }

// Possible reports whether the PDP says that some values may be permitted, to a request with
// [evaluation.Request.Unknown]. That permits nothing: Permitted is false then.
func (d Decision) Possible() bool { return d.err == nil && d.possible == evaluation.Possible }

// to refuses an answer to another question than q: a PDP that does not know options.unknown ignores it.
func (d Decision) to(op string, q *evaluation.Request) Decision {
	if q.Unknown == nil || d.possible != evaluation.Decided || d.err != nil && d.err.Kind != Obligated {
		return d
	}
	err := &Error{Kind: Unsupported, Detail: "the request asks what is possible, and the answer has no context.possible"}
	without := denied(op, err)
	without.id, without.requestID, without.context = d.id, d.requestID, d.context
	return without
}

// Err says why there is no answer, or none that can be enforced: always an
// [*Error]. It is nil for a permit, and for a deny that the PDP decided.
func (d Decision) Err() error {
	if d.err == nil { // a nil *Error in an error is not nil
		return nil
	}
	return d.err
}

// Reason is the machine-readable reason the PDP gave, such as unknown_entity.
func (d Decision) Reason() string { return d.reason }

// ReasonUser is the sentence for the user that the policy's author wrote.
func (d Decision) ReasonUser() string { return d.reasonUser }

// Context is the context of the answer as JSON, nil if there was none.
func (d Decision) Context() []byte { return bytes.Clone(d.context) }

// Obligations are the acts that the PDP wants done besides. A Decision that has some
// never permits: they were not discharged. [Client.Enforce] does that.
func (d Decision) Obligations() []evaluation.Obligation { return slices.Clone(d.obligations) }

// ID names the decision's record, where the PDP says so (X-Decision-Id).
func (d Decision) ID() string { return d.id }

// RequestID is the X-Request-ID that was sent with the request.
func (d Decision) RequestID() string { return d.requestID }

// String is for logs.
func (d Decision) String() string {
	switch {
	case d.permit:
		return "permit"
	case d.err != nil:
		return "deny: " + d.err.Error()
	case d.possible == evaluation.Possible:
		return "possible"
	case d.possible == evaluation.Impossible:
		return "impossible"
	case d.reason != "":
		return "deny: " + link.Printable(d.reason)
	}
	return "deny"
}

// without takes secrets out of a deny, for the texts of one are shown. An allow stays as it came. Short texts are no secrets,
// and would be parts of others: a session may be "1".
func (d Decision) without(s secrets) Decision {
	if !d.allow {
		s = slices.DeleteFunc(slices.Clone(s), func(secret string) bool { return len(secret) < 16 })
		d.reason, d.reasonUser, d.context = s.without(d.reason), s.without(d.reasonUser), s.withoutJSON(d.context)
	}
	return d
}

// denied is the Decision of a call that failed.
func denied(op string, err *Error) Decision {
	err.Op = op
	return Decision{err: err}
}
