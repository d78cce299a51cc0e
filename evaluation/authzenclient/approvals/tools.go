package approvals

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/internal/link"
)

// ToolRequest is a request for a tool as a gateway keeps it at the PDP, where its replicas find it.
type ToolRequest struct {
	Revision string `json:"revision,omitzero"`
	Open     bool   `json:"open"`
	// Seconds is how long it is kept.
	Seconds int64  `json:"seconds"`
	Text    string `json:"text"`
}

const toolRequests = "/v1/tools/requests"

// OpenToolRequests are the ids of the requests that wait, of those that the client's credential keeps.
func OpenToolRequests(ctx context.Context, c *authzenclient.Client) ([]string, error) {
	l := c.Link()
	var all struct {
		Open []string `json:"open"`
	}
	err := read(ctx, l, link.Request{Method: http.MethodGet, URL: l.PDP + toolRequests}, &all)
	return all.Open, err
}

// GetToolRequest is the request of an id. The error of one that is not kept has the status 404.
func GetToolRequest(ctx context.Context, c *authzenclient.Client, id string) (r ToolRequest, err error) {
	l := c.Link()
	err = read(ctx, l, link.Request{Method: http.MethodGet, URL: l.PDP + toolRequests + "/" + url.PathEscape(id)}, &r)
	return r, err
}

// PutToolRequest keeps a request in the place of the one with its revision, and returns its own. The error has the status 409
// if another was put there, and 429 if there are too many.
func PutToolRequest(ctx context.Context, c *authzenclient.Client, id string, r ToolRequest) (revision string, err error) {
	l := c.Link()
	body, err := json.Marshal(r)
	if err != nil {
		return "", of("request", notAsked("the request cannot be encoded"))
	}
	var kept ToolRequest
	err = read(ctx, l, link.Request{URL: l.PDP + toolRequests + "/" + url.PathEscape(id), Body: body, Once: true}, &kept)
	return kept.Revision, err
}

// RecordDrift has the PDP record how a server differs from what is locked, by the X-Request-ID id.
func RecordDrift(ctx context.Context, c *authzenclient.Client, id string, d evaluation.Drift) error {
	l := c.Link()
	body, err := json.Marshal(d)
	if err != nil {
		return of("request", notAsked("the drift cannot be encoded"))
	}
	return read(ctx, l, link.Request{ID: id, URL: l.PDP + "/v1/tools/drift", Body: body, Statuses: []int{http.StatusNoContent}, Once: true}, nil)
}
