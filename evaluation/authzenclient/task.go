package authzenclient

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// approval is one as it was given, and until when it may be presented.
type approval struct {
	text  jsontext.Value
	until time.Time
}

// standing is how far a task is.
type standing struct {
	task       task
	status     string
	result     jsontext.Value
	retryAfter time.Duration
}

func readTask(r reply) (p standing, err *Error) {
	var said struct {
		Task struct {
			ID             string         `json:"id"`
			Status         string         `json:"status"`
			StatusEndpoint string         `json:"status_endpoint"`
			ExpiresAt      string         `json:"expires_at"`
			Items          jsontext.Value `json:"items"`
			Links          struct {
				Cancel string `json:"cancel"`
			} `json:"links"`
		} `json:"task"`
		Result jsontext.Value `json:"result"`
	}
	if json.Unmarshal(r.body, &said) != nil || said.Task.ID == "" || said.Task.Status == "" {
		return p, odd("it is no task")
	}
	t := said.Task
	if present(t.Items) {
		return p, odd("it is a task of several requests, and one was sent")
	}
	if t.ExpiresAt != "" {
		if _, err := time.Parse(time.RFC3339, t.ExpiresAt); err != nil {
			return p, odd("the task's expires_at is no time")
		}
	}
	p = standing{task{t.ID, t.StatusEndpoint, t.Links.Cancel, t.ExpiresAt}, t.Status, said.Result, r.retryAfter}
	return p, nil
}

// The statuses that something follows from. Of every other, known or not, follows a deny.
const (
	taskPending   = "pending"
	taskApproved  = "approved"
	taskCancelled = "cancelled"
)

// approved is the approval that a task ended with. In another status there is none,
// whatever stands beside it.
func (p standing) approved() (a approval, err *Error) {
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
	return approval{result.Approval, said.Until}, nil
}
