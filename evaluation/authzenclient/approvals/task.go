package approvals

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// Task is an approval request that was filed at a PDP. It is JSON, so that another process can go on with it, and permits
// nothing. It has no request and no credential: the PDP compares the request that an approval is used for with the one
// that people approved. A program that can write a Task chooses what is asked of the PDP with your credential, so keep it
// where no other program can.
type Task struct{ kept kept }

// taskVersion goes up with each change that an older program would misread.
const taskVersion = 1

// kept is a [Task] as it is written. A member is added with a new version only: readers refuse an unknown one.
type kept struct {
	Version        int    `json:"version"`
	PDP            string `json:"pdp"`
	ID             string `json:"id"`
	StatusEndpoint string `json:"status_endpoint"`
	Cancel         string `json:"cancel,omitzero"`
	ExpiresAt      string `json:"expires_at,omitzero"`
}

// whole reports whether nothing is missing that is needed later.
func (k kept) whole() bool {
	_, err := time.Parse(time.RFC3339, k.ExpiresAt)
	return k.PDP != "" && k.ID != "" && k.StatusEndpoint != "" && (k.ExpiresAt == "" || err == nil)
}

// ID names the task at its PDP; "" in the zero Task.
func (t Task) ID() string { return t.kept.ID }

// Ends is when the task expires; zero is never.
func (t Task) Ends() time.Time {
	end, _ := time.Parse(time.RFC3339, t.kept.ExpiresAt) // it is a time, or empty
	return end
}

// String is for logs.
func (t Task) String() string { return "wait for approval " + strconv.Quote(t.kept.ID) }

// MarshalJSON writes t; the zero Task cannot be.
func (t Task) MarshalJSON() ([]byte, error) {
	if !t.kept.whole() {
		return nil, errors.New("authzen: the zero Task; keep the one of a Standing")
	}
	return json.Marshal(t.kept)
}

// UnmarshalJSON reads what MarshalJSON wrote, and refuses members that it does not know.
func (t *Task) UnmarshalJSON(b []byte) error {
	var k kept
	err := json.Unmarshal(b, &k, json.RejectUnknownMembers(true))
	if err != nil || k.Version != taskVersion || !k.whole() {
		return errors.New("authzen: the task is damaged, or of another version; ask anew")
	}
	*t = Task{k}
	return nil
}

// of refuses a task of another PDP or tenant.
func (t Task) of(l link.Link) error {
	if t.kept.PDP != l.PDP {
		return notAsked("the task is of another PDP or tenant, or of none; use a client of the one where it was filed")
	}
	return nil
}

// state is a task as the PDP describes it.
type state struct {
	kept       kept
	status     string
	result     jsontext.Value
	approvals  []string
	reason     string // of the person who denied
	retryAfter time.Duration
}

// readTask reads a task of one request.
func readTask(a link.Answer) (s state, err error) {
	s, bulk, err := readAnyTask(a)
	if err == nil && bulk {
		return s, odd("it is a task of several requests, and one was sent")
	}
	return s, err
}

func readAnyTask(a link.Answer) (s state, bulk bool, err error) {
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
	t := &said.Task
	if json.Unmarshal(a.Body, &said) != nil || t.ID == "" || t.Status == "" {
		return s, false, odd("it is no task")
	}
	if _, err := time.Parse(time.RFC3339, t.ExpiresAt); t.ExpiresAt != "" && err != nil {
		return s, false, odd("the task's expires_at is no time")
	}
	s = state{
		kept:       kept{ID: t.ID, StatusEndpoint: t.StatusEndpoint, Cancel: t.Links.Cancel, ExpiresAt: t.ExpiresAt},
		status:     t.Status,
		result:     said.Result,
		retryAfter: a.RetryAfter,
	}
	return s, link.Present(t.Items), s.readApprovals(t.Approvals)
}

// readApprovals reads which approvals a task waits for, or was not given. Other PDPs name none.
func (s *state) readApprovals(v jsontext.Value) error {
	var all []struct {
		ID     string         `json:"id"`
		Reason jsontext.Value `json:"reason"`
	}
	if link.Present(v) && (v.Kind() != '[' || json.Unmarshal(v, &all) != nil) {
		return odd("the approvals of the task cannot be read")
	}
	for _, one := range all {
		if one.ID == "" {
			return odd("an approval of the task has no id")
		}
		s.approvals, s.reason = append(s.approvals, one.ID), link.Text(s.reason, one.Reason)
	}
	return nil
}

// The statuses that matter here. Every other status, known or not, is a deny.
const (
	taskPending   = "pending"
	taskApproved  = "approved"
	taskDenied    = "denied"
	taskCancelled = "cancelled"
)

// approval is an approval as the PDP gave it. The zero approval is none.
type approval struct {
	id    string
	text  jsontext.Value
	until time.Time
}

// approved is the approval of an approved task. A task in another status has none, whatever stands beside the status.
func (s state) approved() (a approval, err error) {
	if s.status != taskApproved {
		return a, notApproved("the request is " + strconv.Quote(link.Printable(s.status)))
	}
	var result struct {
		Mode     string         `json:"mode"`
		Approval jsontext.Value `json:"approval"`
	}
	if s.result.Kind() != '{' || json.Unmarshal(s.result, &result) != nil || result.Mode != evaluation.ReevaluateMode {
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

// named are the approvals that a task names. An approved task names the one that was given.
func (s state) named() []string {
	if given, err := s.approved(); err == nil {
		return []string{given.id}
	}
	return slices.Clone(s.approvals)
}

// Standing is a [Task] with what the PDP said of it last. The zero Standing is of no task.
type Standing struct {
	task  Task
	state state
	given approval // zero if there is none that can be used
	err   error    // why there is none, and none will come
}

// standing is a task with what the PDP says of it.
func (t Task) standing(now state) Standing {
	if now.kept.ExpiresAt != "" {
		t.kept.ExpiresAt = now.kept.ExpiresAt
	}
	s := Standing{task: t, state: now}
	if !s.Pending() {
		s.given, s.err = now.approved()
	}
	return s
}

// Task is what to look at again.
func (s Standing) Task() Task { return s.task }

// Status is the PDP's word: pending, approved, denied, expired, cancelled, failed, or another.
func (s Standing) Status() string { return s.state.status }

// Pending reports whether people have yet to decide.
func (s Standing) Pending() bool { return s.state.status == taskPending }

// Approved reports whether there is an approval that [Use] can present. It is no permit.
func (s Standing) Approved() bool { return s.given.text != nil }

// ApprovedUntil is when that approval ends, zero if there is none.
func (s Standing) ApprovedUntil() time.Time { return s.given.until }

// Ends is when the task expires; zero is never.
func (s Standing) Ends() time.Time { return s.task.Ends() }

// RetryAfter is how long the PDP wants to be left alone before the next [Look]; 0 if it does not say.
func (s Standing) RetryAfter() time.Duration { return s.state.retryAfter }

// Approvals are the ids of the approval requests, by which approvers find them, as far as the PDP names them.
func (s Standing) Approvals() []string { return s.state.named() }

// Reason is the reason of the person who denied, as far as the PDP has it: one line in that person's own words, to be
// shown as such, and nothing to act on. It is "" in any other status.
func (s Standing) Reason() string {
	if s.state.status != taskDenied {
		return ""
	}
	return link.Printable(s.state.reason)
}

// Err is the reason why there is no approval to use and none will come: always an [*authzenclient.Error], of kind
// NotApproved where people decided so, or did not decide in time.
func (s Standing) Err() error { return s.err }

// String is for logs.
func (s Standing) String() string { return s.task.String() + ": " + link.Printable(s.state.status) }
