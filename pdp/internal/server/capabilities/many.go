package capabilities

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

var listParameters = []string{"tenant", "holder", "person", "jkt", "audience", "state", "ancestor", "cursor", "limit"}

// list answers GET /v1/capabilities: those that the caller may see.
func (s *Capabilities) list(c echo.Context, a door.Admitted) error {
	f, serves, err := filter(a)
	if err != nil {
		return err
	}
	limit, err := door.PageLimit(a.Given["limit"])
	if err != nil {
		return err
	}
	ctx, cancel := s.Door.Within(c)
	defer cancel()
	var found []store.Capability
	next := ""
	if serves {
		if found, next, err = s.Broker.Store.List(ctx, f, a.Given["cursor"], limit); err != nil {
			return err
		}
	}
	items := make([]State, len(found))
	for n := range found {
		items[n] = stateOf(&found[n])
	}
	return door.WriteJSON(c, http.StatusOK, struct {
		Items []State `json:"items"`
		Next  string  `json:"next"`
	}{items, next})
}

// filter is what a list is to find. If it names a tenant that the caller does not serve, it is as if there were none of that
// name.
func filter(a door.Admitted) (f store.Filter, serves bool, err error) {
	given := a.Given
	f = store.Filter{
		Person:   given["person"],
		JKT:      given["jkt"],
		Audience: given["audience"],
		Ancestor: given["ancestor"],
		State:    store.State(given["state"]),
		Sees:     func(c *store.Capability) bool { return sees(a.Caller, c) },
	}
	if f.Tenant, serves, err = tenantOf(a); err != nil {
		return f, false, err
	}
	if text, there := given["holder"]; there {
		var is bool
		if f.Holder.Type, f.Holder.ID, is = strings.Cut(text, ":"); !is || f.Holder.Type == "" || f.Holder.ID == "" {
			return f, false, door.BadParameter("holder", "is no holder; give type:id, such as agent:agent-a")
		}
	}
	if f.State != "" && !slices.Contains(store.States(), f.State) {
		return f, false, door.BadParameter("state", fmt.Sprintf("is no state; give one of %q", store.States()))
	}
	if in := a.Caller.Where(auth.CapabilityAdmin); !in.May(auth.CapabilityAdmin) || f.Tenant != "" && !in.Serves(f.Tenant) {
		f.Caller = a.Caller.Name // it sees no others
	}
	return f, serves, nil
}

// tenantOf is the tenant of a list, "" for all, which only a caller that serves all can list at once: the cursor of a page
// may name a capability that is not on it, and must not name one of a tenant that the caller does not serve.
func tenantOf(a door.Admitted) (tenant string, serves bool, err error) {
	all, tenants := false, []string(nil)
	for _, p := range []auth.Permission{auth.Capability, auth.CapabilityAdmin} {
		if in := a.Caller.Where(p); in.May(p) {
			all, tenants = all || in.AllTenants, append(tenants, in.Tenants...)
		}
	}
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	tenant, given := a.Given["tenant"]
	switch {
	case !all && len(tenants) == 0:
		return "", false, door.Lacks(auth.Capability)
	case given, all:
		return tenant, all || slices.Contains(tenants, tenant), nil
	case len(tenants) > 1:
		return "", false, door.BadParameter("tenant", "is missing, and this caller has several; give one of them")
	}
	return tenants[0], true, nil
}

// revokeMany answers POST /v1/capabilities/revoke.
func (s *Capabilities) revokeMany(c echo.Context, a door.Admitted) error {
	r, err := capability.DecodeRevocation(a.Body, s.Door.Options.Limits)
	if err != nil {
		return err
	}
	caller, err := s.in(a, r.Tenant, auth.CapabilityAdmin)
	if err != nil {
		return err
	}
	ctx, cancel := s.Door.Within(c)
	defer cancel()
	f := store.Filter{Tenant: r.Tenant, Holder: r.Holder, Person: r.Person, JKT: r.JKT, Audience: r.Audience}
	n, err := s.Broker.Store.RevokeMany(ctx, f, caller.Name, r.Reason)
	if err != nil {
		p := door.NewProblem(http.StatusServiceUnavailable,
			fmt.Sprintf("%d were revoked, and others may be left; send the same again", n))
		p.Cause = err.Error()
		return p
	}
	return door.WriteJSON(c, http.StatusOK, map[string]int{"revoked": n})
}

// in is the caller of a request whose body names its tenant, with the rights there.
func (s *Capabilities) in(a door.Admitted, tenant string, needs auth.Permission) (auth.Caller, error) {
	if err := s.Door.CheckTenant(tenant, a.Caller, evaluation.Native); err != nil {
		return a.Caller, err
	}
	caller := a.Caller.In(tenant)
	if !caller.May(needs) {
		return caller, door.Lacks(needs)
	}
	return caller, nil
}
