package inbox

import (
	"context"
	"net/url"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp/internal/httpclient"
)

// Me is the caller, as the server knows it.
type Me struct {
	Caller string `json:"caller"`
	// Principal is the entity of the caller in policies about approvals, "" if there is none.
	Principal string `json:"principal"`
	// Tenants are names, or "*" for all.
	Tenants []string `json:"tenants"`
	// Permissions are in all of Tenants, unless Grants say which one is in which.
	Permissions []string `json:"permissions"`
	Grants      []Grant  `json:"grants"`
}

// Grant is some permissions, and the tenants where they count.
type Grant struct {
	Tenants     []string `json:"tenants"`
	Permissions []string `json:"permissions"`
}

// Where are the tenants where the caller has a permission: names, or "*" for all.
func (m Me) Where(permission string) (tenants []string) {
	grants := m.Grants
	if len(grants) == 0 {
		grants = []Grant{{m.Tenants, m.Permissions}}
	}
	for _, g := range grants {
		if slices.Contains(g.Permissions, permission) {
			tenants = append(tenants, g.Tenants...)
		}
	}
	return tenants
}

// May reports whether the caller has a permission in a tenant.
func (m Me) May(permission, tenant string) bool {
	return slices.ContainsFunc(m.Where(permission), func(one string) bool { return one == tenant || one == "*" })
}

// Me asks the server for its view of the caller.
func (i *Inbox) Me(ctx context.Context) (Me, error) {
	return httpclient.GetJSON[Me](ctx, i.server, "/v1/me", nil, requestBody, "description of a caller")
}

// The answers of the server beside a request.
type (
	Why      = evaluation.ApprovalWhy
	Deciders = evaluation.Deciders
)

// Why asks why people are asked.
func (i *Inbox) Why(ctx context.Context, id string) (Why, error) {
	return beside[Why](ctx, i, id, "/why")
}

// Deciders asks for the people who may decide about a request.
func (i *Inbox) Deciders(ctx context.Context, id string) (Deciders, error) {
	return beside[Deciders](ctx, i, id, "/deciders")
}

// Previous reads the last request before this one that was for the same, and that people approved or denied. It reports
// whether there is one that the caller may see.
func (i *Inbox) Previous(ctx context.Context, id string) (previous Request, found bool, err error) {
	page, err := beside[Page](ctx, i, id, "/previous")
	if err != nil || len(page.Items) == 0 {
		return Request{}, false, err
	}
	return page.Items[0], true, nil
}

// beside reads an answer of the server beside a request.
func beside[T any](ctx context.Context, i *Inbox, id, what string) (T, error) {
	return httpclient.GetJSON[T](ctx, i.server, pathOf(id)+what, url.Values{}, requestBody, "answer about a request")
}
