// Package auth finds the caller of a request. Start with [Authenticator], which puts the kinds of credentials together,
// and [Caller], which is its result.
//
// There are three kinds: API keys, which package keys keeps ([KeyHolders]); bearer tokens that an issuer signs ([JWT]); and
// client certificates ([MTLS]). A server that has none of them answers every program on its machine ([Loopback]).
// A gateway with a key brings the token of a person beside it ([ApproverToken]).
//
// The package refuses to guess. A credential that is not good is refused, never
// passed over for another one or for none; and neither a credential nor a part
// of one is in any error, log line or name that leaves the package.
package auth

import (
	"slices"

	"policy-service/evaluation"
)

// How the names of callers begin.
const (
	keyCaller   = "key:"
	tokenCaller = "jwt:"
)

// Caller is a PEP as authentication knows it. Its slices are shared between
// requests, and not to be changed.
type Caller struct {
	// Name is context.pdp.caller in policies: key:NAME, jwt:ISSUER#SUB
	// or mtls:SAN; "" is none.
	Name string
	// AllTenants allows every tenant; Tenants names the ones allowed otherwise.
	AllTenants  bool
	Tenants     []string
	Permissions []Permission
	// Apart are the permissions of the caller if not every one is in every tenant: one permission each, with its tenants.
	// AllTenants, Tenants and Permissions are empty then, and the caller has no permission, until [Caller.In] or
	// [Caller.Where] names the tenant or the permission. So code that forgets to name it permits nothing.
	Apart []Grant
	// Principal is the entity of the caller in policies, if the credential names one.
	Principal Principal
	// Registered says that the caller has declared, once and for all, the
	// obligation types it discharges; they are Obligations, and may be none.
	Registered  bool
	Obligations []string
	// Forwards is set if the caller sends requests of other PEPs.
	Forwards bool
	// Audiences are the names of the caller as a verifier: the proof of a capability that it shows is for one of them. If
	// there is none, the proof is for the server of the tool.
	Audiences []string
	// Relays is by which way votes come that the caller relays for people; "" if it relays none.
	Relays evaluation.Via
	// Way is how the caller votes. If it has a gateway, the caller is the person whose token
	// that gateway brought.
	Way evaluation.Way
}

// Permission is something a caller may do.
type Permission string

// The permissions there are.
const (
	Decide  Permission = "decide"
	Search  Permission = "search"
	Explain Permission = "explain"
	// LogRead is to read the decision log, LogAdmin to change it: to redact records
	// and to rotate its key.
	LogRead  Permission = "log.read"
	LogAdmin Permission = "log.admin"
	// Approve is to decide about approvals, as the caller's Principal.
	Approve Permission = "approve"
	// Request is to ask for an approval where a decision is denied for want of one.
	Request Permission = "request"
	// Relay is to bring the votes of people about approvals, each with a token of their own. Its holder
	// has no vote itself. Only API keys have it.
	Relay Permission = "relay"
	// Capability is to ask for capabilities, and CapabilityAdmin to see and to take back those of others. Both are needed to
	// ask without a proof of the key.
	Capability      Permission = "capability"
	CapabilityAdmin Permission = "capability.admin"
	// Backup is to fetch a backup of all that the service keeps, with its private keys. Only a caller that serves all tenants
	// does.
	Backup Permission = "backup"
)

var permissions = []Permission{Decide, Search, Explain, LogRead, LogAdmin, Request, Approve, Relay, Capability, CapabilityAdmin, Backup}

// May reports whether the caller has a permission, in all tenants that it serves. A caller without a principal approves
// nothing.
func (c Caller) May(p Permission) bool {
	return slices.Contains(c.Permissions, p) && (p != Approve || c.Principal != Principal{})
}

// Asker is the caller as decisions know it.
func (c Caller) Asker() evaluation.Asker {
	return evaluation.Asker{
		Name:        c.Name,
		Principal:   evaluation.Ref(c.Principal),
		Registered:  c.Registered,
		Obligations: c.Obligations,
		Audiences:   c.Audiences,
		Forwards:    c.Forwards,
		Relays:      c.May(Relay),
	}
}

// Serves reports whether the caller may ask for a tenant.
func (c Caller) Serves(tenant string) bool {
	return c.AllTenants || slices.Contains(c.Tenants, tenant)
}
