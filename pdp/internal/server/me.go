package server

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// me is the answer to a caller that asks about itself.
type me struct {
	Caller string `json:"caller"`
	// Principal is the entity of the caller in policies about approvals, "" if the credential names none.
	Principal   string            `json:"principal,omitempty"`
	Tenants     []string          `json:"tenants"`
	Permissions []auth.Permission `json:"permissions"`
	// Grants say which permission is in which tenants, if not every one is in all of Tenants.
	Grants []meGrant      `json:"grants,omitempty"`
	Via    evaluation.Via `json:"via"`
}

type meGrant struct {
	Tenants     []string          `json:"tenants"`
	Permissions []auth.Permission `json:"permissions"`
}

// meRoute is the route by which a caller asks about itself.
type meRoute struct{ door *door.Door }

// Routes registers the route.
func (m meRoute) Routes(route registrar) {
	need := door.Need{Relayed: evaluation.ViaConsole, Parameters: door.NoParameters, Work: door.ShortWork}
	route("/v1/me", func(c echo.Context) error {
		a, err := m.door.Admit(c, need)
		if err != nil {
			return err
		}
		defer a.Shift.End()
		return door.WriteJSON(c, http.StatusOK, meOf(a.Caller))
	}, http.MethodGet)
}

// meOf has the permissions of a caller, be it in some of the tenants: a permission that counts for nothing is none.
func meOf(caller auth.Caller) me {
	tenants, permissions := caller.Anywhere()
	m := me{
		Caller:      caller.Name,
		Tenants:     append([]string{}, slices.Compact(slices.Sorted(slices.Values(tenants)))...),
		Permissions: []auth.Permission{},
		Via:         cmp.Or(caller.Way.Via, evaluation.ViaAPI),
	}
	if caller.AllTenants || slices.Contains(tenants, "*") {
		m.Tenants = []string{"*"}
	}
	if caller.Principal != (auth.Principal{}) {
		m.Principal = caller.Principal.String()
	}
	for _, p := range slices.Compact(slices.Sorted(slices.Values(permissions))) {
		there := caller.Where(p)
		if !there.May(p) {
			continue
		}
		m.Permissions = append(m.Permissions, p)
		if caller.Apart != nil {
			m.Grants = append(m.Grants, meGrant{there.Tenants, []auth.Permission{p}})
		}
	}
	return m
}
