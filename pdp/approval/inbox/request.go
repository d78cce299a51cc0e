package inbox

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Request is an approval request, as far as it is shown to people. JSON has all of
// it, as the server wrote it but on one line.
type Request struct {
	JSON jsontext.Value
	Shown
}

// Shown is what people are shown of an approval request. Later servers say more:
// members that are not here are passed over.
type Shown struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Version  int    `json:"version"`
	Tenant   string `json:"tenant"`
	Template string `json:"template"`
	Message  string `json:"message"`
	Request  Asked  `json:"request"`
	// Unbound is what of the request may be otherwise when it is done.
	Unbound []string `json:"unbound"`
	// Justification is what was said for it, an object.
	Justification jsontext.Value `json:"justification"`
	Decision      string         `json:"decision"`
	Requester     string         `json:"requester"`
	Quorum        int            `json:"quorum"`
	Approvals     int            `json:"approvals"`
	Uses          int            `json:"uses"`
	Used          int            `json:"used"`
	Delegable     bool           `json:"delegable"`
	FiledAt       time.Time      `json:"filed_at"`
	ExpiresAt     time.Time      `json:"expires_at"`
	Said          []Said         `json:"said"`
}

// Said is what somebody said.
type Said struct {
	By         string    `json:"by"`
	Decision   string    `json:"decision"`
	Reason     string    `json:"reason"`
	To         string    `json:"to"`
	ValidUntil time.Time `json:"valid_until"`
	At         time.Time `json:"at"`
}

// Asked is the request that waits, in AuthZEN's form.
type Asked struct {
	Subject  Entity `json:"subject"`
	Resource Entity `json:"resource"`
	Action   struct {
		Name       string         `json:"name"`
		Properties jsontext.Value `json:"properties"`
	} `json:"action"`
	Context map[string]jsontext.Value `json:"context"`
}

// Entity is somebody or something, with what was sent of it.
type Entity struct {
	Type       string         `json:"type"`
	ID         string         `json:"id"`
	Properties jsontext.Value `json:"properties"`
}

// Pending reports whether people have yet to decide.
func (s *Shown) Pending() bool { return s.Status == "pending" }

// UnmarshalJSON keeps what was written beside what was understood of it.
func (r *Request) UnmarshalJSON(b []byte) error {
	r.JSON = jsontext.Value(b).Clone()
	if err := r.JSON.Compact(); err != nil {
		return err
	}
	return json.Unmarshal(b, &r.Shown)
}
