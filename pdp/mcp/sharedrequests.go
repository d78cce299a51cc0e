package mcp

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp/internal/people"
)

// requestStore keeps the requests for tools at the PDP, by the gateway's own key.
type requestStore struct {
	ask func(ctx context.Context, tenant, method, path, id string, body any) (routeAnswer, error)
}

// newRequestStore is nil if the requests for tools are kept in memory.
func newRequestStore(c Config, d Deps) people.Store {
	if c.ToolRequests.Keep != KeepAtPDP {
		return nil
	}
	return requestStore{newRoute(c.PDP, d)}
}

const requestStorePath = "/v1/tools/requests"

// Open implements [people.Store].
func (s requestStore) Open(ctx context.Context, tenant string) ([]string, error) {
	var all struct {
		Open []string `json:"open"`
	}
	err := s.do(ctx, tenant, http.MethodGet, "", nil, &all)
	return all.Open, err
}

// Get implements [people.Store].
func (s requestStore) Get(ctx context.Context, tenant, id string) (stored people.Stored, err error) {
	err = s.do(ctx, tenant, http.MethodGet, "/"+url.PathEscape(id), nil, &stored)
	return stored, err
}

// Put implements [people.Store].
func (s requestStore) Put(ctx context.Context, tenant, id string, stored people.Stored) (revision string, err error) {
	err = s.do(ctx, tenant, http.MethodPost, "/"+url.PathEscape(id), stored, &stored)
	return stored.Revision, err
}

func (s requestStore) do(ctx context.Context, tenant, method, path string, body, into any) error {
	a, err := s.ask(ctx, tenant, method, requestStorePath+path, "", body)
	switch {
	case err != nil:
		return err
	case a.status == http.StatusNotFound && method == http.MethodGet:
		return people.ErrNoRequest
	case a.status == http.StatusConflict:
		return people.ErrChanged
	case a.status == http.StatusTooManyRequests:
		return people.ErrStoreFull
	case a.status != http.StatusOK:
		return a.error()
	}
	return json.Unmarshal(a.text, into)
}
