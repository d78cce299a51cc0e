package conformance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/conformance/internal/wire"
)

// peer is the target as the cases see it.
type peer struct {
	base     *url.URL
	header   http.Header
	client   *http.Client
	timeout  time.Duration
	endpoint map[string]string
}

// paths are the default paths of the endpoints, and the metadata's names for them.
var paths = []struct{ name, path, metadata string }{
	{"evaluation", "/access/v1/evaluation", "access_evaluation_endpoint"},
	{"evaluations", "/access/v1/evaluations", "access_evaluations_endpoint"},
	{"search-subject", "/access/v1/search/subject", "search_subject_endpoint"},
	{"search-resource", "/access/v1/search/resource", "search_resource_endpoint"},
	{"search-action", "/access/v1/search/action", "search_action_endpoint"},
	{"access-request", "/access/v1/requests", "access_request_endpoint"},
}

// unknownTask is the path, below the access request endpoint, of a task that there is not.
const unknownTask = "/00000000-0000-4000-8000-000000000000"

func newPeer(t Target) (*peer, error) {
	base, err := url.Parse(t.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("%q is not the URL of a PDP; try https://host[:port][/path]", t.URL)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	p := &peer{base: base, header: t.Header, client: wire.Client(t.Client), timeout: cmp.Or(t.Timeout, 10*time.Second), endpoint: map[string]string{}}
	for _, e := range paths {
		p.endpoint[e.name] = base.String() + e.path
	}
	p.endpoint["unknown-task"] = p.endpoint["access-request"] + unknownTask
	p.endpoint["metadata"] = p.wellKnown()
	p.endpoint["native"] = p.origin() + "/v1/authorize"
	return p, nil
}

func (p *peer) origin() string { return p.base.Scheme + "://" + p.base.Host }

// wellKnown is where the metadata stands: the path of the base comes last.
func (p *peer) wellKnown() string {
	return p.origin() + "/.well-known/authzen-configuration" + p.base.EscapedPath()
}

// tenant is what policy-service calls the tenant of the base URL.
func (p *peer) tenant() string {
	if name, ok := strings.CutPrefix(p.base.Path, "/tenants/"); ok {
		return name
	}
	return "default"
}

// values are what cases know of the target.
func (p *peer) values() map[string]string {
	return map[string]string{"base": p.base.String(), "origin": p.origin(), "tenant": p.tenant()}
}

// discover asks for the metadata, which is also how a PDP that cannot be reached
// is found out, and uses the endpoints that it names. It uses none on another
// origin: that would be handed the credential.
func (p *peer) discover(ctx context.Context) error {
	a, err := p.send(ctx, request{method: http.MethodGet, url: p.endpoint["metadata"]})
	if err != nil {
		return err
	}
	var metadata map[string]any
	if a.status != http.StatusOK || json.Unmarshal(a.body, &metadata) != nil {
		return nil
	}
	for _, e := range paths {
		if named, ok := metadata[e.metadata].(string); ok && strings.HasPrefix(named, p.origin()+"/") {
			p.endpoint[e.name] = named
		}
	}
	p.endpoint["unknown-task"] = p.endpoint["access-request"] + unknownTask
	return nil
}

// request goes out.
type request struct {
	method, url, body string
	header            map[string]string
	anonymous         bool
}

// answer comes back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send asks once, within the bounds.
func (p *peer) send(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	if r.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if !r.anonymous {
		maps.Copy(req.Header, p.header)
	}
	wire.SetHeaders(req.Header, r.header)
	resp, err := p.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := wire.Read(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{resp.StatusCode, resp.Header, body}, nil
}
