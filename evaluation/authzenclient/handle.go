package authzenclient

import (
	"crypto/sha256"
	"encoding/hex"
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
	Request jsontext.Value `json:"request,omitzero"`
	// Denial, Endpoint and Key are for the submission: Endpoint takes it, with Key as its
	// Idempotency-Key, so that sent again it is the same. If Joins is set there is no key.
	// A Handle that was made of a Task has none of them.
	Denial        denial `json:"denial,omitzero"`
	Endpoint      string `json:"endpoint,omitzero"`
	Key           string `json:"key,omitzero"`
	Joins         bool   `json:"joins,omitzero"`
	Justification string `json:"justification,omitzero"`
	// Again says that people were asked before: they are asked once more at most.
	Again bool  `json:"again,omitzero"`
	Task  *task `json:"task,omitzero"`
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
	k, err := readKept(b)
	if err != nil {
		return err
	}
	q, failure := evaluation.DecodeAuthZEN(k.Request, "", evaluation.DefaultLimits())
	if failure != nil || presents(q) {
		return errors.New("authzen: the request in the handle cannot be read; ask anew")
	}
	q.Tenant, k.Request = "", nil // the tenant is the client's, which is checked
	*h = Handle{q, k}
	return nil
}

func readKept(b []byte) (k kept, err error) {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil || v.Version != handleVersion {
		return k, errors.New("authzen: not a handle of this version; resume it with the version that made it, or ask anew")
	}
	if json.Unmarshal(b, &k, json.RejectUnknownMembers(true)) != nil || !k.whole() {
		return k, errors.New("authzen: the handle is damaged, or not whole; ask anew")
	}
	return k, nil
}

// whole reports whether nothing is missing that is needed later.
func (k kept) whole() bool {
	if k.Task != nil && !k.Task.whole() || k.PDP == "" {
		return false
	}
	named := k.Joins && k.Key == "" || !k.Joins && isToken(k.Key)
	return k.ofTask() || named && k.Endpoint != "" && k.Denial.check() == nil
}

// ofTask reports whether k has nothing but a task.
func (k kept) ofTask() bool {
	return k.Task != nil && k.Denial == denial{} && k.Endpoint == "" && k.Key == "" && !k.Joins && k.Justification == ""
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

// name gives h the key of its submission, made of all that it says: two that are sent for one
// denial are one, however often and by whatever process they are sent.
func (h *Handle) name() *Error {
	body, err := h.body()
	if err != nil || h.kept.Joins {
		return err
	}
	hash := sha256.Sum256(append(body, strconv.FormatBool(h.kept.Again)...))
	h.kept.Key = hex.EncodeToString(hash[:])
	return nil
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
