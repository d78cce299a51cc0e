package approvals

import (
	"testing"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// A caller that serves no tenant asks about none. A query without tenants would be about all of them.
func TestACallerWithoutTenantsAsksAboutNone(t *testing.T) {
	q, _, err := query(door.Admitted{})
	if err != nil || q.Tenants == nil || len(q.Tenants) > 0 {
		t.Errorf("of no tenant: %#v, %v", q.Tenants, err)
	}
	q, _, err = query(door.Admitted{Caller: auth.Caller{AllTenants: true}})
	if err != nil || q.Tenants != nil {
		t.Errorf("of all tenants: %#v, %v", q.Tenants, err)
	}
}
