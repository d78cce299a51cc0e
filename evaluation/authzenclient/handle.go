package authzenclient

import (
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Handle is a wait for an approval that can be kept and gone on with by another process:
// see [KeepHandle] and [Client.Resume]. It is JSON, and holds the request and what proves
// to the PDP which denial it is about, but no credentials. It permits nothing. Whoever can
// write it says what is asked of the PDP in your name, so keep it where nobody else can,
// and act on [Handle.Request] and not on what you remember.
type Handle struct {
	request evaluation.Request
	kept    kept
}

// handleVersion goes up with whatever older programs would misread.
const handleVersion = 1

// kept is a Handle as it is written. Members are added with a new version only: one that
// is not known is refused.
type kept struct {
	Version int            `json:"version"`
	PDP     string         `json:"pdp"`
	Request jsontext.Value `json:"request"`
	Denial  denial         `json:"denial"`
	// Endpoint takes the submission, with Key as its Idempotency-Key: sent again it is
	// the same.
	Endpoint      string `json:"endpoint"`
	Key           string `json:"key"`
	Justification string `json:"justification,omitzero"`
	// Again says that people were asked before: they are asked once more at most.
	Again bool  `json:"again,omitzero"`
	Task  *task `json:"task,omitzero"`
}

// task is where to learn what people say.
type task struct {
	ID             string `json:"id"`
	StatusEndpoint string `json:"status_endpoint"`
	Cancel         string `json:"cancel,omitzero"`
	ExpiresAt      string `json:"expires_at,omitzero"`
}

// Request is what an approval is waited for: what a permit of [Client.Resume] is about.
func (h Handle) Request() evaluation.Request { return h.request }

// TaskID names the approval request at the PDP. It is empty in a handle of before it
// was made.
func (h Handle) TaskID() string {
	if h.kept.Task == nil {
		return ""
	}
	return h.kept.Task.ID
}

// String is for logs: it has nothing of the request.
func (h Handle) String() string { return "wait for approval " + strconv.Quote(h.TaskID()) }

// MarshalJSON writes h; the zero Handle cannot be.
func (h Handle) MarshalJSON() ([]byte, error) {
	k := h.kept
	if k.Version == 0 {
		return nil, errors.New("authzen: a Handle of nothing; keep the one that KeepHandle is given")
	}
	var err error
	if k.Request, err = json.Marshal(h.request); err != nil {
		return nil, err
	}
	return json.Marshal(k)
}

// UnmarshalJSON reads what MarshalJSON wrote, and nothing that it does not understand all of.
func (h *Handle) UnmarshalJSON(b []byte) error {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil || v.Version != handleVersion {
		return errors.New("authzen: not a handle of this version; resume it with the version that made it, or ask anew")
	}
	var k kept
	if json.Unmarshal(b, &k, json.RejectUnknownMembers(true)) != nil || !k.whole() {
		return errors.New("authzen: the handle is damaged, or not whole; ask anew")
	}
	q, err := evaluation.DecodeAuthZEN(k.Request, "", evaluation.DefaultLimits())
	if err != nil || presents(q) {
		return errors.New("authzen: the request in the handle cannot be read; ask anew")
	}
	q.Tenant, k.Request = "", nil // the tenant is the client's, which is checked
	*h = Handle{q, k}
	return nil
}

// whole reports whether nothing is missing that is needed later.
func (k kept) whole() bool {
	return k.PDP != "" && k.Endpoint != "" && isToken(k.Key) && k.Denial.check() == nil && (k.Task == nil || k.Task.whole())
}

func (t *task) whole() bool {
	_, err := time.Parse(time.RFC3339, t.ExpiresAt)
	return t.ID != "" && t.StatusEndpoint != "" && (t.ExpiresAt == "" || err == nil)
}

// ends is when it is of no use any more to go on; zero is never.
func (h Handle) ends() time.Time {
	text := h.kept.Denial.ExpiresAt
	if h.kept.Task != nil {
		text = h.kept.Task.ExpiresAt
	}
	end, _ := time.Parse(time.RFC3339, text) // what is in a Handle is a time, or none
	return end
}

// body is what an approval is asked for with: of one Handle always the same.
func (h Handle) body() ([]byte, *Error) {
	q := h.request
	if h.kept.Justification != "" {
		why, err := evaluation.Text(h.kept.Justification)
		if err != nil {
			return nil, notAsked("the justification is not valid UTF-8")
		}
		q.Context = q.Context.With(justified, why)
	}
	return encode(submission{q.Subject, q.Action, q.Resource, q.Context, h.kept.Denial})
}
