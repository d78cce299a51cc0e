package mcp

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp/internal/people"
)

// shelf keeps the requests for tools at the PDP, by the gateway's own key.
type shelf struct {
	ask func(ctx context.Context, tenant, method, path, id string, body any) (routeAnswer, error)
}

// newShelf is nil if the requests for tools are kept in memory.
func newShelf(c Config, d Deps) people.Shelf {
	if c.ToolRequests.Keep != KeepAtPDP {
		return nil
	}
	return shelf{newRoute(c.PDP, d)}
}

const shelfPath = "/v1/tools/requests"

// Open implements [people.Shelf].
func (s shelf) Open(ctx context.Context, tenant string) ([]string, error) {
	var all struct {
		Open []string `json:"open"`
	}
	err := s.do(ctx, tenant, http.MethodGet, "", nil, &all)
	return all.Open, err
}

// Get implements [people.Shelf].
func (s shelf) Get(ctx context.Context, tenant, id string) (slip people.Slip, err error) {
	err = s.do(ctx, tenant, http.MethodGet, "/"+url.PathEscape(id), nil, &slip)
	return slip, err
}

// Put implements [people.Shelf].
func (s shelf) Put(ctx context.Context, tenant, id string, slip people.Slip) (revision string, err error) {
	err = s.do(ctx, tenant, http.MethodPost, "/"+url.PathEscape(id), slip, &slip)
	return slip.Revision, err
}

func (s shelf) do(ctx context.Context, tenant, method, path string, body, into any) error {
	a, err := s.ask(ctx, tenant, method, shelfPath+path, "", body)
	switch {
	case err != nil:
		return err
	case a.status == http.StatusNotFound && method == http.MethodGet:
		return people.ErrNoSlip
	case a.status == http.StatusConflict:
		return people.ErrOtherSlip
	case a.status == http.StatusTooManyRequests:
		return people.ErrShelfFull
	case a.status != http.StatusOK:
		return a.error()
	}
	return json.Unmarshal(a.text, into)
}
