package authzenclient

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient/internal/link"
)

// endpoints are the URLs of the calls; "" is a call that cannot be made.
type endpoints struct {
	evaluation, evaluations   string
	subject, resource, action string
	requests                  string // for approvals
	keys                      string // of the service
	status                    string // begins the addresses of its status lists
	discovered                bool
}

// pdp is AuthZEN's policy_decision_point: the base of its paths.
func (c *Client) pdp() string {
	if c.tenant == "" || c.tenant == "default" {
		return c.at.base.String()
	}
	return c.at.base.JoinPath("tenants", c.tenant).String()
}

// usual are the endpoints of a PDP that publishes none.
func (c *Client) usual() *endpoints {
	access := c.pdp() + "/access/v1/"
	return &endpoints{
		evaluation:  access + "evaluation",
		evaluations: access + "evaluations",
		subject:     access + "search/subject",
		resource:    access + "search/resource",
		action:      access + "search/action",
		requests:    access + "requests",
		keys:        c.at.base.String() + "/.well-known/jwks.json",
		status:      c.at.base.String() + "/v1/capabilities/status/",
	}
}

// Discover asks the PDP for its metadata and uses the endpoints it names. A call
// whose endpoint it does not name is one it does not offer, and is denied.
//
// A PDP that publishes nothing (404) has the usual paths. After any other
// failure nothing is guessed: the endpoints discovered before stay, and where
// there are none every call is denied until Discover succeeds. Metadata are
// readable by anybody, so no credentials are sent. signed_metadata is ignored,
// which AuthZEN permits: TLS protects the answer.
func (c *Client) Discover(ctx context.Context) error {
	var found *endpoints
	a := asking{op: "discover", url: c.metadataURL(), method: http.MethodGet, public: true, repeat: unanswered}
	_, err := c.ask(ctx, a, func(r reply) (err *Error) {
		found, err = c.readMetadata(r.body)
		return err
	})
	switch {
	case err == nil:
		c.endpoint.Store(found)
	case err.Status == http.StatusNotFound:
		c.endpoint.Store(c.usual())
	default:
		err.Op = "discover"
		if !c.endpoint.Load().discovered {
			c.endpoint.Store(&endpoints{})
		}
		return err
	}
	return nil
}

// metadataURL inserts the well-known path between host and path.
func (c *Client) metadataURL() string {
	u, err := url.Parse(c.pdp())
	if err != nil {
		return "" // base is a URL already, and a tenant's name changes nothing about that
	}
	path := u.EscapedPath()
	u.Path, u.RawPath = "", ""
	return u.String() + "/.well-known/authzen-configuration" + path
}

func (c *Client) readMetadata(body []byte) (*endpoints, *Error) {
	var metadata map[string]jsontext.Value
	if json.Unmarshal(body, &metadata) != nil {
		return nil, odd("the metadata are not one JSON object without ambiguities")
	}
	// The slash at the end is the one difference that cannot mean another PDP.
	if strings.TrimSuffix(link.Text("", metadata["policy_decision_point"]), "/") != c.pdp() {
		return nil, odd("the metadata are of another policy_decision_point")
	}
	found := &endpoints{discovered: true}
	for _, e := range []struct {
		name string
		to   *string
	}{
		{"access_evaluation_endpoint", &found.evaluation},
		{"access_evaluations_endpoint", &found.evaluations},
		{"search_subject_endpoint", &found.subject},
		{"search_resource_endpoint", &found.resource},
		{"search_action_endpoint", &found.action},
		{"access_request_endpoint", &found.requests},
	} {
		*e.to = link.Text("", metadata[e.name])
		if err := c.at.trusted(*e.to); err != nil && link.Present(metadata[e.name]) {
			return nil, odd("an endpoint of the metadata " + err.Error())
		}
	}
	// A PDP of others may publish its keys elsewhere, which are of no use here.
	if keys := link.Text("", metadata["jwks_uri"]); c.at.trusted(keys) == nil {
		found.keys = keys
	}
	if status := link.Text("", metadata["capability_status_endpoint"]); c.at.trusted(status) == nil {
		found.status = status
	}
	if found.evaluation == "" {
		return nil, odd("the metadata name no access_evaluation_endpoint")
	}
	return found, nil
}
