package authzenclient

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Task is what of a [Handle] only the PDP knows: where to learn what people say. It is JSON,
// smaller than the Handle, and for programs that are given the request once more by who wants
// it, such as a gateway whose client repeats its call. What a permit is about is the request
// that such a program puts with it: the PDP says whether that is what people approved.
type Task struct{ kept kept }

// Task is what of h needs to be kept to make it again with [Task.Handle]. It is not ok in a
// Handle of before people were asked.
func (h Handle) Task() (t Task, ok bool) {
	if h.kept.Task == nil {
		return t, false
	}
	return Task{kept{Version: handleVersion, PDP: h.kept.PDP, Again: h.kept.Again, Task: h.kept.Task}}, true
}

// Handle makes a Handle of t and of the request that people were asked about.
func (t Task) Handle(request evaluation.Request) (Handle, error) {
	if t.kept.Task == nil {
		return Handle{}, errors.New("authzen: a Task of nothing; keep the one of a Handle")
	}
	if presents(request) {
		return Handle{}, errors.New("authzen: the request presents an approval already; leave context.approval and context.approval_id out")
	}
	return Handle{request, t.kept}, nil
}

// String is for logs.
func (t Task) String() string { return Handle{kept: t.kept}.String() }

// MarshalJSON writes t; the zero Task cannot be.
func (t Task) MarshalJSON() ([]byte, error) {
	if t.kept.Task == nil {
		return nil, errors.New("authzen: a Task of nothing; keep the one of a Handle")
	}
	return json.Marshal(t.kept)
}

// UnmarshalJSON reads what MarshalJSON wrote, and nothing that it does not understand all of.
func (t *Task) UnmarshalJSON(b []byte) error {
	k, err := readKept(b)
	if err == nil && (len(k.Request) > 0 || !k.ofTask()) {
		err = errors.New("authzen: not a task, but a handle or something else; ask anew")
	}
	if err == nil {
		*t = Task{k}
	}
	return err
}

// task is where to learn what people say.
type task struct {
	ID             string `json:"id"`
	StatusEndpoint string `json:"status_endpoint"`
	Cancel         string `json:"cancel,omitzero"`
	ExpiresAt      string `json:"expires_at,omitzero"`
}

func (t *task) whole() bool {
	_, err := time.Parse(time.RFC3339, t.ExpiresAt)
	return t.ID != "" && t.StatusEndpoint != "" && (t.ExpiresAt == "" || err == nil)
}

// approval is one as it was given, and until when it may be presented. The zero approval is none.
type approval struct {
	id    string
	text  jsontext.Value
	until time.Time
}

// told is a task as the PDP tells of it.
type told struct {
	task       task
	status     string
	result     jsontext.Value
	approvals  []string
	reason     string // of who said no
	retryAfter time.Duration
}

// readTask reads a task of one request.
func readTask(r reply) (p told, err *Error) {
	p, bulk, err := readAnyTask(r)
	if err == nil && bulk {
		return p, odd("it is a task of several requests, and one was sent")
	}
	return p, err
}

func readAnyTask(r reply) (p told, bulk bool, err *Error) {
	var said struct {
		Task struct {
			ID             string         `json:"id"`
			Status         string         `json:"status"`
			StatusEndpoint string         `json:"status_endpoint"`
			ExpiresAt      string         `json:"expires_at"`
			Items          jsontext.Value `json:"items"`
			Approvals      jsontext.Value `json:"approvals"`
			Links          struct {
				Cancel string `json:"cancel"`
			} `json:"links"`
		} `json:"task"`
		Result jsontext.Value `json:"result"`
	}
	if json.Unmarshal(r.body, &said) != nil || said.Task.ID == "" || said.Task.Status == "" {
		return p, false, odd("it is no task")
	}
	t := said.Task
	if t.ExpiresAt != "" {
		if _, err := time.Parse(time.RFC3339, t.ExpiresAt); err != nil {
			return p, false, odd("the task's expires_at is no time")
		}
	}
	p = told{task: task{t.ID, t.StatusEndpoint, t.Links.Cancel, t.ExpiresAt}, status: t.Status, result: said.Result, retryAfter: r.retryAfter}
	return p, present(t.Items), p.readAwaited(t.Approvals)
}

// readAwaited reads which approvals a task waits for, or was not given. Other PDPs name none.
func (p *told) readAwaited(v jsontext.Value) *Error {
	var all []struct {
		ID     string         `json:"id"`
		Reason jsontext.Value `json:"reason"`
	}
	if present(v) && (v.Kind() != '[' || json.Unmarshal(v, &all) != nil) {
		return odd("the approvals of the task cannot be read")
	}
	for _, one := range all {
		if one.ID == "" {
			return odd("an approval of the task has no id")
		}
		p.approvals, p.reason = append(p.approvals, one.ID), text(p.reason, one.Reason)
	}
	return nil
}

// The statuses that something follows from. Of every other, known or not, follows a deny.
const (
	taskPending   = "pending"
	taskApproved  = "approved"
	taskDenied    = "denied"
	taskCancelled = "cancelled"
)

// approved is the approval that a task ended with. In another status there is none,
// whatever stands beside it.
func (p told) approved() (a approval, err *Error) {
	if p.status != taskApproved {
		return a, notApproved("the request is " + strconv.Quote(printable(p.status)))
	}
	var result struct {
		Mode     string         `json:"mode"`
		Approval jsontext.Value `json:"approval"`
	}
	if p.result.Kind() != '{' || json.Unmarshal(p.result, &result) != nil || result.Mode != evaluation.ReevaluateMode {
		return a, notApproved("it is approved, with no result that can be used here")
	}
	var said struct {
		ID    string    `json:"id"`
		Until time.Time `json:"approved_until"`
	}
	if result.Approval.Kind() != '{' || json.Unmarshal(result.Approval, &said) != nil || said.ID == "" || said.Until.IsZero() {
		return a, odd("the approval has no id, or no approved_until")
	}
	return approval{said.ID, result.Approval, said.Until}, nil
}

// named are the approvals that a task names: once it is approved, the one that was given.
func (p told) named() []string {
	if given, err := p.approved(); err == nil {
		return []string{given.id}
	}
	return slices.Clone(p.approvals)
}
