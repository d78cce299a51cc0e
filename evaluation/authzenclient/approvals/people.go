package approvals

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/internal/link"
)

// Person is a person to whom a gateway shows a form, and whose answer it sends: by that person's own token, beside the
// gateway's key. The zero Person is the one of the client's own credential. No verb of fmt prints the token, also in a
// struct that holds a Person: none follows a pointer there.
type Person struct {
	token  *string
	client string // as the header has it; "" if nothing is said of it
}

// PersonWith is the person of a bearer token. The token is sent to the PDP and nowhere else.
func PersonWith(token string) (Person, error) {
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return Person{}, errors.New("authzen: the person's token is empty, or has characters that no header can carry")
	}
	return Person{token: &token}, nil
}

// WithClient adds the client that the token was given to: the entity that the client is as the subject of a question. The
// id "" says that the token names no client. A PDP counts no vote that comes through a client about a question of this
// client, or about a question of any client if the client is not known.
func (p Person) WithClient(typ, id string) Person {
	if p.client = "none"; id != "" {
		p.client = url.PathEscape(typ) + "/" + url.PathEscape(id)
	}
	return p
}

// String is for logs: it has nothing of the token.
func (p Person) String() string { return "a person" }

// asks has a request asked for the person.
func (p Person) asks(r link.Request) link.Request {
	if p.token == nil {
		return r
	}
	r.Secret, r.Header = *p.token, http.Header{"Approver-Token": {*p.token}}
	if p.client != "" {
		r.Header.Set("Approver-Client", p.client)
	}
	return r
}

// Form is the form of an approval request of [Standing.Approvals] for a person, as MCP's elicitation/create. The form is
// approve, choose or review; "" is the one of the policy. It is an API of this service alone, and answers 404 if this
// person may not decide in this way.
func Form(ctx context.Context, c *authzenclient.Client, approval string, as Person, form string) ([]byte, error) {
	what := "/elicitation"
	if form != "" {
		what += "?form=" + url.QueryEscape(form)
	}
	return message(ctx, c, "form", approval, what, as)
}

// Notification is the message notifications/authorization/request about an approval request of [Standing.Approvals], for
// an approver; [Respond] sends the answer. It is an API of this service alone, and answers 404 if this person may not
// decide in this way.
func Notification(ctx context.Context, c *authzenclient.Client, approval string, as Person) ([]byte, error) {
	return message(ctx, c, "notification", approval, "/authorization-notification", as)
}

// Notifications are a page of messages notifications/authorization/request for a person.
type Notifications struct {
	Messages []jsontext.Value
	// Cursor is where the next page begins. With More there is more to be had at once.
	Cursor string
	More   bool
}

// ReadNotifications reads what waits for a person: the messages about all approval requests that the client's credential
// filed, and that this person may decide about in this way; after a cursor only those since. A message can come twice. An
// [authzenclient.Error] of status 410 has the reader begin again with "". It is an API of this service alone, for a gateway.
func ReadNotifications(ctx context.Context, c *authzenclient.Client, as Person, after string) (n Notifications, err error) {
	l := c.Link()
	r := as.asks(link.Request{Op: "notifications", URL: l.Requests, Method: http.MethodGet})
	if r.URL != "" { // an endpoint has no query
		if r.URL += "/notifications?limit=50"; after != "" {
			r.URL += "&after=" + url.QueryEscape(after)
		}
	}
	err = l.Send(ctx, r, func(a link.Answer) error {
		var said struct {
			Items  []jsontext.Value `json:"items"`
			Cursor string           `json:"cursor"`
			More   bool             `json:"more"`
		}
		if json.Unmarshal(a.Body, &said) != nil || said.Items == nil || said.Cursor == "" || said.More && said.Cursor == after {
			return odd("the body is not one JSON object of items, with a cursor that goes on")
		}
		n = Notifications{said.Items, said.Cursor, said.More}
		return nil
	})
	if err != nil {
		return Notifications{}, err
	}
	return n, nil
}

// Decidable reports whether anybody may decide about an approval request of [Standing.Approvals]. It is false only if the
// PDP's policies let nobody decide now, and true with an error. It is an API of this service alone.
func Decidable(ctx context.Context, c *authzenclient.Client, approval string) (may bool, err error) {
	may = true
	r := link.Request{Op: "deciders", Method: http.MethodGet}
	err = about(ctx, c, approval, "/deciders", r, func(a link.Answer) error {
		var said struct {
			Items *[]string `json:"items"`
			More  *bool     `json:"more"`
		}
		if json.Unmarshal(a.Body, &said) != nil || said.Items == nil || said.More == nil {
			return odd("it does not say whether somebody may decide")
		}
		may = len(*said.Items) > 0 || *said.More
		return nil
	})
	return may, err
}

// Respond sends a person's answer to a [Form] or a [Notification], as the MCP client gave it, and returns the status of
// the approval request after it: the PDP's word, such as approved. It permits nothing.
func Respond(ctx context.Context, c *authzenclient.Client, approval string, as Person, answer []byte) (status string, err error) {
	r := as.asks(link.Request{Op: "respond", Body: answer, Once: true})
	err = about(ctx, c, approval, "/response", r, func(a link.Answer) error {
		var said struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		}
		if json.Unmarshal(a.Body, &said) != nil || said.ID != approval || said.Status == "" {
			return odd("it says nothing of this approval request")
		}
		status = said.Status
		return nil
	})
	return status, err
}

// message gets a message for a person.
func message(ctx context.Context, c *authzenclient.Client, op, approval, what string, as Person) (body []byte, err error) {
	r := as.asks(link.Request{Op: op, Method: http.MethodGet})
	err = about(ctx, c, approval, what, r, func(a link.Answer) error {
		if jsontext.Value(a.Body).Kind() != '{' || !jsontext.Value(a.Body).IsValid() {
			return odd("the body is not one JSON object without ambiguities")
		}
		body = a.Body
		return nil
	})
	return body, err
}

// about asks about an approval request, whose URL is in no metadata. No PDP with approvals gives an id that is no name in
// a path.
func about(ctx context.Context, c *authzenclient.Client, id, what string, r link.Request, read func(link.Answer) error) error {
	l := c.Link()
	if id != "" && id != "." && id != ".." {
		r.URL = l.Base + "/v1/approvals/" + url.PathEscape(id) + what
	}
	return l.Send(ctx, r, read)
}
