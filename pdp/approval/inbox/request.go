package inbox

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Request is an approval request, as far as it is shown to people. JSON is the whole request as the server wrote it,
// but on one line.
type Request struct {
	JSON jsontext.Value `json:"-"`
	Shown
}

// Shown is what people are shown of an approval request. It ignores the members that later servers add.
type Shown struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Version  int    `json:"version"`
	Tenant   string `json:"tenant"`
	Template string `json:"template"`
	Message  string `json:"message"`
	Request  Asked  `json:"request"`
	// Unbound are the parts of the request that may differ when the approval is used.
	Unbound []string `json:"unbound"`
	// Justification is an object with the reasons that the requester gave.
	Justification jsontext.Value `json:"justification"`
	Decision      string         `json:"decision"`
	Requester     string         `json:"requester"`
	Quorum        int            `json:"quorum"`
	Approvals     int            `json:"approvals"`
	Uses          int            `json:"uses"`
	Used          int            `json:"used"`
	Rounds        int            `json:"rounds"`
	RoundsWithin  string         `json:"rounds_within"`
	Continued     int            `json:"continued"`
	Delegable     bool           `json:"delegable"`
	FiledAt       time.Time      `json:"filed_at"`
	ExpiresAt     time.Time      `json:"expires_at"`
	// RedactedAt is when the words were removed for good. Request is empty then.
	RedactedAt time.Time `json:"redacted_at"`
	Said       []Said    `json:"said"`
	// Link is where people decide about it in the server's console; "" if there is none.
	Link string `json:"link"`
}

// Said is one vote or other ruling about a request.
type Said struct {
	By         string    `json:"by"`
	Decision   string    `json:"decision"`
	Reason     string    `json:"reason"`
	To         string    `json:"to"`
	Via        string    `json:"via"`
	Gateway    string    `json:"gateway"`
	ValidUntil time.Time `json:"valid_until"`
	At         time.Time `json:"at"`
}

// Asked is the question that waits for approval, in AuthZEN's form.
type Asked struct {
	Subject  Entity `json:"subject"`
	Resource Entity `json:"resource"`
	Action   struct {
		Name       string         `json:"name"`
		Properties jsontext.Value `json:"properties"`
	} `json:"action"`
	Context map[string]jsontext.Value `json:"context"`
}

// Entity is a subject or a resource, with the properties that the question had.
type Entity struct {
	Type       string         `json:"type"`
	ID         string         `json:"id"`
	Properties jsontext.Value `json:"properties"`
}

// ServerSays is what the server of a tool says to people about approvals of it, "" if nothing. Nobody vouches for it.
func (a Asked) ServerSays() string {
	var properties struct {
		Hint jsontext.Value `json:"approval_hint"`
	}
	var hint struct {
		Message jsontext.Value `json:"message"`
	}
	var message string
	if json.Unmarshal(a.Resource.Properties, &properties) != nil || json.Unmarshal(properties.Hint, &hint) != nil ||
		json.Unmarshal(hint.Message, &message) != nil || strings.TrimSpace(message) == "" {
		return ""
	}
	return message
}

// Redacted reports if the words are gone.
func (s *Shown) Redacted() bool { return !s.RedactedAt.IsZero() }

// Pending reports if people have yet to decide.
func (s *Shown) Pending() bool { return s.Status == "pending" }

// UnmarshalJSON keeps the text of the request beside its members.
func (r *Request) UnmarshalJSON(b []byte) error {
	r.JSON = jsontext.Value(b).Clone()
	if err := r.JSON.Compact(); err != nil {
		return err
	}
	return json.Unmarshal(b, &r.Shown)
}
