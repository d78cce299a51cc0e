package auth

import (
	"slices"
	"strings"
)

// InForce reports whether a credential, by the name of its caller, may still approve in
// a tenant: the key is not revoked; the issuer of the token, or the name of the
// certificate, is configured with the permission and the tenant. A token's own time is
// that of the request it came with.
func (a *Authenticator) InForce(tenant, caller string) bool {
	kind, name, _ := strings.Cut(caller, ":")
	switch kind {
	case "key":
		return a.Keys != nil && a.Keys.approves(tenant, name)
	case "jwt":
		return a.JWT != nil && slices.ContainsFunc(a.JWT.issuers, func(i issuer) bool {
			return strings.HasPrefix(name, i.Issuer+"#") && i.lets(tenant)
		})
	case "mtls":
		return a.MTLS != nil && slices.ContainsFunc(a.MTLS.rules, func(r MTLSRule) bool { return r.SAN == name && r.lets(tenant) })
	}
	return false
}

// lets reports whether whoever has a grant may approve in a tenant.
func (g Grant) lets(tenant string) bool {
	return g.approves() && (slices.Contains(g.Tenants, allTenants) || slices.Contains(g.Tenants, tenant))
}

// approves says it of a key that is not revoked. While nobody knows which are, none is.
func (k *Keys) approves(tenant, name string) bool {
	view := k.current()
	return view.err == nil && slices.ContainsFunc(view.stored, func(s storedKey) bool {
		return s.Name == name && s.Revoked.IsZero() && s.lets(tenant)
	})
}
