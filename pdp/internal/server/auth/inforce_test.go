package auth

import (
	"testing"
	"time"
)

// A vote counts as long as the credential that it was given by may still approve.
func TestInForce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, err := OpenKeys(dir, time.Now)
	must(t, err)
	mia := Principal{Type: "User", ID: "mia"}
	approve := Grant{Tenants: []string{"acme"}, Permissions: []Permission{Approve}}
	decide := Grant{Tenants: []string{"*"}, Permissions: []Permission{Decide}}
	for name, spec := range map[string]KeySpec{"mia": {Grant: approve, Principal: mia}, "gone": {Grant: approve, Principal: mia}, "pep": {Grant: decide}} {
		spec.Name = name
		if _, err := keys.Add(spec); err != nil {
			t.Fatal(err)
		}
	}
	must(t, keys.Revoke("gone"))
	known := &Authenticator{Keys: keys, JWT: &JWT{issuers: []issuer{
		{JWTIssuer: JWTIssuer{Issuer: "https://one.example", Grant: approve}},
		{JWTIssuer: JWTIssuer{Issuer: "https://two.example", Grant: decide}},
	}}}
	for caller, want := range map[string]bool{
		"key:mia": true, "key:gone": false, "key:pep": false, "key:nobody": false, "key:": false, "": false, "mia": false,
		"jwt:https://one.example#mia": true, "jwt:https://one.example#a#b": true, "jwt:https://one.example.net#mia": false, "jwt:https://one.example": false,
		"jwt:https://two.example#mia": false, "jwt:https://three.example#mia": false, "mtls:one.example": false,
	} {
		if got := known.InForce("acme", caller); got != want {
			t.Errorf("%q: %v", caller, got)
		}
		if known.InForce("other", caller) {
			t.Errorf("%q may approve in another tenant", caller)
		}
	}
	if (&Authenticator{}).InForce("acme", "key:mia") || (&Authenticator{}).InForce("acme", "jwt:https://one.example#mia") {
		t.Error("where nobody is configured somebody counts")
	}
}
