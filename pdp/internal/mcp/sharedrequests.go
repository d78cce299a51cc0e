package mcp

import (
	"context"
	"errors"
	"net/http"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/people"
)

// requestStore is the [people.Store] that keeps the requests for tools at the PDP, by the clients of the tenants.
type requestStore map[string]*authzenclient.Client

// Open implements [people.Store].
func (s requestStore) Open(ctx context.Context, tenant string) ([]string, error) {
	return approvals.OpenToolRequests(ctx, s[tenant])
}

// Get implements [people.Store].
func (s requestStore) Get(ctx context.Context, tenant, id string) (approvals.ToolRequest, error) {
	r, err := approvals.GetToolRequest(ctx, s[tenant], id)
	return r, ofStore(err, http.StatusNotFound, people.ErrNoRequest)
}

// Put implements [people.Store].
func (s requestStore) Put(ctx context.Context, tenant, id string, r approvals.ToolRequest) (revision string, err error) {
	revision, err = approvals.PutToolRequest(ctx, s[tenant], id, r)
	return revision, ofStore(err, http.StatusConflict, people.ErrChanged)
}

// ofStore is an error of the client for package people. One status has a meaning of its own.
func ofStore(err error, status int, means error) error {
	e, ok := errors.AsType[*authzenclient.Error](err)
	switch {
	case ok && e.Status == status:
		return means
	case ok && e.Status == http.StatusTooManyRequests:
		return people.ErrStoreFull
	}
	return worded(err)
}
