package auth

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"policy-service/evaluation"
)

// ClaimGrant is what the holders of an issuer's tokens may do if a claim says that they are of some group.
type ClaimGrant struct {
	Claim       string       `yaml:"claim" required:"yes" doc:"The claim of the token that the service looks at, such as groups: a text, or a list of texts."`
	Value       string       `yaml:"value" required:"yes" doc:"What the claim must be, or one of its texts, byte for byte."`
	Permissions []Permission `yaml:"permissions" required:"yes" min:"1" doc:"What the holder of such a token may do: decide, search, explain, request, approve, capability, capability.admin, log.read, log.admin, backup. approve needs a principal."`
	Tenants     []string     `yaml:"tenants" required:"yes" min:"1" doc:"The tenants in which the holder may do that. \"*\" means all tenants. What another grant permits in other tenants stays there."`
}

// maxGrantValue bounds the name of a group. Those of directories are long.
const maxGrantValue = 1024

func (g ClaimGrant) check() error {
	switch {
	case !IsName(g.Claim):
		return errors.New("claim is missing or not printable; write the name of the claim, such as groups")
	case g.Value == "" || len(g.Value) > maxGrantValue || !utf8.ValidString(g.Value) || strings.ContainsFunc(g.Value, unprintable):
		return fmt.Errorf("value is missing, not printable or longer than %d bytes; write the name of the group as in the tokens", maxGrantValue)
	}
	return cmp.Or(g.grant().check(), g.grant().onlyKeysRelay())
}

func (g ClaimGrant) grant() Grant { return Grant{Tenants: g.Tenants, Permissions: g.Permissions} }

// matches reports whether claims say that their holder is of the group. What is neither a text nor a list of
// texts says nothing, not even in part: another reader may take it for something else.
func (g ClaimGrant) matches(claims evaluation.Object) bool {
	said, _ := claims.Lookup(g.Claim)
	switch said.Kind() {
	case evaluation.String:
		return said.Text() == g.Value
	case evaluation.Array:
		found := false
		for _, one := range said.Elements {
			if one.Kind() != evaluation.String {
				return false
			}
			found = found || one.Text() == g.Value
		}
		return found
	}
	return false
}

// checkGrants checks all grants of an entry.
func checkGrants(all []ClaimGrant, principal *PrincipalClaim) error {
	for i, g := range all {
		err := g.check()
		if err == nil && principal == nil && g.grant().approves() {
			err = errors.New("permissions has approve, and nothing says who approves; add principal: {type: User, claim: sub}, or take approve out")
		}
		if err != nil {
			return fmt.Errorf("grants[%d]: %w", i, err)
		}
	}
	return nil
}

// granted is a caller with all that some grants permit, each permission in the tenants of the grants that have it.
func (c Caller) granted(all []Grant) Caller {
	var apart []Grant // one for each permission, in the order of the configuration
	for _, g := range all {
		for _, p := range g.Permissions {
			at := slices.IndexFunc(apart, func(a Grant) bool { return a.Permissions[0] == p })
			if at < 0 {
				at, apart = len(apart), append(apart, Grant{Permissions: []Permission{p}})
			}
			apart[at].Tenants = append(apart[at].Tenants, g.Tenants...)
		}
	}
	for i := range apart {
		apart[i].Tenants = tenantSet(apart[i].Tenants)
	}
	c.AllTenants, c.Tenants, c.Permissions, c.Apart = false, nil, nil, nil
	if len(apart) == 0 {
		return c
	}
	if slices.ContainsFunc(apart, func(a Grant) bool { return !slices.Equal(a.Tenants, apart[0].Tenants) }) {
		c.Apart = apart
		return c
	}
	return c.within(apart[0].Tenants, apart)
}

// In is the caller as far as one tenant goes.
func (c Caller) In(tenant string) Caller {
	if c.Apart == nil {
		return c
	}
	return c.within([]string{tenant}, slices.DeleteFunc(slices.Clone(c.Apart), func(g Grant) bool { return !g.serves(tenant) }))
}

// Where is the caller as far as one permission goes, in all tenants where the caller has it.
func (c Caller) Where(p Permission) Caller {
	at := slices.IndexFunc(c.Apart, func(g Grant) bool { return g.Permissions[0] == p })
	switch {
	case c.Apart == nil:
		return c
	case at < 0:
		return c.within(nil, nil)
	}
	return c.within(c.Apart[at].Tenants, c.Apart[at:at+1])
}

// Is reports whether somebody is still the same caller, who may do the same. What each was last looked at for does not
// count.
func (c Caller) Is(other Caller) bool {
	for _, one := range []*Caller{&c, &other} {
		if one.Apart != nil {
			*one = one.within(nil, nil)
		}
	}
	return reflect.DeepEqual(c, other)
}

// within is a caller with the permissions of some grants in some tenants, and in none if there are no grants.
func (c Caller) within(tenants []string, of []Grant) Caller {
	c.AllTenants, c.Tenants, c.Permissions = false, nil, nil
	if len(of) > 0 {
		c.AllTenants, c.Tenants = slices.Contains(tenants, allTenants), tenants
	}
	for _, g := range of {
		c.Permissions = append(c.Permissions, g.Permissions...)
	}
	return c
}

// Anywhere are all tenants and all permissions of a caller, for people to look at. It does not say which permission is in
// which tenant.
func (c Caller) Anywhere() (tenants []string, permissions []Permission) {
	if c.Apart == nil {
		return c.Tenants, c.Permissions
	}
	for _, g := range c.Apart {
		tenants, permissions = append(tenants, g.Tenants...), append(permissions, g.Permissions...)
	}
	return tenantSet(tenants), permissions
}

// tenantSet is the one form of all lists that mean the same tenants.
func tenantSet(tenants []string) []string {
	if slices.Contains(tenants, allTenants) {
		return []string{allTenants}
	}
	return slices.Compact(slices.Sorted(slices.Values(tenants)))
}
