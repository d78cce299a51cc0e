package inbox

import (
	"context"
	"net/url"

	"policy-service/pdp/httpclient"
)

// Me is the caller, as the server knows it.
type Me struct {
	Caller string `json:"caller"`
	// Principal is who the caller is to policies about approvals, "" if nobody.
	Principal string `json:"principal"`
	// Tenants are names, or "*" for all.
	Tenants     []string `json:"tenants"`
	Permissions []string `json:"permissions"`
	// Grants say which permission is in which tenants; nil if each is in all of Tenants.
	Grants []MeGrant `json:"grants"`
	// Via is by which way the caller would vote.
	Via string `json:"via"`
}

// MeGrant is some permissions in some tenants.
type MeGrant struct {
	Tenants     []string `json:"tenants"`
	Permissions []string `json:"permissions"`
}

// Me asks the server who the caller is.
func (i *Inbox) Me(ctx context.Context) (Me, error) {
	return httpclient.GetJSON[Me](ctx, i.server, "/v1/me", nil, requestBody, "description of a caller")
}

// Why says why people are asked, and what the caller may do. It ignores the members that later servers add.
type Why struct {
	Obligation struct {
		Name string `json:"name"`
		// At is the place as file:line:column, "" if it is not known.
		At string `json:"at"`
	} `json:"obligation"`
	// Policies determined the decision that waits; nil if the caller may not know them, or nobody knows them any more.
	Policies []WhyPolicy `json:"policies"`
	Decision string      `json:"decision"`
	// ValidFor is how long an approval counts, such as 10m; "" if the server does not say.
	ValidFor string  `json:"valid_for"`
	You      You     `json:"you"`
	Alike    []Alike `json:"alike"`
}

// WhyPolicy is a policy, and its place as file:line:column, "" if it is not known.
type WhyPolicy struct {
	ID string `json:"id"`
	At string `json:"at"`
}

// You is what the caller may do with a request now: some of approve, deny, delegate, revoke and cancel. Not has the
// others.
type You struct {
	May []string `json:"may"`
	Not []MayNot `json:"not"`
}

// MayNot is what the caller may not do now, and why not.
type MayNot struct {
	Decision string `json:"decision"`
	Detail   string `json:"detail"`
}

// Alike is an id in a request that looks like a known one and is another. Pointer is its place in the request, as a JSON
// Pointer.
type Alike struct {
	Pointer string `json:"pointer"`
	Known   string `json:"known"`
}

// Why asks why people are asked.
func (i *Inbox) Why(ctx context.Context, id string) (Why, error) {
	return beside[Why](ctx, i, id, "/why")
}

// Deciders are people who may decide about a request and have not, as policies name them. More is set if there may be
// others.
type Deciders struct {
	Items []string `json:"items"`
	More  bool     `json:"more"`
}

// Deciders asks who may decide about a request.
func (i *Inbox) Deciders(ctx context.Context, id string) (Deciders, error) {
	return beside[Deciders](ctx, i, id, "/deciders")
}

// Previous reads the last request before this one that was for the same, and that was decided or ended. It reports
// whether there is one that the caller may see.
func (i *Inbox) Previous(ctx context.Context, id string) (previous Request, found bool, err error) {
	page, err := beside[Page](ctx, i, id, "/previous")
	if err != nil || len(page.Items) == 0 {
		return Request{}, false, err
	}
	return page.Items[0], true, nil
}

// beside reads what the server has beside a request.
func beside[T any](ctx context.Context, i *Inbox, id, what string) (T, error) {
	return httpclient.GetJSON[T](ctx, i.server, pathOf(id)+what, url.Values{}, requestBody, "answer about a request")
}
