package authzenclient

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// What a PEP reads and writes of the AuthZEN Access Request and Approval Profile. Whatever
// goes back to the PDP is kept as the text it came as: a PEP gives it back, and knows
// nothing about it.

// denial is what a submission says of the answer that it follows.
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

// justified is where a submission says why.
const justified = "business_justification"

// offer is what a deny says about approvals.
type offer struct {
	denial     denial
	endpoint   string
	schema     string
	requested  bool // that one can be asked for
	action     string
	retryAfter time.Duration
}

func readOffer(context []byte) (o offer, err *Error) {
	var said struct {
		EvaluationID jsontext.Value `json:"evaluation_id"`
		EvaluatedAt  jsontext.Value `json:"evaluated_at"`
		Reason       jsontext.Value `json:"reason"`
		NextAction   jsontext.Value `json:"next_action"`
		RetryAfter   jsontext.Value `json:"retry_after"`
		Request      jsontext.Value `json:"access_request"`
	}
	if len(context) == 0 {
		return o, nil
	}
	if json.Unmarshal(context, &said) != nil {
		return o, odd("its context cannot be read")
	}
	o.action, o.denial.Reason = text("", said.NextAction), text("", said.Reason)
	o.denial.EvaluationID, o.denial.EvaluatedAt = text("", said.EvaluationID), text("", said.EvaluatedAt)
	if n, err := strconv.ParseUint(string(said.RetryAfter), 10, 31); err == nil {
		o.retryAfter = time.Duration(n) * time.Second
	}
	if o.requested = present(said.Request); !o.requested {
		return o, nil
	}
	return o, o.read(said.Request)
}

// read reads how an approval can be asked for.
func (o *offer) read(request jsontext.Value) *Error {
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
	if present(said.Refused) { // nobody can be asked, and it says why
		o.requested = false
		return nil
	}
	o.endpoint, o.schema = said.Endpoint, said.Schema
	o.denial.Template, o.denial.ExpiresAt, o.denial.BindingToken = said.Template, said.ExpiresAt, said.Token
	return o.denial.check()
}

// check refuses what no approval can be asked for with.
func (d denial) check() *Error {
	switch _, err := time.Parse(time.RFC3339, d.ExpiresAt); {
	case err != nil:
		return odd("access_request has no expires_at")
	case d.BindingToken == "" && d.EvaluationID == "":
		return odd("access_request has no binding_token, and there is no evaluation_id")
	}
	return nil
}

// usually is what a reason means where next_action says nothing that is known.
var usually = map[evaluation.Reason]string{
	evaluation.ApprovalExpired:      evaluation.NextRequest,
	evaluation.ApprovalRevoked:      evaluation.NextRequest,
	evaluation.ApprovalOutOfScope:   evaluation.NextRequest,
	evaluation.ApprovalPending:      evaluation.NextRetry,
	evaluation.ApprovalPolicyDenied: evaluation.NextNone,
	evaluation.ApprovalUnverifiable: evaluation.NextNone,
}

// next is what to do after a deny of a request that brought an approval.
func (o offer) next() string {
	next := o.action
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

// A PDP can publish, as a JSON Schema, what it wants to be told with an approval
// request. This client can say why (business_justification) and nothing else, and should
// not send what is incomplete. So it reads of the schema what that takes, and takes for
// more than it can say whatever it does not understand there. Of a schema that has
// changed it knows within a minute.

// wants is the schema of an object, as far as it is understood.
type wants struct {
	Type       string                    `json:"type"`
	Required   []string                  `json:"required"`
	Properties map[string]jsontext.Value `json:"properties"`
	annotations
}

// why is the schema of the justification.
type why struct {
	Type     string `json:"type"`
	Shortest int    `json:"minLength"`
	Longest  *int   `json:"maxLength"`
	annotations
}

// annotations demand nothing.
type annotations struct {
	Schema      jsontext.Value `json:"$schema"`
	ID          jsontext.Value `json:"$id"`
	Comment     jsontext.Value `json:"$comment"`
	Title       jsontext.Value `json:"title"`
	Description jsontext.Value `json:"description"`
	Examples    jsontext.Value `json:"examples"`
}

// fills refuses to ask for an approval without what the PDP wants to know.
func (c tasks) fills(ctx context.Context, h Handle, url string) *Error {
	if err := c.reachable(url); err != nil {
		return err
	}
	if h.fills(c.known.schemas.get(url, c.clock.now())) {
		return nil
	}
	a := asking{op: "request", url: url, method: http.MethodGet, repeat: unanswered, breaker: &breaker{}, schema: true}
	_, err := c.ask(ctx, a, func(r reply) *Error {
		if !h.fills(r.body) {
			return notAsked("the PDP wants more with an approval request than this client can say; ask for it by another program, or say it in the request's context")
		}
		c.known.schemas.put(url, r.body, c.clock.now())
		return nil
	})
	return err
}

// schemas are those that something was enough for, by their URLs. Nothing is refused by what is kept: the PDP may want less
// meanwhile. If it wants more, it refuses what it is sent.
type schemas struct {
	mu  sync.Mutex
	all map[string]schema
}

type schema struct {
	text  []byte
	until time.Time
}

const (
	schemaKept   = time.Minute
	mostSchemas  = 64
	longestSaved = 16 << 10
)

func (s *schemas) get(url string, now time.Time) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.all[url]; now.Before(kept.until) {
		return kept.text
	}
	return nil
}

func (s *schemas) put(url string, text []byte, now time.Time) {
	if len(text) > longestSaved {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) == mostSchemas {
		s.all = map[string]schema{}
	}
	s.all[url] = schema{text, now.Add(schemaKept)}
}

func (h Handle) fills(schema []byte) bool {
	var root, context wants
	if !understood(schema, &root, &root.Type, "object") {
		return false
	}
	for _, name := range root.Required {
		if !slices.Contains([]string{"subject", "action", "resource", "context", "denial"}, name) {
			return false
		}
	}
	text, restricted := root.Properties["context"]
	if !restricted {
		return true
	}
	if !understood(text, &context, &context.Type, "object") {
		return false
	}
	for _, name := range context.Required {
		if _, there := h.request.Context.Get(name); !there && (name != justified || h.kept.Justification == "") {
			return false
		}
	}
	text, restricted = context.Properties[justified]
	return h.kept.Justification == "" || !restricted || fits(h.kept.Justification, text)
}

func fits(justification string, schema []byte) bool {
	var w why
	n := utf8.RuneCountInString(justification)
	return understood(schema, &w, &w.Type, "string") && n >= w.Shortest && (w.Longest == nil || n <= *w.Longest)
}

// understood reads a schema. It is not ok where anything in it is not known, or it is of
// another type than this one.
func understood(schema []byte, into any, typ *string, want string) bool {
	return json.Unmarshal(schema, into, json.RejectUnknownMembers(true)) == nil && (*typ == "" || *typ == want)
}
