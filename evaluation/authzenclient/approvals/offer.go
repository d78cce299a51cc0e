package approvals

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/internal/link"
)

// The package sends members of the PDP's answers back as the text that came, and reads no more of them than it needs.

// denial names, in a submission, the deny that it follows.
type denial struct {
	EvaluationID string `json:"evaluation_id,omitzero"`
	EvaluatedAt  string `json:"evaluated_at,omitzero"`
	ExpiresAt    string `json:"expires_at"`
	Reason       string `json:"reason,omitzero"`
	BindingToken string `json:"binding_token,omitzero"`
	Template     string `json:"template,omitzero"`
}

// submission is the body of an access request.
type submission struct {
	Subject  evaluation.Entity `json:"subject"`
	Action   evaluation.Action `json:"action"`
	Resource evaluation.Entity `json:"resource"`
	Context  evaluation.Object `json:"context,omitempty"`
	Denial   denial            `json:"denial"`
}

// justified is the member of a submission's context for the justification.
const justified = "business_justification"

// offer is the part of a deny about approvals. The zero offer is none.
type offer struct {
	denial     denial
	endpoint   string
	schema     string // where the PDP says what a submission must have besides
	requested  bool   // an approval can be asked for
	next       string
	retryAfter time.Duration
	expires    time.Time
}

// offerOf reads the offer of a deny. It is not ok in a permit, and in an answer with an error.
func offerOf(e authzenclient.Enforcement) (o offer, ok bool, err error) {
	if e.Permitted() || e.Err() != nil {
		return o, false, nil
	}
	text := e.Decision().Context()
	if len(text) == 0 {
		text = []byte("{}")
	}
	var said struct {
		EvaluationID jsontext.Value `json:"evaluation_id"`
		EvaluatedAt  jsontext.Value `json:"evaluated_at"`
		Reason       jsontext.Value `json:"reason"`
		NextAction   jsontext.Value `json:"next_action"`
		RetryAfter   jsontext.Value `json:"retry_after"`
		Request      jsontext.Value `json:"access_request"`
	}
	if json.Unmarshal(text, &said) != nil {
		return o, false, odd("its context cannot be read")
	}
	o.denial.EvaluationID, o.denial.EvaluatedAt = link.Text("", said.EvaluationID), link.Text("", said.EvaluatedAt)
	o.denial.Reason = link.Text("", said.Reason)
	if n, err := strconv.ParseUint(string(said.RetryAfter), 10, 31); err == nil {
		o.retryAfter = time.Duration(n) * time.Second
	}
	if link.Present(said.Request) {
		if err := o.read(said.Request); err != nil {
			return o, false, err
		}
	}
	o.next = o.after(link.Text("", said.NextAction))
	return o, true, nil
}

// read reads how an approval can be asked for.
func (o *offer) read(request jsontext.Value) error {
	var said struct {
		Endpoint  string         `json:"endpoint"`
		Template  string         `json:"template"`
		ExpiresAt string         `json:"expires_at"`
		Token     string         `json:"binding_token"`
		Schema    string         `json:"request_schema_url"`
		Refused   jsontext.Value `json:"refused"`
	}
	if json.Unmarshal(request, &said) != nil {
		return odd("access_request cannot be read")
	}
	if link.Present(said.Refused) { // the reason why no approval can be asked for
		return nil
	}
	var err error
	switch o.expires, err = time.Parse(time.RFC3339, said.ExpiresAt); {
	case err != nil:
		return odd("access_request has no expires_at")
	case said.Token == "" && o.denial.EvaluationID == "":
		return odd("access_request has no binding_token, and there is no evaluation_id")
	}
	o.requested, o.endpoint, o.schema = true, said.Endpoint, said.Schema
	o.denial.Template, o.denial.ExpiresAt, o.denial.BindingToken = said.Template, said.ExpiresAt, said.Token
	return nil
}

// usually is the next action after a reason, where the answer has no next_action that is known.
var usually = map[evaluation.Reason]string{
	evaluation.ApprovalExpired:      evaluation.NextRequest,
	evaluation.ApprovalRevoked:      evaluation.NextRequest,
	evaluation.ApprovalOutOfScope:   evaluation.NextRequest,
	evaluation.ApprovalPending:      evaluation.NextRetry,
	evaluation.ApprovalPolicyDenied: evaluation.NextNone,
	evaluation.ApprovalUnverifiable: evaluation.NextNone,
}

// after is the action that follows on the deny, as its next_action or else its reason says.
func (o *offer) after(next string) string {
	switch next {
	case evaluation.NextRequest, evaluation.NextRetry, evaluation.NextNone:
	default:
		var known bool
		if next, known = usually[evaluation.Reason(o.denial.Reason)]; !known {
			next = evaluation.NextRequest
		}
	}
	if next == evaluation.NextRequest && !o.requested {
		return evaluation.NextNone
	}
	return next
}

// Next is the action that may follow on a deny, and the pause before it: [evaluation.NextRequest] is to ask people
// ([Ask]), [evaluation.NextRetry] to ask the PDP again, and [evaluation.NextNone] nothing.
func Next(e authzenclient.Enforcement) (next string, after time.Duration) {
	o, ok, _ := offerOf(e)
	if !ok {
		return evaluation.NextNone, 0
	}
	return o.next, o.retryAfter
}

func odd(detail string) error {
	return &authzenclient.Error{Kind: authzenclient.Odd, Detail: detail}
}

func notAsked(detail string) error {
	return &authzenclient.Error{Kind: authzenclient.NotAsked, Detail: detail}
}

func notApproved(detail string) error {
	return &authzenclient.Error{Kind: authzenclient.NotApproved, Detail: detail}
}
