package auth

import (
	"context"
	"net/http"

	"policy-service/evaluation"
)

// InProcess finds the caller of a request on a server that one program alone reaches: the program in whose process it is.
// No credential of the program is checked. If it has the permission [Relay], it brings tokens of people, as a gateway does
// with a key; see [ApproverToken].
type InProcess struct {
	// Program is the caller.
	Program Caller
	// People verifies the tokens of people that the program brings. Nil is none.
	People People
}

// People are known by tokens.
type People interface {
	// Person is the holder of a token. The error is sent to the program, so it has nothing of the token.
	Person(ctx context.Context, token string) (Person, error)
	// Believed reports whether an earlier vote of a person of an issuer may still count in a tenant.
	Believed(tenant, issuer, subject string) bool
}

// Person is the holder of a token.
type Person struct {
	// Issuer and Subject are the claims iss and sub of the token, Tenant is where the person may approve.
	Issuer, Subject, Tenant string
	// Principal is the entity of the person in policies. The zero Principal approves nothing.
	Principal Principal
}

var approves = []Permission{Approve}

// Authenticate finds the caller of a request. Its error is a [*Refusal].
func (p *InProcess) Authenticate(r *http.Request) (Caller, error) {
	tokens, brought := r.Header[ApproverToken]
	if !brought {
		return p.Program, nil
	}
	if p.Program.Relays == "" || p.People == nil {
		return Caller{}, forbidden("the header Approver-Token is not taken here; leave it out")
	}
	token, err := oneToken(tokens)
	if err != nil {
		return Caller{}, err
	}
	who, wrong := p.People.Person(r.Context(), token)
	if wrong != nil {
		return Caller{}, ofApprover(invalid(wrong.Error()))
	}
	person := Caller{Name: tokenCaller + who.Issuer + "#" + who.Subject, Tenants: []string{who.Tenant}, Permissions: approves}
	if len(who.Principal.ID) <= maxClaim && who.Principal.check() == nil {
		person.Principal = who.Principal
	}
	return person.through(p.Program, r)
}

// InForce is [Authenticator.InForce]. Votes come only through the program.
func (p *InProcess) InForce(string, string) bool { return false }

// RelayInForce is [Authenticator.RelayInForce].
func (p *InProcess) RelayInForce(tenant, caller, gateway string) bool {
	issuer, subject, is := evaluation.HolderOf(caller)
	return is && p.People != nil && p.Program.Relays != "" && gateway == p.Program.Name && p.Program.Serves(tenant) &&
		p.People.Believed(tenant, issuer, subject)
}
