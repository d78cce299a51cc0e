package evaluation

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Ruling is the decision of an approver about an approval request, as the API takes it.
type Ruling struct {
	// Decision is approve, deny or delegate. It is empty in a revocation and in a cancellation.
	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Version is the version that the approver has seen; 0 is any.
	Version int `json:"version,omitzero"`
	// To is the person of a delegation.
	To string `json:"to,omitempty"`
	// ValidUntil ends an approval before its time; zero does not.
	ValidUntil time.Time `json:"valid_until,omitzero"`
}

// DecodeRuling reads the body of a decision about an approval request.
func DecodeRuling(body []byte, limits Limits) (Ruling, error) {
	return decode(body, limits, func(r *reader, o Object) Ruling {
		v := Ruling{Decision: r.text(o, "decision"), Reason: r.reason(o, true, limits), Version: r.version(o)}
		delegates := v.Decision == "delegate"
		r.want(isRuling(v.Decision), "none of approve, deny, delegate", "decision")
		if to, ok := r.member(o, []string{"to"}, delegates, String, "a string"); ok {
			v.To = to.Text()
			r.want(delegates, "there is somebody to delegate to, and this is no delegation", "to")
		}
		v.ValidUntil = r.until(o, "valid_until", v.Decision)
		return v
	})
}

// DecodeWithdrawal reads the body of a revocation or a cancellation, which may say why.
func DecodeWithdrawal(body []byte, limits Limits) (Ruling, error) {
	if len(body) == 0 {
		return Ruling{}, nil
	}
	return decode(body, limits, func(r *reader, o Object) Ruling {
		return Ruling{Reason: r.reason(o, false, limits), Version: r.version(o)}
	})
}

// until reads when an approval is to end.
func (r *reader) until(o Object, name, decision string) time.Time {
	v, ok := r.member(o, []string{name}, false, String, "a string")
	if !ok {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, v.Text())
	r.want(err == nil && !until.IsZero(), "no time; it is written like 2026-01-02T15:04:05Z", name)
	r.want(decision == "approve", "only an approval has an end", name)
	return until
}

// reason reads why, in the object that stands at the path.
func (r *reader) reason(o Object, required bool, limits Limits, path ...string) string {
	at := append(path, "reason")
	v, ok := r.member(o, at, required, String, "a string")
	if ok {
		r.want(len(v.Text()) <= limits.Detail, fmt.Sprintf("more than %d bytes", limits.Detail), at...)
		r.want(!required || strings.TrimSpace(v.Text()) != "", "empty; whoever reads the record will want to know", at...)
	}
	return v.Text()
}

func (r *reader) version(o Object) int {
	v, ok := r.member(o, []string{"version"}, false, Number, "a number")
	if !ok {
		return 0
	}
	n, whole := v.Scaled(0)
	r.want(whole && n >= 1 && n <= math.MaxInt32, "not the version of anything; it is a whole number from 1", "version")
	return int(n)
}
