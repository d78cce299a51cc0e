package auth

import (
	"slices"
	"testing"

	"policy-service/pdp/pdptest/clock"
)

// Keys in force that may approve in the tenant count, and so do issuers whose people may.
func TestApprovers(t *testing.T) {
	t.Parallel()
	keys := open(t, t.TempDir(), clock.New())
	addApprover(t, keys, "mia", mia)
	addApprover(t, keys, "gone", mia)
	must(t, keys.Revoke("gone"))
	if _, err := keys.Add(KeySpec{Name: "pep", Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Decide}}}); err != nil {
		t.Fatal(err)
	}
	a := &Authenticator{Keys: keys, JWT: &JWT{issuers: []issuer{
		{JWTIssuer: JWTIssuer{Principal: &PrincipalClaim{Type: "Staff"}, Grants: []ClaimGrant{groupGrant("leads", "approve", "default")}}},
		{JWTIssuer: JWTIssuer{Principal: &PrincipalClaim{Type: "Robot"}, Grant: Grant{Tenants: []string{"*"}, Permissions: []Permission{Decide}}}},
	}}}
	of, types := a.Approvers("default")
	if len(of) != 1 || of[0].Name != "key:mia" || of[0].Principal != mia || !slices.Equal(types, []string{"Staff", mia.Type}) {
		t.Errorf("got %+v, %v", of, types)
	}
	if _, types := a.Approvers("other"); slices.Contains(types, "Staff") {
		t.Errorf("in another tenant: %v", types)
	}
}
