package authzenclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Person is somebody for whom a gateway shows a form, and sends what they say: by a token of
// their own, beside the gateway's key. The zero Person is whom the client's own credential names.
// No verb of fmt prints the token, also where a Person is in a struct: none follows a pointer there.
type Person struct {
	token  *string
	client string // as the header has it; "" if nothing is said of it
}

// PersonWith is the person of a bearer token, which is sent to the PDP and nowhere else.
func PersonWith(token string) (Person, error) {
	if !isToken(token) {
		return Person{}, errors.New("authzen: the person's token is empty, or has characters that no header can carry")
	}
	return Person{token: &token}, nil
}

// WithClient is the person by the client that the token was given to: the entity that it is as the subject of a question.
// The id "" says that the token names no client. A PDP counts no vote that comes through a client about what this client
// asks, or about what any client asks if nothing says which one it is.
func (p Person) WithClient(typ, id string) Person {
	if p.client = "none"; id != "" {
		p.client = url.PathEscape(typ) + "/" + url.PathEscape(id)
	}
	return p
}

// String is for logs: it has nothing of the token.
func (p Person) String() string { return "a person" }

func (p Person) secret() string {
	if p.token == nil {
		return ""
	}
	return *p.token
}

// Form is what a person is shown about one of [Standing.Approvals], as MCP's elicitation/create.
// It is an API of this service alone. Form is approve, choose or review; "" is the one that the
// policy wants. The PDP answers 404 where this person may not decide in this way.
func (c *Client) Form(ctx context.Context, approval string, as Person, form string) ([]byte, error) {
	at := tasks{c}.approvalURL(approval, "/elicitation")
	if form != "" && at != "" {
		at += "?form=" + url.QueryEscape(form)
	}
	return tasks{c}.message(ctx, asking{op: "form", url: at, person: as})
}

// Notification is what a person is told who may decide about one of [Standing.Approvals], as the message
// notifications/authorization/request; [Client.Respond] sends what they answer. It is an API of
// this service alone. The PDP answers 404 where this person may not decide in this way.
func (c *Client) Notification(ctx context.Context, approval string, as Person) ([]byte, error) {
	at := tasks{c}.approvalURL(approval, "/authorization-notification")
	return tasks{c}.message(ctx, asking{op: "notification", url: at, person: as})
}

// Decidable reports whether somebody may decide about one of [Standing.Approvals]: false only if the PDP says that nobody
// may, as its policies are now. It is an API of this service alone. With an error it is true.
func (c *Client) Decidable(ctx context.Context, approval string) (may bool, err error) {
	a := asking{op: "deciders", url: tasks{c}.approvalURL(approval, "/deciders"), method: http.MethodGet, repeat: unanswered}
	may = true
	err = tasks{c}.askFor(ctx, a, func(r reply) *Error {
		var said struct {
			Items *[]string `json:"items"`
			More  *bool     `json:"more"`
		}
		if json.Unmarshal(r.body, &said) != nil || said.Items == nil || said.More == nil {
			return odd("it does not say whether somebody may decide")
		}
		may = len(*said.Items) > 0 || *said.More
		return nil
	})
	return may, err
}

// message gets a message that is for a person.
func (c tasks) message(ctx context.Context, a asking) (body []byte, err error) {
	a.method, a.repeat = http.MethodGet, unanswered
	err = c.askFor(ctx, a, func(r reply) *Error {
		if body = r.body; jsontext.Value(body).Kind() != '{' || !jsontext.Value(body).IsValid() {
			return odd("the body is not one JSON object without ambiguities")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Respond sends what a person answered to a [Client.Form] or a [Client.Notification], as MCP's client gave it, and returns
// what the approval request's status is then. The status is the PDP's word, such as approved,
// and permits nothing.
func (c *Client) Respond(ctx context.Context, approval string, as Person, answer []byte) (status string, err error) {
	a := asking{op: "respond", url: tasks{c}.approvalURL(approval, "/response"), person: as, body: answer, repeat: unsent}
	err = tasks{c}.askFor(ctx, a, func(r reply) *Error {
		var said struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		}
		if json.Unmarshal(r.body, &said) != nil || said.ID != approval || said.Status == "" {
			return odd("it says nothing of this approval request")
		}
		status = said.Status
		return nil
	})
	return status, err
}

// askFor asks for a person.
func (c tasks) askFor(ctx context.Context, a asking, read func(reply) *Error) error {
	a.breaker = &breaker{}
	_, err := c.ask(ctx, a, read)
	if err == nil {
		return nil
	}
	err.Op = a.op
	return err
}

// approvalURL is in no metadata. An id that is no name in a path is none of a PDP's that has
// approvals.
func (c tasks) approvalURL(id, what string) string {
	if id == "" || id == "." || id == ".." {
		return ""
	}
	return c.at.base.String() + "/v1/approvals/" + url.PathEscape(id) + what
}
