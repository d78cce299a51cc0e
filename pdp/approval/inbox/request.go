package inbox

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Request is an approval request. JSON is all of it as the server wrote it, but on one line.
type Request struct {
	JSON jsontext.Value
	evaluation.ApprovalView
	// Request is the question that waits for approval. It is empty after a redaction.
	Request Asked
}

// Said is a vote or another ruling about a request.
type Said = evaluation.ApprovalVote

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

// ServerSays is the text of a tool's server for approvers, "" if there is none. It is not vouched for.
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

// UnmarshalJSON keeps the text of the request beside its members.
func (r *Request) UnmarshalJSON(b []byte) error {
	r.JSON = jsontext.Value(b).Clone()
	if err := r.JSON.Compact(); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &r.ApprovalView); err != nil || len(r.ApprovalView.Request) == 0 {
		return err
	}
	return json.Unmarshal(r.ApprovalView.Request, &r.Request)
}
