package replay

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
)

// Outcome is the answer to a recorded question.
type Outcome struct {
	// Answer is one of those of [record.Recorded.Answer], or [Refused].
	Answer      string                   `json:"answer"`
	Reason      evaluation.Reason        `json:"reason,omitzero"`
	ReasonUser  string                   `json:"reason_user,omitzero"`
	Determining []string                 `json:"determining,omitzero"`
	Overruled   []string                 `json:"overruled,omitzero"`
	Errors      []evaluation.PolicyError `json:"errors,omitzero"`
	Obligations []Obligation             `json:"obligations,omitzero"`
	Required    []string                 `json:"required,omitzero"`
	LeftOut     []evaluation.LeftOut     `json:"left_out,omitzero"`

	approved bool // an approval met an obligation
}

// Refused is the answer where there is no decision: the bundle has no such tenant, or cannot put the question to its policies.
const Refused = "refused"

// Obligation is an obligation of an answer. Properties are JSON as the log writes it.
type Obligation struct {
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Properties jsontext.Value `json:"properties,omitzero"`
}

// ask puts a call to a bundle. It returns a [*pdp.Unknown] if the answer may depend on what masks hide.
func ask(ctx context.Context, b *pdp.Bundle, call pdp.Call) (Outcome, error) {
	d, err := pdp.Of(b, pdp.Options{}).Evaluate(ctx, call)
	switch {
	case refuses(err):
		return Outcome{Answer: Refused}, nil
	case err != nil:
		return Outcome{}, err
	}
	o := Outcome{
		Answer: recorder.AnswerOf(d), Reason: d.Reason, ReasonUser: d.ReasonUser, Determining: d.Determining,
		Overruled: d.Overruled, Errors: d.Errors, Required: d.Required, LeftOut: d.LeftOut, approved: len(d.Met) > 0,
	}
	for _, one := range d.Obligations {
		o.Obligations = append(o.Obligations, Obligation{one.ID, one.Type, one.Properties.AppendJSON(nil)})
	}
	return o, nil
}

// refuses reports whether a bundle cannot be asked; see [Refused].
func refuses(err error) bool {
	bad := (*evaluation.Error)(nil)
	return errors.As(err, &bad) || errors.Is(err, pdp.ErrUnknownTenant) || errors.Is(err, pdp.ErrTenantUnavailable)
}

// onRecord is the answer that a record has.
func onRecord(r *record.Recorded) Outcome {
	o := Outcome{
		Answer: r.Answer(), Reason: evaluation.Reason(r.Reason), ReasonUser: r.ReasonUser, Determining: r.Determining,
		Overruled: r.Overruled, Errors: r.Errors, Required: r.Required, LeftOut: r.LeftOut, approved: len(r.Discharged) > 0,
	}
	if len(r.Details) > 0 && o.Answer == record.Deny { // it was no request
		o.Answer = Refused
	}
	for _, one := range r.Obligations {
		o.Obligations = append(o.Obligations, Obligation(one))
	}
	return o
}

func masked(text string) bool { return strings.Contains(text, evaluation.MaskPrefix) }

// alike reports whether the properties of two obligations are the same. A text that is masked on record is not compared, and all else
// is: an answer that is certain has no hidden value in it. But if something is hidden, a value that could not be masked was left out of the record.
func alike(was, is jsontext.Value, hidden bool) bool {
	if bytes.Equal(was, is) || was.Kind() == '"' && masked(string(was)) {
		return true
	}
	if was.Kind() != is.Kind() {
		return false
	}
	switch was.Kind() {
	case '"':
		return hidden && string(was) == `""`
	case '{':
		var a, b map[string]jsontext.Value
		same := json.Unmarshal(was, &a) == nil && json.Unmarshal(is, &b) == nil
		for name, value := range a {
			other, there := b[name]
			same = same && (masked(name) || there && alike(value, other, hidden))
		}
		for name := range b {
			_, there := a[name]
			same = same && (there || hidden)
		}
		return same
	case '[':
		var a, b []jsontext.Value
		return json.Unmarshal(was, &a) == nil && json.Unmarshal(is, &b) == nil && (hidden && len(a) < len(b) ||
			slices.EqualFunc(a, b, func(one, other jsontext.Value) bool { return alike(one, other, hidden) }))
	}
	return false
}

// changed names the first part of the answer to the caller in which two outcomes differ, "" if it is one answer. A text that is masked
// on record is not compared.
func changed(was, is Outcome, hidden bool) (part string) {
	same := func(a, b Obligation) bool {
		return a.ID == b.ID && a.Type == b.Type && alike(a.Properties, b.Properties, hidden)
	}
	switch {
	case was.Answer != is.Answer:
		return "answer"
	case was.Reason != is.Reason:
		return "reason"
	case was.ReasonUser != is.ReasonUser && !masked(was.ReasonUser):
		return "reason_user"
	case !slices.EqualFunc(was.Obligations, is.Obligations, same):
		return "obligations"
	case !slices.Equal(was.LeftOut, is.LeftOut):
		return "left_out"
	}
	return ""
}

// differs names the first part in which two outcomes differ, "" if they are one. Where something is hidden, the policies that had
// a part in the answer may be others.
func differs(was, is Outcome, hidden bool) (part string) {
	switch part := changed(was, is, hidden); {
	case part != "":
		return part
	case !slices.Equal(was.Required, is.Required):
		return "required"
	case hidden:
		return ""
	case !slices.Equal(was.Determining, is.Determining):
		return "determining"
	case !slices.Equal(was.Overruled, is.Overruled):
		return "overruled"
	case !slices.Equal(was.Errors, is.Errors):
		return "errors"
	}
	return ""
}
