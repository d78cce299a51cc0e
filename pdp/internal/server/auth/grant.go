package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"policy-service/evaluation"
)

// Grant is what a caller may do, as keys and configuration say it.
type Grant struct {
	// Tenants are names, or "*" for all.
	Tenants     []string     `yaml:"tenants" json:"tenants" required:"yes" min:"1" doc:"The tenants that the caller may ask for. \"*\" means all tenants."`
	Permissions []Permission `yaml:"permissions" json:"permissions" required:"yes" min:"1" doc:"What the caller may do: decide, search, explain, request, approve, capability, capability.admin, log.read, log.admin, backup. approve needs a principal, and a certificate has none."`
	// Obligations are the types the caller discharges. nil is no registration,
	// which is not the same as being registered for none.
	Obligations []string `yaml:"obligations" json:"obligations,omitzero" doc:"The types of obligations that the caller discharges; an empty list is none. Without it, each request declares them."`
	// Audiences are the names of the caller as a verifier of capabilities; nil is no registration.
	Audiences []string `yaml:"audiences" json:"audiences,omitzero" min:"1" doc:"The names of the caller, such as https://gateway.example.com, one of which the proof of a capability must be for. Without it, a proof must be for the server of the tool."`
	// Forwards is set if the caller sends requests of other PEPs, each of which enforces the answer itself.
	Forwards bool `yaml:"relays" json:"relays,omitzero" doc:"true if the caller sends requests of other PEPs. Then obligations come with no answer to a request with supported_mandatory_extensions: the caller cannot commit another PEP to them."`
}

const allTenants = "*"

func (g Grant) check() error {
	if len(g.Tenants) == 0 {
		return errors.New(`tenants is missing; list the tenants, or "*" for all`)
	}
	if len(g.Permissions) == 0 {
		return errors.New("permissions is missing; list some of decide, search, explain, log.read, log.admin, request, approve, relay, backup")
	}
	for _, tenant := range g.Tenants {
		if tenant != allTenants && !evaluation.IsTenantName(tenant) {
			return fmt.Errorf("%q is no legal tenant name; try up to 63 letters, digits, '.', '_' and '-', the first a letter or digit, or * for all tenants", tenant)
		}
	}
	for _, p := range g.Permissions {
		if !slices.Contains(permissions, p) {
			return fmt.Errorf("there is no permission %q; try decide, search, explain, log.read, log.admin, request, approve, relay or backup", p)
		}
	}
	return g.checkRegistered()
}

// checkRegistered checks what a caller has declared once and for all.
func (g Grant) checkRegistered() error {
	for _, obligation := range g.Obligations {
		if !IsName(obligation) {
			return fmt.Errorf("%q is no obligation type; try one such as approval_required", obligation)
		}
	}
	if g.Audiences != nil && len(g.Audiences) == 0 {
		return errors.New("audiences is empty, and no proof would be for this caller; list its names, or leave it out")
	}
	for _, audience := range g.Audiences {
		if !IsName(audience) {
			return fmt.Errorf("%q is no audience; try up to 128 bytes of printable text such as https://gateway.example.com", audience)
		}
	}
	return nil
}

// approves reports whether who holds the grant must be somebody.
func (g Grant) approves() bool { return slices.Contains(g.Permissions, Approve) }

// relays reports whether who holds the grant brings what people say.
func (g Grant) relays() bool { return slices.Contains(g.Permissions, Relay) }

// onlyKeysRelay refuses the permission to relay in a grant that is not a key's.
func (g Grant) onlyKeysRelay() error {
	if g.relays() {
		return errors.New("permissions has relay, which only API keys have; make one with policy-service keys add --permission relay, and take relay out")
	}
	return nil
}

// caller is who holds this grant by that name.
func (g Grant) caller(name string) Caller {
	return Caller{
		Name:        name,
		AllTenants:  slices.Contains(g.Tenants, allTenants),
		Tenants:     g.Tenants,
		Permissions: g.Permissions,
		Registered:  g.Obligations != nil,
		Obligations: g.Obligations,
		Audiences:   g.Audiences,
		Forwards:    g.Forwards,
	}
}

// IsName reports whether a text may be a name. It bounds what becomes part of records, policies' context and command
// lines: text of one line that no flag can be mistaken for.
func IsName(s string) bool {
	return s != "" && len(s) <= 128 && utf8.ValidString(s) && s[0] != '-' &&
		strings.TrimSpace(s) == s && !strings.ContainsFunc(s, unprintable)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
