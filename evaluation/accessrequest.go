package evaluation

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// This file alone knows the names of the AuthZEN Access Request and Approval Profile, at commit 0b9ac540 of openid/authzen
// (October 2026): when they change, they change here, and in offer.go and task.go of authzenclient/approvals, which reads
// and writes them from the other side.

const (
	// AccessRequestCapability is among the capabilities of a PDP that takes access requests.
	AccessRequestCapability = "urn:openid:authzen:capability:access-request"
	// AccessRequestProblem begins the type of each of the profile's problems.
	AccessRequestProblem = "urn:openid:authzen:access-request:error:"
)

// The profile's problems, after [AccessRequestProblem].
const (
	NotRequestable       = "not_requestable"
	ExpiredDenial        = "expired_denial"
	InvalidDenialBinding = "invalid_denial_binding"
	DuplicateRequest     = "duplicate_request"
	UnknownTask          = "unknown_task"
	TaskExpired          = "task_expired"
	InvalidTaskState     = "invalid_task_state"
)

// Why an approval that a request brings does not count.
const (
	ApprovalExpired      Reason = "approval_expired"
	ApprovalOutOfScope   Reason = "out_of_scope"
	ApprovalPending      Reason = "grant_pending"
	ApprovalPolicyDenied Reason = "policy_denied"
	ApprovalUnverifiable Reason = "approval_unverifiable"
	// Two of ours: a person has said no, or has taken a yes back.
	ApprovalDenied  Reason = "approval_denied"
	ApprovalRevoked Reason = "approval_revoked"
)

// The next actions of a PEP.
const (
	NextRequest = "request"
	NextRetry   = "retry"
	NextNone    = "none"
)

// ReevaluateMode is the only way in which an approval is used: the PEP sends the request again.
const ReevaluateMode = "reevaluate"

// Access has the members that the profile adds to the context of an answer.
type Access struct {
	// EvaluationID names the evaluation, and when it was.
	EvaluationID string    `json:"evaluation_id,omitzero"`
	EvaluatedAt  time.Time `json:"evaluated_at,omitzero"`
	// Reason stands in the place of the decision's, where that is none or that an
	// approval is required.
	Reason     Reason `json:"reason,omitzero"`
	NextAction string `json:"next_action,omitzero"`
	RetryAfter int    `json:"retry_after,omitzero"`
	// Request says that an approval can be asked for.
	Request *AccessRequest `json:"access_request,omitzero"`
	// Approval is the one that an allow was given by.
	Approval *ApprovalReference `json:"approval,omitzero"`
}

// AccessRequest says how an approval can be asked for.
type AccessRequest struct {
	Endpoint         string    `json:"endpoint,omitzero"`
	Template         string    `json:"template,omitzero"`
	ExpiresAt        time.Time `json:"expires_at"`
	BindingToken     string    `json:"binding_token"`
	RequestSchemaURL string    `json:"request_schema_url,omitzero"`
}

// ApprovalReference is an approval as it goes from the PDP to the PEP and back.
type ApprovalReference struct {
	ID            string    `json:"id"`
	ApprovedAt    time.Time `json:"approved_at,omitzero"`
	ApprovedUntil time.Time `json:"approved_until"`
	State         string    `json:"state,omitzero"`
	// Obligation is the one that an allow met by the approval, by its name. Rounds is how many rounds may go on from that use
	// still; 0 if the permitted call may not come again. Neither is of the profile.
	Obligation string `json:"obligation,omitzero"`
	Rounds     int    `json:"rounds,omitzero"`
}

// append writes the members, each with a comma before it.
func (a *Access) append(b []byte) ([]byte, error) {
	text, err := json.Marshal(a, json.Deterministic(true))
	if err != nil || len(text) <= len("{}") {
		return b, err
	}
	return append(append(b, ','), text[1:len(text)-1]...), nil
}

// BindingClaims are the claims of a binding token, signed by the PDP.
type BindingClaims struct {
	Issuer          string    `json:"iss"`
	Audience        string    `json:"aud"`
	IssuedAt        int64     `json:"iat"`
	Expires         int64     `json:"exp"`
	ID              string    `json:"jti"`
	DenialExpiresAt time.Time `json:"denial_expires_at"`
	EvaluationID    string    `json:"evaluation_id"`
	// Members are those of the context that the denial was about.
	Members []string `json:"binding_context_members"`
	// Binding is the denied request, as a keyed hash that the PDP alone can make.
	Binding string `json:"binding"`
	// October is set if the body that was denied was one of October's draft of obligations. Another item can have made it one.
	October bool `json:"october,omitzero"`
}

// StateClaims are the claims of an approval's state, signed by the PDP.
type StateClaims struct {
	Issuer       string   `json:"iss"`
	Audience     string   `json:"aud"`
	IssuedAt     int64    `json:"iat"`
	Expires      int64    `json:"exp"`
	ApprovalID   string   `json:"approval_id"`
	EvaluationID string   `json:"evaluation_id"`
	Members      []string `json:"binding_context_members"`
	Binding      string   `json:"binding"`
}

// Submission is the body of an access request.
type Submission struct {
	Items []SubmissionItem
	// Bulk is set where they came as items, be it one.
	Bulk     bool
	Callback *Callback
	// Said is the justification beside the request: it is shown, and not approved.
	Said Object
	// Actor is the actor that the submission names, "" if it names none.
	Actor string
	// Hash is of the body, however it is written.
	Hash [sha256.Size]byte
}

// SubmissionItem is one request of a submission, with its context as submitted.
type SubmissionItem struct {
	Request Request
	Denial  Denial
	// Shared is set if the denial is that of the whole submission.
	Shared bool
}

// Denial names, in a submission, the answer that it follows.
type Denial struct {
	// Given is whether there is any.
	Given        bool
	EvaluationID string
	ExpiresAt    time.Time
	BindingToken string
}

// Callback is the address to which a program wants messages, and the events.
type Callback struct {
	Endpoint, State string
	Events          []string // nil is all
}

// DecodeSubmission reads the body of an access request.
func DecodeSubmission(body []byte, tenant string, limits Limits) (Submission, error) {
	return decode(body, limits, func(r *reader, o Object) (s Submission) {
		q := Request{
			Tenant:  cmp.Or(tenant, DefaultTenant),
			Subject: r.entity(o, false, "subject"),
			Context: r.optional(o, "context"),
		}
		denial := r.denial(o)
		items, bulk := r.member(o, []string{"items"}, false, Array, "an array")
		if s.Bulk = bulk; bulk {
			r.want(!has(o, "resource"), "given beside items, each of which has its own", "resource")
			r.want(!has(o, "action"), "given beside items, each of which has its own", "action")
			r.want(items.Len() > 0, "empty; there is nothing to ask for", "items")
			r.want(items.Len() <= mostItems, "more than "+strconv.Itoa(mostItems)+" items", "items")
			for n, v := range items.Elements {
				s.Items = append(s.Items, r.item(q, v.Object(), denial, "items", strconv.Itoa(n)))
			}
		} else {
			s.Items = []SubmissionItem{r.item(q, o, denial)}
		}
		s.Callback = r.callback(o)
		s.Said, s.Actor = r.said(o)
		text, ok := o.Value().AppendCanonical(nil)
		r.want(ok, "the body holds a number that nobody can compare with another")
		s.Hash = sha256.Sum256(text)
		r.checkContext(q.Context)
		return s
	})
}

// mostItems is how many requests one submission may hold: each is a person's work.
const mostItems = 50

// item reads the request at a path, as far as the items of a submission do not share it. It has
// the denial of the whole submission if it has none of its own.
func (r *reader) item(q Request, o Object, whole Denial, at ...string) SubmissionItem {
	at = slices.Clip(at)
	q.Resource = r.entity(o, false, append(at, "resource")...)
	q.Action = r.action(o, append(at, "action")...)
	q.Draft = draftOf(AuthZEN, q.Context)
	if denial := r.denial(o, at...); denial.Given {
		return SubmissionItem{Request: q, Denial: denial}
	}
	return SubmissionItem{q, whole, true}
}

func (r *reader) denial(o Object, at ...string) (d Denial) {
	path := func(names ...string) []string { return append(slices.Clone(at), names...) }
	v, given := r.member(o, path("denial"), false, Map, "an object")
	if d.Given = given; !given {
		return d
	}
	o = v.Object()
	optional := func(name string) string {
		v, _ := r.member(o, path("denial", name), false, String, "a string")
		return v.Text()
	}
	d.EvaluationID, d.BindingToken = optional("evaluation_id"), optional("binding_token")
	_, _, _ = optional("evaluated_at"), optional("reason"), optional("template")
	d.ExpiresAt = r.moment(r.text(o, path("denial", "expires_at")...), path("denial", "expires_at")...)
	return d
}

// DecodeCancellation reads the body of the cancellation of a task. The profile has a code for the reason, and a comment.
func DecodeCancellation(body []byte, limits Limits) (why string, err error) {
	if len(body) == 0 {
		return "", nil
	}
	return decode(body, limits, func(r *reader, o Object) string {
		why := r.reason(o, false, limits)
		comment, given := r.member(o, []string{"comment"}, false, String, "a string")
		if given && why != "" {
			why += ": "
		}
		why += comment.Text()
		r.want(len(why) <= limits.Detail, "more than "+strconv.Itoa(limits.Detail)+" bytes with the reason", "comment")
		return why
	})
}

func (r *reader) moment(text string, at ...string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	r.want(err == nil, "no time; it is written like 2026-01-02T15:04:05Z", at...)
	return t
}

// A callback is kept with its task, so its events are few and short; there are
// not many states that a task can end in.
const (
	mostEvents   = 16
	longestEvent = 64
)

func (r *reader) callback(o Object) *Callback {
	v, given := r.member(o, []string{"callback"}, false, Map, "an object")
	if !given {
		return nil
	}
	c := &Callback{Endpoint: r.text(v.Object(), "callback", "endpoint")}
	state, _ := r.member(v.Object(), []string{"callback", "state"}, false, String, "a string")
	c.State = state.Text()
	r.want(len(c.State) <= 1024, "more than 1024 bytes", "callback", "state")
	events, given := r.member(v.Object(), []string{"callback", "events"}, false, Array, "an array of strings")
	if given {
		c.Events = []string{}
		r.want(events.Len() <= mostEvents, "more than "+strconv.Itoa(mostEvents)+" events", "callback", "events")
	}
	for n, e := range events.Elements {
		r.want(e.Kind() == String, "not a string", "callback", "events", strconv.Itoa(n))
		r.want(len(e.Text()) <= longestEvent, "more than "+strconv.Itoa(longestEvent)+" bytes", "callback", "events", strconv.Itoa(n))
		c.Events = append(c.Events, e.Text())
	}
	return c
}

// said is the members beside the request.
func (r *reader) said(o Object) (said Object, actor string) {
	access := r.optional(o, "requested_access")
	if until, ok := r.member(access, []string{"requested_access", "requested_until"}, false, String, "a string"); ok {
		r.moment(until.Text(), "requested_access", "requested_until")
	}
	_, _ = r.member(access, []string{"requested_access", "emergency"}, false, Bool, "true or false")
	client := r.optional(o, "client")
	if v, ok := r.member(client, []string{"client", "actor"}, false, Map, "an object"); ok {
		actor = r.text(v.Object(), "client", "actor", "id")
		_, chain := v.Object().Get("act")
		r.want(!chain, "a chain of actors that nobody here can verify; leave it out, and name them in context.on_behalf_of when you ask for the decision", "client", "actor", "act")
	}
	if access.Len() > 0 {
		said = said.With("requested_access", access.Value())
	}
	if client.Len() > 0 {
		said = said.With("client", client.Value())
	}
	return said, actor
}

// TaskAnswer is a task as its program sees it.
type TaskAnswer struct {
	Task   TaskHandle  `json:"task"`
	Result *TaskResult `json:"result,omitzero"`
}

// TaskList are tasks of a program: those that wait, or those that have changed since a cursor.
type TaskList struct {
	Tasks []TaskAnswer `json:"tasks"`
	// Cursor is where the program goes on. More says that there is more to tell of now.
	Cursor string `json:"cursor"`
	More   bool   `json:"more,omitzero"`
}

// TaskHandle is how far a task is.
type TaskHandle struct {
	ID             string            `json:"id"`
	Status         string            `json:"status"`
	StatusEndpoint string            `json:"status_endpoint"`
	ExpiresAt      time.Time         `json:"expires_at,omitzero"`
	Approvals      []TaskApproval    `json:"approvals,omitzero"`
	Items          []TaskItem        `json:"items,omitzero"`
	Links          map[string]string `json:"links,omitzero"`
	Display        map[string]string `json:"display,omitzero"`
}

// TaskApproval names an approval request of a task, by the id that it has below /v1/approvals. Item is which of the task's
// items it is for, from 0; nil if the task has none. Reason is that of the person who denied it, "" if it was not denied.
type TaskApproval struct {
	ID     string `json:"id"`
	Item   *int   `json:"item,omitzero"`
	Reason string `json:"reason,omitzero"`
}

// TaskItem is one of the requests of a task that holds several.
type TaskItem struct {
	Resource jsontext.Value `json:"resource,omitzero"` // absent, as is Action, once the request is redacted
	Action   jsontext.Value `json:"action,omitzero"`
	Status   string         `json:"status"`
	Result   *TaskResult    `json:"result,omitzero"`
}

// TaskResult says how an approval is used.
type TaskResult struct {
	Mode     string            `json:"mode"`
	Approval ApprovalReference `json:"approval"`
}

// The states of a task besides those that an approval has.
const (
	TaskFailed  = "failed"
	TaskPartial = "partial"
)

// CallbackBody is the body of a callback.
type CallbackBody struct {
	State string     `json:"state,omitzero"`
	Task  TaskHandle `json:"task"`
}
